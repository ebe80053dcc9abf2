"""Training pairs with known motion, made from single volumes."""

from __future__ import annotations

from dataclasses import dataclass

from .rules import ranged


@dataclass
class KnownMotion:
    """Training pairs of a volume and itself under a random map without folds, for ``loss.truth``.
    Overlap of labels does not show where inside a structure a point lands; these pairs do.

    Attributes
    ----------
    share : float
        Probability that a training step takes such a pair, made from the fixed volume that was
        drawn for it; 0 is off.
    coarse, fine : list of 2 float
        Smooth displacement at two scales: its greatest root mean square and the standard deviation
        of the Gaussian that smooths it, mm.
    least : float
        Each displacement has at least this share of its greatest root mean square.
    rotation_deg, shift_mm : float
        Half-widths of uniform distributions: rotation about each axis, shift along each.
    noise : float
        Upper end of the standard deviation of each image's own noise, in units of the normalised
        intensity.
    bias : float
        Upper end of the shading of each image.
    other_contrast : float
        Probability that a random map, rising or not, changes the intensities of one of the two
        images.
    regrid : float
        Probability that the moving image is first resampled on a grid of its own.
    foreground : float
        The truth counts only where the fixed image is above this normalised intensity: air does not
        show where it moves.
    val_pairs : int
        Number of fixed volumes, the first of the validation list, on whose known motions validation
        measures points (``val_points_mm``); only if ``share`` is above 0.
    """

    share: float = ranged(0.0, 0, 1)
    coarse: list[float] = ranged([2.0, 8.0], 0)
    fine: list[float] = ranged([0.7, 4.0], 0)
    least: float = ranged(0.2, 0, 1)
    rotation_deg: float = ranged(3.0, 0, 180)
    shift_mm: float = ranged(1.5, 0)
    noise: float = ranged(0.05, 0)
    bias: float = ranged(0.2, 0, 0.99)
    other_contrast: float = ranged(0.4, 0, 1)
    regrid: float = ranged(0.3, 0, 1)
    foreground: float = ranged(0.1, 0, 1)
    val_pairs: int = ranged(10, 0)
