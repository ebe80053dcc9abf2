"""Images of every kind give the same voxels in the same place; files are complete or absent."""

import contextlib
import errno
import gc
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

from helpers import LINEAR, blob, invalid, oblique, refused, unreadable
from morphseek import Transform, _apart, _files, errors, images
from morphseek.images.convert import as_kind_of
from morphseek.images.frames import Frames
from morphseek.images.sidecars import check_apart, parts
from morphseek.transforms import apply_by_blocks, files
from morphseek.transforms.linear import linear, linear_part
from pace import limit

FIELD = sitk.DisplacementFieldTransform(sitk.Image([30] * 3, sitk.sitkVectorFloat64))


@pytest.fixture(scope="module")
def reference() -> images.Image:
    return oblique((1000 * blob((7, 9, 11))).astype(np.int16))


def noise(n: int = 64) -> images.Image:
    return images.Image(np.random.default_rng(0).normal(size=(n, n, n)).astype(np.float32))


def as_itk(image: images.Image):
    itk = pytest.importorskip("itk")
    made = itk.image_from_array(np.ascontiguousarray(image.array))
    made.SetSpacing(image.spacing)
    made.SetOrigin(image.origin)
    made.SetDirection(itk.matrix_from_array(np.array(image.direction).reshape(3, 3)))
    return made


def as_nibabel(image: images.Image):
    return nibabel.Nifti1Image(image.array.T, np.diag([-1, -1, 1, 1]) @ image.index_to_physical)


@pytest.mark.parametrize(
    "kind", ["Image", "sitk", "itk", "nibabel", ".nii.gz", ".nii", ".nrrd", ".mha"]
)
def test_read_kinds(kind: str, reference: images.Image, tmp_path: Path):
    if kind.startswith("."):
        source = tmp_path / f"image{kind}"
        sitk.WriteImage(reference.to_sitk(), str(source))
    else:
        kinds = {"sitk": images.Image.to_sitk, "itk": as_itk, "nibabel": as_nibabel}
        source = kinds.get(kind, images.read)(reference)
    read = images.read(source, "fixed")
    np.testing.assert_array_equal(read.array, reference.array)
    np.testing.assert_allclose(read.grid.numbers, reference.grid.numbers, atol=1e-4)


@pytest.mark.parametrize("kind", [".nii.gz", ".nii", ".nrrd", ".mha", ".hdr"])
def test_on_windows_itk_gets_names_in_ascii(kind, reference, tmp_path, monkeypatch):
    """On Windows ITK opens only names in ASCII; here the test makes it behave so."""
    seen: list[str] = []
    for name, place in (("ReadImage", 0), ("WriteImage", 1)):
        call = getattr(sitk, name)

        def noted(*words: object, call: object = call, place: int = place, **more: object):
            seen.append(str(words[place]))
            return call(*words, **more)

        monkeypatch.setattr(sitk, name, noted)
    monkeypatch.setattr("morphseek._itk.sys", SimpleNamespace(platform="win32"))
    folder = tmp_path / "Grüße"
    folder.mkdir()
    path = folder / (f"image{kind}" if kind == ".hdr" else f"日本{kind}")
    images.write(path, reference)
    np.testing.assert_array_equal(images.read(path).array, reference.array)
    by_itk = 1 if kind in (".nii.gz", ".nii", ".hdr") else 2  # NIfTI is read without it
    ending = kind.removesuffix(".gz")  # of which ITK writes the header alone
    assert len(seen) == by_itk and all(name.isascii() and name.endswith(ending) for name in seen)
    assert not [name for name in seen if Path(name).parent.exists()]
    assert {file.name for file in folder.iterdir()} == (
        {"image.hdr", "image.img"} if kind == ".hdr" else {path.name}
    )


def test_no_copy_on_the_way_in():
    array = blob()
    assert images.read(array).grid == images.Grid(array.shape[::-1])
    assert np.shares_memory(images.read(array).float32(), array)
    fortran = np.asfortranarray(array.T)  # nibabel's memory order: its transpose is C-contiguous
    assert np.shares_memory(images.read(nibabel.Nifti1Image(fortran, np.eye(4))).float32(), fortran)


def test_what_was_read_stays_when_the_image_is_copied_changed_and_dropped():
    """SimpleITK copies on write: a view must not keep memory that the image has left."""
    array = np.ascontiguousarray(np.random.default_rng(0).random((60, 60, 60), np.float32))
    image = sitk.GetImageFromArray(array)
    read = images.read(image)
    copy = sitk.Image(image)
    again = images.read(image)
    del copy
    image += 1
    image[0, 0, 0] = 7
    del image
    gc.collect()
    others = [np.full(array.shape, -1, np.float32) for _ in range(8)]
    np.testing.assert_array_equal(read.array, array)
    np.testing.assert_array_equal(again.array, array)
    assert len(others) == 8


@pytest.mark.parametrize("dtype", [">i2", ">f4", np.longdouble, np.float16, bool])
def test_to_sitk_takes_any_real_dtype(dtype: Any):
    array = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype)
    np.testing.assert_array_equal(sitk.GetArrayFromImage(images.Image(array).to_sitk()), array)


def test_four_dimensional_file_of_one_volume(tmp_path: Path, reference: images.Image):
    path = tmp_path / "four.nii.gz"
    sitk.WriteImage(sitk.JoinSeries(reference.to_sitk()), str(path))
    read = images.read(path)
    np.testing.assert_array_equal(read.array, reference.array)
    np.testing.assert_allclose(read.grid.numbers, reference.grid.numbers, atol=1e-4)


def test_itk_images_with_a_start_index(reference: images.Image):
    itk = pytest.importorskip("itk")
    whole = as_itk(reference)
    cropped = itk.crop_image_filter(whole, lower_boundary_crop_size=[2, 3, 1])
    assert list(cropped.GetOrigin()) == pytest.approx(reference.origin)
    assert list(cropped.GetLargestPossibleRegion().GetIndex()) == [2, 3, 1]
    expected = reference.to_sitk()[2:, 3:, 1:]
    padded = itk.constant_pad_image_filter(whole, pad_lower_bound=[1, 2, 0])
    before = reference.index_to_physical @ [-1, -2, 0, 1]
    np.testing.assert_allclose(images.read(padded).origin, before[:3], atol=1e-9)
    np.testing.assert_allclose(images.read(cropped).origin, expected.GetOrigin(), atol=1e-9)
    read = images.read(cropped)
    np.testing.assert_array_equal(read.array, sitk.GetArrayFromImage(expected))
    back = as_kind_of(cropped, read)  # what apply() returns
    first = back.TransformIndexToPhysicalPoint(back.GetLargestPossibleRegion().GetIndex())
    np.testing.assert_allclose(first, expected.GetOrigin(), atol=1e-9)


