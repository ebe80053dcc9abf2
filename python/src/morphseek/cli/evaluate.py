"""morphseek evaluate"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..verdict import tally
from ._app import app, reported
from .options import PATH, cache_option, changed, common_options, no_cache_option, out_folder
from .output import print_rows, print_table, say, say_failures


@app.command()
@click.argument("pairs", type=PATH, metavar="PAIRS")
@click.option("--data", type=PATH, required=True, help="Folder with images/ and labels/.")
@out_folder(
    required=True, help="Folder for results.json, results.csv, index.html and the pairs' pages."
)
@click.option("--subset", help="Which of a JSON file's lists, e.g. test.")
@click.option(
    "--labels-csv", type=PATH,
    help="Table id,name[,structure] of the labels; those of one structure are merged.",
)  # fmt: skip
@click.option("--against", type=PATH, help="Folder of another evaluation, for the Wilcoxon test.")
@click.option(
    "--check", is_flag=True,
    help="Measure Dice a second time by SimpleITK alone, from the written transform.",
)  # fmt: skip
@click.option(
    "--inverse", is_flag=True,
    help="Measure Dice in the moving image's space, too, by the inverse transform.",
)  # fmt: skip
@no_cache_option
@common_options("small", without=("uncertainty",))  # it has no place in scores
def evaluate(
    pairs: Path,
    data: Path,
    out: Path,
    subset: str | None,
    labels_csv: Path | None,
    against: Path | None,
    check: bool,
    inverse: bool,
    report: Any,
    no_cache: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Register many pairs and score them: Dice, HD95, volumes and folding for every pair and label.

    PAIRS is a CSV (fixed,moving) or JSON list of pairs, also by its name in --data; Learn2Reg's
    files are read.

    A pair that fails is listed with its error, the others go on, and the exit code is the first
    failure's.
    """
    with reported(as_json):
        from .. import _files, images
        from ..cohort import FILES, INDEX, PAGES, evaluate as run, find_list, run_file

        pairs = find_list(pairs, data)
        images.check_apart(
            out,
            FILES,
            {"pairs": pairs, "labels_csv": labels_csv, "against": against and run_file(against)},
        )
        # first: an unwritable folder fails before the work
        with _files.output_folder(out, (*FILES, INDEX, PAGES), FILES[0]) as folder:
            result = run(
                pairs,
                data,
                subset=subset,
                labels_csv=labels_csv,
                against=against,
                check=check,
                inverse=inverse,
                pages=None if report == "none" else folder,
                report="full" if report == "full" else "small",
                progress=not (quiet or as_json),  # with a line for each pair, on standard error
                **changed(options),
                **cache_option(no_cache),
            )
            result.options.pop("cache", None)
            summary = result.summary()
            # What failed altogether takes no other's place.
            kept = (
                [name for name in FILES if (out / name).exists()]
                if summary["failed"] == summary["pairs"]
                else []
            )
            if kept:
                for page in folder.iterdir():
                    page.unlink()
            else:
                result.write(folder)
        if kept and not as_json:
            say(
                f"note: no pair succeeded, so {' and '.join(kept)} in {out} stay as they were",
                "yellow",
                to_errors=True,
            )
        if quiet and not as_json:  # nobody has said it yet
            say_failures(result.pairs)
        if as_json:
            print(json.dumps(result.to_dict()))
        elif not (quiet or kept):
            _print_evaluation(summary, result.names, result.wilcoxon, out)
        failure = next((p.exit_code for p in result.pairs if p.error), 0)
        if failure:
            raise click.exceptions.Exit(failure)


def _print_evaluation(
    summary: dict[str, Any], names: dict[int, str], wilcoxon: dict[str, Any] | None, out: Path
) -> None:
    print_table(
        ("label", "mean Dice"),
        [
            (names.get(label, str(label)), f"{dice:.4f}")
            for label, dice in summary["dice_by_label"].items()
        ],
    )

    def number(name: str, digits: int, unit: str = "") -> str:
        return "-" if summary[name] is None else f"{summary[name]:.{digits}f}{unit}"

    rows = [
        (
            "pairs",
            ", ".join(
                [
                    f"{summary['pairs']}",
                    *(
                        f"{summary[what]} {said}"
                        for what, said in (
                            ("failed", "failed"),
                            ("unscored", "without a common label"),
                        )
                        if summary[what]
                    ),
                ]
            ),
        ),
        ("mean Dice", f"{number('dice_before', 4)} -> {number('dice_after', 4)}"),
    ]
    if summary["dice_check"] is not None:
        rows.append(("mean Dice by SimpleITK", number("dice_check", 4)))
    if summary["dice_inverse"] is not None:
        rows.append(("mean Dice by the inverse", number("dice_inverse", 4)))
    rows += [
        ("mean HD95", number("hd95_after", 2, " mm")),
        (
            "volume by the Jacobian",
            (
                f"off by {number('volume_error_percent', 1, ' %')} on average, bias"
                f" {number('volume_bias_percent', 1, ' %')}"
            ),
        ),
        ("mean NJD", number("njd_percent", 4, " %")),
        (
            "a pair",
            f"{number('seconds', 2, ' s')}, {number('cpu_seconds', 2, ' CPU s')}"
            + (f" (without {summary['cached']} from the cache)" if summary["cached"] else ""),
        ),
    ]
    if summary["worst"]:
        rows.append(
            ("worst pair", "{fixed} <- {moving}  {dice_after:.4f}".format(**summary["worst"]))
        )
    if wilcoxon:
        rows.append(
            (
                "against the other run",
                "mean difference {mean_difference:+.4f}, {better} better, {worse} worse, Wilcoxon p"
                " = {p_value:.3g}".format(**wilcoxon),
            )
        )
    rows += [("results", str(out / "results.json")), ("verdict", tally(summary["verdict"]))]
    print_rows(rows)
