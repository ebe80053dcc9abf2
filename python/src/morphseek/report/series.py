"""series.html: the motion of a time series, drawn over time, and its frames, worst first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .._engine.core import version
from ..verdict import tally
from .lines import head, plot
from .markup import Markup, tag
from .shell import SIGNS, asset, shell

if TYPE_CHECKING:
    from ..motion import Series


def page(series: Series, command: str = "") -> str:
    """Return the page as HTML that loads nothing."""
    said = series.to_dict()
    title = f"Time series: {len(series.frames)} frames"
    return shell(
        title,
        "data:,",
        asset("page.css") + asset("lines.css"),
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
    return head(title, cells, command)


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
    return tag("main", *(plot(name, times, lines, unit) for name, lines in found), class_="plots")


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
