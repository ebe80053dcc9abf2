"""Many pairs: which images, in which pairs; registering each into a folder; labels by several
atlases; and scores by label maps.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .._tables import read_table
    from .batch import register_cohort
    from .bids import BidsName, find_bids
    from .derivatives import space_of, write_derivatives, write_group
    from .evaluation import evaluate, run_file
    from .folders import find_file
    from .fusion import FUSIONS, Fused, Fusion, fuse_labels
    from .into import Report, register_into
    from .listing import INDEX
    from .lists import IMAGES, Pair, find_list, read_list, read_pairs
    from .propagation import Labelled, TargetLabels, dice_of, propagate_labels
    from .protocol_scores import ProtocolScore, ProtocolScores, run_protocol
    from .protocols import PROTOCOLS, Protocol, Published, protocol_pairs, write_pair_list
    from .results import SUMMARIES, Cohort, Outcome
    from .scans import Scan, Scans, all_pairs, pairs_to, read_scans, within_subject
    from .scores import FILES, PAGES, Evaluation, PairScore
    from .tables import read_labels_csv
    from .unlike import outliers
    from .volumes import LabelVolume, Morphometry, Subject, morphometry

_WHERE = {
    "BidsName": ".bids",
    "Cohort": ".results",
    "Evaluation": ".scores",
    "FILES": ".scores",
    "FUSIONS": ".fusion",
    "Fused": ".fusion",
    "Fusion": ".fusion",
    "IMAGES": ".lists",
    "INDEX": ".listing",
    "LabelVolume": ".volumes",
    "Labelled": ".propagation",
    "Morphometry": ".volumes",
    "Outcome": ".results",
    "PAGES": ".scores",
    "PROTOCOLS": ".protocols",
    "Pair": ".lists",
    "PairScore": ".scores",
    "Protocol": ".protocols",
    "ProtocolScore": ".protocol_scores",
    "ProtocolScores": ".protocol_scores",
    "Published": ".protocols",
    "Report": ".into",
    "SUMMARIES": ".results",
    "Scan": ".scans",
    "Scans": ".scans",
    "Subject": ".volumes",
    "TargetLabels": ".propagation",
    "all_pairs": ".scans",
    "evaluate": ".evaluation",
    "dice_of": ".propagation",
    "find_bids": ".bids",
    "find_file": ".folders",
    "find_list": ".lists",
    "fuse_labels": ".fusion",
    "morphometry": ".volumes",
    "outliers": ".unlike",
    "pairs_to": ".scans",
    "propagate_labels": ".propagation",
    "protocol_pairs": ".protocols",
    "read_labels_csv": ".tables",
    "space_of": ".derivatives",
    "write_derivatives": ".derivatives",
    "write_group": ".derivatives",
    "read_list": ".lists",
    "read_pairs": ".lists",
    "read_scans": ".scans",
    "read_table": ".._tables",
    "register_cohort": ".batch",
    "register_into": ".into",
    "run_file": ".evaluation",
    "run_protocol": ".protocol_scores",
    "within_subject": ".scans",
    "write_pair_list": ".protocols",
}
__getattr__ = lazy(__name__, _WHERE)

__all__ = [
    "FILES",
    "FUSIONS",
    "IMAGES",
    "INDEX",
    "PAGES",
    "PROTOCOLS",
    "SUMMARIES",
    "BidsName",
    "Cohort",
    "Evaluation",
    "Fused",
    "Fusion",
    "LabelVolume",
    "Labelled",
    "Morphometry",
    "Outcome",
    "Pair",
    "PairScore",
    "Protocol",
    "ProtocolScore",
    "ProtocolScores",
    "Published",
    "Report",
    "Scan",
    "Scans",
    "Subject",
    "TargetLabels",
    "all_pairs",
    "dice_of",
    "evaluate",
    "find_bids",
    "find_file",
    "find_list",
    "fuse_labels",
    "morphometry",
    "outliers",
    "pairs_to",
    "propagate_labels",
    "protocol_pairs",
    "read_labels_csv",
    "read_list",
    "read_pairs",
    "read_scans",
    "read_table",
    "register_cohort",
    "register_into",
    "run_file",
    "run_protocol",
    "space_of",
    "within_subject",
    "write_derivatives",
    "write_group",
    "write_pair_list",
]
