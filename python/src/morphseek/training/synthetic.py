"""Made-up pairs with a known truth: random anatomy, two subjects of it, each in a contrast of its
own.

A network that is trained on these alone has seen no patient and no scanner, and so no contrast that
it could come to expect (SynthMorph, Hoffmann et al., IEEE TMI 2022; SynthSeg, Billot et al.,
Medical Image Analysis 2023). A pair is made in four steps:

1. *Anatomy.* A head, a torso, a limb or an abstract medley, with random sizes, places and presence
   of what is in it: nested
   layers (skin, skull, cortex), organs, bones and vessels as tubes, folds and partitions along the
   level sets of smooth noise. It is a formula over a space in millimetres, not an array
   (:class:`Anatomy`).
2. *Two subjects.* Each maps its voxels to the anatomy by an affine and the flow of a smooth random
   velocity
   (:class:`Subject`). The formula is evaluated at the mapped points, so that nothing is resampled
   and the map between the subjects, ``Phi = moving^-1 o fixed``, is known both ways.
3. *Two images.* Random mean and texture of every tissue, independent for the two unless
   ``same_contrast`` falls; point
   spread, bias field, thick slices, noise, window and exponent; a field of view that may end inside
   the body.
4. *Labels.* As many structures as ``data.labels`` says, drawn from those that both subjects show
   well.

Everything about pair number ``n`` comes from a generator seeded with (seed, stream, n). Axes are z,
y, x, and z points to the head, y to the back and x to the left (canonical LPS). The images are on
the network grid already and aligned but for the residual that an affine initial transform leaves.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .config import ConfigError, Synthetic
from .data import Sample, rotation
from .spatial import identity_grid, integrate_velocity, sample

__all__ = ["BODIES", "Anatomy", "Subject", "SyntheticPair", "SyntheticSource"]

#: Voxels between the nodes of the lattice of a velocity, and of anatomical noise, which is finer.
STRIDE, NOISE_STRIDE = 3, 2
#: A lattice reaches this share of the grid's size beyond it on either side.
MARGIN = 0.15
#: A structure can be a label if both subjects show this share of the grid's voxels of it, and if
# it is not too thin for : them: read at the nearest voxels, this share of the smaller must agree
# under the true map.
LEAST_SHARE, LEAST_AGREEMENT = 4e-4, 0.75
#: A pair with fewer such structures is drawn again.
LEAST_LABELS = 4

# -- smooth noise ----------------------------------------------------------------------------------


def smooth_noise(
    rng: np.random.Generator, channels: int, size: Sequence[int], scale: float
) -> Tensor:
    """A Gaussian process with mean 0 and variance 1, (1, channels, D, H, W).

    White noise on a control grid every ``scale`` nodes, spread by Gaussians (infinitely smooth,
    unlike linear interpolation) and normalised at every node.
    """
    weights = []
    for n in size:
        control = np.arange(-1.5 * scale, n - 1 + 2.5 * scale, scale)
        w = np.exp(-0.5 * ((np.arange(n)[:, None] - control) / (0.65 * scale)) ** 2)
        weights.append(
            torch.from_numpy((w / np.sqrt((w**2).sum(1, keepdims=True))).astype(np.float32))
        )
    z, y, x = weights
    white = torch.from_numpy(
        rng.standard_normal((channels, z.shape[1], y.shape[1], x.shape[1]), dtype=np.float32)
    )
    return torch.einsum("czyx,wx,hy,dz->cdhw", white, x, y, z)[None]


# -- shapes ----------------------------------------------------------------------------------------

#: Points (3, ...) in mm and noise (3, ...) to a value (...) that is negative inside, about a
# distance in mm.
Shape = Callable[[Tensor, Tensor], Tensor]


def _rotation(turn: Sequence[float]) -> np.ndarray:
    """Rotation about z, then y, then x, by radians; 3x3 for (z, y, x) vectors."""
    z, y, x = (rotation(axis, t) for axis, t in enumerate(turn))
    return x @ (y @ z)


def blob(
    centre: Sequence[float],
    radii: Sequence[float],
    turn: Sequence[float] | None = None,
    power: float = 2.0,
    rough: float = 0.0,
) -> Shape:
    """A superellipsoid; ``rough`` mm of middle-sized noise on its surface."""

    def distance(p: Tensor, noise: Tensor) -> Tensor:
        d = [p[i] - centre[i] for i in range(3)]
        if turn is not None:
            r = _rotation(turn)
            d = [sum(float(r[i, j]) * d[j] for j in range(3)) for i in range(3)]
        s = sum(
            (d[i] / radii[i]).square() if power == 2.0 else (d[i] / radii[i]).abs().pow(power)
            for i in range(3)
        )
        s = (s.clamp_min(1e-12).pow(1.0 / power) - 1.0) * float(min(radii))
        return s + rough * noise[1] if rough else s

    return distance


def tube(
    centre: Sequence[float],
    radii: Sequence[float],
    half: float = 1e4,
    turn: Sequence[float] | None = None,
    sway: float = 0.0,
    period: float = 200.0,
    phase: float = 0.0,
    power: float = 2.0,
    flare: float = 0.0,
) -> Shape:
    """A tube along z (turned by ``turn``) of ``half`` its length, with elliptic section (``radii``
    along y and x).

    Its middle sways along y by ``sway`` mm with the given period; towards its ends the section
    grows by the share ``flare``.
    """

    def distance(p: Tensor, noise: Tensor) -> Tensor:
        d = [p[i] - centre[i] for i in range(3)]
        if turn is not None:
            r = _rotation(turn)
            d = [sum(float(r[i, j]) * d[j] for j in range(3)) for i in range(3)]
        z, y, x = d
        if sway:
            y = y - sway * torch.sin(z * (2 * np.pi / period) + phase)
        if power == 2.0:
            s = ((y / radii[0]).square() + (x / radii[1]).square()).sqrt()
        else:
            s = ((y / radii[0]).abs().pow(power) + (x / radii[1]).abs().pow(power)).pow(1.0 / power)
        if flare:
            s = s / (1.0 + flare * torch.exp((z.abs() - half) / (1.2 * max(radii))).clamp_max(1.0))
        s = (s - 1.0) * float(min(radii))
        return torch.maximum(s, z.abs() - half) if half < 1e4 else s

    return distance


def kept(shape: Shape) -> Shape:
    """The same shape; evaluated again at the points it saw last, it knows the answer. For what many
    layers derive from.
    """
    last: list = [None, None]

    def distance(p: Tensor, n: Tensor) -> Tensor:
        if last[0] is not p:
            last[:] = p, shape(p, n)
        return last[1]

    return distance


def union(*shapes: Shape) -> Shape:
    return lambda p, n: functools.reduce(torch.minimum, (s(p, n) for s in shapes))


def both(*shapes: Shape) -> Shape:
    """The intersection."""
    return lambda p, n: functools.reduce(torch.maximum, (s(p, n) for s in shapes))


def shrink(shape: Shape, by: float) -> Shape:
    return lambda p, n: shape(p, n) + by


def shell(shape: Shape, outer: float, inner: float) -> Shape:
    """The layer between ``outer`` and ``inner`` mm under the surface."""

    def distance(p: Tensor, n: Tensor) -> Tensor:
        d = shape(p, n)
        return torch.maximum(d + outer, -inner - d)

    return distance


def beyond(axis: int, at: float, sign: float = 1.0) -> Shape:
    """The half-space where ``sign * (p[axis] - at)`` is positive."""
    return lambda p, n: -sign * (p[axis] - at)


def sheets(channel: int, width: float, at: float = 0.0) -> Shape:
    """Curved sheets along a level set of a noise channel (0 coarse, 1 middle, 2 fine); ``width`` in
    its sd.
    """
    return lambda p, n: (n[channel] - at).abs() - width


def above(channel: int, level: float) -> Shape:
    """Where a noise channel exceeds ``level`` sd."""
    return lambda p, n: level - n[channel]


# -- anatomy ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Part:
    structure: int
    shape: Shape
    ball: tuple[Sequence[float], float] | None
    within: tuple[int, ...]


class Anatomy:
    """Structures as a list of shapes, painted over each other in order.

    Parameters
    ----------
    name : str
        One of :data:`BODIES`.
    extent : float
        Width in mm that a field of view of coverage 1 has.

    Attributes
    ----------
    structures : list of str
        Names; the index is the value in :meth:`render`. Structure 0 is what is around the body.
    tissues : list of int
        Tissue of every structure: the two kidneys are two structures of one tissue.
    tissue_names : list of str
    """

    def __init__(self, name: str, extent: float):
        self.name = name
        self.extent = extent
        self.structures = ["around"]
        self.tissues = [0]
        self.tissue_names = ["air"]
        self._parts: list[_Part] = []

    def add(
        self,
        structure: str,
        shape: Shape,
        tissue: str = "",
        ball: tuple[Sequence[float], float] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        """Paint a shape.

        Parameters
        ----------
        structure, tissue : str
            A known structure gets one more part. Tissues with names of their own default to the
            structure's.
        shape : Shape
        ball : ((z, y, x), radius), optional
            Nothing is painted outside this ball, in mm: it saves the evaluation.
        within : list of str
            Paint only over these structures.
        """
        tissue = tissue or structure
        if structure not in self.structures:
            if tissue not in self.tissue_names:
                self.tissue_names.append(tissue)
            self.structures.append(structure)
            self.tissues.append(self.tissue_names.index(tissue))
        where = tuple(self.structures.index(s) for s in within if s in self.structures)
        if where or not within:
            self._parts.append(_Part(self.structures.index(structure), shape, ball, where))

    def organ(
        self,
        structure: str,
        centre: Sequence[float],
        radii: Sequence[float],
        tissue: str = "",
        within: Sequence[str] = (),
        **options,
    ) -> Shape:
        """Paint a :func:`blob` and return it."""
        shape = blob(centre, radii, **options)
        self.add(
            structure,
            shape,
            tissue,
            (centre, 1.1 * max(radii) + 3.0 * options.get("rough", 0.0)),
            within,
        )
        return shape

    def render(self, points: Tensor, noise: Tensor) -> Tensor:
        """Structures at points.

        Parameters
        ----------
        points : (3, D, H, W)
            mm, neighbours in the array are neighbours in space.
        noise : (3, D, H, W)
            Coarse, middle and fine anatomical noise there.

        Returns
        -------
        Tensor of shape (D, H, W), uint8
        """
        out = torch.zeros(points.shape[1:], dtype=torch.uint8)
        coarse = points[:, ::4, ::4, ::4]
        # A point is at most this far from the nearest one of the coarse subset, whose diagonal is
        # stretched by the map.
        slack = float((coarse[:, 1:, 1:, 1:] - coarse[:, :-1, :-1, :-1]).norm(dim=0).amax())
        for part in self._parts:
            target, p, n = out, points, noise
            if part.ball is not None:
                centre = torch.tensor(part.ball[0], dtype=torch.float32).view(3, 1, 1, 1)
                near = ((coarse - centre).square().sum(0) < (part.ball[1] + slack) ** 2).nonzero()
                if not len(near):
                    continue
                low, high = near.amin(0).tolist(), near.amax(0).tolist()
                view = tuple(slice(max(4 * a - 3, 0), 4 * b + 4) for a, b in zip(low, high))
                target, p, n = (v[(..., *view)] for v in (out, points, noise))
            inside = part.shape(p, n) < 0
            if part.within:
                inside &= functools.reduce(torch.logical_or, (target == w for w in part.within))
            target.masked_fill_(inside, part.structure)
        return out


def _spread(rng: np.random.Generator, value: float, share: float = 0.2) -> float:
    return float(value * np.exp(share * rng.uniform(-1, 1)))


def _spine(rng: np.random.Generator, a: Anatomy, y: float, radius: float, sway: float) -> None:
    """Vertebrae and discs by turns, arches behind, the cord in its canal."""
    height, phase = radius * rng.uniform(1.5, 1.9), rng.uniform(0, 30)
    path = {"sway": sway, "period": rng.uniform(350, 600), "phase": rng.uniform(0, 6)}
    gap = lambda p, n: height * 0.38 - ((p[0] + phase) % height - height / 2).abs()
    body = tube((0, y, 0), (radius * 0.8, radius), **path)
    a.add("vertebrae", body, "cortical bone")
    a.add("vertebrae marrow", shrink(body, 1.8), "marrow")
    a.add("discs", both(body, gap), "cartilage")
    behind = y + radius * 1.5
    a.add(
        "vertebrae",
        both(
            tube((0, behind + 8, 0), (radius * 0.8, radius * 0.35), **path),
            lambda p, n: -4.0 - gap(p, n),
        ),
        "cortical bone",
    )
    a.add(
        "vertebrae", tube((0, behind, 0), (radius * 0.55, radius * 0.62), **path), "cortical bone"
    )
    a.add("canal", tube((0, behind, 0), (radius * 0.4, radius * 0.48), **path), "fluid")
    a.add("cord", tube((0, behind, 0), (radius * 0.22, radius * 0.28), **path), "white matter")


def _head(rng: np.random.Generator) -> Anatomy:
    stripped = rng.random() < 0.3
    a = Anatomy("head", 165.0 if stripped else 225.0)
    size = np.array([rng.uniform(82, 98), rng.uniform(84, 100), rng.uniform(66, 80)])
    middle = np.array([0.0 if stripped else 28.0, 0.0, 0.0])

    def at(z: float, y: float, x: float) -> np.ndarray:
        """A place in a cranium of 95 x 95 x 75 mm, in this one, a little off."""
        return middle + np.array([z, y, x]) * size / (95, 95, 75) + rng.uniform(-1.5, 1.5, 3)

    def of(*radii: float) -> np.ndarray:
        return np.array([_spread(rng, r) for r in radii]) * size / (95, 95, 75)

    cranium = kept(blob(middle, size, power=2.2, rough=1.5))
    scalp, skull, fluid = rng.uniform(3, 9), rng.uniform(4, 9), rng.uniform(1, 4)
    if not stripped:
        face = blob(middle + (-68, -38, 0), (62, 58, 54), rough=4.0)
        neck = both(tube((0, 22, 0), (58, 56)), beyond(0, 0.0, -1.0))
        outside = kept(union(cranium, face, neck))
        a.add("fat", outside)
        a.add("muscle", shrink(outside, scalp))
        a.add("fat", both(shrink(union(face, neck), scalp), sheets(1, 0.14)), within=["muscle"])
        _spine(rng, a, 38.0, 17.0, 0.0)
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
    lobes = kept(both(shrink(cranium, depth + fluid), beyond(0, middle[0] - 32)))
    halves = {"left": beyond(2, 0.8), "right": beyond(2, -0.8, -1.0)}
    thick, fold = rng.uniform(2.0, 3.5), rng.uniform(9, 15)
    white: Shape = lambda p, n: lobes(p, n) + thick + fold * torch.relu(0.75 - n[2].abs())
    for side, half in halves.items():
        a.add(f"{side} cortex", both(lobes, half), "grey matter")
    furrows: Shape = lambda p, n: torch.maximum(n[2].abs() - 0.16, -18.0 - lobes(p, n))
    a.add("fluid", furrows, within=["left cortex", "right cortex"])
    for side, half in halves.items():
        a.add(
            f"{side} white matter",
            both(white, half),
            "white matter",
            within=["left cortex", "right cortex"],
        )
    for side, s in (("left", 1.0), ("right", -1.0)):
        a.organ(
            f"{side} putamen",
            at(2, -10, s * 25),
            of(11, 19, 6),
            "grey matter 2",
            turn=(0.25 * s, 0, 0),
        )
        a.organ(
            f"{side} caudate",
            at(16, -20, s * 14),
            of(10, 14, 5),
            "grey matter 2",
            turn=(-0.2 * s, 0, 0),
        )
        a.organ(f"{side} thalamus", at(2, 12, s * 10), of(9, 15, 9), "grey matter 2")
        a.organ(
            f"{side} hippocampus",
            at(-22, 16, s * 26),
            of(7, 18, 7),
            "grey matter",
            turn=(0.2 * s, 0.3, 0),
        )
        a.organ(f"{side} cerebellum", at(-40, 52, s * 22), of(21, 24, 26), "cerebellum", rough=1.5)
        a.organ(f"{side} arbor", at(-38, 46, s * 16), of(8, 13, 14), "white matter", rough=4.0)
        wide, place = rng.uniform(3, 9), at(18, 4, s * 10)
        a.add(
            f"{side} ventricle",
            tube(place, (wide, rng.uniform(3, 7)), 30.0, (0, 0, 1.45), sway=4.0, period=110),
            "fluid",
            (place, 42.0),
        )
        a.organ(f"{side} ventricle", at(6, 36, s * 17), of(6, 12, 5), "fluid")
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


def _torso(rng: np.random.Generator) -> Anatomy:
    a = Anatomy("torso", 360.0)
    wide, deep = rng.uniform(135, 185), rng.uniform(92, 128)
    scale = np.array([_spread(rng, 1.0, 0.1), deep / 108, wide / 158])
    # The field of view sits anywhere between the upper chest and the pelvis; the place of the
    # diaphragm says where.
    shift = rng.uniform(-140, 170)

    def at(z: float, y: float, x: float, loose: float = 6.0) -> np.ndarray:
        return (np.array([z, y, x]) + rng.uniform(-loose, loose, 3)) * scale + (shift, 0, 0)

    def of(*radii: float) -> np.ndarray:
        return np.array([_spread(rng, r) for r in radii]) * scale

    def turn(size: float = 0.4) -> np.ndarray:
        return rng.uniform(-size, size, 3)

    outside = tube((0, 0, 0), (deep, wide), power=2.6)
    body = kept(lambda p, n: outside(p, n) + 4.0 * n[0])
    fat, wall = rng.uniform(6, 30), rng.uniform(12, 20)
    a.add("skin", body)
    a.add("fat", shrink(body, rng.uniform(2, 4)))
    a.add("muscle", shrink(body, fat))
    a.add("fat", both(shrink(body, fat), sheets(1, 0.1)), within=["muscle"])
    cavity = kept(both(shrink(body, fat + wall), beyond(1, 58.0 * scale[1], -1.0)))
    a.add("cavity", cavity, "visceral fat")
    # Bowel: level sets of the middle noise, wall around content.
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
        lung = kept(
            both(
                blob(at(95, 4, s * 72, 3), of(135, 82, 58), power=2.5),
                cavity,
                lambda p, n, d=dome: -d(p, n),
            )
        )
        a.add(f"{side} lung", lung, "lung")
        a.add(f"{side} lung vessels", both(lung, above(2, 1.5)), "blood")
    heart, turned = at(62, -26, 22), turn(0.3)
    size = of(44, 38, 44)
    a.organ("heart", heart, size, "heart muscle", turn=turned, rough=2.0)
    a.organ("left chamber", heart + (-4, 0, 14), size * 0.45, "blood", turn=turned)
    a.organ("right chamber", heart + (4, -6, -16), size * 0.42, "blood", turn=turned)
    lobe = blob(at(-14, -4, -66), of(68, 74, 64), turn(0.3), 2.3, 3.0)
    small = blob(at(2, -34, 0), of(34, 30, 66), turn(0.3), 2.0, 3.0)
    liver = kept(both(union(lobe, small), shrink(cavity, 2.0)))
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
    _spine(rng, a, 58 * scale[1], rng.uniform(19, 25), rng.uniform(0, 9))
    for s, side in ((1.0, "left"), (-1.0, "right")):
        kidney, turned, size = (
            at(-66 + 6 * s, 50, s * 68),
            (turn(0.2) + (0, -0.25 * s, 0)),
            of(50, 26, 28),
        )
        a.organ("fat", kidney, size * 1.25, turn=turned)
        a.organ(f"{side} kidney", kidney, size, "renal cortex", turn=turned, rough=1.0)
        a.organ(f"{side} medulla", kidney, size * 0.68, "renal medulla", turn=turned, rough=2.0)
        a.organ(
            f"{side} pelvis",
            kidney + (0, -6, -8 * s),
            size * (0.4, 0.4, 0.45),
            "fluid",
            turn=turned,
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


def _limb(rng: np.random.Generator) -> Anatomy:
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
        body = kept(lambda p, n, f=outline: f(p, n) + 0.06 * radius * n[0])
        a.add("skin", body)
        a.add("fat", shrink(body, 2.0))
        # Muscles: cells between level sets of the coarse and the middle noise, fat between them.
        inner = shrink(body, fat)
        for k, (lo, hi) in enumerate(((-9.0, -0.45), (-0.45, 0.45), (0.45, 9.0))):
            for half in (-1.0, 1.0):
                cell = both(
                    inner, above(0, lo), lambda p, n, h=hi: n[0] - h, lambda p, n, h=half: h * n[1]
                )
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


def _medley(rng: np.random.Generator) -> Anatomy:
    """No body at all: partitions by noise with blobs and tubes in them, after SynthMorph's
    shapes.
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
        # A body around it all, so that the medley has an outside.
        frame = blob((0, 0, 0), rng.uniform(75, 110, 3), power=2.5, rough=5.0)
        a.add("rim", shell(frame, 0.0, rng.uniform(3, 12)))
        a.add("around", lambda p, n: -frame(p, n))
    return a


