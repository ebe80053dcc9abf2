"""Images larger than memory: resampled block by block, from a file to a file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine import core
from .._grid import Grid
from ..images.files import whole
from ..images.formats import NIFTI
from ..images.headers import Stored, check_header
from ..images.headers.nifti import Header, header_of
from ..images.image import sentences, tell
from ..images.nifti import place_of
from ..images.writers import write_pieces
from .labels import LABELS, as_type, carrier, checked_dtype, warn_of_labels
from .parts import field_on, reached
from .resample import Resampling, resample
from .transform import Transform, check_place, target_grid

#: Halo in voxels that each interpolation needs around a block of the input. A B-spline's
#: filter looks everywhere; at 24 voxels its share is below 1e-13.
_AROUND = {"linear": 2, "nearest": 2, "label": 2, "sinc": 7, "cubic": 24}
_HELD = 48  # bytes a voxel of the output that is worked on: places, displacements, both types
_READ = 24  # bytes a voxel of the input, likewise
_SHARE = 0.4  # share of the free memory above which an image is done by blocks
#: Formats that are written piece by piece.
WRITTEN = (".nii", ".nii.gz", ".nrrd")


def needs_blocks(image: Path, out: Path, transform: Transform, reference: Path | None) -> bool:
    """Whether an image and its result exceed the free memory, and can be done by blocks."""
    stored = _stored(image)
    if stored is None or stored.packed or len(stored.files) > 1:
        return False
    if not out.name.lower().endswith(WRITTEN):
        return False
    if reference is not None:
        of_result = _stored(reference)
        size = 0.0 if of_result is None else float(of_result.size)
    else:
        size = 0.0 if transform.grid is None else float(np.prod(transform.grid.size))
    return 6 * stored.size + _HELD * size > room()


def room() -> float:
    """Return the share of the free memory that one image may take, bytes."""
    return _SHARE * core.available_memory()


def _stored(path: Path) -> Stored | None:
    try:
        return check_header(path, "input") if path.is_file() else None
    except errors.MorphSeekError:  # the reader's own error says why
        return None


def _grid(transform: Transform, reference: images.ImageLike | None) -> Grid:
    """Return what :func:`target_grid` does; of a file only the header is read."""
    path = Path(reference) if isinstance(reference, (str, os.PathLike)) else None
    if path and (stored := _stored(path)):
        look = _Look.at(path, stored, "reference")
        if len(look.axes) == 3 or (look.header and len(look.axes) == 4):  # of a series, too
            check_place(transform, look.grid, f"the reference {reference}")
            return look.grid
    return target_grid(transform, reference)


class _Look(NamedTuple):
    """The voxels of a file, as its header describes them."""

    grid: Grid
    axes: tuple[int, ...]
    dtype: np.dtype | None
    """Of the stored numbers; None where they are no single real ones."""
    header: Header | None
    """Of a NIfTI, which may scale them."""

    @classmethod
    def at(cls, path: Path, stored: Stored, name: str) -> _Look:
        """Read a header, and tell of its doubts."""
        header = header_of(path) if path.name.lower().endswith(NIFTI) else None
        if header is not None:
            with whole(path, name):
                grid, doubts = place_of(header, f"{name}: {path}")
            axes, kind = header.shape, header.dtype
        else:
            reader = sitk.ImageFileReader()
            reader.SetFileName(str(path))
            with whole(path, name):
                reader.ReadImageInformation()
            voxel = sitk.GetArrayFromImage(sitk.Image([1] * 3, reader.GetPixelID()))
            order = voxel.dtype.newbyteorder(">" if stored.swapped > 1 else "<")
            kind = order if reader.GetNumberOfComponents() == 1 else None
            axes, doubts = reader.GetSize(), stored.doubts
            grid = stored.placed(Grid.of(reader))
        tell(sentences(doubts, f"{name}: {path}"))
        return cls(grid, axes, kind, header)


def apply_by_blocks(
    transform: Transform,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    reference: images.ImageLike | None = None,
    *,
    interpolation: str = "linear",
    background: float | None = None,
    dtype: Any = None,
    modulate: bool = False,
    memory: float = 1 << 28,
) -> None:
    """Do what :meth:`Transform.apply` does from a file to a file, with little more memory than
    `memory` bytes beside the transform's own. The arguments that are not listed are those of
    :meth:`Transform.apply`.

    Parameters
    ----------
    source : path
        Uncompressed .nii, .nrrd, .nhdr, .mha or .mhd of one scalar volume, whose voxels are the end
        of one file.
    out : path
        A .nii, .nii.gz or .nrrd; others cannot be written piece by piece.
    memory : float
        Bytes. A slice of the result must fit.

    Raises
    ------
    InvalidArgumentError
        The input is compressed or no single volume.
    OutputUnwritableError
        The output has another ending.

    Examples
    --------
    >>> images.write("large.nii", pair.moving)
    >>> transforms.apply_by_blocks(result.transform, "large.nii", "warped.nii.gz")
    >>> images.read("warped.nii.gz").same_grid(pair.fixed)
    True
    """
    if not Path(out).name.lower().endswith(WRITTEN):
        raise errors.OutputUnwritableError(
            f"{out}: by blocks {', '.join(WRITTEN)} are written; give the file such an ending"
        )
    if not (math.isfinite(memory) and memory > 0):
        raise errors.InvalidArgumentError(f"memory is {memory:g}; it must be bytes above 0")
    how = Resampling(
        interpolation=interpolation, background=background, dtype=checked_dtype(dtype),
        modulate=modulate,
    )  # fmt: skip
    reader = _BoxReader(Path(source))
    middle = np.array([0, 0, reader.size[2] // 2])
    slice_ = reader.read(middle, np.array([*reader.size[:2], middle[2] + 1]))
    warn_of_labels(slice_.array, reader.name, interpolation)
    work = _Work(transform, reader, _grid(transform, reference), how, memory)
    write_pieces(out, work.grid, work.kind, work.slabs())


class _BoxReader:
    """A file whose voxels are read by the box."""

    def __init__(self, path: Path):
        self.name = f"input: {path}"
        stored = check_header(path, "input") if path.is_file() else None
        if stored is None or stored.packed:
            # the whole image would not fit; a missing file is the reader's error
            why = "is compressed" if stored else "is no .nii, .nrrd or .mha"
            raise self._refused(why if path.exists() else "does not exist")
        self._grid, axes, kind, self._header = _Look.at(path, stored, "input")
        if kind is None or len(axes) < 3 or math.prod(axes[3:]) != 1:
            raise errors.InvalidArgumentError(
                f"{self.name} is no single scalar volume, and only such are done by blocks"
            )
        (file, *others), size = stored.files, math.prod(axes) * kind.itemsize
        is_end = stored.size == size == file.stat().st_size - stored.offset
        if others or not (is_end or self._header):
            raise self._refused("has its voxels in several files, or as text")
        self._voxels = np.memmap(file, kind, "r", stored.offset, self._grid.shape)
        self.size = np.array(self._grid.size)
        self.first = self.read(np.zeros(3, int), np.minimum(self.size, 2))
        # of what is read, for NIfTI may scale
        self.dtype = self.first.array.dtype

    def _refused(self, why: str) -> errors.MorphSeekError:
        return errors.InputUnreadableError(
            f"{self.name} {why}, so it cannot be read by blocks; write it as an uncompressed .nii,"
            " .nrrd or .mha"
        )

    def read(self, low: np.ndarray, high: np.ndarray) -> images.Image:
        """Return the box from `low` to below `high`, in voxels x, y, z."""
        part = np.ascontiguousarray(self._voxels[_box(low, high)])
        array = part.astype(part.dtype.newbyteorder("="), copy=False)
        if self._header:
            array = self._header.values(array)
        part_grid = self._grid.part(low, high - low)
        return images.read(images.Image.on_grid(array, part_grid), self.name)


def _box(low: np.ndarray, high: np.ndarray) -> tuple[slice, ...]:
    """Return the slices of an array between two corners, x, y, z."""
    return tuple(slice(a, b) for a, b in zip(low[::-1], high[::-1]))


def _slabs(size: np.ndarray, voxels: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give the corners, x, y, z, of boxes along z of about so many voxels."""
    step = max(int(voxels / max(size[:2].prod(), 1)), 1)
    for z in range(0, int(size[2]), step):
        yield np.array([0, 0, z]), np.array([*size[:2], min(z + step, size[2])])


