"""One step of fine-tuning with a policy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..pairs.sample import Sample
from ..spatial import warp
from .printed import printed_step
from .step_result import Step, StepResult
from .structured import structured_step


def policy_step(
    objective: Step,
    pair: Sample,
    u_prev: Tensor,
    tau: float,
    rng: np.random.Generator,
    step: int = 0,
) -> StepResult:
    """Run step ``step`` (from 0) of fine-tuning with a policy; see :mod:`..policy`."""
    with torch.no_grad():
        warped = warp(pair.moving, u_prev)
    with torch.autocast(u_prev.device.type, torch.bfloat16, enabled=objective.amp):
        encoded = objective.backbone.state(pair.fixed, warped, objective.backbone.view(step))
    if objective.policy.kind == "paper":
        return printed_step(objective, pair, u_prev, encoded, tau, rng)
    return structured_step(objective, pair, u_prev, encoded, rng)
