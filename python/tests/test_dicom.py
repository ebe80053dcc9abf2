"""DICOM registrations: the files obey PS3.3, checked by its equations in numpy and by pydicomrt."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import SimpleITK as sitk

from helpers import LINEAR, Command, affine_of, blob, by_itk, field_of, invalid, oblique, unreadable
from morphseek import Transform, errors, images

pydicom = pytest.importorskip("pydicom", reason="needs morphseek[dicom]")
from pydicom.uid import generate_uid  # noqa: E402

TURN = np.array([[0, -0.97, 0.25], [-1, 0, 0], [0, 0.25, 0.97]])
TURN[:, 1:] /= np.linalg.norm(TURN[:, 1:], axis=0)


def write_series(
    folder: Path, image: images.Image, study: str = "", **more: str | None
) -> dict[str, str]:
    """Write slices as a scanner does; return the UIDs. An element of ``more`` that is None is left
    out.
    """
    folder.mkdir(parents=True)
    uids = {"frame": generate_uid(), "series": generate_uid(), "study": study or generate_uid()}
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
        made.SliceThickness = made.SpacingBetweenSlices = image.spacing[2]
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
    """Points anywhere in the fixed image, also between voxels."""

    @property
    def given(self) -> dict[str, Path]:
        return {"reference": self.folder / "fixed", "moving": self.folder / "moving"}

    def transform(self, bends: bool = True) -> Transform:
        return Transform.of(self.bent if bends else self.linear, self.fixed.grid, self.moving.grid)

    def save(self, bends: bool = True) -> Path:
        path = self.folder / f"{'bent' if bends else 'linear'}.dcm"
        assert self.transform(bends).save(path, **self.given) == [path]
        return path

    def truth(self, bends: bool = True) -> np.ndarray:
        return by_itk(self.bent if bends else self.linear, self.points)


def make(
    folder: Path, field_axes: Any = None, shape: tuple[int, int, int] = (15, 18, 21), **more: Any
) -> Case:
    """Make oblique, anisotropic images; the field may have other axes than the fixed image."""
    fixed = oblique(blob(shape))
    center = fixed.grid.center
    spacing, size = np.array([1.1, 1.4, 1.9]), np.array([30, 17, 22])
    turn = TURN * [1, 1, np.sign(np.linalg.det(TURN))]
    origin = (LINEAR @ [*center, 1])[:3] - turn @ (spacing * (size - 1) / 2)
    place = (tuple(part) for part in (spacing, origin, turn.ravel()))
    moving = images.Image(blob((22, 17, 30), 0.1), *place)
    axes = np.array(fixed.direction).reshape(3, 3) if field_axes is None else field_axes
    size, spacing = np.array([26, 28, 24]), np.array([1.0, 1.4, 2.1])
    corner = center - axes @ (spacing * (size - 1) / 2)
    bending = images.Image(np.zeros(size[::-1]), tuple(spacing), tuple(corner), tuple(axes.ravel()))
    place = bending.grid.points()
    bend = 2.5 * np.sin(place / 6 + [0, 1, 2]) * [1, -0.7, 0.5]
    linear = affine_of(LINEAR)
    bent = sitk.CompositeTransform([linear, field_of(bend, bending)])
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


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """One case for all tests, which do not change its images."""
    return make(tmp_path_factory.mktemp("case"))


def by_the_standard(found: Any, points: np.ndarray) -> np.ndarray:
    """Map points as in PS3.3 C.20.3.1.1, from raw elements: Post(Pre x + u(x)), with linear
    interpolation on the grid, whose third axis is the cross product of the others.
    """
    from scipy.ndimage import map_coordinates

    (item,) = found.DeformableRegistrationSequence
    (grid,) = item.DeformableRegistrationGridSequence
    row, column = np.array(grid.ImageOrientationPatient, float).reshape(2, 3)
    axes = np.stack([row, column, np.cross(row, column)])  # rows
    nx, ny, nz = grid.GridDimensions
    vectors = np.frombuffer(grid.VectorGridData, "<f4").reshape(nz, ny, nx, 3)
    index = (points - np.array(grid.ImagePositionPatient, float)) @ axes.T / grid.GridResolution
    at = index[:, ::-1].T
    moved = [map_coordinates(vectors[..., k], at, order=1) for k in range(3)]
    pre, post = (
        np.array(each[0].FrameOfReferenceTransformationMatrix, float).reshape(4, 4)
        for each in (
            item.PreDeformationMatrixRegistrationSequence,
            item.PostDeformationMatrixRegistrationSequence,
        )
    )
    there = points @ pre[:3, :3].T + pre[:3, 3] + np.transpose(moved)
    return there @ post[:3, :3].T + post[:3, 3]


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
    # a wrong reading would be far off: the inverse, a mirrored grid, RAS
    turned = by_itk(case.bent, case.points * [-1, -1, 1])
    for wrong in (turned * [-1, -1, 1], 2 * case.points - case.truth()):
        assert off(wrong, case.truth()) > 1
    assert off(Transform.read(case.save()).transform_points(case.points), case.truth()) < 1e-3


def test_any_chain_becomes_a_field(case: Case):
    """An inverse, whose matrix acts first, and several fields become one on the reference."""
    inverse = case.transform().inverse()
    given = {"reference": case.folder / "moving", "moving": case.folder / "fixed"}
    inverse.save(case.folder / "t.dcm", **given)
    points = case.moving.grid.points()[6:-6, 5:-5, 8:-8].reshape(-1, 3)
    found = by_the_standard(pydicom.dcmread(case.folder / "t.dcm"), points)
    assert off(found, inverse.transform_points(points)) < 1e-3


def test_matrix_by_the_standard(case: Case):
    """The matrix of a Spatial Registration goes the other way: from the moving to the fixed."""
    found = pydicom.dcmread(case.save(bends=False))
    assert found.SOPClassUID.name == "Spatial Registration Storage"
    fixed, moving = found.RegistrationSequence
    assert found.FrameOfReferenceUID == fixed.FrameOfReferenceUID == case.uids["fixed"]["frame"]
    assert moving.FrameOfReferenceUID == case.uids["moving"]["frame"]
    (matrix,) = moving.MatrixRegistrationSequence[0].MatrixSequence
    assert matrix.FrameOfReferenceTransformationMatrixType == "AFFINE"
    m = np.array(matrix.FrameOfReferenceTransformationMatrix, float).reshape(4, 4)
    truth = case.truth(bends=False)
    assert off(truth @ m[:3, :3].T + m[:3, 3], case.points) < 1e-6
    assert off(case.points @ m[:3, :3].T + m[:3, 3], truth) > 1
    loaded = Transform.read(case.folder / "linear.dcm")
    assert off(loaded.transform_points(case.points), truth) < 1e-6


@pytest.mark.parametrize(
    "turn, kind",
    [(TURN * [1, 1, np.sign(np.linalg.det(TURN))], "RIGID"), (np.diag([1.0, 2, 3]), "RIGID_SCALE"),
     (np.diag([1.0, 1, -1]), "AFFINE"), (LINEAR[:3, :3], "AFFINE")],
)  # fmt: skip
def test_type_of_matrix(case: Case, turn: np.ndarray, kind: str):
    matrix = np.eye(4)
    matrix[:3, :3] = turn
    Transform.of(matrix).save(case.folder / "t.dcm", **case.given)
    item = pydicom.dcmread(case.folder / "t.dcm").RegistrationSequence[1]
    (said,) = item.MatrixRegistrationSequence[0].MatrixSequence
    assert said.FrameOfReferenceTransformationMatrixType == kind


def need(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"needs the package {name.partition('.')[0]}")


def test_pydicomrt_reads_both(case: Case):
    """pydicomrt uses the same formula but its own parser."""
    parser, check = need("pydicomrt.reg.parser"), need("pydicomrt.reg.check")
    bent, linear = (pydicom.dcmread(case.save(bends)) for bends in (True, False))
    assert check.check_deformable_reg_iod(bent) == {"result": True, "content": []}
    assert check.check_spatial_reg_iod(linear) == {"result": True, "content": []}
    (found,) = parser.get_deformable_registrations(bent)
    assert found["SourceFrameOfReferenceUID"] == case.uids["moving"]["frame"]
    grid = found["DeformableRegistrationGrid"]
    row, column = np.array(grid["ImageOrientationPatient"], float).reshape(2, 3)
    axes = np.column_stack([row, column, np.cross(row, column)])
    vectors = sitk.GetImageFromArray(grid["VectorGridData"].astype(float), isVector=True)
    vectors.SetOrigin([float(v) for v in grid["ImagePositionPatient"]])
    vectors.SetSpacing([float(v) for v in grid["GridResolution"]])
    vectors.SetDirection(axes.ravel().tolist())
    post = np.array(found["PostDeformationMatrixRegistration"]).reshape(4, 4)
    theirs = sitk.CompositeTransform([affine_of(post), sitk.DisplacementFieldTransform(vectors)])
    assert off(by_itk(theirs, case.points), case.truth()) < 1e-3
    frames = case.uids["fixed"]["frame"], case.uids["moving"]["frame"]
    matrix = parser.get_spatial_registrations(linear)[frames[0]][frames[1]]
    assert np.allclose(np.linalg.inv(np.reshape(matrix, (4, 4))), LINEAR, atol=1e-9)


def test_whose_it_is(case: Case):
    """Patient and study are the fixed image's, the UIDs are new, and no other value is invented."""
    found, again = (pydicom.dcmread(case.save()) for _ in range(2))
    fixed = pydicom.dcmread(case.folder / "fixed" / "000.dcm")
    for key in ("PatientName", "PatientID", "StudyInstanceUID", "StudyDate", "StudyID"):
        assert found[key].value == fixed[key].value
    assert str(found.PatientName) == "Müller^Ä"
    assert found.PatientBirthDate == found.ReferringPhysicianName == ""
    assert found.Modality == "REG" and found.FrameOfReferenceUID == case.uids["fixed"]["frame"]
    assert found.SOPInstanceUID != again.SOPInstanceUID
    (item,) = found.DeformableRegistrationSequence
    assert item.SourceFrameOfReferenceUID == case.uids["moving"]["frame"]
    assert len(item.ReferencedImageSequence) == case.moving.array.shape[0]
    said = {each.SeriesInstanceUID for each in found.ReferencedSeriesSequence}
    assert said == {case.uids[name]["series"] for name in ("fixed", "moving")}


