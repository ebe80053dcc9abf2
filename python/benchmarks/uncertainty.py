"""Compares the uncertainty with the true error: python uncertainty.py [IMAGE ...].

The pairs are made-up torsos (two contrasts, morphseek.phantom) and one for each IMAGE: IMAGE is
the moving image, and the fixed one is the same under a smooth random displacement, with another
contrast curve and noise in both. Prints for each pair Spearman's correlation of uncertainty and
error over the organs (in an IMAGE: voxels above its mean), the root mean square of both in fifths
of the voxels sorted by uncertainty, and the share of voxels whose error is below twice the
uncertainty.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.stats import spearmanr

import morphseek
from morphseek import images, phantom
from morphseek._streams import open_streams

CURVE, NOISE = 0.7, 0.03  # exponent of the contrast curve; standard deviation, of the brightest
FIFTHS = 5


def compare(name: str, uncertainty: np.ndarray, error: np.ndarray) -> str:
    """Return a pair's row: `uncertainty` and `error` are those of the voxels that count, mm."""

    def rms(values: np.ndarray) -> float:
        return float(np.sqrt(np.mean(values**2)))

    fifths = [
        f"{rms(error[part]):.1f}/{rms(uncertainty[part]):.1f}"
        for part in np.array_split(np.argsort(uncertainty), FIFTHS)
    ]
    below = np.mean(error < 2 * uncertainty)
    return (
        f"| {name} | {spearmanr(uncertainty, error).statistic:.2f} | {' '.join(fifths)} |"
        f" {rms(error):.1f}/{rms(uncertainty):.1f} | {100 * below:.0f} % |"
    )


def torso(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Register a made-up pair; return uncertainty and error in its organs."""
    pair = phantom.make_pair(size=size, seed=seed)
    result = morphseek.register(pair.fixed, pair.moving, uncertainty=True)
    where = np.argwhere(pair.fixed_labels.array > 0)
    points = (
        where[:, ::-1] @ pair.fixed.index_to_physical[:3, :3].T
        + pair.fixed.index_to_physical[:3, 3]
    )
    return result.uncertainty[tuple(where.T)], np.linalg.norm(
        result.transform_points(points) - pair.truth(points), axis=1
    )


def through(
    path: Path, amplitude: float, smoothness: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Register an image to itself under a displacement with a standard deviation of `amplitude` mm
    per component that is smooth over `smoothness` mm.
    """
    image = images.read(path)
    rng = np.random.default_rng(seed)
    voxels = image.float32()
    spacing = np.array(image.grid.spacing)
    truth = np.stack(
        [
            gaussian_filter(
                rng.standard_normal(voxels.shape), smoothness / spacing[::-1], mode="nearest"
            )
            for _ in range(3)
        ],
        -1,
    )
    truth *= amplitude / truth.std()  # LPS mm, components x, y, z
    index = truth @ np.linalg.inv(image.index_to_physical[:3, :3]).T
    seen = map_coordinates(
        voxels,
        [n + index[..., 2 - a] for a, n in enumerate(np.indices(voxels.shape))],
        order=1,
        mode="nearest",
    )
    top = float(np.percentile(voxels, 99.5))
    fixed = top * np.clip(seen / top, 0, None) ** CURVE + NOISE * top * rng.standard_normal(
        voxels.shape
    ) * (seen > 0)
    moving = voxels + NOISE * top * rng.standard_normal(voxels.shape) * (voxels > 0)
    result = morphseek.register(
        images.Image.on_grid(fixed.astype(np.float32), image.grid),
        images.Image.on_grid(moving.astype(np.float32), image.grid),
        uncertainty=True,
    )
    inside = fixed > fixed.mean()
    return (
        result.uncertainty[inside],
        np.linalg.norm(result.displacement_mm() - truth, axis=-1)[inside],
    )


@click.command(context_settings={"show_default": True})
@click.argument("images", type=Path, nargs=-1)
@click.option("--size", default=96, help="Voxels of a made-up torso along each axis.")
@click.option("--seeds", default=2, help="How many made-up torsos.")
@click.option("--amplitude", default=8.0, help="Amplitude of the displacement, mm.")
@click.option("--smoothness", default=25.0, help="Smoothness of the displacement, mm.")
def main(
    images: tuple[Path, ...], size: int, seeds: int, amplitude: float, smoothness: float
) -> None:
    """Print the table for made-up torsos and for IMAGES, whose background is 0."""
    print(
        "| pair | Spearman | RMS error/uncertainty by fifths, mm | all, mm | error < 2"
        " uncertainties |\n|---|---|---|---|---|"
    )
    for seed in range(seeds):
        print(compare(f"torso {seed}", *torso(size, seed)), flush=True)
    for seed, path in enumerate(images):
        print(compare(path.name, *through(path, amplitude, smoothness, seed)), flush=True)


if __name__ == "__main__":
    open_streams()
    main()
