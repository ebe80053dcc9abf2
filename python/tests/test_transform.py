"""Compares the results of a field with SimpleITK's."""

import dataclasses
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import QUICK, TENSORS, affine_of, blob, by_itk, invalid, oblique, refused, resampled
from morphseek import Field, errors, images, transforms
from morphseek._engine import bindings

SITK_HOW = {
    "linear": sitk.sitkLinear, "nearest": sitk.sitkNearestNeighbor, "cubic": sitk.sitkBSpline,
}  # fmt: skip


@pytest.fixture(scope="module")
def fixed() -> images.Image:
    return oblique(blob((15, 18, 21)))


@pytest.fixture(scope="module")
def moving(fixed: images.Image) -> images.Image:
    """The moving image, on another grid, turned by 90 degrees, with the same centre."""
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    spacing, size = np.array([1.1, 1.4, 1.9]), np.array([30, 17, 22])
    origin = fixed.grid.center - turn @ (spacing * (size - 1) / 2)
    place = (tuple(part.ravel().tolist()) for part in (spacing, origin, turn))
    return images.Image(blob(tuple(size[::-1]), 0.1), *place)


@pytest.fixture(scope="module")
def transform(fixed: images.Image, moving: images.Image) -> Field:
    """A linear map followed by a smooth bend, made in mm by numpy."""
    linear = np.array(
        [[1.05, 0.06, 0, 1.5], [-0.04, 0.93, 0.02, -2.0], [0.01, 0, 1.02, 1.0], [0, 0, 0, 1]]
    )
    m, p = fixed.index_to_physical, fixed.grid.points()
    bend = 1.2 * np.sin(p / 6 + [0, 1, 2])
    total = (p + bend) @ linear[:3, :3].T + linear[:3, 3] - p
    u = total @ np.linalg.inv(m[:3, :3]).T  # voxels, x y z
    return Field(np.moveaxis(u[..., ::-1], -1, 0), fixed.grid, moving.grid, linear)


def test_displacement_mm(transform: Field, fixed: images.Image):
    m = fixed.index_to_physical[:3, :3]
    expected = np.moveaxis(transform.displacement()[::-1], 0, -1) @ m.T
    np.testing.assert_allclose(transform.displacement_mm(), expected, atol=1e-4)


def test_points_equal_simpleitk(transform: Field, fixed: images.Image):
    rng = np.random.default_rng(0)
    points = fixed.grid.to_physical(rng.uniform(1, np.array(fixed.grid.size) - 2, (50, 3)))
    before, expected = points.copy(), by_itk(transform.to_sitk(), points)
    np.testing.assert_allclose(transform.transform_points(points), expected, atol=1e-3)
    np.testing.assert_array_equal(points, before)
    invalid("shape", transform.transform_points, [1, 2, 3])


DISTANCES = (0.0, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 50.0, 200.0)  # mm outside the fixed grid


def outside(grid: images.Grid, distance: float, count: int = 60) -> np.ndarray:
    """Return points at a distance outside a grid: beyond a face, an edge or a corner, LPS."""
    rng = np.random.default_rng(6)
    extent = (np.array(grid.size) - 1) * grid.spacing
    mm = rng.uniform(0, extent, (count, 3))
    beyond = rng.random((count, 3)) < 0.3
    beyond[np.arange(count), rng.integers(0, 3, count)] = True
    side = rng.random((count, 3)) < 0.5
    mm = np.where(beyond, np.where(side, -distance, extent + distance), mm)
    return mm @ grid.axes.T + grid.origin


