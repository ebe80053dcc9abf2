"""Atlases by name: found where their programs keep them, in the right orientation, without
downloads.
"""

import csv
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import FLAGS, QUICK, Command, blob, unreadable
from morphseek import errors, images, studies
from morphseek.images import named

MNI = "templateflow:MNI152NLin2009cAsym"
ALLEN = "brainglobe:fake_mouse_25um"
NAMES = {1: "Left-Caudate", 3: "Right-Caudate"}
_RAS_TO_LPS = np.array([-1.0, -1.0, 1.0])


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a name asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make empty folders for both programs."""
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "templateflow"))
    for name in ("config", "templateflow", "brainglobe"):
        (tmp_path / name).mkdir()
    settings = f"[default_dirs]\nbrainglobe_dir = {tmp_path / 'brainglobe'}\n"
    (tmp_path / "config" / "bg_config.conf").write_text(settings)
    monkeypatch.setenv("BRAINGLOBE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


def nifti(path: Path, array: np.ndarray, affine: np.ndarray | None = None) -> Path:
    """Write an array of axes (x, y, z) as nibabel does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    place = np.diag([2.0, 2.0, 2.0, 1.0]) if affine is None else affine
    nibabel.save(nibabel.Nifti1Image(array, place), path)
    return path


def template(home: Path, name: str, value: float = 0.0) -> Path:
    """Write a file of TemplateFlow: a body with a value that identifies it."""
    parts = name.split("_")
    folder = home / "templateflow" / parts[0]
    if parts[1].startswith("cohort-"):
        folder = folder / parts[1]
    array = (100 * blob()).T + np.float32(value)
    if name.endswith("dseg"):
        array = np.where(array > 40, 1, 0) + np.where(array > 70, 2, 0)
        array = array.astype(np.uint8)
    return nifti(folder / f"{name}.nii.gz", array)


PLACE = {
    "name": "fake_mouse_25um", "symmetric": True, "resolution": [25.0, 50.0, 100.0],
    "orientation": "asr",
}  # fmt: skip


def tiff_atlas(
    home: Path, arrays: dict[str, np.ndarray], version: str = "1.2", **more: Any
) -> Path:
    """Write an atlas as BrainGlobe's client up to version 2 stores it: arrays as they are."""
    folder = home / "brainglobe" / f"{PLACE['name']}_v{version}"
    folder.mkdir(parents=True)
    shape = next(iter(arrays.values())).shape
    said = {**PLACE, "shape": list(shape), "version": version, **more}
    (folder / "metadata.json").write_text(json.dumps(said))
    structures = [{"id": 997, "acronym": "root", "name": "root"},
                  {"id": 614454277, "acronym": "SCO", "name": "subcommissural organ"}]  # fmt: skip
    (folder / "structures.json").write_text(json.dumps(structures))
    for kind, array in arrays.items():
        sitk.WriteImage(sitk.GetImageFromArray(array), str(folder / f"{kind}.tiff"))
    return folder


