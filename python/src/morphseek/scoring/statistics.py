"""Comparing two runs over the same pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import errors

_EXACT, _EXACT_WITH_TIES = 50, 13  # pairs; SciPy's choice of when to enumerate, too


def signed_rank(differences: Sequence[float] | NDArray[np.float64]) -> dict[str, Any] | None:
    """Return the two-sided Wilcoxon signed-rank test of paired differences; None without any.

    Raises
    ------
    InvalidArgumentError
        One is not finite.

    Examples
    --------
    >>> scoring.signed_rank([1.0, 2.0, 3.0, 4.0, -5.0])
    {'pairs': 5, 'mean_difference': 1.0, 'p_value': 0.625, 'better': 4, 'worse': 1}
    """
    difference = np.asarray(differences, dtype=np.float64)
    if not difference.size:
        return None
    if not np.isfinite(difference).all():
        raise errors.InvalidArgumentError(
            f"differences: number {int(np.argmin(np.isfinite(difference)))} is not finite; leave"
            " out the pairs of which one value is not known"
        )
    return {
        "pairs": len(difference),
        "mean_difference": float(difference.mean()),
        "p_value": signed_rank_p(difference),
        "better": int((difference > 0).sum()),
        "worse": int((difference < 0).sum()),
    }


def signed_rank_p(difference: NDArray[np.float64]) -> float:
    """Return the p-value of the test; 1 where all differences are 0 or there are none.

    Differences of 0 do not count, equal ones share the mean of their ranks. Of up to 50 pairs, or
    13 where there are such, it is exact; of more, by the normal approximation.

    >>> signed_rank_p(np.array([1.0, 2.0, 3.0, 4.0, -5.0]))
    0.625
    """
    given, d = len(difference), difference[difference != 0]
    if not d.size:
        return 1.0
    size = np.abs(d)
    _, first, count = np.unique(size, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[first]
    above = float(ranks[d > 0].sum())
    special = d.size < given or bool((count > 1).any())
    if given <= (_EXACT_WITH_TIES if special else _EXACT):
        return _exact_p(ranks, above)
    n = len(d)
    variance = (n * (n + 1) * (2 * n + 1) - float((count**3 - count).sum()) / 2) / 24
    return math.erfc(abs(above - n * (n + 1) / 4) / math.sqrt(2 * variance))


def _exact_p(ranks: NDArray[np.float64], above: float) -> float:
    """Return the p-value of a sum of the ranks with a positive sign, of all choices of signs."""
    twice = [round(2 * float(rank)) for rank in ranks]  # mean ranks may be halves
    ways = [1] + [0] * sum(twice)  # whole numbers: exact, however many
    for rank in twice:
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    seen = round(2 * above)
    tail = min(sum(ways[: seen + 1]), sum(ways[seen:]))
    return float(min(1.0, 2 * tail / 2 ** len(twice)))
