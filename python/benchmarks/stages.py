"""Measures the default registration's time on a CPU stage by stage, beside the least time that its
operations and bytes allow: python stages.py --help.

The counts are taken from the Go code: how often each pass runs over how many voxels, its operations
per voxel (a multiply-add counts two), and the bytes that it reads and writes. A pass takes at least
its operations at the speed of a matrix product on this core or, if its data exceed the cache, its
bytes at the speed of a copy. One thread, one modality.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import measure
import numpy as np

import morphseek

SCALES = 9  # scales of the affine search: three in plane times three along the body
#: Points at which the affine objective is evaluated, all gradient ascents together: 121 evaluations
#: of 2000, 6000 or 20,000 points on the brain pair of the table, counted in an instrumented build.
EVALUATED = 0.59e6
# levels of the search: control spacing and radius of the window, voxels
LEVELS = ((6, 5), (5, 5), (4, 3), (3, 2))
MARGIN, PASSES, TREES, WAYS = 10, 2, 4, 2
WORD = 4  # float32 operations per 64-bit one: half as many in a vector, and no multiply-add
TRILINEAR = 21  # seven interpolations


@dataclasses.dataclass(frozen=True)
class Pass:
    """A pass over elements: its operations and bytes per element, and how often it runs."""

    what: str
    elements: float
    operations: float
    bytes: float
    times: float = 1

    @property
    def gflop(self) -> float:
        return self.times * self.elements * self.operations / 1e9

    @property
    def gbyte(self) -> float:
        return self.times * self.elements * self.bytes / 1e9

    def floor(self, gflops: float, gbytes: float, cache_mb: float) -> float:
        """Return the least possible seconds."""
        beyond = self.elements * self.bytes > cache_mb * 1e6
        return max(self.gflop / gflops, self.gbyte / gbytes if beyond else 0)


def symmetric(images: int, radius: int) -> int:
    """Operations per voxel of a separable symmetric filter with `radius` weights to either side."""
    return images * 3 * (1 + 3 * radius)


def gaussian(images: int, sigma: float) -> int:
    return symmetric(images, math.ceil(3 * sigma))


#: Operations of MIND-SSC at a voxel: twelve squared differences and their means over 3^3, the
#: minimum and the mean of the twelve, twelve exponentials.
MIND = 12 * (2 + 12) + 36 + 12 * 21
MIND_BYTES = 12 * 8 + 2 * (12 * 8 + 4)


def align(fixed: Grid, moving: Grid) -> Iterator[Pass]:
    """Passes of the affine alignment of one modality: peaks over all translations and scales, by
    FFT, and the gradient ascents from them.
    """
    h = max(
        fixed.voxel**3,
        moving.voxel**3,
        min(fixed.mm3, moving.mm3) / 500e3,
        max(fixed.mm3, moving.mm3) / 1.5e6,
    ) ** (1 / 3)
    sizes = [[math.ceil(mm / h - 1e-6) + 2 for mm in g.mm] for g in (fixed, moving)]
    voxels = sum(math.prod(size) for size in sizes)
    yield Pass("means of blocks", fixed.voxels + moving.voxels, 2, 4)
    yield Pass("resampled, body found", voxels, 2 * (TRILINEAR + 18), 16)
    yield Pass("MIND-SSC", voxels, MIND, MIND_BYTES)
    yield Pass("principal components", voxels, 12 * 5 + 78 * 2 + 144 * 2, 192)
    # Fourteen planes smoothed by 2 voxels, then a copy of them and the intensity by 1.
    yield Pass(
        "smoothed for the gradient",
        voxels,
        gaussian(14, 2) + gaussian(1, 2) + gaussian(15, 1),
        2 * 124 + 2 * 64 + 8,
    )
    halves = [[math.ceil(n / 2) for n in size] for size in sizes]
    reach = [math.ceil(n / 0.85) for n in halves[1]]
    transform = math.prod(
        fast_size(f + m - int(0.45 * min(f, m)), 2 if axis == 0 else 1)
        for axis, (f, m) in enumerate(zip(halves[0], reach))
    )
    # Planes: six components, body, validity, energy; the results are score, overlap and energy.
    yield Pass("FFTs", transform, 2.5 * math.log2(transform), 24, 9 + SCALES * (9 + 3))
    yield Pass("products of spectra, scores", transform, 10 * 5 + 25, 150, SCALES)
    yield Pass("rescaled", math.prod(halves[1]), 8 * (TRILINEAR + 18), 64, SCALES - 1)
    yield Pass("evaluations of the affine", EVALUATED, 16 * 49 + 130, 64)


def search(fixed: Grid, moving: Grid) -> Iterator[Pass]:
    """Passes of the search: both ways, all levels, two passes of the default preset, four trees
    each.
    """
    spacing = max(fixed.voxel, fixed.voxel * (fixed.voxels / 850e3) ** (1 / 3))
    size = fixed.at(spacing)
    grid, grown = math.prod(size), math.prod(n + 2 * MARGIN for n in size)
    advances = WAYS * PASSES * len(LEVELS)
    yield Pass(
        "images, smoothed",
        fixed.voxels + moving.voxels,
        gaussian(1, 0.5 * math.sqrt(max((spacing / fixed.voxel) ** 2 - 1, 0))) + 3,
        8,
    )
    yield Pass("images on the grid", grown, 2 * 2 * (TRILINEAR + 18), 16)
    yield Pass("descriptors, fixed", grid, MIND + 12 * 4, MIND_BYTES + 56, WAYS)
    yield Pass(
        "descriptors, moving, anew at every level", grown, MIND + 12 * 4, MIND_BYTES + 56, advances
    )
    yield Pass(
        "moving image seen through the field",
        grown,
        3 * TRILINEAR + 2 * TRILINEAR + 60,
        12 + 16,
        advances,
    )
    for control, radius in LEVELS:
        points, width = math.prod(math.ceil(n / control) for n in size), 2 * radius + 1
        samples = math.ceil(control / (1 + control // 5)) ** 3
        yield Pass(
            f"costs, spacing {control}: exclusive or, count, compare, add",
            points * width**3,
            4 * WORD * samples,
            4,
            WAYS * PASSES,
        )
        # An envelope takes the minimum of `width` sums along each axis. One goes up a tree and one
        # down, and those of all trees are summed.
        yield Pass(
            f"messages, spacing {control}",
            points * width**3,
            2 * (3 * 2 * width + 4) + 4,
            44,
            WAYS * PASSES * TREES,
        )
        yield Pass(
            f"field, spacing {control}",
            grid,
            2 * (3 * TRILINEAR + 30) + gaussian(3, 0.5 * control) + 35,
            100,
            WAYS * PASSES,
        )
    yield Pass(
        "reconciled: twelve rough steps of two inverses",
        grid / 8,
        3 * TRILINEAR + 27 + 6,
        60,
        2 * 12 * PASSES * len(LEVELS),
    )
    yield Pass(
        "reconciled: on the grid", grid, 3 * (3 * TRILINEAR + 30), 72, 2 * PASSES * len(LEVELS)
    )


def refine(fixed: Grid, levels: list[dict[str, Any]]) -> Iterator[Pass]:
    """Passes of the refinement by local correlation, as often as each level evaluated it."""
    for level in levels:
        n, mm, times = (
            math.prod(fixed.at(level["spacing_mm"])),
            level["spacing_mm"],
            len(level["similarity"]),
        )
        yield Pass(
            f"{mm:g} mm: images, sharpened", n, 2 * (3 + TRILINEAR + 18 + gaussian(1, 0.7) + 3), 80
        )
        yield Pass(
            f"{mm:g} mm: what is known, its windows",
            n,
            2 * (TRILINEAR + 18) + symmetric(3, 2) + 14,
            56,
            math.ceil(times / 10),
        )
        yield Pass(f"{mm:g} mm: warp", n, TRILINEAR + 18, 20, times)
        yield Pass(
            f"{mm:g} mm: windows' moments, correlation", n, 3 + symmetric(3, 2) + 22, 36, times
        )
        yield Pass(f"{mm:g} mm: windows' sums, gradient", n, symmetric(3, 2) + 13, 33, times)
        yield Pass(f"{mm:g} mm: fluid Gaussian", n, gaussian(3, 1.75) + 6, 24, times)
        yield Pass(
            f"{mm:g} mm: composition, elastic Gaussian",
            n,
            3 * TRILINEAR + 24 + gaussian(3, 0.35),
            36,
            times,
        )


def finish(fixed: Grid, moving: Grid) -> Iterator[Pass]:
    """Passes for the total field, one resampling and the measurements."""
    n = fixed.voxels
    yield Pass("deformation on the fixed grid, total field", n, 2 * (3 * TRILINEAR + 36), 48)
    yield Pass("folds, Jacobian, distances", n, 35 + 35 + 40, 28)
    yield Pass("warp", n, TRILINEAR + 18 + 18, 20)
    every = math.prod(math.ceil(s / math.ceil((n / 2**20) ** (1 / 3))) for s in fixed.size)
    yield Pass(
        "local correlation, three times, in float64", every, 2 * (2 * (TRILINEAR + 18) + 60), 16, 3
    )


@dataclasses.dataclass(frozen=True)
class Grid:
    """Size, and spacing in mm, of an image."""

    size: tuple[int, ...]
    spacing: tuple[float, ...]

    @property
    def mm(self) -> list[float]:
        return [n * s for n, s in zip(self.size, self.spacing)]

    @property
    def mm3(self) -> float:
        return math.prod(self.mm)

    @property
    def voxels(self) -> int:
        return math.prod(self.size)

    @property
    def voxel(self) -> float:
        """The side of a cube with a voxel's volume, mm."""
        return math.prod(self.spacing) ** (1 / 3)

    def at(self, spacing: float) -> list[int]:
        return [max(math.ceil(mm / spacing - 1e-6), 8) for mm in self.mm]


