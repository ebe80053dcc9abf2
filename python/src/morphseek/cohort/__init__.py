"""Many pairs: lists of them, registering each into a folder, and scoring them by label maps."""

from .._tables import read_table
from .batch import register_cohort
from .evaluation import evaluate, run_file
from .folders import find_file
from .into import Report, register_into
from .lists import IMAGES, Pair, find_list, read_list, read_pairs
from .results import FILES, INDEX, PAGES, SUMMARIES, Cohort, Evaluation, Outcome, PairScore
from .tables import read_labels_csv

__all__ = [
    "FILES",
    "IMAGES",
    "INDEX",
    "PAGES",
    "SUMMARIES",
    "Cohort",
    "Evaluation",
    "Outcome",
    "Pair",
    "PairScore",
    "Report",
    "evaluate",
    "find_file",
    "find_list",
    "read_labels_csv",
    "read_list",
    "read_pairs",
    "read_table",
    "register_cohort",
    "register_into",
    "run_file",
]
