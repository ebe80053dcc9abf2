"""Where a file lays its voxels: by the standard, alike at every entrance, and a doubt is said."""

import json
import locale
import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import FLAGS, QUICK, unreadable
from morphseek import errors, images

RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
SHAPE = (6, 7, 8)  # z, y, x
VOXELS = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep nibabel's log of mended headers and ITK's warnings about them off the terminal."""
    logging.getLogger("nibabel.global").setLevel(logging.CRITICAL)
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    yield
    sitk.ProcessObject.SetGlobalWarningDisplay(True)


def turn(rng: np.random.Generator) -> np.ndarray:
    """Return a rotation, or axes in another order and direction, maybe mirrored."""
    if rng.random() < 0.4:
        return np.eye(3)[:, rng.permutation(3)] * rng.choice([-1, 1], 3)
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    return q * np.sign(np.diag(r))


def affine(rng: np.random.Generator, spacing: np.ndarray) -> np.ndarray:
    made = np.eye(4)
    made[:3, :3], made[:3, 3] = turn(rng) * spacing, rng.uniform(-150, 150, 3)
    return made


def write(
    path: Path, version: int, order: str, fields: dict[str, Any], voxels: Any = VOXELS
) -> Path:
    """Write a NIfTI of exactly these fields, which nibabel would mend."""
    header = (nibabel.Nifti1Header if version == 1 else nibabel.Nifti2Header)(endianness=order)
    header.set_data_dtype(np.dtype(voxels.dtype).newbyteorder(order))
    header.set_data_shape(voxels.shape[::-1])
    own = {1: (b"n+1", 352), 2: (b"n+2\0\r\n\x1a\n", 544)}[version]
    header["magic"], header["vox_offset"] = own
    for field, value in fields.items():
        header[field] = value
    data = voxels.astype(voxels.dtype.newbyteorder(order)).tobytes()
    path.write_bytes(header.binaryblock + b"\0" * 4 + data)
    return path


def rows(matrix: np.ndarray) -> dict[str, Any]:
    return {f"srow_{axis}": row for axis, row in zip("xyz", matrix)}


def quaternion(matrix: np.ndarray) -> dict[str, Any]:
    """Return the fields of a qform, and the sign of pixdim[0]."""
    header = nibabel.Nifti1Header()
    header.set_qform(matrix, 1)
    kept = ("quatern_b", "quatern_c", "quatern_d", "qoffset_x", "qoffset_y", "qoffset_z")
    return {field: header[field] for field in kept} | {"sign": float(header["pixdim"][0])}


def header(kind: str, rng: np.random.Generator) -> tuple[dict[str, Any], bool]:
    """Return the fields of a header of a kind, and whether it contradicts itself."""
    spacing = rng.uniform(0.4, 3.0, 3).round(3)
    place = affine(rng, spacing)
    sform, qform, doubted = KINDS[kind]
    codes = {
        f"{form}_code": int(rng.integers(1, 5)) if code == ANY else code
        for form, code in (("sform", sform), ("qform", qform))
    }
    in_qform, in_sform, pixdim = place, place, spacing.copy()
    if kind == "two places":
        in_qform = place.copy()
        in_qform[:3, 3] += rng.uniform(2, 20, 3)
    elif kind == "mirrored qform":
        in_qform = place @ np.diag([-1.0, 1, 1, 1])
    elif kind == "sheared sform":
        in_sform = place @ [[1, 0.2, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    elif kind == "negative pixdim":
        pixdim[rng.integers(3)] *= -1
    elif kind == "rounded":
        in_sform = place.round(5)
    elif kind in ("stale pixdim", "zero pixdim"):
        pixdim = np.full(3, 9.0 if kind == "stale pixdim" else 0)
    form = quaternion(in_qform)
    pixdim = [form.pop("sign"), *pixdim, 0, 0, 0, 0]
    return {**codes, **rows(in_sform), **form, "pixdim": pixdim}, doubted


ANY = 9
KINDS = {  # the codes of sform and qform, and whether the header contradicts itself
    "sform": (1, 0, False), "qform": (0, ANY, False), "both": (ANY, ANY, False),
    "two places": (ANY, 1, True), "mirrored qform": (1, 1, True), "sheared sform": (4, 1, True),
    "negative pixdim": (1, 0, True), "stale pixdim": (1, 0, True), "zero pixdim": (1, 0, False),
    "rounded": (1, 0, False), "neither": (0, 0, True),
}  # fmt: skip
UNITS = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}


def expected(path: Path, kind: str) -> np.ndarray:
    """Return the index to LPS mm by nibabel, which knows no units."""
    image = nibabel.load(path)
    unit = UNITS[int(image.header["xyzt_units"]) & 7]
    if kind == "neither":  # the standard's first method, in ITK's axes
        matrix = np.diag([*np.array(image.header["pixdim"][1:4], float), 1.0])
    elif kind == "sheared sform":
        matrix = RAS_TO_LPS @ image.header.get_qform()
    else:
        matrix = RAS_TO_LPS @ image.affine
    return np.array(np.vstack([matrix[:3] * unit, [0, 0, 0, 1]]))


def entrances(path: Path) -> dict[str, Callable[[], Any]]:
    return {
        "path": lambda: path,
        "nibabel": lambda: nibabel.load(path),
        "SimpleITK": lambda: sitk.ReadImage(str(path)),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [1, 2])
def test_every_entrance_gives_the_same_place(kind: str, version: int, tmp_path: Path):
    rng = np.random.default_rng([list(KINDS).index(kind), version])
    at = np.array([[0, 0, 0, 1], [7, 6, 5, 1], [7, 0, 0, 1], [0, 6, 0, 1]]).T
    for number in range(12):
        fields, doubted = header(kind, rng)
        fields["xyzt_units"] = int(rng.integers(0, 4))
        path = write(tmp_path / f"{number}.nii", version, "<>"[number % 2], fields)
        right = expected(path, kind)
        voxel = np.linalg.norm(right[:3, :3], axis=0).min()
        for entrance, source in entrances(path).items():
            try:
                given = source()
            except RuntimeError:  # ITK's reader refuses it
                assert entrance == "SimpleITK"
                continue
            image = images.read(given, "image")
            off = np.abs((image.index_to_physical - right) @ at).max()
            assert off < 0.01 * voxel, (number, entrance)
            assert np.array_equal(image.array, VOXELS), (number, entrance)
            # nibabel mends pixdim as it reads, and ITK zeros
            mended = {"nibabel": ("negative pixdim", "zero pixdim"), "SimpleITK": ("zero pixdim",)}
            if kind not in mended.get(entrance, ()):
                assert bool(image.doubts) == doubted, (number, entrance, image.doubts)


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image.SetOrigin((1.0, 2.0, 3.0)),
        lambda image: image.SetDirection((0, 1, 0, 1, 0, 0, 0, 0, -1)),
    ],
)
def test_an_image_that_was_laid_elsewhere_stays_there(change: Callable, tmp_path: Path):
    fields, _ = header("negative pixdim", np.random.default_rng(1))
    image = sitk.ReadImage(str(write(tmp_path / "a.nii", 1, "<", fields)))
    change(image)
    read = images.read(image)
    assert read.origin == image.GetOrigin() and read.direction == image.GetDirection()


def test_the_digits_that_itk_keeps_raise_no_doubt(tmp_path: Path):
    """Near a half turn the angle of a quaternion depends on its last digits, and ITK keeps six."""
    rng = np.random.default_rng(5)
    voxels = np.zeros((180, 2, 256), np.uint8)
    for _ in range(20):
        axis = rng.normal(size=3)
        axis /= np.linalg.norm(axis)
        cross = np.cross(np.eye(3), axis)
        angle = np.pi - rng.uniform(0, 2e-3)
        place = np.eye(4)
        place[:3, :3] += -np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
        form = quaternion(place)
        fields = {"pixdim": [form.pop("sign"), 1, 1, 1, 0, 0, 0, 0], **form, **rows(place)}
        fields |= {"sform_code": 1, "qform_code": 1}
        path = write(tmp_path / "a.nii", 1, "<", fields, voxels)
        assert images.read(path).doubts == images.read(sitk.ReadImage(str(path))).doubts == ()


@pytest.mark.parametrize(
    ("slope", "inter", "scaled"),
    [(0, 5, False), (np.nan, np.nan, False), (0, 0, False), (np.inf, 0, False), (2, -3, True)],
)
def test_scaling_is_the_standards(slope: float, inter: float, scaled: bool, tmp_path: Path):
    """A slope of 0 means that the stored numbers are the values: labels keep their numbers."""
    stored = (VOXELS % 4).astype(np.int16)
    fields, _ = header("sform", np.random.default_rng(1))
    fields |= {"scl_slope": slope, "scl_inter": inter}
    path = write(tmp_path / "a.nii", 1, "<", fields, stored)
    right = stored * 2.0 - 3 if scaled else stored
    assert np.array_equal(images.read(path).array, right)
    assert images.read(path).array.dtype == (np.float32 if scaled else np.int16)


def test_numbers_that_say_nothing_are_not_asked(tmp_path: Path):
    fields, _ = header("sform", np.random.default_rng(1))
    sound = images.read(write(tmp_path / "a.nii", 1, "<", fields))
    fields["pixdim"] = [1, np.nan, np.nan, np.nan, 0, 0, 0, 0]
    assert images.read(write(tmp_path / "b.nii", 1, "<", fields)).same_grid(sound)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dim": [4, 8, 7, 6, 0, 1, 1, 1]}, "no size of an image"),
        ({"datatype": 2304, "bitpix": 16}, "bitpix 16"),
        ({"datatype": 32, "bitpix": 8}, "no real number"),
        ({"bitpix": 16}, "bitpix"),
        ({"sform_code": 1, "srow_x": [np.inf, 0, 0, 0]}, "srow has inf"),
        ({"sform_code": 1, "srow_x": [0, 0, 0, 0]}, "axis of length 0"),
    ],
)
def test_what_is_no_image_is_refused(fields: dict[str, Any], says: str, tmp_path: Path):
    sound, _ = header("sform", np.random.default_rng(1))
    sound |= {"srow_y": [0, 1, 0, 0], "srow_z": [0, 0, 1, 0]} if "srow_x" in fields else {}
    path = write(tmp_path / "a.nii", 1, "<", {**sound, **fields})
    with pytest.raises(errors.InputUnreadableError, match=says) as error:
        images.read(path, "moving")
    assert str(path) in str(error.value) and "moving" in str(error.value)


def test_voxels_that_nibabel_takes_from_the_header_are_refused(tmp_path: Path):
    fields, _ = header("sform", np.random.default_rng(1))
    path = write(tmp_path / "a.nii", 1, "<", {**fields, "vox_offset": 0})
    assert np.array_equal(images.read(path).array, VOXELS)
    unreadable("give the path", images.read, nibabel.load(path))


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two images of one body, of which the moving one's header contradicts itself."""
    folder = tmp_path_factory.mktemp("doubtful")
    pair = morphseek.phantom.make_pair(size=32)
    files = {"fixed": folder / "fixed.nii", "moving": folder / "moving.nii"}
    images.write(files["fixed"], pair.fixed)
    images.write(files["moving"], pair.moving)
    data = bytearray(files["moving"].read_bytes())
    data[80:84] = np.float32(-np.frombuffer(data[80:84], "f4")[0]).tobytes()  # pixdim[1]
    files["doubtful"] = folder / "doubtful.nii"
    files["doubtful"].write_bytes(data)
    return files


