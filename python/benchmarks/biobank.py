"""Runs a hundred thousand jobs that do nothing, as a study does: python biobank.py --help.

Measures what a study costs beside the registrations: the runner with its folders, seals and
journal; the same call again, when all is finished; and the tables and the page of all rows. Each
step is a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np

from morphseek import _manifest
from morphseek.studies.runner import Ending, Job, Journal, Meter, Result, run_jobs
from morphseek.studies.study import SEAL, PairRow, Study, ended as ended_row

ROW = "row.json"


@dataclasses.dataclass(frozen=True)
class Idle(Job):
    """A job that writes the row of a pair."""

    seal: ClassVar[str] = SEAL
    listing: ClassVar[str] = SEAL
    outputs = (ROW,)

    def inputs(self) -> dict[str, list[Path]]:
        return {"fixed": [Path(self.folder).parent / "template"]}

    def settings(self) -> Any:
        return "none"

    def run(self, folder: Path, progress: Any) -> Result:
        rng = np.random.default_rng(int(self.id))
        row = {
            "fixed": "template.nii.gz", "moving": f"sub-{self.id}_T1w.nii.gz",
            "verdict": str(rng.choice(["good", "check", "failed"], p=[0.9, 0.08, 0.02])),
            "error_mm": float(rng.gamma(4, 0.2)), "reasons": ["The images match well."],
            "dice_before": float(rng.uniform(0.5, 0.6)), "dice_after": float(rng.uniform(0.7, 0.8)),
            "njd_percent": 0.0, "sdlogj": float(rng.normal(0.3, 0.02)), "seconds": 12.3,
            "cpu_seconds": 14.5, "model": "none", "device": "cpu", "measure": "ncc",
            "similarity": float(rng.normal(0.9, 0.01)), "scale": float(rng.normal(1, 0.05)),
            "displacement_mm": float(rng.gamma(9, 0.3)),
        }  # fmt: skip
        (folder / ROW).write_text(json.dumps(row))
        return Result(row, {ROW: _manifest.entry(folder / ROW)})


def run(count: int, out: Path, workers: int, scheduler: str | None) -> dict[str, Any]:
    """Do the jobs that are not done, then write the tables; return what it took."""
    study = Study(PairRow(str(number), "", "") for number in range(count))
    meter, journal = Meter(count, None), Journal(out)
    memory: dict[int, float] = {}
    states: dict[str, int] = {}

    def ended(ending: Ending) -> None:
        place = int(ending.id)
        study.rows[place] = ended_row(study.rows[place], ending)
        states[ending.status] = done = states.get(ending.status, 0) + 1
        if done % max(1, count // 5) == 0:
            memory[done] = peak()

    def timed(step: Callable[[], Any]) -> dict[str, float]:
        began, cpu = time.perf_counter(), time.process_time()
        step()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return {
            "seconds": round(seconds, 2),
            "cpu": round(cpu, 2),
            "ms_a_job": seconds / count * 1e3,
        }

    jobs = (Idle(str(number), str(out / str(number))) for number in range(count))
    how: dict[str, Any] = {"workers": workers, "scheduler": scheduler}
    took = timed(lambda: run_jobs(jobs, journal=journal, ended=ended, meter=meter, **how))
    tables = timed(lambda: study.save(out))
    return {**states, "jobs": took, "tables": tables, "memory_mb": memory, "peak_mb": peak()}


def peak() -> float:
    """Return the most memory that the process had, MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)


@click.command(context_settings={"show_default": True})
@click.option("--jobs", "count", default=100_000, type=click.IntRange(10), help="How many.")
@click.option("--workers", default=2, type=click.IntRange(1))
@click.option("--scheduler", default="threads", help="threads, processes, or dask: a local cluster")
@click.option("--folder", type=Path, hidden=True, help="Of one step.")
def main(count: int, workers: int, scheduler: str, folder: Path | None) -> None:
    """Print what a study of many pairs costs beside the registrations."""
    if folder is not None:
        click.echo(json.dumps(step(count, folder, workers, scheduler)))
        return
    with tempfile.TemporaryDirectory() as place:
        Path(place, "template").write_text("template")
        command = [sys.executable, __file__, *sys.argv[1:], "--folder", place]
        for name in ("first", "again"):
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            click.echo(f"{name}: {json.dumps(json.loads(done.stdout), indent=1)}")
        sizes = {p.name: p.stat().st_size / 1e6 for p in Path(place).glob("*.*")}
        click.echo(f"MB: {json.dumps(sizes)}")


def step(count: int, folder: Path, workers: int, scheduler: str) -> dict[str, Any]:
    """Run once, on a cluster of this machine's where that is asked for."""
    if scheduler != "dask":
        return run(count, folder, workers, scheduler)
    from distributed import LocalCluster

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
        return run(count, folder, workers, cluster.scheduler_address)


if __name__ == "__main__":
    main()
