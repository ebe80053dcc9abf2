"""Measures the error of morphseek.correct_epi on a made-up distortion: python epi.py IMAGE
[IMAGE ...].

Each IMAGE, on voxels of `voxel` mm, is what both echo-planar images would show without distortion.
A smooth random field shifts it along the file's second axis and makes squeezed tissue brighter;
noise is added. Prints the distance between the found and the true shift, mm.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import SimpleITK as sitk
from scipy.ndimage import gaussian_filter, map_coordinates

import morphseek
from morphseek._streams import open_streams

SMOOTH, NOISE = 8, 0.01  # voxels; standard deviation, of the brightest


def coarse(path: Path, voxel: float) -> sitk.Image:
    image = sitk.ReadImage(str(path), sitk.sitkFloat32)
    size = [int(n * s / voxel) for n, s in zip(image.GetSize(), image.GetSpacing())]
    place = image.GetOrigin(), [voxel] * 3, image.GetDirection()
    return sitk.Resample(image, size, sitk.Transform(), sitk.sitkLinear, *place)


def distorted(image: np.ndarray, shift: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the image in which tissue at y appears at y + shift(y), along axis 1."""
    z, y, x = np.indices(image.shape).astype(float)
    at = y.copy()
    for _ in range(60):
        at = y - map_coordinates(shift, [z, at, x], order=1, mode="nearest")
    squeezed = 1 + map_coordinates(
        np.gradient(shift, axis=1), [z, at, x], order=1, mode="nearest"
    )  # fmt: skip
    shown = map_coordinates(image, [z, at, x], order=3) / squeezed
    return np.clip(shown, 0, None) + rng.normal(0, NOISE * image.max(), image.shape)


@click.command(context_settings={"show_default": True})
@click.argument("images", type=Path, nargs=-1, required=True)
@click.option("--voxel", default=2.0, help="mm.")
@click.option("--largest", default=4.0, help="Shift, voxels.")
@click.option("--seed", default=3, help="Of the field.")
def main(images: tuple[Path, ...], voxel: float, largest: float, seed: int) -> None:
    """Print one row per image: the shifts in its tissue and the error of the found ones, mm."""
    click.echo("| image | shift, 95 % | off, median | off, 95 % |\n|---|---:|---:|---:|")
    for number, path in enumerate(images):
        rng = np.random.default_rng(seed + number)
        image = coarse(path, voxel)
        array = sitk.GetArrayFromImage(image)
        shift = gaussian_filter(rng.normal(size=array.shape), SMOOTH)
        shift *= largest / abs(shift).max()
        pair = []
        for sign in (1, -1):
            made = sitk.GetImageFromArray(distorted(array, sign * shift, rng).astype(np.float32))
            made.CopyInformation(image)
            pair.append(made)
        found = morphseek.correct_epi(*pair, phase_encoding="j").shift.array
        tissue = gaussian_filter(array, 1) > 0.15 * array.max()
        off, there = (voxel * abs(v[tissue]) for v in (found - shift, shift))
        figures = (np.percentile(there, 95), np.median(off), np.percentile(off, 95))
        click.echo(f"| {path.name} | {' | '.join(f'{v:.2f}' for v in figures)} |")


if __name__ == "__main__":
    open_streams()
    main()
