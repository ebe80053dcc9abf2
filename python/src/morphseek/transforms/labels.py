"""What a resampler is given: label maps whose numbers it does not hold travel as ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import errors

MAX_EXACT = 2**24  # largest integer that float32, the engine's voxel, holds exactly


class Carrier(NamedTuple):
    """What stands for an array while it is resampled."""

    array: np.ndarray
    background: float
    back: Callable[[np.ndarray], np.ndarray]
    """From what the resampler gives to the array's own values."""


def carrier(
    array: np.ndarray,
    interpolation: str,
    background: float | None,
    too_large: Callable[[np.ndarray], bool],
) -> Carrier:
    """Prepare an array for a resampler: the background by default is its minimum, or the label 0
    where labels are asked for by "nearest"; these keep their type, and travel as ranks where they
    are too large for the resampler.
    """
    if interpolation not in ("linear", "nearest"):
        raise errors.InvalidArgumentError(
            f"interpolation is {interpolation!r}; it must be linear or nearest"
        )
    if interpolation == "linear":
        background = minimum(array) if background is None else background
        return Carrier(array, float(background), lambda found: found)
    background = 0.0 if background is None else background
    check_fits(background, array.dtype)
    if too_large(array):
        values, ranks, place = ranked(array, background)
        if len(values) <= MAX_EXACT:  # more than that are no labels
            return Carrier(ranks, float(place), lambda found: values[found.astype(np.int64)])
    return Carrier(array, float(background), lambda found: found.astype(array.dtype))


def ranked(labels: np.ndarray, background: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the values of labels and background, sorted; the labels as places among them; and the
    background's place.
    """
    found, ranks = np.unique(np.append(labels, labels.dtype.type(background)), return_inverse=True)
    return found, ranks[:-1].reshape(labels.shape), int(ranks[-1])


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
            f"background: {background:g} is no value of the labels' type, {dtype}"
        )


def minimum(array: np.ndarray) -> float:
    """Return the smallest finite voxel: air, in a CT."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    return float(finite.min()) if finite.size else 0.0
