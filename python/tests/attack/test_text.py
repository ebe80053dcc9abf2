"""Untrusted names neither control a terminal nor become formulas in a spreadsheet; and where they
are printed to, no command fails after its work: an encoding without their letters, a closed stream.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morphseek
from helpers import FLAGS, QUICK, Command, blob, refused
from morphseek import errors, images, studies


def test_a_name_does_not_colour_the_terminal(command: Command, tmp_path: Path):
    evil = tmp_path / "a\x1b[31m\u202eb.nii.gz"
    said = command("register", evil, evil, "--out", tmp_path / "out", expect=3)
    assert "a\\x1b[31m\\u202eb.nii.gz does not exist" in said
    assert "\x1b" not in said and "\u202e" not in said


def test_a_name_is_no_formula(files: dict[str, Path], tmp_path: Path):
    moving = tmp_path / "=cmd.nii.gz"
    shutil.copy(files["moving"], moving)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"fixed,moving,id\n{files['fixed']},=cmd.nii.gz,one\n")
    morphseek.register_pairs(pairs, tmp_path / "out", **QUICK)
    (row,) = csv.DictReader((tmp_path / "out" / "summary.csv").read_text().splitlines())
    assert row["moving"] == "'=cmd.nii.gz" and row["id"] == "one"
    assert float(row["njd_percent"]) >= 0


@pytest.mark.parametrize("sign", ["=", "+", "-", "@"])
def test_an_id_is_the_folders_name_in_every_table(sign: str, tmp_path: Path):
    """So one that would be written otherwise, as a formula, is refused."""
    name = f"{sign}01"
    row = {"fixed": "f.nii", "moving": "m.nii", "id": name}
    item = studies.Item(name, Path("t.nii"))
    subject = studies.Item(name, np.eye(4))
    (tmp_path / "images").mkdir()
    calls: list[Callable[[], Any]] = [
        lambda: morphseek.register_pairs([row], tmp_path / "out"),
        lambda: studies.read_items([f"{name}.nii.gz"]),
        lambda: studies.propagate_labels([item], [("a.nii", "l.nii")], tmp_path / "out"),
        lambda: studies.morphometry([subject], tmp_path / "out"),
    ]
    for call in calls:
        refused(errors.MorphSeekError, "formula", call)
    assert not (tmp_path / "out").exists()


def test_a_sidecar_is_no_formula(tmp_path: Path):
    told = {"Verdict": "=1+1", "EstimatedError": None, "Reasons": ["@a", "b"], "Files": {}}
    told |= dict.fromkeys(("FoldedVoxelsPercent", "DiceBefore", "DiceAfter"))
    path = tmp_path / "sub-01" / "anat" / "sub-01_from-T1w_to-X_mode-image_xfm.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(told))
    table_path, problems = studies.write_group(str(tmp_path))
    table = table_path.read_text(encoding="utf-8").splitlines()
    (row,) = csv.DictReader(table, delimiter="\t")
    assert not problems and row["error_mm"] == "n/a"
    assert (row["verdict"], row["reasons"]) == ("'=1+1", "'@a b")


def test_a_point_is_no_formula_and_keeps_its_name(tmp_path: Path):
    points = morphseek.Landmarks([[1, 2, 3], [4, 5, 6]], ["=cmd", "'b'"])
    points.write(tmp_path / "p.csv")
    assert "\n'=cmd,1.0" in (tmp_path / "p.csv").read_text(encoding="utf-8")
    assert morphseek.Landmarks.read(tmp_path / "p.csv").names == points.names


@pytest.fixture
def odd(files: dict[str, Path], tmp_path: Path) -> Path:
    """A folder whose name no encoding of eight bits has, with a pair, a transform and a list."""
    folder = tmp_path / "\u65e5\u672c Gr\xf6\xdfe"
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    for name in ("fixed", "moving"):
        shutil.copy(files[name], folder / f"{name}.nii.gz")
        shutil.copy(files[name], folder / "images" / f"{name}.nii.gz")
        shutil.copy(files[f"{name}_labels"], folder / "labels" / f"{name}.nii.gz")
    morphseek.Transform.of(np.eye(4)).save(folder / "t.tfm")
    (folder / "pairs.csv").write_text(
        "id,fixed,moving\n\u65e5,fixed.nii.gz,moving.nii.gz\n", "utf-8"
    )
    (folder / "data.csv").write_text("fixed,moving\nfixed,moving\n", "utf-8")
    frames = [images.Image(blob(), (2, 2, 2)) for _ in range(2)]
    for k, frame in enumerate(frames):
        images.write(folder / f"frame-{k}.nii.gz", frame)
    return folder


PAIR = ["{d}/fixed.nii.gz", "{d}/moving.nii.gz"]
#: Commands that print the folder's name, and their exit codes.
COMMANDS: dict[str, tuple[list[str], int]] = {
    "register": (["register", *PAIR, "--out", "{d}/out", *FLAGS, "--report", "none"], 0),
    "apply": (["apply", "-t", "{d}/t.tfm", "-i", PAIR[1], "-r", PAIR[0], "-o", "{d}/a.nii"], 0),
    "convert": (["transform", "convert", "{d}/t.tfm", "-o", "{d}/t.h5"], 0),
    "show": (["transform", "show", "{d}/t.tfm"], 0),
    "missing": (["transform", "show", "{d}/none.tfm"], 3),
    "pairs": (["pairs", "{d}/pairs.csv", "--out", "{d}/out", *FLAGS, "--report", "none"], 0),
    "scores": (["pairs", "{d}/data.csv", "--data", "{d}", "--score", "--out", "{d}/out", *FLAGS,
                "--report", "none"], 0),
    "motion": (["motion", "{d}/frame-0.nii.gz", "{d}/frame-1.nii.gz", "--reference-frame",
                "first", "--out", "{d}/out"], 0),
    "train": (["train", "warmup", "{d}/none.toml", "--out", "{d}/run"], 2),
}  # fmt: skip


def words_of(name: str, folder: Path) -> tuple[list[str], int]:
    words, code = COMMANDS[name]
    return [word.replace("{d}", str(folder)) for word in words], code


@pytest.mark.parametrize(
    "name, encoding",
    [*((name, "ascii") for name in COMMANDS if name != "train"),
     pytest.param("train", "ascii", marks=pytest.mark.training),
     ("show", "cp1252"), ("show", "cp932")],
)  # fmt: skip
def test_an_encoding_without_the_letters(name: str, encoding: str, odd: Path, command: Command):
    command.environment |= {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    words, code = words_of(name, odd)
    process = command.start(*words, encoding="latin-1")
    out, err = (text.replace("\n", "") for text in process.communicate(timeout=120))
    assert process.returncode == code and "Traceback" not in err, out + err
    if encoding == "ascii" and name != "train":  # Click writes UTF-8 there
        assert "\\u65e5\\u672c Gr\\xf6\\xdfe" in out + err


def in_shell(redirected: str, words: Any, environment: dict[str, str]) -> tuple[int, str]:
    """Run a command with streams as a shell redirects them; return its exit code and output."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", *map(str, words)],
        capture_output=True, text=True, env=environment, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


