"""template.html: a template and how it came about, in pictures, charts and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..verdict import rank
from .charts import chart
from .render import render

_CHARTS = {
    "gradient": "Gradient, a mm",
    "entropy": "Entropy, bits",
    "shape_mm": "Change of the template's shape, mm",
    "change_percent": "Change of the template's intensities, % of their range",
}


def page(
    facts: Mapping[str, Any],
    iterations: Sequence[bytes],
    images: Sequence[bytes],
    command: str = "",
) -> str:
    """Return the page of what :meth:`morphseek.studies.Template.to_dict` gives, with the pictures
    of its iterations and of its images, PNG; empty where there is none.
    """
    rounds, rows = facts["iterations"], facts["rows"]
    numbers = [float(row["number"]) for row in rounds]
    charts = [
        chart(title, numbers, [("", [row[name] for row in rounds])], "iteration")
        for name, title in _CHARTS.items()
    ]
    shown = {
        "iterations": [{**row, "picture": p} for row, p in zip(rounds, iterations)],
        "rows": sorted(
            ({**row, "picture": p} for row, p in zip(rows, images)),
            key=lambda row: rank(row["verdict"]),
        ),
        "charts": charts,
        "command": command,
    }
    return render("template.html.j2", **{**facts, **shown})
