"""Measures what landmarks gain at points that were not given: python landmarks.py [--data DIR]
KIND ...

Each KIND is one of zoo.py's kinds with points: "made-up head, two contrasts" or, with real images
in DIR, "other: brain tumour pre<-post". Some points of every pair steer. Made-up points are exact,
so an error is added to them. The error is measured at the other points.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import zoo

import morphseek


def at_others(result: morphseek.Registration, fixed: np.ndarray, moving: np.ndarray) -> float:
    return float(np.linalg.norm(result.transform_points(fixed) - moving, axis=1).mean())


@click.command(context_settings={"show_default": True})
@click.argument("kinds", nargs=-1, required=True)
@click.option("--data", type=Path, help="Folder of real images.")
@click.option("--given", default=20, help="Points that steer; at most half of them.")
@click.option("--error", default=1.0, help="landmark_error, mm.")
@click.option("--seed", default=13, help="Of the made-up pairs.")
@click.option("--n", default=1, help="Pairs of a kind.")
@click.option("--draws", default=3, help="Choices of points, of each pair.")
def main(
    kinds: tuple[str, ...],
    data: Path | None,
    given: int,
    error: float,
    seed: int,
    n: int,
    draws: int,
) -> None:
    """Print a row for every pair and draw: mean error, mm, at the points that were not given."""
    click.echo("| pair | steer | without, mm | with, mm |\n|---|---:|---:|---:|")
    known, rows = zoo.kinds(zoo.Settings(n=n, data=data)), []
    for kind in kinds:
        for pair in known[kind].make(seed):
            here, there = np.asarray(pair.fixed_points), np.asarray(pair.moving_points)
            plain = morphseek.register(pair.fixed, pair.moving)
            exact = len(here) > 100  # made-up points
            for draw in range(draws):
                rng = np.random.default_rng(draw)
                order = rng.permutation(len(here))
                few = min(given, len(here) // 2)
                some, others = order[:few], order[few:]
                marked = there[some]
                if exact:
                    marked = marked + rng.normal(0, error / np.sqrt(3), marked.shape)
                led = morphseek.register(
                    pair.fixed, pair.moving, fixed_landmarks=here[some], moving_landmarks=marked,
                    landmark_error=error,
                )  # fmt: skip
                rows.append([at_others(r, here[others], there[others]) for r in (plain, led)])
                click.echo(
                    f"| {kind}, {pair.name} | {few} of {len(here)} |"
                    f" {rows[-1][0]:.2f} | {rows[-1][1]:.2f} |"
                )
    before, after = np.mean(rows, axis=0)
    worse = max(b - a for a, b in rows)
    click.echo(f"| mean; worst change {worse:+.2f} | | {before:.2f} | {after:.2f} |")


if __name__ == "__main__":
    main()
