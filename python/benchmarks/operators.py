"""Shows which operators take a network's time: python operators.py --help.

Runs a bundle for T steps under ONNX Runtime's profiler and writes a table by operator, with the
operations and bytes. Bytes count each tensor that an operator reads or writes once.
"""

from __future__ import annotations

import collections
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import click
import gpu
import numpy as np


@click.command(context_settings={"show_default": True})
@click.argument("bundle", type=Path)
@click.option("--size", default="48,64,48", help="D,H,W.")
@click.option("--steps", default=3, help="T.")
@click.option("--threads", default=1)
@click.option(
    "--repeats",
    default=3,
    help="Runs, after one that warms up; the fastest of each operator's counts.",
)
def run(bundle: Path, size: str, steps: int, threads: int, repeats: int) -> None:
    """Print the table of a bundle (.onnx)."""
    print(table(operators(bundle, gpu.numbers(size), steps, threads, repeats)))


def operators(
    bundle: Path, size: tuple[int, ...], steps: int, threads: int, repeats: int
) -> dict[str, dict[str, float]]:
    """Calls, milliseconds, GFLOP and GB of each kind of operator in one registration of T steps."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False  # as in the engine
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(
            str(bundle), options, providers=["CPUExecutionProvider"]
        )
        grid = json.loads(session.get_modelmeta().custom_metadata_map["morphseek_manifest"])[
            "latent"
        ]
        fixed, moving = (image[None, None] for image in gpu.blobs(size))
        feed = {"fixed": fixed, "moving": moving, "tau": np.zeros(1, np.float32)}
        feed["epsilon"] = np.zeros(
            (1, grid["channels"], *(n // grid["stride"] for n in size)), np.float32
        )
        for _ in range(1 + repeats):
            feed["u_prev"] = np.zeros((1, 3, *size), np.float32)
            for _ in range(steps):
                feed["u_prev"] = session.run(["u"], feed)[0]
        events = json.loads(Path(session.end_profiling()).read_text())
    return summed(events, repeats)


def summed(events: list[dict[str, Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Sum profiler events by kind of operator, for one registration. Of each node the fastest run
    counts, without the warm-up.
    """
    nodes = collections.defaultdict(list)
    for event in events:
        if (
            event["cat"] == "Node"
            and event["name"].endswith("_kernel_time")
            and event["args"]["op_name"] != "Loop"
        ):
            nodes[event["name"]].append(event)
    rows: dict[str, dict[str, float]] = {}
    for runs in nodes.values():
        calls = len(runs) / (1 + repeats)  # of this node in a registration: one per step
        kept = runs[-round(calls * repeats) :]
        args = kept[0]["args"]
        row = rows.setdefault(args["op_name"], {"calls": 0, "ms": 0.0, "gflop": 0.0, "gbyte": 0.0})
        row["calls"] += calls
        row["ms"] += calls * min(e["dur"] for e in kept) / 1e3
        row["gflop"] += calls * flop(args) / 1e9
        row["gbyte"] += (
            calls
            * sum(int(args.get(k, 0)) for k in ("activation_size", "parameter_size", "output_size"))
            / 1e9
        )
    return dict(sorted(rows.items(), key=lambda item: -item[1]["ms"]))


def flop(args: dict[str, Any]) -> float:
    """Return the floating-point operations of a convolution or matrix product from the profiled
    shapes; 0 for other operators.
    """
    shapes = [next(iter(s.values())) for s in args["input_type_shape"]]
    out = (
        math.prod(next(iter(args["output_type_shape"][0].values())))
        if args["output_type_shape"]
        else 0
    )
    if "Conv" in args["op_name"]:
        return 2 * out * math.prod(shapes[1][1:])
    if "MatMul" in args["op_name"]:
        return 2 * out * shapes[0][-1]
    return 0


def table(rows: dict[str, dict[str, float]], least: float = 0.01) -> str:
    """Return a Markdown table; operators below a share of the time are summed up."""
    total = {k: sum(r[k] for r in rows.values()) for k in ("calls", "ms", "gflop", "gbyte")}
    shown = {name: r for name, r in rows.items() if r["ms"] >= least * total["ms"]}
    rest = {k: total[k] - sum(r[k] for r in shown.values()) for k in total}
    lines = [
        "| operator | calls | ms | share | GFLOP | GFLOP/s | GB | GB/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in (shown | {"others": rest, "all": total}).items():
        seconds = max(r["ms"], 1e-9) / 1e3
        speed = f"{r['gflop']:.2f} | {r['gflop'] / seconds:.0f}" if r["gflop"] > 1e-9 else " | "
        lines.append(
            f"| {name} | {r['calls']:.0f} | {r['ms']:.1f} |"
            f" {100 * r['ms'] / max(total['ms'], 1e-9):.0f} % | {speed} | {r['gbyte']:.3f} |"
            f" {r['gbyte'] / seconds:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run()
