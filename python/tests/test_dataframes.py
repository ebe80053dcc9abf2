"""The rows of results as data frames: what their files hold, and pandas reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import morphseek
from morphseek import cohort
from morphseek.phantom import PhantomPair

pandas = pytest.importorskip("pandas", reason="needs pandas")


def test_a_cohort(files: dict[str, Path], tmp_path: Path):
    pairs = [{"id": f"s{k}", "fixed": files["fixed"], "moving": files["moving"]} for k in (1, 2)]
    fast: dict[str, Any] = {"model": "none", "initial": "com", "search": False, "refine": 0}
    study = morphseek.register_pairs(pairs, tmp_path, **fast)
    frame = study.to_dataframe()
    read = pandas.read_csv(tmp_path / "summary.csv")
    assert list(frame.columns) == list(read.columns)
    assert frame["id"].tolist() == ["s1", "s2"] and frame["similarity"].notna().all()
    pandas.testing.assert_series_equal(frame["error_mm"], read["error_mm"])
    assert repr(study) == f"Cohort(2 pairs: 2 done; 2 {study.pairs[0].verdict})"


def test_an_evaluation(pair: PhantomPair):
    scores = [morphseek.scoring.LabelScore(k, 0.5, 0.5 + k / 10, 5.0, 1.0, 0.0) for k in (1, 2)]
    one = cohort.PairScore("a", "b", dice_after=0.65, labels=scores)
    study = cohort.Evaluation([one, cohort.PairScore("c", "d", error="lost")], {1: "liver"}, {})
    frame = study.to_dataframe()
    assert frame["label"].tolist()[:2] == [1, 2] and frame["name"].tolist()[0] == "liver"
    assert len(frame) == 3 and frame["error"].tolist()[2] == "lost"
    assert repr(study) == "Evaluation(2 pairs, 1 scored, Dice 0.650)"
