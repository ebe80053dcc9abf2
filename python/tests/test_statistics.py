"""Compares the signed-rank test with SciPy's, and percentiles with numpy's."""

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from helpers import invalid
from morphseek import compare
from morphseek._percentiles import distinct, percentiles
from morphseek.scoring.statistics import signed_rank, signed_rank_p
from morphseek.studies import PairRow, Study


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
    for unknown in (math.nan, math.inf):
        invalid("number 1 is not finite", signed_rank, [1.0, unknown, 2.0])


def test_whole_numbers_and_pairs_that_are_there_twice_count():
    def study(*values: float) -> Study:
        rows = [PairRow(str(k), "f", str(k // 2), njd_percent=v) for k, v in enumerate(values)]
        return Study(rows)

    found = compare(study(0, 0, 0.5), study(2.0, 3.0, 0.4), "njd_percent")
    assert (found["pairs"], found["better"], found["worse"]) == (3, 1, 2)
    assert found["mean_difference"] == pytest.approx(-4.9 / 3)
    assert compare(study(0, 0, 0), study(0, 0, 0), "njd_percent")["pairs"] == 3


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (20, 30, 11)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8])
def test_percentiles_are_numpys(shape: tuple[int, ...], kind: type):
    values = (np.random.default_rng(3).random(shape) * 200).astype(kind)
    percents = [0, 0.02, 5, 50, 95, 99.98, 100]
    np.testing.assert_allclose(
        percentiles(values, percents), np.percentile(values, percents), rtol=1e-6
    )


@pytest.mark.parametrize("kind", ["u1", "i2", "i8", "u8", "f4", "?"])
@pytest.mark.parametrize("most", [1, 300, 1 << 30])
def test_distinct_values_are_numpys(kind: str, most: int):
    values = np.random.default_rng(6).integers(-most, most, (5, 6, 7)).astype(kind)
    np.testing.assert_array_equal(distinct(values), np.unique(values))
    assert distinct(values[:0]).size == 0


def test_numpy_ma_is_not_imported():
    code = (
        "import sys, numpy as np; from morphseek._percentiles import distinct, percentiles;"
        "percentiles(np.arange(9.0), [50]); distinct(np.arange(9.0));"
        "print('numpy.ma' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
