"""The spine, which several bodies have."""

from __future__ import annotations

import functools

import numpy as np

from ..anatomy import Anatomy
from ..shapes import Shape, both, shrink, tube as straight


def spread(rng: np.random.Generator, value: float, share: float = 0.2) -> float:
    return float(value * np.exp(share * rng.uniform(-1, 1)))


def spine(rng: np.random.Generator, a: Anatomy, y: float, radius: float, sway: float) -> None:
    """Add alternating vertebrae and discs, the arches behind them, and the cord in its canal."""
    height, phase = radius * rng.uniform(1.5, 1.9), rng.uniform(0, 30)
    tube = functools.partial(
        straight, sway=sway, period=rng.uniform(350, 600), phase=rng.uniform(0, 6)
    )
    gap: Shape = lambda p, n: height * 0.38 - ((p[0] + phase) % height - height / 2).abs()
    body = tube((0, y, 0), (radius * 0.8, radius))
    a.add("vertebrae", body, "cortical bone")
    a.add("vertebrae marrow", shrink(body, 1.8), "marrow")
    a.add("discs", both(body, gap), "cartilage")
    behind = y + radius * 1.5
    a.add(
        "vertebrae",
        both(
            tube((0, behind + 8, 0), (radius * 0.8, radius * 0.35)), lambda p, n: -4.0 - gap(p, n)
        ),
        "cortical bone",
    )
    a.add("vertebrae", tube((0, behind, 0), (radius * 0.55, radius * 0.62)), "cortical bone")
    a.add("canal", tube((0, behind, 0), (radius * 0.4, radius * 0.48)), "fluid")
    a.add("cord", tube((0, behind, 0), (radius * 0.22, radius * 0.28)), "white matter")