def zarr_atlas(home: Path, template: np.ndarray, annotation: np.ndarray) -> Path:
    """Write an atlas as version 3 of BrainGlobe's client stores it: OME-Zarr 0.5 with two levels,
    of which the finer was not fetched.
    """
    zarr = pytest.importorskip("zarr", reason="needs morphseek[brainglobe]", minversion="3")
    root = home / "brainglobe" / "brainglobe-atlasapi"
    axes = [{"name": a, "type": "space", "unit": "millimeter"} for a in "zyx"]
    for place, array in (
        ("templates/fake-template/1_0/template.ome.zarr", template),
        ("annotation-sets/fake-annotation/1_0/annotations_compressed.ome.zarr", annotation),
    ):
        scales = [
            {"path": path, "coordinateTransformations": [{"type": "scale", "scale": scale}]}
            for path, scale in (("0", [0.0125, 0.025, 0.05]), ("1", [0.025, 0.05, 0.1]))
        ]
        multiscale = {"axes": axes, "datasets": scales, "name": "image"}
        group = zarr.open_group(str(root / place), mode="w", zarr_format=3)
        group.attrs["ome"] = {"version": "0.5", "multiscales": [multiscale]}
        finer, chunks = [2 * n for n in array.shape], (8, 8, 8)
        group.create_array("0", shape=finer, chunks=chunks, dtype="uint16")
        group.create_array("1", data=array, chunks=chunks)
    terms = root / "terminologies" / "fake-terms" / "1_0" / "terminology.csv"
    terms.parent.mkdir(parents=True)
    terms.write_text(
        "identifier,parent_identifier,annotation_value,name,abbreviation,color_hex_triplet,"
        "root_identifier_path\n997,,997,root,root,#FFFFFF,[997]\n"
        '8,997,8,"Basic, cell groups",grey,#BFDAE3,"[997, 8]"\n'
    )
    manifest = root / "atlases" / "fake_mouse_25um" / "2_1" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    said = {
        **PLACE, "version": "2.1", "species": "Mus musculus", "shape": list(template.shape),
        "citation": "none", "atlas_link": "none", "additional_references": [],
        "terminology": {"name": "fake-terms", "location": "/terminologies/fake-terms/1_0"},
        "annotation_set": {
            "name": "fake-annotation", "location": "/annotation-sets/fake-annotation/1_0",
            "template": {"name": "fake-template", "location": "/templates/fake-template/1_0"},
        },
    }  # fmt: skip
    manifest.write_text(json.dumps(said))
    return manifest


def pair_of_halves() -> tuple[np.ndarray, np.ndarray]:
    """Return an image and labels of its dark and its bright half, as an atlas stores them."""
    array = np.random.default_rng(1).integers(1, 60000, (12, 10, 8)).astype(np.uint16)
    return array, np.where(array > 30000, 8, 997).astype(np.uint32)


def marked(shape: tuple[int, ...], index: tuple[int, ...]) -> np.ndarray:
    array = np.full(shape, 10, np.uint16)
    array[index] = 60000
    return array


def lps_of_brightest(image: images.Image) -> np.ndarray:
    """Return the place of the brightest voxel, computed only by SimpleITK."""
    of_sitk = image.to_sitk()
    array = sitk.GetArrayFromImage(of_sitk)
    z, y, x = np.unravel_index(int(array.argmax()), array.shape)
    return np.array(of_sitk.TransformIndexToPhysicalPoint((int(x), int(y), int(z))))


# Where they lie


def test_templateflow_lies_where_nibabel_says(home: Path):
    array = np.zeros((9, 11, 13), np.float32)
    array[7, 2, 10] = 1.0  # in RAS: towards the right, back and top
    affine = np.array([[1.0, 0, 0, -4], [0, 1.0, 0, -5], [0, 0, 1.0, -6], [0, 0, 0, 1]])
    base = "tpl-MNI152NLin2009cAsym"
    nifti(home / "templateflow" / base / f"{base}_res-01_T1w.nii.gz", array, affine)
    expected = nibabel.affines.apply_affine(affine, (7, 2, 10)) * _RAS_TO_LPS
    assert expected.tolist() == [-3, 3, 4]  # right is -x, back +y
    np.testing.assert_allclose(lps_of_brightest(images.read(MNI)), expected)


@pytest.mark.parametrize(
    ("orientation", "towards"), [("asr", "PIL"), ("asl", "PIR"), ("psl", "AIR"), ("ial", "SPR")]
)
def test_brainglobe_axes_go_where_nibabel_reads_them(home: Path, orientation: str, towards: str):
    tiff_atlas(home, {"reference": marked((6, 7, 8), (0, 0, 0))}, orientation=orientation)
    image = images.read(ALLEN)
    affine = np.diag([-1.0, -1.0, 1.0, 1.0]) @ image.index_to_physical
    of_array = affine[:, [2, 1, 0, 3]]  # the columns in the order of the array's axes: z first
    assert "".join(nibabel.aff2axcodes(of_array)) == towards
    np.testing.assert_allclose(nibabel.affines.voxel_sizes(of_array), [0.025, 0.05, 0.1])
    hand = np.linalg.det(np.reshape(image.direction, (3, 3)))
    assert hand == pytest.approx(1.0 if orientation in ("asr", "psl") else -1.0)


