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
    command_line,
    common_options,
    found_items,
    labels_csv_option,
    no_resume_option,
    option,
    out_folder,
    scheduler_option,
    take_images,
    workers_option,
)
from .output import Reply, print_rows, say, say_failures, say_notes


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
    out_folder(required=True, help="Folder for one folder a target, volumes.csv and labels.json."),
    option(
        "--fusion", type=click.Choice(["majority", "joint", "staple"]), default="majority",
        help="How the atlases' labels become one: one vote each; votes weighted by how well the"
        " images match around each voxel (joint label fusion; for images of one contrast); or"
        " STAPLE.",
    ),
    labels_csv_option,
    bids_options,
    workers_option,
    scheduler_option,
    no_resume_option,
    common_options("small"),
    cancelled="finished registrations are kept, and the same command goes on",
)  # fmt: skip
def propagate_labels(
    targets: tuple[Path, ...], atlas: tuple[tuple[Path, Path], ...], atlases: Path | None,
    out: Path, labels_csv: Path | None, no_resume: bool, options: dict[str, Any], **given: Any,
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
    from ..studies.label_table import read_labels_csv

    if bool(atlas) == bool(atlases):
        raise errors.InvalidArgumentError(
            "give the atlases: --atlas IMAGE LABELS for each, or --atlases with a table or a"
            " folder, and not both"
        )
    study = studies.propagate_labels(
        found_items(targets, **take_images(given)),
        atlases if atlases else list(atlas),
        out,
        names=read_labels_csv(labels_csv)[1] if labels_csv else None,
        command=command_line(),
        resume=not no_resume,
        **given,
        **options,
    )
    return Reply(study.to_dict(), lambda quiet: _print(study, out, quiet), study.exit_code)


def _print(study: Any, out: Path, quiet: bool) -> None:
    say_notes(study.notes)
    say_failures(study.rows)
    for row in study.rows:
        for atlas in row.left_out:
            say(f"{row.id}: does not vote: {atlas}", "yellow", to_errors=True)
        for warning in row.warnings:
            say(f"{row.id}: {warning}", "yellow", to_errors=True)
        if not (quiet or row.error):
            say(str(row))
    if quiet:
        return
    summary = study.to_dict()["summary"]
    rows = [("targets", f"{summary['targets']}, {summary['failed']} failed")]
    if summary["dice"] is not None:
        rows.append(
            ("mean Dice", f"{summary['dice']:.4f}; one atlas alone {summary['dice_of_one']:.4f}")
        )
    rows += [
        ("registrations", str(out / "registrations" / "index.html")),
        ("volumes", str(out / "volumes.csv")),
    ]
    print_rows(rows)
