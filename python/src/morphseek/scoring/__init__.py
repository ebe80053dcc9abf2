"""Scores of one registration by label maps and landmarks, and the test that compares two runs."""

from .labels import LabelScore, inverse_dice, mean_dice, score_labels
from .landmarks import LandmarkErrors, score_landmarks
from .statistics import signed_rank

__all__ = [
    "LabelScore",
    "LandmarkErrors",
    "inverse_dice",
    "mean_dice",
    "score_labels",
    "score_landmarks",
    "signed_rank",
]


def __dir__() -> list[str]:
    return __all__.copy()
