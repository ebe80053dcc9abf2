"""A network of under two million parameters for CPUs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..losses import mind_descriptor
from .base import Encoded, PolicyBackbone, SplitConv, register

__all__ = ["Compact"]


def space_to_depth(image: Tensor) -> Tensor:
    """Fold 2x2x2 blocks of voxels into channels: (B, C, D, H, W) -> (B, 8 C, D/2, H/2, W/2)."""
    b, c, d, h, w = image.shape
    image = image.reshape(b, c, d // 2, 2, h // 2, 2, w // 2, 2)
    return image.permute(0, 1, 3, 5, 7, 2, 4, 6).reshape(b, 8 * c, d // 2, h // 2, w // 2)


def depth_to_space(feature: Tensor) -> Tensor:
    """Undo :func:`space_to_depth`: (B, 8 C, D, H, W) -> (B, C, 2 D, 2 H, 2 W)."""
    b, c, d, h, w = feature.shape
    feature = feature.reshape(b, c // 8, 2, 2, 2, d, h, w)
    return feature.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(b, c // 8, 2 * d, 2 * h, 2 * w)


def up2(feature: Tensor) -> Tensor:
    return F.interpolate(feature, scale_factor=2.0, mode="trilinear", align_corners=False)


class ConvBlock(nn.Module):
    """Convolution, instance normalisation unless ``norm`` is off, LeakyReLU; with a residual
    connection where shapes allow.
    """

    def __init__(self, cin: int, cout: int, stride: int = 1, norm: bool = True):
        super().__init__()
        self.conv = nn.Conv3d(cin, cout, 3, stride=stride, padding=1, bias=not norm)
        self.norm = nn.InstanceNorm3d(cout, affine=True) if norm else nn.Identity()
        self.residual = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu(self.norm(self.conv(x)), 0.1)
        return x + y if self.residual else y


class FoldedEncoder(PolicyBackbone):
    """Base of the networks that work at half resolution and below: an encoder of folded images to
    stride 8.
    """

    latent_stride = 8
    size_multiple = 8
    field_stride = 2

    #: Whether the encoder reads MIND descriptors beside the intensities.
    mind = False

    def add_encoder(self, widths: tuple[int, int, int]) -> None:
        """Append the encoder, with these channels at strides 2, 4 and 8."""
        a, b, c = widths
        self.enc2 = nn.Sequential(ConvBlock(20 if self.mind else 8, a), ConvBlock(a, a))
        self.enc4 = nn.Sequential(ConvBlock(a, b, 2), ConvBlock(b, b))
        self.enc8 = nn.Sequential(ConvBlock(b, c, 2), ConvBlock(c, c))

    def pyramid(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features of single images (B, 1, D, H, W) at strides 2, 4 and 8."""
        x = space_to_depth(images)
        if self.mind:
            # In float32: the squared differences of neighbours are small.
            with torch.autocast(device_type=x.device.type, enabled=False):
                x = torch.cat(
                    (x, mind_descriptor(F.avg_pool3d(images.float(), 2)).to(x.dtype)), dim=1
                )
        if x.device.type == "cpu":
            x = x.contiguous(memory_format=torch.channels_last_3d)
        f2 = self.enc2(x)
        f4 = self.enc4(f2)
        return f2, f4, self.enc8(f4)


@register("compact")
class Compact(FoldedEncoder):
    """Compact two-stream U-Net: everything happens at half resolution and below.

    The images are folded to half resolution without loss (space-to-depth), so that no convolution
    runs on the full grid. One encoder with shared weights reads the fixed and the moving image;
    their features meet at stride 8, where the policy lives, and at the skips. Each "upsample, then
    convolve" of the decoder is done as "convolve, then upsample", eight times cheaper.

    At 48x64x48: f_L is 96 x 6 x 8 x 6, N = 27,648.

    Parameters
    ----------
    widths : (int, int, int)
        Channels of the encoder at strides 2, 4 and 8, per image.
    latent_channels : int
        Channels of ``f_L`` at stride 8.
    decoder : (int, int)
        Channels of the decoder at strides 4 and 2.
    segmentation_classes : int
        If positive, an auxiliary head predicts the labels (this many, background aside) of both
        images from the decoder's last feature. It is used in training only and never exported.
    **policy
        Options of :class:`PolicyBackbone`.
    """

    can_segment = True
    training_only = ("segmentation_head",)

    def __init__(
        self,
        widths: tuple[int, int, int] = (16, 32, 64),
        latent_channels: int = 96,
        decoder: tuple[int, int] = (64, 32),
        segmentation_classes: int = 0,
        **policy: Any,
    ) -> None:
        super().__init__(**policy)
        a, b, c = widths
        d4, d2 = decoder
        self.latent_channels = latent_channels
        self.add_encoder(widths)
        self.fuse = nn.Sequential(
            ConvBlock(2 * c, latent_channels), ConvBlock(latent_channels, latent_channels)
        )
        self.dec8 = ConvBlock(latent_channels, latent_channels)
        self.dec4 = SplitConv(latent_channels, 2 * b, d4)
        self.norm4 = nn.InstanceNorm3d(d4, affine=True)
        self.block4 = ConvBlock(d4, d4)
        self.dec2 = SplitConv(d4, 2 * a, d2)
        self.norm2 = nn.InstanceNorm3d(d2, affine=True)
        self.block2 = ConvBlock(d2, d2)
        self.add_flow(d2, std=1e-3)
        self.segmentation_classes = segmentation_classes
        if segmentation_classes:
            self.segmentation_head = nn.Conv3d(d2, 2 * 8 * (segmentation_classes + 1), 1)
        self.add_heads()

    def encode(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        n = fixed.shape[0]
        pair = [
            torch.cat((f[:n], f[n:]), dim=1)
            for f in self.pyramid(torch.cat((fixed, moving), dim=0))
        ]
        return self.fuse(pair[2]), (self.dec4.prepare(pair[1]), self.dec2.prepare(pair[0]))

    def features(self, z: Tensor, skips: tuple[Tensor, ...]) -> Tensor:
        """Return the last feature of the decoder, (J, decoder[1], D/2, H/2, W/2)."""
        x = self.dec8(z)
        # Applies SplitConv's trajectory half on the coarse grid, then upsamples. With the skip half
        # it is the same linear map, up to the order of interpolation and convolution.
        x = up2(self.dec4.up(x)) + skips[0]
        x = self.block4(F.leaky_relu(self.norm4(x), 0.1))
        x = up2(self.dec2.up(x)) + skips[1]
        return self.block2(F.leaky_relu(self.norm2(x), 0.1))

    def decode(self, z: Tensor, skips: tuple[Tensor, ...]) -> Tensor:
        return self.flow(self.features(z, skips))

    def step_field_and_segmentation(self, z: Tensor, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Return :meth:`step_field` and the auxiliary logits of the images as they were shifted for
        the network, (J, 2, K + 1, D, H, W): fixed first, then warped moving.
        """
        x = self.features(z, encoded.skips)
        logits = depth_to_space(self.segmentation_head(x).float())
        logits = logits.reshape(x.shape[0], 2, self.segmentation_classes + 1, *logits.shape[2:])
        return self.finish_field(self.flow(x), encoded.view), logits

    def drop_training_only(self) -> None:
        super().drop_training_only()
        self.segmentation_classes = 0