def test_without_a_name(tmp_path: Path):
    """The images are de-identified and of two studies."""
    case = make(tmp_path, PatientName=None, PatientID=None, SpecificCharacterSet=None)
    uids = write_series(tmp_path / "later", case.moving, PatientName=None, PatientID=None)
    case.transform().save(tmp_path / "t.dcm", None, tmp_path / "fixed", tmp_path / "later")
    found = pydicom.dcmread(tmp_path / "t.dcm")
    assert found.PatientName == found.PatientID == ""
    assert len(found.ReferencedSeriesSequence) == 1
    (other,) = found.StudiesContainingOtherReferencedInstancesSequence
    assert other.StudyInstanceUID == uids["study"]


def test_no_text_of_the_moving_study_travels(case: Case, tmp_path: Path):
    """An object is the fixed patient's; of the moving images it has the UIDs alone."""
    secret = "QUXMANN"
    texts = dict.fromkeys(
        ("StudyDescription", "SeriesDescription", "ReferringPhysicianName", "InstitutionName",
         "PatientName", "OperatorsName", "AccessionNumber", "StudyID", "ProtocolName"), secret,
    )  # fmt: skip
    write_series(tmp_path / "moving", case.moving, PatientID=None, StudyDate="19770707", **texts)
    for path in (tmp_path / "moving").iterdir():
        found = pydicom.dcmread(path)
        found.private_block(0x3287, secret, create=True).add_new(0x01, "LO", secret)
        found.save_as(path)
    for bends in (True, False):
        out = tmp_path / "t.dcm"
        case.transform(bends).save(out, None, case.folder / "fixed", tmp_path / "moving")
        written = out.read_bytes()
        assert secret.encode() not in written and b"19770707" not in written


