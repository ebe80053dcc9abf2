"""Image files by SimpleITK: the formats, whole or refused."""

from __future__ import annotations

import contextlib
import errno
import gzip
import math
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import SimpleITK as sitk

from .. import _apart, errors
from .._files import check_path, check_regular, check_unchanged, reserve, stamp, write_with
from .._grid import Grid, is_sheared, sheared
from .._itk import hdf5_lock, itk_io, itk_reason, to_read, to_write
from .dicom import Reading, read_file, read_repeated, read_series
from .dicom_headers import is_dicom
from .formats import NIFTI, WRITTEN
from .headers import check_header, check_voxels, limit, sound
from .image import Image, tell
from .nifti import header_of, read_nifti, times_beyond_itk
from .sidecars import parts


def read_path(path: Path, name: str) -> Reading:
    """Return what a file or a DICOM folder holds, whole, and what its header leaves in doubt."""
    with _readable(path, name):
        if path.is_dir():
            return read_series(path, name)
        before = stamp(parts(path))
        try:
            reading = (read_file if is_dicom(path) else _read_file)(path, name)
        finally:  # otherwise the message may be wrong
            check_unchanged(before, name)
        return reading


def read_frames(path: Path, name: str) -> tuple[list[sitk.Image], float | None]:
    """Return the volumes of a DICOM folder or file that shows every slice several times, in the
    order of time, and the seconds between two where the headers tell.

    Examples
    --------
    >>> frames, seconds = images.read_frames(Path("cine"), "cine")  # doctest: +SKIP
    """
    volumes, seconds = read_times(path, name)
    tell(dict.fromkeys(doubt for volume in volumes for doubt in volume.doubts))
    return [volume.image for volume in volumes], seconds


def read_times(path: Path, name: str) -> tuple[list[Reading], float | None]:
    """Do the same with what the headers leave in doubt."""
    with _readable(path, name):
        return read_repeated(path, name)


@contextlib.contextmanager
def _readable(path: Path, name: str) -> Iterator[None]:
    """Make what goes wrong with a file or a folder our errors."""
    check_path(path, name, errors.InputUnreadableError)
    try:
        if not path.exists():
            raise errors.InputUnreadableError(f"{name}: {path} does not exist; check the path")
        check_regular(path, name)
        with itk_io():
            yield
    except errors.MorphSeekError:
        raise
    except OSError as error:
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:  # SimpleITK's message quotes the file
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read as an image: it is damaged"
        ) from None
    except RuntimeError as error:
        if "orthonormal direction" in str(error):
            raise sheared(f"{name}: {path}") from None
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read as an image: {itk_reason(error)}"
        ) from None


def _read_file(path: Path, name: str, pixels: int = sitk.sitkUnknown) -> Reading:
    """Return what a file holds whose header is sound, and whose voxels match their checksum where
    the format has one. ITK reads it, but for NIfTI, whose forms it does not weigh.
    """
    stored = check_header(path, name)
    if path.name.lower().endswith(NIFTI) and (header := header_of(path)):
        assert stored is not None
        with sound(path, name):
            reading = read_nifti(header, stored, f"{name}: {path}")
        told = _sentences(reading.doubts, path, name)
        image = reading.image
        return Reading(image if pixels == sitk.sitkUnknown else sitk.Cast(image, pixels), told)
    with to_read(path, parts(path)[1:]) as openable:
        image = _read_by_itk(openable, pixels, name)
    if stored is None:
        return Reading(image)
    check_voxels(stored, sitk.GetArrayViewFromImage(image), path, name)
    return Reading(image, _sentences(stored.doubts, path, name))


def _sentences(doubts: Iterable[str], path: Path, name: str) -> tuple[str, ...]:
    return tuple(f"{name}: {path}: {doubt}." for doubt in doubts)


_CHECKED = ("MetaImageIO", "NrrdImageIO", "GDCMImageIO")


def _read_by_itk(path: Path, pixels: int, name: str) -> sitk.Image:
    with hdf5_lock:
        found = sitk.ImageFileReader.GetImageIOFromFileName(str(path))
    if not found or found in _CHECKED:
        return sitk.ReadImage(str(path), pixels, found)
    if _apart.is_possible():  # its content was not checked
        with _apart.plain("image", path, name, limit()) as copy:
            return sitk.ReadImage(str(copy), pixels)
    with hdf5_lock:
        return sitk.ReadImage(str(path), pixels, found)


def rewrite(path: Path, plain: Path) -> None:
    """Write an image anew as MetaImage; what :mod:`_apart` does in a process of its own."""
    sitk.WriteImage(sitk.ReadImage(str(path)), str(plain))


