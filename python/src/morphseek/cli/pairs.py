"""morphseek pairs"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import errors
from ..verdict import GRADES, tally
from ._command import command
from .options import (
    PATH,
    bids_options,
    option,
    out_folder,
    read_items,
    strict_option,
    study_options,
    template_options,
)
from .output import NOT_GOOD, Reply, aligned, failures, note, reply

#: Name, the figure without which there is no such row, and the row.
_ROWS = (
    ("pairs", "pairs", "{pairs}: {counts}"),
    ("mean Dice", "dice_after", "{dice_before:.4f} -> {dice_after:.4f}"),
    ("  by the inverse", "dice_inverse", "{dice_inverse:.4f}"),
    ("  by SimpleITK", "dice_check", "{dice_check:.4f}"),
    ("mean HD95", "hd95_after", "{hd95_after:.2f} mm"),
    ("against", "comparison", "{comparison}"),
    ("landmarks, mean", "tre_after_mm", "{tre_before_mm:.1f} -> {tre_after_mm:.1f} mm"),
    ("mean NJD", "njd_percent", "{njd_percent:.4f} %"),
    ("a pair", "seconds", "{seconds:.2f} s"),
)


@command(
    "pairs",
    click.argument("sources", type=PATH, metavar="[PAIRS.csv|IMAGES...]", nargs=-1),
    out_folder(
        help="Folder for one folder a pair, summary.csv, summary.json, index.html and, with label"
        " maps, labels.csv.",
    ),
    option(
        "--data", type=PATH, metavar="FOLDER",
        help="Folder with images/ and labels/: the list's entries are names of files there, as"
        " Learn2Reg has them.",
    ),
    option("--subset", help="Which of a JSON file's lists, e.g. test."),
    option(
        "--score", is_flag=True,
        help="Every pair must have label maps. Measure Dice by the inverse transform and by"
        " SimpleITK alone, too.",
    ),
    option(
        "--labels-csv", type=PATH,
        help="Table id,name[,structure] of the labels; those of one structure are merged.",
    ),
    option(
        "--against", type=PATH, metavar="STUDY",
        help="Folder of another study of the same pairs: compare their Dice by Wilcoxon's test.",
    ),
    option(
        "--keep", type=click.Choice(["all", "report"]), default="all", section="Output",
        help="Files to keep of each pair: all, or report.json and the page alone.",
    ),
    template_options,
    option(
        "--labels-back", is_flag=True,
        help="Also carry the fixed labels to each moving image: fixed_labels_on_moving.nii.gz.",
    ),
    option(
        "--all-pairs", is_flag=True,
        help="Register every pair of the images, once: the one that comes first is fixed.",
    ),
    option("--both-ways", is_flag=True, help="With --all-pairs: each onto the other, too."),
    option(
        "--within-subject", is_flag=True,
        help="Register each subject's later sessions onto the first.",
    ),
    bids_options,
    study_options,
    strict_option(),
)  # fmt: skip
def pairs(
    sources: tuple[Path, ...], out: Path, template: str | None, labels: Path | None,
    mask: Path | None, all_pairs: bool, both_ways: bool, within_subject: bool, progress: bool,
    strict: bool, against: Path | None, where: dict[str, Any], options: dict[str, Any],
    **how: Any,
) -> Reply:  # fmt: skip
    """Register many pairs, each into a folder of its own.

    \b
    morphseek pairs PAIRS.csv --out DIR                        a list of pairs
    morphseek pairs IMAGES... --template IMAGE --out DIR       all to one
    morphseek pairs IMAGES... --all-pairs --out DIR            each with each
    morphseek pairs --bids FOLDER --within-subject --out DIR   follow-up on first
    morphseek pairs PAIRS.json --data FOLDER --score --out DIR a benchmark

    PAIRS.csv, .tsv or .json has the columns fixed, moving and, optionally, fixed_labels,
    moving_labels, fixed_mask, moving_mask, rigid_regions, fixed_channel, moving_channel,
    fixed_label_channel, moving_label_channel, fixed_landmarks, moving_landmarks,
    initial_transform, id.

    IMAGES are files, one folder of images (or with the folders images and labels), or a CSV with
    the column image and, optionally, labels, mask, landmarks, channel, subject, session, id.
    --bids finds them in a BIDS folder: one a subject and session, with its label map *_dseg.nii.gz
    where there is one.

    Pairs that are finished, with the same files and options, are not done again: after an
    interruption, the same command goes on. A pair that fails is listed with its error, the others
    go on, and the exit code is the first failure's.
    """
    from .. import studies
    from ..studies.study import check_comparable

    ways = {"--template": template, "--all-pairs": all_pairs, "--within-subject": within_subject}
    chosen = [name for name, value in ways.items() if value]
    _check_usage(chosen, sources, where["bids"], both_ways, labels or mask)
    listed: Any = sources[0] if sources else None
    if chosen:
        items = read_items(sources, **where)
        if template:
            listed = studies.pairs_to(items, template, labels=labels, mask=mask)
        elif all_pairs:
            listed = studies.all_pairs(items, both_ways=both_ways)
        else:
            listed = studies.within_subject(items)
    other = studies.Study.read(against) if against else None
    if other:  # fails before the work
        where_listed = {name: how[name] for name in ("data", "subset")}
        check_comparable(studies.read_pairs(listed, **where_listed), other)
    study = studies.register_pairs(listed, out, progress=progress, **how, **options)
    test = studies.compare(study, other) if other else None
    bad = strict and any(row.verdict != GRADES[0] for row in study.rows)

    facts = {**study.to_dict(), **({"against": test} if test else {})}
    alerts = failures(study.rows)
    if progress:  # which has told of them
        count = f"{len(study.earlier)} finished pairs of earlier calls"
        text = f"the tables in {out} list {count}, too; who does not want one removes its folder"
        alerts = [note(text)] if study.earlier else []
    lines = aligned(_rows(facts["summary"], test, out))
    return reply(facts, lines, study.exit_code or (NOT_GOOD if bad else 0), alerts)


def _check_usage(
    chosen: list[str], sources: tuple[Path, ...], bids: Path | None, both_ways: bool,
    of_template: Path | None,
) -> None:  # fmt: skip
    """Refuse what is no list of pairs and does not say which pairs are to be made."""
    ways = "--template IMAGE, --all-pairs or --within-subject"
    problem = ""
    if len(chosen) > 1:
        problem = f"{' and '.join(chosen)}: choose one of them"
    elif not chosen and bids:
        problem = f"--bids: say which pairs to register: {ways}"
    elif not chosen and len(sources) != 1:
        problem = f"give one list of pairs (PAIRS.csv); or images, and {ways}"
    elif both_ways and chosen != ["--all-pairs"]:
        problem = "--both-ways belongs to --all-pairs"
    elif of_template and chosen != ["--template"]:
        problem = "--template-labels and --template-mask belong to --template"
    if problem:
        raise errors.InvalidArgumentError(problem)


def _rows(summary: dict[str, Any], test: dict[str, Any] | None, out: Path) -> list[tuple[str, str]]:
    counts = ", ".join(
        f"{summary[state]} {state}" for state in ("done", "skipped", "failed") if summary[state]
    )
    if summary["failed"]:
        counts += f" ({summary['failed_percent']:.1f} %)"
    comparison = None
    if test:
        comparison = (
            f"{test['mean_difference']:+.4f} Dice over {test['pairs']} pairs, better in"
            f" {test['better']}, p = {test['p_value']:.2g}"
        )
    figures = summary | {"counts": counts, "comparison": comparison}
    known = [row for row in _ROWS if figures[row[1]] is not None]
    rows = [(name, form.format_map(figures)) for name, _, form in known]
    if summary["outliers"]:
        rows.append(("outliers", f"{summary['outliers']}: named in index.html"))
    return [*rows, ("results", str(out / "summary.csv")), ("verdict", tally(summary["verdict"]))]