BODIES: dict[str, Callable[[np.random.Generator], Anatomy]] = {
    "head": _head,
    "torso": _torso,
    "limb": _limb,
    "medley": _medley,
}
"""The kinds of anatomy by name; each makes a random one."""


# -- subjects --------------------------------------------------------------------------------------


class _Lattice:
    """The geometry of a lattice that covers a voxel grid with a margin, every ``stride`` voxels."""

    def __init__(self, size: Sequence[int], stride: int):
        self.stride = stride
        before = [int(np.ceil(MARGIN * n / stride)) for n in size]
        self.size = [int(np.ceil((n - 1) / stride)) + 1 + 2 * b for n, b in zip(size, before)]
        self._shift = torch.tensor(before, dtype=torch.float32).view(1, 3, 1, 1, 1)

    def read(self, values: Tensor, points: Tensor) -> Tensor:
        """Values (1, C, *lattice) at voxel coordinates (1, 3, D, H, W); beyond the lattice its
        border holds.
        """
        return sample(values, points / self.stride + self._shift, padding="border")


class Subject:
    """One body: the map from the voxels of its grid to the anatomy's, and back.

    Parameters
    ----------
    size : (D, H, W)
        Of the grid, voxels.
    velocity : (1, 3, d, h, w)
        On the lattice of the grid, in its nodes per unit time.
    affine : ndarray of shape (3, 4)
        Applied first; voxels about the middle of the grid.
    """

    SQUARINGS = 5

    def __init__(self, size: Sequence[int], velocity: Tensor, affine: np.ndarray):
        self.lattice = _Lattice(size, STRIDE)
        self.velocity = velocity
        self.affine = affine
        self._middle = (torch.tensor(size, dtype=torch.float32) - 1).view(1, 3, 1, 1, 1) / 2

    @functools.cached_property
    def _forward(self) -> Tensor:
        return integrate_velocity(self.velocity, self.SQUARINGS) * STRIDE

    @functools.cached_property
    def _backward(self) -> Tensor:
        return integrate_velocity(-self.velocity, self.SQUARINGS) * STRIDE

    def _linear(self, points: Tensor, a: np.ndarray) -> Tensor:
        a = torch.as_tensor(a, dtype=torch.float32)
        moved = torch.einsum("ij,bjdhw->bidhw", a[:, :3], points - self._middle)
        return moved + a[:, 3].view(1, 3, 1, 1, 1) + self._middle

    def to_anatomy(self, points: Tensor) -> Tensor:
        """Voxel coordinates (1, 3, D, H, W) of the grid to the anatomy's."""
        points = self._linear(points, self.affine)
        return points + self.lattice.read(self._forward, points)

    def from_anatomy(self, points: Tensor) -> Tensor:
        """The inverse of :meth:`to_anatomy`."""
        points = points + self.lattice.read(self._backward, points)
        inverse = np.linalg.inv(self.affine[:, :3])
        return self._linear(
            points, np.concatenate((inverse, -inverse @ self.affine[:, 3:]), axis=1)
        )


