"""Images in several files, a header and its voxels; results that would overwrite an input."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from .. import errors
from .._regular import check_regular
from .formats import BESIDE, ending_of, pair_of

#: A pattern of names with the first and the last number and the step, and maybe a file's axes.
SERIES = re.compile(r"([^\s%]*%0?\d{0,2}d[^\s%]*) +(-?\d{1,9}) +(-?\d{1,9}) +(-?\d{1,9})( +\d+)?")
_MOST_FILES = 1 << 16
_HEADERS = (".mhd", ".nhdr", ".mha", ".nrrd")  # the latter two may name another file, too


def parts(path: Path) -> list[Path]:
    """Return the files of an image: its own and, where the voxels are in another, that one."""
    check_regular(path, "image")
    suffix = path.suffix.lower()
    if suffix in _HEADERS:
        with open(path, "rb") as file:
            header = file.read() if suffix in (".mhd", ".nhdr") else file.read(1 << 16)
        if suffix in (".nrrd", ".nhdr"):
            header = re.split(rb"\r?\n\r?\n", header)[0]
        others = [path.parent / name for name in data_files(header) if name != "LOCAL"]
    else:
        others = [file for file in pair_of(path) if file != path]
    return [path, *(file for file in others if file.is_file())]


def data_files(header: bytes) -> list[str]:
    """Return the names of the voxels' files: one, a pattern (:data:`SERIES`), or a list."""
    match = re.search(rb"^(?:ElementDataFile[ \t]*=|data ?file:)[ \t]*(.+?)[ \t\r]*$", header, re.M)
    if not match:
        return []
    text = os.fsdecode(match[1])
    if re.fullmatch(r"LIST( \d+)?", text):
        return [
            line.strip() for line in os.fsdecode(header[match.end() :]).splitlines() if line.strip()
        ]
    series = SERIES.fullmatch(text)
    if not series or not int(series[4]):
        return [text]
    first, last, step = map(int, series.group(2, 3, 4))
    numbers = range(first, last + (1 if step > 0 else -1), step)
    return [series[1] % number for number in numbers[:_MOST_FILES]]


def check_name(path: Path, compress: bool) -> None:
    """Refuse a name by which readers would find no voxels, or those of another image."""
    others = BESIDE.get(ending_of(path, BESIDE), ())
    named = others and not pair_of(path)
    if re.search(r"^LIST|^\s|[%\x00-\x1f]" if named else r"[\r\n]", path.name):
        raise errors.OutputUnwritableError(
            f"output: {os.fspath(path)!r} cannot be written: no reader would find the file that its"
            " header names; choose a name without a line break or %, that begins neither with a"
            " space nor with LIST"
        )
    if named:
        place = path.with_name(path.name[: path.name.rindex(".")] + others[compress])
        taken = [header for header in headers_of(place) if header.name != path.name]
    else:
        taken = [file for file in pair_of(path)[2:] if file.is_file()]  # of the other compression
    if taken:
        raise errors.OutputUnwritableError(
            f"{path} cannot be written: {taken[0].name} lies there, whose voxels could not be told"
            " from its own; choose another name, or remove the other image"
        )


def headers_of(voxels: Path) -> list[Path]:
    """Return the headers beside a file that name it for their voxels."""
    headers = []
    if voxels.is_file():
        for path in voxels.parent.iterdir():
            with contextlib.suppress(OSError, errors.MorphSeekError):
                if path.suffix.lower() in _HEADERS and voxels in parts(path)[1:]:
                    headers.append(path)
    return headers


def check_apart(
    folder: str | os.PathLike[str], names: Collection[str], inputs: Mapping[str, Any]
) -> None:
    """Refuse to write ``names`` in ``folder`` over ``inputs``, keyed by what messages call them."""
    written = {
        os.path.join(os.path.realpath(folder), file) for name in names for file in _written(name)
    }
    for what, source in inputs.items():
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            files = [path]
            with contextlib.suppress(OSError, ValueError):
                files = parts(path) if path.is_file() else files
            # a result takes the place of the file, and of the name, which may be a link to it
            own = [os.path.realpath(file) for file in files]
            own += [os.path.join(os.path.realpath(file.parent), file.name) for file in files]
            if not written.isdisjoint(own):
                raise errors.InvalidArgumentError(
                    f"{what.replace('_', ' ')}: {path} is where a result would be written; choose"
                    " another place for the output"
                )


def _written(name: str) -> list[str]:
    """Return the names of the files that an output of that name may come in."""
    ending = ending_of(name, BESIDE)
    return [name, *(name[: -len(ending)] + other for other in BESIDE.get(ending, ()))]
