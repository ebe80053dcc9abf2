"""The GPU benchmark, end to end on the CPU at a small size, and the counting behind its floor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "python" / "benchmarks" / "gpu.py"


@pytest.fixture
def gpu():
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import gpu

        yield gpu
    finally:
        sys.path.remove(str(SCRIPT.parent))


def test_end_to_end_on_the_cpu(tmp_path):
    """A bundle that loops, through ONNX Runtime and through the engine; a device that is not there is a row that says so."""
    bundle = REPOSITORY / "engine" / "network" / "testdata" / "loop.onnx"
    for device in ("cpu", "tensorrt"):
        command = [sys.executable, SCRIPT, "--device", device, "--size", "16,12,20", "--networks", bundle, "--repeats", "1", "--out", tmp_path]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        report = json.loads((tmp_path / "table.json").read_text())
        plain, engine = report["rows"]
        assert (plain["network"], plain["how"], engine["how"]) == ("loop", "onnxruntime", "engine")
        page = (tmp_path / "table.md").read_text()
        assert page.count("| loop |") == 2
        if device == "cpu":
            assert len(plain["ms"]) == len(plain["resident_ms"]) == len(engine["ms"]) == 3, report
            assert plain["ms"][2] > 0 and engine["seconds"]["none"] > 0 and engine["gib"] > 0
        elif report["machine"]["gpu"] == "none":
            assert "failed" in plain and "failed" in engine and plain["failed"] in page


def test_a_network_that_cannot_be_exported_is_a_row(gpu, tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra: pip install morphseek[training]")
    gpu.run(tmp_path, device="cpu", size="32,32,32", networks="nice-trans", repeats=1, peak="67,989,3.35", train="")  # one voxel at its coarsest
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert len(rows) == 4 and all("spatial element" in row["failed"] and "\n" not in row["failed"] for row in rows)
    assert "spatial element" in (tmp_path / "table.md").read_text()


def test_difference(gpu):
    a, b = np.zeros((2, 1, 3, 4, 4, 4), np.float32)
    a[0, 0], b[0] = 3, a[0]
    b[0, 1, 0, 0, 0] = 0.5
    found = gpu.difference(a, b)
    assert found["max"] == 0.5 and found["mean"] == pytest.approx(0.5 / 64) and found["displacement"] == 3


def test_counting(gpu):
    torch = pytest.importorskip("torch", reason="needs the extra: pip install morphseek[training]")
    x, w = torch.ones(1, 4, 8, 8, 8), torch.ones(6, 4, 3, 3, 3)
    counter = gpu.counting(torch, (1.0, 2.0, 1e-3))  # TFLOP/s, TFLOP/s in half precision, TB/s
    with counter:
        y = torch.nn.functional.conv3d(x, w, padding=1)
        z = y.view(6, -1)
        z + 1
    # Bytes bound both: 4 * (inputs, weights, outputs), at 1 GB/s.
    conv, add = 4 * (4 * 512 + 6 * 4 * 27 + 6 * 512), 4 * (2 * 6 * 512)
    assert counter.total["tflop"] == pytest.approx(2 * 27 * 4 * 6 * 512 / 1e12)
    assert counter.total["gbyte"] == pytest.approx((conv + add) / 1e9)
    assert counter.total["fused_ms"] == pytest.approx(conv / 1e6)
    assert counter.total["ms"] == pytest.approx((conv + add) / 1e6)
    halves = gpu.counting(torch, (1e-6, 2e-6, 1e9))  # operations bound
    with halves:
        torch.nn.functional.conv3d(x.half(), w.half(), padding=1)
    assert halves.total["fused_ms"] == pytest.approx(1e3 * 2 * 27 * 4 * 6 * 512 / 2e6)


def test_operators():
    """Two nodes, one in the loop: the warm-up is left out, the fastest run counts, a convolution is counted from its shapes."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import operators
    finally:
        sys.path.remove(str(SCRIPT.parent))

    def event(name, kind, microseconds, shapes, out):
        args = {"op_name": kind, "input_type_shape": [{"float": s} for s in shapes], "output_type_shape": [{"float": out}], "output_size": "1000000"}
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": microseconds, "args": args}

    conv = [[1, 4, 8, 8, 8], [6, 4, 3, 3, 3]], [1, 6, 8, 8, 8]
    steps, repeats = 2, 2
    events = [event("c", "Conv", t, *conv) for t in (9000, 9000, 3000, 2000, 4000, 5000)]
    events += [event("o", "Loop", 99999, [[1]], [1])] * 3 + [{"cat": "Session", "name": "model_run", "dur": 1, "args": {}}]
    events += [event("m", "MatMul", t, [[5, 7], [7, 3]], [5, 3]) for t in (1, 500, 700, 500, 500, 600)]
    rows = operators.summed(events, repeats)
    assert list(rows) == ["Conv", "MatMul"]
    assert rows["Conv"] == pytest.approx({"calls": steps, "ms": 2 * 2, "gflop": 2 * 2 * 27 * 4 * 6 * 512 / 1e9, "gbyte": 2e-3})
    assert rows["MatMul"] == pytest.approx({"calls": steps, "ms": 2 * 0.5, "gflop": 2 * 2 * 5 * 7 * 3 / 1e9, "gbyte": 2e-3})
    assert "| Conv | 2 | 4.0 | 80 % |" in operators.table(rows)
