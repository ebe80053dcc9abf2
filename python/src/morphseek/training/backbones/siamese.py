"""A compact network that reads each image by itself before it compares them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Encoded, SplitConv, register
from .compact import ConvBlock, FoldedEncoder, depth_to_space, up2

__all__ = ["Siamese", "local_correlation"]


#: Cosines at neighbouring displacements of smooth features differ little; the factor brings the
#: differences to about 1 for the decoder.
GAIN = 5.0


def local_correlation(fixed: Tensor, moving: Tensor, radius: int) -> Tensor:
    """Return the cosine between a fixed feature and the moving ones around it.

    Parameters
    ----------
    fixed, moving : (B, C, D, H, W)
    radius : int
        Largest displacement along each axis, in cells.

    Returns
    -------
    Tensor of shape (B, (2 radius + 1)^3, D, H, W)
        One channel for each displacement, z slowest: the cosine less the mean over all
        displacements, times :data:`GAIN`. Cosines are 0 beyond the border.
    """

    def direction(f: Tensor) -> Tensor:
        # Less each channel's mean: otherwise features that are positive everywhere match
        # everywhere. The sums need float32.
        x = f.float()
        return F.normalize(x - x.mean((2, 3, 4), keepdim=True), dim=1, eps=1e-3).to(f.dtype)

    fixed, moving = direction(fixed), direction(moving)
    padded = F.pad(moving, (radius,) * 6)
    d, h, w = fixed.shape[2:]
    n = 2 * radius + 1
    # One row of displacements at a time, to save operators: with thousands of them the optimiser of
    # the export takes minutes.
    rows = torch.stack([padded[..., x : x + w] for x in range(n)], dim=1)
    cosine = torch.cat(
        [
            (fixed[:, None] * rows[:, :, :, z : z + d, y : y + h]).sum(2)
            for z in range(n)
            for y in range(n)
        ],
        dim=1,
    )
    return GAIN * (cosine - cosine.mean(1, keepdim=True))


class Up(nn.Module):
    """Upsample, join a skip connection, normalise, convolve.

    "Upsample, then convolve" is done as "convolve, then upsample", which is eight times cheaper.
    The skip connection is prepared once per state (see :class:`SplitConv`).
    """

    def __init__(self, up: int, skip: int, out: int, norm: bool = True):
        super().__init__()
        self.join = SplitConv(up, skip, out)
        self.norm = nn.InstanceNorm3d(out, affine=True) if norm else nn.Identity()
        self.block = ConvBlock(out, out, norm=norm)

    def prepare(self, skip: Tensor) -> Tensor:
        return self.join.prepare(skip)

    def forward(self, x: Tensor, prepared: Tensor) -> Tensor:
        x = up2(self.join.up(x)) + prepared
        return self.block(F.leaky_relu(self.norm(x), 0.1))


@register("siamese")
class Siamese(FoldedEncoder):
    """A U-Net with shared weights reads the fixed and the moving image; a registration decoder
    compares what it read.

    In a network that sees both images at once, the recognition of anatomy limits a label-supervised
    registration: the labels that such a network predicts for the fixed image overlap the truth no
    better than the labels that it warps onto it. Here recognition is a network of its own. It can
    be trained first (``run.pretrain``), on single images, at a fraction of the cost of a
    registration iteration. Its features of the two images, which have the context of a whole
    U-Net, meet at strides 8 (the policy's ``f_L``), 4 and 2 (the skips of the registration
    decoder).

    Everything happens at half resolution and below; images are folded to it without loss
    (space-to-depth).

    At 48x64x48: f_L is 80 x 6 x 8 x 6, N = 23,040.

    Parameters
    ----------
    widths : (int, int, int)
        Channels of the image network's encoder at strides 2, 4 and 8.
    reader : (int, int)
        Channels of the image network's decoder at strides 4 and 2.
    latent_channels : int
        Channels of ``f_L`` at stride 8.
    decoder : (int, int)
        Channels of the registration decoder at strides 4 and 2.
    correlation : (int, int, int)
        Radii in cells of the local correlation of the two images' features at strides 8, 4 and 2.
        The registration decoder reads it instead of the features; with 0 it reads the features.
        The correlation tells the decoder what it must otherwise learn: which displacement matches,
        whatever the contrast. The decoder then has no instance normalisation, because that would
        remove what is equal everywhere, such as a shift.
    mind : bool
        The encoder reads MIND descriptors (12 channels at stride 2) beside the intensities.
    segmentation_classes : int
        If positive, an auxiliary head predicts the labels (this many, background aside) of an image
        from the image network's last feature. It is used in training only and never exported.
    **policy
        Options of :class:`PolicyBackbone`.
    """

    can_segment = True
    can_pretrain = True
    training_only = ("segmentation_head",)

    def __init__(
        self,
        widths: tuple[int, int, int] = (24, 48, 72),
        reader: tuple[int, int] = (40, 32),
        latent_channels: int = 80,
        decoder: tuple[int, int] = (56, 40),
        segmentation_classes: int = 0,
        correlation: tuple[int, int, int] = (0, 0, 0),
        mind: bool = False,
        **policy: Any,
    ) -> None:
        super().__init__(**policy)
        self.mind = mind
        self.correlation = tuple(correlation)
        a, b, c = widths
        r4, r2 = reader
        d4, d2 = decoder
        n8, n4, n2 = (
            (2 * r + 1) ** 3 if r else 2 * n
            for r, n in zip(self.correlation, (c, r4, r2), strict=True)
        )
        self.latent_channels = latent_channels
        self.add_encoder(widths)
        self.read4 = Up(c, b, r4)
        self.read2 = Up(r4, a, r2)
        norm = not any(self.correlation)
        self.fuse = nn.Sequential(
            ConvBlock(n8, latent_channels, norm=norm),
            ConvBlock(latent_channels, latent_channels, norm=norm),
        )
        self.dec8 = ConvBlock(latent_channels, latent_channels, norm=norm)
        self.dec4 = Up(latent_channels, n4, d4, norm)
        self.dec2 = Up(d4, n2, d2, norm)
        self.add_flow(d2, std=1e-3)
        self.segmentation_classes = segmentation_classes
        if segmentation_classes:
            self.segmentation_head = nn.Conv3d(r2, 8 * (segmentation_classes + 1), 1)
        self.add_heads()

    def read(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features of single images (B, 1, D, H, W) at strides 2, 4 and 8, with the
        image network's whole context.
        """
        f2, f4, f8 = self.pyramid(images)
        g4 = self.read4(f8, self.read4.prepare(f4))
        g2 = self.read2(g4, self.read2.prepare(f2))
        return g2, g4, f8

    def _logits(self, g2: Tensor) -> Tensor:
        logits = depth_to_space(self.segmentation_head(g2).float())
        return logits.reshape(g2.shape[0], self.segmentation_classes + 1, *logits.shape[2:])

    def segment(self, images: Tensor) -> Tensor:
        """Return the logits of the labels of single images (B, 1, D, H, W): (B, K + 1, D, H, W)."""
        return self._logits(self.read(images)[0])

    def encode(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        n = fixed.shape[0]
        features = self.read(torch.cat((fixed, moving), dim=0))
        g2, g4, f8 = (
            local_correlation(f[:n], f[n:], r) if r else torch.cat((f[:n], f[n:]), dim=1)
            for f, r in zip(features, self.correlation[::-1], strict=True)
        )
        skips: tuple[Tensor, ...] = (self.dec4.prepare(g4), self.dec2.prepare(g2))
        if self.segmentation_classes:
            skips += (features[0],)
        return self.fuse(f8), skips

    def decode(self, z: Tensor, skips: tuple[Tensor, ...]) -> Tensor:
        return self.flow(self.dec2(self.dec4(self.dec8(z), skips[0]), skips[1]))

    def step_field_and_segmentation(self, z: Tensor, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Return :meth:`step_field` and the auxiliary logits, (1, 2, K + 1, D, H, W): fixed first,
        then warped moving.

        The logits do not depend on ``z``. They are those of the images as they were shifted for the
        network, of a batch of one pair.
        """
        return self.step_field(z, encoded), self._logits(encoded.skips[2])[None]

    def drop_training_only(self) -> None:
        super().drop_training_only()
        self.segmentation_classes = 0
