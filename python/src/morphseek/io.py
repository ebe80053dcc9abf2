"""Images in and out: one :class:`Image` for numpy, SimpleITK, ITK, nibabel, files and DICOM
folders.

Arrays are C-contiguous with axes (z, y, x); spacing and origin are in the order (x, y, z), in LPS
millimetres, as ITK's. Files are read and written by SimpleITK. Every file is written in a temporary
folder beside its place and moved there when it is complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import gzip
import math
import os
import re
import shutil
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np
import SimpleITK as sitk

from . import _h5, errors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ImageLike = Union[np.ndarray, "Image", sitk.Image, str, os.PathLike[str], Any]
"""numpy array (z, y, x), :class:`Image`, SimpleITK, itk or nibabel image, path or DICOM folder."""

_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
_RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
_PAIRS = (".hdr", ".img", ".hdr.gz", ".img.gz")  # a header and its voxels
# ITK's HDF5 is not made for threads, and SimpleITK runs it outside Python's lock
_hdf5 = threading.Lock()


@dataclasses.dataclass(frozen=True, eq=False)
class Image:
    """A scalar volume in physical space.

    Attributes
    ----------
    array : numpy.ndarray
        Voxels, shape (z, y, x), any real dtype.
    spacing, origin : tuple of float
        Along x, y, z; millimetres, LPS.
    direction : tuple of float
        Row-major 3x3; column c is the unit vector of index axis c (x, y, z).
    name : str
        What messages call it.

    Examples
    --------
    >>> import numpy as np
    >>> Image(np.zeros((3, 4, 5)), spacing=(1, 1, 2.5))
    Image(5 x 4 x 3 voxels of 1 x 1 x 2.5 mm, float64)
    """

    array: np.ndarray
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    origin: tuple[float, ...] = (0.0, 0.0, 0.0)
    direction: tuple[float, ...] = _IDENTITY
    name: str = "image"

    def __post_init__(self) -> None:
        for field, length in (("spacing", 3), ("origin", 3), ("direction", 9)):
            values = np.asarray(getattr(self, field), dtype=np.float64).ravel()
            if values.size != length:
                raise errors.InvalidArgumentError(
                    f"{self.name}: {field} has {values.size} numbers; it needs {length}"
                )
            object.__setattr__(self, field, tuple(values.tolist()))

    def __repr__(self) -> str:
        size = " x ".join(str(n) for n in self.array.shape[::-1])
        return (
            f"Image({size} voxels of {' x '.join(f'{s:g}' for s in self.spacing)} mm,"
            f" {self.array.dtype})"
        )

    @property
    def grid(self) -> np.ndarray:
        """The geometry as the engine takes it: 18 float64, size, spacing, origin (x, y, z) and the
        row-major direction.
        """
        return np.array(
            [*self.array.shape[::-1], *self.spacing, *self.origin, *self.direction],
            dtype=np.float64,
        )

    @classmethod
    def on_grid(cls, array: np.ndarray, grid: np.ndarray, name: str = "image") -> Image:
        """Return ``array`` on a geometry given as in :attr:`grid`."""
        spacing, origin, direction = (
            tuple(float(v) for v in grid[a:b]) for a, b in ((3, 6), (6, 9), (9, 18))
        )
        return cls(array, spacing, origin, direction, name)

    @property
    def index_to_physical(self) -> np.ndarray:
        """4x4 matrix from the continuous index (x, y, z) to LPS mm."""
        return index_to_physical(self.grid)

    def float32(self) -> np.ndarray:
        """The voxels as C-contiguous float32: the array itself where it is that already."""
        return np.ascontiguousarray(self.array, dtype=np.float32)

    def like(self, array: np.ndarray) -> Image:
        """Return other voxels on this grid."""
        return dataclasses.replace(self, array=array)

    def to_sitk(self) -> sitk.Image:
        """Return a SimpleITK image (a copy)."""
        array = self.array
        if array.dtype == bool:
            array = array.astype(np.uint8)
        elif array.dtype == np.float16:
            array = array.astype(np.float32)
        elif array.dtype == np.longdouble:
            array = array.astype(np.float64)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        return placed(sitk.GetImageFromArray(np.ascontiguousarray(array)), self.grid)


def index_to_physical(grid: np.ndarray) -> np.ndarray:
    """4x4 matrix from the continuous index (x, y, z) to LPS mm of a grid as in
    :attr:`Image.grid`.
    """
    m = np.eye(4)
    m[:3, :3] = grid[9:18].reshape(3, 3) * grid[3:6]
    m[:3, 3] = grid[6:9]
    return m


def placed(image: sitk.Image, grid: np.ndarray) -> sitk.Image:
    """Give a SimpleITK image the geometry of a grid as in :attr:`Image.grid`, and return it."""
    image.SetSpacing(grid[3:6].tolist())
    image.SetOrigin(grid[6:9].tolist())
    image.SetDirection(grid[9:18].tolist())
    return image


def grid_of(image: sitk.Image) -> np.ndarray:
    """Return the grid of a 3-D SimpleITK image as in :attr:`Image.grid`."""
    return np.array(
        [*image.GetSize(), *image.GetSpacing(), *image.GetOrigin(), *image.GetDirection()],
        dtype=np.float64,
    )


def read_on(source: ImageLike, grid: np.ndarray, name: str) -> Image:
    """Return what :func:`read` does; a numpy array, which brings no geometry, lies on `grid`
    (:attr:`Image.grid`).

    Raises
    ------
    GridMismatchError
        The array has another shape.
    """
    image = read(source, name)
    if not isinstance(source, np.ndarray):
        return image
    if image.array.shape != tuple(grid[2::-1]):
        raise errors.GridMismatchError(
            f"the {name}: the array has shape {image.array.shape}, its image"
            f" {tuple(int(n) for n in grid[2::-1])} (z, y, x); give an image with its geometry"
            " (SimpleITK, nibabel, a path) if it lies on another grid"
        )
    return Image.on_grid(image.array, grid, name)


def read(source: ImageLike, name: str = "image") -> Image:
    """Return any supported image as an :class:`Image`; voxels are shared, not copied, where they
    can be.

    Parameters
    ----------
    source : ImageLike
        numpy array with axes (z, y, x): spacing 1 mm, origin 0, axes along LPS. SimpleITK or itk
        image. nibabel image: its (i, j, k) become (x, y, z) and its RAS affine LPS; a NIfTI lies
        where its file does. Path of a file that SimpleITK reads (NIfTI, NRRD, MetaImage, ...) or of
        a folder with one DICOM series.
    name : str
        What error messages call it ("fixed", "moving mask").

    Raises
    ------
    InputUnreadableError
        The file is missing, cannot be parsed or holds something other than one scalar volume.
    InvalidArgumentError
        The object is of no supported kind.
    InvalidDirectionError
        A NIfTI or nibabel image is sheared: its axes are not at right angles.
    ThinVolumeError
        The image has two dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> read(np.zeros((3, 4, 5), np.float32), "fixed")
    Image(5 x 4 x 3 voxels of 1 x 1 x 1 mm, float32)
    """
    if isinstance(source, Image):
        image = source
    elif isinstance(source, (str, os.PathLike)):
        image = _from_path(Path(source), name)
    elif isinstance(source, sitk.Image):
        # the view makes it a copy, and leaves the caller's alone, whichever thread is at it
        image = _from_sitk(sitk.Image(source), name)
    elif hasattr(source, "affine") and hasattr(source, "dataobj"):
        image = _from_nibabel(source, name)
    elif hasattr(source, "GetLargestPossibleRegion"):
        image = _from_itk(source, name)
    elif isinstance(source, np.ndarray):
        image = Image(source)
    else:
        raise errors.InvalidArgumentError(
            f"{name} is a {type(source).__name__}; give a numpy array, a SimpleITK, itk or nibabel"
            " image, or a path"
        )
    return dataclasses.replace(image, array=_checked(image.array, name), name=name)


def _checked(array: np.ndarray, name: str) -> np.ndarray:
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 2:
        raise errors.ThinVolumeError(
            f"{name} volume is two-dimensional (shape {array.shape}); registration needs a 3-D"
            " volume"
        )
    if array.ndim != 3:
        raise errors.InvalidArgumentError(
            f"{name} volume has shape {array.shape}; give one 3-D volume (z, y, x), one time point"
            " of a series"
        )
    if array.dtype.kind not in "buif":
        raise errors.InvalidArgumentError(
            f"{name} volume has dtype {array.dtype}; voxels must be real numbers"
        )
    return array


class _Held:
    """Memory of a numpy view that keeps its owner alive, which SimpleITK's views do not."""

    def __init__(self, view: np.ndarray, owner: Any):
        self.__array_interface__ = view.__array_interface__
        self.owner = owner


