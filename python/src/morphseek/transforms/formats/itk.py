"""ITK's transform files, which ANTs and 3D Slicer have, too."""

from __future__ import annotations

import numpy as np
import SimpleITK as sitk

from ..._itk import HDF5
from .. import files, h5
from ..linear import linear, linear_part
from ..parts import composed, is_field, parts_of, vectors_of
from .job import Content, Export, TransformFile

ENDINGS = (".h5", ".hdf5", ".tfm", ".txt", ".mat")


def read(source: TransformFile) -> Content:
    transform = files.read(source.path)
    return Content(transform, *h5.grids(source.path))


def write(job: Export) -> None:
    merged = linear(job.matrix()) if job.ending == ".mat" else composed(job.parts)
    parts = parts_of(merged)
    if job.ending in HDF5 and all(part.IsLinear() or is_field(part) for part in parts):
        files.write_parts(job.path, [_part(p) for p in parts], job.own_grid, job.moving_grid)
    else:
        files.write(job.path, merged)


def _part(part: sitk.Transform) -> h5.Part:
    if is_field(part):
        vectors, grid = vectors_of(part)
        return files.vectors_part(vectors.astype(np.float32), grid)
    return files.matrix_part(linear_part(part))
