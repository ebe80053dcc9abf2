"""The benchmark of the plan's choices: an interrupted run is continued, and choosers learn a choice
that can be learned.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import choices  # noqa: E402
import choosers  # noqa: E402


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "choices.py"), "--out", str(out), *arguments]
    # Wide, so that a path of any length stays on one line of a message.
    environment = {**os.environ, "COLUMNS": "1000"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.nightly
def test_end_to_end(tmp_path: Path):
    """Two pairs of one kind with two candidates. A line that was cut off by a kill is run again,
    the others are not.
    """
    asked = ["--kinds", "=torso CT", "--candidates", "affine alone", "--size", "24"]
    first = run(tmp_path, *asked)
    assert first.returncode == 0, first.stdout + first.stderr
    path = tmp_path / "rows.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    assert [row["candidate"] for row in rows] == ["plan", "affine alone"] * 2
    # a deformation must help on a torso, which an affine cannot fit
    assert all(rows[k]["error"] < 0.6 * rows[k + 1]["error"] for k in (0, 2))
    assert "| torso CT (2) |" in first.stdout and "the oracle | 0.0 (0.0 to 0.0)" in first.stdout

    path.write_text("".join(lines[:-1]) + lines[-1][:40], encoding="utf-8")
    again = run(tmp_path, *asked)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count(" CPU s | ok") == 1
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["error"] for row in found] == pytest.approx([row["error"] for row in rows])

    other = run(tmp_path, *asked[:-1], "32")
    assert other.returncode == 2 and "size 24" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--candidates", "nosuch"], "nosuch"),
        (["--kinds", "nosuch"], "nosuch"),
        (["--minutes", "0"], "rows.jsonl"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, arguments: list[str], said: str):
    finished = run(tmp_path / "new", *arguments)
    assert finished.returncode == 2 and said in finished.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "package"), [("boosted trees", "sklearn"), ("GRPO", "torch")])
def test_learns_what_a_fact_tells(name: str, package: str):
    """Candidate 1 is right where a fact is positive, candidate 2 where it is negative. No fixed
    choice gains, but a learned one does on unseen pairs.
    """
    pytest.importorskip(package)
    if package == "torch":
        pytest.importorskip("morphseek.training", reason="needs morphseek[training]")
    rng = np.random.default_rng(0)
    facts = rng.standard_normal((60, 3))
    right = 0.5 * facts[:, :1]
    gains = np.hstack([0 * right, right, -right])
    groups = [f"kind {k % 6}" for k in range(60)]

    chosen = choosers.left_out(choosers.CHOOSERS[name][1], facts, gains, groups, 1)
    most, fixed = float(gains.max(1).mean()), float(gains.mean(0).max())
    assert fixed < 0.3 * most < 0.8 * most < gains[np.arange(60), chosen].mean()


def table(kinds: list[str], errors: list[list[float]]) -> choices.Table:
    return choices.Table(kinds, ["plan", "a", "b"], np.array(errors), np.zeros((len(kinds), 1)))


def test_compared():
    """Computed by hand: in kind x, a has half the error in both pairs; in y, another is best in
    each.
    """
    t = table(["x", "x", "y, noise", "y, noise"], [[4, 2, 8], [2, 1, 4], [1, 0.5, 2], [1, 2, 0.5]])
    first = choices.compared(t, choices.gain_of(t, np.array([1, 1, 1, 1])))
    assert first["gain"] == pytest.approx(100 * (1 - 0.5**0.5))
    assert (first["better"], first["worse"]) == (1, 0)
    best = choices.compared(t, t.gains.max(1))
    # two kinds of one sign: p = 2 / 2^2
    assert best["gain"] == pytest.approx(50) and best["p"] == pytest.approx(0.5)
    text = choices.ceilings(t, {"oracle": t.gains.max(1)})
    assert "| x (2) | 3.00 | 1.50 | 50 | a; a |" in text
    assert "| y, noise (2) | 1.00 | 0.50 | 50 | a; b |" in text


def test_measures_of_images():
    """Noise of a known share of the range; correlation and its sign."""
    import SimpleITK as sitk

    rng = np.random.default_rng(0)
    ramp = np.broadcast_to(np.linspace(100, 900, 40), (40, 40, 40))
    noisy = sitk.GetImageFromArray((ramp + rng.normal(0, 20, ramp.shape)).astype(np.float32))
    assert choices.noise_of(noisy) == pytest.approx(20 / 800, rel=0.15)
    a = rng.standard_normal((20, 20, 20))
    assert choices.local_correlation(a, 2 * a + 1) == pytest.approx((1.0, 0.0), abs=1e-6)
    assert choices.local_correlation(a, 3 - a) == pytest.approx((1.0, 1.0), abs=1e-6)
    squared, _ = choices.local_correlation(a, rng.standard_normal((20, 20, 20)))
    assert squared < 0.02
