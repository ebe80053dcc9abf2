"""Images of every kind give the same voxels in the same place; files are whole or not there."""

from __future__ import annotations

import gc
import gzip
import os
import resource
import shutil
import subprocess
import threading
import time
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

from conftest import blob, oblique
from morphseek import errors, io


@pytest.fixture(scope="module")
def reference() -> io.Image:
    return oblique((1000 * blob((7, 9, 11))).astype(np.int16))


def as_itk(image: io.Image):
    itk = pytest.importorskip("itk")
    made = itk.image_from_array(np.ascontiguousarray(image.array))
    made.SetSpacing(image.spacing)
    made.SetOrigin(image.origin)
    made.SetDirection(itk.matrix_from_array(np.array(image.direction).reshape(3, 3)))
    return made


def as_nibabel(image: io.Image):
    return nibabel.Nifti1Image(image.array.T, np.diag([-1, -1, 1, 1]) @ image.index_to_physical)


def write_dicom(image: io.Image, folder: Path) -> Path:
    folder.mkdir()
    volume = image.to_sitk()
    direction = np.array(image.direction).reshape(3, 3)
    uid = "1.2.826.0.1.3680043.2.1125.4.1"
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    for k in range(volume.GetDepth()):
        piece = volume[:, :, k]
        tags = {
            "0008|0060": "CT",
            "0020|000e": uid,
            "0020|0032": "\\".join(f"{v:.10g}" for v in volume.TransformIndexToPhysicalPoint((0, 0, k))),
            "0020|0037": "\\".join(f"{v:.10g}" for v in direction.T[:2].ravel()),
            "0020|0013": str(k),
        }
        for tag, value in tags.items():
            piece.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"{k:03}.dcm"))
        writer.Execute(piece)
    return folder


@pytest.mark.parametrize("kind", ["Image", "sitk", "itk", "nibabel", ".nii.gz", ".nii", ".nrrd", ".mha", "dicom"])
def test_read_kinds(kind: str, reference: io.Image, tmp_path: Path):
    if kind.startswith("."):
        source = tmp_path / f"image{kind}"
        sitk.WriteImage(reference.to_sitk(), str(source))
    else:
        source = {
            "Image": lambda: reference,
            "sitk": reference.to_sitk,
            "itk": lambda: as_itk(reference),
            "nibabel": lambda: as_nibabel(reference),
            "dicom": lambda: write_dicom(reference, tmp_path / "series"),
        }[kind]()
    read = io.read(source, "fixed")
    np.testing.assert_array_equal(read.array, reference.array)
    np.testing.assert_allclose(read.grid, reference.grid, atol=1e-4)


def test_numpy_has_unit_geometry():
    image = io.read(np.zeros((3, 4, 5)))
    np.testing.assert_array_equal(image.grid, [5, 4, 3, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1])


def test_no_copy_on_the_way_in():
    array = blob()
    assert np.shares_memory(io.read(array).float32(), array)
    image = sitk.GetImageFromArray(array)
    assert np.shares_memory(io.read(image).float32(), sitk.GetArrayViewFromImage(image))
    fortran = np.asfortranarray(array.T)  # nibabel's memory order: its transpose is C-contiguous
    assert np.shares_memory(io.read(nibabel.Nifti1Image(fortran, np.eye(4))).float32(), fortran)


def test_view_outlives_its_image():
    array = blob()
    read = io.read(sitk.GetImageFromArray(array)).float32()
    gc.collect()
    ballast = [sitk.GetImageFromArray(np.full_like(array, 7)) for _ in range(20)]  # would take the memory if it were free
    np.testing.assert_array_equal(read, array)
    assert len(ballast) == 20


def test_four_dimensional_file_of_one_volume(tmp_path: Path, reference: io.Image):
    path = tmp_path / "four.nii.gz"
    sitk.WriteImage(sitk.JoinSeries(reference.to_sitk()), str(path))
    read = io.read(path)
    np.testing.assert_array_equal(read.array, reference.array)
    np.testing.assert_allclose(read.grid, reference.grid, atol=1e-4)