def _declared(path: Path) -> int:
    """Return the length that the end of a gzip file says its content has, modulo 2^32."""
    with open(path, "rb") as file:
        file.seek(-4, os.SEEK_END)
        return struct.unpack("<I", file.read(4))[0]


def write(path: str | os.PathLike[str], image: Image | sitk.Image, compress: bool = True) -> None:
    """Write an image; the suffix says the format. Vector images get ITK's LPS components (NIfTI
    intent 1007).

    Examples
    --------
    >>> images.write("copy.nrrd", pair.fixed)
    >>> images.read("copy.nrrd").same_grid(pair.fixed)
    True
    """
    if isinstance(image, Image):
        name = Path(path).name
        if (
            compress
            and name.endswith(".nii.gz")
            and image.array.dtype == np.float32
            and image.array.ndim == 3
            and max(image.array.shape) <= _MOST_NIFTI
            and not image.grid.is_sheared()
        ):
            _write_with_header(path, image.array, image.grid, _nifti, 352)
            return
        image = image.to_sitk()
    if not Path(path).name.lower().endswith(WRITTEN):
        raise errors.OutputUnwritableError(
            f"{path}: its ending is that of no image format that keeps a volume's grid; use"
            " .nii.gz, .nrrd or .mha"
        )
    if Path(path).name.lower().endswith((".nii", ".nii.gz")) and is_sheared(
        np.array(image.GetDirection()).reshape(image.GetDimension(), -1)
    ):
        raise errors.OutputUnwritableError(
            f"{path}: the axes of this grid are not at right angles, and ITK would straighten them"
            " in a NIfTI; resample the fixed image onto a straight grid first"
        )

    def put(temporary: Path) -> None:
        if not compress:
            reserve(
                temporary,
                (1 << 16)
                + image.GetNumberOfPixels()
                * image.GetNumberOfComponentsPerPixel()
                * image.GetSizeOfPixelComponent(),
            )
        with to_write(temporary) as name:
            sitk.WriteImage(image, str(name), useCompression=compress)
        _check_written(temporary, image)
        if temporary.name.lower().endswith((".nii", ".nii.gz")):
            _patch(temporary, times_beyond_itk(image))

    write_with(put, path)


