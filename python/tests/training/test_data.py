"""The network grid compared with SimpleITK, and the layouts of data folders."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from helpers import affine_of, refused
from morphseek import studies
from morphseek.training import pairs as d
from morphseek.training.config import Augmentation, Data
from morphseek.training.evaluate import score_pair
from morphseek.training.pairs.augment import elastic


def volume(path, size, spacing, direction, origin, seed):
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    array = gaussian_filter(rng.standard_normal(size[::-1]), 2).astype(np.float32)
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(spacing)
    image.SetOrigin(origin)
    image.SetDirection(direction.ravel().tolist())
    sitk.WriteImage(image, str(path))
    return image


def rotation(angle, axis):
    t = sitk.VersorTransform(axis, angle)
    return np.array(t.GetMatrix()).reshape(3, 3)


def scene(phantoms):
    """Return two phantoms and the grid of the first."""
    source = d.PairSource(phantoms, 2)
    case = source.case("p0")
    return case, source.case("p1"), d.make_grid(case, (1, 1, 1), (24, 24, 24), 8)


@pytest.mark.parametrize("flipped", [False, True])
def test_grid_and_resampling_agree_with_simpleitk(tmp_path, flipped):
    turn = rotation(0.2, (0.3, -0.5, 0.8))
    oblique = turn @ np.array([[0, -1, 0], [1, 0, 0], [0, 0, -1.0]]) if flipped else turn
    other = rotation(-0.1, (0, 1, 0))
    fixed = volume(tmp_path / "f.nii.gz", (30, 25, 20), (0.9, 1.3, 1.6), oblique, (10, -20, 30), 0)
    moving = volume(tmp_path / "m.nrrd", (28, 31, 18), (1.1, 0.8, 2.0), other, (5, 5, 5), 1)
    f, m = d.read_case(tmp_path / "f.nii.gz"), d.read_case(tmp_path / "m.nrrd")
    # With these spacings no grid point lies exactly on the edge of the field of view.
    grid = d.make_grid(f, (1.47, 0.97, 1.21), (16, 16, 16), 8)
    extent = np.array(f.size) * f.spacing
    assert all(
        g % 8 == 0 and g * s >= e - 1e-6 and (g - 8) * s < e
        for g, s, e in zip(grid.size, grid.spacing, extent, strict=True)
    )

    affine = np.eye(4)
    affine[:3, :3] = rotation(0.15, (1, 0, 0)) * 1.05
    affine[:3, 3] = m.centre - affine[:3, :3] @ f.centre + np.array([2.0, -1.0, 0.5])
    pair = d.make_sample(f, m, grid, 0, initial=affine)

    # The same grid for SimpleITK: on the axes of the LPS-oriented fixed image, centred on its
    # centre.
    oriented = sitk.DICOMOrient(fixed, "LPS")
    direction = np.array(oriented.GetDirection()).reshape(3, 3)
    size = grid.size[::-1]
    step = grid.spacing[::-1]
    centre = np.array(
        fixed.TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in fixed.GetSize()])
    )
    origin = centre - direction @ ((np.array(size) - 1) / 2 * step)
    t = affine_of(affine)

    for image, transform, ours, fov in (
        (fixed, sitk.Transform(3, sitk.sitkIdentity), pair.fixed, pair.fixed_fov),
        (moving, t, pair.moving, pair.moving_fov),
    ):
        low, high = np.percentile(sitk.GetArrayViewFromImage(image), (0.5, 99.5))
        # SimpleITK scales without clipping, so that clipping follows interpolation as in our rule.
        reference = sitk.Image(*(int(n) for n in size), sitk.sitkFloat32)
        reference.SetOrigin(origin.tolist())
        reference.SetSpacing(step.tolist())
        reference.SetDirection(direction.ravel().tolist())
        read = sitk.GetArrayFromImage(
            sitk.Resample(image, reference, transform, sitk.sitkLinear, -1e6, sitk.sitkFloat32)
        )
        outside = read < -1e5
        truth = np.where(outside, 0, np.clip((read - low) / (high - low), 0, 1))
        # A voxel exactly on the edge of the field of view may fall on either side.
        differs = outside != (fov[0, 0].numpy() == 0)
        assert differs.mean() < 2e-3
        np.testing.assert_allclose(ours[0, 0].numpy()[~differs], truth[~differs], atol=2e-3)
        assert 0.02 < (~outside).mean() < 1


def test_no_initial_transform_aligns_centres(phantoms):
    f, m, grid = scene(phantoms)
    pair = d.make_sample(f, m, grid, 2)
    shifted = d.Case(m.name, m.image, m.labels, m.spacing, m.axes, m.centre + 100.0)
    assert torch.equal(d.make_sample(f, shifted, grid, 2).moving, pair.moving)
    # 22x24x20 in 24^3: the grid's centre is the volume's, so that whole voxels coincide where
    # parities agree.
    assert torch.equal(pair.fixed_map[0, 0, 1:23, :, 2:22], f.labels[0, 0].float())
    assert float(pair.fixed_fov.sum()) == 22 * 24 * 20


def test_the_engine_aligns_where_asked(phantoms, tmp_path):
    """For a crop of an image, moved in space, the centres do not correspond; the engine finds the
    alignment.
    """
    for kind in ("images", "labels"):
        whole = sitk.ReadImage(str(phantoms / kind / "p0.nii.gz"))
        part = whole[6:, :, 3:]
        part.SetOrigin((np.array(part.GetOrigin()) + (30.0, -20.0, 10.0)).tolist())
        (tmp_path / kind).mkdir()
        sitk.WriteImage(whole, str(tmp_path / kind / "whole.nii.gz"))
        sitk.WriteImage(part, str(tmp_path / kind / "part.nii.gz"))
    dice = {}
    for initial in ("centres", "rigid"):
        source = d.PairSource(tmp_path, 2, initial=initial)
        f, m = source.case("whole"), source.case("part")
        grid = d.make_grid(f, (1, 1, 1), (24, 24, 24), 8)
        start = source.start("whole", "part")
        still = torch.zeros((1, 3, *grid.size))
        dice[initial] = score_pair(still, grid, f, m, 2, initial=start)["dice"]
    assert source.start("whole", "part") is start
    moved = start[:3, 3] + (start[:3, :3] - np.eye(3)) @ f.centre
    np.testing.assert_allclose(moved, (30.0, -20.0, 10.0), atol=0.3)
    assert dice["rigid"] > 0.97 and dice["centres"] < 0.9


def test_mirror_flips_left_and_right_of_both(phantoms):
    f, m, grid = scene(phantoms)
    plain = d.make_sample(f, m, grid, 2)
    mirrored = d.make_sample(f, m, grid, 2, Augmentation(mirror=1.0), np.random.default_rng(0))
    for key in ("fixed", "moving", "fixed_labels", "moving_labels"):
        one, other = getattr(mirrored, key), getattr(plain, key).flip(-1)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_augmentation_is_repeatable_and_moves_images_with_their_labels(phantoms):
    f, m, grid = scene(phantoms)
    a = Augmentation(rotation_deg=20, scale=0.1, translation_mm=3)
    one, two, other = (d.make_sample(f, m, grid, 2, a, np.random.default_rng(s)) for s in (1, 1, 2))
    assert torch.equal(one.moving, two.moving) and not torch.equal(one.moving, other.moving)
    assert (one.moving_map != d.make_sample(f, m, grid, 2).moving_map).any()
    # Label 2 stays on the phantom's brighter ellipsoid.
    inside = [float(one.moving[one.moving_map == k].mean()) for k in (0, 1, 2)]
    assert inside[0] + 0.2 < inside[1] < inside[2] - 0.1


def test_elastic_displacement_is_smooth_and_of_the_stated_size():
    grid = d.Grid((48, 64, 56), np.array([1.0, 1.5, 0.8]))
    a = Augmentation(elastic_mm=2.0)
    fields = torch.cat([elastic(a, np.random.default_rng(seed), 1.0, grid) for seed in range(40)])
    # Noise of a standard deviation uniform up to 2 mm has a variance of 4/3 mm^2, and linear
    # interpolation leaves 2/3 an axis.
    assert float(fields.var()) == pytest.approx(4 / 3 * (2 / 3) ** 3, rel=0.25)
    gradients = [torch.diff(fields, dim=k + 2) / grid.spacing[k] for k in range(3)]
    assert max(float(g.abs().max()) for g in gradients) < 1.0
    half, whole = (elastic(a, np.random.default_rng(7), share, grid) for share in (0.5, 1.0))
    assert torch.equal(half * 2, whole)


def test_elastic_augmentation_moves_images_with_their_labels(phantoms):
    f = d.read_case(phantoms / "images" / "p0.nii.gz", phantoms / "labels" / "p0.nii.gz")
    grid = d.make_grid(f, (1.0, 1.0, 1.0), (24, 24, 24), 8)
    plain = d.make_sample(f, f, grid, 2)
    a = Augmentation(elastic_mm=3.0, fixed_share=0.0)
    bent = d.make_sample(f, f, grid, 2, a, np.random.default_rng(3))
    assert torch.equal(bent.fixed, plain.fixed) and not torch.equal(bent.moving, plain.moving)
    inside = [float(bent.moving[bent.moving_map == k].mean()) for k in (0, 1, 2)]
    assert inside[0] + 0.2 < inside[1] < inside[2] - 0.1


def test_pair_lists(phantoms, tmp_path):
    assert d.read_pairs(phantoms, "val") == [("p6", "p7")]
    assert d.read_subjects(phantoms, "train") == [f"p{i}" for i in range(6)]
    says = "no pair list 'nope'; there are grpo, test, val"
    refused(ValueError, says, d.read_pairs, phantoms, "nope")
    (tmp_path / "split.json").write_text('{"train": [1, 2], "pairs": {"val": []}}')
    refused(d.DataError, "'train' must be of names", d.read_subjects, tmp_path, "train")
    (tmp_path / "split.json").unlink()
    (tmp_path / "list.csv").write_text("fixed,moving\na,b\nb,c\n")
    assert d.read_pairs(tmp_path, "list.csv") == [("a", "b"), ("b", "c")]
    refused(FileNotFoundError, "neither split.json nor", d.read_pairs, tmp_path, "val")
    refused(FileNotFoundError, "does not exist", d.PairSource, tmp_path / "gone", 2)


def test_learn2reg_layout(phantoms, tmp_path):
    for kind in ("images", "labels"):
        (tmp_path / f"{kind}Tr").mkdir()
        for i in (0, 1):
            path = tmp_path / f"{kind}Tr" / f"X_000{i}.nii.gz"
            shutil.copy(phantoms / kind / f"p{i}.nii.gz", path)
    pairs = [{"fixed": "./imagesTr/X_0000.nii.gz", "moving": "./imagesTr/X_0001.nii.gz"}]
    (tmp_path / "X_dataset.json").write_text(json.dumps({"registration_val": pairs}))
    (pair,) = d.read_pairs(tmp_path, "val")
    source = d.PairSource(tmp_path, 2)
    assert torch.equal(source.case(pair[1]).labels, d.PairSource(phantoms, 2).case("p1").labels)
    refused(FileNotFoundError, "no image 'Y'", source.case, "Y")


def test_constant_volumes_are_refused(tmp_path):
    sitk.WriteImage(sitk.Image(8, 8, 8, sitk.sitkFloat32), str(tmp_path / "c.nii.gz"))
    refused(ValueError, "c.nii.gz: all intensities are equal", d.read_case, tmp_path / "c.nii.gz")


@pytest.mark.parametrize(
    "image, labels",
    [
        ("images/p0.nii.gz", "labels/p0.nrrd"),
        ("images/p0.mha", "labels/p0.nii.gz"),
        ("imagesTr/images_0.nii.gz", "labelsTr/labels_0.nii.gz"),
    ],
)
def test_labels_are_found_wherever_the_data_is(phantoms, tmp_path, image, labels):
    """Also in a folder whose own name contains the word, and with another ending: as a study finds
    them, tests/test_scores.py.
    """
    root = tmp_path / "my-images" / "set"
    for kind, name in (("images", image), ("labels", labels)):
        (root / name).parent.mkdir(parents=True)
        sitk.WriteImage(sitk.ReadImage(str(phantoms / kind / "p0.nii.gz")), str(root / name))
    source = d.PairSource(root, 2)
    name = "p0" if image.startswith("images/") else f"./{image}"
    assert source.files(name)[1]
    assert torch.equal(source.case(name).labels, d.PairSource(phantoms, 2).case("p0").labels)
    assert d.PairSource(root, 0).files(name)[1] is None


def test_an_image_beside_is_no_label_file(phantoms, tmp_path):
    image = sitk.ReadImage(str(phantoms / "images" / "p0.nii.gz"))
    for name in ("scan.nii.gz", "scan.nrrd"):
        sitk.WriteImage(image, str(tmp_path / name))
    assert d.PairSource(tmp_path, 2).files("scan.nii.gz")[1] is None


@pytest.mark.parametrize(
    "value, kind", [(256, np.int32), (-1, np.int16), (1.5, np.float32), (np.nan, np.float32)]
)
def test_labels_that_do_not_fit_are_refused(phantoms, tmp_path, value, kind):
    image = sitk.ReadImage(str(phantoms / "labels" / "p0.nii.gz"))
    values = sitk.GetArrayFromImage(image).astype(kind)
    values[values == 2] = value
    sitk.WriteImage(sitk.GetImageFromArray(values), str(tmp_path / "odd.mha"))
    files = (phantoms / "images" / "p0.nii.gz", tmp_path / "odd.mha")
    refused(d.DataError, "odd.mha: label .*whole numbers from 0 to 255", d.read_case, *files)


@pytest.mark.parametrize("spacing, told", [(1.0, 0), (0.1, 1)])
def test_a_volume_that_is_lost_in_its_grid_is_announced(phantoms, tmp_path, caplog, spacing, told):
    for name in ("p0", "p1"):
        image = sitk.ReadImage(str(phantoms / "images" / f"{name}.nii.gz"))
        image.SetSpacing([spacing] * 3)
        (tmp_path / "images").mkdir(exist_ok=True)
        sitk.WriteImage(image, str(tmp_path / "images" / f"{name}.nii.gz"))
    source = d.PairSource(tmp_path, 0)
    for pair in (("p0", "p1"), ("p1", "p0")):
        source.pair(*pair, Data(min_size=[24, 24, 24]), 8, 0)
    text = "p0: the volume of 2.2 x 2.4 x 2 mm is lost in the network grid of 24 x 24 x 24 mm"
    assert caplog.text.count(text) == caplog.text.count("is lost") == told


def test_the_least_size_is_rounded_up_to_the_multiple(phantoms):
    f = d.PairSource(phantoms, 2).case("p0")
    assert d.make_grid(f, (1, 1, 1), (30, 24, 33), 8).size == (32, 24, 40)


@pytest.mark.parametrize(
    "name, text",
    [
        ("p.csv", "\ufefffixed;moving\r\na;b\r\n"),
        ("p.csv", ",fixed,moving\n0,a,b\n"),
        ("p.tsv", "moving\tfixed\nb\ta\n"),
        ("p.csv", "fixed,moving\nGr\xf6\xdfe,b\n"),
        ("split.json", '\ufeff{"pairs": {"p": [["a", "b"]]}}'),
        ("split.json", '{"pairs": {"p": [["Gr\xf6\xdfe", "b"]]}}'),
    ],
)
def test_a_list_is_the_one_that_a_study_reads(name, text, tmp_path):
    """Whatever the locale's encoding: a process in another one reads the same."""
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    subset = "p" if name == "split.json" else None
    split = subset or name
    listed = studies.read_pairs(tmp_path / name, data=tmp_path, subset=subset)
    theirs = [(pair.files["fixed"], pair.files["moving"]) for pair in listed]
    assert d.read_pairs(tmp_path, split) == theirs
    if theirs == [("a", "b")]:
        return
    program = "from morphseek.training import pairs as d; print(ascii(d.read_pairs('.', {!r})))"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-c", program.format(split)]
    said = subprocess.check_output(words, text=True, cwd=tmp_path, env=plain)
    assert said.strip() == ascii(theirs)


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("p.csv", "fixed,moving\n", "p.csv: no pairs"),
        ("p.csv", "target,source\na,b\n", "columns fixed and moving"),
        ("p.csv", "fixed,moving\na,b,c\n", "line 2: the cell 'c' stands below no column"),
        ("p.csv", "fixed,moving\na,\n", "line 2 has no moving"),
        ("p.csv", "fixed,moving\na,b\na\n", "p.csv, line 3 has no moving"),
        ("X_dataset.json", "[1]", "X_dataset.json"),
        ("split.json", "{", "split.json is no JSON"),
        ("split.json", "[]", "split.json is no JSON object"),
        ("split.json", "\xff", "split.json is no text in UTF-8"),
        ("split.json", "{}", "split.json"),
        ("split.json", '{"pairs": []}', "split.json"),
        ("split.json", '{"pairs": {"val": ["ab"]}}', "split.json"),
        ("split.json", '{"pairs": {"val": [["a"]]}}', "split.json"),
        ("split.json", '{"pairs": {"val": 3}}', "split.json"),
    ],
)
def test_lists_that_are_none(name, text, says, tmp_path):
    (tmp_path / name).write_text(text, encoding="latin-1")
    is_json = name.endswith(".json")
    for read in (d.read_pairs, d.read_subjects)[: 1 + is_json]:
        refused(d.DataError, says, read, tmp_path, "val" if is_json else name)


