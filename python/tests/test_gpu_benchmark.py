"""The GPU benchmark, end to end on the CPU at a small size, and the counting behind its floor."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "python" / "benchmarks" / "gpu.py"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import gpu

    return gpu


@pytest.mark.nightly
def test_end_to_end_on_the_cpu(tmp_path):
    """A bundle with a loop runs in ONNX Runtime and in the engine. A missing bundle becomes a row
    that says so.
    """
    bundle = REPOSITORY / "engine" / "internal" / "network" / "testdata" / "loop.onnx"
    networks = f"{bundle},{tmp_path / 'nosuch.onnx'}"
    command = [sys.executable, SCRIPT, *"--device cpu --size 16,12,20 --repeats 1".split()]
    command += ["--networks", networks, "--out", tmp_path]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    plain, engine, *missing = report["rows"]
    assert (plain["network"], plain["how"], engine["how"]) == ("loop", "onnxruntime", "engine")
    page = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert page.count("| loop |") == 2
    assert len(plain["ms"]) == len(plain["resident_ms"]) == len(engine["ms"]) == 3, report
    assert plain["ms"][2] > 0 and engine["seconds"]["none"] > 0 and engine["gib"] > 0
    assert plain["placement"]["nodes"] > 10 and plain["placement"]["on_cpu"] == {}
    assert report["peak"] is None and report["card"] is None and report["training"] == []
    assert len(missing) == 2
    assert all("nosuch.onnx" in row["failed"] and row["failed"] in page for row in missing)


def test_stops_without_the_provider(gpu, tmp_path, monkeypatch):
    """It stops with the remedy instead of a table of equal failures."""
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(SystemExit, match="pip install --force-reinstall --no-deps onnxruntime-gpu"):
        gpu.run(["--out", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()
    gpu.require("cpu")


def test_the_card_that_cuda_shows(gpu, tmp_path, monkeypatch):
    """If CUDA's first card is not nvidia-smi's first, name and memory are those of CUDA's."""
    bytes16 = bytes(range(16))

    def name_of(name, length, device):
        name.value = b"NVIDIA H200"
        return 0

    def uuid_of(uuid, device):
        uuid[:] = bytes16
        return 0

    driver = SimpleNamespace(cuInit=lambda flags: 0, cuDeviceGet=lambda device, ordinal: ordinal)
    driver.cuDeviceGetName, driver.cuDeviceGetUuid = name_of, uuid_of
    gpu.card.cache_clear()
    monkeypatch.setattr(gpu.ctypes, "CDLL", lambda name: driver)
    uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    try:
        assert gpu.card() == {"name": "NVIDIA H200", "uuid": uuid}
        smi = tmp_path / "nvidia-smi"
        smi.write_text(
            f'#!/bin/sh\ncase "$*" in *--id={uuid}*) echo 2048;; *) echo 7; echo 2048;; esac\n'
        )
        smi.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        assert gpu.memory("cuda") == 2
    finally:
        gpu.card.cache_clear()


def test_peaks_by_the_name_of_the_card(gpu):
    def of(name):
        return gpu.peaks("", {"name": name, "uuid": ""})

    assert of("NVIDIA H100 80GB HBM3") == (67, 989, 3.35) and of("NVIDIA H100 PCIe")[2] == 2.0
    assert of("NVIDIA H200") == (67, 989, 4.8)
    assert of("NVIDIA A800-SXM4-80GB") == of("NVIDIA A100-SXM4-80GB") != of("NVIDIA A100-PCIE-40GB")
    assert of("NVIDIA L40S")[2] == 0.864 and of("NVIDIA GeForce RTX 4090")[2] == 1.008
    others = ("GH200 480GB", "L40", "GeForce RTX 4090 Laptop GPU", "H100 80GB HBM3 MIG 1g.10gb")
    assert [other for other in others if of(f"NVIDIA {other}")] == []
    assert gpu.peaks("", None) is None
    for card in (None, {"name": "NVIDIA H200", "uuid": ""}):
        assert gpu.peaks("1,2,3", card) == (1, 2, 3)


