"""A small oblique, anisotropic pair and its label maps, written by SimpleITK, so that the tests can
compare Slicer with ITK.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk


def _direction(a: float, b: float, c: float) -> np.ndarray:
    def turn(angle: float, i: int, j: int) -> np.ndarray:
        m = np.eye(3)
        m[i, i] = m[j, j] = np.cos(angle)
        m[i, j], m[j, i] = -np.sin(angle), np.sin(angle)
        return m

    return turn(a, 0, 1) @ turn(b, 1, 2) @ turn(c, 0, 2)


def _grid(
    size: tuple[int, ...],
    spacing: tuple[float, ...],
    turn: tuple[float, ...],
    center: tuple[float, ...],
) -> sitk.Image:
    image = sitk.Image(size, sitk.sitkFloat32)
    image.SetSpacing(spacing)
    direction = _direction(*turn)
    image.SetDirection(direction.ravel().tolist())
    image.SetOrigin(
        (np.array(center) - direction @ (np.array(spacing) * (np.array(size) - 1) / 2)).tolist()
    )
    return image


def points_of(image: sitk.Image) -> np.ndarray:
    """Return every voxel's position in LPS mm, shape (z, y, x, 3)."""
    z, y, x = np.indices(image.GetSize()[::-1])
    matrix = np.reshape(image.GetDirection(), (3, 3)) * image.GetSpacing()
    return np.stack([x, y, z], axis=-1) @ matrix.T + image.GetOrigin()


def _anatomy(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return intensities, 0 outside the body, and labels 1 to 3."""
    values, labels = np.zeros(p.shape[:-1]), np.zeros(p.shape[:-1], np.uint8)
    for label, (center, radii, value) in enumerate(
        [
            ((0, 0, 0), (24, 19, 26), 300),
            ((-9, 3, 6), (7, 9, 8), 700),
            ((10, -4, -8), (6, 5, 9), 900),
            ((3, 8, 12), (4, 5, 4), 550),
        ]
    ):
        r = np.sqrt((((p - center) / radii) ** 2).sum(-1))
        weight = np.clip((1.1 - r) / 0.2, 0, 1)
        values += weight * (value - values)
        labels[r < 1] = label
    texture = 1 + 0.1 * np.sin(p[..., 0] / 4) * np.cos(p[..., 1] / 5 + p[..., 2] / 6)
    return values * texture, labels


def make_pair() -> dict[str, sitk.Image]:
    """Return fixed, moving, fixed_labels, moving_labels."""
    fixed = _grid((34, 30, 21), (1.7, 1.6, 3.1), (0.3, -0.2, 0.1), (12.0, -7.0, 30.0))
    moving = _grid((32, 26, 26), (1.9, 2.1, 2.5), (-0.15, 0.1, 0.25), (18.0, -3.0, 26.0))
    p, q = points_of(fixed) - (12.0, -7.0, 30.0), points_of(moving) - (18.0, -3.0, 26.0)
    q = (q + 2.0 * np.sin(q[..., ::-1] / 11)) @ _direction(0.12, -0.08, 0.05)
    images = {}
    for name, grid, points in (("fixed", fixed, p), ("moving", moving, q)):
        for suffix, array in zip(("", "_labels"), _anatomy(points)):
            images[name + suffix] = image = sitk.GetImageFromArray(
                array.astype(np.uint8 if suffix else np.float32)
            )
            image.CopyInformation(grid)
    return images


def write_pair(folder: Path) -> dict[str, Any]:
    """Write the pair, the fixed side as NRRD and the moving one as NIfTI; return the paths."""
    paths = {}
    for name, image in make_pair().items():
        paths[name] = folder / f"{name}{'.nrrd' if 'fixed' in name else '.nii.gz'}"
        sitk.WriteImage(image, str(paths[name]))
    return paths
