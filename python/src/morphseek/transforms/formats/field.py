"""Displacement fields as vector images: ITK's convention, LPS mm, and those of Slicer's NIfTI and
of SPM.
"""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import numpy as np
import SimpleITK as sitk

from ... import images
from ..._files import write_with
from ..._grid import RAS, Grid
from ...images.files import read_path
from ...images.image import tell
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
        vectors.nrrd_said(source.path) if nrrd else {},
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
    write_nifti(
        job.path,
        vector_image(displacements * np.array([-1, -1, 1], np.float32), grid),
        _DISPLACEMENT,
    )
    return [job.path]


def write_spm(job: Job) -> list[Path]:
    displacements, grid = job.field()
    places = (grid.points() + displacements) @ RAS[:3, :3]
    write_nifti(job.path, vector_image(places, grid), _VECTOR, b"Mapping")
    return [job.path]


def vector_image(vectors: np.ndarray, grid: Grid) -> sitk.Image:
    voxels = np.ascontiguousarray(vectors, dtype=np.float32)
    return grid.place(sitk.GetImageFromArray(voxels, isVector=True))


def write_nifti(path: Path, image: sitk.Image, intent: int, name: bytes = b"") -> None:
    """Write a NIfTI-1 with an intent, which ITK does not let one choose."""

    def put(temporary: Path) -> None:
        plain = temporary.with_name("plain.nii")
        images.write(plain, image)
        with open(plain, "r+b") as file:
            file.seek(68)
            file.write(struct.pack("=h", intent))
            file.seek(328)
            file.write(name.ljust(16, b"\0"))
        if temporary.name.lower().endswith(".gz"):
            with open(plain, "rb") as file, gzip.open(temporary, "wb", 6) as packed:
                shutil.copyfileobj(file, packed, 1 << 20)
            plain.unlink()
        else:
            plain.replace(temporary)

    write_with(put, path)
