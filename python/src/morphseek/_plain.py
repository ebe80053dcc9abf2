"""Text of strangers, harmless where it is shown."""

from __future__ import annotations

import os
import re
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


#: With what a text begins that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def harmless(cell: Any) -> Any:
    """Return a cell of a table, which no spreadsheet takes for a formula; numbers stay.

    >>> harmless("=1+1"), harmless(-0.5)
    ("'=1+1", -0.5)
    """
    return f"'{cell}" if isinstance(cell, str) and is_formula(cell) else cell


def is_formula(text: str) -> bool:
    """Whether a spreadsheet takes a text for a formula."""
    return text.startswith(_FORMULA)


def unguarded(cell: str) -> str:
    """Return a text as it was before :func:`harmless`.

    >>> unguarded("'=1+1"), unguarded("'a'")
    ('=1+1', "'a'")
    """
    return cell[1:] if cell.startswith("'") and is_formula(cell[1:]) else cell


#: Windows' devices, which no file there may be called, whatever ending it has.
_DEVICES = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\..*)?"
)
_LONGEST = 255  # bytes, of a file's name


def why_no_name(name: str) -> str:
    """Return why no file or folder of a result may have a name, on any system; empty if it may.

    >>> why_no_name("sub-01"), why_no_name("-01"), why_no_name("COM1")
    ('', "it begins with '-', as a formula of a spreadsheet", 'Windows has a device of that name')
    """
    lower, length = name.lower(), len(os.fsencode(name))
    if is_formula(name):
        return f"it begins with {name[0]!r}, as a formula of a spreadsheet"
    if not name or lower.startswith((".", " ")) or lower.endswith((".", " ")):
        return "it begins or ends with a dot or a space" if name else "it is empty"
    if odd := next((c for c in name if c in '/\\:*?"<>|' or ord(c) < 32), ""):
        return f"it has the character {odd!r}"
    if _DEVICES.fullmatch(lower):
        return "Windows has a device of that name"
    if length > _LONGEST:
        return f"the file's name has {length} bytes; {_LONGEST} are the most"
    return ""


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
