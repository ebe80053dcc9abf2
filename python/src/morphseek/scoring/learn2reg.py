"""Learn2Reg's own measures, which differ from the engine's of the same names."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import SimpleITK as sitk

from ..transforms import Transform


def learn2reg_sdlogj(transform: Any) -> float:
    """Return the standard deviation of log(det J + 3), two voxels from the border: what Learn2Reg
    calls SDlogJ. The metric ``sdlogj`` is that of log(det J) everywhere.

    Examples
    --------
    >>> scoring.learn2reg_sdlogj(result) > 0
    True
    """
    inside = np.asarray(Transform.of(transform).jacobian(), np.float64)[2:-2, 2:-2, 2:-2]
    return float(np.log(np.clip(inside + 3, 1e-9, 1e9)).std()) if inside.size else math.nan


_CORNER, _EDGE = 3**0.5 / 8, 2**0.5 / 2
#: Area of the surface that marching cubes put between eight voxels, by what tells the cases apart:
#: how many are inside (of the fewer), the sum of squared differences of opposite faces, and how
#: many neighbours are both inside.
_AREAS = {
    (1, 3, 0): _CORNER,
    (2, 0, 0): 2 * _CORNER,
    (2, 4, 0): 2 * _CORNER,
    (2, 8, 1): _EDGE,
    (3, 3, 0): 3 * _CORNER,
    (3, 3, 1): _EDGE + _CORNER,
    (3, 11, 2): 0.5 + 3 * _CORNER,
    (4, 0, 0): 4 * _CORNER,
    (4, 0, 2): 2 * _EDGE,
    (4, 4, 2): 0.5 + 4 * _CORNER,
    (4, 8, 3): _EDGE + 4 * _CORNER,
    (4, 12, 3): 6 * _CORNER,
    (4, 16, 4): 1.0,
}


@functools.cache
def _area_by_code() -> np.ndarray:
    """Return the area for each of the 256 ways in which eight voxels are inside or outside."""
    areas = np.zeros(256)
    for code in range(1, 255):
        inside = np.array([code >> bit & 1 for bit in range(8)]).reshape(2, 2, 2)
        if inside.sum() > 4:
            inside = 1 - inside
        sides = [(inside.take(0, axis), inside.take(1, axis)) for axis in range(3)]
        slope = sum(int(one.sum() - other.sum()) ** 2 for one, other in sides)
        pairs = sum(int((one & other).sum()) for one, other in sides)
        areas[code] = _AREAS[int(inside.sum()), slope, pairs]
    return areas


def _surface(mask: np.ndarray) -> np.ndarray:
    """Return the area of the surface between each voxel of a padded mask and the seven after it."""
    code = np.zeros([n - 1 for n in mask.shape], np.uint8)
    for bit in range(8):
        z, y, x = bit >> 2 & 1, bit >> 1 & 1, bit & 1
        nz, ny, nx = mask.shape
        corner = mask[z : nz - 1 + z, y : ny - 1 + y, x : nx - 1 + x]
        code |= corner.astype(np.uint8) << bit
    return np.asarray(_area_by_code()[code])


def learn2reg_hd95(one: np.ndarray, other: np.ndarray) -> float:
    """Return the 95 % Hausdorff distance of two masks in voxels as Learn2Reg has it: of DeepMind's
    surface-distance, where pieces of the surface weigh by their area; infinite where a mask is
    empty. The scores' ``hd95_after`` is in mm and of voxels, some 0.3 voxels more.

    Parameters
    ----------
    one, other : numpy.ndarray
        bool, of one shape (z, y, x).

    Examples
    --------
    >>> import numpy as np
    >>> one = np.zeros((6, 6, 6), bool)
    >>> one[1:4, 1:4, 1:4] = True
    >>> learn2reg_hd95(one, np.roll(one, 2, axis=0))
    2.0
    """
    if not one.any() or not other.any():
        return math.inf
    where = np.nonzero(one | other)
    box = tuple(slice(int(i.min()), int(i.max()) + 1) for i in where)
    areas = [_surface(np.pad(mask[box], 1)) for mask in (one, other)]
    away = []
    for area in areas:
        surface = sitk.GetImageFromArray((area > 0).astype(np.uint8))
        far = sitk.SignedMaurerDistanceMap(surface, squaredDistance=False, useImageSpacing=False)
        away.append(np.maximum(sitk.GetArrayFromImage(far), 0))  # below 0 within thick surfaces
    return max(_percentile95(away[1 - i][areas[i] > 0], areas[i][areas[i] > 0]) for i in (0, 1))


def _percentile95(distances: np.ndarray, areas: np.ndarray) -> float:
    order = np.argsort(distances, kind="stable")
    share = np.cumsum(areas[order]) / areas.sum()
    place = min(int(np.searchsorted(share, 0.95)), len(order) - 1)
    return float(distances[order][place])
