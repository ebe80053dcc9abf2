"""Every failure has its class in Python and its exit code in the command, and leaves nothing
behind.
"""

import contextlib
import json
import os
import pickle
import re
import signal
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import BUNDLES, QUICK, Command, blob, refused
from morphseek import errors, images
from morphseek._interrupts import SignalDelay
from morphseek.cli._command import reported


def test_table_makes_the_classes():
    assert len({e["code"] for e in errors.TABLE}) == len(errors.TABLE) > 20
    for entry in errors.TABLE:
        cls = getattr(errors, entry["python"])
        assert issubclass(cls, errors.MorphSeekError)
        assert (cls.code, cls.exit_code) == (entry["code"], entry["exit"])
        builtin = cls.__mro__[1]  # what a caller would catch
        assert builtin.__module__ == "builtins" and builtin is not Exception
        error = errors._from_engine(RuntimeError(f"{entry['code']}|what | happened"))
        assert type(error) is cls and str(error) == "what | happened"
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is cls and str(copy) == str(error) and cls.__doc__
    assert type(errors._from_engine(RuntimeError("no code"))) is errors.InternalError


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
    """Change the manifest of a model, so that it disagrees with the weights."""
    content, key = bytearray((BUNDLES / "tiny.onnx").read_bytes()), b'"sha256": "'
    content[content.index(key) + len(key)] ^= 1
    path = folder / "tampered.onnx"
    path.write_bytes(content)
    return path


def truncated(folder: Path) -> Path:
    path = folder / "truncated.onnx"
    path.write_bytes((BUNDLES / "tiny.onnx").read_bytes()[:4000])
    return path


GOOD = blob()
MASK = np.ones(GOOD.shape, np.uint8)


def case(error: type[errors.MorphSeekError], words: str, **given: Any) -> Any:
    """Return a row: the error, words of its message, and the keywords of register."""
    return error, words, given


