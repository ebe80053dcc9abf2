"""Atlases by name instead of by path, from the folders where their own programs keep them:
``templateflow:NAME`` and ``brainglobe:NAME``. Nothing is downloaded.

What follows the name narrows it down, after colons: ``key-value``, as in a BIDS file's name, or one
word, ``templateflow:MNI152NLin2009cAsym:res-2:desc-brain:T1w``. A file of that very name wins.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .. import errors

# the module whose `find` looks an atlas up; it loads when a name is used
SCHEMES = {host: f"morphseek.hosts.{host}" for host in ("templateflow", "brainglobe")}

# two letters or more: C: is a drive of Windows
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a name must not lead out of its folder
_KEY = re.compile(r"([A-Za-z]+)-([A-Za-z0-9.+]+)")
_WORD = re.compile(r"[A-Za-z0-9]+")


class AtlasFiles(NamedTuple):
    """Where an atlas is."""

    files: list[Path]
    """All that the image depends on; the first has the voxels."""
    label_names: Callable[[], dict[int, str]]
    image: Callable[..., tuple[Any, ...]] | None = None
    """Returns voxels, spacing and direction, given what messages call it and what reads a file;
    None where the file says it all.
    """


def is_name(source: Any) -> bool:
    """Whether an image is given by an atlas's name: no file is called so.

    >>> is_name("templateflow:MNI152NLin2009cAsym"), is_name("C:/scans/t1.nii"), is_name("t1.nii")
    (True, False, False)
    """
    if not isinstance(source, (str, os.PathLike)):
        return False
    match = _SCHEME.fullmatch(os.fspath(source))
    return match is not None and match[1].lower() in SCHEMES and not os.path.lexists(source)


def find(source: str | os.PathLike[str], name: str) -> AtlasFiles | None:
    """Return where a named atlas is, None for a path; refuse what is missing or several images."""
    text = os.fspath(source)
    match = _SCHEME.fullmatch(text)
    if match is None or os.path.lexists(source):
        return None
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        raise errors.InputUnreadableError(
            f"{name}: {text!r} does not exist, and atlases by name begin with"
            f" {' or '.join(f'{known}:' for known in SCHEMES)}; check the path"
        )
    host = importlib.import_module(SCHEMES[scheme])
    try:
        return AtlasFiles(*host.find(f"{name}: {text}", *_parsed(text, match[2], name)))
    except RuntimeError as error:  # a user without a home
        raise errors.InputUnreadableError(f"{name}: {text}: {error}") from None


def files_of(source: str | os.PathLike[str], name: str) -> list[Path]:
    """Return the files that an atlas's name stands for; none for a path."""
    atlas = find(source, name) if is_name(source) else None
    return atlas.files if atlas else []


def label_names(*maps: Any) -> dict[int, str]:
    """Return how the labels of atlases are called that were given by name: label to name.

    Empty for what is no name, and where the atlas has no table of them; of two names for a label
    the first map's counts.

    >>> label_names("labels.nii.gz")
    {}
    """
    names: dict[int, str] = {}
    for source in maps:
        if is_name(source) and (atlas := find(source, "labels")):
            names = {**atlas.label_names(), **names}
    return names


def beside(folder: Path, text: str) -> Path:
    """Return the path of a table's cell, in the table's folder unless it is an atlas's name."""
    path = folder / text
    return Path(text) if is_name(text) and not os.path.lexists(path) else path


def absolute(source: str | os.PathLike[str]) -> Path:
    """Return a path that does not depend on the working folder; an atlas's name as it is."""
    return Path(source) if is_name(source) else Path(source).absolute()


def stem(source: str | os.PathLike[str]) -> str:
    """Return an atlas's name as a folder can have it; empty for a path.

    >>> stem("templateflow:MNI152NLin2009cAsym:res-2")
    'MNI152NLin2009cAsym_res-2'
    """
    return os.fspath(source).partition(":")[2].replace(":", "_") if is_name(source) else ""


def _parsed(text: str, rest: str, name: str) -> tuple[str, dict[str, str], str]:
    """Return the atlas, the keys with their values, and the word or an empty one."""
    atlas, *parts = rest.split(":")
    keys: dict[str, str] = {}
    words: list[str] = []
    for part in parts:
        if match := _KEY.fullmatch(part):
            whole = match[1] not in keys
            keys[match[1]] = match[2]
        else:
            whole = _WORD.fullmatch(part) is not None and not words
            words.append(part)
        if not whole:
            raise errors.InvalidArgumentError(
                f"{name}: {text!r}: {part!r} is not one more key-value, as res-2, or the one word"
                " that a name may have, as T1w"
            )
    if not _NAME.fullmatch(atlas):
        raise errors.InvalidArgumentError(
            f"{name}: {text!r} names no atlas; after the colon there must be one, as in"
            " templateflow:MNI152NLin2009cAsym or brainglobe:allen_mouse_25um"
        )
    return atlas, keys, "".join(words)
