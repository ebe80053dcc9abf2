"""Time series: the frames of one scan registered onto one of them, or onto their mean."""

from .run import series
from .result import FrameMotion, Series, outputs

__all__ = ["FrameMotion", "Series", "outputs", "series"]
