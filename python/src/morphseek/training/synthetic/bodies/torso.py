"""A torso."""

from __future__ import annotations

import numpy as np

from ..anatomy import Anatomy
from ..shapes import (
    Shape,
    above,
    beyond,
    blob,
    both,
    cached,
    complement,
    sheets,
    shell,
    shrink,
    tube,
    union,
)
from .spine import spine, spread


def torso(rng: np.random.Generator) -> Anatomy:
    a = Anatomy("torso", 360.0)
    wide, deep = rng.uniform(135, 185), rng.uniform(92, 128)
    scale = np.array([spread(rng, 1.0, 0.1), deep / 108, wide / 158])
    # The field of view lies anywhere between the upper chest and the pelvis; `shift` is the place
    # of the diaphragm.
    shift = rng.uniform(-140, 170)

    def at(z: float, y: float, x: float, loose: float = 6.0) -> np.ndarray:
        return (np.array([z, y, x]) + rng.uniform(-loose, loose, 3)) * scale + (shift, 0, 0)

    def of(*radii: float) -> np.ndarray:
        return np.array([spread(rng, r) for r in radii]) * scale

    def turn(size: float = 0.4) -> np.ndarray:
        return rng.uniform(-size, size, 3)

    outside = tube((0, 0, 0), (deep, wide), power=2.6)
    body = cached(lambda p, n: outside(p, n) + 4.0 * n[0])
    fat, wall = rng.uniform(6, 30), rng.uniform(12, 20)
    a.add("skin", body)
    a.add("fat", shrink(body, rng.uniform(2, 4)))
    a.add("muscle", shrink(body, fat))
    a.add("fat", both(shrink(body, fat), sheets(1, 0.1)), within=["muscle"])
    cavity = cached(both(shrink(body, fat + wall), beyond(1, 58.0 * scale[1], -1.0)))
    a.add("cavity", cavity, "visceral fat")
    # Bowel: level sets of the middle noise, with a wall around the content.
    belly = both(shrink(cavity, 4.0), beyond(0, shift - 20.0, -1.0))
    level = rng.uniform(-0.3, 0.3)
    a.add("bowel", both(belly, above(1, level)), "bowel wall")
    a.add(
        "bowel content",
        both(belly, above(1, level + 0.45)),
        "gas" if rng.random() < 0.25 else "bowel content",
    )
    for s, side in ((1.0, "left"), (-1.0, "right")):
        centre = (shift, 62 * scale[1], s * 42 * scale[2])
        a.add(
            f"{side} psoas",
            both(tube(centre, (21, 22), turn=(0, -s * 0.12, 0)), beyond(0, shift + 10, -1.0)),
            "muscle",
        )
        hip = at(-215, 22, s * 82)
        a.add(
            f"{side} hip",
            shell(blob(hip, (72, 62, 46), rough=2.0), 0.0, rng.uniform(10, 16)),
            "cortical bone",
            (hip, 84.0),
        )
        a.add(
            f"{side} hip marrow",
            shell(blob(hip, (72, 62, 46), rough=2.0), 3.0, 10.0),
            "marrow",
            (hip, 84.0),
            [f"{side} hip"],
        )
    slope, pitch = rng.uniform(0.3, 0.6), rng.uniform(24, 34)
    ribs: Shape = lambda p, n: (((p[0] - slope * p[1]) % pitch) - pitch / 2).abs() - pitch * 0.24
    cage = both(shell(body, fat + 3, fat + wall - 2), beyond(0, shift - 15))
    a.add("ribs", both(cage, ribs), "cortical bone")
    a.add(
        "rib marrow",
        both(shell(body, fat + 5.5, fat + wall - 4.5), beyond(0, shift - 12), shrink(ribs, 2.5)),
        "marrow",
    )
    a.add("cavity", both(cavity, beyond(0, shift + 5)), "visceral fat")
    for s, side in ((1.0, "left"), (-1.0, "right")):
        # The base of a lung is hollowed by the dome of the diaphragm.
        dome = blob(at(0, 0, s * 70), (48, 96 * scale[1], 72 * scale[2]))
        lung = cached(
            both(blob(at(95, 4, s * 72, 3), of(135, 82, 58), power=2.5), cavity, complement(dome))
        )
        a.add(f"{side} lung", lung, "lung")
        a.add(f"{side} lung vessels", both(lung, above(2, 1.5)), "blood")
    heart, rotation = at(62, -26, 22), turn(0.3)
    size = of(44, 38, 44)
    a.organ("heart", heart, size, "heart muscle", turn=rotation, rough=2.0)
    a.organ("left chamber", heart + (-4, 0, 14), size * 0.45, "blood", turn=rotation)
    a.organ("right chamber", heart + (4, -6, -16), size * 0.42, "blood", turn=rotation)
    lobe = blob(at(-14, -4, -66), of(68, 74, 64), turn(0.3), 2.3, 3.0)
    small = blob(at(2, -34, 0), of(34, 30, 66), turn(0.3), 2.0, 3.0)
    liver = cached(both(union(lobe, small), shrink(cavity, 2.0)))
    a.add("liver", liver, "liver")
    a.add("liver vessels", both(shrink(liver, 8.0), sheets(2, 0.06), above(1, 0.2)), "blood")
    if rng.random() < 0.8:
        a.organ("gall bladder", at(-52, -46, -42), of(22, 12, 12), "fluid", turn=turn())
    stomach = blob(at(-8, -26, 62), of(42, 34, 34), turn(0.6), 2.0, 3.0)
    a.add("stomach", both(stomach, cavity), "bowel wall")
    a.add(
        "stomach content",
        both(shrink(stomach, 5.0), cavity),
        "gas" if rng.random() < 0.3 else "stomach content",
    )
    spleen = at(0, 42, 106)
    a.add(
        "spleen",
        both(blob(spleen, of(46, 36, 22), turn(), 2.0, 2.0), shrink(cavity, -6.0)),
        "spleen",
        (spleen, 75.0),
    )
    a.organ("pancreas", at(-42, 4, 18), of(10, 11, 52), "pancreas", turn=turn(0.3), rough=3.0)
    spine(rng, a, 58 * scale[1], rng.uniform(19, 25), rng.uniform(0, 9))
    for s, side in ((1.0, "left"), (-1.0, "right")):
        kidney, rotation, size = (
            at(-66 + 6 * s, 50, s * 68),
            (turn(0.2) + (0, -0.25 * s, 0)),
            of(50, 26, 28),
        )
        a.organ("fat", kidney, size * 1.25, turn=rotation)
        a.organ(f"{side} kidney", kidney, size, "renal cortex", turn=rotation, rough=1.0)
        a.organ(f"{side} medulla", kidney, size * 0.68, "renal medulla", turn=rotation, rough=2.0)
        a.organ(
            f"{side} pelvis",
            kidney + (0, -6, -8 * s),
            size * (0.4, 0.4, 0.45),
            "fluid",
            turn=rotation,
        )
        a.add(
            "vessels",
            both(
                tube((shift, 30 * scale[1], s * 34), (6, 6), turn=(0, s * 0.28, 0)),
                beyond(0, shift - 150, -1.0),
            ),
            "blood",
        )
    a.add(
        "aorta",
        tube((0, 28 * scale[1], 10), (rng.uniform(9, 13),) * 2, sway=4.0, period=260),
        "blood",
    )
    a.add(
        "vena cava",
        tube(
            (0, 24 * scale[1], -20), (rng.uniform(9, 13), rng.uniform(8, 15)), sway=4.0, period=300
        ),
        "blood 2",
    )
    a.add(
        "oesophagus",
        both(tube((0, 24 * scale[1], -2), (7, 9)), beyond(0, shift + 10)),
        "bowel wall",
    )
    a.add("airway", both(tube((0, 2, 0), (9, 9), sway=3.0), beyond(0, shift + 110)), "gas")
    a.organ("bladder", at(-245, -30, 0), of(36, 34, 40), "urine", rough=2.0)
    return a
