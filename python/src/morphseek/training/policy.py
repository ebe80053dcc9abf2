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

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .backbones import Encoded
from .data import Sample
from .losses import hard_dice, sharpen, soft_dice
from .spatial import compose, jacobian_determinant, njd_fraction, to_view, warp

__all__ = [
    "PolicyMemory",
    "channel_basis",
    "gaussian_noise",
    "group_advantage",
    "hd95",
    "ldvn_scale",
    "local_advantage",
    "local_dice_reward",
    "log_likelihood",
    "policy_step",
    "smooth_noise",
]


# -- distribution ----------------------------------------------------------------------------------


def gaussian_noise(
    shape: tuple[int, ...], rng: np.random.Generator, device: torch.device | str = "cpu"
) -> Tensor:
    """Standard normal tensor from a NumPy generator: the same on every device."""
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(device)


def ldvn_scale(n: int, kind: str) -> float:
    """The s of Latent-Dimension Variance Normalisation for N = ``n`` latent dimensions."""
    return {"sqrt": math.sqrt(n), "one": 1.0, "n": float(n)}[kind]


def log_likelihood(z: Tensor, mu: Tensor, log_sigma: Tensor, tau: float, s: float) -> Tensor:
    """Log-density of latents under N(mu, (tau sigma)^2), divided by ``s``.

    ``z`` is the action that was taken and is detached here. With the reparameterised ``z`` the
    gradient with respect to ``mu`` would vanish identically: (z - mu) / sigma is the noise,
    whatever mu is.

    Parameters
    ----------
    z : (J, C, d, h, w)
    mu, log_sigma : (1, C, d, h, w)
    tau : float
        Temperature, > 0.
    s : float
        LDVN scale; see :func:`ldvn_scale`.

    Returns
    -------
    Tensor of shape (J,)
    """
    log_scale = log_sigma + math.log(tau)
    standard = (z.detach() - mu) * torch.exp(-log_scale)
    terms = standard.square() + 2.0 * log_scale + math.log(2.0 * math.pi)
    return -0.5 / s * terms.flatten(1).sum(1)


def group_advantage(rewards: Tensor, eps: float = 1e-8) -> Tensor:
    """``(R - mean R) / (sd R + eps)`` within the group; the standard deviation is the
    population's.
    """
    centred = rewards - rewards.mean()
    return centred / (rewards.std(unbiased=False) + eps)


# -- rewards ---------------------------------------------------------------------------------------