@pytest.mark.parametrize("linear", [True, False], ids=["with a linear part", "without"])
@pytest.mark.parametrize("which", ["transform", "inverse"])
def test_one_answer_outside_the_grid(transform: Field, which: str, linear: bool, tmp_path: Path):
    """The package, SimpleITK's object and the file agree wherever a point lies. Beyond the border
    the displacement fades, and far out the linear part remains.
    """
    if not linear:
        u = transform.displacement()
        u = u - u.mean(axis=(1, 2, 3), keepdims=True)
        transform = Field(u, transform.grid, transform.moving_grid)
    if which == "inverse":
        transform = transform.inverse()
    transform.save(tmp_path / "t.h5")
    file, made = sitk.ReadTransform(str(tmp_path / "t.h5")), transform.to_sitk()
    saved = morphseek.Transform.read(tmp_path / "t.h5")
    left = {}
    for distance in DISTANCES:
        points = outside(transform.grid, distance)
        ours = transform.transform_points(points)
        others = (by_itk(file, points), by_itk(made, points), saved.transform_points(points))
        for other in others:
            np.testing.assert_allclose(ours, other, rtol=0, atol=1e-4)
        alone = points @ transform.initial[:3, :3].T + transform.initial[:3, 3]
        left[distance] = np.linalg.norm(ours - alone, axis=1).max()
    assert left[0] > 1 and left[1.0] > 0.4 * left[0] and max(left[50.0], left[200.0]) < 1e-9


def test_the_margin_does_not_fold(transform: Field):
    behind, grid = transform._behind_initial()
    assert all(n > m for n, m in zip(behind.shape, transform.grid.shape))  # there is one
    along = behind @ grid.axes / grid.spacing  # voxels, x y z
    slopes = [np.stack(np.gradient(along[..., k])[::-1], axis=-1) for k in range(3)]
    gradient = np.stack(slopes, axis=-2)
    assert np.linalg.det(gradient + np.eye(3)).min() > 0.05
    assert transform.jacobian().min() > 0.05


def test_a_field_that_does_not_move_its_border_has_no_margin(transform: Field):
    u = np.zeros_like(transform.displacement())
    u[:, 5:8, 5:8, 5:8] = 0.5
    behind, grid = Field(u, transform.grid, transform.grid)._behind_initial()
    assert behind.shape[:3] == transform.grid.shape
    assert grid == transform.grid


@pytest.mark.parametrize("matrix", ["affine", "none"])
def test_a_linear_result_is_a_linear_transform(transform, fixed, matrix, tmp_path):
    initial = transform.initial if matrix == "affine" else np.eye(4)
    m, p = fixed.index_to_physical, fixed.grid.points()
    u = (p @ initial[:3, :3].T + initial[:3, 3] - p) @ np.linalg.inv(m[:3, :3]).T
    made = Field(np.moveaxis(u[..., ::-1], -1, 0), transform.grid, transform.moving_grid, initial)
    assert made.is_linear and not transform.is_linear
    made.save(tmp_path / "t.h5")
    for read in (made.to_sitk(), sitk.ReadTransform(str(tmp_path / "t.h5"))):
        assert read.GetTransformEnum() == sitk.sitkAffine
        points = p[::7, ::7, ::7].reshape(-1, 3)
        expected = by_itk(affine_of(initial), points)
        np.testing.assert_allclose(by_itk(read, points), expected, rtol=0, atol=1e-9)
    saved = morphseek.Transform.read(tmp_path / "t.h5")
    assert saved.grid == transform.grid  # to apply without a reference
    bend = made.displacement().copy()
    bend[0, 3, 3, 3] += 0.01
    assert not Field(bend, made.grid, made.moving_grid, initial).is_linear


def test_inverse(transform: Field, fixed: images.Image):
    index = np.random.default_rng(1).uniform(5, np.array(fixed.grid.size) - 6, (40, 3))
    points = fixed.grid.to_physical(index)
    inverse = transform.inverse()
    assert inverse.grid == transform.moving_grid
    there = transform.transform_points(points)
    at = transform.moving_grid.to_index(there)
    inside = ((at > 0) & (at < np.array(inverse.grid.size) - 1)).all(axis=1)
    assert inside.sum() > 15
    np.testing.assert_allclose(inverse.transform_points(there)[inside], points[inside], atol=0.1)


def test_jacobian_is_the_determinant(transform: Field):
    gradient = np.stack([np.stack(np.gradient(u)) for u in transform.displacement()])
    expected = np.linalg.det(np.moveaxis(gradient, (0, 1), (-2, -1)) + np.eye(3))
    np.testing.assert_allclose(transform.jacobian(), expected, atol=1e-4)
    assert transform.summary()["njd_percent"] == pytest.approx(100 * (expected < 0).mean())


