"""Measures of a motion: six parameters, framewise displacement, how far tissue moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import images
from .._engine.bindings import Doubles
from .._grid import Grid
from ..transforms import Transform

#: fMRIPrep's names: mm along x, y, z, and radians about them.
PARAMETERS = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
HEAD_MM = 50.0  # the radius of Power et al. 2012, at which a turn counts as a shift
_RAS = np.diag([-1.0, -1.0, 1.0])


def parameters(matrix: Doubles, center: Doubles) -> Doubles:
    """Return the motion of a body from the reference to a frame, of a 4x4 LPS matrix: its shift at
    ``center``, mm, and its turn about the axes x, y and z, one after the other, radians; axes to
    the right, to the front and up (RAS). Of an affine matrix the nearest turn counts.
    """
    u, _, v = np.linalg.svd(matrix[:3, :3])
    turn = sitk.Euler3DTransform()
    turn.SetComputeZYX(True)
    turn.SetMatrix((_RAS @ (u @ v) @ _RAS).ravel().tolist(), 1e-6)
    shift = _RAS @ (matrix[:3, :3] @ center + matrix[:3, 3] - center)
    return np.array([*shift, turn.GetAngleX(), turn.GetAngleY(), turn.GetAngleZ()])


def framewise_displacement(motion: Sequence[Doubles]) -> list[float | None]:
    """Return for each frame the sum of what the six parameters changed since the one before, mm,
    turns on a sphere of 50 mm (Power et al. 2012); None for the first.
    """
    scaled = np.array(motion) * [1, 1, 1, HEAD_MM, HEAD_MM, HEAD_MM]
    return [None, *(float(v) for v in np.abs(np.diff(scaled, axis=0)).sum(axis=1))]


class Distance(NamedTuple):
    """Over the tissue, mm."""

    mean: float
    p95: float
    largest: float


def tissue_of(image: images.Image, mask: images.Image | None) -> np.ndarray:
    """Return where the mask is not zero or, without one, what Otsu's threshold tells from air."""
    if mask is not None:
        inside = np.asarray(mask.array != 0)
        return inside if inside.any() else np.ones_like(inside)
    values = np.nan_to_num(image.float32(), nan=float(np.nanmin(image.array)))
    found: np.ndarray = sitk.GetArrayFromImage(
        sitk.OtsuThreshold(sitk.GetImageFromArray(values), 0, 1)
    )
    return found > 0


def distance(one: Transform, other: Transform | None, grid: Grid, tissue: np.ndarray) -> Distance:
    """Return how far two transforms take the tissue apart; without another, how far one moves
    it.
    """
    reference = images.Image.on_grid(np.zeros(tissue.shape, np.uint8), grid)
    apart = one.displacement_mm(reference)
    if other is not None:
        apart = apart - other.displacement_mm(reference)
    lengths = np.linalg.norm(apart[tissue], axis=-1)
    return Distance(float(lengths.mean()), float(np.percentile(lengths, 95)), float(lengths.max()))
