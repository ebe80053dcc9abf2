"""An untrusted file's claims neither fill the memory nor occupy the processor: input that is too
large is refused at once.
"""

import json
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import BUNDLES, QUICK, blob, unreadable
from morphseek import Registration, errors, images, studies, worker
from morphseek._engine import core
from morphseek.landmarks import Landmarks
from morphseek.transforms import h5


def refused(read: Callable[[], object], words: str) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    unreadable(words, read)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", ["pairs.csv", "split.json", "a.fcsv", "a.mrk.json", "a.csv"])
def test_a_list_of_a_million_rows(name: str, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(b"fixed,moving,id\n" + b"a.nii.gz,b.nii.gz,1\n" * 1_000_000)
    read = studies.read_pairs if name in ("pairs.csv", "split.json") else Landmarks.read
    refused(lambda: read(path), f"{name}.* it has 19 MiB, more than")


def epi_of(sidecar: Path) -> object:
    image = images.Image(np.ones((8, 8, 8), np.float32))
    images.write(sidecar.with_suffix(".nii"), image)
    return morphseek.correct_epi(sidecar.with_suffix(".nii"), image)


def group_of(folder: Path) -> None:
    """Raise what the group level says of a damaged description."""
    _, problems = studies.write_group(folder)
    raise errors.InputUnreadableError(problems[0] if problems else "nothing is said")


JSON_READERS: dict[str, Callable[[Path], object]] = {
    "split.json": studies.read_pairs,
    "a.mrk.json": Landmarks.read,
    "preset.json": morphseek.presets.load,
    "run/report.json": lambda path: morphseek.Registration.read(path.parent),
    "template/template.json": lambda path: studies.Template.read(path.parent),
    "study/summary.json": lambda path: studies.morphometry(path.parent),
    "other/summary.json": lambda path: studies.compare(studies.Study([]), path.parent),
    "work/request.json": lambda path: worker.run(path.parent, print),
    "bids.json": epi_of,
    "sub-1/a_mode-image_xfm.json": lambda path: group_of(path.parent.parent),
}
NESTED = {
    "without end": b"[" * 200_000,
    "deep": b'{"pairs":' * 200_000 + b"1" + b"}" * 200_000,
    "not so deep": b"[" * 200 + b"]" * 200,  # Python reads it, and what walks through it may not
}


NO_JSON = {
    **{name: (content, "{0.name}.*nested too deeply") for name, content in NESTED.items()},
    "a bracket": (b"{", "{0}"),
    "bytes": (b"\xff\xfe\x00", "{0}"),
    "brackets": (b"[1" * 5, "{0}"),
    "words": (b"NaN NaN", "{0}"),
    "a long number": (b"[" + b"1" * 5000 + b"]", "{0}"),
}


@pytest.mark.parametrize("content", NO_JSON)
@pytest.mark.parametrize("name", JSON_READERS)
def test_what_is_no_json(name: str, content: str, tmp_path: Path):
    path, (data, words) = tmp_path / name, NO_JSON[content]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    refused(lambda: JSON_READERS[name](path), words.format(path))


def test_a_manifest_of_brackets(tmp_path: Path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(BUNDLES / "tiny.onnx")
    (entry,) = (one for one in model.metadata_props if one.key == "morphseek_manifest")
    manifest = json.loads(entry.value)
    deep = '{"a": ' + "[" * 5000 + "]" * 5000 + "}"
    entry.value = json.dumps({**manifest, "metrics": "HERE"}).replace('"HERE"', deep)
    onnx.save(model, tmp_path / "deep.onnx")
    with pytest.raises(errors.ModelCorruptError, match="deep.onnx.*nested too deeply"):
        core.verify_model(str(tmp_path / "deep.onnx"))


def small_series() -> studies.Series:
    return morphseek.correct_motion(np.stack([blob((10, 11, 12))] * 2), reference=0)


def small_epi() -> studies.EPICorrection:
    image = images.Image(blob((10, 11, 12)))
    return morphseek.correct_epi(image, image, phase_encoding="j")


SAVERS: dict[str, Callable[[Registration], Any]] = {
    "report.json": lambda result: result,
    "series.json": lambda _: small_series(),
    "epi.json": lambda _: small_epi(),
}


@pytest.mark.parametrize("brackets", NESTED)
@pytest.mark.parametrize("seal", SAVERS)
def test_a_list_of_brackets_where_results_go(seal, brackets, result, tmp_path):
    """It is no earlier run's list: nothing there is removed, and the results are written."""
    made = SAVERS[seal](result)
    (tmp_path / seal).write_bytes(NESTED[brackets])
    (tmp_path / "fieldmap.nii.gz").write_text("mine")
    (tmp_path / "uncertainty.nrrd").write_text("mine")
    made.save(tmp_path)
    assert json.loads((tmp_path / seal).read_text())["files"]
    assert (tmp_path / "fieldmap.nii.gz").read_text() == "mine"
    assert (tmp_path / "uncertainty.nrrd").read_text() == "mine"


def test_a_list_of_brackets_in_a_batch(files: dict[str, Path], tmp_path: Path):
    """Pairs, and targets of labels, whose files tell nothing are done again."""
    out, labels = tmp_path / "out", tmp_path / "labels"
    pair = [(files["fixed"], files["moving"])]
    atlases = [(files["moving"], files["moving_labels"])]
    for _ in range(2):
        assert morphseek.register_pairs(pair, out, **QUICK).rows[0].status == "done"
        done = studies.propagate_labels([files["fixed"]], atlases, labels, **QUICK)
        assert done.rows[0].status == "done"
        told = [path for path in tmp_path.rglob("*.json") if "cache" not in path.parts]
        assert {path.name for path in told} >= {"pair.json", "report.json", "labels.json"}
        for path in told:
            path.write_bytes(NESTED["without end"])


def test_a_folder_of_many_files(tmp_path: Path):
    for i in range(20_001):
        (tmp_path / f"{i}.dcm").touch()
    refused(lambda: images.read(tmp_path), "holds more than 20000 files")


def test_a_transform_that_claims_more_than_it_has(tmp_path: Path):
    path = tmp_path / "t.h5"
    part = h5.Part("TranslationTransform", np.zeros(0), np.array([1.0, 2, 3]))
    h5.write(path, [part])
    assert morphseek.Transform.read(path).transform_points([[0, 0, 0]]).tolist() == [[1, 2, 3]]
    data, three = path.read_bytes()[:-1], struct.pack("<BBBxxxxxQ", 1, 1, 0, 3)  # no index
    assert data.count(three) == 1
    path.write_bytes(data.replace(three, struct.pack("<BBBxxxxxQ", 1, 1, 0, 10**12)))
    refused(lambda: morphseek.Transform.read(path), "t.h5 cannot be read")


def test_an_image_in_hdf5_that_claims_more_than_it_has(tmp_path: Path):
    path = tmp_path / "i.h5"
    sitk.WriteImage(sitk.Image(20, 30, 40, sitk.sitkInt16), str(path))
    assert images.read(path).array.shape == (40, 30, 20)
    data, sizes = path.read_bytes(), struct.pack("<QQQ", 40, 30, 20)
    assert sizes in data
    path.write_bytes(data.replace(sizes, struct.pack("<QQQ", 4000, 3000, 2000)))
    refused(lambda: images.read(path), "i.h5 cannot be read")
