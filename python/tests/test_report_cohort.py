"""The index of many pairs: its order, its numbers, and that names stay text."""

from __future__ import annotations

import re
import time
from pathlib import Path

import morphseek
from helpers import QUICK, blob
from morphseek.report import CohortRow, write_index, write_report


def written(path: Path, rows: list[CohortRow], **more: str) -> str:
    write_index(path / "index.html", rows, **more)
    return (path / "index.html").read_text(encoding="utf-8")


def test_those_to_look_at_come_first(tmp_path: Path):
    rows = [
        CohortRow("fine", verdict="good", error_mm=0.4, dice_after=0.9),
        CohortRow("old", verdict="unknown"),
        CohortRow("wrong", verdict="failed", error_mm=9.0, dice_after=0.1),
        CohortRow("doubt", verdict="check", error_mm=2.0, dice_after=0.7, said="It folds."),
        CohortRow("worse", verdict="check", error_mm=3.0, dice_after=0.8),
        CohortRow("lost", said="fixed: a.nii cannot be read", failed=True),
        CohortRow("nan", verdict="good", error_mm=float("nan"), dice_after=float("nan")),
    ]
    page = written(tmp_path, rows, title="My <study>", command="morphseek pairs a&b.csv")
    order = ["lost", "wrong", "worse", "doubt", "fine", "nan", "old"]
    assert re.findall(r"<tr data-grade=\"[^\"]*\"><td>(\w+)</td>", page) == order
    assert "<h1>My &lt;study&gt;</h1>" in page and "a&amp;b.csv" in page
    assert "It folds." in page and "7 pairs" in page and "not registered" in page
    # a number that no pair has gets no column and no histogram
    assert (
        page.count("<svg") == 2
        and "points mm" not in page
        and "nan<" not in page.split("nan</td>")[1]
    )
    assert "Dice: 4 pairs, median 0.8" in page


def test_an_index_of_nothing(tmp_path: Path):
    assert "0 pairs" in written(tmp_path, [])


def test_pages_are_opened_by_their_pictures(tmp_path: Path):
    name = "a <b>#1 'x'"
    (tmp_path / name).mkdir()
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    write_report(tmp_path / name / "report.html", result, blob(), blob(shift=0.1), size="small")
    rows = [CohortRow(name, page=f"{name}/report.html"), CohortRow("none", page="gone/report.html")]
    page = written(tmp_path, [*rows, CohortRow("other")])
    assert page.count('<img src="data:image/png;base64,') == 1 and "<b>#" not in page
    assert 'href="a%20%3Cb%3E%231%20%27x%27/report.html"' in page
    assert page.count('class="thumb"') == 3  # a cell in every row, or columns would shift


def test_a_thousand_pairs_are_quick_and_small(tmp_path: Path):
    grades = ("good", "check", "failed")
    rows = [
        CohortRow(f"sub-{i}", "a", "b", grades[i % 3], i / 99, 0.1, 0.8, 1.0, 0, 9.0, "Why." * 20)
        for i in range(1000)
    ]
    started = time.process_time()
    page = written(tmp_path, rows)
    assert time.process_time() - started < 3 and len(page) < 1e6
