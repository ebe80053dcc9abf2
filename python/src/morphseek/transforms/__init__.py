"""Transforms: dense ones, which a registration gives, and those of SimpleITK and of files."""

from .blocks import apply_by_blocks
from .dense import DenseTransform, read_only
from .files import read, write
from .labels import INTERPOLATIONS, beyond, minimum, ranked
from .linear import linear_part
from .resample import resample, resample_identity
from .saved import Transform, read_transform

__all__ = [
    "INTERPOLATIONS",
    "DenseTransform",
    "Transform",
    "apply_by_blocks",
    "beyond",
    "linear_part",
    "minimum",
    "ranked",
    "read",
    "read_only",
    "read_transform",
    "resample",
    "resample_identity",
    "write",
]


def __dir__() -> list[str]:
    return __all__.copy()
