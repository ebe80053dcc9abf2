"""Displacement fields: what a registration found, and what can be done with it."""

from __future__ import annotations

import os
from typing import Any, overload

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine import bindings
from .._engine.bindings import Doubles, Floats
from .._grid import Grid
from . import h5
from .files import write_parts
from .labels import beyond_float32, carrier, checked_dtype
from .linear import checked_matrix, linear
from .parts import itk_order
from .points import checked_points
from .resample import resample
from .saved import Transform


class DenseTransform:
    """A dense map from fixed to moving space: ``Phi(x) = x + u(x)`` at every voxel of the fixed
    grid.

    It is the pull-back, ITK's direction: ``warped = moving o Phi``.

    Parameters
    ----------
    displacement : numpy.ndarray
        float32, shape (3, z, y, x), in voxels of the fixed grid, component i along array axis i.
    grid, moving_grid : Grid
        Where the fixed and the moving image lie.
    initial : numpy.ndarray, optional
        4x4 LPS matrix of the linear part that ``displacement`` contains. Beyond the fixed grid
        what the displacement has besides fades within a margin; farther out this part remains.

    Examples
    --------
    A shift by one voxel of 2 mm along x:

    >>> import numpy as np
    >>> from morphseek.images import Image
    >>> grid = Image(np.zeros((4, 5, 6)), spacing=(2, 2, 2)).grid
    >>> u = np.zeros((3, 4, 5, 6), np.float32)
    >>> u[2] = 1
    >>> t = DenseTransform(u, grid, grid)
    >>> t
    DenseTransform(fixed 6 x 5 x 4, moving 6 x 5 x 4)
    >>> t.transform_points([[4.0, 2.0, 2.0]])
    array([[6., 2., 2.]])
    >>> t.displacement_mm[0, 0, 0]
    array([2., 0., 0.], dtype=float32)
    >>> t.inverse().displacement[2, 1, 1, 1]
    np.float32(-1.0)
    """

    def __init__(
        self,
        displacement: np.ndarray,
        grid: Grid,
        moving_grid: Grid,
        initial: np.ndarray | None = None,
    ):
        for each in (grid, moving_grid):
            bindings.shape_of(each)
        self._grid, self._moving_grid = grid, moving_grid
        self._initial = np.eye(4) if initial is None else checked_matrix(initial, "initial")
        self._displacement = self._checked(displacement)
        self._determinants: Floats | None = None

    def __repr__(self) -> str:
        fixed, moving = (" x ".join(map(str, g.size)) for g in (self.grid, self.moving_grid))
        return f"{type(self).__name__}(fixed {fixed}, moving {moving})"

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
    def displacement(self) -> Floats:
        """The displacements in voxels: float32, shape (3, z, y, x), component i along array axis
        i. Read-only: a changed one is a new :class:`DenseTransform`.
        """
        return read_only(self._displacement)

    def _checked(self, displacement: np.ndarray) -> Floats:
        voxels = images.arrays.as_array(displacement, "displacement")
        array = np.ascontiguousarray(voxels, dtype=np.float32)
        if array.shape != (3, *self.shape):
            raise errors.GridMismatchError(
                f"displacement has shape {array.shape}; the grid needs {(3, *self.shape)}"
            )
        return array

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (z, y, x) of the fixed grid."""
        return bindings.shape_of(self._grid)

    @property
    def displacement_mm(self) -> np.ndarray:
        """The displacements in LPS mm: float32, shape (z, y, x, 3), components x, y, z (ITK's).
        Computed at every access.
        """
        return bindings.to_mm(*self._field())

    def _field(self) -> tuple[Floats, Grid]:
        return self._displacement, self._grid

    def regularity(self) -> dict[str, float]:
        """Return how regular the field is and how far it moves, by the names that
        ``RegistrationResult.metrics`` has: ``njd_percent``, ``sdlogj``, ``jacobian_min``,
        ``jacobian_max``, ``displacement_mean_mm`` and ``displacement_max_mm``.

        Examples
        --------
        >>> result.regularity()["njd_percent"]
        0
        """
        return bindings.regularity(*self._field())

    def jacobian(self) -> np.ndarray:
        """Return det(I + grad u), float32 of shape (z, y, x): below 0 where the map folds, 1 where
        it keeps volumes. Computed once; read-only.

        Examples
        --------
        >>> result.jacobian().shape
        (48, 48, 48)
        """
        if self._determinants is None:  # scores and pages ask for them, too
            self._determinants = bindings.jacobian(*self._field())
        return read_only(self._determinants)

    @overload
    def apply(
        self,
        image: str | os.PathLike[str],
        interpolation: str = ...,
        background: float | None = ...,
        *,
        dtype: Any = ...,
        modulate: bool = ...,
    ) -> sitk.Image: ...

    @overload
    def apply(
        self,
        image: np.ndarray | images.arrays.Tensor,
        interpolation: str = ...,
        background: float | None = ...,
        *,
        dtype: Any = ...,
        modulate: bool = ...,
    ) -> np.ndarray: ...

    @overload
    def apply(
        self,
        image: images.Volume,
        interpolation: str = ...,
        background: float | None = ...,
        *,
        dtype: Any = ...,
        modulate: bool = ...,
    ) -> images.Volume: ...

    def apply(
        self,
        image: images.ImageLike,
        interpolation: str = "linear",
        background: float | None = None,
        *,
        dtype: Any = None,
        modulate: bool = False,
    ) -> Any:
        """Resample an image or label map of the moving space onto the fixed grid, once.

        Parameters
        ----------
        image : ImageLike
            On any grid of the moving image's space. A numpy array, or a tensor, lies on the moving
            image's own grid. An image with a fourth axis is done frame by frame.
        interpolation : {"linear", "cubic", "sinc", "nearest", "label"}
            The last two for label maps: :meth:`Transform.apply`.
        background : float, optional
            Value outside the image: by default its minimum; 0 for labels and with `modulate`.
        dtype : numpy dtype, optional
            Of the result: by default the image's. Integers are rounded and clamped.
        modulate : bool
            Multiply by the Jacobian determinant, which keeps sums. Integers become float32.

        Returns
        -------
        same kind as `image`
            A path gives a SimpleITK image, a tensor a numpy array.

        Raises
        ------
        InvalidArgumentError
            An interpolation of another name, or a background that the labels' type does not hold.

        Examples
        --------
        >>> labels = result.apply("moving_labels.nii.gz", interpolation="label")
        >>> labels.GetSize()
        (48, 48, 48)
        """
        kind = checked_dtype(dtype)

        def moved(frame: images.Image) -> images.Image:
            if modulate or interpolation not in ("linear", "nearest"):  # the engine's own
                there = self.to_sitk()
                return resample(frame, self.grid, there, interpolation, background, kind, modulate)
            what = carrier(frame.array, interpolation, background, beyond_float32, kind)
            moving = np.ascontiguousarray(what.array, dtype=np.float32)
            found = bindings.warp(
                *self._field(), moving, frame.grid, interpolation, what.background
            )
            return images.Image.on_grid(what.back(found), self.grid)

        if images.arrays.is_array(image):
            found = moved(images.read_on(image, self.moving_grid, "moving"))
            return images.as_kind_of(image, found)
        return images.Frames(image, "moving").map(moved)

    def transform_points(self, points: Any) -> np.ndarray:
        """Map points from the fixed to the moving space.

        Parameters
        ----------
        points : array_like
            Shape (n, 3), LPS mm. Outside the fixed grid too: as :meth:`to_sitk` and the files say.

        Returns
        -------
        numpy.ndarray
            float64, shape (n, 3): where the moving image shows what the fixed image shows at
            `points`.

        Examples
        --------
        >>> result.transform_points([[0.0, 0.0, 0.0]]).shape
        (1, 3)
        """
        mapped = checked_points(points)
        bindings.transform_points(*self._field(), self._initial, mapped)
        return mapped

    def inverse(self) -> DenseTransform:
        """Return the inverse map, from moving to fixed space, on the moving image's grid.

        Where the field folds there is no inverse; the nearest preimage found stands. Beyond the
        moving image's grid it goes on as every transform does: to the initial one's inverse.

        Examples
        --------
        >>> back = result.inverse()
        >>> points = np.array([[1.0, 2.0, 3.0]])
        >>> returned = back.transform_points(result.transform_points(points))
        >>> np.allclose(returned, points, atol=0.1)
        True
        """
        inverse = bindings.inverse(*self._field(), self._initial, self._moving_grid)
        return DenseTransform(inverse, self.moving_grid, self.grid, np.linalg.inv(self.initial))

    def to_sitk(self, dimension: int = 3) -> sitk.Transform:
        """Return the map as SimpleITK's: a displacement field, inside a composite with the initial
        transform where there is one. Of a linear map (:attr:`is_linear`) an affine transform.

        Inside the fixed grid both are :attr:`displacement_mm`. The field is written with a margin
        in which the displacement fades to none; beyond it the initial transform alone remains.

        Parameters
        ----------
        dimension : {3, 2}
            2, for slices that lie in the plane z = 0, as images of two axes do, gives a transform
            of two.

        Raises
        ------
        InvalidArgumentError
            `dimension` is 2, and the images are volumes, or slices that lie elsewhere.

        Examples
        --------
        >>> point = (1.0, 2.0, 3.0)
        >>> mapped = result.to_sitk().TransformPoint(point)
        >>> np.allclose(mapped, result.transform_points([point])[0], atol=1e-3)
        True
        """
        behind, grid = self.behind_initial()
        if dimension == 2:
            return planar(behind, grid, self.initial, self._grid, self._is_nothing(behind))
        if self._is_nothing(behind):
            return linear(self.initial)
        rest = behind.astype(np.float64)
        dense = sitk.DisplacementFieldTransform(
            grid.place(sitk.GetImageFromArray(rest, isVector=True))
        )
        del rest  # 24 bytes a voxel, and the composite is to copy as many again
        if np.array_equal(self.initial, np.eye(4)):
            return dense
        # the last one acts first
        return sitk.CompositeTransform([linear(self.initial), dense])

    @classmethod
    def from_mm(
        cls,
        displacement_mm: np.ndarray,
        grid: Grid,
        moving_grid: Grid,
        initial: np.ndarray | None = None,
    ) -> DenseTransform:
        """Return the transform with these displacements in LPS mm, shape (z, y, x, 3).

        Examples
        --------
        >>> grid = pair.fixed.grid
        >>> shift = np.zeros((*pair.fixed.array.shape, 3), np.float32) + np.float32([2, 0, 0])  # mm
        >>> field = morphseek.DenseTransform.from_mm(shift, grid, grid)
        >>> np.allclose(field.transform_points([[0, 0, 0]]), [[2, 0, 0]])
        True
        """
        voxels = images.arrays.as_array(displacement_mm, "displacement_mm")
        vectors = np.ascontiguousarray(voxels, dtype=np.float32)
        return DenseTransform(bindings.from_mm(vectors, grid), grid, moving_grid, initial)

    @property
    def transform(self) -> Transform:
        """The map as a :class:`morphseek.Transform`, which can be composed, converted and saved."""
        return Transform(self)

    def __matmul__(self, other: DenseTransform | Transform) -> Transform:
        """Compose: the last one acts first (:meth:`Transform.__matmul__`)."""
        return self.transform @ other

    @property
    def is_linear(self) -> bool:
        """Whether there is nothing but :attr:`initial`, to a thousandth of a voxel: only rigid or
        affine ran, or nothing that bends was kept.
        """
        return self._is_nothing(self.behind_initial()[0])

    def _is_nothing(self, behind: Floats) -> bool:
        least = 1e-3 * float(np.array(self._grid.spacing).min())
        for part in (behind.reshape(-1)[::997], behind):  # what bends is mostly seen at once
            if part.max() > least or part.min() < -least:
                return False
        return True

    def behind_initial(self) -> tuple[Floats, Grid]:
        """Return the displacements before :attr:`initial` acts, with the margin beyond the fixed
        grid in which they fade.

        Returns
        -------
        array, grid
            float32 (z, y, x, 3), LPS mm, components x, y, z; and where they lie, as :attr:`grid`.

        Examples
        --------
        >>> displacement_mm, grid = result.behind_initial()
        >>> displacement_mm.shape[3], grid.shape
        (3, (18,))
        """
        return bindings.behind_mm(*self._field(), self._initial)

    def write_transform(self, path: str | os.PathLike[str]) -> None:
        """Write what :meth:`to_sitk` returns as ``.h5``, its displacements as float32.

        Examples
        --------
        >>> result.write_transform("transform.h5")
        """
        behind, grid = self.behind_initial()
        parts = []
        if not self._is_nothing(behind):
            parts.append(h5.Part("DisplacementFieldTransform", itk_order(grid), behind))
        if not parts or not np.array_equal(self.initial, np.eye(4)):
            matrix = np.concatenate([self.initial[:3, :3].ravel(), self.initial[:3, 3]])
            parts.insert(0, h5.Part("AffineTransform", np.zeros(3), matrix))
        write_parts(path, parts, self._grid, self._moving_grid)

    def to_sitk_image(self) -> sitk.Image:
        """Return :attr:`displacement_mm` as a SimpleITK vector image.

        Examples
        --------
        >>> result.to_sitk_image().GetNumberOfComponentsPerPixel()
        3
        """
        return self.grid.place(sitk.GetImageFromArray(self.displacement_mm, isVector=True))


def planar(
    behind: Floats, grid: Grid, initial: Doubles, fixed: Grid, is_linear: bool
) -> sitk.Transform:
    """Return the map of a slice in the plane z = 0 as SimpleITK's of two dimensions."""
    turn = fixed.axes - np.diag([0, 0, 1])
    across = np.array([fixed.origin[2], *turn[2], *turn[:2, 2], initial[2, 3]])
    if fixed.size[2] != 1 or np.abs(across).max() > 1e-6:
        raise errors.InvalidArgumentError(
            "the fixed image is no slice in the plane z = 0; its transform has three dimensions"
        )
    affine = sitk.AffineTransform(2)
    affine.SetMatrix(initial[:2, :2].ravel().tolist())
    affine.SetTranslation(initial[:2, 3].tolist())
    if is_linear:
        return affine
    layer = np.ascontiguousarray(behind[len(behind) // 2][..., :2], dtype=np.float64)
    image = sitk.GetImageFromArray(layer, isVector=True)
    image.SetSpacing(grid.spacing[:2])
    image.SetOrigin(grid.origin[:2])
    image.SetDirection(grid.axes[:2, :2].ravel().tolist())
    return sitk.CompositeTransform([affine, sitk.DisplacementFieldTransform(image)])


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to.

    Examples
    --------
    >>> transforms.read_only(np.zeros(3)).flags.writeable
    False
    """
    view = array.view()
    view.flags.writeable = False
    return view
