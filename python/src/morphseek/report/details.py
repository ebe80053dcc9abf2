"""The tables of a page, below the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..scoring import LandmarkErrors
from ..verdict import explanation, notes
from .facts import Facts
from .markup import Markup, join, tag


def details(facts: Facts) -> Markup:
    metrics = facts.result.metrics
    parts: list[Any] = []
    if remarks := notes(metrics):
        parts.append(_section("Please note", tag("ul", [tag("li", remark) for remark in remarks])))
    if lines := explanation(metrics):
        parts.append(_section("What was chosen and why", _pairs(lines)))
    if facts.truth:
        parts.append(_truth(facts.truth))
    if facts.points is not None:
        parts.append(_landmark_table(facts.points))
    if facts.scores:
        parts.append(_label_table(facts))
    parts.append(_section("Measurements", _pairs(_measurements(facts))))
    parts.append(_times(metrics["seconds"]))
    return tag("div", *parts, class_="details")


def _section(heading: str, *content: Any, caption: str = "") -> Markup:
    said = tag("p", caption, class_="dim") if caption else None
    return join(tag("section", tag("h2", heading), said, *content), "\n")


def _pairs(lines: Sequence[tuple[str, str]]) -> Markup:
    rows = (tag("tr", tag("th", what, scope="row"), tag("td", said)) for what, said in lines)
    return tag("table", *rows)


def _table(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    """Return a table; the first column is text, cells that are no markup are numbers."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in heading)))
    body = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(c if isinstance(c, Markup) else tag("td", c, class_="n") for c in row[1:]),
        )
        for row in rows
    )
    return tag("table", head, tag("tbody", *body), class_="grid")


def _truth(truth: dict[str, Any]) -> Markup:
    def cell(row: dict[str, Any], when: str) -> Markup:
        d, start = row[when], row["initial"]
        worse = when == "after" and d["mean_mm"] > 1.05 * start["mean_mm"]
        spread = tag("small", f" ({d['median_mm']:.1f}; {d['p95_mm']:.1f})")
        sign = (
            tag("span", "\u25b2 ", title="worse than by the initial transform") if worse else None
        )
        return tag("td", sign, f"{d['mean_mm']:.1f}", spread, class_="n worse" if worse else "n")

    rows = [
        [row["name"], row["points"], *(cell(row, when) for when in ("before", "initial", "after"))]
        for row in [dict(truth, name="all"), *truth["organs"]]
    ]
    return _section(
        "Error to the truth",
        _table(("", "points", "before", "after the initial transform", "after all"), rows),
        caption=(
            "Distance in mm between where the transform carries a point of the fixed image and"
            f" where the point truly lies in the moving one, at {truth['points']} points in organs"
            " that both images show. Mean, with median and 95th percentile; marked \u25b2 where it"
            " is more than 5 % above that of the initial transform."
        ),
    )


def _landmark_table(points: LandmarkErrors) -> Markup:
    order = np.argsort(-points.after_mm, kind="stable")
    steered = points.steered or [False] * len(points.names)
    rows = [
        [
            points.names[i],
            f"{points.before_mm[i]:.1f} mm",
            f"{points.after_mm[i]:.1f} mm",
            "steered" if steered[i] else "only measures",
        ]
        for i in order
    ]
    rows += [[p["name"], "", "", f"{p['image']} image alone"] for p in points.alone]
    caption = "Distance of the moving landmark from where the fixed one is carried; worst first."
    if any(steered):
        caption += " What steered is no measure of the rest."
    return _section(
        "Landmarks",
        _table(("landmark", "error before", "error after", "part"), rows),
        caption=caption,
    )


def _label_table(facts: Facts) -> Markup:
    def meter(value: float) -> Markup:
        return tag(
            "td", tag("meter", min=0, max=1, value=f"{value:.3f}"), f" {value:.3f}", class_="n"
        )

    def distance(value: float | None) -> str:
        return "\u2013" if value is None else f"{value:.1f} mm"

    rows = [
        [
            facts.name(s.label),
            meter(s.dice_before),
            meter(s.dice_after),
            distance(s.hd95_before),
            distance(s.hd95_after),
            f"{s.volume_error_percent:+.0f} %",
        ]
        for s in sorted(facts.scores, key=lambda s: s.dice_after)
    ]
    heading = ("label", "Dice before", "Dice after", "HD95 before", "HD95 after", "volume")
    return _section(
        "Labels",
        _table(heading, rows),
        caption=(
            "Overlap (Dice, 1 is perfect) and distance (HD95, the 95th percentile between the"
            " surfaces) of the fixed and the moving labels; by how much the transform mistakes the"
            " volume. Worst first."
        ),
    )


def _measurements(facts: Facts) -> list[tuple[str, str]]:
    m = facts.result.metrics
    align = m["align"]
    given = (("Fixed image", facts.fixed), ("Moving image", facts.moving))
    tilt = facts.scene.axes.tilt()
    steps = ", ".join(f"{s['reward']:.4f}" for s in m["steps"] or []) + " (reward)"
    return [
        *((what, repr(image)[6:-1]) for what, image in given if image is not None),
        (
            "Orientation",
            f"oblique {tilt:.0f}\u00b0: planes along the nearest anatomical axes"
            if tilt >= 1
            else "along the anatomical axes",
        ),
        (
            "Similarity before / initial / after",
            f"{m['similarity_before']:.4f} / {m['similarity_align']:.4f} /"
            f" {m['similarity_after']:.4f}",
        ),
        (
            "Initial transform",
            f"{align['method']}, confidence {align['confidence']:.2f}, overlap"
            f" {100 * align['overlap']:.0f} %",
        ),
        ("Modality", "same" if align["same_modality"] else "different"),
        (
            "Jacobian determinant",
            f"{m['jacobian_min']:.3f} to {m['jacobian_max']:.3f}, SDlogJ {m['sdlogj']:.4f}",
        ),
        ("Model", m["model"]),
        ("Network steps", steps if m["steps"] else "none"),
        ("Refinement", _refinement(m["refine"])),
        ("Peak memory", f"{m['peak_bytes'] / 2**20:.0f} MiB"),
    ]


def _refinement(refine: Any) -> str:
    levels = refine["levels"] or []
    if not levels:
        return "none"
    said = (f"{len(v['similarity'])} iterations at {v['spacing_mm']:.1f} mm" for v in levels)
    return f"{refine['similarity']}, " + ", ".join(said)


def _times(seconds: dict[str, float]) -> Markup:
    total = seconds["total"]
    rows = [
        [
            name,
            tag("td", tag("meter", min=0, max=f"{max(total, 1e-9):.3f}", value=f"{s:.3f}")),
            f"{s:.2f} s",
        ]
        for name, s in seconds.items()
        if name != "total"
    ]
    rows.append(["total", tag("td"), f"{total:.2f} s"])
    return _section("Time", _table(("stage", "", "seconds"), rows))
