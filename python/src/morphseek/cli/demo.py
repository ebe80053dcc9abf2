"""morphseek demo"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._app import app, reported
from .options import (
    Json,
    Quiet,
    Report,
    ReportSize,
    changed,
    command_line,
    size_of,
    with_engine_options,
)
from .output import console, print_summary

if TYPE_CHECKING:
    from ..result import RegistrationResult


@app.command()
@with_engine_options
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "morphseek-demo"
    ),
    size: Annotated[
        int, typer.Option(help="Voxels of the fixed image along each axis.", min=32, max=256)
    ] = 96,
    report: Report = ReportSize.full,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Register a made-up pair with a known answer: an MR-like and a CT-like torso, different in
    pose, size, grid and shape.
    """
    with reported(as_json):
        from .. import cohort, phantoms

        started = time.perf_counter()
        pair = phantoms.make_pair(size)
        if not (quiet or as_json):
            seconds = time.perf_counter() - started
            made = f"made fixed {pair.fixed!r}, moving {pair.moving!r} in {seconds:.1f} s"
            console(errors=True).print(made, soft_wrap=True)  # no result

        def error_to_truth(result: RegistrationResult) -> dict[str, Any]:
            truth = pair.errors(result)
            return {
                "tre_before_mm": truth["before"]["mean_mm"],
                "tre_after_mm": truth["after"]["mean_mm"],
                "truth": truth,
            }

        summary = cohort.register_into(
            out,
            (pair.fixed, pair.moving),
            (pair.fixed_labels, pair.moving_labels),
            options=changed(options),
            title="the demonstration pair: a CT-like torso onto an MR-like one",
            command=command_line(),
            report=size_of(report),
            progress=not (quiet or as_json),
            label_names=phantoms.LABELS,
            extra=error_to_truth,
        )
        print_summary(summary, out, quiet, as_json)
