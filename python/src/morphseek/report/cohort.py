"""The index of many pairs: a table, worst first, histograms, and the way to each pair's page."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from .. import _files
from .._plain import onto
from .._regular import head
from ..verdict import GRADES, UNKNOWN, counts
from .markup import Markup, join, tag
from .shell import SIGNS, asset, shell

_ICON = re.compile(r'<link rel="icon" href="(data:image/png;base64,[A-Za-z0-9+/=]+)">')
_HEAD_BYTES = 40_000  # of a page, in which its icon is
_BINS = 20


@dataclasses.dataclass
class CohortRow:
    """One pair of an index; what is None is not known.

    Examples
    --------
    >>> morphseek.report.CohortRow("sub-01", verdict="good", dice_after=0.8).failed
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
    said: str = ""
    """The verdict's reasons, or why there is no result."""
    page: str = ""
    """The pair's page, from the index's folder; empty where there is none."""
    failed: bool = False
    """Nothing was registered."""
    unlike: tuple[str, ...] = ()
    """In what it is unlike the others."""


def write_index(
    path: str | os.PathLike[str],
    rows: Iterable[CohortRow],
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
    ...     write_index(Path(folder) / "index.html", [CohortRow("a", verdict="good", error_mm=0.4)])
    ...     "<h1>Registrations" in (Path(folder) / "index.html").read_text()
    True
    """
    listed = sorted(rows, key=_badness)
    where = Path(path).parent if pages is None else Path(pages)
    body = [
        _head(listed, title, command, version),
        _histograms(listed),
        _search(listed),
        _table(listed, where),
        tag(
            "footer",
            "For research use. MorphSeek is not a medical device. The verdicts come from the images"
            f" alone; each pair's page says what they cannot know. MorphSeek {version}.",
        ),
    ]
    css = asset("page.css") + asset("cohort.css")
    _files.write_text(path, shell(title, "data:,", css, asset("cohort.js"), *body))


def _badness(row: CohortRow) -> tuple[int, bool, float, float]:
    """Return what puts the pairs to be looked at first."""
    grades = ["", *reversed(GRADES), UNKNOWN]
    grade = 0 if row.failed else grades.index(row.verdict) if row.verdict in grades else len(grades)
    return grade, not row.unlike, -_known(row.error_mm, 0.0), _known(row.dice_after, 2.0)


def _given(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _known(value: float | None, otherwise: float) -> float:
    return value if value is not None and math.isfinite(value) else otherwise


def _head(rows: Sequence[CohortRow], title: str, command: str, version: str) -> Markup:
    found = counts(row.verdict for row in rows if row.verdict)
    lost = sum(row.failed for row in rows)
    cells = [
        tag(
            "div",
            tag(
                "dt",
                tag("span", SIGNS.get(grade, "?"), class_="sign", aria_hidden="true"),
                " ",
                grade,
            ),
            tag(
                "dd", tag("b", count), " ", tag("small", f"{100 * count / max(1, len(rows)):.0f} %")
            ),
            class_=grade,
        )
        for grade, count in found.items()
    ]
    if lost:
        cells.append(tag("div", tag("dt", "not registered"), tag("dd", tag("b", lost))))
    if unlike := sum(bool(row.unlike) for row in rows):
        shown = tag("dd", tag("b", unlike), " ", tag("small", "unlike the others"))
        cells.append(tag("div", tag("dt", "Outliers"), shown))
    means: tuple[tuple[str, str, Callable[[CohortRow], float | None], str], ...] = (
        ("Estimated error", "{:.1f} mm", lambda r: r.error_mm, "mean"),
        ("Dice before", "{:.3f}", lambda r: r.dice_before, "mean"),
        ("Dice", "{:.3f}", lambda r: r.dice_after, "mean"),
        ("Error at points", "{:.1f} mm", lambda r: r.tre_mm, "mean"),
        ("Time a pair", "{:.1f} s", lambda r: r.seconds, "mean"),
    )
    for what, form, value, said in means:
        values = [v for row in rows if _given(v := value(row))]
        if values:
            mean = form.format(sum(v for v in values if v is not None) / len(values))
            cells.append(
                tag("div", tag("dt", what), tag("dd", tag("b", mean), " ", tag("small", said)))
            )
    return join(
        tag(
            "header",
            tag("h1", title),
            tag("span", f"{len(rows)} pairs, those to look at first on top", class_="dim"),
            class_="index",
        ),
        tag("dl", *cells, class_="tiles"),
        tag("p", tag("code", command), class_="command index") if command else None,
        "\n",
    )


def _histograms(rows: Sequence[CohortRow]) -> Markup:
    found = [
        _histogram("Estimated error, mm", [r.error_mm for r in rows]),
        _histogram("Dice", [r.dice_after for r in rows], 0.0, 1.0),
        _histogram("Error at landmarks or known points, mm", [r.tre_mm for r in rows]),
    ]
    return tag("div", *(h for h in found if h), class_="histograms")


def _histogram(
    title: str, given: Sequence[float | None], low: float = 0.0, high: float | None = None
) -> Markup | None:
    """Return bars of how many pairs have which value; the last bar holds all beyond."""
    values = sorted(v for v in given if v is not None and math.isfinite(v))
    if not values:
        return None
    beyond = high is None and len(values) > 20
    top = (
        high if high is not None else max(values[int(0.98 * (len(values) - 1))] * 1.05, low + 1e-3)
    )
    bars = [0] * _BINS
    for value in values:
        bars[min(_BINS - 1, max(0, int((value - low) / (top - low) * _BINS)))] += 1
    most = max(bars)
    width, height, step = 260, 90, 13
    shapes = []
    for i, count in enumerate(bars):
        tall = round(height * count / most) if count else 0
        tall = max(2, tall) if count else 0
        ends = [low + (top - low) * (i + e) / _BINS for e in (0, 1)]
        to = "and more" if beyond and i == _BINS - 1 else f"to {ends[1]:.2g}"
        tip = tag("title", f"{ends[0]:.2g} {to}: {count} pairs")
        shapes.append(
            tag("rect", x=i * step, y=height - tall, width=step - 1, height=tall)
            + tag("g", tip, tag("rect", x=i * step, y=0, width=step, height=height, class_="tip"))
        )
    axis = tag("line", x1=0, y1=height, x2=width, y2=height)
    labels = [
        tag("text", f"{value:.2g}", x=x, y=height + 14, text_anchor=anchor)
        for value, x, anchor in (
            (low, 0, "start"),
            ((low + top) / 2, width / 2, "middle"),
            (top, width, "end"),
        )
    ]
    said = f"{title}: {len(values)} pairs, median {values[len(values) // 2]:.2g}"
    picture = tag(
        "svg",
        *(Markup(s) for s in shapes),
        axis,
        *labels,
        viewBox=f"0 0 {width} {height + 18}",
        role="img",
        aria_label=said,
    )
    return tag("figure", picture, tag("figcaption", said))


def _search(rows: Sequence[CohortRow]) -> Markup:
    grades = [g for g in (*reversed(GRADES), UNKNOWN) if any(r.verdict == g for r in rows)]
    options = [tag("option", "all verdicts", value="")]
    options += [tag("option", grade, value=grade) for grade in grades]
    if any(row.unlike for row in rows):
        options.append(tag("option", "outliers", value="outlier"))
    return tag(
        "div",
        tag("label", "find ", tag("input", type="search", id="find")),
        tag("select", *options, id="grade", aria_label="verdict"),
        tag("span", "", id="shown", role="status", aria_live="polite"),
        class_="bar",
        id="search",
        hidden=True,
    )


_COLUMNS: tuple[tuple[str, str, Callable[[CohortRow], float | None], str], ...] = (
    ("error mm", "estimated mean error", lambda r: r.error_mm, "{:.1f}"),
    ("Dice before", "mean over the labels", lambda r: r.dice_before, "{:.3f}"),
    ("Dice", "mean over the labels", lambda r: r.dice_after, "{:.3f}"),
    ("points mm", "mean error at landmarks or known points", lambda r: r.tre_mm, "{:.1f}"),
    ("folds %", "voxels where the map folds", lambda r: r.njd_percent, "{:.3f}"),
    ("time s", "", lambda r: r.seconds, "{:.1f}"),
)


def _table(rows: Sequence[CohortRow], where: Path) -> Markup:
    columns = [c for c in _COLUMNS if any(_given(c[2](row)) for row in rows)]
    pictured = any(row.page for row in rows)
    heads = [("pair", "", "text"), ("verdict", "worst first", "number")]
    heads += [(name, tip, "number") for name, tip, _, _ in columns] + [("said", "", "text")]
    heading = tag(
        "tr",
        tag("th", scope="col") if pictured else None,
        *(
            tag(
                "th",
                tag("button", name, type="button", title=tip or None),
                scope="col",
                data_kind=kind,
            )
            for name, tip, kind in heads
        ),
    )
    body = [
        _row(row, place, columns, where if pictured else None) for place, row in enumerate(rows)
    ]
    return tag("table", tag("thead", heading), tag("tbody", *body), class_="cohort", id="pairs")


def _row(row: CohortRow, place: int, columns: Sequence[Any], where: Path | None) -> Markup:
    link = quote(row.page)
    name = tag("a", row.id, href=link) if row.page else row.id
    pair = None
    if row.fixed and row.moving:
        pair = tag("small", onto(PurePath(row.moving), PurePath(row.fixed)))
    grade = row.verdict or ("not registered" if row.failed else UNKNOWN)
    cells = []
    for _, _, value, form in columns:
        v = value(row)
        known = v is not None and math.isfinite(v)
        cells.append(
            tag(
                "td",
                form.format(v) if known else "\u2013",
                class_="n",
                data_value=v if known else None,
            )
        )
    shown = None
    if where is not None:
        picture = _thumbnail(where, row.page)
        inside = tag("a", picture, href=link, tabindex="-1") if picture else None
        shown = tag("td", inside, class_="thumb")
    return join(
        tag(
            "tr",
            shown,
            tag("td", name, tag("br"), pair) if pair else tag("td", name),
            tag(
                "td",
                tag("span", SIGNS.get(grade, "?"), class_="sign", aria_hidden="true"),
                f" {grade}",
                class_=f"mark {grade if grade in SIGNS else UNKNOWN}",
                data_value=place,
            ),
            *cells,
            tag("td", _said(row), class_="reason"),
            data_grade=grade,
            data_outlier="" if row.unlike else None,
        ),
        "\n",
    )


def _said(row: CohortRow) -> Markup | str:
    if not row.unlike:
        return row.said
    unlike = join(tag("b", "outlier: "), "; ".join(row.unlike))
    return join(row.said, tag("br"), unlike) if row.said else unlike


def _thumbnail(where: Path, page: str) -> Markup | None:
    """Return the picture in the head of a pair's page."""
    if not page:
        return None
    found = _ICON.search(head(where / page, _HEAD_BYTES).decode("utf-8", "replace"))
    return tag("img", src=found[1], alt="", loading="lazy", decoding="async") if found else None