def test_times_over_the_floor(gpu):
    row = {"ms": [20.0, 30.0, 60.0], "resident_ms": [10.0, 20.0, 30.0]}
    gpu.over_floor(row, {"tflop": 1.0, "gbyte": 1.0})
    # the card's peaks are not known
    assert "ms_over_floor" not in row and gpu.timed(row, "ms") == ["20", "30", "60"]
    gpu.over_floor(row, {"ms": 5.0, "fused_ms": 4.0})
    assert row["ms_over_floor"] == {"fused_ms": [5.0, 3.75, 5.0], "ms": [4.0, 3.0, 4.0]}
    assert gpu.timed(row, "resident_ms") == ["10 (2.5)", "20 (2.5)", "30 (2.5)"]
    failed = {"failed": "no"}
    gpu.over_floor(failed, {"ms": 5.0, "fused_ms": 4.0})
    assert failed == {"failed": "no"}


def test_placement(gpu):
    """Nodes that ran on the CPU are counted once, by kind. A loop's time is that of its nodes."""

    def event(name, kind, provider, microseconds, size):
        args = {"op_name": kind, "provider": f"{provider}ExecutionProvider"}
        args["output_size"] = str(size)
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": microseconds, "args": args}

    events = [
        {"cat": "Session", "name": "model_run", "dur": 9, "args": {}},
        event("c", "Conv", "CUDA", 5, 10**6),
        event("l", "Loop", "CPU", 10**6, 0),
    ]
    events += [event(f"s{i}", "Shape", "CPU", 1000, 8) for i in (0, 0, 1)]
    events += [event("g", "GridSample", "CPU", 2000, 3 * 10**6)]
    found = gpu.placement(events, "cuda")
    assert (found["nodes"], found["on_cpu_ms"]) == (5, 5.0)
    assert found["on_cpu"] == {"Shape": 2, "Loop": 1, "GridSample": 1}
    assert found["on_cpu_mb"] == pytest.approx(3.000024)
    assert gpu.placed(found) == "4 of 5 (Shape 2, Loop 1, GridSample 1; 3.000 MB, 5.0 ms)"
    assert gpu.placement(events, "cpu")["on_cpu"] == {}
    assert gpu.placed(gpu.placement(events[:2], "cuda")) == "0 of 1"


@pytest.mark.nightly
def test_a_iteration_of_training(gpu):
    """T steps of one of the paper's networks, each with an update, by the trainer's own code, are a
    row of the table.
    """
    pytest.importorskip("torch", reason="needs the extra: pip install morphseek[training]")
    row = gpu.one_training("voxelmorph-l", "2", "32,32,32", "cpu")
    assert row["updates"] == 3 and row["seconds"] > 0 and row["gib"] > 0.1
    machine = {"cpu": "a CPU", "gpu": "none", "cores": 2, "load_average": 0}
    report = {"machine": machine, "size": (32, 32, 32), "device": "cpu", "card": None}
    report |= {"peak": None, "rows": [], "floors": {}}
    report["training"] = [
        {"network": "voxelmorph-l", "trajectories": 2, "steps": 3} | found
        for found in (row, {"failed": "no memory"})
    ]
    page = gpu.page(report)
    assert f"| voxelmorph-l | 2 | 3 | {row['seconds']:.2f} | {row['gib']:.1f} |" in page
    assert "| voxelmorph-l | 2 | 3 | no memory | |" in page


def test_floor_without_peaks(gpu):
    torch = pytest.importorskip("torch", reason="needs the extra: pip install morphseek[training]")
    counter = gpu.counting(torch, None)
    with counter:
        torch.ones(2, 3) @ torch.ones(3, 4)
    assert counter.total["tflop"] == pytest.approx(48e-12)
    assert set(counter.total) == {"tflop", "gbyte"}


@pytest.mark.nightly
def test_a_network_that_cannot_be_exported_is_a_row(gpu, tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra: pip install morphseek[training]")
    # one voxel at the coarsest level
    words = "--device cpu --size 32,32,32 --networks nice-trans --repeats 1 --peak 67,989,3.35"
    gpu.run(["--out", str(tmp_path), *words.split(), "--train", ""], standalone_mode=False)
    rows = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) == 4
    assert all("spatial element" in r["failed"] and "\n" not in r["failed"] for r in rows)
    assert "spatial element" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_difference(gpu):
    a, b = np.zeros((2, 1, 3, 4, 4, 4), np.float32)
    a[0, 0], b[0] = 3, a[0]
    b[0, 1, 0, 0, 0] = 0.5
    found = gpu.difference(a, b)
    assert (found["max"], found["displacement"]) == (0.5, 3)
    assert found["mean"] == pytest.approx(0.5 / 64)


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
