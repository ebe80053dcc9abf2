"""A head."""

from __future__ import annotations

import numpy as np
import torch

from ..anatomy import Anatomy
from ..shapes import Shape, beyond, blob, both, cached, sheets, shell, shrink, tube, union
from .spine import spine, spread


def head(rng: np.random.Generator) -> Anatomy:
    stripped = rng.random() < 0.3
    a = Anatomy("head", 165.0 if stripped else 225.0)
    size = np.array([rng.uniform(82, 98), rng.uniform(84, 100), rng.uniform(66, 80)])
    middle = np.array([0.0 if stripped else 28.0, 0.0, 0.0])

    def at(z: float, y: float, x: float) -> np.ndarray:
        """Scale a place in a cranium of 95 x 95 x 75 mm to this one and move it a little."""
        return middle + np.array([z, y, x]) * size / (95, 95, 75) + rng.uniform(-1.5, 1.5, 3)

    def of(*radii: float) -> np.ndarray:
        return np.array([spread(rng, r) for r in radii]) * size / (95, 95, 75)

    cranium = cached(blob(middle, size, power=2.2, rough=1.5))
    scalp, skull, fluid = rng.uniform(3, 9), rng.uniform(4, 9), rng.uniform(1, 4)
    if not stripped:
        face = blob(middle + (-68, -38, 0), (62, 58, 54), rough=4.0)
        neck = both(tube((0, 22, 0), (58, 56)), beyond(0, 0.0, -1.0))
        outside = cached(union(cranium, face, neck))
        a.add("fat", outside)
        a.add("muscle", shrink(outside, scalp))
        a.add("fat", both(shrink(union(face, neck), scalp), sheets(1, 0.14)), within=["muscle"])
        spine(rng, a, 38.0, 17.0, 0.0)
        a.add("skull", both(shrink(cranium, scalp), beyond(0, middle[0] - 62)), "cortical bone")
        if skull > 6:
            a.add(
                "diploe",
                both(
                    shell(cranium, scalp + 0.35 * skull, scalp + 0.68 * skull),
                    beyond(0, middle[0] - 40),
                ),
                "marrow",
            )
        for side in (-1, 1):
            a.organ(
                "facial bones",
                middle + (-62, -55, side * 30),
                (12, 26, 20),
                "cortical bone",
                rough=5.0,
            )
            eye = middle + (-34, -61, side * 31)
            a.organ(
                "orbital fat",
                eye + (0, 8, 0),
                (18, 22, 18),
                "fat",
                ["muscle", "skull", "facial bones"],
            )
            name = "left eye" if side > 0 else "right eye"
            a.organ(name, eye, (12.5, 12.5, 12.5), "vitreous")
            a.organ("lenses", eye + (0, -9, 0), (5, 2.5, 5), "lens")
            if rng.random() < 0.8:
                a.organ("sinuses", middle + (-62, -58, side * 26), (15, 14, 12), "gas", rough=2.0)
            a.add(
                "vessels",
                tube((0, 8, side * 34), (4.5, 4.5), sway=6.0, period=150),
                "blood",
                within=["muscle", "fat"],
            )
        a.organ("nasal cavity", middle + (-64, -70, 0), (24, 28, 13), "gas", rough=2.0)
        a.add(
            "airway",
            both(tube((0, -18, 0), (9, 11), sway=4.0), beyond(0, middle[0] - 66, -1.0)),
            "gas",
        )
        arch = blob(middle + (-112, -42, 0), (14, 46, 46), power=2.5)
        a.add("mandible", both(shell(arch, 0.0, 11.0), beyond(1, -20.0, -1.0)), "cortical bone")
        a.organ("tongue", middle + (-92, -52, 0), (22, 34, 24), "muscle 2")
    depth = scalp + skull
    a.add("fluid", both(shrink(cranium, depth), beyond(0, middle[0] - 46)), "fluid")
    lobes = cached(both(shrink(cranium, depth + fluid), beyond(0, middle[0] - 32)))
    halves = {"left": beyond(2, 0.8), "right": beyond(2, -0.8, -1.0)}
    thick, fold = rng.uniform(2.0, 3.5), rng.uniform(9, 15)
    white: Shape = lambda p, n: lobes(p, n) + thick + fold * torch.relu(0.75 - n[2].abs())
    for name, half in halves.items():
        a.add(f"{name} cortex", both(lobes, half), "grey matter")
    furrows: Shape = lambda p, n: torch.maximum(n[2].abs() - 0.16, -18.0 - lobes(p, n))
    a.add("fluid", furrows, within=["left cortex", "right cortex"])
    for name, half in halves.items():
        a.add(
            f"{name} white matter",
            both(white, half),
            "white matter",
            within=["left cortex", "right cortex"],
        )
    for name, s in (("left", 1.0), ("right", -1.0)):
        a.organ(
            f"{name} putamen",
            at(2, -10, s * 25),
            of(11, 19, 6),
            "grey matter 2",
            turn=(0.25 * s, 0, 0),
        )
        a.organ(
            f"{name} caudate",
            at(16, -20, s * 14),
            of(10, 14, 5),
            "grey matter 2",
            turn=(-0.2 * s, 0, 0),
        )
        a.organ(f"{name} thalamus", at(2, 12, s * 10), of(9, 15, 9), "grey matter 2")
        a.organ(
            f"{name} hippocampus",
            at(-22, 16, s * 26),
            of(7, 18, 7),
            "grey matter",
            turn=(0.2 * s, 0.3, 0),
        )
        a.organ(f"{name} cerebellum", at(-40, 52, s * 22), of(21, 24, 26), "cerebellum", rough=1.5)
        a.organ(f"{name} arbor", at(-38, 46, s * 16), of(8, 13, 14), "white matter", rough=4.0)
        wide, place = rng.uniform(3, 9), at(18, 4, s * 10)
        a.add(
            f"{name} ventricle",
            tube(place, (wide, rng.uniform(3, 7)), 30.0, (0, 0, 1.45), sway=4.0, period=110),
            "fluid",
            (place, 42.0),
        )
        a.organ(f"{name} ventricle", at(6, 36, s * 17), of(6, 12, 5), "fluid")
    a.organ("third ventricle", at(-2, 6, 0), of(9, 13, 1.8), "fluid")
    a.organ("brain stem", at(-38, 20, 0), of(30, 13, 13), "white matter")
    a.organ("fourth ventricle", at(-38, 36, 0), of(10, 4, 7), "fluid")
    a.add(
        "sagittal sinus",
        both(
            shell(cranium, depth, depth + 5.0),
            beyond(2, -4.0),
            beyond(2, 4.0, -1.0),
            beyond(0, 10.0),
        ),
        "blood",
    )
    return a
