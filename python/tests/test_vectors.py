"""Vector images of other programs: each is the map that it was for its program, or refused by name.

The truth is a displacement made here by numpy. nibabel, h5py and plain text write the files.
"""

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import QUICK, bend, blob, by_itk, field_of, oblique, resampled, run, unreadable
from morphseek import Transform, errors, images

RAS = np.diag([-1.0, -1.0, 1.0])


class Truth:
    """A bend on an oblique grid: places p and displacements u, LPS mm, of shape (z, y, x, 3)."""

    def __init__(self) -> None:
        self.image = oblique(blob((15, 18, 21), noise=0))
        self.p, self.u = self.image.grid.points(), bend(self.image, 2.5, 6)
        inner = (slice(3, -3, 2),) * 3
        self.points, self.moved = (a[inner].reshape(-1, 3) for a in (self.p, self.p + self.u))

    def numbers(self, kind: str) -> np.ndarray:
        places = self.p + self.u
        kinds = {"LPS": self.u, "RAS": self.u @ RAS, "places": places @ RAS, "LPS places": places}
        return kinds[kind]

    def nifti(self, kind: str, intent: int, name: str = "", p1: float = 0, note: str = "") -> Any:
        affine = np.diag([-1.0, -1, 1, 1]) @ self.image.index_to_physical
        values = self.numbers(kind).transpose(2, 1, 0, 3)[:, :, :, None].astype(np.float32)
        made = nibabel.Nifti1Image(values, affine)
        for key, value in (("code", intent), ("name", name), ("p1", p1)):
            made.header[f"intent_{key}"] = value
        made.header["descrip"] = note
        return made

    def agree(self, transform: Transform, most: float = 1e-4) -> None:
        found = transform.transform_points(self.points)
        assert np.linalg.norm(self.moved - self.points, axis=1).max() > 1
        np.testing.assert_allclose(found, self.moved, rtol=0, atol=most)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth()


def by_path(image: Any, folder: Path) -> Transform:
    nibabel.save(image, folder / "v.nii.gz")
    return Transform.read(folder / "v.nii.gz")


def by_simpleitk(image: Any, folder: Path) -> Transform:
    nibabel.save(image, folder / "v.nii")
    return Transform.of(sitk.ReadImage(str(folder / "v.nii")))


def by_package_itk(image: Any, folder: Path) -> Transform:
    itk = pytest.importorskip("itk")
    nibabel.save(image, folder / "v.nii")
    read = sitk.ReadImage(str(folder / "v.nii"))
    if read.GetDimension() != 3:
        pytest.skip("the package itk has no images of five axes")
    made = itk.image_from_array(sitk.GetArrayFromImage(read), is_vector=True)
    made.SetOrigin(read.GetOrigin())
    made.SetSpacing(read.GetSpacing())
    made.SetDirection(itk.matrix_from_array(np.array(read.GetDirection()).reshape(3, 3)))
    for key in read.GetMetaDataKeys():
        made[key] = read.GetMetaData(key)
    return Transform.of(made)


