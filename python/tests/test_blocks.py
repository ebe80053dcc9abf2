"""Compares images that are resampled block by block with those that are resampled at once."""

import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from test_things import A, bend_of

from helpers import blob, oblique, refused, run, unreadable
from morphseek import Image, Transform, errors, images
from morphseek.transforms import apply_by_blocks, blocks

SMALL = 60_000  # bytes: some dozen blocks


@pytest.fixture(scope="module")
def fixed() -> Image:
    return oblique(blob((22, 26, 30), noise=0))


@pytest.fixture(scope="module")
def turned(fixed: Image) -> Transform:
    """Return a turn across the axes, so that one slice reads many."""
    middle = fixed.index_to_physical @ [15, 13, 11, 1]
    rotation = sitk.Euler3DTransform(middle[:3].tolist(), 0.7, 0.4, 0.9)
    return Transform.of(sitk.CompositeTransform([A, rotation, bend_of(fixed)]), fixed.grid)


@pytest.fixture(scope="module")
def moving() -> Image:
    values = blob((30, 34, 38), 0.1, noise=0.02)
    return oblique(np.round(1000 * (values - 0.3)).astype(np.int16))


@pytest.mark.parametrize("interpolation", ["linear", "cubic", "sinc", "nearest", "label"])
@pytest.mark.parametrize("ending", [".nii", ".nrrd", ".mha"])
def test_as_in_one_piece(interpolation, ending, fixed, turned, moving, tmp_path):
    image = moving
    if interpolation in ("nearest", "label"):
        image = moving.like((np.abs(moving.array) // 100).astype(np.uint8))
    source, out = tmp_path / f"moving{ending}", tmp_path / "out.nii.gz"
    images.write(source, image, compress=False)
    apply_by_blocks(turned, source, out, interpolation=interpolation, memory=SMALL)
    got, want = images.read(out), turned.apply(image, interpolation=interpolation)
    assert got.array.dtype == want.array.dtype == image.array.dtype
    np.testing.assert_allclose(got.grid.numbers, fixed.grid.numbers, atol=1e-5)
    differ = got.array.astype(np.int64) - want.array
    # values halfway may be rounded either way, because a block has another origin
    assert (differ != 0).mean() < 1e-3
    assert interpolation in ("nearest", "label") or np.abs(differ).max() <= 1
    assert len(np.unique(got.array)) > 5


@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".nrrd"])
def test_what_is_written(ending, fixed, turned, moving, tmp_path):
    images.write(tmp_path / "m.nii", moving, compress=False)
    images.write(tmp_path / "f.nii.gz", fixed)
    turned.save(tmp_path / "t.h5")
    out = tmp_path / f"out{ending}"
    arguments = ["apply", "-t", tmp_path / "t.h5", "-i", tmp_path / "m.nii", "-o", out,
                 "-r", tmp_path / "f.nii.gz", "--dtype", "float32"]  # fmt: skip
    run(*arguments, "--memory", "1")
    got, want = images.read(out), turned.apply(moving, dtype="float32")
    np.testing.assert_allclose(got.array, want.array, atol=1e-3)
    np.testing.assert_allclose(got.grid.numbers, fixed.grid.numbers, atol=1e-5)


def test_the_header_of_a_series_is_reference_enough(turned, fixed, moving, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "target_grid", None)
    images.write(tmp_path / "m.nii", moving, compress=False)
    sitk.WriteImage(sitk.JoinSeries([fixed.to_sitk()] * 3), str(tmp_path / "s.nii.gz"))
    names = [tmp_path / name for name in ("m.nii", "o.nii", "s.nii.gz")]
    apply_by_blocks(turned, *names, memory=SMALL)
    np.testing.assert_allclose(images.read(names[1]).grid.numbers, fixed.grid.numbers, atol=1e-4)


def test_modulated_and_with_a_background(turned, moving, fixed, tmp_path):
    images.write(tmp_path / "m.mha", moving, compress=False)
    for how in ({"modulate": True}, {"background": -7.0}, {"dtype": "uint8"}):
        out = tmp_path / "o.nrrd"
        apply_by_blocks(turned, tmp_path / "m.mha", out, memory=SMALL * 4, **how)
        got, want = images.read(out).array, turned.apply(moving, **how).array
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, atol=1 if got.dtype.kind in "iu" else 0.01)


def test_labels_that_would_be_blended_are_told(turned: Transform, moving: Image, tmp_path: Path):
    images.write(tmp_path / "m.nii", moving.like(np.full(moving.array.shape, 3, np.uint8)))
    apply_by_blocks(turned, tmp_path / "m.nii", tmp_path / "o.nii", memory=SMALL)
    images.write(tmp_path / "m.nii", moving.like(np.uint8(5) * (moving.array > 0)))
    with pytest.warns(errors.InputWarning, match="m.nii: its voxels look like the numbers of lab"):
        apply_by_blocks(turned, tmp_path / "m.nii", tmp_path / "o.nii", memory=SMALL)


