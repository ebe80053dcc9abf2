"""Scoring one registration by label maps."""

from __future__ import annotations

import dataclasses
import functools
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine import bindings
from .._grid import Grid
from .._json import Plain
from .._percentiles import distinct
from ..transforms import Transform
from ..transforms.files import read_transform_file
from ..transforms.labels import carry_labels
from ..transforms.resample import resample_identity


@dataclasses.dataclass(frozen=True)
class LabelScore(Plain):
    """Agreement of one label between the fixed map and the moving map, before and after the
    registration.

    "Before" is the identity in physical space. Distances are in mm, None where one map has lost the
    label.

    The error of volume is by how many percent the transform mistakes the label's volume in the
    moving image: its Jacobian determinant, summed over the fixed label, against the volume of the
    moving label. It means something where both images hold the structure whole: not where
    ``is_cut``, for then the label reaches the border of an image.

    Examples
    --------
    >>> scoring.LabelScore(1, 0.6, 0.9, 5.0, 1.0, -2.0).dice_after
    0.9
    """

    label: int
    dice_before: float
    dice_after: float
    hd95_before: float | None
    hd95_after: float | None
    volume_error_percent: float
    is_cut: bool = False


def score_labels(
    transform: Any,
    fixed_labels: images.ImageLike,
    moving_labels: images.ImageLike,
    *,
    warped_labels: images.ImageLike | None = None,
) -> list[LabelScore]:
    """Score a transform by the labels that both images have, as Learn2Reg does.

    Parameters
    ----------
    transform : Registration or transform
        Whatever :meth:`morphseek.Transform.of` takes.
    fixed_labels, moving_labels : ImageLike
        Label maps; 0 is background. The fixed one lies on the fixed image's grid. Numpy arrays lie
        on their image's grid.
    warped_labels : ImageLike, optional
        What ``result.apply(moving_labels, interpolation="nearest")`` gave, where that is at hand:
        it saves a resampling.

    Returns
    -------
    list of LabelScore
        Empty where the two maps share no label.

    Raises
    ------
    GridMismatchError
        The fixed map is not on the fixed image's grid, or an array has not the shape of its image.
    InvalidArgumentError
        A value is no whole number.

    Examples
    --------
    >>> scores = scoring.score_labels(result, pair.fixed_labels, pair.moving_labels)
    >>> [score.label for score in scores]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    transform = Transform.of(transform)
    fixed, moving, labels = _shared(*_maps(transform, fixed_labels, moving_labels))
    here, there = (image.array.astype(np.int32) for image in (fixed, moving))
    carried = None
    if warped_labels is not None:
        warped = on_fixed_grid(warped_labels, fixed.grid, "warped labels")
        check_labels(warped)
        carried = numbered(warped.array, labels).astype(np.int32)
    lies = None if transform.grid is not None else fixed
    field, volumes = transform.displacement(lies), transform.jacobian(lies)
    scores = bindings.score_labels(field, fixed.grid, volumes, here, there, moving.grid, carried)
    cut = _at_border(here) | _at_border(there)
    for score in scores:
        score["is_cut"] = score["label"] in cut
        score["label"] = labels[score["label"] - 1]
    return [LabelScore(**score) for score in scores]


def _at_border(labels: bindings.Labels) -> set[int]:
    """Return the labels that reach the border of a map; slices have none along their normal."""
    faces: list[np.ndarray] = [
        labels.take([0, size - 1], axis) for axis, size in enumerate(labels.shape) if size > 1
    ]
    return {int(value) for face in faces for value in distinct(face)}


def _maps(
    transform: Transform, fixed_labels: images.ImageLike, moving_labels: images.ImageLike
) -> tuple[images.Image, images.Image]:
    """Return the two label maps, arrays among them on the grids that the transform has."""
    maps = [
        images.read(labels, name) if grid is None else images.read_on(labels, grid, name)
        for labels, grid, name in (
            (fixed_labels, transform.grid, "fixed labels"),
            (moving_labels, transform.moving_grid, "moving labels"),
        )
    ]
    if transform.grid is not None:
        on_fixed_grid(maps[0], transform.grid)
    return maps[0], maps[1]


def _shared(
    fixed: images.Image, moving: images.Image
) -> tuple[images.Image, images.Image, list[int]]:
    """Return two label maps that hold the numbers, from 1, of the labels that both have, and these:
    the engine's voxels are float32, which does not hold every label.
    """
    shared = sorted(_values(fixed) & _values(moving))
    one, other = (image.like(numbered(image.array, shared)) for image in (fixed, moving))
    return one, other, shared


def on_fixed_grid(labels: images.ImageLike, grid: Grid, name: str = "fixed labels") -> images.Image:
    """Return labels that lie on the fixed image's grid; refuse others."""
    labels = images.read_on(labels, grid, name)
    if not bindings.same_grid(grid, labels.grid):
        raise errors.GridMismatchError(
            f"the {name} ({labels!r}) are not on the fixed image's grid; resample them onto it,"
            " with nearest neighbours"
        )
    return labels


def _values(labels: images.Image) -> set[int]:
    values = distinct(labels.array)
    images.arrays.check_labels(values, labels.name)
    return {int(value) for value in values} - {0}