def fast_size(n: int, step: int) -> int:
    """Return the least multiple of `step` from n on without prime factors above 5."""
    n = -(-n // step) * step
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += step


def speeds() -> tuple[float, float]:
    """Return the GFLOP/s of a float32 matrix product and the GB/s of a copy, by this thread's CPU
    time; the best of several.
    """

    def best(call: Any) -> float:
        times = []
        for _ in range(5):
            began = time.thread_time()
            call()
            times.append(time.thread_time() - began)
        return min(times)

    n = 1024
    a, b = np.ones((2, n, n), np.float32)
    source = np.ones(1 << 25, np.float32)  # 128 MiB: beyond any cache
    copy = np.empty_like(source)
    copy.fill(0)
    return 2e-9 * n**3 / best(lambda: a @ b), 2e-9 * source.nbytes / best(
        lambda: np.copyto(copy, source)
    )


def stage_seconds(fixed: Path, moving: Path, **options: Any) -> tuple[dict[str, float], Any]:
    """Return the CPU seconds of each stage of one registration, and its result. The process must do
    nothing else meanwhile.
    """
    marks: list[tuple[str, float]] = []

    def see(report: morphseek.Progress) -> None:
        stage = "end" if report.fraction >= 1 else report.stage
        if not marks or marks[-1][0] != stage:
            marks.append((stage, time.process_time()))

    result = morphseek.register(
        fixed, moving, model="none", device="cpu", threads=1, progress=see, **options
    )
    return {stage: end - began for (stage, began), (_, end) in zip(marks, marks[1:])}, result


def page(
    rows: dict[str, tuple[str, float, list[Pass]]],
    peak: tuple[float, float],
    cache_mb: float,
    passes: bool,
) -> str:
    """Return Markdown with each stage's name, CPU seconds and passes."""
    lines = [
        "| stage | CPU s | GFLOP | GB | floor, s | times the floor |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, seconds, counted in rows.values():
        floor = sum(p.floor(*peak, cache_mb) for p in counted)
        lines.append(
            f"| {name} | {seconds:.2f} | {sum(p.gflop for p in counted):.1f} |"
            f" {sum(p.gbyte for p in counted):.1f} | {floor:.2f} | {seconds / floor:.1f} |"
        )
        if passes:
            lines += [
                f"| - {p.what} | | {p.gflop:.2f} | {p.gbyte:.2f} |"
                f" {p.floor(*peak, cache_mb):.3f} | |"
                for p in counted
            ]
    return "\n".join(lines)


@click.command(context_settings={"show_default": True})
@click.argument("fixed", type=Path)
@click.argument("moving", type=Path)
@click.option(
    "--repeats",
    default=2,
    help="Registrations after a warm-up; the least time of each stage counts.",
)
@click.option(
    "--cache-mb",
    default=32,
    type=float,
    help="Size of the last cache: a pass over less data does not wait for memory.",
)
@click.option("--passes", is_flag=True, help="Every pass of a stage, too.")
def main(fixed: Path, moving: Path, repeats: int, cache_mb: float, passes: bool) -> None:
    """Print the table of stages for two images, FIXED of the one modality and MOVING of another. By
    default the search runs only if the images match badly, so it is also measured with search on.
    """
    grids = [
        Grid(image.array.shape[::-1], tuple(image.spacing))
        for image in (
            morphseek.images.read(fixed, "fixed"),
            morphseek.images.read(moving, "moving"),
        )
    ]
    best: dict[str, float] = {}
    stage_seconds(fixed, moving, search=False, refine=0)
    for _ in range(repeats):
        found, result = stage_seconds(fixed, moving)
        best = {stage: min(seconds, best.get(stage, math.inf)) for stage, seconds in found.items()}
    if not result.metrics["align"]["same_modality"]:
        raise SystemExit(
            "these are two modalities, for which the refinement compares descriptors: the counts"
            " here are of one"
        )
    asked = min(
        stage_seconds(fixed, moving, search=True, refine=0)[0]["search"] for _ in range(repeats)
    )
    peak = speeds()
    skipped = best["search"] < 0.1 * asked
    rows = {
        "align": ("align", best["align"], list(align(*grids))),
        "search": (
            "search (asked for; this pair does without it)" if skipped else "search",
            asked,
            list(search(*grids)),
        ),
        "refine": (
            "refine",
            best["refine"],
            list(refine(grids[0], result.metrics["refine"]["levels"])),
        ),
        "finish": ("finish", best["finish"], list(finish(*grids))),
    }
    machine = measure.machine()
    print(
        f"{machine['cpu']}, load {machine['load_average']}; {' x '.join(map(str, grids[0].size))};"
        f" {peak[0]:.0f} GFLOP/s, {peak[1]:.1f} GB/s a core."
    )
    print("\n" + page(rows, peak, cache_mb, passes))


if __name__ == "__main__":
    main()
