"""Times the paper's three networks at full size on a GPU, and writes a table with the paper's times
for comparison: python gpu.py --help.

It exports the networks with random weights, since speed does not depend on them. It runs each in a
process of its own, through the engine and through ONNX Runtime alone, in float32 and with float16
layers, compares the fields, and times a training iteration. A network that cannot run here becomes
a row that says why. A small run on a CPU: python gpu.py --device cpu --size 64,64,64 --repeats 1
--train ""
"""

from __future__ import annotations

import collections
import ctypes
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import measure
import numpy as np

# ONNX Runtime reads it when it loads
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

#: Milliseconds for T = 1, 2, 3 at 160x192x224 on an NVIDIA A800, from the paper's table of running
#: times.
PAPER = {
    "voxelmorph-l": (685, 1387, 2022),
    "transmorph": (444, 900, 1376),
    "nice-trans": (431, 864, 1295),
}
STEPS = (1, 2, 3)
HOWS = ("onnxruntime", "engine")
#: float32 and float16 TFLOP/s (tensor cores, no sparsity) and TB/s of a card by its name, from the
#: makers' data sheets. The RTX 4090's float16 value is its highest, with sums in float16, so that
#: the floor is not above the possible time.
CARDS = {
    r"\bA[18]00\b.*40GB": (19.5, 312, 1.555),
    r"\bA[18]00\b.*PCI": (19.5, 312, 1.935),
    r"\bA[18]00\b": (19.5, 312, 2.039),
    r"\bH100 NVL": (60, 835, 3.94),
    r"\bH100 PCI": (51, 756, 2.0),
    r"\bH100\b": (67, 989, 3.35),
    r"\bH200 NVL": (60, 835, 4.8),
    r"\bH200\b": (67, 989, 4.8),
    r"\bL40S\b": (91.6, 362, 0.864),
    r"\bRTX 4090$": (82.6, 330, 1.008),
}
PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "cpu": "CPUExecutionProvider",
}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


@click.command(context_settings={"show_default": True})
@click.option("--out", type=Path, required=True, help="Folder of the bundles and the table.")
@click.option("--device", default="cuda", help="cuda, tensorrt or cpu.")
@click.option("--size", default="160,192,224", help="D,H,W.")
@click.option(
    "--networks", default=",".join(PAPER), help="Backbones, or paths of bundles that loop."
)
@click.option("--repeats", default=10, help="Timed runs after a warm-up; their median counts.")
@click.option(
    "--peak",
    default="",
    help=(
        "The device's float32 and float16 TFLOP/s and its TB/s, for the floor. Default: by"
        " the card's name, where it is known."
    ),
)
@click.option(
    "--train",
    default="4,16",
    help=('Trajectories of the GRPO iterations to time for each backbone: J,J,...; "" times none.'),
)
def run(
    out: Path, device: str, size: str, networks: str, repeats: int, peak: str, train: str
) -> None:
    """Measure everything and write table.md and table.json."""
    require(device)
    out.mkdir(parents=True, exist_ok=True)
    shape = numbers(size)
    used = card() if device != "cpu" else None
    limits = peaks(peak, used)
    report: dict[str, Any] = {
        "machine": measure.machine(),
        "size": shape,
        "device": device,
        "card": used and used["name"],
        "peak": limits,
    }
    report |= {"rows": [], "floors": {}, "training": []}
    for name in networks.split(","):
        pair = {}
        for precision in ("float32", "float16") if name in PAPER else ("as exported",):
            bundle = Path(name)
            if name in PAPER:
                bundle = out / f"{name}-{precision}-{'x'.join(map(str, shape))}.onnx"
                try:
                    if not bundle.exists():
                        export(name, shape, precision == "float16", bundle)
                    report["floors"][f"{name} {precision}"] = floor(
                        name, shape, precision == "float16", limits
                    )
                except (RuntimeError, ValueError) as error:
                    # NICE-Trans at 32^3 has a single voxel at its coarsest
                    while error.__cause__ is not None:
                        error = error.__cause__
                    why = f"export: {str(error).splitlines()[0]}"
                    report["rows"] += [
                        {"network": name, "precision": precision, "how": how, "failed": why}
                        for how in HOWS
                    ]
                    print(json.dumps(report["rows"][-1]), flush=True)
                    continue
            field = out / f"{bundle.stem}.npy"
            for how in HOWS:
                arguments = [how, str(bundle), device, size, str(repeats), str(field)]
                row = {
                    "network": name if name in PAPER else bundle.stem,
                    "precision": precision,
                    "how": how,
                }
                report["rows"].append(row | child(arguments))
                over_floor(report["rows"][-1], report["floors"].get(f"{name} {precision}"))
                print(json.dumps(report["rows"][-1]), flush=True)
            if field.exists():
                pair[precision] = np.load(field)
                field.unlink()
        if len(pair) == 2:
            report["floors"][f"{name} float16"]["difference"] = difference(
                pair["float32"], pair["float16"]
            )
    for name in [name for name in networks.split(",") if name in PAPER]:
        for j in numbers(train) if train else ():
            row = {"network": name, "trajectories": j, "steps": STEPS[-1]}
            report["training"].append(row | child(["train", name, str(j), size, device]))
            print(json.dumps(report["training"][-1]), flush=True)
    (out / "table.json").write_text(json.dumps(report, indent=1))
    (out / "table.md").write_text(page(report))
    print(page(report))


