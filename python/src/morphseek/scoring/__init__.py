"""Scores of one registration by label maps and landmarks, and the test that compares two runs."""

from .labels import (
    LabelScore,
    check_labels,
    inverse_dice,
    mean_dice,
    merge_labels,
    on_fixed_grid,
    score_labels,
)
from .landmarks import LandmarkErrors, score_landmarks
from .statistics import signed_rank, signed_rank_p

__all__ = [
    "LabelScore",
    "LandmarkErrors",
    "check_labels",
    "inverse_dice",
    "mean_dice",
    "merge_labels",
    "on_fixed_grid",
    "score_labels",
    "score_landmarks",
    "signed_rank",
    "signed_rank_p",
]


def __dir__() -> list[str]:
    return __all__.copy()
