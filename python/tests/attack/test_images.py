"""Untrusted image files: each is read correctly or refused with a message; nothing crashes."""

import contextlib
import itertools
import os
import time
from pathlib import Path

import image_cases as cases
import numpy as np
import pytest
import SimpleITK as sitk

from helpers import unreadable
from morphseek import errors, images


@pytest.mark.parametrize("name", cases.SOUND)
def test_sound(name: str, tmp_path: Path):
    (tmp_path / name).write_bytes(cases.SOUND[name])
    image = images.read(tmp_path / name)
    np.testing.assert_array_equal(image.array, cases.VOXELS)
    assert image.spacing == (1, 1, 2.5)


@pytest.mark.parametrize("name", cases.UNSOUND)
def test_unsound(name: str, tmp_path: Path):
    data, words = cases.UNSOUND[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(errors.InputUnreadableError) as caught:
        images.read(tmp_path / name, "moving labels")
    assert words in str(caught.value) and str(caught.value).startswith("moving labels: ")


@pytest.mark.parametrize("end", ["mha", "nrrd"])
def test_no_flip_changes_voxels(end: str, tmp_path: Path):
    whole = cases.SOUND[f"packed.{end}"]
    stream = len(cases.ZLIB if end == "mha" else cases.GZIP)
    path = tmp_path / f"a.{end}"
    for byte, bit in itertools.product(range(len(whole) - stream, len(whole), 3), (0, 5)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            array = images.read(path).array
        except errors.InputUnreadableError:
            continue
        np.testing.assert_array_equal(array, cases.VOXELS)


def test_a_mapped_file_that_was_cut(tmp_path: Path):
    path = tmp_path / "a.raw"
    path.write_bytes(cases.RAW * 8)  # more than a page of memory
    mapped = np.memmap(path, "<i2", "r", shape=(48, 7, 8))
    views = {"slices": mapped[40:], "reversed": mapped[::-1].T}
    whole = images.read(mapped[:6])
    try:
        os.truncate(path, 100)
    except PermissionError:
        pytest.skip("this system cuts no file that is mapped")
    for name, view in views.items():
        unreadable(f"{name} .* 100 bytes of 5376", images.read, view, name)
    np.testing.assert_array_equal(whole.array, cases.VOXELS)  # a copy in memory


@pytest.mark.parametrize("name", ["bomb.nii.gz", "bomb.mha", "bomb.nrrd"])
def test_a_bomb_costs_nothing(name: str, tmp_path: Path):
    resource = pytest.importorskip("resource", reason="no account of what was used")
    (tmp_path / name).write_bytes(cases.UNSOUND[name][0])
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(errors.InputUnreadableError):
        images.read(tmp_path / name)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000 and time.process_time() - started < 1  # kB and s


@pytest.mark.parametrize(
    "limit, error, words",
    [
        ("1e-7", errors.InputUnreadableError, "set MORPHSEEK_INPUT_LIMIT_GB"),
        *((limit, errors.InvalidArgumentError, "MORPHSEEK_INPUT_LIMIT_GB is .*number of GiB")
          for limit in ("much", "nan", "-1")),
        ("", None, ""),
    ],
)  # fmt: skip
def test_the_limit_can_be_set(limit, error, words, tmp_path, monkeypatch):
    (tmp_path / "a.mha").write_bytes(cases.SOUND["plain.mha"])
    monkeypatch.setenv("MORPHSEEK_INPUT_LIMIT_GB", limit)
    with pytest.raises(error, match=words) if error else contextlib.nullcontext():
        images.read(tmp_path / "a.mha")


@pytest.mark.parametrize("end", ["mha", "nrrd", "mhd", "nhdr"])
@pytest.mark.parametrize("pixels", [sitk.sitkUInt8, sitk.sitkInt64, sitk.sitkVectorFloat64])
@pytest.mark.parametrize("packed", [False, True])
def test_what_itk_writes_passes(end: str, pixels: int, packed: bool, tmp_path: Path):
    image = sitk.Image([5, 6, 7], pixels)
    path = tmp_path / f"a.{end}"
    sitk.WriteImage(image, str(path), useCompression=packed)
    if pixels == sitk.sitkVectorFloat64:
        assert images.read_vectors(path).shape[:3] == (7, 6, 5)
    else:
        assert images.read(path).array.shape == (7, 6, 5)
