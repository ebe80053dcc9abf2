"""An anatomy: structures as shapes, painted over each other."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .shapes import Shape, Vector, blob


@dataclasses.dataclass
class _Part:
    structure: int
    shape: Shape
    ball: tuple[Vector, float] | None
    within: tuple[int, ...]


class Anatomy:
    """Structures as a list of shapes, painted over each other in order.

    Parameters
    ----------
    name : str
        One of :data:`BODIES`.
    extent : float
        Width in mm of a field of view with coverage 1.

    Attributes
    ----------
    structures : list of str
        Names; the index is the value in :meth:`render`. Structure 0 is the surroundings.
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
        ball: tuple[Vector, float] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        """Paint a shape.

        Parameters
        ----------
        structure, tissue : str
            An existing structure gets another part. The tissue is by default named as the
            structure.
        shape : Shape
        ball : ((z, y, x), radius), optional
            Nothing is painted outside this ball, in mm, which saves evaluations.
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
        centre: Vector,
        radii: Vector,
        tissue: str = "",
        within: Sequence[str] = (),
        **options: Any,
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
        """Return the structures at points.

        Parameters
        ----------
        points : (3, D, H, W)
            Positions in mm; neighbours in the array are neighbours in space.
        noise : (3, D, H, W)
            Coarse, middle and fine anatomical noise there.

        Returns
        -------
        Tensor of shape (D, H, W), uint8
        """
        out = torch.zeros(points.shape[1:], dtype=torch.uint8)
        coarse = points[:, ::4, ::4, ::4]
        # The distance of a point to the nearest one of the coarse subset is at most this: the
        # longest diagonal of its cells after the map.
        slack = float((coarse[:, 1:, 1:, 1:] - coarse[:, :-1, :-1, :-1]).norm(dim=0).amax())
        for part in self._parts:
            target, p, n = out, points, noise
            if part.ball is not None:
                centre = torch.tensor(part.ball[0], dtype=torch.float32).view(3, 1, 1, 1)
                near = ((coarse - centre).square().sum(0) < (part.ball[1] + slack) ** 2).nonzero()
                if not len(near):
                    continue
                low, high = near.amin(0).tolist(), near.amax(0).tolist()
                view: tuple[Any, ...] = (
                    ...,
                    *(slice(max(4 * a - 3, 0), 4 * b + 4) for a, b in zip(low, high)),
                )
                target, p, n = (v[view] for v in (out, points, noise))
            inside = part.shape(p, n) < 0
            if part.within:
                inside &= functools.reduce(torch.logical_or, (target == w for w in part.within))
            target.masked_fill_(inside, part.structure)
        return out
