"""morphseek evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..verdict import tally
from ._command import command
from .options import PATH, common_options, option, out_folder
from .output import Reply, print_rows, print_table, say_failures, say_notes


@command(
    "evaluate",
    click.argument("pairs", type=PATH, metavar="PAIRS"),
    option("--data", type=PATH, required=True, help="Folder with images/ and labels/."),
    out_folder(
        required=True, help="Folder for results.json, results.csv, index.html and the pairs' pages."
    ),
    option("--subset", help="Which of a JSON file's lists, e.g. test."),
    option(
        "--labels-csv", type=PATH,
        help="Table id,name[,structure] of the labels; those of one structure are merged.",
    ),
    option("--against", type=PATH, help="Folder of another evaluation, for the Wilcoxon test."),
    option(
        "--cross-check", is_flag=True,
        help="Measure Dice a second time by SimpleITK alone, from the written transform.",
    ),
    option(
        "--score-inverse", is_flag=True,
        help="Measure Dice in the moving image's space, too, by the inverse transform.",
    ),
    common_options("small", without=("uncertainty",)),  # it has no place in scores
)  # fmt: skip
def evaluate(
    pairs: Path, data: Path, out: Path, labels_csv: Path | None, against: Path | None, report: str,
    options: dict[str, Any], **how: Any,
) -> Reply:  # fmt: skip
    """Register many pairs and score them: Dice, HD95, volumes and folding for every pair and label.

    PAIRS is a CSV (fixed,moving) or JSON list of pairs, also by its name in --data; Learn2Reg's
    files are read.

    A pair that fails is listed with its error, the others go on, and the exit code is the first
    failure's.
    """
    from .. import _files
    from ..cohort import evaluate as run
    from ..cohort.evaluation import run_file
    from ..cohort.listing import INDEX
    from ..cohort.lists import find_list
    from ..cohort.scores import FILES, PAGES
    from ..images.sidecars import check_apart

    pairs = find_list(pairs, data)
    compared = against and run_file(against)
    check_apart(out, FILES, {"pairs": pairs, "labels_csv": labels_csv, "against": compared})
    # first: an unwritable folder fails before the work
    with _files.output_folder(out, (*FILES, INDEX, PAGES), FILES[0]) as folder:
        study = run(
            pairs,
            data,
            labels_csv=labels_csv,
            against=against,
            pages=None if report == "none" else folder,
            report="full" if report == "full" else "small",
            **how,
            **options,
        )
        study.options.pop("cache", None)
        summary = study.summary()
        lost = (
            summary["failed"] == summary["pairs"]
        )  # what failed altogether takes no other's place
        kept = [name for name in FILES if lost and (out / name).exists()]
        if kept:
            for page in folder.iterdir():
                page.unlink()
        else:
            study.write(folder)

    def show(quiet: bool) -> None:
        if kept:
            names = " and ".join(kept)
            say_notes([f"no pair succeeded, so {names} in {out} stay as they were"])
        if quiet:  # nobody has said it yet
            say_failures(study.pairs)
        elif not kept:
            by_label = summary["dice_by_label"].items()
            rows = [(study.names.get(label, str(label)), f"{dice:.4f}") for label, dice in by_label]
            print_table(("label", "mean Dice"), rows)
            print_rows(_rows(summary, study.wilcoxon, out))

    failure = next((pair.exit_code for pair in study.pairs if pair.error), 0)
    return Reply(study.to_dict(), show, failure)


def _rows(
    summary: dict[str, Any], wilcoxon: dict[str, Any] | None, out: Path
) -> list[tuple[str, str]]:
    def number(name: str, digits: int, unit: str = "") -> str:
        return "-" if summary[name] is None else f"{summary[name]:.{digits}f}{unit}"

    count = f"{summary['pairs']}"
    for what, words in (("failed", "failed"), ("unscored", "without a common label")):
        count += f", {summary[what]} {words}" if summary[what] else ""
    rows = [
        ("pairs", count),
        ("mean Dice", f"{number('dice_before', 4)} -> {number('dice_after', 4)}"),
    ]
    if summary["dice_check"] is not None:
        rows.append(("mean Dice by SimpleITK", number("dice_check", 4)))
    if summary["dice_inverse"] is not None:
        rows.append(("mean Dice by the inverse", number("dice_inverse", 4)))
    bias = number("volume_bias_percent", 1, " %")
    volume = f"off by {number('volume_error_percent', 1, ' %')} on average, bias {bias}"
    cost = f"{number('seconds', 2, ' s')}, {number('cpu_seconds', 2, ' CPU s')}"
    if summary["cached"]:
        cost += f" (without {summary['cached']} from the cache)"
    rows += [
        ("mean HD95", number("hd95_after", 2, " mm")),
        ("volume by the Jacobian", volume),
        ("mean NJD", number("njd_percent", 4, " %")),
        ("a pair", cost),
    ]
    if worst := summary["worst"]:
        rows.append(("worst pair", "{fixed} <- {moving}  {dice_after:.4f}".format(**worst)))
    if wilcoxon:
        text = (
            "mean difference {mean_difference:+.4f}, {better} better, {worse} worse, Wilcoxon p ="
            " {p_value:.3g}"
        )
        rows.append(("against the other run", text.format(**wilcoxon)))
    return [
        *rows, ("results", str(out / "results.json")), ("verdict", tally(summary["verdict"]))
    ]  # fmt: skip
