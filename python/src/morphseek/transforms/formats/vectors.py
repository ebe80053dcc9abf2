"""The meaning of the three numbers of a vector image: one table for files and objects.

ITK and ANTs write displacements in LPS mm. SPM, NiftyReg, FSL and Slicer write the same kind of
image with other numbers in it, and say so in the header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import SimpleITK as sitk

from ... import errors
from ..._grid import RAS, Grid
from ...images.headers.fields import header_lines
from ...images.headers.nrrd import DOMAINS
from ...images.nifti import metadata_of
from ..parts import composed, field_part, inverted
from .job import Content

_LPS, _RAS = np.eye(3), RAS[:3, :3]


class Meaning(NamedTuple):
    """The vector in mm."""

    axes: np.ndarray
    """From its own axes to LPS."""
    places: bool = False
    """Whether it says where its voxel goes, and not by how much."""
    inverse: bool = False
    """Whether it goes from the moving image to the fixed one."""
    holes: bool = False
    """Whether NaN stands where nothing is known."""


class Vectors(NamedTuple):
    """Three numbers a voxel, shape (z, y, x, 3), where they lie, and what a header says of them."""

    name: str
    refused: Callable[[str], errors.MorphSeekError]
    header: Mapping[str, str] = {}
    """By the names of SimpleITK's metadata."""
    format: str | None = None
    """Their meaning, by the caller."""
    values: np.ndarray = np.empty(0)
    grid: Grid = Grid((0, 0, 0))


SPLINES = (2007, 2008, 2009, 2016, 2017)  # NIfTI's intents of FSL's coefficients
WARP, DISPLACEMENT, VECTOR = 2006, 1006, 1007
_MATRICES = {1004: "matrices", 1005: "tensors", 1010: "quaternions"}
_FORMATS = {
    "field": Meaning(_LPS),
    "field-ras": Meaning(_RAS),
    "spm": Meaning(_RAS, places=True, holes=True),
}
_NIFTYREG: dict[int, Meaning | str] = {  # by intent_p1
    0: Meaning(_RAS, places=True, holes=True),
    1: Meaning(_RAS, holes=True),
    2: "a grid of a cubic B-spline",
    3: "a velocity field",
    4: "a velocity field",
    5: "a grid of a B-spline of velocities",
    6: "a grid of a linear B-spline",
}
_SPACES = {  # NRRD's, by the flips to LPS; ITK leaves others as they are
    "right-anterior-superior": _RAS,
    "ras": _RAS,
    "left-anterior-superior": np.diag([1.0, -1.0, 1.0]),
    "las": np.diag([1.0, -1.0, 1.0]),
}


def read(vectors: Vectors, moving_grid: Grid | None = None) -> Content:
    """Return the transform that a vector image holds."""
    meaning = _meaning(vectors)
    field, grid = vectors.values, vectors.grid
    if meaning.axes is not _LPS:
        field = field.astype(np.float64) @ meaning.axes.T
    if meaning.places:
        field = field - grid.points()
    elif vectors.format not in _FORMATS and (places := _as_places(field, grid)):
        raise vectors.refused(
            f"holds places in {places} mm and no displacements, which its header does not say;"
            f" {_choices(vectors)}"
        )
    if meaning.holes:
        field = _filled(field)
    if not meaning.inverse:
        return Content(field_part(field, grid), grid, moving_grid)
    if not np.isfinite(field).all():
        raise vectors.refused("has displacements that are no numbers (NaN or Inf); make it anew")
    there = grid if moving_grid is None else moving_grid
    return Content(composed(inverted(field_part(field, grid), vectors.name)), None, there)


