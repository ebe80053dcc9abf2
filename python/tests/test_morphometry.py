"""Compares morphometry with known volumes and with SciPy's Gaussian."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from click.testing import CliRunner

from helpers import invalid, refused, unreadable
from morphseek import Field, Image, Transform, errors, images, studies
from morphseek.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.* found no deformation")
SHAPE, SPACING = (20, 24, 28), (1.5, 1.0, 0.8)
GRID = Image(np.zeros(SHAPE, np.float32), SPACING).grid
LABELS = np.zeros(SHAPE, np.uint8)
LABELS[6:14, 8:16, 8:20] = 2
LABELS[3:5, 3:20, 3:9] = 7


def scaled(factor: float) -> Field:
    """Return a map that scales by a factor: the moving image is larger by it."""
    matrix = np.diag([factor, factor, factor, 1.0])
    index = np.moveaxis(np.indices(SHAPE)[::-1], 0, -1) * SPACING
    moved = (factor - 1) * index
    made = Field.from_mm(moved.astype(np.float32), GRID, GRID)
    return Field(made.displacement(), GRID, GRID, matrix)


def larger(factor: float) -> Image:
    """Return the labels of an image that is larger by a factor."""
    return Image(LABELS, tuple(factor * s for s in SPACING))


def test_volumes_are_those_of_the_labels(tmp_path: Path):
    factors = {"a": 1.1, "b": 0.95, "c": 1.02, "d": 1.0}
    subjects = [studies.Item(n, scaled(f), larger(f)) for n, f in factors.items()]
    how = {"fixed_labels": LABELS, "names": {2: "box"}, "fwhm": 0}
    with pytest.warns(errors.InputWarning, match="^d: the registration found no deformation"):
        study = studies.morphometry(subjects, tmp_path / "out", **how)
    assert len(study.volumes) == 8
    voxel = np.prod(SPACING)
    for row in study.volumes:
        size = (LABELS == row.label).sum() * voxel
        assert row.fixed_mm3 == pytest.approx(size)
        assert row.volume_mm3 == pytest.approx(size * factors[row.id] ** 3, rel=1e-5)
        assert row.true_mm3 == pytest.approx(row.volume_mm3, rel=1e-5)
    two, seven = study.labels()
    assert (two["label"], two["name"], two["subjects"], seven["label"]) == (2, "box", 4, 7)
    changes = 100 * (np.array(list(factors.values())) ** 3 - 1)
    assert two["change_percent"] == pytest.approx(changes.mean(), abs=1e-3)
    assert two["change_sd"] == pytest.approx(changes.std(ddof=1), abs=1e-3)
    assert two["correlation"] == pytest.approx(1) and abs(two["error_percent"]) < 1e-3

    logs = 3 * np.log(np.array(list(factors.values())))
    for name, value in (("mean_logj", logs.mean()), ("sd_logj", logs.std(ddof=1))):
        found = images.read(tmp_path / "out" / f"{name}.nii.gz")
        np.testing.assert_allclose(found.array, value, atol=1e-5)
        np.testing.assert_allclose(found.grid.numbers, GRID.numbers, atol=1e-6)
    said = json.loads((tmp_path / "out" / "morphometry.json").read_text())
    names = {"logj_a.nii.gz", "mean_logj.nii.gz", "sd_logj.nii.gz", "volumes.csv"}
    assert names <= set(said["files"])
    assert (tmp_path / "out" / "volumes.csv").read_text().count("\n") == 9


def test_without_the_affine_nothing_is_left():
    study = studies.morphometry({"a": scaled(1.1), "b": scaled(0.9)}, affine=False, fwhm=0)
    np.testing.assert_allclose(study.mean, 0, atol=1e-5)
    np.testing.assert_allclose(study.sd, 0, atol=1e-5)


def local(size: float = 1.2) -> Field:
    index = np.moveaxis(np.indices(SHAPE)[::-1], 0, -1).astype(np.float64)
    middle = (np.array(SHAPE[::-1]) - 1) / 2
    near = np.exp(-(((index - middle) / 4) ** 2).sum(axis=-1))
    moved = size * near[..., None] * (index - middle) / 4
    return Field.from_mm((moved * SPACING).astype(np.float32), GRID, GRID)


def test_the_gaussian_is_scipys(tmp_path: Path):
    ndimage = pytest.importorskip("scipy.ndimage")
    plain = studies.morphometry({"a": local()}, fwhm=0).mean
    smooth = studies.morphometry({"a": local()}, fwhm=5).mean
    sigma = 5 / np.sqrt(8 * np.log(2)) / np.array(SPACING[::-1])
    want = ndimage.gaussian_filter(plain, sigma, mode="nearest", truncate=6)
    assert np.abs(plain).max() > 0.3
    # ITK's Gaussian is recursive, hence the tolerance
    np.testing.assert_allclose(smooth, want, atol=0.02 * np.abs(want).max())


def test_folds_have_no_logarithm():
    study = studies.morphometry({"a": local(-6.0)}, fwhm=0)
    assert study.folded["a"] > 0 and np.isnan(study.mean).any()
    assert np.isfinite(studies.morphometry({"a": local(-6.0)}, fwhm=6).mean).all()


def study_of(folder: Path, fixed: list[str]) -> Path:
    rows = []
    for k, name in enumerate(fixed):
        (folder / f"s{k}").mkdir(parents=True)
        scaled(1 + 0.05 * k).save(folder / f"s{k}" / "transform.h5")
        rows.append({"id": f"s{k}", "fixed": name, "moving": f"m{k}", "status": "done"})
    rows.append({"id": "lost", "fixed": fixed[0], "moving": "m", "status": "failed"})
    (folder / "summary.json").write_text(json.dumps({"rows": rows, "options": {}}))
    return folder


def run(*arguments: Any, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["morphometry", *map(str, arguments)])
    assert found.exit_code == code, found.output
    return found.stdout if "--json" in arguments else found.output


def test_a_study_and_a_list(tmp_path: Path):
    study = study_of(tmp_path / "study", ["f.nii", "f.nii", "f.nii"])
    for k in range(3):
        images.write(tmp_path / f"l{k}.nii.gz", larger(1 + 0.05 * k))
    images.write(tmp_path / "fixed.nii.gz", Image(LABELS, SPACING))
    rows = "".join(f"s{k},f.nii,m{k},fixed.nii.gz,l{k}.nii.gz\n" for k in range(3))
    (tmp_path / "pairs.csv").write_text(f"id,fixed,moving,fixed_labels,moving_labels\n{rows}")
    out = tmp_path / "out"
    said = json.loads(run(study, "--out", out, "--pairs", tmp_path / "pairs.csv", "--json"))
    assert said["subjects"] == ["s0", "s1", "s2"]
    assert said["labels"][0]["correlation"] == pytest.approx(1)
    assert said["labels"][0]["change_percent"] == pytest.approx((15.7625 + 33.1) / 3, abs=1e-3)

    (tmp_path / "list.csv").write_text("transform,id,labels\nstudy/s1,one,l1.nii.gz\nstudy/s2,,\n")
    told = run(tmp_path / "list.csv", "--out", out, "--fixed-labels", tmp_path / "fixed.nii.gz")
    assert "subjects  2" in told and "+15.8" in told
    assert (out / "logj_one.nii.gz").exists() and not (out / "logj_s0.nii.gz").exists()


def test_a_failed_verdict_does_not_count(tmp_path: Path):
    study = study_of(tmp_path / "study", ["f.nii"] * 3)
    content = json.loads((study / "summary.json").read_text())
    content["rows"][1]["verdict"] = "failed"
    (study / "summary.json").write_text(json.dumps(content))
    with pytest.warns(errors.InputWarning, match="1 registrations are left out, .*: s1"):
        assert studies.morphometry(study, fwhm=0).ids == ["s0", "s2"]
    for row in content["rows"]:
        row["verdict"] = "failed"
    (study / "summary.json").write_text(json.dumps(content))
    told = run(study, "--out", tmp_path / "out", code=2)
    assert "no finished registration" in told and not (tmp_path / "out").exists()


def test_names_are_those_of_labels_that_are_not_merged(tmp_path: Path):
    study = study_of(tmp_path / "study", ["f.nii"])
    images.write(tmp_path / "fixed.nii.gz", Image(LABELS, SPACING))
    table = tmp_path / "names.csv"
    table.write_text("id,name,structure\n7,outer,shell\n2,inner,core\n1,none,\n")
    given = ("--fixed-labels", tmp_path / "fixed.nii.gz", "--labels-csv", table)
    said = json.loads(run(study, "--out", tmp_path / "out", *given, "--json"))
    assert [(each["label"], each["name"]) for each in said["labels"]] == [
        (2, "inner"),
        (7, "outer"),
    ]
    (tmp_path / "pairs.csv").write_text("id,fixed,moving\nother,f.nii,m.nii\n")
    words = ("--out", tmp_path / "none", "--pairs", tmp_path / "pairs.csv")
    assert "pairs.csv has no subject: its ids are such as other" in run(study, *words, code=2)


def test_a_large_study(tmp_path: Path):
    """A summary may be larger than a stranger's list."""
    rows = [
        studies.PairRow(f"sub-{k:05}", "f.nii", "m.nii", status="done", warnings=["long " * 2000])
        for k in range(2_000)
    ]
    studies.Study(rows).save(tmp_path)
    assert (tmp_path / "summary.json").stat().st_size > 16 << 20
    unreadable("sub-00000 does not exist", studies.morphometry, tmp_path)


