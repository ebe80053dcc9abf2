"""Smooth noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor


def total(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of tensors, of at least one."""
    return cast(Tensor, sum(parts))


def gaussian_process(
    rng: np.random.Generator, channels: int, size: Sequence[int], scale: float | Sequence[float]
) -> Tensor:
    """Return a Gaussian process with mean 0 and variance 1, (1, channels, D, H, W).

    White noise on a control grid every ``scale`` nodes (one number, or one for each axis), smoothed
    by Gaussians and normalised at every node. Linear interpolation would have kinks.
    """
    weights = []
    scales = scale if isinstance(scale, Sequence) else [scale] * len(size)
    for n, s in zip(size, scales, strict=True):
        control = np.arange(-1.5 * s, n - 1 + 2.5 * s, s)
        w = np.exp(-0.5 * ((np.arange(n)[:, None] - control) / (0.65 * s)) ** 2)
        weights.append(
            torch.from_numpy((w / np.sqrt((w**2).sum(1, keepdims=True))).astype(np.float32))
        )
    z, y, x = weights
    white = torch.from_numpy(
        rng.standard_normal((channels, z.shape[1], y.shape[1], x.shape[1]), dtype=np.float32)
    )
    return torch.einsum("czyx,wx,hy,dz->cdhw", white, x, y, z)[None]
