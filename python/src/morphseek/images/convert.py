"""Images of numpy, SimpleITK, ITK, nibabel, files and DICOM folders as :class:`Image`, and back."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._grid import RAS, Grid, is_sheared, sheared
from . import named
from .arrays import as_array, has_axes, is_array, is_placed
from .files import read_path
from .headers.fields import UNITS, Unsound, units_of
from .headers.nifti import Header
from .image import Image, ImageLike, sentences, storable
from .nifti import metadata_of, place_of, place_of_itk
from .others import is_grey


def read_on(source: ImageLike, grid: Grid, name: str) -> Image:
    """Return what :func:`read` does; an array or a tensor, which has no geometry, lies on `grid`.

    Raises
    ------
    GridMismatchError
        The array has another shape.

    Examples
    --------
    >>> mask = np.ones(pair.fixed.array.shape)
    >>> images.read_on(mask, pair.fixed.grid, "mask").same_grid(pair.fixed)
    True
    """
    if not is_array(source):
        return read(source, name)
    image = read(Image(as_array(source, name)), name)
    if image.array.shape != grid.shape:
        raise errors.GridMismatchError(
            f"the {name}: the array has shape {image.array.shape}, its image"
            f" {grid.shape} (z, y, x); give an image with its geometry"
            " (SimpleITK, nibabel, a path) if it lies on another grid"
        )
    return Image.on_grid(image.array, grid, name)


def read(source: ImageLike, name: str = "image") -> Image:
    """Return any supported image as an :class:`Image`; voxels are shared, not copied, where they
    can be.

    Parameters
    ----------
    source : ImageLike
        numpy array with axes (z, y, x), or (y, x) for a slice: spacing 1 mm, origin 0, axes along
        LPS; what a masked one hides is NaN. SimpleITK or itk image. nibabel image: its (i, j, k)
        become (x, y, z) and its RAS affine LPS; a NIfTI lies where its file does. Path of a file
        that SimpleITK reads (NIfTI, NRRD, MetaImage, ...) or of a folder with one DICOM series, or
        the name of an atlas that was fetched ("templateflow:MNI152NLin2009cAsym",
        "brainglobe:allen_mouse_25um"). A tensor of PyTorch or another library with DLPack or
        ``__array__``, in the CPU's memory, is as a numpy array. MONAI's MetaTensor, (1, X, Y, Z),
        lies where its affine says.
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
    elif isinstance(source, sitk.Image) or hasattr(source, "GetLargestPossibleRegion"):
        # a shallow copy: the view below takes it apart from the caller's image, from any thread
        volume = sitk.Image(source) if isinstance(source, sitk.Image) else by_itk(source)
        image = _as_filed(_from_sitk(volume, name), metadata_of(source), name)
    elif hasattr(source, "affine") and hasattr(source, "dataobj"):
        image = _from_nibabel(source, name)
    elif is_array(source):
        image = Image(as_array(source, name))
        shape = image.array.shape
        if len(shape) == 3 and shape[2] in (3, 4) and min(shape[:2]) > _MOST_THIN:
            raise errors.InvalidArgumentError(
                f"{name} is an array of shape {shape}, a picture in colour or a thin volume; give"
                " the picture's brightness, (y, x), or morphseek.Image(array) of the volume"
            )
    elif has_axes(source):
        raise errors.InvalidArgumentError(
            f"{name} is an array of xarray, whose axes have places that are not read; give"
            " itk.image_from_xarray of it, or its values, which lie nowhere: (z, y, x)"
        )
    elif hasattr(source, "affine") and hasattr(source, "meta"):
        image = _from_monai(source, name)
    else:
        kinds = "a numpy array (z, y, x), a tensor, a SimpleITK, itk or nibabel image, or a path"
        kind = type(source).__name__
        raise errors.InvalidArgumentError(f"{name} is of type {kind}; give {_AS.get(kind, kinds)}")
    array = _in_memory(_checked(image.array, name), name)
    return dataclasses.replace(image, array=array, name=name)


