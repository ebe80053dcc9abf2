"""Starts from a deformation in every form, compared with SimpleITK's sampling of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from test_things import A, bend_of

import morphseek
from helpers import QUICK, affine_of, blob, by_itk, field_by_itk, field_of, invalid, oblique, run
from morphseek import Field, Image, Registration, Transform, errors, images

ALONE = {**QUICK, "initial": "affine"}  # the given transform is the result


@pytest.fixture(scope="module")
def pair() -> tuple[Image, Image]:
    return oblique(blob((18, 22, 24), noise=0)), oblique(blob((18, 22, 24), 0.15, noise=0))


@pytest.fixture(scope="module")
def bent(pair: tuple[Image, Image]) -> sitk.Transform:
    return sitk.CompositeTransform([A, bend_of(pair[0])])


def spline(pair: tuple[Image, Image]) -> sitk.Transform:
    made = sitk.BSplineTransformInitializer(pair[0].to_sitk(), [4, 4, 4])
    count = len(made.GetParameters())
    made.SetParameters((2 * np.sin(np.arange(count))).tolist())
    return made


def as_file(name: str, **how: Any) -> Any:
    def made(transform: sitk.Transform, pair: tuple[Image, Image], folder: Path) -> Path:
        path = folder / name
        return Transform.of(transform, pair[0].grid, pair[1].grid).save(path, **how)[-1]

    return made


def dense(t: sitk.Transform, pair: tuple[Image, Image], folder: Path) -> Field:
    return Field.from_mm(field_by_itk(t, pair[0]), pair[0].grid, pair[1].grid)


def vectors(t: sitk.Transform, pair: tuple[Image, Image], folder: Path) -> sitk.Image:
    return field_of(field_by_itk(t, pair[0]), pair[0]).GetDisplacementField()


def fsl(t: sitk.Transform, pair: tuple[Image, Image], folder: Path) -> str:
    return f"{Transform.of(t).save(folder / 'w.nii.gz', 'fsl', *pair)[-1]}@fsl"


FORMS: dict[str, Any] = {
    "SimpleITK": lambda t, pair, folder: t,
    "Transform": lambda t, pair, folder: Transform.of(t),
    "h5": as_file("t.h5"), "tfm": as_file("t.tfm"), "nifti": as_file("t.nii.gz"),
    "nrrd": as_file("t.nrrd"), "greedy": as_file("t.nii.gz", format="greedy"),
    "RAS nifti": as_file("t.nii.gz", format="field-ras"), "FSL": fsl, "vector image": vectors,
    "array, mm": lambda t, pair, folder: field_by_itk(t, pair[0]),
    "array, voxels": lambda *given: dense(*given).displacement(), "dense": dense,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, bent: sitk.Transform, pair: tuple[Image, Image], tmp_path: Path):
    given = FORMS[form](bent, pair, tmp_path)
    if form == "greedy":
        given = f"{given}@greedy"
    result = morphseek.register(*pair, initial_transform=given, **ALONE)
    np.testing.assert_allclose(result.displacement_mm(), field_by_itk(bent, pair[0]), atol=2e-3)
    assert result.metrics["plan"]["start"] == "deformation"


def test_a_spline_and_an_inverse(bent: sitk.Transform, pair: tuple[Image, Image], tmp_path: Path):
    curved = spline(pair)
    result = morphseek.register(*pair, initial_transform=curved, **ALONE)
    np.testing.assert_allclose(result.displacement_mm(), field_by_itk(curved, pair[0]), atol=2e-3)

    path = Transform.of(bent, pair[1].grid, pair[0].grid).save(tmp_path / "t.h5")[0]
    result = morphseek.register(*pair, initial_transform=f"{path}@inverse", **ALONE)
    points = result.grid.to_physical([[12, 11, 9]])
    there = by_itk(bent, result.transform_points(points))
    np.testing.assert_allclose(there, points, atol=0.05)


def copied(itk: Any, kind: Any, of: sitk.Transform) -> Any:
    made = kind.New()
    for name in ("FixedParameters", "Parameters"):
        numbers = getattr(of, f"Get{name}")()
        own = itk.OptimizerParameters[itk.D](len(numbers))
        for i, number in enumerate(numbers):
            own[i] = number
        getattr(made, f"Set{name}")(own)
    return made


def test_itk(bent: sitk.Transform, pair: tuple[Image, Image]):
    itk = pytest.importorskip("itk")
    curved, whole = spline(pair), itk.CompositeTransform[itk.D, 3].New()
    whole.AddTransform(copied(itk, itk.AffineTransform[itk.D, 3], A))
    whole.AddTransform(copied(itk, itk.BSplineTransform[itk.D, 3, 3], curved))
    result = morphseek.register(*pair, initial_transform=whole, **ALONE)
    want = field_by_itk(sitk.CompositeTransform([A, curved]), pair[0])
    np.testing.assert_allclose(result.displacement_mm(), want, atol=2e-3)
    if not hasattr(itk, "DisplacementFieldTransform"):
        return  # itk-core has none
    made = itk.DisplacementFieldTransform[itk.D, 3].New()
    field = itk.Image[itk.Vector[itk.D, 3], 3].New()
    field.SetRegions(pair[0].to_sitk().GetSize())
    field.SetOrigin(pair[0].origin)
    field.SetSpacing(pair[0].spacing)
    field.SetDirection(itk.matrix_from_array(np.array(pair[0].direction).reshape(3, 3)))
    field.Allocate()
    itk.array_view_from_image(field)[:] = field_by_itk(bent, pair[0])
    made.SetDisplacementField(field)
    result = morphseek.register(*pair, initial_transform=made, **ALONE)
    np.testing.assert_allclose(result.displacement_mm(), field_by_itk(bent, pair[0]), atol=2e-3)


@pytest.mark.parametrize(
    "name", ["QuaternionRigidTransform", "ScaleLogarithmicTransform", "CenteredAffineTransform"]
)
def test_itks_linear_classes(name: str, pair: tuple[Image, Image]):
    itk = pytest.importorskip("itk")
    kind = getattr(itk, name)
    one = kind[(itk.D, 3) if (itk.D, 3) in kind.keys() else itk.D].New()
    numbers = itk.OptimizerParameters[itk.D](one.GetNumberOfParameters())
    for i, number in enumerate(one.GetParameters()):
        numbers[i] = number + 0.03 * (i + 1)
    one.SetParameters(numbers)
    whole = itk.CompositeTransform[itk.D, 3].New()
    whole.AddTransform(one)
    points = np.random.default_rng(0).normal(size=(9, 3)) * 20
    want = by_itk(one, points)
    for given in (one, whole):
        np.testing.assert_allclose(Transform.of(given).transform_points(points), want, atol=1e-9)
    result = morphseek.register(*pair, initial_transform=one, **{**ALONE, "initial": "none"})
    np.testing.assert_allclose(result.transform_points(points), want, atol=1e-3)


def test_an_affine_that_acts_first(pair: tuple[Image, Image]):
    whole = sitk.CompositeTransform([bend_of(pair[0]), A])
    result = morphseek.register(*pair, initial_transform=whole, **ALONE)
    np.testing.assert_allclose(result.displacement_mm(), field_by_itk(whole, pair[0]), atol=2e-3)


@pytest.fixture(scope="module")
def finished() -> tuple[Image, Image, Registration]:
    made = morphseek.phantom.make_pair(size=40)
    fixed, moving = images.read(made.fixed), images.read(made.moving)
    return fixed, moving, morphseek.register(fixed, moving, threads=2)


@pytest.mark.parametrize("form", ["result", "folder's file", "transform", "loaded"])
def test_a_finished_result_stays(form, finished, tmp_path):
    fixed, moving, result = finished
    result.save(tmp_path)
    given = {
        "result": result, "folder's file": tmp_path / "transform.h5",
        "transform": result.transform, "loaded": morphseek.Registration.read(tmp_path),
    }[form]  # fmt: skip
    again = morphseek.register(fixed, moving, initial_transform=given, threads=2)
    moved = np.linalg.norm(again.displacement() - result.displacement(), axis=0)
    assert moved.mean() < 0.05, moved.mean()
    assert {"align", "refine"} <= set(again.metrics["seconds"])
    assert "search" not in again.metrics["seconds"]
    assert "the deformation that was given" in again.explain()
    np.testing.assert_allclose(again.transform.initial, result.transform.initial, atol=1e-9)


def save_bad(kind: str, fixed: Image, folder: Path) -> Path:
    path = folder / f"{kind.replace(' ', '_')}.nrrd"
    field = bend_of(fixed).GetDisplacementField()
    if kind == "NaN":
        vectors = sitk.GetArrayFromImage(field)
        vectors[3, 3, 3, 1] = np.nan
        made = sitk.GetImageFromArray(vectors, isVector=True)
        made.CopyInformation(field)
        field = made
    elif kind == "elsewhere":
        field.SetOrigin([900, 0, 0])
    elif kind == "a corner alone":
        field = field[:8, :8, :8]
    elif kind == "two dimensions":
        field = sitk.GetImageFromArray(np.zeros((9, 9, 2)), isVector=True)
    elif kind == "cut short":
        sitk.WriteImage(field, str(path))
        path.write_bytes(path.read_bytes()[:-500])
        return path
    elif kind == "singular":
        path = path.with_suffix(".tfm")
        flat = affine_of(np.diag([1, 1, 0, 1]))
        sitk.WriteTransform(sitk.CompositeTransform([flat, bend_of(fixed)]), str(path))
        return path
    sitk.WriteImage(field, str(path))
    return path


BAD = {
    "NaN": "no number", "elsewhere": "does not reach", "a corner alone": "covers",
    "two dimensions": "2", "cut short": "is cut short", "singular": "singular",
}  # fmt: skip


@pytest.mark.parametrize("kind, says", BAD.items())
def test_a_bad_file_is_named(kind: str, says: str, pair: tuple[Image, Image], tmp_path: Path):
    path = save_bad(kind, pair[0], tmp_path)
    with pytest.raises(errors.MorphSeekError, match=says) as caught:
        morphseek.register(*pair, initial_transform=path, **QUICK)
    assert path.name in str(caught.value)
    files = []
    for name, image in zip("fm", pair):
        files.append(tmp_path / f"{name}.nii.gz")
        images.write(files[-1], image)
    words = ("register", *files, "--out", tmp_path / "out", "--initial-transform", path)
    assert path.name in run(*words, code=caught.value.exit_code).output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "given, says",
    [
        (np.zeros((3, 5, 5, 5), np.float32), "shape"),
        (sitk.Image([4, 4, 4], sitk.sitkVectorFloat32, 2), "2 values a voxel"),
        (sitk.Image([4, 4], sitk.sitkVectorFloat32, 2), "2 axes"),
    ],
)
def test_no_field(given: Any, says: str, pair: tuple[Image, Image]):
    invalid(says, morphseek.register, *pair, initial_transform=given, **QUICK)


def test_a_result_of_another_pair(finished: tuple[Image, Image, Registration]):
    fixed, moving, result = finished
    far = Image(fixed.array, fixed.spacing, (4000.0, 0.0, 0.0), fixed.direction)
    with pytest.raises(errors.GridMismatchError, match="another pair"):
        morphseek.register(far, moving, initial_transform=result, **QUICK)