def _from_sitk(image: sitk.Image, name: str) -> Image:
    """Return an image of SimpleITK's that nobody else has: where two share their voxels, a view of
    one moves it and leaves the memory to the other.
    """
    # of which a view would end the process
    if image.GetPixelIDTypeAsString().startswith("label of"):
        raise errors.InvalidArgumentError(
            f"{name} volume is a SimpleITK label map object; give SimpleITK.LabelMapToLabel of it"
        )
    array = np.asarray(_Held(sitk.GetArrayViewFromImage(image), image))
    direction = np.array(image.GetDirection()).reshape(image.GetDimension(), -1)
    return _in_space(
        array,
        image.GetNumberOfComponentsPerPixel(),
        image.GetSpacing(),
        image.GetOrigin(),
        direction,
        name,
    )


def _from_itk(image: Any, name: str) -> Image:
    itk = sys.modules["itk"]  # imported by whoever made the image
    array = itk.array_view_from_image(image)
    # ITK's origin is that of index 0, which what is left by a cropping filter need not begin with.
    first = image.TransformIndexToPhysicalPoint(image.GetBufferedRegion().GetIndex())
    return _in_space(
        array,
        image.GetNumberOfComponentsPerPixel(),
        image.GetSpacing(),
        first,
        itk.array_from_matrix(image.GetDirection()),
        name,
    )


