"""Many pairs: lists of them, registering each into a folder, and scoring them by label maps."""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .._tables import read_table
    from .batch import register_cohort
    from .evaluation import evaluate, run_file
    from .folders import find_file
    from .into import Report, register_into
    from .lists import IMAGES, Pair, find_list, read_list, read_pairs
    from .results import FILES, INDEX, PAGES, SUMMARIES, Cohort, Evaluation, Outcome, PairScore
    from .tables import read_labels_csv
    from .volumes import LabelVolume, Morphometry, Subject, morphometry

_WHERE = {
    "Cohort": ".results",
    "Evaluation": ".results",
    "FILES": ".results",
    "IMAGES": ".lists",
    "INDEX": ".results",
    "LabelVolume": ".volumes",
    "Morphometry": ".volumes",
    "Outcome": ".results",
    "PAGES": ".results",
    "Pair": ".lists",
    "PairScore": ".results",
    "Report": ".into",
    "SUMMARIES": ".results",
    "Subject": ".volumes",
    "evaluate": ".evaluation",
    "find_file": ".folders",
    "find_list": ".lists",
    "morphometry": ".volumes",
    "read_labels_csv": ".tables",
    "read_list": ".lists",
    "read_pairs": ".lists",
    "read_table": ".._tables",
    "register_cohort": ".batch",
    "register_into": ".into",
    "run_file": ".evaluation",
}
__getattr__ = lazy(__name__, _WHERE)

__all__ = [
    "FILES",
    "IMAGES",
    "INDEX",
    "PAGES",
    "SUMMARIES",
    "Cohort",
    "Evaluation",
    "LabelVolume",
    "Morphometry",
    "Outcome",
    "Pair",
    "PairScore",
    "Report",
    "Subject",
    "evaluate",
    "find_file",
    "find_list",
    "morphometry",
    "read_labels_csv",
    "read_list",
    "read_pairs",
    "read_table",
    "register_cohort",
    "register_into",
    "run_file",
]
