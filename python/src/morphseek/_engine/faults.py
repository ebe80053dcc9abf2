"""The engine's table of failures."""

from __future__ import annotations

import json
from typing import Any

from .._native import gopy

TABLE: list[dict[str, Any]] = json.loads(gopy.FaultTable())
"""Dicts with ``code``, ``name``, ``python`` (the class), ``exit`` and ``help``."""