def _in_space(
    array: np.ndarray, components: int, spacing: Any, origin: Any, direction: np.ndarray, name: str
) -> Image:
    """Return an image of ITK's; a 4-D one of one volume passes, its geometry that of the first
    three axes.
    """
    if components != 1:
        raise errors.InvalidArgumentError(
            f"{name} volume has {components} components a voxel; give a scalar volume"
        )
    if len(direction) >= 3 and _is_sheared(direction[:3, :3]):
        raise _sheared(name)
    return Image(
        _checked(array, name),
        tuple(spacing)[:3],
        tuple(origin)[:3],
        tuple(direction[:3, :3].ravel()),
    )


def _from_nibabel(image: Any, name: str) -> Image:
    import nibabel

    if image.affine is None:
        raise errors.InvalidArgumentError(
            "the nibabel image has no affine, so it lies nowhere; give it one"
        )
    array = np.asanyarray(image.dataobj).T
    if isinstance(image, nibabel.nifti1.Nifti1Pair):
        return dataclasses.replace(_nifti_place(image, name), array=array)
    affine = _RAS_TO_LPS @ image.affine
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    direction = affine[:3, :3] / np.where(spacing > 0, spacing, 1)
    if spacing.all() and _is_sheared(direction):
        raise _sheared(name)
    return Image(array, tuple(spacing), tuple(affine[:3, 3]), tuple(direction.ravel()))


def _nifti_place(image: Any, name: str) -> Image:
    """Return one voxel with the geometry of a nibabel NIfTI. ITK reads it: which of the two forms
    counts, what stands for a missing one and what unit the numbers are in is then the same as for
    the file.
    """
    import nibabel

    # that of a file, if the affine was changed since
    header = type(image)(image.dataobj, image.affine, image.header).header
    place = nibabel.Nifti1Header()  # SimpleITK reads no NIfTI-2
    for field in (
        "pixdim",
        "xyzt_units",
        "qform_code",
        "sform_code",
        *(f for f in header if f.startswith(("quatern", "qoffset", "srow"))),
    ):
        place[field] = header[field]
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder:
        path = Path(folder, "header.nii")
        nibabel.save(nibabel.Nifti1Image(np.zeros((1, 1, 1), np.uint8), None, place), path)
        return _from_path(path, name)


def _is_sheared(direction: np.ndarray) -> bool:
    # the cosines of the angles between the axes
    return bool(np.abs(direction.T @ direction - np.eye(3)).max() > 1e-3)


def _sheared(name: str) -> errors.MorphSeekError:
    return errors.InvalidDirectionError(
        f"{name}: the axes of the volume are not at right angles (its affine is sheared); resample"
        " it onto a straight grid first, for instance by nibabel.processing.resample_to_output"
    )


def _from_path(path: Path, name: str) -> Image:
    _check_text(path, name, errors.InputUnreadableError)
    try:
        if not path.exists():
            raise errors.InputUnreadableError(f"{name}: {path} does not exist; check the path")
        if path.is_dir():
            return _from_sitk(_dicom(path, name), name)
        image = _read_file(path)
        if path.name.lower().endswith((".nii", ".nii.gz", *_PAIRS)):
            _check_whole(image, path, name)
    except errors.MorphSeekError:
        raise
    except OSError as error:
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read: {error.strerror}"
        ) from None
    except RuntimeError as error:
        if "orthonormal direction" in str(error):
            raise _sheared(name) from None
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read as an image: {_reason(error)}"
        ) from None
    try:
        return _from_sitk(image, name)
    except errors.InvalidArgumentError as error:
        raise errors.InputUnreadableError(f"{error} ({path})") from None


def _read_file(path: Path, pixels: int = sitk.sitkUnknown) -> sitk.Image:
    """Return what ITK reads from a file. Looking for the format it asks HDF5, too, which must be
    alone.
    """
    with _hdf5:
        found = sitk.ImageFileReader.GetImageIOFromFileName(str(path))
        if found == "HDF5ImageIO":
            return sitk.ReadImage(str(path), pixels, found)
    return sitk.ReadImage(str(path), pixels, found)


