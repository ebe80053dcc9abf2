"""Untrusted DICOM images, registrations and structure sets: each works or is refused with a message
that names it and says what to do, within limits of time and memory, and without a partial file. The
files are the same every time.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import re
import shutil
import signal
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mutants
import numpy as np
import pytest

from morphseek import Transform, errors, images
from morphseek.transforms import structures

pydicom = pytest.importorskip("pydicom", reason="needs morphseek[dicom]")
pytest.importorskip("skimage", reason="needs morphseek[dicom]")
import test_dicom  # noqa: E402
import test_dicom_images  # noqa: E402
import test_structures  # noqa: E402
from pydicom.dataelem import RawDataElement  # noqa: E402
from pydicom.dataset import Dataset  # noqa: E402
from pydicom.tag import Tag  # noqa: E402

# pydicom warns of odd values when the tests make them; NumPy's warnings are still errors
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
_SECONDS = 10
_MEGABYTES = 700  # the memory that reading a small file may take
_KINDS = ("linear", "bent", "structures", "slice", "frames")
_FAILURES = {2, 3}  # exit codes: another frame of reference or patient; an input
_REMEDY = re.compile(
    r"[;,:] (or )?(give|write|copy|correct|save|export|check|apply|convert|install|exchange"
    r"|complete|remove|resample)\b"
)


class Objects(NamedTuple):
    """Sound objects and the series that they refer to."""

    case: test_dicom.Case
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Objects]:
    """The UIDs are the same every time, so that the damage hits the same places."""
    count = itertools.count(10001)

    def uid(*_: Any, **__: Any) -> Any:
        return pydicom.uid.UID(f"1.2.826.0.1.3680043.8.498.{next(count)}")

    with pytest.MonkeyPatch.context() as patch:
        for place in (pydicom.uid, test_dicom, test_dicom_images, test_structures):
            patch.setattr(place, "generate_uid", uid)
        folder = tmp_path_factory.mktemp("objects")
        case = test_dicom.make(folder, shape=(6, 9, 10))
        test_structures.write_structures(folder / "structures.dcm", case)
        slices = test_dicom_images.stack()
        test_dicom_images.write_folder(folder / "slice", slices[:1])
        change = test_dicom_images.scaled(test_dicom_images.ENHANCED_MR, True)
        test_dicom_images.write_frames(folder / "frames.dcm", slices, change)
        for path in (folder / "slice" / "000.dcm", folder / "frames.dcm"):
            data = pydicom.dcmread(path)
            data.file_meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian
            data.save_as(path, implicit_vr=True, little_endian=True)
        files = {
            "slice": (folder / "slice" / "000.dcm").read_bytes(),
            "frames": (folder / "frames.dcm").read_bytes(),
            "linear": case.save(bends=False).read_bytes(),
            "bent": case.save().read_bytes(),
            "structures": (folder / "structures.dcm").read_bytes(),
        }
        yield Objects(case, files)


# -------------------------------------------------------------------------- use


class Hang(BaseException):
    """It takes too long."""


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def end(*_: Any) -> None:
        raise Hang

    if sys.platform == "win32":
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(6 * _SECONDS)  # the machine may be busy
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def steps(kind: str, path: Path, out: Path, case: test_dicom.Case) -> Iterator[Callable[[], Any]]:
    """Yield a user's steps with a file; later ones need the earlier ones."""
    fixed, moving = case.given["reference"], case.given["moving"]
    if kind in ("slice", "frames"):
        (path.parent / "series").mkdir(exist_ok=True)
        yield lambda: images.read(path)
        yield lambda: images.read(shutil.copy(path, path.parent / "series" / path.name).parent)
        yield lambda: images.read_frames(path, "series")
        return
    if kind == "structures":

        def carried() -> None:
            structures.carry(path, out / "rs.dcm", case.transform(), fixed)
            found = pydicom.dcmread(out / "rs.dcm")
            assert found.SOPClassUID == structures.KIND and found.ROIContourSequence is not None

        yield carried
        return
    loaded: list[Transform] = []

    def written(name: str) -> None:
        loaded[0].save(out / name, None, fixed, moving)
        points = case.points[:5]
        again = Transform.read(out / name).transform_points(points)
        there = loaded[0].transform_points(points)
        if np.abs(there).max() < 1e4:  # numbers in DICOM have 16 characters, vectors 32 bits
            assert np.abs(again - there).max() < 0.1

    yield lambda: loaded.append(Transform.read(path))
    yield lambda: loaded[0].transform_points(case.points)
    yield lambda: loaded[0].summary()
    yield lambda: images.write(out / "a.nii.gz", loaded[0].apply(moving, fixed))
    yield lambda: written("t.h5")
    yield lambda: written("t.dcm")
    yield lambda: images.write(out / "b.nii.gz", loaded[0].inverse().apply(fixed, moving))


