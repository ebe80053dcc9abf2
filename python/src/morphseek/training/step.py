"""One refinement step as a loss: from a pair and its current state it computes a scalar to
differentiate and the next state.

The whole step is one :class:`torch.nn.Module`, so that
:class:`torch.nn.parallel.DistributedDataParallel` can wrap it: one forward, one backward, gradients
averaged over processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .backbones import Encoded, PolicyBackbone
from .config.schema import Loss, Policy
from .losses.overlap import sharpen, soft_dice
from .losses.regularity import (
    diffusion,
    endpoint_error,
    fold_hinge,
    kl_to_standard_normal,
    squared_log_jacobian,
)
from .losses.similarity import SIMILARITIES
from .pairs.sample import Sample
from .policy import PolicyMemory, StepResult, policy_step
from .spatial import compose, jacobian_determinant, to_view, warp


class StepObjective(nn.Module):
    """Loss of one step for one pair.

    Parameters
    ----------
    backbone : PolicyBackbone
    loss, policy
        Sections of the configuration.
    stage : {"warmup", "finetune"}
    amp : bool
        bf16 autocast for the network; fields and losses stay float32.
    spacing : sequence of 3 float
        Of the network grid, mm, array order; a reward in mm needs it.
    """

    def __init__(
        self,
        backbone: PolicyBackbone,
        loss: Loss,
        policy: Policy,
        stage: str,
        amp: bool,
        spacing: Sequence[float] = (1.0, 1.0, 1.0),
    ):
        super().__init__()
        self.backbone = backbone
        self.weights = loss
        self.policy = policy
        self.stage = stage
        self.amp = amp
        z, y, x = spacing
        self.spacing = (z, y, x)
        self.memory = PolicyMemory()
        # Changes during the run if loss.kl_target is set; part of the checkpoint.
        self.kl_weight = loss.kl

    def dice_gradient(self, pair: Sample, u_prev: Tensor) -> Tensor:
        """Return the gradient of -soft Dice with respect to mu, (1, C, d, h, w), in the first step,
        from the state ``u_prev``.
        """
        with torch.no_grad():
            warped = warp(pair.moving, u_prev)
            with torch.autocast(u_prev.device.type, torch.bfloat16, enabled=self.amp):
                encoded = self.backbone.state(pair.fixed, warped, self.backbone.view(0))
        mu = encoded.mu.detach().requires_grad_()
        with torch.autocast(u_prev.device.type, torch.bfloat16, enabled=self.amp):
            phi = self.backbone.step_field(mu, encoded)
        read = warp(pair.moving_labels, compose(phi, u_prev))
        return torch.autograd.grad(-soft_dice(read, pair.fixed_labels).mean(), mu)[0]

    # -- pieces ------------------------------------------------------------------------------------

    def similarity(
        self, pair: Sample, u: Tensor, warped: Tensor, warped_fov: Tensor | None
    ) -> Tensor:
        """Return the image similarity of the fixed image and the moving one warped by ``u``, inside
        both fields of view.
        """
        w = self.weights
        mask = pair.fixed_fov * warped_fov if w.mask_fov and warped_fov is not None else None
        return SIMILARITIES[w.similarity](pair.fixed, warped, mask, w.window)

    def field_losses(self, pair: Sample, u: Tensor, with_dice: bool = True) -> dict[str, Tensor]:
        """Return the terms that depend on the cumulative field ``u`` (B, 3, D, H, W) alone."""
        w = self.weights
        # One pass samples image, field of view and labels, because the coordinates are expensive.
        with_dice = with_dice and pair.moving_labels.shape[1] > 0
        stack = [pair.moving, pair.moving_fov]
        if with_dice:
            stack.append(pair.moving_labels)
        read = warp(torch.cat(stack, dim=1), u)
        terms = {
            "similarity": self.similarity(pair, u, read[:, :1], read[:, 1:2].detach()),
            "regularity": diffusion(u),
        }
        if w.fold:
            terms["fold"] = fold_hinge(u, w.fold_margin)
        if w.volume:
            terms["volume"] = squared_log_jacobian(u)
        if w.truth and pair.truth is not None:
            terms["truth"] = endpoint_error(u, pair.truth, pair.truth_mask)
        if with_dice:
            warped, target = (sharpen(x, w.sharpness) for x in (read[:, 2:], pair.fixed_labels))
            terms["soft_dice"] = soft_dice(warped, target).mean()
            if w.moving_share:
                covered = jacobian_determinant(u).clamp_min(0.0).unsqueeze(1)
                moving_dice = soft_dice(warped, target, weight=covered).mean()
                terms["soft_dice"] = torch.lerp(terms["soft_dice"], moving_dice, w.moving_share)
        return terms

    def warm_loss(self, terms: dict[str, Tensor], encoded: Encoded) -> Tensor:
        """Return L_warm, the unsupervised objective of the warm-up, with our fold hinge if that has
        a weight.
        """
        w = self.weights
        terms["kl"] = kl_to_standard_normal(encoded.mu, encoded.log_sigma)
        # With a known truth similarity adds little, and between two contrasts nothing.
        likeness = 0.0 if "truth" in terms else terms["similarity"]
        loss = likeness + w.regularity * terms["regularity"] + self.kl_weight * terms["kl"]
        if w.fold:
            loss = loss + w.fold * terms["fold"]
        if w.volume:
            loss = loss + w.volume * terms["volume"]
        return loss

    def segmentation_loss(
        self, logits: Tensor, pair: Sample, u_prev: Tensor, view: Sequence[int] | Tensor | None
    ) -> Tensor:
        """Return the cross-entropy plus soft Dice of the auxiliary logits (1, 2, K + 1, D, H, W)
        against the labels of the images as the network saw them.
        """
        with torch.no_grad():
            warped_map = warp(pair.moving_map, u_prev, mode="nearest")
            target = torch.cat((pair.fixed_map, warped_map), dim=0)
            if view is not None:
                target = to_view(target, view)
        return self._segmentation_loss(logits[0], target[:, 0].long())

    @staticmethod
    def _segmentation_loss(logits: Tensor, target: Tensor) -> Tensor:
        log_p = F.log_softmax(logits, dim=1)
        hot = F.one_hot(target, logits.shape[1]).permute(0, 4, 1, 2, 3).float()
        cross_entropy = -(log_p * hot).sum(1).mean()
        return cross_entropy + 1.0 - soft_dice(log_p[:, 1:].exp(), hot[:, 1:]).mean()

    # -- the step ----------------------------------------------------------------------------------

    def forward(
        self, pair: Sample, u_prev: Tensor, step: int = 0, pretrain: bool = False, **sampling: Any
    ) -> StepResult:
        """Run step ``step`` (from 0) from the state ``u_prev`` (1, 3, D, H, W), voxels; with
        ``pretrain``, train the segmentation of the two images alone.
        """
        if pretrain:
            return self.recognition_step(pair, u_prev)
        if self.stage == "finetune" and self.policy.kind != "none":
            return policy_step(self, pair, u_prev, step=step, **sampling)
        return self.deterministic_step(pair, u_prev, step)

    def recognition_step(self, pair: Sample, u_prev: Tensor) -> StepResult:
        """Train the auxiliary segmentation of both images, unregistered; the state is unchanged."""
        images = torch.cat((pair.fixed, pair.moving), dim=0)
        target = torch.cat((pair.fixed_map, pair.moving_map), dim=0)[:, 0].long()
        with torch.autocast(u_prev.device.type, torch.bfloat16, enabled=self.amp):
            logits = self.backbone.segment(images)
        loss = self._segmentation_loss(logits, target)
        return StepResult(loss, u_prev, {"loss": loss.detach(), "segmentation": loss.detach()})

    def deterministic_step(self, pair: Sample, u_prev: Tensor, step: int) -> StepResult:
        """Run the step z = mu: that of the warm-up, and of fine-tuning by the recipe `best`."""
        w = self.weights
        device = u_prev.device.type
        segment = self.stage == "finetune" and w.segmentation > 0
        with torch.no_grad():
            warped = warp(pair.moving, u_prev)
        with torch.autocast(device, torch.bfloat16, enabled=self.amp):
            encoded = self.backbone.state(pair.fixed, warped, self.backbone.view(step))
            if segment:
                phi, logits = self.backbone.step_field_and_segmentation(encoded.mu, encoded)
            else:
                phi = self.backbone.step_field(encoded.mu, encoded)
        u = compose(phi, u_prev)
        terms = self.field_losses(pair, u, with_dice=self.stage == "finetune" and w.dice > 0)
        loss = self.warm_loss(terms, encoded)
        if self.stage == "finetune":
            loss = w.warm * loss
            if "soft_dice" in terms:
                loss = loss + w.dice * (1.0 - terms["soft_dice"])
            if "truth" in terms:
                loss = loss + w.truth * terms["truth"]
            if segment:
                terms["segmentation"] = self.segmentation_loss(logits, pair, u_prev, encoded.view)
                loss = loss + w.segmentation * terms["segmentation"]
        logs = {k: v.detach() for k, v in terms.items()}
        logs["loss"] = loss.detach()
        logs["mu_abs"] = encoded.mu.detach().abs().mean()
        logs["sigma"] = encoded.log_sigma.detach().exp().mean()
        return StepResult(loss, u.detach(), logs)
