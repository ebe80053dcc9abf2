"""The state of the structured policy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class PolicyMemory:
    """The state that the structured policy carries between iterations; part of the checkpoint.

    Attributes
    ----------
    basis : Tensor of shape (C, k)
        Channel directions of the noise.
    scale : float
        s: standard deviation of the noise along each direction.
    other_norm, policy_norm : float
        Moving averages of the norms of the gradients on mu.
    """

    basis: Tensor | None = None
    scale: float = 0.3
    other_norm: float = 0.0
    policy_norm: float = 0.0
