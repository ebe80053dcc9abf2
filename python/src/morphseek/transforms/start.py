"""Where a registration starts: any transform as an affine map and the displacements before it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine.bindings import Doubles, Floats
from .._grid import origin_of, size_of
from . import h5
from .dense import DenseTransform
from .files import transform_of
from .linear import linear_part
from .parts import field_on, field_part, grid_of_field, is_field, parts_of
from .saved import Transform

_LEAST = 0.5  # share of the fixed image that a field covers, as the engine has it


class Start(NamedTuple):
    """Displacements, LPS mm of shape (z, y, x, 3), and their grid, and the matrix that acts after
    them. Without a matrix they are the whole, of which the engine splits off an affine part.
    """

    matrix: Doubles | None = None
    before: tuple[Floats, Doubles] | None = None


def start_of(given: Any, fixed: images.Image, moving: images.Image) -> Start:
    """Return where a registration of two images starts, from what a user has.

    Raises
    ------
    InvalidArgumentError
        It is no transform, or it lies elsewhere than the fixed image.
    """
    if given is None:
        return Start()
    if isinstance(given, DenseTransform):
        return _of_dense(given, fixed)
    transform = _read(given, fixed, moving)
    parts = parts_of(transform.to_sitk())
    matrix = np.eye(4)
    while parts and parts[0].IsLinear():  # the first acts last
        matrix = matrix @ linear_part(parts.pop(0))
    if not parts:
        return Start(matrix)
    transform.check_place(fixed.grid, "the fixed image")
    split = None if np.array_equal(matrix, np.eye(4)) else matrix
    if is_field(parts[-1]) and (share := _covered(grid_of_field(parts[-1]), fixed.grid)) < _LEAST:
        raise errors.GridMismatchError(
            f"{transform.name}: its field covers {100 * share:.0f} % of the fixed image; it belongs"
            " to another space, or is to be inverted"
        )
    rest = parts[0] if len(parts) == 1 else sitk.CompositeTransform(parts)
    return Start(split, (field_on(rest, fixed.grid), fixed.grid))


def _of_dense(given: DenseTransform, fixed: images.Image) -> Start:
    if given.is_linear:
        return Start(np.array(given.initial))
    share = _covered(given.grid, fixed.grid)
    if share < _LEAST:
        raise errors.GridMismatchError(
            f"the initial transform, a {type(given).__name__}, covers {100 * share:.0f} % of the"
            " fixed image; it is of another pair"
        )
    behind, grid = given.behind_initial()
    if np.array_equal(given.grid, fixed.grid):  # beyond it nothing was found: the engine holds on
        to_index = np.linalg.inv(images.index_to_physical(grid))
        first = np.rint(to_index @ [*origin_of(fixed.grid), 1]).astype(int)[2::-1]
        own = tuple(slice(k, k + n) for k, n in zip(first, given.shape))
        return Start(np.array(given.initial), (np.ascontiguousarray(behind[own]), fixed.grid))
    rest = field_on(field_part(behind, grid), fixed.grid)
    return Start(np.array(given.initial), (rest, fixed.grid))


def _covered(grid: np.ndarray, fixed: np.ndarray) -> float:
    """Return the share of an image's voxels that lie on a field's grid."""
    axes = [np.linspace(0, n - 1, int(min(n, 32))) for n in size_of(fixed)]
    places = np.array(np.meshgrid(*axes)).reshape(3, -1)
    places = images.index_to_physical(fixed) @ np.vstack([places, np.ones(places.shape[1])])
    index = (np.linalg.inv(images.index_to_physical(grid)) @ places)[:3]
    inside = (index >= -0.5) & (index <= size_of(grid)[:, None] - 0.5)
    return float(inside.all(axis=0).mean())


def _read(given: Any, fixed: images.Image, moving: images.Image) -> Transform:
    if isinstance(given, Transform):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Transform.load(given, reference=fixed, moving=moving)
    if isinstance(given, sitk.Image):
        given = _of_image(given)
    elif isinstance(given, np.ndarray) and given.ndim == 4:
        given = _of_array(given, fixed)
    elif hasattr(given, "GetTransformTypeAsString"):
        given = transform_of(_itk_parts(given))
    return Transform(given)


def _of_image(image: sitk.Image) -> sitk.Transform:
    if image.GetDimension() != 3 or image.GetNumberOfComponentsPerPixel() != 3:
        raise errors.InvalidArgumentError(
            f"initial_transform is an image of {image.GetDimension()} axes with"
            f" {image.GetNumberOfComponentsPerPixel()} values a voxel; a displacement field has 3"
            " and 3"
        )
    return sitk.DisplacementFieldTransform(sitk.Cast(image, sitk.sitkVectorFloat64))


def _of_array(array: np.ndarray, fixed: images.Image) -> sitk.Transform:
    shape = fixed.array.shape
    if array.shape == (3, *shape):
        voxels = np.ascontiguousarray(array, dtype=np.float32)
        return field_part(
            DenseTransform(voxels, fixed.grid, fixed.grid).displacement_mm, fixed.grid
        )
    if array.shape == (*shape, 3):
        return field_part(array, fixed.grid)
    raise errors.InvalidArgumentError(
        f"initial_transform is an array of shape {array.shape}; a field on the fixed image has"
        f" {(3, *shape)} (voxels) or {(*shape, 3)} (LPS mm), a matrix (4, 4)"
    )


def _itk_parts(transform: Any) -> Sequence[h5.Part]:
    """Return the parts of a transform of the package itk, the last of which acts first."""
    name, _, dimensions = str(transform.GetTransformTypeAsString()).partition("_")
    if not dimensions.endswith("_3_3"):
        raise errors.InvalidArgumentError(
            f"initial_transform is a {name} of dimensions {dimensions}; images here are 3-D"
        )
    if name == "CompositeTransform":
        count = int(transform.GetNumberOfTransforms())
        whole = [transform.GetNthTransform(i) for i in range(count)]
        return [part for one in whole for part in _itk_parts(_itk_cast(one))]
    fixed = np.array(list(transform.GetFixedParameters()), dtype=np.float64)
    if name == "DisplacementFieldTransform":
        import itk

        vectors = itk.array_view_from_image(_itk_cast(transform).GetDisplacementField())
        return [h5.Part(name, fixed, np.array(vectors, dtype=np.float64).reshape(-1))]
    return [h5.Part(name, fixed, np.array(list(transform.GetParameters()), dtype=np.float64))]


def _itk_cast(transform: Any) -> Any:
    """Return a transform as its own class: of a composite one they come as the base class."""
    import itk

    return itk.down_cast(transform)
