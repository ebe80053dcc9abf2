"""Compares point errors with overlap: for each network, alone and refined, the Dice of two people's
labels, and the error of points on known motions of one person's image with one contrast and with
two.

python points.py --data DIR/hippocampus --models none,hippocampus --refine 0,60 --to FOLDER writes
one JSON file per row, prints the table, and with --plot draws it. Rows in the folder are not run
again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import SimpleITK as sitk
import truth
import zoo

import morphseek


def people_of(data: Path, subset: str) -> list[str]:
    """Return the people of a list of pairs, by name."""
    pairs = json.loads((data / "split.json").read_text())["pairs"][subset]
    return sorted({name for pair in pairs for name in pair})


def known_pairs(data: Path, names: list[str], seed: int, n: int, two: bool) -> list[truth.Pair]:
    """Return known motions of `n` of the people, as of zoo.py's hippocampi; every second moving
    image has a grid of its own.
    """
    chosen = np.random.default_rng([seed, 3]).permutation(names)[:n].tolist()
    pairs = []
    for k, name in enumerate(chosen):
        image = sitk.ReadImage(str(data / "images" / f"{name}.nii.gz"), sitk.sitkFloat32)
        rng = np.random.default_rng([seed, 3, k])  # one motion for both contrasts
        pairs.append(truth.moved(image, zoo.HIPPOCAMPUS, two, k % 2 == 1, rng, name))
    return pairs


def point_errors(pairs: list[truth.Pair], options: dict[str, Any]) -> dict[str, Any]:
    """Return the mean error in mm of each pair's points, the errors before registration, and how
    many results had a warning about their contrasts.
    """
    before, after, warned = [], [], 0
    for pair in pairs:
        result = morphseek.register(pair.fixed, pair.moving, threads=1, device="cpu", **options)
        found = result.transform.to_sitk()
        points = np.array([found.TransformPoint(point) for point in pair.fixed_points.tolist()])
        before.append(np.linalg.norm(pair.fixed_points - pair.moving_points, axis=1).mean())
        after.append(np.linalg.norm(points - pair.moving_points, axis=1).mean())
        warned += any("contrast" in text for text in result.metrics["warnings"])
    return {
        "before": float(np.mean(before)),
        "mean": float(np.mean(after)),
        "sd": float(np.std(after)),
        "warned": warned,
        "each": [float(x) for x in after],
    }


def measured(
    data: Path, subset: str, options: dict[str, Any], seeds: list[int], n: int
) -> dict[str, Any]:
    """Return a row: Dice over the pairs of the list, and points over the known motions."""
    began = time.process_time()
    pairs = [tuple(p) for p in json.loads((data / "split.json").read_text())["pairs"][subset]]
    study = morphseek.register_pairs(pairs, data=data, score=True, threads=1, **options)
    overlap = study.summary()
    row: dict[str, Any] = {
        "dice": overlap["dice_after"],
        "inverse": overlap["dice_inverse"],
        "sdlogj": overlap["sdlogj"],
    }
    names = people_of(data, subset)
    for key, two in (("one", False), ("two", True)):
        known = [p for seed in seeds for p in known_pairs(data, names, seed, n, two)]
        row[key] = point_errors(known, options)
    return row | {"cpu_s": time.process_time() - began}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| network, refinement | Dice | by the inverse | points, mm | two contrasts, mm | SDlogJ |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['dice']:.3f} | {row['inverse']:.3f} | {row['one']['mean']:.2f}"
            f" ({row['one']['sd']:.2f}) | {row['two']['mean']:.2f} ({row['two']['sd']:.2f})"
            f" | {row['sdlogj']:.2f} |"
        )
    return "\n".join(lines)


def plot(rows: dict[str, dict[str, Any]], to: Path) -> None:
    """Draw Dice over the error of points: one line per refinement, for one contrast and for two."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
    for axis, key, title in zip(
        axes, ("one", "two"), ("one contrast", "two contrasts"), strict=True
    ):
        for refine, colour in (("alone", "tab:blue"), ("refined", "tab:orange")):
            found = {
                name: row
                for name, row in rows.items()
                if (refine == "alone") == ("refine" not in name)
            }
            axis.scatter(
                [row[key]["mean"] for row in found.values()],
                [row["dice"] for row in found.values()],
                color=colour,
                label=refine,
                s=18,
            )
            for name, row in found.items():
                axis.annotate(
                    name.split(",")[0],
                    (row[key]["mean"], row["dice"]),
                    fontsize=6,
                    xytext=(3, 3),
                    textcoords="offset points",
                )
        axis.set(xlabel="error of points, mm", title=title)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("Dice, two people")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(to, dpi=110)


@click.command(context_settings={"show_default": True})
@click.option(
    "--data", type=Path, required=True, help="The hippocampi: images, labels, split.json."
)
@click.option("--to", type=Path, required=True, help="Folder of the rows.")
@click.option("--models", default="none", help="Names or bundles, commas between.")
@click.option("--refine", default="0,60", help="Iterations after a network.")
@click.option("--subset", default="test", help="Pair list.")
@click.option("--seeds", default="2", help="Of the known motions.")
@click.option("--n", default=15, help="People a seed.")
@click.option("--plot", "picture", type=Path, help="Draw here.")
def main(
    data: Path,
    to: Path,
    models: str,
    refine: str,
    subset: str,
    seeds: str,
    n: int,
    picture: Path | None,
) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for model in models.split(","):
        for iterations in [0] if model == "none" else [int(text) for text in refine.split(",")]:
            name = Path(model).stem + (f", refine {iterations}" if iterations else "")
            if (to / f"{name}.json").exists():
                continue
            options: dict[str, Any] = {"model": model}
            if model != "none":
                options["refine"] = iterations
            row = measured(data, subset, options, [int(s) for s in seeds.split(",")], n)
            (to / f"{name}.json").write_text(json.dumps(row, indent=1))
    rows = {path.stem: json.loads(path.read_text()) for path in sorted(to.glob("*.json"))}
    print(table(rows))
    if picture is not None:
        plot(rows, picture)


if __name__ == "__main__":
    main()