def test_a_doubt_reaches_the_verdict(doubtful: dict[str, Path]):
    sound = morphseek.register(doubtful["fixed"], doubtful["moving"], **QUICK)
    result = morphseek.register(doubtful["fixed"], doubtful["doubtful"], **QUICK)
    assert np.array_equal(result.displacement(), sound.displacement())
    assert sound.verdict.grade == "good" and result.verdict.grade == "check"
    (warning,) = result.metrics["warnings"]
    assert "moving" in warning and "doubtful.nii" in warning and "pixdim" in warning
    assert warning in result.verdict.reasons


def test_a_doubt_is_said_by_the_command(command, doubtful, tmp_path):
    pair = (doubtful["fixed"], doubtful["doubtful"])
    told = command.json("register", *pair, "--out", tmp_path / "out", *FLAGS, "--report", "full")
    assert any("pixdim" in warning for warning in told["warnings"])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["verdict"]["grade"] == "check"
    assert "negative size" in (tmp_path / "out" / "report.html").read_text()


def test_a_doubt_about_labels_is_said(doubtful: dict[str, Path], tmp_path: Path):
    body = images.read(doubtful["moving"])
    images.write(tmp_path / "labels.nii", body.like((body.array > 0).astype(np.uint8)))
    data = bytearray((tmp_path / "labels.nii").read_bytes())
    data[80:84] = np.float32(-np.frombuffer(data[80:84], "f4")[0]).tobytes()  # pixdim[1]
    (tmp_path / "labels.nii").write_bytes(data)
    pair = {"fixed": doubtful["fixed"], "moving": doubtful["moving"]}
    (row,) = morphseek.register_pairs(
        [{**pair, "moving_labels": tmp_path / "labels.nii"}], report="none", **QUICK
    ).rows
    assert "moving labels" in row.warnings[-1] and "negative size" in row.warnings[-1]


