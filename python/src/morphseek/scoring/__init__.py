"""Scores of one registration by label maps, and the test that compares two runs."""

from .labels import (
    LabelScore,
    check_labels,
    inverse_dice,
    mean_dice,
    merge_labels,
    on_fixed_grid,
    score_labels,
)
from .statistics import signed_rank, signed_rank_p

__all__ = [
    "LabelScore",
    "check_labels",
    "inverse_dice",
    "mean_dice",
    "merge_labels",
    "on_fixed_grid",
    "score_labels",
    "signed_rank",
    "signed_rank_p",
]
