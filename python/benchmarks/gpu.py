"""Times the paper's three networks at full size on a GPU, and writes a table beside the paper's figures: python gpu.py --help.

One command, on any machine: it exports the networks with random weights (speed does not depend on them), runs each in a process of
its own, through the engine and through ONNX Runtime alone, in float32 and with float16 layers, and compares the fields. What
cannot run here is a row that says why. On a CPU, small: python gpu.py --device cpu --size 64,64,64 --repeats 1
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Callable

import measure
import numpy as np
import typer

#: Milliseconds of T = 1, 2, 3 at 160x192x224 on an NVIDIA A800, from the paper's table of running times.
PAPER = {"voxelmorph-l": (685, 1387, 2022), "transmorph": (444, 900, 1376), "nice-trans": (431, 864, 1295)}
STEPS = (1, 2, 3)
HOWS = ("onnxruntime", "engine")
PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider", "cpu": "CPUExecutionProvider"}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def run(
    out: Annotated[Path, typer.Option(help="Folder of the bundles and the table.")],
    device: Annotated[str, typer.Option(help="cuda, tensorrt or cpu.")] = "cuda",
    size: Annotated[str, typer.Option(help="D,H,W.")] = "160,192,224",
    networks: Annotated[str, typer.Option(help="Backbones, or paths of bundles that loop.")] = ",".join(PAPER),
    repeats: Annotated[int, typer.Option(help="Timed runs, after one that is not; their median counts.")] = 10,
    peak: Annotated[str, typer.Option(help="The device's float32 and float16 TFLOP/s and its TB/s, for the floor. Default: an H100 SXM's.")] = "67,989,3.35",
    train: Annotated[str, typer.Option(help="Also one GRPO step of TransMorph with J trajectories each: J,J,...")] = "",
) -> None:
    """Measure everything and write table.md and table.json."""
    out.mkdir(parents=True, exist_ok=True)
    shape = numbers(size)
    limits = tuple(float(x) for x in peak.split(","))
    report: dict[str, Any] = {"machine": measure.machine(), "size": shape, "device": device, "rows": [], "floors": {}, "training": []}
    for name in networks.split(","):
        pair = {}
        for precision in ("float32", "float16") if name in PAPER else ("as exported",):
            bundle = Path(name)
            if name in PAPER:
                bundle = out / f"{name}-{precision}-{'x'.join(map(str, shape))}.onnx"
                try:
                    if not bundle.exists():
                        export(name, shape, precision == "float16", bundle)
                    report["floors"][f"{name} {precision}"] = floor(name, shape, precision == "float16", limits)
                except (RuntimeError, ValueError) as error:  # NICE-Trans at 32^3 has a single voxel at its coarsest
                    while error.__cause__ is not None:
                        error = error.__cause__
                    why = f"export: {str(error).splitlines()[0]}"
                    report["rows"] += [{"network": name, "precision": precision, "how": how, "failed": why} for how in HOWS]
                    print(json.dumps(report["rows"][-1]), flush=True)
                    continue
            field = out / f"{bundle.stem}.npy"
            for how in HOWS:
                arguments = [how, str(bundle), device, size, str(repeats), str(field)]
                row = {"network": name if name in PAPER else bundle.stem, "precision": precision, "how": how}
                report["rows"].append(row | child(arguments))
                print(json.dumps(report["rows"][-1]), flush=True)
            if field.exists():
                pair[precision] = np.load(field)
                field.unlink()
        if len(pair) == 2:
            report["floors"][f"{name} float16"]["difference"] = difference(pair["float32"], pair["float16"])
    for j in numbers(train) if train else ():
        report["training"].append({"trajectories": j} | child(["train", str(j), size, device]))
        print(json.dumps(report["training"][-1]), flush=True)
    (out / "table.json").write_text(json.dumps(report, indent=1))
    (out / "table.md").write_text(page(report))
    print(page(report))


def export(name: str, size: tuple[int, ...], half: bool, bundle: Path) -> None:
    """A bundle of the paper's network with random weights, as ``morphseek train export --random`` makes it."""
    from morphseek.training.config import load
    from morphseek.training.export import export_bundle, random_backbone

    config = load("paper").replace(**{"model.backbone": name, "model.parametrisation": "velocity", "bundle.name": bundle.stem})
    export_bundle(random_backbone(config.model, 0), config, bundle, size=size, half=half)


