"""Anything but a regular file is refused before it is opened: a pipe would block for ever."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import morphseek
from helpers import QUICK, Command
from morphseek import errors, images, landmarks, transforms, worker
from morphseek.cohort import lists

if not hasattr(os, "mkfifo"):
    pytest.skip("there are no pipes with names", allow_module_level=True)

READERS: dict[str, Callable[[Path], object]] = {
    "a.nii.gz": images.read,
    "a.mha": images.read,
    "a.nrrd": images.read,
    "a.mhd": images.read,
    "transform.h5": transforms.read_transform,
    "transform.tfm": transforms.read_transform,
    "pairs.csv": lists.read_list,
    "split.json": lists.read_pairs,
    "a.fcsv": landmarks.Landmarks.read,
    "a.mrk.json": landmarks.Landmarks.read,
    "a.csv": landmarks.Landmarks.read,
    "slices/a.dcm": lambda path: images.read(path.parent),
    "run/report.json": lambda path: morphseek.load(path.parent),
    "work/request.json": lambda path: worker.run(path.parent, print),
}


MakePipe = Callable[[Path], None]


@pytest.fixture
def make_pipe() -> Iterator[MakePipe]:
    """Make pipes. A reader that still blocks on one is released after a while and fails."""
    over = threading.Event()

    def let_go(path: Path) -> None:
        over.wait(8)
        while not over.wait(0.1):  # a reader may try again
            with contextlib.suppress(OSError):  # there is no reader
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    def make(path: Path) -> None:
        os.mkfifo(path)
        threading.Thread(target=let_go, args=(path,)).start()

    yield make
    over.set()


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused(name: str, tmp_path: Path, make_pipe: MakePipe):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make_pipe(path)
    with pytest.raises(errors.InputUnreadableError, match=f"{path.name} is a pipe"):
        READERS[name](path)


def test_a_device_is_refused():
    with pytest.raises(errors.InputUnreadableError, match="/dev/zero is a device"):
        images.read("/dev/zero")


ROLES = (
    "fixed",
    "moving",
    "--fixed-labels",
    "--moving-labels",
    "--fixed-mask",
    "--initial-transform",
)


@pytest.mark.parametrize("role", ROLES)
def test_the_command_says_so(
    role: str, files: dict[str, Path], command: Command, tmp_path: Path, make_pipe: MakePipe
):
    pipe = tmp_path / "pipe.nii.gz"
    make_pipe(pipe)
    pair = [pipe if role == name else files[name] for name in ("fixed", "moving")]
    more = [role, pipe] if role.startswith("--") else []
    said = command("register", *pair, "--out", tmp_path / "out", *more, expect=3)
    assert f"{pipe} is a pipe" in said
    assert not (tmp_path / "out").exists()


def test_a_pair_of_a_batch(files: dict[str, Path], tmp_path: Path, make_pipe: MakePipe):
    pipe = tmp_path / "pipe.mhd"
    make_pipe(pipe)
    done = morphseek.register_cohort([(files["fixed"], pipe)], tmp_path / "out", **QUICK)
    assert "is a pipe" in str(done.pairs[0].message) and done.exit_code == 3


def test_an_entry_of_a_request(tmp_path: Path, make_pipe: MakePipe):
    make_pipe(tmp_path / "fixed.npy")
    entry = {"file": "fixed.npy", "spacing": [1] * 3, "origin": [0] * 3, "direction": [1] * 9}
    (tmp_path / "request.json").write_text(json.dumps({"fixed": entry, "moving": entry}))
    with pytest.raises(errors.InputUnreadableError, match="is a pipe"):
        worker.run(tmp_path, print)