def test_learn2reg_lists_of_images_are_people_and_no_pairs(tmp_path):
    image = [{"image": f"./imagesTr/{n}.nii.gz", "label": f"./labelsTr/{n}.nii.gz"} for n in "ab"]
    pair = [{"fixed": "a", "moving": "b"}]
    lists = {"training": image, "names": ["a", "b"], "test": [{"image": "c"}]}
    lists |= {"registration_test": pair, "val": pair}
    (tmp_path / "X_dataset.json").write_text(json.dumps(lists))
    for name in ("test", "registration_test", "val"):
        assert d.read_pairs(tmp_path, name) == [("a", "b")]
    assert d.read_subjects(tmp_path, "training") == ["./imagesTr/a.nii.gz", "./imagesTr/b.nii.gz"]
    assert d.read_subjects(tmp_path, "names") == d.read_subjects(tmp_path, "val") == ["a", "b"]
    refused(FileNotFoundError, "list of pairs 'training'", d.read_pairs, tmp_path, "training")


def test_a_truncated_file_is_refused(phantoms, tmp_path):
    for kind in ("images", "labels"):
        image = sitk.ReadImage(str(phantoms / kind / "p0.nii.gz"))
        sitk.WriteImage(image, str(tmp_path / f"{kind}.nii"))
    whole = d.read_case(tmp_path / "images.nii", tmp_path / "labels.nii")
    assert torch.equal(whole.labels, d.PairSource(phantoms, 2).case("p0").labels)
    for kind in ("labels", "images"):
        path = tmp_path / f"{kind}.nii"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        files = (tmp_path / "images.nii", tmp_path / "labels.nii")
        refused(d.DataError, f"{kind}.nii is cut short", d.read_case, *files)