def test_values_beyond_the_image(fixed: Image, moving: Image, tmp_path: Path):
    images.write(tmp_path / "m.nii", moving, compress=False)
    far = Transform.of(sitk.TranslationTransform(3, (500.0, 0.0, 0.0)), fixed.grid)
    apply_by_blocks(far, tmp_path / "m.nii", tmp_path / "o.nii", memory=SMALL)
    np.testing.assert_array_equal(images.read(tmp_path / "o.nii").array, moving.array.min())


@pytest.mark.parametrize(
    "name, out, says",
    [
        ("m.nii.gz", "o.nii", "is compressed"),
        ("m.nii", "o.mha", "by blocks .nii"),
        ("none.nii", "o.nii", "does not exist"),
        ("t.h5", "o.nii", "is no .nii"),
        ("short.nii", "o.nii", "cut short"),
    ],
)
def test_what_cannot_be_done(name, out, says, turned, moving, tmp_path):
    images.write(tmp_path / "m.nii.gz", moving)
    images.write(tmp_path / "m.nii", moving, compress=False)
    turned.save(tmp_path / "t.h5")
    (tmp_path / "short.nii").write_bytes((tmp_path / "m.nii").read_bytes()[:-99])
    refused(errors.MorphSeekError, says, apply_by_blocks, turned, tmp_path / name, tmp_path / out)
    assert not (tmp_path / out).exists()


def test_what_does_not_fit_is_done_by_blocks(turned, moving, tmp_path, monkeypatch):
    images.write(tmp_path / "m.nii", moving, compress=False)
    images.write(tmp_path / "m.nii.gz", moving)
    out = tmp_path / "o.nii"
    assert not blocks.needs_blocks(tmp_path / "m.nii", out, turned, None)
    monkeypatch.setattr(blocks.core, "available_memory", lambda: 10**6)  # in a container, say
    assert blocks.needs_blocks(tmp_path / "m.nii", out, turned, None)
    assert not blocks.needs_blocks(tmp_path / "m.nii.gz", out, turned, None)
    assert not blocks.needs_blocks(tmp_path / "m.nii", tmp_path / "o.mha", turned, None)
    taken = []
    monkeypatch.setattr(blocks, "apply_by_blocks", lambda *_, memory, **how: taken.append(memory))
    turned.save(tmp_path / "t.h5")
    run("apply", "-t", tmp_path / "t.h5", "-i", tmp_path / "m.nii", "-o", out)
    assert taken[0] <= 10**6  # and not the 1024 MiB of a large machine


_PEAK = """
import re, sys
import numpy as np, SimpleITK as sitk
from morphseek import Grid, Image, Transform, images
from morphseek.transforms import apply_by_blocks
source, out, blocks = sys.argv[1:]
grid = Grid((224, 224, 224))
t = Transform.of(sitk.Euler3DTransform((112.0, 112.0, 112.0), 0.1, 0.2, 0.3), grid)
small = Image(np.zeros((8, 8, 8), np.float32))
Transform.of(sitk.TranslationTransform(3), small.grid).apply(small)  # what libraries take at first
def peak():  # ru_maxrss begins with the parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = peak()
if blocks == "yes":
    apply_by_blocks(t, source, out, memory=16 << 20)
else:
    images.write(out, t.apply(source))
print(peak() - before)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells a process's peak")
def test_the_memory_is_bounded(tmp_path: Path):
    array = np.zeros((224, 224, 224), np.int16)
    array[40:180, 60:160, 50:170] = 500
    images.write(tmp_path / "m.nii", Image(array), compress=False)

    def peak(how: str) -> int:
        command = [sys.executable, "-c", _PEAK, tmp_path / "m.nii", tmp_path / f"{how}.nii", how]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
        return int(done.stdout)

    whole, parts = peak("no"), peak("yes")
    print(f"whole {whole >> 20} MiB, by blocks {parts >> 20} MiB")
    assert parts < 60 << 20 < 100 << 20 < whole
    both = (images.read(tmp_path / f"{name}.nii").array for name in ("no", "yes"))
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize("kind", [nibabel.Nifti1Pair, nibabel.Nifti2Pair])
@pytest.mark.parametrize("offset", [0, 16, 352])
def test_a_pair_whose_voxels_begin_later(kind, offset: int, moving: Image, tmp_path: Path):
    pair = kind(moving.array.T, np.diag([-1, -1, 1, 1]) @ moving.index_to_physical)
    pair.header.set_data_offset(offset)
    nibabel.save(pair, tmp_path / "a.img")
    truth = np.asarray(nibabel.load(tmp_path / "a.img").dataobj).T
    unmoved = Transform.of(sitk.Transform(3, sitk.sitkIdentity))
    for name in ("a.hdr", "a.img"):
        np.testing.assert_array_equal(images.read(tmp_path / name).array, truth)
        apply_by_blocks(unmoved, tmp_path / name, tmp_path / "b.nii", tmp_path / name)
        np.testing.assert_array_equal(images.read(tmp_path / "b.nii").array, truth)
    with open(tmp_path / "a.img", "r+b") as file:
        file.truncate(offset + truth.nbytes - 1)
    unreadable("cut short", images.read, tmp_path / "a.hdr")
