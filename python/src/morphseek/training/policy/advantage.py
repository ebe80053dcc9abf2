"""The advantage of a sample within its group."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def group_advantage(rewards: Tensor, eps: float = 1e-8) -> Tensor:
    """Return ``(R - mean R) / (sd R + eps)`` within the group; the standard deviation is the
    population's.
    """
    centred = rewards - rewards.mean()
    return centred / (rewards.std(unbiased=False) + eps)


def local_advantage(voxel_reward: Tensor, stride: int, window: int = 3) -> Tensor:
    """Return the centred local advantage of each latent cell.

    Rewards are summed over each cell and its ``window``-cubed neighbourhood, then the group mean is
    subtracted cell by cell. There is no division by the cell's standard deviation: that would
    amplify cells where nothing happens.

    Parameters
    ----------
    voxel_reward : (J, 1, D, H, W)
    stride : int
        Edge of a latent cell, voxels.

    Returns
    -------
    Tensor of shape (J, 1, d, h, w)
    """
    cells = F.avg_pool3d(voxel_reward, stride) * float(stride**3)
    # Padded here, because the pooling layer refuses grids smaller than its window.
    pooled = F.avg_pool3d(F.pad(cells, (window // 2,) * 6), window, stride=1) * float(window**3)
    return pooled - pooled.mean(dim=0, keepdim=True)
