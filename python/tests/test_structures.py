"""RT structure sets carried by a transform: spheres of known place are outlined and read back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import Command, by_itk, unreadable
from morphseek import Transform, errors, images
from morphseek.transforms import structures

pydicom = pytest.importorskip("pydicom", reason="needs morphseek[dicom]")
pytest.importorskip("skimage", reason="needs morphseek[dicom]")
from pydicom.dataset import Dataset  # noqa: E402
from pydicom.uid import generate_uid  # noqa: E402
from test_dicom import Case, edited, make, need, write_series  # noqa: E402
from test_dicom_images import item  # noqa: E402

KIND = structures.KIND
RADII = {"shell": (7.0, 3.0), "ball": (5.0, 0.0)}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make(tmp_path_factory.mktemp("case"))


def center(case: Case) -> np.ndarray:
    """Return the centre of the fixed image in moving space."""
    return by_itk(case.bent, [case.fixed.grid.center])[0]


def contour(points: np.ndarray, kind: str = "CLOSED_PLANAR") -> Dataset:
    numbers = [f"{v:.4f}" for v in points.ravel()]
    return item(ContourGeometricType=kind, NumberOfContourPoints=len(points), ContourData=numbers)


def write_structures(path: Path, case: Case, **more: Any) -> Path:
    """Draw spheres as circles on the moving slices, an inner one as a hole, and a point."""
    m, middle = case.moving.index_to_physical, center(case)
    axes = np.array(case.moving.direction).reshape(3, 3)
    angles = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    circle = np.outer(np.cos(angles), axes[:, 0]) + np.outer(np.sin(angles), axes[:, 1])
    source = pydicom.dcmread(case.folder / "moving" / "000.dcm")
    made = pydicom.dataset.FileDataset("", {}, preamble=bytes(128))
    made.file_meta = pydicom.dataset.FileMetaDataset()
    made.file_meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian
    made.SOPClassUID = made.file_meta.MediaStorageSOPClassUID = KIND
    made.SOPInstanceUID = made.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    made.Modality, made.SeriesInstanceUID = "RTSTRUCT", generate_uid()
    for key in ("PatientName", "PatientID", "StudyInstanceUID", "SpecificCharacterSet"):
        made[key] = source[key]
    made.StructureSetLabel, made.ApprovalStatus = "PLAN", "APPROVED"
    made.StructureSetROISequence = [
        item(ROINumber=number, ROIName=name, ROIGenerationAlgorithm="MANUAL",
             ReferencedFrameOfReferenceUID=case.uids["moving"]["frame"])
        for number, name in ((3, "shell"), (5, "ball"), (6, "point"), (8, "far"), (9, "none"))
    ]  # fmt: skip
    drawn: dict[int, list[Dataset]] = {3: [], 5: [], 8: []}
    balls = {3: (0, RADII["shell"]), 5: (0, RADII["ball"]), 8: (500, (5.0, 0.0))}
    for k in range(case.moving.array.shape[0]):
        height = ((m @ [0, 0, k, 1])[:3] - middle) @ axes[:, 2]
        for number, (shift, radii) in balls.items():
            here = middle + height * axes[:, 2] + shift * axes[:, 0]
            for radius in radii:
                if (square := radius**2 - height**2) > 0.05:
                    drawn[number].append(contour(here + np.sqrt(square) * circle))
    made.ROIContourSequence = [
        item(ReferencedROINumber=number, ROIDisplayColor=[255, number, 0], ContourSequence=lines)
        for number, lines in drawn.items()
    ]
    point = contour(middle[None], "POINT")
    made.ROIContourSequence.append(item(ReferencedROINumber=6, ContourSequence=[point]))
    made.RTROIObservationsSequence = [
        item(ObservationNumber=1, ReferencedROINumber=3, RTROIInterpretedType="CTV",
             ROIInterpreter="Nobody^There")
    ]  # fmt: skip
    for key, value in more.items():
        setattr(made, key, value)
    made.save_as(path, enforce_file_format=True)
    return path


def distances(case: Case) -> np.ndarray:
    """Return the true distance from the spheres' centre to the origin of each fixed voxel, mm."""
    there = by_itk(case.bent, case.fixed.grid.points().reshape(-1, 3))
    return np.linalg.norm(there - center(case), axis=1).reshape(case.fixed.array.shape)


