"""Times warp and compose against SimpleITK, ONNX Runtime and PyTorch in one run: 160x192x224, 2
threads, the same field.

    python kernels.py [rounds]

Needs Go, SimpleITK, onnx and onnxruntime, and uses PyTorch if it is installed. The contestants run
by turns in each round, and the least time of each counts. CPU seconds are given beside the wall
clock because they are valid on a busy machine, too. The floor is a copy of the bytes that must
move.
"""

import argparse
import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from onnx import TensorProto, helper

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when it loads
import onnxruntime

THREADS = 2
SHAPE = (224, 192, 160)


def waves(amplitude):
    """Return the field of the Go benchmarks, planes x, y, z."""
    z, y, x = np.meshgrid(*(np.arange(n, dtype=np.float32) for n in SHAPE), indexing="ij")
    return amplitude * np.stack(
        [np.sin(y / 11 + z / 17), np.sin(z / 13 + x / 19), np.sin(x / 12 + y / 18)]
    )


def peers():
    u = waves(5)
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(THREADS)
    moving = sitk.GetImageFromArray(u[2])
    vectors = sitk.GetImageFromArray(np.moveaxis(u, 0, -1).astype(np.float64), isVector=True)
    transform = sitk.DisplacementFieldTransform(sitk.Image(vectors))
    yield (
        "SimpleITK Resample",
        lambda: sitk.Resample(moving, moving, transform, sitk.sitkLinear, 0.0),
    )
    yield (
        "SimpleITK Resample, nearest",
        lambda: sitk.Resample(moving, moving, transform, sitk.sitkNearestNeighbor, 0.0),
    )
    yield "SimpleITK Warp", lambda: sitk.Warp(moving, vectors)

    node = helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode="linear", padding_mode="border", align_corners=1
    )
    tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "g", [tensor("x"), tensor("grid")], [tensor("y")]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    at = (
        np.stack(np.meshgrid(*(np.arange(n, dtype=np.float32) for n in SHAPE), indexing="ij")[::-1])
        + u
    )
    last = np.array(SHAPE[::-1], np.float32).reshape(3, 1, 1, 1) - 1
    feed = {
        "x": u[None, ::-1].copy(),
        "grid": np.moveaxis(2 * at / last - 1, 0, -1)[None].astype(np.float32).copy(),
    }
    yield "ORT GridSample", lambda: session.run(None, feed)

    try:
        import torch
    except ImportError:
        print("torch is not installed: left out")
    else:
        torch.set_num_threads(THREADS)
        x, grid = (torch.from_numpy(feed[name]) for name in ("x", "grid"))
        sample = torch.nn.functional.grid_sample
        yield (
            "torch grid_sample",
            lambda: sample(x, grid, padding_mode="border", align_corners=True),
        )

    source, copy = np.empty((2,) + u.shape, np.float32), np.empty((2,) + u.shape, np.float32)
    source.fill(1), copy.fill(2)
    # 4 planes in and 1 out: a copy of 2.5 planes
    yield "floor of warp (copy)", lambda: np.copyto(copy[0, :, :149], source[0, :, :149])
    yield (
        "floor of compose (copy)",
        lambda: np.copyto(copy[0], source[0]) or np.copyto(copy[1, :2, :144], source[1, :2, :144]),
    )


def cpu(who):
    r = resource.getrusage(who)
    return r.ru_utime + r.ru_stime


def timed(call):
    wall, used = time.perf_counter(), cpu(resource.RUSAGE_SELF)
    call()
    return time.perf_counter() - wall, cpu(resource.RUSAGE_SELF) - used


def go(binary, name, n=6):
    """Return wall and CPU seconds of one iteration. The CPU time is the difference of a long and a
    short run, so that their set-up does not count.
    """

    def run(times):
        used = cpu(resource.RUSAGE_CHILDREN)
        out = subprocess.run(
            [binary, "-test.run=-", f"-test.bench=^{name}$", f"-test.benchtime={times}x"],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "GOMAXPROCS": str(THREADS)},
        ).stdout
        return (
            float(re.search(r"([\d.]+) ns/op", out)[1]) * 1e-9,
            cpu(resource.RUSAGE_CHILDREN) - used,
        )

    _, short = run(1)
    wall, long = run(n + 1)
    return wall, (long - short) / n


def main(rounds):
    with tempfile.TemporaryDirectory() as folder:
        binary = f"{folder}/field.test"
        subprocess.run(
            ["go", "test", "-c", "-o", binary, "."],
            check=True,
            cwd=Path(__file__).parents[2] / "engine" / "field",
        )
        contestants = [(name, lambda call=call: timed(call)) for name, call in peers()]
        contestants += [
            (name, lambda name=name: go(binary, name))
            for name in ("BenchmarkWarp", "BenchmarkWarpNearest", "BenchmarkCompose")
        ]
        best = {name: (np.inf, np.inf) for name, _ in contestants}
        for _ in range(rounds):
            for name, run in contestants:
                best[name] = tuple(np.minimum(best[name], run()))
    for name, (wall, used) in best.items():
        print(f"{name:30s} {wall:7.3f} s wall {used:7.3f} s CPU")
    for ours, theirs in (
        ("BenchmarkWarp", "SimpleITK Resample"),
        ("BenchmarkWarp", "SimpleITK Warp"),
        ("BenchmarkWarpNearest", "SimpleITK Resample, nearest"),
        ("BenchmarkCompose", "ORT GridSample"),
        ("BenchmarkCompose", "torch grid_sample"),
    ):
        if theirs not in best:
            continue
        wall, used = (b / a for a, b in zip(best[ours], best[theirs]))
        print(f"{ours} is {wall:.1f}x as fast as {theirs} by the clock, {used:.1f}x by CPU time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    main(parser.parse_args().rounds)
