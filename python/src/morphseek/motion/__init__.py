"""Time series: the frames of one scan registered onto one of them, or onto their mean."""

from .result import FrameMotion, Series, outputs
from .run import series

__all__ = ["FrameMotion", "Series", "outputs", "series"]
