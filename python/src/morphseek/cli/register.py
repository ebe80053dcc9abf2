"""morphseek register"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from .._plain import onto
from ._command import command
from .options import PATH, common_options, option, out_folder, strict_option
from .output import Reply, summary_reply

if TYPE_CHECKING:
    from ..channels import Channel

_IMAGE_PAIR: dict[str, Any] = {
    "type": PATH, "nargs": 2, "multiple": True, "metavar": "FIXED MOVING"
}  # fmt: skip


@command(
    "register",
    click.argument("fixed", type=PATH, metavar="FIXED"),
    click.argument("moving", type=PATH, metavar="MOVING"),
    out_folder(),
    option(
        "--fixed-labels", type=PATH,
        help="Label map of the fixed image: with that of the moving one, Dice is measured.",
    ),
    option("--moving-labels", type=PATH, help="Label map of the moving image: it is warped too."),
    option("--fixed-mask", type=PATH, help="Mask of the fixed image: where not zero, it counts."),
    option("--moving-mask", type=PATH, help="Mask of the moving image: where not zero, it counts."),
    option(
        "--rigid-regions", type=PATH,
        help="Label map of the fixed image: each label but 0 (a bone, an implant) moves as one body"
        " and keeps its shape.",
    ),
    option(
        "--channel", "channels", **_IMAGE_PAIR,
        help="One more image of both sides, as FLAIR beside T1, each on any grid in the space of"
        " its side: all of them drive the registration. May be given again.",
    ),
    option(
        "--label-channel", "label_channels", **_IMAGE_PAIR,
        help="Label maps of both sides that drive the registration: structures of the same number"
        " are brought onto each other. May be given again.",
    ),
    option(
        "--channel-weight", "weights", type=float, multiple=True, metavar="NUMBER",
        help="Weight of a channel; FIXED and MOVING have 1. Once for each channel, those of images"
        " before those of labels. By default 1.",
    ),
    option(
        "--fixed-landmarks", type=PATH,
        help="Points of the fixed image: .mrk.json, .fcsv, or CSV with the columns x, y, z in LPS"
        " mm and, optionally, name. With those of the moving one, the error at them is measured."
        " They do not change the result, unless --landmark-error lets them steer.",
    ),
    option(
        "--moving-landmarks", type=PATH,
        help="The same points of the moving image, paired by the names that both have, else in"
        " their order. A point that one image alone has is carried over to the other.",
    ),
    option(
        "--initial-transform", type=PATH,
        help="Transform, fixed to moving, to start from: of any format that `morphseek transform"
        " show` knows. A rigid or affine one is improved by the alignment; from a nonlinear one"
        " the refinement continues. FILE@inverse is the inverse.",
    ),
    option(
        "--keep-stages", is_flag=True,
        help="Also write transform_initial.h5, the rigid or affine transform before the"
        " deformation.",
    ),
    option(
        "--halfway", is_flag=True,
        help="Also write the mean of both images in the space half-way between them,"
        " halfway.nii.gz, and the transforms from there, halfway_to_fixed.h5 and"
        " halfway_to_moving.h5; best with --symmetric.",
    ),
    common_options("full"),
    strict_option(),
    option(
        "--explain", is_flag=True, section="Output",
        help="Print how the result came about: the start that was kept, what was compared, the"
        " search, the smoothness, what the referee said, and why.",
    ),
)  # fmt: skip
def register(
    fixed: Path, moving: Path, out: Path, channels: Any, label_channels: Any, weights: Any,
    strict: bool, explain: bool, **inputs: Any,
) -> Reply:  # fmt: skip
    """Register MOVING onto FIXED: NIfTI, NRRD, MetaImage, ... or folders with one DICOM series.
    Either may be an atlas by name, which was fetched before: templateflow:MNI152NLin2009cAsym or
    brainglobe:allen_mouse_25um.

    Writes warped.nii.gz, transform.h5, displacement.nrrd, report.json and report.html to the output
    folder, warped_labels.nii.gz if the moving labels are given, uncertainty.nrrd if it is asked
    for, transform_initial.h5 with --keep-stages: all of them or, on an error, none. The last line
    is the verdict: good; check (look before use); or failed (do not use).
    """
    from ..studies.pair import register_into

    given = _channels(channels, label_channels, weights)
    title = onto(moving, fixed)
    summary = register_into(out, fixed, moving, title=title, channels=given, **inputs)
    return summary_reply(summary, out, explain, strict)


def _channels(
    images: list[tuple[Path, Path]], labels: list[tuple[Path, Path]], weights: list[float]
) -> list[Channel]:
    """Return the channels in the order in which they have weights."""
    from ..channels import Channel

    pairs = [(pair, False) for pair in images] + [(pair, True) for pair in labels]
    if weights and len(weights) != len(pairs):
        raise errors.InvalidArgumentError(
            f"--channel-weight is given {len(weights)} times for {len(pairs)} channels; give it"
            " once for each, or not at all"
        )
    return [
        Channel(*pair, weight=weight, labels=are_labels)
        for (pair, are_labels), weight in zip(pairs, weights or [1.0] * len(pairs))
    ]