def test_brainglobe_marker_at_a_known_place(home: Path):
    """A spot far back, near the top and on the left lies at large y, small -z, positive x."""
    tiff_atlas(home, {"reference": marked((20, 10, 16), (18, 1, 14))})
    place = lps_of_brightest(images.read(ALLEN))
    np.testing.assert_allclose(place, [14 * 0.1, 18 * 0.025, -1 * 0.05], atol=1e-9)


def test_brainglobe_space_agrees(home: Path):
    space = pytest.importorskip("brainglobe_space", reason="needs morphseek[brainglobe]")
    array = marked((20, 10, 16), (18, 1, 14))
    tiff_atlas(home, {"reference": array})
    place = lps_of_brightest(images.read(ALLEN))
    # an array with axes (z, y, x) of LPS begins at the bottom, front and right
    turned = space.AnatomicalSpace("asr", shape=array.shape).map_stack_to("iar", array)
    z, y, x = np.unravel_index(int(turned.argmax()), turned.shape)
    first = np.array([0.0, 0.0, -(array.shape[1] - 1) * 0.05])  # of the turned array, LPS
    np.testing.assert_allclose(place, first + np.array([x * 0.1, y * 0.025, z * 0.05]), atol=1e-9)


# Which file a name says


@pytest.fixture
def patient(tmp_path: Path) -> Path:
    return nifti(tmp_path / "patient.nii.gz", (90 * blob(shift=0.05)).T)


@pytest.fixture
def flow(home: Path) -> Path:
    base = "tpl-MNI152NLin2009cAsym"
    names = (
        f"{base}_res-01_T1w", f"{base}_res-02_T1w", f"{base}_res-01_desc-brain_T1w",
        f"{base}_res-01_T2w", f"{base}_res-01_atlas-MASSP20_dseg",
        f"{base}_res-01_desc-carpet_dseg", "tpl-MNI305_T1w", "tpl-Fischer344_T2w",
        "tpl-Fischer344_dseg", "tpl-MNIInfant_cohort-1_res-1_T1w",
        "tpl-MNIInfant_cohort-2_res-1_T1w",
    )  # fmt: skip
    for value, name in enumerate(names):
        template(home, name, value)
    rows = [
        "index\tname\tcolor",
        "0\tBackground\t#000",
        *(f"{k}\t{v}\t#f" for k, v in NAMES.items()),
    ]
    table = home / "templateflow" / base / f"{base}_atlas-MASSP20_dseg.tsv"
    table.write_text("\n".join(rows) + "\n")
    return home


@pytest.mark.parametrize(
    "text, file",
    [
        (MNI, "res-01_T1w"),
        (MNI.replace("templateflow", "TemplateFlow"), "res-01_T1w"),
        (f"{MNI}:res-1", "res-01_T1w"),
        (f"{MNI}:res-02", "res-02_T1w"),
        (f"{MNI}:res-2:T1w", "res-02_T1w"),
        (f"{MNI}:T2w", "res-01_T2w"),
        (f"{MNI}:desc-brain", "res-01_desc-brain_T1w"),
        (f"{MNI}:atlas-MASSP20", "res-01_atlas-MASSP20_dseg"),
        (f"{MNI}:dseg:desc-carpet", "res-01_desc-carpet_dseg"),
        ("templateflow:MNI305", "T1w"),
        ("templateflow:Fischer344", "T2w"),
        ("templateflow:Fischer344:dseg", "dseg"),
        ("templateflow:MNIInfant:cohort-2", "cohort-2_res-1_T1w"),
    ],
)
def test_templateflow_file(flow: Path, text: str, file: str):
    (path,) = named.files_of(text, "fixed")
    assert path.name == f"tpl-{text.split(':')[1]}_{file}.nii.gz"
    expected = sitk.GetArrayFromImage(sitk.ReadImage(str(path)))
    np.testing.assert_array_equal(images.read(text).array, expected)


