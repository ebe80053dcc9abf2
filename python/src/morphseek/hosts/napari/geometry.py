"""Where a layer of napari lies, and its image as the engine takes it.

napari's world has the data's axis order, (z, y, x) or (y, x). Here it is LPS: world z, y, x are
LPS z, y, x, in mm. A layer whose unit is a length is converted; pixels count as mm.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import SimpleITK as sitk

from ... import errors, images

PLACE = ("scale", "rotate", "shear", "translate", "affine", "units")
"""What says where a layer lies."""


@dataclasses.dataclass(frozen=True, eq=False)
class LayerData:
    """The content of a layer, taken as a run starts: the user may move or remove the layer."""

    name: str
    """The layer's name, with what it is used as: what messages call it."""
    data: Any
    """The layer's: an array, which may be lazy, or points (n, d)."""
    matrix: np.ndarray
    """(d + 1, d + 1), from the data's indices to mm, both in the data's axis order."""
    rgb: bool
    """Whether the data has a last axis of colours."""

    @classmethod
    def of(cls, layer: Any, role: str) -> LayerData:
        """Return what is needed of a layer; `role` is "fixed", "moving", "points" or "labels"."""
        name = f"{role} layer {layer.name!r}"
        rgb = bool(getattr(layer, "rgb", False))
        if layer.ndim not in (2, 3):
            raise errors.InvalidArgumentError(
                f"the {name} has {layer.ndim} axes; give a volume (z, y, x) or a slice (y, x). Of a"
                " time series, take one time point"
            )
        if rgb and layer.ndim == 3:
            raise errors.InvalidArgumentError(
                f"the {name} is a volume in colour; split its channels (right click > Split RGB)"
                " and choose one"
            )
        data = layer.data[0] if getattr(layer, "multiscale", False) else layer.data
        return cls(name, data, data_to_mm(layer), rgb)

    @property
    def ndim(self) -> int:
        """Axes in space: 2 or 3."""
        return len(self.matrix) - 1

    def image(self) -> images.Image:
        """Return the layer's image; of one in colour its brightness. Refuse sheared axes."""
        return self.image_of(np.asarray(self.data))

    def image_of(self, array: np.ndarray) -> images.Image:
        """Return the image of voxels that lie where the layer does."""
        linear = self.matrix[:-1, :-1][::-1, ::-1]
        spacing = np.linalg.norm(linear, axis=0)
        direction = linear / np.where(spacing > 0, spacing, 1)
        between = direction.T @ direction - np.eye(self.ndim)  # cosines of angles between axes
        if spacing.all() and np.abs(between).max() > 1e-3:
            raise errors.InvalidDirectionError(
                f"the {self.name} is sheared: its axes are not at right angles in the world. Reset"
                " its shear and affine, or resample it"
            )
        if self.rgb and array.ndim == 3:
            coloured = sitk.GetImageFromArray(np.ascontiguousarray(array), isVector=True)
            array = images.read(coloured, self.name).array[0]
        origin = self.matrix[:-1, -1][::-1]
        placed = images.Image(
            array, tuple(spacing), tuple(origin), tuple(direction.ravel()), self.name
        )
        return images.read(placed, self.name)

    def points(self) -> np.ndarray:
        """Return the layer's points as LPS mm, (n, 3)."""
        data = np.asarray(self.data, dtype=np.float64).reshape(-1, self.ndim)
        world = data @ self.matrix[:-1, :-1].T + self.matrix[:-1, -1]
        return np.pad(world[:, ::-1], ((0, 0), (0, 3 - self.ndim)))


def data_to_mm(layer: Any) -> np.ndarray:
    """Return the matrix, (d + 1, d + 1), from a layer's indices to the world in mm."""
    n = layer.ndim
    corners = ((0.0,) * n, *map(tuple, np.eye(n).tolist()))
    origin, *ends = (np.array(layer.data_to_world(at), dtype=np.float64) for at in corners)
    matrix = np.eye(n + 1)
    matrix[:n, :n] = np.stack([end - origin for end in ends], axis=1)
    matrix[:n, n] = origin
    matrix[:n] *= mm_per_unit(layer)[:, None]
    return matrix


def mm_per_unit(layer: Any) -> np.ndarray:
    """Return how many mm the layer's unit is along each axis of the world; a pixel counts as 1."""
    factors = []
    for unit in layer.units:
        mm = unit._REGISTRY.Unit("mm")
        is_length = unit.dimensionality == mm.dimensionality
        factors.append(float((1 * unit).to(mm).magnitude) if is_length else 1.0)
    return np.array(factors)


def layer_place(image: images.Image) -> dict[str, Any]:
    """Return an image's place as the arguments of a layer of its array, or of its only slice."""
    n = 3 if image.array.shape[0] > 1 else 2
    return {
        "scale": image.spacing[:n][::-1],
        "rotate": np.array(image.direction).reshape(3, 3)[:n, :n][::-1, ::-1],
        "translate": image.origin[:n][::-1],
        "units": ("mm",) * n,
    }
