"""Image files that are written.

NIfTI files and vectors get the header that ITK writes for a small image on the same place, and
their voxels from here: ITK does not notice a full disk, copies the voxels twice, and has no word
for some fields.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._files import reserve, write_with
from .._grid import Grid, check_numbers, is_sheared
from .._itk import to_write
from .formats import NIFTI, PAIRS, WRITTEN, pair_of
from .headers import check_header, check_voxels
from .headers.nifti import LAYOUTS
from .headers.stream import fast
from .image import Image, storable
from .nifti import metadata_of, times_beyond_itk
from .sidecars import check_name

_MOST_NIFTI = 2**15 - 1  # voxels along an axis, that NIfTI-1 holds


def write(path: str | os.PathLike[str], image: Image | sitk.Image, compress: bool = True) -> None:
    """Write an image; the suffix says the format. Vector images get ITK's LPS components (NIfTI
    intent 1007).

    Raises
    ------
    OutputUnwritableError
        The format keeps no volume's grid or not these voxels, or the folder cannot be written.

    Examples
    --------
    >>> images.write("copy.nrrd", pair.fixed)
    >>> images.read("copy.nrrd").same_grid(pair.fixed)
    True
    """
    volume = image.to_sitk() if isinstance(image, Image) else image
    name = Path(path).name.lower()
    if not name.endswith(WRITTEN):
        raise errors.OutputUnwritableError(
            f"{path}: its ending is that of no image format that keeps a volume's grid; use"
            " .nii.gz, .nrrd or .mha"
        )
    place = volume.GetSpacing(), volume.GetOrigin(), volume.GetDirection()
    check_numbers(*place, f"{path} cannot be written")
    check_name(Path(path), compress)
    if name.endswith(NIFTI):
        if volume.GetPixelID() == sitk.sitkVectorUInt8:  # which ITK writes as vectors in space
            raise errors.OutputUnwritableError(f"{path}: colours are written to .nrrd or .mha")
        write_nifti(path, volume)
        return

    def put(temporary: Path) -> None:
        if not compress:
            reserve(temporary, (1 << 16) + _bytes(volume))
        with to_write(temporary) as own:
            sitk.WriteImage(volume, str(own), useCompression=compress)
        _check_written(temporary, volume)

    write_with(put, path)


def _bytes(image: sitk.Image) -> int:
    numbers = image.GetNumberOfPixels() * image.GetNumberOfComponentsPerPixel()
    return int(numbers * image.GetSizeOfPixelComponent())


def _check_written(path: Path, image: sitk.Image) -> None:
    """See that all of a file reached the disk: ITK does not ask for its last bytes."""
    if not path.exists():  # the move reports it
        return
    try:
        stored = check_header(path, "output")
        if stored is not None:
            check_voxels(stored, sitk.GetArrayViewFromImage(image), path, "output")
    except errors.InputUnreadableError:
        raise OSError(errno.EIO, os.strerror(errno.EIO)) from None


def write_nifti(
    path: str | os.PathLike[str], image: sitk.Image, fields: Mapping[str, Any] | None = None
) -> None:
    """Write a NIfTI-1, with other values in fields of its header where they are given."""
    array = sitk.GetArrayViewFromImage(image)
    if image.GetNumberOfComponentsPerPixel() > 1:  # they are the last axis of a file
        array = np.moveaxis(array, -1, 0)
    _write_nifti(path, image, image.GetSize(), array, {**times_beyond_itk(image), **(fields or {})})


def _write_nifti(
    path: str | os.PathLike[str],
    like: sitk.Image,
    size: tuple[int, ...],
    pieces: Iterable[np.ndarray],
    fields: Mapping[str, Any],
) -> None:
    """Write pieces, one after another, as an image of that size that lies like another."""
    axes = like.GetDimension()
    if is_sheared(np.array(like.GetDirection()).reshape(axes, axes)):
        raise errors.OutputUnwritableError(
            f"{path}: the axes of this grid are not at right angles, and ITK would straighten them"
            " in a NIfTI; resample the fixed image onto a straight grid first"
        )
    if max(size) > _MOST_NIFTI:
        raise errors.OutputUnwritableError(
            f"{path}: a NIfTI holds {_MOST_NIFTI} voxels along an axis at most; give the file the"
            " ending .nrrd"
        )

    def put(temporary: Path) -> None:
        is_packed = temporary.name.lower().endswith(".gz")
        is_pair = temporary.name.lower().endswith(PAIRS)
        head = np.array(bytearray(_head(like, size, ".hdr" if is_pair else ".nii")), np.uint8)
        record = np.frombuffer(head, LAYOUTS[348], 1)
        record["dim"][0, 1 : axes + 1] = size
        for field, value in fields.items():
            name, _, place = field.rstrip("]").partition("[")
            record[name][(0, int(place)) if place else 0] = value
        if is_pair:
            header, voxels = pair_of(temporary)[:2]
            store(header, b"", [head], is_packed)
            store(voxels, b"", pieces, is_packed)
        else:
            store(temporary, b"", itertools.chain([head], pieces), is_packed)

    write_with(put, path)


def _head(like: sitk.Image, size: tuple[int, ...], suffix: str) -> bytes:
    """Return what ITK writes before the voxels of an image of up to two voxels along each axis."""
    small = like[tuple(slice(0, min(n, 2)) for n in size)] if like.GetSize() == size else like
    for key, text in metadata_of(like).items():
        small.SetMetaData(key, text)
    with tempfile.TemporaryDirectory() as folder, to_write(Path(folder, f"small{suffix}")) as own:
        sitk.WriteImage(small, str(own), useCompression=False)
        data = own.read_bytes()
    return data if suffix == ".hdr" else data[: -_bytes(small)]


def store(path: Path, head: bytes, pieces: Iterable[np.ndarray], is_packed: bool) -> None:
    """Write a head as it is, and pieces behind it, which are packed by gzip if asked for."""
    pack = fast.compressobj(1, 8, 31)  # voxels hardly repeat: other levels gain nothing
    with open(path, "wb") as file:
        file.write(head)
        for piece in pieces:
            content = np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
            file.write(pack.compress(content) if is_packed else content)
        if is_packed:
            file.write(pack.flush())


def write_vectors(path: str | os.PathLike[str], array: np.ndarray, grid: Grid) -> None:
    """Write vectors of float32, shape (z, y, x, 3), on a grid as ``.nrrd``,
    uncompressed.

    Raises
    ------
    OutputUnwritableError
        The ending is another one.

    Examples
    --------
    >>> images.write_vectors("field.nrrd", result.displacement_mm(), pair.fixed.grid)
    >>> images.read_vectors("field.nrrd").shape
    (48, 48, 48, 3)
    """
    if Path(path).suffix.lower() != ".nrrd":
        raise errors.OutputUnwritableError(f"{path}: give a file of vectors the ending .nrrd")
    small = np.zeros((2, 2, 2, 3), np.float32)
    _write_nrrd(path, sitk.GetImageFromArray(small, isVector=True), grid, array)


def write_pieces(
    path: str | os.PathLike[str], grid: Grid, dtype: np.dtype, pieces: Iterable[np.ndarray]
) -> None:
    """Write slabs along z, one after another, as ``.nii``, ``.nii.gz`` or plain ``.nrrd``."""
    small = storable(np.zeros((2, 2, 2), dtype))
    like = sitk.GetImageFromArray(small)
    slabs = (np.asarray(piece, small.dtype) for piece in pieces)
    if Path(path).name.lower().endswith(".nrrd"):
        _write_nrrd(path, like, grid, slabs)
    else:
        _write_nifti(path, grid.place(like), grid.size, slabs, {})


def _write_nrrd(
    path: str | os.PathLike[str], like: sitk.Image, grid: Grid, pieces: Iterable[np.ndarray]
) -> None:
    numbers = like.GetNumberOfComponentsPerPixel()
    sizes = " ".join(map(str, (*([numbers] if numbers > 1 else []), *grid.size))).encode()

    def put(temporary: Path) -> None:
        head = _head(grid.place(like), (2, 2, 2), ".nrrd")
        head = re.sub(rb"(?m)^sizes: .*$", b"sizes: " + sizes, head)
        store(temporary, head, pieces, False)

    write_with(put, path)
