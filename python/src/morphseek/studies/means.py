"""Means of matrices, of transforms and of images, and the sharpness of an image."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine.bindings import Doubles
from .._grid import Grid
from ..transforms import Affine, Field, Transform

_BINS = 256  # of the histogram whose entropy is measured
_ROOTS = 60


def exponential(matrix: Doubles) -> Doubles:
    """Return the exponential of a small square matrix."""
    halvings = max(0, math.ceil(math.log2(max(np.abs(matrix).sum(axis=1).max(), 1e-30))) + 2)
    total = term = np.eye(len(matrix))
    for k in range(1, 16):
        term = term @ matrix / 2**halvings / k
        total = total + term
    return np.linalg.matrix_power(total, 2**halvings)


def logarithm(matrix: Doubles) -> Doubles:
    """Return the principal logarithm of a small square matrix: roots are taken until it is near the
    identity, where a series converges. Raise ValueError where there is none, as of a turn by 180
    degrees.
    """
    eye, roots = np.eye(len(matrix)), 0
    while np.abs(matrix - eye).sum(axis=1).max() > 0.1:
        if roots == _ROOTS:
            raise ValueError("the matrix has no real logarithm")
        matrix, roots = _root(matrix), roots + 1
    step = (matrix - eye) @ np.linalg.inv(matrix + eye)
    total, power = np.zeros_like(step), step
    for k in range(1, 22, 2):
        total = total + power / k
        power = power @ step @ step
    return 2.0 ** (roots + 1) * total


def _root(matrix: Doubles) -> Doubles:
    """Return the principal square root, by the iteration of Denman and Beavers."""
    root, inverse = matrix, np.eye(len(matrix))
    for _ in range(50):
        with np.errstate(all="ignore"):
            new = 0.5 * (root + np.linalg.inv(inverse))
            inverse = 0.5 * (inverse + np.linalg.inv(root))
        change, root = float(np.abs(new - root).max()), new
        if change < 1e-14 * float(np.abs(root).max()):
            break
    if not np.allclose(root @ root, matrix, atol=1e-8 * float(np.abs(matrix).max())):
        raise ValueError("the matrix has no real logarithm")
    return root


def mean_matrix(matrices: Sequence[Doubles]) -> Doubles:
    """Return the log-Euclidean (Karcher) mean of 4x4 matrices. It depends neither on the origin of
    the coordinates nor on the direction of the maps, and keeps the mean of volumes.
    """
    mean = np.array(matrices[0], np.float64)
    try:
        for _ in range(30):
            logs = [logarithm(np.asarray(np.linalg.solve(mean, m), np.float64)) for m in matrices]
            step = np.mean(logs, axis=0)
            mean = mean @ exponential(step)
            if np.abs(step).max() < 1e-12:
                break
    except (ValueError, np.linalg.LinAlgError):
        raise errors.InvalidArgumentError(
            "template: images lie turned to one another by 180 degrees, which has no mean; turn"
            " them to the same side first"
        ) from None
    return mean


def before_linear(transform: Field) -> Doubles | None:
    """Return the displacements before the linear part, LPS mm (z, y, x, 3); None: none."""
    if transform.is_linear:
        return None
    points, inverse = transform.grid.points(), np.linalg.inv(transform.initial)
    ends = points + transform.displacement_mm()
    return ends @ inverse[:3, :3].T + inverse[:3, 3] - points


class MeanTransform:
    """The mean of transforms that end each with a matrix: the mean of their displacements before
    it, and the mean of the matrices after that.
    """

    def __init__(self, grid: Grid):
        self.grid = grid
        self._matrices: list[Doubles] = []
        self._total: Doubles | None = None

    def add(self, transform: Field) -> None:
        """Add a transform."""
        self._matrices.append(np.array(transform.initial))
        if (before := before_linear(transform)) is not None:
            self._total = before if self._total is None else self._total + before

    @functools.cached_property
    def matrix(self) -> Doubles:
        return mean_matrix(self._matrices)

    @property
    def before(self) -> Doubles | None:
        """The mean displacement before the matrix; None where nothing bends."""
        return None if self._total is None else self._total / len(self._matrices)

    def displacement(self) -> Doubles:
        """Return how far the mean moves every voxel: LPS mm of shape (z, y, x, 3)."""
        points, before, matrix = self.grid.points(), self.before, self.matrix
        moved = points if before is None else points + before
        return moved @ matrix[:3, :3].T + matrix[:3, 3] - points

    def inverse(self) -> Transform:
        """Return the transform that, acting before each of them, makes their mean the identity."""
        matrix = Affine(np.linalg.inv(self.matrix), self.grid, self.grid)
        if (before := self.before) is None:
            return matrix
        return Field.from_mm(before, self.grid, self.grid).inverse() @ matrix


def moved_grid(grid: Grid, by: Doubles) -> Grid:
    """Return the grid, moved by as many whole voxels as a 4x4 matrix moves its centre."""
    center = np.array([*grid.center, 1.0])
    axes = grid.axes
    steps = np.rint(axes.T @ (by @ center - center)[:3] / grid.spacing)
    return grid.part(steps, grid.size)


def common_grid(grids: Sequence[Grid], centers: Sequence[Doubles], spacing: float | None) -> Grid:
    """Return a grid along the first one's axes that holds all images, centred on one another."""
    axes = grids[0].axes
    sizes = []
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for grid, center in zip(grids, centers):
        nearest = np.abs(axes.T @ grid.axes).argmax(axis=1)
        sizes.append(np.array(grid.spacing)[nearest])
        along = axes.T @ (grid.corners(0.5) - center).T
        low, high = np.minimum(low, along.min(axis=1)), np.maximum(high, along.max(axis=1))
    voxel = np.median(sizes, axis=0) if spacing is None else np.full(3, float(spacing))
    count = np.maximum(np.ceil((high - low) / voxel - 1e-6), 4)
    first = (low + high) / 2 - (count - 1) / 2 * voxel
    origin = np.mean(centers, axis=0) + axes @ first
    return Grid(tuple(count), tuple(voxel), tuple(origin), grids[0].direction)


