"""Kills a process at any operation on its files, or lets the operation fail: either the old results
are complete or the new ones, and the next call works.

``killer.c`` counts the operations. A few points of each command are tried here, all of them with
``-m nightly``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import helpers
import morphseek
from morphseek import _files
from morphseek.phantom import make_pair

ERRORS = (errno.EDQUOT, errno.EROFS, errno.ENOSPC, errno.EIO, errno.EACCES)
MODES = ("kill", *map(str, ERRORS))  # killed, or one operation fails
FOREVER = tuple(f"-{mode}" for mode in MODES[1:])  # that operation and all that follow
OWN = "notes.txt"  # a file of the user's, in every folder
DATA = (".h5", ".nrrd", ".nii.gz", ".mhd", ".raw", ".txt")  # files that are equal in every run
FLAGS = [*helpers.FLAGS, "--quiet"]
Folder = dict[str, bytes]


def nightly(*cases: Any) -> list[Any]:
    """Return rows of a table of tests that run at night alone."""
    return [pytest.param(*case, marks=pytest.mark.nightly) for case in cases]


class Killer:
    """Runs commands under killer.c."""

    def __init__(self, program: Path, log: Path):
        self._program, self._log = program, log

    def __call__(
        self, folder: Path, mode: str, point: int, command: Iterable[Any]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, folder, self._log, mode, str(point), *map(str, command)],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def operations(self) -> list[str]:
        return self._log.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Killer:
    compiler = shutil.which("cc")
    if sys.platform != "linux" or os.uname().machine != "x86_64" or compiler is None:
        pytest.skip("needs Linux on x86-64 and a C compiler: no process is killed here")
    folder = tmp_path_factory.mktemp("killer")
    source = Path(__file__).with_name("killer.c")
    subprocess.run([compiler, "-O1", "-o", folder / "killer", source], check=True)
    killer = Killer(folder / "killer", folder / "log")
    if killer(folder / "x", "count", 0, ["true"]).returncode:
        pytest.skip("needs the right to trace a process: no process is killed here")
    return killer


def content(folder: Path) -> Folder:
    """Return the files that a user sees in a folder."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    }


@dataclasses.dataclass
class Scene:
    """A command whose results replace others."""

    command: list[Any]
    root: Path
    old: dict[str, Folder]
    """The first contents of the folders below ``root``; a copy is in ``before``."""
    new: dict[str, Folder]
    before: Path

    @classmethod
    def of(cls, root: Path, first: list[Any], then: list[Any], *folders: str) -> Scene:
        """Record the results of two commands, the second of which replaces those of the first."""
        before = root.with_name("before")
        run(first)
        for name in folders:
            (root / name / OWN).write_text("mine")
        shutil.copytree(root, before, dirs_exist_ok=True)
        old = {name: content(root / name) for name in folders}
        run(then)
        new = {name: content(root / name) for name in folders}
        for name in folders:
            for file in old[name].keys() & new[name].keys() - {OWN}:
                assert old[name][file] != new[name][file], f"{file} tells no run from the other"
        return cls(then, root, old, new, before)

    def reset(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.before, self.root)

    def check(self, clean: bool) -> None:
        """Check that each folder has files of only one run, and all of them after a read."""
        for name in self.old:
            self._check_one(name, whole=False)
            _files.settle(self.root / name)
            self._check_one(name, whole=True)
        if clean:
            assert not list(self.root.rglob(".morphseek-*"))

    def _check_one(self, name: str, whole: bool) -> None:
        found, old, new = content(self.root / name), self.old[name], self.new[name]
        assert found.get(OWN) == old[OWN]
        names = found.keys() - {OWN}
        stayed = {file for file in names if found[file] == old.get(file)}
        assert not stayed or stayed == names, f"of two runs: {sorted(stayed)} of {sorted(names)}"
        if not stayed:
            assert names <= new.keys(), sorted(names - new.keys())
            for file in names:
                if file.endswith(DATA) and found[file] != new[file]:
                    raise AssertionError(f"{file} is damaged")
        if whole:
            assert found.keys() in (old.keys(), new.keys()), sorted(names)


