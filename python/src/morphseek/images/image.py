"""A volume with its place in space."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._engine import bindings
from .._grid import IDENTITY, Grid, check_numbers, set_numbers
from .arrays import Tensor, as_array


class NibabelImage(Protocol):
    """An image of nibabel, as far as it is needed here."""

    @property
    def affine(self) -> Any: ...

    @property
    def dataobj(self) -> Any: ...

    @property
    def header(self) -> Any: ...


class ItkImage(Protocol):
    """An image of itk, as far as it is needed here."""

    def GetLargestPossibleRegion(self) -> Any: ...


class Reading(NamedTuple):
    """An image as a file has it, and in what its header contradicts itself."""

    image: sitk.Image
    doubts: tuple[str, ...] = ()
    """Sentences: where voxels lie is not sure."""


def tell(doubts: Iterable[str]) -> None:
    """Warn of what a file leaves in doubt."""
    for doubt in doubts:
        errors._warn(doubt, errors.GeometryWarning)


def sentences(doubts: Iterable[str], what: str) -> tuple[str, ...]:
    """Return what leaves a file or an image in doubt as messages that name it."""
    return tuple(f"{what}: {doubt}." for doubt in doubts)


@dataclasses.dataclass(frozen=True, eq=False)
class Image:
    """A scalar volume in physical space.

    Attributes
    ----------
    array : numpy.ndarray
        Voxels, shape (z, y, x), any real dtype. A tensor becomes one. An array of two axes, (y, x),
        becomes the slice (1, y, x) in the plane z = 0.
    spacing, origin : tuple of float
        Along x, y, z; millimetres, LPS. Of two axes: along x and y.
    direction : tuple of float
        Row-major 3x3; column c is the unit vector of index axis c (x, y, z). Of two axes: 2x2.
    name : str
        What messages call it.
    doubts : tuple of str
        Sentences: in what the file contradicts itself about the place of the voxels. A registration
        warns of them, and its verdict is ``check`` at most.

    Examples
    --------
    >>> import numpy as np
    >>> Image(np.zeros((3, 4, 5)), spacing=(1, 1, 2.5))
    Image(5 x 4 x 3 voxels of 1 x 1 x 2.5 mm, float64)
    """

    array: np.ndarray
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    origin: tuple[float, ...] = (0.0, 0.0, 0.0)
    direction: tuple[float, ...] = IDENTITY
    name: str = "image"
    doubts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", as_array(self.array, self.name))
        if self.array.ndim == 2:
            object.__setattr__(self, "array", self.array[None])
            spacing, origin, turn = (
                np.asarray(v, dtype=np.float64).ravel()
                for v in (self.spacing, self.origin, self.direction)
            )
            # the third axis is as long as the other two on average
            if spacing.size == 2:
                object.__setattr__(self, "spacing", (*spacing, np.sqrt(spacing.prod())))
            if origin.size == 2:
                object.__setattr__(self, "origin", (*origin, 0.0))
            if turn.size == 4:
                object.__setattr__(self, "direction", (*turn[:2], 0, *turn[2:], 0, 0, 0, 1))
        set_numbers(self, {"spacing": 3, "origin": 3, "direction": 9}, f"{self.name}:")

    def __repr__(self) -> str:
        size = " x ".join(str(n) for n in self.array.shape[::-1])
        return (
            f"Image({size} voxels of {' x '.join(f'{s:g}' for s in self.spacing)} mm,"
            f" {self.array.dtype})"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: size, intensities and the middle planes."""
        from ..report.cards import image

        return image(self.array, self.grid, self.name, self.doubts)

    @property
    def grid(self) -> Grid:
        """Where the voxels lie."""
        return Grid(self.array.shape[::-1], self.spacing, self.origin, self.direction)

    @classmethod
    def on_grid(cls, array: np.ndarray, grid: Grid, name: str = "image") -> Image:
        """Return ``array`` on a grid.

        Examples
        --------
        >>> mask = images.Image.on_grid(pair.fixed.array > 0, pair.fixed.grid)
        >>> mask.same_grid(pair.fixed)
        True
        """
        return cls(array, grid.spacing, grid.origin, grid.direction, name)

    @property
    def index_to_physical(self) -> np.ndarray:
        """4x4 matrix from the continuous index (x, y, z) to LPS mm."""
        return self.grid.index_to_physical

    def float32(self) -> np.ndarray:
        """The voxels as C-contiguous float32: the array itself where it is that already.

        Examples
        --------
        >>> pair.fixed_labels.float32().dtype.name
        'float32'
        """
        return np.ascontiguousarray(self.array, dtype=np.float32)

    def like(self, array: np.ndarray) -> Image:
        """Return other voxels on this grid.

        Examples
        --------
        >>> pair.fixed.like(pair.fixed.array > 0).array.dtype.name
        'bool'
        """
        return dataclasses.replace(self, array=array)

    def same_grid(self, other: Image) -> bool:
        """Whether another image lies on this grid, as the engine tells grids apart.

        Examples
        --------
        >>> pair.fixed.same_grid(pair.fixed_labels)
        True
        """
        return bindings.same_grid(self.grid, other.grid)

    def intensities(
        self, low: float = 0.5, high: float = 99.5
    ) -> tuple[np.ndarray, tuple[float, float]]:
        """Return the voxels as a registration compares them, without a scanner's padding, failed
        fits and NaN, float32, and two percentiles of them.

        Examples
        --------
        >>> values, (low, high) = pair.fixed.intensities()
        >>> values.dtype.name, low < high
        ('float32', True)
        """
        return bindings.intensities(self.float32(), self.grid, low, high)

    def to_sitk(self) -> sitk.Image:
        """Return a SimpleITK image (a copy).

        Examples
        --------
        >>> pair.fixed.to_sitk().GetSize()
        (48, 48, 48)
        """
        array = np.ascontiguousarray(storable(self.array))
        check_numbers(self.spacing, self.origin, self.direction, self.name)
        return self.grid.place(sitk.GetImageFromArray(array))


_WIDER = {"bool": np.uint8, "float16": np.float32, np.dtype(np.longdouble).name: np.float64}


def storable(array: np.ndarray) -> np.ndarray:
    """Return an array in a type that image formats have, in the processor's byte order."""
    kind = np.dtype(_WIDER.get(array.dtype.name, array.dtype))
    return array.astype(kind.newbyteorder("="), copy=False)


ImageLike = (
    np.ndarray | Tensor | Image | sitk.Image | NibabelImage | ItkImage | str | os.PathLike[str]
)
"""numpy array or tensor (z, y, x), :class:`Image`, SimpleITK, itk or nibabel image, path, DICOM
folder or atlas by name (``templateflow:NAME``)."""

Volume = TypeVar("Volume", bound=Image | sitk.Image | NibabelImage | ItkImage)
"""An image that knows its place, of one kind: what goes in comes out."""
