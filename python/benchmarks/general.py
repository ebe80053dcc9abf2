"""Measures whether a network that was trained only on made-up pairs replaces the search on unseen
kinds of pairs, as a curve over the CPU minutes of its training.

morphseek train finetune general.toml --out RUN makes the checkpoints. python general.py --run RUN
--out FOLDER --data DIR exports those nearest to --minutes, registers pairs of zoo.py through the
engine, appends one JSON line per pair and method to FOLDER/rows.jsonl, prints the tables and draws
FOLDER/general.png. Rows in the file are not run again; --for 0 runs nothing.

A bundle has one spacing, but a network for any body has none. So each pair gets a copy of the
bundle whose spacing fits the fixed image's longest side to the training grid.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import choices
import click
import numpy as np
import truth
import zoo
from intervals import DRAWS, interval
from numpy.typing import NDArray

import morphseek
from morphseek._streams import open_streams
from morphseek.errors import MorphSeekError
from morphseek.scoring.statistics import signed_rank_p

Row = dict[str, Any]

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

ENGINE: dict[str, Row] = {
    "affine": {"model": "none", "search": False, "refine": 0},
    "refinement": {"model": "none", "search": False},
    "search": {"model": "none", "search": True, "refine": 0},
    "plan": {"model": "none"},
}
"""Methods without a network. The plan is the defaults: search, if the plan chooses it, and
refinement.
"""

ALONE: Row = {"search": False, "refine": 0}
"""Nothing after a network."""

UNSEEN = 10_000_000
"""Number of the first made-up pair that no training uses."""

CONFIG = Path(__file__).with_name("general.toml")

SMALL = 1 << 19
"""Voxels of the fixed image below which the plan refines twice as long."""

GPU_TFLOPS = 10.0
"""Assumed speed of an H100 on such small grids: a hundredth of its nominal peak."""

GPU_CORES = 15
"""Number of CPU cores that make pairs for the GPU."""


# ------------------------------------------------------------------------------------- The bundles


@dataclasses.dataclass(frozen=True)
class Point:
    """A checkpoint of the run, as a bundle.

    Attributes
    ----------
    minutes : float
        CPU time of the training up to the checkpoint.
    pairs, pair_steps : int
        Number of pairs, and of steps taken with them.
    away : dict
        For each T the distance of the engine's field to PyTorch's (:func:`disagreement`); only for
        trained networks.
    """

    bundle: Path
    minutes: float
    iteration: int
    pairs: int
    pair_steps: int
    away: dict[str, float] = dataclasses.field(default_factory=dict)


def exported(run: Path, out: Path, wanted: list[float]) -> list[Point]:
    """Export the checkpoints of a run that are nearest to the `wanted` minutes that it has reached.
    Minute 0 is the network before the first step.
    """
    kept = out / "bundles" / "points.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Row] = json.loads(kept.read_text()) if kept.exists() else {}
    lacking = [m for m in wanted if f"{m:g}" not in known]
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
            bundle = kept.parent / f"{minutes:g}.onnx"
            if minutes == 0:
                config = Config.from_dict(json.loads((run / "config.json").read_text()))
                torch.manual_seed(config.run.seed)
                backbone, state = build_backbone(config.model).eval(), {}
            elif found and max(found.values()) >= 57 * minutes:
                nearest = min(found, key=lambda path: abs(found[path] - 60 * minutes))
                backbone, config, state = load_backbone(nearest)
            else:
                click.echo(f"left out: {run} has not reached {minutes:g} minutes", err=True)
                continue
            export_bundle(backbone, config, bundle)
            n = config.optim.accumulate
            known[f"{minutes:g}"] = {
                "minutes": state.get("cpu_seconds", 0.0) / 60,
                "iteration": state.get("iteration", 0),
                "pairs": n * state.get("iteration", 0),
                "pair_steps": n * state.get("updates", 0),
            }
            if state:
                point = Point(bundle, **known[f"{minutes:g}"])
                known[f"{minutes:g}"]["away"] = disagreement(point, run)
            kept.write_text(json.dumps(known, indent=1))
    return [
        Point(kept.parent / f"{m:g}.onnx", **known[f"{m:g}"]) for m in wanted if f"{m:g}" in known
    ]


def spaced(bundle: Path, spacing: float, to: Path) -> Path:
    """Write a copy of a bundle whose network grid has cells of `spacing` mm, and return its
    path.
    """
    import onnx

    from morphseek.training.export.manifest import MANIFEST_KEY

    model = onnx.load(str(bundle))
    (entry,) = [e for e in model.metadata_props if e.key == MANIFEST_KEY]
    entry.value = json.dumps({**json.loads(entry.value), "spacing_mm": [spacing] * 3})
    to.write_bytes(model.SerializeToString(deterministic=True))
    return to


def cells(bundle: Path) -> int:
    """Return the side of the grid that a bundle was trained on."""
    from morphseek.training.export.manifest import read_manifest

    return int(max(read_manifest(bundle)["min_size"]))


def disagreement(point: Point, run: Path, n: int = 6) -> dict[str, float]:
    """Return for T = 1 and 3 the distance between the bundle's field in the engine and the
    checkpoint's in PyTorch: the mean in voxels, the worst of `n` made-up pairs that training never
    saw.
    """
    import SimpleITK as sitk
    import torch
    from torch import Tensor

    from morphseek.training.evaluate import register_sample
    from morphseek.training.run import load_backbone
    from morphseek.training.synthetic import SyntheticSource

    backbone, config, _ = load_backbone(run / f"iteration-{point.iteration}.pt")
    backbone.eval()
    source = SyntheticSource(
        config.synthetic, config.data.min_size, config.data.labels, config.run.seed, 9
    )

    def image(values: Tensor) -> sitk.Image:
        made = sitk.GetImageFromArray(values[0, 0].numpy())
        made.SetSpacing(config.data.spacing[::-1])
        return made

    worst = {1: 0.0, 3: 0.0}
    for number in range(n):
        pair = source.sample(UNSEEN + number)
        with torch.no_grad():
            fields = register_sample(backbone, pair, 3)
        for steps in worst:
            found = morphseek.register(
                image(pair.fixed),
                image(pair.moving),
                model=point.bundle,
                initial="none",
                steps=steps,
                threads=1,
                device="cpu",
                **ALONE,
            )
            away = fields[steps - 1][0].numpy() - found.displacement()
            worst[steps] = max(worst[steps], float(np.linalg.norm(away, axis=0).mean()))
    return {str(steps): value for steps, value in worst.items()}


def work(config_file: Path) -> Row:
    """Return the cost of a training step: the network's parameters, the floating-point operations
    of a pair's step forward and backward, and the CPU seconds to make a pair.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from morphseek.training.backbones import build_backbone
    from morphseek.training.config import load
    from morphseek.training.step import StepObjective
    from morphseek.training.synthetic import SyntheticSource

    config = load(config_file)
    size = config.data.min_size
    source = SyntheticSource(config.synthetic, size, config.data.labels, config.run.seed, 9)
    began = time.process_time()
    pairs = [source.sample(i) for i in range(8)]
    seconds = (time.process_time() - began) / len(pairs)
    backbone = build_backbone(config.model)
    step = StepObjective(backbone, config.loss, config.policy, config.run.stage, False)
    with FlopCounterMode(display=False) as counter:
        step(pairs[0], torch.zeros(1, 3, *size)).loss.backward()
    return {
        "parameters": backbone.parameter_count(),
        "flop": counter.get_total_flops(),
        "pair_seconds": seconds,
    }