@pytest.mark.parametrize(
    "source, error",
    [
        (np.zeros((4, 5)), errors.ThinVolumeError),
        (np.zeros((2, 3, 4, 5)), errors.InvalidArgumentError),
        (np.zeros((3, 4, 5), complex), errors.InvalidArgumentError),
        (np.array([["a"]]), errors.MorphSeekError),
        (sitk.Image([4, 4, 4], sitk.sitkVectorFloat32, 3), errors.InvalidArgumentError),
        (sitk.Image([4, 4], sitk.sitkFloat32), errors.ThinVolumeError),
        (42, errors.InvalidArgumentError),
        (None, errors.InvalidArgumentError),
        ("/nowhere/image.nii.gz", errors.InputUnreadableError),
    ],
)
def test_refuses(source, error):
    with pytest.raises(error, match="moving mask"):
        io.read(source, "moving mask")


def test_refuses_files(tmp_path: Path, reference: io.Image):
    garbage = tmp_path / "garbage.nii.gz"
    garbage.write_bytes(b"not an image")
    with pytest.raises(errors.InputUnreadableError, match="garbage"):
        io.read(garbage)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(errors.InputUnreadableError, match="no DICOM series"):
        io.read(empty)
    whole = tmp_path / "whole.nrrd"
    sitk.WriteImage(reference.to_sitk(), str(whole))
    truncated = tmp_path / "truncated.nrrd"
    truncated.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(errors.InputUnreadableError, match="truncated"):
        io.read(truncated)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("kept", [0.4, 0.95])
def test_cut_nifti_is_refused(suffix: str, kept: float, tmp_path: Path, reference: io.Image):
    whole, cut = tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
    sitk.WriteImage(reference.to_sitk(), str(whole))
    content = whole.read_bytes()
    cut.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(errors.InputUnreadableError, match="moving: .*cut.* is cut short"):
        io.read(cut, "moving")


def test_nifti_of_several_gzip_members(tmp_path: Path, reference: io.Image):
    plain, parts = tmp_path / "plain.nii", tmp_path / "parts.nii.gz"
    sitk.WriteImage(reference.to_sitk(), str(plain))
    content = plain.read_bytes()
    parts.write_bytes(gzip.compress(content[:1000]) + gzip.compress(content[1000:]))
    np.testing.assert_array_equal(io.read(parts).array, reference.array)


def test_dicom_with_a_gap_is_refused(tmp_path: Path, reference: io.Image):
    folder = write_dicom(reference, tmp_path / "series")
    sorted(folder.iterdir())[4].unlink()
    with pytest.raises(errors.InputUnreadableError, match="fixed: the slices in .* apart"):
        io.read(folder, "fixed")


def test_paths_that_are_no_text(tmp_path: Path, reference: io.Image):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    for call, error in (
        (lambda: io.read(odd + ".nii.gz"), errors.InputUnreadableError),
        (lambda: io.read_transform(odd + ".h5"), errors.InputUnreadableError),
        (lambda: io.write_image(odd + ".nrrd", reference), errors.OutputUnwritableError),
        (lambda: io.output_folder(odd).__enter__(), errors.OutputUnwritableError),
    ):
        with pytest.raises(error, match="no valid UTF-8"):
            call()


@pytest.mark.parametrize("field, value", [("spacing", (1, 1)), ("origin", (0,)), ("direction", np.eye(2))])
def test_geometry_of_the_wrong_length(field: str, value):
    with pytest.raises(errors.InvalidArgumentError, match=field):
        io.Image(np.zeros((3, 4, 5)), **{field: value})
    assert io.Image(np.zeros((3, 4, 5)), direction=np.eye(3)).direction == io.Image(np.zeros(3)).direction


