"""The rows of results as data frames: what their files hold, and pandas reads."""

from pathlib import Path
from typing import Any

import pytest

import morphseek
from morphseek import studies

pandas = pytest.importorskip("pandas", reason="needs pandas")


def test_a_study(files: dict[str, Path], tmp_path: Path):
    pairs = [{"id": f"s{k}", "fixed": files["fixed"], "moving": files["moving"]} for k in (1, 2)]
    fast: dict[str, Any] = {"model": "none", "initial": "com", "search": False, "refine": 0}
    study = morphseek.register_pairs(pairs, tmp_path, **fast)
    frame = study.to_dataframe()
    read = pandas.read_csv(tmp_path / "summary.csv")
    assert list(frame.columns) == list(read.columns)
    assert frame["id"].tolist() == ["s1", "s2"] and frame["similarity"].notna().all()
    pandas.testing.assert_series_equal(frame["error_mm"], read["error_mm"])
    assert repr(study) == f"Study(2 pairs: 2 done; 2 {study.rows[0].verdict})"


def test_labels():
    labels = [{"label": k, "name": "liver" if k == 1 else "", "dice_after": k / 10} for k in (1, 2)]
    study = studies.Study(
        [
            studies.PairRow("p", "a", "b", labels=labels),
            studies.PairRow("q", "c", "d", error="lost"),
        ]
    )
    frame = pandas.DataFrame(study.label_rows())
    assert frame["label"].tolist() == [1, 2] and frame["name"].tolist()[0] == "liver"
    assert study.to_dataframe()["error"].tolist() == ["", "lost"]
    study.rows[0].labels[0]["hd95_after"] = study.rows[0].scale = float("nan")
    row = study.to_dict()["rows"][0]  # JSON has no NaN
    assert row["scale"] is None and row["labels"][0]["hd95_after"] is None
