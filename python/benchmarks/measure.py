"""Runs a command and reads its cost from the operating system: wall and CPU seconds and peak
memory, including its children's.

:func:`run` starts this file as a program between the caller and the command: Linux counts the
memory of the process that starts a program in that program's peak, so the starter must be small.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
    "GOMAXPROCS",
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one command cost, and how it ended: its exit status (negative: a signal), or a kill
    after the time limit.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    exit_status: int
    timed_out: bool


def run(
    command: Sequence[str | os.PathLike],
    *,
    threads: int,
    timeout: float,
    log: Path,
    folder: Path | None = None,
) -> Cost:
    """Run a command to its end, with the thread pools of the common libraries held to `threads`.

    Its standard output and error go to the file `log`. After `timeout` seconds it is killed with
    everything that it started.
    """
    starter = [
        sys.executable,
        "-S",
        "-E",
        __file__,
        str(timeout),
        os.fspath(log),
        *map(os.fspath, command),
    ]
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    # compile modules once, as for a user, not at every start
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    finished = subprocess.run(
        starter, check=True, stdout=subprocess.PIPE, env=environment, cwd=folder, text=True
    )
    return Cost(**json.loads(finished.stdout))


def _start(timeout: float, log: str, command: list[str]) -> Cost:
    timed_out = False

    def expire(*_: Any) -> None:
        nonlocal timed_out
        timed_out = True
        os.killpg(child.pid, signal.SIGKILL)

    with open(log, "wb") as out:
        started = time.perf_counter()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        signal.signal(signal.SIGALRM, expire)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        signal.setitimer(signal.ITIMER_REAL, timeout)
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:  # Ctrl-C or SIGTERM: end everything that was started
            os.killpg(child.pid, signal.SIGKILL)
            raise
        seconds = time.perf_counter() - started
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Cost(
        seconds, usage.ru_utime + usage.ru_stime, peak, os.waitstatus_to_exitcode(status), timed_out
    )


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, memory, system, GPU and load."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
            model,
        )
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = (
            subprocess.run(query, check=True, capture_output=True, text=True)
            .stdout.strip()
            .replace("\n", ", ")
        )
    except (OSError, subprocess.CalledProcessError):
        gpu = "none"
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": gpu,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(_start(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))))
