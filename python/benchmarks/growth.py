"""Measures how the cost grows with the volume, the steps T, the trajectories J and the number of
pairs: python growth.py --help.

Each series ends with a fitted straight line, cost = a + b * size, and its R^2. The images are one
made-up torso, sampled ever more finely; a network's time does not depend on the content.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import measure
import numpy as np
import SimpleITK as sitk
from methods import METHODS, Job

import morphseek
from morphseek import phantom


@dataclasses.dataclass(frozen=True)
class Line:
    """cost = intercept + slope * size, and the share of the variance that it explains."""

    intercept: float
    slope: float
    r2: float


def fit(size: list[float], cost: list[float]) -> Line:
    """Fit a line by least squares to at least two different sizes."""
    slope, intercept = np.polyfit(size, cost, 1)
    rest = np.array(cost) - intercept - slope * np.array(size)
    spread = np.sum((np.array(cost) - np.mean(cost)) ** 2)
    return Line(
        float(intercept), float(slope), float(1 - np.sum(rest**2) / spread) if spread > 0 else 1.0
    )


def torsos(folder: Path, side: int) -> tuple[Path, Path]:
    """Write the torso's fixed and moving image with side^3 voxels each, and return the files."""
    pair = phantom.make_pair(64)
    paths = folder / f"fixed{side}.nrrd", folder / f"moving{side}.nrrd"
    for path, made in zip(paths, (pair.fixed, pair.moving)):
        image = made.to_sitk()
        scale = np.array(image.GetSize()) / side
        first = image.TransformContinuousIndexToPhysicalPoint(((scale - 1) / 2).tolist())
        spacing = (scale * image.GetSpacing()).tolist()
        sitk.WriteImage(
            sitk.Resample(
                image,
                [side] * 3,
                sitk.Transform(),
                sitk.sitkLinear,
                first,
                spacing,
                image.GetDirection(),
            ),
            str(path),
        )
    return paths


def by_volume(sides: list[int], method: str, threads: int) -> list[dict[str, Any]]:
    """Measure one process per size, as in the table of the peers."""
    rows = []
    for side in sides:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            fixed, moving = torsos(folder, side)
            job = json.dumps(
                dataclasses.asdict(Job(fixed, moving, folder, threads, True)), default=str
            )
            command = [sys.executable, "-m", "methods", "register", METHODS[method].name, job]
            cost = measure.run(
                command,
                threads=threads,
                timeout=7200,
                log=folder / "log",
                folder=Path(__file__).parent,
            )
            if cost.exit_status != 0:
                raise RuntimeError(f"{side}^3 voxels: {(folder / 'log').read_text()[-1000:]}")
        rows.append(
            {
                "size": side**3 / 1e6,
                "cpu_seconds": cost.cpu_seconds,
                "peak_mib": cost.peak_bytes / 2**20,
            }
        )
        click.echo(f"{side}^3 voxels: {cost.cpu_seconds:.1f} CPU s, {rows[-1]['peak_mib']:.0f} MiB")
    return rows


def in_process(name: str, sizes: list[int], call: Callable[[int], Any]) -> list[dict[str, Any]]:
    """Measure the CPU seconds of call(size), after a warm-up."""
    call(sizes[0])
    rows = []
    for size in sizes:
        started = time.process_time()
        call(size)
        rows.append({"size": size, "cpu_seconds": time.process_time() - started})
        click.echo(f"{name} = {size}: {rows[-1]['cpu_seconds']:.2f} CPU s")
    return rows


def page(series: dict[str, dict[str, Any]]) -> str:
    """Return the series as markdown."""
    lines = []
    for name, found in series.items():
        columns = list(found["rows"][0])
        lines += [
            f"### {name}",
            "",
            "| " + " | ".join(columns) + " |",
            "|" + "---:|" * len(columns),
        ]
        lines += [
            "| " + " | ".join(f"{row[column]:.4g}" for column in columns) + " |"
            for row in found["rows"]
        ]
        lines += (
            [""]
            + [
                f"{what} = {line['intercept']:.4g} + {line['slope']:.4g} * size, R^2"
                f" {line['r2']:.4f}  "
                for what, line in found["fits"].items()
            ]
            + [""]
        )
    return "\n".join(lines)


@click.command(context_settings={"show_default": True})
@click.option(
    "--out", type=Path, required=True, help="Folder for growth.json, growth.md and growth.png."
)
@click.option(
    "--sides",
    default="64,96,128,160,192,224,256,320",
    help="Voxels along an edge, comma-separated.",
)
@click.option("--method", default="morphseek-default", help="Which of ours grows with the volume.")
@click.option("--small", default=48, help="Voxels along an edge for T, J and pairs.")
@click.option("--threads", default=1)
def main(out: Path, sides: str, method: str, small: int, threads: int) -> None:
    """Measure the growth of the cost and write it down."""
    out.mkdir(parents=True, exist_ok=True)
    pair = phantom.make_pair(small)
    # as arrays, with voxels of 1 mm, as the network expects
    fixed, moving = pair.fixed.array, pair.moving.array

    def register(**options: Any) -> None:
        morphseek.register(
            fixed, moving, model="hippocampus", threads=threads, device="cpu", **options
        )

    series: dict[str, dict[str, Any]] = {
        f"megavoxels, {method}": {
            "rows": by_volume([int(side) for side in sides.split(",")], method, threads)
        },
        f"steps T, {small}^3 voxels": {
            "rows": in_process("T", [1, 2, 4, 8], lambda t: register(steps=t))
        },
        f"trajectories J, {small}^3 voxels": {
            "rows": in_process("J", [1, 2, 4, 8], lambda j: register(trajectories=j))
        },
        f"pairs, {small}^3 voxels": {
            "rows": in_process("pairs", [1, 2, 4, 8], lambda n: [register() for _ in range(n)])
        },
    }
    for found in series.values():
        size = [row["size"] for row in found["rows"]]
        costs = [column for column in found["rows"][0] if column != "size"]
        found["fits"] = {
            cost: dataclasses.asdict(fit(size, [row[cost] for row in found["rows"]]))
            for cost in costs
        }
    (out / "growth.json").write_text(
        json.dumps({"machine": measure.machine(), "threads": threads, "series": series}, indent=1)
        + "\n"
    )
    (out / "growth.md").write_text(page(series))
    _draw(out / "growth.png", series)
    click.echo(page(series))


def _draw(path: Path, series: dict[str, dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(series), 3.6), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, len(series)), series.items()):
        size, line = np.array([row["size"] for row in found["rows"]]), found["fits"]["cpu_seconds"]
        axes.plot(size, [row["cpu_seconds"] for row in found["rows"]], "o")
        axes.plot(size, line["intercept"] + line["slope"] * size, "-", color="0.6")
        axes.set(xlabel=name, ylabel="CPU seconds", title=f"R² = {line['r2']:.4f}", ylim=(0, None))
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
