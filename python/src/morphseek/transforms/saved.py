"""Transforms of files, and of other programs, as things that can be applied."""

from __future__ import annotations

import os
from typing import Any, overload

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine.bindings import Doubles
from .files import fixed_grid, read
from .points import checked_points
from .resample import resample


class Transform:
    """A map from fixed to moving space that was saved: ``transform.h5`` of a registration, or any
    rigid, affine or deformable transform that SimpleITK reads.

    Parameters
    ----------
    transform : SimpleITK.Transform or array_like
        3-D, or a 4x4 LPS matrix in mm.

    Examples
    --------
    >>> import numpy as np
    >>> shift = np.eye(4); shift[:3, 3] = 1, 2, 3
    >>> Transform(shift).transform_points([[0.0, 0.0, 0.0]])
    array([[1., 2., 3.]])
    """

    def __init__(self, transform: Any):
        self._transform = read(transform)
        noted = None
        if isinstance(transform, (str, os.PathLike)):
            noted = fixed_grid(transform)
        self._grid = _field_grid(self._transform) if noted is None else noted

    def __repr__(self) -> str:
        on = "" if self._grid is None else f" on {' x '.join(f'{n:g}' for n in self._grid[:3])}"
        return f"Transform({self._transform.GetName()}{on})"

    @property
    def grid(self) -> Doubles | None:
        """Geometry of the fixed image, as :attr:`morphseek.images.Image.grid`; None where the
        transform does not hold it, as a matrix does not.
        """
        return None if self._grid is None else self._grid.copy()

    def to_sitk(self) -> sitk.Transform:
        """Return SimpleITK's transform."""
        return self._transform

    def transform_points(self, points: Any) -> np.ndarray:
        """Map points, (n, 3) in LPS mm, from the fixed to the moving space; float64."""
        mapped = checked_points(points)
        for point in mapped:
            point[:] = self._transform.TransformPoint(point.tolist())
        return mapped

    @overload
    def apply(
        self,
        image: str | os.PathLike[str],
        reference: images.ImageLike | None = ...,
        interpolation: str = ...,
        background: float | None = ...,
    ) -> sitk.Image: ...

    @overload
    def apply(
        self,
        image: images.Volume,
        reference: images.ImageLike | None = ...,
        interpolation: str = ...,
        background: float | None = ...,
    ) -> images.Volume: ...

    def apply(
        self,
        image: images.ImageLike,
        reference: images.ImageLike | None = None,
        interpolation: str = "linear",
        background: float | None = None,
    ) -> Any:
        """Resample an image or label map of the moving space onto the fixed image's grid.

        Parameters
        ----------
        image : ImageLike
            With its geometry, which a numpy array does not have.
        reference : ImageLike, optional
            Image whose grid the result gets: by default the fixed one's, where the transform holds
            it.
        interpolation : {"linear", "nearest"}
            "nearest" for label maps.
        background : float, optional
            Value outside the image: by default its minimum, 0 with "nearest".

        Returns
        -------
        same kind as `image`
            A path gives a SimpleITK image. "linear" gives float32, "nearest" keeps the dtype.

        Raises
        ------
        InvalidArgumentError
            There is no grid for the result, the image has no geometry, or the interpolation
            another name.
        """
        if isinstance(image, np.ndarray):
            raise errors.InvalidArgumentError(
                "a numpy array does not say where it lies; give morphseek.Image(array, spacing,"
                " origin, direction)"
            )
        grid = self._grid if reference is None else images.read(reference, "reference").grid
        if grid is None:
            raise errors.InvalidArgumentError(
                f"a {self._transform.GetName()} holds no grid for the result; give the fixed image"
                " as reference"
            )
        source = images.read(image, "moving")
        moved = resample(source, grid, self._transform, interpolation, background)
        return images.as_kind_of(image, moved)


def read_transform(path: str | os.PathLike[str]) -> Transform:
    """Read a saved transform: ``transform.h5`` of a registration, or any ``.h5`` or ``.tfm``.

    >>> import morphseek
    >>> transform = morphseek.read_transform("out/transform.h5")  # doctest: +SKIP
    >>> warped = transform.apply("moving.nii.gz")  # doctest: +SKIP
    """
    return Transform(path)


def _field_grid(transform: sitk.Transform) -> Doubles | None:
    """Return the grid of the displacement field that acts first, if that is what does."""
    while transform.GetTransformEnum() == sitk.sitkComposite:
        parts = sitk.CompositeTransform(transform)
        if not parts.GetNumberOfTransforms():
            return None
        transform = parts.GetNthTransform(parts.GetNumberOfTransforms() - 1)
    if transform.GetTransformEnum() != sitk.sitkDisplacementField:
        return None
    size, origin, spacing, direction = np.split(
        np.array(transform.GetFixedParameters(), dtype=np.float64), (3, 6, 9)
    )
    return np.concatenate([size, spacing, origin, direction])
