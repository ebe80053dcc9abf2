"""Transforms in the files of other programs: one table, one way to read and to write."""

from ..._formats import NAMES
from .job import Loaded
from .objects import read as read_object
from .table import FORMATS, Format, load, outputs, save, split

__all__ = [
    "FORMATS",
    "NAMES",
    "Format",
    "Loaded",
    "load",
    "outputs",
    "read_object",
    "save",
    "split",
]
