"""The grid of a volume: the places of its voxels."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import errors

Doubles = NDArray[np.float64]
Placed = TypeVar("Placed")

#: Turns LPS coordinates to RAS, and back: a 4x4 matrix, and its diagonal for points.
RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
RAS_SIGNS = np.array([-1.0, -1.0, 1.0])

IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Grid:
    """Where the voxels of a volume lie, in LPS millimetres.

    Attributes
    ----------
    size : tuple of int
        Voxels along x, y and z. Arrays on the grid have the :attr:`shape` (z, y, x).
    spacing : tuple of float
        Mm from voxel to voxel along x, y and z.
    origin : tuple of float
        The centre of the first voxel.
    direction : tuple of float
        Row-major 3x3; column c is the unit vector of index axis c.

    Examples
    --------
    >>> grid = Grid((5, 4, 3), spacing=(1, 1, 2.5), origin=(-2, 0, 10))
    >>> grid.shape
    (3, 4, 5)
    >>> grid.to_physical([4, 3, 2])
    array([ 2.,  3., 15.])
    """

    size: tuple[int, ...]
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    origin: tuple[float, ...] = (0.0, 0.0, 0.0)
    direction: tuple[float, ...] = IDENTITY

    def __post_init__(self) -> None:
        set_numbers(self, {"size": 3, "spacing": 3, "origin": 3, "direction": 9}, "the grid's")
        if not all(math.isfinite(n) and n >= 0 for n in self.size):
            size = " x ".join(f"{n:g}" for n in self.size)
            raise errors.InvalidArgumentError(f"the grid has the size {size}")
        object.__setattr__(self, "size", tuple(int(n) for n in self.size))

    @classmethod
    def of(cls, image: Any) -> Grid:
        """Return the grid of a SimpleITK image's first three axes, or of a reader of one; two are
        a slice in the plane z = 0.

        Examples
        --------
        >>> Grid.of(pair.fixed.to_sitk()) == pair.fixed.grid
        True
        """
        axes = image.GetDimension()
        own, direction = min(axes, 3), np.eye(3)
        direction[:own, :own] = np.reshape(image.GetDirection(), (axes, axes))[:own, :own]
        spacing, origin = (*image.GetSpacing(), 1.0)[:3], (*image.GetOrigin(), 0.0)[:3]
        return cls((*image.GetSize(), 1)[:3], spacing, origin, tuple(direction.ravel()))

    @classmethod
    def from_numbers(cls, numbers: ArrayLike) -> Grid:
        """Return the grid of 18 numbers (:attr:`numbers`).

        Examples
        --------
        >>> Grid.from_numbers(pair.fixed.grid.numbers) == pair.fixed.grid
        True
        """
        values = np.asarray(numbers, np.float64).ravel()
        return cls(*(tuple(part.tolist()) for part in np.split(values, [3, 6, 9])))

    @classmethod
    def from_matrix(cls, size: ArrayLike, matrix: ArrayLike) -> Grid:
        """Return the grid whose continuous indices (x, y, z) a 4x4 matrix takes to LPS mm.

        Examples
        --------
        >>> Grid.from_matrix((5, 4, 3), np.diag([1, 1, 2.5, 1])).spacing
        (1.0, 1.0, 2.5)
        """
        m = np.asarray(matrix, np.float64)
        spacing = np.linalg.norm(m[:3, :3], axis=0)
        axes = m[:3, :3] / np.where(spacing > 0, spacing, 1)
        return cls(tuple(np.asarray(size)), tuple(spacing), tuple(m[:3, 3]), tuple(axes.ravel()))

    @functools.cached_property
    def numbers(self) -> Doubles:
        """The grid as the engine takes it: 18 float64, size, spacing, origin and direction.

        Examples
        --------
        >>> Grid((5, 4, 3)).numbers[:6].tolist()
        [5.0, 4.0, 3.0, 1.0, 1.0, 1.0]
        """
        values: Doubles = np.array(
            [*self.size, *self.spacing, *self.origin, *self.direction], np.float64
        )
        values.flags.writeable = False
        return values

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of arrays on the grid: (z, y, x)."""
        x, y, z = self.size
        return z, y, x

    @property
    def axes(self) -> Doubles:
        """The unit vectors of x, y and z, shape (3, 3): a column each."""
        return self.numbers[9:].reshape(3, 3)

    @functools.cached_property
    def index_to_physical(self) -> Doubles:
        """4x4 matrix from the continuous index (x, y, z) to LPS mm.

        Examples
        --------
        >>> Grid((5, 4, 3), spacing=(1, 1, 2)).index_to_physical @ [1, 2, 3, 1]
        array([1., 2., 6., 1.])
        """
        m: Doubles = np.eye(4)
        m[:3, :3], m[:3, 3] = self.axes * self.spacing, self.origin
        m.flags.writeable = False
        return m

    @functools.cached_property
    def physical_to_index(self) -> Doubles:
        """4x4 matrix from LPS mm to the continuous index (x, y, z).

        Examples
        --------
        >>> Grid((5, 4, 3), spacing=(1, 1, 2)).physical_to_index @ [1, 2, 6, 1]
        array([1., 2., 3., 1.])
        """
        m: Doubles = np.asarray(np.linalg.inv(self.index_to_physical), np.float64)
        m.flags.writeable = False
        return m

    def to_physical(self, index: ArrayLike) -> Doubles:
        """Return the places, LPS mm, of continuous indices (x, y, z), shape (..., 3).

        Examples
        --------
        >>> Grid((5, 4, 3), spacing=(1, 1, 2)).to_physical([[1, 2, 3]])
        array([[1., 2., 6.]])
        """
        return mapped(self.index_to_physical, index)

    def to_index(self, points: ArrayLike) -> Doubles:
        """Return the continuous indices (x, y, z) of places, LPS mm, shape (..., 3).

        Examples
        --------
        >>> Grid((5, 4, 3), spacing=(1, 1, 2)).to_index([[1, 2, 6]])
        array([[1., 2., 3.]])
        """
        return mapped(self.physical_to_index, points)

    def part(self, first: ArrayLike, size: ArrayLike) -> Grid:
        """Return the grid of so many of these voxels, from an index (x, y, z) on, which may lie
        beyond them.

        Examples
        --------
        >>> Grid((5, 4, 3)).part((1, 1, 1), (2, 2, 2)).origin
        (1.0, 1.0, 1.0)
        """
        origin = self.to_physical(first)
        return dataclasses.replace(self, size=tuple(np.asarray(size)), origin=tuple(origin))

    @property
    def center(self) -> Doubles:
        """The middle, LPS mm.

        Examples
        --------
        >>> Grid((5, 3, 1)).center
        array([2., 1., 0.])
        """
        return self.to_physical((np.array(self.size) - 1) / 2)

    def corners(self, beyond: float = 0.0) -> Doubles:
        """Return the outermost voxels' centres, or places so many voxels beyond these, LPS mm:
        shape (8, 3).

        Examples
        --------
        >>> Grid((5, 4, 3)).corners()[-1]
        array([4., 3., 2.])
        """
        ends = [(-beyond, n - 1 + beyond) for n in self.size]
        return self.to_physical(np.array(np.meshgrid(*ends)).reshape(3, -1).T)

    def points(self) -> Doubles:
        """Return every voxel's centre, LPS mm: shape (z, y, x, 3).

        Examples
        --------
        >>> Grid((5, 4, 3)).points()[2, 1, 4]
        array([4., 1., 2.])
        """
        x, y, z = (np.arange(n, dtype=np.float64) for n in self.size)
        m = self.index_to_physical
        return (
            x[None, None, :, None] * m[:3, 0]
            + y[None, :, None, None] * m[:3, 1]
            + z[:, None, None, None] * m[:3, 2]
            + m[:3, 3]
        )

    @property
    def voxel(self) -> float:
        """The volume of a voxel, mm^3."""
        return abs(float(np.linalg.det(self.index_to_physical[:3, :3])))

    def is_sheared(self, most: float = 1e-3) -> bool:
        """Whether a cosine of the angles between the axes is larger than ``most``.

        Examples
        --------
        >>> Grid((5, 4, 3)).is_sheared()
        False
        """
        return is_sheared(self.axes, most)

    def place(self, image: Placed) -> Placed:
        """Give the first three axes of a SimpleITK image, or two, this geometry, and return it.

        Raises
        ------
        InvalidSpacingError, InvalidDirectionError
            ITK has no such geometry.

        Examples
        --------
        >>> pair.moving.grid.place(pair.fixed.to_sitk()).GetSize()
        (48, 48, 48)
        """
        check_numbers(self.spacing, self.origin, self.direction, "the grid")
        target: Any = image
        own, direction = min(target.GetDimension(), 3), np.eye(target.GetDimension())
        direction[:own, :own] = self.axes[:own, :own]
        target.SetSpacing((*self.spacing[:own], *target.GetSpacing()[own:]))
        target.SetOrigin((*self.origin[:own], *target.GetOrigin()[own:]))
        target.SetDirection(direction.ravel().tolist())
        return image


