"""Measures what landmarks gain at points that were not given: everything.py --part landmarks.

Some points of a pair steer. Made-up points are exact, so an error is added to them. The error is
measured at the other points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import truth

import morphseek

GIVEN, ERROR = 20, 1.0
"""Points that steer, at most half of them; their error, mm."""


def measure(kind: str, pair: truth.Pair, draws: int) -> dict[str, Any]:
    """Return the mean error in mm at the points that were not given, without and with the others,
    over `draws` choices of them.
    """
    here, there = np.asarray(pair.fixed_points), np.asarray(pair.moving_points)

    def error(result: morphseek.Registration, those: np.ndarray) -> float:
        carried = result.transform_points(here[those])
        return float(np.linalg.norm(carried - there[those], axis=1).mean())

    plain = morphseek.register(pair.fixed, pair.moving, threads=1)
    few = min(GIVEN, len(here) // 2)
    errors = []
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        some, others = np.split(rng.permutation(len(here)), [few])
        marked = there[some]
        if len(here) > 100:  # made-up points
            marked = marked + rng.normal(0, ERROR / np.sqrt(3), marked.shape)
        led = morphseek.register(
            pair.fixed, pair.moving, fixed_landmarks=here[some], moving_landmarks=marked,
            landmark_error=ERROR, threads=1,
        )  # fmt: skip
        errors.append([error(plain, others), error(led, others)])
    without, with_them = np.mean(errors, axis=0).tolist()
    steer = f"{few} of {len(here)}"
    return {"pair": kind, "steer": steer, "without": without, "with": with_them}