def test_templateflow_as_its_client_finds_it(flow: Path, monkeypatch: pytest.MonkeyPatch):
    client = pytest.importorskip("templateflow.client", reason="needs templateflow")
    theirs = client.TemplateFlowClient(root=flow / "templateflow", autoupdate=False)
    said: dict[str, dict[str, Any]] = {
        MNI: {"resolution": 1, "suffix": "T1w", "desc": None},
        f"{MNI}:res-2": {"resolution": 2, "suffix": "T1w"},
        f"{MNI}:desc-brain": {"resolution": 1, "suffix": "T1w", "desc": "brain"},
        f"{MNI}:atlas-MASSP20:dseg": {
            "resolution": 1, "suffix": "dseg", "atlas": "MASSP20", "extension": ".nii.gz",
        },
    }  # fmt: skip
    for text, asked in said.items():
        assert theirs.ls("MNI152NLin2009cAsym", **asked) == named.files_of(text, "fixed")


def test_both_layouts_of_brainglobe(home: Path):
    array, labels = pair_of_halves()
    labels[labels == 8] = 614454277
    tiff_atlas(home, {"reference": array, "annotation": labels})
    for text, expected in ((ALLEN, array), (f"{ALLEN}:annotation", labels)):
        image = images.read(text)
        np.testing.assert_array_equal(image.array, expected)
        assert image.spacing == pytest.approx((0.1, 0.05, 0.025))
    assert images.label_names(f"{ALLEN}:annotation")[614454277] == "subcommissural organ"


def test_ome_zarr_of_brainglobe(home: Path):
    pytest.importorskip("ngff_zarr", reason="needs morphseek[brainglobe]")
    array, labels = pair_of_halves()
    tiff_atlas(home, {"reference": array + np.uint16(1)})  # of an older version
    zarr_atlas(home, array, labels)
    np.testing.assert_array_equal(images.read(ALLEN).array, array)
    np.testing.assert_array_equal(images.read(f"{ALLEN}:annotation").array, labels)
    np.testing.assert_array_equal(images.read(f"{ALLEN}:version-1.2").array, array + 1)
    assert images.label_names(f"{ALLEN}:annotation") == {997: "root", 8: "Basic, cell groups"}
    assert images.read(ALLEN).spacing == pytest.approx((0.1, 0.05, 0.025))


def test_ome_zarr_as_its_client_reads_it(home: Path):
    pytest.importorskip("ngff_zarr", reason="needs morphseek[brainglobe]")
    core = pytest.importorskip("brainglobe_atlasapi.core", reason="needs morphseek[brainglobe]")
    array, labels = pair_of_halves()
    atlas = core.Atlas(zarr_atlas(home, array, labels))
    np.testing.assert_array_equal(images.read(ALLEN).array, atlas.template)
    np.testing.assert_array_equal(images.read(f"{ALLEN}:annotation").array, atlas.annotation)
    names = {int(row["id"]): row["name"] for row in atlas.structures_list}
    assert images.label_names(f"{ALLEN}:annotation") == names
    for side, value in (("left", 1), ("right", 2)):
        half = images.read(f"{ALLEN}:hemisphere-{side}").array
        np.testing.assert_array_equal(half, np.where(atlas.hemispheres == value, array, 0))


def test_hemispheres(home: Path):
    """The third axis starts on the right."""
    array = np.full((4, 4, 6), 7, np.uint16)
    tiff_atlas(home, {"reference": array, "annotation": array})
    left, right = (images.read(f"{ALLEN}:hemisphere-{side}").array for side in ("left", "right"))
    assert left[0, 0].tolist() == [0, 0, 0, 7, 7, 7] and right[0, 0].tolist() == [7, 7, 7, 0, 0, 0]
    sides = np.ones((4, 4, 6), np.uint8)
    sides[:, 0] = 2  # as no midline splits it
    tiff_atlas(home, {"reference": array, "hemispheres": sides}, version="1.10", symmetric=False)
    right = images.read(f"{ALLEN}:hemisphere-right").array
    assert right[:, 0].all() and not right[:, 1:].any()


# What is not there


