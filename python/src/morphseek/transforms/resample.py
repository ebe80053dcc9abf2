"""Images on other grids."""

from __future__ import annotations

import numpy as np
import SimpleITK as sitk

from .._engine import bindings
from ..images import Image, placed
from .labels import beyond, carrier

_MAX_FLOAT64 = 2**53  # largest integer that float64, in which SimpleITK counts, holds exactly


def resample_identity(
    image: Image, grid: np.ndarray, interpolation: str, background: float
) -> np.ndarray:
    """Resample onto another grid under the identity in physical space; float32."""
    return bindings.resample(image.float32(), image.grid, grid, interpolation, background)


def resample(
    image: Image,
    grid: np.ndarray,
    transform: sitk.Transform,
    interpolation: str = "linear",
    background: float | None = None,
) -> Image:
    """Resample an image, or with nearest neighbours a label map, onto a grid
    (:attr:`morphseek.images.Image.grid`) by any of SimpleITK's transforms, fixed to moving. What
    lies outside gets `background`: by default the image's minimum, or the label 0.
    """
    what = carrier(image.array, interpolation, background, _beyond_float64)
    if interpolation == "linear":
        how, array = sitk.sitkLinear, image.float32()
    else:
        how, array = sitk.sitkNearestNeighbor, what.array
    moved = sitk.Resample(
        image.like(array).to_sitk(), _empty(grid), transform, how, what.background
    )
    return Image.on_grid(what.back(sitk.GetArrayFromImage(moved)), grid)


def _beyond_float64(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and beyond(array, _MAX_FLOAT64)


def _empty(grid: np.ndarray) -> sitk.Image:
    """Return an image that has the grid; its voxels do not count."""
    return placed(sitk.Image([int(n) for n in grid[:3]], sitk.sitkUInt8), grid)
