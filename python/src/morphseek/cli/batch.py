"""morphseek batch"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .. import errors
from ..verdict import GRADES, tally
from ._app import app, reported
from .cohorts import bids_options, found_scans
from .options import (
    PATH,
    changed,
    command_line,
    common_options,
    no_resume_option,
    out_folder,
    scheduler_option,
    workers_option,
)
from .output import NOT_GOOD, print_rows, say, say_failures


@app.command("batch")
@click.argument("sources", type=PATH, metavar="[PAIRS.csv|IMAGES...]", nargs=-1)
@out_folder(
    required=True, help="Folder for one folder a pair, summary.csv, summary.json and index.html."
)
@click.option(
    "--to", "template", type=PATH, metavar="TEMPLATE",
    help="Register every image onto this one, which is fixed.",
)  # fmt: skip
@click.option("--to-labels", type=PATH, help="Label map of the template.")
@click.option("--to-mask", type=PATH, help="Mask of the template: where not zero, it counts.")
@click.option(
    "--labels-back", is_flag=True,
    help="Also carry the fixed labels to each moving image: fixed_labels_on_moving.nii.gz.",
)  # fmt: skip
@click.option(
    "--all-pairs", is_flag=True,
    help="Register every pair of the images, once: the one that comes first is fixed.",
)  # fmt: skip
@click.option("--both-ways", is_flag=True, help="With --all-pairs: each onto the other, too.")
@click.option(
    "--within-subject", is_flag=True,
    help="Register each subject's later sessions onto the first.",
)  # fmt: skip
@bids_options
@workers_option
@scheduler_option
@click.option("--html", is_flag=True, hidden=True, help="Deprecated: --report full.")
@no_resume_option
@click.option("--no-cache", is_flag=True, hidden=True, help="Deprecated: --no-resume.")
@click.option(
    "--strict", is_flag=True,
    help=f"Exit with code {NOT_GOOD} where a pair's verdict is not good (and none failed to be"
    " registered); all results are written all the same.",
)  # fmt: skip
@common_options("small")
def batch_command(
    sources: tuple[Path, ...],
    out: Path,
    template: Path | None,
    to_labels: Path | None,
    to_mask: Path | None,
    labels_back: bool,
    all_pairs: bool,
    both_ways: bool,
    within_subject: bool,
    bids: Path | None,
    suffix: str,
    entity: tuple[str, ...],
    label_entity: tuple[str, ...],
    no_labels: bool,
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

    \b
    morphseek batch PAIRS.csv --out DIR                        a list of pairs
    morphseek batch IMAGES... --to TEMPLATE --out DIR          all to one
    morphseek batch IMAGES... --all-pairs --out DIR            each with each
    morphseek batch --bids FOLDER --within-subject --out DIR   follow-up on first

    PAIRS.csv has the columns fixed, moving and, optionally, fixed_labels, moving_labels,
    fixed_mask, moving_mask, rigid, fixed_channel, moving_channel, fixed_label_channel,
    moving_label_channel, fixed_landmarks, moving_landmarks, initial_transform, id.

    IMAGES are files, one folder of images (or with the folders images and labels), or a CSV with
    the column image and, optionally, labels, mask, subject, session, id. --bids finds them in a
    BIDS folder: one a subject and session, with its label map *_dseg.nii.gz where there is one.

    Pairs that are finished, with the same files and options, are not done again: after an
    interruption, the same command goes on. A pair that fails is listed with its error, the others
    go on, and the exit code is the first failure's.
    """
    with reported(as_json, "finished pairs are kept, and the same command goes on"):
        from .. import cohort

        pairs: Any
        chosen = [
            name
            for name, given in (
                ("--to", template), ("--all-pairs", all_pairs), ("--within-subject", within_subject)
            )
            if given
        ]  # fmt: skip
        _check_usage(chosen, sources, bids, both_ways, to_labels or to_mask)
        if not chosen:
            pairs = sources[0]
        else:
            scans = found_scans(sources, bids, suffix, entity, label_entity, no_labels)
            if not quiet and not as_json:
                for note in scans.notes:
                    say(f"note: {note}", "yellow", to_errors=True)
            if template:
                pairs = cohort.pairs_to(scans, template, labels=to_labels, mask=to_mask)
            elif all_pairs:
                pairs = cohort.all_pairs(scans, both_ways=both_ways)
            else:
                pairs = cohort.within_subject(scans)
        done = cohort.register_cohort(
            pairs,
            out,
            labels_back=labels_back,
            workers=workers,
            scheduler=scheduler,
            report="full" if html else report,
            command=command_line(),
            resume=not (no_resume or no_cache),
            progress=not (quiet or as_json),
            **changed(options),
        )
        if quiet and not as_json:  # nobody has said it yet
            say_failures(done.pairs)
        if as_json:
            print(json.dumps(done.to_dict()))
        elif not quiet:
            if done.earlier:
                count = f"{len(done.earlier)} finished pairs of earlier calls"
                say(f"note: the tables in {out} list {count}, too; who does not want one removes"
                    " its folder", "yellow", to_errors=True)  # fmt: skip
            _print_batch(done.summary(), out)
        if done.exit_code:
            raise click.exceptions.Exit(done.exit_code)
        if strict and any(pair.verdict != GRADES[0] for pair in done.pairs):
            raise click.exceptions.Exit(NOT_GOOD)


def _check_usage(
    chosen: list[str],
    sources: tuple[Path, ...],
    bids: Path | None,
    both_ways: bool,
    of_template: Path | None,
) -> None:
    """Refuse what is no list of pairs and does not say which pairs are to be made."""
    if len(chosen) > 1:
        raise errors.InvalidArgumentError(f"{' and '.join(chosen)}: choose one of them")
    if not chosen and bids:
        raise errors.InvalidArgumentError(
            "--bids: say which pairs to register: --to TEMPLATE, --all-pairs or --within-subject"
        )
    if not chosen and len(sources) != 1:
        raise errors.InvalidArgumentError(
            "give one list of pairs (PAIRS.csv); or images, and --to TEMPLATE, --all-pairs or"
            " --within-subject"
        )
    if both_ways and chosen != ["--all-pairs"]:
        raise errors.InvalidArgumentError("--both-ways belongs to --all-pairs")
    if of_template and chosen != ["--to"]:
        raise errors.InvalidArgumentError("--to-labels and --to-mask belong to --to TEMPLATE")


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
    if summary["outliers"]:
        rows.append(("outliers", f"{summary['outliers']}: named in index.html"))
    rows += [("results", str(out / "summary.csv")), ("verdict", tally(summary["verdict"]))]
    print_rows(rows)
