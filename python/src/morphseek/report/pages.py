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

    def several(what: str, names: Mapping[str, str]) -> list[tuple[str, Values]]:
        return [(title, column(f"{what}_{name}")) for name, title in names.items()]

    disagreements = [v for v in column("disagreement_mean") if v]
    most = {"mean": "mean", "p95": "95 %", "max": "most"}
    drawn = [
        ("Shift, mm", [(axis, column(f"trans_{axis}")) for axis in "xyz"]),
        ("Turn, degrees", [(axis, column(f"rot_{axis}", 180 / math.pi)) for axis in "xyz"]),
        ("Framewise displacement, mm (Power 2012)", [("", column("framewise_displacement"))]),
        ("Displacement of the tissue since the reference, mm", several("displacement", most)),
    ]
    if disagreements:
        title = "Disagreement of the direct and the concatenated transform, mm"
        del most["p95"]
        drawn.append((title, several("disagreement", most)))
    unit = "frame" if facts["seconds_between_frames"] is None else "s"
    charts = [chart(title, [*times], lines, unit) for title, lines in drawn]
    return render(
        "series.html.j2", **facts, charts=charts, disagreements=disagreements, command=command
    )


def template(
    facts: Mapping[str, Any], iterations: Sequence[bytes], images: Sequence[bytes],
    command: str = "",
) -> str:  # fmt: skip
    """Return the page of what :meth:`morphseek.studies.Template.to_dict` gives, with the pictures
    of its iterations and of its images, PNG; empty where there is none.
    """
    rounds, rows = facts["iterations"], facts["rows"]
    numbers = [float(row["number"]) for row in rounds]
    charts = [
        chart(title, numbers, [("", [row[name] for row in rounds])], "iteration")
        for name, title in _CHARTS.items()
    ]
    rounds = [{**row, "picture": p} for row, p in zip(rounds, iterations)]
    rows = [{**row, "picture": p} for row, p in zip(rows, images)]
    rows.sort(key=lambda row: rank(row["verdict"]))
    shown = {"iterations": rounds, "rows": rows, "charts": charts, "command": command}
    return render("template.html.j2", **{**facts, **shown})