def test_command(case: Case, tmp_path: Path):
    """Convert a registration's transform to DICOM, and apply that to an image."""
    command = Command(tmp_path / "cache")
    h5, dcm = case.folder / "t.h5", case.folder / "t.dcm"
    case.transform().save(h5)
    given = ["--reference", case.folder / "fixed", "--moving", case.folder / "moving"]
    assert command.json("transform", "convert", h5, "-o", dcm, *given)["out"] == [str(dcm)]
    assert command.json("transform", "show", dcm)["kind"]
    for transform, out in ((h5, "a.nii.gz"), (dcm, "b.nii.gz")):
        command("apply", "-t", transform, "-i", case.folder / "moving", "-r",
                case.folder / "fixed", "-o", case.folder / out)  # fmt: skip
    one, other = (images.read(case.folder / out).array for out in ("a.nii.gz", "b.nii.gz"))
    assert np.ptp(one) > 500 and np.abs(one.astype(float) - other).max() <= 1
    # the inverse direction, or another patient
    message = command("apply", "-t", f"{dcm}@inverse", "-i", case.folder / "moving", "-r",
                      case.folder / "fixed", "-o", case.folder / "c.nii.gz", expect=2)  # fmt: skip
    assert "another frame of reference" in message and "give its inverse" in message


