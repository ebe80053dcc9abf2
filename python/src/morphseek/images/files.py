"""Image files that are read, whole or refused."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import SimpleITK as sitk

from .. import _apart, errors
from .._files import check_unchanged, readable, stamp
from .._grid import Grid, sheared
from .._itk import hdf5_lock, itk_io, itk_reason, to_read
from .._regular import head
from .dicom import read_dicom, read_repeated
from .dicom_headers import is_dicom
from .formats import NIFTI
from .headers import check_header, check_voxels, limit, sound
from .headers.fields import UNITS, Unsound
from .headers.nifti import header_of
from .image import Reading, sentences, tell
from .nifti import read_nifti
from .others import check, doubts_of, laid
from .sidecars import headers_of, parts


def read_path(path: Path, name: str) -> Reading:
    """Return what a file or a DICOM folder holds, whole, and what its header leaves in doubt."""
    with whole(path, name):
        if path.is_dir():
            return read_dicom(path, name)
        before = stamp(parts(path))
        try:
            reading = (read_dicom if is_dicom(path) else _read_file)(path, name)
        finally:  # otherwise the message may be wrong
            check_unchanged(before, name)
        return reading


def read_frames(path: Path, name: str) -> tuple[list[sitk.Image], float | None]:
    """Return the volumes of a DICOM folder or file that shows every slice several times, in the
    order of time, and the seconds between two where the headers tell.

    Examples
    --------
    >>> frames, seconds = images.read_frames(Path("cine"), "cine")
    >>> len(frames), seconds
    (3, 1.5)
    """
    volumes, seconds = read_times(path, name)
    tell(dict.fromkeys(doubt for volume in volumes for doubt in volume.doubts))
    return [volume.image for volume in volumes], seconds


def read_times(path: Path, name: str) -> tuple[list[Reading], float | None]:
    """Do the same with what the headers leave in doubt."""
    with whole(path, name):
        return read_repeated(path, name)


@contextlib.contextmanager
def whole(path: Path, name: str) -> Iterator[None]:
    """Make what goes wrong with a file or a folder our errors."""
    try:
        with readable(path, name), itk_io(), sound(path, name):
            yield
    except errors.MorphSeekError:
        raise
    except (RuntimeError, UnicodeDecodeError) as error:
        if "orthonormal direction" in str(error):
            raise sheared(f"{name}: {path}") from None
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read as an image: {itk_reason(error)}"
        ) from None


def _read_file(path: Path, name: str) -> Reading:
    """Return what a file with a sound header holds, by ITK except for NIfTI; see its checksum."""
    stored, where = check_header(path, name), f"{name}: {path}"
    if path.name.lower().endswith(NIFTI) and (header := header_of(path)):
        assert stored is not None
        return read_nifti(header, stored, where)
    with to_read(path, parts(path)[1:]) as openable:
        image, doubts = _read_by_itk(openable, name)
    if stored is None:
        return Reading(image, sentences(doubts, where))
    check_voxels(stored, sitk.GetArrayViewFromImage(image), path, name)
    if stored.steps or stored.units:  # in mm from here on
        stored.placed(Grid.of(image)).place(image)
        for key in image.GetMetaDataKeys():
            if UNITS.fullmatch(key):
                image.EraseMetaData(key)
    return Reading(image, sentences(stored.doubts, where))


_CHECKED = ("MetaImageIO", "NrrdImageIO", "GDCMImageIO")
_LABELS = re.compile(r"^[^:]*(label|mask|region)")  # what the caller takes an image for


def _read_by_itk(path: Path, name: str) -> tuple[sitk.Image, tuple[str, ...]]:
    """Return what ITK reads of a file, and what that leaves in doubt."""
    check(path)
    with hdf5_lock:
        reader = sitk.ImageFileReader.GetImageIOFromFileName(str(path))
    if not reader:
        raise Unsound(_unknown(path))
    if reader == "JPEGImageIO" and _LABELS.search(name):
        raise Unsound("a JPEG blurs the numbers of labels and masks; save it as .png or .nii.gz")
    if reader in _CHECKED:
        return sitk.ReadImage(str(path), imageIO=reader), ()
    if _apart.is_possible():  # its content was not checked
        with _apart.plain("image", path, name, limit()) as copy:
            image = sitk.ReadImage(str(copy))
    else:
        with hdf5_lock:
            image = sitk.ReadImage(str(path), imageIO=reader)
    return laid(image, reader, path), doubts_of(path, reader, image)


def _unknown(path: Path) -> str:
    """Return what a file is that no reader takes, and what to do."""
    start = head(path, 64)
    if not start:
        return "it is empty; copy it again"
    if start.startswith(b"version https://git-lfs"):
        return "it is the pointer of a file in Git LFS; fetch the file itself with git lfs pull"
    if start.lstrip()[:1] == b"<":
        return "it is a page of the web or XML, and no image; download the file itself"
    if path.name.lower().endswith(NIFTI):
        return "it has no whole header of a NIfTI or Analyze file; copy it again"
    if headers := headers_of(path):
        return f"it holds voxels alone; give their header, {headers[0].name}"
    return "its format is none that ITK knows; convert it to .nii.gz"


def rewrite(path: Path, plain: Path) -> None:
    """Write an image anew as MetaImage; what :mod:`_apart` does in a process of its own."""
    sitk.WriteImage(sitk.ReadImage(str(path)), str(plain))


def read_vectors(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a vector image as array of shape (z, y, x, 3), float32.

    Examples
    --------
    >>> images.write_vectors("field.nrrd", result.displacement_mm(), pair.fixed.grid)
    >>> np.allclose(images.read_vectors("field.nrrd"), result.displacement_mm())
    True
    """
    vectors = sitk.GetArrayFromImage(read_path(Path(path), "vectors").image)
    return vectors.astype(np.float32, copy=False)
