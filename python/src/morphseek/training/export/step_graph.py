"""One refinement step as a graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..backbones import PolicyBackbone, build_backbone
from ..config.schema import Model
from ..losses.similarity import local_ncc_map
from ..spatial import compose, njd_fraction, warp


class StepGraph(nn.Module):
    """The exported computation; see the tables of :mod:`..export` for inputs and outputs.

    Parameters
    ----------
    backbone : PolicyBackbone
    half : bool
        Convert the layers of ``backbone``, except the heads, to float16.
    """

    def __init__(self, backbone: PolicyBackbone, half: bool = False):
        super().__init__()
        self.backbone = backbone
        self.eval()
        self.dtype = torch.float16 if half else torch.float32
        if half:
            backbone.half()
            for head in (backbone.mu_head, backbone.log_sigma_head) if backbone.heads else ():
                head.float()

    def forward(
        self,
        fixed: Tensor,
        moving: Tensor,
        u_prev: Tensor,
        epsilon: Tensor,
        tau: Tensor,
        step_view: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        e = self.backbone.state(
            fixed.to(self.dtype), warp(moving, u_prev).to(self.dtype), step_view
        )
        z = e.mu + tau * torch.exp(e.log_sigma) * epsilon
        u = compose(self.backbone.step_field(z.to(self.dtype), e), u_prev)
        warped = warp(moving, u)
        njd = 100.0 * njd_fraction(u)
        return u, warped, label_free_reward(fixed, warped, njd), e.mu, e.log_sigma, njd


def label_free_reward(fixed: Tensor, warped: Tensor, njd: Tensor) -> Tensor:
    """Rate trajectories without labels.

    Parameters
    ----------
    fixed : (1, 1, D, H, W)
    warped : (J, 1, D, H, W)
    njd : (J,)
        Percent of the voxels where the trajectory's field folds.

    Returns
    -------
    Tensor of shape (J,)
        Mean local NCC (window 9) over the voxels with ``fixed > 0``, minus the NJD.
    """
    mask = (fixed > 0).to(fixed.dtype)
    ncc = local_ncc_map(fixed, warped)
    mean = (ncc * mask).sum(dim=(1, 2, 3, 4)) / mask.sum().clamp_min(1.0)
    return mean - njd


def random_backbone(model: Model, seed: int) -> PolicyBackbone:
    """Return the network of a configuration with random weights, rounded to float16. It moves
    voxels; a freshly initialised one hardly does.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        backbone = build_backbone(model).eval()
        nn.init.normal_(backbone.flow.weight, std=backbone.flow.weight[0].numel() ** -0.5)
        for p in backbone.parameters():
            p.copy_(p.half().float())
    return backbone
