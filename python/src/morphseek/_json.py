"""Figures as JSON has them."""

from __future__ import annotations

import math
from typing import Any


def without_nan(value: Any) -> Any:
    """Return data with None, an empty cell of a table, for every number that is not finite."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
