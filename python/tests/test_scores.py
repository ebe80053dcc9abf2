"""Scores by label maps, of one registration and of studies; by numpy, scipy and SimpleITK, too."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import SimpleITK as sitk

import morphseek
from helpers import (
    FLAGS,
    QUICK,
    Command,
    blob,
    field_by_itk,
    field_of,
    invalid,
    refused,
    resampled,
    unreadable,
)
from morphseek import errors, images, register_pairs
from morphseek.scoring import inverse_dice, mean_dice, score_labels
from morphseek.scoring.labels import merge_labels, on_fixed_grid
from morphseek.studies import PairRow, Study, compare, read_items, read_pairs
from morphseek.studies.folders import find_file
from morphseek.studies.label_table import read_label_names, read_labels_csv
from morphseek.studies.table import find_list

PAIRS = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("b", "a"), ("c", "b")]
RUN = {**QUICK, "initial": "rigid"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for name, shift in (("a", -0.15), ("b", 0.0), ("c", 0.2)):
        image = images.Image(blob(shift=shift), (2.0, 2.0, 3.0))
        labels = np.select([image.array > 0.8, image.array > 0.3], [5, 1]).astype(np.uint8)
        for kind, volume in (("images", image), ("labels", image.like(labels))):
            (root / kind).mkdir(exist_ok=True)
            images.write(root / kind / f"{name}.nii.gz", volume)
    lists = {"people": ["a", "b", "c"], "pairs": {"val": PAIRS[:1], "test": PAIRS}}
    (root / "split.json").write_text(json.dumps(lists))
    return root


def files_of(data: Path, *names: str, kind: str = "images") -> list[Path]:
    return [data / kind / f"{name}.nii.gz" for name in names]


def labels_of(data: Path, *names: str) -> list[images.Image]:
    return [images.read(path) for path in files_of(data, *names, kind="labels")]


@pytest.fixture(scope="module")
def folder(data: Path) -> Path:
    """The folder of a scored study of all pairs."""
    register_pairs(data / "split.json", data / "study", data=data, subset="test", score=True, **RUN)
    return data / "study"


@pytest.fixture(scope="module")
def scored(folder: Path) -> Study:
    return Study.read(folder)


def scores(data: Path, pairs: Any = PAIRS[:1], **more: Any) -> Study:
    return register_pairs(pairs, data=data, **{**RUN, **more})


def dice(one: np.ndarray, other: np.ndarray, label: int) -> float:
    a, b = one == label, other == label
    return 2 * (a & b).sum() / (a.sum() + b.sum())


def as_rows(found: list[morphseek.scoring.LabelScore]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(score), "name": ""} for score in found]


def test_scores(data: Path, scored: Study):
    assert [(row.fixed, row.moving) for row in scored.rows] == PAIRS
    assert [row.status for row in scored.rows] == ["done"] * len(PAIRS)
    summary = scored.summary()
    assert summary["dice_after"] > summary["dice_before"] + 0.05
    assert summary["dice_check"] == pytest.approx(summary["dice_after"], abs=2e-3)
    row = scored.rows[0]
    fixed, moving = labels_of(data, "a", "b")
    before = {k: dice(fixed.array, moving.array, k) for k in (1, 5)}
    assert {s["label"]: s["dice_before"] for s in row.labels} == pytest.approx(before)
    result = morphseek.register(*files_of(data, "a", "b"), **RUN)
    found = score_labels(result, fixed, moving)
    assert as_rows(found) == row.labels and result.score(fixed, moving) == found
    warped = result.apply(moving, interpolation="nearest")
    assert score_labels(result, fixed, moving, warped_labels=warped) == found
    with pytest.raises(errors.GridMismatchError, match="warped labels"):
        score_labels(result, fixed, moving, warped_labels=warped.array[1:])
    assert score_labels(result, fixed.array, moving.array) == found
    assert row.dice_after == pytest.approx(mean_dice(found)) and row.hd95_after < 10


def test_dice_by_the_inverse_is_simpleitks(data: Path):
    fixed, moving = labels_of(data, "a", "c")
    result = morphseek.register(*files_of(data, "a", "c"), **{**RUN, "refine": 20})
    u = field_of(field_by_itk(result.transform.to_sitk(), fixed), fixed).GetDisplacementField()
    u = sitk.InvertDisplacementField(u, 100, 0.02, 0.001, enforceBoundaryCondition=False)
    back = sitk.DisplacementFieldTransform(u)
    carried, known = (
        resampled(fixed.like(array), moving, back, sitk.sitkNearestNeighbor)
        for array in (fixed.array, np.ones_like(fixed.array))
    )
    expected = np.mean([dice(carried, moving.array * known, k) for k in (1, 5)])
    assert inverse_dice(result, fixed, moving) == pytest.approx(expected, abs=0.01)
    study = scores(data, [("a", "c")], score=True, refine=20)
    assert study.rows[0].dice_inverse == pytest.approx(inverse_dice(result, fixed, moving))
    assert study.summary()["dice_inverse"] == study.rows[0].dice_inverse


def test_volumes_are_simpleitks(data: Path):
    """Compared with SimpleITK's Jacobian determinant of the transform, on grids with other voxels
    and another order of axes.
    """
    fixed, moving = map(sitk.ReadImage, files_of(data, *PAIRS[0]))
    labels, there = map(sitk.ReadImage, files_of(data, *PAIRS[0], kind="labels"))
    coarser = sitk.Image([30, 24, 40], sitk.sitkUInt8)
    coarser.SetOrigin(moving.GetOrigin())
    coarser.SetSpacing([1.6 * s for s in moving.GetSpacing()])
    moving, there = (
        sitk.Resample(image, coarser, sitk.Transform(), sitk.sitkNearestNeighbor)
        for image in (moving, there)
    )
    result = morphseek.register(fixed, moving, threads=1, model="none", search=False, refine=5)
    grid = images.read(fixed)
    total = field_of(field_by_itk(result.transform.to_sitk(), grid), grid).GetDisplacementField()
    determinant = sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(total))
    a, b = sitk.GetArrayFromImage(labels), sitk.GetArrayFromImage(there)
    for score in score_labels(result, labels, there):
        predicted = determinant[a == score.label].sum() * np.prod(fixed.GetSpacing())
        true = (b == score.label).sum() * np.prod(there.GetSpacing())
        assert score.volume_error_percent == pytest.approx(100 * (predicted / true - 1), abs=0.1)
        assert abs(predicted / true - 1) > 0.01
    turned = sitk.PermuteAxes(there, (2, 0, 1))
    assert score_labels(result, labels, turned) == score_labels(result, labels, there)


@pytest.mark.parametrize(
    "dtype, values",
    [(np.uint32, (614454277, 16777217)), (np.float32, (3.0, 250.0)), (np.int64, (2**40 + 1, 5)),
     (np.int16, (-2, 7))],
)  # fmt: skip
def test_any_whole_label(data: Path, scored: Study, dtype: type, values: tuple):
    result, maps = morphseek.register(*files_of(data, "a", "b"), **RUN), labels_of(data, "a", "b")
    other = [m.like(np.select([m.array == 1, m.array == 5], values, 0).astype(dtype)) for m in maps]
    found = [{**row, "label": None} for row in as_rows(score_labels(result, *other))]
    one, five = ({**row, "label": None} for row in scored.rows[0].labels)
    assert found == ([one, five] if values[0] < values[1] else [five, one])
    labels = [score.label for score in score_labels(result, *other)]
    assert labels == sorted(values) and all(isinstance(label, int) for label in labels)
    assert score_labels(result, maps[0], maps[1].like(np.zeros_like(maps[1].array))) == []
    says, cut = "moving labels: the array has shape", maps[1].array[:-1]
    refused(errors.GridMismatchError, says, score_labels, result, maps[0], cut)
    parts = maps[1].like(maps[1].array * 2.5)
    invalid("moving labels have the value 2.5", score_labels, result, maps[0], parts)


@pytest.mark.parametrize(
    "spacing, origin, off, same",
    [(5e-4, 0, 2, False), (0.3, 3000, 1, False), (0.3, 3000, 0.001, True), (5e-4, 0, 0.001, True)],
)
def test_grids_are_compared_in_voxels(spacing: float, origin: float, off: float, same: bool):
    image = images.Image(blob(), (spacing,) * 3, (origin,) * 3)
    place = ((spacing,) * 3, (origin + off * spacing, origin, origin))
    labels = images.Image((blob() > 0.4).astype(np.uint8), *place)
    if same:
        on_fixed_grid(labels, image.grid)
    else:
        with pytest.raises(errors.GridMismatchError):
            on_fixed_grid(labels, image.grid)


def test_files(folder: Path, scored: Study):
    content = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert content["summary"]["pairs"] == len(PAIRS) and content["options"] == RUN
    rows = list(csv.DictReader((folder / "labels.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * len(PAIRS)
    assert float(rows[0]["dice_after"]) == scored.rows[0].labels[0]["dice_after"]


def test_wilcoxon(data: Path, folder: Path, scored: Study):
    plain = scores(data, PAIRS, initial="none")
    ours, theirs = ([row.dice_after for row in study.rows] for study in (plain, scored))
    test = compare(plain, folder)
    assert test["p_value"] == pytest.approx(scipy.stats.wilcoxon(ours, theirs).pvalue)
    assert test["worse"] == len(PAIRS) and test["mean_difference"] < 0
    same = compare(scored, folder)
    assert same["p_value"] == 1 and same["mean_difference"] == 0
    other = scores(data, [("a", "a")], initial="none")
    invalid("no pair of the 1 here and the 6 there", compare, other, folder)


def test_merging(data: Path, tmp_path: Path):
    table = tmp_path / "labels.csv"
    # with the byte order mark of spreadsheets
    table.write_text("\ufeffid,name,structure\n1,shell,body\n5,core,body\n", encoding="utf-8")
    (score,) = scores(data, labels_csv=table).rows[0].labels
    assert (score["label"], score["name"]) == (1, "body")
    table.write_text("id,name\n5,=core\n")
    study = scores(data, labels_csv=table)
    (score,) = study.rows[0].labels
    assert (score["label"], score["name"]) == (5, "=core")
    study.save(tmp_path / "study")
    assert ",5,'=core," in (tmp_path / "study" / "labels.csv").read_text()  # no formula
    # as Excel writes it where the decimal separator is a comma
    table.write_text("sep=;\n ID ; Name;\n5;core;\n;;\n")
    assert read_labels_csv(table) == ({5: 5}, {5: "core"})
    # as pandas writes it where a number was missing
    table.write_text(",id,name\n0,5.0,NA\n")
    assert read_labels_csv(table) == ({5: 5}, {5: "NA"})
    for text, says in (
        ("number\n5\n", "columns"),
        ("", "the columns id and name"),
        ("id,name\n5.5,core\n", "line 2 has the id '5.5', which is no label"),
        ("id,name\n1,a\n,core\n", "line 3 has the id '', which is no label"),
        ("id, name\n", "no labels"),
        ("id,name\n5,core\n5,shell\n", "the id 5 twice"),
    ):
        table.write_text(text)
        unreadable(says, scores, data, labels_csv=table)


@pytest.mark.parametrize(
    "value, says",
    [
        (1.5, "1.5; labels must be whole"),
        # 1 beside 7, as nibabel scales floats for an int16 of a NIfTI
        (0.99998474, "0.99998474; labels must be whole .*scl_slope"),
        (np.nan, "nan; labels must be whole"),
        (2.0**60, "within .*renumber them"),
    ],
)
def test_values_that_are_no_labels(value: float, says: str):
    labels = images.Image(np.array([0, 1, value]).reshape(1, 1, 3), name="moving labels")
    invalid(f"the moving labels have the value .*{says}", merge_labels, labels, {1: 1})


def test_studies_of_other_images_are_not_merged():
    """Lists without ids call their pairs by number and file."""
    one, two = (Study([PairRow("001-b-to-a", f"{s}/a.nii", f"{s}/b.nii")]) for s in ("x", "y"))
    invalid("the id 001-b-to-a is of x/b.nii onto x/a.nii in one study", one.merge, two)
    assert len(one.merge(one).rows) == 1


def test_cached_pairs_have_no_times(data: Path, tmp_path: Path):
    first, second = (scores(data, PAIRS[:n], cache=str(tmp_path)) for n in (1, 2))
    assert [row.cached for row in first.rows + second.rows] == [False, True, False]
    assert second.summary()["cached"] == 1
    assert second.summary()["seconds"] == second.rows[1].seconds
    assert second.rows[0].labels == first.rows[0].labels


def test_a_failing_pair_does_not_stop_the_others(data: Path, tmp_path: Path):
    shutil.copytree(data, tmp_path / "data")
    labels = tmp_path / "data" / "labels" / "c.nii.gz"
    images.write(labels, images.read(labels).like(images.read(labels).array * np.float32(0.5)))
    study = scores(tmp_path / "data", [("a", "missing"), ("a", "c"), ("a", "b")])
    lost, bad, good = study.rows
    assert "missing" in lost.message and lost.exit_code == study.exit_code == 3
    assert "moving labels have the value 0.5" in bad.message
    assert not good.error and study.summary()["failed"] == 2


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("p.csv", "fixed,moving\na,b\nc, d\n", [("a", "b"), ("c", "d")]),
        ("p.csv", "\ufefffixed;moving\r\na;b\r\nc;d\r\n", [("a", "b"), ("c", "d")]),
        ("p.csv", ",fixed,moving\n0,a,b\n", [("a", "b")]),
        ("p.json", '\ufeff[["a", "b"]]', [("a", "b")]),
        ("p.csv", "\ufeffid,Moving,Fixed\n1,b,a\n\n2, d,c \n", [("a", "b"), ("c", "d")]),
        ("p.json", '[["a", "b"]]', [("a", "b")]),
        (
            "p.json",
            '{"registration_val": [{"fixed": "./imagesTr/x", "moving": "./imagesTr/y"}]}',
            [("./imagesTr/x", "./imagesTr/y")],
        ),
    ],
)
def test_pair_lists(name: str, text: str, expected: list, tmp_path: Path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    pairs = read_pairs(path, data=tmp_path)
    assert [(pair.files["fixed"], pair.files["moving"]) for pair in pairs] == expected


def test_pair_lists_refused(tmp_path: Path):
    path = tmp_path / "p.json"
    for text in ("{", "[[1, 2]]", "[]", "[1]", "5"):
        path.write_text(text)
        unreadable("p.json", read_pairs, path, data=tmp_path)
    path.write_text('{"x": 1}')
    invalid("p.json", read_pairs, path, data=tmp_path)
    says = "missing.csv cannot be read: No such"
    unreadable(says, read_pairs, tmp_path / "missing.csv", data=tmp_path)
    for text, says in (
        ("", "needs a header"),
        ("a,b\n", "needs a header"),
        ("fixed,moving,note\na,b,c\n", "and no others"),
        ("fixed,moving\na\n", "line 2 has no moving"),
        ("fixed,moving\na,b,c\n", "line 2: the cell 'c' stands below no column"),
        ("fixed,source\na,b\n", "the columns fixed and moving"),
    ):
        (tmp_path / "p.csv").write_text(text)
        unreadable(says, read_pairs, tmp_path / "p.csv", data=tmp_path)


def test_slashes_find_the_labels(data: Path, tmp_path: Path):
    (row,) = scores(data, [("images/a.nii.gz", "images/b.nii.gz")], score=True).rows
    assert not row.error and row.labels
    shutil.copytree(data / "images", tmp_path / "flat")
    (row,) = scores(tmp_path, [("flat/a.nii.gz", "flat/b.nii.gz")], score=True).rows
    assert "score: there is no label map of the fixed image flat/a.nii.gz" in row.message


@pytest.mark.parametrize(
    "image, labels",
    [
        ("imagesTr/a.nii.gz", "labelsTr/a.nii.gz"),
        ("CT_images/imagesTr/a.nii.gz", "CT_images/labelsTr/a.nii.gz"),
        ("CT_images/imagesTr/a.nii.gz", "CT_labels/labelsTr/a.nii.gz"),
        ("images/CT/a.nii.gz", "labels/CT/a.nii.gz"),
        ("images/imagesTr/a.nii.gz", "labels/imagesTr/a.nii.gz"),
        ("imagesTr/images_a.nii.gz", "labelsTr/images_a.nii.gz"),
        ("imagesTr/images_a.nii.gz", "labelsTr/labels_a.nii.gz"),
        ("scans/images_a.nii.gz", "scans/labels_a.nii.gz"),
        ("imagesTr/a.nii.gz", "labelsTr/a.mha"),
    ],
)
def test_labels_lie_where_the_images_do(image: str, labels: str, tmp_path: Path):
    """Training finds the same: tests/training/test_data.py."""
    root = tmp_path / "images of mine"
    for name in (image, labels):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    assert find_file(root, image, "images") == root / image
    assert find_file(root, image, "labels") == root / labels


def test_files_that_differ_in_their_endings_alone(tmp_path: Path):
    """Nothing says which of them is meant, unless the list has the ending."""
    for name in ("images/a.nii", "images/a.nii.gz", "labels/a.nrrd", "labels/a.mha"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_file(tmp_path, "a.nii", "images").name == "a.nii"
    unreadable(r"a.nii.gz: beside it lies a.nii; write", find_file, tmp_path, "a", "images")
    unreadable(r"a.nrrd: beside it lies a.mha", find_file, tmp_path, "a.nii", "labels")
    (tmp_path / "images/a.nii").unlink()
    unreadable(r"a.mha: beside it lies a.nrrd", read_items, tmp_path)


def test_refused_before_the_first_pair(data: Path):
    for given, error in (
        ({"foo": 1}, errors.InvalidArgumentError),
        ({"steps": 99}, errors.InvalidArgumentError),
        ({"model": "hipocampus"}, errors.ModelNotFoundError),
        ({"progress": "yes"}, errors.InvalidArgumentError),
    ):
        with pytest.raises(error):
            scores(data, **given)
    unreadable("data: .*typo is no folder", scores, data / "typo")
    plain = scores(data, preset=None, refine=np.int64(0))
    assert plain.options == RUN and plain.to_dict()["options"] == RUN
    assert scores(data, smoothness=2.5).options == {**RUN, "smoothness": "2.5"}


def test_pairs_without_a_common_label(data: Path, tmp_path: Path):
    shutil.copytree(data, tmp_path / "data")
    labels = tmp_path / "data" / "labels" / "c.nii.gz"
    other = images.read(labels)
    images.write(labels, other.like(np.where(other.array, 9, 0).astype(np.uint8)))
    study = scores(tmp_path / "data", [("a", "c"), ("a", "b"), ("a", "missing")], score=True)
    summary = study.summary()
    assert (summary["pairs"], summary["failed"]) == (3, 1)
    study.to_csv(tmp_path / "summary.csv")
    text = (tmp_path / "summary.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert "nan" not in text and rows[0]["dice_after"] == rows[-1]["seconds"] == ""
    assert float(rows[0]["njd_percent"]) == 0


def test_check_of_large_labels(data: Path, tmp_path: Path, scored: Study):
    """Labels that differ by 2^32 stay apart."""
    shutil.copytree(data, tmp_path / "data")
    for name in "ab":
        path = tmp_path / "data" / "labels" / f"{name}.nii.gz"
        image = images.read(path)
        path.unlink()
        values = np.select([image.array == 1, image.array == 5], [7, 2**32 + 7], 0).astype(np.int64)
        images.write(path.with_name(f"{name}.nrrd"), image.like(values))
    (row,) = scores(tmp_path / "data", score=True).rows
    assert [s["label"] for s in row.labels] == [7, 2**32 + 7]
    assert row.dice_check == pytest.approx(scored.rows[0].dice_check)


def test_command(data: Path, folder: Path, tmp_path: Path, command: Command):
    """The list is looked for in the data folder; names and paths are no markup."""
    out = tmp_path / "run [/x] :on:"
    (tmp_path / "labels.csv").write_text("id,name\n1,Hippocampus [left]\n5,Tail [/x] :on:\n")
    words = ["pairs", "split.json", "--data", data, *FLAGS]
    text = command(
        *words, "--subset", "test", "--score", "--labels-csv", tmp_path / "labels.csv", "--keep",
        "report", "--against", folder, "--out", out, "--initial", "none",
    )  # fmt: skip
    for part in ("by the inverse", "by SimpleITK", "over 6 pairs, better in 0", str(out)):
        assert part in text
    assert "Tail [/x] :on:" in (out / "labels.csv").read_text()
    pair = "001-b-to-a"
    files = ["pair.json", "report.html", "report.json"]
    assert sorted(path.name for path in (out / pair).iterdir()) == files
    assert f'href="{pair}/report.html"' in (out / "index.html").read_text(encoding="utf-8")
    text = command(*words, "--out", tmp_path / "other", expect=2)
    assert "test, val" in " ".join(text.split()) and not (tmp_path / "other").exists()
    other = "fixed,moving,fixed_labels,moving_labels\ne,b,c,d\n"
    for text, name in (("fixed,moving\na,b\n", "without-labels"), (other, "other-images")):
        (tmp_path / f"{name}.csv").write_text(text)
        told = command(
            "pairs", tmp_path / f"{name}.csv", "--against", folder, "--out", tmp_path / name,
            expect=2,
        )  # fmt: skip
        assert "no pair of the 1 here" in told and not (tmp_path / name).exists()
    (tmp_path / "bad.csv").write_text("fixed,moving\na,missing\n")
    bad = ("pairs", tmp_path / "bad.csv", "--data", data, "--out", tmp_path / "failed")
    told = command.json(*bad, expect=3)
    assert told["summary"]["failed"] == 1
    text = command("pairs", "nosuch.json", "--data", data, "--out", tmp_path / "other", expect=3)
    assert "pairs: nosuch.json cannot be read" in " ".join(text.split())


def test_lists_are_looked_for_in_the_data(data, tmp_path, monkeypatch):
    """A list at the given path is preferred; none is written over."""
    monkeypatch.chdir(tmp_path)
    assert find_list("split.json", data) == data / "split.json"
    (tmp_path / "split.json").write_text(json.dumps([["a", "c"]]))
    assert find_list("split.json", data) == "split.json" and find_list(PAIRS, data) is PAIRS
    (tmp_path / "summary.csv").write_text("fixed,moving\na,b\n")
    for name in ("summary.csv", tmp_path / "summary.csv"):
        invalid("is where a result", register_pairs, name, tmp_path, data=data, **RUN)


def test_background_is_no_structure_and_a_label_without_one_keeps_its_name(tmp_path: Path):
    table = tmp_path / "labels.csv"
    table.write_text(
        "id,name,structure\n0,Background,Background\n1,ant,hippo\n2,post,hippo\n7,skull,\n8,skin,\n"
    )
    assert read_labels_csv(table) == ({1: 1, 2: 1, 7: 2, 8: 3}, {1: "hippo", 2: "skull", 3: "skin"})
    # of maps that are not merged
    assert read_label_names(table) == {1: "ant", 2: "post", 7: "skull", 8: "skin"}


def test_a_list_that_is_not_there_is_named(data: Path, tmp_path: Path):
    says = "no list 'tset'; it has the lists test, val"
    invalid(says, read_pairs, data / "split.json", data=data, subset="tset")
    plain = tmp_path / "pairs.json"
    plain.write_text(json.dumps(PAIRS))
    assert len(read_pairs(plain, data=data)) == len(PAIRS)
    invalid("one list, so there is no 'test'", read_pairs, plain, data=data, subset="test")
