"""DICOM: Spatial Registration, a matrix, and Deformable Spatial Registration, a field.

The two run in opposite directions (PS3.3 C.20.2.1.1 and C.20.3.1.1): the matrix of the first brings
points of the moving image (source) to the fixed one (registered), the grid of the second the other
way, ``moving = Post(Pre x + u(x))`` with x on the grid in the fixed image's space.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import SimpleITK as sitk

from ... import errors
from ..._files import write_with
from ..._grid import Grid, sheared
from ...images import dicom_series as dicom
from ...images.dicom_headers import read_object
from ..linear import linear
from ..parts import composed, field_on, field_part, is_field, matrix_of, vectors_of
from .job import Content, Export, TransformFile

if TYPE_CHECKING:
    from pydicom.dataset import Dataset, FileDataset

ENDINGS = (".dcm",)
RIGID, DEFORMABLE = "1.2.840.10008.5.1.4.1.1.66.1", "1.2.840.10008.5.1.4.1.1.66.3"
_MOST = 2**32 - 2  # bytes of one element
_FARTHEST = 1e6  # mm that anything lies or moves
_FINEST = 1e-4  # mm between vectors
_DAMAGED = (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError)


def read(source: TransformFile) -> Content:
    dataset = read_object(source.path, "transform")
    kind = str(dataset.get("SOPClassUID") or "")
    if kind not in (RIGID, DEFORMABLE):
        modality = str(dataset.get("Modality") or "")
        raise source.unreadable(
            f"is DICOM{f' of the modality {modality}' if modality.isalnum() else ''}, and no"
            " Spatial Registration nor a Deformable one; give the registration object (REG)"
        )
    try:
        return (_read_matrix if kind == RIGID else _read_field)(source, dataset)
    except errors.MorphSeekError:
        raise
    except _DAMAGED:
        raise source.unreadable(
            "is a registration object that lacks what the standard asks for, or holds it in"
            " another form; write it anew"
        ) from None


def _read_matrix(source: TransformFile, dataset: Dataset) -> Content:
    """Read the one matrix that moves something."""
    registered = str(dataset.get("FrameOfReferenceUID") or "")
    images: list[tuple[str, np.ndarray]] = []
    still = ""
    for each in dataset.RegistrationSequence:
        matrices = [
            _matrix(source, one)
            for registration in each.MatrixRegistrationSequence
            for one in registration.MatrixSequence
        ]
        if len(matrices) > 1:
            raise source.unreadable(
                f"chains {len(matrices)} matrices for one image, which is not read; write them as"
                " one"
            )
        frame = str(each.get("FrameOfReferenceUID") or "")
        if matrices and not np.allclose(matrices[0], np.eye(4), rtol=0, atol=1e-12):
            images.append((frame, matrices[0]))
        elif frame != registered:
            still = frame
    if len(images) > 1:
        raise source.unreadable(f"registers {len(images)} images at once; write an object for each")
    frame, matrix = images[0] if images else (still or registered, np.eye(4))
    source.matrix(matrix)  # whether it can be inverted
    return Content(
        source.matrix(np.linalg.inv(matrix)), source.grid, source.moving_grid, (registered, frame)
    )


def _matrix(source: TransformFile, item: Dataset) -> np.ndarray:
    matrix = np.array(item.FrameOfReferenceTransformationMatrix, dtype=np.float64).reshape(4, 4)
    if not np.abs(matrix).max() <= _FARTHEST:
        raise source.unreadable(
            "has a matrix that moves points by more than a kilometre; it is damaged, copy it again"
        )
    source.matrix(matrix)
    return matrix


def _read_field(source: TransformFile, dataset: Dataset) -> Content:
    key = "DeformableRegistrationGridSequence"
    items = [(one, g) for one in dataset.DeformableRegistrationSequence for g in one.get(key) or ()]
    if len(items) != 1:
        many = f"holds {len(items)} vector grids; write an object for each"
        raise source.unreadable(many if items else "has no vector grid; write it anew")
    ((item, grid_item),) = items
    pre, post = (
        _matrix(source, each[0]) if (each := item.get(key)) else np.eye(4)
        for key in (
            "PreDeformationMatrixRegistrationSequence",
            "PostDeformationMatrixRegistrationSequence",
        )
    )
    syntax = dataset.file_meta.get("TransferSyntaxUID")
    order = "<f4" if getattr(syntax, "is_little_endian", True) else ">f4"
    vectors, grid = _vectors(source, grid_item, order)
    # what acts before the field acts after it, too, if the vectors are turned back
    before = vectors @ np.linalg.inv(pre[:3, :3]).T
    parts: list[sitk.Transform] = [field_part(before, grid)]
    if not np.array_equal(post @ pre, np.eye(4)):
        parts.insert(0, source.matrix(post @ pre))
    frames = (
        str(dataset.get("FrameOfReferenceUID") or ""),
        str(item.get("SourceFrameOfReferenceUID") or ""),
    )
    return Content(composed(parts), grid, source.moving_grid, frames)


def _vectors(source: TransformFile, item: Dataset, order: str) -> tuple[np.ndarray, Grid]:
    """Return the displacements, mm of shape (z, y, x, 3), and their grid."""
    size = [int(n) for n in item.GridDimensions]
    spacing = np.array(item.GridResolution, dtype=np.float64)
    origin = np.array(item.ImagePositionPatient, dtype=np.float64)
    row, column = np.array(item.ImageOrientationPatient, dtype=np.float64).reshape(2, 3)
    axes = np.column_stack([row, column, np.cross(row, column)])
    data = item.get("VectorGridData") or b""
    if len(size) != 3 or min(size) < 1 or spacing.shape != (3,) or origin.shape != (3,):
        raise source.unreadable(
            "has a vector grid whose size, resolution or position are not three numbers each;"
            " write it anew"
        )
    if sum(n > 1 for n in size) < 2:
        raise source.unreadable(
            f"has a vector grid of {' x '.join(map(str, size))}, a point or a line; write it on a"
            " grid over what was registered"
        )
    needs = 12 * size[0] * size[1] * size[2]
    if len(data) != needs:
        raise source.unreadable(
            f"has {len(data)} bytes of vectors, and a grid of {' x '.join(map(str, size))}, which"
            f" needs {needs}; it is cut short or damaged, copy it again"
        )
    if not ((spacing >= _FINEST) & (spacing <= _FARTHEST) & (np.abs(origin) <= _FARTHEST)).all():
        raise source.unreadable("has a vector grid that lies nowhere; write it anew")
    grid = Grid(tuple(size), tuple(spacing), tuple(origin), tuple(axes.ravel()))
    if grid.is_sheared() or not np.isfinite(axes).all():
        raise source.unreadable(
            "has a vector grid whose axes are no unit vectors at right angles; write it anew"
        )
    packed = np.frombuffer(data, order).reshape(*size[::-1], 3)
    lost = int((~np.isfinite(packed)).any(axis=-1).sum())
    if lost:
        raise source.unreadable(
            f"says nothing (NaN) at {lost} of {packed.size // 3} points of its grid; write it on a"
            " smaller grid, over what was registered"
        )
    if np.abs(packed).max() > _FARTHEST:
        raise source.unreadable(
            "has vectors of more than a kilometre; it is damaged, copy it again"
        )
    return packed.astype(np.float64), grid


def write(job: Export) -> None:
    for image, name in zip(job.images, ("the fixed image as reference", "the moving image")):
        if image is None:
            raise errors.InvalidArgumentError(
                f"{job.path}: a DICOM registration refers to two DICOM series, the fixed and the"
                f" moving one; give {name}, the folder of its series"
            )
    fixed, moving = map(dicom.series_of, job.images, ("reference", "moving"))
    what, advice = "the fixed and the moving series", "write another format, as .h5"
    dicom.check_patient(moving.header, fixed.header, f"{job.path}: {what}", advice)
    _check_order(job)
    kind = RIGID if job.is_linear else DEFORMABLE
    dataset = dicom.new_object(fixed, kind, "REG", "MorphSeek registration", "Content")
    dataset.ContentLabel, dataset.Laterality = "REGISTRATION", ""
    dataset.ContentDescription = "Rigid or affine" if job.is_linear else "Deformable"
    dataset.ContentCreatorName = ""
    (_put_matrix if job.is_linear else _put_field)(job, dataset, fixed, moving)
    dicom.refer_by_study(dataset, [fixed, moving])
    write_with(lambda temporary: dicom.save_object(dataset, temporary), job.path)


def _check_order(job: Export) -> None:
    """Refuse series that are given the wrong way round, where the grids tell."""
    own, there = job.content.grid, job.content.moving_grid
    if own is None or there is None or job.moving_grid is None or _box(own, there):
        return
    if _box(own, job.moving_grid) and _box(there, job.grid):
        raise errors.InvalidArgumentError(
            f"{job.path}: the series are given the wrong way round: the reference lies where the"
            " moving image of the transform did, and the other way round; exchange them"
        )


def _box(one: Grid, other: Grid) -> bool:
    """Whether two grids fill the same box, however their axes run."""
    ends = [(c.min(axis=0), c.max(axis=0)) for c in (one.corners(0.5), other.corners(0.5))]
    apart = np.abs(np.subtract(ends[0], ends[1])).max()
    return bool(apart < 0.5 * min(*one.spacing, *other.spacing))


def _put_matrix(
    job: Export, dataset: FileDataset, fixed: dicom.DicomSeries, moving: dicom.DicomSeries
) -> None:
    dataset.RegistrationSequence = [
        dicom.item(
            FrameOfReferenceUID=series.frame,
            ReferencedImageSequence=dicom.refer(series.instances),
            MatrixRegistrationSequence=[
                dicom.item(RegistrationTypeCodeSequence=[], MatrixSequence=[_matrix_item(matrix)])
            ],
        )
        for series, matrix in ((fixed, np.eye(4)), (moving, np.linalg.inv(job.matrix())))
    ]


def _put_field(
    job: Export, dataset: FileDataset, fixed: dicom.DicomSeries, moving: dicom.DicomSeries
) -> None:
    post, vectors, grid = _bend(job)
    if grid.is_sheared():
        raise sheared(f"{job.path}: {job.name}")
    vectors, grid = _right_handed(vectors, grid)
    if vectors.size * 4 > _MOST:
        raise errors.OutputUnwritableError(
            f"{job.path}: a field of {vectors.size // 3} vectors is larger than an element of DICOM"
            " can be; write it as .h5, or on a coarser reference"
        )
    if not np.isfinite(vectors).all():
        raise errors.InvalidArgumentError(f"{job.path}: {job.name} has vectors that are no numbers")
    place = dicom.item(
        ImagePositionPatient=[_decimal(v) for v in grid.origin],
        ImageOrientationPatient=[_decimal(v) for v in grid.axes.T[:2].ravel()],
        GridDimensions=list(grid.size),
        GridResolution=list(grid.spacing),
        VectorGridData=np.ascontiguousarray(vectors, "<f4").tobytes(),
    )
    dataset.DeformableRegistrationSequence = [
        dicom.item(
            SourceFrameOfReferenceUID=moving.frame,
            ReferencedImageSequence=dicom.refer(moving.instances),
            RegistrationTypeCodeSequence=[],
            # many readers ask for both, and not whether they are there
            PreDeformationMatrixRegistrationSequence=[_matrix_item(np.eye(4))],
            PostDeformationMatrixRegistrationSequence=[_matrix_item(post)],
            DeformableRegistrationGridSequence=[place],
        )
    ]


def _bend(job: Export) -> tuple[np.ndarray, np.ndarray, Grid]:
    """Return a matrix, the displacements that act before it, and their grid."""
    *others, first = job.parts
    if is_field(first) and all(part.IsLinear() for part in others):
        return matrix_of(others), *vectors_of(first)
    matrix = matrix_of([part for part in job.parts if part.IsLinear()])
    behind = sitk.CompositeTransform([linear(np.linalg.inv(matrix)), job.transform])
    return matrix, field_on(behind, job.grid), job.grid


def _right_handed(vectors: np.ndarray, grid: Grid) -> tuple[np.ndarray, Grid]:
    """Return a field with a right-handed grid, as DICOM takes it to be."""
    axes = grid.axes
    if np.linalg.det(axes) > 0:
        return vectors, grid
    last = grid.part([0, 0, grid.size[2] - 1], grid.size)
    return vectors[::-1], dataclasses.replace(last, direction=tuple((axes * [1, 1, -1]).ravel()))


def _matrix_item(matrix: np.ndarray) -> Dataset:
    turn = matrix[:3, :3]
    square = turn.T @ turn
    kind = "AFFINE"
    if np.linalg.det(turn) > 0 and np.allclose(square, np.diag(np.diag(square)), atol=1e-9):
        kind = "RIGID" if np.allclose(square, np.eye(3), atol=1e-9) else "RIGID_SCALE"
    return dicom.item(
        FrameOfReferenceTransformationMatrixType=kind,
        FrameOfReferenceTransformationMatrix=[_decimal(v) for v in matrix.ravel()],
    )


def _decimal(value: float) -> str:
    """Return a number in the 16 characters that DICOM has for it."""
    from pydicom.valuerep import format_number_as_ds

    return format_number_as_ds(float(value) + 0.0)
