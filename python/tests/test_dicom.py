"""DICOM registrations: what is written obeys PS3.3, by its equations in numpy and by pydicomrt."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import SimpleITK as sitk

from helpers import Command, blob, oblique
from morphseek import Transform, errors, images

pydicom = pytest.importorskip("pydicom", reason="needs morphseek[dicom]")
from pydicom.uid import generate_uid  # noqa: E402

LINEAR = np.array(
    [[1.05, 0.06, 0.01, 1.5], [-0.04, 0.93, 0.02, -2.0], [0.01, 0.03, 1.02, 1.0], [0, 0, 0, 1]]
)
TURN = np.array([[0, -0.97, 0.25], [-1, 0, 0], [0, 0.25, 0.97]])
TURN[:, 1:] /= np.linalg.norm(TURN[:, 1:], axis=0)


def write_series(
    folder: Path, image: images.Image, study: str = "", **more: str | None
) -> dict[str, str]:
    """Write slices as a scanner does; return the UIDs. None of ``more`` leaves an element out."""
    folder.mkdir(parents=True)
    uids = {name: generate_uid() for name in ("frame", "series")} | {
        "study": study or generate_uid()
    }
    volume = sitk.Cast(image.to_sitk() * 1000, sitk.sitkInt16)
    axes = np.array(image.direction).reshape(3, 3)
    for k in range(volume.GetDepth()):
        path = folder / f"{k:03}.dcm"
        sitk.WriteImage(sitk.GetImageFromArray(sitk.GetArrayFromImage(volume)[k]), str(path))
        made = pydicom.dcmread(path)
        made.SOPInstanceUID = made.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        made.SOPClassUID = made.file_meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
        made.Modality, made.InstanceNumber = "CT", k + 1
        made.FrameOfReferenceUID, made.StudyInstanceUID = uids["frame"], uids["study"]
        made.SeriesInstanceUID = uids["series"]
        made.SpecificCharacterSet = "ISO_IR 100"
        made.PatientName, made.PatientID = "Müller^Ä", "0815"
        made.StudyDate, made.StudyID = "20240102", "17"
        corner = volume.TransformIndexToPhysicalPoint((0, 0, k))
        made.ImagePositionPatient = [f"{v:.10g}" for v in corner]
        made.ImageOrientationPatient = [f"{v:.10g}" for v in axes.T[:2].ravel()]
        made.PixelSpacing = [image.spacing[1], image.spacing[0]]
        made.SliceThickness = image.spacing[2]
        for key, value in more.items():
            if value is None:
                if key in made:
                    del made[key]
            else:
                setattr(made, key, value)
        made.save_as(path)
    return uids


class Case(NamedTuple):
    fixed: images.Image
    moving: images.Image
    folder: Path
    uids: dict[str, dict[str, str]]
    bent: sitk.Transform
    linear: sitk.Transform
    points: np.ndarray
    """Anywhere in the fixed image, between voxels, too."""

    @property
    def given(self) -> dict[str, Path]:
        return {"reference": self.folder / "fixed", "moving": self.folder / "moving"}

    def transform(self, bends: bool = True) -> Transform:
        return Transform(self.bent if bends else self.linear, self.fixed.grid, self.moving.grid)

    def save(self, bends: bool = True) -> Path:
        path = self.folder / f"{'bent' if bends else 'linear'}.dcm"
        assert self.transform(bends).save(path, **self.given) == [path]
        return path

    def truth(self, bends: bool = True) -> np.ndarray:
        transform = self.bent if bends else self.linear
        return np.array([transform.TransformPoint(p) for p in self.points.tolist()])


def make(folder: Path, field_axes: np.ndarray | None = None, **more: Any) -> Case:
    """Oblique, anisotropic images; the field's own axes may be others than the fixed image's."""
    fixed = oblique(blob((15, 18, 21)))
    center = (fixed.index_to_physical @ [*(np.array(fixed.array.shape[::-1]) - 1) / 2, 1])[:3]
    spacing, size = np.array([1.1, 1.4, 1.9]), np.array([30, 17, 22])
    turn = TURN * [1, 1, np.sign(np.linalg.det(TURN))]
    origin = (LINEAR @ [*center, 1])[:3] - turn @ (spacing * (size - 1) / 2)
    moving = images.Image(
        blob((22, 17, 30), 0.1), tuple(spacing), tuple(origin), tuple(turn.ravel())
    )
    axes = np.array(fixed.direction).reshape(3, 3) if field_axes is None else field_axes
    size, spacing = np.array([26, 28, 24]), np.array([1.0, 1.4, 2.1])
    corner = center - axes @ (spacing * (size - 1) / 2)
    index = np.moveaxis(np.indices(size[::-1])[::-1], 0, -1)
    place = corner + (index * spacing) @ axes.T
    bend = 2.5 * np.sin(place / 6 + [0, 1, 2]) * [1, -0.7, 0.5]
    field = images.placed(
        sitk.GetImageFromArray(bend, isVector=True),
        np.concatenate([size, spacing, corner, axes.ravel()]),
    )
    linear = sitk.AffineTransform(3)
    linear.SetMatrix(LINEAR[:3, :3].ravel())
    linear.SetTranslation(LINEAR[:3, 3])
    bent = sitk.CompositeTransform([linear, sitk.DisplacementFieldTransform(field)])
    inner = place[2:-2, 2:-2, 2:-2].reshape(-1, 3)
    generator = np.random.default_rng(3)
    points = inner[generator.choice(len(inner), 300, replace=False)]
    points = points + generator.uniform(-0.9, 0.9, points.shape)
    study = generate_uid()
    uids = {
        name: write_series(folder / name, image, study, **more)
        for name, image in (("fixed", fixed), ("moving", moving))
    }
    return Case(fixed, moving, folder, uids, bent, linear, points)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make(tmp_path)


def by_the_standard(found: Any, points: np.ndarray) -> np.ndarray:
    """Map points as PS3.3 C.20.3.1.1 says, from raw elements: Post(Pre x + u(x)), linear between
    the points of the grid, whose third axis is the cross product of the others.
    """
    from scipy.ndimage import map_coordinates

    (item,) = found.DeformableRegistrationSequence
    (grid,) = item.DeformableRegistrationGridSequence
    row, column = np.array(grid.ImageOrientationPatient, float).reshape(2, 3)
    axes = np.stack([row, column, np.cross(row, column)])  # rows
    nx, ny, nz = grid.GridDimensions
    vectors = np.frombuffer(grid.VectorGridData, "<f4").reshape(nz, ny, nx, 3)
    index = (points - np.array(grid.ImagePositionPatient, float)) @ axes.T / grid.GridResolution
    moved = np.stack(
        [map_coordinates(vectors[..., k], index[:, ::-1].T, order=1) for k in range(3)], axis=1
    )
    pre, post = (
        np.array(each[0].FrameOfReferenceTransformationMatrix, float).reshape(4, 4)
        for each in (
            item.PreDeformationMatrixRegistrationSequence,
            item.PostDeformationMatrixRegistrationSequence,
        )
    )
    return (points @ pre[:3, :3].T + pre[:3, 3] + moved) @ post[:3, :3].T + post[:3, 3]


def off(found: np.ndarray, truth: np.ndarray) -> float:
    assert np.linalg.norm(truth - truth.mean(axis=0), axis=1).max() > 5
    return float(np.linalg.norm(found - truth, axis=1).max())


LEFT_HANDED = np.array(oblique(blob()).direction).reshape(3, 3) * [1, 1, -1]


@pytest.mark.parametrize("axes", [None, LEFT_HANDED], ids=["right-handed", "left-handed"])
def test_field_by_the_standard(tmp_path: Path, axes: np.ndarray | None):
    case = make(tmp_path, axes)
    found = pydicom.dcmread(case.save())
    assert found.SOPClassUID.name == "Deformable Spatial Registration Storage"
    assert off(by_the_standard(found, case.points), case.truth()) < 1e-3
    # what a reader that errs would see is far off: the other way, a mirrored grid, RAS
    turned = np.array([case.bent.TransformPoint(p) for p in (case.points * [-1, -1, 1]).tolist()])
    for wrong in (turned * [-1, -1, 1], 2 * case.points - case.truth()):
        assert off(wrong, case.truth()) > 1
    assert off(Transform.load(case.save()).transform_points(case.points), case.truth()) < 1e-3


def test_any_chain_becomes_a_field(case: Case):
    """An inverse, whose matrix acts first, and several fields, on the grid of the reference."""
    inverse = case.transform().inverse()
    given = {"reference": case.folder / "moving", "moving": case.folder / "fixed"}
    inverse.save(case.folder / "t.dcm", **given)
    m = case.moving.index_to_physical
    index = np.moveaxis(np.indices(case.moving.array.shape)[::-1], 0, -1)[6:-6, 5:-5, 8:-8]
    points = index.reshape(-1, 3) @ m[:3, :3].T + m[:3, 3]
    found = by_the_standard(pydicom.dcmread(case.folder / "t.dcm"), points)
    assert off(found, inverse.transform_points(points)) < 1e-3
