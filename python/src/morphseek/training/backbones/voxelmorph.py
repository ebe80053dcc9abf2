"""VoxelMorph-L: a plain convolutional U-Net to stride 32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import PolicyBackbone, SplitConv, prepare, register

__all__ = ["VoxelMorphL"]


def _conv(cin: int, cout: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv3d(cin, cout, 3, stride=stride, padding=1), nn.LeakyReLU(0.2))


@register("voxelmorph-l")
class VoxelMorphL(PolicyBackbone):
    """Symmetric U-Net on the concatenated pair, encoder 32, 64, 128, 256, 256, decoder mirrored to
    full resolution.

    f_L has 256 channels at stride 32: N = 53,760 at 160x192x224 and 46,080 at 160x192x192. The
    heads add 2 * 256^2 weights, 0.13 M.

    Parameters
    ----------
    widths : 5 ints
        Channels at strides 2, 4, 8, 16 and 32.
    **policy
        Options of :class:`~morphseek.training.backbones.PolicyBackbone`.

    Notes
    -----
    The paper gives 27.05 M parameters for "VoxelMorph-L" but not the number of convolutions a level
    has. With two of 3x3x3 at every level and decoder channels 256, 256, 128, 64, 32 this one has
    20.5 M. The channels, strides, f_L and the cost of the heads are the paper's.
    """

    latent_stride = 32
    size_multiple = 32
    field_stride = 1

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256, 256), **policy: Any):
        super().__init__(**policy)
        widths = tuple(widths)
        if len(widths) != 5:
            raise ValueError(f"VoxelMorph-L has five levels, not {len(widths)}")
        self.latent_channels = widths[-1]
        cin = (2, *widths[:-1])
        self.encoder = nn.ModuleList(
            nn.Sequential(_conv(a, b, 2), _conv(b, b)) for a, b in zip(cin, widths, strict=True)
        )
        self.bottleneck = _conv(widths[-1], widths[-1])
        # Decoder at strides 16, 8, 4, 2, 1: the encoder's widths mirrored.
        out = tuple(reversed(widths))
        skip = (*reversed(widths[:-1]), 2)
        ups = (widths[-1], *out[:-1])
        self.merge = nn.ModuleList(
            SplitConv(u, s, o) for u, s, o in zip(ups, skip, out, strict=True)
        )
        self.refine = nn.ModuleList(_conv(o, o) for o in out)
        # There are no normalisation layers: with PyTorch's default initialisation the signal from z
        # would vanish level by level.
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, a=0.2)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for m in cast("Iterable[SplitConv]", self.merge):
            # The two halves are one convolution, so both count for its fan-in.
            with torch.no_grad():
                m.up.weight.mul_(0.5**0.5)
                m.skip.weight.mul_(0.5**0.5)
        self.add_flow(out[-1], std=1e-5)
        self.add_heads()

    def encode(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        x = torch.cat((fixed, moving), dim=1)
        features = [x]
        for level in self.encoder:
            x = level(x)
            features.append(x)
        return features[-1], prepare(self.merge, reversed(features[:-1]))

    def decode(self, z: Tensor, skips: tuple[Tensor, ...]) -> Tensor:
        x = self.bottleneck(z)
        for merge, refine, skip in zip(self.merge, self.refine, skips, strict=True):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = refine(F.leaky_relu(merge(x, skip), 0.2))
        return self.flow(x)