# ------------------------------------------------------------------------------------- Registering


def run_one(pair: truth.Pair, options: Row) -> Row:
    """Register a pair, one thread, and return what zoo.py scores and the CPU seconds. A failure
    has the scores from before.
    """
    began = time.process_time()
    try:
        result = morphseek.register(pair.fixed, pair.moving, threads=1, device="cpu", **options)
    except MorphSeekError as error:
        return {
            **scores(zoo.score(pair, None)),
            "cpu_seconds": time.process_time() - began,
            "status": f"failed: {error}",
        }
    seconds = time.process_time() - began
    return {
        **scores(zoo.score(pair, result.transform.to_sitk())),
        "njd_percent": float(result.metrics["njd_percent"]),
        "cpu_seconds": seconds,
        "status": "ok",
    }


def scores(found: Row) -> Row:
    """Return the mean error at the points, mm, and Dice, if the pair has points or labels."""
    return {
        **({"error": found["error"]["mean"]} if "error" in found else {}),
        **({"dice": found["dice"]} if "dice" in found else {}),
    }


def methods(points: list[Point]) -> dict[str, tuple[Path | None, Row]]:
    """Return every method by name: a bundle or None, and the options."""
    found: dict[str, tuple[Path | None, Row]] = {k: (None, v) for k, v in ENGINE.items()}
    for point in points:
        minutes = point.bundle.stem
        found[f"network {minutes}"] = point.bundle, ALONE
        found[f"network {minutes}, T = 1"] = point.bundle, {**ALONE, "steps": 1}
        found[f"network {minutes}, refined"] = point.bundle, {"search": False}
    return found


