"""The files of a result: the list of them in report.json, with size and checksum, by which
a damaged file, or one of another run, is told.

CRC-32 and no SHA-256, which would slow writing by a quarter: who can change a file can change the
list beside it, too (engine/RATIONALE.md, "Results on disk").
"""

from __future__ import annotations

import fnmatch
import os
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from . import _json, errors

REPORT = "report.json"
KEY = "files"

Entry = dict[str, Any]


def entry(path: Path) -> Entry:
    """Return a file's size and checksum."""
    checksum, size = 0, 0
    buffer = memoryview(bytearray(1 << 18))  # stays in the processor's cache
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            checksum = zlib.crc32(buffer[:count], checksum)
            size += count
    return {"bytes": size, "crc32": f"{checksum:08x}"}


def is_same(path: Path, known: Any) -> bool:
    """Whether a file is the one that was listed."""
    try:
        return (
            path.is_file() and path.stat().st_size == known["bytes"] and entry(path) == dict(known)
        )
    except (OSError, KeyError, TypeError, ValueError):
        return False


def changed(folder: Path, entries: Mapping[str, Any]) -> str | None:
    """Return the first file that is not the one that was listed; None where all are."""
    return next((name for name in entries if not is_same(folder / name, entries[name])), None)


def of(listing: Path) -> Mapping[str, Any]:
    """Return the list of files in a JSON file: an empty one where there is none."""
    entries = _json.object_in(listing).get(KEY)
    return entries if isinstance(entries, dict) else {}


def owned(
    folder: Path, known: Collection[str], listing: str, but: Collection[str] = ()
) -> set[str]:
    """Return the files in a folder, ``but`` for some, that an earlier run left there: those of the
    patterns ``known`` that ``listing`` has, unchanged. The rest is the user's; without it all is.
    """
    entries = of(folder / listing)
    there = {name for name in os.listdir(folder) if name not in but}
    left = {
        name
        for name in there.intersection(entries)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in known)
        and is_same(folder / name, entries[name])
    }
    return left | ({listing} & there if (folder / listing).is_file() else set())


def check(folder: Path, entries: Mapping[str, Any], names: Collection[str], what: str) -> None:
    """Refuse a listed file that is missing or changed; files that are not listed pass."""
    listed = {name: entries[name] for name in names if name in entries}
    if (name := changed(folder, listed)) is not None:
        raise errors.InputUnreadableError(
            f"{what}: {folder / name} is not the file that {folder / REPORT} tells of: it is"
            " damaged or of another run; register again, or, if you changed it on purpose, move it"
            " to another folder"
        )
