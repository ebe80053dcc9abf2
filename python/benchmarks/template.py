"""Measures templates of real images: python template.py FOLDER [--count N] [--ants] [--out DIR].

FOLDER has images/, labels/ (the same names) and split.json with the list train. Prints the
sharpness of the affine mean, of morphseek.build_template and, with --ants, of ANTs' build_template
(antspyx), all measured in the same way: in the middle half of the template, with intensities scaled
to 0..1 by percentiles there. Also prints the overlap of labels, the mean of the transforms, and the
time.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import SimpleITK as sitk

import morphseek


def cpu() -> float:
    """Return the processor time of this process and of those that it waited for, s."""
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def sharpness(image: sitk.Image) -> tuple[float, float]:
    """Return the mean gradient, per mm, and the entropy, bits, of the middle half of an image; few
    images reach its ends.
    """
    values = sitk.GetArrayFromImage(image).astype(float)
    inner = tuple(slice(n // 4, n - n // 4) for n in values.shape)
    low, high = np.percentile(values[inner], (0.5, 99.5))
    values = (values - low) / (high - low)
    steps = np.gradient(values, *image.GetSpacing()[::-1])
    norm = np.sqrt(sum(step**2 for step in steps))[inner]
    counts = np.histogram(values[inner], 256, (0, 1))[0]
    shares = counts[counts > 0] / counts.sum()
    return float(norm.mean()), float(-(shares * np.log2(shares)).sum())


def by_ants(paths: list[Path], iterations: int) -> sitk.Image:
    import ants

    images = [ants.image_read(str(path)) for path in paths]
    first = images[0].clone()
    made = ants.build_template(first, images, iterations=iterations)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/template.nii.gz"
        ants.image_write(made, path)
        return sitk.ReadImage(path)


@click.command(context_settings={"show_default": True})
@click.argument("folder", type=Path)
@click.option("--count", default=16, help="How many images to take, from the first.")
@click.option("--iterations", default=4)
@click.option("--ants", is_flag=True, help="Also build_template of antspyx.")
@click.option("--out", type=Path, help="Keep the template there.")
def main(folder: Path, count: int, iterations: int, ants: bool, out: Path | None) -> None:
    """Print one row per template."""
    names = json.loads((folder / "split.json").read_text())["train"][:count]
    paths = [folder / "images" / f"{name}.nii.gz" for name in names]
    rows: list[tuple[str, sitk.Image, float, Any]] = []
    runs = [("affine mean", 0, 0.0), ("morphseek", iterations, 0.0)]
    runs.append(("morphseek, --sharpen 0.25", iterations, 0.25))  # as ANTs does by default
    for said, rounds, sharpen in runs:
        began = cpu()
        with tempfile.TemporaryDirectory() as place:
            found = morphseek.build_template(
                [(path, folder / "labels" / path.name) for path in paths], out or Path(place),
                iterations=rounds, sharpen=sharpen, resume=False,
            )  # fmt: skip
        rows.append((said, found.image.to_sitk(), cpu() - began, found))
    if ants:
        began = cpu()
        rows.append(("ANTs, 3 iterations", by_ants(paths, 3), 0.0, None))
        rows[-1] = (*rows[-1][:2], cpu() - began, None)
    click.echo("| template | gradient | entropy | Dice | of others | mean, voxels | CPU s |")
    click.echo("|---|---:|---:|---:|---:|---:|---:|")
    for said, image, seconds, found in rows:
        cells = [f"{v:.3f}" for v in sharpness(image)]
        if found is None:
            cells += ["", "", ""]
        else:
            cells += [f"{found.mean_dice(own):.3f}" for own in (False, True)]
            cells += [f"{found.iterations[-1].mean_voxels:.4f}"]
        click.echo(f"| {said} | {' | '.join(cells)} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
