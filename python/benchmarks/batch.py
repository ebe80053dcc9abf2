"""Times a batch of small pairs with one worker and with two: python batch.py --help.

Workers have one thread each, so that the workers are measured and not the engine's own parallel
loops; one worker with both threads is shown for comparison. All take the same made-up pairs by
turns, after a warm-up; reading and writing files counts. The machine must be idle: if CPU seconds
differ much between the rows, or there is load at the start, the ratio means nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import click

import morphseek
from morphseek import images


def make(folder: Path, pairs: int, size: int) -> Path:
    """Write made-up pairs and their list."""
    rows = ["fixed,moving,id"]
    for i in range(pairs):
        pair = morphseek.phantom.make_pair(size, seed=i)
        for name in ("fixed", "moving"):
            images.write(folder / f"{name}-{i}.nrrd", getattr(pair, name))
        rows.append(f"fixed-{i}.nrrd,moving-{i}.nrrd,{i}")
    path = folder / "pairs.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@click.command(context_settings={"show_default": True})
@click.option("--pairs", default=100, type=click.IntRange(2), help="How many.")
@click.option(
    "--size",
    default=48,
    type=click.IntRange(32),
    help="Voxels of the fixed images along each axis.",
)
@click.option("--repeats", default=1, type=click.IntRange(1), help="The fastest counts.")
@click.option("--out", type=Path, help="JSON file for the results.")
@click.option("--initial", default="affine")
@click.option("--search/--no-search", default=False)
@click.option("--refine", default=5)
def main(
    pairs: int, size: int, repeats: int, out: Path | None, initial: str, search: bool, refine: int
) -> None:
    """Print the seconds and their ratio."""
    options = {"model": "none", "initial": initial, "search": search, "refine": refine}
    load = os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        study = make(Path(folder), pairs, size)
        (Path(folder) / "first.csv").write_text(
            "".join(study.read_text().splitlines(keepends=True)[:2])
        )
        morphseek.register_pairs(Path(folder, "first.csv"), Path(folder, "warm-up"), **options)
        for workers, threads in ((1, 1), (2, 1), (1, 2)) * repeats:
            began, cpu = time.perf_counter(), time.process_time()
            done = morphseek.register_pairs(
                study,
                Path(folder, "out"),
                workers=workers,
                threads=threads,
                resume=False,
                **options,
            )
            if done.exit_code:
                raise SystemExit(next(str(row) for row in done.rows if row.status == "failed"))
            rows.append(
                {
                    "workers": workers,
                    "threads": threads,
                    "seconds": time.perf_counter() - began,
                    "cpu_seconds": time.process_time() - cpu,
                }
            )
            print(
                "{workers} workers with {threads} threads each: {seconds:.1f} s, {cpu_seconds:.1f}"
                " CPU s".format(**rows[-1]),
                flush=True,
            )
    best = {
        key: min(row["seconds"] for row in rows if (row["workers"], row["threads"]) == key)
        for key in ((1, 1), (2, 1), (1, 2))
    }
    ratio = best[1, 1] / best[2, 1]
    print(
        f"{pairs} pairs of {size}^3: two workers are {ratio:.2f} times as fast as one"
        f" ({best[1, 2] / best[2, 1]:.2f} times as one with both threads); load at the start"
        f" {load:.1f}"
    )
    if out is not None:
        out.write_text(
            json.dumps(
                {
                    "pairs": pairs,
                    "size": size,
                    "options": options,
                    "load": load,
                    "rows": rows,
                    "ratio": ratio,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