def collect(
    path: Path,
    chosen: list[zoo.Kind],
    seeds: list[int],
    asked: dict[str, tuple[Path | None, Row]],
    until: float,
) -> Iterator[Row]:
    """Run the registrations that the file lacks, append their rows, and yield each; stop at `until`
    (:func:`time.monotonic`). All kinds of a seed come before the next seed.
    """
    kept = choices.resume(path)
    done = {(row["kind"], row["seed"], row["pair"], row["method"]) for row in kept}
    with path.open("a", encoding="utf-8") as file, tempfile.TemporaryDirectory() as scratch:
        for seed in seeds:
            for kind in chosen:
                for pair in kind.make(seed):
                    size = np.array(pair.fixed.GetSize())
                    for name, (bundle, options) in asked.items():
                        if (kind.name, seed, pair.name, name) in done:
                            continue
                        if time.monotonic() > until:
                            return
                        extra: Row = {}
                        if bundle is not None:
                            spacing = float(max(size * pair.fixed.GetSpacing())) / cells(bundle)
                            extra["model"] = spaced(bundle, spacing, Path(scratch) / bundle.name)
                            if "refine" not in options:  # after a network the engine leaves it out
                                extra["refine"] = 60 if size.prod() < SMALL else 30
                        row = {
                            "kind": kind.name,
                            "seed": seed,
                            "pair": pair.name,
                            "method": name,
                            **run_one(pair, {**options, **extra}),
                            "version": morphseek.__version__,
                        }
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                        yield row


# ------------------------------------------------------------------------------------- The figures


@dataclasses.dataclass(frozen=True)
class Table:
    """Means of each kind over the pairs on which every method was run.

    Attributes
    ----------
    share : dict of ndarray
        For each method, by kind with points: the geometric mean of the error over the affine's.
    error : dict of ndarray
        The mean error in mm, for the same kinds.
    dice : dict of ndarray
        For each method, by kind with labels: the mean Dice.
    """

    kinds: list[str]
    labelled: list[str]
    pairs: int
    share: dict[str, NDArray[np.float64]]
    error: dict[str, NDArray[np.float64]]
    dice: dict[str, NDArray[np.float64]]


def table_of(rows: list[Row], names: list[str]) -> Table:
    """Average the rows by kind; `names` must contain the affine's."""
    pairs: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        pairs.setdefault((row["kind"], row["seed"], row["pair"]), {})[row["method"]] = row
    whole = {k: v for k, v in pairs.items() if all(name in v for name in names)}

    def by_kind(measure: str) -> dict[str, list[dict[str, Row]]]:
        found: dict[str, list[dict[str, Row]]] = {}
        for (kind, _, _), of in whole.items():
            if measure in of["affine"]:
                found.setdefault(kind, []).append(of)
        return found

    pointed, labelled = by_kind("error"), by_kind("dice")

    def mean(groups: dict[str, list[dict[str, Row]]], name: str, key: str) -> NDArray[np.float64]:
        return np.array([np.mean([of[name][key] for of in g]) for g in groups.values()])

    def share(name: str) -> NDArray[np.float64]:
        ratios = [
            [np.log(of[name]["error"] / of["affine"]["error"]) for of in g]
            for g in pointed.values()
        ]
        return np.exp([np.mean(ratio) for ratio in ratios])

    return Table(
        list(pointed),
        list(labelled),
        len(whole),
        {name: share(name) for name in names},
        {name: mean(pointed, name, "error") for name in names},
        {name: mean(labelled, name, "dice") for name in names},
    )


def fitted(minutes: NDArray[np.float64], share: NDArray[np.float64]) -> tuple[float, float]:
    """Return a and b of the least-squares line ln share = a + b ln minutes.

    Parameters
    ----------
    minutes : (n,)
        Above 0, with at least two different values.
    share : (n,)
        Error over the affine's.
    """
    x, y = np.log(minutes), np.log(share)
    b = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return float(y.mean() - b * x.mean()), b


def minutes_to(line: tuple[float, float], share: float) -> float:
    """Return the minutes at which the line reaches a share; infinite if it does not fall."""
    a, b = line
    if b >= 0:
        return float("inf")
    exponent = (np.log(share) - a) / b
    return float(np.exp(exponent)) if exponent < 700 else float("inf")