def test_apply_keeps_kind_and_dtype(transform: Field, moving: images.Image):
    labels = (moving.array > 0.4).astype(np.uint8)
    warped = transform.apply(labels, interpolation="nearest")
    assert warped.dtype == np.uint8 and set(np.unique(warped)) == {0, 1}
    image = moving.like(labels).to_sitk()
    out = transform.apply(image, interpolation="nearest")
    assert isinstance(out, sitk.Image) and out.GetPixelID() == sitk.sitkUInt8
    np.testing.assert_array_equal(sitk.GetArrayFromImage(out), warped)
    nib = nibabel.Nifti1Image(moving.array.T, np.diag([-1, -1, 1, 1]) @ moving.index_to_physical)
    found = np.asarray(transform.apply(nib).dataobj).T
    np.testing.assert_allclose(found, transform.apply(moving.array), atol=1e-4)


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("how", ["linear", "nearest", "cubic"])
def test_a_tensor_is_an_array(kind, how, transform, fixed, moving):
    """It lies on the moving grid, where an array lies, and comes back as one."""
    expected = resampled(moving, fixed, transform.to_sitk(), SITK_HOW[how], -3.0)
    found, same = (
        transform.apply(given, interpolation=how, background=-3.0)
        for given in (kind(moving.array), moving.array)
    )
    assert type(found) is np.ndarray and found.dtype == np.float32
    np.testing.assert_array_equal(found, same)
    # a rounding at a border or between two neighbours
    assert (np.abs(found - expected) > 1e-3).mean() < 2e-3 and np.ptp(expected) > 0.5
    says, other = r"moving: the array has shape \(30", np.swapaxes(moving.array, 0, 2).copy()
    refused(errors.GridMismatchError, says, transform.apply, kind(other))
    nowhere = morphseek.Transform.of(transform.to_sitk())
    with pytest.raises(errors.InvalidArgumentError) as as_array:
        nowhere.apply(moving.array)
    with pytest.raises(errors.InvalidArgumentError, match="does not say where") as as_tensor:
        nowhere.apply(kind(moving.array))
    assert str(as_tensor.value) == str(as_array.value)


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_are_arrays_everywhere(kind: type, tmp_path: Path):
    """Wherever an array is taken, a tensor gives the same."""
    fixed, moving = (oblique(blob((12, 13, 14), shift)) for shift in (0.0, 0.1))
    mask, other = ((image.array > 0.3).astype(np.uint8) for image in (fixed, moving))
    matrix = np.array([[1.0, 0, 0, 2], [0, 1, 0, -1], [0, 0, 1, 3], [0, 0, 0, 1]])
    field = np.full((3, *fixed.array.shape), 0.5, np.float32)

    def results(of: Callable[[np.ndarray], Any]) -> list[np.ndarray]:
        arguments = (
            ("fixed_mask", mask), ("rigid_regions", mask), ("initial_transform", matrix),
            ("initial_transform", field), ("initial_transform", np.moveaxis(field, 0, -1)),
        )  # fmt: skip
        found = [
            morphseek.register(fixed, moving, **{name: of(array)}, **QUICK).displacement()
            for name, array in arguments
        ]
        channel = morphseek.Channel(of(fixed.array), of(moving.array))
        result = morphseek.register(fixed, moving, channels=[channel], **QUICK)
        scores = result.score(of(mask), of(other))
        middle = result.halfway(of(fixed.array), of(moving.array))
        points = of(np.array([[1.0, 2.0, 3.0]]))
        grids = (result.grid, result.moving_grid)
        copy = Field(of(result.displacement()), *grids)
        in_mm = Field.from_mm(of(result.displacement_mm()), *grids)
        frames = np.stack([fixed.array, fixed.array])
        series = morphseek.correct_motion(of(frames), reference=0)
        return [
            *found,
            result.displacement(),
            np.array([(score.label, score.dice_after) for score in scores]),
            middle.image.array,
            middle.moving.grid,
            result.transform_points(points),
            result.transform.transform_points(points),
            copy.displacement(),
            in_mm.displacement(),
            morphseek.Transform.of(of(matrix)).transform_points(points),
            morphseek.Landmarks.of(of(np.eye(3))).points,
            images.Image(of(fixed.array)).float32(),
            series.corrected[1].array,
        ]

    for as_array, as_tensor in zip(results(np.asarray), results(kind)):
        np.testing.assert_array_equal(as_tensor, as_array)
    for volume in (fixed.array, kind(fixed.array)):
        invalid(r"a series has \(time, z, y, x\)", morphseek.correct_motion, volume)
        says = "give a folder, a table, or a list"
        invalid(says, morphseek.build_template, volume, tmp_path / "template")


