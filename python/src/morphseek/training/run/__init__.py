"""A run: training, validation, checkpoints."""

from .checkpoint import average, load_backbone, save_atomic
from .loop import Trainer

__all__ = ["Trainer", "average", "load_backbone", "save_atomic"]
