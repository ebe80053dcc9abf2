"""Known motions of the volumes themselves among the training pairs."""

from __future__ import annotations

from dataclasses import dataclass

from .rules import ranged


@dataclass
class KnownMotion:
    """Training pairs of one volume and itself, seen through a random map without folds: what
    ``loss.truth`` learns from. Overlap of labels does not see where inside a structure a point
    lands; these pairs do.

    Attributes
    ----------
    share : float
        Probability that a training step has such a pair, of the fixed volume that was drawn for
        it; 0 is off.
    coarse, fine : list of 2 float
        Smooth displacement of two scales: greatest root mean square, and the standard deviation of
        the Gaussian that smooths it, mm.
    least : float
        Each displacement has at least this share of its greatest root mean square.
    rotation_deg, shift_mm : float
        Half-widths of uniform distributions: rotation about each axis, shift along each.
    noise : float
        Upper end of the standard deviation of each image's own noise, in units of the normalised
        intensity.
    bias : float
        Upper end of each image's own shading.
    other_contrast : float
        Probability that the intensities of one of the two images go through a random map, rising or
        not.
    regrid : float
        Probability that the moving image was on a grid of its own before.
    foreground : float
        Where the fixed image is not above this normalised intensity the truth does not count: air
        tells nothing of its place.
    val_pairs : int
        Known motions of the first fixed volumes of the validation list that validation measures
        points on (``val_points_mm``); only where ``share`` is above 0.
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
