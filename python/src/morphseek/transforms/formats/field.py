"""Displacement fields as vector images: ITK's convention, LPS mm, and the one of Slicer's NIfTI."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import numpy as np
import SimpleITK as sitk

from ... import images
from ..._files import write_with
from ...images.files import read_path
from ..parts import field_part
from .job import Job, Loaded, Source

ENDINGS = (".nii.gz", ".nii", ".nrrd", ".mha", ".mhd", ".nhdr")
_DISPLACEMENT = 1006  # NIfTI's intent code for vectors in RAS, which ITK turns to LPS


def read(source: Source) -> Loaded:
    image = read_path(source.path, "transform")
    if image.GetDimension() == 4 and image.GetSize()[3] == 3:
        raise source.unreadable(
            "has three volumes, as FSL's warps have: give the format fsl and the moving image"
        )
    if image.GetDimension() == 2 or image.GetNumberOfComponentsPerPixel() == 2:
        raise source.unreadable("is a 2-D displacement field; images here are 3-D")
    if image.GetNumberOfComponentsPerPixel() != 3 or image.GetDimension() != 3:
        raise source.unreadable(
            "is an image and no displacement field, which has three components a voxel"
        )
    grid = images.grid_of(image)
    return Loaded(field_part(sitk.GetArrayFromImage(image), grid), grid, source.moving_grid)


def write(job: Job) -> list[Path]:
    images.write(job.path, vector_image(*job.field()), compress=job.ending == ".nii.gz")
    return [job.path]


def write_ras(job: Job) -> list[Path]:
    vectors, grid = job.field()
    write_nifti(
        job.path, vector_image(vectors * np.array([-1, -1, 1], np.float32), grid), _DISPLACEMENT
    )
    return [job.path]


def vector_image(vectors: np.ndarray, grid: np.ndarray) -> sitk.Image:
    voxels = np.ascontiguousarray(vectors, dtype=np.float32)
    return images.placed(sitk.GetImageFromArray(voxels, isVector=True), grid)


def write_nifti(path: Path, image: sitk.Image, intent: int) -> None:
    """Write a NIfTI-1 with an intent code, which ITK does not let one choose."""

    def put(temporary: Path) -> None:
        plain = temporary.with_name("plain.nii")
        images.write(plain, image)
        with open(plain, "r+b") as file:
            file.seek(68)
            file.write(struct.pack("=h", intent))
        if temporary.name.lower().endswith(".gz"):
            with open(plain, "rb") as file, gzip.open(temporary, "wb", 6) as packed:
                shutil.copyfileobj(file, packed, 1 << 20)
            plain.unlink()
        else:
            plain.replace(temporary)

    write_with(put, path)
