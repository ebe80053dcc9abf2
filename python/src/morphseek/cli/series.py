"""morphseek series"""

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
    strict_option,
)
from .output import NOT_GOOD, print_rows, say

_MOST_SAID = 5  # frames that are not good, of which a line is printed


@app.command("series")
@click.argument("frames", type=PATH, metavar="FRAMES...", nargs=-1, required=True)
@out_folder(required=True, help="Folder for the results; made if need be.")
@click.option(
    "--reference", default="mean", metavar="mean|first|N",
    help="What the frames are registered onto: their mean (two rounds), the first, or frame N,"
    " counted from 0.",
)  # fmt: skip
@click.option(
    "--motion", type=click.Choice(["rigid", "affine", "deformable"]), default="rigid",
    help="rigid: shifts and turns, as of a head. deformable: as of a heart or a chest; takes all"
    " options of `morphseek register`.",
)  # fmt: skip
@click.option(
    "--consistent", is_flag=True,
    help="Also register each frame onto the one before and measure, in mm, how far the two ways to"
    " a frame disagree. A frame whose verdict is not good is registered again from the"
    " concatenated one, and the better is kept. Takes about twice the time.",
)  # fmt: skip
@click.option(
    "--mask", type=PATH,
    help="Mask on the frames' grid: voxels of the reference count where it is not zero.",
)  # fmt: skip
@click.option(
    "--interpolation", type=click.Choice(["linear", "cubic", "sinc", "nearest", "label"]),
    default="linear", help="How the frames are resampled; cubic and sinc blur less.",
)  # fmt: skip
@strict_option
@quiet_option
@json_option
@engine_options()
def series_command(
    frames: tuple[Path, ...],
    out: Path,
    reference: str,
    motion: str,
    consistent: bool,
    mask: Path | None,
    interpolation: str,
    strict: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Correct the motion between the frames of a time series.

    FRAMES is one image with a time axis (4-D NIfTI), one folder with a DICOM series of several
    frames, or a file for each frame in the order of time.

    Writes corrected.nii.gz (4-D), corrected.seq.nrrd (a sequence for 3D Slicer), reference.nii.gz,
    the transform of each frame (transform_0000.h5, ...), motion.tsv (six parameters and framewise
    displacement, named as fMRIPrep's), series.html (plots and a table, worst first) and
    series.json: all of them or, on an error, none.

    Example: morphseek series bold.nii.gz --out corrected
    """
    with reported(as_json):
        from .. import _files, images
        from ..motion import outputs, series

        known = outputs(100_000 if out.is_dir() else 0)
        inputs = {f"frame {k}": path for k, path in enumerate(frames)}
        images.check_apart(out, known, {**inputs, "mask": mask})
        _files.check_output(out)
        found = series(
            frames[0] if len(frames) == 1 else list(frames),
            reference=reference,
            motion=motion,
            consistent=consistent,
            interpolation=interpolation,
            mask=mask,
            progress=not (quiet or as_json),
            **changed(options),
        )
        found.save(out, command_line())
        said = found.to_dict()
        bad = [frame for frame in found.worst if frame.grade != "good"]
        if as_json:
            print(json.dumps(said))
        else:
            for frame in bad[:_MOST_SAID]:
                color = "red" if frame.grade == "failed" else "yellow"
                say(f"{frame.name}: {frame.verdict or 'unknown'}", color, to_errors=True)
            if len(bad) > _MOST_SAID:
                rest = len(bad) - _MOST_SAID
                say(f"and {rest} more frames that are not good: {out / 'motion.tsv'}",
                    "yellow", to_errors=True)  # fmt: skip
            if not quiet:
                print_rows(_rows(said, out))
        if strict and bad:
            raise click.exceptions.Exit(NOT_GOOD)


def _rows(said: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    from ..verdict import tally

    rows = [
        ("frames", f"{len(said['frames'])}, {said['motion']}, onto {said['reference']}"),
        ("verdicts", tally(said["verdicts"])),
        (
            "framewise displacement",
            f"mean {said['framewise_displacement_mean']:.2f} mm, up to"
            f" {said['framewise_displacement_max']:.2f} mm",
        ),
        ("tissue moved", f"up to {said['displacement_max']:.1f} mm"),
    ]
    apart = [row["disagreement_mean"] for row in said["frames"] if row.get("disagreement_mean")]
    if apart:
        again = sum(row["start"] == "concatenated" for row in said["frames"])
        rows.append(
            (
                "two ways disagree",
                f"mean {sum(apart) / len(apart):.2f} mm, up to {max(apart):.2f} mm; {again} frames"
                " taken from the concatenated one",
            )
        )
    return [*rows, ("report", str(out / "series.html"))]
