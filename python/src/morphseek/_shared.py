"""The private functions that :mod:`morphseek.training` uses, in one module: files written whole or
not at all, JSON and tables that may be a stranger's, and the layout of a data folder.

Everything else that training uses is public. A change of one of these names is one of training.
"""

from ._files import check_regular, output_folder, replacing, write_text
from ._json import parse, read_object, without_nan
from ._tables import read_records
from .images.formats import SEARCHED
from .studies.folders import find_labels

__all__ = [
    "SEARCHED",
    "check_regular",
    "find_labels",
    "output_folder",
    "parse",
    "read_object",
    "read_records",
    "replacing",
    "without_nan",
    "write_text",
]