def hd95(
    warped: Tensor,
    fixed: Tensor,
    labels: int,
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> float:
    """95 % Hausdorff distance in mm, mean over labels; not differentiable.

    The larger of the two directed 95th percentiles of surface distances (MONAI's definition). A
    label that is missing in one of the maps counts the diagonal of the grid.

    Parameters
    ----------
    warped, fixed : (1, 1, D, H, W)
        Label maps.
    """
    from scipy.ndimage import binary_erosion, distance_transform_edt

    w, f = warped[0, 0].cpu().numpy(), fixed[0, 0].cpu().numpy()
    diagonal = float(np.linalg.norm(np.array(w.shape) * np.array(spacing)))
    values = []
    for k in range(1, labels + 1):
        a, b = w == k, f == k
        if not a.any() and not b.any():
            continue
        if not a.any() or not b.any():
            values.append(diagonal)
            continue
        # Work in the box of both: distances between the surfaces do not depend on what is outside.
        box = np.argwhere(a | b)
        lo, hi = box.min(0), box.max(0) + 1
        cut = tuple(slice(i, j) for i, j in zip(lo, hi, strict=True))
        a, b = a[cut], b[cut]
        edge_a, edge_b = a & ~binary_erosion(a), b & ~binary_erosion(b)
        to_b = distance_transform_edt(~edge_b, sampling=spacing)[edge_a]
        to_a = distance_transform_edt(~edge_a, sampling=spacing)[edge_b]
        values.append(float(max(np.percentile(to_b, 95), np.percentile(to_a, 95))))
    return float(np.mean(values)) if values else 0.0


def local_dice_reward(warped: Tensor, fixed: Tensor, reference: Tensor, labels: int) -> Tensor:
    """First-order share of every voxel in the change of Dice against a reference state.

    The derivative of Dice_l = 2 |f w| / (|f| + |w|) with respect to w(x) is (2 f(x) - D_l) / S_l,
    with D_l and S_l = |f| + |w| of the reference. Summed over voxels, the differences between
    samples are their differences in Dice.

    Parameters
    ----------
    warped : (J, 1, D, H, W)
        Label maps of the samples.
    fixed, reference : (1, 1, D, H, W)
        Fixed label map, and the moving one warped by the reference state.

    Returns
    -------
    Tensor of shape (J, 1, D, H, W)
    """
    total = torch.zeros(warped.shape, device=warped.device)
    count = 0
    for k in range(1, labels + 1):
        f, w0, w = (fixed == k).float(), (reference == k).float(), (warped == k).float()
        size = f.sum() + w0.sum()
        if size == 0:
            continue
        dice = 2.0 * (f * w0).sum() / size
        total = total + (2.0 * f * w - dice * w) / size
        count += 1
    return total / max(count, 1)


def local_advantage(voxel_reward: Tensor, stride: int, window: int = 3) -> Tensor:
    """Centred local advantage of each latent cell.

    Rewards are summed over each cell and its ``window``-cubed neighbourhood, then the group mean is
    subtracted cell by cell. There is no division by the cell's standard deviation: that would
    amplify cells where nothing happens.

    Parameters
    ----------
    voxel_reward : (J, 1, D, H, W)
    stride : int
        Edge of a latent cell, voxels.

    Returns
    -------
    Tensor of shape (J, 1, d, h, w)
    """
    cells = F.avg_pool3d(voxel_reward, stride) * float(stride**3)
    # Padded by hand: the pooling layer refuses grids smaller than its window.
    pooled = F.avg_pool3d(F.pad(cells, (window // 2,) * 6), window, stride=1) * float(window**3)
    return pooled - pooled.mean(dim=0, keepdim=True)


# -- structured noise ------------------------------------------------------------------------------


def smooth_noise(noise: Tensor, sd: float) -> Tensor:
    """Smooth white noise with a 5x5x5 Gaussian, and bring it back to unit variance.

    Parameters
    ----------
    noise : (J, k, d, h, w)
    sd : float
        Standard deviation of the Gaussian, cells; 0 leaves the noise white.
    """
    if sd <= 0:
        return noise
    offsets = torch.arange(-2, 3, dtype=torch.float32, device=noise.device)
    kernel = torch.exp(-0.5 * (offsets / sd) ** 2)
    # Unit variance in the interior: the output's variance is the sum of the squared weights of the
    # cubic kernel.
    kernel = kernel / kernel.square().sum().sqrt()
    j, k, *size = noise.shape
    x = noise.reshape(j * k, 1, *size)
    # Zeros beyond the border lower the variance there; dividing by its exact value repairs that.
    variance = torch.ones(1, 1, *size, device=noise.device)
    for axis in range(3):
        shape = [1, 1, 1, 1, 1]
        shape[2 + axis] = 5
        pad = [0, 0, 0]
        pad[axis] = 2
        x = F.conv3d(x, kernel.view(shape), padding=pad)
        variance = F.conv3d(variance, kernel.square().view(shape), padding=pad)
    return (x / variance.sqrt()).reshape(noise.shape)


def channel_basis(gradients: list[Tensor], rank: int) -> Tensor:
    """Top eigenvectors of the channel covariance sum(g g^T).

    Parameters
    ----------
    gradients : list of Tensors of shape (1, C, d, h, w)
        Gradients of soft Dice with respect to mu.
    rank : int

    Returns
    -------
    Tensor of shape (C, rank)
        Orthonormal columns.
    """
    c = gradients[0].shape[1]
    covariance = torch.zeros(c, c, dtype=torch.float64)
    for g in gradients:
        flat = g[0].reshape(c, -1).double().cpu()
        covariance += flat @ flat.T
    _, vectors = torch.linalg.eigh(covariance)
    return vectors[:, -rank:].flip(1).float()


@dataclass
class PolicyMemory:
    """What the structured policy carries from visit to visit; part of the checkpoint.

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
    extra: dict = field(default_factory=dict)

    def state(self) -> dict:
        return {
            "basis": self.basis,
            "scale": self.scale,
            "other_norm": self.other_norm,
            "policy_norm": self.policy_norm,
        }

    def load(self, state: dict) -> None:
        self.basis = state["basis"]
        self.scale = state["scale"]
        self.other_norm, self.policy_norm = state["other_norm"], state["policy_norm"]


def oja_update(basis: Tensor, gradient: Tensor, rate: float = 0.1) -> Tensor:
    """One step of Oja's rule: turn the basis (C, k) towards the dominant channel directions of a
    gradient (1, C, ...).
    """
    g = gradient[0].reshape(gradient.shape[1], -1)
    g = g / g.norm().clamp_min(1e-12)
    moved = basis + rate * (g @ (g.T @ basis))
    q, r = torch.linalg.qr(moved)
    return q * torch.sign(torch.diagonal(r))


# -- gradients in two halves -----------------------------------------------------------------------


class _Cut:
    """The graph cut between encoder and decoder.

    Losses of single trajectories are differentiated down to the cut (and to the decoder's weights)
    and then freed; :meth:`surrogate` is a scalar whose gradient is their sum.
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

    def backward(self, loss: Tensor) -> Tensor | None:
        """Add the gradient of ``loss``; returns its part with respect to mu."""
        found = torch.autograd.grad(loss, (*self.leaves, *self.parameters), allow_unused=True)
        for i, g in enumerate(found):
            if g is not None:
                self.gradients[i] = g if self.gradients[i] is None else self.gradients[i] + g
        return found[0]

    def surrogate(self) -> Tensor:
        total = self.outputs[0].new_zeros(())
        for value, gradient in zip((*self.outputs, *self.parameters), self.gradients, strict=True):
            if gradient is not None:
                total = total + (value.float() * gradient.float()).sum()
        return total


def _decoder_parameters(objective) -> list[Tensor]:
    return [p for p in objective.backbone.parameters() if p.requires_grad]


def _reward(objective, pair: Sample, u: Tensor, base: float) -> tuple[float, float, float]:
    """Reward, hard Dice and NJD (fraction) of one cumulative field (1, 3, D, H, W)."""
    p = objective.policy
    labels = pair.fixed_labels.shape[1]
    with torch.no_grad():
        seen = warp(pair.moving_map, u, mode="nearest")
        dice = float(hard_dice(seen, pair.fixed_map, labels))
        njd = float(njd_fraction(u))
        if p.reward == "hd95":
            return -hd95(seen, pair.fixed_map, labels, objective.spacing) + p.w_njd * njd, dice, njd
    return p.w_dice * (dice - base) + p.w_njd * njd, dice, njd


def policy_step(
    objective, pair: Sample, u_prev: Tensor, tau: float, rng: np.random.Generator, step: int = 0
):
    """Step ``step`` (from 0) of fine-tuning with a policy; see the module's description. Returns a
    ``StepResult``.
    """
    with torch.no_grad():
        seen = warp(pair.moving, u_prev)
    with torch.autocast(u_prev.device.type, torch.bfloat16, enabled=objective.amp):
        encoded = objective.backbone.state(pair.fixed, seen, objective.backbone.view(step))
    if objective.policy.kind == "paper":
        return _paper_step(objective, pair, u_prev, encoded, tau, rng)
    return _structured_step(objective, pair, u_prev, encoded, rng)


def _decode(objective, z: Tensor, encoded: Encoded, u_prev: Tensor) -> Tensor:
    with torch.autocast(z.device.type, torch.bfloat16, enabled=objective.amp):
        phi = objective.backbone.step_field(z, encoded)
    return compose(phi, u_prev)


def _paper_step(
    objective, pair: Sample, u_prev: Tensor, encoded: Encoded, tau: float, rng: np.random.Generator
):
    from .objective import StepResult

    w, p = objective.weights, objective.policy
    j_count = p.trajectories
    labels = pair.fixed_labels.shape[1]
    cut = _Cut(encoded, _decoder_parameters(objective))
    leaf = cut.encoded
    n = encoded.mu.numel()
    noise = gaussian_noise((j_count, *encoded.mu.shape[1:]), rng, encoded.mu.device)
    with torch.no_grad():
        start = warp(pair.moving_map, u_prev, mode="nearest")
        base = float(hard_dice(start, pair.fixed_map, labels))
    rewards, dices, fields, soft = [], [], [], []

    def run(first: int, last: int) -> None:
        z = leaf.mu + tau * torch.exp(leaf.log_sigma) * noise[first:last]
        u = _decode(objective, z, leaf, u_prev)
        read = warp(pair.moving_labels, u)
        dice = soft_dice(sharpen(read, w.sharpness), sharpen(pair.fixed_labels, w.sharpness))
        if w.dice:
            cut.backward(w.dice * (1.0 - dice).sum() / j_count)
        soft.extend(float(d) for d in dice.detach())
        for k in range(last - first):
            r, d, _ = _reward(objective, pair, u[k : k + 1].detach(), base)
            rewards.append(r), dices.append(d)
            # Only the best field so far is kept: J fields of a large volume would be memory that
            # grows with J.
            if len(fields) == 0 or r > fields[0][0]:
                fields[:] = [(r, u[k : k + 1].detach().clone())]

    # One at a time, or all at once where memory allows (the mathematics is the same).
    size = 1 if p.sequential else j_count
    for first in range(0, j_count, size):
        run(first, min(first + size, j_count))

    # L_warm at z = mu, through the same cut so that the decoder's graph is freed before the
    # encoder's is used.
    u_mean = _decode(objective, leaf.mu, leaf, u_prev)
    terms = objective.field_losses(pair, u_mean, with_dice=False)
    exact = w.warm * objective.warm_loss(terms, leaf)
    if "truth" in terms:
        exact = exact + w.truth * terms["truth"]
    if w.warm or "truth" in terms:
        cut.backward(exact)
    if p.mean_candidate:
        r, _, _ = _reward(objective, pair, u_mean.detach(), base)
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
    logs = {k: v.detach() for k, v in terms.items()}
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


def _structured_step(
    objective, pair: Sample, u_prev: Tensor, encoded: Encoded, rng: np.random.Generator
):
    from .objective import StepResult

    w, p = objective.weights, objective.policy
    memory: PolicyMemory = objective.memory
    stride = objective.backbone.latent_stride
    labels = pair.fixed_labels.shape[1]
    device = encoded.mu.device
    cut = _Cut(encoded, _decoder_parameters(objective))
    leaf = cut.encoded

    # The exact terms, at z = mu.
    u_mean = _decode(objective, leaf.mu, leaf, u_prev)
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
    noise = smooth_noise(noise, p.smooth_sd)
    direction = torch.einsum("ck,jkdhw->jcdhw", basis, noise)

    with torch.no_grad():
        # No local decomposition of a percentile: one scalar a trajectory.
        local = p.reward == "dice_njd" and p.advantage == "local"
        reference = warp(pair.moving_map, u_mean, mode="nearest")
        base = float(hard_dice(reference, pair.fixed_map, labels))
        mean_reward, _, _ = _reward(objective, pair, u_mean, base)
        rewards, dices, cells = [], [], []
        best = (mean_reward, u_mean) if p.mean_candidate else (-math.inf, u_mean)
        for j in range(p.trajectories):
            z = encoded.mu.detach() + memory.scale * direction[j : j + 1]
            u = _decode(objective, z, encoded, u_prev)
            r, d, _ = _reward(objective, pair, u, base)
            rewards.append(r), dices.append(d)
            if local:
                seen = warp(pair.moving_map, u, mode="nearest")
                voxel = p.w_dice * local_dice_reward(seen, pair.fixed_map, reference, labels)
                folded = (jacobian_determinant(u)[:, None] < 0).float()
                credit = voxel + p.w_njd * folded / folded.numel()
                # mu and its noise lie where the network saw the images.
                if encoded.view is not None:
                    credit = to_view(credit, encoded.view)
                cells.append(F.avg_pool3d(credit, stride))
            if r > best[0]:
                best = (r, u)
        if local:
            # The cells were averaged over stride^3 voxels as they came, so that no J volumes are
            # kept.
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
        # Bounded multiplicative steps towards the wanted spread of Dice; samples that are all alike
        # tell no direction. Runs come to one to five times the range of mu, and where no noise can
        # reach that spread it must not grow for ever.
        if sd > 0:
            memory.scale = min(
                memory.scale * float(np.clip(p.target_sd / sd, 0.9, 1.1)),
                10 * objective.backbone.scale,
            )
        cosine = float(
            (g_policy * g_other).sum() / (g_policy.norm() * g_other.norm()).clamp_min(1e-12)
        )
    total = cut.surrogate() + weight * (encoded.mu * g_policy).sum()
    logs = {k: v.detach() for k, v in terms.items()}
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
