"""The signed-rank test against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from morphseek.scoring import signed_rank, signed_rank_p


@pytest.mark.parametrize("count", [1, 2, 5, 12, 13, 14, 40, 50, 51, 200])
@pytest.mark.parametrize("kind", ["distinct", "ties", "zeros"])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_scipys(count: int, kind: str, seed: int):
    rng = np.random.default_rng([count, seed])
    difference = rng.normal(0.3, 1, count)
    if kind == "ties":
        difference = np.round(difference * 2 + 0.25) / 2 + 0.25
    if kind == "zeros":
        difference[::3] = 0
        if not difference.any():
            return
    expected = scipy.stats.wilcoxon(difference).pvalue
    assert signed_rank_p(difference) == pytest.approx(expected, rel=1e-9)


def test_nothing_to_compare():
    assert signed_rank([]) is None
    assert signed_rank_p(np.zeros(4)) == signed_rank_p(np.array([])) == 1.0
    found = signed_rank([0.1, -0.2, 0.0])
    assert found is not None and (found["pairs"], found["better"], found["worse"]) == (3, 1, 1)
