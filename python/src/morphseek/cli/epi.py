"""morphseek epi"""

from __future__ import annotations

import json
from pathlib import Path

import click

from .._plain import plain
from ._app import app, reported
from .options import PATH, json_option, out_folder


@app.command()
@click.argument("first", type=PATH, metavar="FIRST")
@click.argument("second", type=PATH, metavar="SECOND")
@out_folder(required=True, help="Folder for the results; made if need be.")
@click.option(
    "--phase-encoding", metavar="AXIS",
    help="Phase encoding of FIRST, as in BIDS: i, i-, j, j-, k or k-, an axis of the file; SECOND"
    " has the opposite. Needed where no BIDS file beside them says.",
)  # fmt: skip
@click.option(
    "--readout-time", type=float, metavar="SECONDS",
    help="BIDS' TotalReadoutTime: the field map is written in Hz then.",
)  # fmt: skip
@json_option
def epi(
    first: Path,
    second: Path,
    out: Path,
    phase_encoding: str | None,
    readout_time: float | None,
    as_json: bool,
) -> None:
    """Take the distortion from two echo-planar images of opposite phase encodings.

    Writes shift.nii.gz (voxels), fieldmap.nii.gz (Hz, with a readout time), both images without
    distortion (first.nii.gz, second.nii.gz) and their mean, and the transforms first.h5 and
    second.h5 for other images of the same encodings: morphseek apply --modulate.
    """
    with reported(as_json):
        from .. import _files, images
        from ..epi import OUTPUTS, correct_epi

        images.check_apart(out, OUTPUTS, {"first": first, "second": second})
        _files.check_output(out)
        found = correct_epi(first, second, phase_encoding=phase_encoding, readout_time=readout_time)
        found.save(out)
        numbers = found.to_dict()
        if as_json:
            print(json.dumps(numbers))
        else:
            print(
                f"shift up to {numbers['largest_shift_voxels']:.2f} voxels along"
                f" {numbers['phase_encoding'][0]}; {plain(str(out / 'mean.nii.gz'))}"
            )
