from .batch import register_cohort as register_cohort
from .bids import BidsName as BidsName, find_bids as find_bids
from .derivatives import (
    space_of as space_of,
    write_derivatives as write_derivatives,
    write_group as write_group,
)
from .evaluation import evaluate as evaluate, run_file as run_file
from .folders import find_file as find_file
from .fusion import FUSIONS as FUSIONS, Fused as Fused, Fusion as Fusion, fuse_labels as fuse_labels
from .into import Report as Report, register_into as register_into
from .listing import INDEX as INDEX
from .lists import (
    IMAGES as IMAGES,
    Pair as Pair,
    find_list as find_list,
    read_list as read_list,
    read_pairs as read_pairs,
)
from .propagation import (
    Labelled as Labelled,
    TargetLabels as TargetLabels,
    dice_of as dice_of,
    propagate_labels as propagate_labels,
)
from .results import SUMMARIES as SUMMARIES, Cohort as Cohort, Outcome as Outcome
from .scans import (
    Scan as Scan,
    Scans as Scans,
    all_pairs as all_pairs,
    pairs_to as pairs_to,
    read_scans as read_scans,
    within_subject as within_subject,
)
from .scores import FILES as FILES, PAGES as PAGES, Evaluation as Evaluation, PairScore as PairScore
from .tables import read_labels_csv as read_labels_csv
from .unlike import outliers as outliers
from .volumes import (
    LabelVolume as LabelVolume,
    Morphometry as Morphometry,
    Subject as Subject,
    morphometry as morphometry,
)
