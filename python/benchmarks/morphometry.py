"""Measures whether morphometry finds a known growth: python morphometry.py [IMAGE ...] --label 2.

A structure of each image grows or shrinks about its centre, evenly within the ball around it, and
less and less out to the double of that ball's radius. Both images get noise. An IMAGE lies in
images/, its label map of the same name in labels/; without one a made-up torso is taken. Prints the
true and the measured change of volume, %, and the mean absolute log J of tissue where nothing grew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import numpy as np
import SimpleITK as sitk
from epi import NOISE, coarse
from scipy.ndimage import map_coordinates

import morphseek
from morphseek import phantom, studies
from morphseek._streams import open_streams


def grown(image: sitk.Image, inside: np.ndarray, growth: float) -> tuple[np.ndarray, np.ndarray]:
    """Return an image's voxels after the volume of a structure changed by a share, and whether they
    lie where nothing moved.
    """
    array, column = sitk.GetArrayFromImage(image), (3, 1, 1, 1)
    centre = np.reshape(np.argwhere(inside).mean(0), column)
    step = np.reshape(image.GetSpacing()[::-1], column)
    offset = (np.indices(array.shape) - centre) * step
    distance = np.linalg.norm(offset, axis=0)
    radius = distance[inside].max()
    before = np.linspace(0, 2 * distance.max(), 4096)
    share = np.cos(np.pi / 2 * np.clip(before / radius - 1, 0, 1)) ** 2
    after = before * (1 + ((1 + growth) ** (1 / 3) - 1) * share)
    scale = np.interp(distance, after, before) / np.maximum(distance, 1e-9)
    moved = map_coordinates(array, offset * scale / step + centre, order=3, mode="nearest")
    return moved, distance > 2 * radius


@click.command(context_settings={"show_default": True})
@click.argument("images", type=Path, nargs=-1)
@click.option("--label", default=1, help="The structure that grows.")
@click.option("--growth", default="-20,-10,-5,0,5,10,20", help="Of its volume, %.")
@click.option("--voxel", default=3.0, help="Of the images, mm.")
@click.option("--size", default=64, help="Of the torso, voxels along each axis.")
def main(images: tuple[Path, ...], label: int, growth: str, voxel: float, size: int) -> None:
    """Print one row per image and growth."""
    made = phantom.make_pair(size)
    torso = ("torso", made.fixed.to_sitk(), made.fixed_labels.to_sitk())
    maps = [sitk.ReadImage(str(p.parent.with_name("labels") / p.name)) for p in images]
    bodies = [(p.name, coarse(p, voxel), m) for p, m in zip(images, maps)] or [torso]
    click.echo("| image | true, % | measured, % | log J where nothing grew | verdict |")
    click.echo("|---|---:|---:|---:|---|")
    for name, image, labels in bodies:
        labels = sitk.Resample(labels, image, sitk.Transform(), sitk.sitkNearestNeighbor) == label
        inside, rng = sitk.GetArrayViewFromImage(labels) > 0, np.random.default_rng(0)
        array = sitk.GetArrayFromImage(image)
        for change in map(float, growth.split(",")):
            moved, still = grown(image, inside, change / 100)
            pair = []
            for values in (array, moved):
                noisy = values + rng.normal(0, NOISE * np.ptp(array), array.shape)
                pair.append(sitk.GetImageFromArray(noisy.astype(np.float32)))
                pair[-1].CopyInformation(image)
            result = morphseek.register(*pair, threads=1)
            with tempfile.TemporaryDirectory() as folder:
                result.save(folder)
                study = studies.morphometry([(folder, None)], fixed_labels=labels, fwhm=0)
            found, grade = study.volumes[0].change_percent, result.verdict.grade
            false = abs(study.mean[still & (array > array.mean())]).mean()
            click.echo(f"| {name} | {change:g} | {found:.2f} | {false:.4f} | {grade} |")


if __name__ == "__main__":
    open_streams()
    main()