def parts(path: Path) -> list[Path]:
    """Return the files that an image is in: its own and, where one has the geometry and another the
    voxels, that one.
    """
    suffix = path.suffix.lower()
    if suffix in (".mhd", ".nhdr", ".mha", ".nrrd"):  # the latter two may name another file, too
        with open(path, "rb") as file:
            header = file.read() if suffix in (".mhd", ".nhdr") else file.read(1 << 16)
        if suffix in (".nrrd", ".nhdr"):
            header = re.split(rb"\r?\n\r?\n", header)[0]
        others = [path.parent / name for name in _data_files(header) if name != "LOCAL"]
    else:
        own = next((suffix for suffix in _PAIRS if path.name.endswith(suffix)), "")
        others = [
            path.with_name(path.name.removesuffix(own) + other)
            for other in _PAIRS
            if own and other != own
        ]
    return [path, *(file for file in others if file.is_file())]


def _data_files(header: bytes) -> list[str]:
    """Return the names of the files with the voxels: one; a pattern with the first and the last
    number and maybe the step; or a list, a line each.
    """
    named = re.search(rb"^(?:ElementDataFile *=|data ?file:) *(.+?) *\r?$", header, re.M)
    if not named:
        return []
    text = os.fsdecode(named[1])
    if re.fullmatch(r"LIST( \d+)?", text):
        return [
            line.strip() for line in os.fsdecode(header[named.end() :]).splitlines() if line.strip()
        ]
    series = re.fullmatch(r"(\S*%0?\d*d\S*) +(-?\d+) +(-?\d+)(?: +(-?\d+))?(?: +\d+)?", text)
    if not series:
        return [text]
    first, last, step = int(series[2]), int(series[3]), int(series[4] or 1) or 1
    return [series[1] % number for number in range(first, last + (1 if step > 0 else -1), step)]


def _check_text(path: Path, name: str, error: type[errors.MorphSeekError]) -> None:
    """Refuse a path that is not UTF-8: SimpleITK would end the process."""
    try:
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError:
        raise error(
            f"{name}: the path {os.fsencode(path)!r} is no valid UTF-8; rename it"
        ) from None


def _dicom(folder: Path, name: str) -> sitk.Image:
    """Read a folder's one series, whose slices must be evenly spaced: ITK would spread one with
    gaps evenly, and only warn.
    """
    files, position = _dicom_files(folder, name), "0020|0032"
    reader = sitk.ImageSeriesReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileNames(files)
    reader.MetaDataDictionaryArrayUpdateOn()
    image = reader.Execute()
    slices = range(len(files))
    scales = {
        tuple(
            reader.GetMetaData(i, key)
            for key in ("0028|1053", "0028|1052")
            if reader.HasMetaDataKey(i, key)
        )
        for i in slices
    }
    # PET: the type that the first slice's slope asks for does not hold the others
    if len(scales) > 1:
        reader.SetOutputPixelType(sitk.sitkFloat64)
        image = reader.Execute()
    if (
        len(files) > 1
        and image.GetDepth() == len(files)
        and all(reader.HasMetaDataKey(i, position) for i in slices)
    ):
        try:
            corners = np.array(
                [[float(v) for v in reader.GetMetaData(i, position).split("\\")] for i in slices]
            )
        except ValueError:  # nothing that can be compared
            return image
        _check_stack(image, corners, folder, name)
    return image


def _check_stack(image: sitk.Image, corners: np.ndarray, folder: Path, name: str) -> None:
    """See that every slice of a series lies where its header says, (x, y, z): ITK stacks them
    straight and evenly from the first to the last.
    """
    gaps = np.diff(corners @ np.array(image.GetDirection()).reshape(3, 3)[:, 2])
    step = abs(np.median(gaps))
    if step < 1e-3 * min(image.GetSpacing()[:2]):
        raise errors.InputUnreadableError(
            f"{name}: {len(corners)} slices in {folder} are all at one position; give one volume,"
            " each slice at its own place"
        )
    if np.ptp(gaps) > 0.1 * step:
        raise errors.InputUnreadableError(
            f"{name}: the slices in {folder} are {gaps.min():.1f} to {gaps.max():.1f} mm apart;"
            " complete the series, or resample it evenly"
        )
    read = np.array([image.TransformIndexToPhysicalPoint((0, 0, i)) for i in range(len(corners))])
    off = np.linalg.norm(corners - read, axis=1).max()
    # direction cosines of three digits lean by so little
    if off > 0.1 * step + 0.005 * step * len(corners):
        raise errors.InputUnreadableError(
            f"{name}: the slices in {folder} are no straight stack (a tilted gantry?): read as one,"
            f" some would be {off:.1f} mm off; resample the series first, for instance by dcm2niix"
        )


