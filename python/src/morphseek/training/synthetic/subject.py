"""One body: the map between its voxels and the anatomy."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..spatial import column, integrate_velocity, sample

#: Voxels between nodes of the lattices of the velocity and of the anatomical noise, which is finer.
STRIDE, NOISE_STRIDE = 3, 2
#: A lattice extends beyond the grid by this share of the grid's size on either side.
MARGIN = 0.15


class Lattice:
    """The geometry of a lattice that covers a voxel grid with a margin, every ``stride`` voxels."""

    def __init__(self, size: Sequence[int], stride: int):
        self.stride = stride
        before = [int(np.ceil(MARGIN * n / stride)) for n in size]
        self.size = [int(np.ceil((n - 1) / stride)) + 1 + 2 * b for n, b in zip(size, before)]
        self._shift = column(before)

    def read(self, values: Tensor, points: Tensor) -> Tensor:
        """Interpolate values (1, C, *lattice) at voxel coordinates (1, 3, D, H, W); beyond the
        lattice its border's values continue.
        """
        return sample(values, points / self.stride + self._shift, padding="border")


class Subject:
    """One body: the map from the voxels of its grid to the anatomy's, and back.

    Parameters
    ----------
    size : (D, H, W)
        Size of the grid, voxels.
    velocity : (1, 3, d, h, w)
        Velocity on the lattice of the grid, in nodes per unit time.
    affine : ndarray of shape (3, 4)
        The affine that is applied first, in voxels from the centre of the grid.
    """

    SQUARINGS = 5

    def __init__(self, size: Sequence[int], velocity: Tensor, affine: np.ndarray):
        self.lattice = Lattice(size, STRIDE)
        self.velocity = velocity
        self.affine = affine
        self._middle = column([(n - 1) / 2 for n in size])

    @functools.cached_property
    def _forward(self) -> Tensor:
        return integrate_velocity(self.velocity, self.SQUARINGS) * STRIDE

    @functools.cached_property
    def _backward(self) -> Tensor:
        return integrate_velocity(-self.velocity, self.SQUARINGS) * STRIDE

    def _linear(self, points: Tensor, a: np.ndarray) -> Tensor:
        by = torch.as_tensor(a, dtype=torch.float32)
        moved = torch.einsum("ij,bjdhw->bidhw", by[:, :3], points - self._middle)
        return moved + column(by[:, 3]) + self._middle

    def to_anatomy(self, points: Tensor) -> Tensor:
        """Map voxel coordinates (1, 3, D, H, W) of the grid to those of the anatomy."""
        points = self._linear(points, self.affine)
        return points + self.lattice.read(self._forward, points)

    def from_anatomy(self, points: Tensor) -> Tensor:
        """Map voxel coordinates of the anatomy to those of the grid."""
        points = points + self.lattice.read(self._backward, points)
        inverse = np.linalg.inv(self.affine[:, :3])
        return self._linear(
            points, np.concatenate((inverse, -inverse @ self.affine[:, 3:]), axis=1)
        )