@pytest.mark.parametrize("doubted", ["input", "reference"])
def test_apply_notes_a_doubt(command, doubtful, doubted, tmp_path):
    sitk.WriteTransform(sitk.TranslationTransform(3, (0.0, 0, 0)), str(tmp_path / "t.tfm"))
    files = {"input": doubtful["moving"], "reference": doubtful["fixed"]}
    files[doubted] = doubtful["doubtful"]
    words = ("-i", files["input"], "-r", files["reference"], "-o", tmp_path / "out.nii.gz")
    process = command.start("apply", "-t", tmp_path / "t.tfm", *words, "--json")
    out, noted = process.communicate(timeout=120)
    (warning,) = json.loads(out)["warnings"]
    assert "negative size" in warning and "doubtful.nii" in warning and warning in noted


def test_apply_notes_an_input_of_another_space(command, doubtful, tmp_path):
    sitk.WriteTransform(sitk.TranslationTransform(3, (900.0, 0, 0)), str(tmp_path / "t.tfm"))
    words = ("-i", doubtful["moving"], "-r", doubtful["fixed"], "-o", tmp_path / "out.nii.gz")
    said = command("apply", "-t", tmp_path / "t.tfm", *words)
    assert (
        f"note: {tmp_path / 'out.nii.gz'} is the same everywhere" in said and "moving.nii" in said
    )


