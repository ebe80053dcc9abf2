"""Labels by several atlases: registered, fused, resumed, refused."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from helpers import FLAGS, QUICK, Command, blob, invalid
from morphseek import errors, images, studies
from morphseek.cli import app
from morphseek.studies import Item, Study, labels


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    folder, items = tmp_path_factory.mktemp("people"), []
    for name, shift in (("a", 0.0), ("b", 0.1), ("c", 0.2), ("d", -0.1)):
        image = images.Image(blob(shift=shift), (2.0, 2.0, 3.0))
        item = Item(name, folder / f"{name}.nii.gz", folder / f"{name}_dseg.nii.gz")
        images.write(item.image, image)
        images.write(item.labels, image.like((image.array > 0.3).astype(np.uint8) * 4))
        items.append(item)
    return items


def rows_of(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "volumes.csv").read_text(encoding="utf-8").splitlines()))


def test_labels_by_atlases(people: list[Item], tmp_path: Path):
    (tmp_path / "broken.nii.gz").write_bytes(b"")
    atlases = [*people[1:], Item("broken", tmp_path / "broken.nii.gz", people[0].labels)]
    targets, out = people[:2], tmp_path / "out"

    def run(targets: list[Item], **more: Any) -> studies.LabelStudy:
        return studies.propagate_labels(targets, atlases, out, names={4: "body"}, **more, **QUICK)

    study = run(targets, workers=2)
    first, second = study.rows
    assert (first.voters, second.voters) == (["b", "c", "d"], ["c", "d"])
    assert len(first.left_out) == 1 and "broken.nii.gz" in first.left_out[0]
    assert first.status == "done" and study.exit_code == 0 and first.dice > 0.9
    found = images.read(out / "a" / "labels.nii.gz").array
    agreement = images.read(out / "a" / "agreement.nii.gz").array
    assert found.dtype == np.uint8 and set(np.unique(found)) == {0, 4}
    each = [
        images.read(out / "registrations" / f"a_from_{name}" / "warped_labels.nii.gz").array
        for name in first.voters
    ]
    votes = np.mean([array == 4 for array in each], 0)
    assert (found[votes > 0.5] == 4).all()
    np.testing.assert_allclose(agreement[found == 4], votes[found == 4], atol=1e-6)
    row = next(row for row in rows_of(out) if row["id"] == "a")
    assert row["name"] == "body" and float(row["mm3"]) == pytest.approx((found == 4).sum() * 12)
    content = json.loads((out / "labels.json").read_text(encoding="utf-8"))
    assert content["summary"]["targets"] == 2 and content["rows"][0]["dice"] == first.dice
    assert content["rows"] == study.to_dict()["rows"]

    again = run(targets)
    assert [row.status for row in again.rows] == ["skipped"] * 2
    assert again.rows[0].labels == first.labels and again.rows[0].left_out == first.left_out
    (out / "b" / "agreement.nii.gz").write_bytes(b"")  # what is not whole is done again
    assert [row.status for row in run(targets).rows] == ["skipped", "done"]
    joint = run(targets, fusion="joint")
    assert [row.status for row in joint.rows] == ["done"] * 2 and joint.rows[0].dice > 0.9

    # a target of an earlier call keeps its rows as long as its folder is there
    for left in ({"a", "b"}, {"b"}):
        run(targets[1:], fusion="joint")
        assert {row["id"] for row in rows_of(out)} == left
        content = json.loads((out / "labels.json").read_text(encoding="utf-8"))
        assert {target["id"] for target in content["rows"]} == left
        shutil.rmtree(out / "a", ignore_errors=True)

    alone = studies.propagate_labels(targets[:1], atlases[-1:], tmp_path / "none", **QUICK)
    assert alone.rows[0].status == "failed" and alone.exit_code == 3
    assert not (tmp_path / "none" / "a").exists()


def test_a_target_whose_labels_fail_does_not_stop_the_others(people: list[Item], tmp_path: Path):
    """Its own map is on another grid by the time that it is measured by it."""
    own = tmp_path / "own.nii.gz"
    shutil.copy(people[0].labels, own)
    targets = [Item("x", people[0].image, own), people[1]]
    real = labels.FusionJob.inputs

    def inputs(job: labels.FusionJob) -> dict[str, list[Path]]:
        images.write(own, images.Image(np.zeros((3, 3, 3), np.uint8)))
        return real(job)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(labels.FusionJob, "inputs", inputs)
        study = studies.propagate_labels(targets, people[2:], tmp_path / "out", **QUICK)
    bad, good = study.rows
    assert (bad.status, bad.error, good.status) == ("failed", "GridMismatchError", "done")
    assert not list((tmp_path / "out" / "x").glob("*"))
    assert {row["id"] for row in rows_of(tmp_path / "out")} == {"b"}


def test_labels_that_lie_elsewhere_are_told(people: list[Item], tmp_path: Path):
    """An atlas's map of another origin carries nothing over."""
    far = tmp_path / "far.nii.gz"
    image = images.read(people[2].labels)
    images.write(far, dataclasses.replace(image, origin=(900.0, 0, 0)))
    atlases = [people[1], Item("far", people[2].image, far)]
    (row,) = studies.propagate_labels(people[:1], atlases, tmp_path / "out", **QUICK).rows
    (told,) = row.warnings
    assert told.startswith(f"{far}: none of its labels") and row.dice > 0.5


