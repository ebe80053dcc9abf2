"""Templates: the mean of bodies with known places and shapes."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import SimpleITK as sitk
from html_tree import parsed

import morphseek
from helpers import QUICK, Command, blob, invalid
from morphseek import _files, errors, images, phantom
from morphseek.images import Image
from morphseek.studies import means, template
from morphseek.studies.fusion import Votes
from pace import limit

SHIFTS = np.array([[-3.0, 1, 0], [0, -2, 1], [3, 1, -1]])  # voxels along x, y, z; their mean is 0
FAST = {"iterations": 1, "refine": 5, "model": "none", "search": False, "threads": 1}


def affine(rng: np.random.Generator, scale: float = 0.3) -> np.ndarray:
    made = np.zeros((4, 4))
    made[:3] = rng.normal(0, scale, (3, 4))
    made[:3, 3] *= 200
    return np.asarray(scipy.linalg.expm(made))


def pushed(body: Image, voxels: float) -> Image:
    """Return a body whose middle is moved along x, computed only by SimpleITK."""
    z, y, x = np.indices(body.array.shape) / (np.array(body.array.shape)[:, None, None, None] - 1)
    push = np.exp(-12 * ((x - 0.5) ** 2 + (y - 0.5) ** 2 + (z - 0.5) ** 2))
    vectors = np.zeros((*body.array.shape, 3))
    vectors[..., 0] = voxels * push * body.spacing[0]
    field = sitk.GetImageFromArray(vectors, isVector=True)
    field.CopyInformation(body.to_sitk())
    bend = sitk.DisplacementFieldTransform(field)
    return body.like(sitk.GetArrayFromImage(sitk.Resample(body.to_sitk(), bend)))


@pytest.fixture(scope="module")
def body() -> Image:
    return phantom.make_pair(size=40).fixed


@pytest.fixture(scope="module")
def people(body: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Write three bodies, shifted by whole voxels, with labels."""
    folder = tmp_path_factory.mktemp("people")
    found: dict[str, Any] = {"folder": folder, "images": [], "labels": folder / "labels"}
    tissue = (body.array > np.percentile(body.array, 60)).astype(np.uint8)
    for k, shift in enumerate(SHIFTS.astype(int)):
        for name, array in (("images", body.array), ("labels", tissue)):
            (folder / name).mkdir(exist_ok=True)
            moved = np.roll(array, shift[::-1], axis=(0, 1, 2))
            images.write(folder / name / f"person-{k}.nii.gz", body.like(moved))
        found["images"].append(folder / "images" / f"person-{k}.nii.gz")
    return found


@pytest.mark.parametrize("seed", range(5))
def test_matrices_are_scipys(seed: int):
    matrix = affine(np.random.default_rng(seed))
    np.testing.assert_allclose(means.logarithm(matrix), scipy.linalg.logm(matrix), atol=1e-7)
    log = scipy.linalg.logm(matrix).real
    np.testing.assert_allclose(means.exponential(log), matrix, rtol=1e-9, atol=1e-9)


def test_the_mean_of_matrices():
    rng = np.random.default_rng(7)
    some = [affine(rng, 0.1) for _ in range(5)]
    mean = means.mean_matrix(some)
    left = np.mean([scipy.linalg.logm(np.linalg.solve(mean, m)).real for m in some], axis=0)
    np.testing.assert_allclose(left, 0, atol=1e-9)
    turned = means.mean_matrix([np.linalg.inv(m) for m in some])  # also for the inverse maps
    np.testing.assert_allclose(turned, np.linalg.inv(mean), atol=1e-8)
    volumes = [np.log(np.linalg.det(m)) for m in some]
    assert np.log(np.linalg.det(mean)) == pytest.approx(np.mean(volumes), abs=1e-9)
    half = np.diag([-1.0, -1, 1, 1])
    invalid("180 degrees", means.mean_matrix, [np.eye(4), half])


OPTIONS = ("--refine", 5, "--model", "none", "--search", "off", "--iterations", 1, "--warped")
IDS = [f"person-{k}" for k in range(3)]