def test_two_dicom_series_in_a_folder(tmp_path: Path, reference: io.Image):
    both = write_dicom(reference, tmp_path / "a")
    other = write_dicom(reference.like(reference.array[:4]), tmp_path / "b")
    for slice_ in other.iterdir():
        image = sitk.ReadImage(str(slice_))
        image.SetMetaData("0020|000e", "1.2.826.0.1.3680043.2.1125.4.2")
        writer = sitk.ImageFileWriter()
        writer.KeepOriginalImageUIDOn()
        writer.SetFileName(str(both / f"other-{slice_.name}"))
        writer.Execute(image)
    with pytest.raises(errors.InputUnreadableError, match="2 DICOM series"):
        io.read(both)


def test_as_kind_of(reference: io.Image):
    image = oblique(blob((4, 5, 6)))
    back = io.as_kind_of(as_nibabel(reference), image)
    assert isinstance(back, nibabel.Nifti1Image)
    np.testing.assert_allclose(io.read(back).grid, image.grid, atol=1e-6)
    np.testing.assert_array_equal(io.read(back).array, image.array)
    back = io.as_kind_of(as_itk(reference), image)
    np.testing.assert_allclose(io.read(back).grid, image.grid, atol=1e-6)
    labels = image.like(np.ones((4, 5, 6), np.int64))
    assert io.as_kind_of(nibabel.Nifti1Image(np.ones((6, 5, 4), np.int64), np.eye(4), dtype=np.int64), labels).get_data_dtype() == np.int64
    assert isinstance(io.as_kind_of("path", image), sitk.Image)
    assert io.as_kind_of(np.zeros(3), image) is image.array


def test_vector_nifti_has_intent_1007_and_lps(tmp_path: Path):
    vectors = np.arange(3 * 4 * 5 * 3, dtype=np.float32).reshape(3, 4, 5, 3)
    path = tmp_path / "field.nii.gz"
    io.write_image(path, io.placed(sitk.GetImageFromArray(vectors, isVector=True), oblique(vectors[..., 0]).grid))
    header = nibabel.load(path)
    assert int(header.header["intent_code"]) == 1007
    np.testing.assert_array_equal(np.asarray(header.dataobj)[:, :, :, 0].transpose(2, 1, 0, 3), vectors)
    np.testing.assert_array_equal(io.read_vectors(path), vectors)


def test_transforms(tmp_path: Path):
    matrix = np.array([[0.9, 0.1, 0, 5], [-0.1, 1.1, 0.2, -3], [0, 0.05, 1, 2], [0, 0, 0, 1]])
    for suffix in (".tfm", ".h5"):
        path = tmp_path / f"t{suffix}"
        io.write_transform(path, io.read_transform(matrix))
        np.testing.assert_allclose(io.linear_part(io.read_transform(path)), matrix, atol=1e-12)
    euler = sitk.Euler3DTransform((10.0, 20.0, 30.0), 0.1, 0.2, 0.3, (1.0, 2.0, 3.0))
    point = np.array([3.0, -4.0, 5.0, 1.0])
    np.testing.assert_allclose((io.linear_part(euler) @ point)[:3], euler.TransformPoint(point[:3]))
    with pytest.raises(errors.InvalidArgumentError):
        io.read_transform(np.eye(3))
    with pytest.raises(errors.SingularTransformError):
        io.read_transform(np.diag([1.0, 0, 1, 1]))
    with pytest.raises(errors.InputUnreadableError):
        io.read_transform(tmp_path / "missing.tfm")
    sitk.WriteTransform(sitk.Euler2DTransform(), str(tmp_path / "flat.tfm"))
    with pytest.raises(errors.InvalidArgumentError, match="2-D"):
        io.read_transform(tmp_path / "flat.tfm")
    (tmp_path / "bad.tfm").write_text("nonsense")
    with pytest.raises(errors.InputUnreadableError):
        io.read_transform(tmp_path / "bad.tfm")
    with pytest.raises(errors.InvalidArgumentError, match="rigid or affine"):
        io.linear_part(sitk.DisplacementFieldTransform(sitk.Image([4, 4, 4], sitk.sitkVectorFloat64)))


