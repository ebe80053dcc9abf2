"""Label maps whose numbers a resampler does not hold travel as ranks."""

from __future__ import annotations

import numpy as np

from .. import errors

MAX_EXACT = 2**24  # largest integer that float32, the engine's voxel, holds exactly


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
