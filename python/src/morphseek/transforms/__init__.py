"""Transforms: those of registrations, of files and of other programs."""

from .blocks import apply_by_blocks
from .field import Field
from .labels import INTERPOLATIONS
from .transform import Affine, Chain, Transform

__all__ = ["INTERPOLATIONS", "Affine", "Chain", "Field", "Transform", "apply_by_blocks"]


def __dir__() -> list[str]:
    return __all__.copy()
