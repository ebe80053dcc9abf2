"""The latent policy: sampling, log-likelihood, advantages, and the two policy-gradient steps.

``paper``: Group Relative Policy Optimisation as printed in the paper. White noise, one scalar
reward for each trajectory, the group-normalised advantage, the log-likelihood of the *detached*
latent scaled by 1/s (LDVN), plus 0.8 L_warm + 0.2 L_Dice.

``structured``: the same idea with less noise in the gradient. One scalar reward over N latent
dimensions has a signal-to-noise ratio of about sqrt(J/N). Therefore the noise is confined to the
few channel directions that matter and is spatially smooth, every latent cell is credited with the
reward of its own neighbourhood, and samples come in antithetic pairs.

In both, the memory does not depend on J: trajectories are decoded (and, in ``paper``,
differentiated) one at a time. Their gradients are collected at the encoder's outputs and at the
decoder's weights. A surrogate scalar with these gradients is passed on, so that a step is one
forward and one backward pass, as DistributedDataParallel needs it.
"""

from .advantage import group_advantage, local_advantage
from .memory import PolicyMemory
from .rewards import hd95, local_dice_reward, local_truth_reward, reward_of
from .sampling import (
    channel_basis,
    gaussian_noise,
    ldvn_scale,
    log_likelihood,
    oja_update,
    smoothed,
)
from .step import policy_step
from .step_result import StepResult

__all__ = [
    "StepResult",
    "PolicyMemory",
    "channel_basis",
    "gaussian_noise",
    "group_advantage",
    "hd95",
    "ldvn_scale",
    "local_advantage",
    "local_dice_reward",
    "local_truth_reward",
    "log_likelihood",
    "oja_update",
    "policy_step",
    "reward_of",
    "smoothed",
]
