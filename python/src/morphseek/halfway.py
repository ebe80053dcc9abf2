"""The space half-way between two images, where follow-up studies measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import images
from ._engine import bindings
from .transforms.field import Field, read_only
from .transforms.labels import minimum

#: What ``morphseek register --halfway`` writes.
HALFWAY = ("halfway.nii.gz", "halfway_to_fixed.h5", "halfway_to_moving.h5")


@dataclasses.dataclass(frozen=True, repr=False)
class Halfway:
    """The space half-way between the fixed and the moving image.

    Every point lies there in the middle of where it lies in the two images, once half of the
    initial transform is applied to each. Neither image is preferred: both are resampled once. Its
    grid has as many voxels as the fixed image, of the same size.

    Attributes
    ----------
    image : morphseek.images.Image
        The mean of both images; where one of them does not reach, the other; where neither does,
        the mean of their minima.
    fixed, moving : morphseek.images.Image
        Each by itself; where it does not reach, its own minimum.
    to_fixed, to_moving : Field
        From there to the fixed and the moving space: ``to_fixed.apply(labels,
        interpolation="nearest")`` brings what was drawn on the fixed image there, and
        ``to_fixed.jacobian()`` is its volume.
    """

    image: images.Image
    fixed: images.Image
    moving: images.Image
    to_fixed: Field
    to_moving: Field

    def __repr__(self) -> str:
        return f"Halfway({self.image!r})"

    def writers(self) -> dict[str, Callable[[Path], Any]]:
        """Return the writer of each file of HALFWAY."""
        return {
            "halfway.nii.gz": lambda path: images.write(path, self.image),
            "halfway_to_fixed.h5": self.to_fixed.save,
            "halfway_to_moving.h5": self.to_moving.save,
        }


def halfway(whole: Field, fixed: images.Image, moving: images.Image) -> Halfway:
    """Return the space half-way between two images that a transform relates."""
    grid, ours, theirs = bindings.halfway(whole.displacement(), whole.grid, whole.initial)
    to_fixed = Field(read_only(ours[0]), grid, whole.grid, ours[1])
    to_moving = Field(read_only(theirs[0]), grid, whole.moving_grid, theirs[1])
    one, other = (
        bindings.warp(t.displacement(), grid, image.float32(), image.grid, "linear", np.nan)
        for t, image in ((to_fixed, fixed), (to_moving, moving))
    )
    mean = np.where(np.isnan(one), other, np.where(np.isnan(other), one, 0.5 * (one + other)))
    low, lower = minimum(fixed.array), minimum(moving.array)

    def there(array: np.ndarray, outside: float) -> images.Image:
        return images.Image.on_grid(np.nan_to_num(array, nan=outside), grid)

    return Halfway(
        there(mean, 0.5 * (low + lower)), there(one, low), there(other, lower), to_fixed, to_moving
    )
