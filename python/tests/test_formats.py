"""Transforms in other programs' formats: they read what we write, and we read what they write.

The truth is SimpleITK's composite of a matrix and a field, made here by numpy. `pytest -s` prints
the table of docs/transforms.md. ANTs, greedy and elastix are in the extra morphseek[benchmark].
"""

import importlib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

from helpers import LINEAR, affine_of, bend, blob, by_itk, field_of, oblique, unreadable
from morphseek import Transform, images

RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def need(name: str) -> ModuleType:
    """Import another program's package without its warnings, or skip the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"needs {name}: {error}")


class Case(NamedTuple):
    fixed: images.Image
    moving: images.Image
    folder: Path
    bent: sitk.Transform
    linear: sitk.Transform
    points: np.ndarray
    """Return some voxel centres of the fixed image, where nothing is interpolated."""

    def transform(self, bends: bool) -> Transform:
        return Transform.of(self.bent if bends else self.linear, self.fixed.grid, self.moving.grid)

    def truth(self, bends: bool) -> np.ndarray:
        return by_itk(self.bent if bends else self.linear, self.points)

    @property
    def given(self) -> dict[str, images.Image]:
        return {"reference": self.fixed, "moving": self.moving}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A case with oblique grids, one right-handed and one left-handed."""
    fixed = oblique(blob((15, 18, 21)))
    a = 0.25
    turn = np.array([[0, -np.cos(a), np.sin(a)], [-1, 0, 0], [0, np.sin(a), np.cos(a)]])
    turn[:, 0] *= np.sign(np.linalg.det(turn)) * -1
    spacing, size = np.array([1.1, 1.4, 1.9]), np.array([30, 17, 22])
    center = (LINEAR @ [*fixed.grid.center, 1])[:3]
    origin = center - turn @ (spacing * (size - 1) / 2)
    place = (tuple(part) for part in (spacing, origin, turn.ravel()))
    moving = images.Image(blob((22, 17, 30), 0.1), *place)
    assert np.linalg.det(turn) < 0 < np.linalg.det(fixed.index_to_physical)
    linear = affine_of(LINEAR)
    bent = sitk.CompositeTransform([linear, field_of(bend(fixed, 2.5, 6), fixed)])
    inner = fixed.grid.points()[2:-2, 2:-2, 2:-2].reshape(-1, 3)
    points = inner[np.random.default_rng(3).choice(len(inner), 200, replace=False)]
    for name, image in (("fixed", fixed), ("moving", moving)):
        images.write(tmp_path / f"{name}.nii.gz", image)
    return Case(fixed, moving, tmp_path, bent, linear, points)


def agree(name: str, found: Any, truth: np.ndarray, most: float) -> None:
    """Check that points agree, mm, and print the largest difference."""
    off = np.linalg.norm(np.asarray(found, dtype=np.float64) - truth, axis=1)
    assert np.linalg.norm(truth - truth.mean(axis=0), axis=1).max() > 5
    print(f"| {name} | {off.max():.1e} |")
    assert off.max() < most, name


def ras(points: np.ndarray) -> np.ndarray:
    return points * [-1, -1, 1]


def back(case: Case, path: Any, bends: bool, most: float, format: str | None = None) -> None:
    """Check that we read a file as it was meant."""
    ours = Transform.read(path, format, **case.given)
    agree(f"{Path(path).name} read", ours.transform_points(case.points), case.truth(bends), most)


@pytest.mark.parametrize("bends", [True, False])
@pytest.mark.parametrize("ending", [".h5", ".tfm", ".txt"])
def test_itk(case: Case, ending: str, bends: bool):
    case.transform(bends).save(case.folder / f"t{ending}")
    read = sitk.ReadTransform(str(case.folder / f"t{ending}"))
    agree(f"itk {ending}, SimpleITK", by_itk(read, case.points), case.truth(bends), 1e-5)
    back(case, case.folder / f"t{ending}", bends, 1e-5)
    sitk.WriteTransform(case.bent if bends else case.linear, str(case.folder / f"o{ending}"))
    back(case, case.folder / f"o{ending}", bends, 1e-9)


