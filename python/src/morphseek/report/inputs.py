"""The inputs of a page: a registration, and what was measured of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .._engine.metrics import Metrics
from ..scoring import LabelScore, LandmarkErrors
from ..transforms import Field


class Registration(Protocol):
    """A :class:`morphseek.Registration`, as far as a page needs it."""

    transform: Field
    metrics: Metrics
    options: dict[str, Any]

    @property
    def warped(self) -> np.ndarray: ...

    @property
    def uncertainty(self) -> np.ndarray | None: ...


Scores = Sequence[LabelScore]


@dataclasses.dataclass(frozen=True)
class Measures:
    """Measures of a registration by labels, points or a known truth, beside its own metrics."""

    scores: Scores = ()
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """Of the labels."""
    points: LandmarkErrors | None = None
    truth: Mapping[str, Any] | None = None
    """Of a made-up pair the errors at points."""
    error: np.ndarray | None = None
    """Expected at each voxel of the fixed image, mm: (z, y, x)."""

    def name(self, label: int) -> str:
        """Return what a label is called."""
        return self.names.get(label, str(label))
