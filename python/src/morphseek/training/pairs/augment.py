"""Draws the random changes of a pair."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..config.augmentation import Augmentation
from .network_grid import Grid


def rotation(axis: int, angle: float) -> np.ndarray:
    """Return the rotation about one axis by radians; 3x3 for (z, y, x) vectors."""
    c, s = np.cos(angle), np.sin(angle)
    i, j = [k for k in range(3) if k != axis]
    r = np.eye(3)
    r[i, i], r[i, j], r[j, i], r[j, j] = c, -s, s, c
    return r


def change_intensity(
    image: Tensor, fov: Tensor, augmentation: Augmentation, rng: np.random.Generator
) -> Tensor:
    if augmentation.contrast:
        low, high = augmentation.contrast * rng.uniform(-1, 1, 2)
        image = ((image - low) / (1.0 + high - low)).clamp(0.0, 1.0)
    if augmentation.gamma:
        image = image.clamp_min(1e-4) ** float(np.exp(augmentation.gamma * rng.standard_normal()))
    if augmentation.noise:
        sd = augmentation.noise * rng.random()
        image = image + torch.from_numpy(rng.standard_normal(image.shape, dtype=np.float32)) * sd
    return image.clamp(0.0, 1.0) * fov


def affine(augmentation: Augmentation, rng: np.random.Generator, share: float) -> np.ndarray:
    """Return a random 3x4 affine in mm about the origin, array order."""
    a = np.deg2rad(augmentation.rotation_deg * share) * rng.uniform(-1, 1, 3)
    rz, ry, rx = (rotation(i, t) for i, t in enumerate(a))
    scale = np.diag(np.exp(np.log1p(augmentation.scale * share) * rng.uniform(-1, 1, 3)))
    shear = np.eye(3) + augmentation.shear * share * rng.uniform(-1, 1, (3, 3)) * (1 - np.eye(3))
    shift = augmentation.translation_mm * share * rng.uniform(-1, 1, 3)
    return np.concatenate((rz @ ry @ rx @ shear @ scale, shift[:, None]), axis=1)


def elastic(
    augmentation: Augmentation, rng: np.random.Generator, share: float, grid: Grid
) -> Tensor:
    """Return a smooth random displacement in mm on ``grid``, (1, 3, D, H, W): interpolated noise at
    points 12 mm apart.
    """
    control = [
        max(2, math.ceil(n * s / 12.0)) for n, s in zip(grid.size, grid.spacing, strict=True)
    ]
    sd = augmentation.elastic_mm * share * rng.random()
    noise = torch.from_numpy(rng.standard_normal((1, 3, *control), dtype=np.float32)) * sd
    field = F.interpolate(noise, size=grid.size, mode="trilinear", align_corners=False)
    # Smooths the kinks of the interpolation, which would bend the anatomy.
    return F.avg_pool3d(F.pad(field, (2,) * 6, mode="replicate"), 5, stride=1)