def inside(case: Case, name: str) -> np.ndarray:
    outer, inner = RADII[name]
    far = distances(case)
    return (far < outer) & (far > inner)


def mask_of(case: Case, found: Any, number: int) -> np.ndarray:
    """Fill contours by Matplotlib's test of points in polygons with the even-odd rule."""
    path = pytest.importorskip("matplotlib.path", reason="needs matplotlib")
    mask = np.zeros(case.fixed.array.shape, bool)
    rows, columns = (a.ravel() for a in np.indices(mask.shape[1:]))
    (contours,) = [r for r in found.ROIContourSequence if r.ReferencedROINumber == number]
    for one in contours.ContourSequence:
        points = np.array(one.ContourData, float).reshape(-1, 3)
        assert len(points) == one.NumberOfContourPoints > 2
        index = case.fixed.grid.to_index(points)
        k = round(index[0, 2])
        assert np.abs(index[:, 2] - k).max() < 1e-2  # planar, and on a slice
        (image,) = one.ContourImageSequence
        slice_ = pydicom.dcmread(case.folder / "fixed" / f"{k:03}.dcm")
        assert image.ReferencedSOPInstanceUID == slice_.SOPInstanceUID
        filled = path.Path(index[:, :2]).contains_points(np.column_stack([columns, rows]))
        mask[k] ^= filled.reshape(mask.shape[1:])
    return mask


def dice(one: np.ndarray, other: np.ndarray) -> float:
    assert one.sum() > 50
    return float(2 * (one & other).sum() / (one.sum() + other.sum()))


def test_spheres(case: Case, tmp_path: Path):
    """Contours come onto the fixed slices, holes as holes; names and patient are kept."""
    path = write_structures(tmp_path / "rs.dcm", case)
    done = structures.carry(path, tmp_path / "out.dcm", case.transform(), case.folder / "fixed")
    assert (done.structures, done.outside) == (["shell", "ball", "point"], ["far"])
    found = pydicom.dcmread(tmp_path / "out.dcm")
    for number, name in ((3, "shell"), (5, "ball")):
        truth = inside(case, name)
        made = mask_of(case, found, number)
        assert dice(made, truth) > 0.94, name
        far = distances(case)[made != truth]  # half a slice of the moving image, at most
        assert np.min([np.abs(far - radius) for radius in RADII[name] if radius], axis=0).max() < 1
        # mirrored results, or those of the inverse transform, would differ
        assert dice(made[::-1], truth) < 0.93 and dice(made[:, ::-1], truth) < 0.93
    points = {
        int(r.ReferencedROINumber): r.ContourSequence[0]
        for r in found.ROIContourSequence
        if r.get("ContourSequence")
    }
    assert points[6].ContourGeometricType == "POINT"
    middle = case.fixed.grid.center
    assert np.linalg.norm(np.array(points[6].ContourData, float) - middle) < 0.05
    assert {r.ROIName for r in found.StructureSetROISequence} == {*RADII, "point", "far", "none"}
    assert found.ROIContourSequence[0].ROIDisplayColor == [255, 3, 0]
    assert found.ApprovalStatus == "UNAPPROVED"
    assert str(found.PatientName) == "Müller^Ä"
    assert found.RTROIObservationsSequence[0].RTROIInterpretedType == "CTV"
    assert found.RTROIObservationsSequence[0].ROIInterpreter == ""
    (frame,) = found.ReferencedFrameOfReferenceSequence
    assert frame.FrameOfReferenceUID == case.uids["fixed"]["frame"]


