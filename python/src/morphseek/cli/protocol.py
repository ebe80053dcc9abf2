"""morphseek protocol"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..verdict import tally
from ._app import app, reported
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
from .output import print_rows, print_table, say, say_failures


@app.command("protocol")
@click.argument("name", metavar="NAME")
@click.argument("data", type=PATH, metavar="FOLDER")
@out_folder(
    required=True,
    help="Folder for one folder a pair, pairs.csv, protocol.csv, protocol.json and index.html.",
)
@click.option(
    "--pairs", type=PATH,
    help="A list of pairs instead of the data set's own; Mindboggle-101 needs one, with the columns"
    " subject1 (fixed) and subject2 (moving).",
)  # fmt: skip
@click.option("--list-only", is_flag=True, help="Write pairs.csv, a list for batch, and no more.")
@click.option("--no-masks", is_flag=True, help="Leave out the masks that the data set has.")
@click.option(
    "--fields", is_flag=True,
    help="Also write displacements as Learn2Reg takes submissions: fields/disp_0396_0395.nii.gz.",
)  # fmt: skip
@workers_option
@scheduler_option
@no_resume_option
@common_options("small")
def protocol_command(
    name: str,
    data: Path,
    out: Path,
    pairs: Path | None,
    list_only: bool,
    no_masks: bool,
    fields: bool,
    workers: int,
    scheduler: str | None,
    no_resume: bool,
    report: Any,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Score a public data set by its published protocol, beside published figures.

    \b
    NAME               FOLDER is
    abdomen-mrct       Learn2Reg's AbdomenMRCT: validation pairs, MR fixed
    abdomen-mrct-8     the same: the paired training cases, CT fixed
    abdomen-ctct       Learn2Reg's AbdomenCTCT: validation pairs
    oasis              Learn2Reg's OASIS, of today or of 2021: validation pairs
    lumir              Learn2Reg's LUMIR: validation pairs
    mindboggle         Mindboggle-101, own spaces; needs --pairs
    mindboggle-mni152  Mindboggle-101 in MNI152 space; needs --pairs

    FOLDER is where the archive was unpacked; nothing is downloaded. Finished pairs are not done
    again: after an interruption, the same command goes on.
    """
    with reported(as_json, "finished pairs are kept, and the same command goes on"):
        from .. import cohort

        if list_only:
            rows = cohort.protocol_pairs(name, data, pairs=pairs, masks=not no_masks)
            path = cohort.write_pair_list(rows, out)
            if as_json:
                print(json.dumps({"pairs": len(rows), "list": str(path)}))
            elif not quiet:
                print_rows([("pairs", str(len(rows))), ("list", str(path))])
            return
        scores = cohort.run_protocol(
            name,
            data,
            out,
            pairs=pairs,
            masks=not no_masks,
            fields=fields,
            workers=workers,
            scheduler=scheduler,
            report=report,
            command=command_line(),
            resume=not no_resume,
            progress=not (quiet or as_json),
            **changed(options),
        )
        if quiet and not as_json:  # nobody has said it yet
            say_failures(scores.pairs)
        if as_json:
            print(json.dumps(scores.to_dict()))
        elif not quiet:
            _print(scores, out)
        if scores.cohort.exit_code:
            raise click.exceptions.Exit(scores.cohort.exit_code)


def _print(scores: Any, out: Path) -> None:
    content, summary = scores.to_dict(), scores.summary()
    published = content["published"]

    def number(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    def cells(row: dict[str, Any]) -> list[str]:
        digits = (("dice", 4), ("sdlogj", 4), ("njd_percent", 4), ("hd95", 2), ("seconds", 1))
        return [number(row.get(name), count) for name, count in digits]

    say(content["title"])
    own = f"{summary['scored']} scored of {summary['pairs']} pairs"
    print_table(
        ("method", "Dice", "SDlogJ", "folds, %", "HD95, voxels", "s a pair", "on"),
        [
            ("no registration", *cells({"dice": summary["dice_before"]}), own),
            (f"MorphSeek {content['version']}", *cells(summary), own),
            *((row["method"], *cells(row), row["on"]) for row in published),
        ],
    )
    for source in dict.fromkeys(row["source"] for row in published):
        say(f"published: {source}")
    if not summary["scored"]:
        say("note: the data set holds no labels of these pairs, so there is no Dice", "yellow")
    rows = [("results", str(out / "protocol.csv"))]
    if summary["failed"]:
        rows.append(
            ("failed", f"{summary['failed']} of {summary['pairs']} pairs, left out of the means")
        )
    rows.append(("verdict", tally(scores.cohort.summary()["verdict"])))
    print_rows(rows)
