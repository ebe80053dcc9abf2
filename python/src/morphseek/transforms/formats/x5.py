"""X5, the draft format of BIDS, by nitransforms: a matrix or a field of displacements, in RAS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..._features import needing
from ..._files import readable, write_with
from ..._grid import RAS, Grid
from ..parts import field_part
from .job import Content, Export, TransformFile


def _library(path: Path) -> Any:
    with needing("x5", f"{path}: for X5"):
        from nitransforms.io import x5
    return x5


def read(source: TransformFile) -> Content:
    library = _library(source.path)
    with readable(source.path, "transform", (OSError, KeyError, TypeError, ValueError)):
        nodes = library.from_filename(source.path)
    if len(nodes) != 1:
        raise source.unreadable(f"holds {len(nodes)} transforms; save one alone")
    own = _grid(nodes[0].domain)
    values = np.asarray(nodes[0].transform, dtype=np.float64)
    if nodes[0].type == "linear" and values.size == 16:
        matrix = source.matrix(RAS @ values.reshape(4, 4) @ RAS)
        return Content(matrix, source.grid or own, source.moving_grid)
    if nodes[0].subtype != "densefield" or own is None:
        raise source.unreadable(
            f"holds a transform ({nodes[0].type}, {nodes[0].subtype}) that is no matrix and no"
            " dense field"
        )
    if values.shape != (*own.size, 3):
        raise source.unreadable(f"has a field of shape {values.shape}, and another domain")
    vectors = values.transpose(2, 1, 0, 3) @ RAS[:3, :3]
    if nodes[0].representation != "displacements":
        vectors = vectors - own.points()
    return Content(field_part(vectors, own), own, source.moving_grid)


def _grid(domain: Any) -> Grid | None:
    if domain is None or not domain.grid or len(domain.size) != 3:
        return None
    return Grid.from_matrix(domain.size, RAS @ np.asarray(domain.mapping, dtype=np.float64))


def write(job: Export) -> None:
    library = _library(job.path)
    grid = job.own_grid
    if job.is_linear:
        values, about = RAS @ job.matrix() @ RAS, {"type": "linear"}
        axes = ["space"] * 2
    else:
        vectors, grid = job.field()
        values = np.ascontiguousarray((vectors @ RAS[:3, :3]).transpose(2, 1, 0, 3), np.float32)
        about = {"type": "nonlinear", "subtype": "densefield", "representation": "displacements"}
        axes = ["space"] * 3 + ["vector"]
    domain = grid and library.X5Domain(
        grid=True, size=grid.size, mapping=RAS @ grid.index_to_physical, coordinates="cartesian"
    )
    metadata = {"WrittenBy": "MorphSeek"}
    node = library.X5Transform(
        transform=values, dimension_kinds=axes, domain=domain, metadata=metadata, **about
    )
    write_with(lambda temporary: library.to_filename(temporary, [node]), job.path)
