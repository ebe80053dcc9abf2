"""One run of the plugin: from layers' data to arrays for new layers, without napari."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import Progress, Registration, errors, register
from .geometry import LayerData

VECTORS_PER_AXIS = 32
"""Arrows along the fixed image's longest axis."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunInputs:
    """The layers and options of a registration."""

    fixed: LayerData
    moving: LayerData
    points: LayerData | None = None
    """Of the moving side."""
    labels: LayerData | None = None
    """Of the moving side."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of :func:`morphseek.register`."""
    displacement: bool = False
    jacobian: bool = False
    vectors: bool = False

    def __post_init__(self) -> None:
        for other in (self.moving, self.points, self.labels):
            if other is not None and other.ndim != self.fixed.ndim:
                raise errors.InvalidArgumentError(
                    f"the {other.name} has {other.ndim} axes and the {self.fixed.name} has"
                    f" {self.fixed.ndim}; give two volumes or two slices, and points and labels of"
                    " as many axes"
                )


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What came out; arrays lie on the fixed layer, and have its axes."""

    result: Registration
    warped: np.ndarray
    labels: np.ndarray | None = None
    points: np.ndarray | None = None
    """(n, d), where the fixed image shows them: mm in the world's axis order."""
    displacement: np.ndarray | None = None
    """Its length, mm."""
    jacobian: np.ndarray | None = None
    vectors: np.ndarray | None = None
    """(n, 2, d): where, and the displacement, in indices of the fixed layer."""


def run(job: RunInputs, progress: Callable[[Progress], Any]) -> Outcome:
    """Register, and carry over what is asked for; a `progress` that returns False cancels."""
    fixed, moving = job.fixed.image(), job.moving.image()
    result = register(fixed, moving, progress=progress, **job.options)

    def flat(volume: np.ndarray) -> np.ndarray:
        return volume[0] if job.fixed.ndim == 2 else volume

    def carried(source: LayerData, array: np.ndarray, how: str) -> np.ndarray:
        return flat(result.apply(source.image_of(array), interpolation=how).array)

    warped = flat(result.warped)
    if job.moving.rgb:
        colours = np.moveaxis(np.asarray(job.moving.data), -1, 0)
        warped = np.stack([carried(job.moving, c, "linear") for c in colours], axis=-1)
    labels = points = vectors = None
    if job.labels is not None:
        labels = carried(job.labels, np.asarray(job.labels.data), "nearest")
    if job.points is not None:
        there = result.inverse().transform_points(job.points.points())
        points = there[:, : job.fixed.ndim][:, ::-1]
    if job.vectors:
        vectors = _vectors(result, job.fixed.ndim)
    return Outcome(
        result,
        warped,
        labels,
        points,
        flat(np.linalg.norm(result.displacement_mm(), axis=-1)) if job.displacement else None,
        flat(result.jacobian()) if job.jacobian else None,
        vectors,
    )


def _vectors(result: Registration, ndim: int) -> np.ndarray:
    field = result.displacement() if ndim == 3 else result.displacement()[1:, 0]
    step = max(1, round(max(field.shape[1:]) / VECTORS_PER_AXIS))
    every = slice(step // 2, None, step)
    thinned = field[tuple([slice(None)] + [every] * ndim)]
    at = np.indices(thinned.shape[1:]) * step + step // 2
    return np.stack([each.reshape(ndim, -1).T for each in (at, thinned)], axis=1)
