"""Labelled pairs of volumes: reading, the network grid, augmentation.

The network grid of a pair follows the rule that the registration engine applies, so that training
and use agree:

1. the axes of every volume are permuted and flipped to the closest canonical LPS orientation;
2. the grid has the axes, the centre and at least the extent of the fixed volume, the configured
   spacing, and at least the configured minimum of voxels, rounded up to the network's size
   multiple;
3. both volumes are read on it by linear interpolation, the moving one through the initial
   transform; intensities are normalised by percentiles of the whole original volume and clipped to
   [0, 1]; outside the field of view they are 0.

Arrays and tensors have axes z, y, x. Lengths are in millimetres unless stated otherwise.
"""

from .augment import rotation
from .case import Case, read_case
from .errors import DataError
from .lists import read_pairs, read_subjects
from .network_grid import Grid, make_grid, start_transform
from .sample import Sample, make_sample
from .source import PairSource

__all__ = [
    "Case",
    "DataError",
    "Grid",
    "PairSource",
    "Sample",
    "make_grid",
    "make_sample",
    "read_case",
    "read_pairs",
    "read_subjects",
    "rotation",
    "start_transform",
]
