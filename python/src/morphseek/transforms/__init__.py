"""Transforms: dense ones, which a registration gives, and those of SimpleITK and its files."""

from .dense import DenseTransform, read_only
from .files import read, write
from .labels import beyond, minimum, ranked
from .linear import linear_part
from .resample import resample, resample_identity

__all__ = [
    "DenseTransform",
    "beyond",
    "linear_part",
    "minimum",
    "ranked",
    "read",
    "read_only",
    "resample",
    "resample_identity",
    "write",
]
