"""Helpers of the parsers: the place of voxels in a file, the lines of a header, its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..._grid import Grid
from ..sidecars import data_files

MOST_HEADER = 1 << 24
MOST_AXES = 5
MOST_NUMBER = 1e15  # ITK hangs where products of larger ones become infinite

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")


class Stored(NamedTuple):
    """The place of the voxels in a file, and their bytes."""

    files: list[Path]
    offset: int
    size: int
    packed: str
    """"zlib", "gzip" or empty."""
    swapped: int
    """Bytes of a number that is stored in the other order; 1 where nothing is swapped."""
    doubts: tuple[str, ...] = ()
    """Doubts about the place of the voxels."""
    steps: tuple[float, ...] = ()
    """Spacings along x, y and z that the header tells and ITK, which takes 1, does not read."""
    units: tuple[float, ...] = ()
    """Mm of the header's units of length along the axes of space, below 0 where these run from LPS
    the other way.
    """
    is_all: bool = False
    """Whether the files hold these bytes after the offset, and no others."""

    @property
    def needed(self) -> int:
        """The bytes that each of the files has, at least."""
        return -(-self.size // len(self.files)) + self.offset

    def placed(self, grid: Grid) -> Grid:
        """Return the grid that the header means, of the one that ITK reads in it."""
        if not self.steps and not self.units:
            return grid
        matrix = grid.index_to_physical.copy()
        for k, step in enumerate(self.steps):
            matrix[:, k] *= step
        for k, unit in enumerate(self.units):
            matrix[k] *= unit
        return Grid.from_matrix(grid.size, matrix)


#: Keys of SimpleITK's metadata that hold a header's units of length.
UNITS = re.compile(r"ITK_VoxelUnits|NRRD_units\[\d\]")
NO_SPACING = "its header does not say how large its voxels are; 1 mm is taken"
_MM = {
    **dict.fromkeys(("", "?", "???", "mm", "millimeter", "millimetre"), 1.0),
    **dict.fromkeys(("m", "meter", "metre"), 1e3),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), 10.0),
    **dict.fromkeys(("um", "\u00b5m", "\u03bcm", "micron", "micrometer", "micrometre"), 1e-3),
    **dict.fromkeys(("nm", "nanometer", "nanometre"), 1e-6),
}


class Unsound(Exception):
    """The fault of a header, in words."""


class CutShort(Unsound):
    """A file that ends before its last voxel."""

    def __init__(self, file: Path | str, there: int, needed: int):
        super().__init__(f"{file} is cut short: {there} of {needed} bytes are there; copy it again")


def integer(field: str, text: str, least: int, most: int) -> int:
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or not least <= value <= most:
        raise Unsound(f"{field} is {short(text)}; it must be a whole number, {least} to {most}")
    return value


def numbers(field: str, text: str, count: int, unknown: bool = False) -> list[float]:
    """Return numbers, finite unless ``unknown`` ones may be NaN."""
    words = text.split()
    if len(words) != count:
        raise Unsound(f"{field} has {len(words)} numbers; it needs {count}")
    for word in words:
        sound = _NUMBER.fullmatch(word) and abs(float(word)) <= MOST_NUMBER
        if not sound and not (unknown and word.lower().lstrip("+-") == "nan"):
            raise Unsound(f"{field} has {short(word)}, which is no number of a grid")
    return [float(word) for word in words]


def short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:30] + "...")


def sizes_of(field: str, text: str, count: int) -> list[int]:
    words = text.split()
    if len(words) != count:
        raise Unsound(f"{field} has {len(words)} numbers; it needs {count}")
    return [integer(field, word, 1, 2**31 - 1) for word in words]


def header_lines(path: Path, end: Callable[[str], bool]) -> tuple[list[str], int]:
    """Return a header's lines, up to the one that ends it, and how many bytes they are."""
    lines: list[str] = []
    with open(path, "rb") as stream:
        while raw := stream.readline(MOST_HEADER if lines else 1 << 16):
            if stream.tell() > MOST_HEADER or len(raw) == 1 << 16 and lines == []:
                raise Unsound("its header does not end")
            if b"\0" in raw:
                raise Unsound("its header is no text")
            lines.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
            if end(lines[-1]):
                return lines, stream.tell()
    return lines, path.stat().st_size


def files_of_voxels(path: Path) -> list[str]:
    with open(path, "rb") as stream:
        header = stream.read(MOST_HEADER)
    return data_files(header)


def units_of(words: list[str]) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return the mm of units of length, none where all are mm, and doubts about unknown ones."""
    names = [re.sub(r"(?<=[a-z]{4})s$", "", word.strip().lower()) for word in words]
    doubts = [
        f"its header's unit of length is {short(word)}, which is not known; mm is taken"
        for word, name in zip(words, names)
        if name not in _MM
    ]
    units = tuple(_MM.get(name, 1.0) for name in names)
    return () if set(units) <= {1.0} else units, tuple(dict.fromkeys(doubts))
