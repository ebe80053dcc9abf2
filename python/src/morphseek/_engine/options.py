"""Options as the engine takes them, read from what a caller gives."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import _json, errors
from .._files import write_text
from . import bindings, core
from .generated import Options, Unpack
from .table import for_engine, in_python, is_preset_file, option_table

#: The options that say how to deform.
BENDING = (
    "initial", "model", "search", "refine", "steps", "trajectories", "tau", "similarity", "device",
    "smoothness", "along", "symmetric", "uncertainty",
)  # fmt: skip
#: Nothing that bends.
STILL = {"model": "none", "search": False, "refine": 0}


def all_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option, given or default, in Python's words; refuse unknown ones."""
    # the names, before values that may be images
    bindings.check_options(dict.fromkeys(options))
    given = {name: _plain(name, value) for name, value in options.items() if value is not None}
    read = bindings.check_options(given)
    return {name: in_python(name, value) for name, value in read.items()}


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, and those of a preset's file, as the engine reads them."""
    if is_preset_file(preset := options.get("preset")):  # whose options stand where no others do
        own = load_preset(Path(str(preset)))
        options = own | {k: v for k, v in options.items() if v is not None and k != "preset"}
    read = all_options(options)
    return {name: read[name] for name, value in options.items() if value is not None}


def checked_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return :func:`plain_options` and their model's manifest; refuse what cannot be used."""
    chosen = plain_options(options)
    model = chosen.get("model", "default")
    return chosen, {} if model in ("none", "default") else core.verify_model(model)


def load_preset(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the options of a preset's file, a JSON object of names and values, as
    :func:`save_preset`, ``--save-preset`` and 3D Slicer write it.

    Raises
    ------
    InputUnreadableError
        The file is missing, or is no JSON object.
    InvalidArgumentError
        It has an option that the engine does not know, or not the value; or one that a file of
        somebody else must not decide: a plugin as device, a model that is not built in, a cache.

    Examples
    --------
    >>> morphseek.presets.save("fine.json", refine=80)
    >>> morphseek.presets.load("fine.json")
    {'refine': 80}
    """
    found = {
        name: in_python(name, value) for name, value in _json.read_object(path, "preset").items()
    }
    try:
        read = all_options(found)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(f"preset: {path}: {error}") from None
    options = {name: read[name] for name, value in found.items() if value is not None}
    _check_harmless(options, path)
    return options


def _check_harmless(options: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Refuse what a stranger's preset must not decide: a library, another file, a cache."""
    for option in option_table():
        name = option["name"]
        value = options.get(name, option["default"])
        if isinstance(value, bool) or value in (option["default"], *option.get("choices", ())):
            continue
        if "prefix" in option:
            why, instead = "a preset loads no library", f"give --{name} or {name}= yourself"
        elif name == "model":
            known = [one["manifest"]["name"] for one in core.models() if not one["path"]]
            if value in (*known, "none"):
                continue
            why = f"a preset names no file, but one of {', '.join([*known, 'none', 'default'])}"
            instead = "give --model or model= yourself"
        elif name == "cache":
            why = "a preset does not decide that images are kept"
            instead = "give --cache or cache= yourself"
        else:
            continue
        raise errors.InvalidArgumentError(
            f"preset: {path}: {name} is {str(value)[:80]!r}; {why}. Leave it out of the file;"
            f" {instead}"
        )


def save_preset(path: str | os.PathLike[str], **options: Unpack[Options]) -> None:
    """Write options of :func:`morphseek.register` to a JSON file, for ``preset=Path(...)``.

    Raises
    ------
    InvalidArgumentError
        The engine does not know an option, or not its value; or :func:`load_preset` would refuse
        it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import morphseek
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "study.json"
    >>> morphseek.presets.save(file, smoothness="high")
    >>> morphseek.presets.load(file)
    {'smoothness': 'high'}
    """
    chosen = plain_options(options)
    _check_harmless(chosen, path)
    words = {name: for_engine(value) for name, value in chosen.items()}
    write_text(path, json.dumps(words, indent=2) + "\n")


def _plain(name: str, value: Any) -> Any:
    """Return an option's value as JSON knows it; refuse the engine's words for True and None."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float)):
        raise errors.InvalidArgumentError(
            f"{name} is given as {type(value).__name__}; options are text and numbers"
        )
    if (python := in_python(name, value)) is not value:
        raise errors.InvalidArgumentError(f"{name} is {value!r}; give {python}")
    if isinstance(value, str):
        core.check_text(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.InvalidArgumentError(f"{name} is {value}; it must be a finite number")
    return value
