"""The methods under comparison, one small file a tool. A tool is imported only where it runs: in a
process of its own.

A new method is one more file with a list METHODS, named in _FILES. ``register`` reads two image
files and leaves in the job's folder what a user of the tool would keep, its transform; that process
is what is measured. ``field`` turns it, unmeasured and in a process of its own, into the one
convention that everybody is scored in: the displacement in mm, LPS, of every voxel of the fixed
image, to the point of the moving image to sample there.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import SimpleITK as sitk

_FILES = ("ours", "greedy", "ants", "simpleitk", "elastix", "convexadam", "deeds", "fireants")


@dataclasses.dataclass(frozen=True)
class Job:
    """One registration. `two_modalities` is what a user knows and tells the tool."""

    fixed: Path
    moving: Path
    folder: Path
    threads: int
    two_modalities: bool


@dataclasses.dataclass(frozen=True)
class Method:
    """One tool with one choice of settings.

    Attributes
    ----------
    how : str
        The settings and why they are these: one line of the table's legend.
    version : callable
        The tool's version; raises where the tool is not installed or cannot run here.
    register, field : callable
        See the package's description.
    ours : bool
        The others are peers.
    one_modality : bool
        Compares intensities directly, so that nobody would take it for two modalities.
    only : str
        The one data set that it is for; empty for all.
    """

    name: str
    how: str
    version: Callable[[], str]
    register: Callable[[Job], None]
    field: Callable[[Job], sitk.Image]
    ours: bool = False
    one_modality: bool = False
    only: str = ""


METHODS: dict[str, Method] = {
    m.name: m for file in _FILES for m in importlib.import_module(f".{file}", __name__).METHODS
}
