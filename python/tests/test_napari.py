"""The napari plugin: places as in napari and SimpleITK, known shifts, the panel in a viewer.

The test hosts-napari runs it in the environment that has napari; the tests in a window need OpenGL,
too, and are skipped without it (xvfb-run).
"""

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from helpers import QUICK, blob, oblique, resampled
from morphseek import errors, phantom
from morphseek._engine.table import option_table
from pace import limit

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # napari's own warnings at import
    for needs in ("napari", "pytestqt", "qtpy.QtWidgets"):
        pytest.importorskip(
            needs,
            reason="needs: pip install 'morphseek[napari]' PyQt6 pytest-qt",
            exc_type=ImportError,
        )
    from napari import layers
    from napari.components import ViewerModel
    from npe2 import PluginManifest
    from qtpy.QtGui import QOpenGLContext

    import morphseek.hosts.napari
    from morphseek.hosts.napari import RegisterWidget, samples
    from morphseek.hosts.napari.geometry import LayerData, layer_place
    from morphseek.hosts.napari.run import RunInputs, run

pytestmark = pytest.mark.filterwarnings("ignore")  # napari and its packages warn of each other
PYTHON = Path(__file__).parents[1]
MANIFEST = Path(morphseek.hosts.napari.__file__).with_name("napari.yaml")
TURN = (0, 20, -35)  # degrees
SWAP = np.eye(4)[[1, 2, 0, 3]] @ np.diag([2.0, 1.5, 1.0, 1.0])


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        ((4, 5, 6), {}),
        ((4, 5, 6), {"scale": (3, 1.5, 0.5), "translate": (10, -20, 30)}),
        ((4, 5, 6), {"scale": (-3, 1.5, 0.5), "translate": (10, -20, 30)}),
        ((4, 5, 6), {"scale": (3, 1.5, 0.5), "rotate": TURN, "translate": (10, -20, 30)}),
        ((4, 5, 6), {"affine": SWAP, "translate": (1, 2, 3)}),
        ((5, 6), {"scale": (1.5, 0.5), "rotate": 30, "translate": (-20, 30)}),
        ((5, 6), {"scale": (1.5, -0.5)}),
    ],
)
def test_an_image_lies_where_napari_shows_it(shape: tuple[int, ...], place: dict[str, Any]):
    layer = layers.Image(np.zeros(shape), **place)
    image = LayerData.of(layer, "fixed").image().to_sitk()
    for index in (np.zeros(len(shape)), np.arange(1.0, 1 + len(shape))):
        there = (*index[::-1], 0.0)[:3]
        found = image.TransformContinuousIndexToPhysicalPoint(there)[: len(shape)]
        np.testing.assert_allclose(found[::-1], layer.data_to_world(index), atol=1e-9)


def test_units_of_length_become_mm():
    layer = layers.Image(np.zeros((4, 5, 6)), scale=(3, 2, 1), units=("um", "mm", "cm"))
    assert LayerData.of(layer, "fixed").image().spacing == pytest.approx((10, 2, 0.003))


def test_a_sheared_layer_is_refused():
    layer = layers.Image(np.zeros((4, 5, 6)), shear=(0.2, 0, 0), name="bent")
    with pytest.raises(errors.InvalidDirectionError, match="fixed layer 'bent' is sheared"):
        LayerData.of(layer, "fixed").image()


def test_a_place_is_an_image_s():
    image = oblique(blob())
    layer = layers.Image(image.array, **layer_place(image))
    np.testing.assert_allclose(
        LayerData.of(layer, "fixed").image().grid.numbers, image.grid.numbers, atol=1e-9
    )


BODY = gaussian_filter(blob((24, 28, 32), noise=0.3), 1.5)
SPACING = np.array([2.5, 1.5, 1.0])
SHIFT = np.array([6.0, -4.0, 9.0])
POINTS = np.array([[12.0, 14.0, 16.0], [8.0, 20.0, 10.0]])  # indices of BODY


