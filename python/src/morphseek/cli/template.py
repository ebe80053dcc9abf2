"""morphseek template"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ._app import app, reported
from .options import (
    PATH,
    changed,
    command_line,
    engine_options,
    json_option,
    out_folder,
    quiet_option,
    scheduler_option,
    workers_option,
)
from .output import NOT_GOOD, print_rows, say


@app.command("template")
@click.argument("images", type=PATH, metavar="IMAGES...", nargs=-1, required=True)
@out_folder(required=True, help="Folder for the results; made if need be.")
@click.option(
    "--labels", type=PATH, multiple=True, metavar="FOLDER|FILE",
    help="Label maps: the folder that has them under the images' names, or once for each image, in"
    " their order.",
)  # fmt: skip
@click.option(
    "--start", default="mean", metavar="mean|N|FILE",
    help="What comes first: the mean of the images, image N, counted from 0, or a template that"
    " there is. The latter two give the template their grid.",
)  # fmt: skip
@click.option(
    "--iterations", type=click.IntRange(0), default=4,
    help="Deformable rounds, after a rigid and an affine one; 0 gives the affine mean.",
)  # fmt: skip
@click.option(
    "--average",
    type=click.Choice(["mean", "median"]),
    default="mean",
    help="How the intensities are averaged; median holds all images in memory.",
)
@click.option(
    "--sharpen", type=click.FloatRange(0, 1), default=0.0,
    help="Share of a Laplacian sharpening that is added to each template.",
)  # fmt: skip
@click.option(
    "--spacing", type=click.FloatRange(0, min_open=True), metavar="MM",
    help="Spacing of the template's voxels; by default the median of the images'.",
)  # fmt: skip
@click.option("--warped", is_flag=True, help="Also write each image in the template's space.")
@workers_option
@scheduler_option
@click.option(
    "--no-resume", is_flag=True,
    help="Begin anew, and replace a template of other images in the folder.",
)  # fmt: skip
@click.option(
    "--strict", is_flag=True,
    help=f"Exit with code {NOT_GOOD} where an image was left out; all results are written all the"
    " same.",
)  # fmt: skip
@quiet_option
@json_option
@engine_options()
def template_command(
    images: tuple[Path, ...],
    out: Path,
    labels: tuple[Path, ...],
    start: str,
    iterations: int,
    average: str,
    sharpen: float,
    spacing: float | None,
    warped: bool,
    workers: int,
    scheduler: str | None,
    no_resume: bool,
    strict: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make the template of a population: its mean image, in the middle of its shapes.

    IMAGES are two or more files, or one CSV with the columns image and, optionally, labels and id.

    Writes template.nii.gz, labels.nii.gz (the label that most images give a voxel), the transform
    of each image (transform_ID.h5), template.html (pictures and plots by iteration, a row for each
    image) and template.json: all of them or, on an error, none. After an interruption the same
    command goes on. An image whose registration fails is left out of that mean.

    Example: morphseek template scans/*.nii.gz --out template
    """
    with reported(as_json, "finished registrations are kept, and the same command goes on"):
        from .. import atlas

        folder = len(labels) == 1 and labels[0].is_dir()
        found = atlas.template(
            images[0] if len(images) == 1 else list(images),
            out,
            labels=labels[0] if folder else list(labels) or None,
            start=int(start) if start.isdecimal() else start,
            iterations=iterations,
            average=average,
            sharpen=sharpen,
            spacing=spacing,
            warped=warped,
            workers=workers,
            scheduler=scheduler,
            resume=not no_resume,
            command=command_line(),
            progress=not (quiet or as_json),
            **changed(options),
        )
        said = found.to_dict()
        lost = [subject for subject in found.subjects if not subject.is_used]
        if as_json:
            print(json.dumps(said))
        else:
            for subject in lost:
                reasons = " ".join(subject.reasons)
                say(f"left out: {subject.name}: {reasons}", "yellow", to_errors=True)
            if not quiet:
                print_rows(_rows(said, out))
        if strict and lost:
            raise click.exceptions.Exit(NOT_GOOD)


def _rows(said: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    from ..verdict import tally

    first, last = said["iterations"][0], said["iterations"][-1]
    rows = [
        ("images", f"{len(said['images'])}: {tally(said['verdicts'])}"),
        ("gradient", f"{first['gradient']:.3f} -> {last['gradient']:.3f} a mm"),
        ("entropy", f"{first['entropy']:.2f} -> {last['entropy']:.2f} bits"),
        ("mean of the transforms", f"{last['mean_voxels']:.3f} voxels from the identity"),
    ]
    if said["dice"] is not None:
        overlap = f"{said['dice']:.3f} with the vote, {said['dice_without_own']:.3f} with others'"
        rows.append(("labels, mean Dice", overlap))
    return [*rows, ("report", str(out / "template.html"))]
