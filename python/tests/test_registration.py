"""morphseek.register: the result's contract, interruption, processes and threads."""

import concurrent.futures
import gc
import inspect
import itertools
import json
import multiprocessing
import pickle
import shutil
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import SimpleITK as sitk

import morphseek
from helpers import BUNDLES, QUICK, blob, invalid, oblique, refused, resampled
from morphseek import _manifest, errors, images, progress
from morphseek._engine import core
from morphseek._engine.table import in_python
from morphseek.phantom import PhantomPair
from morphseek.progress import Bar
from pace import limit


def test_contract(result: morphseek.Registration, pair: PhantomPair):
    shape = pair.fixed.array.shape
    assert result.displacement().shape == (3, *shape) and result.displacement().dtype == np.float32
    assert result.displacement_mm().shape == (*shape, 3)
    assert result.warped.shape == shape and result.warped.dtype == np.float32
    names = "version model device seed similarity_before similarity_after njd_percent warnings"
    assert {*names.split()} <= set(result.metrics)
    seconds = dict(result.metrics["seconds"])
    assert seconds.pop("total") >= 0.99 * sum(seconds.values())
    assert result.metrics["version"] == morphseek.__version__
    assert "fixed 40 x 40 x 40" in repr(result) and result.verdict.grade in repr(result)


def test_finds_the_phantom(result: morphseek.Registration, pair: PhantomPair):
    points = pair.target_points(2)
    error = np.linalg.norm(result.transform_points(points) - pair.truth(points), axis=1).mean()
    before = np.linalg.norm(points - pair.truth(points), axis=1).mean()
    assert before > 30 and error < 0.4 * before


def test_warped_is_simpleitks(result: morphseek.Registration, pair: PhantomPair):
    background = float(pair.moving.array.min())
    transform = result.transform.to_sitk()
    expected = resampled(pair.moving, pair.fixed, transform, background=background)
    difference = np.abs(result.warped - expected)
    # of intensities in the hundreds; the rest are border voxels
    assert np.percentile(difference, 99.5) < 0.1
    np.testing.assert_array_equal(result.warped, result.apply(pair.moving).array)


def test_rerun_is_identical(pair: PhantomPair, result: morphseek.Registration):
    assert result.options == {"model": "none", "refine": 0, "search": False}
    again = morphseek.register(pair.fixed, pair.moving, **result.options)
    np.testing.assert_array_equal(again.displacement(), result.displacement())


def test_input_kinds_agree(pair: PhantomPair, files: dict[str, Path]):
    plain = morphseek.register(pair.fixed, pair.moving, **QUICK).displacement()
    from_files = morphseek.register(str(files["fixed"]), files["moving"], **QUICK)
    from_sitk = morphseek.register(pair.fixed.to_sitk(), pair.moving.to_sitk(), **QUICK)
    np.testing.assert_array_equal(from_sitk.displacement(), plain)
    # the file's affine is float32
    np.testing.assert_allclose(from_files.displacement(), plain, atol=1e-3)


def test_oblique_shift_is_found():
    fixed = oblique(blob((24, 28, 32)))
    offset = np.array([4.0, -3.0, 5.0])
    origin = tuple((np.array(fixed.origin) + offset).tolist())
    moving = images.Image(fixed.array, fixed.spacing, origin, fixed.direction)
    result = morphseek.register(fixed, moving, model="none", refine=0, search=False)
    inside = result.displacement_mm()[8:-8, 8:-8, 8:-8].mean(axis=(0, 1, 2))
    np.testing.assert_allclose(inside, offset, atol=0.3)


def test_network_runs():
    options = {**QUICK, "model": BUNDLES / "tiny.onnx"}
    result = morphseek.register(blob(), blob(shift=0.1), **options)
    assert result.metrics["model"] != "none" and len(result.metrics["steps"]) >= 1
    assert np.abs(result.displacement()).max() > 0


