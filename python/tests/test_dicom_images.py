"""DICOM images: every pixel lies where the header of its own slice says, or a sentence says what is
the matter. The truth is the standard's equation (PS3.3 C.7.6.2.1.1) of what the tests write.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pydicom
import pydicom.data
import pytest
import SimpleITK as sitk
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.pixels import apply_modality_lut
from pydicom.uid import UID, generate_uid

from helpers import unreadable
from morphseek import errors, images
from morphseek.studies.motion import read_scan

MR, CT, NM = "1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.20"
ENHANCED_MR, ENHANCED_CT = MR + ".1", CT + ".1"
SYNTAXES = {
    "explicit": pydicom.uid.ExplicitVRLittleEndian, "implicit": pydicom.uid.ImplicitVRLittleEndian,
    "big-endian": pydicom.uid.ExplicitVRBigEndian,
    "deflated": pydicom.uid.DeflatedExplicitVRLittleEndian,
}  # fmt: skip
DOSE, SEGMENTS = "1.2.840.10008.5.1.4.1.1.481.2", "1.2.840.10008.5.1.4.1.1.66.4"
CAPTURE, CINE = "1.2.840.10008.5.1.4.1.1.7", "1.2.840.10008.5.1.4.1.1.3.1"
XRAY, TOMOGRAM = "1.2.840.10008.5.1.4.1.1.1", "1.2.840.10008.5.1.4.1.1.77.1.5.4"

N, ROWS, COLUMNS = 9, 7, 8
BETWEEN_ROWS, BETWEEN_COLUMNS, STEP = 1.25, 1.5, 3.0
VOXELS = np.random.default_rng(0).integers(0, 2000, (N, ROWS, COLUMNS)).astype(np.int16)
CORNER = np.array([-20.0, 30.0, -40.0])
AXIAL = np.eye(3)
OBLIQUE = np.array(sitk.Euler3DTransform((0, 0, 0), 0.3, -0.2, 0.1).GetMatrix()).reshape(3, 3)
SAGITTAL = np.array([[0.0, 0, -1], [1, 0, 0], [0, -1, 0]])
AXES = {"axial": AXIAL, "oblique": OBLIQUE, "sagittal": SAGITTAL}


class Slice(NamedTuple):
    pixels: np.ndarray
    corner: np.ndarray
    axes: np.ndarray


def stack(
    axes: np.ndarray = OBLIQUE, voxels: np.ndarray = VOXELS, step: float = STEP
) -> list[Slice]:
    return [Slice(each, CORNER + axes[:, 2] * step * k, axes) for k, each in enumerate(voxels)]


def item(**values: Any) -> Dataset:
    made = Dataset()
    for key, value in values.items():
        setattr(made, key, value)
    return made


def decimals(values: np.ndarray) -> list[str]:
    return [f"{v:.8f}" for v in np.ravel(values)]


def blank(sop_class: str, pixels: np.ndarray, series: str = "1.2.3.4") -> FileDataset:
    """Return a file with pixels and no place."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = UID(sop_class), SYNTAXES["explicit"]
    meta.MediaStorageSOPInstanceUID = generate_uid()
    made = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    made.SOPClassUID, made.SOPInstanceUID = sop_class, meta.MediaStorageSOPInstanceUID
    made.SeriesInstanceUID, made.StudyInstanceUID, made.Modality = series, "1.2.3", "MR"
    made.ImageType, made.PatientName = ["ORIGINAL", "PRIMARY", "OTHER"], "QUXMANN^ZYPHORA"
    made.Rows, made.Columns = pixels.shape[-2:]
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated = made.BitsStored = 8 * pixels.dtype.itemsize
    made.HighBit, made.PixelRepresentation = made.BitsStored - 1, int(pixels.dtype.kind == "i")
    if pixels.ndim == 3:
        made.NumberOfFrames = len(pixels)
    made.PixelData = np.ascontiguousarray(pixels).tobytes()
    return made


def lay(made: Any, one: Slice) -> None:
    made.ImagePositionPatient = decimals(one.corner)
    made.ImageOrientationPatient = decimals(one.axes.T[:2])
    made.PixelSpacing = [BETWEEN_ROWS, BETWEEN_COLUMNS]


def write_folder(
    folder: Path, slices: list[Slice], change: Callable[[Any, int], Any] | None = None, **more: Any
) -> Path:
    """Write a file for each slice."""
    folder.mkdir(exist_ok=True)
    for k, one in enumerate(slices):
        made = blank(MR, one.pixels)
        lay(made, one)
        made.InstanceNumber, made.SliceThickness = k + 1, STEP
        for key, value in more.items():
            setattr(made, key, value)
        if change:
            change(made, k)
        made.save_as(folder / f"{k:03}.dcm", enforce_file_format=True)
    return folder


def write_frames(
    path: Path,
    slices: list[Slice],
    change: Callable[[Any], Any] | None = None,
    sop_class: str = ENHANCED_MR,
    **measures: Any,
) -> Path:
    """Write all slices to one enhanced file."""
    made = blank(sop_class, np.stack([one.pixels for one in slices]))
    measured = item(PixelSpacing=[BETWEEN_ROWS, BETWEEN_COLUMNS], SliceThickness=STEP, **measures)
    made.SharedFunctionalGroupsSequence = [item(PixelMeasuresSequence=[measured])]
    made.PerFrameFunctionalGroupsSequence = [
        item(
            PlanePositionSequence=[item(ImagePositionPatient=decimals(one.corner))],
            PlaneOrientationSequence=[item(ImageOrientationPatient=decimals(one.axes.T[:2]))],
            FrameContentSequence=[item(StackID="1", InStackPositionNumber=k + 1)],
        )
        for k, one in enumerate(slices)
    ]
    if change:
        change(made)
    made.save_as(path, enforce_file_format=True)
    return path


