"""Runs a batch of a thousand pairs: python cohort.py --help.

The made-up pairs have a few thousand voxels and the quickest options. Measures what the batch costs
beside the engine, whether its memory stays flat, how large the page is, and how long the command
takes when everything is finished. Seconds depend on the machine's load, CPU seconds less.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import click

import morphseek
from morphseek import images

OPTIONS: dict[str, Any] = {"model": "none", "initial": "com", "search": False, "refine": 0}


def make(folder: Path, pairs: int, size: int) -> list[str]:
    """Write made-up pairs; return the lines of their list."""
    rows = ["fixed,moving,id"]
    for i in range(pairs):
        pair = morphseek.phantom.make_pair(size, seed=i)
        for name in ("fixed", "moving"):
            images.write(folder / f"{name}-{i}.nrrd", getattr(pair, name))
        rows.append(f"fixed-{i}.nrrd,moving-{i}.nrrd,{i}")
    return rows


def resident() -> float:
    """Return the memory that the process holds, MB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@click.command(context_settings={"show_default": True})
@click.option("--pairs", default=1000, type=click.IntRange(10), help="How many.")
@click.option("--size", default=32, type=click.IntRange(32), help="Voxels along each axis.")
@click.option("--workers", default=2, type=click.IntRange(1))
def main(pairs: int, size: int, workers: int) -> None:
    """Print what a large batch costs."""
    with tempfile.TemporaryDirectory() as folder:
        sources = 10  # few files for many pairs: each pair reads its files again
        rows = make(Path(folder), sources, size)
        listed = [rows[1 + i % sources].rsplit(",", 1)[0] + f",pair-{i:04d}" for i in range(pairs)]
        study = Path(folder, "many.csv")
        study.write_text("\n".join([rows[0], *listed]) + "\n")
        memory: dict[int, float] = {}

        def watch(progress: morphseek.Progress) -> None:
            if progress.message and progress.done % (pairs // 10) == 0:
                memory[progress.done] = round(resident(), 1)

        out = Path(folder, "out")
        found: dict[str, Any] = {"pairs": pairs, "size": size, "workers": workers}
        for name in ("first", "again"):
            began, cpu = time.perf_counter(), time.process_time()
            done = morphseek.register_pairs(
                study, out, workers=workers, threads=1, progress=watch, **OPTIONS
            )
            if done.exit_code:
                raise SystemExit(next(str(row) for row in done.rows if row.status == "failed"))
            found[name] = {
                "seconds": round(time.perf_counter() - began, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "states": {k: done.summary()[k] for k in ("done", "skipped", "failed")},
                "memory_mb": dict(memory),
            }
            memory.clear()
        found["engine_seconds"] = round(sum(row.seconds or 0 for row in done.rows), 1)
        found["index_mb"] = round((out / "index.html").stat().st_size / 1e6, 2)
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