def test_bad_studies(tmp_path: Path):
    out = tmp_path / "out"
    several = study_of(tmp_path / "several", ["f.nii", "g.nii"])
    assert "results of 2 fixed images" in run(several, "--out", out, code=2)
    (tmp_path / "empty").mkdir()
    assert "summary.json cannot be read" in run(tmp_path / "empty", "--out", out, code=3)
    (tmp_path / "list.csv").write_text("file\na.h5\n")
    assert "column transform" in run(tmp_path / "list.csv", "--out", out, code=3)
    (tmp_path / "list.csv").write_text("transform\nnothing.h5\n")
    assert "nothing.h5 does not exist" in run(tmp_path / "list.csv", "--out", out, code=3)
    assert not out.exists()

    other = Field(np.zeros((3, 9, 9, 9), np.float32), Image(np.zeros((9, 9, 9))).grid, GRID)
    both, says = {"a": scaled(1.1), "b": other}, "b was registered to another image than a"
    refused(errors.GridMismatchError, says, studies.morphometry, both)
    invalid("on which grid", studies.morphometry, {"a": Transform.of(np.eye(4))})
    unreadable("twice", studies.morphometry, [studies.Item("a", scaled(1))] * 2)
    unreadable("no name for a folder", studies.morphometry, {"../a": scaled(1)})
    invalid("fwhm", studies.morphometry, {"a": scaled(1)}, fwhm=float("nan"))
    how = {"fixed_labels": Image(LABELS, (2, 2, 2))}
    given = (errors.GridMismatchError, "fixed labels", studies.morphometry)
    refused(*given, {"a": scaled(1)}, **how)
    field = sitk.DisplacementFieldTransform(sitk.Image([5, 5, 5], sitk.sitkVectorFloat64, 3))
    invalid("no linear part", studies.morphometry, {"a": Transform.of(field)}, affine=False)


def test_progress(tmp_path: Path):
    seen: list[Any] = []
    given, go_on = {name: scaled(1) for name in "abc"}, lambda r: seen.append(r) or r.message != "b"
    with pytest.raises(errors.CancelledError):
        studies.morphometry(given, tmp_path / "out", progress=go_on)
    assert [(r.message, r.done, r.total) for r in seen] == [("a", 1, 3), ("b", 2, 3)]
    assert not (tmp_path / "out").exists()


def test_a_list_is_not_written_over(tmp_path: Path):
    """The table of volumes has the name that a list of pairs may have."""
    listed = tmp_path / "volumes.csv"
    listed.write_text("id,fixed,moving\na,f.nii.gz,m.nii.gz\n", encoding="utf-8")
    before = listed.read_bytes()
    with pytest.raises(errors.InvalidArgumentError, match=r"pairs: .*volumes\.csv is where"):
        studies.morphometry(tmp_path, out=tmp_path, pairs=listed)
    assert [*tmp_path.iterdir()] == [listed] and listed.read_bytes() == before
