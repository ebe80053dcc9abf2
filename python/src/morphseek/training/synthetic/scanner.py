"""Simulates the scan of an anatomy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..config.schema import Synthetic
from .anatomy import Anatomy
from .noise import gaussian_process, total


@dataclasses.dataclass
class Contrast:
    """Appearance of the tissues in a scan: mean, and texture of middle and fine noise, with
    intensities in [0, 1].
    """

    mean: np.ndarray
    middle: np.ndarray
    fine: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator, anatomy: Anatomy, texture: float) -> Contrast:
        n = max(anatomy.tissues) + 1
        mean = rng.uniform(0.05, 1.0, n)
        if anatomy.name != "medley":
            # Air is nearly always dark, and gas in the body looks like air.
            mean[0] = rng.uniform(0, 0.05) if rng.random() < 0.9 else rng.uniform(0, 1)
            names = anatomy.tissue_names
            if "gas" in names:
                mean[names.index("gas")] = mean[0]
        middle, fine = (
            texture * rng.uniform(0, 1, n) ** 2 * rng.choice((-1, 1), n) for _ in range(2)
        )
        middle[0] = fine[0] = 0.0
        return cls(mean, middle, fine)

    def jitter(self, rng: np.random.Generator) -> Contrast:
        """Return the contrast of another scan by the same protocol."""
        return dataclasses.replace(self, mean=self.mean + rng.normal(0, 0.02, len(self.mean)))


def _blur(image: Tensor, sd: float) -> Tensor:
    """Blur by a Gaussian point spread, sd in voxels; (1, 1, D, H, W)."""
    r = max(1, int(np.ceil(2.5 * sd)))
    kernel = torch.exp(-0.5 * (torch.arange(-r, r + 1) / max(sd, 1e-3)).square())
    kernel /= kernel.sum()
    for axis in range(3):
        n, at = image.shape[axis + 2], [0] * 6
        at[2 * (2 - axis)] = at[2 * (2 - axis) + 1] = r
        padded = F.pad(image, at, mode="replicate")
        image = total(float(k) * padded.narrow(axis + 2, i, n) for i, k in enumerate(kernel))
    return image


def scan(
    rng: np.random.Generator,
    s: Synthetic,
    anatomy: Anatomy,
    contrast: Contrast,
    structures: Tensor,
    noise: Tensor,
) -> Tensor:
    """Simulate a scan of the structures (D, H, W): (1, 1, D, H, W) in [0, 1]."""
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
            s.bias * rng.random() * gaussian_process(rng, 1, size, 0.5 * max(size))
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
            # magnitude images have no negative intensities, and a noise floor in air
            image = image.abs()
    if image.shape != thin:
        image = F.interpolate(image, size, mode="trilinear", align_corners=False)
    low, high = np.percentile(image[..., ::2, ::2, ::2].numpy(), (0.5, 99.5))
    image = ((image - float(low)) / max(float(high - low), 1e-3)).clamp(0.0, 1.0)
    return image ** float(np.exp(0.25 * rng.standard_normal()))


def field_of_view(
    rng: np.random.Generator, crop: float, size: Sequence[int], points: Tensor
) -> Tensor:
    """Return 1 inside a field of view that ends early on one or two sides, (1, 1, D, H, W); its
    edges are tilted by a few degrees.
    """
    inside = torch.ones(1, 1, *points.shape[2:])
    if rng.random() >= crop:
        return inside
    for _ in range(int(rng.integers(1, 3))):
        # Scans end above and below more often than at the sides.
        axis = int(rng.choice(3, p=(0.7, 0.15, 0.15)))
        normal = np.eye(3)[axis] * rng.choice((-1, 1)) + rng.uniform(-0.12, 0.12, 3)
        edge = size[axis] * (0.5 - 0.28 * rng.random())
        along = total(
            float(normal[i]) * (points[:, i : i + 1] - (size[i] - 1) / 2) for i in range(3)
        )
        inside *= (along < edge).float()
    return inside
