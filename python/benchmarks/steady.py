"""Measures how far results move when what they depend on has not changed: everything.py --part
steady.

A perturbation changes a pair in what must not matter: noise, one voxel, the unit of the intensities
or of the lengths, the order of the axes, the border, the grid.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peers as peer_runs
import scoring
import SimpleITK as sitk
import truth
from methods import Job, Method

import morphseek

POINTS = 5000  # of a pair, at most
TIMEOUT = 3600.0  # s


def range_of(image: sitk.Image) -> float:
    """Return the difference of the 99th and the first percentile."""
    low, high = np.percentile(sitk.GetArrayViewFromImage(image), (1, 99))
    return float(high - low)


@dataclasses.dataclass(frozen=True)
class Perturbation:
    """A change of both images. A point p, LPS mm, lies at `scale` p + `shift` afterwards."""

    change: Callable[[sitk.Image, np.random.Generator], sitk.Image]
    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
        out = sitk.Cast(self.change(image, rng), sitk.sitkFloat32)
        out.SetSpacing([self.scale * s for s in out.GetSpacing()])
        out.SetOrigin([self.scale * o + self.shift for o in out.GetOrigin()])
        return out

    def there(self, points: np.ndarray) -> np.ndarray:
        return self.scale * points + self.shift

    def back(self, points: np.ndarray) -> np.ndarray:
        return (points - self.shift) / self.scale


def noise(share: float) -> Perturbation:
    def change(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
        array = sitk.GetArrayFromImage(image)
        array = array + share * range_of(image) * rng.standard_normal(array.shape)
        return truth.image_of(array, image)

    return Perturbation(change)


def _one_voxel(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    array = sitk.GetArrayFromImage(image)
    array[tuple(rng.integers(0, array.shape))] += range_of(image)
    return truth.image_of(array, image)


def _other_axes(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    return sitk.Flip(sitk.PermuteAxes(image, (2, 0, 1)), (True, False, False))


def _bordered(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    return sitk.ZeroFluxNeumannPad(image, (1, 1, 1), (1, 1, 1))


def _whole_numbers(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    return sitk.Round(image * (4000 / range_of(image)))


def _half_a_voxel(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    origin = image.TransformContinuousIndexToPhysicalPoint((0.5, 0.5, 0.5))
    size = [n - 1 for n in image.GetSize()]
    return sitk.Resample(
        image, size, sitk.Transform(), sitk.sitkBSpline,
        origin, image.GetSpacing(), image.GetDirection(),
    )  # fmt: skip


def _as_it_is(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    return image


PERTURBATIONS = {
    "noise 1e-6": noise(1e-6),
    "noise 1e-3": noise(1e-3),
    "noise 1e-2": noise(1e-2),
    "one voxel": Perturbation(_one_voxel),
    "intensities x 4": Perturbation(lambda image, _: image * 4),
    "intensities + range": Perturbation(lambda image, _: image + range_of(image)),
    "whole numbers": Perturbation(_whole_numbers),
    "lengths / 1024": Perturbation(_as_it_is, scale=1 / 1024),
    "another origin": Perturbation(_as_it_is, shift=64.0),
    "axes in another order": Perturbation(_other_axes),
    "a voxel of border": Perturbation(_bordered),
    "half a voxel": Perturbation(_half_a_voxel),
}


@dataclasses.dataclass(frozen=True)
class Registration:
    """What a method made of a pair: where points go, and what it chose; peers tell nothing."""

    points: Callable[[np.ndarray], np.ndarray]
    choices: list[Any] = dataclasses.field(default_factory=list)


def ours(pair: truth.Pair) -> Registration:
    result = morphseek.register(pair.fixed, pair.moving, threads=1)
    plan = result.metrics["plan"]
    return Registration(
        result.transform_points,
        [plan[key] for key in ("start", "similarity", "regime")] + [plan["search"] > 0],
    )


def by_peer(method: Method) -> Callable[[truth.Pair], Registration]:
    def register(pair: truth.Pair) -> Registration:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files = [folder / "fixed.nii.gz", folder / "moving.nii.gz"]
            for image, path in zip((pair.fixed, pair.moving), files, strict=True):
                sitk.WriteImage(image, str(path))
            job = Job(*files, folder, 1, pair.two_modalities)
            row, field = peer_runs.carry_out(method, job, TIMEOUT)
        if field is None:
            raise RuntimeError(f"{method.name} failed: {row['reason']}")
        transform = scoring.carrier(field)
        return Registration(
            lambda points: np.array([transform.TransformPoint(p) for p in points.tolist()])
        )

    return register


def points_of(image: sitk.Image) -> np.ndarray:
    """Return points of the brighter half, LPS mm, none at the border."""
    array = sitk.GetArrayViewFromImage(image)
    inner = np.zeros(array.shape, bool)
    inner[tuple(slice(1, -1) if n > 4 else slice(None) for n in array.shape)] = True
    where = np.argwhere(inner & (array > np.median(array)))
    chosen = np.random.default_rng(0).permutation(len(where))[:POINTS]
    return np.array(
        [image.TransformIndexToPhysicalPoint(i) for i in where[np.sort(chosen)][:, ::-1].tolist()]
    )


def measure(
    pair: truth.Pair, names: list[str], register: Callable[[truth.Pair], Registration] = ours
) -> Iterator[dict[str, Any]]:
    """Yield a row for each perturbation: mean, 95th percentile and maximum of how far it moves the
    points of the brighter half of the fixed image, mm; `changed` says whether a choice of the
    library fell otherwise.
    """
    points = points_of(pair.fixed)
    base = register(pair)
    at = base.points(points)
    for name in names:
        perturbation = PERTURBATIONS[name]
        fixed, moving = (
            perturbation(image, np.random.default_rng([1, k]))
            for k, image in enumerate((pair.fixed, pair.moving))
        )
        other = register(dataclasses.replace(pair, fixed=fixed, moving=moving))
        moved = perturbation.back(other.points(perturbation.there(points)))
        change = np.linalg.norm(moved - at, axis=1)
        yield {
            "perturbation": name, "mean": float(change.mean()),
            "p95": float(np.percentile(change, 95)), "max": float(change.max()),
            "changed": other.choices != base.choices,
        }  # fmt: skip
