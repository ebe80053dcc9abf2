"""Measures how the cost grows with the volume: one made-up torso, sampled ever more finely:
everything.py --part growth.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import peers
import SimpleITK as sitk
from methods import METHODS, Job

from morphseek import phantom

TIMEOUT = 3600.0  # s


def torsos(folder: Path, side: int) -> tuple[Path, Path]:
    """Write the torso's fixed and moving image with side^3 voxels each, and return the files."""
    pair = phantom.make_pair(64)
    paths = folder / f"fixed{side}.nrrd", folder / f"moving{side}.nrrd"
    for path, made in zip(paths, (pair.fixed, pair.moving)):
        image = made.to_sitk()
        scale = np.array(image.GetSize()) / side
        first = image.TransformContinuousIndexToPhysicalPoint(((scale - 1) / 2).tolist())
        spacing = (scale * image.GetSpacing()).tolist()
        direction = image.GetDirection()
        finer = sitk.Resample(
            image, [side] * 3, sitk.Transform(), sitk.sitkLinear, first, spacing, direction
        )
        sitk.WriteImage(finer, str(path))
    return paths


def by_volume(side: int, method: str) -> dict[str, Any]:
    """Return the cost of one process of a method, one thread."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Job(*torsos(folder, side), folder, 1, True)
        cost = peers.step(METHODS[method], "register", 1, TIMEOUT, folder / "log", job)
        if cost.exit_status != 0:
            raise RuntimeError(f"{side}^3 voxels: {peers.last_line(folder / 'log')}")
    return {"side": side, "cpu": cost.cpu_seconds, "mib": cost.peak_bytes / 2**20}
