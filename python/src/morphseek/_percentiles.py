"""Percentiles and distinct values; numpy's own import numpy.ma, which takes .05 to .07 CPU s."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def percentiles(values: np.ndarray, percents: Sequence[float]) -> list[float]:
    """Return percentiles of values, with straight lines between them.

    >>> percentiles(np.array([4.0, 1, 2, 3]), [0, 50, 90])
    [1.0, 2.5, 3.7]
    """
    flat = values.ravel()
    places = [p / 100 * (flat.size - 1) for p in percents]
    below = [int(place) for place in places]
    above = [min(i + 1, flat.size - 1) for i in below]
    ordered = np.partition(flat, sorted({*below, *above}))
    return [
        float(ordered[i]) + (place - i) * (float(ordered[j]) - float(ordered[i]))
        for place, i, j in zip(places, below, above)
    ]


def spread(lengths: np.ndarray) -> dict[str, float]:
    """Return the mean, the median and the 95th percentile of lengths, mm."""
    median, most = percentiles(lengths, [50, 95])
    return {"mean_mm": float(lengths.mean()), "median_mm": median, "p95_mm": most}


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the values that there are, ascending; of several NaN all.

    >>> distinct(np.array([[3, 1], [1, 7]], np.uint8))
    array([1, 3, 7])
    """
    if values.dtype.kind in "ui" and values.size:
        least, most = int(values.min()), int(values.max())
        if 0 <= least and most <= 1 << 16:
            seen = np.zeros(most + 1, bool)
            seen[values.ravel()] = True
            return np.flatnonzero(seen)
    ordered = np.sort(values, axis=None)
    first = np.ones(ordered.size, bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
