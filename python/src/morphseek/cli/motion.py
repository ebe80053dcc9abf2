"""morphseek motion"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..verdict import tally
from ._command import command
from .options import MAPS, PATH, engine_options, option, out_folder, output_options
from .output import NOT_GOOD, Reply, aligned, reply

_MOST_LINES = 5  # frames that are not good, of which a line is printed


@command(
    "motion",
    click.argument("frames", type=PATH, metavar="FRAMES...", nargs=-1, required=True),
    out_folder(),
    option(
        "--reference-frame", "reference", default="mean", metavar="mean|first|N",
        help="What the frames are registered onto: the first, or frame N, counted from 0; or their"
        " mean, in two rounds, which take twice the time. The first frame of a functional series"
        " often differs in contrast from the others.",
    ),
    option(
        "--motion", type=click.Choice(["rigid", "affine", "deformable"]), default="rigid",
        help="rigid: shifts and rotations, as of a head. deformable: as of a heart or a chest;"
        " takes all options of `morphseek register`.",
    ),
    option(
        "--consistent", is_flag=True,
        help="Also register each frame onto the one before and measure, in mm, how far the two ways"
        " to a frame disagree. A frame whose verdict is not good is registered again from the"
        " concatenated one, and the better is kept. Takes about twice the time.",
    ),
    option(
        "--mask", type=PATH,
        help="Mask on the frames' grid: voxels of the reference count where it is not zero.",
    ),
    option(
        "--interpolation", type=click.Choice(MAPS), default="linear",
        help="How the frames are resampled; cubic and sinc blur less.",
    ),
    engine_options(initial="rigid"),
    output_options(),
)  # fmt: skip
def motion(
    frames: tuple[Path, ...], out: Path, strict: bool, options: dict[str, Any], **how: Any
) -> Reply:
    """Correct the motion between the frames of a time series.

    FRAMES is one image with a time axis (4-D NIfTI, or a sequence of 3D Slicer, .seq.nrrd), one
    folder with a DICOM series of several frames, or a file for each frame in the order of time.

    Writes corrected.nii.gz (4-D), corrected.seq.nrrd (a sequence for 3D Slicer), reference.nii.gz,
    the transform of each frame (transform_0000.h5, ...), motion.tsv (six parameters and framewise
    displacement, named as fMRIPrep's), series.html (plots and a table, worst first) and
    series.json: all of them or, on an error, none.

    Example: morphseek motion bold.nii.gz --out corrected
    """
    from ..studies import correct_motion

    source = frames[0] if len(frames) == 1 else list(frames)
    series = correct_motion(source, out, **how, **options)
    facts = series.to_dict()
    bad = [row for row in series.worst if row.verdict != "good"]
    colors = {"failed": "red"}
    alerts = [(str(row), colors.get(row.verdict, "yellow")) for row in bad[:_MOST_LINES]]
    if len(bad) > _MOST_LINES:
        rest = f"and {len(bad) - _MOST_LINES} more frames that are not good:"
        alerts.append((f"{rest} {out / 'motion.tsv'}", "yellow"))
    return reply(facts, aligned(_rows(facts, out)), NOT_GOOD if strict and bad else 0, alerts)


def _rows(facts: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    mean, most = (facts[f"framewise_displacement_{key}"] for key in ("mean", "max"))
    rows = [
        ("frames", f"{len(facts['rows'])}, {facts['motion']}, onto {facts['reference']}"),
        ("verdicts", tally(facts["verdicts"])),
        ("framewise displacement", f"mean {mean:.2f} mm, up to {most:.2f} mm"),
        ("tissue moved", f"up to {facts['displacement_max']:.1f} mm"),
    ]
    apart = [row["disagreement_mean"] for row in facts["rows"] if row.get("disagreement_mean")]
    if apart:
        again = sum(row["start"] == "concatenated" for row in facts["rows"])
        span = f"mean {sum(apart) / len(apart):.2f} mm, up to {max(apart):.2f} mm"
        words = f"{span}; {again} frames taken from the concatenated one"
        rows.append(("two ways disagree", words))
    return [*rows, ("report", str(out / "series.html"))]
