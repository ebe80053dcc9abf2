"""What the pages of several registrations share: their head, and lines over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .markup import Markup, join, tag

_WIDTH, _HEIGHT = 560, 150
_LEFT, _RIGHT, _BASE = 44, 8, 22
_STYLES = ("a", "b", "c")


def head(title: str, cells: Sequence[tuple[str, str, str]], command: str) -> Markup:
    """Return the head of a page: its title, numbers (what, value, more), and what repeats it."""
    tiles = (
        tag("div", tag("dt", name), tag("dd", tag("b", value), " ", tag("small", more)))
        for name, value, more in cells
    )
    return join(
        tag("header", tag("h1", title), class_="verdict unknown"),
        tag("dl", *tiles, class_="tiles"),
        tag("p", tag("code", command), class_="bar") if command else None,
    )


def plot(
    title: str,
    times: Sequence[float],
    lines: Sequence[tuple[str, Sequence[float | None]]],
    unit: str,
) -> Markup:
    """Return lines over time, or over what is counted: ``unit`` is s, or what one of them is
    called, as frame. Each has a point, which says its value.
    """
    what = "frame" if unit == "s" else unit
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
        said = f"{time:.4g} {unit}" if unit == "s" else f"{unit} {time:.4g}"
        shapes.append(tag("text", said, x=x(time), y=_HEIGHT - 4, text_anchor=anchor))
    for (name, values), style in zip(lines, _STYLES):
        shapes.append(tag("path", d=_way([x(t) for t in times], values, y), class_=style))
        for k, (time, value) in enumerate(zip(times, values)):
            if value is not None:
                tip = tag("title", f"{what} {k}: {name} {value:.3g}")
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
