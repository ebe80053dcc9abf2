"""The network grid of a pair, and its initial transform on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .case import Case


@dataclass
class Grid:
    """The network grid of a pair along the fixed volume's axes: its size (D, H, W) and spacing in
    mm, both in array order.
    """

    size: tuple[int, int, int]
    spacing: np.ndarray


def make_grid(
    fixed: Case, spacing: Sequence[float], min_size: Sequence[int], multiple: int
) -> Grid:
    """Return the grid by rule 2 of the package :mod:`..pairs`."""
    step = np.asarray(spacing, dtype=float)
    extent = np.array(fixed.size) * fixed.spacing / step
    d, h, w = (
        multiple * math.ceil(max(int(m), round(float(e), 6)) / multiple)
        for e, m in zip(extent, min_size, strict=True)
    )
    return Grid((d, h, w), step)


def start_transform(fixed: Case, moving: Case, initial: np.ndarray | None = None) -> np.ndarray:
    """Return the initial transform as 3x4 map from points in mm from the fixed volume's centre,
    along its axes, to such points of the moving volume.

    Parameters
    ----------
    initial : ndarray of shape (4, 4), optional
        As in :func:`make_sample`; without it the centres coincide.
    """
    back = np.linalg.inv(moving.axes)
    if initial is None:
        return np.concatenate((back @ fixed.axes, np.zeros((3, 1))), axis=1)
    linear, offset = initial[:3, :3], initial[:3, 3]
    shift = back @ (linear @ fixed.centre + offset - moving.centre)
    return np.concatenate((back @ linear @ fixed.axes, shift[:, None]), axis=1)
