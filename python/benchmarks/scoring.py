"""Scores a displacement field only by SimpleITK, numpy and scipy: equally for all methods and
without code of ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import SimpleITK as sitk
from scipy.ndimage import binary_erosion
from scipy.spatial import cKDTree


def score(fixed: sitk.Image, moving: sitk.Image, field: sitk.Image | None = None) -> dict[str, Any]:
    """Score one pair.

    Parameters
    ----------
    fixed, moving : SimpleITK.Image
        Label maps, 0 background. The labels that both have count.
    field : SimpleITK.Image, optional
        Displacement in mm, LPS, on the fixed grid; None scores the unregistered pair.

    Returns
    -------
    dict
        ``dice`` and ``hd95`` (mm) by label, their means ``mean_dice`` and ``mean_hd95`` (over the
        labels that are left after warping).

    Raises
    ------
    ValueError
        The two maps share no label.
    """
    transform = sitk.Transform() if field is None else carrier(field)
    a = sitk.GetArrayFromImage(fixed)
    b = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, transform, sitk.sitkNearestNeighbor, 0))
    shared = np.intersect1d(a, sitk.GetArrayViewFromImage(moving))
    labels = [int(label) for label in shared if label != 0]
    if not labels:
        raise ValueError("the two label maps share no label; check the data set and its labels.csv")
    spacing = np.array(fixed.GetSpacing())[::-1]
    dice, distances = {}, {}
    for label in labels:
        one, other = a == label, b == label
        dice[label] = (
            2.0 * np.count_nonzero(one & other) / (np.count_nonzero(one) + np.count_nonzero(other))
        )
        distances[label] = hausdorff95(one, other, spacing)
    kept = [d for d in distances.values() if d is not None]
    return {
        "dice": dice,
        "hd95": distances,
        "mean_dice": float(np.mean(list(dice.values()))),
        "mean_hd95": float(np.mean(kept)) if kept else None,
    }


def carrier(field: sitk.Image) -> sitk.Transform:
    """Return the transform of a displacement in mm, LPS."""
    return sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64))


def point_errors(
    transform: sitk.Transform, fixed_points: np.ndarray, moving_points: np.ndarray
) -> dict[str, float]:
    """Score a transform by points with known places.

    Parameters
    ----------
    transform : SimpleITK.Transform
        From fixed to moving space.
    fixed_points, moving_points : numpy.ndarray
        (n, 3) LPS mm, n at least 1: points of the fixed image, and where they lie in the moving
        one.

    Returns
    -------
    dict
        ``mean``, ``median``, ``p95`` (95th percentile) and ``worst`` of the distances, mm, and
        ``nearer``, the share of the points that lie nearer than by the headers.
    """
    found = np.array(
        [
            transform.TransformPoint(point)
            for point in np.asarray(fixed_points, dtype=float).tolist()
        ]
    )
    errors = np.linalg.norm(found - moving_points, axis=1)
    before = np.linalg.norm(np.asarray(fixed_points) - moving_points, axis=1)
    return spread(errors) | {"nearer": float(np.mean(errors < before))}


def spread(errors: np.ndarray) -> dict[str, float]:
    """Return mean, median, 95th percentile and maximum."""
    return {
        "mean": float(np.mean(errors)),
        "median": float(np.median(errors)),
        "p95": float(np.percentile(errors, 95)),
        "worst": float(np.max(errors)),
    }


def regularity(field: sitk.Image) -> dict[str, float]:
    """Measure how regular a displacement field in mm, LPS, is on its grid.

    Returns
    -------
    dict
        ``njd_percent``; ``sdlogj``, and ``logj_min`` and ``logj_max``, of the total map, where a
        fold counts as log 1e-9; ``bending``, the mean over the voxels of the sum of the squared
        second derivatives, 1/mm^2, 0 for an affine map.
    """
    determinant = jacobian(field)
    logarithm = np.log(np.maximum(determinant, 1e-9))
    spacing = field.GetSpacing()[::-1]
    u = _displacement(field)
    bending = np.zeros(u.shape[:3])
    for component in range(3):
        first = np.gradient(u[..., component], *spacing)
        for of_first in first:
            bending += sum(second**2 for second in np.gradient(of_first, *spacing))
    # without the border, where one-sided differences are of lower order
    inner = bending[tuple(slice(2, -2) if n > 8 else slice(None) for n in bending.shape)]
    return {
        "njd_percent": 100.0 * float(np.mean(determinant < 0)),
        "sdlogj": float(logarithm.std()),
        "logj_min": float(logarithm.min()),
        "logj_max": float(logarithm.max()),
        "bending": float(inner.mean()),
    }


def hausdorff95(a: np.ndarray, b: np.ndarray, spacing: np.ndarray) -> float | None:
    """Return the larger of the two directed 95th percentiles of the distances between surface
    voxels; None if one is empty.
    """
    if not a.any() or not b.any():
        return None
    box = tuple(slice(max(i.min() - 1, 0), i.max() + 2) for i in np.nonzero(a | b))
    points = [np.argwhere(mask & ~binary_erosion(mask)) * spacing for mask in (a[box], b[box])]
    directed = (np.percentile(cKDTree(to).query(of)[0], 95) for of, to in (points, points[::-1]))
    return float(max(directed))


def _displacement(field: sitk.Image) -> np.ndarray:
    """Return a field (z, y, x, 3); a slice twice, for it does not change along its normal."""
    u = sitk.GetArrayFromImage(field).astype(np.float64)
    return np.repeat(u, 2, 0) if len(u) == 1 else u


def jacobian(field: sitk.Image) -> np.ndarray:
    """Return det(I + grad u), u in voxels of the field's own grid: central differences, one-sided
    at the border.
    """
    matrix = np.array(field.GetDirection()).reshape(3, 3) * field.GetSpacing()
    # (z, y, x, 3), components x, y, z
    u = _displacement(field) @ np.linalg.inv(matrix).T
    gradient = np.stack(
        [np.stack(np.gradient(u[..., i], axis=(2, 1, 0)), axis=-1) for i in range(3)], axis=-2
    )
    return np.linalg.det(np.eye(3) + gradient)