def of_image(image: sitk.Image, vectors: Vectors) -> Vectors:
    """Add the numbers of an image of SimpleITK, as its file has them, and their grid."""
    header = {**metadata_of(image), **vectors.header}
    axes, numbers = image.GetDimension(), image.GetNumberOfComponentsPerPixel()
    size = image.GetSize()
    vectors = vectors._replace(header=header)
    check_intent(vectors)
    if numbers == 1 and size[3:] in ((3,), (1, 3)):  # ITK's of another intent than a vector's
        array = np.moveaxis(sitk.GetArrayFromImage(image).reshape(3, *size[2::-1]), 0, -1)
        vectors = vectors._replace(values=array, grid=Grid.of(image))
        if axes == 4 and vectors.format not in _FORMATS:
            raise vectors.refused(
                "has three volumes, as FSL's warps have: give the format fsl and the moving image"
            )
        return vectors
    if numbers == 1:
        raise vectors.refused(
            "is an image and no displacement field, which has three numbers a voxel"
        )
    if 2 in (axes, numbers):
        raise vectors.refused(
            f"is a 2-D displacement field, of {axes} axes and {numbers} values a voxel; images here"
            " are 3-D"
        )
    if (axes, numbers) != (3, 3):
        raise vectors.refused(
            f"is an image of {axes} axes with {numbers} values a voxel; a displacement field has 3"
            " and 3"
        )
    if image.GetPixelID() == sitk.sitkVectorUInt8:
        raise vectors.refused("is a picture in colour and no displacement field")
    array = sitk.GetArrayFromImage(image)
    if _intent(header) == DISPLACEMENT and "NRRD_space" not in header and "space" not in header:
        array = array @ _RAS.astype(array.dtype)  # ITK's reader turned them to LPS
    return vectors._replace(values=array, grid=Grid.of(image))


def nrrd_header(path: Path) -> dict[str, str]:
    """Return the fields of NRRD's header that say what vectors are; ITK keeps none but the last."""
    fields = {}
    for line in header_lines(path, lambda line: not line)[0]:
        field, colon, text = line.partition(":")
        if colon:
            fields[field.strip().lower()] = text.lstrip("=").strip()
    kinds = [kind for kind in fields.get("kinds", "").split() if kind.lower() not in DOMAINS]
    return {
        "space": fields.get("space", ""),
        "measurement frame": fields.get("measurement frame", ""),
        "NRRD_kinds[pixel]": kinds[0] if kinds else "",
        _TYPE: fields.get(_TYPE, ""),
    }


_TYPE = "displacement field type"  # Slicer's


def _meaning(vectors: Vectors) -> Meaning:
    header = vectors.header
    if "space" in header or "NRRD_space" in header:
        return _by_nrrd(vectors)
    if "intent_code" in header:
        return _by_nifti(vectors)
    return _FORMATS.get(vectors.format or "", _FORMATS["field"])


def _by_nrrd(vectors: Vectors) -> Meaning:
    header = vectors.header
    axes = _SPACES.get(header.get("space", "").lower(), _LPS)
    frame = re.findall(r"\(([^()]*)\)", header.get("measurement frame", ""))
    if frame:
        try:
            columns = np.array([column.split(",") for column in frame], dtype=np.float64).T
            np.linalg.inv(columns)
        except (ValueError, np.linalg.LinAlgError):
            raise vectors.refused("has a measurement frame that is none; write it anew") from None
        if not np.array_equal(columns, _LPS):
            axes = axes @ columns
    kind, direction = header.get("NRRD_kinds[pixel]", "").lower(), header.get(_TYPE, "")
    if "color" in kind:
        raise vectors.refused("is a picture in colour and no displacement field")
    if direction not in ("", "resampling", "modeling"):
        raise vectors.refused(
            f"has the displacement field type {direction[:40]!r}; it must be resampling or modeling"
        )
    asked = _FORMATS.get(vectors.format or "", Meaning(axes, places=kind == "point"))
    own = Meaning(axes) if vectors.format == "field" else asked
    return own._replace(inverse=direction == "modeling")


def _intent(header: Mapping[str, str], field: str = "intent_code", other: int = 0) -> int:
    """Return a number of NIfTI's intent; another one where it is none."""
    try:
        return int(float(header.get(field, "") or other))
    except ValueError:
        return other


