"""Scores a public data set by its published protocol, beside published figures: python protocols.py
NAME FOLDER --out DIR.

\b
NAME               FOLDER is
abdomen-mrct       Learn2Reg's AbdomenMRCT: validation pairs, MR fixed
abdomen-mrct-8     the same: the paired training cases, CT fixed
abdomen-ctct       Learn2Reg's AbdomenCTCT: validation pairs
oasis              Learn2Reg's OASIS, of today or of 2021: validation pairs
lumir              Learn2Reg's LUMIR: validation pairs
mindboggle         Mindboggle-101, own spaces; needs --pairs
mindboggle-mni152  Mindboggle-101 in MNI152 space; needs --pairs

FOLDER is where the archive was unpacked; nothing is downloaded. Finished pairs are not done again:
after an interruption, the same command goes on.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import SimpleITK as sitk
from published import PROTOCOLS, Protocol, Row, protocol_pairs, stem

import morphseek
from morphseek import errors, images, scoring, studies
from morphseek.scoring.labels import merge_labels


@dataclasses.dataclass
class Score:
    """A pair of a protocol; NaN is what cannot be told."""

    id: str
    fixed: str
    moving: str
    labels: int = 0
    """The number of labels that count and are in both maps."""
    dice_before: float = math.nan
    dice: float = math.nan
    hd95: float = math.nan
    """Voxels; infinite where a label is lost."""
    sdlogj: float = math.nan
    njd_percent: float = math.nan
    seconds: float = math.nan
    error: str = ""


MEASURES = ("dice_before", "dice", "hd95", "sdlogj", "njd_percent", "seconds")


def sdlogj(result: morphseek.Registration) -> float:
    """Return Learn2Reg's SDlogJ: the standard deviation of log(det J + 3), two voxels from the
    border. The metric ``sdlogj`` is that of log(det J) everywhere.
    """
    inside = np.asarray(result.jacobian(), np.float64)[2:-2, 2:-2, 2:-2]
    return float(np.log(np.clip(inside + 3, 1e-9, 1e9)).std()) if inside.size else math.nan


def hd95(one: np.ndarray, other: np.ndarray) -> float:
    """Return Learn2Reg's 95 % Hausdorff distance of two masks in voxels, where pieces of the
    surface weigh by their area; infinite where a mask is empty. The scores' ``hd95_after`` is in mm
    and of voxels, some 0.3 voxels more.
    """
    import surface_distance

    if not one.any() or not other.any():
        return math.inf
    distances = surface_distance.compute_surface_distances(one, other, np.ones(3))
    return float(surface_distance.compute_robust_hausdorff(distances, 95.0))


def score(protocol: Protocol, row: Row, pair: studies.PairRow, folder: Path) -> Score:
    """Return the scores of a pair from the files of its folder."""
    found = Score(pair.id, pair.fixed, pair.moving)
    if pair.status not in ("done", "skipped"):
        found.error = f"{pair.error or pair.status}: {pair.message}"
        return found
    result = morphseek.Registration.read(folder)
    found.sdlogj = sdlogj(result)
    found.njd_percent = result.metrics["njd_percent"]
    found.seconds = result.metrics["seconds"]["total"]
    wanted = protocol.labels
    listed = result.metrics.get("labels", [])
    labels = [each for each in listed if wanted is None or each["label"] in wanted]
    found.labels = len(labels)
    if labels:
        found.dice_before, found.dice = (
            float(np.mean([each[f"dice_{when}"] for each in labels]))
            for when in ("before", "after")
        )
        sides = ("fixed", "moving")
        fixed, moving = (images.read(row[f"{side}_labels"], f"{side} labels") for side in sides)
        warped = images.read(folder / "warped_labels.nii.gz", "warped labels")
        numbers = [each["label"] for each in labels]
        found.hd95 = float(np.mean([hd95(fixed.array == k, warped.array == k) for k in numbers]))
        if protocol.both_ways:
            maps = [merge_labels(each, {k: k for k in numbers}) for each in (fixed, moving)]
            found.dice = (found.dice + scoring.inverse_dice(result, *maps)) / 2
    return found


def write_field(folder: Path, row: Row, result: morphseek.Registration) -> None:
    """Write a displacement as Learn2Reg reads it: of indices, so both images need one grid."""
    one, other = result.grid, result.moving_grid
    if one.size != other.size or not np.allclose(one.index_to_physical, other.index_to_physical):
        raise errors.GridMismatchError(
            f"{row['id']}: the two images lie on different grids; a field for Learn2Reg needs one"
            " grid, run without --fields"
        )
    names = [stem(row[side]) for side in ("fixed", "moving")]
    if cases := re.fullmatch(r".*_(\d{4})_(\d{4}) .*_(\d{4})_(\d{4})", " ".join(names)):
        fixed, first, moving, second = cases.groups()
        short = first == second or (first, second) == ("0000", "0001")
        names = [fixed, moving] if short else [fixed, first, moving, second]
    along_xyz = np.ascontiguousarray(result.displacement()[::-1])  # as the axes of the file lie
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"disp_{'_'.join(names)}.nii.gz"
    sitk.WriteImage(sitk.GetImageFromArray(along_xyz, isVector=False), str(path), True)


def summary(scores: list[Score]) -> dict[str, Any]:
    """Return means over the pairs that were registered, and the standard deviation of Dice over
    them; None where there is none.
    """
    done = [each for each in scores if not each.error]
    values = {name: [v for s in done if not math.isnan(v := getattr(s, name))] for name in MEASURES}
    return {
        "pairs": len(scores),
        "failed": len(scores) - len(done),
        "scored": len(values["dice"]),
        **{name: float(np.mean(v)) if v else None for name, v in values.items()},
        "dice_sd": float(np.std(values["dice"])) if values["dice"] else None,
    }


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with None for every number that is not finite."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def write_list(rows: list[Row], folder: Path) -> Path:
    """Write pairs.csv, a list for ``morphseek pairs`` and other programs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pairs.csv"
    columns = list(dict.fromkeys(column for row in rows for column in row))
    whole = [{k: v if k == "id" else Path(v).absolute() for k, v in row.items()} for row in rows]
    write_table(path, columns, whole)
    return path


