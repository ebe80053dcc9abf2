"""series.html and template.html: pages of charts, pictures and a table, the worst first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..verdict import rank
from .charts import Values, chart
from .render import render

_CHARTS = {
    "gradient": "Gradient, a mm",
    "entropy": "Entropy, bits",
    "shape_mm": "Change of the template's shape, mm",
    "change_percent": "Change of the template's intensities, % of their range",
}


def series(facts: Mapping[str, Any], times: Sequence[float], command: str = "") -> str:
    """Return the page of a :class:`morphseek.studies.Series`' facts, and the frames' times."""
    frames = facts["rows"]

    def column(name: str, scale: float = 1.0) -> Values:
        return [None if (v := row.get(name)) is None else scale * v for row in frames]

    disagreements = [v for v in column("disagreement_mean") if v]
    drawn = [
        ("Shift, mm", [(axis, column(f"trans_{axis}")) for axis in "xyz"]),
        ("Turn, degrees", [(axis, column(f"rot_{axis}", 180 / math.pi)) for axis in "xyz"]),
        ("Framewise displacement, mm (Power 2012)", [("", column("framewise_displacement"))]),
        (
            "Displacement of the tissue since the reference, mm",
            [
                ("mean", column("displacement_mean")),
                ("95 %", column("displacement_p95")),
                ("most", column("displacement_max")),
            ],
        ),
    ]
    if disagreements:
        title = "Disagreement of the direct and the concatenated transform, mm"
        lines = [("mean", column("disagreement_mean")), ("most", column("disagreement_max"))]
        drawn.append((title, lines))
    unit = "frame" if facts["seconds_between_frames"] is None else "s"
    charts = [chart(title, [*times], lines, unit) for title, lines in drawn]
    return render(
        "series.html.j2", **facts, charts=charts, disagreements=disagreements, command=command
    )


def template(
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
