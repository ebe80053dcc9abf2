"""Images on other grids."""

from __future__ import annotations

import numpy as np
import SimpleITK as sitk

from .._engine import bindings
from ..images import Image
from .labels import beyond, minimum, ranked

_MAX_FLOAT64 = 2**53  # largest integer that float64, in which SimpleITK counts, holds exactly


def resample_identity(
    image: Image, grid: np.ndarray, interpolation: str, background: float
) -> np.ndarray:
    """Resample onto another grid under the identity in physical space; float32."""
    return bindings.resample(image.float32(), image.grid, grid, interpolation, background)


def resample(
    image: Image, reference: Image, transform: sitk.Transform, nearest: bool
) -> sitk.Image:
    """Resample an image, or with nearest neighbours a label map, onto another one's grid by any of
    SimpleITK's transforms, fixed to moving. What lies outside gets its minimum, or the label 0.
    """
    grid = reference.to_sitk()
    if not nearest:
        return sitk.Resample(
            image.like(image.float32()).to_sitk(),
            grid,
            transform,
            sitk.sitkLinear,
            minimum(image.array),
        )
    if image.array.dtype.kind in "iu" and beyond(image.array, _MAX_FLOAT64):  # their ranks travel
        found, ranks, background = ranked(image.array, 0)
        moved = sitk.Resample(
            image.like(ranks.astype(np.uint32)).to_sitk(),
            grid,
            transform,
            sitk.sitkNearestNeighbor,
            float(background),
        )
        return reference.like(found[sitk.GetArrayViewFromImage(moved)]).to_sitk()
    return sitk.Resample(image.to_sitk(), grid, transform, sitk.sitkNearestNeighbor, 0.0)
