"""Moved to cohort. The old names still work and warn."""

from __future__ import annotations

from ._moved import moved

__getattr__ = moved(
    __name__,
    {
        "run": "cohort.register_cohort",
        "Batch": "cohort.Cohort",
        "Outcome": "cohort.Outcome",
        "Pair": "cohort.Pair",
        "read_list": "cohort.read_list",
        "register_into": "cohort.register_into",
        "IMAGES": "cohort.IMAGES",
        "SUMMARIES": "cohort.SUMMARIES",
    },
)