def _patch(path: Path, fields: dict[int, bytes]) -> None:
    """Replace bytes of a NIfTI's header, by offset."""
    if not fields:
        return
    packed = path.name.lower().endswith(".gz")
    data = bytearray(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    for offset, value in fields.items():
        data[offset : offset + len(value)] = value
    path.write_bytes(gzip.compress(data, 1, mtime=0) if packed else data)


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
    _write_with_header(path, array, grid, _nrrd, None)


_MOST_NIFTI = 2**15 - 1  # voxels along an axis, that NIfTI-1 holds


def _write_with_header(
    path: str | os.PathLike[str],
    array: np.ndarray,
    grid: Grid,
    put: Callable[[Path, bytes, np.ndarray], None],
    length: int | None,
) -> None:
    """Write voxels behind the header that ITK writes for a small image on the same place: it would
    copy them twice, and look for repetitions in what is noise.
    """
    small = np.zeros((2, 2, 2, *array.shape[3:]), array.dtype)
    vectors = array.ndim == 4
    like = grid.place(sitk.GetImageFromArray(small, isVector=vectors))

    def write(temporary: Path) -> None:
        name = temporary.name.removesuffix(".gz")
        with tempfile.TemporaryDirectory() as folder, to_write(Path(folder) / name) as own:
            sitk.WriteImage(like, str(own), useCompression=False)
            header = own.read_bytes()[: -small.nbytes]
        assert length is None or len(header) == length
        voxels = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        put(temporary, header, voxels)

    write_with(write, path)


def write_pieces(
    path: str | os.PathLike[str], grid: Grid, dtype: np.dtype, pieces: Iterable[np.ndarray]
) -> None:
    """Write an image whose slabs along z come one after another: ``.nii``, ``.nii.gz`` or, not
    compressed, ``.nrrd``.
    """
    small = np.zeros((2, 2, 2), dtype.newbyteorder("="))
    like, ending = Image.on_grid(small, grid).to_sitk(), Path(path).name.lower()
    sizes = grid.size
    nifti = not ending.endswith(".nrrd")
    if nifti and (max(sizes) > _MOST_NIFTI or grid.is_sheared()):
        raise errors.OutputUnwritableError(
            f"{path}: a NIfTI does not hold this grid; give the file the ending .nrrd"
        )

    def write(temporary: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / ("small.nii" if nifti else "small.nrrd")
            with itk_io():
                sitk.WriteImage(like, str(own), useCompression=False)
            head = own.read_bytes()[: -small.nbytes]
        if nifti:
            start = bytearray(head)
            struct.pack_into("=3h", start, 42, *sizes)
            head = bytes(start)
        else:
            text = " ".join(map(str, sizes)).encode()
            head = re.sub(rb"(?m)^sizes: .*$", b"sizes: " + text, head)
        packed = ending.endswith(".gz")
        with gzip.open(temporary, "wb", 1) if packed else open(temporary, "wb") as file:
            file.write(head)
            for piece in pieces:
                file.write(np.ascontiguousarray(piece, small.dtype).reshape(-1).data.cast("B"))

    write_with(write, path)


def _nifti(path: Path, header: bytes, voxels: np.ndarray) -> None:
    """Write a .nii.gz. Interpolated voxels hardly repeat: looking for runs of one byte alone, as in
    air, takes half the time for the same length.
    """
    start = bytearray(header)
    struct.pack_into("=3h", start, 42, *voxels.shape[::-1])
    pack = zlib.compressobj(1, zlib.DEFLATED, 31, 9, zlib.Z_RLE)
    with open(path, "wb") as file:
        file.write(pack.compress(start))
        flat = voxels.reshape(-1).data.cast("B")
        for at in range(0, len(flat), _PIECE):
            file.write(pack.compress(flat[at : at + _PIECE]))
        file.write(pack.flush())


_PIECE = 1 << 24  # bytes compressed at a time


def _nrrd(path: Path, header: bytes, voxels: np.ndarray) -> None:
    """Write a .nrrd of vectors."""
    sizes = " ".join(str(n) for n in voxels.shape[::-1]).encode()
    start = re.sub(rb"(?m)^sizes: .*$", b"sizes: " + sizes, header)
    reserve(path, len(start) + voxels.nbytes)
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.write(start)
        file.write(voxels.data)


def _check_written(path: Path, image: sitk.Image) -> None:
    """See that all of a file has reached the disk: of the last bytes, which go there when a file is
    closed, ITK does not ask.
    """
    if not path.exists():  # the move reports it
        return
    if path.name.lower().endswith(NIFTI):
        _check_nifti(path)
        return
    try:
        stored = check_header(path, "output")
        if stored is not None:
            check_voxels(stored, sitk.GetArrayViewFromImage(image), path, "output")
    except errors.InputUnreadableError:
        raise OSError(errno.EIO, os.strerror(errno.EIO)) from None


def _check_nifti(path: Path) -> None:
    """ITK does not notice that a disk is full while it writes a NIfTI: see whether the end of its
    voxels is there.
    """
    packed = path.name.lower().endswith(".gz")
    header, voxels = (
        path.with_name(re.sub(r"(?i)\.(hdr|img)(?=(\.gz)?$)", part, path.name))
        for part in (".hdr", ".img")
    )
    try:
        with gzip.open(header) if packed else open(header, "rb") as file:
            expected = _nifti_bytes(file.read(540))
    except (struct.error, EOFError, OSError):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
    if _declared(voxels) != expected % 2**32 if packed else voxels.stat().st_size < expected:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _nifti_bytes(header: bytes) -> int:
    """Return how long the file with the voxels is, by the header of NIfTI-1 or 2 that ITK wrote."""
    (length,) = struct.unpack_from("=i", header)
    if length not in (348, 540):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    second = length == 540
    count, *size = struct.unpack_from("=8q" if second else "=8h", header, 16 if second else 40)
    (bits,) = struct.unpack_from("=h", header, 14 if second else 72)
    (offset,) = struct.unpack_from("=q" if second else "=f", header, 168 if second else 108)
    return int(offset) + math.prod(size[:count]) * bits // 8


def read_vectors(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a vector image as array of shape (z, y, x, 3).

    Examples
    --------
    >>> images.write_vectors("field.nrrd", result.displacement_mm(), pair.fixed.grid)
    >>> np.allclose(images.read_vectors("field.nrrd"), result.displacement_mm())
    True
    """
    try:
        reading = _read_file(Path(path), "vectors", sitk.sitkVectorFloat32)
        return sitk.GetArrayFromImage(reading.image)
    except RuntimeError as error:
        raise errors.InputUnreadableError(
            f"{path} cannot be read as a vector image: {itk_reason(error)}"
        ) from None
