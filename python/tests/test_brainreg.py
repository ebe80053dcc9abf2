"""The back end for BrainGlobe's brainreg, run by brainreg's own command on a made-up atlas:
compared with a structure of known place and with NiftyReg. The test hosts-back-ends runs it in the
environment that has brainreg.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, shift
from test_named import home, zarr_atlas  # noqa: F401

from morphseek import errors

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that brainreg brings
    pytest.importorskip("brainreg.core.cli", reason="needs brainreg", exc_type=ImportError)
    import tifffile
    from brainglobe_atlasapi import config
    from brainreg.core import cli

    from morphseek import brainreg

pytestmark = pytest.mark.filterwarnings("ignore")  # brainreg's packages warn of each other
SHAPE, RESOLUTION = (64, 40, 28), np.array([25.0, 50.0, 100.0])  # axes asr; micrometres
SHIFT = (3, -2, 1)  # voxels by which the sample is off the atlas
NUMBER = 614454277  # as large as the largest numbers of the Allen atlas, too large for float32
CUBE = (slice(14, 24), slice(8, 16), slice(17, 23))  # in the front, at the top, on the left
QUICK = ["--model", "none", "--search", "off", "--refine", "0", "--threads", "1"]


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Restore the root logger, to which brainreg adds a file."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


@pytest.fixture
def brain(home: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:  # noqa: F811
    """Write an atlas and return its template; the client's request to the network fails."""

    def refuse(*_: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(config, "CONFIG_PATH", home / "config" / config.CONFIG_FILENAME)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij")
    body = 1 / (1 + np.exp(12 * ((z / 0.8) ** 2 + (y / 0.75) ** 2 + (x / 0.75) ** 2 - 1)))
    tissue = gaussian_filter(np.random.default_rng(4).normal(size=SHAPE), (4, 3, 2))
    template = (body * (2000 + 600 * tissue / tissue.std()).clip(200)).astype(np.uint16)
    structures = np.where(template > 500, np.uint32(997), np.uint32(0))
    structures[CUBE] = NUMBER
    manifest = zarr_atlas(home, template, structures)
    terms = manifest.parents[3] / "terminologies" / "fake-terms" / "1_0" / "terminology.csv"
    with terms.open("a") as file:
        file.write(f'{NUMBER},997,{NUMBER},cube,cube,#000000,"[997, {NUMBER}]"\n')
    return template


def sample(template: np.ndarray) -> np.ndarray:
    return shift(template.astype(float), SHIFT, order=1).astype(np.uint16)


def run(path: Path, array: np.ndarray, orientation: str, sizes: Any, *more: str) -> list[str]:
    """Write a sample; return brainreg's arguments."""
    tifffile.imwrite(path / "sample.tiff", array)
    return [
        str(path / "sample.tiff"), str(path / "out"), "-v", *map(str, sizes),
        "--orientation", orientation, "--atlas", "fake_mouse_25um", "--save-original-orientation",
        *more,
    ]  # fmt: skip


def center(labels: np.ndarray) -> np.ndarray:
    return np.argwhere(labels == NUMBER).mean(axis=0)


def fields(out: Path) -> np.ndarray:
    """Return where in the atlas the sample's voxels lie, in atlas voxels: (3, i, j, k)."""
    found = [tifffile.imread(out / f"deformation_field_{k}.tiff") for k in range(3)]
    return np.stack(found) * 1000 / RESOLUTION.reshape(3, 1, 1, 1)


# how an array of axes asr is stored in another orientation, and where an index goes, by hand
STORED = {
    "asr": (lambda a: a, RESOLUTION, lambda i: i),
    "psl": (lambda a: a[::-1, :, ::-1], RESOLUTION, lambda i: [63 - i[0], i[1], 27 - i[2]]),
    "ial": (
        lambda a: a.transpose(1, 0, 2)[::-1, :, ::-1], RESOLUTION[[1, 0, 2]],
        lambda i: [39 - i[1], i[0], 27 - i[2]],
    ),
    "sra": (lambda a: a.transpose(1, 2, 0), RESOLUTION[[1, 2, 0]], lambda i: [i[1], i[2], i[0]]),
}  # fmt: skip


@pytest.mark.parametrize("orientation", STORED)
def test_a_known_place_from_any_orientation(brain: np.ndarray, tmp_path: Path, orientation: str):
    stored, sizes, index = STORED[orientation]
    brainreg.main([*QUICK, *run(tmp_path, stored(sample(brain)), orientation, sizes)])
    out = tmp_path / "out"
    labels = tifffile.imread(out / "registered_atlas.tiff")
    assert labels.shape == SHAPE and set(np.unique(labels)) == {0, 997, NUMBER}
    place = np.array([(s.start + s.stop - 1) / 2 for s in CUBE]) + SHIFT
    np.testing.assert_allclose(center(labels), place, atol=0.5)
    as_stored = tifffile.imread(out / "registered_atlas_original_orientation.tiff")
    np.testing.assert_allclose(center(as_stored), index(place), atol=0.5)
    assert as_stored.shape == stored(brain).shape

    moved = fields(out) - np.indices(SHAPE)
    inside = labels == NUMBER
    np.testing.assert_allclose(moved[:, inside].mean(axis=1), np.negative(SHIFT), atol=0.2)
    halves = tifffile.imread(out / "registered_hemispheres.tiff")
    assert (halves[inside] == 1).all()  # left
    standard = tifffile.imread(out / "downsampled_standard.tiff")
    assert np.corrcoef(standard.ravel(), brain.ravel())[0, 1] > 0.99
    table = (out / "volumes.csv").read_text().splitlines()
    assert table[2].startswith("cube,") and float(table[2].split(",")[1]) == pytest.approx(
        480 * 0.000125, rel=0.1
    )

    said = json.loads((out / "brainreg.json").read_text())
    assert said["backend"] == "morphseek" and said["orientation"] == orientation
    report = json.loads((out / brainreg.REPORT).read_text())
    assert report["options"]["refine"] == 0 and report["verdict"]["grade"] == "good"
    (log,) = out.glob("*.log")
    assert "verdict" in log.read_text()


def test_finer_voxels_than_the_atlas(brain: np.ndarray, tmp_path: Path):
    fine = sample(brain).repeat(2, 0).repeat(2, 1).repeat(2, 2)
    brainreg.main([*QUICK, *run(tmp_path, fine[::-1, :, ::-1], "psl", RESOLUTION / 2)])
    labels = tifffile.imread(tmp_path / "out" / "registered_atlas.tiff")
    place = np.array([(s.start + s.stop - 1) / 2 for s in CUBE]) + SHIFT
    np.testing.assert_allclose(center(labels), place, atol=0.7)


def test_beside_niftyreg(
    brain: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    """The same files, of the same types, and the same map to a fraction of a voxel."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    given = run(tmp_path / "ours", sample(brain)[::-1, :, ::-1], "psl", RESOLUTION)
    brainreg.main(["--threads", "1", *given])
    other = run(tmp_path / "theirs", sample(brain)[::-1, :, ::-1], "psl", RESOLUTION)
    monkeypatch.setattr(sys, "argv", ["brainreg", *other])
    try:
        cli.main()
    except Exception as error:  # NiftyReg's programs exist for three systems only
        pytest.skip(f"NiftyReg does not run here: {error}")
    ours, theirs = (tmp_path / name / "out" for name in ("ours", "theirs"))
    names = {path.name for path in theirs.iterdir() if path.suffix != ".log"}
    assert {path.name for path in ours.iterdir() if path.suffix != ".log"} == {
        *names, brainreg.REPORT,
    }  # fmt: skip
    for name in names:
        if name.endswith(".tiff"):
            one, two = (tifffile.imread(folder / name) for folder in (ours, theirs))
            assert (one.shape, one.dtype) == (two.shape, two.dtype), name
    one, two = (tifffile.imread(folder / "registered_atlas.tiff") for folder in (ours, theirs))
    both = (one > 0) & (two > 0)
    assert 2 * ((one == two) & both).sum() > 0.97 * ((one > 0).sum() + (two > 0).sum())
    apart = np.abs(fields(ours) - fields(theirs))[:, both]
    assert np.median(apart, axis=1).max() < 0.25
    assert json.loads((theirs / "brainreg.json").read_text())["backend"] == "niftyreg"


def test_refused(brain: np.ndarray, tmp_path: Path, capsys: Any):
    given = run(tmp_path, sample(brain), "asr", RESOLUTION)
    for more, code, says in (
        (["--grid-spacing", "-5"], 2, "an option of NiftyReg was set"),
        (["--smoothness", "stiff"], 2, "smoothness"),
    ):
        with pytest.raises(SystemExit) as caught:
            brainreg.main([*given, *more])
        assert caught.value.code == code and says in capsys.readouterr().err
        assert not (tmp_path / "out" / "registered_atlas.tiff").exists()
    assert cli.register.__globals__["run_niftyreg"].__globals__["BrainRegistration"].__module__ == (
        "brainreg.core.backend.niftyreg.registration"
    )  # theirs is back
    with (
        pytest.raises(errors.InvalidArgumentError, match="stiffness"),
        brainreg.backend(stiffness=1),
    ):
        pass


def test_napari_reads_the_folder(brain: np.ndarray, tmp_path: Path):
    reader = pytest.importorskip(
        "brainglobe_napari_io.brainreg.reader_dir", reason="needs napari and a Qt",
        exc_type=Exception,
    )  # fmt: skip
    brainreg.main([*QUICK, *run(tmp_path, sample(brain), "asr", RESOLUTION)])
    layers = reader.brainreg_read_dir(str(tmp_path / "out"))(tmp_path / "out")
    by_name = {said["name"]: data for data, said, _ in layers}
    assert {"Registered image", "Hemispheres", "fake_mouse_25um", "Boundaries"} <= set(by_name)
    assert center(by_name["fake_mouse_25um"]).round().tolist() == [22, 10, 20]
