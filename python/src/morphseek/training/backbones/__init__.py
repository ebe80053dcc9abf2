"""Backbones, one in each file. Those in this folder are found automatically, those of other
packages by their entry point in the group ``morphseek.backbones``.
"""

import importlib
import pkgutil

from .base import BACKBONES, Encoded, PolicyBackbone, SplitConv, build, known, register
from .configured import build_backbone

for _file in pkgutil.iter_modules(__path__):  # each file registers its backbone
    importlib.import_module(f".{_file.name}", __name__)

__all__ = [
    "BACKBONES",
    "Encoded",
    "PolicyBackbone",
    "SplitConv",
    "build",
    "build_backbone",
    "known",
    "register",
]
