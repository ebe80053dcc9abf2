"""Images to try the plugin with: File > Open Sample > MorphSeek."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import Image, phantom
from .geometry import layer_place

LayerData = tuple[np.ndarray, dict[str, Any], str]

POINTS = 40


def torso() -> list[LayerData]:
    """Return a made-up patient's MR and CT, with labels and points of the CT.

    >>> [(array.shape, kind) for array, _, kind in torso()]
    [((64, 64, 64), 'image'), ((56, 72, 72), 'image'), ((56, 72, 72), 'labels'), ((40, 3),
    'points')]
    """
    pair = phantom.make_pair(size=64)
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
    """Return an axial slice of a made-up patient, before and after he moved.

    >>> [(array.shape, kind) for array, _, kind in slices()]
    [((80, 80), 'image'), ((90, 90), 'image')]
    """
    pair = phantom.make_pair(size=80, contrasts=("MR", "MR"))
    still, moved = pair.fixed, pair.moving
    middle = len(still.array) // 2
    centre = still.index_to_physical @ [middle, middle, middle, 1]
    there = moved.grid.physical_to_index @ [*pair.truth(centre[None, :3])[0], 1]
    data = []
    for image, at, name in ((still, middle, "fixed"), (moved, round(there[2]), "moving")):
        cut = Image(image.array[at], image.spacing[:2])
        data.append(_image(cut, f"slice ({name})"))
    return data


def _image(image: Image, name: str) -> LayerData:
    array = image.array if image.array.shape[0] > 1 else image.array[0]
    limits = tuple(np.percentile(array, (1, 99.8)).tolist())
    return array, {"name": name, "contrast_limits": limits, **layer_place(image)}, "image"
