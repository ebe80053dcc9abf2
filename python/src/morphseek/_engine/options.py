"""Options as the engine takes them, read from what a caller gives."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import errors
from . import bindings, core

#: The options that say how to deform.
BENDING = (
    "initial", "model", "search", "refine", "steps", "trajectories", "tau", "similarity", "device",
    "smoothness", "along", "symmetric", "uncertainty",
)  # fmt: skip
#: Nothing that bends.
STILL = {"model": "none", "search": "off", "refine": 0}


def all_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option as the engine takes it: those given, and the others at their defaults.

    Raises
    ------
    InvalidArgumentError
        The engine does not know the name, or not the value.
    """
    # the names, before values that may be images
    bindings.check_options(dict.fromkeys(options))
    given = {name: _plain(name, value) for name, value in options.items() if value is not None}
    return bindings.check_options(given)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, as the engine takes them ("off" for False):
    :func:`all_options` without the others.
    """
    read = all_options(options)
    return {name: read[name] for name, value in options.items() if value is not None}


def checked_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return :func:`plain_options` and what is known of the model that they name, before a list of
    pairs is begun.

    Raises
    ------
    morphseek.errors.MorphSeekError
        The engine does not take them, or the model cannot be used.
    """
    chosen = plain_options(options)
    model = chosen.get("model", "default")
    return chosen, {} if model in ("none", "default") else core.verify_model(model)


def _plain(name: str, value: Any) -> Any:
    """Return an option's value as JSON knows it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float)):
        raise errors.InvalidArgumentError(
            f"{name} is given as {type(value).__name__}; options are text and numbers"
        )
    if isinstance(value, str):
        core.check_text(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.InvalidArgumentError(f"{name} is {value}; it must be a finite number")
    return value
