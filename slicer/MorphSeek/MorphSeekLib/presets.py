"""A user's own presets: the engine's options as a JSON file of names and values.

The same files go into ``morphseek register --preset FILE.json`` and ``morphseek.register(...,
preset="FILE.json")``. They come from others as images do, so they name no file and keep no images.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .request import OVERRIDES, PRESETS, RegistrationRequest

_MOST_BYTES = 1 << 20


def save(path: str | Path, request: RegistrationRequest, package: dict[str, Any]) -> None:
    """Write a request's options that are not the engine's defaults.

    Parameters
    ----------
    package
        The engine's options and models: ``process.describe()``.

    Raises
    ------
    OSError
        The file cannot be written; an existing one is unchanged.
    ValueError
        :func:`load` would refuse an option.
    """
    defaults = {option["name"]: option["default"] for option in package["options"]}
    chosen = {
        name: value for name, value in request.options().items() if value != defaults.get(name)
    }
    if request.uncertainty:
        chosen["uncertainty"] = "on"
    _check_harmless(chosen, path, package)
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(chosen, indent=2) + "\n", encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | Path, package: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a RegistrationRequest that a file of options stands for.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is no JSON object of options, or it has an option or a value that the engine does not
        know, or that a preset must not have: a plugin, a model that is not built in, a cache.
    """
    if not Path(path).is_file() or Path(path).stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} is no preset: it is missing, no regular file, or too large")
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no preset: it is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no preset: it has no options by name")
    options = {option["name"]: option for option in package["options"]}
    fields: dict[str, Any] = {"preset": "Automatic"}
    further = {}
    for name, value in found.items():
        if name not in options:
            raise ValueError(f"{path}: there is no option {name!r}")
        if not _takes(options[name], value):
            raise ValueError(f"{path}: {name} cannot be {value!r}. {options[name]['help']}")
    _check_harmless(found, path, package)
    for name, value in found.items():
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


def _check_harmless(options: dict[str, Any], path: str | Path, package: dict[str, Any]) -> None:
    """Refuse, as the package does, what a preset must not say."""
    for option in package["options"]:
        name = option["name"]
        value = options.get(name, option["default"])
        if value == option["default"] or value in option.get("choices", ()):
            continue
        if "prefix" in option:
            why = "a preset loads no library"
        elif name == "model":
            known = [one["manifest"]["name"] for one in package["models"] if not one["path"]]
            if value in (*known, "none"):
                continue
            why = f"a preset names no file, but one of {', '.join([*known, 'none', 'default'])}"
        elif name == "cache":
            why = "a preset does not decide that images are kept"
        else:
            continue
        raise ValueError(
            f"{path}: {name} is {str(value)[:80]!r}; {why}. Leave it out; choose it in the panel"
            " for each study"
        )


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