def _check_whole(image: sitk.Image, path: Path, name: str) -> None:
    """See that a NIfTI or Analyze file has all its voxels: ITK reads the missing ones as zeros,
    without a word.
    """
    if path.name.lower().endswith(_PAIRS):
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


def _dicom_files(folder: Path, name: str) -> tuple[str, ...]:
    reader = sitk.ImageSeriesReader
    series = {
        uid: reader.GetGDCMSeriesFileNames(str(folder), uid)
        for uid in reader.GetGDCMSeriesIDs(str(folder))
    }
    if not series:
        raise errors.InputUnreadableError(
            f"{name}: the folder {folder} holds no DICOM series; give a folder of slices or a file"
        )
    if len(series) > 1:
        listing = "; ".join(f"{uid} ({len(files)} files)" for uid, files in series.items())
        raise errors.InputUnreadableError(
            f"{name}: the folder {folder} holds {len(series)} DICOM series ({listing}); move one"
            " into its own folder"
        )
    return next(iter(series.values()))


def _reason(error: Exception) -> str:
    """Return what an ITK exception says, without the source lines before it."""
    text = re.split(r"(?:ITK|sitk::)\s?ERROR: ", str(error).strip())[-1]
    if text.startswith("Unable to determine ImageIO reader"):
        return "its format is none that ITK knows; convert it to .nii.gz, .nrrd or .mha"
    return " ".join(text.split())


# which ITK gives to one library
_HDF5 = (".h5", ".hdf5", ".hdf", ".he5", ".hd5", ".hdf4", ".he2", ".he4", ".h4", ".hd4")

#: Endings of the transform files that ITK knows.
_TRANSFORMS = (*_HDF5, ".tfm", ".txt", ".xfm", ".mat")


