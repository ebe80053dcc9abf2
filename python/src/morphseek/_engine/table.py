"""The engine's options, without the engine: its table, as go generate wrote it down."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@functools.cache
def option_table() -> list[dict[str, Any]]:
    """Return the engine's options in its own words: dicts with name, type, default, help and, where
    they have them, choices, prefix, number, min, max, and unset, where the default stands for none.
    """
    return json.loads(Path(__file__).with_name("options.json").read_text(encoding="utf-8"))


def is_switch(option: Mapping[str, Any]) -> bool:
    """Whether an option of the table takes a bool in Python, beside other words or alone."""
    return {"on", "off"} <= set(option.get("choices", ()))


def is_flag(option: Mapping[str, Any]) -> bool:
    """Whether an option of the table is a bool in Python, and a flag of the command."""
    return set(option.get("choices", ())) == {"on", "off"}


def in_python(name: str, value: Any) -> Any:
    """Return a value of the engine's as Python has it: True for "on", None for the number that
    stands for none.

    >>> in_python("symmetric", "on"), in_python("steps", 0), in_python("search", "auto")
    (True, None, 'auto')
    """
    for option in option_table():
        if option["name"] == name:
            if is_switch(option) and value in ("on", "off"):
                return value == "on"
            if option.get("unset") and value == option["default"]:
                return None
    return value


def limits(option: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the least and greatest number in Python, without the one that stands for none."""
    least = option.get("min")
    if option["type"] == "int" and option.get("unset") and least == option["default"]:
        least += 1
    return least, option.get("max")


def for_engine(value: Any) -> Any:
    """Return an option's value of Python's as the engine's files have it: "on" for True.

    >>> for_engine(False), for_engine(3)
    ('off', 3)
    """
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def is_preset_file(preset: Any) -> bool:
    """Whether a preset is the user's own file, and none of the engine's.

    >>> is_preset_file("ours.json"), is_preset_file("best")
    (True, False)
    """
    return isinstance(preset, os.PathLike) or str(preset).lower().endswith(".json")