def test_what_has_a_place_is_no_array(fixed: images.Image):
    """An image of itk is as ``__array__`` has it, and lies where it says."""
    itk = pytest.importorskip("itk")
    elsewhere = dataclasses.replace(fixed, spacing=(2.0, 2.0, 2.0))
    here = itk.image_from_array(elsewhere.array)
    here.SetSpacing((2.0, 2.0, 2.0))
    here.SetOrigin(elsewhere.origin)
    here.SetDirection(itk.matrix_from_array(np.array(elsewhere.direction).reshape(3, 3)))
    grid = images.read_on(here, fixed.grid, "mask").grid
    np.testing.assert_allclose(grid.numbers, elsewhere.grid.numbers)
    nib = nibabel.Nifti1Image(fixed.array.T, np.diag([2.0, 2, 2, 1]))
    assert images.read_on(nib, fixed.grid, "mask").spacing == (2, 2, 2)


def test_apply_in_threads():
    """Each thread has another grid: while the engine reads one geometry, it must not become
    another thread's.
    """
    rng = np.random.default_rng(0)
    made = [
        images.Image(rng.random((18 + k, 20, 22), np.float32), (1 + 0.3 * k, 1, 1), (5.0 * k, 0, 0))
        for k in range(6)
    ]

    def stays(image: images.Image) -> bool:
        still = Field(np.zeros((3, *image.array.shape), np.float32), image.grid, image.grid)
        again = (still.apply(image).array for _ in range(200))
        return all(np.allclose(array, image.array, atol=1e-6) for array in again)

    with ThreadPoolExecutor(len(made)) as pool:
        assert all(pool.map(stays, made))


