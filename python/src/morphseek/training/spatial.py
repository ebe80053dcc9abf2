"""Displacement fields on a voxel grid: warp, compose, integrate, differentiate.

Every field in :mod:`morphseek.training` is a tensor ``u`` of shape ``(B, 3, D, H, W)`` in voxels of
its own grid. Channel ``c`` displaces along array axis ``c`` (so the order is z, y, x), and ``Phi(x)
= x + u(x)`` is the point of the *moving* image to sample for the fixed voxel ``x``. The identity is
the zero field.

All functions trace with :func:`torch.export.export` under dynamic shapes: the sampling grid is made
from the shape of the field (``arange``), never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "column",
    "compose",
    "determinant",
    "forward_differences",
    "from_view",
    "identity_grid",
    "integrate_velocity",
    "jacobian_determinant",
    "njd_fraction",
    "sample",
    "to_view",
    "translate",
    "upsample_field",
    "warp",
]


def identity_grid(
    shape: Sequence[int], device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the voxel coordinates of a grid.

    Parameters
    ----------
    shape : (D, H, W)
        Size of the grid in voxels, array order.
    device, dtype
        Of the returned tensor.

    Returns
    -------
    Tensor of shape (1, 3, D, H, W)
        Channel ``c`` holds the index along array axis ``c``.
    """
    d, h, w = shape
    z = torch.arange(d, device=device, dtype=dtype).view(1, d, 1, 1).expand(1, d, h, w)
    y = torch.arange(h, device=device, dtype=dtype).view(1, 1, h, 1).expand(1, d, h, w)
    x = torch.arange(w, device=device, dtype=dtype).view(1, 1, 1, w).expand(1, d, h, w)
    return torch.stack((z, y, x), dim=1)


def column(
    values: Sequence[float] | np.ndarray | Tensor, device: torch.device | str = "cpu"
) -> Tensor:
    """Return three numbers, in array order, as a tensor (1, 3, 1, 1, 1) to move or scale fields."""
    return torch.as_tensor(values, dtype=torch.float32, device=device).view(1, 3, 1, 1, 1)


def translate(x: Tensor, offset: Sequence[int] | Tensor) -> Tensor:
    """Shift the contents of ``x`` (B, C, D, H, W) by whole voxels, ``offset`` along z, y, x; the
    border's values fill the gap.
    """
    for axis in range(3):
        n = x.shape[axis + 2]
        index = torch.arange(n, device=x.device) - offset[axis]
        x = x.index_select(axis + 2, index.clamp(0, n - 1))
    return x


def to_view(x: Tensor, view: Sequence[int] | Tensor) -> Tensor:
    """Return ``x`` (B, C, D, H, W) as a network sees it: mirrored left to right if ``view[3]`` is
    1, then shifted by ``view[:3]`` voxels.
    """
    return translate(_mirror(x, view[3]), view)


def from_view(field: Tensor, view: Sequence[int] | Tensor) -> Tensor:
    """Undo :func:`to_view` for a displacement (B, 3, D, H, W), voxels, of images that went through
    it.
    """
    back: Sequence[Any] = [-view[axis] for axis in range(3)]
    field = _mirror(translate(field, back), view[3])
    z, y, x = field.unbind(1)
    return torch.stack((z, y, x * (1 - 2 * view[3])), dim=1)


def _mirror(x: Tensor, mirrored: int | Tensor) -> Tensor:
    n = x.shape[-1]
    index = torch.arange(n, device=x.device)
    return x.index_select(-1, index + mirrored * (n - 1 - 2 * index))


def sample(image: Tensor, points: Tensor, mode: str = "bilinear", padding: str = "zeros") -> Tensor:
    """Read ``image`` at voxel coordinates.

    Parameters
    ----------
    image : (B, C, D, H, W)
    points : (B, 3, D', H', W')
        Voxel indices into ``image``, channel order z, y, x.
    mode : {"bilinear", "nearest"}
        ``bilinear`` is PyTorch's name for trilinear on volumes.
    padding : {"zeros", "border"}
        What lies outside the image: 0, or the nearest voxel of its border.

    Returns
    -------
    Tensor of shape (B, C, D', H', W')
    """
    d, h, w = image.shape[2:]
    # grid_sample wants (x, y, z) in [-1, 1]; with align_corners the ends of that interval are voxel
    # *centres*, so index i of n maps to 2 i / (n - 1) - 1. A one-voxel axis would divide by zero.
    z = points[:, 0] * (2.0 / max(d - 1, 1)) - 1.0
    y = points[:, 1] * (2.0 / max(h - 1, 1)) - 1.0
    x = points[:, 2] * (2.0 / max(w - 1, 1)) - 1.0
    grid = torch.stack((x, y, z), dim=-1)
    if image.shape[0] != grid.shape[0]:
        image = image.expand(grid.shape[0], -1, -1, -1, -1)
    return F.grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=True)


def warp(image: Tensor, u: Tensor, mode: str = "bilinear", padding: str = "zeros") -> Tensor:
    """Pull ``image`` back through ``Phi(x) = x + u(x)``.

    Parameters
    ----------
    image : (B, C, D, H, W)
        The moving image; a batch of one serves every field of a larger batch.
    u : (B, 3, D, H, W)
        Displacement, voxels.
    mode, padding
        As in :func:`sample`.

    Returns
    -------
    Tensor of shape (B, C, D, H, W)
    """
    return sample(image, identity_grid(u.shape[2:], u.device, u.dtype) + u, mode, padding)


