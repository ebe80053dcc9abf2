"""Untrusted DICOM images, registrations and structure sets: each works or is refused with a message
that names it and says what to do, within limits of time and memory, and without a partial file. The
files are the same every time.
"""

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


def wrong(kind: str, data: bytes, folder: Path, case: test_dicom.Case, says: str = "") -> str:
    """Use a file; return what went wrong, or an empty string. If a message is expected, the file
    must be refused at once with it.
    """
    folder.mkdir(exist_ok=True)
    path, out = folder / "odd.dcm", folder / "out"
    path.write_bytes(data)
    out.mkdir(exist_ok=True)
    before, started = mutants._peak(reset=True), time.process_time()
    said, refused = "", not says
    for step in steps(kind, path, out, case):
        there = set(out.iterdir())
        try:
            with in_time():
                step()
        except errors.MorphSeekError as error:
            text = str(error)
            if says and not re.search(says, text):
                said = said or f"it does not say {says!r}: {text}"
            refused = True
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
        if not refused:
            said = said or "it was taken"
    seconds, grown = time.process_time() - started, (mutants._peak() - before) / 1024
    if seconds > _SECONDS:
        said = said or f"{seconds:.0f} s"
    if grown > _MEGABYTES + 2 * len(data) / 2**20:
        said = said or f"{grown:.0f} MB"
    for each in out.iterdir():
        each.unlink()
    return said


def resaved(objects: Objects, kind: str, folder: Path, make: Any = None, syntax: str = "") -> bytes:
    """Return a sound file after a change, perhaps in another transfer syntax."""
    (folder / "sound.dcm").write_bytes(objects.files[kind])
    data = pydicom.dcmread(folder / "sound.dcm")
    if make:
        make(data)
    how = {}
    if syntax:
        data.file_meta.TransferSyntaxUID = getattr(pydicom.uid, syntax)
        how = {"implicit_vr": False, "little_endian": True}
    data.save_as(folder / "made.dcm", **how)
    return (folder / "made.dcm").read_bytes()


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
    (tmp_path / "sound.dcm").write_bytes(objects.files[kind])
    sound = pydicom.dcmread(tmp_path / "sound.dcm")
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


# --------------------------------------------------------------- chosen by hand

Change = Callable[[Any], None]
GRID = "DeformableRegistrationSequence.0.DeformableRegistrationGridSequence.0"
POST = "DeformableRegistrationSequence.0.PostDeformationMatrixRegistrationSequence.0"
MATRIX = "RegistrationSequence.1.MatrixRegistrationSequence.0.MatrixSequence.0"


def put(path: str = "", **values: Any) -> Change:
    """Set attributes of the parts of an object at a path, in which * is every item; None removes
    one, and a function gives the new value from the old.
    """

    def change(data: Any) -> None:
        found = [data]
        for key in filter(None, path.split(".")):
            found = [getattr(p, key) if key.isalpha() else p[int(key)] if key != "*" else p
                     for p in found]  # fmt: skip
            found = [item for p in found for item in p] if key == "*" else found
        for one, (key, value) in itertools.product(found, values.items()):
            if value is None:
                delattr(one, key)
            else:
                setattr(one, key, value(getattr(one, key)) if callable(value) else value)

    return change


def matrix(path: str, numbers: str) -> Change:
    return put(path, FrameOfReferenceTransformationMatrix=list(map(float, numbers.split())))


def vectors(number: float, *at: int) -> Change:
    """Change some numbers of the field, by default all."""

    def changed(old: bytes) -> bytes:
        values = np.frombuffer(old, "<f4").copy()
        values[list(at) or slice(None)] = number
        return values.tobytes()

    return put(GRID, VectorGridData=changed)


def contours(*lines: Any, kind: str = "CLOSED_PLANAR", number: int = 5) -> Change:
    """Give a structure only these contours."""
    sequence = [
        test_structures.item(
            ContourGeometricType=kind,
            NumberOfContourPoints=len(line),
            ContourData=[f"{v:.10g}" for v in np.ravel(line)],
        )
        for line in lines
    ]
    one = test_structures.item(ReferencedROINumber=number, ContourSequence=sequence)
    return put(ROIContourSequence=[one])


def square(size: float = 5, z: float = 0, x: float = 0) -> np.ndarray:
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * size + x
    return np.column_stack([corners, np.full(4, z)])


