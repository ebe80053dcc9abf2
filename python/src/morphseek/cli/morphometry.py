"""morphseek morphometry"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ._command import command
from .options import PATH, json_option, labels_csv_option, option, out_folder, quiet_option
from .output import Reply, aligned, note, reply

_COLUMNS = {
    "change_percent": "+.1f",
    "change_sd": ".1f",
    "true_change_percent": "+.1f",
    "error_percent": "+.1f",
    "correlation": ".3f",
}


@command(
    "morphometry",
    click.argument("results", type=PATH, metavar="RESULTS"),
    out_folder(help="Folder for the maps, volumes.csv and morphometry.json."),
    option(
        "--pairs", type=PATH, help="The list that was registered: its label maps are taken."
    ),
    option("--fixed-labels", type=PATH, help="Label map of the fixed image."),
    labels_csv_option,
    option(
        "--fwhm", type=click.FloatRange(0), default=8.0, metavar="MM",
        help="Full width at half maximum of the Gaussian on the maps; 0 leaves them as they are.",
    ),
    option(
        "--without-affine", "affine", flag_value=False, default=True, show_default=False,
        help="Leave the linear part of each transform out: changes are relative to the whole's.",
    ),
    quiet_option,
    json_option,
)  # fmt: skip
def morphometry(results: Path, out: Path, labels_csv: Path | None, **how: Any) -> Reply:
    """Measure the change of volume over a population that was registered to one image.

    RESULTS is the folder of `morphseek pairs`, or a CSV with the columns transform and, optionally,
    id and labels (of the moving image). Writes the smoothed logarithm of each Jacobian determinant,
    their mean and SD, and a table of the volumes by label: all of them or, on an error, none.
    """
    from .. import studies
    from ..studies.label_table import read_label_names

    names = read_label_names(labels_csv) if labels_csv else None
    study = studies.morphometry(results, out, names=names, **how)
    facts = study.to_dict()
    alerts = []
    worst = max(study.folded, key=lambda name: study.folded[name])
    if study.folded[worst]:
        share = f"{study.folded[worst]:.2g} % of the voxels, in {worst}"
        alerts = [note(f"where a map folds it has no logarithm and does not count: up to {share}")]
    heading = ["label", "name", "change %", "SD", "true %", "error", "correlation"]
    table = [heading, *map(_cells, facts["labels"])] if facts["labels"] else []
    rows = [("subjects", str(len(study.ids))), ("results", str(out / "morphometry.json"))]
    return reply(facts, [*aligned(table), *aligned(rows)], alerts=alerts)


def _cells(row: dict[str, Any]) -> list[str]:
    numbers = ("" if row[key] is None else f"{row[key]:{form}}" for key, form in _COLUMNS.items())
    return [str(row["label"]), row["name"], *numbers]
