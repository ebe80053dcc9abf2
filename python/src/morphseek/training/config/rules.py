"""Checks of a configuration beyond its types, and how values are filled in."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from typing import Any, Literal

from .errors import ConfigError


def ranged(default: Any, least: float = -math.inf, most: float = math.inf) -> Any:
    """Make a field of a section with the range of its number, or of every number in its list."""
    limits = {"range": (least, most)}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=limits)
    return dataclasses.field(default=default, metadata=limits)


def between(least: float, most: float) -> str:
    if least == -math.inf:
        return f"{most:g} or less"
    return f"{least:g} or more" if most == math.inf else f"between {least:g} and {most:g}"


def at_iteration(section: Any, iteration: int, name: str) -> Any:
    """Return a section with the changes of its ``phases`` up to ``iteration``."""
    values = {k: v for k, v in dataclasses.asdict(section).items() if k != "phases"}
    for phase in sorted(section.phases, key=lambda p: p.get("iteration", 0)):
        if "iteration" not in phase:
            raise ConfigError(
                f"every table of '{name}.phases' needs 'iteration', the one at which it begins"
            )
        if phase["iteration"] <= iteration:
            values |= {k: v for k, v in phase.items() if k != "iteration"}
    return fill(type(section), values, f"{name}.phases.")


def fill(cls: Any, values: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = (
                f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
            )
            raise ConfigError(f"unknown key {where + key!r}{hint}")
    out = {}
    for key, value in values.items():
        out[key] = _check(hints[key], value, where + key)
    return cls(**out)


def _check(kind: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"{where!r} must be a section ([{where}])")
        return fill(kind, value, f"{where}.")
    if origin is Literal:
        if value not in args:
            raise ConfigError(
                f"{where!r} must be one of {', '.join(map(repr, args))}, not {value!r}"
            )
        return value
    if origin is list:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where!r} must be a list, not {value!r}")
        return [_check(args[0], v, where) for v in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where!r} must be a table, not {value!r}")
        return dict(value)
    if origin is types.UnionType:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where!r} must be {kind.__name__}, not {value!r}")
    return value
