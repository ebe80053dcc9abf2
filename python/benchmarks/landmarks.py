"""Measures what landmarks gain at points that were not given: python landmarks.py [--data DIR]
KIND ...

Each KIND is one of zoo.py's kinds with points: "made-up head, two contrasts" or, with real images
in DIR, "other: brain tumour pre<-post". Some points of every pair steer. Made-up points are exact,
so an error is added to them. The error is measured at the other points.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
import zoo

import morphseek


def at_others(result: morphseek.Registration, fixed: np.ndarray, moving: np.ndarray) -> float:
    return float(np.linalg.norm(result.transform_points(fixed) - moving, axis=1).mean())


def main(
    kinds: list[str],
    data: Annotated[Path | None, typer.Option(help="Folder of real images.")] = None,
    given: Annotated[int, typer.Option(help="Points that steer; at most half of them.")] = 20,
    error: Annotated[float, typer.Option(help="landmark_error, mm.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the made-up pairs.")] = 13,
    n: Annotated[int, typer.Option(help="Pairs of a kind.")] = 1,
    draws: Annotated[int, typer.Option(help="Choices of points, of each pair.")] = 3,
) -> None:
    """Print a row for every pair and draw: mean error, mm, at the points that were not given."""
    typer.echo("| pair | steer | without, mm | with, mm |\n|---|---:|---:|---:|")
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
                typer.echo(
                    f"| {kind}, {pair.name} | {few} of {len(here)} |"
                    f" {rows[-1][0]:.2f} | {rows[-1][1]:.2f} |"
                )
    before, after = np.mean(rows, axis=0)
    worse = max(b - a for a, b in rows)
    typer.echo(f"| mean; worst change {worse:+.2f} | | {before:.2f} | {after:.2f} |")


if __name__ == "__main__":
    typer.run(main)