ABSENT = {
    "templateflow:MNI152NLin2009cSym": [
        "fixed", "MNI152NLin2009cSym", "MNI152NLin2009cAsym", "pip install templateflow",
        "get('MNI152NLin2009cSym', resolution=1, desc=None, suffix='T1w')",
    ],
    f"{MNI}:res-3": ["templateflow:MNI152NLin2009cAsym:res-2:T1w", "resolution=3"],
    f"{MNI}:dseg": ["atlas-MASSP20:dseg", "suffix='dseg'"],
    "templateflow:MNIInfant": ["templateflow:MNIInfant:cohort-1:res-1:T1w"],
    "brainglobe:fake_mouse_52um": ["fake_mouse_25um", "BrainGlobeAtlas('fake_mouse_52um')"],
    f"{ALLEN}:version-9.9": ["version-1.2"],
    f"{ALLEN}:annotation": ["not fetched", "annotation.tiff"],
    "atlasflow:MNI": ["'atlasflow:MNI' does not exist", "templateflow:", "brainglobe:"],
}  # fmt: skip
ODD = {
    f"{ALLEN}:T1w": ["annotation", "hemisphere-left"],
    f"{ALLEN}:hemisphere-up": ["hemisphere-left"],
    **dict.fromkeys(
        ("templateflow:", "brainglobe:", "templateflow:../../x", "brainglobe:../../x",
         "brainglobe:..", "brainglobe:*", "templateflow:/etc/passwd"), ["names no atlas"]),
    f"{MNI}:res-../..": ["'res-../..'"],
    f"{MNI}:T1w:T2w": ["'T2w'"],
    f"{MNI}:res-1:res-2": ["'res-2'"],
    f"{MNI}:": ["''"],
}  # fmt: skip


@pytest.mark.parametrize("text", [*ABSENT, *ODD])
def test_what_is_wrong_is_said(flow: Path, text: str):
    tiff_atlas(flow, {"reference": np.ones((4, 4, 4), np.uint16)})
    kind = errors.InputUnreadableError if text in ABSENT else errors.InvalidArgumentError
    with pytest.raises(kind) as caught:
        images.read(text, "fixed")
    for word in (ABSENT | ODD)[text]:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("content", [b"", b"/annex/objects/MD5E-s13--0123.nii.gz\n", None])
def test_not_fetched(home: Path, content: bytes | None):
    """An empty file, a pointer of git-annex, or its link to nothing."""
    path = template(home, "tpl-MNI305_T1w")
    if content is None:
        path.unlink()
        path.symlink_to("../.git/annex/objects/gone")
    else:
        path.write_bytes(content)
    with pytest.raises(errors.InputUnreadableError, match="was not fetched") as caught:
        images.read("templateflow:MNI305", "fixed")
    assert "get('MNI305', resolution=None, desc=None, suffix='T1w')" in str(caught.value)


def test_no_folder_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
    monkeypatch.delenv("TEMPLATEFLOW_HOME", raising=False)
    unreadable("nothing/templateflow", images.read, MNI, "fixed")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "broken",
    [
        {"orientation": "aaa"}, {"orientation": "as"}, {"resolution": [0, 1, 1]},
        {"resolution": [25.0]}, {"resolution": None}, {"shape": [9, 9, 9]}, {"shape": None},
    ],
)  # fmt: skip
def test_metadata_that_does_not_fit(home: Path, broken: dict[str, Any]):
    tiff_atlas(home, {"reference": np.ones((4, 4, 4), np.uint16)}, **broken)
    unreadable("fetch it again", images.read, ALLEN, "fixed")


def test_manifest_that_leads_elsewhere(home: Path):
    manifest = home / "brainglobe/brainglobe-atlasapi/atlases/fake_mouse_25um/1_0/manifest.json"
    manifest.parent.mkdir(parents=True)
    said = {"resolution": [1, 1, 1], "shape": [4, 4, 4], "annotation_set": {
        "location": "/a", "template": {"location": "/../../../etc"}}}  # fmt: skip
    manifest.write_text(json.dumps(said))
    unreadable("does not say where", images.read, ALLEN, "fixed")


