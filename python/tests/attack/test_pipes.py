"""Anything but a regular file is refused before it is opened: a pipe would block for ever."""

import contextlib
import json
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from click.testing import CliRunner

import morphseek
from helpers import QUICK, run, unreadable
from morphseek import _staging, images, landmarks, studies, transforms, worker
from morphseek.cli import app
from morphseek.images.sidecars import parts
from morphseek.studies import read_pairs

if not hasattr(os, "mkfifo"):
    pytest.skip("there are no pipes with names", allow_module_level=True)

READERS: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(("a.nii.gz", "a.mha", "a.nrrd", "a.mhd", "a.dcm"), images.read),
    **dict.fromkeys(("transform.h5", "transform.tfm"), transforms.Transform.read),
    **dict.fromkeys(("pairs.csv", "split.json"), read_pairs),
    **dict.fromkeys(("a.fcsv", "a.mrk.json", "a.csv"), landmarks.Landmarks.read),
    "slices/a.dcm": lambda path: images.read(path.parent),
    "run/report.json": lambda path: morphseek.Registration.read(path.parent),
    "work/request.json": lambda path: worker.run(path.parent, print),
    "preset.json": morphseek.presets.load,
    "label map.nii.gz": lambda path: images.read_on(path, np.zeros(18), "labels"),
    "time.nii.gz": morphseek.correct_motion,
    "parts.mhd": parts,
}
MakePipe = Callable[[Path], None]


@pytest.fixture
def make_pipe() -> Iterator[MakePipe]:
    """Make pipes. A reader that still blocks on one is released after a while and fails."""
    over, blocked = threading.Event(), set()

    def let_go(path: Path) -> None:
        over.wait(8)
        while not over.wait(0.1):  # a reader may try again
            with contextlib.suppress(OSError):  # there is no reader
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                blocked.add(path)

    def make(path: Path) -> None:
        os.mkfifo(path)
        threading.Thread(target=let_go, args=(path,)).start()

    yield make
    over.set()
    assert not blocked


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused(name: str, tmp_path: Path, make_pipe: MakePipe):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make_pipe(path)
    unreadable(f"{path.name} is a pipe", READERS[name], path)


@pytest.mark.parametrize(
    "name, pipe",
    [("a.mhd", "a.raw"), ("a.nhdr", "a.raw"), ("a.hdr", "a.img"), ("a.img", "a.hdr"),
     ("a.hdr.gz", "a.img.gz")],
)  # fmt: skip
def test_the_other_file_of_an_image(name: str, pipe: str, tmp_path: Path, make_pipe: MakePipe):
    sitk.WriteImage(sitk.Image(4, 5, 6, sitk.sitkFloat32), tmp_path / name.replace("img", "hdr"))
    (tmp_path / pipe).unlink()
    make_pipe(tmp_path / pipe)
    unreadable(f"{pipe} is a pipe", images.read, tmp_path / name)


def test_a_device_is_refused():
    unreadable("/dev/zero is a device", images.read, "/dev/zero")


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.nii.gz": lambda path: images.write(path, images.read(np.ones((3, 4, 5)))),
    "transform.h5": lambda path: morphseek.Transform.of(np.eye(4)).save(path),
    "summary.csv": lambda path: studies.Study([]).save(path.parent),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_file_takes_the_place_of_a_pipe(name: str, tmp_path: Path):
    os.mkfifo(path := tmp_path / name)
    with pytest.raises(morphseek.errors.OutputUnwritableError, match=f"{name} is a pipe, where"):
        WRITERS[name](path)
    assert path.is_fifo() and os.listdir(tmp_path) == [name]


ROLES = (
    "fixed", "moving", "--fixed-labels", "--moving-labels", "--fixed-mask", "--initial-transform",
)  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_the_command_says_so(role, files, command, tmp_path, make_pipe):
    pipe = tmp_path / "pipe.nii.gz"
    make_pipe(pipe)
    pair = [pipe if role == name else files[name] for name in ("fixed", "moving")]
    more = [role, pipe] if role.startswith("--") else []
    said = command("register", *pair, "--out", tmp_path / "out", *more, expect=3)
    assert f"{pipe} is a pipe" in said
    assert not (tmp_path / "out").exists()


