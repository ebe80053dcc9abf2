"""Measures what channels gain: the overlap of organs and the error of points, with label maps as a
channel and without.

    python python/benchmarks/channels.py                                    # made-up torsos
    python python/benchmarks/channels.py --pair FIXED MOVING FIXED_LABELS MOVING_LABELS   # yours

In made-up torsos the true place of every point is known. For a pair of your own, the overlap is
that of the labels that drove the registration, which only shows that it followed them.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

import morphseek
from morphseek import Channel, phantom


@click.command(context_settings={"show_default": True})
@click.option("--pair", type=Path, nargs=4, help="Images, then label maps.")
@click.option("--seeds", default=2, type=click.IntRange(1), help="Made-up torsos of each kind.")
@click.option("--size", default=96, type=click.IntRange(32), help="Their voxels along an axis.")
def main(pair: tuple[Path, Path, Path, Path] | None, seeds: int, size: int) -> None:
    """Print one row per registration."""
    click.echo("| pair | channel | Dice | points, mm | 95 % | least Jacobian | folding, % |")
    click.echo("|---|---|---:|---:|---:|---:|---:|")
    if pair is not None:
        fixed, moving, fixed_labels, moving_labels = pair
        labels = Channel(fixed_labels, moving_labels, labels=True)
        for channels in ([], [labels]):
            result = morphseek.register(fixed, moving, channels=channels)
            row(pair[1].name, channels, result, result.score(fixed_labels, moving_labels))
        return
    for contrasts in (("CT", "CT"), ("MR", "CT")):
        for seed in range(1, seeds + 1):
            made = phantom.make_pair(size=size, seed=seed, contrasts=contrasts)
            labels = Channel(made.fixed_labels, made.moving_labels, labels=True)
            for channels in ([], [labels]):
                result = morphseek.register(made.fixed, made.moving, channels=channels)
                after = made.errors(result)["after"]
                scores = result.score(made.fixed_labels, made.moving_labels)
                row(f"{contrasts[0]} <- {contrasts[1]}, {seed}", channels, result, scores, after)


def row(
    name: str,
    channels: list[Channel],
    result: morphseek.Registration,
    scores: list[morphseek.scoring.LabelScore],
    points: dict[str, float] | None = None,
) -> None:
    """Print one."""
    m = result.metrics
    cells = [
        name,
        "labels" if channels else "none",
        f"{np.mean([s.dice_after for s in scores]):.3f}",
        *(["", ""] if points is None else [f"{points[k]:.2f}" for k in ("mean_mm", "p95_mm")]),
        f"{m['jacobian_min']:.2f}",
        f"{m['njd_percent']:.3f}",
    ]
    click.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
