"""morphseek batch"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..verdict import GRADES, tally
from ._app import app, reported
from .options import PATH, changed, command_line, common_options, out_folder
from .output import NOT_GOOD, print_rows, say


@app.command("batch")
@click.argument("pairs", type=PATH, metavar="PAIRS.csv")
@out_folder(
    required=True, help="Folder for one folder a pair, summary.csv, summary.json and index.html."
)
@click.option(
    "--workers", type=click.IntRange(1), default=1,
    help="Pairs at a time; each gets its share of the cores unless --threads says otherwise.",
)  # fmt: skip
@click.option(
    "--scheduler",
    help="Address of a Dask scheduler whose workers do the work, one thread a pair (extra: pip"
    " install morphseek[dask]).",
)
@click.option("--html", is_flag=True, hidden=True, help="Deprecated: --report full.")
@click.option("--no-resume", is_flag=True, help="Do pairs again that are finished.")
@click.option("--no-cache", is_flag=True, hidden=True, help="Deprecated: --no-resume.")
@click.option(
    "--strict", is_flag=True,
    help=f"Exit with code {NOT_GOOD} where a pair's verdict is not good (and none failed to be"
    " registered); all results are written all the same.",
)  # fmt: skip
@common_options("small")
def batch_command(
    pairs: Path,
    out: Path,
    workers: int,
    scheduler: str | None,
    report: Any,
    html: bool,
    no_resume: bool,
    no_cache: bool,
    strict: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Register many pairs, each into a folder of its own.

    PAIRS.csv has the columns fixed, moving and, optionally, fixed_labels, moving_labels,
    fixed_mask, moving_mask, rigid, fixed_channel, moving_channel, fixed_label_channel,
    moving_label_channel, fixed_landmarks, moving_landmarks, initial_transform, id.

    Pairs that are finished, with the same files and options, are not done again: after an
    interruption, the same command goes on. A pair that fails is listed with its error, the others
    go on, and the exit code is the first failure's.
    """
    with reported(as_json, "finished pairs are kept, and the same command goes on"):
        from .. import cohort

        done = cohort.register_cohort(
            pairs,
            out,
            workers=workers,
            scheduler=scheduler,
            report="full" if html else report,
            command=command_line(),
            resume=not (no_resume or no_cache),
            progress=not (quiet or as_json),
            **changed(options),
        )
        if quiet and not as_json:  # nobody has said it yet
            for pair in done.pairs:
                if pair.error:
                    say(f"morphseek: {pair}", "red", to_errors=True)
        if as_json:
            print(json.dumps(done.to_dict()))
        elif not quiet:
            _print_batch(done.summary(), out)
        if done.exit_code:
            raise click.exceptions.Exit(done.exit_code)
        if strict and any(pair.verdict != GRADES[0] for pair in done.pairs):
            raise click.exceptions.Exit(NOT_GOOD)


def _print_batch(summary: dict[str, Any], out: Path) -> None:
    counts = ", ".join(
        f"{summary[state]} {state}" for state in ("done", "skipped", "failed") if summary[state]
    )
    rows = [("pairs", f"{summary['pairs']}: {counts}")]
    if summary["dice_after"] is not None:
        rows.append(("mean Dice", f"{summary['dice_before']:.4f} -> {summary['dice_after']:.4f}"))
    if summary["tre_after_mm"] is not None:
        course = f"{summary['tre_before_mm']:.1f} -> {summary['tre_after_mm']:.1f} mm"
        rows.append(("landmarks, mean", course))
    if summary["seconds"] is not None:
        rows += [
            ("mean NJD", f"{summary['njd_percent']:.4f} %"),
            ("a pair", f"{summary['seconds']:.2f} s"),
        ]
    rows += [("results", str(out / "summary.csv")), ("verdict", tally(summary["verdict"]))]
    print_rows(rows)
