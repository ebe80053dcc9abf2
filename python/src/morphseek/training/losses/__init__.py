"""Losses and rewards: image similarity, regularity, overlap of labels.

Images are ``(B, 1, D, H, W)``, label maps ``(B, K, D, H, W)`` with one channel for each label
except the background, fields ``(B, 3, D, H, W)`` in voxels. Masks are ``(B, 1, D, H, W)`` in
[0, 1]; a loss with a mask is the mean over it.
"""

from .overlap import hard_dice, sharpen, soft_dice, soft_dice_per_label
from .regularity import (
    diffusion,
    endpoint_error,
    fold_hinge,
    kl_to_standard_normal,
    squared_log_jacobian,
)
from .similarity import (
    SIMILARITIES,
    local_mse,
    local_ncc,
    local_ncc_map,
    masked_mean,
    mind_descriptor,
    mind_loss,
    similarity,
)

__all__ = [
    "SIMILARITIES",
    "similarity",
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
    "squared_log_jacobian",
]
