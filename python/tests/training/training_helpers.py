"""Helpers of the training tests: phantom volumes and random fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from morphseek.training.backbones import Encoded
from morphseek.training.pairs import Sample

REPOSITORY = Path(__file__).resolve().parents[3]
#: Keys of a run that takes seconds.
TINY = {
    "model.backbone": "compact",
    "run.pretrain": 0,
    "model.options": {"widths": [4, 4, 8], "latent_channels": 8, "decoder": [8, 8]},
    "data.min_size": [24, 24, 24],
    "run.threads": 1,
    "run.amp": "none",
    "run.device": "cpu",
    "run.val_every": 1000000,
    "run.picture_every": 0,
    "run.steps_schedule": [],
}


def write_phantom(path_image: Path, path_labels: Path, shift, size=(22, 24, 20), seed=0) -> None:
    """Write two bright ellipsoids (labels 1 and 2) in noise, 1 mm, moved by ``shift`` voxels."""
    import SimpleITK as sitk

    rng = np.random.default_rng(seed)
    z, y, x = np.meshgrid(*(np.arange(n, dtype=float) for n in size), indexing="ij")
    centre = np.array(size) / 2 + np.asarray(shift)
    labels = np.zeros(size, np.uint8)
    for value, offset, radii in ((1, -3.5, (4, 3.5, 4)), (2, 3.5, (3.5, 4, 4))):
        inside = (
            ((z - centre[0]) / radii[0]) ** 2
            + ((y - centre[1] - offset) / radii[1]) ** 2
            + ((x - centre[2]) / radii[2]) ** 2
        )
        labels[inside < 1] = value
    image = 40.0 + 60.0 * (labels == 1) + 110.0 * (labels == 2) + rng.normal(0, 3, size)
    for array, path in ((image.astype(np.float32), path_image), (labels, path_labels)):
        path.parent.mkdir(parents=True, exist_ok=True)
        sitk.WriteImage(sitk.GetImageFromArray(array), str(path))


def as_trained(backbone, noise=0.01):
    """Return the network with weights that differ, as training leaves them, for the exporter merges
    equal tensors; float16 holds them exactly.
    """
    with torch.no_grad():
        for p in backbone.parameters():
            p.add_(noise * torch.randn_like(p)).copy_(p.half().float())
    return backbone


class Shift(torch.nn.Module):
    """A stand-in network that always returns the same shift, in voxels."""

    size_multiple = 8

    def __init__(self, *voxels):
        super().__init__()
        self.shift = torch.tensor(voxels or [0.0] * 3).view(1, 3, 1, 1, 1)

    def view(self, step):
        return None

    def state(self, fixed, moving, view):
        return Encoded(torch.zeros(1, 1, 1, 1, 1), torch.zeros(1, 1, 1, 1, 1), (fixed,))

    def step_field(self, z, encoded):
        return self.shift.expand(1, 3, *encoded.skips[0].shape[2:])


def unlabelled(fixed, moving):
    """Return a pair that is seen everywhere and has no labels."""
    size = fixed.shape[2:]
    seen, none, zero = (torch.ones(1, 1, *size), torch.zeros(1, 0, *size), torch.zeros(1, 1, *size))
    return Sample(fixed, moving, seen, seen, none, none, zero, zero)


def feed_of(fixed, moving, u, epsilon, tau=0.0, **more):
    """Return the inputs of a bundle's graph, as arrays."""
    feed = {"fixed": fixed, "moving": moving, "u_prev": u, "epsilon": epsilon}
    feed |= {"tau": torch.tensor([tau])} | more
    return {key: np.asarray(value) for key, value in feed.items()}


def random_field(size, amplitude, seed=0, smooth=4):
    """Return a smooth random displacement (1, 3, D, H, W), voxels."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    u = np.stack([gaussian_filter(rng.standard_normal(size), smooth) for _ in range(3)])
    return torch.from_numpy((u / np.abs(u).max() * amplitude).astype(np.float32))[None]
