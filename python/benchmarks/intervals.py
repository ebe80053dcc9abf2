"""The interval of a mean, by the percentile bootstrap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000


def interval(values: NDArray[np.float64], draws: int = DRAWS) -> tuple[float, float]:
    """Return the 95 % interval of the mean.

    Parameters
    ----------
    values : (n,)
        One a pair, or one a kind where a kind counts as one.
    draws : int
        Samples of n values, drawn with replacement.
    """
    means = np.random.default_rng(0).choice(values, (draws, len(values))).mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