def compose(phi: Tensor, u: Tensor) -> Tensor:
    """Return the displacement of ``Phi_u o Phi_phi``: first ``phi``, then ``u``.

    The network saw ``moving o Phi_u`` and answered with ``phi``, so the total map of a fixed voxel
    ``x`` is ``Phi_u(x + phi(x))``, whose displacement is ``phi(x) + u(x + phi(x))``. ``u``
    continues beyond its grid with its border value, since a zero there would tear the field at the
    border.

    Parameters
    ----------
    phi, u : (B, 3, D, H, W)
        Displacements, voxels. A batch of one in ``u`` serves every ``phi``.

    Returns
    -------
    Tensor of shape (B, 3, D, H, W)
    """
    return phi + warp(u, phi, padding="border")


def integrate_velocity(velocity: Tensor, squarings: int = 7) -> Tensor:
    """Return the flow of a stationary velocity field over unit time, by scaling and squaring.

    Parameters
    ----------
    velocity : (B, 3, D, H, W)
        Voxels per unit time.
    squarings : int
        The first small step is ``velocity / 2**squarings``; it is then composed with itself this
        many times.

    Returns
    -------
    Tensor of shape (B, 3, D, H, W)
        The displacement, voxels. It is a diffeomorphism up to discretisation.
    """
    u = velocity * (0.5**squarings)
    grid = identity_grid(u.shape[2:], u.device, u.dtype)
    for _ in range(squarings):
        u = u + sample(u, grid + u, padding="border")
    return u


def upsample_field(u: Tensor) -> Tensor:
    """Bring a displacement on a grid of half the size to the full grid.

    Coarse voxel ``i`` covers fine voxels ``2 i`` and ``2 i + 1`` (half-pixel centres), and a coarse
    voxel is two fine voxels long, hence the factor.

    Parameters
    ----------
    u : (B, 3, D, H, W)

    Returns
    -------
    Tensor of shape (B, 3, 2 D, 2 H, 2 W)
    """
    return 2.0 * F.interpolate(u, scale_factor=2.0, mode="trilinear", align_corners=False)


def forward_differences(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first differences along z, y, x on the common part of the grid.

    Parameters
    ----------
    u : (B, C, D, H, W)

    Returns
    -------
    three Tensors of shape (B, C, D - 1, H - 1, W - 1)
        Differences per voxel along array axes 0, 1 and 2.
    """
    base = u[:, :, :-1, :-1, :-1]
    return (
        u[:, :, 1:, :-1, :-1] - base,
        u[:, :, :-1, 1:, :-1] - base,
        u[:, :, :-1, :-1, 1:] - base,
    )


def determinant(gz: Tensor, gy: Tensor, gx: Tensor) -> Tensor:
    """Return ``det(I + grad u)`` from the three directional derivatives, each (B, 3, ...)."""
    a, b, c = 1.0 + gz[:, 0], gy[:, 0], gx[:, 0]
    d, e, f = gz[:, 1], 1.0 + gy[:, 1], gx[:, 1]
    g, h, i = gz[:, 2], gy[:, 2], 1.0 + gx[:, 2]
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def jacobian_determinant(u: Tensor, scheme: str = "central") -> Tensor:
    """Return the determinant of ``grad Phi = I + grad u``.

    Parameters
    ----------
    u : (B, 3, D, H, W)
        Displacement, voxels.
    scheme : {"central", "forward"}
        ``central``: central differences inside and one-sided at the border, as
        :func:`numpy.gradient`; the result has the size of the grid and is what :func:`njd_fraction`
        counts. ``forward``: forward differences, one voxel less along each axis; stricter, cheaper
        to differentiate, used in the fold penalty.

    Returns
    -------
    Tensor of shape (B, D, H, W) or (B, D - 1, H - 1, W - 1)
    """
    if scheme == "forward":
        return determinant(*forward_differences(u))
    gz, gy, gx = (_central(u, axis) for axis in (2, 3, 4))
    return determinant(gz, gy, gx)


def _central(u: Tensor, axis: int) -> Tensor:
    n = u.shape[axis]
    first = u.narrow(axis, 1, 1) - u.narrow(axis, 0, 1)
    last = u.narrow(axis, n - 1, 1) - u.narrow(axis, n - 2, 1)
    inside = 0.5 * (u.narrow(axis, 2, n - 2) - u.narrow(axis, 0, n - 2))
    return torch.cat((first, inside, last), dim=axis)


def njd_fraction(u: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the fraction of voxels where the map folds, ``det(I + grad u) < 0``.

    Parameters
    ----------
    u : (B, 3, D, H, W)
        Displacement, voxels.
    mask : (B, 1, D, H, W), optional
        Count only where it is positive.

    Returns
    -------
    Tensor of shape (B,)
        Fraction in [0, 1]; times 100 it is the NJD in percent.
    """
    folded = (jacobian_determinant(u) < 0).to(u.dtype)
    if mask is None:
        return folded.mean(dim=(1, 2, 3))
    inside = (mask[:, 0] > 0).to(u.dtype)
    return (folded * inside).sum(dim=(1, 2, 3)) / inside.sum(dim=(1, 2, 3)).clamp_min(1.0)
