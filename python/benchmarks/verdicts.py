"""Makes pairs that do not belong together, and registers them: everything.py --part strangers.

Their moving image is noise, smooth noise, an image of another data set, or their own image with one
axis reversed but the same header.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pairs
import SimpleITK as sitk

import morphseek

Row = dict[str, Any]
Change = Callable[[sitk.Image, np.random.Generator], sitk.Image]

GRADES = ("good", "check", "failed")
SMOOTH = 3.0
"""Voxels, standard deviation: smooth noise."""


def noise(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    """Return white noise on the grid of an image."""
    values = rng.normal(100, 20, image.GetSize()[::-1]).astype(np.float32)
    made = sitk.GetImageFromArray(values)
    made.CopyInformation(image)
    return made


def smooth_noise(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    """Return noise as smooth as tissue on the grid of an image."""
    made = noise(image, rng)
    sigma = [SMOOTH * s for s in image.GetSpacing()]
    return sitk.SmoothingRecursiveGaussian(made, sigma)


def reversed_along(axis: int) -> Change:
    """Return a function that reverses the voxels along an axis and keeps the header."""

    def change(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
        values = np.flip(sitk.GetArrayFromImage(image), 2 - axis)
        made = sitk.GetImageFromArray(np.ascontiguousarray(values))
        made.CopyInformation(image)
        return made

    return change


CHANGES: dict[str, tuple[Change | None, Change]] = {  # of the fixed image, of the moving one
    "noise": (noise, noise),
    "smooth noise": (smooth_noise, smooth_noise),
    "first axis reversed": (None, reversed_along(0)),
    "second axis reversed": (None, reversed_along(1)),
    "third axis reversed": (None, reversed_along(2)),
}


def image(data: pairs.DataSet, name: str) -> sitk.Image:
    return sitk.ReadImage(str(data.image(name)), sitk.sitkFloat32)


def jobs(
    sets: list[pairs.DataSet],
) -> Iterator[tuple[str, str, str, Callable[[], tuple[sitk.Image, sitk.Image]]]]:
    """Yield kind, data set, name and a function that reads the images: each set's pairs changed
    into each kind that does not belong together.
    """
    for number, data in enumerate(sets):
        for index, (fixed, moving) in enumerate(data.pairs):
            for kind, (of_fixed, of_moving) in CHANGES.items():

                def make(
                    d: pairs.DataSet = data,
                    f: str = fixed,
                    m: str = moving,
                    of_fixed: Change | None = of_fixed,
                    of_moving: Change = of_moving,
                    seed: int = 1000 * number + index,
                ) -> tuple[sitk.Image, sitk.Image]:
                    rng = np.random.default_rng(seed)
                    a, b = image(d, f), image(d, m)
                    return (a if of_fixed is None else of_fixed(a, rng)), of_moving(b, rng)

                yield kind, data.name, f"{fixed} <- {moving}", make
            other = sets[(number + len(sets) // 2) % len(sets)]
            if other is not data:
                stranger = other.pairs[index % len(other.pairs)][1]
                yield (
                    "another organ",
                    data.name,
                    f"{fixed} <- {stranger}",
                    lambda d=data, o=other, f=fixed, s=stranger: (image(d, f), image(o, s)),
                )


def register(fixed: sitk.Image, moving: sitk.Image) -> Row:
    """Register a pair with the default options; return its verdict."""
    began = time.process_time()
    result = morphseek.register(fixed, moving, threads=1)
    verdict = result.verdict
    assert verdict is not None
    return {
        "grade": verdict.grade,
        "reasons": list(verdict.reasons),
        "error_mm": verdict.error_mm,
        "cpu_seconds": time.process_time() - began,
    }
