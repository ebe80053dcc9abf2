"""The result of a refinement step, and the interface that a policy needs of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ..backbones import Encoded, PolicyBackbone
from ..config.schema import Loss, Policy
from ..pairs.sample import Sample
from .memory import PolicyMemory


@dataclass
class StepResult:
    """Outcome of a step.

    Attributes
    ----------
    loss : Tensor, scalar
        Its gradient is the step's gradient (its value may be a surrogate's; see ``logs["loss"]``).
    u : Tensor of shape (1, 3, D, H, W)
        The next state, detached.
    logs : dict of str to Tensor or float
        Scalars for the log.
    """

    loss: Tensor
    u: Tensor
    logs: dict[str, Any]


class Step(Protocol):
    """The part of :class:`..step.StepObjective` that a policy uses."""

    backbone: PolicyBackbone
    weights: Loss
    policy: Policy
    memory: PolicyMemory
    amp: bool
    spacing: tuple[float, float, float]

    def field_losses(
        self, pair: Sample, u: Tensor, with_dice: bool = True
    ) -> dict[str, Tensor]: ...

    def warm_loss(self, terms: dict[str, Tensor], encoded: Encoded) -> Tensor: ...
