"""Random changes of training pairs."""

from __future__ import annotations

from dataclasses import dataclass

from .rules import ranged


@dataclass
class Augmentation:
    """Random changes of a training pair; with every amplitude 0 it is unchanged.

    Attributes
    ----------
    mirror : float
        Probability of a left-right mirror of both images.
    rotation_deg, scale, translation_mm : float
        Half-widths of uniform distributions: rotation about each axis, relative size, shift. Drawn
        for the moving image, and, times ``fixed_share``, for the fixed one.
    shear : float
        Half-width of the off-diagonal terms.
    elastic_mm : float
        Upper end of the standard deviation of random displacements at points 12 mm apart, of the
        moving image and, times ``fixed_share``, of the fixed one. Interpolation between the points
        halves them on average.
    gamma : float
        Standard deviation of the logarithm of an exponent on intensities.
    noise : float
        Upper end of the standard deviation of additive noise, in units of the normalised intensity.
    contrast : float
        Half-width of a change of the intensity window.
    """

    mirror: float = ranged(0.0, 0, 1)
    rotation_deg: float = ranged(0.0, 0)
    scale: float = ranged(0.0, 0, 0.99)
    translation_mm: float = ranged(0.0, 0)
    shear: float = ranged(0.0, 0)
    elastic_mm: float = ranged(0.0, 0)
    fixed_share: float = ranged(1.0, 0, 1)
    gamma: float = ranged(0.0, 0)
    noise: float = ranged(0.0, 0)
    contrast: float = ranged(0.0, 0, 0.49)