@dataclasses.dataclass
class SyntheticPair:
    """A pair and all that is known of it.

    Attributes
    ----------
    sample : Sample
        What the network sees, and the truth as a displacement.
    anatomy : Anatomy
    fixed_structures, moving_structures : (D, H, W), uint8
        Every structure, also outside the field of view.
    labels : list of str
        Structure of every label channel that is in use.
    fixed, moving : Subject
    """

    sample: Sample
    anatomy: Anatomy
    fixed_structures: Tensor
    moving_structures: Tensor
    labels: list[str]
    fixed: Subject
    moving: Subject

    def to_moving(self, points: Tensor) -> Tensor:
        """The truth: voxels (1, 3, D, H, W) of the fixed grid to the moving one's."""
        return self.moving.from_anatomy(self.fixed.to_anatomy(points))

    def to_fixed(self, points: Tensor) -> Tensor:
        """The truth's inverse."""
        return self.fixed.from_anatomy(self.moving.to_anatomy(points))


# -- images ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Contrast:
    """How a scanner would see the tissues: mean, texture of either noise, in intensity units of [0,
    1].
    """

    mean: np.ndarray
    middle: np.ndarray
    fine: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator, anatomy: Anatomy, texture: float) -> _Contrast:
        n = max(anatomy.tissues) + 1
        mean = rng.uniform(0.05, 1.0, n)
        if anatomy.name != "medley":
            # Air is dark nearly always, and gas in the body is air.
            mean[0] = rng.uniform(0, 0.05) if rng.random() < 0.9 else rng.uniform(0, 1)
            names = anatomy.tissue_names
            if "gas" in names:
                mean[names.index("gas")] = mean[0]
        middle, fine = (
            texture * rng.uniform(0, 1, n) ** 2 * rng.choice((-1, 1), n) for _ in range(2)
        )
        middle[0] = fine[0] = 0.0
        return cls(mean, middle, fine)

    def jitter(self, rng: np.random.Generator) -> _Contrast:
        """Another scan by the same protocol."""
        return dataclasses.replace(self, mean=self.mean + rng.normal(0, 0.02, len(self.mean)))


