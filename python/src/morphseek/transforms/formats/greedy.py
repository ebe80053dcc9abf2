"""greedy and c3d: a 4x4 matrix in RAS mm as text, and fields as ITK's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..._files import write_text
from ..._grid import RAS
from . import field
from .ants import write_pair
from .job import Content, Export, TransformFile

PAIR = ("_affine.mat", "_warp.nii.gz")


def rows(text: str) -> np.ndarray | None:
    """Return the 4x4 numbers that are all of a text beside comments; None of another one."""
    if not re.search(r"^\s*[-+.\d]", text, re.M):
        return None
    try:
        matrix = np.loadtxt(text.replace(",", " ").splitlines(), ndmin=2)
    except ValueError:
        return None
    return matrix if matrix.shape == (4, 4) else None


def matrix_of(source: TransformFile) -> np.ndarray:
    """Return the 4x4 numbers of a text file."""
    matrix = rows(source.text())
    if matrix is None:
        raise source.unreadable("is not a matrix of 4 rows of 4 numbers")
    return matrix


def text_of(matrix: np.ndarray) -> str:
    return "".join(" ".join(f"{v:.12g}" for v in row) + "\n" for row in matrix)


def read(source: TransformFile) -> Content:
    if source.path.name.lower().endswith(field.ENDINGS):
        return field.read(source)
    matrix = source.matrix(RAS @ matrix_of(source) @ RAS)
    return Content(matrix, source.grid, source.moving_grid)


def write(job: Export) -> list[Path] | None:
    if not job.ending:
        return write_pair(job, *PAIR, _write_matrix)
    if job.ending == ".nii.gz":
        field.write(job)
    else:
        _write_matrix(job.path, job.matrix())
    return None


def _write_matrix(path: Path, matrix: np.ndarray) -> None:
    write_text(path, text_of(RAS @ matrix @ RAS))