def check(image: images.Image, slices: list[Slice]) -> None:
    """See that an image is these slices, each pixel at its place."""
    assert image.array.shape == (len(slices), ROWS, COLUMNS)
    to_index = np.linalg.inv(image.index_to_physical)
    row, column = np.indices((ROWS, COLUMNS))
    for one in slices:
        along = column[..., None] * BETWEEN_COLUMNS * one.axes[:, 0]
        place = one.corner + along + row[..., None] * BETWEEN_ROWS * one.axes[:, 1]
        index = place @ to_index[:3, :3].T + to_index[:3, 3]
        assert np.abs(index - np.rint(index)).max() < 1e-2
        x, y, z = np.moveaxis(np.rint(index).astype(int), -1, 0)
        np.testing.assert_allclose(image.array[z, y, x], one.pixels)


ORDERS = {
    "ascending": np.arange(N),
    "descending": np.arange(N)[::-1],
    "interleaved": np.r_[0:N:2, 1:N:2],
    "shuffled": np.random.default_rng(1).permutation(N),
}


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("order", ORDERS)
def test_frames_and_files_in_any_order(tmp_path: Path, order: str, axes: str):
    """Their positions count, whatever SpacingBetweenSlices says; where that differs it is told."""
    slices = [stack(AXES[axes])[k] for k in ORDERS[order]]
    for between in (None, 3.0, 2.99, -3.0, 1.0, 0.0):
        more = {} if between is None else {"SpacingBetweenSlices": between}
        for path in (
            write_frames(tmp_path / "all.dcm", slices, **more),
            write_folder(tmp_path / "files", slices, **more),
        ):
            image = images.read(path, "fixed")
            check(image, slices)
            assert len(image.doubts) == (between == 1), image.doubts
            for doubt in image.doubts:
                assert doubt.startswith(f"fixed: {path}: its slices lie 3 mm apart")


def test_a_sound_series_keeps_what_gdcm_reads(tmp_path: Path):
    for axes in AXES.values():
        folder = write_folder(tmp_path / "files", stack(axes))
        names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder))
        film = write_frames(tmp_path / "all.dcm", stack(axes)[::-1])
        for path, theirs in ((folder, sitk.ReadImage(names)), (film, sitk.ReadImage(str(film)))):
            ours = images.read(path)
            theirs_at = images.Grid.of(theirs).numbers
            np.testing.assert_allclose(ours.grid.numbers, theirs_at, rtol=0, atol=1e-12)
            assert np.array_equal(ours.array, sitk.GetArrayFromImage(theirs))


def test_frames_in_several_files(tmp_path: Path):
    """Enhanced files of one series are one stack, if they make one."""
    (tmp_path / "halves").mkdir()
    slices = stack()
    write_frames(tmp_path / "halves" / "b.dcm", slices[:4])
    write_frames(tmp_path / "halves" / "a.dcm", slices[4:][::-1])
    check(images.read(tmp_path / "halves"), slices)
    (tmp_path / "each").mkdir()
    for k, one in enumerate(slices):
        write_frames(tmp_path / "each" / f"{k}.dcm", [one])
    check(images.read(tmp_path / "each"), slices)
    shutil.copy(tmp_path / "halves" / "a.dcm", tmp_path / "halves" / "c.dcm")
    unreadable("holds 5 images twice .*remove the", images.read, tmp_path / "halves")


def rewritten(path: Path, syntax: str) -> None:
    """Write a file anew in another transfer syntax, or without the letters DICM."""
    made = pydicom.dcmread(path)
    if syntax == "big-endian":
        made.PixelData = made.pixel_array.astype(">i2").tobytes()
    if syntax == "RLE":
        made.compress(pydicom.uid.RLELossless)
    else:
        made.file_meta.TransferSyntaxUID = SYNTAXES.get(syntax, SYNTAXES["explicit"])
    how = {"implicit_vr": syntax == "implicit", "little_endian": syntax != "big-endian"}
    pydicom.dcmwrite(path, made, **how, force_encoding=True)
    if syntax == "without DICM":
        path.write_bytes(path.read_bytes()[132:])
    elif syntax == "padded":
        padding = b"\xfc\xff\xfc\xffOB\0\0" + (20).to_bytes(4, "little") + bytes(20)
        path.write_bytes(path.read_bytes() + padding)


@pytest.mark.parametrize(
    "syntax", ["implicit", "big-endian", "deflated", "RLE", "padded", "without DICM"]
)
def test_transfer_syntaxes(tmp_path: Path, syntax: str):
    """GDCM reads what it reads of each; scales of each frame are ours."""
    # RLE of an even number of pixels in a segment
    slices = [one._replace(pixels=np.vstack([one.pixels, one.pixels])) for one in stack()]
    folder = write_folder(tmp_path / "files", slices)
    film = write_frames(tmp_path / "all.dcm", slices, scaled(ENHANCED_MR, True))
    inverse = write_folder(tmp_path / "inverse", slices, **INVERSE)
    for path in (*folder.iterdir(), *inverse.iterdir(), film):
        rewritten(path, syntax)
    assert np.array_equal(images.read(inverse).array, [one.pixels for one in slices])
    image = images.read(folder)
    assert np.array_equal(image.array, [one.pixels for one in slices])
    if syntax == "without DICM":
        return
    assert image.array.dtype == np.int16
    expected = [one.pixels for one in scaled_by(slices, SCALES)]
    np.testing.assert_allclose(images.read(film).array, expected)


