"""The benchmark against the peers: its table, its rows of failures, its scores, and how it measures
processes.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import measure  # noqa: E402
import peers  # noqa: E402
import scoring  # noqa: E402
from methods import METHODS, Job  # noqa: E402


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("timeout", "broken", "status"),
    [(300, False, "ok"), (300, True, "failed"), (0.05, False, "timeout")],
)
def test_a_run_is_a_row(tmp_path: Path, timeout: float, broken: bool, status: str):
    """A failure or a timeout is one, too: it says why, and there is no field."""
    files = [tmp_path / f"{side}.nrrd" for side in ("fixed", "moving")]
    for path, image in zip(files, (cube(4), cube(6)), strict=True):
        sitk.WriteImage(image, str(path))
    if broken:
        files[1].write_bytes(b"no image")
    job = Job(*files, tmp_path, 1, False)
    row, field = peers.carry_out(METHODS["sitk-affine"], job, timeout)
    assert row["status"] == status and bool(row["reason"]) == (status != "ok")
    assert (field is not None) == (status == "ok")
    if field is not None:
        assert row["cpu_seconds"] > 0 and row["peak_bytes"] > 2**24
        assert list(field.GetSize()) == peers.size_of(files[0])


def cube(first: int, spacing: tuple[float, float, float] = (1.0, 1.5, 2.0)) -> sitk.Image:
    """Return a map with label 3 on 8 x 8 x 8 voxels from (first, 6, 6) in x, y, z."""
    array = np.zeros((20, 20, 24), np.uint8)
    array[6:14, 6:14, first : first + 8] = 3
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(spacing)
    return image


def constant(like: sitk.Image, mm: tuple[float, float, float]) -> sitk.Image:
    vectors = np.broadcast_to(np.array(mm), (*like.GetSize()[::-1], 3)).copy()
    field = sitk.GetImageFromArray(vectors, isVector=True)
    field.CopyInformation(like)
    return field


def test_score():
    fixed, moving = cube(6), cube(8)
    before = scoring.score(fixed, moving)
    # six of eight voxels overlap; faces two voxels of 1 mm apart
    assert before["dice"] == {3: 0.75} and before["hd95"] == {3: 2.0}
    shift = constant(fixed, (2.0, 0.0, 0.0))
    after = scoring.score(fixed, moving, shift)
    assert after["dice"] == {3: 1.0} and after["hd95"] == {3: 0.0}
    regular = scoring.regularity(shift)
    assert regular["njd_percent"] == 0 and regular["sdlogj"] == pytest.approx(0)
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
    how = {"threads": 1, "timeout": 60, "log": tmp_path / "log"}
    measure.run([sys.executable, "-c", "import imported"], **how)
    assert list(tmp_path.glob("__pycache__/imported.*.pyc"))


def test_killed_with_what_it_started(tmp_path: Path):
    sleep = "'import time; time.sleep(60)'"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep}])"
    cost = measure.run([sys.executable, "-c", code], threads=1, timeout=1, log=tmp_path / "log")
    assert cost.timed_out and cost.exit_status != 0 and cost.seconds < 10
