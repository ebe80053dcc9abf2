"""The latent policy's distribution and its noise."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def gaussian_noise(
    shape: tuple[int, ...], rng: np.random.Generator, device: torch.device | str = "cpu"
) -> Tensor:
    """Return a standard normal tensor from a NumPy generator: the same on every device."""
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(device)


def ldvn_scale(n: int, kind: str) -> float:
    """Return the scale s of Latent-Dimension Variance Normalisation for N = ``n`` latent
    dimensions.
    """
    return {"sqrt": math.sqrt(n), "one": 1.0, "n": float(n)}[kind]


def log_likelihood(z: Tensor, mu: Tensor, log_sigma: Tensor, tau: float, s: float) -> Tensor:
    """Return the log-density of latents under N(mu, (tau sigma)^2), divided by ``s``.

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


def smoothed(noise: Tensor, sd: float) -> Tensor:
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
    # Zeros beyond the border lower the variance there, so the noise is divided by its exact value.
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
    """Return the top eigenvectors of the channel covariance sum(g g^T).

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


def oja_update(basis: Tensor, gradient: Tensor, rate: float = 0.1) -> Tensor:
    """Take one step of Oja's rule: turn the basis (C, k) towards the dominant channel directions of
    a gradient (1, C, ...).
    """
    g = gradient[0].reshape(gradient.shape[1], -1)
    g = g / g.norm().clamp_min(1e-12)
    moved = basis + rate * (g @ (g.T @ basis))
    q, r = torch.linalg.qr(moved)
    return q * torch.sign(torch.diagonal(r))