class Mean:
    """The mean of images on one grid, voxel by voxel; where one is NaN, it does not count."""

    def __init__(self, shape: tuple[int, ...]):
        self.total, self.count = np.zeros(shape), np.zeros(shape, np.int32)

    def add(self, image: np.ndarray) -> None:
        """Add an image."""
        known = np.isfinite(image)
        self.count += known
        self.total += np.where(known, image, 0)

    def result(self, elsewhere: float | np.ndarray = math.nan) -> Doubles:
        """Return the mean, and ``elsewhere`` where no image counts."""
        return np.where(self.count > 0, self.total / np.maximum(self.count, 1), elsewhere)


class Average(Mean):
    """The mean or the median of images on one grid, from 0 to 1 between the percentiles of what it
    is made of; where an image does not reach, it does not count.
    """

    def __init__(self, grid: Grid, kind: str, sharpen: float):
        super().__init__(grid.shape)
        self._grid, self._kind, self._sharpen = grid, kind, sharpen
        self._all: list[np.ndarray] = []
        self._images = 0

    def add(self, image: np.ndarray) -> None:
        """Add an image: float32, NaN where it does not reach."""
        super().add(image)
        self._images += 1
        if self._kind == "median":
            self._all.append(image)

    @property
    def reach(self) -> np.ndarray:
        """Mask of what at least half of the images reach: bool, shape (z, y, x)."""
        return self.count * 2 >= self._images

    def image(self) -> images.Image:
        some, mean = self.count > 0, self.result(0.0).astype(np.float32)
        if self._kind == "median":
            for plane in range(len(mean)):  # a plane at a time, for a copy of all is made
                stack = np.array([image[plane] for image in self._all])
                known = some[plane]
                mean[plane][known] = np.nanmedian(stack[:, known], axis=0)
        least = float(mean[some].min()) if some.any() else 0.0
        mean = np.where(some, mean, np.float32(min(least, 0.0)))
        if self._sharpen:
            volume = sitk.GetImageFromArray(mean)
            sharp = sitk.GetArrayFromImage(sitk.LaplacianSharpening(volume, False))
            mean = mean + np.float32(self._sharpen) * np.where(some, sharp - mean, 0)
        return images.Image.on_grid(mean.astype(np.float32), self._grid, "the template")


def sharpness(image: images.Image, reach: np.ndarray) -> tuple[float, float]:
    """Return the mean norm of a region's gradient, a mm, and its entropy, bits; NaN where empty."""
    if not reach.any():
        return math.nan, math.nan
    steps = np.gradient(image.array.astype(np.float64), *image.spacing[::-1])
    norm = np.sqrt(sum(step**2 for step in steps))
    bins = np.clip((image.array[reach] * (_BINS - 1)).round(), 0, _BINS - 1).astype(np.int64)
    shares = np.bincount(bins, minlength=_BINS) / bins.size
    shares = shares[shares > 0]
    return float(norm[reach].mean()), float(-(shares * np.log2(shares)).sum())
