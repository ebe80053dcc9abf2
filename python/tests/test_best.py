"""The benchmark of the best of J trajectories: it chooses as documented, its referee agrees with
the engine's, and an interrupted run is continued.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

best = pytest.importorskip("best")

DATA = Path(os.environ.get("MORPHSEEK_DATA", "shared/data")) / "hippocampus"


def row(
    which: str, measured: list[float], reward: list[float], referee: list[float]
) -> dict[str, Any]:
    average = [measured[0], 0.0, 0.75]
    given = {"measured": measured, "reward": reward, "referee": referee, "average": average}
    return {"set": which, "j": len(measured), **given}


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8])]
)
def test_sizes(most: int, expected: list[int]):
    assert best.sizes(most) == expected


@pytest.mark.parametrize(
    ("which", "j", "expected"),
    [
        # the truth is 0.7 0.6 0.9 0.8; the reward's order is 2nd < 1st < 4th < 3rd
        ("overlap", 4, {"oracle": 0.9, "reward": 0.9, "referee": 0.7, "average": 0.75}),
        ("overlap", 2, {"oracle": 0.7, "reward": 0.7, "referee": 0.7, "average": 0.0}),
        ("overlap", 1, {"oracle": 0.7, "reward": 0.7, "referee": 0.7, "average": 0.7}),
        # for points the smallest error is the best
        ("points", 4, {"oracle": 0.6, "reward": 0.9, "referee": 0.7, "average": 0.75}),
        ("points", 2, {"oracle": 0.6, "reward": 0.7, "referee": 0.7, "average": 0.0}),
    ],
)
def test_choice(which: str, j: int, expected: dict[str, float]):
    # two candidates tie for the referee: the first one, the mean, wins
    r = row(which, [0.7, 0.6, 0.9, 0.8], [1, 0, 3, 2], [0.0, -1, -2, 0.0])
    found = best.chosen(r, j)
    assert {k: v for k, v in found.items() if k != "sample"} == expected
    assert found["sample"] == pytest.approx(np.mean([0.6, 0.9, 0.8][: max(j - 1, 0)] or [0.7]))


def test_share_and_gain():
    """Computed by hand: the oracle gains .2 and .1 in Dice, the reward .2 and -.1: a third."""
    rows = [
        row("overlap", [0.7, 0.6, 0.9, 0.8], [1, 0, 3, 2], [0, 1, 0, 0]),
        row("overlap", [0.7, 0.6, 0.8, 0.7], [1, 3, 2, 0], [0, -1, 1, 0]),
    ]
    assert best.gains(rows, "oracle", 4) == pytest.approx([0.2, 0.1])
    assert best.share(rows, "reward", 4) == pytest.approx((0.2 - 0.1) / 0.3)
    assert best.share(rows, "referee", 4) == pytest.approx(0, abs=1e-9)
    assert np.isnan(best.share(rows, "reward", 1))  # with only the mean nothing can be gained
    points = [{**r, "set": "points"} for r in rows]
    assert best.gains(points, "reward", 4) == pytest.approx([-0.2, 0.1])
    low, high = best.interval(np.array([0.2, 0.1]))
    assert (low, high) == pytest.approx((0.1, 0.2))


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
    """One pair of each set with two trajectories. The mean's field and the referee's gain are those
    that the engine computes itself. A line that was cut off by a kill is run again, the other not.
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
        assert r["gain"] == pytest.approx(r["engine_gain"], abs=0.005)
        assert r["measured"][0] != r["measured"][1] and r["spread_mm"] > 0
    assert "| `hippocampus`, 1, 2 | oracle |" in first.stdout
    assert 4000 < (tmp_path / "best.png").stat().st_size < 60_000

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
