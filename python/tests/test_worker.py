"""The worker process gives the result of register(), reports every failure in one clear line, and
ends when its caller wants it.
"""

import json
import os
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
from helpers import QUICK, affine_of, blob, by_itk, oblique, resampled
from morphseek import errors, worker
from morphseek._grid import Grid
from morphseek.images import Image
from pace import limit

LONG = {"model": "none", "search": False, "refine": 1000, "initial": "com", "threads": 1}
LARGE = [Image(blob((40, 40, 40), shift)) for shift in (0.0, 0.1)]


def write_request(folder: Path, fixed: Image, moving: Image, **more: Any) -> Path:
    request = {"options": QUICK, "outputs": ["transformed_volume"], **more}
    given = {"fixed": fixed, "moving": moving, "fixed_mask": more.get("fixed_mask")}
    for name, image in given.items():
        if image is not None:
            request[name] = write_image(folder, name, image)
    (folder / "request.json").write_text(json.dumps(request))
    return folder


def write_image(folder: Path, name: str, image: Image) -> dict[str, Any]:
    np.save(folder / f"{name}.npy", image.array)
    return {"file": f"{name}.npy", "matrix": image.index_to_physical.tolist()}


def start(folder: Path) -> subprocess.Popen:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "morphseek.worker", folder], **pipes, text=True)


def finish(process: subprocess.Popen, expect: int = 0) -> list[dict[str, Any]]:
    """Read all output while standard input stays open, as it is while the caller lives."""
    with process:
        out = process.stdout.read()
        assert process.wait(60) == expect, out + process.stderr.read()
    return [json.loads(line) for line in out.splitlines()]


def until_refinement(process: subprocess.Popen) -> None:
    for line in process.stdout:
        if json.loads(line)["progress"]["stage"] == "refine":
            return


def travelled(image: Image) -> Image:
    """Return an image on the grid that its matrix gives: the last bit may be another."""
    return Image.on_grid(image.array, Grid.from_matrix((1, 1, 1), image.index_to_physical))


@pytest.fixture(scope="module")
def images() -> tuple[Image, Image]:
    return oblique(blob()), oblique(blob((18, 26, 30), shift=0.1))


def test_same_as_register(images: tuple[Image, Image], tmp_path: Path):
    mask = images[0].like((images[0].array > 0.2).astype(np.uint8))
    shift = np.eye(4)
    shift[0, 3] = 2.0
    options = {**QUICK, "search": True}
    more = {"initial_transform": shift.tolist(), "outputs": list(worker.OUTPUTS)}
    write_request(tmp_path, *images, fixed_mask=mask, options=options, **more)
    *progress, last = finish(start(tmp_path))
    stages = [line["progress"]["stage"] for line in progress]
    assert "align" in stages and stages[-len(worker.OUTPUTS) :] == ["outputs"] * len(worker.OUTPUTS)
    fixed, moving, inside = map(travelled, (*images, mask))
    expected = morphseek.register(
        fixed, moving, fixed_mask=inside, initial_transform=shift, uncertainty=True, **options
    )
    assert last["result"]["metrics"]["similarity_after"] == pytest.approx(
        expected.metrics["similarity_after"]
    )
    told, verdict = last["result"]["verdict"], expected.verdict
    assert (told["grade"], told["reasons"]) == (verdict.grade, list(verdict.reasons))
    assert told["meaning"] == verdict.meaning and told["error"].endswith(" mm")
    assert told["sign"] and isinstance(told["notes"], list)
    assert {"Start", "Search", "Fit"} <= {what for what, _ in last["result"]["explanation"]}

    def output(name: str) -> np.ndarray:
        entry = last["result"]["files"][name]
        axes = np.array(entry["matrix"])[:3, :3]  # a transform's grid has a margin
        np.testing.assert_allclose(axes, images[0].index_to_physical[:3, :3], atol=1e-12)
        return np.load(tmp_path / entry["file"])

    np.testing.assert_array_equal(output("transformed_volume"), expected.warped)
    np.testing.assert_array_equal(output("uncertainty"), expected.uncertainty)
    for name, transform in (
        ("transform", expected.transform),
        ("inverse_transform", expected.inverse()),
    ):
        np.testing.assert_array_equal(output(name), transform._behind_initial()[0])
        assert last["result"]["files"][name]["initial"] == transform.initial.tolist()
        assert last["result"]["files"][name]["linear"] == transform.is_linear
    np.testing.assert_array_equal(output("jacobian"), expected.jacobian())
    squares = sitk.GetArrayFromImage(sitk.VectorMagnitude(expected.transform.displacement_image()))
    np.testing.assert_allclose(output("displacement_magnitude"), squares, rtol=1e-5)