ENTRANCES = {
    "path": by_path,
    "nibabel": lambda image, folder: Transform.of(image),
    "SimpleITK": by_simpleitk,
    "itk": by_package_itk,
}
NIFTI = {  # what the numbers are, then the header's intent, its name and p1, and the description
    "ITK": ("LPS", 1007),
    "Slicer": ("RAS", 1006),
    "SPM's deformations": ("places", 1007, "Mapping"),
    "SPM's segmentation": ("places", 0, "", 0, "Deformation"),
    "SPM's inverse": ("places", 0, "", 0, "Inverse Deformation"),
    "reg_transform -def": ("places", 1007, "NREG_TRANS", 0),
    "reg_transform -disp": ("RAS", 1007, "NREG_TRANS", 1),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("kind", NIFTI)
def test_the_vectors_of_a_nifti(kind: str, entrance: str, truth: Truth, tmp_path: Path):
    truth.agree(ENTRANCES[entrance](truth.nifti(*NIFTI[kind]), tmp_path))


REFUSED = {
    "a B-spline of NiftyReg": (("places", 1007, "NREG_TRANS", 2), "B-spline.*reg_transform"),
    "a velocity of NiftyReg": (("places", 1007, "NREG_TRANS", 3), "velocity.*reg_transform"),
    "another velocity": (("RAS", 1007, "NREG_TRANS", 4), "velocity.*reg_transform"),
    "velocities on a B-spline": (("places", 1007, "NREG_TRANS", 5), "B-spline.*reg_transform"),
    "a linear spline": (("places", 1007, "NREG_TRANS", 6), "spline.*reg_transform"),
    "a kind to come": (("places", 1007, "NREG_TRANS", 11), "something unknown of NiftyReg"),
    "a flow of DARTEL": (("LPS", 0, "", 0, "Flow Field"), "velocity field of SPM"),
    "a velocity of Shoot": (("LPS", 0, "", 0, "Velocity (0.1)"), "velocity field of SPM"),
    "an unknown name": (("LPS", 1007, "Wind"), "1007 and the name 'Wind'.*ADVICE"),
    "no intent": (("LPS", 0), "intent 0.*ADVICE"),
    "points": (("LPS", 1008), "intent 1008.*ADVICE"),
    "colours": (("LPS", 2003), "intent 2003.*ADVICE"),
    "matrices": (("LPS", 1004), "matrices"),
    "FSL's coefficients": (("LPS", 2009), "convertwarp"),
    "places without a name": (("places", 1007), "holds places in RAS mm.*ADVICE"),
    "places in LPS": (("LPS places", 1007), "holds places in LPS mm.*ADVICE"),
}


@pytest.mark.parametrize("entrance", ["path", "nibabel"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_holds_no_displacements(kind: str, entrance: str, truth: Truth, tmp_path: Path):
    header, says = REFUSED[kind]
    advice = "field-ras.*spm" if entrance == "path" else "DisplacementFieldTransform"
    with pytest.raises(errors.MorphSeekError, match=says.replace("ADVICE", advice)) as caught:
        ENTRANCES[entrance](truth.nifti(*header), tmp_path)
    message = str(caught.value)
    assert ("v.nii.gz" if entrance == "path" else "the transform") in message
    assert "0x" not in message and "ITK" not in message.replace("SimpleITK", "")


def test_tensors_are_no_field(truth: Truth, tmp_path: Path):
    tensors = np.zeros((4, 5, 6, 1, 6), np.float32)
    image = nibabel.Nifti1Image(tensors, np.eye(4))
    image.header.set_intent(1005)
    nibabel.save(image, tmp_path / "tensors.nii")
    unreadable(r"tensors\.nii holds tensors", Transform.read, tmp_path / "tensors.nii")


TOLD = {  # the format that a caller gives, where the header leaves it open
    "spm": ("places", 1007),
    "field-ras": ("RAS", 1007),
    "field": ("LPS", 1007, "Wind"),
}


@pytest.mark.parametrize("format", TOLD)
def test_a_format_tells_what_a_header_does_not(format: str, truth: Truth, tmp_path: Path):
    path = tmp_path / "v.nii.gz"
    nibabel.save(truth.nifti(*TOLD[format]), path)
    truth.agree(Transform.read(path, format))
    truth.agree(Transform.read(f"{path}@{format}"))
    nibabel.save(truth.nifti("places", 1007, "NREG_TRANS", 3), path)
    unreadable("velocity", Transform.read, path, format)


def test_volumes_are_vectors_if_one_says_so(truth: Truth, tmp_path: Path):
    image = truth.nifti("LPS", 0)
    volumes = nibabel.Nifti1Image(np.asarray(image.dataobj)[:, :, :, 0], image.affine)
    nibabel.save(volumes, tmp_path / "v.nii")
    unreadable(r"v\.nii has three volumes.*fsl", Transform.read, tmp_path / "v.nii")
    truth.agree(Transform.read(tmp_path / "v.nii", "field"))


@pytest.mark.parametrize("entrance", ["path", "nibabel"])
@pytest.mark.parametrize(
    "kind", ["SPM's deformations", "reg_transform -def", "reg_transform -disp"]
)
def test_nothing_is_known_outside(kind: str, entrance: str, truth: Truth, tmp_path: Path):
    """Where SPM and NiftyReg have NaN the displacement is that of the nearest voxel that has one;
    ITK's own fields have none.
    """
    image = truth.nifti(*NIFTI[kind])
    np.asarray(image.dataobj)[:3] = np.nan
    found = ENTRANCES[entrance](image, tmp_path)
    truth.agree(found)
    beyond = truth.p[7, 8, 1]
    there = found.transform_points([beyond])[0]
    np.testing.assert_allclose(there, beyond + truth.u[7, 8, 3], atol=1e-4)
    own = truth.nifti(*NIFTI["ITK"])
    np.asarray(own.dataobj)[:3] = np.nan
    unreadable("no number", ENTRANCES[entrance], own, tmp_path)


@pytest.mark.parametrize("kind", ["ITK", "Slicer", "reg_transform -def"])
@pytest.mark.parametrize("layout", ["int16", "float64", "big-endian", "NIfTI-2"])
def test_vectors_stored_otherwise(layout: str, kind: str, truth: Truth, tmp_path: Path):
    """ITK's reader ends the process over vectors that are integers with a slope."""
    image = truth.nifti(*NIFTI[kind])
    if layout == "NIfTI-2":
        image = nibabel.Nifti2Image(np.asarray(image.dataobj), image.affine, image.header)
    elif layout == "big-endian":
        header = image.header.as_byteswapped(">")
        image = nibabel.Nifti1Image(np.asarray(image.dataobj), image.affine, header)
    else:
        image.set_data_dtype(layout)
    truth.agree(by_path(image, tmp_path), 2e-3)


FRAMES = {
    "no frame": None,
    "identity": np.eye(3),
    "turned": np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]]),
    "oblique": np.array([[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, -1]]),
}
SPACES = {
    **dict.fromkeys(("left-posterior-superior", "LPS"), np.eye(3)),
    **dict.fromkeys(("right-anterior-superior", "RAS"), RAS),
    "left-anterior-superior": np.diag([1.0, -1, 1]),
}


