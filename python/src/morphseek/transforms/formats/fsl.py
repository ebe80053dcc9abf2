"""FSL: FLIRT's matrices, from moving to fixed, and relative warps.

Both count in millimetres from the first voxel along the axes of the image, whose first one is
turned where the image is not left-handed (det of its affine above 0).
"""

from __future__ import annotations

import numpy as np
import SimpleITK as sitk

from ... import errors
from ..._files import write_text
from ..._grid import Grid, mapped
from ...images.files import read_path
from ...images.writers import write_nifti
from ..parts import field_on, field_part
from .field import ENDINGS
from .greedy import matrix_of, text_of
from .job import Content, Export, TransformFile
from .vectors import SPLINES, WARP


def to_fsl(grid: Grid) -> np.ndarray:
    """Return the 4x4 matrix from LPS mm to FSL's mm of an image."""
    scaled = np.diag([*grid.spacing, 1.0])
    if np.linalg.det(grid.axes) > 0:
        scaled[0, 0], scaled[0, 3] = -grid.spacing[0], (grid.size[0] - 1) * grid.spacing[0]
    return scaled @ grid.physical_to_index


def read(source: TransformFile) -> Content:
    moving = source.moving_grid
    warp = source.path.name.lower().endswith(ENDINGS)
    if moving is None or (source.grid is None and not warp):
        raise errors.InvalidArgumentError(
            f"transform: {source.path} is of FSL, which counts from the images' corners; give the"
            f" {'' if warp else 'fixed image as reference and the '}moving image"
        )
    if warp:
        return _read_warp(source, moving)
    assert source.grid is not None
    there = matrix_of(source)
    source.matrix(there)  # whether it can be inverted
    matrix = np.linalg.inv(to_fsl(moving)) @ np.linalg.inv(there) @ to_fsl(source.grid)
    return Content(source.matrix(matrix), source.grid, moving)


def _read_warp(source: TransformFile, moving: Grid) -> Content:
    image = read_path(source.path, "transform").image
    intent = image.GetMetaData("intent_code") if image.HasMetaDataKey("intent_code") else "0"
    if int(intent) in SPLINES:
        raise source.unreadable(
            "has spline coefficients; make a field of it: convertwarp --warp1=... --relout"
        )
    if image.GetDimension() != 4 or image.GetSize()[3] != 3:
        raise source.unreadable("is no warp of FSL, which has three volumes")
    array = sitk.GetArrayFromImage(image).astype(np.float64)
    grid = Grid.of(image)
    place, vectors = grid.points(), np.moveaxis(array, 0, -1)
    here = mapped(to_fsl(grid), place)
    if np.var(vectors - here, axis=(0, 1, 2)).sum() < np.var(vectors, axis=(0, 1, 2)).sum():
        raise source.unreadable(
            "has absolute places; make displacements of them: convertwarp --absolute --relout"
        )
    there = mapped(np.linalg.inv(to_fsl(moving)), here + vectors)
    return Content(field_part(there - place, grid), grid, moving)


def write(job: Export) -> None:
    assert job.moving_grid is not None
    there = to_fsl(job.moving_grid)
    if job.ending == ".mat":
        matrix = there @ job.matrix() @ np.linalg.inv(to_fsl(job.grid))
        return write_text(job.path, text_of(np.linalg.inv(matrix)))
    grid = job.grid
    place = grid.points()
    targets = place + field_on(job.transform, grid).astype(np.float64)
    vectors = (mapped(there, targets) - mapped(to_fsl(grid), place)).astype(np.float32)
    frames = [
        grid.place(sitk.GetImageFromArray(np.ascontiguousarray(vectors[..., k]))) for k in range(3)
    ]
    write_nifti(job.path, sitk.JoinSeries(frames), {"intent_code": WARP})
