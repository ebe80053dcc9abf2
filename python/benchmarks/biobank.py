"""Runs a hundred thousand jobs that do nothing, as a study does: python biobank.py --help.

Measures what a study costs beside the registrations: the runner with its folders and seals; the
same call again, when all is finished; and the tables and the page of all rows. Each step is a
process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
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
from morphseek.studies.runner import Ending, Job, Meter, Result, run_jobs
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
    from biobank import Idle  # a cluster's workers know this module, and not __main__

    study = Study(PairRow(str(number), "", "") for number in range(count))
    meter = Meter(count, None)
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
    took = timed(lambda: run_jobs(jobs, ended=ended, meter=meter, **how))
    tables = timed(lambda: study.save(out))
    return {**states, "jobs": took, "tables": tables, "memory_mb": memory, "peak_mb": peak()}


def peak() -> float:
    """Return the most memory that the process had, MB; resource's holds its parent's, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return round(int(status.partition("VmHWM:")[2].split()[0]) * 1.024e-3, 1)


def used() -> dict[str, float]:
    """Return the process' memory and its processor time."""
    return {"peak_mb": peak(), "cpu": round(time.process_time(), 1)}


@click.command(context_settings={"show_default": True})
@click.option("--jobs", "count", default=100_000, type=click.IntRange(10), help="How many.")
@click.option("--workers", default=2, type=click.IntRange(1))
@click.option("--scheduler", default="threads", help="threads, processes, or dask: a local cluster")
@click.option("--folder", type=Path, hidden=True, help="Of one step.")
def main(count: int, workers: int, scheduler: str, folder: Path | None) -> None:
    """Print what a study of many pairs costs beside the registrations."""
    if folder is not None:
        click.echo(json.dumps(run(count, folder, workers, scheduler)))
        return
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        Path(place, "template").write_text("template")
        cluster: Any = None
        if scheduler == "dask":
            from distributed import Client, LocalCluster

            os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
            how = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
            cluster = stack.enter_context(LocalCluster(**how))
            scheduler = cluster.scheduler_address
        command = [sys.executable, __file__, "--jobs", count, "--workers", workers]
        command += ["--scheduler", scheduler, "--folder", place]
        for name in ("first", "again"):
            done = subprocess.run(map(str, command), check=True, stdout=subprocess.PIPE, text=True)
            click.echo(f"{name}: {json.dumps(json.loads(done.stdout), indent=1)}")
        if cluster is not None:
            with Client(cluster) as client:
                click.echo(f"scheduler: {client.run_on_scheduler(used)}")
                click.echo(f"workers: {list(client.run(used).values())}")
        sizes = {p.name: p.stat().st_size / 1e6 for p in Path(place).glob("*.*")}
        click.echo(f"MB: {json.dumps(sizes)}")


if __name__ == "__main__":
    main()