def _blur(image: Tensor, sd: float) -> Tensor:
    """Gaussian point spread, sd in voxels; (1, 1, D, H, W)."""
    r = max(1, int(np.ceil(2.5 * sd)))
    kernel = torch.exp(-0.5 * (torch.arange(-r, r + 1) / max(sd, 1e-3)).square())
    kernel /= kernel.sum()
    for axis in range(3):
        n, at = image.shape[axis + 2], [0] * 6
        at[2 * (2 - axis)] = at[2 * (2 - axis) + 1] = r
        padded = F.pad(image, at, mode="replicate")
        image = sum(float(k) * padded.narrow(axis + 2, i, n) for i, k in enumerate(kernel))
    return image


def _image(
    rng: np.random.Generator,
    s: Synthetic,
    anatomy: Anatomy,
    contrast: _Contrast,
    structures: Tensor,
    noise: Tensor,
) -> Tensor:
    """What a scanner makes of the structures (D, H, W): (1, 1, D, H, W) in [0, 1]."""
    size = structures.shape
    index = structures.long()

    def table(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values[anatomy.tissues].astype(np.float32))[index]

    image = (
        table(contrast.mean) + table(contrast.middle) * noise[1] + table(contrast.fine) * noise[2]
    )
    image = _blur(image[None, None], rng.uniform(0.3, max(s.blur, 0.3)))
    if s.bias:
        image = image * torch.exp(
            s.bias * rng.random() * smooth_noise(rng, 1, size, 0.5 * max(size))
        )
    thin = image.shape
    thick = rng.uniform(1, s.slices) if s.slices > 1 and rng.random() < 0.4 else 1.0
    if thick > 1.3:
        axis = int(rng.choice(3, p=(0.6, 0.2, 0.2)))
        image = F.interpolate(
            image,
            [max(4, round(n / thick)) if i == axis else n for i, n in enumerate(size)],
            mode="area",
        )
    if s.noise:
        image = image + s.noise * rng.random() ** 2 * torch.from_numpy(
            rng.standard_normal(image.shape, dtype=np.float32)
        )
        if rng.random() < 0.5:
            # magnitude images: no intensity below zero, and a floor of noise in the air
            image = image.abs()
    if image.shape != thin:
        image = F.interpolate(image, size, mode="trilinear", align_corners=False)
    low, high = np.percentile(image[..., ::2, ::2, ::2].numpy(), (0.5, 99.5))
    image = ((image - float(low)) / max(float(high - low), 1e-3)).clamp(0.0, 1.0)
    return image ** float(np.exp(0.25 * rng.standard_normal()))