def test_zarr_that_was_not_fetched(home: Path):
    pytest.importorskip("ngff_zarr", reason="needs morphseek[brainglobe]")
    array = np.ones((12, 10, 8), np.uint16)
    manifest = zarr_atlas(home, array, array.astype(np.uint32))
    said = json.loads(manifest.read_text())
    said["resolution"] = [12.5, 25.0, 50.0]  # a level without chunks, which would read as zeros
    manifest.write_text(json.dumps(said))
    unreadable("was not fetched", images.read, ALLEN, "fixed")


def test_a_file_of_that_name_wins(flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for text in (f"{MNI}.nii", "brainglobe:x.nii", "other:x.nii"):
        nifti(tmp_path / text, np.full((4, 5, 6), 3, np.int16))
        assert (images.read(text).array == 3).all()
        assert not named.is_name(text)


def test_table_beside_such_a_file(flow: Path, tmp_path: Path):
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / MNI).write_bytes(b"")
    assert named.beside(folder, MNI) == folder / MNI
    assert named.beside(tmp_path, MNI) == Path(MNI)


@pytest.mark.parametrize("text", [r"C:\scans\t1.nii", "C:/scans/t1.nii", "t1.nii", "a/b:c.nii"])
def test_paths_are_no_names(text: str):
    assert not named.is_name(text)
    unreadable("does not exist; check the path", images.read, text, "fixed")


# Where names of labels go


def test_label_names(flow: Path):
    assert images.label_names(f"{MNI}:atlas-MASSP20:dseg") == NAMES
    assert images.label_names("labels.nii.gz", None, np.zeros(3), f"{MNI}:desc-carpet:dseg") == {}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("Index\tAbbreviation\tFull_Name\n1\ttel\ttelencephalon\n", {1: "telencephalon"}),
        ("label\ttissue\tname\n2\tGM\tcortex\n", {2: "cortex"}),
        ("index\tname\n0\tUnknown\n4\tpons\n", {4: "pons"}),
        # numbered from 0, as the Harvard-Oxford table with separate sides
        ("index\tname\n0\tLeft Frontal Pole\n1\tRight Frontal Pole\n", {}),
        ("Component\tnames\n1\tx\n", {}),
        ("index\tname\none\tx\n", {}),
        ("", {}),
    ],
)
def test_tables_of_templateflow(home: Path, table: str, expected: dict[int, str]):
    template(home, "tpl-Fischer344_atlas-v4_dseg")
    (home / "templateflow/tpl-Fischer344/tpl-Fischer344_atlas-v4_dseg.tsv").write_text(table)
    assert images.label_names("templateflow:Fischer344:atlas-v4:dseg") == expected


def test_register_to_an_atlas(flow: Path, tmp_path: Path):
    """It takes one command; results name the atlas's labels."""
    body = 90 * blob(shift=0.1).T
    patient = nifti(tmp_path / "patient.nii.gz", body)
    own = nifti(tmp_path / "own.nii.gz", ((body > 40) + 2 * (body > 65)).astype(np.uint8))
    command = Command(tmp_path / "cache")
    said = command.json(
        "register", MNI, patient, "--out", tmp_path / "out", *FLAGS,
        "--fixed-labels", f"{MNI}:atlas-MASSP20:dseg", "--moving-labels", own,
    )  # fmt: skip
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["label_names"] == {str(k): name for k, name in NAMES.items()} and said
    assert report["fixed_grid"][:3] == [28, 24, 20]
    assert "Left-Caudate" in (tmp_path / "out" / "report.html").read_text()
    result = morphseek.register(patient, MNI, **QUICK)
    by_path = morphseek.register(patient, named.files_of(MNI, "moving")[0], **QUICK)
    np.testing.assert_array_equal(result.displacement(), by_path.displacement())


def test_the_command_says_how_to_fetch(home: Path, patient: Path, tmp_path: Path):
    command = Command(tmp_path / "cache")
    code = errors.InputUnreadableError.exit_code
    said = command("register", patient, MNI, "--out", tmp_path / "out", expect=code)
    assert "from templateflow.api import get" in said and not (tmp_path / "out").exists()
    assert not list((home / "templateflow").iterdir())


