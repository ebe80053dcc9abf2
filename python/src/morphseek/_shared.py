"""The private functions that :mod:`morphseek.training` uses, in one module: files written whole or
not at all, JSON and tables that may be a stranger's, and the layout of a data folder.

Everything else that training uses is public. A change of one of these names is one of training.
"""

from ._engine.core import verify_model
from ._files import check_regular, locked, output_error, replacing, write_text, write_with
from ._json import parse, read_object, without_nan
from ._tables import read_records
from .images.formats import SEARCHED
from .studies.folders import find_labels

__all__ = [
    "SEARCHED",
    "check_regular",
    "find_labels",
    "locked",
    "output_error",
    "parse",
    "read_object",
    "read_records",
    "replacing",
    "verify_model",
    "without_nan",
    "write_text",
    "write_with",
]
