"""Transform objects: composed, inverted, applied to images, points, surfaces and tracts."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import (
    affine_of,
    bend,
    blob,
    by_itk,
    field_of,
    invalid,
    oblique,
    refused,
    resampled,
    run,
    run_json,
    unreadable,
)
from morphseek import Field, Image, Landmarks, Transform, errors, images
from morphseek.transforms import carried

A = affine_of([[1.04, 0.05, 0, 1.5], [-0.03, 0.95, 0.02, -2], [0, 0.01, 1.03, 1]])


def bend_of(image: Image, size: float = 2.0) -> sitk.DisplacementFieldTransform:
    return field_of(bend(image, size), image)


@pytest.fixture(scope="module")
def fixed() -> Image:
    return oblique(blob((15, 18, 21), noise=0))


@pytest.fixture
def bent(fixed: Image) -> sitk.Transform:
    return sitk.CompositeTransform([A, bend_of(fixed)])


@pytest.fixture
def inside(fixed: Image) -> np.ndarray:
    index = np.random.default_rng(0).uniform(4, np.array(fixed.grid.size) - 5, (60, 3))
    return fixed.grid.to_physical(index)


def test_the_last_one_acts_first(bent: sitk.Transform, fixed: Image, inside: np.ndarray):
    shift = sitk.TranslationTransform(3, (1.0, 2.0, 3.0))
    for one, other in ((bent, shift), (shift, bent), (bent, bent), (A, shift)):
        both = Transform.of(one) @ Transform.of(other)
        expected = by_itk(one, by_itk(other, inside))
        np.testing.assert_allclose(both.transform_points(inside), expected, atol=1e-9)
        chained = by_itk(sitk.CompositeTransform([one, other]), inside)
        np.testing.assert_allclose(chained, expected, atol=1e-9)
        assert both.is_linear == (bent not in (one, other))
    wrong = by_itk(shift, by_itk(bent, inside))
    assert np.abs(by_itk(bent, by_itk(shift, inside)) - wrong).max() > 0.1  # the order matters
    places = [dataclasses.replace(fixed.grid, origin=(k, 0, 0)) for k in range(4)]
    both = Transform.of(A, *places[:2]) @ Transform.of(A, *places[2:])
    assert (both.grid, both.moving_grid) == (places[2], places[1])


def test_an_inverse_comes_back(bent: sitk.Transform, inside: np.ndarray):
    spline = sitk.BSplineTransformInitializer(oblique(blob((15, 18, 21))).to_sitk(), [4, 4, 4])
    rng = np.random.default_rng(1)
    spline.SetParameters(rng.normal(0, 1.0, spline.GetNumberOfParameters()).tolist())
    both = sitk.CompositeTransform([bent, A])
    for forward, most in ((A, 1e-9), (bent, 0.1), (both, 0.1), (spline, 0.1)):
        there = by_itk(forward, inside)
        assert np.abs(there - inside).max() > 0.3
        back = Transform.of(forward).inverse().transform_points(there)
        np.testing.assert_allclose(back, inside, atol=most)
    with pytest.raises(errors.SingularTransformError):
        Transform.of(np.diag([1.0, 1, 0, 1]))


def test_a_result_gives_its_transform(result: morphseek.Registration, tmp_path: Path):
    points = [[0.0, 0.0, 0.0], [20.0, -30.0, -50.0]]
    transform = result.transform
    there = transform.transform_points(points)
    np.testing.assert_allclose(there, result.transform_points(points), atol=1e-4)
    np.testing.assert_allclose(transform.jacobian(), result.jacobian(), atol=1e-4)
    np.testing.assert_allclose(transform.displacement_mm(), result.displacement_mm(), atol=1e-4)
    initial, final = (transform.stages[name] for name in ("initial", "final"))
    expected = (transform.initial @ [*points[1], 1])[:3]
    assert initial.is_linear
    np.testing.assert_allclose(initial.transform_points(points)[1], expected, atol=1e-9)
    np.testing.assert_array_equal(final.transform_points(points), there)
    chained = (transform @ A).transform_points(points)
    expected = transform.transform_points(by_itk(A, np.array(points)))
    np.testing.assert_allclose(chained, expected, atol=1e-5)
    transform.save(tmp_path / "t.h5")
    read = Transform.read(tmp_path / "t.h5")
    assert (read.grid, read.moving_grid) == (result.grid, result.moving_grid)
    assert read.inverse().grid == result.moving_grid


def test_many_parts_are_kept(bent: sitk.Transform, inside: np.ndarray, tmp_path: Path):
    """There are more parts than one node of our HDF5 writer holds."""
    whole, expected = Transform.of(bent), inside
    for _ in range(5):
        expected = by_itk(bent, expected)
    for _ in range(4):
        whole = whole @ Transform.of(bent)
    whole.save(tmp_path / "t.h5")
    found = by_itk(sitk.ReadTransform(str(tmp_path / "t.h5")), inside)
    np.testing.assert_allclose(found, expected, atol=1e-4)


HOW = {
    "linear": sitk.sitkLinear, "cubic": sitk.sitkBSpline3, "sinc": sitk.sitkLanczosWindowedSinc,
    "nearest": sitk.sitkNearestNeighbor,
}  # fmt: skip


@pytest.mark.parametrize("how", HOW)
def test_the_type_stays(bent: sitk.Transform, fixed: Image, how: str):
    """Integers are SimpleITK's floats, rounded and clamped by numpy."""
    hounsfield = fixed.like((fixed.array * 2500 - 1000).astype(np.int16))
    floats = resampled(fixed.like(hounsfield.array * 1.0), fixed, bent, HOW[how], -5)
    given = {"interpolation": how, "background": -5}
    found = Transform.of(bent).apply(hounsfield, fixed, **given).array
    assert found.dtype == np.int16 and np.ptp(found) > 1000
    assert np.abs(found - np.rint(floats)).max() <= 1  # a tie
    assert (found != np.rint(floats)).mean() < 1e-3
    as_float = Transform.of(bent).apply(hounsfield, fixed, **given, dtype="float32").array
    np.testing.assert_allclose(as_float, floats, atol=2e-3)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "longdouble", ">f4"])