def test_label_by_an_atlas(flow: Path, patient: Path, tmp_path: Path):
    atlases = [(MNI, f"{MNI}:atlas-MASSP20:dseg")]
    study = studies.propagate_labels([patient], atlases, tmp_path / "out", report="none", **QUICK)
    assert study.exit_code == 0
    with open(tmp_path / "out" / "volumes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["label"]): row["name"] for row in rows} == NAMES


def test_table_of_pairs(flow: Path, tmp_path: Path):
    tiff_atlas(flow, {"reference": (1000 * np.clip(blob(), 0, None)).astype(np.uint16)})
    pairs = tmp_path / "study" / "pairs.csv"
    nifti(pairs.parent / "patient.nii.gz", (90 * blob(shift=0.05)).T)
    pairs.write_text(f"fixed,moving\n{MNI},patient.nii.gz\n")
    for value, status in ((0, "done"), (0, "skipped"), (77, "done")):  # then another image
        template(flow, "tpl-MNI152NLin2009cAsym_res-01_T1w", value)
        (pair,) = studies.register_pairs(pairs, tmp_path / "out", report="none", **QUICK).rows
        assert (pair.status, pair.id) == (status, "001-patient-to-MNI152NLin2009cAsym")


def test_halves_of_one_file_are_two_images(flow: Path, patient: Path, tmp_path: Path):
    body = (1000 * np.clip(blob(), 0, None)).astype(np.uint16)
    tiff_atlas(flow, {"reference": body}, resolution=[2000.0] * 3)

    def run(side: str) -> str:
        pairs = [{"id": "a", "fixed": f"{ALLEN}:hemisphere-{side}", "moving": patient}]
        (pair,) = studies.register_pairs(pairs, tmp_path / "out", report="none", **QUICK).rows
        return pair.status

    assert [run("left"), run("left"), run("right")] == ["done", "skipped", "done"]


def test_all_to_an_atlas(flow: Path, patient: Path, tmp_path: Path):
    pairs = studies.pairs_to(studies.read_items([patient]), MNI, labels=f"{MNI}:atlas-MASSP20:dseg")
    how = {"labels_back": True, "report": "none", **QUICK}
    (pair,) = studies.register_pairs(pairs, tmp_path / "out", **how).rows
    assert pair.status == "done"
    report = json.loads((tmp_path / "out" / "patient" / "report.json").read_text())
    assert report["label_names"] == {str(k): name for k, name in NAMES.items()}
    back = images.read(tmp_path / "out" / "patient" / "fixed_labels_on_moving.nii.gz")
    assert set(np.unique(back.array)) == {0, 1, 3}


def test_apply_takes_names(flow: Path, tmp_path: Path):
    identity = tmp_path / "identity.tfm"
    sitk.WriteTransform(sitk.AffineTransform(3), str(identity))
    out = tmp_path / "out.nii.gz"
    Command(tmp_path / "cache")(
        "apply", "-t", identity, "-i", f"{MNI}:atlas-MASSP20:dseg", "-r", MNI, "-o", out,
        "--interpolation", "nearest",
    )  # fmt: skip
    (labels,) = named.files_of(f"{MNI}:atlas-MASSP20:dseg", "labels")
    np.testing.assert_array_equal(images.read(out).array, images.read(labels).array)
    array = marked((6, 7, 8), (5, 1, 2))
    tiff_atlas(flow, {"reference": array})
    moved = morphseek.Transform.read(identity).apply(ALLEN, ALLEN)
    np.testing.assert_array_equal(sitk.GetArrayFromImage(moved), array)


def test_nothing_of_it_is_imported_without_a_name():
    code = (
        "import sys, morphseek, morphseek.images as i; print([m for m in sys.modules if m in"
        " ('ngff_zarr', 'zarr', 'templateflow', 'brainglobe_atlasapi', 'configparser',"
        " 'morphseek.hosts.brainglobe', 'morphseek.hosts.templateflow')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env=os.environ)  # fmt: skip
    assert run.stdout.strip() == "[]"
