"""The engine's functions, one typed function each: arrays are checked before their addresses cross.

The engine reads and writes as many numbers as a grid says. So an array of another type, another
layout or another size than it expects is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import errors
from .._grid import Grid
from .._native import gopy
from .core import call

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Labels = NDArray[np.int32]
ALL_CORES = 0


class EngineResult(NamedTuple):
    """The engine's result: see :class:`morphseek.Registration`."""

    displacement: Floats
    warped: Floats
    initial: Doubles
    metrics: dict[str, Any]
    uncertainty: Floats | None


def shape_of(grid: Grid) -> tuple[int, int, int]:
    """Return the shape (z, y, x) of the arrays on a grid."""
    if not isinstance(grid, Grid):
        raise errors.InvalidArgumentError(
            f"the grid is a {type(grid).__name__}; give a morphseek.Grid, as images have one"
        )
    return grid.shape


def register(
    volumes: Mapping[str, tuple[Floats, Grid]],
    initial: Doubles | None,
    before: tuple[Floats, Grid] | None,
    landmarks: tuple[Doubles, list[str]] | None,
    channels: Sequence[tuple[dict[str, Any], tuple[Floats, Grid], tuple[Floats, Grid]]],
    doubts: Sequence[str],
    options: dict[str, Any],
    progress: Callable[[str, float, str], bool],
) -> EngineResult:
    """Register the `volumes` fixed and moving, by fixed_mask, moving_mask and rigid (regions) where
    they are there, from the 4x4 matrix `initial` and the displacements `before` it: LPS mm, shape
    (z, y, x, 3). Landmarks are of shape (n, 6), fixed then moving, LPS mm, with their names.
    Channels are what they are called, weigh and are, and the images of both sides. Doubts are
    sentences about the files: warnings that make the verdict ``check`` at most.
    """
    buffers: list[Any] = []  # held until the engine is done with them

    def address(array: Any) -> int:
        buffers.append(array)
        return array.ctypes.data

    def volume(name: str, voxels: Floats, grid: Grid, *numbers: int) -> dict[str, int]:
        _check(name, voxels, np.float32, (*shape_of(grid), *numbers))
        return {"voxels": address(voxels), "grid": address(grid.numbers)}

    told: dict[str, Any] = {"doubts": list(doubts), "options": options}
    for key, each in volumes.items():
        told[key] = volume(key.replace("_", " "), *each)
    if initial is not None:
        _check("initial transform", initial, np.float64, (4, 4))
        told["initial"] = address(initial)
    if before is not None:
        told["initial_field"] = volume("initial field", *before, 3)
    told["channels"] = [
        {
            **about,
            "fixed": volume(f"{about['name']}, fixed", *one),
            "moving": volume(f"{about['name']}, moving", *other),
        }
        for about, one, other in channels
    ]
    if landmarks is not None:
        points, names = landmarks
        _check("landmarks", points, np.float64, (len(points), 6))
        told["landmarks"] = {"at": address(points), "count": len(points), "names": names}
    raw = call(gopy.Register, json.dumps(told), progress)
    shape = shape_of(volumes["fixed"][1])
    displacement, warped = np.empty((3, *shape), np.float32), np.empty(shape, np.float32)
    linear = np.empty(12)
    call(raw.Copy, displacement, warped, linear)
    metrics: dict[str, Any] = json.loads(call(raw.Metrics))
    uncertainty = None
    if metrics["uncertainty"]:
        uncertainty = np.empty(shape, np.float32)
        call(raw.Uncertainty, uncertainty)
    return EngineResult(displacement, warped, _matrix(linear), metrics, uncertainty)


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return every option as the engine takes it."""
    return json.loads(call(gopy.CheckOptions, json.dumps(options)))


def warp(
    field: Floats,
    grid: Grid,
    image: Floats,
    image_grid: Grid,
    interpolation: str,
    background: float,
) -> Floats:
    """Return an image resampled through a field onto the field's grid."""
    _check_field(field, grid)
    _check_volume("image", image, image_grid)
    arguments = field, grid, image, image_grid, interpolation, background
    return _filled(shape_of(grid), gopy.Warp, *arguments)


def resample(
    image: Floats, image_grid: Grid, grid: Grid, interpolation: str, background: float
) -> Floats:
    """Return an image resampled onto another grid under the identity in physical space."""
    _check_volume("image", image, image_grid)
    arguments = image, image_grid, grid, None, interpolation, background
    return _filled(shape_of(grid), gopy.Resample, *arguments)


def intensities(
    image: Floats, grid: Grid, low: float, high: float
) -> tuple[Floats, tuple[float, float]]:
    """Return an image as the stages compare it, and its low and high percentile."""
    _check_volume("image", image, grid)
    out = np.empty(image.shape, np.float32)
    least, most = json.loads(call(gopy.Intensities, image, grid, float(low), float(high), out))
    return out, (least, most)


def transform_points(field: Floats, grid: Grid, last: Doubles, points: Doubles) -> None:
    """Map points (n, 3), LPS mm, in place; far from the grid the 4x4 `last` alone remains."""
    _check_field(field, grid)
    _check("points", points, np.float64, (len(points), 3), written=True)
    call(gopy.TransformPoints, field, grid, _affine(last), points, len(points))


def inverse(field: Floats, grid: Grid, last: Doubles, onto: Grid) -> Floats:
    """Return the inverse of a field, which ends with the 4x4 matrix `last`, on another grid."""
    _check_field(field, grid)
    return _filled((3, *shape_of(onto)), gopy.Inverse, field, grid, _affine(last), onto)


