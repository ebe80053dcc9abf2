"""An untrusted file's claims neither fill the memory nor occupy the processor: input that is too
large is refused at once.
"""

from __future__ import annotations

import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from morphseek import errors, images
from morphseek.cohort import lists
from morphseek.landmarks import Landmarks
from morphseek.transforms import h5


def refused(read: Callable[[], object], words: str) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(errors.InputUnreadableError, match=words):
        read()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", ["pairs.csv", "split.json", "a.fcsv", "a.mrk.json", "a.csv"])
def test_a_list_of_a_million_rows(name: str, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(b"fixed,moving,id\n" + b"a.nii.gz,b.nii.gz,1\n" * 1_000_000)
    read: dict[str, Callable[[Path], object]] = {
        "pairs.csv": lists.read_list,
        "split.json": lists.read_pairs,
    }
    refused(lambda: read.get(name, Landmarks.read)(path), f"{name}.* it has 19 MiB, more than")


@pytest.mark.parametrize("name", ["split.json", "a.mrk.json"])
def test_brackets_without_end(name: str, tmp_path: Path):
    (tmp_path / name).write_bytes(b"[" * 100_000)
    read = lists.read_pairs if name == "split.json" else Landmarks.read
    refused(lambda: read(tmp_path / name), "nested too deeply")


def test_a_folder_of_many_files(tmp_path: Path):
    for i in range(20_001):
        (tmp_path / f"{i}.dcm").touch()
    refused(lambda: images.read(tmp_path), "holds more than 20000 files")


def test_a_transform_that_claims_more_than_it_has(tmp_path: Path):
    path = tmp_path / "t.h5"
    part = h5.Part("TranslationTransform", np.zeros(0), np.array([1.0, 2, 3]))
    h5.write(path, [part])
    assert morphseek.read_transform(path).transform_points([[0, 0, 0]]).tolist() == [[1, 2, 3]]
    data, three = path.read_bytes(), struct.pack("<BBBxxxxxQ", 1, 1, 0, 3)
    assert data.count(three) == 1
    path.write_bytes(data.replace(three, struct.pack("<BBBxxxxxQ", 1, 1, 0, 10**12)))
    refused(lambda: morphseek.read_transform(path), "t.h5 cannot be read")


def test_an_image_in_hdf5_that_claims_more_than_it_has(tmp_path: Path):
    path = tmp_path / "i.h5"
    sitk.WriteImage(sitk.Image(20, 30, 40, sitk.sitkInt16), str(path))
    assert images.read(path).array.shape == (40, 30, 20)
    data, sizes = path.read_bytes(), struct.pack("<QQQ", 40, 30, 20)
    assert sizes in data
    path.write_bytes(data.replace(sizes, struct.pack("<QQQ", 4000, 3000, 2000)))
    refused(lambda: images.read(path), "i.h5 cannot be read")
