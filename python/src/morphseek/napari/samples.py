"""Images to try the plugin with: File > Open Sample > MorphSeek."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import phantoms
from ..images import Image
from .geometry import layer_place

LayerData = tuple[np.ndarray, dict[str, Any], str]

POINTS = 40


def torso() -> list[LayerData]:
    """Return a made-up patient's MR and CT, with labels and points of the CT.

    >>> [kind for _, _, kind in torso()]
    ['image', 'image', 'labels', 'points']
    """
    pair = phantoms.make_pair(size=64)
    points = pair.truth(pair.target_points())
    points = points[:: max(1, len(points) // POINTS)][:POINTS, ::-1]
    return [
        _image(pair.fixed, "MR (fixed)"),
        _image(pair.moving, "CT (moving)"),
        (
            pair.moving_labels.array,
            {"name": "CT organs", "visible": False, **layer_place(pair.moving_labels)},
            "labels",
        ),
        (
            points,
            {"name": "CT points", "visible": False, "size": 8, "units": ("mm",) * 3},
            "points",
        ),
    ]


def slices() -> list[LayerData]:
    """Return two made-up patients' axial slices.

    >>> [(array.shape, kind) for array, _, kind in slices()]
    [((128, 128), 'image'), ((128, 128), 'image')]
    """
    found = []
    for name, seed in (("fixed", 0), ("moving", 1)):
        fixed = phantoms.make_pair(size=128, seed=seed).fixed
        found.append(_image(fixed.like(fixed.array[64:65]), f"slice ({name})"))
    return found


def _image(image: Image, name: str) -> LayerData:
    array = image.array if image.array.shape[0] > 1 else image.array[0]
    limits = tuple(np.percentile(array, (1, 99.8)).tolist())
    return array, {"name": name, "contrast_limits": limits, **layer_place(image)}, "image"
