"""morphseek register"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..verdict import Verdict
from ._app import app, reported
from .options import (
    Json,
    NoCache,
    Quiet,
    Report,
    ReportSize,
    Strict,
    cache_option,
    changed,
    command_line,
    size_of,
    with_engine_options,
)
from .output import NOT_GOOD, is_good, print_summary


@app.command()
@with_engine_options
def register(
    fixed: Annotated[
        Path,
        typer.Argument(
            help="Fixed image: NIfTI, NRRD, MetaImage, ... or a folder with one DICOM series.",
            metavar="FIXED",
            show_default=False,
        ),
    ],
    moving: Annotated[
        Path,
        typer.Argument(
            help="Moving image, to be brought onto the fixed one.",
            metavar="MOVING",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder for the results; made if need be.", show_default=False
        ),
    ],
    fixed_labels: Annotated[
        Path | None,
        typer.Option(
            help="Label map of the fixed image: with that of the moving one, Dice is measured.",
            show_default=False,
        ),
    ] = None,
    moving_labels: Annotated[
        Path | None,
        typer.Option(help="Label map of the moving image: it is warped too.", show_default=False),
    ] = None,
    fixed_mask: Annotated[
        Path | None,
        typer.Option(help="Where not zero, the fixed image counts.", show_default=False),
    ] = None,
    moving_mask: Annotated[
        Path | None,
        typer.Option(help="Where not zero, the moving image counts.", show_default=False),
    ] = None,
    fixed_landmarks: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Points of the fixed image: .mrk.json, .fcsv, or CSV with the columns x, y, z in"
                " LPS mm and, optionally, name. With those of the moving one, the error at them is"
                " measured; they do not change the result."
            ),
            show_default=False,
        ),
    ] = None,
    moving_landmarks: Annotated[
        Path | None,
        typer.Option(
            help=(
                "The same points of the moving image, paired by name where both have the same"
                " names, else in their order."
            ),
            show_default=False,
        ),
    ] = None,
    initial_transform: Annotated[
        Path | None,
        typer.Option(
            help="Rigid or affine transform (.tfm, .h5), fixed to moving, to start from.",
            show_default=False,
        ),
    ] = None,
    report: Report = ReportSize.full,
    strict: Strict = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help=(
                "Print how the result came about: the start that was kept, what was compared, the"
                " search, the smoothness, what the referee said, and why."
            ),
        ),
    ] = False,
    no_cache: NoCache = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Register MOVING onto FIXED.

    Writes warped.nii.gz, transform.h5, displacement.nrrd, report.json and report.html to the output
    folder, warped_labels.nii.gz if the moving labels are given and uncertainty.nrrd if it is asked
    for: all of them or, on an error, none. The last line is the verdict: good; check (look before
    use); or failed (do not use).
    """
    with reported(as_json):
        from .. import cohort

        summary = cohort.register_into(
            out,
            (fixed, moving),
            (fixed_labels, moving_labels),
            landmarks=(fixed_landmarks, moving_landmarks),
            options=changed(options) | cache_option(no_cache),
            title=f"{moving} onto {fixed}",
            command=command_line(),
            report=size_of(report),
            progress=not (quiet or as_json),
            fixed_mask=fixed_mask,
            moving_mask=moving_mask,
            initial_transform=initial_transform,
        )
        print_summary(summary, out, quiet, as_json, explain)
        if strict and not is_good(Verdict.of(summary)):
            raise typer.Exit(NOT_GOOD)
