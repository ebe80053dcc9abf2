"""Transforms in the files of other programs: one table, one way to read and to write."""

from ..._formats import NAMES
from .job import Content
from .objects import read as read_object
from .table import FORMATS, Format, files_of, load, outputs, save, split

__all__ = [
    "FORMATS",
    "NAMES",
    "Format",
    "Content",
    "files_of",
    "load",
    "outputs",
    "read_object",
    "save",
    "split",
]
