"""morphseek build-template"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..verdict import tally
from ._command import command
from .options import PATH, engine_options, option, out_folder, output_options, running_options
from .output import NOT_GOOD, Reply, aligned, reply


@command(
    "build-template",
    click.argument("images", type=PATH, metavar="IMAGES...", nargs=-1, required=True),
    out_folder(),
    option(
        "--start", default="mean", metavar="mean|N|FILE",
        help="The first template: the mean of the images, image N, counted from 0, or an"
        " existing one. The latter two give the template their grid.",
    ),
    option(
        "--iterations", type=click.IntRange(0), default=4,
        help="Deformable rounds, after a rigid and an affine one; 0 gives the affine mean.",
    ),
    option(
        "--average", type=click.Choice(["mean", "median"]), default="mean",
        help="How the intensities are averaged; median holds all images in memory.",
    ),
    option(
        "--sharpen", type=click.FloatRange(0, 1), default=0.0,
        help="Share of a Laplacian sharpening that is added to each template.",
    ),
    option(
        "--spacing", type=click.FloatRange(0, min_open=True), metavar="MM",
        help="Spacing of the template's voxels; by default the median of the images'.",
    ),
    option("--warped", is_flag=True, help="Also write each image in the template's space."),
    running_options,
    engine_options(smoothness="low"),
    output_options("an image was left out"),
)  # fmt: skip
def build_template(
    images: tuple[Path, ...], out: Path, start: str, strict: bool, options: dict[str, Any],
    **how: Any,
) -> Reply:  # fmt: skip
    """Make the template of a population: its mean image, in the middle of its shapes.

    IMAGES are two or more files, a folder of them (or with the folders images and labels), or one
    table (CSV, TSV, JSON) with the columns image and, optionally, labels, mask and id.

    Writes template.nii.gz, labels.nii.gz (the label that most images give a voxel), the transform
    of each image (transform_ID.h5), template.html (pictures and plots by iteration, a row for each
    image) and template.json: all of them or, on an error, none. After an interruption the same
    command goes on. An image whose registration fails is left out of that mean.

    Example: morphseek build-template scans/*.nii.gz --out template
    """
    from ..studies import build_template as build

    first = int(start) if start.isdecimal() else start
    given = images[0] if len(images) == 1 else list(images)
    template = build(given, out, start=first, **how, **options)
    facts = template.to_dict()
    lost = [row for row in template.rows if not row.is_used]
    alerts = [(f"left out: {row.image}: {' '.join(row.reasons)}", "yellow") for row in lost]
    return reply(facts, aligned(_rows(facts, out)), NOT_GOOD if strict and lost else 0, alerts)


def _rows(facts: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    first, last = facts["iterations"][0], facts["iterations"][-1]
    rows = [
        ("images", f"{len(facts['rows'])}: {tally(facts['verdicts'])}"),
        ("gradient", f"{first['gradient']:.3f} -> {last['gradient']:.3f} a mm"),
        ("entropy", f"{first['entropy']:.2f} -> {last['entropy']:.2f} bits"),
        ("mean of the transforms", f"{last['mean_voxels']:.3f} voxels from the identity"),
    ]
    if facts["dice"] is not None:
        overlap = f"{facts['dice']:.3f} with the vote, {facts['dice_without_own']:.3f} with others'"
        rows.append(("labels, mean Dice", overlap))
    return [*rows, ("report", str(out / "template.html"))]
