"""Processes that share the engine, a folder or a file: each works or fails with a clear message."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morphseek
from helpers import QUICK, Command, unreadable
from morphseek import _files, errors, images, registration
from morphseek.studies import read_pairs, runner
from morphseek.studies.pair import register_into

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def said(script: str, folder: Path) -> str:
    """Return the output of a script in a new process, without the threads of other tests."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


USED = """
import multiprocessing, numpy as np, morphseek
image = np.random.default_rng(0).random((12, 12, 12))
quick = dict(model="none", refine=0, search=False, initial="none")
def work(_=0):
    try:
        morphseek.register(image, image, **quick)
        return "worked"
    except morphseek.errors.InvalidHandleError as error:
        return "refused" if "get_context('spawn')" in str(error) else str(error)
morphseek.register(image, image, **quick)
"""


@needs_fork
@pytest.mark.parametrize(
    "how",
    [
        "multiprocessing.get_context('fork').Pool(2).map(work, range(2), 1)",
        "list(__import__('concurrent.futures').futures.ProcessPoolExecutor(2,"
        " multiprocessing.get_context('fork')).map(work, range(2)))",
    ],
)
def test_a_pool_that_forks(how: str, tmp_path: Path):
    assert said(f"{USED}print({how})", tmp_path) == "['refused', 'refused']\n"


@needs_fork
@pytest.mark.training
def test_a_data_loader_that_forks(tmp_path: Path):
    script = (
        f"{USED}\nimport torch\nclass Pairs(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 2\n    def __getitem__(self, i): return work()\n"
        "loader = torch.utils.data.DataLoader(Pairs(), num_workers=2, batch_size=None,"
        " multiprocessing_context='fork')\nprint(list(loader))"
    )
    assert said(script, tmp_path) == "['refused', 'refused']\n"


@needs_fork
def test_what_needs_no_engine_works_after_a_fork(tmp_path: Path):
    """If a thread holds the lock for ITK's HDF5 at the fork, the child must not wait for it."""
    script = """
import os, threading, time, numpy as np, morphseek
from morphseek import _itk, images
from morphseek.transforms import files
morphseek.devices()
started = threading.Event()
def hold():
    with _itk.hdf5_lock:
        started.set()
        time.sleep(0.5)
threading.Thread(target=hold).start()
started.wait()
if (child := os.fork()) == 0:
    images.write("a.nrrd", images.Image(np.ones((4, 4, 4))))
    files.read("t.h5")
    try:
        print(morphseek.info.doctor()["version"])
    except morphseek.errors.MorphSeekError as error:
        os.write(1, b"refused ")
    os._exit(0)
deadline = time.monotonic() + 20
while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
    time.sleep(0.05)
print("done" if done[0] else "hangs")
if not done[0]:
    os.kill(child, 9)
"""
    morphseek.Affine(np.eye(4)).save(tmp_path / "t.h5")
    assert said(script, tmp_path).endswith("done\n")


def test_two_that_write_to_one_folder(files: dict[str, Path], command: Command, tmp_path: Path):
    out = tmp_path / "out"
    pair = (files["fixed"], files["moving"], "--out", out, "--model", "none", "--search", "off")
    first = command.start("register", *pair, "--refine", 1000, "--quiet")
    deadline = time.monotonic() + 60
    while not list(out.glob(".morphseek-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # otherwise it may finish before the other starts
    text = command("register", *pair, "--refine", 0, expect=6)
    assert f"another call of morphseek is writing to {out}; wait until it is done" in text
    first.terminate()
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=60)
    command("register", *pair, "--refine", 0)
    assert morphseek.Registration.read(out).metrics["version"]
    assert not list(out.glob(".morphseek-*"))


@pytest.fixture
def saved(result: morphseek.Registration, tmp_path: Path) -> Path:
    result.save(tmp_path / "out")
    return tmp_path / "out"


def damage(path: Path, count: int = 2000) -> None:
    """Change bytes in the middle of a file, but neither its size nor its time."""
    state = path.stat()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + count] = bytes(b ^ 0x55 for b in content[middle : middle + count])
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