def export(name: str, size: tuple[int, ...], half: bool, bundle: Path) -> None:
    """Export the paper's network with random weights, as ``train export --random`` does."""
    from morphseek.training.config import load
    from morphseek.training.export import export_bundle, random_backbone

    config = load("paper").replace(
        **{"model.backbone": name, "model.parametrisation": "velocity", "bundle.name": bundle.stem}
    )
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


# -- the device ------------------------------------------------------------------------------------


def require(device: str) -> None:
    """Stop at once if the installed ONNX Runtime was built without the device, because every row
    would fail.
    """
    import onnxruntime

    if PROVIDERS[device] not in onnxruntime.get_available_providers():
        raise SystemExit(
            f"the installed onnxruntime has no {PROVIDERS[device]}. onnxruntime and onnxruntime-gpu"
            " share their files, so the last one installed counts; after everything else: pip"
            " install --force-reinstall --no-deps onnxruntime-gpu"
        )


@functools.cache
def card() -> dict[str, str] | None:
    """Name and UUID of the first card that CUDA shows this process; None without a driver.

    The driver is asked, because nvidia-smi ignores CUDA_VISIBLE_DEVICES and CUDA's order of cards.
    """
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    device, name, uuid = ctypes.c_int(), ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    calls = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDeviceGetName(name, len(name), device),
        lambda: driver.cuDeviceGetUuid(uuid, device),
    )
    if any(call() for call in calls):
        return None
    digits = bytes(uuid).hex()
    return {
        "name": name.value.decode(),
        "uuid": (
            "GPU-"
            + "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        ),
    }


def peaks(given: str, used: dict[str, str] | None) -> tuple[float, ...] | None:
    """float32 and float16 TFLOP/s and TB/s: as given, or by the card's name; None if neither is
    known.
    """
    if given:
        return tuple(float(x) for x in given.split(","))
    if used is None or "MIG" in used["name"]:  # a part of a card has only a share of its peaks
        return None
    return next((limits for name, limits in CARDS.items() if re.search(name, used["name"])), None)


# -- the floor: what the arithmetic and the memory of a device allow -------------------------------


def floor(
    name: str, size: tuple[int, ...], half: bool, limits: tuple[float, ...] | None
) -> dict[str, float]:
    """Count one step, and bound its time from below.

    The operators are those of the exported graph, on tensors without memory. Each takes at least
    its floating-point operations over the device's peak at its precision and its bytes, read and
    written once, over the bandwidth. ``fused_ms`` charges convolutions, matrix products, pooling
    and sampling only, as if every other operator were done on the fly; ``ms`` charges all.

    Parameters
    ----------
    limits : (float, float, float), optional
        float32 and float16 TFLOP/s, TB/s; without them only operations and bytes are counted.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from morphseek.training.backbones import build
    from morphseek.training.export import StepGraph

    backbone = build(name, parametrisation="velocity")
    graph, counter = StepGraph(backbone, half), counting(torch, limits)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), counter:
        image, field = torch.empty(1, 1, *size), torch.empty(1, 3, *size)
        graph(image, image, field, torch.empty(1, *backbone.latent_shape(size)), torch.empty(1))
    return counter.total


def counting(torch, limits: tuple[float, ...] | None):
    """Return a mode that counts the work of PyTorch operators."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    heavy = ("convolution", "mm", "pool", "grid_sampler", "upsample")

    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.total = {"tflop": 0.0, "gbyte": 0.0} | (
                {"ms": 0.0, "fused_ms": 0.0} if limits else {}
            )

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            result = operator(*args, **(kwargs or {}))
            if operator.is_view:
                return result
            tensors = [
                t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)
            ]
            # An expanded tensor is read only once.
            moved = sum(
                min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in tensors
            )
            count = flop_registry.get(operator._overloadpacket)
            flop = count(*args, **(kwargs or {}), out_val=result) if count else 0
            self.total["tflop"] += flop / 1e12
            self.total["gbyte"] += moved / 1e9
            if limits:
                fast = bool(tensors) and tensors[0].dtype == torch.float16
                ms = 1e3 * max(flop / (limits[fast] * 1e12), moved / (limits[2] * 1e12))
                name = operator._overloadpacket.__name__
                self.total["ms"] += ms
                self.total["fused_ms"] += ms * any(h in name for h in heavy)
            return result

    return Counting()