ENDINGS = (
    ".nii", ".nii.gz", ".mhd", ".nrrd", ".img", ".h5", ".tfm", ".txt", ".mat", ".lta", ".x5",
    ".dcm", ".csv", ".mrk.json", ".vtk", ".gii", ".trk", ".tif", "",
)  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_whatever_is_applied(ending, files, tmp_path, make_pipe):
    """An image, a reference, points, a structure set or a transform."""
    pipe, shift, out = tmp_path / f"pipe{ending}", tmp_path / "t.tfm", tmp_path / "out.nii.gz"
    make_pipe(pipe)
    morphseek.Transform.of(np.eye(4)).save(shift)
    pair, ways = (files["moving"], files["fixed"]), ("", "@inverse", "@elastix", "@fsl")
    for transform, image, reference in (
        (shift, pipe, files["fixed"]),
        (shift, files["moving"], pipe),
        *((f"{pipe}{way}", *pair) for way in ways),
    ):
        words = ["apply", "-t", transform, "-i", image, "--reference", reference, "-o", out]
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code in (2, 3) and f"{pipe} is a pipe" in done.output, done.output
    unreadable("is a pipe", morphseek.Transform.read, pipe)


PLANS: dict[str, Callable[[Path], object]] = {
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "brackets": lambda path: path.write_bytes(b"[" * 200_000),
    "large": lambda path: path.write_bytes(b" " * (17 << 20)),
    "text": lambda path: path.write_text("{"),
    "another": lambda path: path.write_text('{"new": ["../notes.txt"], "old": [7]}'),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("plan", ["a pipe", *PLANS])
def test_a_plan_that_was_planted(plan, result, tmp_path, make_pipe):
    """A folder of results may be a stranger's, and hold what a killed call of ours would leave."""
    folder, notes = tmp_path / "result", tmp_path / "notes.txt"
    result.save(folder)
    notes.write_text("mine")
    planted = folder / f"{_staging.staging_prefix()}x"
    planted.mkdir()
    (make_pipe if plan == "a pipe" else PLANS[plan])(planted / ".plan")
    (planted / "warped.nii.gz").write_text("theirs")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for words in (
        ("transform", "show", folder / "transform.h5"),
        ("transform", "jacobian", folder / "transform.h5", "-o", tmp_path / "jacobian.nii.gz"),
    ):
        run(*words)
    assert morphseek.Registration.read(folder).warped.shape == result.warped.shape
    result.save(folder)
    assert morphseek.Registration.read(folder).warped.shape == result.warped.shape
    assert notes.read_text() == "mine" and os.path.lexists(planted / ".plan")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_what_is_no_staging_folder(result, tmp_path, make_pipe):
    """A pipe, or a link to another folder, under the name of one."""
    folder, other = tmp_path / "result", tmp_path / "other"
    result.save(folder)
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    make_pipe(folder / f"{_staging.staging_prefix()}pipe")
    (folder / f"{_staging.staging_prefix()}link").symlink_to(other)
    morphseek.Registration.read(folder)
    result.save(folder)
    assert (other / "notes.txt").read_text() == "mine"


def test_a_pair_of_a_study(files: dict[str, Path], tmp_path: Path, make_pipe: MakePipe):
    pipe = tmp_path / "pipe.mhd"
    make_pipe(pipe)
    done = morphseek.register_pairs([(files["fixed"], pipe)], tmp_path / "out", **QUICK)
    assert "is a pipe" in str(done.rows[0].message) and done.exit_code == 3


def test_an_entry_of_a_request(tmp_path: Path, make_pipe: MakePipe):
    make_pipe(tmp_path / "fixed.npy")
    entry = {"file": "fixed.npy", "spacing": [1] * 3, "origin": [0] * 3, "direction": [1] * 9}
    (tmp_path / "request.json").write_text(json.dumps({"fixed": entry, "moving": entry}))
    unreadable("is a pipe", worker.run, tmp_path, print)
