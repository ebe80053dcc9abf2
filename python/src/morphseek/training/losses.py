"""Losses and rewards: image similarity, regularity, overlap of labels.

Images are ``(B, 1, D, H, W)``, label maps ``(B, K, D, H, W)`` with one channel a label (background
has none), fields ``(B, 3, D, H, W)`` in voxels. Masks are ``(B, 1, D, H, W)`` in [0, 1]; a loss
with a mask is the mean over it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .spatial import _determinant, forward_differences

__all__ = [
    "diffusion",
    "endpoint_error",
    "fold_hinge",
    "hard_dice",
    "kl_to_standard_normal",
    "local_mse",
    "local_ncc",
    "local_ncc_map",
    "masked_mean",
    "mind_descriptor",
    "mind_loss",
    "sharpen",
    "soft_dice",
    "soft_dice_per_label",
]


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of ``values`` where ``mask`` is 1; an empty mask gives 0."""
    if mask is None:
        return values.mean()
    return (values * mask).sum() / (mask.sum() * values.shape[1]).clamp_min(1.0)


def _box_mean(x: Tensor, window: int) -> Tensor:
    # Three one-dimensional averages are the cubic one, at w/w^3 of the cost.
    # count_include_pad=False lets a window that hangs over the border average over what is inside.
    for axis in range(3):
        kernel, pad = [1, 1, 1], [0, 0, 0]
        kernel[axis], pad[axis] = window, window // 2
        x = F.avg_pool3d(x, kernel, stride=1, padding=pad, count_include_pad=False)
    return x


def local_mse(fixed: Tensor, warped: Tensor, mask: Tensor | None = None, window: int = 9) -> Tensor:
    """Mean over voxels of the mean squared difference in a cubic window.

    But for the borders it equals the plain mean squared difference (``window=1``).
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
    """Normalised cross-correlation in a cubic window around every voxel, of what ``mask`` leaves of
    it, (B, 1, D, H, W), in [-1, 1].

    Where the product of the standard deviations is below ``eps`` (constant patches) it is about 0.
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


def local_ncc(fixed: Tensor, warped: Tensor, mask: Tensor | None = None, window: int = 9) -> Tensor:
    """Negative mean local normalised cross-correlation in a cubic window; -1 is a perfect match."""
    return -masked_mean(local_ncc_map(fixed, warped, window, mask=mask), mask)


def mind_descriptor(
    image: Tensor, radius: int = 1, dilation: int = 2, mask: Tensor | None = None
) -> Tensor:
    """MIND-SSC: self-similarities between the six neighbours of a voxel (Heinrich 2013).

    Parameters
    ----------
    image : (B, 1, D, H, W)
    radius : int
        Of the patches that are compared (side ``2 radius + 1``).
    dilation : int
        Distance of the neighbours, voxels.
    mask : (B, 1, D, H, W), optional
        Where the image's mean noise is measured.

    Returns
    -------
    Tensor of shape (B, 12, D, H, W)
        In (0, 1]; the twelve pairs of neighbours at squared distance two.
    """
    # The six neighbours as places in a window of three voxels, and the twelve pairs of them at
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
    """Mean squared difference of MIND descriptors, where these read nothing outside the mask;
    compares images of different modalities.
    """
    if mask is not None:
        mask = _eroded(mask, 3)  # the patch of radius 1 around a neighbour 2 voxels off
    return masked_mean(
        (mind_descriptor(fixed, mask=mask) - mind_descriptor(warped, mask=mask)).square(), mask
    )


def _eroded(mask: Tensor, reach: int) -> Tensor:
    """The least of ``mask`` in a cube of ``reach`` voxels to each side; the border of the grid
    erodes nothing.
    """
    for axis in range(3):
        kernel, pad = [1, 1, 1], [0, 0, 0]
        kernel[axis], pad[axis] = 2 * reach + 1, reach
        mask = -F.max_pool3d(-mask, kernel, stride=1, padding=pad)
    return mask


