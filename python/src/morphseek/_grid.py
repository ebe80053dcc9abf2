"""The parts of a grid as in :attr:`morphseek.images.Image.grid`. They are views: who writes into
one changes the grid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def size_of(grid: Doubles) -> Doubles:
    """Voxels along x, y and z, shape (3,)."""
    return grid[:3]


def spacing_of(grid: Doubles) -> Doubles:
    """Mm between voxels along x, y and z, shape (3,)."""
    return grid[3:6]


def origin_of(grid: Doubles) -> Doubles:
    """The place of the first voxel, LPS mm, shape (3,)."""
    return grid[6:9]


def axes_of(grid: Doubles) -> Doubles:
    """The unit vectors of x, y and z in LPS, shape (3, 3): a column each."""
    return grid[9:18].reshape(3, 3)
