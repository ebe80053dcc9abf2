"""Closed lines in a plane as areas, and areas as closed lines, by scikit-image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_FINE = 4  # lines of samples a pixel, each way
_LEAST = 0.25  # pixels: smaller specks are left out
_SIGN = -1.0  # of the area of what find_contours draws around a peak


def rasterised(lines: Sequence[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Return which part of each pixel lies within closed lines, float32; where two overlap, the
    inner one is a hole. Lines are (n, 2), row and column: 0 is the middle of the first pixel.
    """
    from skimage.draw import polygon

    fine = np.zeros((shape[0] * _FINE, shape[1] * _FINE), bool)
    for line in lines:
        at = (line + 0.5) * _FINE - 0.5
        rows, columns = polygon(at[:, 0], at[:, 1], fine.shape)
        fine[rows, columns] ^= True
    return fine.reshape(shape[0], _FINE, shape[1], _FINE).mean(axis=(1, 3), dtype=np.float32)


def outlines(parts: np.ndarray) -> list[np.ndarray]:
    """Return the lines around what is more than half inside, (n, 2): row and column. A channel
    without width joins a hole to the line around it, as PS3.3 C.8.8.6.3 asks.
    """
    from skimage.measure import approximate_polygon, find_contours, points_in_poly

    curves = find_contours(np.pad(parts, 1), 0.5)
    rings = [ring[:-1] - 1.0 for ring in curves if len(ring) > 3 and np.array_equal(*ring[[0, -1]])]
    outer = [ring for ring in rings if _area(ring) * _SIGN > _LEAST]
    holes = [ring for ring in rings if _area(ring) * _SIGN < -_LEAST]
    for hole in sorted(holes, key=lambda ring: tuple(ring.min(axis=0))):
        around = [k for k, ring in enumerate(outer) if points_in_poly(hole[:1], ring)[0]]
        if around:
            k = min(around, key=lambda k: abs(_area(outer[k])))
            outer[k] = _joined(outer[k], hole)
    return [approximate_polygon(np.vstack([r, r[:1]]), 0.05)[:-1] for r in outer]


def _area(ring: np.ndarray) -> float:
    """Return the signed area within a closed line."""
    row, column = ring.T
    return float(row @ np.roll(column, -1) - column @ np.roll(row, -1)) / 2


def _joined(ring: np.ndarray, hole: np.ndarray) -> np.ndarray:
    """Return one closed line round a ring, over to the hole next to it, round it, and back."""
    from scipy.spatial import cKDTree

    far, near = cKDTree(ring).query(hole)
    j = int(far.argmin())
    i = int(near[j])
    return np.concatenate([ring[i:], ring[: i + 1], hole[j:], hole[: j + 1]])
