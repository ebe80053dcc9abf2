"""The engine's options, without the engine: its table, as go generate wrote it down."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any


@functools.cache
def option_table() -> list[dict[str, Any]]:
    """Return the engine's options: dicts with name, type, default, help and, where they have them,
    choices, prefix, number, min, max.
    """
    found: list[dict[str, Any]] = json.loads(
        Path(__file__).with_name("options.json").read_text(encoding="utf-8")
    )
    return found


def is_preset_file(preset: Any) -> bool:
    """Whether a preset is the user's own file, and none of the engine's.

    >>> is_preset_file("ours.json"), is_preset_file("best")
    (True, False)
    """
    return isinstance(preset, os.PathLike) or str(preset).lower().endswith(".json")
