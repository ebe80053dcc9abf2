"""Images on other grids."""

from __future__ import annotations

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._engine import bindings
from ..images import Image, placed
from .labels import beyond, check_fits, minimum, ranked

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
    if interpolation not in ("linear", "nearest"):
        raise errors.InvalidArgumentError(
            f"interpolation is {interpolation!r}; it must be linear or nearest"
        )
    array, values, how = image.array, None, sitk.sitkLinear
    if background is None:
        background = 0.0 if interpolation == "nearest" else minimum(array)
    if interpolation == "nearest":
        how = sitk.sitkNearestNeighbor
        check_fits(background, array.dtype)
        if array.dtype.kind in "iu" and beyond(array, _MAX_FLOAT64):  # their ranks travel
            values, ranks, background = ranked(array, background)
            array = ranks.astype(np.uint32)
    else:
        array = image.float32()
    moved = sitk.Resample(
        image.like(array).to_sitk(), _empty(grid), transform, how, float(background)
    )
    found = sitk.GetArrayFromImage(moved)
    if interpolation == "nearest":
        found = found.astype(image.array.dtype) if values is None else values[found]
    return Image.on_grid(found, grid)


def _empty(grid: np.ndarray) -> sitk.Image:
    """Return an image that has the grid; its voxels do not count."""
    return placed(sitk.Image([int(n) for n in grid[:3]], sitk.sitkUInt8), grid)