@pytest.mark.parametrize("ending", [".nii.gz", ".nrrd", ".mha"])
def test_field(case: Case, ending: str):
    path = case.folder / f"t{ending}"
    case.transform(True).save(path)
    image = sitk.ReadImage(str(path), sitk.sitkVectorFloat64)
    read = sitk.DisplacementFieldTransform(image)
    agree(f"field {ending}, SimpleITK", by_itk(read, case.points), case.truth(True), 1e-5)
    back(case, path, True, 1e-5)


def test_field_by_nitransforms(case: Case):
    need("nitransforms")
    from nitransforms.nonlinear import DenseFieldTransform

    case.transform(True).save(case.folder / "t.nii.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = DenseFieldTransform.from_filename(str(case.folder / "t.nii.gz"), fmt="itk")
        found = read.map(ras(case.points))
        agree("field .nii.gz, nitransforms", ras(found), case.truth(True), 1e-4)
        read.to_filename(str(case.folder / "theirs.nii.gz"), fmt="itk")
    back(case, case.folder / "theirs.nii.gz", True, 1e-4)


def test_field_in_ras(case: Case):
    """In Slicer's NIfTI the numbers are RAS, and the intent says that they are displacements."""
    path = case.folder / "t.nii.gz"
    case.transform(True).save(path, "field-ras")
    image = nibabel.load(path)
    assert int(image.header["intent_code"]) == 1006
    vectors = np.asarray(image.dataobj)[:, :, :, 0]
    index = nibabel.affines.apply_affine(np.linalg.inv(image.affine), ras(case.points))
    moved = ras(case.points) + vectors[tuple(np.rint(index.T).astype(int))]
    agree("field-ras .nii.gz, nibabel", ras(moved), case.truth(True), 1e-4)
    back(case, path, True, 1e-4)


@pytest.mark.parametrize("bends", [True, False])
def test_ants(case: Case, bends: bool):
    ants = need("ants")
    files = case.transform(bends).save(case.folder / "a_", "ants")
    assert [f.name for f in files] == ["a_0GenericAffine.mat", "a_1Warp.nii.gz"][: 1 + bends]
    import pandas

    table = pandas.DataFrame(case.points, columns=["x", "y", "z"])
    names = [str(f) for f in files[::-1]]  # the warp first, as antsApplyTransforms wants it
    found = ants.apply_transforms_to_points(3, table, names)[["x", "y", "z"]].to_numpy()
    agree(f"ants, ANTs points, {len(files)} files", found, case.truth(bends), 1e-3)
    fixed, moving = (ants.image_read(str(case.folder / f"{n}.nii.gz")) for n in ("fixed", "moving"))
    warped = ants.apply_transforms(fixed, moving, names, interpolator="linear").numpy().T
    ours = case.transform(bends).apply(case.moving, background=0.0).array
    inner = (slice(2, -2),) * 3
    assert np.ptp(warped[inner]) > 0.5
    off = np.abs(warped - ours)[inner]
    print(f"| ants image, values of 0 to 1.5 | {off.max():.1e} |")
    assert np.percentile(off, 99) < 1e-3 and off.max() < 0.05
    whole = Transform.read(names[-1])
    if bends:
        whole = whole @ Transform.read(names[0])
    agree("ants read", whole.transform_points(case.points), case.truth(bends), 1e-4)
    numbers = {"matrix": LINEAR[:3, :3], "translation": LINEAR[:3, 3]}
    theirs = ants.create_ants_transform(transform_type="AffineTransform", **numbers)
    ants.write_transform(theirs, str(case.folder / "theirs.mat"))
    back(case, case.folder / "theirs.mat", False, 1e-4)


@pytest.mark.parametrize("ending", [".h5", ".nii.gz"])
def test_ants_reads_one_file(case: Case, ending: str):
    ants = need("ants")
    case.transform(True).save(case.folder / f"t{ending}")
    import pandas

    table = pandas.DataFrame(case.points, columns=["x", "y", "z"])
    found = ants.apply_transforms_to_points(3, table, [str(case.folder / f"t{ending}")])
    agree(f"{ending}, ANTs points", found[["x", "y", "z"]].to_numpy(), case.truth(True), 1e-3)


def test_fsl_matrix(case: Case):
    need("nitransforms")
    from nitransforms.linear import Affine, load

    fixed, moving = (case.folder / f"{n}.nii.gz" for n in ("fixed", "moving"))
    case.transform(False).save(case.folder / "t.mat", "fsl")
    read = load(str(case.folder / "t.mat"), fmt="fsl", reference=str(fixed), moving=str(moving))
    agree("fsl .mat, nitransforms", ras(read.map(ras(case.points))), case.truth(False), 1e-4)
    theirs = Affine(RAS @ LINEAR @ RAS, reference=str(fixed))
    theirs.to_filename(str(case.folder / "theirs.mat"), fmt="fsl", moving=str(moving))
    back(case, case.folder / "theirs.mat", False, 1e-4, "fsl")


def fsl_images(case: Case) -> list[Any]:
    need("fsl.transform.fnirt")
    from fsl.data.image import Image

    return [Image(str(case.folder / f"{n}.nii.gz")) for n in ("fixed", "moving")]


def test_fsl_matrix_by_fslpy(case: Case):
    fixed, moving = fsl_images(case)
    from fsl.transform import flirt

    case.transform(False).save(case.folder / "t.mat", "fsl")
    matrix = flirt.readFlirt(str(case.folder / "t.mat"))
    world = np.linalg.inv(flirt.fromFlirt(matrix, moving, fixed, "world", "world"))
    found = ras(case.points) @ world[:3, :3].T + world[:3, 3]
    agree("fsl .mat, fslpy", ras(found), case.truth(False), 1e-4)
    inverse = np.linalg.inv(RAS @ LINEAR @ RAS)
    theirs = flirt.toFlirt(inverse, moving, fixed, "world", "world")
    flirt.writeFlirt(theirs, str(case.folder / "theirs.mat"))
    back(case, case.folder / "theirs.mat", False, 1e-4, "fsl")


def test_fsl_warp(case: Case):
    fixed, moving = fsl_images(case)
    from fsl.transform import fnirt, nonlinear

    case.transform(True).save(case.folder / "t.nii.gz", "fsl")
    assert int(nibabel.load(case.folder / "t.nii.gz").header["intent_code"]) == 2006
    read = fnirt.readFnirt(str(case.folder / "t.nii.gz"), src=moving, ref=fixed)
    assert read.deformationType == "relative"
    found = read.transform(ras(case.points), from_="world", to="world")
    agree("fsl warp, fslpy", ras(found), case.truth(True), 1e-3)
    back(case, case.folder / "t.nii.gz", True, 1e-4, "fsl")
    absolute = nonlinear.convertDeformationType(read, "absolute")
    absolute = nibabel.Nifti1Image(np.asarray(absolute, np.float32), fixed.voxToWorldMat)
    absolute.header.set_intent(2006)
    path = case.folder / "absolute.nii.gz"
    nibabel.save(absolute, path)
    says = "absolute.nii.gz has absolute places"
    unreadable(says, Transform.read, path, "fsl", **case.given)
    absolute.header["intent_code"] = 2009
    nibabel.save(absolute, case.folder / "spline.nii.gz")
    unreadable("convertwarp", Transform.read, case.folder / "spline.nii.gz", "fsl", **case.given)


@pytest.mark.parametrize("bends", [True, False])
def test_greedy(case: Case, bends: bool):
    greedy = need("picsl_greedy").Greedy3D()
    files = case.transform(bends).save(case.folder / "g", "greedy")
    assert [f.name for f in files] == ["g_affine.mat", "g_warp.nii.gz"][: 1 + bends]
    chain = " ".join(str(f) for f in files[::-1])
    fixed = case.folder / "fixed.nii.gz"
    greedy.execute(f"-rf {fixed} -rc {case.folder}/total.mha -r {chain}")
    total = sitk.ReadImage(str(case.folder / "total.mha"), sitk.sitkVectorFloat64)
    found = by_itk(sitk.DisplacementFieldTransform(total), case.points)
    agree(f"greedy, {len(files)} files", found, case.truth(bends), 1e-3)
    if not bends:
        back(case, case.folder / "g_affine.mat", False, 1e-4, "greedy")


def test_greedys_own(case: Case):
    """We read a transform of greedy's as greedy applies it."""
    greedy = need("picsl_greedy").Greedy3D()
    fixed, moving, out = (case.folder / n for n in ("fixed.nii.gz", "moving.nii.gz", "total.mha"))
    common = f"-i {fixed} {moving} -threads 1 -m NCC 2x2x2 -n 10"
    greedy.execute(f"{common} -a -ia-image-centers -o {case.folder}/affine.mat")
    greedy.execute(f"{common} -it {case.folder}/affine.mat -o {case.folder}/warp.nii.gz")
    greedy.execute(f"-rf {fixed} -rc {out} -r {case.folder}/warp.nii.gz {case.folder}/affine.mat")
    total = sitk.DisplacementFieldTransform(sitk.ReadImage(str(out), sitk.sitkVectorFloat64))
    affine = Transform.read(f"{case.folder}/affine.mat@greedy")
    ours = affine @ Transform.read(case.folder / "warp.nii.gz")
    agree("greedy read", ours.transform_points(case.points), by_itk(total, case.points), 1e-3)


def test_lta(case: Case):
    need("nitransforms")
    from nitransforms.linear import Affine, load

    fixed, moving = (case.folder / f"{n}.nii.gz" for n in ("fixed", "moving"))
    path = case.folder / "t.lta"
    case.transform(False).save(path)
    read = load(str(path), fmt="fs", reference=str(fixed), moving=str(moving))
    agree("lta, nitransforms", ras(read.map(ras(case.points))), case.truth(False), 1e-4)
    back(case, path, False, 1e-9)
    kept = Transform.read(path)
    np.testing.assert_allclose(kept.grid.numbers, case.fixed.grid.numbers, atol=1e-9)
    np.testing.assert_allclose(kept.moving_grid.numbers, case.moving.grid.numbers, atol=1e-9)
    theirs = Affine(RAS @ LINEAR @ RAS, reference=str(fixed))
    theirs.to_filename(str(case.folder / "theirs.lta"), fmt="fs", moving=str(moving))
    back(case, case.folder / "theirs.lta", False, 1e-3)


@pytest.mark.parametrize("kind", [0, 1])
def test_lta_by_the_formula(case: Case, kind: int):
    """RAS to RAS (1) and voxel to voxel (0), moving to fixed, as in lta_convert."""
    to_fixed = np.linalg.inv(RAS @ LINEAR @ RAS)
    if kind == 0:
        voxels = [RAS @ i.index_to_physical for i in (case.fixed, case.moving)]
        to_fixed = np.linalg.inv(voxels[0]) @ to_fixed @ voxels[1]
    case.transform(False).save(case.folder / "t.lta")
    _, _, tail = (case.folder / "t.lta").read_text().partition("src volume info")
    rows = "\n".join(" ".join(f"{v:.12f}" for v in row) for row in to_fixed)
    text = f"# made by hand\ntype = {kind}\nnxforms = 1\nmean = 0 0 0\nsigma = 1\n1 4 4\n{rows}\n"
    (case.folder / "theirs.lta").write_text(text + "src volume info" + tail)
    back(case, case.folder / "theirs.lta", False, 1e-6)


def test_minc_by_the_formula(case: Case):
    """RAS, from the moving image to the fixed one, as mincresample and FreeSurfer take it."""
    rows = np.linalg.inv(RAS @ LINEAR @ RAS)[:3]
    text = "\n".join(" ".join(f"{v:.12f}" for v in row) for row in rows)
    head = "MNI Transform File\n% made by hand\n\nTransform_Type = Linear;\nLinear_Transform =\n"
    path = case.folder / "theirs.xfm"
    path.write_text(f"{head}{text};\n")
    back(case, path, False, 1e-6)
    for other in (head, head + text, head.replace("Linear;", "Grid_Transform;") + text + ";"):
        path.write_text(other)
        unreadable("theirs.xfm is no single matrix of MINC.*itk_convert_xfm", Transform.read, path)


@pytest.mark.parametrize("bends", [True, False])
def test_x5(case: Case, bends: bool):
    need("nitransforms")
    from nitransforms.io import x5
    from nitransforms.linear import Affine
    from nitransforms.nonlinear import DenseFieldTransform

    path = case.folder / "t.x5"
    case.transform(bends).save(path)
    kind = DenseFieldTransform if bends else Affine
    read = kind.from_filename(str(path), fmt="X5")
    found = ras(read.map(ras(case.points)))
    agree(f"x5, nitransforms {kind.__name__}", found, case.truth(bends), 1e-4)
    back(case, path, bends, 1e-4)
    x5.to_filename(str(case.folder / "theirs.x5"), [read.to_x5()])
    back(case, case.folder / "theirs.x5", bends, 1e-4)
    node = x5.from_filename(path)[0]
    node.domain = None
    x5.to_filename(path, [node])
    if bends:  # which lies nowhere, whatever image is given
        unreadable("t.x5 holds a transform", Transform.read, path, reference=case.fixed)


def transformix(itk: Any, case: Case, parameters: list[Path]) -> sitk.DisplacementFieldTransform:
    """Return the field that transformix makes of parameter files."""
    found = itk.ParameterObject.New()
    for path in parameters:
        found.AddParameterFile(str(path))
    moving = itk.imread(str(case.folder / "moving.nii.gz"), itk.F)
    out = str(case.folder)
    field = itk.transformix_deformation_field(moving, found, output_directory=out)
    itk.imwrite(field, str(case.folder / "total.mha"))
    read = sitk.ReadImage(str(case.folder / "total.mha"), sitk.sitkVectorFloat64)
    return sitk.DisplacementFieldTransform(read)


def test_elastix(case: Case):
    itk = need("itk")
    if not hasattr(itk, "ParameterObject"):
        pytest.skip("needs itk-elastix")
    case.transform(False).save(case.folder / "t.txt", "elastix")
    read = transformix(itk, case, [case.folder / "t.txt"])
    agree("elastix .txt, transformix", by_itk(read, case.points), case.truth(False), 1e-3)
    back(case, case.folder / "t.txt", False, 1e-9)
    grid = Transform.read(case.folder / "t.txt").grid
    np.testing.assert_allclose(grid, case.fixed.grid, atol=1e-9)


@pytest.mark.parametrize("kinds", [["translation"], ["rigid", "affine"], ["affine", "bspline"]])
def test_elastix_own(case: Case, kinds: list[str]):
    """We read elastix's result, also a chain of files, as transformix applies it."""
    itk = need("itk")
    if not hasattr(itk, "ParameterObject"):
        pytest.skip("needs itk-elastix")
    pair = (itk.imread(str(case.folder / f"{n}.nii.gz"), itk.F) for n in ("fixed", "moving"))
    parameters = itk.ParameterObject.New()
    for kind in kinds:
        plan = parameters.GetDefaultParameterMap(kind, 2, 12.0)
        plan["MaximumNumberOfIterations"] = ("20",)
        plan["AutomaticTransformInitialization"] = ("true",)
        plan["WriteResultImage"] = ("false",)
        parameters.AddParameterMap(plan)
    how = {"parameter_object": parameters, "output_directory": str(case.folder)}
    itk.elastix_registration_method(*pair, **how)
    files = [case.folder / f"TransformParameters.{k}.txt" for k in range(len(kinds))]
    read = transformix(itk, case, files)
    ours = Transform.read(files[-1])
    assert ours.is_linear == ("bspline" not in kinds)
    found, truth = ours.transform_points(case.points), by_itk(read, case.points)
    agree(f"elastix {' and '.join(kinds)} read", found, truth, 1e-3)


EULER = sitk.Euler3DTransform((1.0, 2.0, 3.0), 0.05, -0.1, 0.2, (4.0, -5.0, 6.0))
PARAMETERS = {  # of the first and of the second file, in elastix's two forms
    ".txt": (
        '(Transform "EulerTransform")\n(TransformParameters 0.05 -0.1 0.2 4 -5 6)\n'
        '(CenterOfRotationPoint 1.0 2.0 3.0)\n(ComputeZYX "false")\n'
        '({key} "NoInitialTransform")\n',
        '(Transform "TranslationTransform")\n(TransformParameters 1 1.5 -2)\n({key} "{first}")\n',
    ),
    ".toml": (
        'Transform = "EulerTransform"\nTransformParameters = [0.05, -0.1, 0.2, 4.0, -5.0, 6.0]\n'
        "CenterOfRotationPoint = [1.0, 2.0, 3.0]\nComputeZYX = false\n"
        '{key} = "NoInitialTransform"\n',
        'Transform = "TranslationTransform"\nTransformParameters = [1.0, 1.5, -2.0]\n'
        "{key} = '{first}'\n",
    ),
}
PLACE = "(Size 4 5 6)\n(Spacing 1 2 3)\n(Origin 7 8 9)\n(Index 1 0 2)\n(Direction {})\n{}"


def test_where_elastix_laid_its_fixed_image(tmp_path: Path):
    """As ITK lays an image whose region begins at an index; its directions must have counted."""
    path, shift = tmp_path / "t.txt", PARAMETERS[".txt"][1].format(key="A", first="")
    image = sitk.Image([9, 9, 9], sitk.sitkUInt8)
    image.SetSpacing((1, 2, 3))
    image.SetOrigin((7, 8, 9))
    image.SetDirection((0, -1, 0, 1, 0, 0, 0, 0, 1))
    columns = "0 1 0 -1 0 0 0 0 1"
    path.write_text(shift + PLACE.format(columns, '(UseDirectionCosines "true")\n'))
    grid = Transform.read(path).grid
    assert grid is not None and grid.size == (4, 5, 6)
    np.testing.assert_allclose(grid.origin, image.TransformIndexToPhysicalPoint((1, 0, 2)))
    without = '(UseDirectionCosines "false")\n'
    path.write_text(shift + PLACE.format("1 0 0 0 1 0 0 0 1", without))
    assert Transform.read(path).is_linear
    path.write_text(shift + PLACE.format(columns, without))
    unreadable("t.txt was made without the images' directions", Transform.read, path)


def test_a_spline_of_elastix_has_a_grid_of_its_own(tmp_path: Path):
    """As SimpleITK's images of its coefficients have it; elastix writes directions by columns."""
    path = tmp_path / "t.txt"
    numbers = np.random.default_rng(1).normal(size=(3, 5, 6, 7))
    spline = sitk.BSplineTransform([oblique(each).to_sitk() for each in numbers], 3)
    image = oblique(numbers[0])
    rows = {
        "Size": image.grid.size, "Spacing": image.spacing, "Origin": image.origin,
        "Direction": image.grid.axes.T.ravel(),
    }  # fmt: skip
    text = '(Transform "BSplineTransform")\n(BSplineTransformSplineOrder 3)\n'
    text += f"(TransformParameters {' '.join(map(repr, numbers.ravel().tolist()))})\n"
    text += "".join(f"(Grid{k} {' '.join(map(str, v))})\n" for k, v in rows.items())
    path.write_text(text)
    points = image.grid.to_physical([[2, 2, 2], [3.3, 2.2, 2.1], [4, 3, 2]])
    moved = by_itk(spline, points)
    assert np.abs(moved - points).max() > 0.1
    np.testing.assert_allclose(by_itk(Transform.read(path).to_sitk(), points), moved, atol=1e-9)
    for wrong in ("(GridSpacing 0 ", "(GridSpacing -1 ", "(Grid "):
        path.write_text(text.replace("(GridSpacing ", wrong))
        unreadable("t.txt has no sound grid of its B-spline", Transform.read, path)


NAMED = {  # how the second file names the first: as it was called where elastix ran
    "bare": "{name}",
    "Linux": "/home/somebody/out/{name}",
    "Windows": r"C:\Users\me\out\{name}",
    "Windows, slashes": "D:/data/out/{name}",
    "a share": r"\\\\server\data\{name}",
    "relative": "./out/{name}",
    "relative, Windows": r".\out\{name}",
    "a folder that is there": "sub/{name}",
    "a folder that is there, Windows": r"sub\{name}",
}


@pytest.mark.parametrize("ending", PARAMETERS)
@pytest.mark.parametrize(
    "key", ["InitialTransformParameterFileName", "InitialTransformParametersFileName"]
)
@pytest.mark.parametrize("named", NAMED)
def test_elastix_files_that_were_moved(named, key, ending, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    first, second = PARAMETERS[ending]
    folder = tmp_path / "sub" if "that is there" in named else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / f"T.0{ending}").write_text(first.format(key=key))
    path = tmp_path / f"T.1{ending}"
    said = NAMED[named].format(name=f"T.0{ending}")
    text = second.format(key=key, first=said).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    whole = sitk.CompositeTransform([sitk.TranslationTransform(3, (1.0, 1.5, -2.0)), EULER])
    points = np.random.default_rng(0).normal(size=(9, 3)) * 20
    found = Transform.read(path).transform_points(points)
    np.testing.assert_allclose(found, by_itk(whole, points), atol=1e-9)
    (folder / f"T.0{ending}").unlink()
    unreadable(rf"T\.1{ending}.*put T\.0{ending} beside it", Transform.read, path)