def test_itk_images_of_other_dimensions(reference: images.Image):
    itk = pytest.importorskip("itk")
    flat = images.read(itk.image_from_array(np.zeros((4, 5), np.float32)), "moving")
    assert flat.array.shape == (1, 4, 5)
    one = itk.image_from_array(np.ascontiguousarray(reference.array[None]))
    one.SetSpacing([*reference.spacing, 1.0])
    one.SetOrigin([*reference.origin, 0.0])
    direction = np.eye(4)
    direction[:3, :3] = np.array(reference.direction).reshape(3, 3)
    one.SetDirection(itk.matrix_from_array(direction))
    np.testing.assert_allclose(images.read(one).grid.numbers, reference.grid.numbers)
    vectors = itk.image_from_array(np.zeros((4, 5, 6, 3), np.float32), is_vector=True)
    invalid("components", images.read, vectors)
    early = itk.ImageFileReader[itk.Image[itk.F, 3]].New(FileName="later.mha")
    invalid(r"no voxels yet; call Update\(\)", images.read, early.GetOutput())


@pytest.mark.parametrize(
    "more, read",
    [
        ((), images.read),
        ((2,), lambda *source: list(Frames(*source))),
        ((1, 3), lambda source, _: Transform.of(source)),
    ],
    ids=["image", "series", "field"],
)
def test_a_nibabel_image_whose_file_went_bad(
    more: tuple[int, ...], read: Callable[..., Any], tmp_path: Path
):
    """nibabel reads voxels only when they are asked for."""
    path = tmp_path / "a.nii.gz"
    voxels = np.random.default_rng(0).random((6, 7, 8, *more), np.float32)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), path)
    whole = path.read_bytes()
    for bad in (whole[:-200], None):
        path.write_bytes(whole)
        lazy = nibabel.load(path)
        path.unlink()
        if bad:
            path.write_bytes(bad)
        says = f": the nibabel image cannot be read from {re.escape(str(path))}: ."
        unreadable(says, read, lazy, "fixed")


def test_arrays_of_xarray_are_refused_where_their_axes_have_places(reference: images.Image):
    itk = pytest.importorskip("itk")
    pytest.importorskip("xarray", reason="needs xarray")
    source = itk.xarray_from_image(as_itk(reference))
    invalid("fixed is an array of xarray.* give itk.image_from", images.read, source, "fixed")
    read = images.read(itk.image_from_xarray(source))
    np.testing.assert_allclose(read.grid.numbers, reference.grid.numbers)
    assert images.read(type(source)(reference.array)).grid == images.Image(reference.array).grid
    for names in ("ZYX", "ijk"):
        named = type(source)(reference.array, dims=[*names])
        invalid("an array of xarray", images.read, named)


def test_an_affine_that_was_changed_in_place(reference: images.Image):
    """The header is not updated, and the affine holds."""
    image = as_nibabel(reference)
    image.affine[0, 3] += 5
    assert images.read(image).origin[0] == pytest.approx(reference.origin[0] - 5)


def test_sheared_images_are_refused(tmp_path: Path):
    affine = np.diag([2.0, 1.5, 3.0, 1.0])
    affine[0, 1] = 0.2
    image, nifti, nrrd = (
        nibabel.Nifti1Image(blob((7, 9, 11)).T, affine), tmp_path / "a.nii.gz", tmp_path / "a.nrrd",
    )  # fmt: skip
    nibabel.save(image, nifti)
    freesurfer = nibabel.MGHImage(np.zeros((4, 5, 6), np.float32), affine)
    sheared = images.Image(blob((4, 5, 6)), direction=(1, 0.6, 0, 0, 0.8, 0, 0, 0, 1))
    images.write(nrrd, sheared)
    for source in (image, nifti, freesurfer, nrrd, sheared.to_sitk()):
        says = "fixed: .*sheared.*resample"
        refused(errors.InvalidDirectionError, says, images.read, source, "fixed")
    says = "right angles"  # ITK straightens it
    refused(errors.OutputUnwritableError, says, images.write, tmp_path / "b.nii.gz", sheared)


def test_what_to_give_of_other_packages_images():
    """The array of ANTsPy's image, (x, y, z), alone would lie turned, and nowhere."""
    for kind, says in (("ANTsImage", r"morphseek.Image\(x.numpy\(\).T"), ("LabelMap", "as_sitk")):
        invalid(
            f"fixed is of type {kind}; give .*{says}", images.read, type(kind, (), {})(), "fixed"
        )


@pytest.mark.parametrize(
    "source",
    [
        np.zeros(4), np.zeros((2, 3, 4, 5)), np.zeros((3, 4, 5), complex), np.array([["a"]]),
        sitk.Image([4, 4, 4], sitk.sitkVectorFloat32, 3),
        sitk.Image([4, 4], sitk.sitkVectorFloat32, 2), 42, None,
    ],
)  # fmt: skip
def test_refuses(source):
    invalid("moving mask", images.read, source, "moving mask")
    unreadable("moving mask", images.read, "/nowhere/image.nii.gz", "moving mask")


