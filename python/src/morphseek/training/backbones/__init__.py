"""Backbones: one file each, registered by name."""

from . import compact, nicetrans, siamese, transmorph, voxelmorph  # noqa: F401 each registers itself
from .base import BACKBONES, Encoded, PolicyBackbone, SplitConv, build, register

__all__ = ["BACKBONES", "Encoded", "PolicyBackbone", "SplitConv", "build", "register"]
