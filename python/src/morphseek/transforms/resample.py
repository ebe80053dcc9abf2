"""Images on other grids."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._engine import bindings
from .._grid import Grid
from ..images import Image
from .labels import LABELS, beyond, carrier
from .parts import field_on

_MAX_FLOAT64 = 2**53  # largest integer that float64, in which SimpleITK counts, holds exactly
_HOW = {
    "linear": "sitkLinear",
    "cubic": "sitkBSpline",
    "sinc": "sitkLanczosWindowedSinc",
    "nearest": "sitkNearestNeighbor",
    "label": "sitkLabelLinear",  # of SimpleITK's two, the one that keeps small labels
}


class Resampling(TypedDict, total=False):
    """Keywords of :meth:`Transform.apply`, which says what they mean."""

    interpolation: str
    background: float | None
    dtype: Any
    modulate: bool


def resample_identity(
    image: Image, grid: Grid, interpolation: str, background: float
) -> np.ndarray:
    """Resample onto another grid under the identity in physical space; float32."""
    return bindings.resample(image.float32(), image.grid, grid, interpolation, background)


def resample(
    image: Image,
    grid: Grid,
    transform: sitk.Transform,
    interpolation: str = "linear",
    background: float | None = None,
    dtype: np.dtype | None = None,
    modulate: bool = False,
) -> Image:
    """Resample an image or a label map onto a grid by a transform of SimpleITK. `background` is by
    default the image's minimum, or 0 for labels and where it is modulated.
    """
    if modulate:
        if interpolation in LABELS:
            raise errors.InvalidArgumentError(
                f"modulate multiplies intensities by the Jacobian; with {interpolation} the result"
                " is labels: leave one of them out"
            )
        background = 0.0 if background is None else background
        if dtype is None and image.array.dtype.kind in "biu":
            dtype = np.dtype(np.float32)  # rounding would change the mass

    def too_large(labels: np.ndarray) -> bool:
        return labels.dtype.kind in "iu" and beyond(labels, _MAX_FLOAT64)

    what = carrier(image.array, interpolation, background, too_large, dtype)
    array = what.array
    if interpolation not in LABELS:
        # float32 holds every integer of 16 bits
        wide = array.dtype.itemsize > (4 if array.dtype.kind == "f" else 2)
        array = array.astype(np.float64 if wide else np.float32, copy=False)
        if interpolation != "linear":  # a NaN would spread along its lines
            array = np.where(np.isfinite(array), array, array.dtype.type(what.background))
    values = sitk.GetArrayFromImage(
        sitk.Resample(
            image.like(array).to_sitk(), grid.place(sitk.Image(grid.size, sitk.sitkUInt8)),
            transform, _how(interpolation), what.background,
        )
    )  # fmt: skip
    if modulate:
        values = values * jacobian_on(transform, grid)
    return Image.on_grid(what.back(values), grid)


def jacobian_on(transform: sitk.Transform, grid: Grid) -> np.ndarray:
    """Return the determinant of a transform's derivative at every voxel of a grid; float32."""
    return bindings.jacobian(bindings.from_mm(field_on(transform, grid), grid), grid)


def _how(interpolation: str) -> int:
    how = getattr(sitk, _HOW[interpolation], None)
    if how is None:
        raise errors.InvalidArgumentError(
            f"interpolation {interpolation} needs SimpleITK 2.4 or newer: pip install -U SimpleITK"
        )
    return int(how)