def test_floats_are_simpleitks(bent: sitk.Transform, fixed: Image, how: str, kind: str):
    """They are resampled in their own width, and equal what SimpleITK gives for them."""
    image = fixed.like((1000 * fixed.array).astype(kind))
    expected = resampled(image, fixed, bent, HOW[how], -5)
    found = Transform.of(bent).apply(image, fixed, interpolation=how, background=-5)
    assert found.array.dtype == np.dtype(kind)
    if kind == "float16":
        expected = expected.astype(kind)
    np.testing.assert_array_equal(found.array, expected)


def test_a_resampling_takes_no_more_memory_than_the_image(bent, fixed, monkeypatch):
    given = []
    resample = sitk.Resample
    monkeypatch.setattr(sitk, "Resample", lambda i, *how: given.append(i) or resample(i, *how))
    for kind in ("float32", "int16", "uint16", "float64", "int32"):
        Transform.of(bent).apply(fixed.like(fixed.array.astype(kind)), fixed)
    names = [image.GetPixelIDTypeAsString() for image in given]
    assert names == [f"{bits}-bit float" for bits in (32, 32, 32, 64, 64)]


NIBABEL = {
    nibabel.Nifti1Image: {"bool": "uint8", "float16": "float32", "longdouble": "float64"},
    nibabel.MGHImage: {"bool": "uint8", "float16": "float32", "int16": "int16"},
}


@pytest.mark.parametrize("make", NIBABEL)
def test_nibabel_images_of_any_type(make: Any, bent: sitk.Transform, fixed: Image):
    """A type that the format does not hold becomes the one that SimpleITK's image has, or is
    refused by name.
    """
    apply, kinds = Transform.of(bent).apply, NIBABEL[make]
    ras, voxels = np.diag([-1, -1, 1, 1]) @ fixed.index_to_physical, 100 * fixed.array.T
    source, frames = (make(each, ras) for each in (voxels, np.stack([voxels] * 2, axis=-1)))
    for kind, expected in kinds.items():
        found = apply(source, fixed, dtype=kind)
        same = apply(fixed.like(100 * fixed.array).to_sitk(), fixed, dtype=kind)
        assert type(found) is make and np.asarray(found.dataobj).dtype == expected
        voxels = sitk.GetArrayFromImage(same).T
        np.testing.assert_allclose(np.asarray(found.dataobj), voxels, atol=1e-3)
        if make is nibabel.Nifti1Image:
            found = apply(frames, fixed, dtype=kind)
            assert found.shape[3] == 2 and found.get_data_dtype() == expected
    for kind in ("uint32", "float64") if make is nibabel.MGHImage else ():
        invalid(f"MGHImage holds no.*{kind}", apply, source, fixed, dtype=kind)


def test_no_value_wraps(fixed: Image):
    """Cubic interpolation overshoots at an edge; values are clamped, not wrapped."""
    array = np.zeros(fixed.array.shape, np.uint8)
    array[:, :, 8:12] = 254, 255, 254, 255  # one value would look like a label
    shift = Transform.of(sitk.TranslationTransform(3, (0.3, 0.2, 0.0)))
    floats = shift.apply(fixed.like(array.astype(np.float32)), fixed, interpolation="cubic").array
    assert floats.min() < -1 and floats.max() > 256
    found = shift.apply(fixed.like(array), fixed, interpolation="cubic").array
    np.testing.assert_array_equal(found, np.clip(np.rint(floats), 0, 255))
    as_bytes = shift.apply(fixed.like(array * 1000.0 - 300), fixed, dtype=np.uint8).array
    assert set(np.unique(as_bytes)) <= {0, 255} and as_bytes.max() == 255
    holes = fixed.like(np.where(array > 0, np.nan, 1.0))
    filled = shift.apply(holes, fixed, interpolation="cubic", background=1.0)
    np.testing.assert_allclose(filled.array[2:-2, 2:-2, 2:-2], 1)
    for value in (np.nan, 256, -1):
        invalid("background.*uint8", shift.apply, fixed.like(array), fixed, background=value)
    invalid("dtype is 'complex64'", shift.apply, fixed, fixed, dtype="complex64")


def test_a_result_keeps_the_type(result: morphseek.Registration, pair: Any):
    hounsfield = np.rint(pair.moving.array).astype(np.int16)
    found = result.apply(hounsfield)
    assert found.dtype == np.int16
    floats = result.apply(hounsfield.astype(np.float32))
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(found, np.rint(floats))
    cubic = result.apply(hounsfield, interpolation="cubic")
    assert cubic.dtype == np.int16 and 0 < (cubic != found).mean() < 1
    expected = result.transform.apply(pair.moving.like(hounsfield), interpolation="cubic")
    np.testing.assert_array_equal(cubic, expected.array)


