"""A user's own presets: the engine's options as a JSON file of names and values.

The same files go into ``morphseek register --preset FILE.json`` and ``morphseek.register(...,
preset="FILE.json")``. They come from others as images do, so they name no file and keep no images.
The package reads and writes them.
"""

from __future__ import annotations

import json
from typing import Any

from . import process
from .options import OVERRIDES, PRESETS
from .request import RegistrationRequest


def save(path: str, request: RegistrationRequest) -> None:
    """Write a request's options that are not the engine's defaults.

    Raises RuntimeError if the file cannot be written, or :func:`load` would refuse it; an existing
    one is unchanged.
    """
    defaults = {option["name"]: option["default"] for option in process.describe()["options"]}
    chosen = {
        name: value for name, value in request.options().items() if value != defaults.get(name)
    }
    if request.uncertainty:
        chosen["uncertainty"] = "on"
    process.ask("--save-preset", path, json.dumps(chosen))


def load(path: str) -> dict[str, Any]:
    """Return the fields of a RegistrationRequest that a file of options stands for.

    Raises RuntimeError if it is no preset: it has an option or a value that the engine does not
    know, or that a preset must not have (a plugin, a model that is not built in, a cache).
    """
    fields: dict[str, Any] = {"preset": "Automatic"}
    further = {}
    for name, value in process.ask("--load-preset", path)["options"].items():
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
