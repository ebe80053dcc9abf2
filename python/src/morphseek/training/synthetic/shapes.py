"""Shapes as formulas over points in millimetres."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..pairs.augment import rotation
from .noise import total

Vector = Sequence[float] | np.ndarray

#: Maps points (3, ...) in mm and noise (3, ...) to a value (...) that is negative inside: about the
#: distance in mm.
Shape = Callable[[Tensor, Tensor], Tensor]


def euler_rotation(turn: Vector) -> np.ndarray:
    """Return the rotation about z, then y, then x, by radians; 3x3 for (z, y, x) vectors."""
    z, y, x = (rotation(axis, t) for axis, t in enumerate(turn))
    return x @ (y @ z)


def blob(
    centre: Vector,
    radii: Vector,
    turn: Vector | None = None,
    power: float = 2.0,
    rough: float = 0.0,
) -> Shape:
    """Return a superellipsoid with ``rough`` mm of middle-sized noise on its surface."""

    def distance(p: Tensor, noise: Tensor) -> Tensor:
        d = [p[i] - centre[i] for i in range(3)]
        if turn is not None:
            r = euler_rotation(turn)
            d = [total(float(r[i, j]) * d[j] for j in range(3)) for i in range(3)]
        s = total(
            (d[i] / radii[i]).square() if power == 2.0 else (d[i] / radii[i]).abs().pow(power)
            for i in range(3)
        )
        s = (s.clamp_min(1e-12).pow(1.0 / power) - 1.0) * float(min(radii))
        return s + rough * noise[1] if rough else s

    return distance


def tube(
    centre: Vector,
    radii: Vector,
    half: float = 1e4,
    turn: Vector | None = None,
    sway: float = 0.0,
    period: float = 200.0,
    phase: float = 0.0,
    power: float = 2.0,
    flare: float = 0.0,
) -> Shape:
    """Return a tube along z (turned by ``turn``) of half-length ``half`` with an elliptic section
    (``radii`` along y and x).

    Its axis oscillates along y by ``sway`` mm with the given period. Towards its ends the section
    grows by the share ``flare``.
    """

    def distance(p: Tensor, noise: Tensor) -> Tensor:
        d = [p[i] - centre[i] for i in range(3)]
        if turn is not None:
            r = euler_rotation(turn)
            d = [total(float(r[i, j]) * d[j] for j in range(3)) for i in range(3)]
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


def cached(shape: Shape) -> Shape:
    """Return a shape with a cache of its last result, for one that many layers build on."""
    last: list[Any] = [None, None]

    def distance(p: Tensor, n: Tensor) -> Tensor:
        if last[0] is not p:
            last[:] = p, shape(p, n)
        return last[1]

    return distance


def union(*shapes: Shape) -> Shape:
    return lambda p, n: functools.reduce(torch.minimum, (s(p, n) for s in shapes))


def both(*shapes: Shape) -> Shape:
    """Return the intersection of shapes."""
    return lambda p, n: functools.reduce(torch.maximum, (s(p, n) for s in shapes))


def shrink(shape: Shape, by: float) -> Shape:
    return lambda p, n: shape(p, n) + by


def shell(shape: Shape, outer: float, inner: float) -> Shape:
    """Return the layer between ``outer`` and ``inner`` mm under the surface."""

    def distance(p: Tensor, n: Tensor) -> Tensor:
        d = shape(p, n)
        return torch.maximum(d + outer, -inner - d)

    return distance


def beyond(axis: int, at: float, sign: float = 1.0) -> Shape:
    """Return the half-space where ``sign * (p[axis] - at)`` is positive."""
    return lambda p, n: -sign * (p[axis] - at)


def sheets(channel: int, width: float, at: float = 0.0) -> Shape:
    """Return curved sheets along a level set of a noise channel (0 coarse, 1 middle, 2 fine);
    ``width`` is in standard deviations of the noise.
    """
    return lambda p, n: (n[channel] - at).abs() - width


def above(channel: int, level: float) -> Shape:
    """Return where a noise channel exceeds ``level`` standard deviations."""
    return lambda p, n: level - n[channel]


def below(channel: int, level: float) -> Shape:
    return lambda p, n: n[channel] - level


def opposite(channel: int, sign: float) -> Shape:
    """Return where a noise channel has the sign opposite to ``sign``."""
    return lambda p, n: sign * n[channel]


def uneven(shape: Shape, by: float) -> Shape:
    """Return the same shape, its surface displaced by ``by`` mm of coarse noise."""
    return lambda p, n: shape(p, n) + by * n[0]


def complement(shape: Shape) -> Shape:
    """Return the complement of a shape."""
    return lambda p, n: -shape(p, n)
