"""Compares point errors with overlap over smoothness: the error on pairs with a known truth against
Dice between two people.

python frontier.py --data DIR --out FOLDER runs zoo.py's kinds of ANATOMIES once per smoothness and
draws FOLDER/frontier.svg and .png. Results in the folder are not run again, so that a value, or a
peer's file, can be added later.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import measure
import numpy as np
import peers as peer_runs
import zoo

from morphseek._streams import open_streams

ANATOMIES = {
    "brain": ("brain", "brain, two people"),
    "hippocampus": ("hippocampus", "hippocampus, two people"),
    "abdomen CT": ("abdomen CT", "abdomen CT, two people"),
}
"""For each anatomy, the kind whose error and the kind whose Dice is drawn."""


def point(rows: list[zoo.Row], anatomy: str, method: str = zoo.OURS) -> tuple[float, float] | None:
    """Return the mean error in mm and the mean Dice of a method's final state over an anatomy's
    pairs; None if one is missing.
    """
    figures = []
    for kind, what in zip(ANATOMIES[anatomy], ("error.mean", "dice"), strict=True):
        values = [
            zoo.value(row, what)
            for row in rows
            if row["kind"] == kind and row["method"] == method and row["state"] == "final"
        ]
        values = [v for v in values if v is not None]
        if not values:
            return None
        figures.append(float(np.mean(values)))
    return figures[0], figures[1]


def curves(runs: dict[str, list[zoo.Row]]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return for each anatomy the points of every smoothness and of every peer in the runs.

    Parameters
    ----------
    runs : dict
        Smoothness, a word or a number of mm as text, to the rows of a run with it.
    """
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for anatomy in ANATOMIES:
        points = {value: point(rows, anatomy) for value, rows in runs.items()}
        peers = {
            row["method"]: rows
            for rows in runs.values()
            for row in rows
            if row["method"] != zoo.OURS
        }
        points |= {name: point(rows, anatomy, name) for name, rows in peers.items()}
        if kept := {name: at for name, at in points.items() if at is not None}:
            found[anatomy] = kept
    return found


def number(value: str) -> float | None:
    """Return a smoothness in mm; None for a word or a peer."""
    try:
        return float(value)
    except ValueError:
        return None


def table(found: dict[str, dict[str, tuple[float, float]]]) -> str:
    """Return the points as Markdown: one row per smoothness, "error in mm; Dice" per anatomy."""
    names = list(dict.fromkeys(name for points in found.values() for name in points))
    names.sort(key=lambda name: (number(name) is None, number(name) or 0.0))
    lines = [f"| smoothness | {' | '.join(found)} |", "|---|" + "---:|" * len(found)]
    for name in names:
        cells = [
            f"{points[name][0]:.2f} mm; {points[name][1]:.3f}" if name in points else ""
            for points in found.values()
        ]
        lines.append(f"| {name}{' mm' if number(name) is not None else ''} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, dict[str, tuple[float, float]]], paths: list[Path]) -> None:
    """Draw one panel per anatomy: a line through the smoothness values in mm, and single points for
    the words and the peers.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(found), 3.6), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (anatomy, points) in zip(panels, found.items(), strict=True):
        numbers = sorted((name for name in points if number(name) is not None), key=float)
        if numbers:
            axes.plot(
                *zip(*(points[name] for name in numbers), strict=True),
                "o-",
                color="#2b6cb0",
                markersize=4,
                linewidth=1.2,
            )
        for name, at in points.items():
            if number(name) is not None:
                axes.annotate(
                    f"{float(name):g} mm",
                    at,
                    xytext=(5, -11),
                    textcoords="offset points",
                    fontsize=8,
                )
                continue
            peer = name in zoo.METHODS
            axes.plot(
                *at,
                "s" if peer else "*",
                color="#c05621" if peer else "#1a365d",
                markersize=7 if peer else 11,
            )
            axes.annotate(
                name,
                at,
                xytext=(-5, 6),
                textcoords="offset points",
                fontsize=9,
                fontweight="bold",
                ha="right",
            )
        axes.set(
            title=anatomy,
            xlabel="error where the truth is known, mm",
            ylabel="Dice between two people",
        )
        axes.grid(alpha=0.3)
        axes.margins(0.15)
    for path in paths:
        figure.savefig(path, dpi=120)


@click.command(context_settings={"show_default": True})
@click.option(
    "--out",
    type=Path,
    required=True,
    help="Folder of the runs, one file a smoothness, and of the figure; made if need be.",
)
@click.option(
    "--data",
    type=Path,
    help="Folder of real images, as for zoo.py. Without it, what lies in --out is drawn.",
)
@click.option(
    "--smoothness",
    default="low,auto,high,0.5,1,2,4",
    help="Words and numbers of mm, comma-separated.",
)
@click.option("--seeds", default="1", help="As for zoo.py.")
@click.option("--n", default=2, type=click.IntRange(1), help="Pairs of each kind and seed.")
@click.option("--jobs", default=1, type=click.IntRange(1), help="Pairs at a time, one thread each.")
@click.option("--program", default=zoo.PROGRAM, help="The morphseek command to measure.")
@click.option("--peers", default="", help="Peers to run once beside them, as for zoo.py.")
@click.option(
    "--timeout",
    default=900,
    type=float,
    help="Seconds after which a registration is killed and counts as failed.",
)
def main(
    out: Path,
    data: Path | None,
    smoothness: str,
    seeds: str,
    n: int,
    jobs: int,
    program: str,
    peers: str,
    timeout: float,
) -> None:
    """Run every smoothness that is not in the folder yet, print the table, and draw the figure."""
    out.mkdir(parents=True, exist_ok=True)
    left = zoo.peers_of(peers)
    every = zoo.kinds(zoo.Settings(n=n, data=data, store=out / "pairs"))
    for value in smoothness.split(",") if data is not None else []:
        path = out / f"smoothness-{value}.json"
        if path.exists():
            click.echo(f"kept {path}")
            continue
        chosen = zoo.choose(
            every, [f"={kind}" for kinds in ANATOMIES.values() for kind in kinds], click.echo
        )
        run = zoo.Run(program, ["final"], ["--smoothness", value], left, timeout)
        rows = zoo.run_all(
            chosen,
            [int(seed) for seed in seeds.split(",")],
            run,
            jobs,
            click.echo,
            lambda rows: None,
        )
        if failed := [row for row in rows if row["method"] == zoo.OURS and row["status"] != "ok"]:
            raise click.BadParameter(
                f"smoothness {value}: {zoo.line_of(failed[0])}", param_hint="--smoothness"
            )
        peer_runs.write(
            path,
            {
                "machine": measure.machine(),
                "version": zoo.version_of(program),
                "smoothness": value,
                "seeds": seeds,
                "n": n,
                "rows": rows,
            },
        )
        left = []
    runs = {
        path.stem.partition("-")[2]: json.loads(path.read_text())["rows"]
        for path in sorted(out.glob("smoothness-*.json"))
    }
    found = curves(runs)
    if not found:
        raise click.BadParameter(
            f"{out} has no runs with an error and a Dice; give --data", param_hint="--out"
        )
    click.echo(
        "\nMean error where the truth is known; mean Dice between two people.\n\n" + table(found)
    )
    draw(found, [out / "frontier.svg", out / "frontier.png"])
    click.echo(str(out / "frontier.svg"))


if __name__ == "__main__":
    open_streams()
    main()