def write_table(path: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def run(
    name: str,
    data: Path,
    out: Path,
    *,
    pairs: Path | None = None,
    masks: bool = True,
    fields: bool = False,
    **options: Any,
) -> tuple[dict[str, Any], int]:
    """Register the pairs of a protocol and score them as it does: return what protocol.json says,
    and the exit code. A pair that fails is in it, with its error; the others go on.

    Parameters
    ----------
    fields
        Also write displacements as Learn2Reg takes submissions: ``fields/disp_0396_0395.nii.gz``,
        voxels, axes (x, y, z, component).
    **options
        Of :func:`morphseek.register_pairs`.
    """
    rows = protocol_pairs(name, data, pairs=pairs, masks=masks)
    write_list(rows, out)
    study = morphseek.register_pairs(rows, out, **options)
    protocol = PROTOCOLS[name]
    scores = [score(protocol, row, of, out / of.id) for row, of in zip(rows, study.rows)]
    for row, each in zip(rows, scores):
        if fields and not each.error:
            write_field(out / "fields", row, morphseek.Registration.read(out / each.id))
    content = {
        "protocol": name,
        "title": protocol.title,
        "version": morphseek.__version__,
        "options": study.options,
        "summary": finite(summary(scores)),
        "published": [dataclasses.asdict(row) for row in protocol.published],
        "pairs": [finite(dataclasses.asdict(each)) for each in scores],
    }
    columns = [field.name for field in dataclasses.fields(Score)]
    write_table(out / "protocol.csv", columns, content["pairs"])
    text = json.dumps(content, indent=1) + "\n"
    (out / "protocol.json").write_text(text, encoding="utf-8")
    return content, study.exit_code


def show(content: dict[str, Any]) -> None:
    """Print the table: ours, then what others reported."""
    means = content["summary"]
    digits = {"dice": 4, "sdlogj": 4, "njd_percent": 4, "hd95": 2, "seconds": 1}

    def line(method: str, row: dict[str, Any], on: str) -> list[str]:
        cells = [
            "" if row.get(name) is None else f"{row[name]:.{n}f}" for name, n in digits.items()
        ]
        return [method, *cells, on]

    own = f"{means['scored']} scored of {means['pairs']} pairs"
    table = [
        ["method", "Dice", "SDlogJ", "folds, %", "HD95, voxels", "s a pair", "on"],
        line("no registration", {"dice": means["dice_before"]}, own),
        line(f"MorphSeek {content['version']}", means, own),
        *(line(row["method"], row, row["on"]) for row in content["published"]),
    ]
    widths = [max(map(len, column)) for column in zip(*table)]
    print(content["title"])
    for cells in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())
    for source in dict.fromkeys(row["source"] for row in content["published"]):
        print(f"published: {source}")
    for pair in content["pairs"]:
        if pair["error"]:
            print(f"failed, and left out of the means: {pair['id']}: {pair['error']}")
    if not means["scored"]:
        print("note: the data set holds no labels of these pairs, so there is no Dice")


def value(text: str) -> Any:
    """Return an option's value: a number, true or false, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@click.command(context_settings={"show_default": True})
@click.argument("name")
@click.argument("folder", type=Path)
@click.option(
    "--out",
    type=Path,
    required=True,
    help="Folder for one folder a pair, pairs.csv, protocol.csv, protocol.json and index.html.",
)
@click.option(
    "--pairs",
    type=Path,
    help="A list of pairs instead of the data set's own; Mindboggle-101 needs one, with the columns"
    " subject1 (fixed) and subject2 (moving).",
)
@click.option("--list-only", is_flag=True, help="Write pairs.csv, a list for pairs, and no more.")
@click.option("--masks/--no-masks", default=True, help="Use the masks that the data set has.")
@click.option("--fields", is_flag=True, help="Also write displacements for a submission.")
@click.option("--workers", type=int, default=1)
@click.option(
    "--option",
    multiple=True,
    help="NAME=VALUE, an option of morphseek.register, as search=false; may be repeated.",
)
def main(
    name: str,
    folder: Path,
    out: Path,
    pairs: Path | None,
    list_only: bool,
    masks: bool,
    fields: bool,
    workers: int,
    option: tuple[str, ...],
) -> None:
    options = {key: value(text) for key, _, text in (o.partition("=") for o in option)}
    try:
        if list_only:
            print(write_list(protocol_pairs(name, folder, pairs=pairs, masks=masks), out))
            return
        content, code = run(
            name, folder, out, pairs=pairs, masks=masks, fields=fields, workers=workers, **options
        )
    except errors.MorphSeekError as error:
        raise SystemExit(f"protocols.py: {error}") from None
    show(content)
    raise SystemExit(code)


main.help = __doc__

if __name__ == "__main__":
    main()
