"""The index of many pairs: its order, its numbers, and that names stay text."""

import statistics
import time
from pathlib import Path

import pytest
from html_tree import parsed

import morphseek
from helpers import QUICK, blob
from morphseek import studies
from morphseek.report import IndexRow, write_index, write_report


def written(path: Path, rows: list[IndexRow], **more: str) -> str:
    write_index(path / "index.html", rows, **more)
    return (path / "index.html").read_text(encoding="utf-8")


def test_those_to_look_at_come_first(tmp_path: Path):
    rows = [
        IndexRow("fine", verdict="good", error_mm=0.4, dice_after=0.9),
        IndexRow("old", verdict="unknown"),
        IndexRow("wrong", verdict="failed", error_mm=9.0, dice_after=0.1),
        IndexRow("doubt", verdict="check", error_mm=2.0, dice_after=0.7, remark="It folds."),
        IndexRow("worse", verdict="check", error_mm=3.0, dice_after=0.8),
        IndexRow("lost", remark="fixed: a.nii cannot be read", failed=True),
        IndexRow("nan", verdict="good", error_mm=float("nan"), dice_after=float("nan")),
    ]
    page = written(tmp_path, rows, title="My <study>", command="morphseek pairs a&b.csv")
    order = ["lost", "wrong", "worse", "doubt", "fine", "nan", "old"]
    tree = parsed(page)
    heads, *body = tree.one("table", id="pairs").rows()
    assert [row[0] for row in body] == order
    # a number that no pair has gets no column and no histogram
    assert heads == ["pair", "verdict", "error mm", "Dice", "remarks"]
    said = {row[0]: row[1:] for row in body}
    assert said["doubt"] == ["! check", "2.0", "0.700", "It folds."]
    assert said["nan"] == ["\u2713 good", "\u2013", "\u2013", ""]
    assert said["lost"][0] == "? not registered"
    captions = [figure.one("figcaption").text for figure in tree.all("figure")]
    assert captions == ["Estimated error, mm: 4 pairs, median 2.5", "Dice: 4 pairs, median 0.75"]
    assert sum(int(t.text.split(": ")[1].split()[0]) for t in tree.all("title")[1:]) == 8
    assert tree.one("h1").text == "My <study>" and "a&b.csv" in tree.one("code").text
    assert "7 pairs" in tree.one("header").text
    tiles = {t.one("dt").text: t.one("dd").text for t in tree.one("dl", "tiles").all("div")}
    assert tiles["! check"] == "2 29 %" and tiles["? unknown"] == "1 14 %"
    assert tiles["not registered"] == "1" and tiles["Estimated error"] == "3.6 mm mean"


@pytest.mark.parametrize("count, worst", [(2, "8 to 8.4: 1 pairs"), (60, "8 and more: 30 pairs")])
def test_no_bar_holds_more_than_it_says(count: int, worst: str, tmp_path: Path):
    """The last one holds all beyond 98 %, of many pairs alone."""
    errors = [1.0] * (count // 2) + [8.0] * (count // 2 - 1) + [8.0 if count == 2 else 99.0]
    rows = [IndexRow(str(k), verdict="good", error_mm=error) for k, error in enumerate(errors)]
    (figure,) = parsed(written(tmp_path, rows)).all("figure")
    assert f"median {statistics.median(errors):.2g}" in figure.one("figcaption").text
    assert figure.all("title")[-1].text == worst


def test_an_index_of_nothing(tmp_path: Path):
    assert "0 pairs" in parsed(written(tmp_path, [])).one("header").text


def test_pages_are_opened_by_their_pictures(tmp_path: Path):
    name = "a <b>#1 'x'"
    (tmp_path / name).mkdir()
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    write_report(tmp_path / name / "report.html", result, blob(), blob(shift=0.1), size="small")
    rows = [IndexRow(name, page=f"{name}/report.html"), IndexRow("none", page="gone/report.html")]
    page = written(tmp_path, [*rows, IndexRow("other")])
    table = parsed(page).one("table", id="pairs")
    (picture,) = table.all("img")
    assert picture["src"].startswith("data:image/png;base64,")
    links = {link["href"] for link in table.all("a") if link.text == name}
    assert links == {"a%20%3Cb%3E%231%20%27x%27/report.html"}
    assert len(table.all("td", "thumb")) == 3  # a cell in every row, or columns would shift


def test_a_thousand_pairs_are_quick_and_small(tmp_path: Path):
    grades = ("good", "check", "failed")
    rows = [
        IndexRow(f"sub-{i}", "a", "b", grades[i % 3], i / 99, 0.1, 0.8, 1.0, 0, 9.0, "Why." * 20)
        for i in range(1000)
    ]
    started = time.process_time()
    page = written(tmp_path, rows)
    assert time.process_time() - started < 3 and len(page) < 1e6


def test_studies_show_themselves():
    """The first ten, worst first, as text."""
    listed = [studies.PairRow(f"s{i}<b>", "a", "b", "done", "good", i / 10) for i in range(12)]
    listed.append(studies.PairRow("lost", "a", "b", "failed", message="no such file"))
    shown = parsed(studies.Study(listed)._repr_html_())
    heads, *rows = shown.one("table").rows()
    assert heads == ["pair", "verdict", "error", "Dice before", "Dice", "remarks"]
    assert [row[0] for row in rows] == ["lost", *(f"s{i}<b>" for i in range(11, 2, -1))]
    assert rows[0][1:] == ["? not registered", "\u2013", "\u2013", "\u2013", "no such file"]
    assert "13 pairs, 12 good, 0 check, 0 failed" in shown.text and "and 3 more" in shown.text
    row = studies.PairRow("p", "a", "b", "done", "good", 1.0, dice_after=0.8)
    shown = parsed(studies.Study([row])._repr_html_())
    assert shown.one("table").rows()[1] == [
        "p", "\u2713 good", "1.0 mm", "\u2013", "0.800", "done"
    ]  # fmt: skip
