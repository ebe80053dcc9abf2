"""The geometry of the pages' charts, which the templates draw as SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

Values = Sequence[float | None]

_WIDTH, _HEIGHT = 560, 150
_LEFT, _RIGHT, _TOP, _BASE = 44, 8, 8, 22
_STYLES = ("a", "b", "c")
_BINS = 20


def chart(
    title: str, times: Sequence[float], lines: Sequence[tuple[str, Values]], unit: str
) -> dict[str, Any]:
    """Return lines over time, or over what is counted: ``unit`` is s, or what one of them is
    called, as frame. Each value has a point, which says it.
    """
    known = [v for _, values in lines for v in values if v is not None]
    low, high = min(0.0, *known), max(0.0, *known)
    step = _step(max(high - low, 1e-3))
    low, high = step * math.floor(low / step), max(step * math.ceil(high / step), step)
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BASE - _TOP
    span = max(times[-1] - times[0], 1e-9)

    def x(time: float) -> float:
        return round(_LEFT + wide * (time - times[0]) / span, 1)

    def y(value: float) -> float:
        return round(_TOP + tall * (high - value) / (high - low), 1)

    what = "frame" if unit == "s" else unit
    drawn = []
    for (name, values), style in zip(lines, _STYLES):
        places = [None if v is None else (x(t), y(v)) for t, v in zip(times, values)]
        tips = [v is not None and f"{what} {k}: {name} {v:.3g}" for k, v in enumerate(values)]
        points = [(*place, tip) for place, tip in zip(places, tips) if place]
        drawn.append({"name": name, "style": style, "path": _path(places), "points": points})
    ticks = [low + k * step for k in range(round((high - low) / step) + 1)]
    ends = ((times[0], "start"), (times[0] + span / 2, "middle"), (times[-1], "end"))
    return {
        "title": title, "width": _WIDTH, "height": _HEIGHT, "left": _LEFT,
        "right": _WIDTH - _RIGHT, "lines": drawn,
        "ticks": [(y(tick), f"{tick + 0.0:.4g}") for tick in ticks],
        "ends": [
            (x(time), anchor, f"{time:.4g} s" if unit == "s" else f"{unit} {time:.4g}")
            for time, anchor in ends
        ],
    }  # fmt: skip


def _path(places: Sequence[tuple[float, float] | None]) -> str:
    """Return an SVG path with a gap where there is no place."""
    parts, pen = [], "M"
    for place in places:
        if place:
            parts.append(f"{pen}{place[0]} {place[1]}")
        pen = "L" if place else "M"
    return "".join(parts)


def _step(span: float) -> float:
    """Return the distance of grid lines, so that there are three to six.

    >>> _step(4.2), _step(0.7)
    (1.0, 0.2)
    """
    rough = span / 5
    ten = 10.0 ** math.floor(math.log10(rough))
    return next(ten * m for m in (1, 2, 5, 10) if ten * m >= rough * 0.999)


def histogram(title: str, numbers: Values, high: float | None = None) -> dict[str, Any] | None:
    """Return how many have which value from 0 on; of many the last bar holds all beyond 98 %."""
    values = sorted(v for v in numbers if v is not None and math.isfinite(v))
    if not values:
        return None
    last = int(0.98 * (len(values) - 1)) if len(values) > _BINS else -1
    top = max(values[last] * 1.05, 1e-3) if high is None else high
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, max(0, int(value / top * _BINS)))] += 1
    bars = [
        {"low": top * i / _BINS, "high": top * (i + 1) / _BINS, "count": count, "is_open": False}
        for i, count in enumerate(counts)
    ]
    bars[-1]["is_open"] = values[-1] > top
    return {
        "title": title, "count": len(values), "median": statistics.median(values), "low": 0.0,
        "high": top, "most": max(counts), "bars": bars,
    }  # fmt: skip
