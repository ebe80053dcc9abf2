"""Points as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import errors
from ._engine.bindings import Doubles
from ._tables import is_frame
from .images.arrays import as_array, is_array, is_masked


def checked_points(points: Any) -> Doubles:
    """Return a copy of points, float64 (n, 3), of a data frame by its columns x, y, z, or all."""
    if is_frame(points):
        points = _columns(points)
    rows = points if isinstance(points, (list, tuple)) else ()
    if any(map(is_masked, (points, *rows))):
        raise errors.InvalidArgumentError(
            "points are a masked array; give those that are not masked, (n, 3), LPS mm"
        )
    array = as_array(points, "points") if is_array(points) else points
    try:
        copied: Doubles = np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise errors.InvalidArgumentError(
            "points are not all numbers, or not all as many; give (n, 3), LPS mm"
        ) from None
    if copied.ndim != 2 or copied.shape[1] != 3:
        flat = ", with a z of 0 for those of a slice" if copied.shape[1:] == (2,) else ""
        raise errors.InvalidArgumentError(
            f"points have shape {copied.shape}; give (n, 3), LPS mm{flat}"
        )
    return copied


def _columns(frame: Any) -> Any:
    """Return the columns of a data frame that are points in LPS."""
    names = {str(column).strip().lower(): column for column in frame.columns}
    for wanted in ("xyz", "lps"):
        if set(wanted) <= names.keys():
            return np.column_stack([frame[names[letter]] for letter in wanted])
    if not all(map(str.isdecimal, names)):
        raise errors.InvalidArgumentError(
            f"points have the columns {', '.join(names)}; give x, y and z, LPS mm"
        )
    return frame
