"""Similarity of two images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Similarity = Callable[[Tensor, Tensor, "Tensor | None", int], Tensor]
"""A loss of the fixed and the warped image (B, 1, D, H, W), a mask or None, and ``loss.window``."""

SIMILARITIES: dict[str, Similarity] = {}
"""By the value of ``loss.similarity``."""


def similarity(name: str) -> Callable[[Similarity], Similarity]:
    """Return a decorator that makes a similarity available to configurations under ``name``."""

    def add(function: Similarity) -> Similarity:
        SIMILARITIES[name] = function
        return function

    return add


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of ``values`` where ``mask`` is 1; an empty mask gives 0."""
    if mask is None:
        return values.mean()
    return (values * mask).sum() / (mask.sum() * values.shape[1]).clamp_min(1.0)


def _box_mean(x: Tensor, window: int) -> Tensor:
    # Three one-dimensional averages give the cubic one at a fraction of the cost.
    # count_include_pad=False: a window across the border averages over its part inside.
    for axis in range(3):
        kernel, pad = [1, 1, 1], [0, 0, 0]
        kernel[axis], pad[axis] = window, window // 2
        x = F.avg_pool3d(x, kernel, stride=1, padding=pad, count_include_pad=False)
    return x


@similarity("mse")
def local_mse(fixed: Tensor, warped: Tensor, mask: Tensor | None = None, window: int = 9) -> Tensor:
    """Return the mean over voxels of the mean squared difference in a cubic window.

    Except at the borders it equals the plain mean squared difference (``window=1``).
    """
    squared = (fixed - warped).square()
    if mask is not None:
        squared = squared * mask
    if window > 1:
        squared = _box_mean(squared, window)
        if mask is not None:
            share = _box_mean(mask, window)
            squared = squared / share.clamp_min(1e-3)
    return masked_mean(squared, mask)


def local_ncc_map(
    fixed: Tensor, warped: Tensor, window: int = 9, eps: float = 1e-5, mask: Tensor | None = None
) -> Tensor:
    """Return the normalised cross-correlation in a cubic window around every voxel, within
    ``mask``, (B, 1, D, H, W), in [-1, 1].

    It is about 0 in constant patches, where the product of the standard deviations is below
    ``eps``.
    """
    if mask is None:

        def mean(x: Tensor) -> Tensor:
            return _box_mean(x, window)

    else:
        share = _box_mean(mask, window).clamp_min(1e-6)

        def mean(x: Tensor) -> Tensor:
            return _box_mean(x * mask, window) / share

    mean_f, mean_m = mean(fixed), mean(warped)
    cross = mean(fixed * warped) - mean_f * mean_m
    var_f = (mean(fixed * fixed) - mean_f * mean_f).clamp_min(0.0)
    var_m = (mean(warped * warped) - mean_m * mean_m).clamp_min(0.0)
    # A clamp, not an added epsilon: the graph optimiser of the ONNX exporter drops additions of
    # 1e-10.
    return cross / torch.sqrt((var_f * var_m).clamp_min(eps * eps))


@similarity("ncc")
def local_ncc(fixed: Tensor, warped: Tensor, mask: Tensor | None = None, window: int = 9) -> Tensor:
    """Return the negative mean local normalised cross-correlation in a cubic window; -1 is a
    perfect match.
    """
    return -masked_mean(local_ncc_map(fixed, warped, window, mask=mask), mask)


def mind_descriptor(
    image: Tensor, radius: int = 1, dilation: int = 2, mask: Tensor | None = None
) -> Tensor:
    """Return the MIND-SSC descriptor: self-similarities between the six neighbours of a voxel
    (Heinrich 2013).

    Parameters
    ----------
    image : (B, 1, D, H, W)
    radius : int
        Radius of the compared patches (side ``2 radius + 1``).
    dilation : int
        Distance of the neighbours, voxels.
    mask : (B, 1, D, H, W), optional
        The image's mean noise is measured inside it.

    Returns
    -------
    Tensor of shape (B, 12, D, H, W)
        In (0, 1], for the twelve pairs of neighbours at squared distance two.
    """
    # The six neighbours as indices in a window of three voxels, of which twelve pairs are at
    # squared distance two.
    places = [(0, 1, 1), (1, 1, 0), (1, 0, 1), (1, 1, 2), (2, 1, 1), (1, 2, 1)]
    pairs = [
        (a, b)
        for i, a in enumerate(places)
        for b in places[i + 1 :]
        if sum((p - q) ** 2 for p, q in zip(a, b)) == 2
    ]
    d = dilation
    padded = F.pad(image, (d,) * 6, mode="replicate")

    def shifted(place: tuple[int, int, int]) -> Tensor:
        z, y, x = (p * d for p in place)
        size = image.shape[2:]
        return padded[:, :, z : z + size[0], y : y + size[1], x : x + size[2]]

    distance = torch.cat(
        [_box_mean((shifted(a) - shifted(b)).square(), 2 * radius + 1) for a, b in pairs], dim=1
    )
    distance = distance - distance.amin(dim=1, keepdim=True)
    # The local noise estimate, kept within three decades of the image's mean so that flat air does
    # not amplify noise.
    variance = distance.mean(dim=1, keepdim=True)
    axes = (1, 2, 3, 4)
    if mask is None:
        centre = variance.mean(dim=axes, keepdim=True).detach()
    else:
        centre = (
            (variance * mask).sum(axes, keepdim=True) / mask.sum(axes, keepdim=True).clamp_min(1.0)
        ).detach()
    variance = torch.minimum(torch.maximum(variance, centre * 1e-3), centre * 1e3).clamp_min(1e-12)
    return torch.exp(-distance / variance)


def mind_loss(fixed: Tensor, warped: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean squared difference of MIND descriptors, for images of different modalities.
    Only descriptors that lie wholly inside the mask count.
    """
    if mask is not None:
        mask = _eroded(mask, 3)  # a patch of radius 1 around a neighbour 2 voxels away
    return masked_mean(
        (mind_descriptor(fixed, mask=mask) - mind_descriptor(warped, mask=mask)).square(), mask
    )


def _eroded(mask: Tensor, reach: int) -> Tensor:
    """Return the minimum of ``mask`` in a cube of ``reach`` voxels to each side; the border of the
    grid does not erode it.
    """
    for axis in range(3):
        kernel, pad = [1, 1, 1], [0, 0, 0]
        kernel[axis], pad[axis] = 2 * reach + 1, reach
        mask = -F.max_pool3d(-mask, kernel, stride=1, padding=pad)
    return mask


@similarity("mind")
def _mind(fixed: Tensor, warped: Tensor, mask: Tensor | None, window: int) -> Tensor:
    return mind_loss(fixed, warped, mask)


@similarity("none")
def _none(fixed: Tensor, warped: Tensor, mask: Tensor | None, window: int) -> Tensor:
    return warped.new_zeros(())
