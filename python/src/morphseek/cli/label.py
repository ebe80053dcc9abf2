"""morphseek label"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .. import errors
from ._app import app, reported
from .cohorts import bids_options, found_scans
from .options import (
    PATH,
    changed,
    command_line,
    common_options,
    out_folder,
    scheduler_option,
    workers_option,
)
from .output import print_rows, say


@app.command("label")
@click.argument("targets", type=PATH, metavar="TARGETS...", nargs=-1)
@click.option(
    "--atlas", "atlas", type=(PATH, PATH), multiple=True, metavar="IMAGE LABELS",
    help="A labelled image; several times for several. Also an atlas by name:"
    " templateflow:NAME templateflow:NAME:dseg, brainglobe:NAME brainglobe:NAME:annotation.",
)  # fmt: skip
@click.option(
    "--atlases", type=PATH, metavar="ATLASES",
    help="A CSV with the columns image and labels, or a folder with the folders images and labels.",
)  # fmt: skip
@out_folder(required=True, help="Folder for one folder a target, volumes.csv and labels.json.")
@click.option(
    "--fusion", type=click.Choice(["majority", "joint", "staple"]), default="majority",
    help="How the atlases' labels become one: one vote each; votes weighted by how well the images"
    " match around each voxel (joint label fusion; for images of one contrast); or STAPLE.",
)  # fmt: skip
@click.option(
    "--labels-csv", type=PATH,
    help="Names of the labels: columns id and name. By default those of the atlases by name.",
)  # fmt: skip
@bids_options
@workers_option
@scheduler_option
@click.option("--no-resume", is_flag=True, help="Do again what is finished.")
@common_options("small")
def label_command(
    targets: tuple[Path, ...],
    atlas: tuple[tuple[Path, Path], ...],
    atlases: Path | None,
    out: Path,
    fusion: Any,
    labels_csv: Path | None,
    bids: Path | None,
    suffix: str,
    entity: tuple[str, ...],
    label_entity: tuple[str, ...],
    no_labels: bool,
    workers: int,
    scheduler: str | None,
    no_resume: bool,
    report: Any,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Label images by labelled ones (atlases): segmentation without training.

    Every atlas is registered onto every target, its labels are carried over, and where the atlases
    disagree they vote. TARGETS are files, a folder of images, or a CSV with the column image; a
    target with labels of its own (a column labels) is scored by them.

    \b
    morphseek label scan.nii.gz --atlas a.nii.gz a_labels.nii.gz \\
      --atlas b.nii.gz b_labels.nii.gz --out DIR
    morphseek label --bids FOLDER --atlases atlases.csv --out DIR

    Writes labels.nii.gz and agreement.nii.gz (the share of the votes: where it is low, look) for
    each target, and volumes.csv: the volume of every label in mm3. An atlas whose registration has
    the verdict failed does not vote, and that is said. What is finished is not done again.
    """
    with reported(as_json, "finished registrations are kept, and the same command goes on"):
        from .. import cohort

        if bool(atlas) == bool(atlases):
            raise errors.InvalidArgumentError(
                "give the atlases: --atlas IMAGE LABELS for each, or --atlases with a table or a"
                " folder, and not both"
            )
        scans = found_scans(targets, bids, suffix, entity, label_entity, no_labels)
        study = cohort.propagate_labels(
            scans,
            atlases if atlases else list(atlas),
            out,
            fusion=fusion,
            names=cohort.read_labels_csv(labels_csv)[1] if labels_csv else None,
            workers=workers,
            scheduler=scheduler,
            report=report,
            command=command_line(),
            resume=not no_resume,
            progress=not (quiet or as_json),
            **changed(options),
        )
        if as_json:
            print(json.dumps(study.to_dict()))
        else:
            _print(study, out, quiet)
        if study.exit_code:
            raise click.exceptions.Exit(study.exit_code)


def _print(study: Any, out: Path, quiet: bool) -> None:
    for note in study.notes:
        say(f"note: {note}", "yellow", to_errors=True)
    for target in study.targets:
        for atlas in target.left_out:
            say(f"{target.id}: does not vote: {atlas}", "yellow", to_errors=True)
        if target.status == "failed":
            say(f"morphseek: {target}", "red", to_errors=True)
        elif not quiet:
            say(str(target))
            if target.message:
                say(f"{target.id}: {target.message}", "yellow", to_errors=True)
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
