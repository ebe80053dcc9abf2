"""The command as a program: what it writes, prints and returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import BUNDLES, FLAGS, Command
from morphseek import images, phantom
from morphseek._engine import core
from morphseek.cli.output import say
from pace import limit

FILES = [
    "displacement.nrrd",
    "report.html",
    "report.json",
    "transform.h5",
    "warped.nii.gz",
    "warped_labels.nii.gz",
]
NO_NETWORK = ["--model", "none", "--refine", "0", "--search", "off"]


def test_register(
    tmp_path: Path, files: dict[str, Path], command: Command, result: morphseek.Registration
):
    out = tmp_path / "out"
    arguments = [
        "register",
        files["fixed"],
        files["moving"],
        "--fixed-labels",
        files["fixed_labels"],
        "--moving-labels",
        files["moving_labels"],
        "--out",
        out,
        *NO_NETWORK,
    ]
    text = command(*arguments)
    assert "mean Dice" in text and str(out / "report.html") in text
    assert sorted(p.name for p in out.iterdir()) == FILES
    assert f"morphseek register {files['fixed']} {files['moving']} --fixed-labels" in (
        out / "report.html"
    ).read_text(encoding="utf-8")
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert {
        "dice_before",
        "dice_after",
        "njd_percent",
        "similarity_before",
        "similarity_after",
        "seconds",
        "model",
        "device",
        "version",
        "seed",
    } <= set(report)
    assert report["dice_after"] > report["dice_before"] + 0.2 and not report["cached"]

    # Every entry point gives the same result, and its files agree with each other.
    np.testing.assert_allclose(
        morphseek.Registration.read(out).displacement(), result.displacement(), atol=1e-3
    )
    fixed = sitk.ReadImage(str(files["fixed"]))
    transform = sitk.ReadTransform(str(out / "transform.h5"))
    by_itk = sitk.GetArrayFromImage(
        sitk.Resample(
            sitk.ReadImage(str(files["moving_labels"])), fixed, transform, sitk.sitkNearestNeighbor
        )
    )
    warped_labels = sitk.ReadImage(str(out / "warped_labels.nii.gz"))
    assert warped_labels.GetPixelID() == sitk.sitkUInt8
    assert (sitk.GetArrayFromImage(warped_labels) != by_itk).mean() < 1e-3
    target = sitk.GetArrayFromImage(sitk.ReadImage(str(files["fixed_labels"])))
    dice = [
        2 * ((by_itk == k) & (target == k)).sum() / ((by_itk == k).sum() + (target == k).sum())
        for k in range(1, 11)
    ]
    assert np.mean(dice) == pytest.approx(report["dice_after"], abs=2e-3)

    # `apply` with the written transform gives the written image.
    again = tmp_path / "again.nii.gz"
    command(
        "apply",
        "--transform",
        out / "transform.h5",
        "--input",
        files["moving"],
        "--reference",
        files["fixed"],
        "--out-file",
        again,
    )
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


def test_labels_that_do_not_fit(tmp_path: Path, files: dict[str, Path], command: Command):
    labels = images.read(files["fixed_labels"])
    images.write(tmp_path / "other.nii.gz", images.Image(labels.array[2:], labels.spacing))
    text = command(
        "register",
        files["fixed"],
        files["moving"],
        "--fixed-labels",
        tmp_path / "other.nii.gz",
        "--out",
        tmp_path / "out",
        *FLAGS,
        expect=3,
    )
    assert "fixed image's grid" in " ".join(text.split()) and not (tmp_path / "out").exists()
    images.write(tmp_path / "empty.nii.gz", labels.like(np.zeros_like(labels.array)))
    arguments = [
        "register",
        files["fixed"],
        files["moving"],
        "--fixed-labels",
        tmp_path / "empty.nii.gz",
        "--moving-labels",
        files["moving_labels"],
        *FLAGS,
    ]
    report = command.json(*arguments, "--out", tmp_path / "out")
    assert any("no label in common" in w for w in report["warnings"]) and "dice_after" not in report


def test_apply_fills_with_the_least_finite_value(
    tmp_path: Path, files: dict[str, Path], command: Command
):
    moving = images.read(files["moving"])
    array = moving.array.astype(np.float32)
    least, array[0, 0, 0] = array.min(), np.nan
    images.write(tmp_path / "nan.nrrd", moving.like(array))
    sitk.WriteTransform(sitk.TranslationTransform(3, (1e4, 0.0, 0.0)), str(tmp_path / "far.tfm"))
    command(
        "apply",
        "--transform",
        tmp_path / "far.tfm",
        "--input",
        tmp_path / "nan.nrrd",
        "--reference",
        files["fixed"],
        "--out-file",
        tmp_path / "out.nrrd",
    )
    assert (images.read(tmp_path / "out.nrrd").array == least).all()


@pytest.mark.parametrize(
    "dtype, labels",
    [
        (np.int64, [2**53 + 3, 2**53 + 5, -(2**53) - 1]),
        (np.uint64, [2**64 - 1, 2**64 - 3, 7]),
        (np.int64, [2**53, 5, -3]),
    ],
)
def test_apply_keeps_64_bit_labels(
    dtype: type, labels: list[int], tmp_path: Path, command: Command
):
    """Also beyond the moving image, where they are 0."""
    array = np.resize(np.array(labels, dtype), (4, 5, 7))
    images.write(tmp_path / "labels.nrrd", images.Image(array, (1.0, 2.0, 3.0), (5.0, 6.0, 7.0)))
    sitk.WriteTransform(sitk.TranslationTransform(3, (2.0, 0.0, 0.0)), str(tmp_path / "shift.tfm"))
    files = [
        "--transform",
        tmp_path / "shift.tfm",
        "--input",
        tmp_path / "labels.nrrd",
        "--reference",
        tmp_path / "labels.nrrd",
    ]
    command("apply", *files, "-o", tmp_path / "out.nrrd", "--interpolation", "nearest")
    out, expected = images.read(tmp_path / "out.nrrd"), np.zeros_like(array)
    expected[..., :-2] = array[..., 2:]
    np.testing.assert_array_equal(out.array, expected)
    assert out.array.dtype == dtype
    assert np.array_equal(out.grid, images.read(tmp_path / "labels.nrrd").grid)


def test_inputs_are_not_written_over(tmp_path: Path, files: dict[str, Path], command: Command):
    out = tmp_path / "it"
    out.mkdir()
    for name, source in (("warped.nii.gz", "moving"), ("warped_labels.nii.gz", "moving_labels")):
        (out / name).write_bytes(files[source].read_bytes())
    sitk.WriteTransform(sitk.TranslationTransform(3, (1.0, 0.0, 0.0)), str(out / "transform.h5"))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    fixed, moving = files["fixed"], files["moving"]
    for arguments, what in (
        (["register", fixed, out / "warped.nii.gz", "--out", out], "moving"),
        (
            [
                "register",
                fixed,
                moving,
                "--moving-labels",
                out / "warped_labels.nii.gz",
                "--out",
                out,
            ],
            "moving labels",
        ),
        (
            ["register", fixed, moving, "--fixed-mask", out / "warped_labels.nii.gz", "--out", out],
            "fixed mask",
        ),
        (
            ["register", fixed, moving, "--initial-transform", out / "transform.h5", "--out", out],
            "initial transform",
        ),
        (
            [
                "apply",
                "--transform",
                out / "transform.h5",
                "-i",
                out / "warped.nii.gz",
                "-r",
                fixed,
                "-o",
                out / "warped.nii.gz",
            ],
            "input",
        ),
        (
            [
                "apply",
                "--transform",
                out / "transform.h5",
                "-i",
                moving,
                "-r",
                fixed,
                "-o",
                out / "transform.h5",
            ],
            "transform",
        ),
    ):
        error = command.json(*arguments, expect=2)["error"]
        assert error["message"].startswith(f"{what}: ") and "would be written" in error["message"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_uncertainty(tmp_path: Path, files: dict[str, Path], command: Command):
    out = tmp_path / "out"
    arguments = [
        "register",
        files["fixed"],
        files["moving"],
        "--out",
        out,
        "--initial",
        "com",
        "--refine",
        "0",
        "--uncertainty",
    ]
    assert "uncertainty" in command(*arguments)
    assert "uncertainty.nrrd" in [p.name for p in out.iterdir()]
    assert (
        command.json(*arguments)["uncertainty"]
        == json.loads((out / "report.json").read_text(encoding="utf-8"))["uncertainty"]
    )
    assert morphseek.Registration.read(out).uncertainty.min() > 0  # from the cache


@pytest.mark.parametrize("given, read", [("high", "high"), ("2.50", "2.5")])
def test_smoothness(
    given: str, read: str, tmp_path: Path, files: dict[str, Path], command: Command
):
    command(
        "register",
        files["fixed"],
        files["moving"],
        "--out",
        tmp_path / "out",
        *FLAGS,
        "--smoothness",
        given,
    )
    assert (
        json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["options"][
            "smoothness"
        ]
        == read
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a process has no such signal there")
def test_ctrl_c_leaves_nothing(tmp_path: Path, command: Command):
    pair = morphseek.phantom.make_pair(size=72)
    for name in ("fixed", "moving"):
        images.write(tmp_path / f"{name}.nrrd", getattr(pair, name))
    out = tmp_path / "out"
    process = command.start(
        "register", tmp_path / "fixed.nrrd", tmp_path / "moving.nrrd", "--out", out
    )
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
    assert "register" in command("--help") and "--show-completion" in command("--help")
    assert "_MORPHSEEK_COMPLETE=bash_complete" in command("--show-completion", "bash")
    assert command("--version").strip() == f"morphseek {morphseek.__version__}"


def test_quiet_says_nothing(tmp_path: Path, files: dict[str, Path], command: Command):
    assert (
        command(
            "register",
            files["fixed"],
            files["moving"],
            "--out",
            tmp_path / "out",
            *FLAGS,
            "--quiet",
        ).strip()
        == ""
    )
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == FILES[:-1]


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
    text = command("demo", "--out", tmp_path / "demo", "--size", 40)
    report = json.loads((tmp_path / "demo" / "report.json").read_text(encoding="utf-8"))
    assert report["dice_after"] > report["dice_before"] + 0.2
    assert report["tre_after_mm"] < 0.5 * report["tre_before_mm"]
    truth = report["truth"]
    assert truth["after"]["mean_mm"] == report["tre_after_mm"]
    assert [organ["name"] for organ in truth["organs"]] == list(phantom.LABELS.values())
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "Error to the truth" in page and f"{truth['after']['mean_mm']:.1f} mm" in page
    assert f"by the initial transform {truth['initial']['mean_mm']:.1f}" in page
    for key in ("mean_mm", "median_mm", "p95_mm"):
        assert (
            " -> ".join(f"{truth[when][key]:.1f}" for when in ("before", "initial", "after"))
            + " mm"
            in text
        )
    assert "initial alignment (affine)" in text and "95th percentile" in text
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == FILES


def test_train_is_mounted(tmp_path: Path, command: Command):
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )
    paths = (str(tmp_path), os.environ.get("PYTHONPATH"))
    command.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    assert "warmup" in command("train", "--help")
    text = command("train", "warmup", "hippocampus", "--out", tmp_path / "run", expect=2)
    assert "pip install 'morphseek[training]'" in text and "Traceback" not in text


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["register", "--help"], ["info", "--help"], []]
)
def test_what_only_prints_text_loads_neither_numpy_nor_the_engine(arguments: list[str]):
    """Nor their dependencies, because a completion runs at every press of the tab key."""
    script = (
        "import contextlib, sys\nfrom morphseek.cli import app\n"
        "with contextlib.suppress(SystemExit):\n    app(sys.argv[1:], prog_name='morphseek')\n"
        "slow = {'numpy', 'SimpleITK', 'rich.console', 'typer', 'pydantic', 'morphseek._native'}\n"
        "loaded = slow & set(sys.modules)\n"
        "print('loaded:', *sorted(loaded))"
    )
    environment = dict(os.environ)
    if not arguments:
        environment |= {
            "_MORPHSEEK_COMPLETE": "bash_complete",
            "COMP_WORDS": "morphseek reg",
            "COMP_CWORD": "1",
        }
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    said, _, loaded = done.stdout.rpartition("loaded:")
    assert said.strip() and not loaded.strip(), done.stdout


def test_a_registration_loads_no_more_than_it_needs(tmp_path: Path, files: dict[str, Path]):
    """Each of these modules takes as long to load as a small registration."""
    script = (
        "import contextlib, sys, numpy\n"
        "own = set(sys.modules)\n"  # older numpys load numpy.ma themselves
        "from morphseek.cli import app\n"
        "with contextlib.suppress(SystemExit):\n    app(sys.argv[1:], prog_name='morphseek')\n"
        "slow = {'matplotlib', 'nibabel', 'numpy.ma', 'pandas', 'pydantic', 'rich', 'scipy'}\n"
        "print('loaded:', *sorted(slow & set(sys.modules) - own))"
    )
    labels = ["--fixed-labels", files["fixed_labels"], "--moving-labels", files["moving_labels"]]
    out = ["--out", tmp_path / "out", *FLAGS]
    done = subprocess.run(
        [sys.executable, "-c", script, "register", files["fixed"], files["moving"], *labels, *out],
        capture_output=True,
        text=True,
        check=True,
    )
    said, _, loaded = done.stdout.rpartition("loaded:")
    assert "mean Dice" in said and not loaded.strip(), done.stdout


@pytest.mark.parametrize(
    "variables, colored",
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours_are_for_terminals(
    variables: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    say("dir[/x]/:on:.nii.gz", "red", to_errors=True)
    said = capsys.readouterr()
    assert said.out == "" and "dir[/x]/:on:.nii.gz" in said.err
    assert ("\x1b[31m" in said.err) == colored


def test_module_runs_as_the_script():
    from morphseek import cli

    assert callable(cli.app) and sys.modules["morphseek.cli"] is cli


def test_standard_output_has_results_alone(
    files: dict[str, Path], tmp_path: Path, command: Command
):
    """A result ends with the verdict."""
    process = command.start("demo", "--out", tmp_path / "demo", "--size", 40, *FLAGS)
    out, err = process.communicate(timeout=limit(120))
    assert process.returncode == 0 and "made fixed" in err and "made" not in out
    assert out.splitlines()[-1].startswith("verdict: ")


def test_the_page_is_as_large_as_is_asked_for(
    files: dict[str, Path], tmp_path: Path, command: Command
):
    pair = [files["fixed"], files["moving"], "--out", tmp_path / "out"]
    for report, scripts in (("full", True), ("small", False), ("none", None)):
        text = command("register", *pair, "--report", report, *FLAGS)
        page = tmp_path / "out" / "report.html"
        assert page.exists() == (scripts is not None)
        assert str(page if page.exists() else tmp_path / "out" / "report.json") in text
        if scripts is not None:
            assert ("<script" in page.read_text(encoding="utf-8")) == scripts
    assert "--report" in command("register", *pair, "--report", "huge", expect=2)


@pytest.mark.parametrize(
    "arguments, into, code",
    [
        (["--version"], os.devnull, 0),
        (["regster"], os.devnull, 2),
        (["register", "nothing.nii.gz", "nothing.nii.gz", "--out", "nothing"], os.devnull, 3),
    ],
)
def test_the_process_ends_with_its_exit_code(arguments: list[str], into: str, code: int):
    if not os.path.exists(into):
        pytest.skip(f"there is no {into} here")
    with open(into, "w") as out:
        run = [sys.executable, "-m", "morphseek", *arguments]
        assert subprocess.run(run, stdout=out, stderr=subprocess.DEVNULL).returncode == code


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [["--version"], ["info", "devices"], ["info", "devices", "--json"]]
)
def test_a_full_standard_output_is_told_in_a_sentence(arguments: list[str], unbuffered: str):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as out:
        ended = subprocess.run(
            [sys.executable, "-m", "morphseek", *arguments],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    said = "morphseek: standard output cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (6, said)
