"""Runs a method of methods/ on a pair in a process of its own, from two image files to a transform
on disk; the operating system measures its wall-clock time, CPU time and peak memory.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import measure
import SimpleITK as sitk
from methods import Job, Method

HERE = Path(__file__).parent

K = TypeVar("K")
V = TypeVar("V")


@dataclasses.dataclass(frozen=True)
class Probe:
    """Whether a method runs here, its version, and the cost of its start: the import that each of
    its processes pays.

    It is also the warm-up, which reads files from disk for the first time.
    """

    version: str
    seconds: float
    cpu_seconds: float
    error: str = ""


def probe(method: Method, threads: int) -> Probe:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        for _ in range(2):  # the first reads the disk, the second counts
            cost = step(method, "version", threads, 300, log)
        last = last_line(log)
    if cost.timed_out:
        last = "it did not start within 300 s"
    failed = cost.exit_status != 0
    return Probe("" if failed else last, cost.seconds, cost.cpu_seconds, last if failed else "")


def carry_out(method: Method, job: Job, timeout: float) -> tuple[dict[str, Any], sitk.Image | None]:
    """Register in a process of its own; return how it ended with its cost, and the displacement in
    mm, LPS, on the fixed grid.

    The displacement is None if the method failed or was killed after `timeout` seconds; the row
    says why.
    """
    log = job.folder / "log"
    cost = step(method, "register", job.threads, timeout, log, job)
    row = {"status": "ok", "reason": "", **dataclasses.asdict(cost)}
    if not cost.timed_out and cost.exit_status == 0:
        converted = step(method, "field", job.threads, timeout, log, job)
        if converted.exit_status == 0:
            return row, sitk.ReadImage(str(job.folder / "field.mha"))
    if cost.timed_out:
        return {**row, "status": "timeout", "reason": f"killed after {timeout:g} s"}, None
    return {**row, "status": "failed", "reason": last_line(log)}, None


def step(
    method: Method, name: str, threads: int, timeout: float, log: Path, job: Job | None = None
) -> measure.Cost:
    """Run a step of a method, "version", "register" or "field", in a process of its own."""
    command = [sys.executable, "-m", "methods", name, method.name]
    if job is not None:
        command.append(json.dumps(dataclasses.asdict(job), default=str))
    return measure.run(command, threads=threads, timeout=timeout, log=log, folder=HERE)


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def size_of(path: Path) -> list[int]:
    """Return the voxels of an image file along its axes, without its voxels read."""
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    return list(reader.GetSize())


def finished(tasks: Iterable[tuple[K, Callable[[], V]]], jobs: int) -> Iterator[tuple[K, V]]:
    """Run tasks, `jobs` at a time in threads, and yield the key and the value of each as it ends.
    The next task is made while others run; none waits in memory.
    """
    waiting: dict[concurrent.futures.Future[V], K] = {}

    def ended(at_most: int) -> Iterator[tuple[K, V]]:
        while len(waiting) > at_most:
            done, _ = concurrent.futures.wait(
                waiting, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                yield waiting.pop(future), future.result()

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for key, task in tasks:
            waiting[pool.submit(task)] = key
            yield from ended(jobs - 1)
        yield from ended(0)


def write(path: Path, content: dict[str, Any]) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(content, file, indent=1)
    Path(file.name).replace(path)