def check_labels(labels: images.Image) -> None:
    """Refuse a map with a value that is no label, before the work instead of after it."""
    # every value of the others is one
    if labels.array.dtype.kind == "f" or labels.array.dtype.itemsize > 4:
        _values(labels)


def nothing_carried(labels: np.ndarray, carried: np.ndarray, name: str) -> str:
    """Return a warning where a map has labels and nothing of it came to the other image; or ""."""
    if carried.any() or not labels.any():
        return ""
    return (
        f"{name}: none of its labels lies in the other image, so what was carried over is empty;"
        " check that it belongs to its image"
    )


def numbered(array: np.ndarray, labels: list[int]) -> np.ndarray:
    """Return the position in ascending labels, from 1, of every voxel's; 0 for others. float32."""
    if not labels or not array.size:
        return np.zeros(array.shape, np.float32)
    ends = [*labels[:: max(1, len(labels) - 1)], array.min(), array.max()]
    if array.dtype.kind in "iu" and 0 <= min(ends) and max(ends) < 1 << 16:  # as most maps
        places = np.zeros(1 << 16, np.float32)
        places[labels] = np.arange(1, len(labels) + 1)
        return places[array]
    known = np.array(labels, dtype=np.float64)
    place = np.minimum(np.searchsorted(known, array), len(labels) - 1)
    return np.where(known[place] == array, place + 1, 0).astype(np.float32)


def mean_dice(scores: Iterable[LabelScore], when: str = "after") -> float:
    """Return the mean Dice over labels, "before" or "after"; NaN without labels.

    >>> mean_dice([LabelScore(1, 0.2, 0.8, 5.0, 1.0, 3.0), LabelScore(2, 0.4, 0.6, 5.0, 1.0, -2.0)])
    0.7
    """
    values = [getattr(s, f"dice_{when}") for s in scores]
    return float(np.mean(values)) if values else math.nan


def dice_by_label(
    one: np.ndarray, other: np.ndarray, of: Literal["both", "one", "either"] = "both"
) -> dict[int, float]:
    """Return the Dice of two maps for every label but 0 that both have, that the first has, or that
    either has.

    >>> maps = np.array([1, 1, 2, 0]), np.array([1, 0, 0, 3])
    >>> dice_by_label(*maps)
    {1: 0.6666666666666666}
    >>> dice_by_label(*maps, of="either")
    {1: 0.6666666666666666, 2: 0.0, 3: 0.0}
    """
    sizes, others, common = (
        dict(zip(*(part.tolist() for part in np.unique(labels, return_counts=True))))
        for labels in (one, other, one[one == other])
    )
    chosen = {
        "both": sizes.keys() & others.keys(), "one": sizes.keys(),
        "either": sizes.keys() | others.keys(),
    }[of]  # fmt: skip
    return {
        int(v): 2 * common.get(v, 0) / (sizes.get(v, 0) + others.get(v, 0))
        for v in sorted(chosen - {0})
    }


def inverse_dice(
    transform: Any, fixed_labels: images.ImageLike, moving_labels: images.ImageLike
) -> float:
    """Return the mean Dice, over the labels that both images have, in the moving image's space.

    The fixed labels, carried over by the inverse transform with nearest neighbours, are compared
    with the moving ones on the moving image's grid, wherever the fixed image reaches. NaN without a
    common label.

    Raises
    ------
    GridMismatchError, InvalidArgumentError
        As :func:`score_labels`.

    Examples
    --------
    >>> 0 < scoring.inverse_dice(result, pair.fixed_labels, pair.moving_labels) <= 1
    True
    """
    transform = Transform.of(transform)
    fixed, moving, _ = _shared(*_maps(transform, fixed_labels, moving_labels))
    lies = None if transform.moving_grid is not None else moving
    carry = functools.partial(transform.inverse().apply, reference=lies)
    carried, known = carry_labels(fixed, carry)
    there = resample_identity(moving, transform.moving_grid or moving.grid, "nearest", 0.0)
    dice = dice_by_label(carried, np.where(known, there, 0), of="either")
    return float(np.mean([*dice.values()])) if dice else math.nan


def independent_dice(transform: Transform, fixed: images.Image, moving: images.Image) -> float:
    """Return the mean Dice by SimpleITK alone, from transform.h5."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transform.h5"
        transform.save(path)
        by_itk = read_transform_file(path)
    *maps, shared = _shared(*_maps(transform, fixed, moving))
    a, b = (sitk.Cast(image.to_sitk(), sitk.sitkUInt32) for image in maps)
    warped = sitk.Resample(b, a, by_itk, sitk.sitkNearestNeighbor, 0)
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(a, warped)
    dice = [overlap.GetDiceCoefficient(i) for i, _ in enumerate(shared, 1)]
    return float(np.mean(dice)) if dice else math.nan


def merge_labels(labels: images.Image, merge: dict[int, int] | None) -> images.Image:
    """Return the label map with every label renamed, and without those that are not named."""
    if merge is None:
        return labels
    values, inverse = np.unique(labels.array, return_inverse=True)
    images.arrays.check_labels(values, labels.name)
    merged = np.array([merge.get(int(v), 0) for v in values], dtype=np.int32)
    return labels.like(merged[inverse].reshape(labels.array.shape))