TEXTS = (
    "StructureSetLabel", "StructureSetName", "StructureSetDescription", "SeriesDescription",
    "StudyDescription", "OperatorsName", "ReferringPhysicianName", "ReviewerName",
    "InstitutionName", "StationName", "PatientComments", "ManufacturerModelName",
    "ROIDescription", "ROIGenerationDescription", "ROIInterpreter", "ROIObservationLabel",
    "ROIObservationDescription", "RTROIInterpretedType", "MaterialID",
)  # fmt: skip
TOLD, DATE, UID = "QUXMANN", "19770707", "1.2.826.0.1.3680043.2.1125.777"


def told(item: Dataset) -> None:
    """Put a text into all that may have one, into dates and into private elements."""
    for key in TEXTS:
        setattr(item, key, TOLD)
    item.StudyDate = item.SeriesDate = item.StructureSetDate = item.PatientBirthDate = DATE
    item.private_block(0x3287, TOLD, create=True).add_new(0x01, "LO", TOLD)
    for element in list(item):
        if element.VR == "SQ":
            for each in element.value:
                told(each)


def test_no_text_of_the_moving_study_travels(case: Case, tmp_path: Path):
    """The object is the fixed patient's: the moving one's may be a person without an identifier."""
    path = write_structures(tmp_path / "rs.dcm", case)
    found = pydicom.dcmread(path)
    told(found)
    found.PatientName, found.StudyInstanceUID = TOLD, UID
    organ = item(ObservationNumber=2, ReferencedROINumber=5, RTROIInterpretedType="ORGAN")
    found.RTROIObservationsSequence.append(organ)
    del found.PatientID
    found.save_as(path)
    assert len(found.RTROIObservationsSequence[0]) > 10 and path.read_bytes().count(b"QUX") > 100
    structures.carry(path, tmp_path / "out.dcm", case.transform(), case.folder / "fixed")
    written = (tmp_path / "out.dcm").read_bytes()
    for secret in (TOLD, DATE, UID, "Nobody"):
        assert secret.encode() not in written, secret
    made = pydicom.dcmread(tmp_path / "out.dcm")
    assert [r.ROIName for r in made.StructureSetROISequence][:2] == ["shell", "ball"]
    observed = made.RTROIObservationsSequence
    kinds = {int(o.ReferencedROINumber): o.RTROIInterpretedType for o in observed}
    assert kinds == {3: "", 5: "ORGAN"}


def test_there_and_back(case: Case, tmp_path: Path):
    """After a transform and its inverse, contours are within a voxel of their place."""
    path = write_structures(tmp_path / "rs.dcm", case)
    there, back = case.transform(), case.transform().inverse()
    structures.carry(path, tmp_path / "a.dcm", there, case.folder / "fixed")
    structures.carry(tmp_path / "a.dcm", tmp_path / "b.dcm", back, case.folder / "moving")
    other = case._replace(fixed=case.moving, folder=tmp_path)
    (tmp_path / "fixed").symlink_to(case.folder / "moving")
    one, two = (mask_of(other, pydicom.dcmread(p), 5) for p in _with_images(path, tmp_path, other))
    assert dice(one, two) > 0.9
    places = case.moving.grid.to_physical(np.argwhere(one != two)[:, ::-1])
    far = np.linalg.norm(places - center(case), axis=1)
    assert np.abs(far - RADII["ball"][0]).max() < max(case.moving.spacing)


def _with_images(path: Path, folder: Path, case: Case) -> list[Path]:
    """Carry by the identity, which adds to each contour the slice on which it lies."""
    nothing = Transform.of(np.eye(4), case.fixed.grid, case.fixed.grid)
    structures.carry(path, folder / "same.dcm", nothing, folder / "fixed")
    return [folder / "same.dcm", folder / "b.dcm"]


def test_pydicomrt_reads_them(case: Case, tmp_path: Path):
    """It fills to the nearest pixel. (rt-utils wants square pixels and square slices.)"""
    reader = need("pydicomrt.rs.rs_to_volume")
    path = write_structures(tmp_path / "rs.dcm", case)
    structures.carry(path, tmp_path / "out.dcm", case.transform(), case.folder / "fixed")
    slices = [pydicom.dcmread(p) for p in sorted((case.folder / "fixed").iterdir())]
    affine, shape = reader.calc_image_series_affine_mapping(slices)
    found = reader.rtstruct_to_masks(pydicom.dcmread(tmp_path / "out.dcm"), affine, shape)
    assert set(found) == {"shell", "ball", "point", "far"}
    mask = found["ball"]["mask_volume"].astype(bool)
    assert dice(mask, inside(case, "ball")) > 0.85 > dice(mask[:, ::-1], inside(case, "ball"))