def test_transforms_warn_of_a_doubt(doubtful: dict[str, Path]):
    transform = morphseek.Transform.of(sitk.TranslationTransform(3, (0.0, 0, 0)))
    with pytest.warns(errors.GeometryWarning, match="negative size"):
        transform.apply(doubtful["doubtful"], doubtful["fixed"])


LOCALES = r"""
import locale, sys, numpy as np, SimpleITK as sitk
from morphseek import images
import morphseek
folder = sys.argv[1]
voxels = np.arange(60, dtype="f4").reshape(3, 4, 5)
image = images.Image(voxels, (1.5, 2.25, 3.5), (-1.25, 2.5, 3.75))
plain = image.to_sitk()
for ending in (".nrrd", ".mha", ".nii.gz", ".nhdr"):
    sitk.WriteImage(plain, folder + "/in" + ending)
sitk.WriteTransform(sitk.TranslationTransform(3, (1.5, 2.5, 3.5)), folder + "/in.tfm")
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.localeconv()["decimal_point"] == ","
for ending in (".nrrd", ".mha", ".nii.gz", ".nhdr"):
    assert images.read(folder + "/in" + ending).same_grid(image), ending
    images.write(folder + "/out" + ending, image)
images.write_vectors(folder + "/vectors.nrrd", np.zeros((3, 4, 5, 3), "f4"), image.grid)
moved = morphseek.Transform.read(folder + "/in.tfm").transform_points([[0.0, 0, 0]])
assert np.allclose(moved, (1.5, 2.5, 3.5)), moved
assert locale.localeconv()["decimal_point"] == ","  # the host's stays
"""


def test_a_decimal_comma_of_the_host_changes_nothing(tmp_path: Path):
    """Qt, R and MATLAB set the locale of the process; files are read and written as ever."""
    if shutil.which("localedef") is None or sys.platform != "linux":
        pytest.skip("SKIPPED: no localedef, so no locale with a decimal comma can be made")
    words = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode > 1:
        pytest.skip(f"SKIPPED: localedef makes no locale de_DE: {made.stderr}")
    environment = {**os.environ, "LOCPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", LOCALES, str(tmp_path)], env=environment, check=True)
    assert locale.localeconv()["decimal_point"] == "."
    for name in ("out.nrrd", "out.mha", "out.nii.gz", "out.nhdr", "vectors.nrrd"):
        spacing = sitk.ReadImage(str(tmp_path / name)).GetSpacing()
        assert np.allclose(spacing, (1.5, 2.25, 3.5)), name