HUGE = 2**32 - 1
SPIRAL = np.linspace(0, 400, 3000)
TURNS = np.column_stack([SPIRAL * np.cos(SPIRAL), SPIRAL * np.sin(SPIRAL), 0 * SPIRAL]) / 20
ROI, FIRST = "StructureSetROISequence", "ROIContourSequence.0"
ONE = "1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1"
#: By the kind of object: a change, or one with words of the refusal.
THOUGHT: dict[str, dict[str, Change | tuple[Change, str]]] = {
    "linear": {
        "matrix that mirrors": matrix(MATRIX, "-1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1"),
        "matrix that shears": matrix(MATRIX, "1 2 3 0  0 1 4 0  0 0 1 0  0 0 0 1"),
        "matrix almost singular": matrix(MATRIX, "1 0 0 0  0 1e-7 0 0  0 0 1e-7 0  0 0 0 1"),
        "matrix of great numbers": matrix(MATRIX, "1e150 0 0 0  0 1e150 0 0  0 0 1e150 0  0 0 0 1"),
        "matrix far away": matrix(MATRIX, "1 0 0 1e15  0 1 0 0  0 0 1 0  0 0 0 1"),
        "matrix of 32": matrix(MATRIX, f"{ONE} {ONE}"),
        "another frame": put(FrameOfReferenceUID="1.2.3"),
        "both in one frame": put("RegistrationSequence.*", FrameOfReferenceUID="1.2.3"),
        "many images": put(RegistrationSequence=lambda old: [old[1] for _ in range(300)]),
    },
    "bent": {
        "another kind": (put(SOPClassUID="1.2.840.10008.5.1.4.1.1.2"), "no Spatial Registration"),
        "a structure set": put(SOPClassUID=structures.KIND),
        "no sequence": (put(DeformableRegistrationSequence=None), "lacks what"),
        "post far away": matrix(POST, "1 0 0 1e300  0 1 0 0  0 0 1 0  0 0 0 1"),
        "post of great numbers": (
            matrix(POST, "1e150 0 0 0  0 1e150 0 0  0 0 1e150 0  0 0 0 1"), "more than a kilometre",
        ),
        "post singular": (matrix(POST, "0 " * 15 + "1"), "cannot be inverted"),
        "post projective": (matrix(POST, "1 " * 16), "matrix that is none"),
        "no grid": (
            put(GRID[: GRID.rindex(".Def")], DeformableRegistrationGridSequence=None),
            "has no vector grid",
        ),
        "no vectors": (put(GRID, VectorGridData=None), "has 0 bytes of vectors"),
        "few vectors": (put(GRID, VectorGridData=bytes(24)), "24 bytes .* is cut short"),
        "no place": (put(GRID, ImagePositionPatient=None), "lacks what"),
        "grid without end": put(GRID, GridDimensions=[HUGE, HUGE, HUGE]),
        "grid of nothing": put(GRID, GridDimensions=[0, 28, 24], VectorGridData=b""),
        "grid of one": put(GRID, GridDimensions=[1, 1, 1], VectorGridData=bytes(12)),
        "grid of two axes": put(GRID, GridDimensions=[26, 28]),
        "grid in a line": put(GRID, GridDimensions=[26 * 28 * 24, 1, 1]),
        "grid NaN": (vectors(np.nan, 0, 1, 2), r"says nothing \(NaN\) at 1 of"),
        "a number NaN": vectors(np.nan, 100),
        "a signalling NaN": put(GRID, VectorGridData=lambda old: b"\1\0\x80\x7f" + old[4:]),
        "a great number": vectors(3e38, 100),
        "great numbers": (vectors(3e38), "more than a kilometre"),
        "a number that reaches far": vectors(9e5, 100),
        "tiny voxels": (put(GRID, GridResolution=[1e-300] * 3), "lies nowhere"),
        "huge voxels": (put(GRID, GridResolution=[1e300] * 3), "lies nowhere"),
        "flat voxels": (put(GRID, GridResolution=[1.0, 0.0, 1.0]), "lies nowhere"),
        "grid turned over": put(GRID, GridResolution=[1.0, -1.4, 2.1]),
        "grid far away": put(GRID, ImagePositionPatient=[1e9, 0, 0]),
        "grid askew": put(GRID, ImageOrientationPatient=[1, 0, 0, 0.5, 0.5, 0]),
        "grid along one axis": (
            put(GRID, ImageOrientationPatient=[1, 0, 0, 1, 0, 0]), "at right angles",
        ),
        "grid without axes": put(GRID, ImageOrientationPatient=[0] * 6),
        "two grids": put(
            "DeformableRegistrationSequence.0",
            DeformableRegistrationGridSequence=lambda old: [*old, copy.deepcopy(old[0])],
        ),
        "another frame": put(FrameOfReferenceUID="1.2.3"),
        "source of another frame": put(
            "DeformableRegistrationSequence.0", SourceFrameOfReferenceUID="1.2.3"
        ),
    },
    "structures": {
        "contour of one point": contours(np.zeros((1, 3)), square(z=1)),
        "contour of two points": contours(np.eye(3)[:2], square(z=1)),
        "contours in a line": contours(np.outer(np.arange(9), [1, 2, 0])),
        "contour that winds": contours(TURNS, TURNS + [0, 0, 1]),
        "contour that crosses": contours(square()[[0, 2, 1, 3]], square(z=1)),
        "contours next to each other": contours(square(), square(z=0.06), square(z=3)),
        "contours in very many planes": contours(square(), square(z=0.06), square(z=9e5)),
        "contour as large as a town": contours(square(5e5), square(5e5, 1)),
        "contour as large as a house": contours(square(9000), square(9000, 1)),
        "contours far apart": contours(square(), square(z=1, x=9e5)),
        "contours uneven": contours(square(), square(z=1), square(z=2.5)),
        "contours across": contours(square(), square()[:, [2, 0, 1]]),
        "contours beyond count": contours(*[square(3, k % 40, k % 7) for k in range(1000)]),
        "contour of no kind": contours(square(), square(z=1), kind=""),
        "contour of an unknown kind": contours(square(), kind="SPHERE"),
        "points far away": contours(np.full((1, 3), 9e5), kind="POINT"),
        "contours of nobody": contours(square(), square(z=1), number=77),
        "contours of an unnamed structure": put(ROIContourSequence=[Dataset()]),
        "no contours of nobody": put(
            ROIContourSequence=[test_structures.item(ReferencedROINumber=77)]
        ),
        "number below 0": lambda data: [
            put(f"{ROI}.0", ROINumber=-3)(data), put(FIRST, ReferencedROINumber=-3)(data),
        ],
        "one number twice": put(f"{ROI}.1", ROINumber=3),
        "names beyond count": put(
            StructureSetROISequence=[
                test_structures.item(ROINumber=k, ROIName="n" * 64) for k in range(1000)
            ]
        ),
        "another frame": put(f"{ROI}.*", ReferencedFrameOfReferenceUID="1.2.3"),
        "two frames": (put(f"{ROI}.0", ReferencedFrameOfReferenceUID="1.2"), "2 frames"),
        "another patient": (put(PatientID="0816"), "different patients"),
        "another kind": (put(SOPClassUID="1.2.3"), "no RT structure set"),
        "a registration": put(SOPClassUID="1.2.840.10008.5.1.4.1.1.66.1"),
        "no structures": (put(StructureSetROISequence=None), "contours are damaged"),
        "two coordinates": (
            put(f"{FIRST}.ContourSequence.0", ContourData=["1", "2"]), "are damaged",
        ),
        "coordinates far away": (
            put(f"{FIRST}.ContourSequence.0", ContourData=["1e9"] * 9), "are damaged",
        ),
        "no number of its own": put(SOPInstanceUID=None),
    },
}  # fmt: skip


