"""Rigid and affine transforms as matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._engine.bindings import Doubles
from ..images.arrays import as_array, is_array

#: What a transform of two dimensions is told.
FLAT = "images here are 3-D, and slices, too: give the 4x4 matrix that leaves z as it is"


def checked_matrix(source: Any, name: str, give: str = "give one") -> Doubles:
    """Return a copy of a 4x4 LPS matrix, float64, if sound; `name` and `give` are for messages."""
    try:
        matrix: Doubles = np.array(
            as_array(source, name) if is_array(source) else source, dtype=np.float64
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, errors.MorphSeekError):
            raise
        raise errors.InvalidArgumentError(
            f"{name} is given as {type(source).__name__}, and no 4x4 matrix of numbers; {give}"
        ) from None
    if matrix.shape != (4, 4):
        raise errors.InvalidArgumentError(
            f"{name} is an array of shape {matrix.shape}, and no 4x4 LPS matrix; {give}"
        )
    if not np.isfinite(matrix).all() or not np.allclose(matrix[3], (0, 0, 0, 1)):
        raise errors.InvalidArgumentError(
            f"{name} is no 4x4 LPS matrix of finite numbers with the last row 0 0 0 1; {give}"
        )
    if abs(np.linalg.det(matrix[:3, :3])) < 1e-12:
        raise errors.SingularTransformError(
            f"{name} has the matrix {matrix[:3, :3].tolist()}, which cannot be inverted; correct it"
        )
    return matrix


def linear(source: Any) -> sitk.AffineTransform:
    """Return a 4x4 LPS matrix as SimpleITK's transform."""
    matrix = checked_matrix(
        source,
        "the transform",
        "give one, a SimpleITK transform, or the path of a .tfm or .h5 file",
    )
    return affine(matrix)


def affine(matrix: np.ndarray) -> sitk.AffineTransform:
    """Return a 4x4 LPS matrix as SimpleITK's transform, whatever it is."""
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(matrix[:3, :3].ravel())
    transform.SetTranslation(matrix[:3, 3])
    return transform


def linear_part(transform: sitk.Transform) -> np.ndarray:
    """Return a linear transform as 4x4 LPS matrix; refuse one that bends."""
    if transform.GetDimension() != 3 or not transform.IsLinear():
        raise errors.InvalidArgumentError(
            f"a {transform.GetName()} bends, where a rigid or affine 3-D transform is needed"
        )
    return matrix_of_map(transform)


def matrix_of_map(transform: Any) -> np.ndarray:
    """Return a linear map of SimpleITK or itk as 4x4 matrix."""
    matrix = np.eye(4)
    matrix[:3, 3] = list(transform.TransformPoint([0.0, 0.0, 0.0]))
    for axis, unit in enumerate(np.eye(3).tolist()):
        matrix[:3, axis] = list(transform.TransformPoint(unit)) - matrix[:3, 3]
    return matrix