#: What to give of an object whose array alone would lie turned, or nowhere.
_AS = {
    "ANTsImage": "morphseek.Image(x.numpy().T, x.spacing, x.origin, x.direction.ravel()) of it",
    **dict.fromkeys(("ScalarImage", "LabelMap"), "its as_sitk()"),  # of TorchIO
    **dict.fromkeys(("Dataset", "FileDataset"), "the path of its file, or of its folder"),
}
_MOST_THIN = 16  # voxels: a smaller array is no picture


def _from_monai(image: Any, name: str) -> Image:
    """Return MONAI's MetaTensor (C, X, Y, Z), whose affine is RAS unless its space says LPS."""
    array = as_array(image.as_tensor() if hasattr(image, "as_tensor") else image, name)
    if array.ndim != 4 or array.shape[0] != 1:
        raise errors.InvalidArgumentError(
            f"{name} is a MetaTensor of shape {array.shape}; give one channel, (1, X, Y, Z), as"
            " EnsureChannelFirst makes it"
        )
    affine = np.asarray(image.affine, dtype=np.float64)
    if str(image.meta.get("space", "RAS")).rpartition(".")[2] != "LPS":
        affine = RAS @ affine
    return _by_affine(array[0].T, affine, name)


def _by_affine(array: np.ndarray, affine: np.ndarray, name: str) -> Image:
    """Return an image whose indices a 4x4 matrix takes to LPS mm."""
    grid = Grid.from_matrix((1, 1, 1), affine)  # the array gives the size
    if all(grid.spacing) and grid.is_sheared():
        raise sheared(name)
    return Image.on_grid(array, grid)


def _in_memory(array: np.ndarray, name: str) -> np.ndarray:
    """Return a memory-mapped array's copy: one whose file is cut short ends the process."""
    source: Any = array
    while isinstance(source, (np.ndarray, memoryview)):
        source = source.base if isinstance(source, np.ndarray) else source.obj
    if not isinstance(source, mmap.mmap):
        return array
    try:
        cut = source.size() < len(source)
    except (OSError, ValueError):  # memory that maps no file
        cut = False
    if cut:
        raise errors.InputUnreadableError(
            f"{name} is a memory-mapped array whose file was cut short since: it has"
            f" {source.size()} bytes of {len(source)}; map it again, or give the path"
        )
    return np.array(array)


def _checked(array: np.ndarray, name: str) -> np.ndarray:
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim not in (2, 3):
        raise errors.InvalidArgumentError(
            f"{name} volume has shape {array.shape}; give one 3-D volume (z, y, x), one time point"
            " of a series, or a slice (y, x)"
        )
    if array.dtype.kind not in "buif":
        raise errors.InvalidArgumentError(
            f"{name} volume has dtype {array.dtype}; give real numbers, such as float32"
        )
    return array


class _VoxelView:
    """Memory of a numpy view that keeps its owner alive, which SimpleITK's views do not."""

    def __init__(self, view: np.ndarray, owner: Any):
        self.__array_interface__ = view.__array_interface__
        self.owner = owner


def _from_sitk(image: sitk.Image, name: str) -> Image:
    """Return an image that shares a fresh one's voxels: views of a shared one copy, or dangle. A
    4-D one of one volume lies by its first three axes.
    """
    # a view of it would crash the process
    if image.GetPixelIDTypeAsString().startswith("label of"):
        raise errors.InvalidArgumentError(
            f"{name} volume is a SimpleITK label map object; give SimpleITK.LabelMapToLabel of it"
        )
    array = np.asarray(_VoxelView(sitk.GetArrayViewFromImage(image), image))
    direction = np.array(image.GetDirection()).reshape(image.GetDimension(), -1)
    components = image.GetNumberOfComponentsPerPixel()
    if is_colour(image):
        if is_grey(array):  # its numbers themselves, which may be labels
            array = array[..., 0]
        else:
            array = array[..., :3].astype(np.float32) @ np.array(_LUMA, np.float32)
        components = 1
    if components != 1:
        raise errors.InvalidArgumentError(
            f"{name} volume has {components} components a voxel; give a scalar volume"
        )
    if len(direction) >= 3 and is_sheared(direction[:3, :3]):
        raise sheared(name)
    place = image.GetSpacing()[:3], image.GetOrigin()[:3], tuple(direction[:3, :3].ravel())
    return Image(_checked(array, name), *place)


