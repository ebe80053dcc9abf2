"""morphseek register"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from .._plain import onto
from ..verdict import Verdict
from ._app import app, reported
from .options import (
    PATH,
    cache_option,
    changed,
    command_line,
    common_options,
    no_cache_option,
    out_folder,
    strict_option,
)
from .output import NOT_GOOD, is_good, print_summary

if TYPE_CHECKING:
    from ..channels import Channel


@app.command()
@click.argument("fixed", type=PATH, metavar="FIXED")
@click.argument("moving", type=PATH, metavar="MOVING")
@out_folder(required=True, help="Folder for the results; made if need be.")
@click.option(
    "--fixed-labels", type=PATH,
    help="Label map of the fixed image: with that of the moving one, Dice is measured.",
)  # fmt: skip
@click.option("--moving-labels", type=PATH, help="Label map of the moving image: it is warped too.")
@click.option("--fixed-mask", type=PATH, help="Mask of the fixed image: where not zero, it counts.")
@click.option(
    "--moving-mask", type=PATH, help="Mask of the moving image: where not zero, it counts."
)
@click.option(
    "--rigid", type=PATH,
    help="Label map of the fixed image: each label but 0 (a bone, an implant) moves as one body and"
    " keeps its shape.",
)  # fmt: skip
@click.option(
    "--channel", "channels", type=PATH, nargs=2, multiple=True, metavar="FIXED MOVING",
    help="One more image of both sides, as FLAIR beside T1, each on any grid in the space of its"
    " side: all of them drive the registration. May be given again.",
)  # fmt: skip
@click.option(
    "--label-channel", "label_channels", type=PATH, nargs=2, multiple=True, metavar="FIXED MOVING",
    help="Label maps of both sides that drive the registration: structures of the same number are"
    " brought onto each other. May be given again.",
)  # fmt: skip
@click.option(
    "--channel-weight", "channel_weights", type=float, multiple=True, metavar="NUMBER",
    help="Weight of a channel; FIXED and MOVING have 1. Once for each channel, those of images"
    " before those of labels. By default 1.",
)  # fmt: skip
@click.option(
    "--fixed-landmarks", type=PATH,
    help="Points of the fixed image: .mrk.json, .fcsv, or CSV with the columns x, y, z in LPS mm"
    " and, optionally, name. With those of the moving one, the error at them is measured. They do"
    " not change the result, unless --landmark-error lets them steer.",
)  # fmt: skip
@click.option(
    "--moving-landmarks", type=PATH,
    help="The same points of the moving image, paired by the names that both have, else in their"
    " order. A point that one image alone has is carried over to the other.",
)  # fmt: skip
@click.option(
    "--initial-transform", type=PATH,
    help="Transform, fixed to moving, to start from: of any format that `morphseek check` knows. A"
    " rigid or affine one is improved by the alignment; from one that bends the refinement goes"
    " on. FILE@inverse is the inverse.",
)  # fmt: skip
@click.option(
    "--keep-stages", is_flag=True,
    help="Also write transform_initial.h5, the rigid or affine transform before the deformation.",
)  # fmt: skip
@click.option(
    "--halfway", is_flag=True,
    help="Also write the mean of both images in the space half-way between them, halfway.nii.gz,"
    " and the transforms from there, halfway_to_fixed.h5 and halfway_to_moving.h5; best with"
    " --symmetric on.",
)  # fmt: skip
@strict_option
@click.option(
    "--explain", is_flag=True,
    help="Print how the result came about: the start that was kept, what was compared, the search,"
    " the smoothness, what the referee said, and why.",
)  # fmt: skip
@no_cache_option
@common_options("full")
def register(
    fixed: Path,
    moving: Path,
    out: Path,
    fixed_labels: Path | None,
    moving_labels: Path | None,
    fixed_mask: Path | None,
    moving_mask: Path | None,
    rigid: Path | None,
    channels: tuple[tuple[Path, Path], ...],
    label_channels: tuple[tuple[Path, Path], ...],
    channel_weights: tuple[float, ...],
    fixed_landmarks: Path | None,
    moving_landmarks: Path | None,
    initial_transform: Path | None,
    keep_stages: bool,
    halfway: bool,
    report: Any,
    strict: bool,
    explain: bool,
    no_cache: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Register MOVING onto FIXED: NIfTI, NRRD, MetaImage, ... or folders with one DICOM series.
    Either may be an atlas by name, which was fetched before: templateflow:MNI152NLin2009cAsym or
    brainglobe:allen_mouse_25um.

    Writes warped.nii.gz, transform.h5, displacement.nrrd, report.json and report.html to the output
    folder, warped_labels.nii.gz if the moving labels are given, uncertainty.nrrd if it is asked
    for, transform_initial.h5 with --keep-stages: all of them or, on an error, none. The last line
    is the verdict: good; check (look before use); or failed (do not use).
    """
    with reported(as_json):
        from ..cohort.into import register_into

        summary = register_into(
            out,
            (fixed, moving),
            (fixed_labels, moving_labels),
            landmarks=(fixed_landmarks, moving_landmarks),
            options=changed(options) | cache_option(no_cache),
            title=onto(moving, fixed),
            command=command_line(),
            report=report,
            halfway=halfway,
            progress=not (quiet or as_json),
            fixed_mask=fixed_mask,
            moving_mask=moving_mask,
            rigid=rigid,
            channels=_channels(channels, label_channels, channel_weights),
            initial_transform=initial_transform,
            keep_stages=keep_stages,
        )
        print_summary(summary, out, quiet, as_json, explain)
        if strict and not is_good(Verdict.of(summary)):
            raise click.exceptions.Exit(NOT_GOOD)


def _channels(
    images: tuple[tuple[Path, Path], ...],
    labels: tuple[tuple[Path, Path], ...],
    weights: tuple[float, ...],
) -> list[Channel]:
    """Return the channels in the order in which they have weights."""
    from ..channels import Channel

    given = [(pair, False) for pair in images] + [(pair, True) for pair in labels]
    if weights and len(weights) != len(given):
        raise errors.InvalidArgumentError(
            f"--channel-weight is given {len(weights)} times for {len(given)} channels; give it"
            " once for each, or not at all"
        )
    return [
        Channel(*pair, weight=weight, labels=are_labels)
        for (pair, are_labels), weight in zip(given, weights or [1.0] * len(given))
    ]
