"""The policy-gradient step as printed in the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backbones import Encoded
from ..losses.overlap import hard_dice, sharpen, soft_dice
from ..pairs.sample import Sample
from ..spatial import warp
from .advantage import group_advantage
from .cut import Cut, decode, trained_parameters
from .rewards import reward_of
from .sampling import gaussian_noise, ldvn_scale, log_likelihood
from .step_result import Step, StepResult


def printed_step(
    objective: Step,
    pair: Sample,
    u_prev: Tensor,
    encoded: Encoded,
    tau: float,
    rng: np.random.Generator,
) -> StepResult:
    w, p = objective.weights, objective.policy
    j_count = p.trajectories
    labels = pair.fixed_labels.shape[1]
    cut = Cut(encoded, trained_parameters(objective))
    leaf = cut.encoded
    n = encoded.mu.numel()
    noise = gaussian_noise((j_count, *encoded.mu.shape[1:]), rng, encoded.mu.device)
    with torch.no_grad():
        start = warp(pair.moving_map, u_prev, mode="nearest")
        base = float(hard_dice(start, pair.fixed_map, labels))
    rewards: list[float] = []
    dices: list[float] = []
    fields: list[tuple[float, Tensor]] = []
    soft: list[float] = []

    def run(first: int, last: int) -> None:
        z = leaf.mu + tau * torch.exp(leaf.log_sigma) * noise[first:last]
        u = decode(objective, z, leaf, u_prev)
        read = warp(pair.moving_labels, u)
        dice = soft_dice(sharpen(read, w.sharpness), sharpen(pair.fixed_labels, w.sharpness))
        if w.dice:
            cut.backward(w.dice * (1.0 - dice).sum() / j_count)
        soft.extend(float(d) for d in dice.detach())
        for k in range(last - first):
            r, d, _ = reward_of(objective, pair, u[k : k + 1].detach(), base)
            rewards.append(r)
            dices.append(d)
            # Only the best field so far is kept, so that the memory does not grow with J.
            if len(fields) == 0 or r > fields[0][0]:
                fields[:] = [(r, u[k : k + 1].detach().clone())]

    # One at a time, or all at once if memory allows; the result is the same.
    size = 1 if p.sequential else j_count
    for first in range(0, j_count, size):
        run(first, min(first + size, j_count))

    # L_warm at z = mu, also through the cut, so that the decoder's graph is freed before the
    # encoder's is used.
    u_mean = decode(objective, leaf.mu, leaf, u_prev)
    terms = objective.field_losses(pair, u_mean, with_dice=False)
    exact = w.warm * objective.warm_loss(terms, leaf)
    if "truth" in terms:
        exact = exact + w.truth * terms["truth"]
    if w.warm or "truth" in terms:
        cut.backward(exact)
    if p.mean_candidate:
        r, _, _ = reward_of(objective, pair, u_mean.detach(), base)
        if r > fields[0][0]:
            fields[:] = [(r, u_mean.detach())]

    advantage = group_advantage(torch.tensor(rewards, device=encoded.mu.device))
    with torch.no_grad():
        z = encoded.mu + tau * torch.exp(encoded.log_sigma) * noise
    log_pi = log_likelihood(z, encoded.mu, encoded.log_sigma, tau, ldvn_scale(n, p.ldvn))
    relative = log_pi - log_pi.mean()
    policy_loss = -(advantage * relative).mean()
    loss = cut.surrogate()
    if p.weight:
        loss = loss + p.weight * policy_loss
    soft_mean = sum(soft) / len(soft)
    value = (
        float(policy_loss.detach()) * p.weight + float(exact.detach()) + w.dice * (1.0 - soft_mean)
    )
    logs: dict[str, Any] = {k: v.detach() for k, v in terms.items()}
    logs |= {
        "loss": value,
        "policy_loss": policy_loss.detach(),
        "log_pi_sd": log_pi.detach().std(unbiased=False),
        "soft_dice": soft_mean,
        "reward_mean": float(np.mean(rewards)),
        "reward_sd": float(np.std(rewards)),
        "sample_dice_sd": float(np.std(dices)),
        "tau": tau,
        "mu_abs": encoded.mu.detach().abs().mean(),
        "sigma": encoded.log_sigma.detach().exp().mean(),
    }
    return StepResult(loss, fields[0][1], logs)