def test_an_atlas_of_other_labels(people: list[Item], tmp_path: Path, command: Command):
    """Its own overlap with the target is not known; that of the others is."""
    other = people[2].labels.with_name("other.nii.gz")
    image = images.read(people[2].labels)
    images.write(other, image.like(image.array * 2))
    table = tmp_path / "atlases.csv"
    lines = [f"{people[1].image},{people[1].labels}", f"{people[3].image},{people[3].labels}"]
    table.write_text("\n".join(["image,labels", *lines, f"{people[2].image},{other}"]))
    target = tmp_path / "target.csv"
    target.write_text(f"image,labels\n{people[0].image},{people[0].labels}\n")
    words = ("propagate-labels", target, "--atlases", table, "--out", tmp_path / "out", *FLAGS)
    row = command.json(*words)["rows"][0]
    assert len(row["voters"]) == 3 and 0 < row["dice_of_one"] < 1
    assert "one atlas alone" in command(*words)


def test_a_failed_verdict_does_not_vote(people, tmp_path, monkeypatch):
    real = labels.register_pairs

    def judged(*given: Any, **more: Any) -> Study:
        study = real(*given, **more)
        study.rows[0].verdict, study.rows[0].reasons = "failed", ["They are mirrored."]
        return study

    monkeypatch.setattr(labels, "register_pairs", judged)
    study = studies.propagate_labels(people[:1], people[1:], tmp_path / "out", **QUICK)
    assert study.rows[0].voters == ["c", "d"]
    assert study.rows[0].left_out == ["b: the verdict is failed. They are mirrored."]


@pytest.mark.parametrize("name", ["x.", "volumes.csv", "Labels.json", "registrations", "COM1",
                                  "a/b", "a:b", "x" * 256, " x"])  # fmt: skip
def test_targets_whose_ids_make_no_names(name: str, tmp_path: Path):
    targets = [Item(name, tmp_path / "t.nii.gz")]
    with pytest.raises(errors.InputUnreadableError, match="no name for a folder"):
        studies.propagate_labels(targets, [("a.nii", "l.nii")], tmp_path / "out")
    if name.strip() == name:  # the cells of a table are stripped
        table = tmp_path / "t.csv"
        table.write_text(f'image,id\nt.nii.gz,"{name}"\n')
        words = ["propagate-labels", table, "--atlas", "a.nii", "l.nii", "--out", tmp_path / "out"]
        found = CliRunner().invoke(app, [*map(str, words)])
        assert "no name for a folder" in found.output, found.output
    assert not (tmp_path / "out").exists()


def test_images_in_memory_are_refused(people: list[Item], tmp_path: Path):
    where = tmp_path / "out"
    invalid("takes paths", studies.propagate_labels, [np.zeros((8, 8, 8))], people, where)


def test_command(people: list[Item], tmp_path: Path, command: Command):
    out = tmp_path / "out"
    text = command(
        "propagate-labels", people[0].image, "--atlas", people[1].image, people[1].labels,
        "--out", out, *FLAGS,
    )  # fmt: skip
    assert "1 labels by 1 atlases" in text and (out / "volumes.csv").exists()
    (tmp_path / "t.csv").write_text("image\na.nii\n")
    for arguments, says in (
        (["a.nii"], "give the atlases"),
        (["a.nii", "--atlases", tmp_path / "t.csv"], "has no label map"),
    ):
        process = command.start("propagate-labels", *arguments, "--out", tmp_path / "o", "--json")
        told, _ = process.communicate(timeout=60)
        assert process.returncode in (2, 3) and says in told and not (tmp_path / "o").exists()