def as_it_is() -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
    return BODY, {"scale": SPACING, "translate": SHIFT}, POINTS


def mirrored() -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
    """Store the rows in reverse order; in world coordinates the image is the same."""
    last = BODY.shape[1] - 1
    there = {"scale": SPACING * (1, -1, 1), "translate": SHIFT + (0, last * SPACING[1], 0)}
    return BODY[:, ::-1].copy(), there, POINTS * (1, -1, 1) + (0, last, 0)


def swapped() -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
    """Store the axes in another order, which the layer's affine corrects."""
    order = [2, 0, 1]
    affine = np.eye(4)
    affine[:3, :3] = np.eye(3)[:, order] * SPACING[order]
    affine[:3, 3] = SHIFT
    return BODY.transpose(order).copy(), {"affine": affine}, POINTS[:, order]


@pytest.mark.parametrize("stored", [as_it_is, mirrored, swapped])
def test_a_known_shift(stored: Callable[[], tuple[np.ndarray, dict[str, Any], np.ndarray]]):
    """With one body in two places, points and labels return to the first in napari's world."""
    array, place, points = stored()
    fixed = layers.Image(BODY, scale=SPACING)
    moving = layers.Image(array, **place)
    marks = layers.Points(points, **place)
    np.testing.assert_allclose(marks.data_to_world(points[0]), POINTS[0] * SPACING + SHIFT)
    labels = layers.Labels((array > 0.4).astype(np.uint8), **place)
    sources = [LayerData.of(each, "a") for each in (fixed, moving, marks, labels)]
    found = run(RunInputs(*sources, QUICK | {"initial": "rigid"}), lambda _: True)
    np.testing.assert_allclose(found.points, POINTS * SPACING, atol=0.1)
    inner = (slice(4, -4),) * 3
    np.testing.assert_allclose(found.warped[inner], BODY[inner], atol=0.03)
    assert (found.labels[inner] == (BODY[inner] > 0.4)).mean() > 0.99

    still, other = (each.image().to_sitk() for each in sources[:2])
    there = resampled(other, still, found.result.transform.to_sitk())
    np.testing.assert_allclose(found.warped[inner], there[inner], atol=2e-3)


def test_fields_are_of_the_fixed_layer_s_indices():
    """The moving image is shifted by two voxels of 1.5 mm along y and one of 0.5 mm along x."""
    body = BODY[12]
    fixed = layers.Image(body, scale=(1.5, 0.5))
    moving = layers.Image(body, scale=(1.5, 0.5), translate=(3.0, 0.5))
    job = RunInputs(
        *(LayerData.of(each, "a") for each in (fixed, moving)),
        options=QUICK | {"initial": "rigid"},
        displacement=True,
        jacobian=True,
        vectors=True,
    )
    found = run(job, lambda _: True)
    assert found.warped.shape == found.displacement.shape == found.jacobian.shape == body.shape
    np.testing.assert_allclose(found.displacement, np.hypot(3.0, 0.5), atol=0.1)
    np.testing.assert_allclose(found.jacobian, 1, atol=0.02)
    assert found.vectors.shape[1:] == (2, 2)
    np.testing.assert_allclose(found.vectors[:, 1], [[2, 1]] * len(found.vectors), atol=0.2)


def test_the_manifest_is_whole():
    manifest = PluginManifest.from_file(MANIFEST)
    manifest.validate_imports()
    assert manifest.name == "morphseek"
    assert {sample.key for sample in manifest.contributions.sample_data} == {"torso", "slices"}
    project = (PYTHON / "pyproject.toml").read_text(encoding="utf-8")
    assert '"napari.manifest"]\nmorphseek = "morphseek.hosts.napari:napari.yaml"' in project


def test_morphseek_alone_loads_no_napari():
    program = "import sys, morphseek.hosts.napari; assert 'napari' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=limit(60))


@pytest.fixture
def model(qtbot: Any) -> ViewerModel:
    """Return a viewer without a window."""
    return ViewerModel()