def by_itk(image: Any) -> sitk.Image:
    """Return an image of the package itk as SimpleITK's."""
    itk = sys.modules["itk"]  # imported by whoever made the image
    if not all(image.GetBufferedRegion().GetSize()):
        raise errors.InvalidArgumentError(
            "the itk image has no voxels yet; call Update() of the filter that makes it"
        )
    array = itk.array_from_image(image)
    volume = sitk.GetImageFromArray(array, isVector=image.GetNumberOfComponentsPerPixel() > 1)
    volume.SetSpacing([float(n) for n in image.GetSpacing()])
    # a cropped one may start at an index other than 0, where its origin lies
    first = image.TransformIndexToPhysicalPoint(image.GetBufferedRegion().GetIndex())
    volume.SetOrigin([float(n) for n in first])
    volume.SetDirection(itk.array_from_matrix(image.GetDirection()).ravel().tolist())
    for key, value in metadata_of(image).items():
        volume.SetMetaData(key, value)
    return volume


def is_colour(image: Any) -> bool:
    """Whether an image of ITK's is a picture in colour, which is read as its brightness."""
    return image.GetNumberOfComponentsPerPixel() in (3, 4) and len(image.GetSpacing()) == 2


_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as PNG viewers turn colours to grey


@contextlib.contextmanager
def loaded(image: Any, name: str) -> Iterator[None]:
    """Make what goes wrong with the file of a nibabel image, read only now, our error."""
    try:
        yield
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise errors.InputUnreadableError(
            f"{name}: the nibabel image cannot be read from {image.get_filename()}: {error}"
        ) from None


def _from_nibabel(image: Any, name: str) -> Image:
    import nibabel

    if image.affine is None:
        raise errors.InvalidArgumentError(
            "the nibabel image has no affine, so it lies nowhere; give it one"
        )
    with loaded(image, name):
        array = np.asanyarray(image.dataobj).T
    if isinstance(image, nibabel.nifti1.Nifti1Pair):
        return _nifti_on(array, image, name)
    return _by_affine(array, RAS @ image.affine, name)


def _nifti_on(array: np.ndarray, image: Any, name: str) -> Image:
    """Return voxels where the header of a nibabel NIfTI lays them, as that of its file would."""
    # the constructor brings the header up to an affine that was changed since
    current = type(image)(image.dataobj, image.affine, image.header).header
    header = Header.of_bytes(current.binaryblock)
    assert header is not None
    if getattr(image.dataobj, "offset", 352) < 348 and header["magic"][:2] == b"n+":
        raise errors.InputUnreadableError(
            f"{name}: the nibabel image takes its header for voxels (vox_offset is"
            f" {image.dataobj.offset}); give the path of the file"
        )
    try:
        place = place_of(header, name)
    except Unsound as error:
        raise errors.InputUnreadableError(
            f"{name}: the nibabel image lies nowhere: {error}"
        ) from None
    grid = place.grid
    if array.ndim == 2 and not is_sheared(grid.axes[:2, :2]):
        image = Image(array, grid.spacing[:2], grid.origin[:2], tuple(grid.axes[:2, :2].ravel()))
    else:
        image = Image.on_grid(array, grid)
    return dataclasses.replace(image, doubts=sentences(place.doubts, name))


def _as_filed(image: Image, metadata: Mapping[str, str], name: str) -> Image:
    """Return ITK's image where its NIfTI's header lays it; doubt a unit that ITK passed over."""
    place = place_of_itk(image.grid, metadata, name)
    volume = Image.on_grid(image.array, place.grid)
    words = sorted({text for key, text in metadata.items() if UNITS.fullmatch(key)})
    doubts = list(place.doubts)
    if units_of(words)[0]:
        doubts.append(f"its file's unit of length is {words[0]}, and ITK reads mm; give the path")
    return dataclasses.replace(volume, doubts=sentences(doubts, name))


