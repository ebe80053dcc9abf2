"""Every failure has its class in Python and its exit code in the command, and leaves nothing
behind.
"""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import click
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import BUNDLES, QUICK, Command, blob
from morphseek import errors, images
from morphseek.cli._app import reported


def test_table_makes_the_classes():
    assert len({e["code"] for e in errors.TABLE}) == len(errors.TABLE) > 20
    for entry in errors.TABLE:
        cls = getattr(errors, entry["python"])
        assert issubclass(cls, errors.MorphSeekError) and (cls.code, cls.exit_code) == (
            entry["code"],
            entry["exit"],
        )
        error = errors.from_engine(RuntimeError(f"{entry['code']}|what | happened"))
        assert type(error) is cls and str(error) == "what | happened"
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is cls and str(copy) == str(error)
    assert type(errors.from_engine(RuntimeError("no code"))) is errors.InternalError


@pytest.mark.parametrize(
    "name, builtin",
    [
        ("InvalidArgumentError", ValueError),
        ("InputUnreadableError", OSError),
        ("DiskFullError", OSError),
        ("OutOfMemoryError", MemoryError),
        ("ModelNotFoundError", LookupError),
    ],
)
def test_builtin_bases(name: str, builtin: type):
    assert issubclass(getattr(errors, name), builtin)


def tampered(folder: Path) -> Path:
    content = bytearray((BUNDLES / "tiny.onnx").read_bytes())
    key = b'"sha256": "'
    # change the manifest, so that it disagrees with the weights
    at = content.index(key) + len(key)
    content[at] = ord("0") if content[at] != ord("0") else ord("1")
    path = folder / "tampered.onnx"
    path.write_bytes(bytes(content))
    return path


def truncated(folder: Path) -> Path:
    path = folder / "truncated.onnx"
    path.write_bytes((BUNDLES / "tiny.onnx").read_bytes()[:4000])
    return path


GOOD = blob()
MASK = np.ones(GOOD.shape, np.uint8)