def set_numbers(owner: Any, lengths: dict[str, int], whose: str) -> None:
    """Make fields of a frozen object tuples of so many numbers; refuse fewer or more."""
    for field, length in lengths.items():
        values = np.asarray(getattr(owner, field), dtype=np.float64).ravel()
        if values.size != length:
            raise errors.InvalidArgumentError(
                f"{whose} {field} has {values.size} numbers; it needs {length}"
            )
        object.__setattr__(owner, field, tuple(values.tolist()))


def check_numbers(
    spacing: Sequence[float], origin: Sequence[float], direction: Sequence[float], name: str
) -> None:
    """Refuse numbers that lay no volume in space."""
    if not all(math.isfinite(s) and s > 0 for s in spacing) or not np.isfinite(origin).all():
        told = (" x ".join(f"{n:g}" for n in numbers) for numbers in (spacing, origin))
        raise errors.InvalidSpacingError(
            f"{name}: the spacing is {next(told)} mm and the origin {next(told)}; give finite"
            " numbers, for the spacing above 0"
        )
    axes = np.reshape(direction, (len(spacing), -1))
    if not np.isfinite(axes).all() or abs(np.linalg.det(axes)) < 1e-12:
        raise errors.InvalidDirectionError(
            f"{name}: the direction is {' '.join(f'{n:g}' for n in direction)}; give unit vectors"
            " at right angles, a column each"
        )


def is_sheared(axes: ArrayLike, most: float = 1e-3) -> bool:
    """Whether a cosine of the angles between axes, a column each, is larger than ``most``."""
    columns = np.asarray(axes, np.float64)
    return bool(np.abs(columns.T @ columns - np.eye(len(columns))).max() > most)


def sheared(name: str) -> errors.MorphSeekError:
    """Return the error about an image whose axes are not at right angles."""
    return errors.InvalidDirectionError(
        f"{name}: the axes of the volume are not at right angles (its affine is sheared); resample"
        " it onto a straight grid first, for instance by nibabel.processing.resample_to_output"
    )


def mapped(matrix: ArrayLike, points: ArrayLike) -> Doubles:
    """Return points, shape (..., 3), under a 4x4 matrix."""
    m = np.asarray(matrix, np.float64)
    return np.asarray(points, np.float64) @ m[:3, :3].T + m[:3, 3]