def write_nrrd(path: Path, truth: Truth, space: str, frame: Any = None, **keys: str) -> Path:
    """Write the displacements as NRRD defines them: in a frame whose vectors are in a space."""
    flip = SPACES[space]
    kind = keys.pop("kind", "vector")
    u = truth.p + truth.u if kind == "point" else truth.u
    stored = u @ flip.T @ np.linalg.inv(np.eye(3) if frame is None else frame).T
    m = flip @ truth.image.index_to_physical[:3]

    def said(vector: np.ndarray) -> str:
        return "(" + ",".join(f"{n:.17g}" for n in vector) + ")"

    lines = ["NRRD0005", "type: float", "dimension: 4", f"space: {space}"]
    lines += ["sizes: 3 " + " ".join(map(str, u.shape[2::-1]))]
    lines += ["space directions: none " + " ".join(said(m[:, k]) for k in range(3))]
    lines += [f"kinds: {kind} domain domain domain", "endian: little", "encoding: raw"]
    lines += [f"space origin: {said(m[:, 3])}"]
    if frame is not None:
        lines += ["measurement frame: " + " ".join(said(frame[:, k]) for k in range(3))]
    lines += [f"{key.replace('_', ' ')}:={value}" for key, value in keys.items()]
    path.write_bytes(("\n".join(lines) + "\n\n").encode() + stored.astype("<f4").tobytes())
    return path


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("space", SPACES)
def test_the_vectors_of_an_nrrd(space: str, frame: str, truth: Truth, tmp_path: Path):
    path = write_nrrd(tmp_path / "v.nrrd", truth, space, FRAMES[frame])
    truth.agree(Transform.read(path))


@pytest.mark.parametrize("frame", FRAMES)
def test_the_points_of_an_nrrd(frame: str, truth: Truth, tmp_path: Path):
    path = write_nrrd(tmp_path / "v.nhdr.nrrd", truth, "RAS", FRAMES[frame], kind="point")
    truth.agree(Transform.read(path))


TURNS = {  # large motions whose displacements are no places
    "half a turn": np.diag([-1.0, -1, 1]),
    "half a turn, smaller": np.diag([-0.9, -0.9, 0.9]),
    "twice as large": np.diag([2.0, 2, 2]),
    "a mirror": np.diag([-1.0, 1, 1]),
    "a quarter": np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]),
}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("shape", [(15, 18, 21), (3, 18, 21)])
def test_large_motions_are_displacements(turn: str, shape: Any, tmp_path: Path):
    image = oblique(blob(shape, noise=0))
    p = image.grid.points()
    moved = (p - p.mean(axis=(0, 1, 2))) @ TURNS[turn].T + [30, -20, 10]
    field = field_of(moved - p, image).GetDisplacementField()
    sitk.WriteImage(sitk.Cast(field, sitk.sitkVectorFloat32), str(tmp_path / "v.nii.gz"))
    found = Transform.read(tmp_path / "v.nii.gz").transform_points(p[1, 4:9, 4])
    np.testing.assert_allclose(found, moved[1, 4:9, 4], atol=1e-4)


