"""Extreme numbers and a broken environment: each case has a defined result."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morphseek
from helpers import QUICK, Command, blob
from morphseek import errors, images
from morphseek.images import Image

BLOB = blob((16, 16, 16))
PLAIN = (1.0, 0, 0, 0, 1, 0, 0, 0, 1)


def image(array: np.ndarray = BLOB, **grid: Any) -> Image:
    return Image(array, **{"spacing": (1, 1, 1), "origin": (0, 0, 0), "direction": PLAIN, **grid})


def register(fixed: Image, moving: Image | None = None) -> morphseek.Registration:
    return morphseek.register(fixed, fixed if moving is None else moving, **QUICK)


SPACING, DIRECTION = errors.InvalidSpacingError, errors.InvalidDirectionError
REFUSED: dict[str, tuple[Callable[[], Image], type[errors.MorphSeekError]]] = {
    "spacing 1e-30": (lambda: image(spacing=(1e-30,) * 3), SPACING),
    "spacing 1e30": (lambda: image(spacing=(1e30,) * 3), SPACING),
    "one spacing 1e4": (lambda: image(spacing=(1, 1, 1e4)), SPACING),
    "spacing 0": (lambda: image(spacing=(1, 0, 1)), SPACING),
    "spacing -1": (lambda: image(spacing=(1, -1, 1)), SPACING),
    "spacing nan": (lambda: image(spacing=(1, math.nan, 1)), SPACING),
    "origin 1e300": (lambda: image(origin=(1e300, 0, 0)), SPACING),
    "origin inf": (lambda: image(origin=(0, math.inf, 0)), SPACING),
    "origin nan": (lambda: image(origin=(0, math.nan, 0)), SPACING),
    "a flat direction": (lambda: image(direction=(1, 0, 0, 1, 0, 0, 0, 0, 1)), DIRECTION),
    "a long direction": (lambda: image(direction=(2, 0, 0, 0, 1, 0, 0, 0, 1)), DIRECTION),
    "one slice": (lambda: image(BLOB[:1]), errors.ThinVolumeError),
    "one column": (lambda: image(BLOB[:, :, :1]), errors.ThinVolumeError),
    "constant": (lambda: image(np.ones_like(BLOB)), errors.ConstantVolumeError),
    "constant integers": (lambda: image(np.full(BLOB.shape, 7)), errors.ConstantVolumeError),
    "constant in float32": (lambda: image(1e20 + BLOB.astype(float)), errors.ConstantVolumeError),
    "all NaN": (lambda: image(np.full_like(BLOB, np.nan)), errors.NonFiniteVolumeError),
    "all infinite": (lambda: image(np.full_like(BLOB, np.inf)), errors.NonFiniteVolumeError),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("role", ["fixed", "moving"])
def test_refused(name: str, role: str):
    make, error = REFUSED[name]
    with pytest.raises(error, match=f"^{role}"):
        pair = (make(), image()) if role == "fixed" else (image(), make())
        register(*pair)


@pytest.mark.parametrize(
    "direction",
    [(-1, 0, 0, 0, 1, 0, 0, 0, 1), (0, 0, 1, 1, 0, 0, 0, 1, 0), (0, -1, 0, -1, 0, 0, 0, 0, -1)],
)
def test_left_handed_and_permuted_axes_are_the_same_body(direction: tuple[float, ...]):
    """Two files with the same voxels on other axes describe the same body."""
    fixed = image(direction=direction, origin=(5, -3, 2))
    result = register(fixed)
    np.testing.assert_allclose(result.displacement(), 0, atol=1e-3)
    np.testing.assert_allclose(result.warped, BLOB, atol=1e-3)
    # the centre of a corner voxel goes where the header says
    corner = np.array([fixed.origin]) + np.reshape(direction, (3, 3)) @ (15, 15, 15)
    np.testing.assert_allclose(result.transform_points(corner), corner, atol=1e-3)


def test_a_negative_zero_is_a_zero():
    plain = BLOB.copy()
    plain[:4] = 0
    signed = plain.copy()
    signed[:4] = -0.0
    results = [register(image(one), image(BLOB)) for one in (plain, signed)]
    np.testing.assert_array_equal(results[0].displacement(), results[1].displacement())


@pytest.fixture(scope="module")
def identity() -> morphseek.Registration:
    return register(image())


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (np.int64, (2**53 + 1, 2**62 + 3, -(2**63))),
        (np.uint64, (2**53 + 1, 2**63 + 5, 2**64 - 1)),
        (np.float64, (1.5, -2.25, 2.0**60)),
    ],
)
def test_labels_keep_every_value(dtype, values, identity):
    labels = np.zeros(BLOB.shape, dtype)
    for i, value in enumerate(values):
        labels[4 * i : 4 * i + 4] = value
    moved = identity.apply(image(labels), interpolation="nearest").array
    assert moved.dtype == dtype
    np.testing.assert_array_equal(moved[4:], labels[4:])


@pytest.mark.parametrize("threads", [-1, 1025, 2**40])
def test_threads_beyond_any_machine(threads: int):
    with pytest.raises(errors.InvalidArgumentError, match="threads is .*it must lie in"):
        morphseek.register(image(), image(), **QUICK, threads=threads)


def test_many_threads_give_the_same():
    moving = image(blob((16, 16, 16), shift=0.1))
    results = [
        morphseek.register(image(), moving, model="none", refine=3, threads=n) for n in (1, 200)
    ]
    np.testing.assert_array_equal(results[0].displacement(), results[1].displacement())


def test_surroundings_with_rubbish(files: dict[str, Path], command: Command, tmp_path: Path):
    """No environment variable of another program, and no letter in a name, stops the command."""
    fixed = tmp_path / "f\u00fcr \u8111.nii.gz"
    shutil.copy(files["fixed"], fixed)
    command.environment.update(
        OMP_NUM_THREADS="abc", LANG="C", LC_ALL="C", MORPHSEEK_ORT_LIBRARY="/no/\x01such",
        ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS="-7", GOMAXPROCS="x", MORPHSEEK_OPTIONS="\u00e9{",
        TERM="\x1b[", COLUMNS="-3",
    )  # fmt: skip
    options = ["--model", "none", "--refine", "0", "--search", "off"]
    command("register", fixed, files["moving"], "--out", tmp_path / "out", *options)
    assert images.read(tmp_path / "out" / "warped.nii.gz").array.ndim == 3
