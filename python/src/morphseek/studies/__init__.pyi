from .bids import find_bids as find_bids
from .derivatives import register_bids as register_bids, write_group as write_group
from .epi import EPICorrection as EPICorrection, correct_epi as correct_epi
from .fusion import Fused as Fused, fuse_labels as fuse_labels
from .labels import (
    LabelStudy as LabelStudy,
    TargetLabels as TargetLabels,
    propagate_labels as propagate_labels,
)
from .morphometry import (
    LabelVolume as LabelVolume,
    Morphometry as Morphometry,
    morphometry as morphometry,
)
from .motion import FrameMotion as FrameMotion, Series as Series, correct_motion as correct_motion
from .pairs import register_pairs as register_pairs
from .plan import all_pairs as all_pairs, pairs_to as pairs_to, within_subject as within_subject
from .study import PairRow as PairRow, Study as Study, compare as compare
from .table import Item as Item, Pair as Pair, read_items as read_items, read_pairs as read_pairs
from .template import (
    Iteration as Iteration,
    Template as Template,
    TemplateRow as TemplateRow,
    build_template as build_template,
)