def test_itk_keeps_its_warnings_to_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    sitk.ProcessObject.SetGlobalWarningDisplay(True)
    image = nibabel.AnalyzeImage(VOXELS.T, np.diag([2.0, 2, 2, 1]))
    image.to_filename(str(tmp_path / "a.img"))
    fields, _ = header("negative pixdim", np.random.default_rng(1))
    given = sitk.ReadImage(str(write(tmp_path / "b.nii", 1, "<", fields)))
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images.read(tmp_path / "a.img")
        images.read(given)
    assert capfd.readouterr().err == ""
    assert sitk.ProcessObject.GetGlobalWarningDisplay()


NRRD = "NRRD0005\ntype: float\ndimension: 3\nsizes: 8 7 6\nendian: little\nencoding: raw"
PLACED = (
    "space: left-posterior-superior", "space directions: (2,0,0) (0,3,0) (0,0,4)",
    "space origin: (1,2,3)",
)  # fmt: skip


def write_nrrd(path: Path, *lines: str) -> Path:
    text = "\n".join((NRRD, *lines)) + "\n\n"
    path.write_bytes(text.encode() + VOXELS.astype("<f4").tobytes())
    return path


@pytest.mark.parametrize(
    ("lines", "doubted"),
    [
        (PLACED, False),
        ((*PLACED, "# " + "x" * 70_000), False),  # comments and values may be long
        ((*PLACED, "notes:=" + "x" * 70_000), False),
        (("spacings: 2 3 4",), False),
        (("spacings: 2 3 nan",), True),
        ((), True),
    ],
)
def test_nrrd(lines: tuple[str, ...], doubted: bool, tmp_path: Path):
    image = images.read(write_nrrd(tmp_path / "a.nrrd", *lines))
    assert np.array_equal(image.array, VOXELS)
    assert any("how large its voxels are" in doubt for doubt in image.doubts) == doubted
    if lines and not doubted:
        assert image.spacing == (2, 3, 4)


def test_layers_of_a_segmentation_are_named(tmp_path: Path):
    layers = np.stack([VOXELS > 1, VOXELS > 9], -1).astype("u1")
    stacked = sitk.GetImageFromArray(layers, isVector=True)
    sitk.WriteImage(stacked, str(tmp_path / "a.seg.nrrd"))
    unreadable("segments overlap.*label map", images.read, tmp_path / "a.seg.nrrd", "fixed labels")


def test_no_address_of_itk_in_a_message(tmp_path: Path):
    lines = (
        "space: left-posterior-superior-time", "space origin: (1,2,3,0)",
        "space directions: (2,0,0,0) (0,3,0,0) (0,0,4,0)",
    )  # fmt: skip
    path = write_nrrd(tmp_path / "a.nrrd", *lines)
    with pytest.raises(errors.InputUnreadableError, match="cannot be read as an image") as error:
        images.read(path)
    assert "0x" not in str(error.value)


@pytest.mark.parametrize(
    ("units", "step", "first"),
    [(10, 2.5, 0.5), (18, 2500.0, 500.0), (10, 0.0, 0.0), (34, 2.5, 0.0), (2, 2.5, 0.0)],
)
@pytest.mark.parametrize("kind", ["path", "nibabel"])
def test_a_series_keeps_its_times(kind: str, units: int, step: float, first: float, tmp_path: Path):
    """Of seconds and milliseconds ITK makes seconds; Hz and unknown units stay, and a step of 0."""
    fields, _ = header("sform", np.random.default_rng(1))
    fields |= {"pixdim": [1, *fields["pixdim"][1:4], step, 0, 0, 0], "toffset": first}
    frames = np.stack([VOXELS, 2 * VOXELS])
    path = write(tmp_path / "a.nii", 1, "<", {**fields, "xyzt_units": units}, frames)
    source = path if kind == "path" else nibabel.load(path)
    transform = morphseek.Transform.of(sitk.TranslationTransform(3, (0.0, 0, 0)))
    out = transform.apply(source, sitk.ReadImage(str(path))[:, :, :, 0])
    if kind == "path":
        images.write(tmp_path / "b.nii.gz", out)
        out = nibabel.load(tmp_path / "b.nii.gz")
    seconds = {10: 1.0, 18: 1e-3}.get(units if step else 0)
    unit = out.header.get_xyzt_units()[1]
    if kind == "path" and seconds:
        step, first, units = step * seconds, first * seconds, 10
    assert np.isclose(out.header["pixdim"][4], step) and np.isclose(out.header["toffset"], first)
    assert unit == nibabel.load(path).header.get_xyzt_units()[1] or units == 10
    assert np.allclose(out.get_fdata().T, frames)
