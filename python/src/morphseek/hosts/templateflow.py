"""TemplateFlow's files where its client keeps them.

They are looked up by their names, which BIDS lays down. The client is not asked: it fills the
folder when it is imported, indexes all of it, and downloads what is asked for.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .. import errors
from ._words import listed

_NUMBERS = ("res", "cohort")
_CLIENT = {"res": "resolution", "seg": "segmentation", "den": "density"}  # others as in files
_FIRST = ("T1w", "T2w")  # which image is meant where none is named
_COLUMNS = (("index", "name"), ("label", "name"), ("index", "full_name"))  # of tables of labels
_NOTHING = re.compile("background|unknown|unlabel|nothing|none|outside", re.IGNORECASE)
_ANNEX = b"/annex/objects/"  # what git-annex leaves in the place of a file


class _File(NamedTuple):
    path: Path
    keys: dict[str, str]
    suffix: str

    def name(self, atlas: str) -> str:
        """Return what asks for it."""
        keys = [f"{key}-{value}" for key, value in self.keys.items()]
        return ":".join([f"templateflow:{atlas}", *keys, self.suffix])


def home() -> Path:
    """Return the client's folder, which need not be there."""
    if folder := os.environ.get("TEMPLATEFLOW_HOME"):
        return Path(folder)
    own = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    default = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return (Path(own) if own else Path.home() / default) / "templateflow"


def find(
    label: str, atlas: str, keys: dict[str, str], word: str
) -> tuple[list[Path], Callable[[], dict[int, str]]]:
    """Return an image's file, and what reads the names of its labels, of what a name says:
    ``templateflow:atlas:key-value:word``. Messages begin with ``label``.
    """
    folder = home() / f"tpl-{atlas}"
    keys = {key: _value(key, value) for key, value in keys.items()}
    if not folder.is_dir():
        there = sorted(path.name.removeprefix("tpl-") for path in home().glob("tpl-*"))
        near = difflib.get_close_matches(atlas, there) or there
        raise errors.InputUnreadableError(
            f"{label}: there is no {atlas} in TemplateFlow's folder, {home()}"
            f"{f' (it has {listed(near)})' if near else ''};"
            f" {_fetch(atlas, {'res': '1', **keys}, word)}"
        )
    images = _files(folder, ".nii.gz", ".nii")
    fits = [f for f in images if _asked(f.keys, keys)]
    wanted = word or next((s for s in _FIRST if any(f.suffix == s for f in fits)), "")
    fits = [f for f in fits if wanted in ("", f.suffix)]
    if len(fits) != 1:
        like = fits or [f for f in images if f.suffix == word] or images
        like.sort(key=lambda f: -len(f.keys.items() & keys.items()))
        names = listed([f.name(atlas) for f in like])
        raise errors.InputUnreadableError(
            f"{label} says {len(fits)} images; name one, as {names}"
            if fits
            else f"{label} is not in {folder}{f', which has {names}' if names else ''};"
            f" {_fetch(atlas, {'res': '1', **keys}, wanted)}"
        )
    (file,) = fits
    if not _is_fetched(file.path):
        raise errors.InputUnreadableError(
            f"{label} was not fetched: {file.path} is empty or a link to nothing;"
            f" {_fetch(atlas, file.keys, file.suffix)}"
        )
    return [file.path], functools.partial(_label_names, folder, file)


def _files(folder: Path, *endings: str) -> list[_File]:
    """Return the files of a template and of its cohorts."""
    files = []
    for path in sorted([*folder.glob("tpl-*"), *folder.glob("cohort-*/tpl-*")]):
        ending = next((e for e in endings if path.name.endswith(e)), None)
        if ending:
            _, *parts, suffix = path.name.removesuffix(ending).split("_")
            pairs = [part.partition("-") for part in parts]
            files.append(_File(path, {k: _value(k, v) for k, _, v in pairs}, suffix))
    return files


def _value(key: str, value: str) -> str:
    """Return a value as it is compared: res-01 is res-1."""
    return str(int(value)) if key in _NUMBERS and value.isdecimal() else value


def _asked(keys: dict[str, str], wanted: dict[str, str]) -> bool:
    """Whether a file is what a name says: it has no more keys, but for the resolution, 1."""
    return keys in (wanted, {"res": "1", **wanted})


def _is_fetched(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_ANNEX)) not in (b"", _ANNEX)
    except OSError:
        return False


def _fetch(atlas: str, keys: dict[str, str], suffix: str) -> str:
    query: dict[str, str | int | None] = {"resolution": None, "desc": None}
    for key, value in keys.items():
        number = key in _NUMBERS and value.isdecimal()
        query[_CLIENT.get(key, key)] = int(value) if number else value
    query["suffix"] = suffix or _FIRST[0]
    arguments = ", ".join([repr(atlas), *(f"{key}={value!r}" for key, value in query.items())])
    return (
        "fetch it where there is a network: pip install templateflow, then"
        f' python -c "from templateflow.api import get; get({arguments})"'
    )


def _label_names(folder: Path, file: _File) -> dict[int, str]:
    """Return the names of the table that shares most of a segmentation's keys, or none."""
    tables = [
        table
        for table in _files(folder, ".tsv")
        if table.suffix == file.suffix and table.keys.items() <= file.keys.items()
    ]
    table = max(tables, key=lambda t: len(t.keys), default=None)
    if table is None or not _is_fetched(table.path):
        return {}
    rows = []
    with contextlib.suppress(OSError, ValueError, csv.Error):
        text = table.path.read_text(encoding="utf-8-sig")
        rows = [row for row in csv.reader(text.splitlines(), delimiter="\t") if row]
    heading = [cell.strip().lower() for cell in rows[0]] if rows else []
    for columns in _COLUMNS:
        with contextlib.suppress(ValueError, IndexError):
            index, name = (heading.index(column) for column in columns)
            names = {int(row[index]): row[name] for row in rows[1:] if row[name]}
            # a table whose 0 is a structure counts otherwise than the image
            return names if _NOTHING.search(names.pop(0, "background")) else {}
    return {}
