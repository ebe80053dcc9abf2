"""Regularity of a field, and its distance to the true one."""

from __future__ import annotations

import torch
from torch import Tensor

from ..spatial import determinant, forward_differences
from .similarity import masked_mean


def endpoint_distance(u: Tensor, truth: Tensor) -> Tensor:
    """Return the distance in voxels of every voxel's displacement to the true one, (B, 1, D, H, W);
    smooth below a tenth of a voxel.
    """
    return ((u - truth).square().sum(1, keepdim=True) + 1e-2).sqrt()


def endpoint_error(u: Tensor, truth: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean of :func:`endpoint_distance` of displacements (B, 3, D, H, W) where the mask
    is 1.
    """
    return masked_mean(endpoint_distance(u, truth), mask)


def diffusion(u: Tensor) -> Tensor:
    """Return the mean over voxels of the squared forward differences of the displacement, summed
    over axes and components.
    """
    z, y, x = (g.square().sum(dim=1).mean() for g in forward_differences(u))
    return z + y + x


def fold_hinge(u: Tensor, margin: float = 0.1) -> Tensor:
    """Return the mean of ``relu(margin - det(I + grad u))`` with forward differences: a penalty for
    voxels that fold or nearly fold.
    """
    return torch.relu(margin - determinant(*forward_differences(u))).mean()


def squared_log_jacobian(u: Tensor, floor: float = 0.05) -> Tensor:
    """Return the mean of ``log(det(I + grad u))^2`` with forward differences; determinants below
    ``floor`` count as ``floor``.

    Halving and doubling a volume cost the same. Folds have no gradient here; :func:`fold_hinge`
    penalises them.
    """
    return determinant(*forward_differences(u)).clamp_min(floor).log().square().mean()


def kl_to_standard_normal(mu: Tensor, log_sigma: Tensor) -> Tensor:
    """Return KL(N(mu, sigma^2) || N(0, I)) per latent dimension."""
    return 0.5 * (mu.square() + torch.exp(2.0 * log_sigma) - 2.0 * log_sigma - 1.0).mean()
