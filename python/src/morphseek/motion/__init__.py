"""Time series: the frames of one scan registered onto one of them, or onto their mean."""

from .result import FrameMotion, Series, outputs
from .run import correct_motion

__all__ = ["FrameMotion", "Series", "correct_motion", "outputs"]