def test_initial_transform_stays_with_initial_none(tmp_path: Path):
    matrix = np.array([[1, 0.02, 0, 1.5], [0, 0.98, 0, -1], [0, 0, 1, 0.5], [0, 0, 0, 1]])
    path = tmp_path / "t.tfm"
    sitk.WriteTransform(morphseek.Affine(matrix).to_sitk(), str(path))
    options, there = {**QUICK, "initial": "none"}, (matrix @ [10, 9, 8, 1])[:3]
    for given in (matrix, morphseek.Affine(matrix), path):
        result = morphseek.register(blob(), blob(), initial_transform=given, **options)
        np.testing.assert_allclose(result.transform.initial, matrix, atol=1e-12)
        np.testing.assert_allclose(result.transform_points([[10, 9, 8]]), [there], atol=1e-4)


def test_com_keeps_an_initial_transform():
    matrix = np.eye(4)
    matrix[0, 3] = 3
    result = morphseek.register(blob(), blob(), initial_transform=matrix, **QUICK)
    np.testing.assert_array_equal(result.transform.initial, matrix)
    assert result.metrics["align"]["method"] == "none"
    assert any("initial had no effect" in w for w in result.metrics["warnings"])


def test_masks_and_numpy_options(tmp_path: Path):
    mask = np.zeros((20, 24, 28), bool)
    mask[4:16, 4:20, 4:24] = True
    options = {"fixed_mask": mask, "moving_mask": mask.astype(np.int16), "seed": np.int64(3)}
    result = morphseek.register(blob(), blob(shift=0.1), **options, threads=None, **QUICK)
    assert result.metrics["seed"] == 3
    result.save(tmp_path)
    assert morphseek.Registration.read(tmp_path).options["seed"] == 3
    invalid("list", morphseek.register, blob(), blob(), seed=[3])


@pytest.mark.parametrize(
    "given, read",
    [("low", "low"), (2.5, "2.5"), (np.float32(2.5), "2.5"), ("2.50", "2.5"), (3, "3")],
)
def test_smoothness_in_words_and_in_mm(given: object, read: str, tmp_path: Path):
    result = morphseek.register(blob(), blob(shift=0.1), smoothness=given, **QUICK)
    assert result.options["smoothness"] == read
    result.save(tmp_path)
    assert morphseek.Registration.read(tmp_path).options["smoothness"] == read


def test_smoothness_is_documented_with_both():
    both = 'smoothness : {"auto", "low", "high"} or number of mm from 0.1 to 100, default \'auto\''
    assert both in morphseek.register.__doc__
    parameter = inspect.signature(morphseek.register).parameters["smoothness"]
    assert parameter.default == "auto" and float in typing.get_args(parameter.annotation)


@pytest.mark.parametrize("text", ["no\udcff", "no\0"])
def test_names_that_the_engine_would_read_otherwise(tmp_path: Path, text: str):
    for options in ({"cache": str(tmp_path / text)}, {"model": text}):
        says = f"{next(iter(options))} .*UTF-8"
        invalid(says, morphseek.register, blob(), blob(), **{**QUICK, **options})
    invalid("UTF-8", core.verify_model, text)
    assert not list(tmp_path.iterdir())


def test_inputs_are_only_read():
    fixed, moving = blob(), blob(shift=0.2)
    moving[0, 0, 0] = np.nan
    copies = fixed.copy(), moving.copy()
    fixed.flags.writeable = moving.flags.writeable = False
    result = morphseek.register(fixed, moving, **QUICK)
    np.testing.assert_array_equal(fixed, copies[0])
    np.testing.assert_array_equal(moving, copies[1])
    assert any("NaN" in w for w in result.metrics["warnings"])


def test_signature_and_help_come_from_the_engine():
    parameters = inspect.signature(morphseek.register).parameters
    for option in core.option_table():
        name = option["name"]
        assert parameters[name].default == in_python(name, option["default"])
        assert option["help"] in morphseek.register.__doc__


