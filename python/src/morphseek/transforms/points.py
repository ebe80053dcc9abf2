"""Points as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import errors
from .._engine.bindings import Doubles


def checked_points(points: Any) -> Doubles:
    """Return a copy of points, float64 of shape (n, 3).

    Raises
    ------
    InvalidArgumentError
        They are not numbers, or have another shape.
    """
    try:
        copied: Doubles = np.array(points, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise errors.InvalidArgumentError(
            "points are not all numbers, or not all as many; give (n, 3), LPS mm"
        ) from None
    if copied.ndim != 2 or copied.shape[1] != 3:
        raise errors.InvalidArgumentError(f"points have shape {copied.shape}; give (n, 3), LPS mm")
    return copied