SCALES = [(1 + 0.25 * k, -100.0 * k) for k in range(N)]


def scaled_by(slices: list[Slice], scales: Any) -> list[Slice]:
    return [one._replace(pixels=one.pixels * a + b) for one, (a, b) in zip(slices, scales)]


def scaled(sop_class: str, per_frame: bool) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        groups = made.PerFrameFunctionalGroupsSequence
        if not per_frame:
            groups = made.SharedFunctionalGroupsSequence
        for (slope, intercept), group in zip(SCALES if per_frame else [(2.5, -7)], groups):
            group.PixelValueTransformationSequence = [
                item(RescaleSlope=slope, RescaleIntercept=intercept, RescaleType="US")
            ]

    return change


@pytest.mark.parametrize("sop_class", [ENHANCED_MR, ENHANCED_CT, TOMOGRAM])
@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_each_frame_has_its_scale(tmp_path: Path, sop_class: str, order: str):
    slices = [stack()[k] for k in ORDERS[order]]
    for per_frame in (False, True):
        change = scaled(sop_class, per_frame)
        path = write_frames(tmp_path / "all.dcm", slices, change, sop_class=sop_class)
        scales = SCALES if per_frame else [(2.5, -7)] * N
        check(images.read(path), scaled_by(slices, scales))


class Kind(NamedTuple):
    """The layout of the pixels in a file of the tests."""

    dtype: str
    stored: int = 0
    """Bits of a value; all where it is 0."""
    low: int = 0
    """The lowest of these."""
    more: dict[str, Any] = {}

    def __call__(self, made: Any, k: int = 0) -> None:
        """Give a file pixels; the bits to spare are filled, too."""
        count, word = int(made.get("NumberOfFrames", 1)), np.dtype(self.dtype)
        made.PixelData = np.random.default_rng(k).bytes(count * ROWS * COLUMNS * word.itemsize)
        made.BitsAllocated = 8 * word.itemsize
        made.BitsStored = self.stored or made.BitsAllocated
        made.HighBit = made.BitsStored + self.low - 1
        made.PixelRepresentation = int(word.kind == "i")
        for key, value in self.more.items():
            setattr(made, key, value)

    def golden(self, path: Path) -> np.ndarray:
        """Return the values of a file by pydicom, which takes the lowest bits."""
        made = pydicom.dcmread(path)
        words = np.frombuffer(made.PixelData, self.dtype.replace("i", "u"))
        made.PixelData, made.HighBit = (words >> self.low).tobytes(), made.BitsStored - 1
        return apply_modality_lut(made.pixel_array, made)


def table(first: int, count: int, signed: bool, bits: int = 16) -> dict[str, Any]:
    values = np.random.default_rng(count).integers(0, 2**bits, count, dtype="<u2")
    made = Dataset()
    made.add_new(0x00283002, "SS" if signed else "US", [count % 2**16, first, bits])
    made.add_new(0x00283006, "OW", values.tobytes())
    return {"ModalityLUTSequence": [made]}


INVERSE = {"PhotometricInterpretation": "MONOCHROME1"}
SHIFT, SLOPE = ({"RescaleSlope": a, "RescaleIntercept": b} for a, b in ((1, -1000), (2.5, -7)))
KINDS = {
    "16 bits, signed": Kind("i2"),
    "MONOCHROME1": Kind("u2", more=INVERSE),
    "MONOCHROME1 of 12 bits": Kind("u2", 12, more=INVERSE | SHIFT),
    "MONOCHROME1, signed": Kind("i2", 12, more=INVERSE | SLOPE),
    "MONOCHROME1 of 8 bits": Kind("u1", more=INVERSE),
    "16 bits": Kind("u2"),
    "12 bits": Kind("u2", 12, more=SHIFT),
    "12 bits, signed": Kind("i2", 12, more=SLOPE),
    "8 bits": Kind("u1"),
    "8 bits, signed": Kind("i1", more=SHIFT),
    "5 of 8 bits": Kind("u1", 5),
    "5 of 8 bits, signed": Kind("i1", 5, more=SLOPE),
    "32 bits": Kind("u4", more=SLOPE),
    "12 of 32 bits": Kind("u4", 12, more=SHIFT),
    "20 of 32 bits, signed": Kind("i4", 20, 5),
    "the highest 12 bits": Kind("u2", 12, 4, SHIFT),
    "the highest 12 bits, signed": Kind("i2", 12, 4),
    "bits 2 to 13, MONOCHROME1": Kind("i2", 12, 2, INVERSE),
    "a table": Kind("u2", 12, more=table(100, 3000, False)),
    "a table, signed": Kind("i2", 12, more=table(-700, 1500, True) | SLOPE),
    "a table of all": Kind("u2", more=table(0, 2**16, False)),
    "a table of bytes": Kind("u2", 12, more=table(0, 4000, False, 8)),
}  # fmt: skip


@pytest.mark.parametrize("what", KINDS)
def test_pixels_have_the_values_that_are_stored(tmp_path: Path, what: str):
    """A slice, a series of them, the frames of a file; and each kind first in a series of all."""
    kind = KINDS[what]
    film = write_frames(tmp_path / "all.dcm", stack(), kind)
    check(images.read(film), stack(voxels=kind.golden(film)))
    folder = write_folder(tmp_path / "files", stack(), kind)
    values = np.array([kind.golden(path) for path in sorted(folder.iterdir())])
    check(images.read(folder), stack(voxels=values))
    check(images.read(folder / "000.dcm"), stack(voxels=values[:1]))
    first = list(KINDS).index(what)
    kinds = [*KINDS.values()][first:] + [*KINDS.values()][:first]
    slices = stack(voxels=np.resize(VOXELS, (len(kinds), ROWS, COLUMNS)))
    mixed = write_folder(tmp_path / "mixed", slices, lambda made, k: kinds[k](made, k))
    found = [each.golden(path) for each, path in zip(kinds, sorted(mixed.iterdir()))]
    check(images.read(mixed), [one._replace(pixels=v) for one, v in zip(slices, found)])


