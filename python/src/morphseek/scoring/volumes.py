"""How a transform changes the volumes of labels."""

from __future__ import annotations

import numpy as np

from .. import images
from ..result import RegistrationResult


def volume_errors(
    result: RegistrationResult, fixed: images.Image, moving: images.Image, count: int
) -> list[float]:
    """Return :attr:`LabelScore.volume_error_percent` of the labels 1 to count, which both maps
    have.
    """
    numbers, there = (image.array.astype(np.intp).ravel() for image in (fixed, moving))
    predicted = np.bincount(numbers, result.jacobian().ravel(), count + 1) * _voxel(fixed)
    true = np.bincount(there, minlength=count + 1) * _voxel(moving)
    return (100 * (predicted[1:] / true[1:] - 1)).tolist()


def _voxel(image: images.Image) -> float:
    """Return the volume of a voxel, mm^3."""
    return abs(np.linalg.det(image.index_to_physical[:3, :3]))
