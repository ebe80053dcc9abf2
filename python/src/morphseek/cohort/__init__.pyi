from .batch import register_pairs as register_pairs
from .bids import BidsName as BidsName, find_bids as find_bids
from .derivatives import write_derivatives as write_derivatives, write_group as write_group
from .evaluation import evaluate as evaluate
from .fusion import Fused as Fused, fuse_labels as fuse_labels
from .lists import Pair as Pair, read_list as read_list, read_pairs as read_pairs
from .propagation import (
    Labelled as Labelled,
    TargetLabels as TargetLabels,
    propagate_labels as propagate_labels,
)
from .results import Cohort as Cohort, Outcome as Outcome
from .scans import (
    Scan as Scan,
    Scans as Scans,
    all_pairs as all_pairs,
    pairs_to as pairs_to,
    read_scans as read_scans,
    within_subject as within_subject,
)
from .scores import Evaluation as Evaluation, PairScore as PairScore
from .unlike import outliers as outliers
from .volumes import (
    LabelVolume as LabelVolume,
    Morphometry as Morphometry,
    Subject as Subject,
    morphometry as morphometry,
)