def panel(viewer: Any, **options: str) -> RegisterWidget:
    widget = RegisterWidget(viewer)
    for name, value in ({"preset": "fast", "initial": "com"} | options).items():
        widget.engine_options[name].value = value
    return widget


def press(widget: RegisterWidget, qtbot: Any) -> str:
    """Press Register and return the final message."""
    widget.start.native.click()
    qtbot.waitUntil(lambda: widget.start.enabled, timeout=int(1000 * limit(120)))
    return widget.message.value


def test_options_are_the_engine_s(model: ViewerModel):
    widget = panel(model)
    table = {option["name"]: option for option in option_table()}
    for name, box in widget.engine_options.items():
        assert list(box.choices) == table[name]["choices"]
        assert box.tooltip == table[name]["help"]
    assert {"preset", "similarity", "smoothness"} <= set(widget.engine_options)


def test_layers_are_offered_as_they_come(model: ViewerModel):
    widget = panel(model)
    assert widget.fixed.value is None
    one, two = (model.add_image(BODY, name=name) for name in ("one", "two"))
    assert (widget.fixed.value, widget.moving.value) == (one, two)
    one.name = "first"
    assert widget.fixed.current_choice == "first"
    model.add_points(POINTS)
    assert widget.moving_points.value is None and len(widget.moving_points.choices) == 2
    model.layers.remove(two)
    assert widget.moving.value is one


def test_a_run_of_volumes(model: ViewerModel, qtbot: Any):
    widget = panel(model)
    fixed = model.add_image(BODY, scale=SPACING, rotate=TURN, units=("um",) * 3, name="A")
    model.add_image(BODY, scale=SPACING, rotate=TURN, units=("um",) * 3, name="B", colormap="red")
    widget.moving_points.value = model.add_points([[20.0, 10.0, 15.0]], units=("um",) * 3)
    for box in (widget.displacement, widget.jacobian, widget.vectors):
        box.value = True
    said = press(widget, qtbot)
    grades = ("good", "check", "failed")
    assert said.startswith(grades) and ", estimated error" in said
    new = model.layers["B registered"]
    assert new.colormap.name == "red" and new.units == fixed.units
    for index in np.eye(3):
        np.testing.assert_allclose(new.data_to_world(index), fixed.data_to_world(index))
    back = model.layers["points registered"]
    np.testing.assert_allclose(back.data_to_world(back.data[0]), [20, 10, 15], atol=0.3)
    assert {"displacement, mm", "volume change", "displacement"} <= {x.name for x in model.layers}
    assert "Similarity:" in widget.message.tooltip
    assert new.metadata["morphseek"].verdict.headline in said
    assert len(widget.fixed.choices) == 2  # results are not offered