def of_atlas(atlas: named.AtlasFiles, name: str) -> Image:
    """Return an atlas whose file does not say it all."""
    assert atlas.image is not None
    voxels, spacing, direction = atlas.image(name, lambda path, name: read(path, name).array)
    return Image(voxels, spacing, direction=direction)


def _from_path(path: Path, name: str) -> Image:
    if atlas := named.find(path, name):
        if atlas.image:
            return of_atlas(atlas, name)
        path = atlas.files[0]
    reading = read_path(path, name)
    try:
        return dataclasses.replace(_from_sitk(reading.image, name), doubts=reading.doubts)
    except errors.InvalidDirectionError:
        raise sheared(f"{name}: {path}") from None
    except errors.InvalidArgumentError as error:
        if path.is_dir():
            raise
        if path.name.lower().endswith(".seg.nrrd"):
            raise errors.InputUnreadableError(
                f"{name}: {path} is a segmentation of 3D Slicer whose segments overlap, in layers;"
                " export it there as a label map (Segmentations, Export to labelmap)"
            ) from None
        raise errors.InputUnreadableError(f"{error} ({path})") from None


def is_image(source: Any) -> bool:
    """Whether it is of a kind that :func:`read` takes, and no list of several."""
    kinds = (Image, sitk.Image, str, os.PathLike)
    return isinstance(source, kinds) or is_array(source) or is_placed(source)


def as_kind_of(source: ImageLike, image: Image) -> Any:
    """Return ``image`` as what ``source`` is; SimpleITK's for a path, an array for a tensor."""
    if isinstance(source, Image):
        return image
    if is_array(source):
        return image.array[0] if len(source.shape) == 2 else image.array
    if isinstance(source, sitk.Image) and source.GetDimension() == 2:
        return image.to_sitk()[:, :, 0]
    if hasattr(source, "affine") and hasattr(source, "dataobj"):
        return _to_nibabel(source, image)
    if hasattr(source, "GetLargestPossibleRegion"):
        itk = sys.modules["itk"]
        out = itk.image_from_array(np.ascontiguousarray(image.array))
        out.SetSpacing([float(s) for s in image.spacing])
        out.SetOrigin([float(o) for o in image.origin])
        out.SetDirection(itk.matrix_from_array(np.array(image.direction).reshape(3, 3)))
        return out
    if hasattr(source, "affine"):  # MONAI's, (1, X, Y, Z) in RAS
        torch = sys.modules["torch"]  # imported by whoever made it
        voxels = torch.from_numpy(np.array(image.array.T, order="C"))[None]
        affine = torch.from_numpy(RAS @ image.index_to_physical)
        kind: Any = type(source)
        return kind(voxels, affine=affine, meta={"space": "RAS"})
    return image.to_sitk()


_TEMPLATES = 2  # NIfTI's codes above it name an atlas, which a resampled image need not lie in


def _to_nibabel(source: Any, image: Image) -> Any:
    """Return a nibabel image of the source's kind; a NIfTI keeps its units and its forms."""
    from nibabel.freesurfer.mghformat import MGHError
    from nibabel.spatialimages import HeaderDataError

    kind = type(source)
    voxels, affine = storable(image.array).T, RAS @ image.index_to_physical
    try:
        try:
            # NIfTI: 64-bit integers only if one says so
            result = kind(voxels, affine, dtype=voxels.dtype)
        except TypeError:
            return kind(voxels, affine)
    except (HeaderDataError, MGHError):
        raise errors.InvalidArgumentError(
            f"nibabel's {kind.__name__} holds no voxels of the type {voxels.dtype}; say another"
            " dtype, or give a NIfTI"
        ) from None
    if hasattr(source.header, "get_xyzt_units"):
        result.header.set_xyzt_units("mm", source.header.get_xyzt_units()[1])
        codes = {form: int(source.header[f"{form}_code"]) for form in ("sform", "qform")}
        if any(codes.values()):
            result.set_sform(affine, min(codes["sform"], _TEMPLATES))
            result.set_qform(affine, min(codes["qform"], _TEMPLATES))
    return result
