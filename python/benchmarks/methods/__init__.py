"""The methods under comparison, one small file for each tool. A tool is imported only in the
process that runs it.

A new method is another file with a list METHODS, named in _FILES; its docstring has the settings
and the reason for them. ``register`` reads two image files and writes the tool's transform to the
job's folder; this process is measured. ``field`` then converts the transform, unmeasured and in
another process, to the convention in which all methods are scored: for every voxel of the fixed
image, the displacement in mm, LPS, to its point in the moving image.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import SimpleITK as sitk

_FILES = ("ours", "greedy", "ants", "simpleitk", "elastix", "convexadam")


@dataclasses.dataclass(frozen=True)
class Job:
    """One registration. `two_modalities` is known to the user, who tells the tool."""

    fixed: Path
    moving: Path
    folder: Path
    threads: int
    two_modalities: bool


def field_of_file(job: Job) -> sitk.Image:
    """Return the field of transform.h5 in the job's folder."""
    import SimpleITK as sitk

    from .shared import as_field

    found = sitk.ReadTransform(str(job.folder / "transform.h5"))
    return as_field(found, sitk.ReadImage(str(job.fixed)))


@dataclasses.dataclass(frozen=True)
class Method:
    """One tool with one choice of settings. `version` raises if the tool is not installed or cannot
    run here; `register` and `field`: see the package's description.
    """

    name: str
    version: Callable[[], str]
    register: Callable[[Job], None]
    field: Callable[[Job], sitk.Image] = field_of_file


METHODS: dict[str, Method] = {
    m.name: m for file in _FILES for m in importlib.import_module(f".{file}", __name__).METHODS
}
