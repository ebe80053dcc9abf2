"""Rigid and affine transforms as matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors


def linear(source: Any) -> sitk.AffineTransform:
    """Return a 4x4 LPS matrix as SimpleITK's transform."""
    try:
        matrix = np.asarray(source, dtype=np.float64)
    except (TypeError, ValueError):
        raise errors.InvalidArgumentError(
            f"the transform is given as {type(source).__name__}; give a SimpleITK transform, a 4x4"
            " matrix of numbers, or the path of a .tfm or .h5 file"
        ) from None
    if (
        matrix.shape != (4, 4)
        or not np.isfinite(matrix).all()
        or not np.allclose(matrix[3], (0, 0, 0, 1))
    ):
        raise errors.InvalidArgumentError(
            "a transform is a SimpleITK transform, a 4x4 matrix with last row 0 0 0 1, or the path"
            " of a .tfm or .h5 file"
        )
    if abs(np.linalg.det(matrix[:3, :3])) < 1e-12:
        raise errors.SingularTransformError(
            f"the transform's matrix {matrix[:3, :3].tolist()} cannot be inverted; correct it"
        )
    affine = sitk.AffineTransform(3)
    affine.SetMatrix(matrix[:3, :3].ravel())
    affine.SetTranslation(matrix[:3, 3])
    return affine


def linear_part(transform: sitk.Transform) -> np.ndarray:
    """Return a linear transform as 4x4 LPS matrix.

    Raises
    ------
    InvalidArgumentError
        The transform bends, as a displacement field or a spline does.

    Examples
    --------
    >>> transforms.linear_part(result.stages["initial"].to_sitk()).shape
    (4, 4)
    """
    if transform.GetDimension() != 3 or not transform.IsLinear():
        raise errors.InvalidArgumentError(
            f"a {transform.GetName()} bends, where a rigid or affine 3-D transform is needed"
        )
    matrix = np.eye(4)
    matrix[:3, 3] = transform.TransformPoint((0.0, 0.0, 0.0))
    for axis in range(3):
        matrix[:3, axis] = (
            np.array(transform.TransformPoint(tuple(np.eye(3)[axis]))) - matrix[:3, 3]
        )
    return matrix