def extrapolated(
    minutes: NDArray[np.float64], shares: NDArray[np.float64], goal: NDArray[np.float64]
) -> tuple[tuple[float, float], float, float, float]:
    """Fit the mean over kinds, and return when it reaches the goal.

    Parameters
    ----------
    minutes : (n,)
    shares : (n, kinds)
    goal : (kinds,)

    Returns
    -------
    line : (a, b)
        From :func:`fitted`, of the geometric mean over kinds.
    at, low, high : float
        Minutes, and their 95 % interval by bootstrap over kinds; infinite if the line of a sample
        does not fall.
    """
    logs, aim = np.log(shares), np.log(goal)
    line = fitted(minutes, np.exp(logs.mean(1)))
    draws = np.random.default_rng(0).integers(len(aim), size=(DRAWS, len(aim)))
    times = [
        minutes_to(fitted(minutes, np.exp(logs[:, d].mean(1))), float(np.exp(aim[d].mean())))
        for d in draws
    ]
    low, high = np.quantile(times, [0.025, 0.975], method="nearest")
    return line, minutes_to(line, float(np.exp(aim.mean()))), float(low), float(high)


def summary(t: Table) -> str:
    """Return one Markdown row per method: the error over the affine's, as geometric mean over kinds
    with its interval, and Dice; both with Wilcoxon's p against the search over kinds.
    """
    lines = [
        "| method | error, % of the affine's (95 %) | p | Dice (95 %) | p |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, share in t.share.items():
        log, dice = np.log(share), t.dice[name]
        low, high = np.exp(interval(log))
        least, most = interval(dice)
        tests = [
            "" if name == "search" else f"{signed_rank_p(a - b):.2g}"
            for a, b in ((log, np.log(t.share["search"])), (dice, t.dice["search"]))
        ]
        lines.append(
            f"| {name} | {100 * np.exp(log.mean()):.0f} ({100 * low:.0f} to {100 * high:.0f})"
            f" | {tests[0]} | {dice.mean():.3f} ({least:.3f} to {most:.3f}) | {tests[1]} |"
        )
    return "\n".join(lines) + "\n"


def details(t: Table, names: list[str]) -> str:
    """Return one Markdown row per kind: mean error in mm and Dice of some methods."""
    lines = ["| kind | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for of, kinds, digits in ((t.error, t.kinds, 2), (t.dice, t.labelled, 3)):
        unit = ", mm" if of is t.error else ", Dice"
        for k, kind in enumerate(kinds):
            cells_ = " | ".join(f"{of[name][k]:.{digits}f}" for name in names)
            lines.append(f"| {kind}{unit} | {cells_} |")
    return "\n".join(lines) + "\n"


def estimate(points: list[Point], at: float, cost: Row) -> str:
    """Estimate how long `at` CPU minutes of this training would take on a GPU."""
    last = points[-1]
    per_minute = last.pair_steps / last.minutes
    here = per_minute / 60 * cost["flop"]
    text = (
        f"{cost['parameters']} parameters; {cost['flop'] / 1e9:.2f} GFLOP a pair and step, forward"
        f" and backward; {per_minute:.0f} pair steps and {last.pairs / last.minutes:.0f} pairs a"
        f" CPU minute, {here / 1e9:.1f} GFLOP/s; {cost['pair_seconds']:.2f} CPU s to make a pair"
    )
    if not np.isfinite(at):
        return text + "; the line does not fall, so no time reaches the search"
    steps = at * per_minute
    gpu = steps * cost["flop"] / (GPU_TFLOPS * 1e12) / 3600
    made = at * last.pairs / last.minutes * cost["pair_seconds"] / GPU_CORES / 3600
    return text + (
        f"; if the line held: {at:.3g} CPU minutes, {steps:.3g} pair steps, {gpu:.3g} h of a GPU at"
        f" {GPU_TFLOPS:g} TFLOP/s, {made:.3g} h to make the pairs on {GPU_CORES} cores"
    )


def draw(t: Table, points: list[Point], line: tuple[float, float] | None, path: Path) -> None:
    """Draw the error's share of the affine's, and Dice, over the CPU minutes of training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    minutes = np.array([max(p.minutes, 1.0) for p in points])  # minute 0 at the left border
    for axes, of, scale, label in (
        (
            left,
            {k: np.exp(np.log(v).mean()) for k, v in t.share.items()},
            100,
            "error, % of affine",
        ),
        (right, {k: v.mean() for k, v in t.dice.items()}, 1, "Dice"),
    ):
        for suffix, colour, text in (
            ("", "tab:blue", "network, T = 3"),
            (", T = 1", "tab:cyan", "network, T = 1"),
            (", refined", "tab:orange", "network, refined"),
        ):
            values = [scale * of[f"network {p.bundle.stem}{suffix}"] for p in points]
            axes.plot(minutes, values, "o-", color=colour, markersize=4, label=text)
        for name, colour, style in (
            ("affine", "grey", ":"),
            ("refinement", "tab:orange", ":"),
            ("search", "black", "--"),
            ("plan", "black", "-"),
        ):
            axes.axhline(scale * of[name], color=colour, linestyle=style, linewidth=1, label=name)
        axes.set(xlabel="CPU minutes of training (0 drawn at 1)", ylabel=label, xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
    if line is not None:
        x = np.geomspace(minutes[minutes > 1].min(), 4 * minutes.max(), 20)
        left.plot(x, 100 * np.exp(line[0] + line[1] * np.log(x)), color="tab:blue", alpha=0.4)
    left.legend(fontsize=7)
    figure.savefig(path, dpi=100)


@click.command(context_settings={"show_default": True})
@click.option(
    "--run", type=Path, required=True, help="Run folder of morphseek train, with iteration-N.pt."
)
@click.option("--out", type=Path, required=True, help="Folder of bundles, rows and figure.")
@click.option("--data", type=Path, help="Folder of real images, as for zoo.py.")
@click.option(
    "--minutes",
    default="0,5,10,20,40",
    help="CPU minutes of training to measure at, separated by commas.",
)
@click.option("--kinds", multiple=True, help="As for zoo.py.")
@click.option("--seeds", default="1,2", help="As for zoo.py.")
@click.option("--n", default=1, type=click.IntRange(1), help="Pairs of each kind and seed.")
@click.option(
    "--size", default=48, type=click.IntRange(16), help="Voxels along a made-up torso's axes."
)
@click.option(
    "--for",
    "for_",
    default=600,
    type=click.FloatRange(0),
    help="Start no registration after so many minutes.",
)
@click.option(
    "--config", default=CONFIG, type=Path, help="The run's configuration, for the cost of a step."
)
def main(
    run: Path,
    out: Path,
    data: Path | None,
    minutes: str,
    kinds: tuple[str, ...],
    seeds: str,
    n: int,
    size: int,
    for_: float,
    config: Path,
) -> None:
    """Run the registrations that the folder lacks, and print and draw the curve."""
    out.mkdir(parents=True, exist_ok=True)
    points = exported(run, out, [float(text) for text in minutes.split(",")])
    for point in points:
        if point.away:
            away = ", ".join(f"{value:.3f} voxels (T = {k})" for k, value in point.away.items())
            click.echo(f"{point.bundle.name}: the engine's field is {away} from PyTorch's")
    asked = methods(points)
    every = zoo.kinds(zoo.Settings(size, n, data, out / "pairs"))
    chosen = zoo.choose(
        every,
        kinds or [f"={kind}" for kind in KINDS if kind in every],
        lambda text: click.echo(text, err=True),
    )
    path = out / "rows.jsonl"
    runs = [int(seed) for seed in seeds.split(",")]
    for row in collect(path, chosen, runs, asked, time.monotonic() + 60 * for_):
        found = " | ".join(f"{row[k]:.3f}" for k in ("error", "dice") if k in row)
        click.echo(f"{row['kind']} | {row['pair']} | {row['method']} | {found} | {row['status']}")
    rows = choices.read_rows(path)
    t = table_of(rows, list(asked))
    if not t.kinds or not t.labelled:
        raise click.BadParameter(
            f"{path} has no pair that every method was run on, with points and with labels; give"
            " it more --for",
            param_hint="--out",
        )
    click.echo(f"\n{t.pairs} pairs; {sum(r['cpu_seconds'] for r in rows) / 3600:.2f} CPU hours\n")
    click.echo(summary(t))
    last = points[-1].bundle.stem if points else ""
    shown = [*ENGINE, *([f"network {last}", f"network {last}, refined"] if points else [])]
    click.echo(details(t, shown))
    line = None
    trained = [p for p in points if p.minutes > 0]
    if len(trained) > 1:
        line, at, low, high = extrapolated(
            np.array([p.minutes for p in trained]),
            np.array([t.share[f"network {p.bundle.stem}"] for p in trained]),
            t.share["search"],
        )
        click.echo(
            f"ln(error / affine) = {line[0]:.3f} {line[1]:+.3f} ln(minutes); the search's after"
            f" {at:.3g} CPU minutes ({low:.3g} to {high:.3g})\n"
        )
        click.echo(estimate(trained, at, work(config)) + "\n")
    if points:
        draw(t, points, line, out / "general.png")
        click.echo(str(out / "general.png"))


if __name__ == "__main__":
    open_streams()
    main()
