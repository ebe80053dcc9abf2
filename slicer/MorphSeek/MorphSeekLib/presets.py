"""A user's own presets: the engine's options as a JSON file of names and values.

The same files go into ``morphseek register --preset FILE.json`` and ``morphseek.register(...,
preset="FILE.json")``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .request import OVERRIDES, PRESETS, RegistrationRequest


def save(path: str | Path, request: RegistrationRequest, table: list[dict[str, Any]]) -> None:
    """Write a request's options that are not the engine's defaults.

    Parameters
    ----------
    table
        The engine's options: ``process.describe()["options"]``.

    Raises
    ------
    OSError
        The file cannot be written; an existing one is unchanged.
    """
    defaults = {option["name"]: option["default"] for option in table}
    chosen = {
        name: value for name, value in request.options().items() if value != defaults.get(name)
    }
    if request.uncertainty:
        chosen["uncertainty"] = "on"
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(chosen, indent=2) + "\n", encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | Path, table: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of a RegistrationRequest that a file of options stands for.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is no JSON object of options, or it has an option or a value that the engine does not
        know.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no preset: it is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no preset: it has no options by name")
    options = {option["name"]: option for option in table}
    fields: dict[str, Any] = {"preset": "Automatic"}
    further = {}
    for name, value in found.items():
        if name not in options:
            raise ValueError(f"{path}: there is no option {name!r}")
        if not _takes(options[name], value):
            raise ValueError(f"{path}: {name} cannot be {value!r}. {options[name]['help']}")
        if name == "preset":
            fields[name] = next(
                (p.name for p in PRESETS.values() if p.options == {name: value}), "Automatic"
            )
        elif name == "uncertainty":
            fields[name] = value == "on"
        elif name in OVERRIDES:
            fields[name] = f"{value:g}" if name == "smoothness" and value != str(value) else value
        else:
            further[name] = value
    return {**fields, "further_options": further}


def _takes(option: dict[str, Any], value: Any) -> bool:
    """Whether an option can have a value, as far as its table says."""
    words, number = option.get("choices"), option["type"] in ("int", "float")
    if words and value in words:
        return True
    if words and "prefix" in option:
        return isinstance(value, str) and value.startswith(option["prefix"])
    if words and "number" in option or number:
        if isinstance(value, str) and not number:
            try:
                value = float(value)
            except ValueError:
                return False
        kinds = (int,) if option["type"] == "int" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        return option.get("min", value) <= value <= option.get("max", value)
    return not words and isinstance(value, str)
