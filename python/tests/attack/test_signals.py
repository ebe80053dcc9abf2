"""Signals that end a process: no image data is left behind, and the exit code tells the signal."""

import signal
import sys
import time
from pathlib import Path

import pytest

from helpers import Command
from pace import limit

if sys.platform == "win32":
    pytest.skip("there are no such signals", allow_module_level=True)

SLOW = ["--model", "none", "--refine", "1000", "--search", "off", "--threads", "1", "--quiet"]
SLOW += ["--uncertainty"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("name", ["register", "pairs"])
def test_a_signal(name, number, code, files, command, tmp_path):
    out, pairs = tmp_path / "out", [files["fixed"], files["moving"]]
    if name == "pairs":
        pairs = [tmp_path / "pairs.csv"]
        pairs[0].write_text(f"fixed,moving,id\n{files['fixed']},{files['moving']},one\n")
    process = command.start(name, *pairs, "--out", out, *SLOW)
    deadline = time.monotonic() + limit(10)
    while not list(tmp_path.glob("out/**/.morphseek-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(number)
    if number != signal.SIGINT:  # schedulers send it twice
        time.sleep(0.05)
        process.send_signal(number)
    started = time.monotonic()
    _, said = process.communicate(timeout=limit(30))
    assert process.returncode == code and "morphseek: cancelled" in said, said
    assert time.monotonic() - started < limit(5)
    assert not list(tmp_path.glob("out/**/.morphseek-*"))
    assert name == "register" or "the same command goes on" in said


def test_nohup_holds(files: dict[str, Path], command: Command, tmp_path: Path):
    process = command.start(
        "register", files["fixed"], files["moving"], "--out", tmp_path / "out", "--model", "none",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    time.sleep(0.5)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=limit(60))
    assert process.returncode == 0
