"""Counts how often the verdict is right, for pairs that belong together and pairs that do not.

python verdicts.py --data hippocampus=DIR/hippocampus --data brain=DIR/brain \\
  --data ct=DIR/abdomen:pairs_ct --data mrct=DIR/abdomen:pairs_mr_from_ct --json verdicts.json

The pairs of a data set's list belong together (`peers.py` describes a folder). Pairs that do not
have as moving image noise, smooth noise, an image of another data set, or their own image with one
axis reversed but the same header. Rows in the file are not run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pairs
import scoring
import SimpleITK as sitk

import morphseek
from morphseek import _files

Row = dict[str, Any]
Change = Callable[[sitk.Image, np.random.Generator], sitk.Image]

GRADES = ("good", "check", "failed")
RIGHT = "together"
"""The name of the kind of pairs that belong together."""

SMOOTH = 3.0
"""Voxels, standard deviation: smooth noise."""


def noise(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    """Return white noise on the grid of an image."""
    values = rng.normal(100, 20, image.GetSize()[::-1]).astype(np.float32)
    made = sitk.GetImageFromArray(values)
    made.CopyInformation(image)
    return made


def smooth_noise(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    """Return noise as smooth as tissue on the grid of an image."""
    made = noise(image, rng)
    sigma = [SMOOTH * s for s in image.GetSpacing()]
    return sitk.SmoothingRecursiveGaussian(made, sigma)


def reversed_along(axis: int) -> Change:
    """Return a function that reverses the voxels along an axis and keeps the header."""

    def change(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
        values = np.flip(sitk.GetArrayFromImage(image), 2 - axis)
        made = sitk.GetImageFromArray(np.ascontiguousarray(values))
        made.CopyInformation(image)
        return made

    return change


CHANGES: dict[str, tuple[Change | None, Change]] = {  # of the fixed image, of the moving one
    "noise": (noise, noise),
    "smooth noise": (smooth_noise, smooth_noise),
    "first axis reversed": (None, reversed_along(0)),
    "second axis reversed": (None, reversed_along(1)),
    "third axis reversed": (None, reversed_along(2)),
}


def image(data: pairs.DataSet, name: str) -> sitk.Image:
    return sitk.ReadImage(str(data.image(name)), sitk.sitkFloat32)


def jobs(
    sets: list[pairs.DataSet], count: int
) -> Iterator[tuple[str, str, str, Callable[[], tuple[sitk.Image, sitk.Image]]]]:
    """Yield kind, data set, name and a function that reads the images, for every pair: all pairs of
    a list, and the first `count` changed into each kind that does not belong together.
    """
    for number, data in enumerate(sets):
        for fixed, moving in data.pairs:
            name = f"{fixed} <- {moving}"
            yield (
                RIGHT,
                data.name,
                name,
                lambda d=data, f=fixed, m=moving: (image(d, f), image(d, m)),
            )
        for index, (fixed, moving) in enumerate(data.pairs[:count]):
            name = f"{fixed} <- {moving}"
            for kind, (of_fixed, of_moving) in CHANGES.items():

                def make(
                    d: pairs.DataSet = data,
                    f: str = fixed,
                    m: str = moving,
                    of_fixed: Change | None = of_fixed,
                    of_moving: Change = of_moving,
                    seed: int = 1000 * number + index,
                ) -> tuple[sitk.Image, sitk.Image]:
                    rng = np.random.default_rng(seed)
                    a, b = image(d, f), image(d, m)
                    return (a if of_fixed is None else of_fixed(a, rng)), of_moving(b, rng)

                yield kind, data.name, name, make
            other = sets[(number + len(sets) // 2) % len(sets)]
            if other is not data:
                stranger = other.pairs[index % len(other.pairs)][1]
                yield (
                    "another organ",
                    data.name,
                    f"{fixed} <- {stranger}",
                    lambda d=data, o=other, f=fixed, s=stranger: (image(d, f), image(o, s)),
                )


def register(data: pairs.DataSet | None, fixed: sitk.Image, moving: sitk.Image, name: str) -> Row:
    """Register a pair with the default options; return its verdict and, with data, its Dice."""
    began = time.process_time()
    result = morphseek.register(fixed, moving, threads=1)
    verdict = result.verdict
    assert verdict is not None
    row: Row = {
        "grade": verdict.grade,
        "reasons": list(verdict.reasons),
        "error_mm": verdict.error_mm,
        "referee": result.metrics["referee"],
        "jacobian": [result.metrics["jacobian_min"], result.metrics["jacobian_max"]],
        "cpu_seconds": time.process_time() - began,
    }
    if data is not None:
        f, m = name.split(" <- ")
        field = sitk.Cast(result.transform.displacement_image(), sitk.sitkVectorFloat64)
        row["dice"] = scoring.score(data.labels(f), data.labels(m), field)["mean_dice"]
    return row


def table(rows: list[Row]) -> str:
    """Return how many pairs of each kind got which grade, and the pairs with a wrong verdict."""
    lines = ["| pairs | n | good | check | failed |", "|---|---:|---:|---:|---:|"]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        of = f"{row['set']}, {RIGHT}" if row["kind"] == RIGHT else row["kind"]
        groups.setdefault(of, []).append(row)
    for of, group in groups.items():
        counts = [sum(r["grade"] == grade for r in group) for grade in GRADES]
        lines.append(f"| {of} | {len(group)} | " + " | ".join(map(str, counts)) + " |")
    wrong = [r for r in rows if (r["kind"] == RIGHT) != (r["grade"] == "good")]
    wrong = [r for r in wrong if r["kind"] == RIGHT or r["grade"] != "failed"]
    for row in wrong:
        dice = f", Dice {row['dice']:.3f}" if "dice" in row else ""
        lines.append(
            f"\n- {row['kind']}, {row['set']}, {row['pair']}{dice}: {row['grade']}. "
            + " ".join(row["reasons"])
        )
    return "\n".join(lines)


@click.command(context_settings={"show_default": True})
@click.option("--data", required=True, multiple=True, help="NAME=FOLDER or NAME=FOLDER:SUBSET.")
@click.option("--json", "out", type=Path, required=True, help="Rows; read first, if it is there.")
@click.option("--n", default=3, help="Pairs of each set that are changed.")
@click.option("--pairs", "count", type=int, help="Pairs of each set.")
def main(data: tuple[str, ...], out: Path, n: int, count: int | None) -> None:
    """Count the verdicts of pairs that belong together and of pairs that do not."""
    sets = [pairs.read(spec, count, False) for spec in data]
    rows: list[Row] = json.loads(out.read_text()) if out.exists() else []
    done = {(r["kind"], r["set"], r["pair"]) for r in rows}
    by_name = {d.name: d for d in sets}
    for kind, of, name, make in jobs(sets, n):
        if (kind, of, name) in done:
            continue
        fixed, moving = make()
        row = register(by_name[of] if kind == RIGHT else None, fixed, moving, name)
        rows.append({"kind": kind, "set": of, "pair": name, **row})
        _files.write_text(out, json.dumps(rows) + "\n")
        print(f"{kind}, {of}, {name}: {row['grade']}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
