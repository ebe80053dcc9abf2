"""Measures whether a map made only from the images shows where a registration errs: python
errormap.py --data DIR.

For pairs of known motion (zoo.py), prints the rank correlation, within each pair, of the true error
at the points with maps that need no truth: local correlation and descriptors after registration,
the uncertainty, a new block match around the result ("residual"), the bend, the Jacobian, the error
of a registration there and back ("inverse"), and the distance to a registration of blurred images
("other"). "a + b" adds ranks. Large images are halved.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import SimpleITK as sitk
import truth
import zoo
from scipy.ndimage import gaussian_filter, map_coordinates, uniform_filter
from scipy.stats import rankdata, spearmanr

import morphseek
from morphseek import images

KINDS = (
    "hippocampus,hippocampus\\, two contrasts,brain,abdomen MR,abdomen CT\\, two contrasts,"
    "torso CT,torso MR <- CT,torso MR\\, speckle"
)
LARGE, REACH, WINDOW = 100, 2, 5  # voxels
SUMS = (("uncertainty", "residual"), ("uncertainty", "other"), ("inverse", "other", "uncertainty"))


def halved(image: sitk.Image) -> sitk.Image:
    factors = [max(1, round(n / LARGE)) if n > 1.2 * LARGE else 1 for n in image.GetSize()]
    image = sitk.Cast(image, sitk.sitkFloat32)
    return image if max(factors) == 1 else sitk.BinShrink(image, factors)


def blurred(image: sitk.Image) -> sitk.Image:
    return sitk.DiscreteGaussian(image, [s * s for s in image.GetSpacing()])


def intensities(array: np.ndarray) -> np.ndarray:
    low, high = np.percentile(array, [0.5, 99.5])
    return np.clip((array - low) / (high - low), 0, 1).astype(np.float32)


def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def mean(x: np.ndarray) -> np.ndarray:
        return uniform_filter(x, WINDOW)

    va, vb = (np.maximum(mean(x * x) - mean(x) ** 2, 0) + 1e-5 for x in (a, b))
    return (mean(a * b) - mean(a) * mean(b)) / np.sqrt(va * vb)


def descriptors(array: np.ndarray) -> np.ndarray:
    """Return MIND-SSC, twelve channels."""
    steps = [tuple(s * (a == k) for a in range(3)) for k in range(3) for s in (1, -1)]
    pairs = [
        (p, q)
        for i, p in enumerate(steps)
        for q in steps[i + 1 :]
        if p != tuple(-x for x in q)
    ]  # fmt: skip

    def moved(by: tuple[int, ...]) -> np.ndarray:
        return np.roll(array, by, (0, 1, 2))

    found = np.stack([uniform_filter((moved(p) - moved(q)) ** 2, 3) for p, q in pairs])
    found -= found.min(0)
    level = found.mean(0)
    return np.exp(-found / np.clip(level, 1e-3 * level.mean(), 1e3 * level.mean()))


def residual(here: np.ndarray, there: np.ndarray, spacing: np.ndarray) -> np.ndarray:
    """Return how far blocks of descriptors would still move, mm: the mean displacement, weighted by
    how well it matches.
    """
    steps = np.indices([2 * REACH + 1] * 3).reshape(3, -1).T - REACH
    costs = np.stack(
        [
            uniform_filter(((here - np.roll(there, by, (1, 2, 3))) ** 2).mean(0), WINDOW)
            for by in steps
        ]
    )
    shares = np.exp((costs.min(0) - costs) / (0.05 * costs.mean(0) + 1e-6))
    return np.tensordot(np.linalg.norm(steps * spacing, axis=1), shares, 1) / shares.sum(0)


def correlations(pair: truth.Pair) -> dict[str, float]:
    fixed, moving = halved(pair.fixed), halved(pair.moving)
    result = morphseek.register(fixed, moving, uncertainty=True, threads=1)
    back = morphseek.register(moving, fixed, threads=1)
    other = morphseek.register(blurred(fixed), blurred(moving), threads=1)
    image = images.read(fixed)
    to_mm = image.index_to_physical
    places = (
        np.indices(result.grid.shape).reshape(3, -1).T[:, ::-1] @ to_mm[:3, :3].T + to_mm[:3, 3]
    )
    ended = result.transform_points(places)
    start = places @ result.transform.initial[:3, :3].T + result.transform.initial[:3, 3]
    a, b = intensities(image.float32()), intensities(result.warped)
    here, there = (descriptors(gaussian_filter(x, 0.5)) for x in (a, b))

    def apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.linalg.norm(x - y, axis=1).reshape(result.grid.shape)

    maps = {
        "correlation": 1 - abs(correlation(gaussian_filter(a, 0.8), gaussian_filter(b, 0.8))),
        "descriptors": uniform_filter(((here - there) ** 2).mean(0), WINDOW),
        "uncertainty": result.uncertainty,
        "residual": residual(here, there, np.array(fixed.GetSpacing())[::-1]),
        "bend": apart(ended, start),
        "jacobian": abs(np.log(np.maximum(result.jacobian(), 1e-3))),
        "inverse": apart(back.transform_points(ended), places),
        "other": apart(other.transform_points(places), ended),
    }
    at = (pair.fixed_points - to_mm[:3, 3]) @ np.linalg.inv(to_mm[:3, :3]).T
    read = {
        name: map_coordinates(gaussian_filter(m, 2), at[:, ::-1].T, order=1, mode="nearest")
        for name, m in maps.items()
    }
    for names in SUMS:
        read[" + ".join(names)] = sum(rankdata(read[name]) for name in names)
    error = np.linalg.norm(
        result.transform_points(pair.fixed_points) - pair.moving_points, axis=1
    )  # fmt: skip
    return {name: float(spearmanr(values, error).statistic) for name, values in read.items()}


@click.command(context_settings={"show_default": True})
@click.option("--data", type=Path, help="Folder of real images.")
@click.option("--kinds", default=KINDS, help="Names of zoo.py; a comma in one as \\,")
@click.option("--seed", default=1, help="Of the pairs.")
@click.option("--size", default=56, help="Voxels of a made-up body along an axis.")
def main(data: Path | None, kinds: str, seed: int, size: int) -> None:
    """Print one row per pair, and the mean."""
    known = zoo.kinds(zoo.Settings(size=size, n=1, data=data))
    rows: list[dict[str, float]] = []
    for name in kinds.replace("\\,", "\0").split(","):
        kind = known[name.replace("\0", ",").strip()]
        if kind.lacking:
            click.echo(f"left out: {kind.name}: {kind.lacking}")
            continue
        for pair in kind.make(seed):
            found = correlations(pair)
            if not rows:
                click.echo(f"| pair | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
            rows.append(found)
            cells = " | ".join(f"{v:.2f}" for v in found.values())
            click.echo(f"| {kind.name} | {cells} |")
    if rows:
        means = " | ".join(f"{np.mean([row[name] for row in rows]):.2f}" for name in rows[0])
        click.echo(f"| mean | {means} |")


if __name__ == "__main__":
    main()
