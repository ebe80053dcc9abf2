"""A medley of abstract shapes."""

from __future__ import annotations

import numpy as np

from ..anatomy import Anatomy
from ..shapes import above, blob, shell, shrink, tube


def medley(rng: np.random.Generator) -> Anatomy:
    """Return abstract shapes instead of a body: partitions by noise with blobs and tubes in them,
    as in SynthMorph.
    """
    a = Anatomy("medley", 200.0)
    for i, lo in enumerate((-9.0, -0.6, 0.0, 0.6)):
        a.add(f"region {i}", above(0, lo))
    for i, lo in enumerate((0.3, 1.1)):
        a.add(f"patch {i}", above(1, lo))
    for i in range(int(rng.integers(8, 16))):
        centre, radii = rng.uniform(-100, 100, 3), np.exp(rng.uniform(np.log(8), np.log(42), 3))
        shape = a.organ(
            f"blob {i}",
            centre,
            radii,
            turn=rng.uniform(-2, 2, 3),
            power=rng.uniform(1.6, 3.0),
            rough=rng.uniform(0, 4),
        )
        if rng.random() < 0.4:
            ball = (centre, 1.1 * max(radii) + 12.0)
            a.add(f"core {i}", shrink(shape, min(radii) * rng.uniform(0.2, 0.6)), ball=ball)
    for i in range(int(rng.integers(2, 7))):
        r = np.exp(rng.uniform(np.log(3), np.log(14)))
        a.add(
            f"tube {i}",
            tube(
                rng.uniform(-70, 70, 3),
                (r, r),
                turn=rng.uniform(-2, 2, 3),
                sway=rng.uniform(0, 20),
                period=rng.uniform(80, 200),
            ),
        )
    if rng.random() < 0.4:
        # An outer body, so that the medley has an outside.
        frame = blob((0, 0, 0), rng.uniform(75, 110, 3), power=2.5, rough=5.0)
        a.add("rim", shell(frame, 0.0, rng.uniform(3, 12)))
        a.add("around", lambda p, n: -frame(p, n))
    return a