def test_an_nrrd_that_is_no_field(truth: Truth, tmp_path: Path):
    path = write_nrrd(tmp_path / "v.nrrd", truth, "LPS", kind="RGB-color")
    unreadable(r"v\.nrrd is a picture in colour", Transform.read, path)
    write_nrrd(path, truth, "LPS", np.diag([1.0, 1, 1e-9]))
    path.write_bytes(path.read_bytes().replace(b"1.0000000000000001e-09", b"0"))
    unreadable(r"v\.nrrd has a measurement frame", Transform.read, path)
    write_nrrd(path, truth, "LPS", displacement_field_type="sideways")
    unreadable("type 'sideways'", Transform.read, path)


def back_by_itk(truth: Truth, points: np.ndarray) -> np.ndarray:
    """Return where the inverse of the truth brings points, by SimpleITK and iteration."""
    forward, found = field_of(truth.u, truth.image), points.copy()
    for _ in range(60):
        found += points - by_itk(forward, found)
    return found


@pytest.mark.parametrize("entrance", ["path", "object"])
@pytest.mark.parametrize("kind", ["modeling", "resampling"])
def test_slicers_displacement_field_type(kind: str, entrance: str, truth: Truth, tmp_path: Path):
    """Slicer resamples with the inverse of a field that is for models."""
    keys = {"displacement_field_type": kind, "intent_code": "1006"}
    path = write_nrrd(tmp_path / "v.nrrd", truth, "LPS", np.eye(3), **keys)
    found = Transform.read(path) if entrance == "path" else Transform.of(sitk.ReadImage(str(path)))
    if kind == "resampling":
        truth.agree(found)
        return
    want = back_by_itk(truth, truth.points)
    assert np.linalg.norm(want - truth.moved, axis=1).max() > 2
    np.testing.assert_allclose(found.transform_points(truth.points), want, atol=0.02)


def write_h5(path: Path, *transforms: tuple[str, Any, Any]) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for i, (kind, fixed, numbers) in enumerate(transforms):
            group = file.create_group(f"TransformGroup/{i}")
            text = h5py.string_dtype("ascii")
            group.create_dataset("TransformType", (1,), text, [kind])
            if fixed is not None:
                group["TransformFixedParameters"] = np.asarray(fixed, np.float64)
                group["TransformParameters"] = np.asarray(numbers, np.float64).ravel()
    return path