def difference(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Distances between two displacements (1, 3, D, H, W), voxels."""
    distance = np.linalg.norm(a[0] - b[0], axis=0)
    return {
        "mean": float(distance.mean()),
        "p99": float(np.quantile(distance, 0.99)),
        "max": float(distance.max()),
        "displacement": float(np.linalg.norm(a[0], axis=0).mean()),
    }


# -- the floor: what the arithmetic and the memory of a device allow -------------------------------------------------


def floor(name: str, size: tuple[int, ...], half: bool, limits: tuple[float, float, float]) -> dict[str, float]:
    """Count one step, and bound its time from below.

    The operators are those of the exported graph, on tensors without memory. Each takes at least its floating-point operations
    over the device's peak at its precision and its bytes, read and written once, over the bandwidth. ``fused_ms`` charges
    convolutions, matrix products, pooling and sampling only, as if every other operator were done on the fly; ``ms`` charges all.

    Parameters
    ----------
    limits : (float, float, float)
        float32 and float16 TFLOP/s, TB/s.
    """
    import torch
    from morphseek.training.backbones import build
    from morphseek.training.export import StepGraph
    from torch._subclasses.fake_tensor import FakeTensorMode

    backbone = build(name, parametrisation="velocity")
    graph, counter = StepGraph(backbone, half), counting(torch, limits)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), counter:
        image, field = torch.empty(1, 1, *size), torch.empty(1, 3, *size)
        graph(image, image, field, torch.empty(1, *backbone.latent_shape(size)), torch.empty(1))
    return counter.total


def counting(torch, limits: tuple[float, float, float]):
    """A mode that adds up what PyTorch operators do."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    heavy = ("convolution", "mm", "pool", "grid_sampler", "upsample")

    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.total = {"tflop": 0.0, "gbyte": 0.0, "ms": 0.0, "fused_ms": 0.0}

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            result = operator(*args, **(kwargs or {}))
            if operator.is_view:
                return result
            tensors = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)]
            # A tensor that was expanded is read once.
            moved = sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in tensors)
            count = flop_registry.get(operator._overloadpacket)
            flop = count(*args, **(kwargs or {}), out_val=result) if count else 0
            fast = bool(tensors) and tensors[0].dtype == torch.float16
            ms = 1e3 * max(flop / (limits[fast] * 1e12), moved / (limits[2] * 1e12))
            name = operator._overloadpacket.__name__
            self.total["tflop"] += flop / 1e12
            self.total["gbyte"] += moved / 1e9
            self.total["ms"] += ms
            self.total["fused_ms"] += ms * any(h in name for h in heavy)
            return result

    return Counting()


# -- measurements, each in a process of its own ---------------------------------------------------------------------


def child(arguments: list[str]) -> dict[str, Any]:
    """Run a measurement apart, so that its memory is its own and its failure a row."""
    done = subprocess.run([sys.executable, __file__, "one", *arguments], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return {"failed": said[-1].strip() if said else f"exit status {done.returncode}"}


def one(kind: str, *rest: str) -> None:
    """The process of :func:`child`."""
    print(json.dumps({"onnxruntime": one_onnxruntime, "engine": one_engine, "train": one_training}[kind](*rest)))


def medians(repeats: int, steps: tuple[int, ...], once: Callable[[int], float]) -> list[float]:
    """Median milliseconds of ``once(T)``, which returns seconds, after a run that warms up."""
    found = []
    for t in steps:
        once(t)
        found.append(1e3 * statistics.median(once(t) for _ in range(repeats)))
    return found


def memory(device: str) -> float:
    """GiB in use: on a GPU the card's, so keep it to yourself; else the process's peak."""
    if device != "cpu":
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()[0]) / 1024
    status = Path("/proc/self/status")
    if status.exists():  # Linux, whose ru_maxrss begins with the parent's
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1]) / (1 << 20)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (30 if sys.platform == "darwin" else 20))


