"""Counts what a registration's refinement computes, and compares its time with the memory's floor:

    python python/benchmarks/count.py FIXED MOVING

One thread. Run it on a quiet machine: seconds are of the clock.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np

import morphseek

# that an iteration must move for each voxel: engine/RATIONALE.md, Where a large pair's time goes
BYTES = 145


def bandwidth(voxels: int) -> float:
    """Return the bytes that a copy of so many float32 reads and writes in a second: best of ten."""
    source = np.zeros(voxels, np.float32)
    target = np.empty_like(source)
    best = np.inf
    for _ in range(10):
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    return 2 * source.nbytes / best


@click.command()
@click.argument("fixed", type=Path)
@click.argument("moving", type=Path)
def main(fixed: Path, moving: Path) -> None:
    """Print the seconds of each stage, and how much the refinement computes."""
    result = morphseek.register(fixed, moving, threads=1)
    seconds = result.metrics["seconds"]
    volume = float(np.prod(result.grid.size) * np.prod(result.grid.spacing))
    levels = [
        (level["spacing_mm"], len(level["similarity"]))
        for level in result.metrics["refine"]["levels"]
    ]
    count = sum(n * volume / mm**3 for mm, n in levels)
    floor = BYTES / bandwidth(int(np.prod(result.grid.size)))
    spent = seconds.get("refine", 0.0) / max(count, 1)
    stages = [name for name in seconds if name != "total"]
    click.echo(f"| {' | '.join([*stages, 'total'])} |\n|{'---:|' * (len(stages) + 1)}")
    click.echo(f"| {' | '.join(f'{seconds[name]:.2f}' for name in [*stages, 'total'])} |\n")
    runs = ", ".join(f"{n} at {mm:.3g} mm" for mm, n in levels)
    click.echo(
        f"refine: {runs}: {count / 1e6:.0f} million voxel-iterations of {1e9 * spent:.0f} ns;"
        f" memory allows {1e9 * floor:.1f} ns ({spent / floor:.0f} times)"
    )


if __name__ == "__main__":
    main()
