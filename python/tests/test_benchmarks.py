"""The benchmark against the peers: its table, its rows of failures, its scores, and how it measures
processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import measure  # noqa: E402
import pairs as data_sets  # noqa: E402
import scoring  # noqa: E402
import stages  # noqa: E402
import summary  # noqa: E402


def compare(out: Path, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / "peers.py"), "--out", str(out), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.thorough
def test_table(tmp_path: Path):
    """With two pairs, one of them with a broken image, ours and a peer run. The failure is a row
    that counts, and nothing runs twice.
    """
    folder, out = tmp_path / "torsos", tmp_path / "out"
    data_sets.make_phantom(folder, 2, 40)
    (folder / "images" / "moving1.nii.gz").write_bytes(b"no image")
    arguments = [
        "--data",
        f"torsos={folder}",
        "--methods",
        "morphseek-affine,sitk-affine,sitk-demons,deeds",
    ]
    assert compare(out, *arguments).count("ran torsos") == 6
    again = compare(out, *arguments)
    assert again.count("kept torsos") == 6 and "ran torsos" not in again

    table = json.loads((out / "table.json").read_text(encoding="utf-8"))
    methods = table["data"]["torsos"]
    assert set(methods) == {"unregistered", "morphseek-affine", "sitk-affine", "sitk-demons"}
    rows = {
        name: [
            json.loads(
                (out / f"rows/torsos/fixed{i}--moving{i}/{name}.json").read_text(encoding="utf-8")
            )
            for i in (0, 1)
        ]
        for name in methods
    }
    before = [row["mean_dice"] for row in rows["unregistered"]]
    for name in ("morphseek-affine", "sitk-affine", "sitk-demons"):
        good, bad = rows[name]
        assert (good["status"], bad["status"]) == ("ok", "failed") and bad["reason"]
        assert bad["mean_dice"] == before[1]
        assert good["cpu_seconds"] > 0 and good["peak_bytes"] > 2**24 and good["njd_percent"] >= 0
        assert (methods[name]["pairs"], methods[name]["failed"]) == (2, 1)
        assert methods[name]["mean_dice"] == pytest.approx((good["mean_dice"] + before[1]) / 2)
    assert rows["morphseek-affine"][0]["mean_dice"] > before[0] + 0.1
    best = max(("sitk-affine", "sitk-demons"), key=lambda name: methods[name]["mean_dice"])
    assert methods["morphseek-affine"]["against"]["peer"] == best

    page = (out / "table.md").read_text(encoding="utf-8")
    for column in ("Dice mean", "worst", "HD95 mm", "NJD %", "SDlogJ", "CPU s", "peak MiB"):
        assert f" {column} |" in page
    assert (
        "| morphseek-affine | 2 (1) |" in page
        and "fixed1 <- moving1, **sitk-demons**: failed:" in page
    )
    if "deeds" in table["left_out"]:
        assert "- **deeds**: FileNotFoundError" in page
    for picture in ("accuracy_time", "time_size", "memory"):
        assert (out / f"{picture}.png").stat().st_size > 5000


@pytest.mark.thorough
def test_timeout_is_a_row(tmp_path: Path):
    folder = tmp_path / "torsos"
    data_sets.make_phantom(folder, 1, 24)
    compare(
        tmp_path, "--data", f"torsos={folder}", "--methods", "morphseek-affine", "--timeout", "0.05"
    )
    row = json.loads(
        (tmp_path / "rows/torsos/fixed0--moving0/morphseek-affine.json").read_text(encoding="utf-8")
    )
    assert row["status"] == "timeout" and row["seconds"] < 5


def test_unknown_method_is_named(tmp_path: Path):
    command = [
        sys.executable,
        str(BENCHMARKS / "peers.py"),
        "--out",
        str(tmp_path),
        "--methods",
        "nosuch",
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 2 and "nosuch" in finished.stderr


def cube(first: int, spacing: tuple[float, float, float] = (1.0, 1.5, 2.0)) -> sitk.Image:
    """Return a map with label 3 on 8 x 8 x 8 voxels from (first, 6, 6) in x, y, z."""
    array = np.zeros((20, 20, 24), np.uint8)
    array[6:14, 6:14, first : first + 8] = 3
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(spacing)
    return image


def constant(like: sitk.Image, mm: tuple[float, float, float]) -> sitk.Image:
    field = sitk.GetImageFromArray(
        np.broadcast_to(np.array(mm), (*like.GetSize()[::-1], 3)).copy(), isVector=True
    )
    field.CopyInformation(like)
    return field


def test_score():
    fixed, moving = cube(6), cube(8)
    before = scoring.score(fixed, moving)
    # six of eight voxels overlap; faces two voxels of 1 mm apart
    assert before["dice"] == {3: 0.75} and before["hd95"] == {3: 2.0}
    after = scoring.score(fixed, moving, constant(fixed, (2.0, 0.0, 0.0)))
    assert (
        after["dice"] == {3: 1.0}
        and after["hd95"] == {3: 0.0}
        and after["njd_percent"] == 0
        and after["sdlogj"] == pytest.approx(0)
    )
    lost = scoring.score(fixed, moving, constant(fixed, (100.0, 0.0, 0.0)))
    assert lost["dice"] == {3: 0.0} and lost["mean_hd95"] is None


@pytest.mark.parametrize("turn", [0.0, 0.4])
def test_jacobian_of_a_linear_map(turn: float):
    """It is det A everywhere, also at the border, on an axis-aligned and on an oblique grid."""
    image = cube(6)
    c, s = np.cos(turn), np.sin(turn)
    image.SetDirection((c, -s, 0, s, c, 0, 0, 0, 1))
    a = np.array([[1.1, 0.2, 0.0], [-0.1, 0.9, 0.05], [0.0, 0.1, 1.2]])
    transform = sitk.AffineTransform(a.ravel().tolist(), (3.0, -1.0, 2.0))
    grid = (image.GetSize(), image.GetOrigin(), image.GetSpacing(), image.GetDirection())
    field = sitk.TransformToDisplacementField(transform, sitk.sitkVectorFloat64, *grid)
    assert scoring.jacobian(field) == pytest.approx(np.full((20, 20, 24), np.linalg.det(a)))


def test_wilcoxon_against_the_best_peer():
    """With five differences of one sign, p = 2/2^5."""

    def rows(dice: list[float], ours: bool) -> list[dict]:
        return [
            {"fixed": str(i), "moving": "m", "status": "ok", "mean_dice": d, "ours": ours}
            for i, d in enumerate(dice)
        ]

    methods = {
        "weak": rows([0.1] * 5, False),
        "strong": rows([0.5, 0.6, 0.4, 0.3, 0.2], False),
        "morphseek": rows([0.51, 0.62, 0.43, 0.34, 0.25], True),
    }
    found = summary.summarise(methods)
    assert list(found) == ["morphseek", "strong", "weak"]
    assert found["morphseek"]["against"] == {
        "peer": "strong",
        "pairs": 5,
        "mean_difference": pytest.approx(0.03),
        "p": pytest.approx(0.0625),
    }


def test_cost_is_of_the_child_and_its_children(tmp_path: Path):
    ballast = np.ones(2**26)  # 512 MiB in this process, which must not count for the child
    busy = "import time\nwhile time.process_time() < 0.4: pass"
    code = (
        "import subprocess, sys; b = bytearray(2**27); subprocess.run([sys.executable, '-c',"
        f" {busy!r}]); print('done', b[0])"
    )
    cost = measure.run([sys.executable, "-c", code], threads=1, timeout=60, log=tmp_path / "log")
    assert ballast[0] == 1 and (tmp_path / "log").read_text(encoding="utf-8") == "done 0\n"
    assert cost.exit_status == 0 and not cost.timed_out
    assert 0.4 <= cost.cpu_seconds < 3 and 2**27 < cost.peak_bytes < 2**27 + 2**26


def test_modules_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "imported.py").write_text("")
    measure.run(
        [sys.executable, "-c", "import imported"], threads=1, timeout=60, log=tmp_path / "log"
    )
    assert list(tmp_path.glob("__pycache__/imported.*.pyc"))


def test_every_stage_has_a_row_of_its_own():
    from methods import METHODS

    names = ("affine", "search", "refine", "default", "fast", "best")
    ours = {name for name, method in METHODS.items() if method.ours and not method.only}
    assert {f"morphseek-{name}" for name in names} <= ours


def test_floor_of_a_stage():
    """In the cache arithmetic sets the bound, beyond it bytes may. A pass counts as often as it
    runs.
    """
    small, large = (stages.Pass("p", n, operations=10, bytes=8, times=3) for n in (1e6, 1e7))
    assert (small.gflop, small.gbyte) == (pytest.approx(0.03), pytest.approx(0.024))
    assert small.floor(100, 1, cache_mb=32) == pytest.approx(0.0003)
    assert large.floor(100, 1, cache_mb=32) == pytest.approx(0.24) and large.floor(
        1, 100, cache_mb=32
    ) == pytest.approx(0.3)
    page = stages.page({"x": ("x", 0.48, [large])}, (100, 1), 32, passes=True)
    assert (
        "| x | 0.48 | 0.3 | 0.2 | 0.24 | 2.0 |" in page
        and "| - p | | 0.30 | 0.24 | 0.240 | |" in page
    )


def test_counts_of_the_stages():
    """The grids are the engine's, and the counts grow with the work."""
    fixed, moving = (
        stages.Grid((157, 210, 164), (1.0, 1.0, 1.0)),
        stages.Grid((159, 198, 166), (1.0, 1.0, 1.0)),
    )
    ffts = next(p for p in stages.align(fixed, moving) if p.what == "FFTs")
    # counts of an instrumented build
    assert (ffts.elements, ffts.times) == (72 * 90 * 72, 117)
    assert [stages.fast_size(n, 2) for n in (7, 11, 30, 97)] == [8, 12, 30, 100]
    levels = [
        {"spacing_mm": 2.0, "similarity": [0.1] * 60},
        {"spacing_mm": 1.0, "similarity": [0.1] * 30},
    ]
    coarse, both = (
        sum(p.gflop for p in stages.refine(fixed, given)) for given in (levels[:1], levels)
    )
    # eight times the voxels, half the steps
    assert both / coarse == pytest.approx(1 + 8 / 2, rel=0.05)


def test_stages_end_to_end(tmp_path: Path):
    from helpers import blob

    for name, shift in (("a", 0.0), ("b", 0.1)):
        sitk.WriteImage(
            sitk.GetImageFromArray(blob((40, 44, 48), shift)), str(tmp_path / f"{name}.nii.gz")
        )
    command = [
        sys.executable,
        str(BENCHMARKS / "stages.py"),
        str(tmp_path / "a.nii.gz"),
        str(tmp_path / "b.nii.gz"),
        "--repeats",
        "1",
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    assert [line.split()[1] for line in finished.stdout.splitlines() if line.startswith("| ")] == [
        "stage",
        "align",
        "search",
        "refine",
        "finish",
    ]


def test_killed_with_what_it_started(tmp_path: Path):
    code = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time;"
        " time.sleep(60)'])"
    )
    cost = measure.run([sys.executable, "-c", code], threads=1, timeout=1, log=tmp_path / "log")
    assert cost.timed_out and cost.exit_status != 0 and cost.seconds < 10
