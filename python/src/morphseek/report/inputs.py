"""What a page takes of the rest: the result of a registration, and scores of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .._grid import Grid
from ..images import Image


class Registration(Protocol):
    """A :class:`morphseek.RegistrationResult`, as far as a page needs it."""

    metrics: dict[str, Any]
    options: dict[str, Any]

    @property
    def grid(self) -> Grid: ...

    @property
    def moving_grid(self) -> Grid: ...

    @property
    def initial(self) -> np.ndarray: ...

    @property
    def displacement(self) -> np.ndarray: ...

    @property
    def warped(self) -> np.ndarray: ...

    @property
    def uncertainty(self) -> np.ndarray | None: ...

    def jacobian(self) -> np.ndarray: ...

    def apply(self, image: Image, interpolation: str) -> Image: ...


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
