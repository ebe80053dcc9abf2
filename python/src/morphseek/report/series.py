"""series.html: the motion of a time series, drawn over time, and its frames, worst first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._engine.core import version
from ..verdict import tally
from .markup import Markup, join, tag
from .page import SIGNS, asset, shell

if TYPE_CHECKING:
    from ..motion import Series

_WIDTH, _HEIGHT = 560, 150
_LEFT, _RIGHT, _BASE = 44, 8, 22
_STYLES = ("a", "b", "c")


def page(series: Series, command: str = "") -> str:
    """Return the page as HTML that loads nothing."""
    said = series.to_dict()
    title = f"Time series: {len(series.frames)} frames"
    return shell(
        title,
        "data:,",
        asset("page.css") + asset("series.css"),
        "",
        _head(title, said, command),
        "\n",
        _plots(series),
        "\n",
        _table(series),
        tag(
            "footer",
            "For research use. MorphSeek is not a medical device. Axes: x to the patient's right,"
            " y to the front, z up; parameters say where the body went since the reference."
            f" MorphSeek {version()}.",
        ),
    )


def _head(title: str, said: dict[str, Any], command: str) -> Markup:
    apart = [row["disagreement_mean"] for row in said["frames"] if row.get("disagreement_mean")]
    cells = [
        ("frames", str(len(said["frames"])), f"{said['motion']}, onto {said['reference']}"),
        ("verdicts", str(said["verdicts"]["good"]), f"good of {tally(said['verdicts'])}"),
        (
            "framewise displacement",
            f"{said['framewise_displacement_mean']:.2f} mm",
            f"mean; up to {said['framewise_displacement_max']:.2f} mm",
        ),
        ("tissue moved", f"{said['displacement_max']:.1f} mm", "at most, since the reference"),
    ]
    if apart:
        mean = sum(apart) / len(apart)
        cells.append(("two ways disagree", f"{mean:.2f} mm", f"mean; up to {max(apart):.2f} mm"))
    tiles = (
        tag("div", tag("dt", name), tag("dd", tag("b", value), " ", tag("small", more)))
        for name, value, more in cells
    )
    return join(
        tag("header", tag("h1", title), class_="verdict unknown"),
        tag("dl", *tiles, class_="tiles"),
        tag("p", tag("code", command), class_="bar") if command else None,
    )


def _plots(series: Series) -> Markup:
    unit = "frame" if series.step is None else "s"
    frames, times = series.frames, series.times

    def motion(k: int, scale: float = 1.0) -> list[float | None]:
        return [scale * frame.motion[k] for frame in frames]

    found: list[tuple[str, list[tuple[str, list[float | None]]]]] = [
        ("Shift, mm", [(n, motion(k)) for k, n in enumerate("xyz")]),
        ("Turn, degrees", [(n, motion(3 + k, 180 / math.pi)) for k, n in enumerate("xyz")]),
        ("Framewise displacement, mm (Power 2012)", [("", series.framewise_displacement)]),
        (
            "Displacement of the tissue since the reference, mm",
            [
                ("mean", [f.displacement.mean for f in frames]),
                ("95 %", [f.displacement.p95 for f in frames]),
                ("most", [f.displacement.largest for f in frames]),
            ],
        ),
    ]
    if any(frame.disagreement for frame in frames):
        found.append(
            (
                "Disagreement of the direct and the concatenated transform, mm",
                [
                    ("mean", [f.disagreement.mean if f.disagreement else None for f in frames]),
                    ("most", [f.disagreement.largest if f.disagreement else None for f in frames]),
                ],
            )
        )
    return tag("main", *(_plot(name, times, lines, unit) for name, lines in found), class_="plots")


def _plot(
    title: str,
    times: Sequence[float],
    lines: Sequence[tuple[str, Sequence[float | None]]],
    unit: str,
) -> Markup:
    """Return lines over time, with a point for each frame that says its value."""
    known = [v for _, values in lines for v in values if v is not None]
    low, high = min(0.0, *known), max(0.0, *known)
    step = _step(max(high - low, 1e-3))
    low, high = step * math.floor(low / step), max(step * math.ceil(high / step), step)
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BASE - 8
    span = max(times[-1] - times[0], 1e-9)

    def x(time: float) -> float:
        return round(_LEFT + wide * (time - times[0]) / span, 1)

    def y(value: float) -> float:
        return round(8 + tall * (high - value) / (high - low), 1)

    shapes: list[Markup] = []
    for k in range(round((high - low) / step) + 1):
        tick = low + k * step
        shapes.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y(tick), y2=y(tick)))
        shapes.append(
            tag("text", f"{tick + 0.0:.4g}", x=_LEFT - 5, y=y(tick) + 4, text_anchor="end")
        )
    ends = ((times[0], "start"), (times[0] + span / 2, "middle"), (times[-1], "end"))
    for time, anchor in ends:
        said = f"{time:.4g} {unit}" if unit != "frame" else f"{unit} {time:.4g}"
        shapes.append(tag("text", said, x=x(time), y=_HEIGHT - 4, text_anchor=anchor))
    for (name, values), style in zip(lines, _STYLES):
        shapes.append(tag("path", d=_way([x(t) for t in times], values, y), class_=style))
        for k, (time, value) in enumerate(zip(times, values)):
            if value is not None:
                tip = tag("title", f"frame {k}: {name} {value:.3g}")
                shapes.append(tag("circle", tip, cx=x(time), cy=y(value), r=2.2, class_=style))
    legend = [
        tag("span", f"{name} ", tag("svg", tag("path", d="M0 4H26", class_=style), width=28,
            height=8, style="display:inline;width:28px"), " ")
        for (name, _), style in zip(lines, _STYLES)
        if name
    ]  # fmt: skip
    picture = tag("svg", *shapes, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=title)
    return tag("figure", tag("figcaption", title, ":  " if legend else "", *legend), picture)


def _way(places: Sequence[float], values: Sequence[float | None], y: Any) -> str:
    parts, pen = [], "M"
    for place, value in zip(places, values):
        if value is None:
            pen = "M"
            continue
        parts.append(f"{pen}{place} {y(value)}")
        pen = "L"
    return "".join(parts)


def _step(span: float) -> float:
    """Return the distance of grid lines, so that there are three to six.

    >>> _step(4.2), _step(0.7)
    (1.0, 0.2)
    """
    rough = span / 5
    ten = 10.0 ** math.floor(math.log10(rough))
    return next(ten * m for m in (1, 2, 5, 10) if ten * m >= rough * 0.999)


def _table(series: Series) -> Markup:
    rows, by = series.rows(), any(frame.disagreement for frame in series.frames)
    names = ["frame", "verdict", "moved mm", "most mm", "FD mm"] + ["disagree mm"] * by + ["said"]
    body = []
    for frame in series.worst:
        moved, grade = rows[frame.index]["framewise_displacement"], frame.grade
        numbers = [frame.displacement.mean, frame.displacement.largest, moved]
        if by:
            numbers.append(frame.disagreement.mean if frame.disagreement else None)
        said = {"reference": "the reference", "concatenated": "from the concatenated transform"}
        reasons = [said[frame.start]] if frame.start in said else []
        reasons += frame.verdict.reasons if frame.verdict else []
        body.append(
            tag(
                "tr",
                tag("td", frame.name),
                tag("td", f"{SIGNS.get(grade, '?')} {grade}", class_=f"mark {grade}"),
                *(tag("td", "\u2013" if v is None else f"{v:.2f}", class_="n") for v in numbers),
                tag("td", " ".join(reasons), class_="reason"),
            )
        )
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    return tag("table", tag("thead", head), tag("tbody", *body), class_="frames")
