"""Pairs of a volume and itself under a known map."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..config.augmentation import Augmentation
from ..config.known import KnownMotion
from ..spatial import column, identity_grid, jacobian_determinant, sample
from ..synthetic.noise import gaussian_process, total
from .augment import affine, change_intensity, rotation
from .case import Case
from .network_grid import Grid
from .sample import Sample, apply_affine, centred_points, place

#: A map whose Jacobian determinant falls below this is scaled down before it folds.
LEAST_DETERMINANT = 0.2
#: Standard deviation of :func:`gaussian_process`'s kernel, in nodes of its control grid.
_KERNEL = 0.65


def known_pair(
    case: Case,
    grid: Grid,
    labels: int,
    motion: KnownMotion,
    augmentation: Augmentation | None,
    rng: np.random.Generator,
) -> Sample:
    """Return a volume as the moving image and, under a random map, as the fixed one.

    Both show the volume in the same random pose: ``augmentation``'s mirror, and its affine of the
    moving image. Each has intensities, noise and shading of its own.

    Parameters
    ----------
    case : Case
    grid : Grid
        The volume's network grid.
    labels : int
        Number of labels without the background.
    motion : KnownMotion
        Section ``[known]`` of the configuration.
    augmentation : Augmentation, optional
        Section ``[augment]``. Without it the pose is the volume's own.
    rng : numpy.random.Generator
        Source of all randomness.

    Returns
    -------
    Sample
        With ``truth``: ``fixed(x)`` and ``moving(x + truth(x))`` show the same point.
    """
    truth = draw_map(grid, motion, rng)
    step = column(grid.spacing)
    points = centred_points(grid)
    pose, mirror = np.eye(3, 4), 1.0
    if augmentation is not None:
        mirror = -1.0 if rng.random() < augmentation.mirror else 1.0
        pose = affine(augmentation, rng, 1.0)
    flip = column([1.0, 1.0, mirror])

    def at(points_mm: Tensor) -> Tensor:
        return apply_affine(pose, points_mm * flip)

    source = other_grid(case, rng) if rng.random() < motion.regrid else case
    f, f_fov, f_soft, f_map = place(case, at(points + truth * step), labels)
    m, m_fov, m_soft, m_map = place(case, at(points), labels)
    if source is not case:
        m = place(source, at(points), 0)[0] * m_fov
    images = [f, m]
    if rng.random() < motion.other_contrast:
        # Either image may get the other contrast.
        which = int(rng.integers(2))
        images[which] = other_contrast(images[which], rng)
    for i, fov in enumerate((f_fov, m_fov)):
        if motion.bias:
            images[i] = images[i] * shade(grid, motion.bias * rng.random(), rng)
        if augmentation is not None:
            images[i] = change_intensity(images[i], fov, augmentation, rng)
        sd = motion.noise * rng.random()
        noise = torch.from_numpy(rng.standard_normal(images[i].shape, dtype=np.float32))
        images[i] = (images[i] + sd * noise).clamp(0.0, 1.0) * fov
    # Points that leave the field of view cannot be matched, and air does not show where it moves.
    visible = sample(m_fov, identity_grid(grid.size, truth.device) + truth) > 0.99
    mask = (f_fov * visible * (f > motion.foreground)).float()
    return Sample(images[0], images[1], f_fov, m_fov, f_soft, m_soft, f_map, m_map, truth, mask)


def draw_map(grid: Grid, motion: KnownMotion, rng: np.random.Generator) -> Tensor:
    """Draw a displacement without folds in voxels of ``grid``, (1, 3, D, H, W): smooth parts at two
    scales, then a rotation about the grid's centre and a shift.
    """
    step = column(grid.spacing)
    u = total(
        smooth_field(
            grid, rms * rng.uniform(motion.least, 1.0), sigma * rng.uniform(0.75, 1.5), rng
        )
        for rms, sigma in (motion.coarse, motion.fine)
    )
    while float(jacobian_determinant(u / step).min()) < LEAST_DETERMINANT:
        u = 0.9 * u
    turn = np.deg2rad(motion.rotation_deg) * rng.uniform(-1, 1, 3)
    rz, ry, rx = (rotation(axis, angle) for axis, angle in enumerate(turn))
    shift = motion.shift_mm * rng.uniform(-1, 1, 3)
    rigid = np.concatenate((rz @ ry @ rx, shift[:, None]), axis=1)
    points = centred_points(grid)
    return (apply_affine(rigid, points + u) - points) / step


def smooth_field(grid: Grid, rms: float, sigma: float, rng: np.random.Generator) -> Tensor:
    """Return noise in mm, (1, 3, D, H, W), smooth over ``sigma`` mm, of RMS ``rms``."""
    scale = [sigma / (_KERNEL * s) for s in grid.spacing]
    u = gaussian_process(rng, 3, grid.size, scale)
    u = u - u.mean((2, 3, 4), keepdim=True)
    return u * (rms / float(u.square().sum(1).mean().sqrt()))


def shade(grid: Grid, share: float, rng: np.random.Generator) -> Tensor:
    """Return a smooth shading, (1, 1, D, H, W), brighter or darker by ``share`` at most."""
    longest = max(n * s for n, s in zip(grid.size, grid.spacing, strict=True))
    bias = gaussian_process(rng, 1, grid.size, [longest / s for s in grid.spacing])
    return 1.0 + share * bias / bias.abs().max()


def other_contrast(image: Tensor, rng: np.random.Generator) -> Tensor:
    """Map intensities of 0 to 1 by a random curve with five knots: in half of the draws it rises,
    in the others it goes up and down. 0 stays 0.
    """
    rising = rng.random() < 0.5
    while True:
        knots = np.concatenate(([0.0], rng.uniform(0.15, 1.0, 4)))
        if rising:
            knots.sort()
            break
        steps = np.diff(knots)[1:]
        if (steps > 0.15).any() and (steps < -0.15).any():
            break
    values = np.interp(image.numpy(), np.linspace(0.0, 1.0, 5), knots)
    return torch.from_numpy(values.astype(np.float32))


def other_grid(case: Case, rng: np.random.Generator) -> Case:
    """Resample the volume on voxels of 0.8 to 1.5 times the size, without labels."""
    spacing = case.spacing * rng.uniform(0.8, 1.5, 3)
    size = [
        max(2, math.ceil(n * old / new))
        for n, old, new in zip(case.size, case.spacing, spacing, strict=True)
    ]
    d, h, w = size
    image = place(case, centred_points(Grid((d, h, w), spacing)), 0, everywhere=True)[0]
    return replace(case, image=image, labels=None, spacing=spacing)