@pytest.mark.parametrize("data", [".img", ".img.gz"])
@pytest.mark.parametrize("by_header", [True, False])
def test_cut_pair_is_refused(data: str, by_header: bool, tmp_path: Path, reference: images.Image):
    sitk.WriteImage(reference.to_sitk(), str(tmp_path / f"pair{data}"))
    named = tmp_path / f"pair{data.replace('img', 'hdr') if by_header else data}"
    np.testing.assert_array_equal(images.read(named).array, reference.array)
    assert {part.name for part in parts(named)} == {path.name for path in tmp_path.iterdir()}
    with open(tmp_path / f"pair{data}", "r+b") as file:
        file.truncate(os.stat(file.fileno()).st_size // 2)
    unreadable(f"moving: .*pair{data} is cut short", images.read, named, "moving")


@pytest.mark.parametrize("name", ["a.mha", "a.MHD", "a.nrrd", "a.NHDR"])
def test_parts_of_detached_headers(name: str, tmp_path: Path, reference: images.Image):
    """Each of these headers may name a file with the voxels or hold them itself."""
    attached = tmp_path / ("whole.mha" if "m" in name.lower() else "whole.nrrd")
    sitk.WriteImage(reference.to_sitk(), str(attached))
    assert parts(attached) == [attached]
    (tmp_path / "voxels.raw").write_bytes(bytes(8))
    meta = "NDims = 3\nElementDataFile = voxels.raw\n"
    nrrd = "NRRD0004\ndimension: 3\ndata file: voxels.raw\n\n"
    (tmp_path / name).write_text(meta if "m" in name.lower() else nrrd)
    assert parts(tmp_path / name) == [tmp_path / name, tmp_path / "voxels.raw"]


PLANES = np.arange(36, dtype="<i2").reshape(6, 2, 3)
META = "NDims = {}\nDimSize = {}\nElementType = MET_SHORT\nElementDataFile = {}\n"
NRRD = "NRRD0004\ntype: short\ndimension: 3\nsizes: 3 2 6\nendian: little\nencoding: raw\n"
V, HALVES, ROWS = ([f"{k}{i}.raw" for i in range(n)] for k, n in (("v", 6), ("h", 2), ("l", 12)))


def listed(first: str, names: list[str]) -> str:
    return "\n".join([first, *names])


@pytest.fixture
def pieces(tmp_path: Path) -> Path:
    """A folder with the voxels in one file, in halves, slices and rows."""
    PLANES.tofile(tmp_path / "LISTEN.raw")
    for names in (["whole.raw"], HALVES, V, ROWS):
        for name, part in zip(names, np.split(PLANES.ravel(), len(names))):
            part.tofile(tmp_path / name)
    for k in range(6):
        PLANES[k].tofile(tmp_path / f"e{2 * k:03d}.raw")
    return tmp_path


@pytest.mark.parametrize(
    "sizes, files",
    [
        ("3 2 6", "whole.raw"), ("3 2 6", "v%d.raw 0 5 1"), ("3 2 6", "e%03d.raw 0 10 2"),
        ("3 2 6 1", listed("LIST", ["whole.raw"])), ("3 2 6", listed("LIST", V)),
        ("3 2 6", listed("LIST 2", V)), ("3 2 6", listed("LIST 1", ROWS)),
    ],
)  # fmt: skip
def test_a_metaimage_in_several_files(sizes: str, files: str, pieces: Path):
    (pieces / "a.mhd").write_text(META.format(len(sizes.split()), sizes, files))
    np.testing.assert_array_equal(images.read(pieces / "a.mhd").array, PLANES)


@pytest.mark.parametrize(
    "sizes, files, says",
    [
        *(("3 2 6", f"v%d.raw {rest}", "a.mhd .*a step of 1 or more")
          for rest in ("0 5", "0 5 0", "0 1", "0", "5 0 -1", "0 5 1 2", "0 5 1 0")),
        *(("3 2 6", name, "a step of 1 or more") for name in ("v%d.raw", "50%.raw", "%s%d 0 5 1")),
        ("3 2 6", "h%d.raw 0 1 1", "names 2 files.* needs 6"),
        ("3 2 6", "v%d.raw 0 999999999 1", "needs 6"),
        ("3 2 6", listed("LIST", HALVES), "names 2 files.* needs 6"),
        ("3 2 6", listed("LIST 1", V), "names 6 files.* needs 12"),
        ("3 2 6", listed("LIST", [*V, "v0.raw"]), "names 7 files.* needs 6"),
        ("6 6", listed("LIST", ["whole.raw"]), "names 1 files.* needs 6"),
        *(("3 2 6", first, "LIST and the axes of each file")
          for first in (listed("LIST 3", HALVES), listed("LIST 4", ["whole.raw"]), "LISTEN.raw")),
        ("3 2 6", listed("LIST", [*V[:2], "l0.raw", *V[3:]]), "l0.raw is cut short: 6 of 12"),
    ],
)  # fmt: skip
def test_a_metaimage_whose_files_are_other_than_its_sizes(sizes, files, says, pieces: Path):
    """ITK divides by the step, and leaves memory as it was where files are missing."""
    (pieces / "a.mhd").write_text(META.format(len(sizes.split()), sizes, files))
    unreadable(says, images.read, pieces / "a.mhd")


@pytest.mark.parametrize(
    "files, says",
    [
        ("v%d.raw 0 5 1", ""), ("h%d.raw 0 1 1 3", ""), (listed("LIST 3", HALVES), ""),
        ("v%d.raw 0 5 0", "not there"), ("h%d.raw 0 1 1", "expected 6 filenames"),
        (listed("LIST", [*V[:5], "l0.raw"]), "l0.raw is cut short"),
    ],
)  # fmt: skip
def test_an_nrrd_in_several_files(files: str, says: str, pieces: Path):
    (pieces / "a.nhdr").write_text(f"{NRRD}data file: {files}\n")
    if says:
        unreadable(says, images.read, pieces / "a.nhdr")
    else:
        np.testing.assert_array_equal(images.read(pieces / "a.nhdr").array, PLANES)


MM = {"mm": 1, "um": 1e-3, "\u00b5m": 1e-3, "microns": 1e-3, "cm": 10, "m": 1e3, "?": 1}
SPACE = (
    "space: right-anterior-superior\nspace directions: (0,3,0) (-2,0,0) (0,0,4)\n"
    "space origin: (1,-2,3)\nspace units: {0} {0} {0}\n\n"
)
HEADS = {
    "a.mha": META.format(3, "3 2 6", "LOCAL").replace(
        "Ele", "ElementSpacing = 2 3 4\nOffset = 1 -2 3\nDistanceUnits = {0}\nEle", 1
    ),
    "space.nrrd": NRRD + SPACE,
    "axes.nrrd": f"{NRRD}spacings: 2 3 4\naxis mins: 1 -2 3\nunits: {{0}} {{0}} {{0}}\n\n",
    "list.nrrd": NRRD.replace("dimension: 3\nsizes: 3", "dimension: 4\nsizes: 1 3")
    + 'kinds: list domain domain domain\nspacings: nan 2 3 4\nunits: "s" {0} {0} {0}\n\n',
}  # fmt: skip


def in_unit(name: str, unit: str, folder: Path) -> Path:
    word = unit if name.endswith("mha") else f'"{unit}"'
    (folder / name).write_bytes(HEADS[name].format(word).encode() + PLANES.tobytes())
    return folder / name


@pytest.mark.parametrize("unit", MM)
@pytest.mark.parametrize("name", HEADS)
def test_units_of_length_become_mm(name: str, unit: str, tmp_path: Path):
    """SimpleITK reads the numbers and passes over the unit."""
    path = in_unit(name, unit, tmp_path)
    truth = sitk.ReadImage(str(path))
    read = images.read(path)
    np.testing.assert_allclose(read.spacing, MM[unit] * np.array(truth.GetSpacing()))
    np.testing.assert_allclose(read.origin, MM[unit] * np.array(truth.GetOrigin()))
    np.testing.assert_allclose(read.direction, truth.GetDirection(), atol=1e-12)
    assert not read.doubts
    # ITK keeps no unit of a space, and of a MetaImage no others
    told = MM[unit] != 1 and (name in ("axes.nrrd", "list.nrrd") or unit in ("um", "cm"))
    told = told and name != "space.nrrd"
    assert ["; give the path" in doubt for doubt in images.read(truth).doubts] == [True] * told
    unmoved = Transform.of(sitk.Transform(3, sitk.sitkIdentity))
    apply_by_blocks(unmoved, path, tmp_path / "b.nii", path)
    back = images.read(tmp_path / "b.nii")
    np.testing.assert_allclose(back.grid.numbers, read.grid.numbers, rtol=1e-6)
    np.testing.assert_array_equal(back.array, PLANES)
    (frames, _) = Frames(path, "series"), path.unlink()  # what it keeps of the header says no unit
    images.write(tmp_path / "c.mha", frames.map(lambda image: image))
    np.testing.assert_allclose(images.read(tmp_path / "c.mha").spacing, read.spacing)


@pytest.mark.parametrize(
    "step, unit, first, truth",
    [(1.5, "sec", 3, (3, 1.5)), (800, "msec", 100, (0.1, 0.8)), (0, "sec", 0, (0, 1))],
)
def test_a_series_has_the_time_of_its_header(
    step: float, unit: str, first: float, truth: tuple[float, float], tmp_path: Path
):
    """nibabel's object and its file say the same, also where the step is not known."""
    series = nibabel.Nifti1Image(np.zeros((4, 4, 4, 3), np.float32), np.eye(4))
    series.header.set_xyzt_units("mm", unit)
    series.header["pixdim"][4], series.header["toffset"] = step, first
    nibabel.save(series, tmp_path / "s.nii")
    for source in (series, nibabel.load(tmp_path / "s.nii"), tmp_path / "s.nii"):
        np.testing.assert_allclose(Frames(source, "series").time, truth, rtol=1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_an_unknown_unit_of_length_is_a_doubt(name: str, tmp_path: Path):
    read = images.read(in_unit(name, "inch", tmp_path))
    assert len(read.doubts) == 1 and "'inch', which is not known; mm is taken" in read.doubts[0]
    np.testing.assert_allclose(sorted(read.spacing), (2, 3, 4))


def test_a_field_in_another_unit_is_refused(tmp_path: Path):
    vectors = sitk.Image([4, 4, 4], sitk.sitkVectorFloat32, 3)
    vectors.SetMetaData("ITK_VoxelUnits", "um")
    sitk.WriteImage(vectors, str(tmp_path / "t.mha"))
    unreadable("t.mha has another unit of length than mm", Transform.read, tmp_path / "t.mha")


def test_a_unit_an_axis(tmp_path: Path):
    head = f'{NRRD}spacings: 2 3 4\nunits: "um" "mm" "cm"\n\n'
    (tmp_path / "a.nrrd").write_bytes(head.encode() + PLANES.tobytes())
    np.testing.assert_allclose(images.read(tmp_path / "a.nrrd").spacing, (0.002, 3, 40))


@pytest.mark.parametrize("unit", ["mm", "um"])
@pytest.mark.parametrize("space", ["right-anterior-superior", "left-posterior-superior"])
def test_a_space_with_time_lies_where_that_without_does(space: str, unit: str, tmp_path: Path):
    """ITK turns the latter to LPS alone."""
    head = HEADS["space.nrrd"].format(f'"{unit}"').replace("right-anterior-superior", space)
    (tmp_path / "a.nrrd").write_bytes(head.encode() + PLANES.tobytes())
    truth = sitk.ReadImage(str(tmp_path / "a.nrrd"))
    for old, new in (
        (space, f"{space}-time"), ("dimension: 3\nsizes: 3 2 6", "dimension: 4\nsizes: 3 2 3 2"),
        (",0)", ",0,0)"), ("(0,0,4)", "(0,0,4,0) (0,0,0,1)"), ("(1,-2,3)", "(1,-2,3,0)"),
        ("space units:", f'space units: "{unit}" "{unit}" "{unit}" "s"\n#'),
    ):  # fmt: skip
        assert old in head
        head = head.replace(old, new)
    (tmp_path / "b.nrrd").write_bytes(head.encode() + PLANES.tobytes())
    for frame in Frames(tmp_path / "b.nrrd", "series"):
        np.testing.assert_allclose(frame.origin, MM[unit] * np.array(truth.GetOrigin()))
        np.testing.assert_allclose(frame.direction, truth.GetDirection(), atol=1e-12)


def test_a_left_handed_space_is_a_doubt(tmp_path: Path):
    head = HEADS["space.nrrd"].format('"mm"').replace("right-anterior-superior", "3D-left-handed")
    (tmp_path / "a.nrrd").write_bytes(head.encode() + PLANES.tobytes())
    assert "may be mirrored" in images.read(tmp_path / "a.nrrd").doubts[0]


ENDS = "axis mins: 1 2 3\naxis maxs: 7 8 9"


@pytest.mark.parametrize(
    "fields, spacing, origin, doubt",
    [
        (ENDS, (2, 3, 1), (2, 3.5, 3.5), False),
        (f"{ENDS}\ncenters: node node node", (3, 6, 1.2), (1, 2, 3), False),
        (f"{ENDS}\ncenters: cell ??? node", (2, 3, 1.2), (2, 3.5, 3), False),
        ("axis mins: 7 2 3\naxis maxs: 1 8 9", (2, 3, 1), (6, 3.5, 3.5), False),
        (f"{ENDS}\nspacings: nan 5 nan", (2, 5, 1), (2, 4.5, 3.5), False),
        ("axis mins: 1 2 3", (1, 1, 1), (0, 0, 0), True),
        ("axis mins: 1 2 3\naxis maxs: nan nan nan", (1, 1, 1), (0, 0, 0), True),
        ("axis mins: 1 2 3\naxis maxs: 7 8 3", (2, 3, 1), None, True),
        ('spacings: 2 nan 4\nunits: "um" "um" "um"', (0.002, 1, 0.004), (0, 0, 0), True),
        (f"space dimension: 3\n{ENDS}", (1, 1, 1), (0, 0, 0), True),
    ],
)  # fmt: skip
def test_nrrd_with_the_ends_of_its_axes(fields, spacing, origin, doubt, tmp_path: Path):
    """The spacing of 3 x 2 x 6 voxels is that of cells, or of nodes, between the ends."""
    (tmp_path / "a.nrrd").write_bytes(f"{NRRD}{fields}\n\n".encode() + PLANES.tobytes())
    read = images.read(tmp_path / "a.nrrd")
    np.testing.assert_allclose(read.spacing, spacing)
    assert origin is None or read.origin == origin
    assert [("how large its voxels are" in text) for text in read.doubts] == [True] * doubt
    assert read.direction[0] == (-1 if "mins: 7" in fields else 1)


@pytest.mark.parametrize("kind", ["u1", "i2", "u2", "i4", "i8", "f2", "f4", ">f8", "?"])
def test_what_a_masked_array_hides_is_nan(kind: str, tmp_path: Path):
    values = np.arange(24).reshape(2, 3, 4).astype(kind)
    hidden = values > (0 if kind == "?" else 20)
    masked = np.ma.MaskedArray(values, hidden, fill_value=1 if kind == "?" else 99)
    expected = np.where(hidden, np.nan, values)
    wide = (
        np.dtype(kind).newbyteorder("=")
        if "f" in kind
        else np.dtype("f8" if kind in ("i4", "i8") else "f4")
    )
    for image in (
        images.Image(masked),
        images.read(masked),
        images.read(images.Image(values)).like(masked),
    ):
        assert type(image.array) is np.ndarray and image.array.dtype.newbyteorder("=") == wide
        np.testing.assert_array_equal(image.array, expected)
    shown = np.ma.MaskedArray(values, np.zeros_like(hidden))
    assert images.read(shown).array.dtype == values.dtype
    assert np.shares_memory(images.read(shown).array, values)


def test_why_itk_reads_no_file_without_its_build_path(tmp_path: Path):
    head = f"{NRRD}spacings: 0 3 4\n\n"
    (tmp_path / "a.nrrd").write_bytes(head.encode() + PLANES.tobytes())
    with pytest.raises(errors.InputUnreadableError, match="axis 0 spacing") as caught:
        images.read(tmp_path / "a.nrrd")
    (tmp_path / "a.mha").write_bytes(
        HEADS["a.mha"].replace("2 3 4", "0 3 4").encode() + PLANES.tobytes()
    )
    with pytest.raises(errors.InputUnreadableError, match="spacing") as again:
        images.read(tmp_path / "a.mha")
    for error in (caught, again):
        assert "xx:" not in str(error.value) and "ITK-build" not in str(error.value)


READER = """
import shutil, time
def rewrite(path, out):
    end = time.time() + {0}
    while {1}:
        pass
    time.sleep({0})
    shutil.copy(path, out)
"""


@pytest.mark.parametrize(
    "body, patience, says",
    [((3, "False"), 20, ""), ((99, "False"), 4, "when the machine is less busy"),
     ((99, "True"), 20, "2 s of computing")],
)  # fmt: skip
def test_a_reader_that_is_only_slow(body, patience: int, says: str, tmp_path: Path, monkeypatch):
    pytest.importorskip("resource", reason="no limit on computing")
    (tmp_path / "slow_reader.py").write_text(READER.format(*body))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(_apart._READERS, "image", "slow_reader")
    monkeypatch.setattr(_apart, "_START", 2.0)
    # only what must not end has little: on a busy machine others take longer than their computing
    monkeypatch.setattr(_apart, "_PATIENCE", patience if "busy" in says else limit(patience))
    path = tmp_path / "a.mha"
    path.write_bytes(b"content")
    if not says:
        with _apart.plain("image", path, "fixed", 1) as copy:
            assert copy.read_bytes() == b"content"
        return
    with pytest.raises(errors.InputUnreadableError, match=says) as caught:
        with _apart.plain("image", path, "fixed", 1):
            pass
    assert "damaged" not in str(caught.value)


def test_label_map_objects_are_refused():
    labels = sitk.LabelImageToLabelMap(sitk.Image([4, 5, 6], sitk.sitkUInt8))
    invalid("moving volume is a SimpleITK label map.*LabelMapTo", images.read, labels, "moving")


def test_nifti_of_several_gzip_members(tmp_path: Path, reference: images.Image):
    plain, parts = tmp_path / "plain.nii", tmp_path / "parts.nii.gz"
    sitk.WriteImage(reference.to_sitk(), str(plain))
    content = plain.read_bytes()
    parts.write_bytes(gzip.compress(content[:1000]) + gzip.compress(content[1000:]))
    np.testing.assert_array_equal(images.read(parts).array, reference.array)


@pytest.mark.skipif(sys.platform == "win32", reason="paths are always text on Windows")
def test_paths_that_are_no_text(tmp_path: Path, reference: images.Image):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    for call, error in (
        (lambda: images.read(odd + ".nii.gz"), errors.InputUnreadableError),
        (lambda: files.read(Path(odd + ".h5")), errors.InputUnreadableError),
        (lambda: images.write(odd + ".nrrd", reference), errors.OutputUnwritableError),
        (lambda: _files.output_folder(odd).__enter__(), errors.OutputUnwritableError),
    ):
        refused(error, "no valid UTF-8", call)


@pytest.mark.parametrize(
    "field, value", [("spacing", (1, 1)), ("origin", (0,)), ("direction", np.eye(2))]
)
def test_geometry_of_the_wrong_length(field: str, value):
    invalid(field, images.Image, np.zeros((3, 4, 5)), **{field: value})
    array = np.zeros((3, 4, 5))
    assert images.Image(array, direction=np.eye(3)).grid == images.Image(array).grid


def test_as_kind_of(reference: images.Image):
    image = oblique(blob((4, 5, 6)))
    back = as_kind_of(as_nibabel(reference), image)
    assert isinstance(back, nibabel.Nifti1Image)
    np.testing.assert_allclose(images.read(back).grid.numbers, image.grid.numbers, atol=1e-6)
    np.testing.assert_array_equal(images.read(back).array, image.array)
    back = as_kind_of(as_itk(reference), image)
    np.testing.assert_allclose(images.read(back).grid.numbers, image.grid.numbers, atol=1e-6)
    labels = image.like(np.ones((4, 5, 6), np.int64))
    nifti = nibabel.Nifti1Image(labels.array.T, np.eye(4), dtype=np.int64)
    assert as_kind_of(nifti, labels).get_data_dtype() == np.int64
    assert isinstance(as_kind_of("path", image), sitk.Image)
    assert as_kind_of(np.zeros(3), image) is image.array


@pytest.mark.parametrize(
    "forms, expected",
    [((1, 0), (1, 0)), ((0, 1), (0, 1)), ((1, 2), (1, 2)), ((4, 3), (2, 2)), ((0, 0), (2, 0))],
)
def test_a_nifti_keeps_its_units_and_forms(forms, expected, reference):
    source, image = as_nibabel(reference), oblique(blob((4, 5, 6)))
    source.header.set_xyzt_units("mm", "sec")
    source.set_sform(source.affine, forms[0])
    source.set_qform(source.affine, forms[1])
    back = as_kind_of(source, image)
    assert back.header.get_xyzt_units() == ("mm", "sec")
    assert (int(back.header["sform_code"]), int(back.header["qform_code"])) == expected
    np.testing.assert_allclose(images.read(back).grid.numbers, image.grid.numbers, atol=1e-5)


def test_vector_nifti_has_intent_1007_and_lps(tmp_path: Path):
    vectors = np.arange(3 * 4 * 5 * 3, dtype=np.float32).reshape(3, 4, 5, 3)
    path = tmp_path / "field.nii.gz"
    field = sitk.GetImageFromArray(vectors, isVector=True)
    images.write(path, oblique(vectors[..., 0]).grid.place(field))
    nifti = nibabel.load(path)
    assert int(nifti.header["intent_code"]) == 1007
    read = np.asarray(nifti.dataobj)[:, :, :, 0].transpose(2, 1, 0, 3)
    np.testing.assert_array_equal(read, vectors)
    np.testing.assert_array_equal(images.read_vectors(path), vectors)


def test_no_module_that_few_calls_need():
    """Every process pays for the modules that the package imports."""
    own = "import sys, numpy, SimpleITK; before = set(sys.modules)"
    script = f"{own}; import morphseek.images; print(*set(sys.modules) - before)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert "morphseek.images" in loaded
    assert not {"concurrent.futures", "logging", "socket"} & set(loaded)


def test_transforms(tmp_path: Path):
    for suffix in (".tfm", ".h5"):
        path = tmp_path / f"t{suffix}"
        files.write(path, linear(LINEAR))
        np.testing.assert_allclose(linear_part(files.read(path)), LINEAR, atol=1e-12)
    shift = sitk.TranslationTransform(3, (1.0, 2.0, 3.0))
    files.write(tmp_path / "two.tfm", sitk.CompositeTransform([shift, shift]))
    assert files.read(tmp_path / "two.tfm").TransformPoint((0.0, 0.0, 0.0)) == (2.0, 4.0, 6.0)
    euler = sitk.Euler3DTransform((10.0, 20.0, 30.0), 0.1, 0.2, 0.3, (1.0, 2.0, 3.0))
    point = np.array([3.0, -4.0, 5.0, 1.0])
    np.testing.assert_allclose((linear_part(euler) @ point)[:3], euler.TransformPoint(point[:3]))
    unreadable("transform.h5", files.read, tmp_path)  # a folder
    images.write(tmp_path / "displacement.nrrd", noise(4))
    unreadable("give an .h5 or .tfm", files.read, tmp_path / "displacement.nrrd")
    invalid("rigid or affine", linear_part, FIELD)


@pytest.mark.parametrize("suffix", [".mhd", ".nhdr", ".hdr"])
@pytest.mark.parametrize("compress", [True, False])
def test_header_finds_its_data(suffix, compress, tmp_path, reference):
    """If header and voxels are two files, both have the image's name and can be moved together."""
    folder = tmp_path / "first"
    folder.mkdir()
    images.write(folder / f"image{suffix}", reference, compress=compress)
    written = sorted(p.name for p in folder.iterdir())
    assert len(written) == 2 and all(name.startswith("image.") for name in written)
    folder.rename(tmp_path / "second")
    again = images.read(tmp_path / "second" / f"image{suffix}").array
    np.testing.assert_array_equal(again, reference.array)


@pytest.mark.parametrize(
    "name", ["a%03d", "50%d", "LIST", "LIST 2", "LISTEN", " lead", "a\nb", "a\tb"]
)
@pytest.mark.parametrize("end", ["mhd", "nhdr"])
def test_names_that_a_header_cannot_say(name: str, end: str, tmp_path: Path):
    for compress in (True, False):
        refused(
            errors.OutputUnwritableError, "no reader would find .*choose a name without",
            images.write, tmp_path / f"{name}.{end}", noise(4), compress=compress,
        )  # fmt: skip
    assert not list(tmp_path.iterdir())
    for other in ("mha", "nrrd", "nii.gz", "hdr"):
        path = tmp_path / f"{name}.{other}"
        if "\n" in name:
            refused(errors.OutputUnwritableError, "line break", images.write, path, noise(4))
        else:
            images.write(path, noise(4))
            np.testing.assert_array_equal(images.read(path).array, noise(4).array)


@pytest.mark.parametrize("name", ["a b", "a .", "LOCAL", "list", "a#b", "ü"])
@pytest.mark.parametrize("end", ["mhd", "nhdr"])
@pytest.mark.parametrize("compress", [True, False])
def test_names_that_a_header_can_say(name: str, end: str, compress: bool, tmp_path: Path):
    path = tmp_path / f"{name}.{end}"
    images.write(path, noise(4), compress=compress)
    np.testing.assert_array_equal(sitk.GetArrayFromImage(sitk.ReadImage(path)), noise(4).array)
    np.testing.assert_array_equal(images.read(path).array, noise(4).array)


@pytest.mark.parametrize(
    "first, second, packed",
    [
        ("q.mhd", "q.nhdr", False), ("q.nhdr", "q.mhd", False), ("other.mhd", "q.nhdr", False),
        ("q.hdr", "q.hdr.gz", True), ("q.img.gz", "q.img", False), ("q.mhd", "q.nhdr", True),
    ],
)  # fmt: skip
def test_two_headers_share_no_voxels(first: str, second: str, packed: bool, tmp_path: Path):
    one, other = noise(4), noise(5)
    images.write(tmp_path / first, one, compress=packed)
    if first == "other.mhd":
        text = (tmp_path / first).read_text().replace("other.raw", "q.raw")
        (tmp_path / first).write_text(text)
        (tmp_path / "other.raw").rename(tmp_path / "q.raw")
    if packed and "hdr.gz" not in second:  # .zraw and .raw.gz
        images.write(tmp_path / second, other, compress=packed)
        np.testing.assert_array_equal(images.read(tmp_path / second).array, other.array)
    else:
        says = f"{second} cannot be written: .*lies there.*choose another name"
        refused(errors.OutputUnwritableError, says, images.write, tmp_path / second, other, packed)
    np.testing.assert_array_equal(images.read(tmp_path / first).array, one.array)
    images.write(tmp_path / first, one.like(-one.array), compress=packed)  # over itself
    np.testing.assert_array_equal(images.read(tmp_path / first).array, -one.array)


@pytest.mark.parametrize("end", ["nii.gz", "nrrd", "mha"])
@pytest.mark.parametrize(
    "place, error",
    [
        *(({"spacing": (s, 1, 1)}, errors.InvalidSpacingError) for s in (0, -1, np.nan, np.inf)),
        ({"origin": (np.nan, 0, 0)}, errors.InvalidSpacingError),
        ({"direction": np.zeros(9)}, errors.InvalidDirectionError),
        ({"direction": np.full(9, np.nan)}, errors.InvalidDirectionError),
    ],
)
def test_an_image_that_lies_nowhere_is_not_written(place, error, end: str, tmp_path: Path):
    image = images.Image(noise(4).array, name="thing", **place)
    refused(error, "thing: the .*; give", images.write, tmp_path / f"a.{end}", image)
    if "spacing" in place and not np.isfinite(place["spacing"][0]):
        by_itk = noise(4).to_sitk()
        by_itk.SetSpacing(place["spacing"])
        refused(
            error, f"a.{end} cannot be written: .*give", images.write, tmp_path / f"a.{end}", by_itk
        )
    assert not list(tmp_path.iterdir())


def test_images_are_read_while_transforms_are_written(tmp_path: Path):
    """In a batch one worker may read while another writes. ITK tries HDF5 on every file, and HDF5
    is not thread-safe.
    """
    code = """if True:
        import sys, threading
        from pathlib import Path
        import SimpleITK as sitk
        from morphseek import images
        from morphseek.transforms import apply_by_blocks, files
        folder, transform = Path(sys.argv[1]), sitk.DisplacementFieldTransform(sitk.Image([8] * 3, sitk.sitkVectorFloat64))
        small = sitk.Image([8] * 3, sitk.sitkFloat32)
        sitk.WriteImage(small, str(folder / "a.nii.gz"))
        read = lambda: [images.read(folder / "a.nii.gz", "image") for _ in range(400)]
        tasks = (
            lambda: [files.write(folder / "a.h5", transform) for _ in range(400)],
            lambda: [images.write(folder / "image.nrrd", small) for _ in range(100)], read, read,
        )
        threads = [threading.Thread(target=task) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("done")
    """  # noqa: E501 a program
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", ""), done.stderr[-2000:]


def test_unwritable(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.nrrd").mkdir()
    for name, says in {
        "file/image.nrrd": "file",
        "image.unknown": "no image format .*; use .nii.gz",
        # these formats lose the grid, or end the process on a full disk
        **dict.fromkeys(("image.tif", "image.vtk", "image.h5", "image.mnc"), "keeps a volume's gr"),
        "image.MHA": "image.MHA cannot be written under that name .*lower case",
        "folder.nrrd": "folder.nrrd is a folder",
        "nowhere/image.nrrd": "there is no folder .*nowhere; make it first",
    }.items():
        refused(errors.OutputUnwritableError, says, images.write, tmp_path / name, noise(4))
    for name, says in (("file", "is a file"), ("x" * 300, "xxx")):
        refused(errors.OutputUnwritableError, says, _files.output_folder(tmp_path / name).__enter__)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.nrrd"]


def test_voxels_behind_itks_header(tmp_path: Path):
    """ITK and nibabel read files that we write ourselves as they read ITK's."""
    rng = np.random.default_rng(5)
    turn = sitk.Euler3DTransform()
    turn.SetRotation(0.3, -0.2, 0.1)
    shape = (7, 60, 70)
    image = images.Image(
        np.where(rng.random(shape) < 0.5, 0, rng.standard_normal(shape)).astype(np.float32),
        (0.7, 1.1, 2.5), (-31.5, 12.25, 7.0), turn.GetMatrix(),
    )  # fmt: skip
    sitk.WriteImage(image.to_sitk(), tmp_path / "itk.nii.gz")
    images.write(tmp_path / "own.nii.gz", image)
    own, itk = (nibabel.load(tmp_path / f"{name}.nii.gz") for name in ("own", "itk"))
    assert own.header.binaryblock == itk.header.binaryblock
    assert np.array_equal(own.dataobj, itk.dataobj)
    again = images.read(tmp_path / "own.nii.gz")
    assert np.array_equal(again.array, image.array)
    assert np.allclose(again.grid.numbers, image.grid.numbers, atol=1e-6)

    vectors = rng.standard_normal((*shape, 3)).astype(np.float32)
    like = image.grid.place(sitk.GetImageFromArray(vectors, isVector=True))
    sitk.WriteImage(like, tmp_path / "itk.nrrd", useCompression=False)
    images.write_vectors(tmp_path / "own.nrrd", vectors, image.grid)
    assert (tmp_path / "own.nrrd").read_bytes() == (tmp_path / "itk.nrrd").read_bytes()


@contextlib.contextmanager
def small_files(folder: Path) -> Iterator[Path]:
    """Let no file be larger than 64 KiB, as on a full disk."""
    resource = pytest.importorskip("resource", reason="no limit on a file's size")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        yield folder
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("limited", [small_files, small_disk])
def test_full_disk(limited: Callable[[Path], Any], tmp_path: Path):
    """ITK does not notice it while it writes a compressed NIfTI."""
    with limited(tmp_path) as folder:
        images.write(folder / "image.nii.gz", noise(4))
        before = (folder / "image.nii.gz").read_bytes()
        for name in ("image.nii.gz", "a.nii", "a.nii.gz", "a.hdr", "a.img.gz", "a.nrrd", "a.mha"):
            for compress in (True, False):
                if compress and limited is small_files and name in ("a.nrrd", "a.mha"):
                    continue  # "File too large" is no full disk
                with pytest.raises(errors.DiskFullError):
                    images.write(folder / name, noise(), compress=compress)
        for name in ("t.h5", "t.tfm"):
            with pytest.raises(errors.DiskFullError):
                files.write(folder / name, FIELD)
        with pytest.raises(errors.DiskFullError), _files.output_folder(folder / "out") as out:
            _files.write_text(out / "report.json", "x" * 10)
            images.write(out / "warped.nii.gz", noise())
        assert (folder / "image.nii.gz").read_bytes() == before
        assert [p.name for p in folder.iterdir()] == ["image.nii.gz"]


def interrupted(folder: Path, at: int) -> bool:
    """Write to a folder with Ctrl-C at that line of Python; return whether the interrupt came
    before the staging folder existed.
    """
    lines = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == at:
            signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with _files.output_folder(folder):
            sys.settrace(before)
            return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("name", ["new/out", "."])
def test_ctrl_c_at_any_line_leaves_nothing(name: str, tmp_path: Path):
    at = 1
    while interrupted(tmp_path / name, at):
        assert os.listdir(tmp_path) == [], f"at line {at}"
        at += 1
    assert at > 20


def test_output_folder_all_or_nothing(tmp_path: Path):
    target = tmp_path / "new" / "deep"
    with pytest.raises(KeyboardInterrupt), _files.output_folder(target) as folder:
        (folder / "a").write_text("1")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with _files.output_folder(target) as folder:
        (folder / "a").write_text("1")
    assert [p.name for p in target.iterdir()] == ["a"]
    with pytest.raises(ValueError), _files.output_folder(target, ("a", "b"), "b") as folder:
        (folder / "a").write_text("2")
        raise ValueError
    assert (target / "a").read_text(encoding="utf-8") == "1"
    for name in ("b", "other"):
        (target / name).write_text("{}")
    (target / "b").unlink()
    _files.write_seal(target / "b", {})  # which lists the others
    with _files.output_folder(target, ("a", "b"), "b") as folder:
        (folder / "b").write_text("2")
    assert sorted(p.name for p in target.iterdir()) == ["b", "other"]
    with _files.output_folder(target, ("a", "b"), "b"):
        pass  # a call that writes nothing removes nothing
    assert (target / "b").read_text(encoding="utf-8") == "2"


def test_staging_folders_of_the_dead_are_removed(tmp_path: Path):
    """Staging folders in use stay: those of another call in this process, of another process, and
    of another host that was active a moment ago.
    """
    pytest.importorskip("fcntl")
    stay = tmp_path / ".morphseek-another-host-x"
    stay.mkdir()
    script = """if True:
        import sys, time
        from morphseek import _files
        with _files.output_folder(sys.argv[1]) as folder:
            print(folder.name, flush=True)
            time.sleep(100)
    """
    words = [sys.executable, "-c", script, tmp_path]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    theirs = tmp_path / process.stdout.readline().strip()
    begin, says = _files.output_folder(tmp_path).__enter__, "another call of morphseek"
    refused(errors.OutputUnwritableError, says, begin)
    with _files.replacing(tmp_path / "c") as outer, _files.replacing(tmp_path / "a") as inner:
        inner.write_text("1")
        outer.write_text("1")
        assert {theirs, outer.parent, inner.parent, stay} == set(tmp_path.iterdir())
    with process:
        process.terminate()
    os.utime(stay, (0, 0))
    _files.write_text(tmp_path / "b", "2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Staging folders in use stay there, too, as those of other hosts do."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "not implemented")))
    with _files.output_folder(tmp_path) as outer, _files.replacing(outer / "a") as inner:
        inner.write_text("1")
        _files.write_text(outer / "b", "2")
        _files.settle(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_seal(tmp_path: Path):
    """The file that says that the results are complete stays until there are new results."""
    for name in ("seal", "a"):
        (tmp_path / name).write_text("old")
    with pytest.raises(ValueError), _files.output_folder(tmp_path, ("a",), "seal"):
        raise ValueError
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "seal"]
    with _files.output_folder(tmp_path, ("a",), "seal") as folder:
        assert (tmp_path / "seal").exists()
        (folder / "a").write_text("new")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_inputs_are_not_written_over(tmp_path: Path):
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    (out / "a").write_text("1")
    (tmp_path / "link").symlink_to(out / "a")
    other.symlink_to(out)
    if not other.samefile(out):
        pytest.skip("this system has no symbolic links")
    for path in (out / "a", out / ".." / "out" / "a", tmp_path / "link", str(other / "a")):
        given = {"moving": tmp_path / "a", "fixed_mask": path}
        invalid("fixed mask: .*would be written", check_apart, other, ("a", "b"), given)
    # two headers may share one file of voxels
    for kind, written in ((".hdr", ".img"), (".nhdr", ".nhdr"), (".mhd", ".mhd")):
        images.write(out / f"pair{kind}", images.Image(blob()))
        moving = {"moving": out / f"pair{kind}"}
        invalid("moving: .*pair", check_apart, out, (f"pair{written}",), moving)
    check_apart(out, ("a",), {"fixed": blob(), "moving": out / "c", "fixed_mask": None})