def wrong(kind: str, data: bytes, folder: Path, case: test_dicom.Case) -> str:
    """Use a file; return what went wrong, or an empty string."""
    folder.mkdir(exist_ok=True)
    path, out = folder / "odd.dcm", folder / "out"
    path.write_bytes(data)
    out.mkdir(exist_ok=True)
    before, started = mutants._peak(reset=True), time.process_time()
    said = ""
    for step in steps(kind, path, out, case):
        there = set(out.iterdir())
        try:
            with in_time():
                step()
        except errors.MorphSeekError as error:
            text = str(error)
            if error.exit_code not in _FAILURES:
                said = said or f"exit code {error.exit_code}: {text}"
            if "odd.dcm" not in text:
                said = said or f"the file is not named: {text}"
            if not _REMEDY.search(text.partition("odd.dcm")[2]):
                said = said or f"what to do is not said: {text}"
            if set(out.iterdir()) != there:
                said = said or f"half a file was left: {text}"
            if "Müller" in text or "0815" in text:
                said = said or f"it names the patient: {text}"
            if not there and not isinstance(error, errors.InvalidArgumentError):
                break  # the file was refused
        except Hang:
            said = said or "a hang"
        except Exception as error:
            said = said or f"unexpected: {type(error).__name__}: {error}"[:400]
            break
    seconds, grown = time.process_time() - started, (mutants._peak() - before) / 1024
    if seconds > _SECONDS:
        said = said or f"{seconds:.0f} s"
    if grown > _MEGABYTES + 2 * len(data) / 2**20:
        said = said or f"{grown:.0f} MB"
    for each in out.iterdir():
        each.unlink()
    return said


@pytest.mark.parametrize("kind", _KINDS)
def test_sound_ones_work(objects: Objects, tmp_path: Path, kind: str):
    """Otherwise the attacks would prove nothing."""
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "odd.dcm").write_bytes(objects.files[kind])
    for step in steps(kind, tmp_path / "odd.dcm", out, objects.case):
        step()


# ----------------------------------------------------------------------- damage


@pytest.mark.parametrize("kind", _KINDS)
def test_damaged_bytes(objects: Objects, tmp_path: Path, kind: str):
    seed = mutants.Seed(objects.files[kind], "transform", 0)
    found = []
    for index in range(12):
        data = mutants.damage(seed, random.Random(f"{kind} {index}"))
        if said := wrong(kind, data, tmp_path / kind, objects.case):
            found.append(f"{index}: {said}")
    assert found == []


VALUES = {
    "empty": b"", "negative": b"-1", "zero": b"0 ", "huge": b"1e308 ", "long": b"9" * 40,
    "NaN": b"nan ", "infinite": b"inf ", "word": b"abc ", "zeros": bytes(8),
    "ones": b"\xff" * 12, "many": b"1\\" * 2000, "letters": "é€\x1b[31m".encode() + b" ",
}  # fmt: skip
SEQUENCES = ("gone", "empty", "an empty item", "doubled", "reversed", "a value", "deep")


def raw(data: Dataset, tag: Any, value: bytes) -> None:
    """Set bytes that may be invalid for the element's type."""
    tag = Tag(tag)
    data._dict[tag] = RawDataElement(tag, None, len(value), value, 0, True, True)


