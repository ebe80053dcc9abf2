"""The matrices of greedy and c3d: 4x4 in RAS mm, as text."""

from __future__ import annotations

import re

import numpy as np

from ..._files import write_text
from ..._grid import RAS
from .job import Content, Export, TransformFile


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
    matrix = source.matrix(RAS @ matrix_of(source) @ RAS)
    return Content(matrix, source.grid, source.moving_grid)


def write(job: Export) -> None:
    write_text(job.path, text_of(RAS @ job.matrix() @ RAS))