def endpoint_error(u: Tensor, truth: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean distance in voxels between a displacement and the true one, (B, 3, D, H, W); smooth
    below a tenth of a voxel.
    """
    return masked_mean(((u - truth).square().sum(1, keepdim=True) + 1e-2).sqrt(), mask)


def diffusion(u: Tensor) -> Tensor:
    """Mean over voxels of the squared forward differences of the displacement, summed over axes and
    components.
    """
    return sum(g.square().sum(dim=1).mean() for g in forward_differences(u))


def fold_hinge(u: Tensor, margin: float = 0.1) -> Tensor:
    """Mean of ``relu(margin - det(I + grad u))`` with forward differences: pushes on voxels that
    are about to fold.
    """
    return torch.relu(margin - _determinant(*forward_differences(u))).mean()


def squared_log_jacobian(u: Tensor, floor: float = 0.05) -> Tensor:
    """Mean of ``log(det(I + grad u))^2`` with forward differences; determinants below ``floor``
    count as ``floor``.

    Halving and doubling a volume cost the same. Folds are the hinge's business
    (:func:`fold_hinge`): here their gradient is zero.
    """
    return _determinant(*forward_differences(u)).clamp_min(floor).log().square().mean()


def kl_to_standard_normal(mu: Tensor, log_sigma: Tensor) -> Tensor:
    """KL(N(mu, sigma^2) || N(0, I)) per latent dimension."""
    return 0.5 * (mu.square() + torch.exp(2.0 * log_sigma) - 2.0 * log_sigma - 1.0).mean()


def sharpen(probability: Tensor, steepness: float) -> Tensor:
    """Logistic contrast curve on [0, 1] that keeps 0, 1/2 and 1 in place; ``steepness`` 0 is the
    identity.
    """
    if steepness <= 0:
        return probability
    half = 0.5 * torch.tanh(
        torch.tensor(0.25 * steepness, dtype=probability.dtype, device=probability.device)
    )
    return 0.5 + 0.25 * torch.tanh(0.5 * steepness * (probability - 0.5)) / half


def soft_dice_per_label(
    probability: Tensor, target: Tensor, eps: float = 1e-5, weight: Tensor | None = None
) -> Tensor:
    """``(2 sum(Y P) + eps) / (sum(Y^2) + sum(P^2) + eps)`` for each label.

    Parameters
    ----------
    probability, target : (B, K, D, H, W)
        Trilinearly warped one-hot labels of the moving image, and labels of the fixed image, in [0,
        1].
    weight : (B, 1, D, H, W), optional
        What each voxel counts. With the Jacobian determinant of the map, the sums are integrals
        over the moving image's space.

    Returns
    -------
    Tensor of shape (B, K)
    """
    axes = (2, 3, 4)
    cross, sizes = probability * target, probability.square() + target.square()
    if weight is not None:
        cross, sizes = cross * weight, sizes * weight
    return (2.0 * cross.sum(axes) + eps) / (sizes.sum(axes) + eps)


def soft_dice(
    probability: Tensor, target: Tensor, eps: float = 1e-5, weight: Tensor | None = None
) -> Tensor:
    """Mean over the labels that occur of :func:`soft_dice_per_label`, shape (B,).

    A label that neither image has would count as a perfect 1 and is left out.
    """
    dice = soft_dice_per_label(probability, target, eps, weight)
    present = ((probability.sum((2, 3, 4)) + target.sum((2, 3, 4))) > 0).to(dice.dtype)
    return (dice * present).sum(1) / present.sum(1).clamp_min(1.0)


def hard_dice(warped: Tensor, fixed: Tensor, labels: int, weight: Tensor | None = None) -> Tensor:
    """Dice of label maps, a mean over the labels 1..``labels`` that occur in either.

    Parameters
    ----------
    warped : (B, 1, D, H, W)
        Moving label map warped with nearest-neighbour interpolation, integers (any dtype).
    fixed : (1 or B, 1, D, H, W)
    labels : int
        Number of labels, background aside.
    weight : (B, 1, D, H, W), optional
        What each voxel counts, as in :func:`soft_dice_per_label`.

    Returns
    -------
    Tensor of shape (B,)
    """

    def size_of(mask: Tensor) -> Tensor:
        return (mask if weight is None else mask * weight).sum((1, 2, 3, 4)).float()

    total = torch.zeros(warped.shape[0], device=warped.device)
    count = torch.zeros_like(total)
    for k in range(1, labels + 1):
        a, b = warped == k, fixed == k
        cross, size = size_of(a & b), size_of(a) + size_of(b)
        total += torch.where(size > 0, 2.0 * cross / size, torch.zeros_like(size))
        count += (size > 0).float()
    return total / count.clamp_min(1.0)