def places(data: Dataset, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Yield the path to every element, of sequences in their first item, and whether it is one."""
    for element in data:
        yield (*path, element.tag), element.VR == "SQ"
        if element.VR == "SQ":
            for k, item in enumerate(element.value[:2]):
                yield from places(item, (*path, element.tag, k))


def nested(depth: int) -> bytes:
    """Return nested sequences of undefined length."""
    begin = struct.pack("<HHIHHI", 0x0070, 0x0308, 0xFFFFFFFF, 0xFFFE, 0xE000, 0xFFFFFFFF)
    return struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF) + begin * depth


def change(data: Dataset, path: tuple[Any, ...], way: str, chance: random.Random) -> None:
    for key in path[:-1]:
        data = data[key].value if isinstance(key, pydicom.tag.BaseTag) else data[key]
    tag = path[-1]
    if way == "gone":
        del data[tag]
    elif way in VALUES:
        raw(data, tag, VALUES[way] + b" " * (len(VALUES[way]) % 2))
    elif way == "a value":
        raw(data, tag, b"1.2.3 ")
    elif way == "empty":
        data[tag].value = []
    elif way == "an empty item":
        data[tag].value = [Dataset()]
    elif way == "deep":
        raw(data, tag, nested(3000))
    elif way == "reversed":
        data[tag].value = list(data[tag].value)[::-1]
    elif way == "doubled" and data[tag].VR == "SQ":
        data[tag].value = [copy.deepcopy(each) for each in data[tag].value for _ in range(2)]
    else:
        raw(data, tag, chance.randbytes(chance.choice((2, 8, 400))))


@pytest.mark.parametrize("kind", _KINDS)
def test_damaged_elements(objects: Objects, tmp_path: Path, kind: str):
    """Damages every element of the object itself in some of the ways."""
    sound = pydicom.dcmread(_put(tmp_path / "sound.dcm", objects.files[kind]))
    cases = [
        (path, way)
        for path, is_sequence in places(sound)
        for way in (SEQUENCES if is_sequence else ("gone", "doubled", *VALUES))
    ]
    found = []
    for index, (path, way) in enumerate(random.Random(kind).sample(cases, 15)):
        data = pydicom.dcmread(tmp_path / "sound.dcm")
        change(data, path, way, random.Random(f"{kind} {index}"))
        try:
            data.save_as(tmp_path / "made.dcm")
        except (LookupError, ValueError):  # a character set that pydicom does not write
            continue
        made = (tmp_path / "made.dcm").read_bytes()
        if said := wrong(kind, made, tmp_path / kind, objects.case):
            names = [k if isinstance(k, int) else pydicom.datadict.keyword_for_tag(k) for k in path]
            found.append(f"{way} {names}: {said}")
    assert found == []


def _put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# --------------------------------------------------------------- chosen by hand


def _grid(data: Any) -> Any:
    return data.DeformableRegistrationSequence[0].DeformableRegistrationGridSequence[0]


def _matrix(data: Any) -> Any:
    if "RegistrationSequence" in data:
        return data.RegistrationSequence[1].MatrixRegistrationSequence[0].MatrixSequence[0]
    return data.DeformableRegistrationSequence[0].PostDeformationMatrixRegistrationSequence[0]


def _set_matrix(*numbers: float) -> Callable[[Any], None]:
    return lambda d: setattr(_matrix(d), "FrameOfReferenceTransformationMatrix", list(numbers))


def _set_grid(**values: Any) -> Callable[[Any], None]:
    return lambda d: [setattr(_grid(d), key, value) for key, value in values.items()]


def _vectors(number: float) -> Callable[[Any], None]:
    def set_one(data: Any) -> None:
        vectors = np.frombuffer(_grid(data).VectorGridData, "<f4").copy()
        vectors[100] = number
        _grid(data).VectorGridData = vectors.tobytes()

    return set_one


def _contours(*lines: Any, kind: str = "CLOSED_PLANAR", number: int = 5) -> Callable[[Any], None]:
    """Give a structure only these contours."""

    def set_all(data: Any) -> None:
        data.ROIContourSequence = [
            test_structures.item(
                ReferencedROINumber=number,
                ContourSequence=[
                    test_structures.item(
                        ContourGeometricType=kind,
                        NumberOfContourPoints=len(line),
                        ContourData=[f"{v:.10g}" for v in np.ravel(line)],
                    )
                    for line in lines
                ],
            )
        ]

    return set_all


def square(size: float = 5, z: float = 0, x: float = 0) -> np.ndarray:
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * size + x
    return np.column_stack([corners, np.full(4, z)])


HUGE = 2**32 - 1
SPIRAL = np.linspace(0, 400, 3000)
TURNS = np.column_stack([SPIRAL * np.cos(SPIRAL), SPIRAL * np.sin(SPIRAL), 0 * SPIRAL]) / 20
THOUGHT: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "matrix that mirrors": ("linear", _set_matrix(-1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)),
    "matrix that shears": ("linear", _set_matrix(1, 2, 3, 0, 0, 1, 4, 0, 0, 0, 1, 0, 0, 0, 0, 1)),
    "matrix almost singular": (
        "linear", _set_matrix(1, 0, 0, 0, 0, 1e-7, 0, 0, 0, 0, 1e-7, 0, 0, 0, 0, 1),
    ),
    "matrix of great numbers": (
        "linear", _set_matrix(1e150, 0, 0, 0, 0, 1e150, 0, 0, 0, 0, 1e150, 0, 0, 0, 0, 1),
    ),
    "matrix far away": ("linear", _set_matrix(1, 0, 0, 1e15, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)),
    "matrix of 32": ("linear", _set_matrix(*np.eye(4).ravel(), *np.eye(4).ravel())),
    "post far away": ("bent", _set_matrix(1, 0, 0, 1e300, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)),
    "grid without end": ("bent", _set_grid(GridDimensions=[HUGE, HUGE, HUGE])),
    "grid of nothing": ("bent", _set_grid(GridDimensions=[0, 28, 24], VectorGridData=b"")),
    "grid of one": ("bent", _set_grid(GridDimensions=[1, 1, 1], VectorGridData=bytes(12))),
    "grid of two axes": ("bent", _set_grid(GridDimensions=[26, 28])),
    "grid in a line": ("bent", _set_grid(GridDimensions=[26 * 28 * 24, 1, 1])),
    "grid NaN": ("bent", _vectors(float("nan"))),
    "grid of a signalling NaN": (
        "bent", lambda d: setattr(
            _grid(d), "VectorGridData", b"\1\0\x80\x7f" + _grid(d).VectorGridData[4:]
        ),
    ),
    "grid of great numbers": ("bent", _vectors(3e38)),
    "grid that reaches far": ("bent", _vectors(9e5)),
    "grid of tiny voxels": ("bent", _set_grid(GridResolution=[1e-300] * 3)),
    "grid turned over": ("bent", _set_grid(GridResolution=[1.0, -1.4, 2.1])),
    "grid far away": ("bent", _set_grid(ImagePositionPatient=[1e9, 0, 0])),
    "grid askew": ("bent", _set_grid(ImageOrientationPatient=[1, 0, 0, 0.5, 0.5, 0])),
    "grid without axes": ("bent", _set_grid(ImageOrientationPatient=[0] * 6)),
    "two grids": (
        "bent", lambda d: d.DeformableRegistrationSequence[0].DeformableRegistrationGridSequence
        .append(copy.deepcopy(_grid(d))),
    ),
    "field of another frame": (
        "bent", lambda d: setattr(d, "FrameOfReferenceUID", "1.2.3"),
    ),
    "source of another frame": (
        "bent", lambda d: setattr(
            d.DeformableRegistrationSequence[0], "SourceFrameOfReferenceUID", "1.2.3"
        ),
    ),
    "matrix of another frame": ("linear", lambda d: setattr(d, "FrameOfReferenceUID", "1.2.3")),
    "both in one frame": (
        "linear", lambda d: [
            setattr(each, "FrameOfReferenceUID", "1.2.3") for each in d.RegistrationSequence
        ],
    ),
    "many images": (
        "linear", lambda d: setattr(
            d, "RegistrationSequence", [d.RegistrationSequence[1] for _ in range(300)]
        ),
    ),
    "contour of one point": ("structures", _contours(np.zeros((1, 3)), square(z=1))),
    "contour of two points": ("structures", _contours(np.eye(3)[:2], square(z=1))),
    "contours in a line": ("structures", _contours(np.outer(np.arange(9), [1, 2, 0]))),
    "contour that winds": ("structures", _contours(TURNS, TURNS + [0, 0, 1])),
    "contour that crosses": ("structures", _contours(square()[[0, 2, 1, 3]], square(z=1))),
    "contours next to each other": ("structures", _contours(square(), square(z=0.06), square(z=3))),
    "contours in very many planes": (
        "structures", _contours(square(), square(z=0.06), square(z=9e5)),
    ),
    "contour as large as a town": ("structures", _contours(square(5e5), square(5e5, 1))),
    "contour as large as a house": ("structures", _contours(square(9000), square(9000, 1))),
    "contours far apart": ("structures", _contours(square(), square(z=1, x=9e5))),
    "contours uneven": ("structures", _contours(square(), square(z=1), square(z=2.5))),
    "contours across": ("structures", _contours(square(), square()[:, [2, 0, 1]])),
    "contours beyond count": (
        "structures", _contours(*[square(3, k % 40, k % 7) for k in range(1000)]),
    ),
    "contour of no kind": ("structures", _contours(square(), square(z=1), kind="")),
    "contour of an unknown kind": ("structures", _contours(square(), kind="SPHERE")),
    "points far away": ("structures", _contours(np.full((1, 3), 9e5), kind="POINT")),
    "contours of nobody": ("structures", _contours(square(), square(z=1), number=77)),
    "contours of an unnamed structure": (
        "structures", lambda d: setattr(d, "ROIContourSequence", [Dataset()]),
    ),
    "no contours of nobody": (
        "structures", lambda d: setattr(
            d, "ROIContourSequence", [test_structures.item(ReferencedROINumber=77)]
        ),
    ),
    "number below 0": (
        "structures", lambda d: [
            setattr(d.StructureSetROISequence[0], "ROINumber", -3),
            setattr(d.ROIContourSequence[0], "ReferencedROINumber", -3),
        ],
    ),
    "one number twice": (
        "structures", lambda d: setattr(d.StructureSetROISequence[1], "ROINumber", 3),
    ),
    "names beyond count": (
        "structures", lambda d: setattr(
            d, "StructureSetROISequence", [
                test_structures.item(ROINumber=k, ROIName="n" * 64) for k in range(1000)
            ],
        ),
    ),
    "structures of another frame": (
        "structures", lambda d: [
            setattr(each, "ReferencedFrameOfReferenceUID", "1.2.3")
            for each in d.StructureSetROISequence
        ],
    ),
    "structures of another patient": ("structures", lambda d: setattr(d, "PatientID", "0816")),
    "a registration as structures": (
        "structures", lambda d: setattr(d, "SOPClassUID", "1.2.840.10008.5.1.4.1.1.66.1"),
    ),
    "structures as a registration": ("bent", lambda d: setattr(d, "SOPClassUID", structures.KIND)),
    "no number of its own": ("structures", lambda d: delattr(d, "SOPInstanceUID")),
}  # fmt: skip


@pytest.mark.parametrize("what", THOUGHT)
def test_thought_of(objects: Objects, tmp_path: Path, what: str):
    kind, make = THOUGHT[what]
    data = pydicom.dcmread(_put(tmp_path / "sound.dcm", objects.files[kind]))
    make(data)
    data.save_as(tmp_path / "made.dcm")
    made = (tmp_path / "made.dcm").read_bytes()
    assert wrong(kind, made, tmp_path / "use", objects.case) == ""


@pytest.mark.parametrize("kind", _KINDS)
def test_explicit_kinds_of_values(objects: Objects, tmp_path: Path, kind: str):
    """In explicit DICOM each element names its type of value; here it is a wrong one."""
    data = pydicom.dcmread(_put(tmp_path / "sound.dcm", objects.files[kind]))
    data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    data.save_as(tmp_path / "made.dcm", implicit_vr=False, little_endian=True)
    made = (tmp_path / "made.dcm").read_bytes()
    assert wrong(kind, made, tmp_path / "use", objects.case) == ""
    chance, found = random.Random(kind), []
    codes = [b"UI", b"LO", b"DS", b"SQ", b"OF", b"UL", b"CS", b"IS", b"FD", b"UN", b"AT", b"??"]
    code = re.compile(rb"[\x06\x08\x20\x64\x70][\x00\x30]..(UI|DS|SQ|OF|UL|CS|IS|FD|LO)", re.DOTALL)
    at = [found_one.start(1) for found_one in code.finditer(made)]
    for place in chance.sample(at, 5):
        odd = made[:place] + chance.choice(codes) + made[place + 2 :]
        if said := wrong(kind, odd, tmp_path / "use", objects.case):
            found.append(f"{place}: {said}")
    assert found == [] and len(at) > 8


def test_packed_without_end(objects: Objects, tmp_path: Path):
    """A file of one megabyte that unpacks to more than a thousand."""
    kind = "structures"
    data = pydicom.dcmread(_put(tmp_path / "sound.dcm", objects.files[kind]))
    data.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    data.save_as(tmp_path / "made.dcm", implicit_vr=False, little_endian=True)
    made = (tmp_path / "made.dcm").read_bytes()
    assert wrong(kind, made, tmp_path / "use", objects.case) == ""
    begin = 132 + 12 + int.from_bytes(made[140:144], "little")  # behind the group of the file
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = zlib.decompress(made[begin:], -15)
    head = packer.compress(body + struct.pack("<HH2sHI", 0x7FE0, 0x0010, b"OB", 0, 2**30))
    head += packer.flush(zlib.Z_FULL_FLUSH)
    more = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)  # is the same each time
    packed = head + more * 1025 + packer.flush()
    assert len(packed) < 2**22
    assert wrong(kind, made[:begin] + packed, tmp_path / "use", objects.case) == ""