def edited(path: Path, change: Callable[[Any], Any]) -> Path:
    found = pydicom.dcmread(path)
    change(found)
    found.save_as(path)
    return path


@pytest.mark.parametrize("share", [0.0, 0.005, 0.3, 0.9, 0.98])
def test_cut_short(case: Case, share: float):
    path = case.save()
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    unreadable(r"bent\.dcm .*(cut short|lacks what|is)", Transform.read, path)


def test_refused_series(case: Case, tmp_path: Path):
    """A series that a registration cannot refer to is refused, and nothing is written."""
    transform, out = case.transform(), tmp_path / "new" / "t.dcm"
    out.parent.mkdir()
    images.write(tmp_path / "fixed.nii.gz", case.fixed)
    write_series(tmp_path / "other", case.moving, PatientID="0816")
    write_series(tmp_path / "bare", case.moving, FrameOfReferenceUID=None)
    fixed, moving = case.folder / "fixed", case.folder / "moving"
    for given, says in (
        ((None, None), "give the fixed image as reference, the folder"),
        ((fixed, None), "give the moving image, the folder"),
        ((tmp_path / "fixed.nii.gz", moving), "is no DICOM"),
        ((case.fixed, moving), "refers to DICOM images"),
        ((fixed, tmp_path / "other"), "different patients"),
        ((fixed, tmp_path / "bare"), "lack the FrameOfReferenceUID"),
        ((moving, fixed), "the wrong way round"),
    ):
        with pytest.raises(errors.MorphSeekError, match=says) as caught:
            transform.save(out, None, *given)
        assert "Müller" not in str(caught.value) and "0815" not in str(caught.value)
        assert not any(out.parent.iterdir())


def test_another_frame_of_reference(case: Case, tmp_path: Path):
    transform = Transform.read(case.save())
    write_series(tmp_path / "stranger", case.moving)
    invalid("different patients", transform.apply, tmp_path / "stranger", case.folder / "fixed")
    invalid("different patients", transform.apply, case.folder / "moving", tmp_path / "stranger")
    with pytest.raises(errors.InvalidArgumentError, match="give its inverse"):
        transform.inverse().apply(case.folder / "moving", case.folder / "fixed")
    assert transform.apply(case.folder / "moving", case.folder / "fixed").GetSize() == (21, 18, 15)


def test_a_value_that_cannot_be_written_leaves_no_file(tmp_path: Path):
    from pydicom.dataset import FileDataset, FileMetaDataset

    from morphseek import _files
    from morphseek.images.dicom_series import save_object

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = "1.2.840.10008.1.2"
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.66.1"
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    made = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    made.SOPClassUID, made.SOPInstanceUID = meta.MediaStorageSOPClassUID, "1.2.3"
    made.SpecificCharacterSet = "ROT13"  # Python knows it, but not as a character set
    made.PatientName = "M\u00fcller"
    with pytest.raises(errors.OutputUnwritableError, match=r"made\.dcm .*ROT13.*write another"):
        _files.write_with(lambda temporary: save_object(made, temporary), tmp_path / "made.dcm")
    assert not list(tmp_path.iterdir())
