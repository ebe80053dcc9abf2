"""The latent policy: sampling, log-likelihood, advantages, and the two policy-gradient steps.

``paper``: Group Relative Policy Optimisation as the paper prints it. White noise, one scalar reward
a trajectory, the group-normalised advantage, the log-likelihood of the *detached* latent scaled by
1/s (LDVN), plus 0.8 L_warm + 0.2 L_Dice.

``structured``: the same idea with a signal. One scalar reward over N latent dimensions has a
signal-to-noise ratio of about sqrt(J/N); so the noise is confined to the few channel directions
that matter and is spatially smooth, every latent cell is credited with the reward of its own
neighbourhood, and samples come in antithetic pairs.

Both keep the memory independent of J: trajectories are decoded (and, in ``paper``, differentiated)
one at a time. Their gradients are collected at the encoder's outputs and at the decoder's weights,
and handed on as a surrogate scalar whose gradient they are. So a step stays one forward and one
backward, which is what DistributedDataParallel needs.
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
