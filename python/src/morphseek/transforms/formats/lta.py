"""Linear transforms of FreeSurfer, from moving (src) to fixed (dst) in RAS, and MINC's .xfm."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from ..._files import write_text
from ..._grid import RAS, Grid
from .job import Content, Export, TransformFile

_VOXELS, _RAS_TO_RAS = 0, 1


def read(source: TransformFile) -> Content:
    text = re.sub(r"#.*", "", source.text())
    if text.startswith("MNI Transform File"):
        return _read_minc(source, text)
    kind = re.search(r"^type\s*=\s*(\d+)", text, re.M)
    block = re.search(r"^\s*1\s+4\s+4\s*$\s*((?:[-+.\deE]+|nan|inf|\s)+)", text, re.M | re.I)
    numbers = block[1].split()[:16] if block else []
    count = re.search(r"^nxforms\s*=\s*(\d+)", text, re.M)
    if kind is None or len(numbers) < 16:
        raise source.unreadable("is no .lta, or is cut short: it needs a type and 4 x 4 numbers")
    if count and int(count[1]) != 1:
        raise source.unreadable(f"holds {count[1]} transforms; save one alone")
    matrix = np.array(numbers, dtype=np.float64).reshape(4, 4)
    moving, fixed = _volume(text, "src"), _volume(text, "dst")
    if int(kind[1]) == _VOXELS:
        if moving is None or fixed is None:
            raise source.unreadable(
                "counts in voxels and has no volume info; write it anew: lta_convert --outlta"
            )
        matrix = fixed.index_to_physical @ matrix @ moving.physical_to_index
    elif int(kind[1]) == _RAS_TO_RAS:
        matrix = RAS @ matrix @ RAS
    else:
        raise source.unreadable(
            f"is of type {kind[1]}; only voxel to voxel (0) and RAS to RAS (1) are read: write it"
            " anew with lta_convert --outlta"
        )
    return _content(source, matrix, fixed, moving)


def _content(
    source: TransformFile, matrix: np.ndarray, fixed: Grid | None = None, moving: Grid | None = None
) -> Content:
    """Return the transform of a 4x4 LPS matrix from moving to fixed."""
    source.matrix(matrix)  # whether it can be inverted
    return Content(
        source.matrix(np.linalg.inv(matrix)),
        fixed if source.grid is None else source.grid,
        moving if source.moving_grid is None else source.moving_grid,
    )


def _read_minc(source: TransformFile, text: str) -> Content:
    kinds = re.findall(r"^\s*Transform_Type\s*=\s*(\w+)", text, re.M)
    rows = re.search(r"^\s*Linear_Transform\s*=([-+.\deE\s]+);", text, re.M)
    numbers = rows[1].split() if rows else []
    if kinds != ["Linear"] or len(numbers) != 12 or "Invert_Flag" in text:
        raise source.unreadable(
            "is no single matrix of MINC, or is cut short; make an .h5 of it: itk_convert_xfm"
        )
    matrix = np.vstack([np.array(numbers, dtype=np.float64).reshape(3, 4), [0, 0, 0, 1]])
    return _content(source, RAS @ matrix @ RAS)


def _volume(text: str, which: str) -> Grid | None:
    """Return the grid of the volume info of src or dst; None where it is not valid."""
    block = re.search(rf"^{which} volume info\s*$(.*?)(?=^\w+ volume info|\Z)", text, re.M | re.S)
    fields = dict(re.findall(r"^\s*(\w+)\s*=\s*(.*?)\s*$", block[1] if block else "", re.M))
    try:
        if int(fields["valid"].split()[0]) != 1:
            return None
        size, spacing, center = (
            np.array(fields[key].split()[:3], dtype=np.float64)
            for key in ("volume", "voxelsize", "cras")
        )
        axes = np.array([fields[f"{axis}ras"].split()[:3] for axis in "xyz"], dtype=np.float64).T
    except (KeyError, ValueError, IndexError):
        return None
    if axes.shape != (3, 3) or not (spacing > 0).all() or abs(np.linalg.det(axes)) < 1e-6:
        return None
    direction = RAS[:3, :3] @ axes
    origin = RAS[:3, :3] @ center - direction @ (spacing * size / 2)
    return Grid(tuple(size), tuple(spacing), tuple(origin), tuple(direction.ravel()))


def write(job: Export) -> None:
    assert job.moving_grid is not None
    matrix = RAS @ np.linalg.inv(job.matrix()) @ RAS
    lines = [
        f"type      = {_RAS_TO_RAS} # LINEAR_RAS_TO_RAS",
        "nxforms   = 1",
        "mean      = 0.0000 0.0000 0.0000",
        "sigma     = 1.0000",
        "1 4 4",
        *(" ".join(f"{v:.15e}" for v in row) for row in matrix),
    ]
    fixed_name, moving_name = job.named
    for which, grid, name in (
        ("src", job.moving_grid, moving_name or "moving.nii.gz"),
        ("dst", job.grid, fixed_name or "fixed.nii.gz"),
    ):
        lines += [f"{which} volume info", "valid = 1  # volume info valid", f"filename = {name}"]
        lines += _info(grid)
    write_text(job.path, "\n".join(lines) + "\n")


def _info(grid: Grid) -> list[str]:
    axes = RAS[:3, :3] @ grid.axes
    center = RAS[:3, :3] @ grid.to_physical(np.array(grid.size) / 2)

    def text(values: Iterable[float]) -> str:
        return " ".join(f"{v:.15e}" for v in values)

    return [
        "volume = " + " ".join(map(str, grid.size)),
        f"voxelsize = {text(grid.spacing)}",
        *(f"{axis}ras   = {text(axes[:, k])}" for k, axis in enumerate("xyz")),
        f"cras   = {text(center)}",
    ]
