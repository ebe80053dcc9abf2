"""Find the pairs of a study that are unlike the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

#: Robust scores beyond it are outliers: B. Iglewicz and D. C. Hoaglin, 1993.
FAR = 3.5
#: A study that is smaller has no outliers: its median and spread say little.
LEAST = 8
_TO_SD = 0.6745  # of a normal distribution, its median absolute deviation
_MEAN_TO_SD = 0.7979  # its mean absolute deviation
_NOTHING = 1e-6  # least spread, as a share of the median, of values that are all equal


def outliers(
    values: Mapping[str, Sequence[float | None]], *, ratios: Sequence[str] = ()
) -> list[list[str]]:
    """Return for every pair in what it is unlike the others, in words: none for a pair that is like
    them, and for a study below 8. None is a value that is not known; of ``ratios`` the logarithm
    counts.

    Examples
    --------
    >>> outliers({"scale": [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.02, 1.8]}, ratios=["scale"])[-1]
    ['scale 1.8, the study has 1.01 (robust z +7.8)']
    """
    count = max((len(v) for v in values.values()), default=0)
    words: list[list[str]] = [[] for _ in range(count)]
    for name, column in values.items():
        every = np.array([math.nan if v is None else v for v in column], float)
        places = np.flatnonzero(np.isfinite(every) & ((every > 0) | (name not in ratios)))
        if len(places) < LEAST:
            continue
        plain = every[places]
        scores = robust_scores(np.log(plain) if name in ratios else plain)
        middle = float(np.median(plain))
        for k in np.flatnonzero(np.abs(scores) > FAR):
            words[places[k]].append(
                f"{name} {plain[k]:.3g}, the study has {middle:.3g} (robust z {scores[k]:+.1f})"
            )
    return words


def robust_scores(values: np.ndarray) -> np.ndarray:
    """Return how many median (else mean) absolute deviations, as SD, values are off the median."""
    off = values - np.median(values)
    spread = float(np.median(np.abs(off))) / _TO_SD
    scale = _NOTHING * max(1e-12, float(np.abs(values).max()))
    if spread <= scale:
        spread = float(np.abs(off).mean()) / _MEAN_TO_SD
    return off / spread if spread > scale else np.zeros_like(off)
