"""A limb."""

from __future__ import annotations

import numpy as np

from ..anatomy import Anatomy
from ..shapes import above, below, both, cached, opposite, sheets, shrink, tube, uneven


def limb(rng: np.random.Generator) -> Anatomy:
    two = rng.random() < 0.35
    radius = rng.uniform(42, 85) if not two else rng.uniform(45, 65)
    a = Anatomy("limb", 2.5 * radius * (1.9 if two else 1.0))
    joint = rng.uniform(-1.6, 1.6) * radius
    lean = rng.uniform(-0.12, 0.12, 3)
    bones = int(rng.integers(1, 3))
    fat = radius * rng.uniform(0.06, 0.28)
    for side in ("left", "right") if two else ("",):
        s = {"left": 1.0, "right": -1.0, "": 0.0}[side]
        name = f"{side} " if side else ""
        middle = np.array([0.0, 0.0, s * 1.12 * radius])
        turn = lean * (1.0, 1.0, s or 1.0)
        outline = tube(
            middle,
            (radius * rng.uniform(0.85, 1.1), radius),
            turn=turn,
            sway=radius * 0.06,
            period=6 * radius,
        )
        body = cached(uneven(outline, 0.06 * radius))
        a.add("skin", body)
        a.add("fat", shrink(body, 2.0))
        # Muscles: cells between level sets of the coarse and the middle noise, fat between them.
        inner = shrink(body, fat)
        for k, (lo, hi) in enumerate(((-9.0, -0.45), (-0.45, 0.45), (0.45, 9.0))):
            for half in (-1.0, 1.0):
                cell = both(inner, above(0, lo), below(0, hi), opposite(1, half))
                a.add(
                    f"{name}muscle {2 * k + (half > 0) + 1}",
                    cell,
                    "muscle" if k != 1 else "muscle 2",
                )
        muscles = [f"{name}muscle {k}" for k in range(1, 7)]
        for channel, width in ((0, 0.05), (1, 0.07)):
            for level in (-0.45, 0.45) if channel == 0 else (0.0,):
                a.add("fat", both(inner, sheets(channel, width, level)), within=muscles)
        for b in range(bones):
            thick = radius * (rng.uniform(0.24, 0.34) if b == 0 else rng.uniform(0.14, 0.22))
            aside = 0.0 if bones == 1 else (0.28 if b else -0.2) * radius * (s or 1.0)
            place = middle + (0, rng.uniform(-0.15, 0.15) * radius, aside)
            for end, part in ((1.0, "upper"), (-1.0, "lower")):
                length = 4 * radius
                centre = place + (joint + end * (length + 2.0), 0, 0)
                bone = tube(centre, (thick, thick), length, turn, flare=rng.uniform(0.5, 1.0))
                a.add(f"{name}{part} bone {b + 1}", bone, "cortical bone")
                a.add(
                    f"{name}{part} marrow {b + 1}",
                    shrink(bone, thick * rng.uniform(0.15, 0.4)),
                    "marrow",
                )
        if rng.random() < 0.6:
            cap = middle + (joint + 0.2 * radius, -0.55 * radius, 0)
            a.organ(f"{name}kneecap", cap, np.array([0.3, 0.14, 0.26]) * radius, "cortical bone")
        for v in range(int(rng.integers(2, 5))):
            angle, r = rng.uniform(0, 2 * np.pi), radius * rng.uniform(0.3, 0.65)
            thin = radius * rng.uniform(0.045, 0.09)
            centre = middle + (0, r * np.sin(angle), r * np.cos(angle))
            a.add(
                f"{name}vessel {v + 1}",
                tube(centre, (thin, thin), turn=turn, sway=radius * 0.1, period=4 * radius),
                "blood",
                within=[*muscles, "fat"],
            )
    return a