@pytest.fixture(scope="module")
def built(people: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the command once; return its folder and its text."""
    out = tmp_path_factory.mktemp("template") / "out"
    command = Command(out.parent / "cache")
    words = [people["folder"], "--out", out, *OPTIONS]
    return out, command("build-template", *words)


def test_shifts_meet_in_the_middle(body: Image, built: tuple[Path, str], tmp_path: Path):
    found = morphseek.Template.read(built[0])
    points = (body.index_to_physical @ np.c_[np.full((1, 3), 20.0), [1]].T)[:3].T
    for shift, transform in zip(SHIFTS, found.transforms):
        moved = (transform.transform_points(points) - points) / body.spacing
        np.testing.assert_allclose(moved[0], shift, atol=0.15)
    last = found.iterations[-1]
    assert last.mean_voxels is not None and last.mean_voxels < 0.05
    assert [i.kind for i in found.iterations] == ["mean", "rigid", "affine", "deformable"]
    assert found.labels is not None and found.mean_dice() > 0.9  # type: ignore[operator]
    card = parsed(found._repr_html_())
    assert "Template of 3 images" in card.text and ["iterations", "3"] in card.one("table").rows()
    assert card.one("img")["src"].startswith("data:image/png;base64,")
    # the template is the body itself at its place before the shifts
    there = found.image.to_sitk()
    again = sitk.GetArrayFromImage(sitk.Resample(there, body.to_sitk(), sitk.Transform()))
    inner = (slice(8, -8),) * 3
    assert np.corrcoef(again[inner].ravel(), body.array[inner].ravel())[0, 1] > 0.97
    # what is saved anew is read as it was, and the table has its rows
    found.save(tmp_path)
    assert morphseek.Template.read(tmp_path).to_dict() == found.to_dict()
    found.to_csv(tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["id", *IDS] and "3 used" in repr(found)


def test_bends_cancel_out(body: Image):
    """The template of a body pushed equally far to the left and to the right is pushed to neither
    side, although it starts from one of them.
    """
    people = [pushed(body, v) for v in (-2.0, 2.0)]
    found = morphseek.build_template(
        people, start=0, iterations=2, model="none", threads=2, initial="rigid"
    )
    assert found.iterations[0].kind == "image"
    assert found.iterations[-1].mean_voxels < 0.05  # type: ignore[operator]
    inner = (slice(8, -8),) * 3

    def apart(one: np.ndarray) -> float:
        return float(np.abs(one[inner] - body.array[inner]).mean())

    there = sitk.Resample(found.image.to_sitk(), body.to_sitk(), sitk.Transform())
    assert apart(sitk.GetArrayFromImage(there)) < 0.8 * apart(people[0].array)


def test_the_command(people, built, tmp_path, command):
    out, text = built
    assert "labels, mean Dice" in text and "3: " in text
    names = {"template.nii.gz", "labels.nii.gz", "template.html", "template.json"}
    names |= {f"transform_{id}.h5" for id in IDS} | {f"warped_{id}.nii.gz" for id in IDS}
    assert {p.name for p in out.iterdir()} == names
    facts = json.loads((out / "template.json").read_text())
    assert set(facts["files"]) == names - {"template.json"}
    page = (out / "template.html").read_text()
    tree = parsed(page)
    assert len(tree.all("img")) == 4 + 3 and len(tree.all("circle")) >= 12
    assert not tree.all("script") and len(tree.one("table").rows()) == 1 + 3
    assert "http" not in page.replace("http-equiv", "") and "person-2" in page
    # each warped image is ITK's result with its transform
    template = sitk.ReadImage(str(out / "template.nii.gz"))
    moving = sitk.ReadImage(str(people["images"][2]))
    there = sitk.ReadTransform(str(out / "transform_person-2.h5"))
    low = float(sitk.GetArrayViewFromImage(moving).min())
    made = sitk.Resample(moving, template, there, sitk.sitkLinear, low)
    warped = sitk.ReadImage(str(out / "warped_person-2.nii.gz"))
    np.testing.assert_allclose(
        sitk.GetArrayFromImage(warped), sitk.GetArrayFromImage(made), atol=1e-3
    )
    # a table of the same images and labels reads the result; others are refused, nothing changes
    stamp = os.stat(out / "template.json").st_mtime_ns
    table = tmp_path / "people.csv"
    rows = [f"{p},{people['labels'] / p.name},{id}" for p, id in zip(people["images"], IDS)]
    table.write_text("\n".join(["image,labels,id", *rows]) + "\n")
    command("build-template", table, "--out", out, *OPTIONS)
    text = command("build-template", *people["images"][:2], "--out", out, *OPTIONS, expect=6)
    assert "template.json is of a template of other images" in text
    assert os.stat(out / "template.json").st_mtime_ns == stamp


@pytest.mark.thorough
def test_a_kill_loses_one_pair(people: dict[str, Any], tmp_path: Path, command: Command):
    out, whole = tmp_path / "out", tmp_path / "whole"
    words = [
        "build-template",
        *people["images"],
        "--iterations",
        1,
        "--model",
        "none",
        "--refine",
        20,
    ]
    process = command.start(*words, "--out", out)
    first, state = (out / "rounds" / n for n in ("pairs/_person-0/pair.json", "round.json"))
    deadline = time.monotonic() + limit(60)

    def is_in_the_second_round() -> bool:
        return first.exists() and len(json.loads(state.read_text())["iterations"]) == 2

    while not is_in_the_second_round() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert first.exists() and not (out / "template.json").exists()
    stamp = os.stat(state).st_mtime_ns
    done = os.stat(first).st_mtime_ns
    text = command("build-template", *people["images"][:2], "--out", out, expect=6)  # other work
    assert "round.json is of a template of other images" in text
    assert os.stat(first).st_mtime_ns == done
    assert os.stat(state).st_mtime_ns == stamp
    command(*words, "--out", out)
    command(*words, "--workers", 2, "--out", whole)  # workers give the same
    got, wanted = (
        sitk.GetArrayFromImage(sitk.ReadImage(str(f / "template.nii.gz"))) for f in (out, whole)
    )
    np.testing.assert_allclose(got, wanted, atol=1e-3 * np.ptp(wanted))
    assert not (out / "rounds").exists()


def test_an_image_that_shows_something_else_is_left_out(people: dict[str, Any], tmp_path: Path):
    body = images.read(people["images"][0])
    noise = np.random.default_rng(3).normal(0, 100, body.array.shape).astype(np.float32)
    found = morphseek.build_template(
        [*people["images"], body.like(noise)], tmp_path / "out", start=0,
        **{**FAST, "iterations": 0, "initial": "rigid"},
    )  # fmt: skip
    assert not found.rows[3].is_used and found.rows[3].reasons
    assert found.iterations[-1].left_out == ["image-0003"] and "3 used" in repr(found)
    assert "Left out." in (tmp_path / "out" / "template.html").read_text()


@pytest.mark.parametrize("error", [errors.DiskFullError, errors.OutOfMemoryError])
def test_an_error_that_is_no_images_is_the_calls(error, tmp_path, monkeypatch):
    """A full disk leaves no image out: the call fails, and goes on when there is room again."""
    people = [blob(), blob(shift=0.05), blob(shift=-0.05)]
    options: dict[str, Any] = {"iterations": 0, "initial": "rigid", "threads": 1}
    write_text = _files.write_text

    def write(path: Path, text: str) -> None:
        if path.name == "pair.json" and "_image-0001" in str(path):
            raise error("no room")
        write_text(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(_files, "write_text", write)
        with pytest.raises(error, match="template, round 1: no room"):
            morphseek.build_template(people, tmp_path / "out", **options)
    assert not (tmp_path / "out" / "template.json").exists()
    pair = tmp_path / "out" / template.ROUNDS / "pairs" / "_image-0000" / "pair.json"
    stamp, registered = os.stat(pair).st_mtime_ns, template.register_pairs

    def counted(*given: Any, **how: Any) -> Any:
        study = registered(*given, **how)
        assert [row.status for row in study.rows] == ["skipped", "done", "skipped"]
        assert os.stat(pair).st_mtime_ns == stamp
        return study

    monkeypatch.setattr(template, "register_pairs", counted)
    found = morphseek.build_template(people, tmp_path / "out", **options)
    assert all(row.is_used for row in found.rows)


def test_votes():
    maps = np.array([[1, 1, 2, 0, 3], [1, 2, 2, 0, 3], [1, 3, 0, 1, 0]])
    votes, everywhere = Votes(4, 5), np.ones(5, bool)
    for labels, reach in zip(maps, (everywhere, everywhere, np.arange(5) != 3)):
        votes.add(labels, reach)  # the last one abstains where it does not reach
    labels, share = votes.result()
    np.testing.assert_array_equal(labels, [1, 1, 2, 0, 3])
    np.testing.assert_allclose(share, [1, 1 / 3, 2 / 3, 1, 2 / 3])
    stack = [sitk.GetImageFromArray(m[None, :3].astype(np.uint8)) for m in maps]
    voted = sitk.GetArrayFromImage(sitk.LabelVoting(stack, 99))[0]
    sure = voted != 99
    np.testing.assert_array_equal(labels[:3][sure], voted[sure])
    votes.add(maps[0], -1 * everywhere)
    np.testing.assert_array_equal(votes.result()[0], [1, 2, 0, 0, 0])


def bad(folder: Path) -> dict[str, tuple[Any, type[Exception], str]]:
    body = Image(blob())
    names = ("good", "other", "flat", "empty", "there", "far", "half")
    good, other, flat, empty, there, far, half = (folder / f"{n}.nii.gz" for n in names)
    images.write(good, body)
    images.write(other, Image(blob(shift=0.1)))
    sitk.WriteImage(sitk.GetImageFromArray(body.array[0]), str(flat))
    images.write(empty, body.like(np.zeros_like(body.array)))
    there.write_bytes(b"")
    images.write(far, Image(np.ones(body.array.shape, np.uint8), origin=(50.0, 0, 0)))
    images.write(half, body.like(np.full(body.array.shape, 0.5, np.float32)))
    two, wrong = [good, other], errors.InvalidArgumentError
    table = folder / "list.csv"
    table.write_text("picture\na\n")
    return {
        "one": ([good], wrong, "1 image: .*good.nii.gz; a mean needs two"),
        "none": ([], errors.InputUnreadableError, "there is no image"),
        "a path": (good, wrong, "1 image: .*good.nii.gz"),
        "some labels": ([(good, good), other], wrong, "other.nii.gz has no label map"),
        "missing": ([good, folder / "no.nii.gz"], errors.InputUnreadableError, "no.nii.gz"),
        "zero bytes": ([good, there], errors.InputUnreadableError, "there.nii.gz"),
        "constant": ([good, empty], errors.ConstantVolumeError, "empty.nii.gz shows nothing"),
        "flat": ([good, flat], errors.ThinVolumeError, "flat.nii.gz"),
        "labels elsewhere": ([(p, far) for p in two], errors.GridMismatchError, "far.nii.gz"),
        "no labels": ([(p, half) for p in two], wrong, "half.nii.gz have the value 0.5"),
        "a table": (table, errors.InputUnreadableError, "list.csv needs a header"),
    }


@pytest.mark.parametrize(
    "case",
    ["one", "none", "a path", "some labels", "missing", "zero bytes", "constant", "flat",
     "labels elsewhere", "no labels", "a table"],
)  # fmt: skip
def test_bad_input(case: str, tmp_path: Path):
    given, error, says = bad(tmp_path)[case]
    out = tmp_path / "out"
    with pytest.raises(error, match=says.replace(".nii", r"\.nii")):
        morphseek.build_template(given, out)
    assert not out.exists()


@pytest.mark.parametrize(
    "options, says",
    [
        (dict(average="mode"), "mean or median"),
        (dict(iterations=-1), "whole number from 0"),
        (dict(workers=0), "whole number from 1"),
        (dict(sharpen=2), "from 0 to 1"),
        (dict(spacing=0), "from 0.001"),
        (dict(start=2), "start is 2; it must be a whole number from 0 to 1"),
        (dict(start=0, spacing=2.0), "gives the template its grid; leave it out"),
        (dict(iterations=0, initial="com"), "nothing is left to do"),
        (dict(bogus=1), "bogus"),
    ],
)
def test_bad_options(options: dict[str, Any], says: str, tmp_path: Path):
    invalid(says, morphseek.build_template, [blob(), blob(shift=0.1)], tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_other_work_stays(tmp_path: Path):
    people = [blob(), blob(shift=0.1)]
    (tmp_path / "template.nii.gz").write_text("somebody's")
    with pytest.raises(errors.OutputUnwritableError, match=r"template\.nii\.gz is there"):
        morphseek.build_template(people, tmp_path, **FAST)
    notes = tmp_path / "two" / "rounds" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("somebody's")
    with pytest.raises(errors.OutputUnwritableError, match="notes.txt is there"):
        morphseek.build_template(people, tmp_path / "two", **FAST)
    assert (tmp_path / "template.nii.gz").read_text() == "somebody's"
    assert [*notes.parent.iterdir()] == [notes]


def test_it_is_cancelled_and_tells_how_far_it_is(tmp_path: Path):
    told: list[morphseek.Progress] = []
    people = [blob(), blob(shift=0.05)]
    morphseek.build_template(people, progress=told.append, iterations=0, threads=1)
    fractions = [report.fraction for report in told]
    assert fractions == sorted(fractions) and 0.8 < fractions[-1] <= 1
    with pytest.raises(errors.CancelledError):
        morphseek.build_template(people, tmp_path / "out", progress=lambda report: False, **FAST)
    assert (tmp_path / "out" / "rounds" / "round.json").exists()


def test_a_median_and_sharpening():
    people = [blob(), blob(shift=0.05), blob(shift=-0.05)]
    plain, sharp, median = (
        morphseek.build_template(people, iterations=0, initial="rigid", threads=1, **how)
        for how in ({}, {"sharpen": 0.5}, {"average": "median"})
    )
    assert sharp.iterations[0].gradient > plain.iterations[0].gradient
    assert not np.array_equal(median.image.array, plain.image.array)
    assert sharp.settings["sharpen"] == 0.5


def test_a_pair_of_a_list_starts_from_a_transform(pair, files, tmp_path):
    """The column of initial transforms, which the template's rounds use, works in any list."""
    shift = np.eye(4)
    shift[0, 3] = 7.0
    morphseek.Transform.of(shift).save(tmp_path / "start.tfm")
    row = {"fixed": files["fixed"], "moving": files["moving"], "id": "a",
           "initial_transform": tmp_path / "start.tfm"}  # fmt: skip
    options = {**QUICK, "initial": "none"}
    morphseek.register_pairs([row], tmp_path / "out", report="none", **options)
    np.testing.assert_allclose(
        morphseek.Registration.read(tmp_path / "out" / "a").transform.initial, shift, atol=1e-6
    )