def over_floor(row: dict[str, Any], found: dict[str, float] | None) -> None:
    """Add to a row the ratio of each time to the floor of its steps."""
    if not found or "ms" not in found or "failed" in row:
        return
    for times in ("ms", "resident_ms"):
        if times in row:
            row[f"{times}_over_floor"] = {
                kind: [ms / (t * found[kind]) for t, ms in zip(STEPS, row[times])]
                for kind in ("fused_ms", "ms")
            }


# -- measurements, each in a process of its own ----------------------------------------------------


def child(arguments: list[str]) -> dict[str, Any]:
    """Run a measurement in a child process, for its memory alone and so that a failure is a row."""
    done = subprocess.run(
        [sys.executable, __file__, "one", *arguments], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return {"failed": said[-1].strip() if said else f"exit status {done.returncode}"}


def one(kind: str, *rest: str) -> None:
    """The process of :func:`child`."""
    print(
        json.dumps(
            {"onnxruntime": one_onnxruntime, "engine": one_engine, "train": one_training}[kind](
                *rest
            )
        )
    )


def medians(repeats: int, steps: tuple[int, ...], once: Callable[[int], float]) -> list[float]:
    """Median milliseconds of ``once(T)``, which returns seconds, after a run that warms up."""
    found = []
    for t in steps:
        once(t)
        found.append(1e3 * statistics.median(once(t) for _ in range(repeats)))
    return found


def memory(device: str) -> float:
    """GiB in use: the whole card's on a GPU, which must be free; else the process's peak."""
    if device != "cpu":
        used = card()
        if used is None:
            raise SystemExit("the CUDA driver shows no card")
        query = [
            "nvidia-smi",
            f"--id={used['uuid']}",
            "--query-gpu=memory.used",
            "--format=csv,noheader,nounits",
        ]
        return (
            int(
                subprocess.run(
                    query, check=True, capture_output=True, text=True
                ).stdout.splitlines()[0]
            )
            / 1024
        )
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss starts with the parent's
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1]) / (1 << 20)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1 << (30 if sys.platform == "darwin" else 20)
    )


