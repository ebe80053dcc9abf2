"""Figures as JSON has them, and files with some."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from ._files import check_regular

MOST_BYTES = 16 << 20
"""Of a list or table: a hundred thousand pairs, and no more than memory has for any content."""


def read(path: str | os.PathLike[str], what: str) -> Any:
    """Return what a small file holds.

    Raises
    ------
    InputUnreadableError
        It is no regular file.
    OSError, ValueError
        It cannot be read; it is no JSON.
    """
    check_regular(path, what)
    check_size(path)
    return parse(Path(path).read_text(encoding="utf-8-sig"))


def parse(text: str) -> Any:
    """Return what a text holds.

    Raises
    ------
    ValueError
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def check_size(path: str | os.PathLike[str]) -> None:
    """Refuse a file that is larger than any list.

    Raises
    ------
    ValueError
    """
    if (size := Path(path).stat().st_size) > MOST_BYTES:
        raise ValueError(f"it has {size >> 20} MiB, more than the {MOST_BYTES >> 20} of any list")


def without_nan(value: Any) -> Any:
    """Return data with None, an empty cell of a table, for every number that is not finite."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
