"""series.html: the motion of a time series, drawn over time, and its frames, worst first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .charts import Values, chart
from .render import render


def page(facts: Mapping[str, Any], times: Sequence[float], command: str = "") -> str:
    """Return the page of what :meth:`morphseek.studies.Series.to_dict` gives, and the frames'
    times.
    """
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
