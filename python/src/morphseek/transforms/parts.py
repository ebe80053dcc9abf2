"""SimpleITK's transforms taken apart and put together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import SimpleITK as sitk
from numpy.typing import ArrayLike
from SimpleITK import _SimpleITK  # type: ignore[attr-defined]

from .. import errors
from .._engine import bindings
from .._engine.bindings import Doubles, Floats
from .._grid import Grid
from .linear import affine, linear, linear_part

_NEAR = 1e-6  # voxels by which an index may be rounded


def parts_of(transform: sitk.Transform) -> list[sitk.Transform]:
    """Return what a transform is made of, composites dissolved; the last one acts first."""
    if transform.GetTransformEnum() != sitk.sitkComposite:
        return [transform]
    composite = sitk.CompositeTransform(transform)
    nth = _SimpleITK.CompositeTransform_GetNthTransform
    parts = [own_class(nth(composite, i)) for i in range(composite.GetNumberOfTransforms())]
    if transform.IsLinear() and [p.GetTransformEnum() for p in parts] == [sitk.sitkComposite]:
        # ANTs' MatrixOffsetTransformBase passes for a composite of itself
        return [affine(linear_part(transform))]
    return [leaf for part in parts for leaf in parts_of(part)]


def own_class(transform: sitk.Transform) -> sitk.Transform:
    """Return a transform as its own class, or as SimpleITK's base class where there is none."""
    try:
        return transform.Downcast()
    except (KeyError, TypeError, RuntimeError):
        return transform


def composed(parts: Sequence[sitk.Transform]) -> sitk.Transform:
    """Return one transform of parts, the last of which acts first; linear neighbours become one."""
    merged: list[sitk.Transform] = []
    for part in parts:
        if merged and merged[-1].IsLinear() and part.IsLinear():
            merged[-1] = linear(linear_part(merged[-1]) @ linear_part(part))
        else:
            merged.append(part)
    return joined(merged)


def joined(parts: Sequence[sitk.Transform]) -> sitk.Transform:
    """Return parts, the last of which acts first, as one transform: without any the identity."""
    if len(parts) > 1:
        return sitk.CompositeTransform(parts)
    return parts[0] if parts else linear(np.eye(4))


def matrix_of(parts: Sequence[sitk.Transform]) -> Doubles:
    """Return linear parts, the last of which acts first, as one 4x4 LPS matrix."""
    matrix: Doubles = np.eye(4)
    for part in parts:
        matrix = matrix @ linear_part(part)
    return matrix


def split_linear(transform: sitk.Transform) -> tuple[list[sitk.Transform], list[sitk.Transform]]:
    """Return the linear parts of a transform that act last, and the parts before them."""
    parts = parts_of(transform)
    bends = next((k for k, part in enumerate(parts) if not part.IsLinear()), len(parts))
    return parts[:bends], parts[bends:]


def is_field(part: sitk.Transform) -> bool:
    return bool(part.GetTransformEnum() == sitk.sitkDisplacementField)


def field_part(displacement: np.ndarray, grid: Grid) -> sitk.DisplacementFieldTransform:
    """Return displacements, LPS mm of shape (z, y, x, 3), as SimpleITK's transform."""
    return sitk.DisplacementFieldTransform(vector_image(displacement, grid, np.float64))


def vector_image(vectors: np.ndarray, grid: Grid, dtype: type[np.floating]) -> sitk.Image:
    """Return vectors of shape (z, y, x, 3) as SimpleITK's image."""
    voxels = np.ascontiguousarray(vectors, dtype=dtype)
    return grid.place(sitk.GetImageFromArray(voxels, isVector=True))


def dense(displacement: Floats, grid: Grid, initial: Doubles) -> sitk.Transform:
    """Return displacements, voxels (3, z, y, x), as a field behind their linear part."""
    behind, margin = bindings.behind_mm(displacement, grid, initial)
    if is_still(behind, grid):
        return linear(initial)
    bend = field_part(behind, margin)
    if np.array_equal(initial, np.eye(4)):
        return bend
    return sitk.CompositeTransform([linear(initial), bend])  # the last one acts first


def is_still(displacement: Floats, grid: Grid) -> bool:
    """Whether displacements, LPS mm, are nowhere a thousandth of the grid's least spacing."""
    least = 1e-3 * min(grid.spacing)
    return bool(-least <= displacement.min() and displacement.max() <= least)  # with a NaN: no