def test_pickle_and_save(result: morphseek.Registration, pair: PhantomPair, tmp_path: Path):
    copy = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(copy.displacement(), result.displacement())
    assert copy.metrics == result.metrics
    result.save(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("the user's")
    result.save(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").unlink()
    written = ["displacement.nrrd", "report.json", "transform.h5", "warped.nii.gz"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == written
    loaded = morphseek.Registration.read(tmp_path / "out")
    np.testing.assert_allclose(loaded.displacement(), result.displacement(), atol=1e-4)
    np.testing.assert_allclose(loaded.warped, result.warped)
    assert loaded.metrics == result.metrics
    labels = loaded.apply(pair.moving_labels, interpolation="nearest").array
    assert (labels != result.apply(pair.moving_labels, interpolation="nearest").array).mean() < 1e-3
    transform = sitk.ReadTransform(str(tmp_path / "out" / "transform.h5"))
    background = float(pair.moving.array.min())
    expected = resampled(pair.moving, pair.fixed, transform, background=background)
    assert np.percentile(np.abs(result.warped - expected), 99.5) < 0.1


def test_uncertainty(uncertain, result, pair, tmp_path):
    sd, measured = uncertain.uncertainty, uncertain.metrics["uncertainty"]
    assert sd.shape == pair.fixed.array.shape and sd.dtype == np.float32 and sd.min() > 0
    inside = sd[pair.fixed.array > pair.fixed.array.mean()]
    assert measured["source"] == "search"
    assert measured["mean_mm"] == pytest.approx(inside.mean(), rel=1e-3)
    assert measured["p95_mm"] == pytest.approx(np.percentile(inside, 95), rel=1e-3)
    assert f"uncertainty {measured['mean_mm']:.1f} mm" in repr(uncertain)
    assert result.uncertainty is result.metrics["uncertainty"] is None
    assert "uncertainty" not in repr(result)

    np.testing.assert_array_equal(pickle.loads(pickle.dumps(uncertain)).uncertainty, sd)
    uncertain.save(tmp_path)
    written = sitk.ReadImage(str(tmp_path / "uncertainty.nrrd"))
    assert written.GetSpacing() == pytest.approx(pair.fixed.spacing)
    np.testing.assert_array_equal(sitk.GetArrayFromImage(written), sd)
    np.testing.assert_array_equal(morphseek.Registration.read(tmp_path).uncertainty, sd)


def test_uncertainty_ranks_the_error(uncertain: morphseek.Registration, pair: PhantomPair):
    from scipy.stats import spearmanr

    where = np.argwhere(pair.fixed_labels.array > 0)
    points = pair.fixed.grid.to_physical(where[:, ::-1])
    error = np.linalg.norm(uncertain.transform_points(points) - pair.truth(points), axis=1)
    said = uncertain.uncertainty[tuple(where.T)]
    assert spearmanr(said, error).statistic > 0.2
    # the estimate is on the safe side
    assert 0.3 < np.sqrt((error**2).mean() / (said**2).mean()) < 3


def test_uncertainty_without_the_search():
    spread = morphseek.register(blob(), blob(shift=0.1), **QUICK, uncertainty=True).uncertainty
    assert spread.shape == blob().shape and (spread > 0).all()


UNREADABLE = errors.InputUnreadableError


def change_report(folder: Path, **values: Any) -> None:
    """Change values of a report; None removes one."""
    path = folder / "report.json"
    report = {**json.loads(path.read_text(encoding="utf-8")), **values}
    left = {key: value for key, value in report.items() if value is not None}
    path.write_text(json.dumps(left), encoding="utf-8")


def no_number(folder: Path, result: morphseek.Registration) -> None:
    field = result.transform.displacement_image()
    field[3, 2, 1] = (0.0, np.nan, 0.0)
    images.write(folder / "displacement.nrrd", field)
    change_report(folder, **{_manifest.KEY: {}})  # or the checksum tells


def of_another(folder: Path, result: morphseek.Registration) -> None:
    images.write(folder / "warped.nii.gz", images.Image(np.zeros((3, 4, 5), np.float32)))
    change_report(folder, **{_manifest.KEY: {}})


def reported(**values: Any) -> Callable[[Path, morphseek.Registration], None]:
    return lambda folder, _: change_report(folder, **values)


def emptied(folder: Path, result: morphseek.Registration) -> None:
    (folder / "displacement.nrrd").write_bytes(b"NRRD0004\n")


@pytest.mark.parametrize(
    "change, error, words",
    [
        (lambda folder, _: shutil.rmtree(folder), UNREADABLE, "report.json"),
        (emptied, UNREADABLE, "displacement.nrrd"),
        (no_number, UNREADABLE, "displacement.nrrd has displacements that are no numbers"),
        (of_another, errors.GridMismatchError, "warped.nii.gz"),
        (reported(initial_transform=[1, 2]), UNREADABLE, "report.json"),
        (reported(initial_transform=np.zeros((4, 4)).tolist()), UNREADABLE, "report.json"),
        (reported(moving_grid=None), UNREADABLE, "report.json"),
        (reported(moving_grid="none"), UNREADABLE, "report.json"),
        (reported(fixed_grid=[1.0] * 17), UNREADABLE, "report.json"),
    ],
)
def test_load_refuses(change, error, words, tmp_path, result):
    result.save(tmp_path / "r")
    change(tmp_path / "r", result)
    refused(error, words, morphseek.Registration.read, tmp_path / "r")


def test_cache(tmp_path: Path):
    fixed, moving = blob(), blob(shift=0.1)
    first, second, other = (
        morphseek.register(fixed, moving, cache=tmp_path, seed=seed, **QUICK) for seed in (0, 0, 1)
    )
    assert [one.metrics["cached"] for one in (first, second, other)] == [False, True, False]
    np.testing.assert_array_equal(first.displacement(), second.displacement())
    np.testing.assert_array_equal(first.warped, second.warped)


def test_progress(pair: PhantomPair):
    seen: list[morphseek.Progress] = []
    morphseek.register(pair.fixed, pair.moving, progress=seen.append, **QUICK)
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1
    assert {"align", "finish"} <= {p.stage for p in seen}


@pytest.mark.parametrize("no", [False, np.False_])
def test_progress_cancels(no: bool, pair: PhantomPair):
    with pytest.raises(errors.CancelledError):
        morphseek.register(pair.fixed, pair.moving, progress=lambda p: no)
    morphseek.register(blob(), blob(), progress=lambda p: 0, **QUICK)


def test_exception_in_progress_comes_back(pair: PhantomPair):
    def fail(_: morphseek.Progress) -> None:
        raise ZeroDivisionError("mine")

    refused(ZeroDivisionError, "mine", morphseek.register, pair.fixed, pair.moving, progress=fail)


def test_ctrl_c(tmp_path: Path):
    """SIGINT during a registration soon raises KeyboardInterrupt, and the interpreter goes on."""
    script = """if True:
        import morphseek
        pair, started = morphseek.phantom.make_pair(size=64), []
        def begin(p):
            started or (started.append(1), print("started", flush=True))
        try:
            morphseek.register(pair.fixed, pair.moving, progress=begin)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            small = pair.fixed.array[::4, ::4, ::4]
            quick = {"model": "none", "refine": 0, "initial": "none"}
            print(morphseek.register(small, small, **quick).warped.shape)
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, **pipes)
    with process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        assert process.stdout.readline() == "interrupted\n"
        # on a loaded machine; the engine looks ten times a second
        assert time.monotonic() - sent < limit(20)
        # communicate() would miss the lines that were read before
        out = process.stdout.read()
        assert process.wait(timeout=limit(60)) == 0, process.stderr.read()
    assert out == "(16, 16, 16)\n"


def assert_prints(script: str, text: str, folder: Path) -> None:
    how = {"capture_output": True, "text": True, "timeout": limit(300)}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, **how)
    assert done.stdout == text, done.stderr


def test_ctrl_c_inside_a_callback(tmp_path: Path):
    """A registration in the callback of another ends as soon as an outer one."""
    script = f"""if True:
        import morphseek, time, signal, os
        pair, sent = morphseek.phantom.make_pair(size=96), []
        images, slow = (pair.fixed, pair.moving), dict(refine=1000, search=False, initial="com")
        def inner(p):
            if p.stage == "refine" and not sent:
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
        try:
            morphseek.register(*images, progress=lambda p: morphseek.register(
                *images, progress=inner, **slow))
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - sent[0] < {limit(3)})
    """
    assert_prints(script, "interrupted True\n", tmp_path)


def test_one_engine_for_threads_that_begin_together(tmp_path: Path):
    script = """if True:
        import numpy as np, threading, morphseek
        from concurrent.futures import ThreadPoolExecutor
        from morphseek._engine import core
        opened, real, barrier = [], core.gopy.Open, threading.Barrier(6)
        core.gopy.Open = lambda *a: (opened.append(1), real(*a))[1]
        image = np.random.default_rng(0).random((16, 16, 16))
        def work(k):
            barrier.wait()
            morphseek.register(image, image, model="none", refine=0, search=False, initial="none")
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        print(len(opened))
    """
    assert_prints(script, "1\n", tmp_path)


def test_fork_is_refused(tmp_path: Path):
    """In a new process, because pytest's has threads of earlier tests."""
    script = """if True:
        import os, numpy as np, morphseek
        image = np.random.default_rng(0).random((16, 16, 16))
        morphseek.devices()  # loads the engine
        if (child := os.fork()) == 0:
            try:
                morphseek.register(image, image)
            except morphseek.errors.InvalidHandleError as error:
                os.write(1, b"refused" if "spawn" in str(error) else str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
    """
    assert_prints(script, "refused", tmp_path)


def test_spawn_works():
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        shape = pool.submit(_register_in_worker).result(timeout=limit(120))
    assert shape == (20, 24, 28)


def _register_in_worker() -> tuple[int, ...]:
    return morphseek.register(blob(), blob(shift=0.1), **QUICK).warped.shape


def test_threads_at_once():
    pairs = [(blob(), blob(shift=s)) for s in np.linspace(-0.2, 0.2, 8)]
    alone = [morphseek.register(*p, **QUICK).displacement() for p in pairs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda p: morphseek.register(*p, **QUICK).displacement(), pairs))
    for a, b in zip(alone, together):
        np.testing.assert_array_equal(a, b)


@pytest.mark.thorough
def test_memory_is_flat():
    fixed, moving = blob((32, 32, 32)), blob((32, 32, 32), 0.1)
    field = 3 * fixed.nbytes

    def run(times: int) -> int:
        for _ in range(times):
            morphseek.register(fixed, moving, **{**QUICK, "initial": "none"})
        gc.collect()
        return psutil.Process().memory_info().rss

    sizes = [run(8), *(run(24) for _ in range(3))]
    grown = [after - before for before, after in itertools.pairwise(sizes)]
    assert min(grown) < 12 * field, grown  # kept fields alone would be 24, every time


def test_a_bar_shows_paths_as_they_are(monkeypatch, capsys):
    monkeypatch.delenv("CI", raising=False)  # under CI a bar is silent
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    bar = Bar()
    try:
        for path in ("dir[/x]/no.nii.gz", "dir/[left]:on:.nii.gz"):
            bar(morphseek.Progress("pairs", 0.5, path, 1, 2))
            bar._bar.refresh()
            assert path in capsys.readouterr().err
            bar.say(f"said: {path}")
            assert f"said: {path}" in capsys.readouterr().err
    finally:
        bar.close()


@pytest.mark.parametrize("variables, shown", [({}, True), ({"CI": "true"}, False)])
def test_the_bar_is_quiet_under_ci(variables, shown, monkeypatch, capsys):
    """Also if CI has a terminal. Without colours if they are switched off."""
    for name in ("CI", "TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    bar = progress.Bar()
    bar(morphseek.Progress("refine", 0.5, "level 2"))
    bar.close()
    said = capsys.readouterr()
    assert said.out == "" and ("refine" in said.err) == shown