def run(command: list[Any]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def attack(
    killer: Killer, scene: Scene, mode: str, choose: Callable[[list[str]], Iterable[int]]
) -> None:
    """Kill or disturb the command at the chosen operations."""
    scene.reset()
    done = killer(scene.root, "count", 0, scene.command)
    assert done.returncode == 0, done.stderr
    scene.check(clean=True)
    operations = killer.operations()
    failures = []
    for point in choose(operations):
        scene.reset()
        done = killer(scene.root, mode, point, scene.command)
        happened = killer.operations()  # not always in the same order
        at = f"{mode} at {point}: {' '.join(happened[point - 1 : point])}\n{done.stderr}"
        try:
            assert done.returncode in (137 if mode == "kill" else 6, 0), (
                f"exit code {done.returncode}"
            )
            assert "Traceback" not in done.stderr
            if done.returncode == 6:
                assert done.stderr.count("morphseek: ") == 1
            scene.check(clean=False)
        except AssertionError as error:
            failures.append(f"{at}\n{error}")
    assert not failures, "\n\n".join(failures)
    done = killer(scene.root, "count", 0, scene.command)
    assert done.returncode == 0, done.stderr
    scene.check(clean=True)
    for name in scene.new:
        assert content(scene.root / name).keys() == scene.new[name].keys()


def every(operations: list[str]) -> Iterable[int]:
    return range(1, len(operations) + 1)


def some(count: int) -> Callable[[list[str]], Iterable[int]]:
    """Choose ``count`` of the operations that rename files."""

    def choose(operations: list[str]) -> Iterable[int]:
        renames = [i for i, line in enumerate(operations, 1) if not line.startswith("write")]
        # mostly the last ones, where files are moved to their places
        return sorted({renames[-1 - int(i**1.7)] for i in range(count) if i**1.7 < len(renames)})

    return choose


IMAGE = """
import sys
import numpy as np
from morphseek import errors, images
image = images.Image(np.random.default_rng(0).random((16, 16, 16)).astype(np.float32))
try:
    images.write(sys.argv[1], image, compress=sys.argv[2] == "packed")
except errors.MorphSeekError as error:
    sys.exit(error.exit_code)
"""


def last_write(writes: list[int]) -> list[int]:
    """The one that happens when a file is closed, whose error ITK does not check."""
    return writes[-1:]


NAMES = ("a.nrrd", "a.nii", "a.nhdr", "a.mha", "a.mhd", "a.nii.gz")


@pytest.mark.parametrize("packed", ["plain", "packed"])
@pytest.mark.parametrize(
    "name, choose", [("a.nrrd", last_write), *nightly(*((name, list) for name in NAMES))]
)
def test_no_write_fails_in_silence(killer, tmp_path, name, choose, packed):
    folder = tmp_path / "out"
    folder.mkdir()
    command = [sys.executable, "-c", IMAGE, folder / name, packed]
    assert killer(folder, "count", 0, command).returncode == 0
    lines = enumerate(killer.operations(), 1)
    for point in choose([i for i, line in lines if "write" in line.partition(" ")[0]]):
        shutil.rmtree(folder)
        folder.mkdir()
        code = killer(folder, str(errno.EIO), point, command).returncode
        assert (code, os.listdir(folder)) == (6, []), point


WRITER = """
import json, sys
from morphseek import _files, _manifest, errors
try:
    with _files.output_folder(sys.argv[1], ("?.txt",), "c.txt") as folder:
        for name in sys.argv[2]:
            _files.write_text(folder / f"{name}.txt", json.dumps({name: sys.argv[2]}))
        listed = {path.name: _manifest.entry(path) for path in folder.iterdir()}
        _files.write_text(folder / "c.txt", json.dumps({_manifest.KEY: listed}))
except errors.MorphSeekError as error:
    print(f"morphseek: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Only the writer that all commands use."""
    root = tmp_path_factory.mktemp("writer") / "out"
    first, then = ([sys.executable, "-c", WRITER, root, names] for names in ("abcx", "abc"))
    return Scene.of(root, first, then, "")


@pytest.mark.parametrize("mode", ["kill", *nightly(*((m,) for m in MODES[1:] + FOREVER))])
def test_the_writer_is_disturbed(killer: Killer, writer: Scene, mode: str):
    attack(killer, writer, mode, every)


def study(folder: Path) -> list[Path]:
    pair = make_pair(size=16)
    paths = []
    for kind, ending in (("images", ""), ("labels", "_labels")):
        (folder / kind).mkdir()
        for name in ("fixed", "moving"):
            path = folder / kind / f"{name}.nii.gz"
            morphseek.images.write(path, getattr(pair, name + ending))
            paths.append(path)
    return paths


def make_scene(name: str, folder: Path) -> Scene:
    fixed, moving, _, labels = study(folder)
    root = folder / "out"
    command = [sys.executable, "-m", "morphseek"]
    if name == "register":
        then = [*command, name, fixed, moving, "--out", root, *FLAGS, "--report", "small"]
        more = ["--moving-labels", labels, "--uncertainty", "--initial", "none"]
        return Scene.of(root, [*then, *more], then, "")
    if name == "demo":
        then = [*command, name, "--size", 32, "--out", root, *FLAGS, "--report", "none"]
        return Scene.of(root, [*then, "--initial", "none"], then, "")
    if name == "apply":
        run([*command, "register", fixed, moving, "--out", folder / "r", *FLAGS])
        then = [*command, name, "--transform", folder / "r" / "transform.h5", "-i", moving]
        then += ["-r", fixed, "-o", root / "a.mhd"]
        root.mkdir()
        first = [*then[:-1], root / "a.mhd", "-i", fixed]
        return Scene.of(root, first, then, "")
    pairs = folder / "pairs.csv"
    if name == "pairs":
        pairs.write_text("fixed,moving,id\nimages/fixed.nii.gz,images/moving.nii.gz,one\n")
        then = [*command, name, pairs, "--out", root, *FLAGS]
        return Scene.of(root, [*then, "--initial", "none"], then, "", "one")
    pairs.write_text("fixed,moving\nfixed,moving\n")
    more_pairs = folder / "more.csv"
    more_pairs.write_text("fixed,moving\nfixed,moving\nmoving,fixed\n")
    then = [*command, "pairs", pairs, "--score", "--data", folder, "--out", root, *FLAGS]
    first = [*command, "pairs", more_pairs, *then[5:], "--initial", "none"]
    return Scene.of(root, first, then, "")


SCENES = ("register", "apply", "pairs", "scores", "demo")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Scene]:
    made: dict[str, Scene] = {}

    def get(name: str) -> Scene:
        if name not in made:
            made[name] = make_scene(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.mark.parametrize(
    "name, mode, choose",
    [
        *((name, "kill", some(3)) for name in SCENES[:-1]),
        ("register", str(errno.EIO), some(3)),
        *nightly(*((name, mode, every) for name in SCENES for mode in MODES + FOREVER)),
    ],
)
def test_a_command_is_disturbed(killer, scenes, name, mode, choose):
    attack(killer, scenes(name), mode, choose)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a small disk over a folder, with the folder's files and one free page."""
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    mount = ["mount", "-t", "tmpfs", "tmpfs", folder]
    if not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        shutil.rmtree(kept)
        pytest.skip("needs the right to mount a small disk: no disk is full here")
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        state = os.statvfs(folder)
        size = (state.f_blocks - state.f_bfree + 1) * state.f_frsize
        subprocess.run(["mount", "-o", f"remount,{options}size={size}", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        shutil.rmtree(kept)


@pytest.mark.parametrize("name", [*SCENES[:3], *nightly(*((name,) for name in SCENES[3:]))])
@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk(scenes: Callable[[str], Scene], name: str, kind: str):
    """On a full disk there are a message, exit code 6, and the old results."""
    scene = scenes(name)
    scene.reset()
    with mounted(scene.root, "ro," if kind == "read-only" else "") as root:
        before = {folder: content(root / folder) for folder in scene.old}
        done = subprocess.run(
            list(map(str, scene.command)), capture_output=True, text=True, check=False
        )
        assert done.returncode == 6, done.stderr
        assert ("disk is full" if kind == "full" else "cannot be written") in done.stderr
        assert done.stderr.count("morphseek: ") == 1 and "Traceback" not in done.stderr
        after = {folder: content(root / folder) for folder in scene.old}
        if name == "pairs" and kind == "full":  # its table says that the pair failed
            before.pop(""), after.pop("")
        assert after == before
        assert not list(root.rglob(".morphseek-*"))


def last(operations: list[str]) -> Iterable[int]:
    return [max(i for i, line in enumerate(operations, 1) if line.startswith("rename"))]


@pytest.mark.parametrize(
    "mode, choose", [("kill", last), *nightly(*((mode, every) for mode in MODES))]
)
def test_the_cache_is_disturbed(killer, tmp_path, mode, choose):
    """The result is still written, unless the process is killed."""
    fixed, moving, *_ = study(tmp_path)
    cache, out = tmp_path / "cache", tmp_path / "out"
    command = [sys.executable, "-m", "morphseek", "register", fixed, moving, "--out", out]
    command += [*FLAGS, "--report", "none", "--cache", cache]

    def register(mode: str, point: int) -> int:
        return killer(cache, mode, point, command).returncode

    assert register("count", 0) == 0
    expected = morphseek.Registration.read(out).displacement()
    for point in choose(killer.operations()):
        shutil.rmtree(cache)
        shutil.rmtree(out)
        assert register(mode, point) in (0, 137), point
        for _ in range(2):
            assert register("count", 0) == 0
            found = morphseek.Registration.read(out)
            np.testing.assert_array_equal(found.displacement(), expected)
        assert found.metrics["cached"], point