def test_channels_drive(images: tuple[Image, Image], tmp_path: Path):
    labels = [image.like((image.array > 0.3).astype(np.int16)) for image in images]
    other = [image.like(np.sqrt(np.abs(image.array))) for image in images]
    channels = [
        {"name": "root", "labels": False, "fixed": other[0], "moving": other[1]},
        {"name": "labels", "labels": True, "fixed": labels[0], "moving": labels[1]},
    ]
    written = [dict(channel) for channel in channels]
    for k, channel in enumerate(written):
        for side in ("fixed", "moving"):
            channel[side] = write_image(tmp_path, f"channel-{k}-{side}", channel[side])
    options = {**QUICK, "refine": 5}
    write_request(tmp_path, *images, options=options, channels=written)
    last = finish(start(tmp_path))[-1]["result"]
    expected = morphseek.register(
        *images, channels=[morphseek.Channel(**channel) for channel in channels], **options
    )
    warped = np.load(tmp_path / last["files"]["transformed_volume"]["file"])
    np.testing.assert_array_equal(warped, expected.warped)
    assert [c["name"] for c in last["metrics"]["channels"]] == ["root", "labels"]
    assert np.abs(warped - morphseek.register(*images, **options).warped).max() > 1e-3


def test_labels_come_back_on_the_fixed_grid(images: tuple[Image, Image], tmp_path: Path):
    array = (blob((9, 13, 15), shift=0.1) > 0.3).astype(np.int16) * 7
    coarse = Image(array, (1.6, 2.6, 5.0), images[1].origin, images[1].direction)
    labels = [write_image(tmp_path, "labels-in-0", coarse)]
    write_request(tmp_path, *images, outputs=[], labels=labels)
    result = finish(start(tmp_path))[-1]["result"]
    (entry,) = result["labels"]
    moved = np.load(tmp_path / entry["file"])
    expected = morphseek.register(*images, **QUICK).transform.to_sitk()
    itks = resampled(coarse, images[0], expected, sitk.sitkNearestNeighbor)
    assert result["files"] == {} and moved.dtype == np.int16 and np.count_nonzero(moved) > 100
    assert np.count_nonzero(moved != itks) <= 1e-3 * itks.size


def test_vectors_on_a_coarser_grid(images: tuple[Image, Image]):
    """The field is linear, so ITK's linear interpolation between the coarse vectors gives the full
    field.
    """
    z, y, x = np.indices(images[0].array.shape)
    u = np.stack([0.05 * z, 0.1 * x - 0.5, 0.02 * y]).astype(np.float32)
    linear = np.diag([1.1, 0.95, 1.0, 1.0])
    transform = morphseek.Field(u, images[0].grid, images[1].grid, linear)
    array, grid = worker.vectors(transform, spacing=3.0)
    assert all(3.0 <= s < 4.5 for s in grid.spacing)
    assert array.size < transform._behind_initial()[0].size / 3
    vectors = sitk.GetImageFromArray(array.astype(np.float64), isVector=True)
    coarse = sitk.DisplacementFieldTransform(grid.place(vectors))
    field = sitk.CompositeTransform([affine_of(linear), coarse])
    points = images[0].grid.to_physical([(2, 3, 4), (13, 10, 9), (20, 15, 12)])
    own = by_itk(transform.to_sitk(), points)
    np.testing.assert_allclose(by_itk(field, points), own, atol=1e-3)


