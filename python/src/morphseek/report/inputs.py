"""The inputs of a page: a registration, and scores of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .._engine.metrics import Metrics
from .._grid import Grid
from ..transforms import Field


class Registration(Protocol):
    """A :class:`morphseek.Registration`, as far as a page needs it."""

    transform: Field
    metrics: Metrics
    options: dict[str, Any]

    @property
    def grid(self) -> Grid: ...

    @property
    def moving_grid(self) -> Grid: ...

    @property
    def warped(self) -> np.ndarray: ...

    @property
    def uncertainty(self) -> np.ndarray | None: ...

    def displacement(self) -> np.ndarray: ...

    def jacobian(self) -> np.ndarray: ...


class LabelScore(Protocol):
    """A :class:`morphseek.scoring.LabelScore`, as far as a page reads it by name."""

    @property
    def label(self) -> int: ...

    @property
    def dice_before(self) -> float: ...

    @property
    def dice_after(self) -> float: ...


class LandmarkErrors(Protocol):
    """A :class:`morphseek.scoring.LandmarkErrors`."""

    names: list[str]
    fixed: np.ndarray
    moving: np.ndarray
    carried: np.ndarray
    before_mm: np.ndarray
    after_mm: np.ndarray
    steered: list[bool]
    alone: list[dict[str, Any]]


Scores = Sequence[LabelScore]