INVALID, GRID = errors.InvalidArgumentError, errors.GridMismatchError
#: Beside those of attack/test_numbers.py.
CASES = {
    "empty": case(errors.EmptyVolumeError, "fixed", fixed=np.zeros((0, 5, 5), np.float32)),
    "one row": case(errors.ThinVolumeError, "fixed", fixed=GOOD[:1, :1]),
    "empty mask": case(errors.EmptyMaskError, "fixed mask", fixed_mask=0 * MASK),
    "mask on another grid": case(GRID, "moving mask", moving_mask=MASK[1:]),
    "mask elsewhere": case(
        GRID, "moving mask", moving_mask=images.Image(MASK, origin=(50, 0, 0))
    ),
    "no rigid region": case(errors.EmptyMaskError, "regions are empty", rigid_regions=0 * MASK),
    "rigid regions elsewhere": case(GRID, "rigid regions", rigid_regions=MASK[1:]),
    "rigid regions of no labels": case(INVALID, "whole numbers", rigid_regions=0.5 * MASK),
    "rigid regions along an axis": case(INVALID, "along at all", rigid_regions=MASK, along="j"),
    "no axis": case(INVALID, "all, i, j, k, ij, ik, jk", along="y"),
    "no overlap": case(
        errors.NoOverlapError, "overlap", moving=images.Image(GOOD, origin=(5000, 0, 0)),
        initial="none",
    ),
    "initial of two dimensions": case(INVALID, "2-D", initial_transform=sitk.BSplineTransform(2)),
    "initial of no kind": case(INVALID, "given as dict", initial_transform={"a": 1}),
    "labels": case(INVALID, r"result\.score\(", fixed_labels=MASK),
    "labels by a path": case(INVALID, "result.apply", moving_labels="labels.nii.gz"),
    "unknown option that is an image": case(INVALID, 'unknown option "mask"', mask=MASK),
    "progress of no kind": case(INVALID, "progress is given as int", progress=5),
    "unknown option": case(INVALID, "steps", stepz=3),
    "option out of range": case(INVALID, "steps", steps=99),
    "option of no choice": case(INVALID, "fast, default, best", preset="quick"),
    "option of another type": case(INVALID, "steps", steps="many"),
    "option of no type": case(INVALID, "steps is given as object", steps=object()),
    "option that is no number": case(INVALID, "tau is nan; it must be a finite number", tau=np.nan),
    "option of a word or a number": case(
        INVALID, r'smoothness is "stiff"; it must be one of auto, low, high or a number of mm in \['
        r"0\.1, 100\]", smoothness="stiff",
    ),
    "number of such an option": case(INVALID, 'smoothness is "0.05"; it must', smoothness=0.05),
    "option below its range": case(
        INVALID, "seed is given as number -1; it must be a whole number from 0", seed=-1
    ),
    "the engine's word for True": case(INVALID, "symmetric is 'on'; give True", symmetric="on"),
    "the engine's number for None": case(INVALID, "threads is 0; give None", threads=0),
    "option in another case": case(INVALID, 'unknown option "Search"', Search="on"),
    "missing file": case(
        errors.InputUnreadableError, re.escape(str(Path("/nowhere/fixed.nii.gz"))),
        fixed="/nowhere/fixed.nii.gz",
    ),
    "unknown model": case(errors.ModelNotFoundError, "no-such-model", model="no-such-model"),
    "missing model": case(errors.ModelNotFoundError, "model.onnx", model="/nowhere/model.onnx"),
    "truncated model": case(errors.ModelCorruptError, "truncated", model=truncated),
    "tampered model": case(errors.ModelTamperedError, "tampered", model=tampered),
    "model with outside weights": case(
        errors.ModelExternalError, "external", model=lambda _: BUNDLES / "external.onnx"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_python(name: str, tmp_path: Path):
    error, words, given = CASES[name]
    given = {k: v(tmp_path) if callable(v) else v for k, v in given.items()}
    refused(error, words, morphseek.register, **{"fixed": GOOD, "moving": GOOD, **QUICK, **given})


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
    "smoothness": (GOOD, GOOD, ["--smoothness", "200"], 2, "or a number of mm in [0.1, 100]"),
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
    none = tmp_path / "no.nii"
    error = command.json("register", none, none, "--out", tmp_path / "out", expect=3)["error"]
    expected = ("input_unreadable", errors.InputUnreadableError.code)
    assert (error["name"], error["code"]) == expected and "no.nii" in error["message"]


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
    assert (error["name"], error["code"]) == ("invalid_argument", INVALID.code) and error["message"]
    assert "Usage:" in command(*arguments, expect=2)


def test_any_exception_is_one_of_ours():
    for error, cls in (
        (KeyboardInterrupt(), errors.CancelledError),
        (MemoryError(), errors.OutOfMemoryError),
        (ZeroDivisionError("x"), errors.InternalError),
    ):
        assert type(errors._from_exception(error)) is cls
    error = errors.DiskFullError("full")
    assert errors._from_exception(error) is error
    with pytest.raises(ZeroDivisionError), reported(False):
        raise ZeroDivisionError


def test_interruption_and_defects_as_json(capsys: pytest.CaptureFixture):
    with pytest.raises(click.exceptions.Exit) as end, reported(True):
        raise KeyboardInterrupt
    assert end.value.exit_code == 130
    assert json.loads(capsys.readouterr().out)["error"]["name"] == "cancelled"
    with pytest.raises(ZeroDivisionError), reported(True):
        raise ZeroDivisionError("x")
    error = {"name": "internal", "code": 1, "message": "ZeroDivisionError: x"}
    assert json.loads(capsys.readouterr().out)["error"] == error


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM")
@pytest.mark.parametrize("delayed", [False, True])
def test_a_second_signal_does_not_disturb_the_clean_up(delayed: bool):
    cleaned = False
    with pytest.raises(click.exceptions.Exit) as end, reported(False):
        try:
            with SignalDelay() if delayed else contextlib.nullcontext() as delay:
                signal.raise_signal(signal.SIGTERM)
            delay.release()
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned = True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert end.value.exit_code == 128 + signal.SIGTERM and cleaned


def test_command_unwritable(tmp_path: Path, files: dict[str, Path], command: Command):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "out"
    text = command("register", files["fixed"], files["moving"], "--out", out, expect=6)
    assert "cannot be written" in text
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
    out = tmp_path / "o.nii.gz"
    pair = ("-i", files["moving"], "-r", files["fixed"], "-o", out)
    command("apply", "--transform", tmp_path / "none.h5", *pair, expect=3)
    assert not out.exists()


def test_command_keeps_an_old_result_on_failure(tmp_path, files, command):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text("old")
    missing = files["fixed"].parent / "missing.nii.gz"
    command("register", files["fixed"], missing, "--out", out, expect=3)
    pair = (files["fixed"], files["moving"], "--out", out)
    command("register", *pair, "--model", "nowhere.onnx", expect=4)
    assert [p.name for p in out.iterdir()] == ["report.json"]
    assert (out / "report.json").read_text() == "old"