def bodies(points: np.ndarray) -> np.ndarray:
    """Return the labels of four bodies with known borders, one of them small."""
    x, y, z = np.moveaxis(points, -1, 0)
    found = np.zeros(x.shape, np.uint8)
    found[(x / 28) ** 2 + (y / 22) ** 2 + (z / 18) ** 2 < 1] = 1
    found[((x - 8) / 10) ** 2 + ((y + 3) / 7) ** 2 + ((z - 2) / 8) ** 2 < 1] = 2
    found[(x + 10) ** 2 + (y - 4) ** 2 + (z + 3) ** 2 < 25] = 3
    return found


def on_cube(size: int, spacing: float) -> tuple[Image, np.ndarray]:
    """Return a blank cube around the origin, and the places of its voxels."""
    origin = -(size - 1) / 2 * spacing
    cube = Image(np.zeros((size,) * 3, np.uint8), (spacing,) * 3, (origin,) * 3)
    return cube, cube.grid.points()


def test_labels_without_staircase():
    """From 2 mm to 1 mm voxels: fewer are wrong, borders are smoother, and small labels stay."""
    moving, places = on_cube(36, 2.0)
    fixed, points = on_cube(66, 1.0)
    turn = sitk.Euler3DTransform()
    turn.SetRotation(0.2, 0.15, -0.3)
    truth = bodies(points @ np.reshape(turn.GetMatrix(), (3, 3)).T)
    labels = moving.like(bodies(places))
    wrong, faces, small = {}, {}, {}
    for how in ("nearest", "label"):
        found = Transform.of(turn).apply(labels, fixed, interpolation=how).array
        assert found.dtype == np.uint8 and set(np.unique(found)) == {0, 1, 2, 3}
        wrong[how] = (found != truth).mean()
        steps = [np.diff(found == k, axis=axis).sum() for k in (1, 2, 3) for axis in range(3)]
        faces[how] = sum(steps)
        one, other = found == 3, truth == 3
        small[how] = 2 * (one & other).sum() / (one.sum() + other.sum())
    assert wrong["label"] < 0.75 * wrong["nearest"] and faces["label"] < 0.9 * faces["nearest"]
    assert small["label"] > small["nearest"]
    large = moving.like(labels.array.astype(np.uint64) << np.uint64(60))
    kept = Transform.of(turn).apply(large, fixed, interpolation="label").array
    np.testing.assert_array_equal(kept >> np.uint64(60), found)


def test_modulated_sums_stay(fixed: Image):
    """The sum times the voxel's volume is kept for a body that a map shrinks by a third."""
    moving, places = on_cube(48, 1.0)
    density = moving.like(np.exp(-(places**2).sum(axis=-1) / 50).astype(np.float32))
    larger = Transform.of(np.diag([1.2, 1.1, 1.15, 1.0]))
    before = density.array.sum(dtype=np.float64)
    plain = larger.apply(density, moving).array.sum(dtype=np.float64)
    kept = larger.apply(density, moving, modulate=True).array.sum(dtype=np.float64)
    assert plain < 0.7 * before and abs(kept / before - 1) < 2e-3
    bend = Transform.of(bend_of(moving, 3.0))
    squares = ((places - [8, 4, 0]) ** 2).sum(axis=-1)  # away from the centre
    blot = moving.like(np.exp(-squares / 30).astype(np.float32))
    before, plain = blot.array.sum(), bend.apply(blot).array.sum()
    kept = bend.apply(blot, modulate=True).array.sum()
    assert abs(plain / before - 1) > 0.05 and abs(kept / before - 1) < 3e-3
    counts = fixed.like((fixed.array * 100).astype(np.int16))
    assert bend.apply(counts, modulate=True).array.dtype == np.float32
    invalid("modulate", bend.apply, counts, interpolation="nearest", modulate=True)


def test_frames(bent: sitk.Transform, fixed: Image, tmp_path: Path):
    frames = [fixed.like((fixed.array * 100 * (k + 1)).astype(np.int16)) for k in range(3)]
    expected = [Transform.of(bent).apply(frame, fixed).array for frame in frames]
    series = sitk.JoinSeries([frame.to_sitk() for frame in frames], 1.5, 2.5)
    sitk.WriteImage(series, str(tmp_path / "series.nii.gz"))
    nib = nibabel.load(tmp_path / "series.nii.gz")
    found = Transform.of(bent).apply(tmp_path / "series.nii.gz", fixed)
    assert found.GetDimension() == 4 and found.GetSpacing()[3] == pytest.approx(2.5)
    for made in (
        sitk.GetArrayFromImage(found),
        sitk.GetArrayFromImage(Transform.of(bent).apply(series, fixed)),
        np.asarray(Transform.of(bent).apply(nib, fixed).dataobj).T,
    ):
        assert made.dtype == np.int16
        np.testing.assert_array_equal(made, expected)
    assert Transform.of(bent).apply(nib, fixed).header.get_zooms()[3] == pytest.approx(2.5)