@pytest.mark.parametrize("what", [what for what, kind in KINDS.items() if kind.dtype[1] == "4"])
def test_words_of_32_bits_whose_first_byte_is_the_highest(tmp_path: Path, what: str):
    """GDCM turns the halves of each."""
    folder = write_folder(tmp_path / "files", stack(), KINDS[what])
    values = np.array([KINDS[what].golden(path) for path in sorted(folder.iterdir())])
    for path in folder.iterdir():
        made = pydicom.dcmread(path)
        made.PixelData = np.frombuffer(made.PixelData, "<u4").astype(">u4").tobytes()
        made.file_meta.TransferSyntaxUID = SYNTAXES["big-endian"]
        pydicom.dcmwrite(path, made, implicit_vr=False, little_endian=False, force_encoding=True)
    check(images.read(folder), stack(voxels=values))
    path = pydicom.data.get_testdata_file("rtdose_expb.dcm")
    dose = pydicom.dcmread(path)
    expected = dose.pixel_array * float(dose.DoseGridScaling)
    np.testing.assert_allclose(images.read(path).array, expected)


def test_a_table_of_bytes_has_one_each(tmp_path: Path):
    """As C.11.1.1 asks; pydicom reads those that have two."""
    kind = KINDS["a table of bytes"]
    folder = write_folder(tmp_path / "files", stack()[:1], kind)
    expected = kind.golden(folder / "000.dcm")
    made = pydicom.dcmread(folder / "000.dcm")
    made.ModalityLUTSequence[0].LUTData = made.ModalityLUTSequence[0].LUTData[::2]
    made.save_as(folder / "000.dcm")
    check(images.read(folder), stack(voxels=expected[None]))


TWICE = stack() + stack(voxels=VOXELS[:, ::-1])
TILTED = [s._replace(corner=s.corner + 0.8 * k * OBLIQUE[:, 1]) for k, s in enumerate(stack())]
ACROSS = stack() + stack(SAGITTAL)
BESIDE = [one._replace(corner=one.corner + 60 * OBLIQUE[:, 0]) for one in stack()] + stack()


def second(**macros: Any) -> Callable[[Any], None]:
    """Give the second half of the frames another value of an element in a macro."""

    def change(made: Any) -> None:
        groups = made.PerFrameFunctionalGroupsSequence
        for k, group in enumerate(groups):
            for macro, (key, one, other) in macros.items():
                if macro not in group:
                    setattr(group, macro, [Dataset()])
                setattr(group[macro][0], key, other if 2 * k >= len(groups) else one)

    return change