def placed_labels(path, image, labels, **changes):
    """Write the labels on the image's grid, with ``changes``."""
    mine = sitk.Image(labels)
    mine.CopyInformation(image)
    for name, value in changes.items():
        getattr(mine, f"Set{name}")(value)
    sitk.WriteImage(mine, str(path))
    return path


def test_labels_must_lie_on_their_image(phantoms, tmp_path):
    image, labels = (
        sitk.ReadImage(str(phantoms / kind / "p0.nii.gz")) for kind in ("images", "labels")
    )
    image.SetOrigin((10, -20, 30))
    image.SetSpacing((1, 1, 1.5))
    image.SetDirection((-1, 0, 0, 0, -1, 0, 0, 0, 1))
    sitk.WriteImage(image, str(tmp_path / "scan.nii.gz"))
    good = placed_labels(tmp_path / "good.nii.gz", image, labels)
    there = d.read_case(tmp_path / "scan.nii.gz", good).labels
    # Stored in reverse order but at the same place, or rounded by another program.
    turned = sitk.Flip(image, (True, True, False)), sitk.Flip(labels, (True, True, False))
    near = placed_labels(tmp_path / "near.nii.gz", image, labels, Origin=(10.001, -20, 30))
    for good in (placed_labels(tmp_path / "turned.nrrd", *turned), near):
        assert torch.equal(d.read_case(tmp_path / "scan.nii.gz", good).labels, there)
    lost = {"Origin": (0, 0, 0), "Spacing": (1, 1, 1), "Direction": (1, 0, 0, 0, 1, 0, 0, 0, 1)}
    for name, value in lost.items():
        bad = placed_labels(tmp_path / f"{name}.nii.gz", image, labels, **{name: value})
        says = f"{name}.nii.gz: .*scan.nii.gz.*header seems to be lost"
        refused(d.DataError, says, d.read_case, tmp_path / "scan.nii.gz", bad)
    sitk.WriteImage(labels[2:], str(tmp_path / "small.nii.gz"))
    with pytest.raises(d.DataError, match=r"small.nii.gz: .*scan.nii.gz") as error:
        d.read_case(tmp_path / "scan.nii.gz", tmp_path / "small.nii.gz")
    assert "lost" not in str(error.value)


def test_files_that_are_no_volumes_are_named(phantoms, tmp_path):
    (tmp_path / "text.nii.gz").write_text("no image")
    good = phantoms / "images" / "p0.nii.gz"
    image = sitk.ReadImage(str(good))
    sitk.WriteImage(image[:, :, 10], str(tmp_path / "flat.mha"))
    sitk.WriteImage(sitk.JoinSeries([image, image]), str(tmp_path / "series.nii.gz"))
    sitk.WriteImage(sitk.Compose(image, image, image), str(tmp_path / "colour.nii.gz"))
    for name in ("text.nii.gz", "flat.mha", "series.nii.gz", "colour.nii.gz", "gone.nii.gz"):
        for files in ((tmp_path / name,), (good, tmp_path / name)):
            refused(d.DataError, name, d.read_case, *files)
    # One time point is a volume.
    sitk.WriteImage(sitk.JoinSeries([image]), str(tmp_path / "one.nii.gz"))
    assert torch.equal(d.read_case(tmp_path / "one.nii.gz").image, d.read_case(good).image)
