"""The kinds of anatomy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..anatomy import Anatomy
from .head import head
from .limb import limb
from .medley import medley
from .torso import torso

BODIES: dict[str, Callable[[np.random.Generator], Anatomy]] = {
    "head": head,
    "torso": torso,
    "limb": limb,
    "medley": medley,
}
"""The kinds of anatomy by name; each function makes a random one."""
