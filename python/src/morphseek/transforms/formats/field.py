"""Displacement fields as vector images: ITK's convention, LPS mm, and those of Slicer's NIfTI and
of SPM.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import SimpleITK as sitk

from ... import images
from ..._grid import RAS_SIGNS, Grid
from ...images.files import read_path
from ...images.image import tell
from ...images.writers import write_nifti
from . import vectors
from .job import Content, Job, Source

ENDINGS = (".nii.gz", ".nii", ".nrrd", ".mha", ".mhd", ".nhdr")
_DISPLACEMENT, _VECTOR = 1006, 1007  # NIfTI's intent codes


def read(source: Source) -> Content:
    image, doubts = read_path(source.path, "transform")
    tell(doubts)
    nrrd = source.path.name.lower().endswith((".nrrd", ".nhdr"))
    blank = vectors.Vectors(
        np.empty(0),
        Grid((0, 0, 0)),
        vectors.nrrd_header(source.path) if nrrd else {},
        f"transform: {source.path}",
        source.unreadable,
        source.format,
    )
    return vectors.read(vectors.of_image(image, blank), source.moving_grid)


def write(job: Job) -> list[Path]:
    images.write(job.path, vector_image(*job.field()), compress=job.ending == ".nii.gz")
    return [job.path]


def write_ras(job: Job) -> list[Path]:
    displacements, grid = job.field()
    image = vector_image(displacements * RAS_SIGNS, grid)
    write_nifti(job.path, image, {"intent_code": _DISPLACEMENT})
    return [job.path]


def write_spm(job: Job) -> list[Path]:
    displacements, grid = job.field()
    image = vector_image((grid.points() + displacements) * RAS_SIGNS, grid)
    write_nifti(job.path, image, {"intent_code": _VECTOR, "intent_name": b"Mapping"})
    return [job.path]


def vector_image(vectors: np.ndarray, grid: Grid) -> sitk.Image:
    voxels = np.ascontiguousarray(vectors, dtype=np.float32)
    return grid.place(sitk.GetImageFromArray(voxels, isVector=True))
