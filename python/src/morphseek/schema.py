"""JSON Schemas (draft 2020-12) of options, results and errors, made from the engine's tables."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

from . import errors
from ._engine import metrics
from ._engine.table import is_switch, option_table

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_TYPES = {"string": "string", "int": "integer", "float": "number"}


def options() -> dict[str, Any]:
    """Return the schema of an object of options."""
    properties = {option["name"]: _option(option) for option in option_table()}
    return {
        "$schema": _DRAFT,
        "title": "Options of a registration",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _option(option: dict[str, Any]) -> dict[str, Any]:
    limits = {
        key: option[name]
        for name, key in (("min", "minimum"), ("max", "maximum"))
        if name in option
    }
    words: dict[str, Any] = {
        "title": option["label"],
        "description": option["help"],
        "default": option["default"],
    }
    if "choices" not in option:
        kind = _TYPES[option["type"]]
        return {"type": [kind, "null"] if option.get("unset") else kind, **limits, **words}
    ways: list[dict[str, Any]] = [{"enum": option["choices"]}]
    if is_switch(option):  # reports have Python's words, presets the engine's
        ways.append({"type": "boolean"})
    if "prefix" in option:
        ways.append({"type": "string", "pattern": f"^{option['prefix']}."})
    if "number" in option:
        ways.append({"type": "number", **limits})
        ways.append({"type": "string", "pattern": r"^[0-9]*\.?[0-9]+$"})
    return (ways[0] if len(ways) == 1 else {"anyOf": ways}) | words


def result() -> dict[str, Any]:
    """Return the schema of a registration's report.json, which may hold scores besides."""
    schema = _typed(metrics.Metrics)
    numbers = {"type": "array", "items": {"type": "number"}}
    grid = {**numbers, "minItems": 18, "maxItems": 18}
    row = {**numbers, "minItems": 4, "maxItems": 4}
    more = {
        "options": {key: value for key, value in options().items() if key != "$schema"},
        "fixed_grid": grid,
        "moving_grid": grid,
        "initial_transform": {"type": "array", "items": row, "minItems": 4, "maxItems": 4},
    }
    schema["properties"] |= more
    schema["required"] += list(more)
    return {"$schema": _DRAFT, "title": "Result of a registration", **schema}


def _typed(kind: Any) -> dict[str, Any]:
    """Return the schema of a type among the metrics."""
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        # the engine writes null for a list that nothing filled
        return {"type": ["array", "null"], "items": _typed(inner[0])}
    if typing.get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": _typed(inner[1])}
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return {"anyOf": [_typed(each) for each in inner]}
    fields = typing.get_type_hints(kind)
    return {
        "type": "object",
        "properties": {name: _typed(each) for name, each in fields.items()},
        "required": list(fields),
    }


def error() -> dict[str, Any]:
    """Return the schema of what a command with --json prints when it fails."""
    kinds = [
        {
            "properties": {"name": {"const": each["name"]}, "code": {"const": each["code"]}},
            "description": f"{each['help']} (exit code {each['exit']})",
        }
        for each in errors.TABLE
    ]
    body = {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["name", "code", "message"],
        "oneOf": kinds,
    }
    return {
        "$schema": _DRAFT,
        "title": "A failure",
        "type": "object",
        "properties": {"error": body},
        "required": ["error"],
    }


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "options": options,
    "result": result,
    "errors": error,
}
"""The schemas by their names."""
