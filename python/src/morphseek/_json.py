"""Figures as JSON has them, and files with some."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterator
from typing import Any

from . import errors
from ._regular import check_regular

MOST_BYTES = 16 << 20
"""Of a list or table of a stranger: no more than memory has for any content."""

MOST_RESULT_BYTES = 256 << 20
"""Of what a run of ours tells of its results, however many."""

_DEEPEST = 64
"""Brackets in brackets. What is deeper would end a function that walks through it."""


def read_text(path: str | os.PathLike[str], what: str, most: int = MOST_BYTES) -> str:
    """Return a file's text; refuse what cannot be read, exceeds `most` bytes, or is not UTF-8."""
    check_regular(path, what)
    try:
        if (size := os.stat(path).st_size) > most:
            raise ValueError(f"it has {size >> 20} MiB, more than the {most >> 20} of any list")
        with open(path, "rb") as file:
            data = file.read(most)  # whatever it has become since
    except (OSError, ValueError) as error:  # ValueError: not a path
        raise errors.InputUnreadableError(
            f"{what}: {path} cannot be read: {getattr(error, 'strerror', error)}"
        ) from None
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return data.decode("utf-8-sig")  # spreadsheets add a mark
    raise errors.InputUnreadableError(
        f'{what}: {path} is no text in UTF-8; save it anew in UTF-8 (a spreadsheet: "CSV UTF-8")'
    )


def read(path: str | os.PathLike[str], what: str, most: int = MOST_BYTES) -> Any:
    """Return the JSON content of a file. Raise the error of :func:`read_text` where it has none."""
    try:
        return parse(read_text(path, what, most))
    except ValueError as error:
        raise errors.InputUnreadableError(f"{what}: {path} is no JSON: {error}") from None


def read_object(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """Return the object in a small file; refuse what cannot be read, or holds something else."""
    content = read(path, what)
    if not isinstance(content, dict):
        raise errors.InputUnreadableError(
            f"{what}: {path} is no JSON object, {{...}}; it holds {type(content).__name__}"
        )
    return content


def object_in(path: str | os.PathLike[str], most: int = MOST_RESULT_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file: an empty one where the file is missing or damaged."""
    try:
        content = read(path, "result", most)
    except errors.InputUnreadableError:
        return {}
    return content if isinstance(content, dict) else {}


def parse(text: str) -> Any:
    """Return the content of a JSON text; ValueError where it is none, or nested too deeply."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    level, depth = [content], 0
    while level := [v for v in level if isinstance(v, (dict, list))]:
        if (depth := depth + 1) > _DEEPEST:
            raise ValueError("its brackets are nested too deeply")
        level = [v for part in level for v in (part.values() if isinstance(part, dict) else part)]
    return content


@contextlib.contextmanager
def understood(what: str) -> Iterator[None]:
    """Refuse a file whose content the block cannot use; `what` says what it is not."""
    try:
        yield
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, errors.MorphSeekError) else repr(error)
        raise errors.InputUnreadableError(f"{what}: {reason}") from None


def without_nan(value: Any) -> Any:
    """Return data with None, an empty cell of a table, for every number that is not finite."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Plain:
    """A dataclass of results: plain data, but for its picture and its transform."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all but pictures and transforms as plain data, NaN as None.

        Examples
        --------
        >>> template.iterations[0].to_dict()["kind"]
        'mean'
        """
        names = (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return without_nan(
            {name: getattr(self, name) for name in names if name not in ("picture", "transform")}
        )

    def __repr__(self) -> str:
        """Return the class and the line that tells of the object."""
        return f"{type(self).__name__}({self})"
