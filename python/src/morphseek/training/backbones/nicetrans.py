"""NICE-Trans: the images are encoded apart and meet in a transformer decoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import PolicyBackbone, SplitConv, prepare, register
from .transmorph import SwinStage

__all__ = ["NICETrans"]


def _level(cin: int, cout: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(cin, cout, 3, stride=2, padding=1),
        nn.InstanceNorm3d(cout),
        nn.LeakyReLU(0.2),
        nn.Conv3d(cout, cout, 3, padding=1),
        nn.InstanceNorm3d(cout),
        nn.LeakyReLU(0.2),
    )


@register("nice-trans")
class NICETrans(PolicyBackbone):
    """Two convolutional encoders with 128 channels at the top, concatenated to 256, and a Swin
    decoder.

    f_L has 256 channels at stride 32: N = 53,760 at 160x192x224 and 46,080 at 160x192x192. The
    heads add 2 * 256^2 weights, 0.13 M.

    Parameters
    ----------
    widths : 5 ints
        Channels of each encoder at strides 2, 4, 8, 16 and 32.
    depth : int
        Swin blocks per decoder level (strides 32, 16 and 8).
    window : 3 ints
        Attention window, voxels of the level.
    **policy
        Options of :class:`~morphseek.training.backbones.PolicyBackbone`.

    Notes
    -----
    The paper gives 5.71 M parameters; this one has 5.6 M before the heads. The original is a
    non-iterative coarse-to-fine network that predicts an affine and a field at every decoder level
    in one pass. Here MorphSeek's own steps do the coarse-to-fine work, so the intermediate field
    heads are left out. Each image has an encoder of its own; the original shares one.
    """

    latent_stride = 32
    size_multiple = 32
    any_size = False
    field_stride = 1

    def __init__(
        self,
        widths: tuple[int, ...] = (8, 16, 32, 64, 128),
        depth: int = 2,
        window: tuple[int, int, int] = (5, 6, 7),
        **policy: Any,
    ):
        super().__init__(**policy)
        widths = tuple(widths)
        cin = (1, *widths[:-1])
        self.fixed_encoder = nn.ModuleList(_level(a, b) for a, b in zip(cin, widths, strict=True))
        self.moving_encoder = nn.ModuleList(_level(a, b) for a, b in zip(cin, widths, strict=True))
        top = 2 * widths[-1]
        self.latent_channels = top
        # Decoder at strides 16, 8, 4, 2, 1; a level has as many channels as the two skips that it
        # merges.
        skips = (*(2 * w for w in reversed(widths[:-1])), 2)
        outs = (*(2 * w for w in reversed(widths[:-1])), widths[0])
        ups = (top, *outs[:-1])
        self.top = SwinStage(top, depth, 8, window)
        self.merge = nn.ModuleList(
            SplitConv(u, s, o) for u, s, o in zip(ups, skips, outs, strict=True)
        )
        self.norms = nn.ModuleList(nn.InstanceNorm3d(o) for o in outs)
        self.refine = nn.ModuleList(
            (
                SwinStage(o, depth, max(o // 32, 1), window)
                if i < 2
                else nn.Conv3d(o, o, 3, padding=1)
            )
            for i, o in enumerate(outs)
        )
        self.add_flow(outs[-1], std=1e-5)
        self.add_heads()

    def encode(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        pyramid = [torch.cat((fixed, moving), dim=1)]
        f, m = fixed, moving
        for a, b in zip(self.fixed_encoder, self.moving_encoder, strict=True):
            f, m = a(f), b(m)
            pyramid.append(torch.cat((f, m), dim=1))
        return pyramid[-1], prepare(self.merge, reversed(pyramid[:-1]))

    def decode(self, z: Tensor, skips: tuple[Tensor, ...]) -> Tensor:
        x = self.top(z)
        for merge, norm, refine, skip in zip(
            self.merge, self.norms, self.refine, skips, strict=True
        ):
            x = F.interpolate(x, scale_factor=2.0, mode="trilinear", align_corners=False)
            x = F.leaky_relu(norm(merge(x, skip)), 0.2)
            y = refine(x)
            x = y if isinstance(refine, SwinStage) else F.leaky_relu(x + y, 0.2)
        return self.flow(x)
