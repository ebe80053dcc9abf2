"""Figures as JSON has them."""

from __future__ import annotations

import math
from typing import Any


def without_nan(value: Any) -> Any:
    """Numbers that are not finite become None: JSON has none."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