def blobs(size: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two smooth images in [0, 1], one moved by two voxels."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    image = gaussian_filter(rng.standard_normal(size).astype(np.float32), 3)
    image = np.clip(image / image.std() / 4 + 0.4, 0, 1)
    return image, np.roll(image, 2, -1)


def one_onnxruntime(bundle: str, device: str, size: str, repeats: str, field: str) -> dict[str, Any]:
    """Plain ONNX Runtime with I/O binding: tensors that stay on the device, and with every byte carried there and back."""
    import onnxruntime

    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # the CUDA libraries of the nvidia wheels
    before = memory(device)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if device == "cpu":
        options.intra_op_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    # As the engine does it: the same algorithms every time, no TF32.
    cuda = (PROVIDERS["cuda"], {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"})
    wanted = {"cuda": [cuda], "tensorrt": [PROVIDERS["tensorrt"], cuda], "cpu": []}[device] + [PROVIDERS["cpu"]]
    session = onnxruntime.InferenceSession(bundle, options, providers=wanted)
    if PROVIDERS[device] not in session.get_providers():
        raise SystemExit(f"ONNX Runtime has no {PROVIDERS[device]} here: it offers {', '.join(session.get_providers())}")
    grid = json.loads(session.get_modelmeta().custom_metadata_map["morphseek_manifest"])["latent"]
    shape = numbers(size)
    latent = (grid["channels"], *(n // grid["stride"] for n in shape))
    fixed, moving = (image[None, None] for image in blobs(shape))
    place = "cpu" if device == "cpu" else "cuda"

    def once(t: int, carry: bool) -> float:
        feed = {"fixed": fixed, "moving": moving, "u_prev": np.zeros((1, 3, *shape), np.float32), "tau": np.zeros(1, np.float32)}
        feed["epsilon"] = np.zeros((t, *latent), np.float32)
        binding = session.io_binding()
        values = {} if carry else {k: onnxruntime.OrtValue.ortvalue_from_numpy(v, place, 0) for k, v in feed.items()}
        began = time.perf_counter()
        for name, array in feed.items():
            if carry:
                binding.bind_cpu_input(name, array)
            else:
                binding.bind_ortvalue_input(name, values[name])
        # An input with a default is not among those that bind_cpu_input knows.
        binding.bind_ortvalue_input("steps", onnxruntime.OrtValue.ortvalue_from_numpy(np.array([t])))
        for name in ("u", "reward", "njd"):
            binding.bind_output(name, "cpu" if carry else place)
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        seconds = time.perf_counter() - began
        if carry and t == STEPS[-1]:
            np.save(field, binding.copy_outputs_to_cpu()[0])
        return seconds

    row = {"ms": medians(int(repeats), STEPS, lambda t: once(t, True)), "resident_ms": medians(int(repeats), STEPS, lambda t: once(t, False))}
    return row | {"gib": memory(device) - (before if device != "cpu" else 0), "version": onnxruntime.__version__}


def one_engine(bundle: str, device: str, size: str, repeats: str, field: str) -> dict[str, Any]:
    """The registration that users call, from arrays: its network stage, and the whole of it with and without the affine alignment."""
    import morphseek

    before = memory(device)
    fixed, moving = blobs(numbers(size))
    whole: dict[str, list[float]] = {}

    def once(t: int, initial: str = "none") -> float:
        result = morphseek.register(fixed, moving, model=bundle, device=device, steps=t, initial=initial, refine=0)
        if result.metrics["device"] != device:
            raise SystemExit(f"the network ran on {result.metrics['device']}")
        whole.setdefault(initial, []).append(result.metrics["seconds"]["total"])
        return sum(step["seconds"] for step in result.metrics["steps"])

    row = {"ms": medians(int(repeats), STEPS, once)}
    whole.clear()
    for initial in ("none", "affine"):
        medians(int(repeats), STEPS[-1:], lambda t, initial=initial: once(t, initial))
    row["seconds"] = {initial: statistics.median(values[1:]) for initial, values in whole.items()}
    return row | {"gib": memory(device) - (before if device != "cpu" else 0), "version": morphseek.__version__}


def one_training(trajectories: str, size: str, device: str) -> dict[str, Any]:
    """One GRPO step of TransMorph, forwards and backwards: a pair visit is T of them."""
    from morphseek.training.diagnostics import step_cost

    return step_cost(int(trajectories), True, numbers(size), "transmorph", "cpu" if device == "cpu" else "cuda")


# -- the table ------------------------------------------------------------------------------------------------------


def page(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    machine = report["machine"]
    size = "x".join(map(str, report["size"]))
    lines = [
        f"Networks at {size} on {report['device']}: {machine['gpu'] if report['device'] != 'cpu' else machine['cpu']}, {machine['cores']} cores, "
        f"load {machine['load_average']}. Milliseconds are medians and include carrying every byte to the device and back.",
        "",
        "| network | layers | through | T = 1 | T = 2 | T = 3 | T = 3, no transfer | memory, GiB | end to end, s (affine) | paper, A800, 160x192x224 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        head = f"| {row['network']} | {row['precision']} | {row['how']} |"
        if "failed" in row:
            lines.append(f"{head} {row['failed']} | | | | | | |")
            continue
        times = " | ".join(f"{x:.0f}" for x in row["ms"])
        resident = f"{row['resident_ms'][-1]:.0f}" if "resident_ms" in row else ""
        whole = f"{row['seconds']['none']:.2f} ({row['seconds']['affine']:.2f})" if "seconds" in row else ""
        paper = "/".join(map(str, PAPER.get(row["network"], ())))
        lines.append(f"{head} {times} | {resident} | {row['gib']:.1f} | {whole} | {paper} |")
    if report["floors"]:
        lines += [
            "",
            "One step, counted; the floor is the time at the device's peaks, other operators than convolution, matrix product, pooling "
            "and sampling fused away or charged. Field: float16 layers against float32, T = 3, voxels.",
            "",
            "| network, layers | TFLOP | GB | floor, ms (fused) | floor, ms (each operator) | field: mean, 99 %, max (mean displacement) |",
            "|---|---|---|---|---|---|",
        ]
    for name, f in report["floors"].items():
        d = f.get("difference")
        field = f"{d['mean']:.4f}, {d['p99']:.4f}, {d['max']:.4f} ({d['displacement']:.2f})" if d else ""
        lines.append(f"| {name} | {f['tflop']:.2f} | {f['gbyte']:.1f} | {f['fused_ms']:.1f} | {f['ms']:.1f} | {field} |")
    if report["training"]:
        lines += ["", "One GRPO step of TransMorph, trajectories one by one; a pair visit is T of them.", "", "| J | s | peak memory, MiB |", "|---|---|---|"]
    for row in report["training"]:
        lines.append(f"| {row['trajectories']} | {row['failed']} | |" if "failed" in row else f"| {row['trajectories']} | {row['seconds']:.2f} | {row['mib']:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    one(*sys.argv[2:]) if sys.argv[1:2] == ["one"] else typer.run(run)
