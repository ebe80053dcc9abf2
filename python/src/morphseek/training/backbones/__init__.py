"""Backbones: one file each, registered by name."""

from . import compact  # noqa: F401  (registers itself)
from .base import BACKBONES, Encoded, PolicyBackbone, SplitConv, build, register

__all__ = ["BACKBONES", "Encoded", "PolicyBackbone", "SplitConv", "build", "register"]
