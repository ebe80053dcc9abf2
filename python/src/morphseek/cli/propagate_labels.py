"""morphseek propagate-labels"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import errors
from ._command import command
from .options import (
    PATH,
    bids_options,
    labels_csv_option,
    option,
    out_folder,
    read_items,
    study_options,
)
from .output import Reply, aligned, failures, reply


@command(
    "propagate-labels",
    click.argument("targets", type=PATH, metavar="TARGETS...", nargs=-1),
    option(
        "--atlas", "atlas", type=(PATH, PATH), multiple=True, metavar="IMAGE LABELS",
        help="A labelled image; several times for several. Also an atlas by name:"
        " templateflow:NAME templateflow:NAME:dseg, brainglobe:NAME brainglobe:NAME:annotation.",
    ),
    option(
        "--atlases", type=PATH, metavar="ATLASES",
        help="A CSV with the columns image and labels, or a folder with the folders images and"
        " labels.",
    ),
    out_folder(help="Folder for one folder a target, volumes.csv and labels.json."),
    option(
        "--fusion", type=click.Choice(["majority", "joint", "staple"]), default="majority",
        help="How the atlases' labels become one: one vote each; votes weighted by how well the"
        " images match around each voxel (joint label fusion; for images of one contrast); or"
        " STAPLE.",
    ),
    labels_csv_option,
    bids_options,
    study_options,
)  # fmt: skip
def propagate_labels(
    targets: tuple[Path, ...], atlas: tuple[tuple[Path, Path], ...], atlases: Path | None,
    out: Path, labels_csv: Path | None, where: dict[str, Any], options: dict[str, Any],
    **how: Any,
) -> Reply:  # fmt: skip
    """Label images by labelled ones (atlases): segmentation without training.

    Every atlas is registered onto every target, its labels are carried over, and where the atlases
    disagree they vote. TARGETS are files, a folder of images, or a CSV with the column image; a
    target with labels of its own (a column labels) is scored by them.

    \b
    morphseek propagate-labels scan.nii.gz --atlas a.nii.gz a_labels.nii.gz \\
      --atlas b.nii.gz b_labels.nii.gz --out DIR
    morphseek propagate-labels --bids FOLDER --atlases atlases.csv --out DIR

    Writes labels.nii.gz and agreement.nii.gz (the share of the votes: where it is low, look) for
    each target, and volumes.csv: the volume of every label in mm3. An atlas whose registration has
    the verdict failed does not vote, and that is said. What is finished is not done again.
    """
    from .. import studies
    from ..studies.label_table import read_label_names

    if bool(atlas) == bool(atlases):
        raise errors.InvalidArgumentError(
            "give the atlases: --atlas IMAGE LABELS for each, or --atlases with a table or a"
            " folder, and not both"
        )
    study = studies.propagate_labels(
        read_items(targets, **where), atlases if atlases else list(atlas), out,
        names=read_label_names(labels_csv) if labels_csv else None, **how, **options,
    )  # fmt: skip
    facts = study.to_dict()
    alerts = failures(study.rows)
    for row in study.rows:
        alerts += [(f"{row.id}: does not vote: {atlas}", "yellow") for atlas in row.left_out]
        alerts += [(f"{row.id}: {warning}", "yellow") for warning in row.warnings]
    lines = [str(row) for row in study.rows if not row.error]
    lines += aligned(_rows(facts["summary"], out))
    return reply(facts, lines, study.exit_code, alerts)


def _rows(summary: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    rows = [("targets", f"{summary['targets']}, {summary['failed']} failed")]
    if summary["dice"] is not None:
        rows.append(
            ("mean Dice", f"{summary['dice']:.4f}; one atlas alone {summary['dice_of_one']:.4f}")
        )
    registrations = str(out / "registrations" / "index.html")
    return [*rows, ("registrations", registrations), ("volumes", str(out / "volumes.csv"))]
