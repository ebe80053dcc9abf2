"""The runner of jobs: killed at random, in two processes on one folder, and when a worker dies."""

import csv
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers import FLAGS, QUICK, Command, blob
from morphseek import _files, images
from morphseek.studies import runner
from morphseek.studies.runner import Ending, Meter, run_jobs
from morphseek.studies.study import SEAL
from pace import limit

JOBS = """
import dataclasses, os, sys, time
from pathlib import Path
from morphseek import _manifest
from morphseek.studies.runner import Job, Meter, Result, run_jobs
from morphseek.studies.study import SEAL, PairRow, Study, ended as ended_row

@dataclasses.dataclass(frozen=True)
class Idle(Job):
    seal, listing, outputs = SEAL, SEAL, ("out.txt", "more.txt")
    def inputs(self):
        return {"fixed": [Path(self.folder).parent / "input.txt"]}
    def settings(self):
        return 1
    def run(self, folder, progress):
        fatal = Path(self.folder).parent / "fatal.txt"
        if fatal.exists() and fatal.read_text() == self.id:
            os._exit(1)
        time.sleep(0.01)
        for name in self.outputs:
            (folder / name).write_text(self.id)
        row = {"fixed": "f", "moving": self.id, "error_mm": float(self.id)}
        return Result(row, {name: _manifest.entry(folder / name) for name in self.outputs})

def jobs(out, count):
    return [Idle(str(k), str(out / str(k))) for k in range(count)]

def main(out, count):
    rows = {str(k): PairRow(str(k), "f", str(k)) for k in range(count)}
    def ended(ending):
        rows[ending.id] = ended_row(rows[ending.id], ending)
    print("begun", flush=True)
    run_jobs(jobs(out, count), workers=2, ended=ended, meter=Meter(count, None))
    Study(rows.values()).save(out)

if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the jobs that do nothing, for this process and others."""
    (tmp_path / "idle_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    sys.modules.pop("idle_jobs", None)
    import idle_jobs

    return idle_jobs


def folder(path: Path) -> Path:
    path.mkdir()
    (path / "input.txt").write_text("input")
    old = time.time() - 60  # a file that is new may change again
    os.utime(path / "input.txt", (old, old))
    return path


def seals(out: Path) -> dict[str, tuple[str, int]]:
    """Return by which run each job was finished, and when."""
    return {
        path.parent.name: (json.loads(path.read_text())["run"], path.stat().st_mtime_ns)
        for path in out.glob(f"*/{SEAL}")
    }


def table(out: Path) -> list[dict[str, str]]:
    lines = (out / "summary.csv").read_text(encoding="utf-8").splitlines()
    timed = ("status", "seconds", "cpu_seconds")
    return [{k: v for k, v in row.items() if k not in timed} for row in csv.DictReader(lines)]


def check(out: Path, before: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """See that what was finished still is, by the same run."""
    for place in out.iterdir():
        if place.is_dir() and not place.name.startswith("."):
            _files.settle(place)
    now = seals(out)
    assert before.items() <= now.items()
    return now


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_at_random_and_started_again(kills: int, idle: Any, tmp_path: Path):
    """Two processes share a folder; one of them is killed at a time, after a job was finished."""
    count, rng = 40 + 12 * kills, random.Random(1)
    whole, out = folder(tmp_path / "whole"), folder(tmp_path / "out")

    def start(place: Path) -> subprocess.Popen[str]:
        command = [sys.executable, idle.__file__, str(place), str(count)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def finish(process: subprocess.Popen[str]) -> None:
        process.communicate(timeout=limit(120))
        assert process.returncode == 0

    finish(start(whole))
    finished: dict[str, tuple[str, int]] = {}
    running = [start(out), start(out)]
    for k in range(kills):
        victim = running[k % 2]
        assert victim.stdout is not None
        victim.stdout.readline()  # it has begun
        while len(seals(out)) <= len(finished) and victim.poll() is None:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.06))
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        finished = check(out, finished)
        running[k % 2] = start(out)
    for process in running:
        finish(process)
    finished = check(out, finished)
    assert len(finished) == count and len({run for run, _ in finished.values()}) > 2
    finish(start(out))
    assert seals(out) == finished
    assert table(out) == table(whole)
    assert not list(out.glob("*/.morphseek-*"))


REGISTER = """
import json, sys
import morphseek
register_pairs, _ = morphseek.register_pairs, morphseek.devices()
print("begun", flush=True)
sys.stdin.readline()
register_pairs(*sys.argv[1:3], report="none", threads=1, **json.loads(sys.argv[3]))
"""


def list_of(pairs: int, folder: Path) -> Path:
    """Write a list of small pairs, and their images beside it."""
    names = [f"{k}.nii.gz" for k in range(pairs + 1)]
    for k, name in enumerate(names):
        images.write(folder / name, images.Image(blob((24, 24, 24), 0.1 * k / pairs)))
    rows = [f"{names[0]},{name},{k}" for k, name in enumerate(names[1:])]
    (folder / "pairs.csv").write_text("\n".join(["fixed,moving,id", *rows]) + "\n")
    return folder / "pairs.csv"


@pytest.mark.thorough
def test_the_command_killed_and_run_again(tmp_path: Path, command: Command):
    """It keeps what was finished, does the rest, and ends with the table of a run in peace."""
    words = ["pairs", list_of(12, tmp_path), "--report", "none", "--threads", 1, *FLAGS, "--out"]
    command(*words, tmp_path / "whole")
    out, deadline = tmp_path / "out", time.monotonic() + limit(60)
    process = command.start(*words, out)
    while len(seals(out)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    finished = check(out, {})
    assert process.returncode == -signal.SIGKILL and 2 <= len(finished) < 12
    assert not (out / "summary.csv").exists()
    command(*words, out)
    assert len(check(out, finished)) == 12
    assert table(out) == table(tmp_path / "whole")


@pytest.mark.parametrize(
    "pairs, rounds",
    [
        pytest.param(6, 4, marks=pytest.mark.thorough),
        pytest.param(40, 25, marks=pytest.mark.nightly),
    ],
)
def test_registrations_killed_at_random(pairs: int, rounds: int, tmp_path: Path):
    """Two processes share a folder and begin together; both are killed in each round."""
    rng, listed = random.Random(2), list_of(pairs, tmp_path)

    def start(out: str) -> subprocess.Popen[str]:
        paths = (str(listed), str(tmp_path / out), json.dumps(QUICK))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, "-c", REGISTER, *paths], **pipes)
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        return process

    def go(*processes: subprocess.Popen[str]) -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    whole = start("whole")
    began = time.monotonic()
    go(whole)
    whole.communicate(timeout=limit(240))
    seconds = (time.monotonic() - began) / pairs
    assert whole.returncode == 0
    out, finished = tmp_path / "out", dict[str, tuple[str, int]]()
    for _ in range(rounds):
        running = [start("out") for _ in range(2)]
        go(*running)
        time.sleep(rng.uniform(0, 4) * seconds)
        for process in running:
            process.kill()
            process.communicate()
        finished = check(out, finished) if out.exists() else {}
    assert finished
    running = [start("out") for _ in range(2)]
    go(*running)
    for process in running:
        process.communicate(timeout=limit(240))
        assert process.returncode == 0
    finished = check(out, finished)
    assert len(finished) == pairs and table(out) == table(tmp_path / "whole")
    assert not list(out.glob("*/.morphseek-*"))