CASES = {
    # name: (keywords of register, error, words of the message)
    "empty": (dict(fixed=np.zeros((0, 5, 5), np.float32)), errors.EmptyVolumeError, "fixed"),
    "nan": (
        dict(moving=np.full(GOOD.shape, np.nan, np.float32)),
        errors.NonFiniteVolumeError,
        "moving",
    ),
    "infinite": (
        dict(fixed=np.full(GOOD.shape, np.inf, np.float32)),
        errors.NonFiniteVolumeError,
        "fixed",
    ),
    "constant": (
        dict(moving=np.full(GOOD.shape, 7, np.int16)),
        errors.ConstantVolumeError,
        "moving",
    ),
    "one slice": (dict(fixed=GOOD[:1]), errors.ThinVolumeError, "fixed"),
    "one row": (dict(fixed=GOOD[:1, :1]), errors.ThinVolumeError, "fixed"),
    "zero spacing": (
        dict(fixed=images.Image(GOOD, (1, 0, 1))),
        errors.InvalidSpacingError,
        "fixed",
    ),
    "negative spacing": (
        dict(moving=images.Image(GOOD, (1, 1, -2))),
        errors.InvalidSpacingError,
        "moving",
    ),
    "nan origin": (
        dict(moving=images.Image(GOOD, (1, 1, 1), (0, np.nan, 0))),
        errors.InvalidSpacingError,
        "moving",
    ),
    "singular direction": (
        dict(fixed=images.Image(GOOD, direction=(1, 0, 0, 1, 0, 0, 0, 0, 1))),
        errors.InvalidDirectionError,
        "fixed",
    ),
    "empty mask": (dict(fixed_mask=0 * MASK), errors.EmptyMaskError, "fixed mask"),
    "mask on another grid": (dict(moving_mask=MASK[1:]), errors.GridMismatchError, "moving mask"),
    "mask elsewhere": (
        dict(moving_mask=images.Image(MASK, (1, 1, 1), (50, 0, 0))),
        errors.GridMismatchError,
        "moving mask",
    ),
    "no rigid region": (
        dict(rigid_regions=0 * MASK),
        errors.EmptyMaskError,
        "rigid regions are empty",
    ),
    "rigid regions on another grid": (
        dict(rigid_regions=MASK[1:]),
        errors.GridMismatchError,
        "rigid regions",
    ),
    "rigid regions of no labels": (
        dict(rigid_regions=0.5 * MASK),
        errors.InvalidArgumentError,
        "whole numbers",
    ),
    "rigid regions along an axis": (
        dict(rigid_regions=MASK, along="j"),
        errors.InvalidArgumentError,
        "along at all",
    ),
    "no axis": (dict(along="y"), errors.InvalidArgumentError, "all, i, j, k, ij, ik, jk"),
    "no overlap": (
        dict(moving=images.Image(GOOD, (1, 1, 1), (5000, 0, 0)), initial="none"),
        errors.NoOverlapError,
        "overlap",
    ),
    "singular initial": (
        dict(initial_transform=np.diag([1.0, 1, 0, 1])),
        errors.SingularTransformError,
        "inverted",
    ),
    "initial of two dimensions": (
        dict(initial_transform=sitk.BSplineTransform(2)),
        errors.InvalidArgumentError,
        "2-D",
    ),
    "initial of no kind": (
        dict(initial_transform={"a": 1}),
        errors.InvalidArgumentError,
        "given as dict",
    ),
    "labels": (dict(fixed_labels=MASK), errors.InvalidArgumentError, r"result\.score\("),
    "labels by a path": (
        dict(moving_labels="labels.nii.gz"),
        errors.InvalidArgumentError,
        "result.apply",
    ),
    "unknown option that is an image": (
        dict(mask=MASK),
        errors.InvalidArgumentError,
        'unknown option "mask"',
    ),
    "progress of no kind": (
        dict(progress=5),
        errors.InvalidArgumentError,
        "progress is given as int",
    ),
    "unknown option": (dict(stepz=3), errors.InvalidArgumentError, "steps"),
    "option out of range": (dict(steps=99), errors.InvalidArgumentError, "steps"),
    "option of no choice": (
        dict(preset="quick"),
        errors.InvalidArgumentError,
        "fast, default, best",
    ),
    "option of another type": (dict(steps="many"), errors.InvalidArgumentError, "steps"),
    "option of no type": (
        dict(steps=object()),
        errors.InvalidArgumentError,
        "steps is given as object",
    ),
    "option that is no number": (
        dict(tau=np.nan),
        errors.InvalidArgumentError,
        "tau is nan; it must be a finite number",
    ),
    "option of a word or a number": (
        dict(smoothness="stiff"),
        errors.InvalidArgumentError,
        (
            r'smoothness is "stiff"; it must be one of auto, low, high or a number of mm in \[0.1,'
            r" 100\]"
        ),
    ),
    "number of an option of a word or a number": (
        dict(smoothness=0.05),
        errors.InvalidArgumentError,
        r'smoothness is "0.05"; it must be',
    ),
    "option below its range": (
        dict(seed=-1),
        errors.InvalidArgumentError,
        "seed is given as number -1; it must be a whole number from 0",
    ),
    "the engine's word for True": (
        dict(symmetric="on"),
        errors.InvalidArgumentError,
        "symmetric is 'on'; give True",
    ),
    "the engine's number for None": (
        dict(threads=0),
        errors.InvalidArgumentError,
        "threads is 0; give None",
    ),
    "option in another case": (
        dict(Search="on"),
        errors.InvalidArgumentError,
        'unknown option "Search"',
    ),
    "missing file": (
        dict(fixed="/nowhere/fixed.nii.gz"),
        errors.InputUnreadableError,
        re.escape(str(Path("/nowhere/fixed.nii.gz"))),
    ),
    "unknown model": (dict(model="no-such-model"), errors.ModelNotFoundError, "no-such-model"),
    "missing model": (dict(model="/nowhere/model.onnx"), errors.ModelNotFoundError, "model.onnx"),
    "truncated model": (dict(model=truncated), errors.ModelCorruptError, "truncated"),
    "tampered model": (dict(model=tampered), errors.ModelTamperedError, "tampered"),
    "model with outside weights": (
        dict(model=lambda _: BUNDLES / "external.onnx"),
        errors.ModelExternalError,
        "external",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_python(case: str, tmp_path: Path):
    given, error, words = CASES[case]
    given = {
        "fixed": GOOD,
        "moving": GOOD,
        **QUICK,
        **{k: v(tmp_path) if callable(v) else v for k, v in given.items()},
    }
    with pytest.raises(error, match=words):
        morphseek.register(**given)


def test_cuda_where_there_is_none():
    onnxruntime = pytest.importorskip("onnxruntime", reason="an install without networks")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this machine has a CUDA provider")
    given = {**QUICK, "model": BUNDLES / "tiny.onnx"}
    with pytest.raises(errors.DeviceUnavailableError, match="cuda"):
        morphseek.register(GOOD, GOOD, device="cuda", **given)
    assert morphseek.register(GOOD, GOOD, device="auto", **given).metrics["device"] == "cpu"


COMMAND_CASES = {
    # name: (fixed, moving, options, exit code, words)
    "constant": (GOOD, np.ones(GOOD.shape, np.float32), [], 3, "constant"),
    "nan": (np.full(GOOD.shape, np.nan, np.float32), GOOD, [], 3, "NaN"),
    "thin": (GOOD[:1], GOOD, [], 3, "fixed"),
    "missing": (None, GOOD, [], 3, "does not exist"),
    "model": (GOOD, GOOD, ["--model", "nowhere.onnx"], 4, "nowhere.onnx"),
    "usage": (GOOD, GOOD, ["--steps", "99"], 2, "steps"),
    "usage of a word or a number": (
        GOOD,
        GOOD,
        ["--smoothness", "200"],
        2,
        "or a number of mm in [0.1, 100]",
    ),
    "mask": (GOOD, GOOD, ["--fixed-mask", "{missing}"], 3, "fixed mask"),
}


@pytest.mark.parametrize("case", COMMAND_CASES)
def test_command(case: str, tmp_path: Path, command: Command):
    fixed, moving, options, code, words = COMMAND_CASES[case]
    paths = {}
    for name, array in (("fixed", fixed), ("moving", moving)):
        paths[name] = tmp_path / f"{name}.nrrd"  # a NIfTI reader turns NaN into 0
        if array is not None:
            images.write(paths[name], images.Image(array))
    options = [o.format(missing=tmp_path / "missing.nii.gz") for o in options]
    out = tmp_path / "out" / "deep"
    text = command("register", paths["fixed"], paths["moving"], "--out", out, *options, expect=code)
    assert words in " ".join(text.split())
    assert "Traceback" not in text
    assert not (tmp_path / "out").exists()


def test_command_error_as_json(tmp_path: Path, command: Command):
    error = command.json(
        "register", tmp_path / "no.nii", tmp_path / "no.nii", "--out", tmp_path / "out", expect=3
    )["error"]
    assert (
        error["name"] == "input_unreadable"
        and error["code"] == errors.InputUnreadableError.code
        and "no.nii" in error["message"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["register", "a", "b"],
        ["register", "a", "b", "--out", "c", "--steps", "99"],
        ["info", "modles"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_usage_errors_as_json(arguments: list[str], command: Command):
    error = command.json(*arguments, expect=2)["error"]
    assert (
        error["name"] == "invalid_argument"
        and error["code"] == errors.InvalidArgumentError.code
        and error["message"]
    )
    assert "Usage:" in command(*arguments, expect=2)


def test_any_exception_is_one_of_ours():
    for error, cls in (
        (KeyboardInterrupt(), errors.CancelledError),
        (MemoryError(), errors.OutOfMemoryError),
        (ZeroDivisionError("x"), errors.InternalError),
    ):
        assert type(errors.from_exception(error)) is cls
    error = errors.DiskFullError("full")
    assert errors.from_exception(error) is error
    with pytest.raises(ZeroDivisionError), reported(False):
        raise ZeroDivisionError


def test_interruption_and_defects_as_json(capsys: pytest.CaptureFixture):
    with pytest.raises(click.exceptions.Exit) as end, reported(True):
        raise KeyboardInterrupt
    assert (
        end.value.exit_code == 130
        and json.loads(capsys.readouterr().out)["error"]["name"] == "cancelled"
    )
    with pytest.raises(ZeroDivisionError), reported(True):
        raise ZeroDivisionError("x")
    assert json.loads(capsys.readouterr().out)["error"] == {
        "name": "internal",
        "code": 1,
        "message": "ZeroDivisionError: x",
    }


def test_command_unwritable(tmp_path: Path, files: dict[str, Path], command: Command):
    (tmp_path / "file").write_text("mine")
    text = command(
        "register", files["fixed"], files["moving"], "--out", tmp_path / "file" / "out", expect=6
    )
    assert "cannot be written" in text
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
    command(
        "apply",
        "--transform",
        tmp_path / "none.h5",
        "-i",
        files["moving"],
        "-r",
        files["fixed"],
        "-o",
        tmp_path / "o.nii.gz",
        expect=3,
    )
    assert not (tmp_path / "o.nii.gz").exists()


def test_command_keeps_an_old_result_on_failure(
    tmp_path: Path, files: dict[str, Path], command: Command
):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text(json.dumps({"old": True}))
    command(
        "register", files["fixed"], files["fixed"].parent / "missing.nii.gz", "--out", out, expect=3
    )
    command(
        "register",
        files["fixed"],
        files["moving"],
        "--out",
        out,
        "--model",
        "nowhere.onnx",
        expect=4,
    )
    assert [p.name for p in out.iterdir()] == ["report.json"] and json.loads(
        (out / "report.json").read_text(encoding="utf-8")
    ) == {"old": True}
