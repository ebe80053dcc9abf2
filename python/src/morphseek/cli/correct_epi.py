"""morphseek correct-epi"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ._command import command
from .options import PATH, json_option, option, out_folder
from .output import Reply, reply


@command(
    "correct-epi",
    click.argument("first", type=PATH, metavar="FIRST"),
    click.argument("second", type=PATH, metavar="SECOND"),
    out_folder(),
    option(
        "--phase-encoding", metavar="AXIS",
        help="Phase encoding of FIRST, as in BIDS: i, i-, j, j-, k or k-, an axis of the file;"
        " SECOND has the opposite. Needed where no BIDS file beside them says.",
    ),
    option(
        "--readout-time", type=float, metavar="SECONDS",
        help="BIDS' TotalReadoutTime: the field map is written in Hz then.",
    ),
    json_option,
)  # fmt: skip
def correct_epi(first: Path, second: Path, out: Path, **how: Any) -> Reply:
    """Correct the distortion of two echo-planar images of opposite phase encodings.

    Writes shift.nii.gz (voxels), fieldmap.nii.gz (Hz, with a readout time), both images without
    distortion (first.nii.gz, second.nii.gz) and their mean, and the transforms first.h5 and
    second.h5 for other images of the same encodings: morphseek apply --modulate.
    """
    from ..studies import correct_epi as correct

    correction = correct(first, second, out, **how)
    facts = correction.to_dict()
    text = (
        f"shift up to {facts['largest_shift_voxels']:.2f} voxels along"
        f" {facts['phase_encoding'][0]}; {out / 'mean.nii.gz'}"
    )
    return reply(facts, [text])