class _Work:
    def __init__(
        self, transform: Transform, source: _BoxReader, grid: Grid, how: Resampling, memory: float
    ):
        self.sitk, self.source, self.grid = transform.to_sitk(), source, grid
        self.how, self.memory = how, memory
        self.size = np.array(grid.size)
        # wrong names are refused here
        carrier(source.first.array, how["interpolation"], None, lambda _: False, how["dtype"])
        self.around = _AROUND[how["interpolation"]]
        self.kind = source.dtype if how["dtype"] is None else how["dtype"]
        if how["modulate"] and how["dtype"] is None and self.kind.kind in "biu":
            self.kind = np.dtype(np.float32)
        given, is_zero = how["background"], how["modulate"] or how["interpolation"] in LABELS
        self.by_default = given is None and not is_zero
        self.background = self._least() if self.by_default else given or 0.0

    def _least(self) -> float:
        """Return the whole image's minimum, 0 without any number: what lies outside by default."""
        least = math.inf
        for low, high in _slabs(self.source.size, self.memory / 4 / 8):
            array = self.source.read(low, high).array
            finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
            least = min(least, float(finite.min())) if finite.size else least
        return least if math.isfinite(least) else 0.0

    def slabs(self) -> Iterator[np.ndarray]:
        """Give the result, slab by slab along z."""
        for low, high in _slabs(self.size, self.memory / 2 / _HELD):
            out = np.empty(tuple((high - low)[::-1]), self.kind)
            self._fill(out, low, low, high)
            yield out

    def _fill(self, out: np.ndarray, corner: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Fill a box of a slab, in parts where it is read from too much of the input."""
        # a derivative asks for the voxels beside
        beside = 1 if self.how["modulate"] else 0
        lower, upper = np.maximum(low - beside, 0), np.minimum(high + beside, self.size)
        box = self.grid.part(lower, upper - lower)
        first, last = self._reached(box)
        count = float(np.prod(np.maximum(last - first, 0)))
        halves = int(np.argmax(high - low))
        # smaller blocks would read almost as much, because of their margins
        if count * _READ > self.memory / 2 and (high - low)[halves] > 4 * self.around:
            is_cut, middle = np.arange(3) == halves, (low[halves] + high[halves]) // 2
            self._fill(out, corner, low, np.where(is_cut, middle, high))
            self._fill(out, corner, np.where(is_cut, middle, low), high)
            return
        where = _box(low - corner, high - corner)
        if not count:
            out[where] = as_type(np.array(self.background), self.kind)
            return
        # of a narrower type asked for, what lies outside by default need be no value
        narrow = self.by_default and self.kind.kind in "biu"
        block = resample(
            self.source.read(first, last), box, self.sitk, self.how["interpolation"],
            self.background, None if narrow else self.kind, self.how["modulate"],
        )  # fmt: skip
        inner = block.array[_box(low - lower, high - lower)]
        out[where] = as_type(inner, self.kind, self.background)

    def _reached(self, box: Grid) -> tuple[np.ndarray, np.ndarray]:
        """Return the box of the input that a box of the output is read from."""
        low, high = reached(field_on(self.sitk, box), box, self.source.first.grid)
        first = np.clip(np.floor(low) - self.around, 0, self.source.size)
        last = np.clip(np.ceil(high) + self.around + 1, 0, self.source.size)
        short = (last - first == 1) & (self.source.size > 1)  # a volume has two slices at least
        first = np.where(short & (first > 0), first - 1, first)
        last = np.where(short & (first == 0), last + 1, last)
        return first.astype(int), np.maximum(np.minimum(last, self.source.size), first).astype(int)
