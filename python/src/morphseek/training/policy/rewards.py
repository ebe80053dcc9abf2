"""The rewards of trajectories."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from ..losses.overlap import hard_dice
from ..losses.regularity import endpoint_distance, endpoint_error
from ..pairs.sample import Sample
from ..spatial import njd_fraction, warp
from .step_result import Step


def hd95(
    warped: Tensor,
    fixed: Tensor,
    labels: int,
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> float:
    """Return the 95 % Hausdorff distance in mm, mean over labels; not differentiable.

    The larger of the two directed 95th percentiles of surface distances, by MONAI. For a label
    that one of the maps lacks, it is the diagonal of the grid.

    Parameters
    ----------
    warped, fixed : (1, 1, D, H, W)
        Label maps.
    """
    from monai.metrics.hausdorff_distance import compute_hausdorff_distance

    w, f = warped.cpu(), fixed.cpu()
    diagonal = float(np.linalg.norm(np.array(w.shape[2:]) * np.array(spacing)))
    values = []
    for k in range(1, labels + 1):
        a, b = w == k, f == k
        if a.any() and b.any():
            with warnings.catch_warnings():  # it calls its own deprecated functions
                warnings.simplefilter("ignore")
                distances = compute_hausdorff_distance(
                    a.float(), b.float(), include_background=True, percentile=95, spacing=spacing
                )
            values.append(float(distances))
        elif a.any() or b.any():
            values.append(diagonal)
    return float(np.mean(values)) if values else 0.0


def local_dice_reward(warped: Tensor, fixed: Tensor, reference: Tensor, labels: int) -> Tensor:
    """Return the first-order share of every voxel in the change of Dice against a reference state.

    The derivative of Dice_l = 2 |f w| / (|f| + |w|) with respect to w(x) is (2 f(x) - D_l) / S_l,
    with D_l and S_l = |f| + |w| of the reference. Summed over voxels, the differences between
    samples are their differences in Dice.

    Parameters
    ----------
    warped : (J, 1, D, H, W)
        Label maps of the samples.
    fixed, reference : (1, 1, D, H, W)
        Fixed label map, and the moving one warped by the reference state.

    Returns
    -------
    Tensor of shape (J, 1, D, H, W)
    """
    total = torch.zeros(warped.shape, device=warped.device)
    count = 0
    for k in range(1, labels + 1):
        f, w0, w = (fixed == k).float(), (reference == k).float(), (warped == k).float()
        size = f.sum() + w0.sum()
        if size == 0:
            continue
        dice = 2.0 * (f * w0).sum() / size
        total = total + (2.0 * f * w - dice * w) / size
        count += 1
    return total / max(count, 1)


def local_truth_reward(u: Tensor, truth: Tensor, mask: Tensor | None) -> Tensor:
    """Return the share of every voxel in the mean distance to the truth, in voxels.

    Parameters
    ----------
    u, truth : (B, 3, D, H, W)
    mask : (B, 1, D, H, W), optional
        1 where the truth counts.

    Returns
    -------
    Tensor of shape (B, 1, D, H, W)
        Its sum is :func:`~morphseek.training.losses.regularity.endpoint_error`.
    """
    distance = endpoint_distance(u, truth)
    if mask is None:
        return distance / distance[0].numel()
    return distance * mask / mask.sum().clamp_min(1.0)


def reward_of(objective: Step, pair: Sample, u: Tensor, base: float) -> tuple[float, float, float]:
    """Return the reward, hard Dice and NJD (fraction) of one cumulative field (1, 3, D, H, W)."""
    p = objective.policy
    labels = pair.fixed_labels.shape[1]
    with torch.no_grad():
        warped_map = warp(pair.moving_map, u, mode="nearest")
        dice = float(hard_dice(warped_map, pair.fixed_map, labels))
        njd = float(njd_fraction(u))
        if p.reward == "hd95":
            reward = -hd95(warped_map, pair.fixed_map, labels, objective.spacing)
        else:
            reward = p.w_dice * (dice - base)
        reward += p.w_njd * njd
        if p.w_truth and pair.truth is not None:
            reward += p.w_truth * float(endpoint_error(u, pair.truth, pair.truth_mask))
    return reward, dice, njd