def _field_of_view(
    rng: np.random.Generator, crop: float, size: Sequence[int], points: Tensor
) -> Tensor:
    """1 where a scan that ends on one or two sides would see, (1, 1, D, H, W); its edges lie a few
    degrees askew.
    """
    inside = torch.ones(1, 1, *points.shape[2:])
    if rng.random() >= crop:
        return inside
    for _ in range(int(rng.integers(1, 3))):
        # Scans end above and below more often than at the sides.
        axis = int(rng.choice(3, p=(0.7, 0.15, 0.15)))
        normal = np.eye(3)[axis] * rng.choice((-1, 1)) + rng.uniform(-0.12, 0.12, 3)
        edge = size[axis] * (0.5 - 0.28 * rng.random())
        along = sum(float(normal[i]) * (points[:, i : i + 1] - (size[i] - 1) / 2) for i in range(3))
        inside *= (along < edge).float()
    return inside


# -- the source ------------------------------------------------------------------------------------


class SyntheticSource:
    """An endless, numbered supply of pairs.

    Parameters
    ----------
    settings : Synthetic
        Section ``[synthetic]`` of the configuration.
    size : (D, H, W)
        Of the grid, voxels.
    labels : int
        K, the label channels of a sample. Channels that a body has no structure for stay empty.
    seed : int
    stream : int
        Another stream of the same seed is another set of pairs: processes and validation have their
        own.
    """

    def __init__(
        self, settings: Synthetic, size: Sequence[int], labels: int, seed: int = 0, stream: int = 0
    ):
        unknown = [b for b in settings.bodies if b not in BODIES]
        if unknown or not settings.bodies:
            raise ConfigError(
                f"'synthetic.bodies': {unknown[0] if unknown else 'nothing'!r}; there are"
                f" {', '.join(BODIES)}"
            )
        if labels < 1:
            raise ConfigError("'data.labels' must be at least 1: synthetic pairs have labels")
        if min(size) < 16:
            raise ConfigError(
                f"'data.min_size' is {list(size)}: synthetic pairs need 16 voxels along each axis"
                " at least"
            )
        settings.at(1 << 62)  # a mistake in a phase must not wait for its visit
        self.settings = settings
        self.size = tuple(size)
        self.labels = labels
        self.seed = seed
        self.stream = stream

    def pair(self, index: int, visit: int | None = None) -> SyntheticPair:
        """Pair number ``index``, as hard as the phases make it at ``visit`` (default: at the end of
        the run).
        """
        s = self.settings.at(1 << 62 if visit is None else visit)
        for attempt in range(20):
            pair = self._draw(np.random.default_rng([self.seed, self.stream, index, attempt]), s)
            if len(pair.labels) >= min(LEAST_LABELS, self.labels):
                return pair
        raise RuntimeError(
            f"synthetic pair {index}: 20 draws in a row showed fewer than {LEAST_LABELS} structures"
            " twice"
        )

    def sample(self, index: int, visit: int | None = None) -> Sample:
        """The sample of :meth:`pair`."""
        return self.pair(index, visit).sample

    def stream_samples(self, items: Iterable[tuple[int, int]], workers: int) -> Iterator[Sample]:
        """Samples of (index, visit) in order, made ahead in ``workers`` processes; 0 makes them
        here.
        """
        from torch.utils.data import DataLoader

        yield from DataLoader(
            _Numbered(self),
            batch_size=None,
            sampler=items,
            num_workers=workers,
            prefetch_factor=4 if workers else None,
        )

    def _draw(self, rng: np.random.Generator, s: Synthetic) -> SyntheticPair:
        size = self.size
        anatomy = BODIES[s.bodies[int(rng.integers(len(s.bodies)))]](rng)
        # The field of view covers more or less than the body; the voxel size in mm follows.
        width = max(size)
        voxel = anatomy.extent * rng.uniform(*s.coverage) / width
        body = anatomy.extent / voxel  # voxels
        coarse, fine = _Lattice(size, STRIDE), _Lattice(size, NOISE_STRIDE)
        # What belongs to the anatomy: its own irregularity, and the noise that its folds and
        # textures follow.
        bend = sum(
            smooth_noise(rng, 3, fine.size, f * body / NOISE_STRIDE) * (0.05 * f * body)
            for f in (0.3, 0.12)
        )
        grain = torch.cat(
            [
                smooth_noise(rng, 1, fine.size, max(f * body, 3.0) / NOISE_STRIDE)
                for f in (0.25, 0.09, 0.04)
            ],
            dim=1,
        )
        character = torch.cat((bend, grain), dim=1)
        pose = _rotation(rng.uniform(-0.25, 0.25, 3)) @ np.diag(
            np.where(rng.random(3) < (0.0, 0.0, 0.5), -1.0, 1.0)
        )
        offset = rng.uniform(-0.08, 0.08, 3) * body * voxel

        def look(subject: Subject) -> tuple[Tensor, Tensor]:
            points = subject.to_anatomy(identity_grid(size, torch.device("cpu")))
            read = fine.read(character, points)
            middle = torch.tensor([(n - 1) / 2 for n in size]).view(1, 3, 1, 1, 1)
            mm = (points + read[:, :3] - middle) * voxel
            mm = torch.einsum("ij,bjdhw->bidhw", torch.as_tensor(pose, dtype=torch.float32), mm)
            mm = mm[0] + torch.as_tensor(offset, dtype=torch.float32).view(3, 1, 1, 1)
            return anatomy.render(mm, read[0, 3:]), read[0, 3:]

        sd = 0.01 * s.deformation * body * rng.uniform(0.3, 1.0)
        fixed = Subject(size, self._velocity(rng, coarse, body, sd), np.eye(3, 4))
        residual = s.residual * rng.uniform(-1, 1, (4, 3))
        linear = _rotation(np.deg2rad(5.0) * residual[0]) @ (
            np.diag(np.exp(0.06 * residual[1])) + 0.03 * (np.ones((3, 3)) - np.eye(3)) * residual[2]
        )
        shift = 0.03 * body * residual[3]
        moving = Subject(
            size,
            self._velocity(rng, coarse, body, sd),
            np.concatenate((linear, shift[:, None]), axis=1),
        )
        f_structures, f_grain = look(fixed)
        m_structures, m_grain = look(moving)

        contrasts = [_Contrast.draw(rng, anatomy, s.texture) for _ in range(2)]
        if rng.random() < s.same_contrast:
            contrasts[1] = contrasts[0].jitter(rng)
        grid = identity_grid(size, torch.device("cpu"))
        f_fov, m_fov = (_field_of_view(rng, s.crop, size, grid) for _ in range(2))
        images = [
            _image(rng, s, anatomy, c, structures, grain) * fov
            for c, structures, grain, fov in zip(
                contrasts, (f_structures, m_structures), (f_grain, m_grain), (f_fov, m_fov)
            )
        ]
        f_seen, m_seen = (
            (v * fov[0, 0]).to(torch.uint8)
            for v, fov in ((f_structures, f_fov), (m_structures, m_fov))
        )
        there = moving.from_anatomy(fixed.to_anatomy(grid))
        chosen = self._choose(rng, f_seen, m_seen, there, len(anatomy.structures))
        maps, hot = [], []
        for seen in (f_seen, m_seen):
            lookup = torch.zeros(len(anatomy.structures))
            for k, structure in enumerate(chosen, 1):
                lookup[structure] = k
            labels = lookup[seen.long()][None, None]
            maps.append(labels)
            hot.append(torch.cat([(labels == k).float() for k in range(1, self.labels + 1)], dim=1))
        # Air tells nothing of its place, and what either scan leaves out cannot be matched.
        known = f_fov * (f_structures > 0) * sample(m_fov, there)
        made = Sample(
            *images,
            f_fov,
            m_fov,
            *hot,
            *maps,
            truth=there - grid,
            truth_mask=(known > 0.99).float(),
        )
        return SyntheticPair(
            made,
            anatomy,
            f_structures,
            m_structures,
            [anatomy.structures[i] for i in chosen],
            fixed,
            moving,
        )

    @staticmethod
    def _velocity(rng: np.random.Generator, lattice: _Lattice, body: float, sd: float) -> Tensor:
        """Smooth noise of several scales; the displacement's standard deviation is about ``sd``
        voxels per component.
        """
        scales = np.array([0.5, 0.25, 0.12])
        # Amplitude falls with the scale, so that the gradient, and with it the change of volume, is
        # alike at all of them.
        share = scales * rng.uniform(0.2, 1.0, 3)
        share = share / np.linalg.norm(share) * sd / STRIDE
        return sum(
            smooth_noise(rng, 3, lattice.size, f * body / STRIDE) * float(a)
            for f, a in zip(scales, share)
        )

    def _choose(
        self, rng: np.random.Generator, fixed: Tensor, moving: Tensor, there: Tensor, count: int
    ) -> list[int]:
        """Structures for the labels, from the maps (D, H, W) of what is seen and the true points
        (1, 3, D, H, W).
        """
        read = sample(moving[None, None].float(), there, mode="nearest")[0, 0].to(torch.uint8)

        def sizes(values: Tensor) -> Tensor:
            return torch.bincount(values.flatten().long(), minlength=count)

        n_fixed, n_moving, n_read, cross = (
            sizes(v) for v in (fixed, moving, read, fixed * (fixed == read))
        )
        # Of the smaller: what the other field of view leaves out is no disagreement.
        agreement = cross / torch.minimum(n_fixed, n_read).clamp_min(1)
        good = (torch.minimum(n_fixed, n_moving) >= LEAST_SHARE * fixed.numel()) & (
            agreement >= LEAST_AGREEMENT
        )
        good[0] = False
        return sorted(rng.permutation(good.nonzero()[:, 0].numpy())[: self.labels].tolist())


class _Numbered(torch.utils.data.Dataset):
    def __init__(self, source: SyntheticSource):
        self.source = source

    def __getitem__(self, item: tuple[int, int]) -> Sample:
        return self.source.sample(*item)