@pytest.mark.parametrize(
    "made, is_told",
    [
        (lambda a: (a > 40).astype(np.uint8) + 4 * (a > 80), True),
        (lambda a: (a > 40) * 7.0 + (a > 80), True),  # as programs that know floats alone save them
        (lambda a: (a > 40).astype(np.uint8), False),
        (lambda a: a.astype(np.uint8), False),
        (lambda a: (a > 40) * 0.5, False),
    ],
    ids=["labels", "labels in floats", "mask", "image", "shares"],
)
def test_labels_that_would_be_blended_are_told(made, is_told, transform, moving):
    image = moving.like(made(100 * moving.array / moving.array.max()))
    for how in ("linear", "cubic", "nearest", "label"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            transform.apply(image, interpolation=how)
        kept = "look like the numbers of labels" in "".join(str(each.message) for each in told)
        assert kept == (is_told and how in ("linear", "cubic"))


def test_large_labels_survive(transform: Field, moving: images.Image):
    small = (moving.array > 0.4).astype(np.int64)
    large = np.where(small == 1, 2**40 + 1, 2**24 + 1)
    warped = transform.apply(large, interpolation="nearest")
    expected = transform.apply(small, interpolation="nearest", background=7)
    values = np.select([expected == 1, expected == 0], [2**40 + 1, 2**24 + 1], 0)
    np.testing.assert_array_equal(warped, values)


@pytest.mark.parametrize(
    "dtype, background",
    [(np.uint8, -1), (np.uint8, 300), (np.int16, np.nan), (np.int32, 2**31), (np.int64, 0.5),
     (bool, 7)],
)  # fmt: skip
def test_backgrounds_that_are_no_label(dtype, background, transform, moving):
    labels, how = (moving.array > 0.4).astype(dtype), {"interpolation": "nearest"}
    invalid("background", transform.apply, labels, **how, background=background)


def test_background_is_the_minimum(transform: Field, moving: images.Image):
    shifted = Field(transform.displacement() + 100, transform.grid, transform.moving_grid)
    array = moving.array - 1000
    assert np.unique(shifted.apply(array)) == pytest.approx(array.min())


@pytest.mark.parametrize("dtype", ["f8", ">f8", np.longdouble, ">i4"])
def test_large_labels_of_other_types_survive(dtype: Any, transform: Field, moving: images.Image):
    """Floats, too, as from nibabel's get_fdata."""
    small = (moving.array > 0.4).astype(dtype)
    warped = transform.apply(small * (2**24 + 1), interpolation="nearest")
    assert warped.dtype == np.dtype(dtype).newbyteorder("=")
    expected = transform.apply(small, interpolation="nearest") * (2**24 + 1)
    np.testing.assert_array_equal(warped, expected)


@pytest.mark.parametrize("how", transforms.labels.LABELS)
def test_labels_fit_the_type_asked_for(how: str, transform: Field, moving: images.Image):
    mask = moving.array > 0.4
    for value, dtype in ((2035, "uint8"), (2**24 + 1, "float32")):
        labels = moving.like(mask * np.int32(value))
        invalid(f"the label .* fit the type {dtype}", transform.apply, labels, interpolation=how,
                dtype=dtype)  # fmt: skip
    halves = moving.like(mask * np.float32(1.5))
    invalid("the label 1.5", transform.apply, halves, interpolation=how, dtype="uint8")
    kept = transform.apply(moving.like(mask * np.int16(255)), interpolation=how, dtype="uint8")
    assert kept.array.dtype == np.uint8 and set(np.unique(kept.array)) == {0, 255}


def test_integers_beyond_float32_stay(transform: Field, moving: images.Image):
    still = Field(np.zeros((3, *moving.array.shape)), moving.grid, moving.grid)
    counts = np.full(moving.array.shape, 2_000_000_001, np.int32)
    np.testing.assert_array_equal(still.apply(counts), counts)


def test_a_field_is_its_own(fixed: images.Image):
    """A network uses its buffers again."""
    buffer = np.zeros((3, *fixed.array.shape), np.float32)
    field = Field(buffer, fixed.grid, fixed.grid)
    buffer[2] = 1
    assert not field.displacement().any()


def test_a_matrix_composes_from_either_side(transform: Field):
    shift, points = np.eye(4), np.array([[3.0, 2, 1]])
    shift[:3, 3] = 4, 0, 1
    there = (shift @ transform).transform_points(points)
    np.testing.assert_allclose(there, transform.transform_points(points) + [4, 0, 1], atol=1e-4)
    there = (transform @ shift).transform_points(points)
    np.testing.assert_allclose(there, transform.transform_points(points + [4, 0, 1]), atol=1e-4)


def test_no_number_in_a_field_is_refused(fixed: images.Image):
    vectors = np.ones((*fixed.array.shape, 3), np.float32)
    vectors[:, :, 0, 1] = np.nan
    voxels = fixed.array.shape[0] * fixed.array.shape[1]
    invalid(f"no number.* at {voxels} voxels", Field.from_mm, vectors, fixed.grid, fixed.grid)


def test_an_array_as_reference_lies_on_the_fixed_image(transform: Field, moving: images.Image):
    array = np.zeros(transform.grid.shape)
    expected = transform.apply(moving).array
    np.testing.assert_array_equal(transform.apply(moving, array).array, expected)
    np.testing.assert_allclose(transform.displacement(array), transform.displacement(), atol=1e-6)
    refused(errors.GridMismatchError, "reference: the array", transform.apply, moving, array[1:])
    alone = morphseek.Affine(np.eye(4))
    invalid("an array does not say where it lies", alone.apply, moving, array)


@pytest.mark.parametrize("name", transforms.INTERPOLATIONS)
def test_an_interpolation_is_a_keyword(name: str, transform: Field, moving: images.Image):
    with pytest.raises(errors.InvalidArgumentError, match=f'keyword: interpolation="{name}"'):
        transform.apply(moving, name)


def test_pickle_and_a_displacement_of_any_layout(transform: Field, moving: images.Image):
    copy = pickle.loads(pickle.dumps(transform))
    np.testing.assert_array_equal(copy.displacement(), transform.displacement())
    np.testing.assert_array_equal(copy.apply(moving.array), transform.apply(moving.array))
    given = transform.displacement()[:, ::-1][:, ::-1] * np.float64(1)
    other = Field(given, copy.grid, copy.moving_grid, copy.initial)
    assert other.displacement().dtype == np.float32 and other.summary() == transform.summary()


def test_errors(transform: Field, moving: images.Image):
    refused(errors.GridMismatchError, "shape", transform.apply, np.zeros((3, 3, 3), np.float32))
    invalid("bicubic", transform.apply, moving, interpolation="bicubic")
    invalid("None", transform.apply, moving, interpolation=None)
    for points in ([["a", "b", "c"]], [[1, 2, 3], [4, 5]], [object()]):
        invalid("not all numbers", transform.transform_points, points)
    with pytest.raises(errors.GridMismatchError):
        Field(transform.displacement()[:, 1:], transform.grid, transform.moving_grid)


@pytest.mark.parametrize(
    "initial, error, says",
    [
        (np.eye(3), errors.InvalidArgumentError, r"initial is an array of shape \(3, 3\)"),
        (np.ones(16), errors.InvalidArgumentError, r"shape \(16,\)"),
        ("rigid", errors.InvalidArgumentError, "initial is given as str"),
        ([[1, 2], [3]], errors.InvalidArgumentError, "initial is given as list"),
        (np.full((4, 4), np.nan), errors.InvalidArgumentError, "finite numbers"),
        (np.ones((4, 4)), errors.InvalidArgumentError, "last row 0 0 0 1"),
        (np.diag([1, 0, 1, 1]), errors.SingularTransformError, "initial has the matrix.*inverted"),
    ],
)
def test_a_bad_initial_is_refused_at_once(initial: Any, error: type, says: str, transform: Field):
    u, grid, moving_grid = transform.displacement(), transform.grid, transform.moving_grid
    for make in (
        lambda: Field(u, grid, moving_grid, initial),
        lambda: Field.from_mm(transform.displacement_mm(), grid, moving_grid, initial),
    ):
        refused(error, says, make)
    if not isinstance(initial, str):
        says = says.replace("initial", "the transform")
        refused(error, says, morphseek.Transform.of, initial)
        both = (images.Image(blob()),) * 2
        refused(error, says, morphseek.register, *both, initial_transform=initial, **QUICK)


def test_a_bad_grid_is_refused_at_once(transform: Field):
    short = np.zeros(3)
    for make in (
        lambda: Field(transform.displacement(), transform.grid, short),
        lambda: Field(transform.displacement(), short, transform.grid),
        lambda: morphseek.Transform.of(np.eye(4), short),
        lambda: morphseek.Transform.of(np.eye(4), transform.grid, short),
    ):
        invalid("the grid is a ndarray; give a", make)


def test_a_name_costs_nothing(transform, result, monkeypatch):
    """``repr`` does not run the engine, for a debugger calls it at every step."""
    largest = result.transform.summary()["displacement_max_mm"]
    for function in ("regularity", "jacobian", "to_mm", "behind_mm"):
        monkeypatch.delattr(bindings, function)
    assert repr(transform) == "Field(fixed 21 x 18 x 15, moving 30 x 17 x 22)"
    assert f"displacement up to {largest:.2f} mm" in repr(result)


def test_the_file_is_itks(transform: Field, tmp_path: Path):
    """SimpleITK reads the file as its own: a linear part, be it the identity, and a field."""
    whole, alone = tmp_path / "whole.h5", tmp_path / "alone.h5"
    bent = Field(transform.displacement(), transform.grid, transform.moving_grid)
    transform.save(whole)
    bent.save(alone)
    points = transform.grid.to_physical(np.random.default_rng(2).uniform(1, 13, (50, 3)))
    apart = sitk.CompositeTransform([sitk.AffineTransform(3), bent.to_sitk()])
    for path, made in ((whole, transform.to_sitk()), (alone, apart)):
        read = sitk.ReadTransform(str(path))
        assert read.GetName() == made.GetName()
        assert read.GetFixedParameters() == made.GetFixedParameters()
        np.testing.assert_allclose(by_itk(read, points), by_itk(made, points), rtol=0, atol=1e-9)
    voxels = transform._behind_initial()[0].nbytes
    assert voxels < whole.stat().st_size < voxels + 50_000  # float32, nothing twice


def test_a_transform_that_cannot_be_written(transform: Field, tmp_path: Path):
    refused(errors.OutputUnwritableError, "no folder", transform.save, tmp_path / "none" / "t.h5")
    assert not list(tmp_path.iterdir())


def test_a_saved_transform_applies(transform, moving, fixed, tmp_path):
    transform.save(tmp_path / "transform.h5")
    saved = morphseek.Transform.read(tmp_path / "transform.h5")
    assert saved.grid is not None
    np.testing.assert_array_equal(saved.grid.numbers, transform.grid.numbers)  # without the margin
    inside = (slice(2, -2),) * 3
    ours, theirs = (t.apply(moving, background=0.0).array[inside] for t in (saved, transform))
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    points = fixed.index_to_physical[:3, 3] + [[10.0, 12.0, 9.0]]
    ours, theirs = (t.transform_points(points) for t in (saved, transform))
    np.testing.assert_allclose(ours, theirs, atol=1e-2)
    # the kind and the type stay, 64-bit labels too
    labels = (moving.array > 0.5).astype(np.uint64) << np.uint64(60)
    for dtype in (np.uint64, np.int16, np.float64, bool):
        made = saved.apply(moving.like(labels.astype(dtype)), interpolation="nearest")
        assert isinstance(made, images.Image) and made.array.dtype == dtype
        assert set(np.unique(made.array)) <= set(np.unique(labels.astype(dtype)))
    assert isinstance(saved.apply(moving.to_sitk(), fixed), sitk.Image)
    images.write(tmp_path / "moving.nrrd", moving)
    assert saved.apply(tmp_path / "moving.nrrd").GetSize() == fixed.array.shape[::-1]

    shift = morphseek.Transform.of([[1, 0, 0, 1], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])
    assert shift.grid is None and shift.transform_points([[0, 0, 0]]).tolist() == [[1, 2, 3]]
    series = sitk.JoinSeries([fixed.to_sitk()] * 2)
    for like in (fixed, series):
        assert shift.apply(moving, reference=like).same_grid(fixed)
    for call, reason in (
        (lambda: shift.apply(moving), "holds no grid"),
        (lambda: shift.apply(moving.array, fixed), "does not say where it lies"),
        (lambda: saved.apply(moving, interpolation="bicubic"), "must be linear, cubic, sinc"),
        (lambda: saved.transform_points([1, 2, 3]), r"points have shape \(3,\)"),
    ):
        invalid(reason, call)


@pytest.mark.parametrize("name", ["line.h5", "line.nrrd", "line.nii.gz"])
@pytest.mark.parametrize("what", ["jacobian", "inverse", "summary", "modulated"])
def test_a_field_along_a_line_is_named(name: str, what: str, tmp_path: Path):
    vectors = sitk.GetImageFromArray(np.zeros((5, 1, 1, 3)), isVector=True)
    if name.endswith(".h5"):
        sitk.WriteTransform(sitk.DisplacementFieldTransform(vectors), str(tmp_path / name))
    else:
        sitk.WriteImage(sitk.Cast(vectors, sitk.sitkVectorFloat32), str(tmp_path / name))
    transform = morphseek.Transform.read(tmp_path / name)
    with pytest.raises(morphseek.errors.ThinVolumeError, match=rf"{name}.*along one axis alone"):
        if what == "modulated":
            transform.apply(images.Image(blob((8, 8, 8))), modulate=True)
        else:
            getattr(transform, what)()
