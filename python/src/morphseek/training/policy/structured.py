"""The policy-gradient step with low-rank smooth noise and local credit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..backbones import Encoded
from ..losses.overlap import hard_dice
from ..pairs.sample import Sample
from ..spatial import jacobian_determinant, to_view, warp
from .advantage import group_advantage, local_advantage
from .cut import Cut, decode, trained_parameters
from .memory import PolicyMemory
from .rewards import local_dice_reward, local_truth_reward, reward_of
from .sampling import gaussian_noise, oja_update, smoothed
from .step_result import Step, StepResult


def structured_step(
    objective: Step, pair: Sample, u_prev: Tensor, encoded: Encoded, rng: np.random.Generator
) -> StepResult:
    w, p = objective.weights, objective.policy
    memory: PolicyMemory = objective.memory
    stride = objective.backbone.latent_stride
    labels = pair.fixed_labels.shape[1]
    device = encoded.mu.device
    cut = Cut(encoded, trained_parameters(objective))
    leaf = cut.encoded

    # The terms with an exact gradient, at z = mu.
    u_mean = decode(objective, leaf.mu, leaf, u_prev)
    terms = objective.field_losses(pair, u_mean, with_dice=w.dice > 0)
    warm = objective.warm_loss(terms, leaf)
    loss = w.warm * warm
    if w.dice:
        loss = loss + w.dice * (1.0 - terms["soft_dice"])
    if "truth" in terms:
        loss = loss + w.truth * terms["truth"]
    g_other = cut.backward(loss)
    u_mean = u_mean.detach()

    if memory.basis is None:
        q, _ = torch.linalg.qr(gaussian_noise((encoded.mu.shape[1], p.rank), rng, device))
        memory.basis = q
    basis = memory.basis.to(device)
    if p.head == "learned":
        memory.basis = oja_update(basis, g_other.detach()).cpu()

    # Antithetic pairs: eps and -eps cancel every even term of the reward around mu.
    drawn = (p.trajectories + 1) // 2 if p.antithetic else p.trajectories
    noise = gaussian_noise((drawn, p.rank, *encoded.mu.shape[2:]), rng, device)
    if p.antithetic:
        noise = torch.cat((noise, -noise))[: p.trajectories]
    noise = smoothed(noise, p.smooth_sd)
    direction = torch.einsum("ck,jkdhw->jcdhw", basis, noise)

    with torch.no_grad():
        # A percentile has no local decomposition: then each trajectory has one scalar.
        local = p.reward == "dice_njd" and p.advantage == "local"
        reference = warp(pair.moving_map, u_mean, mode="nearest")
        base = float(hard_dice(reference, pair.fixed_map, labels))
        mean_reward, _, _ = reward_of(objective, pair, u_mean, base)
        rewards, dices, cells = [], [], []
        best = (mean_reward, u_mean) if p.mean_candidate else (-math.inf, u_mean)
        for j in range(p.trajectories):
            z = encoded.mu.detach() + memory.scale * direction[j : j + 1]
            u = decode(objective, z, encoded, u_prev)
            r, d, _ = reward_of(objective, pair, u, base)
            rewards.append(r)
            dices.append(d)
            if local:
                warped_map = warp(pair.moving_map, u, mode="nearest")
                voxel = p.w_dice * local_dice_reward(warped_map, pair.fixed_map, reference, labels)
                folded = (jacobian_determinant(u)[:, None] < 0).float()
                credit = voxel + p.w_njd * folded / folded.numel()
                if p.w_truth and pair.truth is not None:
                    away = local_truth_reward(u, pair.truth, pair.truth_mask)
                    credit = credit + p.w_truth * away
                # mu and its noise belong to the images as the network saw them.
                if encoded.view is not None:
                    credit = to_view(credit, encoded.view)
                cells.append(F.avg_pool3d(credit, stride))
            if r > best[0]:
                best = (r, u)
        if local:
            # Cells were averaged over stride^3 voxels one trajectory at a time, to save memory;
            # the factor makes them sums.
            advantage = local_advantage(torch.cat(cells), 1) * float(stride**3)
        else:
            advantage = group_advantage(torch.tensor(rewards, device=device)).view(-1, 1, 1, 1, 1)
        g_policy = -(advantage * direction).mean(dim=0, keepdim=True)
        decay = 0.9 if memory.policy_norm else 0.0
        memory.other_norm = decay * memory.other_norm + (1 - decay) * float(g_other.norm())
        memory.policy_norm = decay * memory.policy_norm + (1 - decay) * float(g_policy.norm())
        weight = (
            p.weight
            if p.balance == "fixed"
            else p.gradient_ratio * memory.other_norm / max(memory.policy_norm, 1e-12)
        )
        sd = 100.0 * float(np.std(dices))
        # Bounded multiplicative steps towards the target spread of Dice. The upper limit is for
        # pairs where no noise can reach that spread.
        if sd > 0:
            memory.scale = min(
                memory.scale * float(np.clip(p.target_sd / sd, 0.9, 1.1)),
                10 * objective.backbone.scale,
            )
        cosine = float(
            (g_policy * g_other).sum() / (g_policy.norm() * g_other.norm()).clamp_min(1e-12)
        )
    total = cut.surrogate() + weight * (encoded.mu * g_policy).sum()
    logs: dict[str, Any] = {k: v.detach() for k, v in terms.items()}
    logs |= {
        "loss": loss.detach(),
        "reward_mean": float(np.mean(rewards)),
        "reward_sd": float(np.std(rewards)),
        "sample_dice_sd": float(np.std(dices)),
        "policy_cosine": cosine,
        "noise_scale": memory.scale,
        "mu_abs": encoded.mu.detach().abs().mean(),
        "sigma": encoded.log_sigma.detach().exp().mean(),
    }
    return StepResult(total, best[1], logs)