@pytest.mark.parametrize("kind, what", [(kind, what) for kind in THOUGHT for what in THOUGHT[kind]])
def test_thought_of(objects: Objects, tmp_path: Path, kind: str, what: str):
    entry = THOUGHT[kind][what]
    make, says = entry if isinstance(entry, tuple) else (entry, "")
    made = resaved(objects, kind, tmp_path, make)
    assert wrong(kind, made, tmp_path / "use", objects.case, says) == ""


@pytest.mark.parametrize("kind", _KINDS)
def test_explicit_kinds_of_values(objects: Objects, tmp_path: Path, kind: str):
    """In explicit DICOM each element names its type of value; here it is a wrong one."""
    made = resaved(objects, kind, tmp_path, syntax="ExplicitVRLittleEndian")
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


@pytest.mark.parametrize("kind", ["bent", "structures"])
def test_packed_without_end(objects: Objects, tmp_path: Path, kind: str):
    """A file of one megabyte that unpacks to more than a thousand."""
    made = resaved(objects, kind, tmp_path, syntax="DeflatedExplicitVRLittleEndian")
    assert wrong(kind, made, tmp_path / "use", objects.case) == ""
    begin = 132 + 12 + int.from_bytes(made[140:144], "little")  # behind the group of the file
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = zlib.decompress(made[begin:], -15)
    head = packer.compress(body + struct.pack("<HH2sHI", 0x7FE0, 0x0010, b"OB", 0, 2**30))
    head += packer.flush(zlib.Z_FULL_FLUSH)
    more = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)  # is the same each time
    packed = head + more * 1025 + packer.flush()
    assert len(packed) < 2**22
    says = "unpacks to more than"
    assert wrong(kind, made[:begin] + packed, tmp_path / "use", objects.case, says) == ""
