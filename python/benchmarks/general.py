"""Measures whether a network that was trained only on made-up pairs replaces the search on unseen
kinds of pairs, as a curve over the CPU minutes of its training.

morphseek train finetune general.toml --out RUN makes the checkpoints. python general.py --run RUN
--out FOLDER --data DIR exports those nearest to --minutes, registers pairs of zoo.py through the
engine, appends a line per pair and method to FOLDER/rows.jsonl and prints the table. Rows in the
file are not run again; --for 0 runs nothing.

A bundle has one spacing, but a network for any body has none. So each pair gets a copy of the
bundle whose spacing fits the fixed image's longest side to the training grid.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import truth
import zoo
from intervals import DRAWS, interval
from numpy.typing import NDArray
from rows import Row, Task, collect, read

import morphseek
from morphseek._streams import open_streams
from morphseek.errors import MorphSeekError
from morphseek.scoring.statistics import signed_rank_p

Floats = NDArray[np.float64]

KINDS = [
    "hippocampus",
    "hippocampus, two contrasts",
    "torso CT",
    "torso MR <- CT",
    "head template",
    "head template, two contrasts",
    "torso CT, two contrasts",
    "torso MR, bias",
    "torso CT, cropped",
    "torso MR <- CT, resection",
    "abdomen CT",
    "abdomen CT, two contrasts",
    "hippocampus, two people",
    "abdomen CT, two people",
    "abdomen MR <- CT, two people",
]
"""None comes from the training's generator: torsos come from morphseek.phantom, the others are
real images. About half of them have two contrasts.
"""

ALONE: Row = {"search": False, "refine": 0}
ENGINE: dict[str, Row] = {
    "affine": {"model": "none", **ALONE},
    "search": {"model": "none", "search": True, "refine": 0},
    "plan": {"model": "none"},
}
"""Methods without a network; the plan is the defaults."""

SMALL = 1 << 19
"""Voxels of the fixed image below which the plan refines twice as long."""


def exported(run: Path, out: Path, wanted: list[str]) -> dict[str, tuple[Path, float]]:
    """Export the checkpoints of a run that are nearest to the `wanted` CPU minutes that it has
    reached: for each the bundle, and its own minutes. 0 is the network before the first step.
    """
    kept = out / "bundles" / "minutes.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    lacking = [m for m in wanted if m not in known]
    if lacking:
        import torch

        from morphseek.training.backbones import build_backbone
        from morphseek.training.config import Config
        from morphseek.training.export import export_bundle
        from morphseek.training.run.checkpoint import load_backbone

        found = {
            path: torch.load(path, map_location="cpu", weights_only=True, mmap=True)["cpu_seconds"]
            for path in run.glob("iteration-*.pt")
        }
        for minutes in lacking:
            if float(minutes) == 0:
                config = Config.from_dict(json.loads((run / "config.json").read_text()))
                torch.manual_seed(config.run.seed)
                backbone, seconds = build_backbone(config.model).eval(), 0.0
            elif found and max(found.values()) >= 57 * float(minutes):
                nearest = min(found, key=lambda path: abs(found[path] - 60 * float(minutes)))
                (backbone, config, _), seconds = load_backbone(nearest), found[nearest]
            else:
                click.echo(f"left out: {run} has not reached {minutes} minutes", err=True)
                continue
            export_bundle(backbone, config, kept.parent / f"{minutes}.onnx")
            click.echo(f"{minutes}.onnx: {backbone.parameter_count()} parameters")
            known[minutes] = seconds / 60
            kept.write_text(json.dumps(known))
    return {m: (kept.parent / f"{m}.onnx", known[m]) for m in wanted if m in known}


def fitted_to(bundle: Path, pair: truth.Pair, to: Path) -> Path:
    """Write a copy of a bundle whose grid, as large as in the training, covers the fixed image's
    longest side, and return its path.
    """
    import onnx

    from morphseek.training.export.manifest import MANIFEST_KEY

    model = onnx.load(str(bundle))
    (entry,) = [e for e in model.metadata_props if e.key == MANIFEST_KEY]
    manifest = json.loads(entry.value)
    longest = max(np.array(pair.fixed.GetSize()) * pair.fixed.GetSpacing())
    manifest["spacing_mm"] = [float(longest) / max(manifest["min_size"])] * 3
    entry.value = json.dumps(manifest)
    to.write_bytes(model.SerializeToString(deterministic=True))
    return to


def methods(bundles: dict[str, tuple[Path, float]]) -> dict[str, Row]:
    """Return the options of every method by its name; a path as model is to be fitted to a pair."""
    found = dict(ENGINE)
    for minutes, (bundle, _) in bundles.items():
        found[f"network {minutes}"] = {"model": bundle, **ALONE}
        found[f"network {minutes}, T = 1"] = {"model": bundle, **ALONE, "steps": 1}
        found[f"network {minutes}, refined"] = {"model": bundle, "search": False}
    return found


def run_one(pair: truth.Pair, options: Row) -> Row:
    """Register a pair, one thread, and return the mean error at its points, mm, and Dice, where it
    has points or labels. A failure has the scores from before.
    """
    began, options, transform = time.process_time(), dict(options), None
    with tempfile.TemporaryDirectory() as scratch:
        if isinstance(options["model"], Path):
            options["model"] = fitted_to(options["model"], pair, Path(scratch) / "model.onnx")
            if "refine" not in options:  # after a network the engine leaves it out
                options["refine"] = 60 if pair.fixed.GetNumberOfPixels() < SMALL else 30
        try:
            how = {"threads": 1, "device": "cpu", **options}
            transform = morphseek.register(pair.fixed, pair.moving, **how).transform.to_sitk()
            status = "ok"
        except MorphSeekError as error:
            status = f"failed: {error}"
    row: Row = {"cpu_seconds": time.process_time() - began, "status": status}
    found = zoo.score(pair, transform)
    return row | {k: v["mean"] if k == "error" else v for k, v in found.items() if k != "hd95"}


def tasks(chosen: list[zoo.Kind], seeds: list[int], asked: dict[str, Row]) -> Iterator[Task]:
    """Yield the methods of every pair. All kinds of a seed come before the next seed."""
    for seed in seeds:
        for kind in chosen:
            for pair in kind.make(seed):
                for name, options in asked.items():
                    head = {"kind": kind.name, "seed": seed, "pair": pair.name, "method": name}
                    yield head, lambda p=pair, o=options: run_one(p, o)


def by_kind(rows: list[Row], names: list[str], what: str) -> dict[str, Floats]:
    """Return for each method the means of each kind, over the pairs on which every method was run:
    of "dice", or of "error" the geometric mean of its share of the affine's.
    """
    pairs: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        pairs.setdefault((row["kind"], row["seed"], row["pair"]), {})[row["method"]] = row
    kinds: dict[str, list[list[float]]] = {}
    for (kind, _, _), of in pairs.items():
        if set(names) <= of.keys() and what in of["affine"]:
            values = np.array([of[name][what] for name in names])
            one = values if what == "dice" else np.log(values / of["affine"][what])
            kinds.setdefault(kind, []).append(one.tolist())
    means = np.array([np.mean(of, axis=0) for of in kinds.values()]).reshape(-1, len(names))
    return dict(zip(names, (means if what == "dice" else np.exp(means)).T, strict=True))


def extrapolated(minutes: Floats, shares: Floats, goal: Floats) -> tuple[Floats, Floats]:
    """Fit the line ln share = a + b ln minutes, and return when it reaches the goal.

    Parameters
    ----------
    minutes : (n,)
        Above 0, with at least two different values.
    shares : (n, kinds)
    goal : (kinds,)

    Returns
    -------
    line : (b, a)
        Of the mean over kinds.
    at : (3,)
        Minutes, and their 95 % interval by bootstrap over kinds; infinite where the line does not
        fall.
    """

    def reached(kinds: NDArray[np.intp]) -> tuple[Floats, float]:
        b, a = np.polyfit(np.log(minutes), np.log(shares[:, kinds]).mean(1), 1)
        exponent = (np.log(goal[kinds]).mean() - a) / b if b < 0 else np.inf
        return np.array([b, a]), float(np.exp(exponent)) if exponent < 700 else np.inf

    line, at = reached(np.arange(len(goal)))
    draws = np.random.default_rng(0).integers(len(goal), size=(DRAWS, len(goal)))
    ends = np.quantile([reached(d)[1] for d in draws], [0.025, 0.975], method="nearest")
    return line, np.array([at, *ends])


def summary(share: dict[str, Floats], dice: dict[str, Floats]) -> str:
    """Return one Markdown row per method: the error over the affine's, as geometric mean over kinds
    with its interval, and Dice; both with Wilcoxon's p against the search over kinds.
    """
    lines = [
        "| method | error, % of the affine's (95 %) | p | Dice (95 %) | p |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in share:
        log, overlap = np.log(share[name]), dice[name]
        low, high = np.exp(interval(log))
        least, most = interval(overlap)
        apart = log - np.log(share["search"]), overlap - dice["search"]
        tests = ["" if name == "search" else f"{signed_rank_p(a):.2g}" for a in apart]
        lines.append(
            f"| {name} | {100 * np.exp(log.mean()):.0f} ({100 * low:.0f} to {100 * high:.0f})"
            f" | {tests[0]} | {overlap.mean():.3f} ({least:.3f} to {most:.3f}) | {tests[1]} |"
        )
    return "\n".join(lines) + "\n"


@click.command(context_settings={"show_default": True})
@click.option("--run", type=Path, required=True, help="Folder of morphseek train: iteration-N.pt.")
@click.option("--out", type=Path, required=True, help="Folder of bundles and rows.")
@click.option("--data", type=Path, help="Folder of real images, as for zoo.py.")
@click.option("--minutes", default="0,5,10,20,40", help="CPU minutes of training to measure at.")
@click.option("--kinds", multiple=True, help="As for zoo.py.")
@click.option("--seeds", default="1,2", help="As for zoo.py.")
@click.option("--size", default=48, type=click.IntRange(16), help="As for zoo.py.")
@click.option("--for", "for_", default=600.0, help="Start none after so many minutes.")
def main(
    run: Path, out: Path, data: Path | None, minutes: str, kinds: tuple[str, ...], seeds: str,
    size: int, for_: float,
) -> None:  # fmt: skip
    """Run the registrations that the folder lacks, and print the curve."""
    bundles = exported(run, out, minutes.split(","))
    asked = methods(bundles)
    every = zoo.kinds(zoo.Settings(size, 1, data, out / "pairs"))
    wanted = kinds or [f"={kind}" for kind in KINDS if kind in every]
    chosen = zoo.choose(every, wanted, lambda text: click.echo(text, err=True))
    path = out / "rows.jsonl"
    todo = tasks(chosen, [int(seed) for seed in seeds.split(",")], asked)
    for row in collect(path, todo, for_) if for_ else []:
        found = " | ".join(f"{row[k]:.3f}" for k in ("error", "dice") if k in row)
        click.echo(f"{row['kind']} | {row['pair']} | {row['method']} | {found} | {row['status']}")
    share, dice = (by_kind(read(path), list(asked), what) for what in ("error", "dice"))
    if not len(share["affine"]) or not len(dice["affine"]):
        raise click.BadParameter(
            f"{path} has no pair that every method was run on, with points and with labels; give"
            " it more --for",
            param_hint="--out",
        )
    click.echo(f"\n{len(share['affine'])} kinds with points, {len(dice['affine'])} with labels\n")
    click.echo(summary(share, dice))
    trained = {m: reached for m, (_, reached) in bundles.items() if reached > 0}
    if len(trained) > 1:
        shares = np.array([share[f"network {m}"] for m in trained])
        (b, a), at = extrapolated(np.array(list(trained.values())), shares, share["search"])
        click.echo(
            f"ln(error / affine) = {a:.3f} {b:+.3f} ln(minutes); the search's after"
            f" {at[0]:.3g} CPU minutes ({at[1]:.3g} to {at[2]:.3g})"
        )


if __name__ == "__main__":
    open_streams()
    main()