def halfway(
    field: Floats, grid: Grid, last: Doubles
) -> tuple[Grid, tuple[Floats, Doubles], tuple[Floats, Doubles]]:
    """Return the grid half-way and each map from there: a field, and the 4x4 that it ends with."""
    _check_field(field, grid)
    there = np.empty(18)
    fields = np.empty_like(field), np.empty_like(field)
    lasts = np.empty(12), np.empty(12)
    call(
        gopy.Halfway, field, grid, _affine(last), ALL_CORES,
        there, fields[0], lasts[0], fields[1], lasts[1],
    )  # fmt: skip
    return Grid.from_numbers(there), (fields[0], _matrix(lasts[0])), (fields[1], _matrix(lasts[1]))


def correct_epi(
    one: tuple[Floats, Grid],
    other: tuple[Floats, Grid],
    axis: int,
    progress: Callable[[str, float, str], bool],
) -> tuple[Floats, Floats, Floats]:
    """Return the shift, voxels along axis 0, 1 or 2 (x, y, z), and both images undistorted."""
    _check_volume("first", *one)
    _check_volume("second", *other)
    shift, first, second = (np.empty(shape_of(one[1]), np.float32) for _ in range(3))
    call(gopy.CorrectEPI, *one, *other, axis, ALL_CORES, progress, shift, first, second)
    return shift, first, second


def jacobian(field: Floats, grid: Grid) -> Floats:
    """Return det(I + grad u) on the field's grid."""
    _check_field(field, grid)
    return _filled(shape_of(grid), gopy.Jacobian, field, grid)


def regularity(field: Floats, grid: Grid) -> dict[str, float]:
    """Return how regular a field is and how far it moves, by the metrics' names."""
    _check_field(field, grid)
    return json.loads(call(gopy.Stats, field, grid, ALL_CORES))


def to_mm(field: Floats, grid: Grid) -> Floats:
    """Return a field's displacements in LPS mm: shape (z, y, x, 3), components x, y, z."""
    _check_field(field, grid)
    return _filled((*shape_of(grid), 3), gopy.ToMM, field, grid)


def behind_mm(field: Floats, grid: Grid, last: Doubles) -> tuple[Floats, Grid]:
    """Return the displacements in LPS mm behind a 4x4 matrix, by which the field ends, with the
    margin in which they fade: shape (z, y, x, 3), components x, y, z; and their grid.
    """
    _check_field(field, grid)
    affine = _affine(last)
    margin = np.zeros((3, 2), np.int64)
    call(gopy.Margin, field, grid, affine, margin)  # below and above x, y and z, voxels
    wider = grid.part(-margin[:, 0], grid.size + margin.sum(axis=1))
    return _filled((*shape_of(wider), 3), gopy.BehindMM, field, grid, affine), wider


def _filled(shape: tuple[int, ...], function: Callable[..., Any], *arguments: Any) -> Floats:
    """Return the array that an engine function fills on all cores."""
    out = np.empty(shape, np.float32)
    call(function, *arguments, ALL_CORES, out)
    return out


def _matrix(linear: Doubles) -> Doubles:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = linear[:9].reshape(3, 3), linear[9:]
    return matrix


def _affine(matrix: Doubles) -> Doubles:
    return np.ascontiguousarray(np.concatenate([matrix[:3, :3].ravel(), matrix[:3, 3]]), np.float64)


def from_mm(displacement: Floats, grid: Grid) -> Floats:
    """Return the field with these displacements in LPS mm."""
    shape = shape_of(grid)
    _check("displacement", displacement, np.float32, (*shape, 3))
    return _filled((3, *shape), gopy.FromMM, displacement, grid)


def same_grid(one: Grid, other: Grid) -> bool:
    """Whether two grids are one to the engine."""
    shape_of(one), shape_of(other)
    return bool(call(gopy.SameGrid, one, other))


def score_labels(
    field: Floats,
    grid: Grid,
    determinants: Floats,
    fixed: Labels,
    moving: Labels,
    moving_grid: Grid,
    carried: Labels | None,
) -> list[dict[str, Any]]:
    """Return label, dice and hd95 (mm, or None) before and after, and volume_error_percent, of
    every label that both maps have. `carried` is the moving one on the field's grid, if at hand.
    """
    _check_field(field, grid)
    _check("determinants", determinants, np.float32, shape_of(grid))
    _check("fixed labels", fixed, np.int32, shape_of(grid))
    _check("moving labels", moving, np.int32, shape_of(moving_grid))
    if carried is not None:
        _check("warped labels", carried, np.int32, shape_of(grid))
    maps = fixed, moving, moving_grid, carried
    return json.loads(call(gopy.ScoreLabels, field, grid, determinants, *maps, ALL_CORES))


def _check_volume(name: str, array: Floats, grid: Grid) -> None:
    _check(name, array, np.float32, shape_of(grid))


def _check_field(field: Floats, grid: Grid) -> None:
    _check("displacement", field, np.float32, (3, *shape_of(grid)))


def _check(
    name: str, array: Any, dtype: type[np.generic], shape: tuple[int, ...], written: bool = False
) -> None:
    """Refuse an array whose numbers the engine would misread, or that has fewer than it takes."""
    if not isinstance(array, np.ndarray):
        raise errors.InvalidArgumentError(f"{name} is a {type(array).__name__}, not a numpy array")
    flags = array.flags
    fits = array.dtype == np.dtype(dtype) and flags.c_contiguous and flags.aligned
    if not fits or (written and not flags.writeable):
        layout = "" if flags.c_contiguous else ", not C-contiguous"
        raise errors.InvalidArgumentError(
            f"{name} is {array.dtype}{layout}; the engine takes C-contiguous"
            f" {np.dtype(dtype).name}: numpy.ascontiguousarray(..., dtype='{np.dtype(dtype).name}')"
        )
    if array.shape != shape:
        raise errors.GridMismatchError(f"{name} has shape {array.shape}; its grid needs {shape}")