READERS: dict[str, Callable[[Path], Any]] = {
    "transform.h5": lambda path: morphseek.Transform.read(path),
    "displacement.nrrd": lambda path: morphseek.Registration.read(path.parent),
    "warped.nii.gz": lambda path: morphseek.Registration.read(path.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_of_the_result(name: str, saved: Path):
    READERS[name](saved / name)
    damage(saved / name)
    unreadable(f"{name} is not the file that .*report", READERS[name], saved / name)


def test_the_command_says_so(saved: Path, files: dict[str, Path], command: Command, tmp_path: Path):
    damage(saved / "transform.h5")
    text = command(
        "apply", "--transform", saved / "transform.h5", "-i", files["moving"],
        "-r", files["fixed"], "-o", tmp_path / "a.nrrd", expect=3,
    )  # fmt: skip
    assert "transform.h5 is not the file that" in text and not (tmp_path / "a.nrrd").exists()
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(saved / "transform.h5", alone)  # without a list of files nothing is compared
    assert (saved / "transform.h5").stat().st_size == (alone / "transform.h5").stat().st_size


def test_a_damaged_result_of_a_study_is_done_again(files: dict[str, Path], tmp_path: Path):
    def states() -> list[str]:
        done = morphseek.register_pairs(
            [{"fixed": files["fixed"], "moving": files["moving"], "id": "one"}],
            tmp_path / "out",
            **QUICK,
        )
        return [row.status for row in done.rows]

    assert states() == ["done"] and states() == ["skipped"]
    for name in ("transform.h5", "displacement.nrrd", "warped.nii.gz", "report.json"):
        damage(tmp_path / "out" / "one" / name, 20)
        os.utime(tmp_path / "out" / "one" / name)  # else no call of a study reads it
        assert states() == ["done"], name
    assert states() == ["skipped"]


def test_files_of_others_stay(saved: Path, uncertain: morphseek.Registration):
    """Files of an earlier run are replaced; other files, and changed ones, stay."""
    uncertain.save(saved)
    (saved / "warped_labels.nii.gz").write_text("drawn by hand")
    (saved / "notes.txt").write_text("mine")
    report = json.loads((saved / "report.json").read_text(encoding="utf-8"))
    report["files"] |= {"notes.txt": report["files"]["warped.nii.gz"], "../x": {}}
    (saved / "report.json").write_text(json.dumps(report))
    (saved.parent / "x").write_text("mine")
    loaded = morphseek.Registration.read(saved)
    loaded._uncertainty = None
    loaded.save(saved)
    assert sorted(path.name for path in saved.iterdir()) == [
        "displacement.nrrd", "notes.txt", "report.json", "transform.h5", "warped.nii.gz",
        "warped_labels.nii.gz",
    ]  # fmt: skip
    uncertain.save(saved)
    with open(saved / "uncertainty.nrrd", "ab") as file:
        file.write(b"edited")
    loaded.save(saved)
    assert (saved / "uncertainty.nrrd").exists()


def test_a_report_without_its_list(saved: Path):
    report = json.loads((saved / "report.json").read_text(encoding="utf-8"))
    del report["files"]
    (saved / "report.json").write_text(json.dumps(report))
    with pytest.raises(errors.InputUnreadableError, match="not a registration's report.*files"):
        morphseek.Registration.read(saved)


def test_a_folder_that_is_removed_meanwhile(files, tmp_path, monkeypatch):
    out, real = tmp_path / "out", registration.register

    def register(*arguments: Any, **more: Any) -> Any:
        result = real(*arguments, **more)
        shutil.rmtree(out)
        return result

    monkeypatch.setattr(registration, "register", register)
    with pytest.raises(errors.OutputUnwritableError, match="somebody removed .*out.* meanwhile"):
        register_into(out, files["fixed"], files["moving"], options=dict(QUICK), report="none")
    assert not out.exists()


def test_staging_is_for_its_owner_alone(tmp_path: Path):
    before = os.umask(0o022)
    try:
        with _files.output_folder(tmp_path / "out") as folder:
            assert sys.platform == "win32" or folder.stat().st_mode & 0o777 == 0o700
            (folder / "a").write_text("1")
        assert sys.platform == "win32" or (tmp_path / "out/a").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_an_input_that_is_written_while_it_is_read(files, tmp_path, monkeypatch):
    path = tmp_path / "a.nii.gz"
    shutil.copy(files["fixed"], path)
    real = images.files.read_nifti

    def read(*arguments: Any) -> Any:
        image = real(*arguments)
        shutil.copy(files["moving"], path)
        return image

    monkeypatch.setattr(images.files, "read_nifti", read)
    unreadable("fixed: .*a.nii.gz was changed", images.read, path, "fixed")


def test_an_input_of_a_study_that_is_written_meanwhile(files, tmp_path, monkeypatch):
    """Otherwise its result would count as that of the new file."""
    path, real = tmp_path / "a.nii.gz", runner._hashes
    shutil.copy(files["fixed"], path)

    def hashes(inputs: dict[str, list[Path]]) -> dict[str, list[str]]:
        known = real(inputs)
        shutil.copy(files["moving"], path)
        return known

    monkeypatch.setattr(runner, "_hashes", hashes)
    done = morphseek.register_pairs([(path, files["moving"])], tmp_path / "out", **QUICK)
    assert done.exit_code == 3 and "was changed or removed while it was in" in done.rows[0].message
    assert not list((tmp_path / "out").glob("*/report.json"))


@pytest.mark.parametrize(
    "name",
    ["CON", "nul.nii", "Com1", "LPT\u00b2.x", "aux ", "a.", "a ", "Summary.csv", "INDEX.html",
     "x" * 256, "a:b", "conin$"],
)  # fmt: skip
def test_an_id_that_is_no_name_everywhere(name: str):
    unreadable("is no name for a folder", read_pairs, [{"fixed": "a", "moving": "b", "id": name}])


@pytest.mark.parametrize("two", [("a", "A"), ("stra\u00dfe", "STRASSE"), ("e\u0301", "\u00e9")])
def test_ids_that_some_disks_take_for_one(two: tuple[str, str]):
    with pytest.raises(errors.InputUnreadableError, match="there twice"):
        read_pairs([{"fixed": "a", "moving": "b", "id": name} for name in two])


@pytest.mark.parametrize("name", ["console", "com", "com10", "auxiliary.x", "nulla", "a.b"])
def test_an_id_that_is_a_name(name: str):
    assert read_pairs([{"fixed": "a", "moving": "b", "id": name}])[0].id == name


def test_the_lock_is_gone_with_its_process(tmp_path: Path):
    """However it ended."""
    script = (
        "import os, sys\nfrom morphseek import _files\nwith _files.output_folder(sys.argv[1]):\n"
        "    os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    with _files.output_folder(tmp_path) as folder:
        (folder / "a").write_text("1")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_threads_that_save_into_one_folder(result: morphseek.Registration, tmp_path: Path):
    """Each result is complete, or the call raised an error."""
    outcomes: list[str] = []

    def save() -> None:
        try:
            result.save(tmp_path)
            outcomes.append("saved")
        except errors.OutputUnwritableError as error:
            outcomes.append("told" if "another call" in str(error) else str(error))

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {"saved", "told"} and "saved" in outcomes
    morphseek.Registration.read(tmp_path)
    assert not list(tmp_path.glob(".morphseek-*"))