def read_transform(source: Any) -> sitk.Transform:
    """Return a SimpleITK transform from itself, a 4x4 LPS matrix (fixed -> moving, mm) or the path
    of a ``.tfm``/``.h5`` file.

    Examples
    --------
    >>> import numpy as np
    >>> shift = np.eye(4); shift[:3, 3] = 1, 2, 3
    >>> read_transform(shift).TransformPoint((0.0, 0.0, 0.0))
    (1.0, 2.0, 3.0)
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        _check_text(path, "transform", errors.InputUnreadableError)
        try:
            if path.is_dir():
                raise errors.InputUnreadableError(
                    f"transform: {path} is a folder; of a registration's folder give transform.h5"
                )
            if not path.is_file():
                raise errors.InputUnreadableError(
                    f"transform: {path} does not exist; check the path"
                )
            with _hdf5:
                source = sitk.ReadTransform(str(path))
                # of a file that was cut short it cannot
                source.TransformPoint((0.0,) * source.GetDimension())
            _check_alone(source, path)
        except errors.MorphSeekError:
            raise
        except OSError as error:
            raise errors.InputUnreadableError(
                f"transform: {path} cannot be read: {error.strerror}"
            ) from None
        except RuntimeError as error:
            if path.suffix.lower() not in _TRANSFORMS:
                raise errors.InputUnreadableError(
                    f"transform: {path} is no transform; give an .h5 or .tfm file"
                ) from None
            reason = _reason(error)
            if "Could not create Transform IO" in reason:  # ITK blames the suffix
                reason = "it is cut short, damaged, or no transform"
            raise errors.InputUnreadableError(
                f"transform: {path} cannot be read: {reason}"
            ) from None
    if isinstance(source, sitk.Transform):
        if source.GetDimension() != 3:
            raise errors.InvalidArgumentError(
                f"the transform is {source.GetDimension()}-D; images here are 3-D"
            )
        return source
    try:
        matrix = np.asarray(source, dtype=np.float64)
    except (TypeError, ValueError):
        raise errors.InvalidArgumentError(
            f"the transform is given as {type(source).__name__}; give a SimpleITK transform, a 4x4"
            " matrix of numbers, or the path of a .tfm or .h5 file"
        ) from None
    if (
        matrix.shape != (4, 4)
        or not np.isfinite(matrix).all()
        or not np.allclose(matrix[3], (0, 0, 0, 1))
    ):
        raise errors.InvalidArgumentError(
            "a transform is a SimpleITK transform, a 4x4 matrix with last row 0 0 0 1, or the path"
            " of a .tfm or .h5 file"
        )
    if abs(np.linalg.det(matrix[:3, :3])) < 1e-12:
        raise errors.SingularTransformError(
            f"the transform's matrix {matrix[:3, :3].tolist()} cannot be inverted; correct it"
        )
    affine = sitk.AffineTransform(3)
    affine.SetMatrix(matrix[:3, :3].ravel())
    affine.SetTranslation(matrix[:3, 3])
    return affine


def _check_alone(transform: sitk.Transform, path: Path) -> None:
    """See that a text file has no more transforms than ITK took from it: of several that are not in
    a composite one, the first.
    """
    if transform.GetTransformEnum() == sitk.sitkComposite or path.suffix.lower() not in (
        ".tfm",
        ".txt",
    ):
        return
    count = len(re.findall(rb"^Transform:", path.read_bytes(), re.M))
    if count > 1:
        raise errors.InputUnreadableError(
            f"transform: {path} holds {count} transforms side by side; write them as one composite"
            " transform"
        )


def linear_part(transform: sitk.Transform) -> np.ndarray:
    """Return a linear transform as 4x4 LPS matrix.

    Raises
    ------
    InvalidArgumentError
        The transform bends: a displacement field or a spline cannot be where a registration starts.
    """
    if transform.GetDimension() != 3 or not transform.IsLinear():
        raise errors.InvalidArgumentError(
            f"initial_transform is a {transform.GetName()}; a registration starts from a rigid or"
            " affine 3-D transform. Resample the moving image by a deformable transform first"
        )
    matrix = np.eye(4)
    matrix[:3, 3] = transform.TransformPoint((0.0, 0.0, 0.0))
    for axis in range(3):
        matrix[:3, axis] = (
            np.array(transform.TransformPoint(tuple(np.eye(3)[axis]))) - matrix[:3, 3]
        )
    return matrix


#: Endings of the image formats that keep a grid's place and directions, and that are told when a
# disk is full.
_FORMATS = (".nii", ".nii.gz", ".nrrd", ".nhdr", ".mha", ".mhd", *_PAIRS)


def write_image(
    path: str | os.PathLike[str], image: Image | sitk.Image, compress: bool = True
) -> None:
    """Write an image; the suffix says the format. Vector images get ITK's LPS components (NIfTI
    intent 1007).
    """
    image = image.to_sitk() if isinstance(image, Image) else image
    if not Path(path).name.lower().endswith(_FORMATS):
        raise errors.OutputUnwritableError(
            f"{path}: its ending is that of no image format that keeps a volume's grid; use"
            " .nii.gz, .nrrd or .mha"
        )
    if Path(path).name.lower().endswith((".nii", ".nii.gz")) and _is_sheared(
        np.array(image.GetDirection()).reshape(image.GetDimension(), -1)
    ):
        raise errors.OutputUnwritableError(
            f"{path}: the axes of this grid are not at right angles, and ITK would straighten them"
            " in a NIfTI; resample the fixed image onto a straight grid first"
        )

    def write(temporary: Path) -> None:
        if not compress:
            _reserve(
                temporary,
                (1 << 16)
                + image.GetNumberOfPixels()
                * image.GetNumberOfComponentsPerPixel()
                * image.GetSizeOfPixelComponent(),
            )
        sitk.WriteImage(image, str(temporary), useCompression=compress)

    with replacing(path) as temporary:
        _write(lambda: write(temporary), temporary, path)


def write_transform(path: str | os.PathLike[str], transform: sitk.Transform) -> None:
    """Write a transform as ``.h5`` or ``.tfm``."""
    size = (1 << 16) + transform.GetNumberOfParameters() * (8 if Path(path).suffix == ".h5" else 26)

    def write(temporary: Path) -> None:
        _reserve(temporary, size)
        with _hdf5:
            sitk.WriteTransform(transform, str(temporary))

    with replacing(path) as temporary:
        _write(lambda: write(temporary), temporary, path)


def write_parts(path: str | os.PathLike[str], parts: Sequence[_h5.Part]) -> None:
    """Write a transform made of parts, the last of which acts first, as ``.h5``."""
    with replacing(path) as temporary:
        _write(lambda: _h5.write(temporary, parts), temporary, path)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8."""
    with replacing(path) as temporary:
        _write(lambda: temporary.write_text(text, encoding="utf-8"), temporary, path)