def test_what_turns_is_refused(bent: sitk.Transform, fixed: Image, tmp_path: Path):
    nifti = nibabel.Nifti1Image(np.zeros((5, 6, 7, 1, 6), np.float32), np.eye(4))
    nifti.header.set_intent("symmetric matrix", (3,))
    nibabel.save(nifti, tmp_path / "tensor.nii.gz")
    vectors = sitk.GetImageFromArray(np.zeros((5, 6, 7, 3), np.float32), isVector=True)
    sitk.WriteImage(vectors, str(tmp_path / "vectors.nrrd"))
    fod = nibabel.Nifti1Image(np.zeros((5, 6, 7, 45), np.float32), np.eye(4))
    fod.header["descrip"] = b"MRtrix version: 3.0.4"
    nibabel.save(fod, tmp_path / "fod.nii")
    for name in ("tensor.nii.gz", "vectors.nrrd", "fod.nii"):
        invalid(rf"{name}.*turn with the tissue", Transform.of(bent).apply, tmp_path / name, fixed)
    quaternions = nibabel.Nifti1Image(np.zeros((5, 6, 7, 4), np.float32), np.eye(4))
    quaternions.header.set_intent("quaternion")
    for image in (nifti, fod, quaternions):
        invalid("turn with the tissue", Transform.of(bent).apply, image, fixed)


@pytest.mark.parametrize("ending", [".csv", ".fcsv", ".mrk.json"])
def test_points(bent: sitk.Transform, inside: np.ndarray, ending: str, tmp_path: Path):
    names = [f"p,{k}" for k in range(len(inside))]
    Landmarks(inside, names).write(tmp_path / f"in{ending}")
    again = Landmarks.read(tmp_path / f"in{ending}")
    np.testing.assert_array_equal(again.points, inside)
    assert list(again.names) == names
    for other in (".csv", ".fcsv", ".mrk.json"):
        carried.carry(tmp_path / f"in{ending}", tmp_path / f"out{other}", Transform.of(bent))
        found = Landmarks.read(tmp_path / f"out{other}")
        np.testing.assert_allclose(found.points, by_itk(bent, inside), atol=1e-9)
        assert list(found.names) == names
    files = (tmp_path / f"in{ending}", tmp_path / "out.txt")
    says = r"out\.txt.*\.mrk\.json"
    refused(errors.OutputUnwritableError, says, carried.carry, *files, Transform.of(bent))


SIGNS = np.array([-1, -1, 1])


def test_gifti(bent: sitk.Transform, inside: np.ndarray, tmp_path: Path):
    points, faces = (
        nibabel.gifti.GiftiDataArray(numbers, intent=f"NIFTI_INTENT_{intent}")
        for numbers, intent in (
            ((inside * SIGNS).astype(np.float32), "POINTSET"),
            (np.array([[0, 1, 2]], np.int32), "TRIANGLE"),
        )
    )
    surface, out = tmp_path / "in.surf.gii", tmp_path / "out.surf.gii"
    nibabel.save(nibabel.gifti.GiftiImage(darrays=[points, faces]), surface)
    assert carried.carry(surface, out, Transform.of(bent)) == 60
    moved, kept = (a.data for a in nibabel.load(out).darrays)
    np.testing.assert_allclose(moved * SIGNS, by_itk(bent, inside), atol=1e-4)
    np.testing.assert_array_equal(kept, [[0, 1, 2]])
    points.meta["VolGeomC_R"] = "5.0"
    nibabel.save(nibabel.gifti.GiftiImage(darrays=[points, faces]), surface)
    other = tmp_path / "other.gii"
    unreadable("in.surf.gii.*--to-scanner", carried.carry, surface, other, Transform.of(bent))
    assert not other.exists()


@pytest.mark.parametrize("ending", [".tck", ".trk"])
def test_tracts(bent, fixed, inside, ending, tmp_path):
    lines = [(inside[a:b] * SIGNS).astype(np.float32) for a, b in ((0, 20), (20, 21), (21, 60))]
    weights = {"w": np.array([[1.0], [2.0], [3.0]])} if ending == ".trk" else None
    made = nibabel.streamlines.Tractogram(lines, weights, affine_to_rasmm=np.eye(4))
    nibabel.streamlines.save(made, str(tmp_path / f"in{ending}"))
    for other in (ending, ".tck", ".trk"):
        out = tmp_path / f"out{other}"
        assert carried.carry(tmp_path / f"in{ending}", out, Transform.of(bent), fixed) == 60
        found = nibabel.streamlines.load(out)
        assert [len(line) for line in found.streamlines] == [20, 1, 39]
        places = np.concatenate(list(found.streamlines)) * SIGNS
        np.testing.assert_allclose(places, by_itk(bent, inside), atol=1e-3)
        if weights and other == ".trk":
            kept = found.tractogram.data_per_streamline["w"]
            np.testing.assert_array_equal(kept, weights["w"])
    header = nibabel.streamlines.load(tmp_path / "out.trk").header
    to_ras = np.diag([*SIGNS, 1]) @ fixed.index_to_physical
    np.testing.assert_allclose(header["voxel_to_rasmm"], to_ras, rtol=1e-5)
    assert list(header["dimensions"]) == [21, 18, 15]
    if ending == ".tck":
        none = tmp_path / "none.trk"
        invalid("reference", carried.carry, tmp_path / "in.tck", none, Transform.of(bent))
    cut = tmp_path / f"cut{ending}"
    cut.write_bytes((tmp_path / f"in{ending}").read_bytes()[:300])
    unreadable(cut.name, carried.carry, cut, tmp_path / f"o{ending}", Transform.of(bent))


