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
from typing import Annotated

import typer

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


def main(
    pairs: Annotated[int, typer.Option(min=2, help="How many.")] = 100,
    size: Annotated[
        int, typer.Option(min=32, help="Voxels of the fixed images along each axis.")
    ] = 48,
    repeats: Annotated[int, typer.Option(min=1, help="The fastest counts.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for the results.", show_default=False)
    ] = None,
    initial: str = "affine",
    search: bool = False,
    refine: int = 5,
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
                raise SystemExit(next(str(pair) for pair in done.pairs if pair.status == "failed"))
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
    typer.run(main)