def write_text(path: Path, *transforms: tuple[str, Any, Any]) -> Path:
    lines = ["#Insight Transform File V1.0"]
    for i, (kind, fixed, numbers) in enumerate(transforms):
        lines += [f"#Transform {i}", f"Transform: {kind}"]
        for name, values in (("Parameters", numbers), ("FixedParameters", fixed)):
            if values is not None:
                lines += [f"{name}: " + " ".join(f"{v:.17g}" for v in np.ravel(values))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("write, name", [(write_h5, "t.h5"), (write_text, "t.tfm")])
@pytest.mark.parametrize("kind", ["DisplacementFieldTransform", "BSplineTransform"])
@pytest.mark.parametrize("alone", [True, False])
def test_slicers_inverse_transforms(kind, alone, write, name, truth, tmp_path):
    """Slicer writes a transform that it inverts before it applies it under a name of its own."""
    forward: sitk.Transform = field_of(truth.u, truth.image)
    if kind == "BSplineTransform":
        forward = sitk.BSplineTransformInitializer(truth.image.to_sitk(), [4, 4, 4])
        forward.SetParameters((1.5 * np.sin(np.arange(len(forward.GetParameters())))).tolist())
    fixed, numbers = forward.GetFixedParameters(), forward.GetParameters()
    parts = [(f"Inverse{kind}_double_3_3", fixed, numbers)]
    shift = sitk.AffineTransform(np.eye(3).ravel().tolist(), (1.0, 2.0, 3.0))
    if not alone:
        affine = ("AffineTransform_double_3_3", [0, 0, 0], shift.GetParameters())
        parts = [("CompositeTransform_double_3_3", None, None), affine, *parts]
    found = Transform.read(write(tmp_path / name, *parts)).transform_points(truth.points)
    if not alone:
        found = found - [1, 2, 3]
    there = by_itk(forward, found)
    assert np.linalg.norm(found - truth.points, axis=1).max() > 1
    np.testing.assert_allclose(there, truth.points, atol=0.03 if "Field" in kind else 0.1)


@pytest.mark.parametrize("write, name", [(write_h5, "t.h5"), (write_text, "t.tfm")])
@pytest.mark.parametrize(
    "kind, says",
    [
        ("ThinPlateSplineKernelTransform", "thin-plate spline of landmarks.*Slicer"),
        ("InverseThinPlateSplineKernelTransform", "thin-plate spline of landmarks.*Slicer"),
        ("BSplineDeformableTransform", r"\(BSplineDeformableTransform\).*Slicer"),
        ("MagicTransform", r"\(MagicTransform\).*Slicer"),
    ],
)
def test_a_class_that_is_not_read(kind: str, says: str, write: Any, name: str, tmp_path: Path):
    marks = np.array([0, 0, 0, 10, 0, 0, 0, 10, 0, 0, 0, 10, 5, 5, 5.0])
    path = write(tmp_path / name, (f"{kind}_double_3_3", marks + 1, marks))
    with pytest.raises(errors.InputUnreadableError, match=f"{name} cannot be read: .*{says}") as e:
        Transform.read(path)
    assert len(str(e.value)) < 300 + len(str(path)) and "0x" not in str(e.value)


def test_to_spm_and_back(truth: Truth, tmp_path: Path):
    field = truth.nifti(*NIFTI["ITK"])
    [path] = by_path(field, tmp_path).save(tmp_path / "y_t.nii", "spm")
    read = nibabel.load(path)
    assert read.shape[3:] == (1, 3) and read.header.get_intent()[2] == "Mapping"
    numbers = np.asarray(read.dataobj)[:, :, :, 0].transpose(2, 1, 0, 3)
    np.testing.assert_allclose(numbers, truth.numbers("places"), atol=1e-4)
    truth.agree(Transform.read(path))


def test_spm_gets_the_fixed_image_s_grid(tmp_path: Path):
    """SPM's Deformations writes images on the field's grid."""
    grid = images.Grid((24, 20, 16))
    field = morphseek.Field.from_mm(np.full((*grid.shape, 3), 3, np.float32), grid, grid)
    [path] = field.save(tmp_path / "y_t.nii", "spm")
    assert nibabel.load(path).shape[:3] == grid.size


def test_the_command(truth: Truth, tmp_path: Path):
    """One kind through every command that takes a transform, and a refusal through one."""
    nibabel.save(truth.nifti(*NIFTI["reg_transform -disp"]), tmp_path / "d.nii.gz")
    nibabel.save(truth.nifti("places", 1007, "NREG_TRANS", 3), tmp_path / "v.nii.gz")
    images.write(tmp_path / "i.nii.gz", truth.image)
    d, i = tmp_path / "d.nii.gz", tmp_path / "i.nii.gz"
    for words in (["convert", d], ["compose", d], ["convert", d, "--input-format", "field"]):
        run("transform", *words, "-o", tmp_path / "c.h5")
        truth.agree(Transform.read(tmp_path / "c.h5"))
    run("apply", "-t", d, "-i", i, "-o", tmp_path / "w.nii")
    want = resampled(truth.image, truth.image, field_of(truth.u, truth.image))
    inner = (slice(1, -1),) * 3
    found = images.read(tmp_path / "w.nii").array
    np.testing.assert_allclose(found[inner], want[inner], atol=1e-3)
    refusal = run("transform", "show", tmp_path / "v.nii.gz", code=3)
    assert "velocity field of NiftyReg" in " ".join(refusal.output.split())


def test_a_registration_begins_there(truth: Truth, tmp_path: Path):
    alone = {**QUICK, "initial": "affine"}
    moving = truth.image.like(blob((15, 18, 21), 0.15, noise=0))
    nrrd = write_nrrd(tmp_path / "v.nrrd", truth, "RAS")
    for given in (truth.nifti(*NIFTI["reg_transform -disp"]), nrrd):
        result = morphseek.register(truth.image, moving, initial_transform=given, **alone)
        np.testing.assert_allclose(result.displacement_mm(), truth.u, atol=2e-3)
