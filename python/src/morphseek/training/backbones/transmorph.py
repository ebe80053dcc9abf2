"""TransMorph: a Swin transformer encoder with a convolutional decoder."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import PolicyBackbone, SplitConv, prepare, register

__all__ = ["SwinStage", "TransMorph"]


class SwinStage(nn.Module):
    """Swin blocks of one resolution (MONAI's), channels first in and out: (B, C, d, h, w).

    Parameters
    ----------
    dim, depth, heads : int
    window : 3 ints
        Shifted every second block.
    """

    def __init__(
        self, dim: int, depth: int, heads: int, window: tuple[int, int, int], drop_path: float = 0.0
    ):
        super().__init__()
        from monai.networks.nets.swin_unetr import SwinTransformerBlock

        self.window = tuple(window)
        self.shift = tuple(n // 2 for n in window)
        none = (0, 0, 0)
        self.blocks = nn.ModuleList(
            SwinTransformerBlock(
                dim=dim,
                num_heads=heads,
                window_size=self.window,
                shift_size=none if i % 2 == 0 else self.shift,
                mlp_ratio=4.0,
                qkv_bias=True,
                drop_path=drop_path,
            )
            for i in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        from monai.networks.nets import swin_unetr

        size = tuple(x.shape[2:])
        # A grid smaller than the window is one window and is not shifted.
        library: Any = swin_unetr  # MONAI has no types for it
        window, shift = library.get_window_size(size, self.window, self.shift)
        padded = [math.ceil(n / w) * w for n, w in zip(size, window, strict=True)]
        mask = library.compute_mask(padded, window, shift, x.device).to(x.dtype)
        x = x.permute(0, 2, 3, 4, 1)
        for block in self.blocks:
            x = block(x, mask)
        return x.permute(0, 4, 1, 2, 3).contiguous()


class _Merge(nn.Module):
    """Patch merging: halves the grid and doubles the channels, (B, C, d, h, w) -> (B, 2 C, d/2,
    h/2, w/2).
    """

    def __init__(self, dim: int):
        super().__init__()
        from monai.networks.nets.swin_unetr import PatchMergingV2

        self.merge = PatchMergingV2(dim=dim, spatial_dims=3)

    def forward(self, x: Tensor) -> Tensor:
        return self.merge(x.permute(0, 2, 3, 4, 1)).permute(0, 4, 1, 2, 3)


class _Refine(nn.Module):
    """Instance norm and activation around a convolution, after a merged skip."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.InstanceNorm3d(channels)
        self.conv = nn.Conv3d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(x), 0.1)
        return F.leaky_relu(self.conv(x), 0.1)


@register("transmorph")
class TransMorph(PolicyBackbone):
    """Swin encoder (patch 4, embedding 96, three mergings) and a convolutional decoder to full
    resolution.

    f_L has 768 channels at stride 32: N = 161,280 at 160x192x224 and 138,240 at 160x192x192. The
    heads add 2 * 768^2 weights, 1.18 M.

    Parameters
    ----------
    embed : int
        Channels after the patch embedding, stride 4.
    depths, attention_heads : 4 ints
        Blocks and heads of the stages at strides 4, 8, 16, 32.
    window : 3 ints
        Attention window, patches. The default divides 160x192x224 into whole windows.
    **policy
        Options of :class:`~morphseek.training.backbones.PolicyBackbone`.

    Notes
    -----
    The paper says "large", but its 46.77 M parameters and N = 161,280 are those of the model with
    an embedding of 96 ("large" would have 1,024 channels at the top). Ours has 46.78 M before the
    heads, which add 2.5 %. The blocks are MONAI's. The skips of the raw images have 48 channels at
    stride 1 and 16 at stride 2.
    """

    latent_stride = 32
    size_multiple = 32
    any_size = False
    field_stride = 1

    def __init__(
        self,
        embed: int = 96,
        depths: tuple[int, ...] = (2, 2, 4, 2),
        attention_heads: tuple[int, ...] = (4, 4, 8, 8),
        window: tuple[int, int, int] = (5, 6, 7),
        **policy: Any,
    ):
        super().__init__(**policy)
        dims = [embed * 2**i for i in range(4)]
        self.latent_channels = dims[-1]
        self.embed = nn.Conv3d(2, embed, 4, stride=4)
        self.embed_norm = nn.GroupNorm(1, embed)
        self.stages = nn.ModuleList(
            SwinStage(d, n, h, window)
            for d, n, h in zip(dims, depths, attention_heads, strict=True)
        )
        self.merges = nn.ModuleList(_Merge(d) for d in dims[:-1])
        self.out_norm = nn.ModuleList(nn.GroupNorm(1, d) for d in dims)
        half, full = embed // 2, max(embed // 6, 1)
        self.skip2 = nn.Conv3d(2, half, 3, padding=1)
        self.skip1 = nn.Conv3d(2, full, 3, padding=1)
        ups = (dims[3], dims[2], dims[1], dims[0], half)
        skips = (dims[2], dims[1], dims[0], half, full)
        self.decoder = nn.ModuleList(SplitConv(u, s, s) for u, s in zip(ups, skips, strict=True))
        self.refine = nn.ModuleList(_Refine(s) for s in skips)
        self.add_flow(full, std=1e-5)
        self.add_heads()

    def encode(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        pair = torch.cat((moving, fixed), dim=1)
        features = []
        x = self.embed_norm(self.embed(pair))
        for i, stage in enumerate(self.stages):
            x = stage(x)
            features.append(self.out_norm[i](x))
            if i < 3:
                x = self.merges[i](x)
        half = F.leaky_relu(self.skip2(F.avg_pool3d(pair, 2)), 0.1)
        full = F.leaky_relu(self.skip1(pair), 0.1)
        raw = (features[2], features[1], features[0], half, full)
        return features[3], prepare(self.decoder, raw)

    def decode(self, z: Tensor, skips: tuple[Tensor, ...]) -> Tensor:
        x = z
        for merge, refine, skip in zip(self.decoder, self.refine, skips, strict=True):
            x = F.interpolate(x, scale_factor=2.0, mode="trilinear", align_corners=False)
            x = refine(merge(x, skip))
        return self.flow(x)