@pytest.mark.parametrize(
    "change, error",
    [
        ({"outputs": ["transformed_volume", "colour"]}, errors.InvalidArgumentError),
        ({"options": {"refine": "many"}}, errors.InvalidArgumentError),
        ({"options": {"model": "/nowhere/net.onnx"}}, errors.ModelNotFoundError),
        ({"initial_transform": np.zeros((4, 4)).tolist()}, errors.InvalidArgumentError),
        ({"initial_transform": [[1, 2], [3]]}, errors.InputUnreadableError),
        ({"initial_transform": np.eye(3).tolist()}, errors.InvalidArgumentError),
        ({"fixed": {"file": "absent.npy"}}, errors.InputUnreadableError),
    ],
)
def test_failures(images, tmp_path, change, error):
    write_request(tmp_path, *images)
    request = json.loads((tmp_path / "request.json").read_text(encoding="utf-8"))
    (tmp_path / "request.json").write_text(json.dumps({**request, **change}))
    last = finish(start(tmp_path), expect=error.exit_code)[-1]["error"]
    expected = (error.__name__, error.name, error.code)
    assert (last["class"], last["name"], last["code"]) == expected and last["message"]
    assert not (tmp_path / "transformed_volume.npy").exists()


def test_constant_volume(images: tuple[Image, Image], tmp_path: Path):
    write_request(tmp_path, images[0], images[1].like(np.ones_like(images[1].array)))
    last = finish(start(tmp_path), expect=3)[-1]["error"]
    assert last["class"] == "ConstantVolumeError" and "moving" in last["message"]


@pytest.mark.parametrize("temporary", [True, False])
def test_ends_with_its_caller(tmp_path: Path, temporary: bool):
    folder = tmp_path / "job"
    folder.mkdir()
    write_request(folder, *LARGE, options=LONG, temporary=temporary)
    process = start(folder)
    until_refinement(process)
    began = time.monotonic()
    process.stdin.close()
    assert process.wait(limit(5)) == errors.CancelledError.exit_code
    assert time.monotonic() - began < limit(1)
    assert folder.exists() != temporary
    process.stdout.close(), process.stderr.close()


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM")
def test_sigterm_in_the_middle(tmp_path: Path):
    write_request(tmp_path, *LARGE, options=LONG)
    process = start(tmp_path)
    until_refinement(process)
    began = time.monotonic()
    process.terminate()
    process.communicate(timeout=limit(5))
    assert process.returncode == -signal.SIGTERM and time.monotonic() - began < limit(1)
    assert {p.name for p in tmp_path.iterdir()} == {"request.json", "fixed.npy", "moving.npy"}


def ask(*question: str | Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "morphseek.worker", *question]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def answer(*question: str | Path) -> dict[str, Any]:
    done = ask(*question)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_describe():
    found = answer("--describe")
    assert found["version"] == morphseek.__version__ and "cpu" in found["devices"]
    assert {option["name"] for option in found["options"]} >= {"preset", "initial", "refine"}


def test_pairs(tmp_path: Path):
    (tmp_path / "study.csv").write_text(
        "fixed;moving;rigid_regions\na.nii;sub/b.nii;\na.nii;c.nii;r.nii\n"
    )
    first, second = answer("--pairs", tmp_path / "study.csv")["pairs"]
    a, b = str(tmp_path / "a.nii"), str(tmp_path / "sub" / "b.nii")
    assert first == {"id": "001-b-to-a", "fixed": a, "moving": b}
    assert second["rigid_regions"] == str(tmp_path / "r.nii")
    (tmp_path / "study.csv").write_text("fixed\na.nii\n")
    done = ask("--pairs", tmp_path / "study.csv")
    assert done.returncode == errors.InputUnreadableError.exit_code
    assert "columns fixed and moving" in json.loads(done.stdout)["error"]["message"]


def test_presets(tmp_path: Path):
    path = tmp_path / "ours.json"
    assert answer("--save-preset", path, '{"refine": 7, "smoothness": "2.5"}') == {}
    assert answer("--load-preset", path)["options"] == morphseek.presets.load(path)
    assert morphseek.presets.load(path)["refine"] == 7
    done = ask("--save-preset", path, '{"model": "/tmp/a.onnx"}')
    assert done.returncode == errors.InvalidArgumentError.exit_code
    assert "names no file" in json.loads(done.stdout)["error"]["message"]
    assert morphseek.presets.load(path)["refine"] == 7


@pytest.mark.parametrize("words", [(), ("--pairs",), ("--describe", "more"), ("a", "b")])
def test_usage(words: tuple[str, ...]):
    done = ask(*words)
    assert done.returncode == 2 and "usage" in done.stderr and not done.stdout
