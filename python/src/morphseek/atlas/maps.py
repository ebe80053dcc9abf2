"""The map of an image into the template's space."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .. import images as volumes
from .._engine import bindings
from .._engine.bindings import Doubles, Floats
from .._grid import Grid
from ..transforms import Affine, Field, Transform
from ..transforms.parts import field_on
from .rounds import linear_name, start_name
from .sources import Source


def carried(image: volumes.Image, way: Field) -> Floats:
    """Return an image on a map's grid: float32, NaN where it does not reach."""
    return bindings.warp(
        way.displacement(), way.grid, image.float32(), image.grid, "linear",
        float("nan"),
    )  # fmt: skip


def keep(way: Field, folder: Path, source: Source) -> None:
    """Write an image's transform, and its linear part, into a round's folder."""
    way.save(folder / start_name(source.id))
    Affine(way.initial).save(folder / linear_name(source.id))


def shift(grid: Grid, moving: Grid, by: Doubles) -> Field:
    """Return a shift as a map on a grid."""
    matrix = np.eye(4)
    matrix[:3, 3] = by
    return dense(Affine(matrix), grid, moving)


def dense(whole: Transform, grid: Grid, moving: Grid) -> Field:
    """Return a transform as a map on a grid."""
    stages = whole.stages
    matrix = np.eye(4)
    if "initial" in stages:
        points = np.vstack([np.zeros(3), np.eye(3)])
        there = stages["initial"].transform_points(points)
        matrix[:3, 3], matrix[:3, :3] = there[0], (there[1:] - there[0]).T
    return Field.from_mm(field_on(whole.to_sitk(), grid), grid, moving, matrix)
