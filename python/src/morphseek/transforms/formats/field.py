"""Displacement fields as vector images: ITK's (LPS mm), Slicer's NIfTI, and SPM's."""

from __future__ import annotations

import numpy as np

from ... import images
from ..._grid import RAS_SIGNS
from ...images.files import read_path
from ...images.headers import check_header
from ...images.image import tell
from ...images.writers import write_nifti
from ..parts import field_on, vector_image
from . import vectors
from .job import Content, Export, TransformFile

ENDINGS = (".nii.gz", ".nii", ".nrrd", ".mha", ".mhd", ".nhdr")


def read(source: TransformFile) -> Content:
    image, doubts = read_path(source.path, "transform")
    tell(doubts)
    stored = check_header(source.path, "transform")
    if stored and stored.units:  # which its vectors may have, or not
        raise source.unreadable("has another unit of length than mm; write its field in mm")
    nrrd = source.path.name.lower().endswith((".nrrd", ".nhdr"))
    header = vectors.nrrd_header(source.path) if nrrd else {}
    name = f"transform: {source.path}"
    blank = vectors.Vectors(name, source.unreadable, header, source.format)
    return vectors.read(vectors.of_image(image, blank), source.moving_grid)


def write(job: Export) -> None:
    images.write(job.path, vector_image(*job.field(), np.float32), compress=job.ending == ".nii.gz")


def write_ras(job: Export) -> None:
    displacements, grid = job.field()
    image = vector_image(displacements * RAS_SIGNS, grid, np.float32)
    write_nifti(job.path, image, {"intent_code": vectors.DISPLACEMENT})


def write_spm(job: Export) -> None:
    grid = job.grid  # without a margin: SPM writes images on the field's grid
    displacements = field_on(job.transform, grid)
    image = vector_image((grid.points() + displacements) * RAS_SIGNS, grid, np.float32)
    write_nifti(job.path, image, {"intent_code": vectors.VECTOR, "intent_name": b"Mapping"})
