"""Gradients in two halves, so that the memory does not depend on the number of trajectories."""

from __future__ import annotations

import torch
from torch import Tensor

from ..backbones import Encoded
from ..spatial import compose
from .step_result import Step


class Cut:
    """Cuts the graph between encoder and decoder.

    The losses of single trajectories are differentiated down to the cut and to the decoder's
    weights, and then freed. :meth:`surrogate` is a scalar whose gradient is their sum.
    """

    def __init__(self, encoded: Encoded, parameters: list[Tensor]):
        self.outputs = (encoded.mu, encoded.log_sigma, *encoded.skips)
        self.leaves = tuple(t.detach().requires_grad_() for t in self.outputs)
        self.parameters = parameters
        self.view = encoded.view
        self.gradients: list[Tensor | None] = [None] * (len(self.leaves) + len(parameters))

    @property
    def encoded(self) -> Encoded:
        mu, log_sigma, *skips = self.leaves
        return Encoded(mu, log_sigma, tuple(skips), self.view)

    def backward(self, loss: Tensor) -> Tensor:
        """Add the gradient of ``loss``, which must depend on mu; return its part for mu."""
        gradients = torch.autograd.grad(loss, (*self.leaves, *self.parameters), allow_unused=True)
        for i, g in enumerate(gradients):
            if g is not None:
                before = self.gradients[i]
                self.gradients[i] = g if before is None else before + g
        return gradients[0]

    def surrogate(self) -> Tensor:
        total = self.outputs[0].new_zeros(())
        for value, gradient in zip((*self.outputs, *self.parameters), self.gradients, strict=True):
            if gradient is not None:
                total = total + (value.float() * gradient.float()).sum()
        return total


def trained_parameters(objective: Step) -> list[Tensor]:
    """Return the parameters of the network that are trained."""
    return [p for p in objective.backbone.parameters() if p.requires_grad]


def decode(objective: Step, z: Tensor, encoded: Encoded, u_prev: Tensor) -> Tensor:
    with torch.autocast(z.device.type, torch.bfloat16, enabled=objective.amp):
        phi = objective.backbone.step_field(z, encoded)
    return compose(phi, u_prev)