def write_array(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an array as ``.npy``."""
    with replacing(path) as temporary:
        _write(lambda: np.save(temporary, array), temporary, path)


def at_once(*writers: Callable[[], Any]) -> None:
    """Call each in a thread of its own, and wait for all: what they do is mostly outside Python's
    lock. The first one's error is raised.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(writers)) as pool:
        for future in [pool.submit(writer) for writer in writers]:
            future.result()


def _write(write: Callable[[], Any], temporary: Path, path: str | os.PathLike[str]) -> None:
    try:
        write()
        if temporary.name.lower().endswith((".nii", ".nii.gz", *_PAIRS)):
            _check_nifti(temporary)
    except (RuntimeError, OSError) as error:
        raise _output_error(error, path) from None


def _reserve(path: Path, size: int) -> None:
    """See that the disk takes size bytes: where it does not, ITK's text writer says nothing, and
    HDF5 crashes as the process ends.
    """
    if hasattr(os, "posix_fallocate"):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    elif shutil.disk_usage(path.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _check_nifti(path: Path) -> None:
    """ITK does not notice that a disk is full while it writes a NIfTI: see whether the end of its
    voxels is there.
    """
    import nibabel

    try:
        header: Any = nibabel.load(path)
    except (nibabel.filebasedimages.ImageFileError, EOFError, OSError):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
    voxels = Path(header.file_map["image"].filename)
    expected = (
        int(header.dataobj.offset)
        + int(np.prod(header.shape, dtype=np.int64)) * header.get_data_dtype().itemsize
    )
    if (
        (_declared(voxels) != expected % 2**32)
        if voxels.name.lower().endswith(".gz")
        else voxels.stat().st_size < expected
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _output_error(error: Exception, path: str | os.PathLike[str]) -> errors.MorphSeekError:
    folder = Path(path).parent
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    with contextlib.suppress(OSError):  # of a name that is too long nothing can be asked
        usage = shutil.disk_usage(folder) if folder.is_dir() else None
        # /proc has no size
        full = full or usage is not None and usage.total > 0 and usage.free < 1 << 16
    if full:
        return errors.DiskFullError(
            f"{path}: the disk is full; free some space or choose another folder"
        )
    if isinstance(error, FileNotFoundError) and not folder.exists():
        return errors.OutputUnwritableError(
            f"{path} cannot be written: there is no folder {folder}; make it first"
        )
    return errors.OutputUnwritableError(f"{path} cannot be written: {_reason(error)}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary place for a file of that name; the file becomes ``path`` when the block ends
    well and is removed otherwise.

    Where a format has the voxels in a file of their own (.mhd, .nhdr, .hdr), that one comes along,
    under the name that the header says.
    """
    path = Path(path)
    _check_text(path, "output", errors.OutputUnwritableError)
    with _staging(path.parent, path.name) as temporary:
        yield temporary / path.name
        if not (temporary / path.name).exists():
            others = ", ".join(sorted(file.name for file in temporary.iterdir()))
            raise errors.OutputUnwritableError(
                f"{path} cannot be written under that name (ITK makes {others} of it); write its"
                " ending in lower case"
            )


@contextlib.contextmanager
def output_folder(
    folder: str | os.PathLike[str], replaced: Collection[str] = (), seal: str = ""
) -> Iterator[Path]:
    """Give an empty folder to write to; its files appear in ``folder`` together when the block ends
    well, or not at all.

    ``folder`` is made if need be, and removed again on failure if it was. Files there called one of
    ``replaced`` belong to what was there before: those that the block did not write are removed
    when it ends well. ``seal`` is the file that says that what was there before is whole: it goes
    before the first new file comes.
    """
    folder = Path(folder)
    _check_text(folder, "output", errors.OutputUnwritableError)
    made: list[Path] = []
    try:
        try:
            made = [p for p in (folder, *folder.parents) if not p.exists()]
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise errors.OutputUnwritableError(
                f"output: {folder} is a file; results go to a folder, choose another name"
            ) from None
        except OSError as error:
            raise _output_error(error, folder) from None
        with _staging(folder, "output", replaced, seal) as temporary:
            yield temporary
        made = []
    finally:
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()


@contextlib.contextmanager
def _staging(
    folder: Path, name: str, replaced: Collection[str] = (), seal: str = ""
) -> Iterator[Path]:
    """Give an empty folder inside ``folder``, whose files move up when the block ends well, the one
    called ``name`` last.

    What processes that were killed left there is removed.
    """
    try:
        remove_left(folder)
        temporary, lock = _locked_folder(folder)
    except OSError as error:
        raise _output_error(error, folder / name) from None
    try:
        yield temporary
        new = sorted(temporary.iterdir(), key=lambda p: (p.name == name, p.name))
        for path in new:  # before the first of them takes its place
            if (folder / path.name).is_dir():
                raise errors.OutputUnwritableError(
                    f"{folder / path.name} is a folder, where a file is to be written; move it away"
                    " or choose another place"
                )
        try:
            if seal:
                (folder / seal).unlink(missing_ok=True)
            for path in new:
                os.replace(path, folder / path.name)
        except OSError as error:
            raise _output_error(error, error.filename2 or error.filename or folder) from None
        for stale in set(replaced) - {path.name for path in new}:
            with contextlib.suppress(OSError):
                (folder / stale).unlink()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@functools.cache
def _staging_prefix() -> str:
    """What a staging folder's name begins with. It is locked as long as its process lives, however
    that ends; locks on folders do not reach other hosts, so the name says on which one they
    count.
    """
    import socket

    return f".morphseek-{socket.gethostname()}-"


_OTHERS_AGE = 86400.0  # seconds after which a staging folder whose lock says nothing is left over


def _lock(folder: Path, wait: bool) -> int | None:
    """Return the open lock of a folder; None where another process holds it, or the system has no
    such locks.
    """
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def _locked_folder(parent: Path) -> tuple[Path, int | None]:
    """Make a staging folder and lock it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_staging_prefix(), dir=parent))
        with contextlib.suppress(FileNotFoundError):
            lock = _lock(folder, wait=True)
            if folder.exists():
                return folder, lock
            if lock is not None:  # another process took it for left over before it was locked
                os.close(lock)


def remove_left(folder: Path) -> None:
    """Remove the staging folders that killed processes left in a folder."""
    for staging in folder.glob(".morphseek-*"):
        _remove_if_left(staging)


def _remove_if_left(folder: Path) -> None:
    """Remove a staging folder whose process is gone."""
    with contextlib.suppress(OSError):
        if fcntl is None or folder.name.rpartition("-")[0] + "-" != _staging_prefix():
            if time.time() - folder.stat().st_mtime > _OTHERS_AGE:
                shutil.rmtree(folder, ignore_errors=True)
        elif (lock := _lock(folder, wait=False)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def check_apart(
    folder: str | os.PathLike[str], names: Collection[str], inputs: Mapping[str, Any]
) -> None:
    """Refuse a call that would write one of the files ``names`` in ``folder`` over one of its own
    inputs.

    Parameters
    ----------
    folder, names
        Of the outputs.
    inputs : mapping
        What messages call an input, and the input; those that are no paths pass.

    Raises
    ------
    InvalidArgumentError
    """
    written = {
        os.path.join(os.path.realpath(folder), file) for name in names for file in _written(name)
    }
    for what, given in inputs.items():
        if isinstance(given, (str, os.PathLike)):
            path = Path(given)
            files = [path]
            with contextlib.suppress(OSError, ValueError):
                files = parts(path) if path.is_file() else files
            # The file itself, and the name, which may be a link to it: a result takes the place of
            # either.
            if not written.isdisjoint(
                place
                for file in files
                for place in (
                    os.path.realpath(file),
                    os.path.join(os.path.realpath(file.parent), file.name),
                )
            ):
                raise errors.InvalidArgumentError(
                    f"{what.replace('_', ' ')}: {path} is where a result would be written; choose"
                    " another place for the output"
                )


def _written(name: str) -> list[str]:
    """Return the names of the files that an output of that name may come in."""
    for header, others in (
        (".mhd", (".raw", ".zraw")),
        (".nhdr", (".raw", ".raw.gz")),
        *((pair, _PAIRS) for pair in _PAIRS),
    ):
        if name.lower().endswith(header):
            return [name, *(name[: -len(header)] + other for other in others)]
    return [name]


def as_kind_of(source: ImageLike, image: Image) -> Any:
    """Return ``image`` as what ``source`` is: an array for an array, a SimpleITK image for a
    path.
    """
    if isinstance(source, Image):
        return image
    if isinstance(source, np.ndarray):
        return image.array
    if hasattr(source, "affine") and hasattr(source, "dataobj"):
        return _to_nibabel(source, image)
    if hasattr(source, "GetLargestPossibleRegion"):
        itk = sys.modules["itk"]
        out = itk.image_from_array(np.ascontiguousarray(image.array))
        out.SetSpacing([float(s) for s in image.spacing])
        out.SetOrigin([float(o) for o in image.origin])
        out.SetDirection(itk.matrix_from_array(np.array(image.direction).reshape(3, 3)))
        return out
    return image.to_sitk()


_TEMPLATES = 2  # NIfTI's codes above it name an atlas, which a resampled image need not lie in


def _to_nibabel(source: Any, image: Image) -> Any:
    """Return ``image`` as a nibabel image of the kind of ``source``; a NIfTI keeps the units and
    which of its two forms count.
    """
    kind = type(source)
    voxels, affine = image.array.T, _RAS_TO_LPS @ image.index_to_physical
    try:
        # NIfTI: 64-bit integers only if one says so
        made = kind(voxels, affine, dtype=voxels.dtype)
    except TypeError:
        return kind(voxels, affine)
    if hasattr(source.header, "get_xyzt_units"):
        made.header.set_xyzt_units("mm", source.header.get_xyzt_units()[1])
        codes = {form: int(source.header[f"{form}_code"]) for form in ("sform", "qform")}
        if any(codes.values()):
            made.set_sform(affine, min(codes["sform"], _TEMPLATES))
            made.set_qform(affine, min(codes["qform"], _TEMPLATES))
    return made


def read_vectors(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a vector image as array of shape (z, y, x, 3)."""
    try:
        return sitk.GetArrayFromImage(_read_file(Path(path), sitk.sitkVectorFloat32))
    except RuntimeError as error:
        raise errors.InputUnreadableError(
            f"{path} cannot be read as a vector image: {_reason(error)}"
        ) from None
