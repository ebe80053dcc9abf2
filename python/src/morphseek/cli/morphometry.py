"""morphseek morphometry"""

from __future__ import annotations

import json
from pathlib import Path

import click

from ._app import app, reported
from .options import PATH, json_option, out_folder, quiet_option
from .output import print_rows, print_table, say


@app.command("morphometry")
@click.argument("results", type=PATH, metavar="RESULTS")
@out_folder(required=True, help="Folder for the maps, volumes.csv and morphometry.json.")
@click.option(
    "--pairs", type=PATH, help="The list that the batch was of: its label maps are taken."
)
@click.option("--fixed-labels", type=PATH, help="Label map of the fixed image.")
@click.option("--labels-csv", type=PATH, help="Names of the labels: columns id and name.")
@click.option(
    "--fwhm", type=click.FloatRange(0), default=8.0, metavar="MM",
    help="Full width at half maximum of the Gaussian on the maps; 0 leaves them as they are.",
)  # fmt: skip
@click.option(
    "--without-affine", is_flag=True,
    help="Leave the linear part of each transform out: changes are relative to the whole's.",
)  # fmt: skip
@quiet_option
@json_option
def morphometry_command(
    results: Path,
    out: Path,
    pairs: Path | None,
    fixed_labels: Path | None,
    labels_csv: Path | None,
    fwhm: float,
    without_affine: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure the change of volume over a cohort that was registered to one image.

    RESULTS is the folder of a batch, or a CSV with the columns transform and, optionally, id and
    labels (of the moving image). Writes the smoothed logarithm of each Jacobian determinant, their
    mean and SD, and a table of the volumes by label: all of them or, on an error, none.
    """
    with reported(as_json):
        from .. import cohort

        names = cohort.read_labels_csv(labels_csv)[1] if labels_csv else None
        study = cohort.morphometry(
            results,
            out,
            fixed_labels=fixed_labels,
            pairs=pairs,
            names=names,
            fwhm=fwhm,
            affine=not without_affine,
        )
        said = study.to_dict()
        if as_json:
            print(json.dumps(said))
            return
        worst = max(study.folded, key=lambda name: study.folded[name])
        if study.folded[worst]:
            say(
                f"note: where a map folds it has no logarithm and does not count: up to"
                f" {study.folded[worst]:.2g} % of the voxels, in {worst}",
                "yellow",
                to_errors=True,
            )
        if quiet:
            return
        if said["labels"]:
            rows = [
                [
                    str(row["label"]),
                    row["name"],
                    *(
                        "" if row[key] is None else f"{row[key]:{form}}"
                        for key, form in (
                            ("change_percent", "+.1f"),
                            ("change_sd", ".1f"),
                            ("true_change_percent", "+.1f"),
                            ("error_percent", "+.1f"),
                            ("correlation", ".3f"),
                        )
                    ),
                ]
                for row in said["labels"]
            ]
            print_table(["label", "name", "change %", "SD", "true %", "error", "correlation"], rows)
        print_rows([("subjects", str(len(study.ids))), ("results", str(out / "morphometry.json"))])
