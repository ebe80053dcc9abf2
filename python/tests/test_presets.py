"""Presets as files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import QUICK, blob, invalid, refused, run
from morphseek import errors, worker


def test_there_and_back(tmp_path: Path):
    path = tmp_path / "ours.json"
    morphseek.presets.save(path, **QUICK, smoothness=2.5)
    assert morphseek.presets.load(path)["refine"] == 0
    for given in (path, str(path)):
        found = morphseek.register(blob(), blob(shift=0.1), preset=given, initial="none")
        assert found.options["search"] is False and float(found.options["smoothness"]) == 2.5
        assert found.options["initial"] == "none" and "preset" not in found.options


def test_the_file_has_the_engines_words(tmp_path: Path):
    """3D Slicer reads it, too."""
    path = tmp_path / "ours.json"
    morphseek.presets.save(path, search=True, symmetric=False, steps=None, refine=3)
    assert json.loads(path.read_text()) == {"search": "on", "symmetric": "off", "refine": 3}
    path.write_text('{"search": "on", "symmetric": false, "refine": -1, "threads": 2}')
    assert morphseek.presets.load(path) == {"search": True, "symmetric": False, "threads": 2}


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
    refused(error, rf"bad\.json.*{said}", morphseek.register, blob(), blob(), preset=path)


HARMFUL = {
    "library": ({"device": "plugin:/opt/evil.so", "model": "hippocampus"}, "loads no library"),
    "file": ({"model": "MODEL"}, "names no file, but one of hippocampus"),
    "file nearby": ({"model": "nearby"}, "names no file"),
    "cache": ({"cache": "CACHE"}, "does not decide that images are kept"),
}


@pytest.mark.parametrize("what", HARMFUL)
def test_a_preset_is_data(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A colleague's file loads no library, reads no other file and keeps no images, whoever reads
    it.
    """
    content, says = HARMFUL[what]
    values = {"MODEL": str(tmp_path / "nearby"), "CACHE": str(tmp_path / "kept")}
    content = {name: values.get(value, value) for name, value in content.items()}
    preset = tmp_path / "study.json"
    preset.write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nearby").write_bytes(b"what a registration would read")
    for name in "fm":
        sitk.WriteImage(sitk.GetImageFromArray(blob()), f"{name}.nii.gz")
    refusal = rf"study\.json: {[*content][0]} is '.*{says}.*give"
    for call in (
        lambda: morphseek.presets.load(preset),
        lambda: morphseek.register(blob(), blob(), preset=preset),
        lambda: morphseek.register_pairs([("f.nii.gz", "m.nii.gz")], "many", preset=preset),
        lambda: morphseek.correct_motion(np.stack([blob()] * 2), preset=str(preset)),
        lambda: morphseek.build_template(["f.nii.gz", "m.nii.gz"], "template", preset=preset),
        lambda: worker_run(tmp_path / "request", {"preset": str(preset)}),
        lambda: morphseek.presets.save(preset, **content),
    ):
        invalid(refusal, call)
    for command in ("register", "motion"):
        words = (command, "f.nii.gz", "m.nii.gz", "--out", "out", "--preset", preset)
        assert says in " ".join(run(*words, code=2).output.split())
    (name, value), *_ = content.items()
    if name != "cache":  # the user's own word goes, and is not written to a file for others
        words = ("register", "f.nii.gz", "m.nii.gz", "--out", "out", f"--{name}", value)
        done = run(*words, "--save-preset", tmp_path / "again.json", code=2)
        assert says in " ".join(done.output.split())
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"f.nii.gz", "m.nii.gz", "nearby", "study.json", "request"}


def worker_run(folder: Path, options: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    np.save(folder / "image.npy", blob())
    place = {"file": "image.npy", "matrix": np.eye(4).tolist()}
    request = {"fixed": place, "moving": place, "outputs": [], "options": options}
    (folder / "request.json").write_text(json.dumps(request))
    worker.run(folder, lambda _: True)


def test_plain_values_and_models_that_are_built_in(tmp_path: Path):
    kept = {"model": "hippocampus", "device": "cpu", "smoothness": "2.5", "seed": 3, "along": "ij"}
    path = tmp_path / "ours.json"
    morphseek.presets.save(path, **kept)
    assert morphseek.presets.load(path) == kept


def test_in_the_command(tmp_path: Path):
    """The file's options hold, but those of the command override them, even by a default."""
    for name, shift in (("f", 0.0), ("m", 0.1)):
        image = sitk.GetImageFromArray(blob(shift=shift))
        sitk.WriteImage(image, str(tmp_path / f"{name}.nii.gz"))
    ours, again = tmp_path / "ours.json", tmp_path / "again.json"
    ours.write_text(json.dumps({**QUICK, "smoothness": 2.5, "initial": "none"}))
    pair = (tmp_path / "f.nii.gz", tmp_path / "m.nii.gz", "--out", tmp_path / "out")
    quiet = ("--report", "none", "--quiet")
    words = ("--preset", ours, "--initial", "affine", "--save-preset", again)
    run("register", *pair, *quiet, *words)
    said = json.loads((tmp_path / "out" / "report.json").read_text())["options"]
    assert (said["refine"], said["search"], said["initial"]) == (0, False, "affine")
    assert float(said["smoothness"]) == 2.5
    assert morphseek.presets.load(again) == morphseek.presets.load(ours) | {"initial": "affine"}


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
    done = run("register", "f", "m", "--out", tmp_path / "out", "--preset", path, code=code)
    assert message in done.output
    assert not (tmp_path / "out").exists()
