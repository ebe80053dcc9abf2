"""Landmarks of both images: how far apart they are, and where they are drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import errors
from ..result import RegistrationResult

_ITERATIONS = 20


@dataclasses.dataclass
class LandmarkErrors:
    """Points that belong together, LPS mm, and their distances."""

    names: list[str]
    fixed: NDArray[np.float64]
    moving: NDArray[np.float64]
    carried: NDArray[np.float64]
    """Where the registered moving image shows the moving points, in the fixed space."""
    before_mm: NDArray[np.float64]
    after_mm: NDArray[np.float64]

    @classmethod
    def of(
        cls, result: RegistrationResult, fixed: Any, moving: Any, names: Sequence[str] = ()
    ) -> LandmarkErrors:
        """Measure a registration at landmarks, (n, 3) each."""
        here, there = (np.asarray(points, np.float64).reshape(-1, 3) for points in (fixed, moving))
        if len(here) != len(there):
            raise errors.InvalidArgumentError(
                f"landmarks: the fixed image has {len(here)}, the moving one {len(there)}"
            )
        given = [*names, *(str(i + 1) for i in range(len(names), len(here)))]
        return cls(
            given[: len(here)],
            here,
            there,
            _carried(result, there),
            np.linalg.norm(here - there, axis=1),
            np.linalg.norm(result.transform_points(here) - there, axis=1)
            if len(here)
            else here[:, 0],
        )


def _carried(result: RegistrationResult, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where the transform maps to the points: a step back by the initial transform, again
    and again; where the map folds, the last place stands.
    """
    if not len(points):
        return points
    back = np.linalg.inv(result.initial)
    found = points @ back[:3, :3].T + back[:3, 3]
    for _ in range(_ITERATIONS):
        found = found - (result.transform_points(found) - points) @ back[:3, :3].T
    return found