@pytest.mark.parametrize("ending", [".vtk", ".vtp", ".stl", ".ply"])
def test_surfaces(bent: sitk.Transform, inside: np.ndarray, ending: str, tmp_path: Path):
    """Without a note of their space surfaces are in LPS; Slicer's note says RAS."""
    pytest.importorskip("vtkmodules", reason="needs morphseek[surfaces]")
    from vtkmodules import vtkIOGeometry, vtkIOLegacy, vtkIOPLY, vtkIOXML
    from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
    from vtkmodules.vtkCommonCore import vtkPoints, vtkStringArray
    from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData

    names = {
        ".vtk": (vtkIOLegacy, "PolyData"), ".vtp": (vtkIOXML, "XMLPolyData"),
        ".stl": (vtkIOGeometry, "STL"), ".ply": (vtkIOPLY, "PLY"),
    }  # fmt: skip

    def tool(path: Path, what: str) -> Any:
        module, name = names[path.suffix]
        made = getattr(module, f"vtk{name}{what}")()
        made.SetFileName(str(path))
        return made

    def read(path: Path) -> np.ndarray:
        reader = tool(path, "Reader")
        reader.Update()
        assert reader.GetOutput().GetNumberOfPolys() == 20
        data = reader.GetOutput().GetPointData()
        assert not data.HasArray("v") and not data.HasArray("tensor")  # they would have to turn
        assert data.HasArray("height") == ({ending, path.suffix} <= {".vtk", ".vtp"})
        return vtk_to_numpy(reader.GetOutput().GetPoints().GetData())

    for note, signs in (("", 1), ("SPACE=RAS", SIGNS)):
        if note and ending == ".ply":
            continue
        mesh, points, cells = vtkPolyData(), vtkPoints(), vtkCellArray()
        points.SetData(numpy_to_vtk((inside * signs).astype(np.float32), deep=True))
        for k in range(0, 60, 3):
            cells.InsertNextCell(3, [k, k + 1, k + 2])
        mesh.SetPoints(points)
        mesh.SetPolys(cells)
        for name, count in (("height", 1), ("v", 3), ("tensor", 9)):
            array = numpy_to_vtk(np.ones((60, count), np.float32), deep=True)
            array.SetName(name)
            mesh.GetPointData().AddArray(array)
        writer = tool(tmp_path / f"in{ending}", "Writer")
        if note and ending == ".vtp":
            space = vtkStringArray()
            space.SetName("SPACE")
            space.InsertNextValue("RAS")
            mesh.GetFieldData().AddArray(space)
        elif note:
            writer.SetHeader(f"3D Slicer output. {note}")
        writer.SetInputData(mesh)
        assert writer.Write()
        for other in names:
            out, again = tmp_path / f"out{other}", tmp_path / f"again{other}"
            carried.carry(tmp_path / f"in{ending}", out, Transform.of(bent))
            np.testing.assert_allclose(read(out), by_itk(bent, inside), atol=1e-4)
            carried.carry(out, again, Transform.of(bent).inverse())  # its own note
            np.testing.assert_allclose(read(again), inside, atol=0.1)
    (tmp_path / f"no{ending}").write_text("nothing\n")
    none, out = tmp_path / f"no{ending}", tmp_path / f"o{ending}"
    unreadable(f"no{ending}", carried.carry, none, out, Transform.of(bent))
    assert not out.exists()


# makers of files: path, an image ->
def vectors(*shape: int) -> Any:
    """Return a maker of a field whose last number is none."""

    def make(path: Path, fixed: Image) -> None:
        numbers = np.zeros(shape, np.float32)
        numbers.flat[-1] = np.nan
        sitk.WriteImage(sitk.GetImageFromArray(numbers, isVector=True), str(path))

    return make


def text(content: str) -> Any:
    return lambda path, fixed: path.write_text(content)


HEADER = "#Insight Transform File V1.0\n#Transform "
AFFINE = "Transform: AffineTransform_double_3_3\nParameters: {}\nFixedParameters: 0 0 0\n"
UNIT = "1 0 0 0 1 0 0 0 1 1 2 3"


def tfm(*numbers: str) -> Any:
    return text(HEADER + "#Transform ".join(map(f"0\n{AFFINE}".format, numbers)))


def lta(kind: int, last: int) -> Any:
    rows = f"1 0 0 0\n0 1 0 0\n0 0 {last} 0\n0 0 0 1\n"
    return text(f"type = {kind}\nnxforms = 1\n1 4 4\n{rows}")


def elastix(kind: str, numbers: str, first: str = "") -> Any:
    before = f'(InitialTransformParameterFileName "{first}")\n' if first else ""
    center = "(CenterOfRotationPoint 0 0 0)\n"
    return text(f'(Transform "{kind}")\n(TransformParameters {numbers})\n{center}{before}')


def flat(path: Path, fixed: Image) -> None:
    sitk.WriteTransform(sitk.Euler2DTransform(), str(path))


def scalar(path: Path, fixed: Image) -> None:
    images.write(path, fixed)


def half(format: str) -> Any:
    def make(path: Path, fixed: Image) -> None:
        Transform.of(A, fixed.grid, fixed.grid).save(path, format)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 4])

    return make