def test_a_run_of_slices_in_colour(model: ViewerModel, qtbot: Any):
    rgb = np.repeat((255 * np.clip(BODY[12], 0, 1)).astype(np.uint8)[..., None], 3, axis=-1)
    rgb[..., 2] //= 2
    widget = panel(model)
    model.add_image(BODY[12], name="grey")
    model.add_image(rgb, name="colour", translate=(2.0, 1.0), rgb=True)
    said = press(widget, qtbot)
    assert "estimated error" in said, said
    new = model.layers["colour registered"]
    assert new.rgb and new.data.shape == rgb.shape and new.data.dtype == np.uint8
    inner = new.data[4:-4, 4:-4].astype(int)
    assert np.abs(inner[..., 2] - inner[..., 0] // 2).max() <= 2


def test_what_cannot_be_registered_is_said(model: ViewerModel, qtbot: Any):
    widget = panel(model)
    assert "choose a fixed and a moving image" in press(widget, qtbot).lower()
    images = {
        name: model.add_image(array, name=name, **more)
        for name, array, more in (
            ("body", BODY, {}),
            ("slice", BODY[0], {}),
            ("series", np.zeros((2, 3, 4, 5)), {}),
            ("nothing", np.full(BODY.shape, np.nan, np.float32), {"contrast_limits": (0, 1)}),
            ("constant", np.zeros(BODY.shape), {}),
            ("bent", BODY, {"shear": (0.3, 0, 0)}),
            ("coloured", np.zeros((4, 5, 6, 3), np.uint8), {"rgb": True}),
        )
    }
    count = len(model.layers)
    for name, says in (
        ("body", "are the same layer, 'body'; choose two"),
        ("slice", "give two volumes or two slices"),
        ("series", "moving layer 'series' has 4 axes"),
        ("nothing", "Moving volume holds nothing but NaN"),
        ("constant", "Moving volume"),
        ("bent", "moving layer 'bent' is sheared"),
        ("coloured", "is a volume in colour; split its channels"),
    ):
        widget.fixed.value, widget.moving.value = images["body"], images[name]
        said = press(widget, qtbot)
        assert says in said, said
        assert "Traceback" not in said and said.endswith(".") and said[0].isupper()
    assert len(model.layers) == count


def big_pair(viewer: Any) -> None:
    """Add two volumes whose registration takes seconds."""
    pair = phantom.make_pair(size=96)
    for name, image in (("A", pair.fixed), ("B", pair.moving)):
        viewer.add_image(image.array, name=name, **layer_place(image))


def test_cancel(model: ViewerModel, qtbot: Any):
    big_pair(model)
    widget = panel(model, preset="best", initial="affine")
    widget.start.native.click()
    assert not widget.start.enabled
    qtbot.waitUntil(lambda: widget.bar.value > 0, timeout=int(1000 * limit(60)))
    widget.cancel.native.click()
    qtbot.waitUntil(lambda: widget.start.enabled, timeout=int(1000 * limit(10)))
    assert widget.message.value == "Cancelled. Nothing was added."
    assert [layer.name for layer in model.layers] == ["A", "B"]
    assert not widget.cancel.enabled


@pytest.fixture
def make_viewer(qapp: Any, request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Return napari's own fixture, if it can draw here."""
    if not QOpenGLContext().create():
        pytest.skip("napari's window needs OpenGL; on a machine without a display: xvfb-run -a")
    return request.getfixturevalue("make_napari_viewer")


def test_in_a_window(make_viewer: Callable[[], Any], qtbot: Any):
    viewer = make_viewer()
    for array, more, kind in samples.slices():
        getattr(viewer, f"add_{kind}")(array, **more)
    widget = panel(viewer)
    viewer.window.add_dock_widget(widget, name="Register")
    assert "estimated error" in press(widget, qtbot)
    assert viewer.layers[-1].name.endswith("registered")
    assert viewer.screenshot(flash=False).std() > 1


def test_the_window_is_closed_during_a_run(make_viewer: Callable[[], Any], qtbot: Any):
    from napari.qt.threading import WorkerBase

    viewer = make_viewer()
    big_pair(viewer)
    widget = panel(viewer, preset="best", initial="affine")
    viewer.window.add_dock_widget(widget, name="Register")
    widget.start.native.click()
    qtbot.waitUntil(lambda: widget.bar.value > 0, timeout=int(1000 * limit(60)))
    viewer.close()
    WorkerBase.await_workers(int(1000 * limit(10)))  # as napari does at its end; raises if late
    qtbot.wait(50)


def test_the_samples_open(model: ViewerModel):
    for sample in (samples.torso, samples.slices):
        for array, more, kind in sample():
            getattr(model, f"add_{kind}")(array, **more)
    assert len(model.layers) == 6
    pair = phantom.make_pair(size=64)
    moving = LayerData.of(model.layers["CT (moving)"], "moving").image()
    np.testing.assert_allclose(moving.grid.numbers, pair.moving.grid.numbers, atol=1e-9)
    points = LayerData.of(model.layers["CT points"], "points").points()
    np.testing.assert_allclose(points[0], pair.truth(pair.target_points())[0])