def test_command(case: Case, tmp_path: Path):
    """The transform is a DICOM object, too."""
    command, path = Command(tmp_path / "cache"), write_structures(tmp_path / "rs.dcm", case)
    given = ("apply", "-t", case.save(), "-i", path, "-o", tmp_path / "out.dcm")
    said = command.json(*given, "-r", case.folder / "fixed")
    assert said["structures"] == ["shell", "ball", "point"] and said["outside"] == ["far"]
    mask = mask_of(case, pydicom.dcmread(tmp_path / "out.dcm"), 5)
    assert dice(mask, inside(case, "ball")) > 0.95
    assert "another frame of reference" in command(*given, "-r", case.folder / "moving", expect=2)


def test_refused(case: Case, tmp_path: Path):
    """Each input that cannot be carried is refused in a sentence, and no file appears."""
    (tmp_path / "out").mkdir()
    write_series(tmp_path / "other", case.fixed, PatientID="0816")

    def first(found: Any) -> Any:
        return found.ROIContourSequence[0].ContourSequence[0]

    def numbers(found: Any, change: Any) -> None:
        points = np.array(first(found).ContourData, float).reshape(-1, 3)
        first(found).ContourData = [f"{v:.3f}" for v in change(points).ravel()]

    across = 1e5 * np.array(case.moving.direction).reshape(3, 3)[:, :2].sum(axis=1)
    wild = np.random.default_rng(1).uniform(-9, 9, (90, 3))
    for change, reference, says in (
        (lambda d: None, "other", "different patients"),
        (lambda d: None, None, "give the folder of the fixed DICOM series"),
        (lambda d: numbers(d, lambda p: p + wild), "fixed", "parallel planes"),
        (lambda d: numbers(d, lambda p: p + across), "fixed", "more than a body"),
    ):  # fmt: skip
        path = edited(write_structures(tmp_path / "rs.dcm", case), change)
        given = case.folder / reference if reference == "fixed" else reference
        given = tmp_path / "other" if reference == "other" else given
        with pytest.raises(errors.MorphSeekError, match=says) as caught:
            structures.carry(path, tmp_path / "out" / "o.dcm", case.transform(), given)
        assert "Müller" not in str(caught.value)
        assert not any((tmp_path / "out").iterdir())
    half = tmp_path / "half.dcm"
    half.write_bytes(write_structures(path, case).read_bytes()[:2200])
    given = (half, tmp_path / "out" / "o.dcm", case.transform(), case.folder / "fixed")
    unreadable("damaged|cut short|no RT", structures.carry, *given)


def test_lines_of_an_area():
    """A hole is joined to the line around it, and stays a hole by both fill rules."""
    from skimage.draw import polygon2mask

    from morphseek.transforms.contours import outlines, rasterised

    area = np.zeros((30, 40))
    area[3:27, 4:30] = 1
    area[8:14, 9:15] = area[16:22, 18:25] = 0
    area[10:12, 11:13] = 1  # an island in the lake
    area[5:9, 34:38] = 1
    lines = outlines(area)
    assert len(lines) == 3
    mask = np.zeros(area.shape, bool)
    for line in lines:
        mask |= polygon2mask(area.shape, line)
    assert (mask == (area > 0)).mean() > 0.99 and not mask[9, 9] and mask[10, 11]
    again = rasterised(lines, area.shape)
    assert np.abs(again - area).mean() < 0.01


def test_images_are_not_taken_for_structures(case: Case):
    assert not structures.is_structure_set(case.folder / "fixed" / "000.dcm")
    assert not structures.is_structure_set(case.folder / "fixed")
    assert images.read(case.folder / "fixed").array.shape == (15, 18, 21)