FRAMES: dict[str, tuple[list[Slice], Callable[[Any], Any] | None, str]] = {
    "missing": (
        stack()[:3] + stack()[5:], None, "3.0 to 9.0 mm apart, most between frame 3 of .* frame 4",
    ),
    "tilt": (TILTED, None, "no straight stack .*tilted gantry.* mm off.*dcm2niix"),
    "two stacks": (ACROSS, None, "not alike: frame 10 of all.dcm and 8 more are turned otherwise"),
    "side by side": (BESIDE, None, "lie side by side"),
    "two times": (
        TWICE, second(FrameContentSequence=("TemporalPositionIndex", 1, 2)),
        r"frame 1 of all.dcm and frame 10 of all.dcm are of different times .*morphseek motion",
    ),
    "two triggers": (
        TWICE, second(CardiacSynchronizationSequence=("NominalCardiacTriggerDelayTime", 0, 40.0)),
        "different times",
    ),
    "two echoes": (
        TWICE, second(MREchoSequence=("EffectiveEchoTime", 10.0, 80.0)),
        r"different echo times \(EffectiveEchoTime\)",
    ),
    "two diffusion weightings": (
        TWICE, second(MRDiffusionSequence=("DiffusionBValue", 0.0, 1000.0)), "weightings",
    ),
    "magnitude and phase": (
        TWICE, second(MRImageFrameTypeSequence=("ComplexImageComponent", "MAGNITUDE", "PHASE")),
        "different kinds, such as magnitude",
    ),
    "nothing tells": (TWICE, None, "lie at one place more than once"),
    "one place": ([s._replace(corner=CORNER) for s in stack()], None, "all at one position"),
    "a frame without a position": (
        stack(), lambda d: delattr(d.PerFrameFunctionalGroupsSequence[4], "PlanePositionSequence"),
        "has 9 frames and does not say where each one lies",
    ),
    "a frame too few": (
        stack(), lambda d: d.PerFrameFunctionalGroupsSequence.pop(), "describes 8 frames, and has",
    ),
    "frames without end": (
        stack(), lambda d: [
            setattr(d, "NumberOfFrames", 2**31 - 1),
            delattr(d, "PerFrameFunctionalGroupsSequence"),
        ],
        "all.dcm cannot be read as DICOM: it is cut short or damaged",
    ),
    "no pixel size": (
        stack(), lambda d: delattr(d, "SharedFunctionalGroupsSequence"), "no sound PixelSpacing",
    ),
    "no pixels": (stack(), lambda d: delattr(d, "PixelData"), "cut short or damaged"),
    "floats": (
        stack(), lambda d: floats("DoubleFloatPixelData", 8)(d),
        r"all.dcm has floating-point pixels \(DoubleFloatPixelData\).*dcm2niix",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FRAMES)
def test_refused_frames(tmp_path: Path, what: str):
    slices, change, says = FRAMES[what]
    (tmp_path / "folder").mkdir()
    path = write_frames(tmp_path / "folder" / "all.dcm", slices, change)
    for given in (path, tmp_path / "folder"):
        with pytest.raises(errors.InputUnreadableError, match=says) as caught:
            images.read(given, "fixed")
        assert str(caught.value).startswith("fixed: ") and str(tmp_path) in str(caught.value)
        assert "QUXMANN" not in str(caught.value)


def without(*keys: str) -> Callable[[Any, int], Any]:
    return lambda made, k: [delattr(made, key) for key in keys]


def with_(**values: Any) -> Callable[[Any, int], Any]:
    return lambda made, k: [setattr(made, key, value) for key, value in values.items()]


def only(number: int, change: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    return lambda made, k: change(made, k) if k == number else None


def small(made: Any, k: int) -> None:
    made.Rows, made.PixelData = ROWS - 1, made.PixelData[: -2 * COLUMNS]


def tiled(made: Any, k: int) -> None:
    made.private_block(0x0019, "SIEMENS MR HEADER", create=True).add_new(0x0A, "US", 36)


def floats(key: str, size: int) -> Callable[..., Any]:
    def change(made: Any, k: int = 0) -> None:
        setattr(made, key, bytes(size * len(made.PixelData) // 2))
        made.BitsAllocated = 8 * size
        for each in ("PixelData", "BitsStored", "HighBit", "PixelRepresentation"):
            delattr(made, each)

    return change


def packed(made: Any, k: int) -> None:
    made.file_meta.TransferSyntaxUID = pydicom.uid.JPEGLosslessSV1
    made.PixelData, made.BitsStored = encapsulate([b"\xff\xd8\xff\xd9"]), 12
    made["PixelData"].is_undefined_length = True


LOST = "so that nobody knows where its slice lies; give"
FAR = stack()[0]._replace(corner=CORNER + OBLIQUE[:, 2] * 200)
ASKEW = decimals(np.array([1, 0, 0, 0.1, 1, 0]))
FILES: dict[str, tuple[list[Slice], Callable[[Any, int], Any] | None, str]] = {
    "no position": (stack(), without("ImagePositionPatient"), f"000.dcm .*Position.*{LOST}"),
    "one without a position": (stack(), only(4, without("ImagePositionPatient")), "004.dcm .*Posi"),
    "no orientation": (stack(), without("ImageOrientationPatient"), f"Orientation.*, {LOST}"),
    "axes askew": (stack(), with_(ImageOrientationPatient=ASKEW), f"Orientation.*, {LOST}"),
    "axes of length 2": (
        stack(AXIAL), with_(ImageOrientationPatient=[2, 0, 0, 0, 2, 0]), f"Orientation.*, {LOST}",
    ),
    "no pixel size": (stack(), without("PixelSpacing"), f"000.dcm has no sound PixelSp.*, {LOST}"),
    "pixels of size 0": (stack(), with_(PixelSpacing=[0, 0]), f"no sound PixelSpacing, {LOST}"),
    "pixels below 0": (stack(), with_(PixelSpacing=[-1, 1]), f"no sound PixelSpacing, {LOST}"),
    "a localizer": (
        stack() + stack(SAGITTAL)[:1], None, "not alike: 009.dcm is turned otherwise .* 9 are not",
    ),
    "another size": (stack(), only(3, small), "003.dcm is of another size"),
    "other pixels": (stack(), only(2, with_(PixelSpacing=[1, 1])), "002.dcm is of another pixel"),
    "one far away": ([*stack(), FAR], None, "009.dcm lies 176.0 mm from the others"),
    "a gap": (stack()[:3] + stack()[4:], None, "6.0 mm apart, most between 002.dcm and 003.dcm"),
    "two echoes": (
        TWICE, lambda d, k: setattr(d, "EchoTime", 10 + 70 * (k >= N)),
        r"000.dcm and 009.dcm are of different echo times \(EchoTime\)",
    ),
    "two times": (
        TWICE, lambda d, k: setattr(d, "AcquisitionTime", f"1015{k // N:02}"),
        r"different times \(AcquisitionTime\); .* morphseek motion",
    ),
    "a mosaic": (stack()[:1], with_(ImageType=["ORIGINAL", "PRIMARY", "MOSAIC"]), "is a mosaic"),
    "a nameless mosaic": (stack()[:1], tiled, "is a mosaic.*dcm2niix"),
    "colours": (
        stack()[:1], lambda d, k: [
            setattr(d, "SamplesPerPixel", 3), setattr(d, "PhotometricInterpretation", "RGB"),
            setattr(d, "PixelData", d.PixelData * 3),
        ],
        "000.dcm is a picture in colours, 3 numbers a pixel",
    ),
    "a palette": (
        stack(), with_(PhotometricInterpretation="PALETTE COLOR"),
        "000.dcm is a picture in colours, those of a palette; give a scalar image",
    ),
    "floats": (
        stack(), only(3, floats("FloatPixelData", 4)),
        r"003.dcm has floating-point pixels \(FloatPixelData\).* convert .*dcm2niix",
    ),
    "the highest bits of JPEG": (
        stack(), only(3, packed), "003.dcm is compressed, .* bits 4 to 15 of 16; save .*gdcmconv",
    ),
    "a table cut short": (
        stack(), with_(ModalityLUTSequence=[item(LUTDescriptor=[9, 0, 16], LUTData=b"12")]),
        "000.dcm cannot be read as DICOM: it is cut short or damaged",
    ),
    "a slice twice": (
        [*stack(), stack()[4]], None, "at one place more than once, as 004.dcm and 009.dcm do",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_refused_folders(tmp_path: Path, what: str):
    slices, change, says = FILES[what]
    folder = write_folder(tmp_path / "files", slices, change)
    with pytest.raises(errors.InputUnreadableError, match=says) as caught:
        images.read(folder, "fixed")
    assert str(caught.value).startswith("fixed: ") and str(folder) in str(caught.value)
    assert "QUXMANN" not in str(caught.value)


def test_rounded_directions_are_no_tilt(tmp_path: Path):
    slices = stack(AXIAL, np.resize(VOXELS, (60, ROWS, COLUMNS)))
    drifted = [one._replace(corner=one.corner + [0, 0.004 * k, 0]) for k, one in enumerate(slices)]
    assert images.read(write_folder(tmp_path / "files", drifted)).array.shape == (60, ROWS, COLUMNS)


def test_each_slice_has_its_scale(tmp_path: Path):
    """As in PET. If the first slope is a whole number, ITK reads all slices as integers of the
    first one's size.
    """
    slopes = [1.0, *[100.0] * (N - 1)]

    def change(made: Any, k: int) -> None:
        made.RescaleSlope, made.RescaleIntercept = slopes[k], 0

    image = images.read(write_folder(tmp_path / "files", stack(), change))
    check(image, scaled_by(stack(), zip(slopes, [0] * N)))
    assert image.array.max() > 2**15


def test_copies_and_folders_are_named(tmp_path: Path):
    both = write_folder(tmp_path / "both", stack())
    other = write_folder(tmp_path / "other", stack()[:4], SeriesInstanceUID="1.2.3.9")
    for path in other.iterdir():
        path.rename(both / f"other-{path.name}")
    unreadable("2 DICOM series", images.read, both)
    shutil.rmtree(both)
    other.rmdir()
    folder = write_folder(tmp_path / "files", stack())
    shutil.copy(folder / "005.dcm", folder / "005 (1).dcm")
    unreadable(r"holds 1 image twice \(005 \(1\).dcm and", images.read, folder)
    for path in list(folder.glob("00?.dcm")):
        shutil.copy(path, folder / f"copy_{path.name}")
    unreadable("holds 10 images twice .*remove the copies", images.read, folder)
    unreadable("no DICOM series; give .* do: files", images.read, tmp_path)
    (tmp_path / "empty").mkdir()
    unreadable("no DICOM series; give a folder of slices", images.read, tmp_path / "empty")


def test_what_else_lies_in_a_folder(tmp_path: Path):
    """What is no DICOM, or no image, is passed over; a slice that is damaged is not."""
    folder = write_folder(tmp_path / "files", stack())
    (folder / "readme.txt").write_text("x")
    (folder / ".DS_Store").write_bytes(bytes(100))
    (folder / "old").write_bytes(b"\x08\x00" + bytes(range(256)) * 9)  # begins as old DICOM does
    report = blank("1.2.840.10008.5.1.4.1.1.88.11", VOXELS[0], "1.2.3.5")
    for key in ("Rows", "Columns", "PixelData"):
        delattr(report, key)
    report.save_as(folder / "report.dcm", enforce_file_format=True)
    check(images.read(folder), stack())
    unreadable("report.dcm is DICOM and holds no image", images.read, folder / "report.dcm")
    last = folder / "008.dcm"  # without it there would be no gap
    last.write_bytes(last.read_bytes()[:-60])
    unreadable("008.dcm .* cut short", images.read, folder)
    last.write_bytes(last.read_bytes()[:300])
    unreadable("008.dcm", images.read, folder)


def dose(path: Path, offsets: np.ndarray, axes: np.ndarray = OBLIQUE) -> Path:
    made = blank(DOSE, VOXELS.astype(np.uint16))
    lay(made, stack(axes)[0])
    made.Modality, made.DoseGridScaling = "RTDOSE", "0.002"
    made.FrameIncrementPointer, made.GridFrameOffsetVector = 0x3004000C, offsets.tolist()
    made.save_as(path, enforce_file_format=True)
    return path


def test_dose(tmp_path: Path):
    """Its frames lie at offsets along the normal, from the first one or as z (C.8.8.3.2)."""
    at = STEP * np.arange(N)
    for axes, offsets in ((OBLIQUE, at), (OBLIQUE, -at), (AXIAL, at + CORNER[2])):
        image = images.read(dose(tmp_path / "dose.dcm", offsets, axes))
        step = STEP * np.sign(offsets[1] - offsets[0])
        check(image, scaled_by(stack(axes, step=step), [(0.002, 0)] * N))
        assert image.doubts == ()
    assert "GridFrameOffsetVector" in images.read(dose(tmp_path / "a.dcm", at + 5)).doubts[0]
    unreadable("mm apart", images.read, dose(tmp_path / "a.dcm", at**1.1))
    unreadable("does not say where each one lies", images.read, dose(tmp_path / "a.dcm", at[:-1]))


def nuclear(path: Path, between: float | None, kind: str = "RECON TOMO", **more: Any) -> Path:
    made = blank(NM, VOXELS)
    made.Modality, made.ImageType = "NM", ["ORIGINAL", "PRIMARY", kind, "EMISSION"]
    made.PixelSpacing, made.SliceThickness = [BETWEEN_ROWS, BETWEEN_COLUMNS], STEP
    if between is not None:
        made.SpacingBetweenSlices = between
    detector = Dataset()
    lay(detector, stack()[0])
    del detector.PixelSpacing
    made.DetectorInformationSequence = [detector]
    for key, value in more.items():
        setattr(made, key, value)
    made.save_as(path, enforce_file_format=True)
    return path


def test_nuclear_medicine(tmp_path: Path):
    """The detector says where the first slice lies, the sign of the spacing says where the others
    do (C.8.4.15.1.1).
    """
    path = tmp_path / "nm.dcm"
    for between in (STEP, -STEP):
        check(images.read(nuclear(path, between)), stack(step=between))
    backwards = {"SliceVector": list(range(N, 0, -1))}
    check(images.read(nuclear(path, STEP, **backwards)), stack(voxels=VOXELS[::-1]))
    gated = {"SliceVector": [1, 2, 3] * 3, "TimeSlotVector": [1] * 3 + [2] * 3 + [3] * 3}
    for between, kind, more, says in (
        (None, "RECON TOMO", {}, "does not say where each one lies"),
        (0.0, "RECON TOMO", {}, "does not say where each one lies"),
        (STEP, "TOMO", {}, "projections"),
        (STEP, "RECON GATED TOMO", gated, "different times"),
    ):
        unreadable(says, images.read, nuclear(path, between, kind, **more))
    frames, seconds = images.read_frames(nuclear(path, STEP, "RECON GATED TOMO", **gated), "x")
    assert len(frames) == 3 and seconds is None
    for k, frame in enumerate(frames):
        check(images.read(frame), stack(voxels=VOXELS[3 * k : 3 * k + 3]))


def test_films(tmp_path: Path):
    """Frames that do not say where they lie are no volume, but for those that the file spaces
    evenly, with a doubt.
    """
    film = blank(CINE, VOXELS.astype(np.uint8))
    film.Modality, film.FrameTime = "US", 33
    film.save_as(tmp_path / "us.dcm", enforce_file_format=True)
    unreadable("9 frames and does not say .* a film", images.read, tmp_path / "us.dcm")
    for sop_class in (MR, CAPTURE + ".3"):
        made = blank(sop_class, VOXELS)
        lay(made, stack()[0])
        made.SpacingBetweenSlices = STEP
        made.save_as(tmp_path / "all.dcm", enforce_file_format=True)
        image = images.read(tmp_path / "all.dcm")
        check(image, stack())
        assert "no positions of their own" in image.doubts[0]
    whole = images.Image.on_grid(VOXELS.astype(np.uint16), images.read(tmp_path / "all.dcm").grid)
    sitk.WriteImage(whole.to_sitk(), str(tmp_path / "itk.dcm"))
    image = images.read(tmp_path / "itk.dcm")
    check(image, stack())
    assert image.doubts == ()


def test_volume_of_ultrasound(tmp_path: Path):
    """It has a space of its own, which is told."""
    path = write_frames(tmp_path / "us.dcm", stack(), sop_class="1.2.840.10008.5.1.4.1.1.6.2")
    made = pydicom.dcmread(path)
    for group in made.PerFrameFunctionalGroupsSequence:
        (place,), (turn,) = group.PlanePositionSequence, group.PlaneOrientationSequence
        place.ImagePositionVolume = place.ImagePositionPatient
        turn.ImageOrientationVolume = turn.ImageOrientationPatient
        del place.ImagePositionPatient, turn.ImageOrientationPatient
        group.PlanePositionVolumeSequence = group.PlanePositionSequence
        group.PlaneOrientationVolumeSequence = group.PlaneOrientationSequence
        del group.PlanePositionSequence, group.PlaneOrientationSequence
    made.save_as(path)
    image = images.read(path)
    check(image, stack())
    assert "how its volume lies in the patient" in image.doubts[0]


def test_segmentation(tmp_path: Path):
    """One segment is a mask of 0 and 1; several are refused."""
    mask = (VOXELS > 900).astype(np.uint8)

    def pack(numbers: list[int]) -> Callable[[Any], None]:
        def change(made: Any) -> None:
            made.BitsAllocated = made.BitsStored = 1
            made.HighBit, made.Modality = 0, "SEG"
            made.PixelData = np.packbits(mask.ravel(), bitorder="little").tobytes()
            for number, group in zip(numbers, made.PerFrameFunctionalGroupsSequence):
                group.SegmentIdentificationSequence = [item(ReferencedSegmentNumber=number)]

        return change

    path = tmp_path / "seg.dcm"
    write_frames(path, stack(voxels=mask), pack([1] * N), sop_class=SEGMENTS)
    check(images.read(path), stack(voxels=mask))
    pairs = enumerate(stack(voxels=mask))
    twice = [one._replace(corner=stack()[k // 2].corner) for k, one in pairs]
    write_frames(path, twice, pack([1 + k % 2 for k in range(N)]), sop_class=SEGMENTS)
    unreadable("different segments", images.read, path)


PICTURES: dict[str, tuple[str, str, dict[str, Any], tuple[float, float], str]] = {
    "X-ray": (XRAY, "CR", {"ImagerPixelSpacing": [0.2, 0.3]}, (0.3, 0.2), "ImagerPixelSpacing"),
    "film": (CAPTURE, "OT", {"NominalScannedPixelSpacing": [0.2, 0.3]}, (0.3, 0.2), "Nominal"),
    "capture": (CAPTURE, "OT", {}, (1, 1), "how large its pixels are: 1 mm"),
    "calibrated": (XRAY, "CR", {"PixelSpacing": [0.2, 0.3]}, (0.3, 0.2), ""),
    "MR": (MR, "MR", {"PixelSpacing": [2, 3]}, (3, 2), "where its slice lies"),
    "pixels of size 0": (CAPTURE, "OT", {"PixelSpacing": [0, 0]}, (1, 1), "1 mm is taken"),
}


@pytest.mark.parametrize("what", PICTURES)
def test_a_picture_alone(tmp_path: Path, what: str):
    """It is read, with a doubt where nobody measured its pixels in the patient."""
    sop_class, modality, elements, spacing, doubt = PICTURES[what]
    made = blank(sop_class, VOXELS[0])
    made.Modality = modality
    for key, value in elements.items():
        setattr(made, key, value)
    made.save_as(tmp_path / "one.dcm", enforce_file_format=True)
    for path in (tmp_path / "one.dcm", tmp_path):
        image = images.read(path)
        np.testing.assert_array_equal(image.array[0], VOXELS[0])
        np.testing.assert_allclose(image.spacing[:2], spacing)
        assert len(image.doubts) == bool(doubt) and doubt in "".join(image.doubts)


def test_a_lone_slice(tmp_path: Path):
    for between in (None, 3.0, -3.0, 0.0):
        more = {} if between is None else {"SpacingBetweenSlices": between}
        folder = write_folder(tmp_path / "files", stack()[:1], **more)
        for path in (folder, folder / "000.dcm"):
            image = images.read(path)
            check(image, stack()[:1])
            assert image.spacing[2] == (abs(between) if between else 1) and image.doubts == ()


FILMS: dict[str, tuple[dict[str, Callable[[int], Any]], float | None]] = {
    "trigger": ({"TriggerTime": lambda t: 40 * t}, 0.04),
    "a trigger of 0": (  # in every frame, as where nothing triggers
        {"TriggerTime": lambda t: 0, "AcquisitionTime": lambda t: f"10{15 + t}30.25"}, 60,
    ),
    "date and time": ({"AcquisitionDateTime": lambda t: f"202401021015{t:02}.5+0100"}, 1),
    "one time": ({"AcquisitionTime": lambda t: "101530"}, None),
}  # fmt: skip


@pytest.mark.parametrize("what", FILMS)
def test_volumes_of_several_times(tmp_path: Path, what: str):
    elements, step = FILMS[what]
    volumes = [stack(voxels=np.roll(VOXELS, t, axis=2)) for t in range(3)]
    slices = [volumes[t][k] for k in range(N) for t in (2, 0, 1)]
    times = [t for _ in range(N) for t in (2, 0, 1)]

    def change(made: Any, k: int) -> None:
        made.TemporalPositionIdentifier = times[k] + 1
        for key, value in elements.items():
            setattr(made, key, value(times[k]))

    frames, seconds = images.read_frames(write_folder(tmp_path / "files", slices, change), "series")
    assert seconds == step and len(frames) == 3
    for frame, volume in zip(frames, volumes):
        check(images.read(frame), volume)
    shutil.copy(tmp_path / "files" / "003.dcm", tmp_path / "files" / "copy.dcm")
    with pytest.raises(errors.InputUnreadableError, match="003.dcm and copy.dcm are the same"):
        images.read_frames(tmp_path / "files", "series")


def test_one_file_of_several_times(tmp_path: Path):
    volumes = [stack(voxels=np.roll(VOXELS, t, axis=2)) for t in range(2)]

    def change(made: Any) -> None:
        for k, group in enumerate(made.PerFrameFunctionalGroupsSequence):
            content = group.FrameContentSequence[0]
            content.TemporalPositionIndex = 2 - k // N
            content.FrameAcquisitionDateTime = f"2024010210153{9 - 3 * (k // N)}"
            group.PixelValueTransformationSequence = [
                item(RescaleSlope=1 + k, RescaleIntercept=0, RescaleType="US")
            ]

    (tmp_path / "folder").mkdir()
    path = write_frames(tmp_path / "folder" / "all.dcm", volumes[1] + volumes[0], change)
    for given in (path, tmp_path / "folder"):
        frames, seconds = images.read_frames(given, "series")
        assert seconds == 3 and len(frames) == 2
        for t, (frame, volume) in enumerate(zip(frames, volumes)):
            first = 1.0 + N * (1 - t)
            check(images.read(frame), scaled_by(volume, [(first + k, 0) for k in range(N)]))
        found = read_scan([given])
        assert len(found.volumes) == 2 and found.step == 3 and not found.volumes[0].doubts
    write_frames(path, volumes[1] + volumes[0], change, SpacingBetweenSlices=1)
    assert all("3 mm apart" in volume.doubts[0] for volume in read_scan([path]).volumes)
    with pytest.warns(errors.GeometryWarning, match="3 mm apart"):
        images.read_frames(path, "series")


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Neither by ITK nor by GDCM nor by pydicom."""
    off = [s._replace(corner=s.corner + 0.03 * (k == 4)) for k, s in enumerate(stack())]
    images.read(write_folder(tmp_path / "off", off))
    for what in FILES:
        with pytest.raises(errors.InputUnreadableError):
            images.read(write_folder(tmp_path / what, *FILES[what][:2]))
    for what in FRAMES:
        with pytest.raises(errors.InputUnreadableError):
            images.read(write_frames(tmp_path / f"{what}.dcm", *FRAMES[what][:2]))
    images.read(write_frames(tmp_path / "zero.dcm", stack(), SpacingBetweenSlices=0))
    images.read(pydicom.data.get_testdata_file("JPEG-lossy.dcm", download=False))  # of 12 bits
    assert capfd.readouterr() == ("", "")
