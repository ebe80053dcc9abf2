"""Arrays that the engine would misread never reach it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import refused
from morphseek import Field, Grid, Registration, errors, images
from morphseek._engine import bindings

GRID = images.Image(np.zeros((4, 5, 6), np.float32)).grid
IMAGE = np.zeros((4, 5, 6), np.float32)
FIELD = np.zeros((3, 4, 5, 6), np.float32)
LAST = np.eye(4)
ONE, SINGLE = (IMAGE, GRID), np.zeros((2, 3), np.float32)


def register(mask: Any = None, initial: Any = None, landmarks: Any = None, channels: Any = ()):
    """Register an image with itself."""
    volumes = {"fixed": ONE, "moving": ONE} | ({"fixed_mask": mask} if mask else {})
    bindings.register(volumes, initial, None, landmarks, channels, (), {}, lambda *_: True)


def misread() -> list[tuple[str, Callable[[], Any], type[Exception]]]:
    """Return calls, each with one array that does not fit."""
    wrong, other = errors.InvalidArgumentError, errors.GridMismatchError
    b = bindings
    return [
        ("no grid", lambda: b.regularity(FIELD, GRID.numbers), wrong),
        ("short grid", lambda: b.jacobian(FIELD, Grid.from_numbers(GRID.numbers[:12])), wrong),
        ("endless grid", lambda: b.to_mm(FIELD, Grid.from_numbers(np.full(18, np.nan))), wrong),
        ("list", lambda: b.jacobian(FIELD.tolist(), GRID), wrong),
        ("float64 field", lambda: b.jacobian(FIELD.astype("f8"), GRID), wrong),
        ("other byte order", lambda: b.jacobian(FIELD.astype(">f4"), GRID), wrong),
        ("strided field", lambda: b.jacobian(FIELD[:, :, :, ::-1], GRID), wrong),
        ("short field", lambda: b.jacobian(FIELD[:, :3].copy(), GRID), other),
        ("image", lambda: b.warp(FIELD, GRID, IMAGE[1:].copy(), GRID, "linear", 0), other),
        ("image's type", lambda: b.resample(IMAGE.astype("i2"), GRID, GRID, "linear", 0), wrong),
        ("onto", lambda: b.inverse(FIELD, GRID, LAST, GRID.numbers), wrong),
        ("points", lambda: b.transform_points(FIELD, GRID, LAST, np.zeros((2, 2))), other),
        ("points' type", lambda: b.transform_points(FIELD, GRID, LAST, SINGLE), wrong),
        ("mm", lambda: b.from_mm(FIELD, GRID), other),
        ("one grid", lambda: b.same_grid(GRID, GRID.numbers), wrong),
        ("percentiles", lambda: b.intensities(IMAGE[0], GRID, 0, 1), other),
        ("mask", lambda: register(mask=(IMAGE[1:], GRID)), other),
        ("initial", lambda: register(initial=np.eye(3)), other),
        ("landmarks", lambda: register(landmarks=(np.zeros((2, 5)), ["a", "b"])), other),
        ("channel", lambda: register(channels=[({"name": "c"}, ONE, (IMAGE[1:], GRID))]), other),
    ]


@pytest.mark.parametrize("call, error", [m[1:] for m in misread()], ids=[m[0] for m in misread()])
def test_what_does_not_fit_is_refused(call: Callable[[], Any], error: type[Exception]):
    says = "engine takes|its grid needs|not a numpy array|the size|give a morphseek.Grid|it needs 9"
    refused(error, says, call)


def test_points_that_cannot_be_written():
    points = np.zeros((2, 3))
    points.flags.writeable = False
    with pytest.raises(errors.InvalidArgumentError):
        bindings.transform_points(FIELD, GRID, LAST, points)


def test_a_result_cannot_be_changed(result: Registration):
    for array in (result.grid.numbers, result.grid.index_to_physical):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError):
        result.grid.size = (1, 1, 1)
    for array in (result.displacement(), result.warped, result.transform.initial):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    for owner, name in ((result, "warped"), (result.transform, "initial")):
        with pytest.raises(AttributeError):
            setattr(owner, name, getattr(owner, name))


def test_what_a_transform_was_made_of_stays_the_callers():
    Field(FIELD, GRID, GRID)
    assert FIELD.flags.writeable


def test_a_summary_has_the_metrics(result: Registration):
    summary = result.transform.summary()
    shared = summary.keys() & result.metrics.keys()
    assert len(shared) == 6
    for name in shared:
        assert summary[name] == pytest.approx(result.metrics[name], rel=1e-4, abs=1e-6)
