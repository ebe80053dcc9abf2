"""Prepare arrays for resampling: labels that float32 cannot hold are replaced by their rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import errors
from ..images import Image

MAX_EXACT = 2**24  # largest integer that float32, the engine's voxel, holds exactly


class Carrier(NamedTuple):
    """An array prepared for resampling, and the way back."""

    array: np.ndarray
    background: float
    back: Callable[[np.ndarray], np.ndarray]
    """Converts the resampled array to the values of the original."""


INTENSITIES = ("linear", "cubic", "sinc")
LABELS = ("nearest", "label")
#: What an image can be resampled by; the last two give labels that it has.
INTERPOLATIONS = (*INTENSITIES, *LABELS)
_MOST_ALIKE = 0.75  # neighbours in label maps of 139 structures: 0.9; in images of 8 bits: 0.24


def carrier(
    array: np.ndarray,
    interpolation: str,
    background: float | None,
    too_large: Callable[[np.ndarray], bool],
    dtype: np.dtype | None = None,
) -> Carrier:
    """Prepare an array for a resampler; labels that are too large for it travel as ranks. The
    background is by default the minimum, or the label 0. What comes back has the array's type, or
    the one asked for: integers rounded and clamped, while labels must fit it.
    """
    errors._check_choice("interpolation", interpolation, INTERPOLATIONS)
    kind = array.dtype if dtype is None else dtype
    if interpolation in INTENSITIES:
        if background is not None:
            check_fits(background, kind)
        outside = minimum(array) if background is None else float(background)
        return Carrier(array, outside, lambda found: as_type(found, kind, outside))
    background = 0.0 if background is None else background
    check_fits(background, array.dtype)
    if dtype is not None and dtype.kind != "b" and dtype != array.dtype:  # a mask of 255 is True
        lost = (as_type(array, dtype) != array) & (array == array)
        if lost.any():
            raise errors.InvalidArgumentError(
                f"the label {array[lost][0]} does not fit the type {dtype}; give another dtype"
            )
    if too_large(array):
        every = np.append(array, array.dtype.type(background))
        values, ranks = np.unique(every, return_inverse=True)
        if len(values) <= MAX_EXACT:  # an image with more values is no label map
            return Carrier(
                ranks[:-1].reshape(array.shape),
                float(ranks[-1]),
                lambda found: as_type(values[found.astype(np.int64)], kind),
            )
    return Carrier(array, float(background), lambda found: as_type(found, kind))


def carry_labels(labels: Image, apply: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as a transform's ``apply`` carries them, and where they are known."""
    least = int(labels.array.min())
    above = labels.array.astype(np.int64) - least + 1  # 0 is outside
    if above.max() < 2**24:  # for which the resampling is quick
        above = above.astype(np.int32)
    image: Image = apply(labels.like(above), interpolation="nearest", background=0.0)
    carried = image.array.astype(np.int64)
    return np.where(carried != 0, carried + least - 1, 0), carried != 0


def warn_of_labels(array: np.ndarray, name: str, interpolation: str) -> None:
    """Warn where voxels are to be blended that look like labels: whole numbers, inside mostly those
    of their neighbours along x. A mask of 0 and 1 may be blended.
    """
    if interpolation not in INTENSITIES or not array.size:
        return
    plane = array[:: max(1, len(array) // 16)]
    least, here, beside = plane.min(), plane[..., :-1], plane[..., 1:]
    inside = (here != least) & (beside != least)
    if (
        inside.any() and plane.max() > least + 1 and np.array_equal(plane, np.rint(plane))
        and (here == beside)[inside].mean() > _MOST_ALIKE
    ):  # fmt: skip
        errors._warn(
            f"{name}: its voxels look like the numbers of labels, and {interpolation} interpolation"
            " makes other numbers of them; take nearest or label"
        )


def checked_dtype(dtype: Any) -> np.dtype | None:
    if dtype is None:
        return None
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "buif":
        raise errors.InvalidArgumentError(
            f"dtype is {dtype!r}; give a type of real numbers, such as int16 or float32"
        )
    return kind


def as_type(array: np.ndarray, dtype: np.dtype, instead: float = 0.0) -> np.ndarray:
    """Return an array in a type: integers rounded, clamped, `instead` of NaN and infinity."""
    if dtype.kind not in "biu" or array.dtype.kind in "biu" and array.dtype == dtype:
        return array.astype(dtype, copy=False)
    if array.dtype.kind == "f":
        array = np.rint(np.where(np.isfinite(array), array, instead))
    if dtype.kind == "b":
        return array >= 0.5
    range_ = np.iinfo(dtype)
    # a float that is rounded up to the limit would wrap
    low, high = array <= range_.min, array >= range_.max
    integers = np.where(low | high, 0, array).astype(dtype)
    integers[low], integers[high] = range_.min, range_.max
    return integers


def beyond(integers: np.ndarray, most: int) -> bool:
    """Whether an integer is larger than `most`, or smaller than its negative."""
    return integers.size > 0 and max(int(integers.max()), -int(integers.min())) > most


def beyond_float32(array: np.ndarray) -> bool:
    """Whether float32, in which the engine counts, does not hold every value."""
    if array.dtype.kind in "iu":
        return beyond(array, MAX_EXACT)
    return (
        array.dtype.kind == "f"
        and array.dtype.itemsize > 4
        and not np.array_equal(array, array.astype(np.float32), equal_nan=True)
    )


def check_fits(background: float, dtype: np.dtype) -> None:
    if dtype.kind not in "biu":
        return
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not (least <= background <= most and background == int(background)):
        raise errors.InvalidArgumentError(
            f"background: {background:g} is no value of the voxels' type, {dtype}"
        )


def minimum(array: np.ndarray) -> float:
    """Return the smallest finite voxel: air, in a CT."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    return float(finite.min()) if finite.size else 0.0
