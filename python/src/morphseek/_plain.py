"""Text of strangers, harmless where it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

# what moves a terminal's cursor, colours it, or turns the direction of its text
_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")


def plain(text: str) -> str:
    """Return a text for a terminal: control characters but line breaks and tabs are escaped.

    >>> print(plain("a\\x1b[31mb"))
    a\\x1b[31mb
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def harmless_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table whose texts no spreadsheet takes for a formula; numbers stay.

    >>> harmless_row({"id": "=1+1", "mm": -0.5})
    {'id': "'=1+1", 'mm': -0.5}
    """
    signs = ("=", "+", "-", "@")
    return {
        name: f"'{cell}" if isinstance(cell, str) and cell.startswith(signs) else cell
        for name, cell in row.items()
    }


def onto(moving: PurePath, fixed: PurePath) -> str:
    """Return what a pair is called: two names that differ, as short as they can be.

    >>> onto(PurePath("data/people/ann/t1.nii.gz"), PurePath("data/people/bob/t1.nii.gz"))
    'ann/t1.nii.gz onto bob/t1.nii.gz'
    """
    parts = [(path.parts or (".",)) for path in (moving, fixed)]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-count:]) for p in parts]
        if names[0] != names[1]:
            break
    return " onto ".join(names)