SHIFT, DAMAGED = "TranslationTransform", " cannot be read: it is cut short, damaged"
# a file's name, how it is made, and what is said after the name
BAD: dict[str, tuple[str, Any, str | None]] = {
    "NaN in a field": ("bad.nrrd", vectors(5, 6, 7, 3), " has no number .* displacement of 1 vox"),
    "NaN in a matrix": ("n.tfm", tfm(UNIT.replace("1 1", "1 nan")), ""),
    "singular": ("s.tfm", tfm(UNIT.replace("1 1", "0 1")), ".*singular"),
    "2-D": ("flat.tfm", flat, ".*2-D.*3-D"),
    "a 2-D field": ("flat.nrrd", vectors(5, 6, 2), ".*2-D.*3-D"),
    "an image": ("image.nii.gz", scalar, " is an image and no displacement field"),
    "an image in place of a transform": ("i.nrrd", scalar, " is an image and no displacement fiel"),
    "a matrix of nobody": (
        "m.mat", text("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n"),
        " is a matrix that does not say whose.*greedy",
    ),
    "a matrix with a comment": (
        "c.txt", text("# by hand\n1,0,0,0\n0,1,0,0\n0,0,1,0\n0,0,0,1\n"), " is a matrix that does",
    ),
    "a text": ("t.txt", text("1 0 0 0\n0 1 0 0\n0 0 1 0\n"), DAMAGED),
    "half an lta": ("h.lta", half("lta"), " is no .lta, or is cut short"),
    "an lta of another type": ("o.lta", lta(14, 1), " is of type 14"),
    "a singular lta": ("z.lta", lta(1, 0), " has a matrix that cannot be inverted"),
    "elastix, too few": ("e.txt", elastix("AffineTransform", "1 0 0"), " has 3 parameters.*12"),
    "elastix, unknown": (
        "u.txt", elastix("SplineKernelTransform", "1 0 0"), " is a SplineKernelTransform",
    ),
    "elastix, NaN": ("n.txt", elastix(SHIFT, "1 0 nan"), " has parameters that are no numbers"),
    "elastix, a ring": ("r.txt", elastix(SHIFT, "1 0 0", "r.txt"), " begins with more than 20"),
    "elastix, without its first": ("f.txt", elastix(SHIFT, "1 0 0", "gone.txt"), None),
    "not there": ("none.lta", lambda path, fixed: None, " does not exist"),
    "two at once": ("two.tfm", tfm(UNIT, UNIT), ".* it holds 2 transforms side by side"),
    "half an h5": ("h.h5", half("itk"), DAMAGED),
    "half a tfm": ("h.tfm", half("itk"), " cannot be read"),
    "nothing": ("e.tfm", text(""), DAMAGED),
    "nothing of Matlab's": ("e.mat", text(""), DAMAGED),
    "a folder": ("f", lambda path, fixed: path.mkdir(), " is a folder"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_files(what: str, fixed: Image, tmp_path: Path):
    name, make, says = BAD[what]
    make(tmp_path / name, fixed)
    says = f"{name}{says}" if says is not None else "gone.txt does not exist"
    with pytest.raises(errors.MorphSeekError, match=says) as caught:
        Transform.read(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3 or what == "2-D"
    assert not run("transform", "show", tmp_path / name, code=caught.value.exit_code).stdout


def test_what_a_format_cannot_hold(bent: sitk.Transform, fixed: Image, tmp_path: Path):
    bends, straight = Transform.of(bent), Transform.of(A)
    far = Image(fixed.array, origin=(5e3, 0.0, 0.0))
    for call, said in (
        (lambda: bends.save(tmp_path / "a.lta"), r"a\.lta: lta holds a rigid or affine.*\.h5"),
        (lambda: bends.save(tmp_path / "a.mat"), r"a\.mat.*bends.*\.h5"),
        (lambda: bends.save(tmp_path / "a.txt", "elastix"), r"a\.txt: elastix holds.*bends"),
        (lambda: bends.save(tmp_path / "a.mat", "fsl", fixed, fixed), r"a\.mat.*bends"),
        (lambda: straight.save(tmp_path / "a.nii.gz"), r"a\.nii\.gz: a field needs a grid.*fixed"),
        (lambda: straight.save(tmp_path / "a.lta"), r"a\.lta: the format lta.*fixed image"),
        (lambda: straight.save(tmp_path / "a.mat", "fsl", fixed), r"a\.mat.*give the moving image"),
        (lambda: straight.save(tmp_path / "a.foo"), r"a\.foo: its ending"),
        (lambda: straight.save(tmp_path / "a.foo", "ants"), r"a\.foo: the format ants.*no ending"),
        (lambda: straight.save(tmp_path / "a.h5", "afni"), "format is 'afni'.*itk, .* or dicom"),
        (lambda: straight.save(tmp_path / "no" / "a.tfm"), "no folder"),
        (lambda: bends.apply(fixed, far), r"field lies around.*different spaces"),
        (lambda: bends.jacobian(far), "does not reach the reference"),
        (lambda: bends.save(tmp_path / "a.nii.gz", reference=far), "different spaces"),
        (lambda: straight.jacobian(), "holds no grid"),
        (lambda: Transform.read("a@inverse@b"), "a@inverse@b does not exist"),
    ):
        refused(errors.MorphSeekError, said, call)
        assert not list(tmp_path.iterdir()), said
    (tmp_path / "m.mat").write_text("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n")
    for given in ({}, {"reference": fixed}, {"moving": fixed}):
        with pytest.raises(errors.InvalidArgumentError, match=r"m\.mat is of FSL.*moving image"):
            Transform.read(tmp_path / "m.mat", "fsl", **given)


def test_names_may_have_an_at(bent: sitk.Transform, inside: np.ndarray, tmp_path: Path):
    Transform.of(A).save(tmp_path / "a@inverse.tfm")
    there = by_itk(A, inside)
    found = Transform.read(tmp_path / "a@inverse.tfm").transform_points(inside)
    np.testing.assert_allclose(found, there, atol=1e-9)
    found = Transform.read(tmp_path / "a@inverse.tfm@inverse").transform_points(there)
    np.testing.assert_allclose(found, inside, atol=1e-9)
    (tmp_path / "a@inverse.tfm").rename(tmp_path / "b.tfm@inverse")
    found = Transform.read(tmp_path / "b.tfm@inverse").transform_points(inside)  # the file itself
    np.testing.assert_allclose(found, there, atol=1e-9)


def test_the_commands(bent: sitk.Transform, fixed: Image, inside: np.ndarray, tmp_path: Path):
    t, shift = tmp_path / "t.h5", tmp_path / "shift.tfm"
    Transform.of(bent, fixed.grid, fixed.grid).save(t)
    sitk.WriteTransform(sitk.TranslationTransform(3, (1.0, 2.0, 3.0)), str(shift))
    moving = tmp_path / "moving.nii.gz"
    images.write(moving, fixed.like((fixed.array * 1000).astype(np.int16)))

    # several transforms, in the order of antsApplyTransforms
    Landmarks(inside).write(tmp_path / "p.csv")
    run_json("apply", "-t", t, "-t", f"{shift}@inverse", "-i", tmp_path / "p.csv",
             "-o", tmp_path / "q.csv")  # fmt: skip
    found = Landmarks.read(tmp_path / "q.csv").points
    np.testing.assert_allclose(found, by_itk(bent, inside) - [1, 2, 3], atol=1e-4)
    run_json("transform", "compose", t, f"{shift}@inverse", "-o", tmp_path / "both.h5")
    both = sitk.ReadTransform(str(tmp_path / "both.h5"))
    np.testing.assert_allclose(by_itk(both, inside), found, atol=1e-4)
    run_json("apply", "-t", t, "-t", f"{shift}@inverse", "--inverse", "-i", tmp_path / "q.csv",
             "-o", tmp_path / "back.csv")  # fmt: skip
    np.testing.assert_allclose(Landmarks.read(tmp_path / "back.csv").points, inside, atol=0.1)

    out = tmp_path / "out.nii.gz"
    apply = ("apply", "-t", t, "-i", moving, "-o", out)
    run_json(*apply, "--interpolation", "cubic", "--background", -7)
    image = sitk.ReadImage(str(out))
    assert image.GetPixelID() == sitk.sitkInt16
    how = {"interpolation": "cubic", "background": -7}
    expected = Transform.of(bent).apply(images.read(moving), fixed, **how).array
    np.testing.assert_array_equal(sitk.GetArrayFromImage(image), expected)
    run_json(*apply, "--dtype", "float32", "--modulate")
    assert sitk.ReadImage(str(out)).GetPixelID() == sitk.sitkFloat32

    assert run_json("transform", "invert", t, "-o", tmp_path / "inv.h5") == {
        "out": [str(tmp_path / "inv.h5")]
    }
    inverse = sitk.ReadTransform(str(tmp_path / "inv.h5"))
    np.testing.assert_allclose(by_itk(inverse, by_itk(bent, inside)), inside, atol=0.1)
    files = run_json("transform", "convert", t, "--format", "ants", "-o", tmp_path / "a_")["out"]
    assert [Path(f).name for f in files] == ["a_0GenericAffine.mat", "a_1Warp.nii.gz"]
    run_json("transform", "convert", tmp_path / "a_0GenericAffine.mat", "-o", tmp_path / "a.lta",
        "-r", moving, "--moving", moving)  # fmt: skip
    assert "filename = moving.nii.gz" in (tmp_path / "a.lta").read_text()

    said = run_json("transform", "jacobian", t, "-o", tmp_path / "j.nii.gz")
    values = images.read(tmp_path / "j.nii.gz").array
    assert said["njd_percent"] == 0 and said["max"] == pytest.approx(values.max())
    u = Transform.of(bent).displacement_mm(fixed) @ np.linalg.inv(fixed.index_to_physical[:3, :3]).T
    gradient = np.stack([np.stack(np.gradient(u[..., k])[::-1], -1) for k in range(3)], -2)
    np.testing.assert_allclose(values, np.linalg.det(gradient + np.eye(3)), atol=1e-4)
    run_json("transform", "jacobian", t, "-o", tmp_path / "j.nii.gz", "--log")
    np.testing.assert_allclose(images.read(tmp_path / "j.nii.gz").array, np.log(values), atol=1e-5)

    said = run_json("transform", "show", t)
    assert said["kind"] == "deformable" and said["njd_percent"] == 0
    assert said["grid"]["size"] == [21, 18, 15]
    lengths = np.linalg.norm(Transform.of(bent).displacement_mm(fixed), axis=-1)
    assert said["displacement_max_mm"] == pytest.approx(lengths.max(), rel=1e-3)
    assert run_json("transform", "show", tmp_path / "a.lta")["kind"] == "affine"
    assert run_json("transform", "show", shift)["kind"] == "translation"
    words = run("transform", "show", t).stdout
    assert "DisplacementFieldTransform" in words and "folding" in words

    before = t.read_bytes()
    for arguments in (
        ["transform", "compose", t, shift, "-o", t], ["transform", "invert", t, "-o", t],
        ["transform", "convert", t, "-o", t], ["transform", "jacobian", t, "-o", t],
    ):  # fmt: skip
        assert "would be written" in run_json(*arguments, code=2)["error"]["message"]
    assert t.read_bytes() == before
    points = ("apply", "-t", t, "-i", tmp_path / "p.csv", "-o", tmp_path / "n.csv")
    said = run_json(*points, "--modulate", code=2)
    assert "p.csv has points and no voxels" in said["error"]["message"]
    assert not (tmp_path / "n.csv").exists()
    message = run_json("transform", "convert", t, "-o", tmp_path / "no.lta", code=2)["error"][
        "message"
    ]
    assert "t.h5 bends" in message and not (tmp_path / "no.lta").exists()


@pytest.mark.parametrize(
    "matrix, kind",
    [
        (np.eye(4), "identity"), (np.diag([2.0, 2, 2, 1]), "similarity"),
        (np.diag([2.0, 1, 1, 1]), "affine"), (np.diag([-1.0, 1, 1, 1]), "rigid with a mirror"),
    ],
)  # fmt: skip
def test_kinds(matrix: np.ndarray, kind: str):
    assert Transform.of(matrix).summary()["kind"] == kind


def test_a_fold_is_told(fixed: Image, tmp_path: Path):
    m = fixed.index_to_physical
    u = np.zeros((3, *fixed.array.shape), np.float32)
    u[2, 5:9, 6:10, 8] = 3
    Field(u, fixed.grid, fixed.grid).save(tmp_path / "t.h5")
    said = Transform.read(tmp_path / "t.h5").summary()
    assert said["njd_percent"] > 0 > said["jacobian_min"]
    assert said["displacement_max_mm"] == pytest.approx(3 * np.linalg.norm(m[:3, 0]), rel=1e-4)


@pytest.mark.parametrize(
    "kind, numbers", [("Euler3DTransform", "0 0 0 1 2 3"), ("TranslationTransform", "1 2 3")]
)
def test_files_of_older_itk(kind: str, numbers: str, tmp_path: Path):
    path = tmp_path / "t.tfm"
    head = f"{HEADER}0\nTransform: {kind}_double_3_3\n"
    path.write_text(f"{head}Parameters: {numbers}\nFixedParameters: 0 0 0\n")
    want = sitk.ReadTransform(str(path)).TransformPoint((1.0, 1.0, 1.0))
    assert Transform.read(path).transform_points([(1, 1, 1)])[0] == pytest.approx(want)


def test_the_stages_of_a_transform(fixed: Image, bent: sitk.Transform, tmp_path: Path):
    whole = Transform.of(bent, fixed.grid)
    assert list(whole.stages) == ["initial", "final"] and whole.stage("final") is whole
    initial = whole.stage("initial")
    point = (3.0, -8.0, 20.0)
    np.testing.assert_allclose(initial.transform_points([point])[0], A.TransformPoint(point))
    invalid("stands apart", Transform.of(bend_of(fixed)).stage, "initial")
    invalid("stage is 'rigid'; it must be initial or final", whole.stage, "rigid")

    Field(np.full((3, *fixed.array.shape), 0.1), fixed.grid, fixed.grid).save(tmp_path / "i.h5")
    assert (Transform.read(tmp_path / "i.h5").stage("initial").matrix == np.eye(4)).all()

    path, out = tmp_path / "whole.h5", tmp_path / "affine.tfm"
    whole.save(path)
    images.write(tmp_path / "image.nii.gz", fixed)
    image = str(tmp_path / "image.nii.gz")

    run("transform", "convert", path, "--stage", "initial", "-o", out)
    read = sitk.ReadTransform(str(out))
    assert read.GetName() == "AffineTransform"
    np.testing.assert_allclose(read.TransformPoint(point), A.TransformPoint(point))
    run("apply", "-t", path, "--stage", "initial", "-i", image, "-o", tmp_path / "moved.nii.gz")
    got = sitk.ReadImage(str(tmp_path / "moved.nii.gz"))
    want = resampled(fixed, fixed, A, background=float(fixed.array.min()))
    np.testing.assert_allclose(sitk.GetArrayFromImage(got), want, atol=1e-5)
    twice = ["-t", path, "-t", path, "-i", image, "-o", tmp_path / "m.nii.gz"]
    assert "of one transform" in run("apply", *twice, "--stage", "initial", code=2).output


def test_keep_stages(tmp_path: Path):
    for name, shift in (("f", 0.0), ("m", 0.2)):
        images.write(tmp_path / f"{name}.nii.gz", Image(blob((16, 18, 20), shift), (1, 1, 1)))
    files = [str(tmp_path / f"{name}.nii.gz") for name in "fm"]
    out = tmp_path / "out"
    cheap = ["--model", "none", "--search", "off", "--refine", "3", "--report", "none"]
    for keep in (True, False):
        run("register", *files, "--out", out, *cheap, *["--keep-stages"] * keep)
        report = json.loads((out / "report.json").read_text())
        assert ("transform_initial.h5" in report["files"]) == keep
        assert (out / "transform_initial.h5").exists() == keep  # an earlier run's goes
        if keep:
            assert report["stages"] == {"initial": "transform_initial.h5", "final": "transform.h5"}
            read = Transform.read(out / "transform_initial.h5")
            assert read.is_linear and read.grid is not None
            found = read.transform_points(np.eye(3))
            matrix = np.array(report["initial_transform"])
            np.testing.assert_allclose(found, np.eye(3) @ matrix[:3, :3].T + matrix[:3, 3])
    morphseek.Registration.read(out)
