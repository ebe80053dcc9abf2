"""What a trajectory earns."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..losses.overlap import hard_dice
from ..pairs.sample import Sample
from ..spatial import njd_fraction, warp
from .step_result import Step


def hd95(
    warped: Tensor,
    fixed: Tensor,
    labels: int,
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> float:
    """95 % Hausdorff distance in mm, mean over labels; not differentiable.

    The larger of the two directed 95th percentiles of surface distances (MONAI's definition). A
    label that is missing in one of the maps counts the diagonal of the grid.

    Parameters
    ----------
    warped, fixed : (1, 1, D, H, W)
        Label maps.
    """
    from scipy.ndimage import binary_erosion, distance_transform_edt

    w, f = warped[0, 0].cpu().numpy(), fixed[0, 0].cpu().numpy()
    diagonal = float(np.linalg.norm(np.array(w.shape) * np.array(spacing)))
    values = []
    for k in range(1, labels + 1):
        a, b = w == k, f == k
        if not a.any() and not b.any():
            continue
        if not a.any() or not b.any():
            values.append(diagonal)
            continue
        # Work in the box of both: distances between the surfaces do not depend on what is outside.
        box = np.argwhere(a | b)
        lo, hi = box.min(0), box.max(0) + 1
        cut = tuple(slice(i, j) for i, j in zip(lo, hi, strict=True))
        a, b = a[cut], b[cut]
        edge_a, edge_b = a & ~binary_erosion(a), b & ~binary_erosion(b)
        to_b = distance_transform_edt(~edge_b, sampling=spacing)[edge_a]
        to_a = distance_transform_edt(~edge_a, sampling=spacing)[edge_b]
        values.append(float(max(np.percentile(to_b, 95), np.percentile(to_a, 95))))
    return float(np.mean(values)) if values else 0.0


def local_dice_reward(warped: Tensor, fixed: Tensor, reference: Tensor, labels: int) -> Tensor:
    """First-order share of every voxel in the change of Dice against a reference state.

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


def reward_of(objective: Step, pair: Sample, u: Tensor, base: float) -> tuple[float, float, float]:
    """Reward, hard Dice and NJD (fraction) of one cumulative field (1, 3, D, H, W)."""
    p = objective.policy
    labels = pair.fixed_labels.shape[1]
    with torch.no_grad():
        seen = warp(pair.moving_map, u, mode="nearest")
        dice = float(hard_dice(seen, pair.fixed_map, labels))
        njd = float(njd_fraction(u))
        if p.reward == "hd95":
            return -hd95(seen, pair.fixed_map, labels, objective.spacing) + p.w_njd * njd, dice, njd
    return p.w_dice * (dice - base) + p.w_njd * njd, dice, njd
