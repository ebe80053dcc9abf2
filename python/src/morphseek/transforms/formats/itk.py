"""ITK's transform files, which ANTs and 3D Slicer have, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import SimpleITK as sitk

from ..._itk import HDF5
from .. import files, h5
from ..linear import linear, linear_part
from ..parts import composed, is_field, itk_order, parts_of, vectors_of
from .job import Content, Job, Source

ENDINGS = (".h5", ".hdf5", ".tfm", ".txt", ".mat")


def read(source: Source) -> Content:
    transform = files.read(source.path)
    return Content(transform, *h5.grids(source.path))


def write(job: Job) -> list[Path]:
    if job.ending == ".mat":
        files.write(job.path, linear(job.matrix()))
        return [job.path]
    if job.ending not in HDF5:
        files.write(job.path, composed(job.parts))
        return [job.path]
    merged = composed(job.parts)
    parts = parts_of(merged)
    if all(part.IsLinear() or is_field(part) for part in parts):
        files.write_parts(job.path, [_part(p) for p in parts], job.own_grid, job.moving_grid)
    else:
        files.write(job.path, merged)
    return [job.path]


def _part(part: sitk.Transform) -> h5.Part:
    if is_field(part):
        vectors, grid = vectors_of(part)
        return h5.Part("DisplacementFieldTransform", itk_order(grid), vectors.astype(np.float32))
    return files.matrix_part(linear_part(part))
