"""Presets as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import SimpleITK as sitk
from click.testing import CliRunner, Result

import morphseek
from helpers import QUICK, blob
from morphseek import errors
from morphseek.cli import app


def test_there_and_back(tmp_path: Path):
    path = tmp_path / "ours.json"
    morphseek.save_preset(path, **QUICK, smoothness=2.5)
    assert morphseek.load_preset(path)["refine"] == 0
    for given in (path, str(path)):
        found = morphseek.register(blob(), blob(shift=0.1), preset=given, initial="none")
        assert found.options["search"] == "off" and float(found.options["smoothness"]) == 2.5
        assert found.options["initial"] == "none" and "preset" not in found.options


@pytest.mark.parametrize(
    "content, error, said",
    [
        ({"similarty": "ncc"}, errors.InvalidArgumentError, "similarty"),
        ({"steps": 17}, errors.InvalidArgumentError, "steps"),
        ([1], errors.InputUnreadableError, "no JSON object"),
        (None, errors.InputUnreadableError, "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, content, error: type[Exception], said: str):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(error, match=rf"bad\.json.*{said}"):
        morphseek.register(blob(), blob(), preset=path)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_in_the_command(tmp_path: Path):
    """The file's options hold, but those of the command override them, even by a default."""
    for name, shift in (("f", 0.0), ("m", 0.1)):
        image = sitk.GetImageFromArray(blob(shift=shift))
        sitk.WriteImage(image, str(tmp_path / f"{name}.nii.gz"))
    ours, again = tmp_path / "ours.json", tmp_path / "again.json"
    ours.write_text(json.dumps({**QUICK, "smoothness": 2.5, "initial": "none"}))
    pair = (tmp_path / "f.nii.gz", tmp_path / "m.nii.gz", "--out", tmp_path / "out")
    quiet = ("--report", "none", "--no-cache", "--quiet")
    done = run("register", *pair, *quiet, "--preset", ours, "--initial", "affine",
               "--save-preset", again)  # fmt: skip
    assert done.exit_code == 0, done.output
    said = json.loads((tmp_path / "out" / "report.json").read_text())["options"]
    assert (said["refine"], said["search"], said["initial"]) == (0, "off", "affine")
    assert float(said["smoothness"]) == 2.5
    assert morphseek.load_preset(again) == morphseek.load_preset(ours) | {"initial": "affine"}


@pytest.mark.parametrize(
    "preset, code, message",
    [
        ("bad.json", 2, "similarty"),
        ("missing.json", 3, "cannot be read"),
        ("quick", 2, "fast, default, best"),
    ],
)
def test_command_refuses(tmp_path: Path, preset: str, code: int, message: str):
    (tmp_path / "bad.json").write_text('{"similarty": "ncc"}')
    path = tmp_path / preset if preset.endswith(".json") else preset
    done = run("register", "f", "m", "--out", tmp_path / "out", "--preset", path)
    assert done.exit_code == code and message in done.output, done.output
    assert not (tmp_path / "out").exists()