@pytest.mark.parametrize("suffix", [".mhd", ".nhdr", ".hdr"])
@pytest.mark.parametrize("compress", [True, False])
def test_header_finds_its_data(suffix: str, compress: bool, tmp_path: Path, reference: io.Image):
    """Where the voxels are in a file of their own, both files have the image's name, and can be moved together."""
    folder = tmp_path / "first"
    folder.mkdir()
    io.write_image(folder / f"image{suffix}", reference, compress=compress)
    written = sorted(p.name for p in folder.iterdir())
    assert len(written) == 2 and all(name.startswith("image.") for name in written)
    folder.rename(tmp_path / "second")
    np.testing.assert_array_equal(io.read(tmp_path / "second" / f"image{suffix}").array, reference.array)


def test_at_once():
    """All are waited for, whichever fails; the first one's error comes out."""
    met, done = threading.Barrier(3, timeout=30), []

    def work(number: int, error: type[Exception] | None = None):
        met.wait()  # so they run together
        if error:
            raise error(number)
        time.sleep(0.05)
        done.append(number)

    with pytest.raises(KeyError):
        io.at_once(lambda: work(0), lambda: work(1, KeyError), lambda: work(2, ValueError))
    assert done == [0]


def noise(n: int = 64) -> io.Image:
    return io.Image(np.random.default_rng(0).normal(size=(n, n, n)).astype(np.float32))


def test_unwritable(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.OutputUnwritableError, match="file"):
        io.write_image(tmp_path / "file" / "image.nrrd", noise(4))
    with pytest.raises(errors.OutputUnwritableError):
        io.write_image(tmp_path / "image.unknown", noise(4))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_write_replaces_only_when_whole(tmp_path: Path):
    """A limit on the file's size stands for the full disk: ITK does not notice it while it writes a compressed NIfTI."""
    path = tmp_path / "image.nii.gz"
    io.write_image(path, noise(4))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(errors.DiskFullError):
            io.write_image(path, noise())
        with pytest.raises(errors.DiskFullError):
            io.write_image(tmp_path / "image.nrrd", noise(), compress=False)
        for name in ("t.h5", "t.tfm"):
            with pytest.raises(errors.DiskFullError):
                io.write_transform(tmp_path / name, sitk.DisplacementFieldTransform(sitk.Image([20, 20, 20], sitk.sitkVectorFloat64)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["image.nii.gz"]


def test_full_disk(tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    if not shutil.which("mount") or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        for name in ("a.nii.gz", "a.nrrd", "a.mha"):
            with pytest.raises(errors.DiskFullError):
                io.write_image(small / name, noise())
            with pytest.raises(errors.DiskFullError):
                io.write_image(small / name, noise(), compress=False)
        for name in ("t.h5", "t.tfm"):
            with pytest.raises(errors.DiskFullError):
                io.write_transform(small / name, sitk.DisplacementFieldTransform(sitk.Image([30, 30, 30], sitk.sitkVectorFloat64)))
        with pytest.raises(errors.DiskFullError), io.output_folder(small / "out") as folder:
            io.write_text(folder / "report.json", "x" * 10)
            io.write_image(folder / "warped.nii.gz", noise())
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_output_folder_all_or_nothing(tmp_path: Path):
    target = tmp_path / "new" / "deep"
    with pytest.raises(KeyboardInterrupt), io.output_folder(target) as folder:
        (folder / "a").write_text("1")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with io.output_folder(target) as folder:
        (folder / "a").write_text("1")
    assert [p.name for p in target.iterdir()] == ["a"]
    with pytest.raises(ValueError), io.output_folder(target, ("a", "b")) as folder:
        (folder / "a").write_text("2")
        raise ValueError
    assert (target / "a").read_text() == "1"
    (target / "other").write_text("1")
    with io.output_folder(target, ("a", "b")) as folder:
        (folder / "b").write_text("2")
    assert sorted(p.name for p in target.iterdir()) == ["b", "other"]
