"""Dense displacement fields, as registrations give them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine import bindings
from .._engine.bindings import Doubles, Floats
from .._grid import Grid
from .._itk import HDF5
from .._points import checked_points
from .files import matrix_part, vectors_part, write_parts
from .labels import beyond_float32, carrier
from .linear import checked_matrix
from .parts import dense, is_still, matrix_of, named, split_linear
from .resample import Resampling
from .transform import Affine, Transform


class Field(Transform):
    """A dense map: ``Phi(x) = x + u(x)`` at every voxel of the fixed image's grid.

    Parameters
    ----------
    displacement : array_like
        In voxels of the fixed grid, shape (3, z, y, x), component i along array axis i; kept as a
        copy in float32. :meth:`from_mm` takes LPS mm.
    grid, moving_grid : Grid
        Where the fixed and the moving image lie.
    initial : array_like, optional
        4x4 LPS matrix of the linear part that ``displacement`` contains. Beyond the fixed grid
        what the displacement has besides fades within a margin; farther out this part remains.

    Raises
    ------
    GridMismatchError
        The displacement has another shape than the grid.
    InvalidArgumentError
        It has NaN or Inf.

    Examples
    --------
    A shift by one voxel of 2 mm along x:

    >>> import numpy as np
    >>> grid = morphseek.Grid((6, 5, 4), spacing=(2, 2, 2))
    >>> u = np.zeros((3, 4, 5, 6), np.float32)
    >>> u[2] = 1
    >>> t = Field(u, grid, grid)
    >>> t
    Field(fixed 6 x 5 x 4, moving 6 x 5 x 4)
    >>> t.transform_points([[4.0, 2.0, 2.0]])
    array([[6., 2., 2.]])
    >>> t.displacement_mm()[0, 0, 0]
    array([2., 0., 0.], dtype=float32)
    >>> t.inverse().displacement()[2, 1, 1, 1]
    np.float32(-1.0)
    """

    _grid: Grid
    _moving_grid: Grid

    def __init__(self, displacement: Any, grid: Grid, moving_grid: Grid, initial: Any = None):
        super().__init__(grid, moving_grid)
        self._initial = np.eye(4) if initial is None else checked_matrix(initial, "initial")
        voxels = images.arrays.as_array(displacement, "displacement")
        # what its owner can change is copied: a network uses its buffers again
        if voxels.flags.writeable:
            voxels = np.array(voxels, dtype=np.float32, order="C")
        self._displacement: Floats = np.ascontiguousarray(voxels, dtype=np.float32)
        if self._displacement.shape != (3, *grid.shape):
            raise errors.GridMismatchError(
                f"displacement has shape {voxels.shape}; the grid needs {(3, *grid.shape)}"
            )
        if not np.isfinite(self._displacement.sum(dtype=np.float64)):
            unknown = int((~np.isfinite(self._displacement).all(axis=0)).sum())
            raise errors.InvalidArgumentError(
                f"displacement has no number (NaN or Inf) at {unknown} voxels; give 0 where nothing"
                " is known"
            )
        self._determinants: Floats | None = None

    @classmethod
    def from_mm(
        cls, displacement: Any, grid: Grid, moving_grid: Grid, initial: Any = None
    ) -> Field:
        """Return the field with these displacements in LPS mm, shape (z, y, x, 3).

        Examples
        --------
        >>> grid = pair.fixed.grid
        >>> shift = np.zeros((*pair.fixed.array.shape, 3), np.float32) + np.float32([2, 0, 0])  # mm
        >>> field = morphseek.Field.from_mm(shift, grid, grid)
        >>> np.allclose(field.transform_points([[0, 0, 0]]), [[2, 0, 0]])
        True
        """
        voxels = images.arrays.as_array(displacement, "displacement")
        vectors = np.ascontiguousarray(voxels, dtype=np.float32)
        return cls(read_only(bindings.from_mm(vectors, grid)), grid, moving_grid, initial)

    def __repr__(self) -> str:
        fixed, moving = (" x ".join(map(str, g.size)) for g in (self.grid, self.moving_grid))
        return f"Field(fixed {fixed}, moving {moving})"

    @property
    def grid(self) -> Grid:
        """Where the fixed image lies."""
        return self._grid

    @property
    def moving_grid(self) -> Grid:
        """Where the moving image lies."""
        return self._moving_grid

    @property
    def initial(self) -> Doubles:
        """4x4 LPS matrix of the linear part; read-only."""
        return read_only(self._initial)

    @property
    def is_linear(self) -> bool:
        """Whether there is nothing but :attr:`initial`, to a thousandth of a voxel: only rigid or
        affine ran, or nothing that bends was kept.
        """
        return is_still(self._behind_initial()[0], self.grid)

    @property
    def stages(self) -> dict[str, Transform]:
        return {"initial": Affine(self._initial, self.grid, self.moving_grid), "final": self}

    def _voxels(self) -> tuple[Floats, Grid]:
        return self._displacement, self.grid

    def _reach(self) -> Grid | None:
        return self.grid

    def _sitk(self) -> sitk.Transform:
        return dense(*self._voxels(), self._initial)

    def _behind_initial(self) -> tuple[Floats, Grid]:
        """Return the displacements before :attr:`initial` acts, float32 (z, y, x, 3) in LPS mm,
        with the margin beyond the fixed grid in which they fade, and their grid.
        """
        return bindings.behind_mm(*self._voxels(), self._initial)

    def displacement(self, reference: images.ImageLike | None = None) -> Floats:
        if reference is not None:
            return super().displacement(reference)
        return read_only(self._displacement)

    def displacement_mm(self, reference: images.ImageLike | None = None) -> Floats:
        if reference is not None:
            return super().displacement_mm(reference)
        return bindings.to_mm(*self._voxels())

    def jacobian(self, reference: images.ImageLike | None = None) -> Floats:
        if reference is not None:
            return super().jacobian(reference)
        if self._determinants is None:  # scores and pages ask for them, too
            with named(self.name):
                self._determinants = bindings.jacobian(*self._voxels())
        return read_only(self._determinants)

    def transform_points(self, points: Any) -> Doubles:
        mapped = checked_points(points)
        bindings.transform_points(*self._voxels(), self._initial, mapped)
        return mapped

    def inverse(self) -> Field:
        """Return the inverse map, from moving to fixed space, on the moving image's grid.

        Where the field folds there is no inverse; the nearest preimage stands. Beyond the moving
        image's grid it goes on as every transform does: to the initial one's inverse.

        Examples
        --------
        >>> back = result.transform.inverse()
        >>> points = np.array([[1.0, 2.0, 3.0]])
        >>> returned = back.transform_points(result.transform_points(points))
        >>> np.allclose(returned, points, atol=0.1)
        True
        """
        inverse = bindings.inverse(*self._voxels(), self._initial, self.moving_grid)
        back = np.linalg.inv(self._initial)
        return Field(read_only(inverse), self.moving_grid, self.grid, back)

    def save(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        reference: images.ImageLike | None = None,
        moving: images.ImageLike | None = None,
    ) -> list[Path]:
        is_hdf5 = os.fspath(path).lower().endswith(HDF5)
        if not is_hdf5 or format not in (None, "itk") or not (reference is moving is None):
            return super().save(path, format, reference, moving)
        # as the format's writer does, without the 24 bytes a voxel of SimpleITK's field
        behind, grid = self._behind_initial()
        parts = [matrix_part(self._initial)]  # the identity, too: stage("initial") is in every file
        if not is_still(behind, self.grid):
            parts.append(vectors_part(behind, grid))
        write_parts(path, parts, self.grid, self.moving_grid)
        return [Path(path)]

    def _moved(self, frame: images.Image, grid: Grid, how: Resampling) -> images.Image:
        name = how["interpolation"]
        is_wide = (
            name == "linear" and frame.array.dtype.kind in "iu" and beyond_float32(frame.array)
        )
        if grid != self.grid or name not in ("linear", "nearest") or how["modulate"] or is_wide:
            return super()._moved(frame, grid, how)  # what the engine does not do
        what = carrier(frame.array, name, how["background"], beyond_float32, how["dtype"])
        moving = np.ascontiguousarray(what.array, dtype=np.float32)
        warped = bindings.warp(*self._voxels(), moving, frame.grid, name, what.background)
        return images.Image.on_grid(what.back(warped), self.grid)


def linear_of(transform: Transform) -> Doubles:
    """Return the linear part that acts after what bends, as 4x4 LPS matrix."""
    if isinstance(transform, Field):
        return transform.initial
    return matrix_of(split_linear(transform.to_sitk())[0])


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
