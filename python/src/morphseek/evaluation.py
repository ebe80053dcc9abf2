"""Moved to scoring and cohort. The old names still work and warn."""

from __future__ import annotations

from ._moved import moved

__getattr__ = moved(
    __name__,
    {
        "LabelScore": "scoring.LabelScore",
        "score_labels": "scoring.score_labels",
        "mean_dice": "scoring.mean_dice",
        "inverse_dice": "scoring.inverse_dice",
        "on_fixed_grid": "scoring.on_fixed_grid",
        "check_labels": "scoring.check_labels",
        "merge_labels": "scoring.merge_labels",
        "FILES": "cohort.FILES",
        "PairScore": "cohort.PairScore",
        "Evaluation": "cohort.Evaluation",
        "evaluate": "cohort.evaluate",
        "run_file": "cohort.run_file",
        "find_list": "cohort.find_list",
        "read_pairs": "cohort.read_pairs",
        "read_table": "cohort.read_table",
        "read_labels_csv": "cohort.read_labels_csv",
        "find_file": "cohort.find_file",
        "without_nan": "_json.without_nan",
    },
)
