"""The command as a program: what it writes, prints and returns."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import BUNDLES, FLAGS, Command, resampled
from morphseek import images, phantom
from morphseek._engine import core
from morphseek.cli.output import say
from pace import limit

FILES = (
    "displacement.nrrd report.html report.json transform.h5 warped.nii.gz warped_labels.nii.gz"
).split()
NO_NETWORK = ["--model", "none", "--refine", "0", "--search", "off"]


@pytest.fixture
def images_of(files: dict[str, Path]) -> list[Path]:
    return [files["fixed"], files["moving"]]


@pytest.fixture
def labels_of(files: dict[str, Path]) -> list[Any]:
    return ["--fixed-labels", files["fixed_labels"], "--moving-labels", files["moving_labels"]]


def report_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "report.json").read_text(encoding="utf-8"))


def page_of(out: Path) -> str:
    return (out / "report.html").read_text(encoding="utf-8")


def names_in(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir())


def test_register(tmp_path, files, images_of, labels_of, command, result):
    out = tmp_path / "out"
    arguments = ["register", *images_of, *labels_of, "--out", out, *NO_NETWORK]
    text = command(*arguments)
    assert "mean Dice" in text and str(out / "report.html") in text
    assert names_in(out) == FILES
    assert f"morphseek register {files['fixed']} {files['moving']} --fixed-labels" in page_of(out)
    report = report_of(out)
    measures = "njd_percent similarity_before similarity_after seconds model device version seed"
    assert set(measures.split()) <= report.keys()
    assert report["dice_after"] > report["dice_before"] + 0.2 and not report["cached"]

    # Every entry point gives the same result, and its files agree with each other.
    field = morphseek.Registration.read(out).displacement()
    np.testing.assert_allclose(field, result.displacement(), atol=1e-3)
    fixed, moving_labels, warped_labels = (
        sitk.ReadImage(str(path))
        for path in (files["fixed"], files["moving_labels"], out / "warped_labels.nii.gz")
    )
    transform = sitk.ReadTransform(str(out / "transform.h5"))
    by_itk = resampled(moving_labels, fixed, transform, sitk.sitkNearestNeighbor)
    assert warped_labels.GetPixelID() == sitk.sitkUInt8
    assert (sitk.GetArrayFromImage(warped_labels) != by_itk).mean() < 1e-3
    target = images.read(files["fixed_labels"]).array
    dice = [
        2 * ((by_itk == k) & (target == k)).sum() / ((by_itk == k).sum() + (target == k).sum())
        for k in range(1, 11)
    ]
    assert np.mean(dice) == pytest.approx(report["dice_after"], abs=2e-3)

    # `apply` with the written transform gives the written image.
    again = tmp_path / "again.nii.gz"
    command("apply", "--transform", out / "transform.h5", "--input", files["moving"],
            "--reference", files["fixed"], "--out-file", again)  # fmt: skip
    difference = np.abs(images.read(again).array - images.read(out / "warped.nii.gz").array)
    assert np.percentile(difference, 99.5) < 0.1

    # Images are kept where the user says so alone: a repeated call then takes them from there.
    assert not (tmp_path / "cache").exists()
    kept, fields = tmp_path / "kept", []
    for cached in (False, True):
        report = command.json(*arguments, "--initial", "com", "--cache", kept)
        assert report["cached"] is cached
        fields.append((out / "displacement.nrrd").read_bytes())
    assert fields[0] == fields[1]
    if os.name == "posix":
        assert kept.stat().st_mode & 0o777 == 0o700


def test_labels_that_do_not_fit(tmp_path, files, images_of, command):
    labels, path = images.read(files["fixed_labels"]), tmp_path / "other.nii.gz"
    arguments = ["register", *images_of, "--fixed-labels", path, "--out", tmp_path / "out", *FLAGS]
    images.write(path, images.Image(labels.array[2:], labels.spacing))
    text = command(*arguments, expect=3)
    assert "fixed image's grid" in " ".join(text.split()) and not (tmp_path / "out").exists()
    images.write(path, labels.like(np.zeros_like(labels.array)))
    report = command.json(*arguments, "--moving-labels", files["moving_labels"])
    assert any("no label in common" in w for w in report["warnings"]) and "dice_after" not in report
    twice = [*arguments[:3], "--fixed-labels", files["fixed_labels"], "--moving-labels",
             files["fixed_labels"], *arguments[5:]]  # fmt: skip
    assert any("label maps of both images" in w for w in command.json(*twice)["warnings"])
    far = images.Image(labels.array, labels.spacing, (900.0, 0, 0))
    images.write(path, far)
    moving_alone = [*arguments[:3], "--moving-labels", path, *arguments[5:]]
    (told,) = (w for w in command.json(*moving_alone)["warnings"] if "none of its labels" in w)
    assert told.startswith(f"moving labels: {path}: ")


def test_apply_fills_with_the_least_finite_value(tmp_path, files, command):
    moving = images.read(files["moving"])
    array = moving.array.astype(np.float32)
    least, array[0, 0, 0] = array.min(), np.nan
    images.write(tmp_path / "nan.nrrd", moving.like(array))
    sitk.WriteTransform(sitk.TranslationTransform(3, (1e4, 0.0, 0.0)), str(tmp_path / "far.tfm"))
    command("apply", "-t", tmp_path / "far.tfm", "-i", tmp_path / "nan.nrrd",
            "-r", files["fixed"], "-o", tmp_path / "out.nrrd")  # fmt: skip
    assert (images.read(tmp_path / "out.nrrd").array == least).all()


@pytest.mark.parametrize(
    "dtype, labels",
    [
        (np.int64, [2**53 + 3, 2**53 + 5, -(2**53) - 1]),
        (np.uint64, [2**64 - 1, 2**64 - 3, 7]),
        (np.int64, [2**53, 5, -3]),
    ],
)
def test_apply_keeps_64_bit_labels(dtype, labels, tmp_path, command):
    """Also beyond the moving image, where they are 0."""
    array = np.resize(np.array(labels, dtype), (4, 5, 7))
    image = images.Image(array, (1.0, 2.0, 3.0), (5.0, 6.0, 7.0))
    path, shift, out = (tmp_path / name for name in ("labels.nrrd", "shift.tfm", "out.nrrd"))
    images.write(path, image)
    sitk.WriteTransform(sitk.TranslationTransform(3, (2.0, 0.0, 0.0)), str(shift))
    command("apply", "-t", shift, "-i", path, "-r", path, "-o", out, "--interpolation", "nearest")
    out, expected = images.read(out), np.zeros_like(array)
    expected[..., :-2] = array[..., 2:]
    np.testing.assert_array_equal(out.array, expected)
    assert out.array.dtype == dtype and out.grid == image.grid


def test_inputs_are_not_written_over(tmp_path: Path, files: dict[str, Path], command: Command):
    out = tmp_path / "it"
    out.mkdir()
    for name, source in (("warped.nii.gz", "moving"), ("warped_labels.nii.gz", "moving_labels")):
        (out / name).write_bytes(files[source].read_bytes())
    sitk.WriteTransform(sitk.TranslationTransform(3, (1.0, 0.0, 0.0)), str(out / "transform.h5"))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    fixed, moving = files["fixed"], files["moving"]
    warped, labels, transform = (
        out / name for name in ("warped.nii.gz", "warped_labels.nii.gz", "transform.h5")
    )
    register, apply = ["register", fixed, moving, "--out", out], ["apply", "-t", transform]
    for arguments, what in (
        (["register", fixed, warped, "--out", out], "moving"),
        ([*register, "--moving-labels", labels], "moving labels"),
        ([*register, "--fixed-mask", labels], "fixed mask"),
        ([*register, "--initial-transform", transform], "initial transform"),
        ([*apply, "-i", warped, "-r", fixed, "-o", warped], "input"),
        ([*apply, "-i", moving, "-r", fixed, "-o", transform], "transform"),
    ):
        error = command.json(*arguments, expect=2)["error"]
        assert error["message"].startswith(f"{what}: ") and "would be written" in error["message"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_uncertainty(tmp_path, images_of, command):
    out = tmp_path / "out"
    quick = ["--initial", "com", "--refine", 0]
    arguments = ["register", *images_of, "--out", out, *quick, "--uncertainty"]
    assert "uncertainty" in command(*arguments)
    assert "uncertainty.nrrd" in names_in(out)
    assert command.json(*arguments)["uncertainty"] == report_of(out)["uncertainty"]
    assert morphseek.Registration.read(out).uncertainty.min() > 0  # from the cache


@pytest.mark.parametrize("given, read", [("high", "high"), ("2.50", "2.5")])
def test_smoothness(given, read, tmp_path, images_of, command):
    command("register", *images_of, "--out", tmp_path, *FLAGS, "--smoothness", given)
    assert report_of(tmp_path)["options"]["smoothness"] == read


@pytest.mark.skipif(sys.platform == "win32", reason="a process has no such signal there")
def test_ctrl_c_leaves_nothing(tmp_path: Path, command: Command):
    pair = morphseek.phantom.make_pair(size=72)
    for name in ("fixed", "moving"):
        images.write(tmp_path / f"{name}.nrrd", getattr(pair, name))
    out = tmp_path / "out"
    pair = (tmp_path / "fixed.nrrd", tmp_path / "moving.nrrd")
    process = command.start("register", *pair, "--out", out)
    deadline = time.monotonic() + limit(60)
    # the staging folder appears just before the registration starts
    while not list(out.glob(".morphseek-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "the interrupt must come in the middle"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=limit(60))
    assert process.returncode == 130, err
    assert "Traceback" not in err and "cancelled" in err
    assert not out.exists()


def test_help_is_the_engines(command: Command):
    text = " ".join(command("register", "--help").split())
    for option in core.option_table():
        assert f"--{option['name'].replace('_', '-')}" in text
        assert option["help"].partition(". ")[0][:60] in text
    assert "auto|low|high|mm from 0.1 to 100" in text and "--symmetric / --no-symmetric" in text
    places = [text.index(f" {name}: -") for name in ("Options", "Registration", "Output")]
    assert places == sorted(places)
    assert "register" in command("--help")
    assert command("--version").strip() == f"morphseek {morphseek.__version__}"


@pytest.mark.parametrize(
    ("name", "option", "default"),
    [("register", "smoothness", "auto"), ("build-template", "smoothness", "low"),
     ("register", "initial", "affine"), ("motion", "initial", "rigid")],
)  # fmt: skip
def test_help_has_the_commands_own_default(command: Command, name: str, option: str, default: str):
    text = " ".join(command(name, "--help").split())
    assert re.search(rf"--{option} .*?\[default: (\w+)", text)[1] == default


def test_quiet_says_nothing(tmp_path, images_of, command):
    out = tmp_path / "out"
    assert command("register", *images_of, "--out", out, *FLAGS, "--quiet").strip() == ""
    assert names_in(out) == FILES[:-1]


def test_models(command: Command, tmp_path: Path):
    listed = json.loads(command("info", "models", "--json"))
    assert listed and all(m["code"] == 0 for m in listed), listed
    name = listed[0]["manifest"]["name"]
    assert name in command("info", "models")
    shown = json.loads(command("info", "models", name))
    assert shown["licence"] and shown["training_data"]
    assert command.json("info", "models", name)["manifest"] == shown
    command("info", "models", BUNDLES / "tiny.onnx")
    command("info", "models", BUNDLES / "external.onnx", expect=4)
    (tmp_path / "text.onnx").write_text("no bundle")
    command("info", "models", tmp_path / "text.onnx", expect=4)


def test_demo(tmp_path: Path, command: Command):
    out = tmp_path / "demo"
    text, report = command("demo", "--out", out, "--size", 40), report_of(out)
    assert report["dice_after"] > report["dice_before"] + 0.2
    assert report["tre_after_mm"] < 0.5 * report["tre_before_mm"]
    truth = report["truth"]
    assert truth["after"]["mean_mm"] == report["tre_after_mm"]
    assert [organ["name"] for organ in truth["organs"]] == list(phantom.LABELS.values())
    page = page_of(out)
    assert "Error to the truth" in page and f"{truth['after']['mean_mm']:.1f} mm" in page
    assert f"by the initial transform {truth['initial']['mean_mm']:.1f}" in page
    for key in ("mean_mm", "median_mm", "p95_mm"):
        means = (f"{truth[when][key]:.1f}" for when in ("before", "initial", "after"))
        assert f"{' -> '.join(means)} mm" in text
    assert "initial alignment (affine)" in text and "95th percentile" in text
    assert names_in(out) == FILES


def test_train_is_mounted(tmp_path: Path, command: Command):
    program = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (tmp_path / "torch.py").write_text(program)
    paths = (str(tmp_path), os.environ.get("PYTHONPATH"))
    command.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    assert "warmup" in command("train", "--help")
    text = command("train", "warmup", "hippocampus", "--out", tmp_path / "run", expect=2)
    assert "pip install 'morphseek[training]'" in text and "Traceback" not in text


SLOW = ("numpy", "SimpleITK", "rich.console", "typer", "pydantic", "morphseek._native")
# each takes as long to load as a small registration
OTHERS = ("matplotlib", "nibabel", "numpy.ma", "pandas", "pydantic", "rich", "scipy")
COMPLETION = {
    "_MORPHSEEK_COMPLETE": "bash_complete", "COMP_WORDS": "morphseek reg", "COMP_CWORD": "1",
}  # fmt: skip


def loaded(
    slow: tuple[str, ...], *arguments: Any, first: str = "sys", **variables: str
) -> tuple[str, str]:
    """Return what the command prints, and which of some modules it loads."""
    script = (
        f"import contextlib, sys, {first}\n"
        "own = set(sys.modules)\n"  # older numpys load numpy.ma themselves
        "from morphseek.cli import app\n"
        "with contextlib.suppress(SystemExit):\n    app(sys.argv[1:], prog_name='morphseek')\n"
        f"print('loaded:', *sorted(set({slow}) & set(sys.modules) - own))"
    )
    words, environment = [sys.executable, "-c", script, *arguments], os.environ | variables
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    said, _, names = done.stdout.rpartition("loaded:")
    return said.strip(), names.strip()


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["register", "--help"], ["info", "--help"], []]
)
def test_what_only_prints_text_loads_neither_numpy_nor_the_engine(arguments: list[str]):
    """Nor their dependencies, because a completion runs at every press of the tab key."""
    said, modules = loaded(SLOW, *arguments, **({} if arguments else COMPLETION))
    assert said and not modules


@pytest.mark.parametrize(
    "option, begun, offered",
    [
        ("--preset", "", ["plain,best", "file,"]), ("--smoothness", "l", ["plain,low"]),
        ("--device", "c", ["plain,cpu", "plain,cuda"]), ("--similarity", "n", ["plain,ncc"]),
    ],
)  # fmt: skip
def test_the_tab_key_completes_values(option: str, begun: str, offered: list[str]):
    words = {"COMP_WORDS": f"morphseek register {option} {begun}", "COMP_CWORD": "3"}
    said, modules = loaded(SLOW, **COMPLETION | words)
    assert set(offered) <= set(said.splitlines()) and not modules


def test_a_registration_loads_no_more_than_it_needs(tmp_path, images_of, labels_of):
    out = ["--out", tmp_path / "out", *FLAGS]
    said, modules = loaded(OTHERS, "register", *images_of, *labels_of, *out, first="numpy")
    assert "mean Dice" in said and not modules


@pytest.mark.parametrize(
    "variables, colored",
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours_are_for_terminals(variables, colored, monkeypatch, capsys):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    say("dir[/x]/:on:.nii.gz", "red", to_errors=True)
    said = capsys.readouterr()
    assert said.out == "" and "dir[/x]/:on:.nii.gz" in said.err
    assert ("\x1b[31m" in said.err) == colored


def test_standard_output_has_results_alone(tmp_path, command):
    """A result ends with the verdict."""
    process = command.start("demo", "--out", tmp_path / "demo", "--size", 40, *FLAGS)
    out, err = process.communicate(timeout=limit(120))
    assert process.returncode == 0 and "made fixed" in err and "made" not in out
    assert out.splitlines()[-1].startswith("verdict: ")


def test_the_page_is_as_large_as_is_asked_for(images_of, tmp_path, command):
    pair = [*images_of, "--out", tmp_path / "out"]
    for report, scripts in (("full", True), ("small", False), ("none", None)):
        text = command("register", *pair, "--report", report, *FLAGS)
        page = tmp_path / "out" / "report.html"
        assert page.exists() == (scripts is not None)
        assert str(page if page.exists() else tmp_path / "out" / "report.json") in text
        if scripts is not None:
            assert ("<script" in page_of(page.parent)) == scripts
    assert "--report" in command("register", *pair, "--report", "huge", expect=2)


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["--version"], 0),
        (["regster"], 2),
        (["register", "nothing.nii.gz", "nothing.nii.gz", "--out", "nothing"], 3),
    ],
)
def test_the_process_ends_with_its_exit_code(arguments, code):
    run, nowhere = [sys.executable, "-m", "morphseek", *arguments], subprocess.DEVNULL
    assert subprocess.run(run, stdout=nowhere, stderr=nowhere).returncode == code


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [["--version"], ["info", "devices"], ["info", "devices", "--json"]]
)
def test_a_full_standard_output_is_told_in_a_sentence(arguments: list[str], unbuffered: str):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as out:
        words = [sys.executable, "-m", "morphseek", *arguments]
        how = {"text": True, "env": os.environ | {"PYTHONUNBUFFERED": unbuffered}}
        ended = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, **how)
    said = "morphseek: standard output cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (6, said)