needs_shell = pytest.mark.skipif(not shutil.which("sh"), reason="there is no shell")


@needs_shell
@pytest.mark.parametrize(
    "name, streams",
    [*((name, "2>&-") for name in ("register", "apply", "pairs", "scores", "motion", "missing")),
     ("apply", ">&-"), ("apply", "<&-"), ("pairs", ">&- 2>&-"),
     *((name, "2>/dev/full") for name in ("pairs", "motion", "missing"))],
)  # fmt: skip
def test_a_closed_stream(name: str, streams: str, odd: Path, command: Command):
    words, code = words_of(name, odd)
    got, said = in_shell(streams, ["morphseek", *words], command.environment)
    assert got == code and "Traceback" not in said, said
    if code == 0 and name in ("register", "pairs", "motion"):
        assert any((odd / "out").iterdir())


@needs_shell
def test_a_template_and_a_worker_with_a_closed_stream(odd: Path, command: Command):
    words = ["morphseek", "build-template", odd / "frame-0.nii.gz", odd / "frame-1.nii.gz", "--out",
             odd / "out", "--iterations", "0", *FLAGS[:3]]  # fmt: skip
    assert in_shell("2>&-", words, command.environment)[0] == 0
    assert (odd / "out" / "template.nii.gz").exists()
    words = ["morphseek.worker", "--describe"]
    code, said = in_shell("2>&-", words, command.environment)
    assert code == 0 and json.loads(said)["version"]


@pytest.mark.skipif(os.name == "nt", reason="names there are no bytes")
def test_a_process_that_reads_names_as_ascii(odd: Path, command: Command):
    """The name is sound, and the message says so."""
    command.environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = command("register", *words_of("register", odd)[0][1:], expect=6)
    assert "is UTF-8, and this process reads names as" in said and "PYTHONUTF8=1" in said