def planar(transform: sitk.Transform, fixed: Grid | None) -> sitk.Transform:
    """Return the map of a slice in the plane z = 0 as SimpleITK's of two dimensions."""
    last, parts = split_linear(transform)
    matrix = matrix_of(last)
    if fixed is None:
        raise errors.InvalidArgumentError(
            "a transform of two dimensions belongs to a slice, and this one does not say where its"
            " fixed image lies"
        )
    turn = fixed.axes - np.diag([0, 0, 1])
    across = np.array([fixed.origin[2], *turn[2], *turn[:2, 2], matrix[2, 3]])
    if fixed.size[2] != 1 or np.abs(across).max() > 1e-6:
        raise errors.InvalidArgumentError(
            "the fixed image is no slice in the plane z = 0; its transform has three dimensions"
        )
    flat = sitk.AffineTransform(2)
    flat.SetMatrix(matrix[:2, :2].ravel().tolist())
    flat.SetTranslation(matrix[:2, 3].tolist())
    if not parts:
        return flat
    if len(parts) == 1 and is_field(parts[0]):
        vectors, grid = vectors_of(parts[0])
    else:
        vectors, grid = field_on(composed(parts), fixed), fixed
    layer = np.ascontiguousarray(vectors[len(vectors) // 2][..., :2], dtype=np.float64)
    image = grid.place(sitk.GetImageFromArray(layer, isVector=True))
    return sitk.CompositeTransform([flat, sitk.DisplacementFieldTransform(image)])


def vectors_of(part: sitk.Transform) -> tuple[np.ndarray, Grid]:
    """Return the displacements of a field, LPS mm of shape (z, y, x, 3), and their grid."""
    image = sitk.DisplacementFieldTransform(part).GetDisplacementField()
    return sitk.GetArrayFromImage(image), Grid.of(image)


def grid_of_field(part: sitk.Transform) -> Grid:
    """Return the grid of a displacement field's transform."""
    return from_itk_order(part.GetFixedParameters())


def grid_of_spline(part: sitk.Transform) -> Grid:
    """Return a grid over the domain of a B-spline, four voxels a cell of its mesh."""
    spline = sitk.BSplineTransform(part)
    size = 4 * np.array(spline.GetTransformDomainMeshSize()) + 1
    extent = np.array(spline.GetTransformDomainPhysicalDimensions())
    origin, direction = spline.GetTransformDomainOrigin(), spline.GetTransformDomainDirection()
    return Grid(tuple(size), tuple(extent / (size - 1)), origin, direction)


def itk_order(grid: Grid) -> Doubles:
    """Return size, origin, spacing and direction, as ITK has them in a file."""
    return np.array([*grid.size, *grid.origin, *grid.spacing, *grid.direction], np.float64)


def from_itk_order(numbers: ArrayLike) -> Grid:
    """Return the grid of what :func:`itk_order` gives."""
    size, origin, spacing, direction = np.split(np.asarray(numbers, np.float64), (3, 6, 9))
    return Grid(tuple(size), tuple(spacing), tuple(origin), tuple(direction))


def field_on(transform: sitk.Transform, grid: Grid) -> Floats:
    """Return a transform's displacements at the voxels of a grid: float32, LPS mm (z, y, x, 3)."""
    image = sitk.TransformToDisplacementField(
        transform, sitk.sitkVectorFloat32, grid.size, grid.origin, grid.spacing, grid.direction
    )
    return sitk.GetArrayFromImage(image)


def inverted(part: sitk.Transform, name: str) -> list[sitk.Transform]:
    """Return the inverse of a part that is no composite, as parts."""
    if part.IsLinear():
        matrix = linear_part(part)
        if abs(np.linalg.det(matrix[:3, :3])) < 1e-12:
            raise errors.SingularTransformError(
                f"{name}: its matrix {matrix[:3, :3].round(6).tolist()} is singular, so there is no"
                " inverse; correct the file"
            )
        return [linear(np.linalg.inv(matrix))]
    if is_field(part):
        vectors, grid = vectors_of(part)
    elif part.GetTransformEnum() == sitk.sitkBSplineTransform:
        grid = grid_of_spline(part)
        vectors = field_on(part, grid)
    else:
        raise errors.InvalidArgumentError(
            f"{name}: a {part.GetName()} cannot be inverted here; convert it to a field first:"
            " morphseek transform convert FILE --reference FIXED -o field.nii.gz"
        )
    with named(name):
        onto, still = _reached(vectors, grid, name), np.eye(4)
        voxels = bindings.from_mm(np.ascontiguousarray(vectors, np.float32), grid)
        inverse = bindings.inverse(voxels, grid, still, onto)
        return parts_of(dense(inverse, onto, still))


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Name the transform whose field the engine refuses: one along a line, or at a point."""
    try:
        yield
    except errors.ThinVolumeError as error:
        raise errors.ThinVolumeError(f"{name}: its {error}") from None


def reached(vectors: np.ndarray, grid: Grid, onto: Grid) -> tuple[Doubles, Doubles]:
    """Return the least and greatest index on another grid that displacements, mm, lead to."""
    rows, own = onto.physical_to_index[:3, :3], onto.physical_to_index @ grid.index_to_physical
    z, y, x = (np.arange(n, dtype=np.float64) for n in vectors.shape[:3])
    low, high = np.empty(3), np.empty(3)
    for k in range(3):
        at = vectors @ rows[k].astype(vectors.dtype)
        at += own[k, 0] * x + own[k, 1] * y[:, None] + (own[k, 2] * z[:, None, None] + own[k, 3])
        low[k], high[k] = at.min(), at.max()
    return low, high


def _reached(vectors: np.ndarray, grid: Grid, name: str) -> Grid:
    """Return a grid over what a field's voxels are moved to, along the same axes, as fine."""
    low, high = reached(vectors, grid, grid)
    low, high = np.floor(low + _NEAR), np.ceil(high - _NEAR)
    if (high - low + 1).prod() > 8 * np.prod(grid.size) + 1e6:
        raise errors.InvalidArgumentError(
            f"{name}: it spreads its grid so far that its inverse would not fit; check it:"
            " morphseek transform show FILE"
        )
    return grid.part(low, high - low + 1)
