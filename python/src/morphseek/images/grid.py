"""Where an image lies: its geometry in LPS millimetres."""

from __future__ import annotations

from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._grid import axes_of, origin_of, size_of, spacing_of

IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


def index_to_physical(grid: np.ndarray) -> np.ndarray:
    """4x4 matrix from the continuous index (x, y, z) to LPS mm of a grid as in
    :attr:`Image.grid`.

    Examples
    --------
    >>> images.index_to_physical(pair.fixed.grid).shape
    (4, 4)
    """
    m = np.eye(4)
    m[:3, :3] = axes_of(grid) * spacing_of(grid)
    m[:3, 3] = origin_of(grid)
    return m


def center_of(grid: np.ndarray) -> np.ndarray:
    """The middle of a grid as in :attr:`Image.grid`, LPS mm.

    Examples
    --------
    >>> images.center_of(pair.fixed.grid).shape
    (3,)
    """
    middle: np.ndarray = index_to_physical(grid) @ [*((size_of(grid) - 1) / 2), 1]
    return middle[:3]


def placed(image: sitk.Image, grid: np.ndarray) -> sitk.Image:
    """Give a SimpleITK image the geometry of a grid as in :attr:`Image.grid`, and return it.

    Examples
    --------
    >>> images.placed(pair.fixed.to_sitk(), pair.moving.grid).GetSize()
    (48, 48, 48)
    """
    image.SetSpacing(spacing_of(grid).tolist())
    image.SetOrigin(origin_of(grid).tolist())
    image.SetDirection(axes_of(grid).ravel().tolist())
    return image


def grid_of(image: Any) -> np.ndarray:
    """Return the grid of a 3-D SimpleITK image, or of a reader of one, as in :attr:`Image.grid`.

    Examples
    --------
    >>> np.allclose(images.grid_of(pair.fixed.to_sitk()), pair.fixed.grid)
    True
    """
    return np.array(
        [*image.GetSize(), *image.GetSpacing(), *image.GetOrigin(), *image.GetDirection()],
        dtype=np.float64,
    )


def is_sheared(direction: np.ndarray, most: float = 1e-3) -> bool:
    """Whether a cosine of the angles between the axes is larger than ``most``."""
    return bool(np.abs(direction.T @ direction - np.eye(len(direction))).max() > most)


def sheared(name: str) -> errors.MorphSeekError:
    return errors.InvalidDirectionError(
        f"{name}: the axes of the volume are not at right angles (its affine is sheared); resample"
        " it onto a straight grid first, for instance by nibabel.processing.resample_to_output"
    )
