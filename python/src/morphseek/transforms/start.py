"""The start of a registration: any transform as an affine map and the displacements before it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine.bindings import Doubles, Floats, to_mm
from .._grid import Grid
from .field import Field
from .parts import field_on, field_part, grid_of_field, is_field, joined, matrix_of, split_linear
from .transform import Transform, check_place

_LEAST = 0.5  # share of the fixed image that a field covers, as the engine has it


class Start(NamedTuple):
    """Displacements, LPS mm of shape (z, y, x, 3), and their grid, and the matrix that acts after
    them. Without a matrix they are the whole, of which the engine splits off an affine part.
    """

    matrix: Doubles | None = None
    before: tuple[Floats, Grid] | None = None


def start_of(source: Any, fixed: images.Image, moving: images.Image) -> Start:
    """Return where a registration starts; refuse what is no transform, or lies elsewhere."""
    if source is None:
        return Start()
    transform = _read(source, fixed, moving)
    if isinstance(transform, Field):
        return _of_field(transform, fixed)
    last, parts = split_linear(transform.to_sitk())
    matrix = matrix_of(last)
    if not parts:
        return Start(matrix)
    check_place(transform, fixed.grid, "the fixed image")
    split = None if np.array_equal(matrix, np.eye(4)) else matrix
    if is_field(parts[-1]):
        _check_covered(transform, grid_of_field(parts[-1]), fixed.grid)
    return Start(split, (field_on(joined(parts), fixed.grid), fixed.grid))


def _of_field(field: Field, fixed: images.Image) -> Start:
    if field.is_linear:
        return Start(np.array(field.initial))
    _check_covered(field, field.grid, fixed.grid)
    behind, grid = field._behind_initial()
    if field.grid == fixed.grid:  # beyond it nothing was found: the engine holds on
        first = np.rint(grid.to_index(fixed.grid.origin)).astype(int)[::-1]
        own = tuple(slice(k, k + n) for k, n in zip(first, field.grid.shape))
        return Start(np.array(field.initial), (np.ascontiguousarray(behind[own]), fixed.grid))
    rest = field_on(field_part(behind, grid), fixed.grid)
    return Start(np.array(field.initial), (rest, fixed.grid))


def _check_covered(transform: Transform, grid: Grid, fixed: Grid) -> None:
    """Refuse a field on whose grid too few of an image's voxels lie."""
    axes = [np.linspace(0, n - 1, min(n, 32)) for n in fixed.size]
    index = grid.to_index(fixed.to_physical(np.array(np.meshgrid(*axes)).reshape(3, -1).T))
    inside = (index >= -0.5) & (index <= np.array(grid.size) - 0.5)
    if (share := inside.all(axis=1).mean()) < _LEAST:
        raise errors.GridMismatchError(
            f"{transform.name}: its field covers {100 * share:.0f} % of the fixed image; it belongs"
            " to another pair or another space, or is to be inverted"
        )


def _read(source: Any, fixed: images.Image, moving: images.Image) -> Transform:
    if isinstance(source, (str, os.PathLike)):
        return Transform.read(source, reference=fixed, moving=moving)
    if images.arrays.is_array(source):
        source = images.arrays.as_array(source, "initial_transform")
        if source.ndim == 4:
            source = _of_array(source, fixed)
    return Transform.of(source, name="initial_transform")


def _of_array(array: np.ndarray, fixed: images.Image) -> sitk.Transform:
    shape = fixed.array.shape
    if array.shape == (3, *shape):
        return field_part(
            to_mm(np.ascontiguousarray(array, dtype=np.float32), fixed.grid), fixed.grid
        )
    if array.shape == (*shape, 3):
        return field_part(array, fixed.grid)
    raise errors.InvalidArgumentError(
        f"initial_transform is an array of shape {array.shape}; a field on the fixed image has"
        f" {(3, *shape)} (voxels) or {(*shape, 3)} (LPS mm), a matrix (4, 4)"
    )
