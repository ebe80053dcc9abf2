"""A pair on its network grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..config.augmentation import Augmentation
from ..spatial import column, identity_grid, sample
from .augment import affine, change_intensity, elastic
from .case import Case
from .network_grid import Grid, start_transform

_IDENTITY = np.eye(3, 4)
_CPU = torch.device("cpu")


@dataclass
class Sample:
    """A pair on its network grid.

    Attributes
    ----------
    fixed, moving : (1, 1, D, H, W)
        Normalised intensities in [0, 1], 0 outside the field of view.
    fixed_fov, moving_fov : (1, 1, D, H, W)
        1 inside the field of view.
    fixed_labels, moving_labels : (1, K, D, H, W)
        Linearly interpolated one-hot labels; K is 0 for unlabelled pairs.
    fixed_map, moving_map : (1, 1, D, H, W)
        The same as label maps (float): nearest neighbour.
    truth : (1, 3, D, H, W), optional
        The true displacement in voxels, if it is known.
    truth_mask : (1, 1, D, H, W), optional
        1 where the images show the true displacement.
    """

    fixed: Tensor
    moving: Tensor
    fixed_fov: Tensor
    moving_fov: Tensor
    fixed_labels: Tensor
    moving_labels: Tensor
    fixed_map: Tensor
    moving_map: Tensor
    truth: Tensor | None = None
    truth_mask: Tensor | None = None

    def to(self, device: torch.device | str) -> Sample:
        moved = {k: v.to(device) for k, v in self.__dict__.items() if v is not None}
        return replace(self, **moved)

    @classmethod
    def batch(cls, samples: Sequence[Sample]) -> Sample:
        """Join pairs of one size into one sample, whose first axis counts them."""
        present = [k for k, v in samples[0].__dict__.items() if v is not None]
        return cls(**{k: torch.cat([getattr(s, k) for s in samples]) for k in present})


def _middle(grid: Grid | Case, device: torch.device) -> Tensor:
    return column([(n - 1) / 2 for n in grid.size], device)


def centred_points(grid: Grid | Case, device: torch.device = _CPU) -> Tensor:
    """Return the voxels of a grid or a volume in mm from its centre, (1, 3, D, H, W)."""
    index = identity_grid(grid.size, device)
    return (index - _middle(grid, device)) * column(grid.spacing, device)


def index_of(points: Tensor, grid: Grid | Case) -> Tensor:
    """Return the voxel coordinates in a grid or a volume of points in mm from its centre."""
    device = points.device
    return points * column(1.0 / grid.spacing, device) + _middle(grid, device)


def place(
    case: Case, points_mm: Tensor, labels: int, everywhere: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Read a case at points given in mm from its centre, in its own array axes: (1, 3, D, H, W).

    Returns
    -------
    image, field of view, one-hot labels, label map
        As in :class:`Sample`. With ``everywhere`` the image continues beyond its field of view, and
        is not clipped.
    """
    index = index_of(points_mm, case)
    last = 2 * _middle(case, index.device)
    # As in ITK, the volume ends half a voxel beyond the outermost centres; there the border's value
    # counts.
    inside = ((index >= -0.5) & (index <= last + 0.5)).all(dim=1, keepdim=True).float()
    if labels and case.labels is not None:
        hot = torch.cat([(case.labels == k).float() for k in range(1, labels + 1)], dim=1)
        stack = torch.cat((case.image, hot), dim=1)
    else:
        stack = case.image
    read = sample(stack, index, padding="border")
    if everywhere:
        return read[:, :1], inside, read[:, 1:], torch.zeros_like(inside)
    read = read * inside
    soft = read[:, 1:]
    if soft.shape[1]:
        both = torch.cat((1.0 - soft.sum(1, keepdim=True), soft), dim=1)
        hard = both.argmax(dim=1, keepdim=True).float()
    else:
        hard = torch.zeros_like(inside)
    return read[:, :1].clamp(0.0, 1.0), inside, soft, hard


def make_sample(
    fixed: Case,
    moving: Case,
    grid: Grid,
    labels: int,
    augmentation: Augmentation | None = None,
    rng: np.random.Generator | None = None,
    initial: np.ndarray | None = None,
) -> Sample:
    """Put a pair on its network grid.

    Parameters
    ----------
    fixed, moving
        The pair. Without ``initial`` their centres are aligned.
    grid
        From :func:`make_grid`.
    labels : int
        Number of labels without the background.
    augmentation, rng
        Random changes, drawn from ``rng``.
    initial : ndarray of shape (4, 4), optional
        Homogeneous LPS transform that maps points of the fixed space to points of the moving space.
    """
    points = centred_points(grid)
    a_fixed = a_moving = _IDENTITY
    if augmentation is not None:
        assert rng is not None
        if rng.random() < augmentation.mirror:
            # The last array axis is x, and x is left-right in the canonical LPS orientation.
            points = points * column([1.0, 1.0, -1.0])
        a_fixed = affine(augmentation, rng, augmentation.fixed_share)
        a_moving = affine(augmentation, rng, 1.0)
    p_fixed = apply_affine(a_fixed, points)
    p_seen = apply_affine(a_moving, points)
    if augmentation is not None and rng is not None and augmentation.elastic_mm:
        p_fixed = p_fixed + elastic(augmentation, rng, augmentation.fixed_share, grid)
        p_seen = p_seen + elastic(augmentation, rng, 1.0, grid)
    p_moving = apply_affine(start_transform(fixed, moving, initial), p_seen)
    f, f_fov, f_soft, f_map = place(fixed, p_fixed, labels)
    m, m_fov, m_soft, m_map = place(moving, p_moving, labels)
    if augmentation is not None and rng is not None:
        f = change_intensity(f, f_fov, augmentation, rng)
        m = change_intensity(m, m_fov, augmentation, rng)
    return Sample(f, m, f_fov, m_fov, f_soft, m_soft, f_map, m_map)


def apply_affine(affine: np.ndarray, points: Tensor) -> Tensor:
    """Map points (1, 3, D, H, W) by a 3x4 affine, array order."""
    if affine is _IDENTITY:
        return points
    a = torch.as_tensor(affine, dtype=torch.float32, device=points.device)
    return torch.einsum("ij,bjdhw->bidhw", a[:, :3], points) + column(a[:, 3], points.device)
