"""The index of many pairs: a table, worst first, histograms, and the way to each pair's page."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from .. import _files
from .._plain import onto
from .._regular import head
from ..verdict import GRADES, UNKNOWN, counts, rank
from .charts import histogram
from .render import render

_ICON = re.compile(r'<link rel="icon" href="(data:image/png;base64,[A-Za-z0-9+/=]+)">')
_HEAD_BYTES = 40_000  # of a page, in which its icon is
_MOST_ROWS = 2000  # of the table: a browser shows more slowly, and nobody reads them


@dataclasses.dataclass(slots=True)
class IndexRow:
    """One row of the index. None: unknown.

    Examples
    --------
    >>> morphseek.report.IndexRow("sub-01", verdict="good", dice_after=0.8).failed
    False
    """

    id: str
    fixed: str = ""
    moving: str = ""
    verdict: str = ""
    error_mm: float | None = None
    dice_before: float | None = None
    dice_after: float | None = None
    tre_mm: float | None = None
    """Mean distance of landmarks, or of points whose place is known."""
    njd_percent: float | None = None
    seconds: float | None = None
    remark: str = ""
    """The verdict's reasons, or why there is no result."""
    page: str = ""
    """The pair's page, from the index's folder; empty where there is none."""
    failed: bool = False
    """Nothing was registered."""
    unlike: tuple[str, ...] = ()
    """In what it is unlike the others."""


#: Columns of the table: field, heading, what a tip says, how a number is written; and what its mean
#: at the head of the page is called, and its unit.
_COLUMNS = (
    ("error_mm", "error mm", "estimated mean error", "{:.1f}", "Estimated error", " mm"),
    ("dice_before", "Dice before", "mean over the labels", "{:.3f}", "Dice before", ""),
    ("dice_after", "Dice", "mean over the labels", "{:.3f}", "Dice", ""),
    ("tre_mm", "points mm", "mean error at landmarks or known points", "{:.1f}",
     "Error at points", " mm"),
    ("njd_percent", "folds %", "voxels where the map folds", "{:.3f}", "", ""),
    ("seconds", "time s", "", "{:.1f}", "Time a pair", " s"),
)  # fmt: skip


def write_index(
    path: str | os.PathLike[str],
    rows: Iterable[IndexRow],
    *,
    title: str = "Registrations",
    command: str = "",
    version: str = "",
    pages: str | os.PathLike[str] | None = None,
) -> None:
    """Write the index of pairs as one HTML file; a pair's thumbnail is read from its page, in the
    folder ``pages`` where the index is not written to its own place.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_index(Path(folder) / "index.html", [IndexRow("a", verdict="good", error_mm=0.4)])
    ...     "<h1>Registrations" in (Path(folder) / "index.html").read_text("utf-8")
    True
    """
    facts = summary(rows, _MOST_ROWS)
    shown, known = facts["rows"], facts["known"]
    columns = [column for column in _COLUMNS if known[column[0]]]
    where = Path(path).parent if pages is None else Path(pages)
    for row in shown:
        numbers = [(row[field], form) for field, _, _, form, *_ in columns]
        row["cells"] = [(v, "\u2013" if v is None else form.format(v)) for v, form in numbers]
        if row["page"] and not (where / row["page"]).is_file():
            row["page"] = ""
        row["picture"] = _thumbnail(where, row["page"])
        row["pair"] = ""
        if row["fixed"] and row["moving"]:
            row["pair"] = onto(PurePath(row["moving"]), PurePath(row["fixed"]))
    histograms = [
        histogram("Estimated error, mm", known["error_mm"]),
        histogram("Dice", known["dice_after"], 1.0),
        histogram("Error at landmarks or known points, mm", known["tre_mm"]),
    ]
    means = {
        name: form.format(sum(known[field]) / len(known[field])) + unit
        for field, _, _, form, name, unit in columns
        if name
    }
    there = {row["verdict"] for row in shown}
    text = render(
        "index.html.j2", **facts, title=title, means=means, command=command, version=version,
        histograms=[each for each in histograms if each],
        grades=[grade for grade in (*reversed(GRADES), UNKNOWN) if grade in there],
        columns=[{"name": name, "tip": tip} for _, name, tip, *_ in columns],
        has_pictures=any(row["page"] for row in shown),
    )  # fmt: skip
    _files.write_text(path, text)


def summary(rows: Iterable[IndexRow], most: int) -> dict[str, Any]:
    """Return the rows to look at first as plain data, counts, and each column's known values."""
    listed = list(rows)
    known: dict[str, list[float]] = {}
    for name, *_ in _COLUMNS:
        known[name] = [v for row in listed if (v := _finite(getattr(row, name))) is not None]
    shown = []
    for row in sorted(listed, key=_badness)[:most]:
        plain = dataclasses.asdict(row) | {name: _finite(getattr(row, name)) for name in known}
        plain["grade"] = row.verdict or ("not registered" if row.failed else UNKNOWN)
        shown.append(plain)
    return {
        "rows": shown,
        "count": len(listed),
        "lost": sum(row.failed for row in listed),
        "outliers": sum(bool(row.unlike) for row in listed),
        "verdicts": counts(row.verdict for row in listed if row.verdict),
        "known": known,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _badness(row: IndexRow) -> tuple[int, bool, float, float]:
    """Return what puts the pairs to be looked at first."""
    grade = -1 if row.failed or not row.verdict else rank(row.verdict)
    dice = _finite(row.dice_after)
    error = _finite(row.error_mm) or 0.0
    return grade, not row.unlike, -error, 2.0 if dice is None else dice


def _thumbnail(where: Path, page: str) -> str:
    """Return the address of the picture in the head of a pair's page; empty where there is none."""
    if not page:
        return ""
    match = _ICON.search(head(where / page, _HEAD_BYTES).decode("utf-8", "replace"))
    return match[1] if match else ""