def blobs(size: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two smooth images in [0, 1], one moved by two voxels."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    image = gaussian_filter(rng.standard_normal(size).astype(np.float32), 3)
    image = np.clip(image / image.std() / 4 + 0.4, 0, 1)
    return image, np.roll(image, 2, -1)


def one_onnxruntime(
    bundle: str, device: str, size: str, repeats: str, field: str
) -> dict[str, Any]:
    """Time plain ONNX Runtime with I/O binding: with tensors that stay on the device, and with
    transfers there and back.
    """
    import onnxruntime

    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # the CUDA libraries of the nvidia wheels
    before = memory(device)
    # As in the engine: always the same algorithms, no TF32.
    cuda = (PROVIDERS["cuda"], {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"})
    wanted = {"cuda": [cuda], "tensorrt": [PROVIDERS["tensorrt"], cuda], "cpu": []}[device] + [
        PROVIDERS["cpu"]
    ]

    def opened(profile: str = ""):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if device == "cpu":
            options.intra_op_num_threads = (
                len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
            )
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        session = onnxruntime.InferenceSession(bundle, options, providers=wanted)
        if PROVIDERS[device] not in session.get_providers():
            raise SystemExit(
                f"ONNX Runtime has no {PROVIDERS[device]} here: it offers"
                f" {', '.join(session.get_providers())}"
            )
        return session

    session = opened()
    grid = json.loads(session.get_modelmeta().custom_metadata_map["morphseek_manifest"])["latent"]
    shape = numbers(size)
    latent = (grid["channels"], *(n // grid["stride"] for n in shape))
    fixed, moving = (image[None, None] for image in blobs(shape))
    place = "cpu" if device == "cpu" else "cuda"

    def once(t: int, carry: bool) -> float:
        feed = {
            "fixed": fixed,
            "moving": moving,
            "u_prev": np.zeros((1, 3, *shape), np.float32),
            "tau": np.zeros(1, np.float32),
        }
        feed["epsilon"] = np.zeros((t, *latent), np.float32)
        binding = session.io_binding()
        values = (
            {}
            if carry
            else {k: onnxruntime.OrtValue.ortvalue_from_numpy(v, place, 0) for k, v in feed.items()}
        )
        began = time.perf_counter()
        for name, array in feed.items():
            if carry:
                binding.bind_cpu_input(name, array)
            else:
                binding.bind_ortvalue_input(name, values[name])
        # bind_cpu_input refuses inputs that have a default.
        binding.bind_ortvalue_input(
            "steps", onnxruntime.OrtValue.ortvalue_from_numpy(np.array([t]))
        )
        for name in ("u", "reward", "njd"):
            binding.bind_output(name, "cpu" if carry else place)
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        seconds = time.perf_counter() - began
        if carry and t == STEPS[-1]:
            np.save(field, binding.copy_outputs_to_cpu()[0])
        return seconds

    row = {
        "ms": medians(int(repeats), STEPS, lambda t: once(t, True)),
        "resident_ms": medians(int(repeats), STEPS, lambda t: once(t, False)),
    }
    row |= {
        "gib": memory(device) - (before if device != "cpu" else 0),
        "version": onnxruntime.__version__,
    }
    session = None  # frees its memory before the next session
    with tempfile.TemporaryDirectory() as folder:  # a run of its own: profiling costs time
        session = opened(str(Path(folder) / "profile"))
        once(1, False)
        row["placement"] = placement(json.loads(Path(session.end_profiling()).read_text()), device)
    return row


def placement(events: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """Return which nodes of one profiled run were not on the device.

    ONNX Runtime runs on the CPU what a GPU's provider lacks and, on purpose, the arithmetic of
    shapes; the megabytes show which of the two it is.
    """
    nodes: dict[tuple[str, str], list[dict[str, Any]]] = collections.defaultdict(list)
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            nodes[event["name"], event["args"]["provider"]].append(event)
    away = [
        runs
        for (_, provider), runs in nodes.items()
        if device != "cpu" and provider == PROVIDERS["cpu"]
    ]
    kinds = collections.Counter(runs[0]["args"]["op_name"] for runs in away)
    events = [event for runs in away for event in runs]
    return {
        "nodes": len(nodes),
        "on_cpu": dict(kinds.most_common()),
        # that of the nodes in it
        "on_cpu_ms": (
            sum(event["dur"] for event in events if event["args"]["op_name"] != "Loop") / 1e3
        ),
        "on_cpu_mb": sum(int(event["args"].get("output_size", 0)) for event in events) / 1e6,
    }


def one_engine(bundle: str, device: str, size: str, repeats: str, field: str) -> dict[str, Any]:
    """Time the registration that users call, from arrays: its network stage, and the whole with and
    without the affine alignment.
    """
    import morphseek

    before = memory(device)
    fixed, moving = blobs(numbers(size))
    whole: dict[str, list[float]] = {}

    def once(t: int, initial: str = "none") -> float:
        result = morphseek.register(
            fixed, moving, model=bundle, device=device, steps=t, initial=initial, refine=0
        )
        if result.metrics["device"] != device:
            raise SystemExit(f"the network ran on {result.metrics['device']}")
        whole.setdefault(initial, []).append(result.metrics["seconds"]["total"])
        return sum(step["seconds"] for step in result.metrics["steps"])

    row = {"ms": medians(int(repeats), STEPS, once)}
    whole.clear()
    for initial in ("none", "affine"):
        medians(int(repeats), STEPS[-1:], lambda t, initial=initial: once(t, initial))
    row["seconds"] = {initial: statistics.median(values[1:]) for initial, values in whole.items()}
    return row | {
        "gib": memory(device) - (before if device != "cpu" else 0),
        "version": morphseek.__version__,
    }


def one_training(name: str, trajectories: str, size: str, device: str) -> dict[str, Any]:
    """Time one iteration of the paper's training on OASIS (35 labels): T steps, each with its
    update, by the trainer's own code.

    The second iteration counts: the first searches for algorithms and makes the optimiser's state.
    Memory is the peak with weights, gradients and the optimiser's moments. PyTorch reserves more
    than it uses, and the card must have that much.
    """
    import torch

    from morphseek.training.config import load
    from morphseek.training.pairs import Sample
    from morphseek.training.run import Trainer
    from morphseek.training.run.supply import SyntheticSupply

    shape = numbers(size)
    place = "cpu" if device == "cpu" else "cuda"
    settings = {
        "model.backbone": name,
        "policy.trajectories": int(trajectories),
        "run.steps": STEPS[-1],
        "run.device": place,
    }
    config = load("oasis").replace(
        **settings, **{"run.amp": "none" if place == "cpu" else "bf16", "data.val": ""}
    )

    class OnePair(SyntheticSupply):
        """The same made-up pair at every iteration: the cost does not depend on the content."""

        def __init__(self) -> None:
            self.val_pairs = []
            generator, k = torch.Generator().manual_seed(0), config.data.labels
            fixed, moving = (
                torch.from_numpy(image)[None, None].contiguous() for image in blobs(shape)
            )
            maps = [torch.randint(k + 1, (1, 1, *shape), generator=generator) for _ in range(2)]
            hot = [torch.cat([(m == label).float() for label in range(1, k + 1)], 1) for m in maps]
            known = torch.ones(1, 1, *shape)
            self.made_up = Sample(fixed, moving, known, known, *hot, *(m.float() for m in maps))

        def pair(self, number: int, rng: np.random.Generator) -> Sample:
            return self.made_up

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, folder, progress=False, source=OnePair())
        trainer.backbone.train()
        trainer.run_iteration()
        began = time.perf_counter()
        trainer.run_iteration()
        if place == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    row = {"seconds": seconds, "updates": trainer.updates // 2, "labels": config.data.labels}
    if place == "cpu":
        return row | {"gib": memory(device)}
    return row | {
        "gib": torch.cuda.max_memory_allocated() / (1 << 30),
        "reserved_gib": torch.cuda.max_memory_reserved() / (1 << 30),
    }


# -- the table -------------------------------------------------------------------------------------


def page(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    machine = report["machine"]
    size = "x".join(map(str, report["size"]))
    where = machine["cpu"] if report["device"] == "cpu" else report["card"] or machine["gpu"]
    lines = [
        (
            f"Networks at {size} on {report['device']}: {where}, {machine['cores']} cores, load"
            f" {machine['load_average']}. Milliseconds are medians and include carrying every byte"
            " to the device and back; in brackets, how many times the floor of so many steps that"
            " is (the lower one, below)."
        ),
        "",
        (
            "| network | layers | through | T = 1 | T = 2 | T = 3 | T = 3, no transfer | memory,"
            " GiB | end to end, s (affine) | nodes on the CPU | paper, A800, 160x192x224 |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        head = f"| {row['network']} | {row['precision']} | {row['how']} |"
        if "failed" in row:
            lines.append(f"{head} {row['failed']} | | | | | | | |")
            continue
        times = " | ".join(timed(row, "ms"))
        resident = timed(row, "resident_ms")[-1] if "resident_ms" in row else ""
        whole = (
            f"{row['seconds']['none']:.2f} ({row['seconds']['affine']:.2f})"
            if "seconds" in row
            else ""
        )
        away = placed(row["placement"]) if "placement" in row and report["device"] != "cpu" else ""
        paper = "/".join(map(str, PAPER.get(row["network"], ())))
        lines.append(
            f"{head} {times} | {resident} | {row['gib']:.1f} | {whole} | {away} | {paper} |"
        )
    if report["floors"]:
        peak = report["peak"]
        known = (
            f"At {peak[0]:g} TFLOP/s in float32, {peak[1]:g} in float16 and {peak[2]:g} TB/s the"
            " floor is the time of each operator's arithmetic or bytes, other operators than"
            " convolution, matrix product, pooling and sampling fused away (the lower one) or"
            " charged."
            if peak
            else (
                "The peaks of this device are not known, so there is no floor: give them by --peak."
            )
        )
        lines += [
            "",
            f"One step, counted. {known} Field: float16 layers against float32, T = 3, voxels.",
            "",
            (
                "| network, layers | TFLOP | GB | floor, ms (fused) | floor, ms (each operator) |"
                " field: mean, 99 %, max (mean displacement) |"
            ),
            "|---|---|---|---|---|---|",
        ]
    for name, f in report["floors"].items():
        d = f.get("difference")
        field = (
            f"{d['mean']:.4f}, {d['p99']:.4f}, {d['max']:.4f} ({d['displacement']:.2f})"
            if d
            else ""
        )
        bounds = f"{f['fused_ms']:.1f} | {f['ms']:.1f}" if "ms" in f else " | "
        lines.append(f"| {name} | {f['tflop']:.2f} | {f['gbyte']:.1f} | {bounds} | {field} |")
    if report["training"]:
        lines += [
            "",
            (
                "One iteration of GRPO: T steps of J trajectories, decoded one by one, each step"
                " with the optimiser's update; the paper's setting for OASIS with its 35 labels."
                " Memory is the peak, weights and the optimiser's state included; in brackets what"
                " PyTorch has reserved."
            ),
            "",
            "| network | J | T | s per iteration | peak memory, GiB |",
            "|---|---|---|---|---|",
        ]
    for row in report["training"]:
        head = f"| {row['network']} | {row['trajectories']} | {row['steps']} |"
        reserved = f" ({row['reserved_gib']:.1f})" if "reserved_gib" in row else ""
        lines.append(
            f"{head} {row['failed']} | |"
            if "failed" in row
            else f"{head} {row['seconds']:.2f} | {row['gib']:.1f}{reserved} |"
        )
    return "\n".join(lines) + "\n"


def timed(row: dict[str, Any], times: str) -> list[str]:
    """Milliseconds, each with its ratio to the lower floor, if that is known."""
    over = row.get(f"{times}_over_floor")
    return [
        f"{ms:.0f}" + (f" ({over['fused_ms'][i]:.1f})" if over else "")
        for i, ms in enumerate(row[times])
    ]


def placed(found: dict[str, Any]) -> str:
    """The number of nodes that ran on the CPU, and their kinds."""
    if not found["on_cpu"]:
        return f"0 of {found['nodes']}"
    kinds = ", ".join(f"{kind} {count}" for kind, count in found["on_cpu"].items())
    return (
        f"{sum(found['on_cpu'].values())} of {found['nodes']} ({kinds}; {found['on_cpu_mb']:.3f}"
        f" MB, {found['on_cpu_ms']:.1f} ms)"
    )


if __name__ == "__main__":
    one(*sys.argv[2:]) if sys.argv[1:2] == ["one"] else run()
