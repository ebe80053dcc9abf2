"""Comparing two runs over the same pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def signed_rank(differences: Sequence[float]) -> dict[str, Any] | None:
    """Return the two-sided Wilcoxon signed-rank test of paired differences; None without any."""
    from scipy.stats import wilcoxon

    if not len(differences):
        return None
    difference = np.array(differences)
    p_value = float(wilcoxon(difference).pvalue) if np.any(difference) else 1.0
    return {
        "pairs": len(difference),
        "mean_difference": float(difference.mean()),
        "p_value": p_value,
        "better": int((difference > 0).sum()),
        "worse": int((difference < 0).sum()),
    }
