"""Scores a displacement field by SimpleITK, numpy and scipy alone: the same for everybody, and nothing of ours."""

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
        Displacement in mm, LPS, on the fixed grid; None scores the pair as it lies in space.

    Returns
    -------
    dict
        ``dice`` and ``hd95`` (mm) by label, their means ``mean_dice`` and ``mean_hd95`` (over the labels that are left after
        warping), and with a field ``njd_percent`` and ``sdlogj``.

    Raises
    ------
    ValueError
        The two maps share no label.
    """
    transform = sitk.Transform() if field is None else sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64))
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
        dice[label] = 2.0 * np.count_nonzero(one & other) / (np.count_nonzero(one) + np.count_nonzero(other))
        distances[label] = hausdorff95(one, other, spacing)
    kept = [d for d in distances.values() if d is not None]
    result = {
        "dice": dice,
        "hd95": distances,
        "mean_dice": float(np.mean(list(dice.values()))),
        "mean_hd95": float(np.mean(kept)) if kept else None,
    }
    if field is not None:
        determinant = jacobian(field)
        result["njd_percent"] = 100.0 * float(np.mean(determinant < 0))
        result["sdlogj"] = float(np.std(np.log(np.maximum(determinant, 1e-9))))
    return result


def hausdorff95(a: np.ndarray, b: np.ndarray, spacing: np.ndarray) -> float | None:
    """Return the greater of the two directed 95th percentiles of the distances between surface voxels; None where one is empty."""
    if not a.any() or not b.any():
        return None
    box = tuple(slice(max(i.min() - 1, 0), i.max() + 2) for i in np.nonzero(a | b))
    points = [np.argwhere(mask & ~binary_erosion(mask)) * spacing for mask in (a[box], b[box])]
    directed = (np.percentile(cKDTree(to).query(of)[0], 95) for of, to in (points, points[::-1]))
    return float(max(directed))


def jacobian(field: sitk.Image) -> np.ndarray:
    """Return det(I + grad u), u in voxels of the field's own grid: central differences, one-sided at the border."""
    matrix = np.array(field.GetDirection()).reshape(3, 3) * field.GetSpacing()
    u = sitk.GetArrayFromImage(field).astype(np.float64) @ np.linalg.inv(matrix).T  # (z, y, x, 3), components x, y, z
    gradient = np.stack([np.stack(np.gradient(u[..., i], axis=(2, 1, 0)), axis=-1) for i in range(3)], axis=-2)
    return np.linalg.det(np.eye(3) + gradient)
