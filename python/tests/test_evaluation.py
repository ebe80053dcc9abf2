"""Compares scores with numpy, scipy and SimpleITK on a tiny data set."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import SimpleITK as sitk

import morphseek
from helpers import QUICK, Command, blob
from morphseek import errors, images
from morphseek.cohort import evaluate, evaluation, read_pairs
from morphseek.cohort.folders import find_file
from morphseek.cohort.lists import find_list
from morphseek.cohort.tables import read_labels_csv
from morphseek.scoring import inverse_dice, mean_dice, score_labels
from morphseek.scoring.labels import merge_labels, on_fixed_grid

PAIRS = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("b", "a"), ("c", "b")]
RUN = {**QUICK, "initial": "rigid"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    (root / "images").mkdir()
    (root / "labels").mkdir()
    for name, shift in (("a", -0.15), ("b", 0.0), ("c", 0.2)):
        image = blob(shift=shift)
        images.write(root / "images" / f"{name}.nii.gz", images.Image(image, (2.0, 2.0, 3.0)))
        labels = (image > 0.3).astype(np.uint8) + (image > 0.8) * 4
        images.write(
            root / "labels" / f"{name}.nii.gz",
            images.Image(labels.astype(np.uint8), (2.0, 2.0, 3.0)),
        )
    (root / "split.json").write_text(
        json.dumps({"people": ["a", "b", "c"], "pairs": {"val": PAIRS[:1], "test": PAIRS}})
    )
    return root


@pytest.fixture(scope="module")
def scored(data: Path) -> morphseek.cohort.Evaluation:
    return evaluate(data / "split.json", data, subset="test", cross_check=True, **RUN)


def test_scores(data: Path, scored: morphseek.cohort.Evaluation):
    assert [(p.fixed, p.moving) for p in scored.pairs] == PAIRS and not any(
        p.error for p in scored.pairs
    )
    summary = scored.summary()
    assert summary["dice_after"] > summary["dice_before"] + 0.05
    assert summary["dice_check"] == pytest.approx(summary["dice_after"], abs=2e-3)
    assert set(summary["dice_by_label"]) == {1, 5}
    pair = scored.pairs[0]
    fixed, moving = (images.read(data / "labels" / f"{n}.nii.gz") for n in ("a", "b"))
    before = {
        k: (
            2
            * ((fixed.array == k) & (moving.array == k)).sum()
            / ((fixed.array == k).sum() + (moving.array == k).sum())
        )
        for k in (1, 5)
    }
    assert {s.label: s.dice_before for s in pair.labels} == pytest.approx(before)
    result = morphseek.register(data / "images" / "a.nii.gz", data / "images" / "b.nii.gz", **RUN)
    assert score_labels(result, fixed, moving) == pair.labels
    assert result.score(fixed, moving) == pair.labels
    warped = result.apply(moving, interpolation="nearest")
    assert score_labels(result, fixed, moving, warped_labels=warped) == pair.labels
    with pytest.raises(errors.GridMismatchError, match="warped labels"):
        score_labels(result, fixed, moving, warped_labels=warped.array[1:])
    assert score_labels(result, fixed.array, moving.array) == pair.labels
    assert pair.dice_after == pytest.approx(mean_dice(pair.labels)) and pair.hd95_after < 10


def test_dice_by_the_inverse_is_simpleitks(data: Path):
    fixed, moving = (images.read(data / "labels" / f"{n}.nii.gz") for n in ("a", "c"))
    result = morphseek.register(
        data / "images" / "a.nii.gz", data / "images" / "c.nii.gz", **{**RUN, "refine": 20}
    )
    a, c = fixed.to_sitk(), moving.to_sitk()
    u = sitk.TransformToDisplacementField(
        result.transform.to_sitk(),
        sitk.sitkVectorFloat64,
        a.GetSize(),
        a.GetOrigin(),
        a.GetSpacing(),
        a.GetDirection(),
    )
    back = sitk.DisplacementFieldTransform(
        sitk.InvertDisplacementField(u, 100, 0.02, 0.001, enforceBoundaryCondition=False)
    )
    carried, known = (
        sitk.GetArrayFromImage(sitk.Resample(image, c, back, sitk.sitkNearestNeighbor, 0))
        for image in (a, sitk.Cast(a * 0 + 1, sitk.sitkUInt8))
    )
    there = moving.array * known
    expected = np.mean(
        [
            2 * ((carried == k) & (there == k)).sum() / ((carried == k).sum() + (there == k).sum())
            for k in (1, 5)
        ]
    )
    assert inverse_dice(result, fixed, moving) == pytest.approx(expected, abs=0.01)
    run = evaluate([("a", "c")], data, score_inverse=True, **{**RUN, "refine": 20})
    assert (
        run.summary()["dice_inverse"]
        == run.pairs[0].dice_inverse
        == pytest.approx(inverse_dice(result, fixed, moving))
    )


def test_volumes_are_simpleitks(data: Path):
    """Compared with SimpleITK's Jacobian determinant of the transform, on grids with other voxels
    and another order of axes.
    """
    fixed, moving = (sitk.ReadImage(str(data / "images" / f"{name}.nii.gz")) for name in PAIRS[0])
    labels, there = (sitk.ReadImage(str(data / "labels" / f"{name}.nii.gz")) for name in PAIRS[0])
    coarser = sitk.Image([30, 24, 40], sitk.sitkUInt8)
    coarser.SetOrigin(moving.GetOrigin())
    coarser.SetSpacing([1.6 * s for s in moving.GetSpacing()])
    moving, there = (
        sitk.Resample(image, coarser, sitk.Transform(), sitk.sitkNearestNeighbor)
        for image in (moving, there)
    )
    result = morphseek.register(fixed, moving, threads=1, model="none", search=False, refine=5)
    total = sitk.TransformToDisplacementField(
        result.transform.to_sitk(),
        sitk.sitkVectorFloat64,
        fixed.GetSize(),
        fixed.GetOrigin(),
        fixed.GetSpacing(),
        fixed.GetDirection(),
    )
    determinant = sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(total))
    a, b = sitk.GetArrayFromImage(labels), sitk.GetArrayFromImage(there)
    for score in score_labels(result, labels, there):
        predicted = determinant[a == score.label].sum() * np.prod(fixed.GetSpacing())
        true = (b == score.label).sum() * np.prod(there.GetSpacing())
        assert (
            score.volume_error_percent == pytest.approx(100 * (predicted / true - 1), abs=0.1)
            and abs(predicted / true - 1) > 0.01
        )
    assert score_labels(result, labels, sitk.PermuteAxes(there, (2, 0, 1))) == score_labels(
        result, labels, there
    )


@pytest.mark.parametrize(
    "dtype, values",
    [
        (np.uint32, (614454277, 16777217)),
        (np.float32, (3.0, 250.0)),
        (np.int64, (2**40 + 1, 5)),
        (np.int16, (-2, 7)),
    ],
)
def test_any_whole_label(
    data: Path, scored: morphseek.cohort.Evaluation, dtype: type, values: tuple
):
    result = morphseek.register(data / "images" / "a.nii.gz", data / "images" / "b.nii.gz", **RUN)
    maps = [images.read(data / "labels" / f"{n}.nii.gz") for n in ("a", "b")]
    other = [m.like(np.select([m.array == 1, m.array == 5], values, 0).astype(dtype)) for m in maps]
    found = {
        s.label: (s.dice_before, s.dice_after, s.hd95_after) for s in score_labels(result, *other)
    }
    expected = {
        s.label: (s.dice_before, s.dice_after, s.hd95_after) for s in scored.pairs[0].labels
    }
    assert found == {values[0]: expected[1], values[1]: expected[5]} and list(found) == sorted(
        values
    )
    assert all(isinstance(label, int) for label in found)
    assert score_labels(result, maps[0], maps[1].like(np.zeros_like(maps[1].array))) == []
    with pytest.raises(errors.GridMismatchError, match=r"moving labels: the array has shape"):
        score_labels(result, maps[0], maps[1].array[:-1])
    with pytest.raises(errors.InvalidArgumentError, match="moving labels have the value 2.5"):
        score_labels(result, maps[0], maps[1].like(maps[1].array * 2.5))


@pytest.mark.parametrize(
    "spacing, origin, off, same",
    [(5e-4, 0, 2, False), (0.3, 3000, 1, False), (0.3, 3000, 0.001, True), (5e-4, 0, 0.001, True)],
)
def test_grids_are_compared_in_voxels(spacing: float, origin: float, off: float, same: bool):
    image = images.Image(blob(), (spacing,) * 3, (origin,) * 3)
    labels = images.Image(
        (blob() > 0.4).astype(np.uint8), (spacing,) * 3, (origin + off * spacing, origin, origin)
    )
    if same:
        on_fixed_grid(labels, image.grid)
    else:
        with pytest.raises(errors.GridMismatchError):
            on_fixed_grid(labels, image.grid)


def test_files(scored: morphseek.cohort.Evaluation, tmp_path: Path):
    scored.save(tmp_path)
    content = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert content["summary"]["pairs"] == len(PAIRS) and content["options"] == RUN
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * len(PAIRS)
    assert float(rows[0]["dice_after"]) == pytest.approx(scored.pairs[0].labels[0].dice_after)


def test_wilcoxon(data: Path, scored: morphseek.cohort.Evaluation, tmp_path: Path):
    scored.save(tmp_path)
    plain = evaluate(PAIRS, data, against=tmp_path, **{**RUN, "initial": "none"})
    ours, theirs = ([p.dice_after for p in e.pairs] for e in (plain, scored))
    assert plain.wilcoxon["p_value"] == pytest.approx(scipy.stats.wilcoxon(ours, theirs).pvalue)
    assert plain.wilcoxon["worse"] == len(PAIRS) and plain.wilcoxon["mean_difference"] < 0
    same = evaluate(PAIRS, data, against=tmp_path, **RUN)
    assert same.wilcoxon["p_value"] == 1 and same.wilcoxon["mean_difference"] == 0
    with pytest.raises(errors.InvalidArgumentError, match="in common"):
        evaluate([("a", "a")], data, against=tmp_path, **{**RUN, "initial": "none"})


def test_merging(data: Path, tmp_path: Path):
    table = tmp_path / "labels.csv"
    # with the byte order mark of spreadsheets
    table.write_text("\ufeffid,name,structure\n1,shell,body\n5,core,body\n", encoding="utf-8")
    merged = evaluate(PAIRS[:1], data, labels_csv=table, **RUN)
    assert merged.names == {1: "body"} and [s.label for s in merged.pairs[0].labels] == [1]
    table.write_text("id,name\n5,core\n")
    named = evaluate(PAIRS[:1], data, labels_csv=table, **RUN)
    assert named.names == {5: "core"} and [s.label for s in named.pairs[0].labels] == [5]
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
        with pytest.raises(errors.InputUnreadableError, match=says):
            evaluate(PAIRS[:1], data, labels_csv=table, **RUN)


@pytest.mark.parametrize(
    "value, says",
    [
        (1.5, "1.5; labels must be whole"),
        (np.nan, "nan; labels must be whole"),
        (2.0**60, "renumber them"),
    ],
)
def test_values_that_are_no_labels(value: float, says: str):
    labels = images.Image(np.array([0, 1, value]).reshape(1, 1, 3), name="moving labels")
    with pytest.raises(
        errors.InvalidArgumentError, match=f"the moving labels have the value .*{says}"
    ):
        merge_labels(labels, {1: 1})


def test_cached_pairs_have_no_times(data: Path, tmp_path: Path):
    first, second = (
        evaluate(PAIRS[:2] if n else PAIRS[:1], data, cache=str(tmp_path), **RUN) for n in (0, 1)
    )
    assert [p.cached for p in first.pairs + second.pairs] == [False, True, False]
    assert (
        second.summary()["cached"] == 1 and second.summary()["seconds"] == second.pairs[1].seconds
    )
    assert second.pairs[0].labels == first.pairs[0].labels


def test_a_failing_pair_does_not_stop_the_others(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    run = evaluate([("a", "missing"), ("a", "b")], data, **RUN)
    assert (
        "missing" in run.pairs[0].error and run.pairs[0].exit_code == 3 and not run.pairs[1].error
    )
    assert run.summary()["failed"] == 1
    shutil.copytree(data, tmp_path / "data")
    labels = tmp_path / "data" / "labels" / "c.nii.gz"
    images.write(labels, images.read(labels).like(images.read(labels).array * np.float32(0.5)))
    run = evaluate([("a", "c"), ("a", "b")], tmp_path / "data", **RUN)
    assert "moving labels have the value 0.5" in run.pairs[0].error and not run.pairs[1].error
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "score_labels", lambda *a: 1 / 0)
        run = evaluate(PAIRS[:2], data, **RUN)
    assert [p.exit_code for p in run.pairs] == [1, 1] and "ZeroDivisionError" in run.pairs[0].error
    assert "Traceback" in run.pairs[0].traceback and "failed" in caplog.text
    assert json.loads(json.dumps(run.to_dict()))["pairs"][0]["traceback"] == run.pairs[0].traceback


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("p.csv", "fixed,moving\na,b\nc, d\n", [("a", "b"), ("c", "d")]),
        ("p.csv", "a,b\n", [("a", "b")]),
        ("p.csv", "\ufeffa;b\r\nc;d\r\n", [("a", "b"), ("c", "d")]),
        ("p.csv", "a\tb\tnote\n", [("a", "b")]),
        ("p.csv", ",fixed,moving\n0,a,b\n", [("a", "b")]),
        ("p.json", '\ufeff[["a", "b"]]', [("a", "b")]),
        ("p.csv", "\ufeffid,Moving,Fixed,note\n1,b,a,\n\n2, d,c ,x\n", [("a", "b"), ("c", "d")]),
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
    assert read_pairs(path) == expected


@pytest.mark.parametrize(
    "text, error",
    [
        ("{", errors.InputUnreadableError),
        ("[[1, 2]]", errors.InputUnreadableError),
        ("[]", errors.InputUnreadableError),
        ("[1]", errors.InputUnreadableError),
        ("5", errors.InputUnreadableError),
        ('{"x": 1}', errors.InvalidArgumentError),
    ],
)
def test_pair_lists_refused(text: str, error: type, tmp_path: Path):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(error, match="p.json"):
        read_pairs(tmp_path / "p.json")
    with pytest.raises(errors.InputUnreadableError, match="missing.csv cannot be read: No such"):
        read_pairs(tmp_path / "missing.csv")
    for text, says in (
        ("", "no pair"),
        ("a\n", "not a pair"),
        ("fixed,moving\na\n", "line 2 has no moving"),
        ("fixed,moving\na,b,c\n", "line 2: the cell 'c' stands below no column"),
        ("fixed,source\na,b\n", "the columns fixed and moving"),
        ("a,b;c,d\n", "may be separated by ',' or ';'"),
    ):
        (tmp_path / "p.csv").write_text(text)
        with pytest.raises(errors.InputUnreadableError, match=says):
            read_pairs(tmp_path / "p.csv")


def test_slashes_find_the_labels(data: Path, tmp_path: Path):
    run = evaluate([("images/a.nii.gz", "images/b.nii.gz")], data, **RUN)
    assert not run.pairs[0].error and run.pairs[0].labels
    shutil.copytree(data / "images", tmp_path / "flat")
    run = evaluate([("flat/a.nii.gz", "flat/b.nii.gz")], tmp_path, **RUN)
    assert "where its label map is" in run.pairs[0].error


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


def test_refused_before_the_first_pair(data: Path, tmp_path: Path):
    for given, error in (
        ({"foo": 1}, errors.InvalidArgumentError),
        ({"steps": 99}, errors.InvalidArgumentError),
        ({"model": "hipocampus"}, errors.ModelNotFoundError),
    ):
        with pytest.raises(error):
            evaluate(PAIRS[:1], data, **given)
    with pytest.raises(errors.InputUnreadableError, match="data: .*typo is no folder"):
        evaluate(PAIRS[:1], data / "typo", **RUN)
    plain = evaluate(PAIRS[:1], data, preset=None, **{**RUN, "refine": np.int64(0)})
    assert plain.options == RUN and plain.to_dict()["options"] == RUN
    assert evaluate(PAIRS[:1], data, smoothness=2.5, **RUN).options == {**RUN, "smoothness": "2.5"}


def test_progress(data: Path, capsys: pytest.CaptureFixture[str]):
    """True shows a bar. A value that cannot be called is refused before the first pair, and a
    callback that returns False stops.
    """
    run = evaluate(PAIRS[:2], data, progress=True, **RUN)
    assert capsys.readouterr().err.splitlines() == [
        str(score) for score in run.pairs
    ] and " <- " in str(run.pairs[0])
    with pytest.raises(errors.InvalidArgumentError, match="progress is given as str"):
        evaluate([("a", "missing")], data, progress="yes", **RUN)
    seen: list = []
    with pytest.raises(errors.CancelledError):
        evaluate(
            PAIRS,
            data,
            progress=lambda report: seen.append(report) or np.bool_(not report.message),
            **RUN,
        )
    assert seen[-1].message.startswith(" <- ".join(PAIRS[0]))
    assert (seen[-1].done, seen[-1].total) == (1, len(PAIRS))
    fractions = [report.fraction for report in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1 / len(PAIRS)
    with pytest.raises(ZeroDivisionError):  # an error of the caller's function is not a pair's
        evaluate(PAIRS, data, progress=lambda report: 1 / 0, **RUN)


def test_pairs_without_a_common_label(data: Path, tmp_path: Path):
    shutil.copytree(data, tmp_path / "data")
    labels = tmp_path / "data" / "labels" / "c.nii.gz"
    other = images.read(labels)
    images.write(labels, other.like(np.where(other.array, 9, 0).astype(np.uint8)))
    run = evaluate(
        [("a", "c"), ("a", "b"), ("a", "missing")], tmp_path / "data", cross_check=True, **RUN
    )
    summary = run.summary()
    assert (summary["pairs"], summary["failed"], summary["unscored"]) == (3, 1, 1)
    assert summary["worst"] == {"fixed": "a", "moving": "b", "dice_after": run.pairs[1].dice_after}
    run.save(tmp_path)
    assert "nan" not in (tmp_path / "results.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert (
        rows[0]["dice_after"] == ""
        and float(rows[0]["njd_percent"]) == 0
        and rows[-1]["seconds"] == ""
    )


def test_check_of_large_labels(data: Path, tmp_path: Path, scored: morphseek.cohort.Evaluation):
    """Labels that differ by 2^32 stay apart."""
    shutil.copytree(data, tmp_path / "data")
    for name in "ab":
        path = tmp_path / "data" / "labels" / f"{name}.nii.gz"
        image = images.read(path)
        path.unlink()
        values = np.select([image.array == 1, image.array == 5], [7, 2**32 + 7], 0).astype(np.int64)
        images.write(path.with_name(f"{name}.nrrd"), image.like(values))
    run = evaluate(PAIRS[:1], tmp_path / "data", cross_check=True, **RUN)
    assert [s.label for s in run.pairs[0].labels] == [7, 2**32 + 7]
    assert run.pairs[0].dice_check == pytest.approx(scored.pairs[0].dice_check)


def test_command(data: Path, tmp_path: Path, command: Command):
    text = command(
        "evaluate",
        data / "split.json",
        "--subset",
        "val",
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--cross-check",
        "--model",
        "none",
        "--refine",
        0,
        "--search",
        "off",
    )
    assert "mean Dice by SimpleITK" in text
    files = ["index.html", "pair-0001.html", "results.csv", "results.json"]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == files
    assert 'href="pair-0001.html"' in (tmp_path / "run" / "index.html").read_text(encoding="utf-8")
    text = command(
        "evaluate", data / "split.json", "--data", data, "--out", tmp_path / "other", expect=2
    )
    assert "test, val" in " ".join(text.split()) and not (tmp_path / "other").exists()
    (tmp_path / "bad.csv").write_text("a,missing\n")
    command(
        "evaluate", tmp_path / "bad.csv", "--data", data, "--out", tmp_path / "failed", expect=3
    )
    assert (
        json.loads((tmp_path / "failed" / "results.json").read_text(encoding="utf-8"))["summary"][
            "failed"
        ]
        == 1
    )

    # Only another evaluation overwrites a finished one, and its list is never overwritten.
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    text = command(
        "evaluate", tmp_path / "bad.csv", "--data", data, "--out", tmp_path / "run", expect=3
    )
    assert "stay as they were" in text
    command(
        "evaluate",
        data / "split.json",
        "--subset",
        "val",
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--model",
        "hipocampus",
        expect=4,
    )
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "results.csv").write_text("a,b\n")
    command(
        "evaluate",
        tmp_path / "listed" / "results.csv",
        "--data",
        data,
        "--out",
        tmp_path / "listed",
        expect=2,
    )
    for against in (tmp_path / "run", tmp_path / "run" / "results.json"):
        text = command(
            "evaluate",
            data / "split.json",
            "--subset",
            "val",
            "--data",
            data,
            "--out",
            tmp_path / "run",
            "--against",
            against,
            "--model",
            "none",
            expect=2,
        )
        assert (
            f"against: {tmp_path / 'run' / 'results.json'} is where a result would be written"
            in text
        )
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_list_in_the_data_folder(
    data: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    """The documented command works from anywhere; a list at the given path is preferred."""
    monkeypatch.chdir(tmp_path)
    command(
        "evaluate",
        "split.json",
        "--subset",
        "val",
        "--data",
        data,
        "--out",
        "scores",
        "--model",
        "none",
        "--refine",
        0,
        "--search",
        "off",
    )
    assert (
        json.loads((tmp_path / "scores" / "results.json").read_text(encoding="utf-8"))["summary"][
            "pairs"
        ]
        == 1
    )
    (tmp_path / "split.json").write_text(json.dumps([["a", "c"]]))
    assert find_list("split.json", data) == "split.json" and find_list(PAIRS, data) is PAIRS
    text = command("evaluate", "nosuch.json", "--data", data, "--out", "other", expect=3)
    assert "pairs: nosuch.json cannot be read" in " ".join(text.split())
    # A list in the data folder is not overwritten either.
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "results.csv").write_text("a,b\n")
    command(
        "evaluate",
        "results.csv",
        "--data",
        tmp_path / "listed",
        "--out",
        tmp_path / "listed",
        expect=2,
    )


def test_names_are_no_markup(data: Path, tmp_path: Path, command: Command):
    (tmp_path / "labels.csv").write_text(
        "id,name\n1,Hippocampus [left]\n5,Tail [/posterior] :on:\n"
    )
    out = tmp_path / "run [/x] :on:"
    text = command(
        "evaluate",
        data / "split.json",
        "--subset",
        "val",
        "--data",
        data,
        "--out",
        out,
        "--labels-csv",
        tmp_path / "labels.csv",
        "--model",
        "none",
        "--refine",
        0,
    )
    for said in ("Hippocampus [left]", "Tail [/posterior] :on:", str(out / "results.json")):
        assert said in text


def test_background_is_no_structure_and_a_label_without_one_keeps_its_name(tmp_path: Path):
    table = tmp_path / "labels.csv"
    table.write_text(
        "id,name,structure\n0,Background,Background\n1,ant,hippo\n2,post,hippo\n7,skull,\n8,skin,\n"
    )
    assert read_labels_csv(table) == ({1: 1, 2: 1, 7: 2, 8: 3}, {1: "hippo", 2: "skull", 3: "skin"})


def test_uncertainty_has_no_place(data: Path):
    with pytest.raises(errors.InvalidArgumentError, match="uncertainty"):
        evaluate(PAIRS[:1], data, uncertainty=True, **RUN)
    assert evaluate(PAIRS[:1], data, uncertainty=False, **RUN).pairs[0].dice_after > 0


def test_a_list_that_is_not_there_is_named(data: Path, tmp_path: Path):
    with pytest.raises(
        errors.InvalidArgumentError, match="no list 'tset'; it has the lists test, val"
    ):
        read_pairs(data / "split.json", "tset")
    plain = tmp_path / "pairs.json"
    plain.write_text(json.dumps(PAIRS))
    assert read_pairs(plain) == PAIRS
    with pytest.raises(
        errors.InvalidArgumentError, match="one list of pairs, so there is no 'test'"
    ):
        read_pairs(plain, "test")
