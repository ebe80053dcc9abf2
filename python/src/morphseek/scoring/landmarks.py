"""Scoring one registration by landmarks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import errors
from .._engine.bindings import Doubles
from .._grid import mapped
from .._percentiles import spread
from ..landmarks import Landmarks, LandmarksLike, Matched, pair_landmarks
from ..transforms.field import linear_of
from ..transforms.transform import Transform

_ITERATIONS, _HALVINGS = 20, 5
_NEAR_MM, _SLOPE_MM = 1e-4, 1e-2


@dataclasses.dataclass(frozen=True, repr=False)
class LandmarkErrors:
    """Points that belong together, LPS mm, and how far apart they are: the target registration
    error. "Before" is the identity in physical space, "initial" the initial transform alone.

    Examples
    --------
    >>> scoring.score_landmarks(result, "fixed_points.csv", "moving_points.csv")
    LandmarkErrors(4 points, mean ... -> ... mm)
    """

    names: list[str]
    fixed: Doubles
    moving: Doubles
    carried: Doubles
    """Where the registered moving image shows the moving points, in the fixed space."""
    before_mm: Doubles
    initial_mm: Doubles
    after_mm: Doubles
    steered: list[bool] = dataclasses.field(default_factory=list)
    """Which of them the registration kept to; none: they only measure."""
    alone: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Points of one image alone: name, image, place, and where the transform carries them."""

    def __repr__(self) -> str:
        before, after = self.before_mm.mean(), self.after_mm.mean()
        return f"LandmarkErrors({len(self.names)} points, mean {before:.1f} -> {after:.1f} mm)"

    def to_dict(self) -> dict[str, Any]:
        """Return what report.json holds of them.

        Examples
        --------
        >>> scores = scoring.score_landmarks(result, "fixed_points.csv", "moving_points.csv")
        >>> sorted(scores.to_dict())
        ['landmarks', 'tre_after_mm', 'tre_before_mm']
        """

        def course(mm: Doubles) -> dict[str, float]:
            return {**spread(mm), "max_mm": float(mm.max())}

        steered = self.steered or [False] * len(self.names)
        arrays = (self.fixed, self.moving, self.before_mm, self.after_mm)
        columns = self.names, *(array.tolist() for array in arrays), steered
        keys = ("name", "fixed", "moving", "before_mm", "after_mm", "steered")
        return {
            "tre_before_mm": float(self.before_mm.mean()),
            "tre_after_mm": float(self.after_mm.mean()),
            "landmarks": {
                "before": course(self.before_mm),
                "initial": course(self.initial_mm),
                "after": course(self.after_mm),
                "steered": any(self.steered),
                "points": [dict(zip(keys, cells)) for cells in zip(*columns)],
                "one_image_only": self.alone,
            },
        }


def score_landmarks(transform: Any, fixed: LandmarksLike, moving: LandmarksLike) -> LandmarkErrors:
    """Measure a transform at landmarks: how far from each of the moving image's the transform
    carries the fixed image's.

    Parameters
    ----------
    transform : Registration or transform
        Whatever :meth:`morphseek.Transform.of` takes.
    fixed, moving : LandmarksLike
        :class:`morphseek.Landmarks`, a file with some, or (n, 3) in LPS mm. They are paired by
        their names where both have the same ones, else in the order given.

    Raises
    ------
    InvalidArgumentError
        There are more of one than of the other, only some names agree, or a point is no place.

    Warns
    -----
    InputWarning
        No name agrees, so they are paired in their order; both are the same points; or points lie
        outside their image.

    Examples
    --------
    >>> scores = scoring.score_landmarks(result, "fixed_points.csv", "moving_points.csv")
    >>> scores.after_mm.shape
    (4,)
    """
    points, whole = Matched(*pair_landmarks(fixed, moving)), Transform.of(transform)
    for note in points.notes(whole.grid, whole.moving_grid, is_refused=False):
        errors._warn(note)
    return measure_landmarks(whole, points)


def measure_landmarks(
    transform: Transform, points: Matched, left_out: Sequence[str] | None = None
) -> LandmarkErrors:
    """Measure a transform at points that belong together, and carry over those of one image alone.
    The points steered the registration, but for those left out; None: they only measure.

    Examples
    --------
    >>> points = Matched(
    ...     morphseek.Landmarks([[0, 0, 0], [9, 0, 0]], ["a", "b"]),
    ...     morphseek.Landmarks([[1, 0, 0], [9, 2, 0]], ["a", "b"]),
    ...     morphseek.Landmarks([[0, 0, 0]], ["tip"]),
    ... )
    >>> errors = measure_landmarks(morphseek.Transform.of(np.eye(4)), points, ["b"])
    >>> errors.steered, errors.alone[0]["name"], errors.after_mm
    ([True, False], 'tip', array([1., 2.]))
    """
    a, b = points.fixed.points, points.moving.points
    names = points.names

    def apart(mapped: Doubles) -> Doubles:
        return np.asarray(np.linalg.norm(mapped - b, axis=1))

    alone = _alone(points.only_fixed, "fixed", transform.transform_points)
    alone += _alone(points.only_moving, "moving", functools.partial(_carried, transform))
    return LandmarkErrors(
        names, a, b, _carried(transform, b), apart(a), apart(mapped(linear_of(transform), a)),
        apart(transform.transform_points(a)),
        [] if left_out is None else [name not in left_out for name in names], alone,
    )  # fmt: skip


def _alone(
    points: Landmarks | None, image: str, carry: Callable[[Doubles], Doubles]
) -> list[dict[str, Any]]:
    """Return the points of one image alone, and where they are carried."""
    if points is None:
        return []
    return [
        {"name": name, "image": image, "point": a.tolist(), "carried": b.tolist()}
        for name, a, b in zip(points.names, points.points, carry(points.points))
    ]


def _carried(transform: Transform, points: Doubles) -> Doubles:
    """Return where the transform maps to the points, or nearest to: Newton's method, halved."""
    places = mapped(np.linalg.inv(linear_of(transform)), points)
    missed = transform.transform_points(places) - points
    for _ in range(_ITERATIONS):
        if np.linalg.norm(missed, axis=1).max(initial=0) < _NEAR_MM:
            break
        beside = [transform.transform_points(places + _SLOPE_MM * axis) for axis in np.eye(3)]
        slopes = np.stack([there - points - missed for there in beside], axis=-1) / _SLOPE_MM
        step = (np.linalg.pinv(slopes) @ missed[..., None])[..., 0]
        for _ in range(_HALVINGS):
            left = transform.transform_points(places - step) - points
            is_nearer = (np.linalg.norm(left, axis=1) < np.linalg.norm(missed, axis=1))[:, None]
            places = np.where(is_nearer, places - step, places)
            missed = np.where(is_nearer, left, missed)
            step = np.where(is_nearer, 0, step / 2)
    return places