def run(jobs: list[Any], **how: Any) -> dict[str, Ending]:
    endings: dict[str, Ending] = {}
    meter = Meter(len(jobs), None)
    run_jobs(jobs, meter=meter, ended=lambda each: endings.update({each.id: each}), **how)
    return endings


@pytest.mark.parametrize("fatal", ["0", "7"])
def test_only_the_job_that_ends_its_process_fails(fatal: str, idle: Any, tmp_path: Path):
    """Others that the process or its pool had at the time are done."""
    out = folder(tmp_path / "out")
    (out / "fatal.txt").write_text(fatal)
    endings = run(idle.jobs(out, 12), workers=2, scheduler="processes")
    assert {id for id, ending in endings.items() if ending.status == "failed"} == {fatal}
    assert len(endings) == 12 and "died" in endings[fatal].message
    (out / "fatal.txt").unlink()
    states = {ending.status for id, ending in run(idle.jobs(out, 12)).items() if id != fatal}
    assert states == {"skipped"}


def test_a_process_that_dies_while_it_has_no_job_is_replaced(idle: Any, tmp_path: Path):
    out, ends = folder(tmp_path / "out"), []

    def ended(ending: Ending) -> None:
        ends.append(ending.status)
        for process in multiprocessing.active_children() if len(ends) == 1 else ():
            process.kill()
            process.join()
            time.sleep(limit(0.5))  # until the pool knows

    meter = Meter(3, None)
    run_jobs(idle.jobs(out, 3), meter=meter, ended=ended, workers=1, scheduler="processes")
    assert ends == ["done"] * 3


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="has no masks of signals")
def test_no_ctrl_c_reaches_a_process_while_it_starts():
    """A terminal sends it to all; Python's trace of an import would follow."""
    with runner._Process() as process:
        future = process.submit(signal.getsignal, signal.SIGINT)
        while not future.done():
            for pid in process._processes:
                os.kill(pid, signal.SIGINT)
            time.sleep(0.05)
        assert future.result() is signal.SIG_IGN
        assert not process.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_what_is_finished_is_known_by_its_time_stamps(
    idle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is read as long as they stay; else contents count."""
    out = folder(tmp_path / "out")
    run(idle.jobs(out, 4))
    before = seals(out)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "content_of", lambda *_: pytest.fail("was read"))
        assert {e.status for e in run(idle.jobs(out, 4)).values()} == {"skipped"}
    os.utime(out / "input.txt", (1, 1))
    assert {e.status for e in run(idle.jobs(out, 4)).values()} == {"skipped"}
    assert seals(out) == before
    (out / "input.txt").write_text("other")
    assert {e.status for e in run(idle.jobs(out, 4)).values()} == {"done"}
