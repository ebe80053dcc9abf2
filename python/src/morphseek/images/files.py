"""Image files by SimpleITK: the formats, whole or refused."""

from __future__ import annotations

import contextlib
import errno
import gzip
import math
import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._files import check_path, check_regular, check_unchanged, reserve, stamp, write_with
from .._itk import hdf5_lock, itk_reason, to_read, to_write
from .dicom import read_series
from .formats import NIFTI, PAIRS, WRITTEN
from .grid import is_sheared, sheared
from .headers import check_header, check_voxels
from .image import Image
from .sidecars import parts


def read_path(path: Path, name: str) -> sitk.Image:
    """Return what a file or a DICOM folder holds, whole."""
    check_path(path, name, errors.InputUnreadableError)
    try:
        if not path.exists():
            raise errors.InputUnreadableError(f"{name}: {path} does not exist; check the path")
        check_regular(path, name)
        if path.is_dir():
            return read_series(path, name)
        before = stamp(parts(path))
        try:
            image = _read_file(path, name)
            if path.name.lower().endswith(NIFTI):
                _check_whole(image, path, name)
        finally:  # or else what is said of it may not be so
            check_unchanged(before, name)
        return image
    except errors.MorphSeekError:
        raise
    except OSError as error:
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read: {error.strerror}"
        ) from None
    except RuntimeError as error:
        if "orthonormal direction" in str(error):
            raise sheared(name) from None
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read as an image: {itk_reason(error)}"
        ) from None


def _read_file(path: Path, name: str, pixels: int = sitk.sitkUnknown) -> sitk.Image:
    """Return what ITK reads from a file whose header is sound, and whose voxels match their
    checksum where the format has one. Looking for the format it asks HDF5, too, which must be
    alone.
    """
    stored = check_header(path, name)
    with to_read(path, parts(path)[1:]) as openable:
        image = _read_by_itk(openable, pixels)
    if stored is not None and not path.name.lower().endswith(NIFTI):  # whose checksum ITK compares
        check_voxels(stored, sitk.GetArrayViewFromImage(image), path, name)
    return image


def _read_by_itk(path: Path, pixels: int) -> sitk.Image:
    with hdf5_lock:
        found = sitk.ImageFileReader.GetImageIOFromFileName(str(path))
        if found == "HDF5ImageIO":
            return sitk.ReadImage(str(path), pixels, found)
    return sitk.ReadImage(str(path), pixels, found)


def _check_whole(image: sitk.Image, path: Path, name: str) -> None:
    """See that a NIfTI or Analyze file has all its voxels: ITK reads the missing ones as zeros,
    without a word.
    """
    if path.name.lower().endswith(PAIRS):
        path = next((part for part in parts(path) if part.name.endswith((".img", ".img.gz"))), path)
        # its voxels are where ITK alone finds them
        if path.name.lower().endswith((".hdr", ".hdr.gz")):
            return
    try:
        dims = [
            int(image.GetMetaData(f"dim[{i}]"))
            for i in range(1, 1 + int(image.GetMetaData("dim[0]")))
        ]
        expected = (
            int(float(image.GetMetaData("vox_offset")))
            + math.prod(dims) * int(image.GetMetaData("bitpix")) // 8
        )
    except (RuntimeError, ValueError):  # another version of the format
        return
    if math.prod(dims) != image.GetNumberOfPixels() * image.GetNumberOfComponentsPerPixel():
        return
    with open(path, "rb") as file:
        if file.read(2) != b"\x1f\x8b":
            found = path.stat().st_size
        elif _declared(path) == expected % 2**32:
            return
        else:  # cut short, or compressed in several parts, whose last one declares its own length
            file.seek(0)
            found = 0
            with (
                contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile),
                gzip.open(file) as stream,
            ):
                while part := stream.read(1 << 20):
                    found += len(part)
    if found < expected:
        raise errors.InputUnreadableError(
            f"{name}: {path} is cut short: {found} of {expected} bytes are there; copy it again"
        )


def _declared(path: Path) -> int:
    """Return the length that the end of a gzip file says its content has, modulo 2^32."""
    with open(path, "rb") as file:
        file.seek(-4, os.SEEK_END)
        return struct.unpack("<I", file.read(4))[0]


def write(path: str | os.PathLike[str], image: Image | sitk.Image, compress: bool = True) -> None:
    """Write an image; the suffix says the format. Vector images get ITK's LPS components (NIfTI
    intent 1007).
    """
    image = image.to_sitk() if isinstance(image, Image) else image
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

    write_with(put, path)


def _check_written(path: Path, image: sitk.Image) -> None:
    """See that all of a file has reached the disk: of the last bytes, which go there when a file is
    closed, ITK does not ask.
    """
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
    """Read a vector image as array of shape (z, y, x, 3)."""
    try:
        return sitk.GetArrayFromImage(_read_file(Path(path), "vectors", sitk.sitkVectorFloat32))
    except RuntimeError as error:
        raise errors.InputUnreadableError(
            f"{path} cannot be read as a vector image: {itk_reason(error)}"
        ) from None
