"""Configuration of a training run: a TOML file with strict keys.

Every section of the file is a dataclass here, every key a field; an unknown section or key is an
error that names the known ones. ``base = "best"`` at the top of a file starts from a preset that
ships with the package (``presets/*.toml`` here) or from another file, and the keys that follow
override it.
"""

from .augmentation import Augmentation
from .errors import ConfigError
from .files import load, presets
from .known import KnownMotion
from .schema import Bundle, Config, Data, Loss, Model, Optim, Policy, Run, Source, Synthetic

__all__ = [
    "Augmentation",
    "Bundle",
    "Config",
    "ConfigError",
    "Data",
    "KnownMotion",
    "Loss",
    "Model",
    "Optim",
    "Policy",
    "Run",
    "Source",
    "Synthetic",
    "load",
    "presets",
]
