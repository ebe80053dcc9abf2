"""Checks whether variants of a pair that differ only in geometry give the same alignment: python
variants.py --help.

A variant moves a volume in space, stores its axes in another order, changes its spacing or crops
it. Its result, with the known motions undone, carries the original labels, and all are scored on
the same grid by SimpleITK. Linear interpolation, with which most tools change the spacing, also
blurs; two more variants use a windowed sinc, which hardly blurs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pairs as data_sets
import scoring
import SimpleITK as sitk

import morphseek

Variant = Callable[[sitk.Image], tuple[sitk.Image, sitk.Transform]]


def as_is(image: sitk.Image) -> tuple[sitk.Image, sitk.Transform]:
    return image, sitk.Transform()


def turned(
    axis: tuple[float, float, float], degrees: float, shift: tuple[float, float, float] = (0, 0, 0)
) -> Variant:
    """Return the volume turned about its centre and shifted, mm, and the transform from its old to
    its new place.
    """

    def apply(image: sitk.Image) -> tuple[sitk.Image, sitk.Transform]:
        middle = image.TransformContinuousIndexToPhysicalPoint(
            [(n - 1) / 2 for n in image.GetSize()]
        )
        motion = sitk.VersorRigid3DTransform(axis, np.deg2rad(degrees))
        motion.SetCenter(middle)
        motion.SetTranslation(shift)
        out = sitk.Image(image)
        out.SetOrigin(motion.TransformPoint(image.GetOrigin()))
        matrix = np.array(motion.GetMatrix()).reshape(3, 3) @ np.array(
            image.GetDirection()
        ).reshape(3, 3)
        out.SetDirection(matrix.ravel().tolist())
        return out, motion

    return apply


def reordered(image: sitk.Image) -> tuple[sitk.Image, sitk.Transform]:
    return sitk.Flip(sitk.PermuteAxes(image, (2, 0, 1)), (True, False, False)), sitk.Transform()


def respaced(factor: float, interpolator: int = sitk.sitkLinear) -> Variant:
    def apply(image: sitk.Image) -> tuple[sitk.Image, sitk.Transform]:
        size = [max(1, round(n / factor)) for n in image.GetSize()]
        spacing = [
            s * n / m for s, n, m in zip(image.GetSpacing(), image.GetSize(), size, strict=True)
        ]
        # The same extent, so that the first voxel's outer corner stays.
        corner = [(b / a - 1) / 2 for a, b in zip(image.GetSpacing(), spacing, strict=True)]
        origin = image.TransformContinuousIndexToPhysicalPoint(corner)
        return (
            sitk.Resample(
                image, size, sitk.Transform(), interpolator, origin, spacing, image.GetDirection()
            ),
            sitk.Transform(),
        )

    return apply


def cropped(image: sitk.Image) -> tuple[sitk.Image, sitk.Transform]:
    """Crop a twentieth from both ends of every axis."""
    off = [n // 20 for n in image.GetSize()]
    return sitk.Crop(image, off, off), sitk.Transform()


VARIANTS: dict[str, tuple[Variant, Variant]] = {  # of the fixed, of the moving volume
    "as it is": (as_is, as_is),
    "moving turned by 15 degrees": (as_is, turned((0.3, 0.2, 0.93), 15)),
    "fixed turned by 15 degrees, 300 mm away": (
        turned((0.8, -0.5, 0.2), 15, (300, -120, 80)),
        as_is,
    ),
    "moving's axes in another order, one reversed": (as_is, reordered),
    "fixed's axes in another order, one reversed": (reordered, as_is),
    "moving at 0.8 times the spacing": (as_is, respaced(0.8)),
    "fixed at 1.25 times the spacing": (respaced(1.25), as_is),
    "moving cropped": (as_is, cropped),
}
UNBLURRED: dict[str, tuple[Variant, Variant]] = {
    "moving at 0.8 times the spacing, windowed sinc": (
        as_is,
        respaced(0.8, sitk.sitkLanczosWindowedSinc),
    ),
    "fixed at 1.25 times the spacing, windowed sinc": (
        respaced(1.25, sitk.sitkLanczosWindowedSinc),
        as_is,
    ),
}


def run(
    fixed: sitk.Image,
    moving: sitk.Image,
    fixed_labels: sitk.Image,
    moving_labels: sitk.Image,
    **options,
) -> dict[str, float]:
    """Return the mean Dice of every variant."""
    dice = {}
    for name, (of_fixed, of_moving) in (VARIANTS | UNBLURRED).items():
        f, fixed_motion = of_fixed(fixed)
        m, moving_motion = of_moving(moving)
        result = morphseek.register(f, m, **options)
        # the last one acts first
        whole = sitk.CompositeTransform(
            [moving_motion.GetInverse(), result.transform.to_sitk(), fixed_motion]
        )
        carried = sitk.Resample(moving_labels, fixed_labels, whole, sitk.sitkNearestNeighbor, 0)
        dice[name] = scoring.score(fixed_labels, carried)["mean_dice"]
        click.echo(f"{dice[name]:.4f}  {name}")
    return dice


@click.command(context_settings={"show_default": True})
@click.option(
    "--data",
    required=True,
    multiple=True,
    help="NAME=FOLDER or NAME=FOLDER:SUBSET, as for peers.py.",
)
@click.option("--out", type=Path, required=True, help="JSON file to write.")
@click.option(
    "--pairs", "count", default=1, help="How many pairs of every data set, from the first."
)
@click.option("--threads", default=1, help="CPU threads.")
def main(data: tuple[str, ...], out: Path, count: int, threads: int) -> None:
    found: dict[str, dict[str, float]] = {}
    for spec in data:
        chosen = data_sets.read(spec, count, two_modalities=False)
        for fixed, moving in chosen.pairs:
            key = f"{chosen.name}: {fixed} <- {moving}"
            click.echo(key)
            images = (
                sitk.ReadImage(str(chosen.image(name)), sitk.sitkFloat32)
                for name in (fixed, moving)
            )
            found[key] = run(*images, chosen.labels(fixed), chosen.labels(moving), threads=threads)
            eight = [found[key][name] for name in VARIANTS]
            click.echo(f"spread of the eight {100 * (max(eight) - min(eight)):.2f} points of Dice")
    click.echo(
        f"all {len(found)} pairs: mean difference to the pair as it is, its root mean square, the"
        " greatest loss, points of Dice"
    )
    for name in list(VARIANTS | UNBLURRED)[1:]:
        change = 100 * np.array([dice[name] - dice["as it is"] for dice in found.values()])
        click.echo(
            f"{change.mean():+.2f} {np.sqrt(np.mean(change**2)):.2f} {change.min():+.2f}  {name}"
        )
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
