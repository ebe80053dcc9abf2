"""Compares MorphSeek with greedy in two dimensions and SimpleITK's demons, on slices of two people
and on slices with a known motion: everything.py --part slices.

The moving volume of every test pair is brought onto the fixed one by an affine alignment, and three
slices of both are taken. greedy (pip install picsl-greedy) and the demons get these slices;
MorphSeek aligns them again. Each has one thread; the CPU time is that of the call only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from scipy.ndimage import gaussian_filter, map_coordinates

import morphseek

Array = np.ndarray
_LEAST = 20  # pixels that a label must have to count


class Case(NamedTuple):
    """Two slices (y, x), their labels, the pixel size (y, x) in mm, and the motion if known."""

    fixed: Array
    moving: Array
    fixed_labels: Array
    moving_labels: Array
    pixel: tuple[float, float]
    truth: Array | None = None


def measure(folder: Path, pairs: int) -> list[dict[str, Any]]:
    """Return a row for each kind of slices and method: means over the slices. `folder` has images/,
    labels/ and split.json; `pairs` of its test pairs count, at most.
    """
    cases = list(slices(folder, pairs))
    kinds = {
        "two people": cases,
        "known motion": [moved(c, k) for k, c in enumerate(cases[::3])],
        "known motion, two contrasts": [moved(c, k, True) for k, c in enumerate(cases[::3])],
    }
    rows = []
    for kind, chosen in kinds.items():
        for name, method in METHODS.items():
            dice, error, folding, _, cpu = np.mean([scored(c, method) for c in chosen], axis=0)
            rows.append(
                {
                    "kind": kind,
                    "pairs": len(chosen),
                    "method": name,
                    "dice": float(dice),
                    "error": None if np.isnan(error) else float(error),
                    "folding": float(folding),
                    "cpu": float(cpu),
                }  # fmt: skip
            )
    return rows


def slices(folder: Path, pairs: int) -> Iterator[Case]:
    """Yield two axial slices and a coronal one of each test pair, affinely aligned."""

    def load(kind: str, name: str) -> sitk.Image:
        (path,) = (folder / kind).glob(f"{name}*")
        return sitk.DICOMOrient(sitk.ReadImage(str(path)), "LPS")

    listed = json.loads((folder / "split.json").read_text())["pairs"]
    for fixed_name, moving_name in listed["test"][:pairs]:
        fixed, moving = load("images", fixed_name), load("images", moving_name)
        aligned = morphseek.register(fixed, moving, search=False, refine=0)
        stacks = [
            sitk.GetArrayFromImage(image)
            for image in (
                fixed,
                aligned.apply(moving),
                load("labels", fixed_name),
                aligned.apply(load("labels", moving_name), interpolation="nearest"),
            )
        ]
        spacing = fixed.GetSpacing()[::-1]
        for axis, share in ((0, 0.45), (0, 0.58), (1, 0.5)):
            rest = tuple(k for k in range(3) if k != axis)
            body = np.flatnonzero(stacks[0].sum(axis=rest))
            at = int(body[0] + share * (body[-1] - body[0]))
            cut = [np.take(stack, at, axis=axis) for stack in stacks]
            pixel = (spacing[rest[0]], spacing[rest[1]])
            yield Case(cut[0].astype(np.float32), cut[1].astype(np.float32), *cut[2:], pixel)


def moved(case: Case, seed: int, other: bool = False) -> Case:
    """Return a slice and the same slice after a motion of two scales, with noise in both; with
    `other`, in another contrast.
    """
    rng, image = np.random.default_rng(seed), case.moving
    truth = np.zeros((2, *image.shape))
    for mm, width in ((4, 25), (1.5, 10)):
        u = np.stack([gaussian_filter(rng.normal(size=image.shape), width) for _ in range(2)])
        truth += mm / np.mean(case.pixel) * u / np.linalg.norm(u, axis=0).max()
    at = np.mgrid[: image.shape[0], : image.shape[1]] + truth
    bright = np.percentile(image, 99.5)
    fixed = map_coordinates(image, at, order=3, mode="nearest")
    if other:
        turned = bright * (1 - np.clip(fixed / bright, 0, 1)) ** 1.5 + 0.1 * bright
        fixed = np.where(fixed > 0.05 * bright, turned, fixed)
    noise = rng.normal(size=(2, *image.shape)) * 0.03 * bright
    labels = map_coordinates(case.moving_labels, at, order=0)
    return Case(
        (fixed + noise[0]).astype(np.float32),
        (image + noise[1]).astype(np.float32),
        labels,
        case.moving_labels,
        case.pixel,
        truth,
    )


def scored(case: Case, method: Callable[[Case], Array]) -> tuple[float, ...]:
    """Return Dice, the error in pixels (NaN unless known), folding, SDlogJ and CPU seconds."""
    began = time.process_time()
    u = method(case)
    cpu = time.process_time() - began
    at = np.mgrid[: case.fixed.shape[0], : case.fixed.shape[1]] + u
    carried = map_coordinates(case.moving_labels, at, order=0)
    body = case.fixed_labels > 0
    overlaps = []
    for label in np.unique(case.fixed_labels[body]):
        a, b = case.fixed_labels == label, carried == label
        if a.sum() >= _LEAST:
            overlaps.append(2 * (a & b).sum() / (a.sum() + b.sum()))
    (yy, yx), (xy, xx) = (np.gradient(at[k]) for k in range(2))
    det = (yy * xx - yx * xy)[body]
    error = np.nan
    if case.truth is not None:
        error = np.linalg.norm(u - case.truth, axis=0)[body].mean()
    spread = float(np.log(np.clip(det, 1e-3, None)).std())
    return float(np.mean(overlaps)), error, 100 * float((det <= 0).mean()), spread, cpu


def _still(case: Case) -> Array:
    return np.zeros((2, *case.fixed.shape))


def _ours(case: Case) -> Array:
    spacing = case.pixel[::-1]
    result = morphseek.register(
        morphseek.Image(case.fixed, spacing), morphseek.Image(case.moving, spacing), threads=1
    )
    return result.displacement()[1:, 0]


def _images(case: Case) -> list[sitk.Image]:
    images = [sitk.GetImageFromArray(a) for a in (case.fixed, case.moving)]
    for image in images:
        image.SetSpacing(case.pixel[::-1])
    return images


def _in_pixels(field: sitk.Image, pixel: tuple[float, float]) -> Array:
    mm = sitk.GetArrayFromImage(field)
    return np.stack([mm[..., 1] / pixel[0], mm[..., 0] / pixel[1]])


def _greedy(case: Case) -> Array:
    from picsl_greedy import Greedy2D

    fixed, moving = _images(case)
    greedy = Greedy2D()
    greedy.execute(
        "-d 2 -i f m -m NCC 2x2 -n 100x50x30 -s 1.732vox 0.707vox -o warp -threads 1",
        f=fixed,
        m=moving,
        warp=None,
    )
    return _in_pixels(greedy["warp"], case.pixel)


def _demons(case: Case) -> Array:
    fixed, moving = _images(case)
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    moving, field = sitk.HistogramMatching(moving, fixed, 128, 10, True), None
    for by in (4, 2, 1):
        coarse = []
        for image in (fixed, moving):
            if by > 1:
                blur = [by * s / 2 for s in image.GetSpacing()]
                image = sitk.Shrink(sitk.SmoothingRecursiveGaussian(image, blur), [by] * 2)
            coarse.append(image)
        demons = sitk.FastSymmetricForcesDemonsRegistrationFilter()
        demons.SetNumberOfIterations(100)
        demons.SetStandardDeviations(1.5)
        start = [] if field is None else [sitk.Resample(field, coarse[0])]
        field = demons.Execute(*coarse, *start)
    return _in_pixels(sitk.Resample(field, fixed), case.pixel)


METHODS = {"none": _still, "ours": _ours, "greedy": _greedy, "demons": _demons}
