"""Overlap of labels."""

from __future__ import annotations

import torch
from torch import Tensor


def sharpen(probability: Tensor, steepness: float) -> Tensor:
    """Return the logistic contrast curve on [0, 1] that keeps 0, 1/2 and 1 in place; ``steepness``
    0 is the identity.
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
    """Return ``(2 sum(Y P) + eps) / (sum(Y^2) + sum(P^2) + eps)`` for each label.

    Parameters
    ----------
    probability, target : (B, K, D, H, W)
        Trilinearly warped one-hot labels of the moving image, and labels of the fixed image, in [0,
        1].
    weight : (B, 1, D, H, W), optional
        Weight of each voxel. With the Jacobian determinant of the map, the sums are integrals over
        the moving image's space.

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
    """Return the mean of :func:`soft_dice_per_label` over the labels that occur, shape (B,).

    A label that neither image has is left out: it would count as a perfect 1.
    """
    dice = soft_dice_per_label(probability, target, eps, weight)
    present = ((probability.sum((2, 3, 4)) + target.sum((2, 3, 4))) > 0).to(dice.dtype)
    return (dice * present).sum(1) / present.sum(1).clamp_min(1.0)


def hard_dice(warped: Tensor, fixed: Tensor, labels: int, weight: Tensor | None = None) -> Tensor:
    """Return the Dice of label maps, a mean over the labels 1..``labels`` that occur in either.

    Parameters
    ----------
    warped : (B, 1, D, H, W)
        Moving label map warped with nearest-neighbour interpolation, integers (any dtype).
    fixed : (1 or B, 1, D, H, W)
    labels : int
        Number of labels without the background.
    weight : (B, 1, D, H, W), optional
        Weight of each voxel, as in :func:`soft_dice_per_label`.

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