def check_intent(vectors: Vectors) -> None:
    """Refuse what is no field whatever its shape."""
    if "space" in vectors.header or "NRRD_space" in vectors.header:
        return
    intent = _intent(vectors.header)
    if intent in _MATRICES:
        raise vectors.refused(
            f"holds {_MATRICES[intent]} (NIfTI intent {intent}) and no displacement field"
        )
    if intent in SPLINES:
        raise vectors.refused(
            "has spline coefficients of FSL; make a field of it: convertwarp --warp1=... --relout"
        )
    if intent == WARP:
        raise vectors.refused("is a warp of FSL: give the format fsl and the moving image")


def _by_nifti(vectors: Vectors) -> Meaning:
    header = vectors.header
    intent = _intent(header)
    name, note = (header.get(key, "").strip("\0 ") for key in ("intent_name", "descrip"))
    if name == "NREG_TRANS":
        kind = _NIFTYREG.get(_intent(header, "intent_p1", -1), "something unknown")
        if isinstance(kind, Meaning):
            return kind
        raise vectors.refused(
            f"holds {kind} of NiftyReg and no displacements; make a field of it: reg_transform -ref"
            " FIXED -def TRANSFORM field.nii.gz"
        )
    if re.match(r"(?i)flow field|velocity", note):
        raise vectors.refused(
            "holds a velocity field of SPM and no displacements; make a deformation of it: SPM's"
            " Deformations"
        )
    # SPM's segmentation writes no intent
    segmented = intent == 0 and re.match(r"(?i)(inverse )?deformation", note)
    if name == "Mapping" or segmented and _as_places(vectors.values, vectors.grid, 0.5) == "RAS":
        return _FORMATS["spm"]
    if intent == DISPLACEMENT:
        return _FORMATS["field-ras"]
    if vectors.format in _FORMATS:
        return _FORMATS[vectors.format]
    if intent == VECTOR and not name:
        return _FORMATS["field"]
    called = f" and the name {name!r}" if name else ""
    raise vectors.refused(
        f"has the NIfTI intent {intent}{called}, which does not tell what its vectors are;"
        f" {_choices(vectors)}"
    )


def _choices(vectors: Vectors) -> str:
    if vectors.format is None:
        return "give SimpleITK.DisplacementFieldTransform of displacements in LPS mm"
    return (
        "give the format field (displacements in LPS mm), field-ras (displacements in RAS mm) or"
        " spm (places in RAS mm)"
    )


def _as_places(field: np.ndarray, grid: Grid, most: float = 0.1) -> str:
    """Return the axes in which displacements look like the places of their voxels, or nothing:
    without those places at most a share of their variance is left.
    """
    if min(field.shape[:3]) < 2:
        return ""
    steps = [slice(None, None, max(1, n // 32)) for n in field.shape[:3]]
    index = np.mgrid[tuple(slice(0, n, s.step) for n, s in zip(field.shape, steps))]
    u = field[tuple(steps)].reshape(-1, 3).astype(np.float64)
    p = grid.to_physical(index[::-1].reshape(3, -1).T)
    known = np.isfinite(u).all(axis=1)
    u, p = u[known], p[known]
    if not len(u):
        return ""
    for axes, turn in (("RAS", _RAS), ("LPS", _LPS)):
        rest = u - p @ turn
        like = rest.var(axis=0).sum() < most * u.var(axis=0).sum()
        # a field may stretch by two, but hardly about the origin
        if like and (axes == "RAS" or (rest**2).sum() < 0.05 * (u**2).sum()):
            return axes
    return ""


def _filled(field: np.ndarray) -> np.ndarray:
    """Give voxels whose displacement is NaN that of the nearest one which has one."""
    known = np.isfinite(field).all(axis=-1)
    if known.all() or not known.any():
        return field
    numbers = np.where(known, np.arange(1, known.size + 1).reshape(known.shape), 0)
    nearest = sitk.DanielssonDistanceMapImageFilter()
    nearest.Execute(sitk.GetImageFromArray(numbers.astype(np.uint32)))
    places = sitk.GetArrayFromImage(nearest.GetVoronoiMap()).astype(np.int64).ravel() - 1
    return field.reshape(-1, 3)[places].reshape(field.shape)
