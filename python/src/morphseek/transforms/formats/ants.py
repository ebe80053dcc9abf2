"""ANTs: PREFIX0GenericAffine.mat and PREFIX1Warp.nii.gz."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ... import images
from ..._files import output_folder
from .. import files
from ..linear import linear
from ..parts import vector_image
from . import field, itk
from .job import Content, Export, TransformFile

PAIR = ("0GenericAffine.mat", "1Warp.nii.gz")


def read(source: TransformFile) -> Content:
    return (field if source.path.name.lower().endswith(field.ENDINGS) else itk).read(source)


def write(job: Export) -> list[Path] | None:
    if not job.ending:
        return write_pair(job, *PAIR, lambda path, matrix: files.write(path, linear(matrix)))
    (itk if job.ending == ".mat" else field).write(job)
    return None


def write_pair(
    job: Export, matrix_name: str, field_name: str, put_matrix: Callable[[Path, np.ndarray], None]
) -> list[Path]:
    """Write a matrix and the field that acts before it, together or not at all."""
    matrix, bend = job.split()
    names = []
    with output_folder(job.path.parent, (job.path.name + field_name,)) as folder:
        put_matrix(folder / (job.path.name + matrix_name), matrix)
        names.append(matrix_name)
        if bend is not None:
            images.write(folder / (job.path.name + field_name), vector_image(*bend, np.float32))
            names.append(field_name)
    return [job.path.with_name(job.path.name + name) for name in names]
