"""The benchmark of the best of J trajectories: it chooses as documented, its mean is the engine's,
and an interrupted run is continued.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

best = pytest.importorskip("best")

DATA = Path(os.environ.get("MORPHSEEK_DATA", "shared/data")) / "hippocampus"


@pytest.mark.parametrize(
    ("which", "j", "expected"),
    [
        # the truth is 0.7 0.6 0.9 0.8; the reward's order is 2nd < 1st < 4th < 3rd; two candidates
        # tie for the referee, and the first one, the mean, wins
        ("overlap", 4, {"truth": 0.2, "reward": 0.2, "referee": 0.0}),
        ("overlap", 2, {"truth": 0.0, "reward": 0.0, "referee": 0.0}),
        # for points the smallest error is the best
        ("points", 4, {"truth": 0.1, "reward": -0.2, "referee": 0.0}),
        ("points", 2, {"truth": 0.1, "reward": 0.0, "referee": 0.0}),
    ],
)
def test_gain_over_the_mean(which: str, j: int, expected: dict[str, float]):
    row = {"set": which, "measured": [0.7, 0.6, 0.9, 0.8][:j]}
    row |= {"reward": [1, 0, 3, 2][:j], "referee": [0.0, -1, -2, 0.0][:j]}
    assert {way: best.gains([row], way)[0] for way in best.WAYS} == pytest.approx(expected)


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "best.py"), "--out", str(out), *arguments]
    # Wide, so that a path of any length stays on one line of a message.
    environment = {**os.environ, "COLUMNS": "1000", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def needs_data() -> None:
    pytest.importorskip("torch", reason="needs morphseek[training]")
    if not (DATA / "split.json").exists():
        pytest.skip(f"REAL DATA ABSENT: no {DATA}; set MORPHSEEK_DATA to run this test")
    if not (best.BUNDLES / "hippocampus.onnx").exists():
        pytest.skip(f"NETWORK ABSENT: no hippocampus.onnx in {best.BUNDLES}")


def test_end_to_end(tmp_path: Path):
    """One pair of each set with two trajectories. The mean's field is the one that the engine
    computes itself. A line that was cut off by a kill is run again, the other not.
    """
    needs_data()
    asked = ["--data", str(DATA), "--j", "2", "--n", "1"]
    first = run(tmp_path, *asked)
    assert first.returncode == 0, first.stdout + first.stderr
    path = tmp_path / "rows.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    assert [r["set"] for r in rows] == ["overlap", "points"]
    for r in rows:
        assert r["engine_mm"] < 0.01 and r["measured"][0] == pytest.approx(r["engine"], abs=0.002)
        assert r["measured"][0] != r["measured"][1] and r["referee"][0] != r["referee"][1]
    assert "| `hippocampus`, 1, 2 | truth |" in first.stdout

    path.write_text(lines[0] + lines[1][:40], encoding="utf-8")
    again = run(tmp_path, *asked)
    assert again.returncode == 0 and again.stdout.count("CPU s") == 1, again.stdout + again.stderr
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [r["measured"] for r in found] == [pytest.approx(r["measured"]) for r in rows]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "nosuch"], "split.json"),
        (["--data", "{data}", "--minutes", "0"], "rows.jsonl"),
        (["--data", "{data}", "--models", "nosuch"], "nosuch"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, arguments: list[str], said: str):
    if "nosuch" in arguments[-1] and "--models" in arguments:
        needs_data()
    data = tmp_path / "data"
    data.mkdir()
    (data / "split.json").write_text('{"pairs": {"test": []}}')
    finished = run(tmp_path / "new", *(a.format(data=data) for a in arguments))
    assert finished.returncode == 2 and said in finished.stderr, finished.stdout + finished.stderr
