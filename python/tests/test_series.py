"""Time series whose frames were moved by known motions."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from html_tree import parsed
from scipy.spatial.transform import Rotation

import morphseek
from helpers import Command, blob, invalid, unreadable, write_cine
from morphseek import errors, images, phantom
from morphseek.images import Image
from morphseek.studies import Series, motion

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import truth

RAS = np.diag([-1.0, -1.0, 1.0])


def moved(body: Image, shift: np.ndarray, turn: np.ndarray, rng: np.random.Generator) -> Image:
    """Return a body, with noise, after a rotation about the image's centre (radians about x, y, z
    in this order) and a shift (mm), both in RAS, computed only by SimpleITK and scipy.
    """
    to = sitk.AffineTransform(3)
    to.SetCenter(center_of(body).tolist())
    to.SetMatrix((RAS @ Rotation.from_euler("xyz", turn).as_matrix() @ RAS).ravel().tolist())
    to.SetTranslation((RAS @ shift).tolist())
    image = body.to_sitk()
    found = sitk.Resample(image, image, to.GetInverse(), sitk.sitkLanczosWindowedSinc)
    array = sitk.GetArrayFromImage(found)
    noise = rng.normal(0, 0.01 * np.percentile(body.array, 99), array.shape)
    return body.like((array + noise).astype(np.float32))


def center_of(body: Image) -> np.ndarray:
    size = body.grid.size
    return np.array(
        body.to_sitk().TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in size])
    )


def expected(body: Image, shift: np.ndarray, turn: np.ndarray, points: np.ndarray) -> np.ndarray:
    about, turned = center_of(body), Rotation.from_euler("xyz", turn)
    return np.asarray(turned.apply((points - about) @ RAS) @ RAS + about + shift @ RAS)


@pytest.fixture(scope="module")
def head() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    body = phantom.make_pair(size=48).fixed
    shifts = np.array([[0, 0, 0], [3, -2, 1], [-4, 1, 5], [6, 2.5, -3]], float)
    turns = np.array([[0, 0, 0], [0.02, -0.01, 0.03], [-0.03, 0.02, 0.01], [0.01, 0.04, -0.02]])
    frames = [moved(body, s, t, rng) for s, t in zip(shifts, turns)]
    return {"frames": frames, "shifts": shifts, "turns": turns, "body": body}


@pytest.fixture(scope="module")
def stack(head: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("series") / "bold.nii.gz"
    sitk.WriteImage(sitk.JoinSeries([f.to_sitk() for f in head["frames"]], 0.5, 2.2), str(path))
    return path


@pytest.fixture(scope="module")
def found(head: dict[str, Any]) -> Series:
    return morphseek.correct_motion(head["frames"], reference="first", consistent=True)


def test_the_motion_comes_back(head: dict[str, Any], found: Series):
    body = head["body"]
    at = np.random.default_rng(1).uniform(0.25, 0.75, (60, 3)) * body.grid.size
    points = (body.index_to_physical @ np.c_[at, np.ones(60)].T)[:3].T
    for k, frame in enumerate(found.rows):
        truth = expected(body, head["shifts"][k], head["turns"][k], points)
        off = np.linalg.norm(frame.transform.transform_points(points) - truth, axis=1)
        assert off.mean() < 0.1 * min(body.spacing), (k, off.mean())
        np.testing.assert_allclose(
            frame.parameters[:3], head["shifts"][k], atol=0.1 * min(body.spacing)
        )
        np.testing.assert_allclose(frame.parameters[3:], head["turns"][k], atol=0.004)
        assert frame.verdict == "good"
    # after the correction the tissue lies still
    tissue = motion.tissue_of(found.reference, None)
    before = np.std([f.array[tissue] for f in head["frames"]], axis=0).mean()
    after = np.std([f.array[tissue] for f in found.corrected], axis=0).mean()
    assert after < 0.6 * before, (before, after)
    # direct and frame-to-frame motions agree; the anchor has only one of them
    assert found.rows[0].start == "reference" and found.rows[0].disagreement_mean is None
    apart = [f.disagreement_mean for f in found.rows if f.disagreement_mean is not None]
    assert len(apart) == 3 and max(apart) < 0.2 * min(body.spacing)


def test_onto_the_mean(head: dict[str, Any]):
    """The mean lies at the middle frame's place, so motions differ only by that frame's."""
    found = morphseek.correct_motion(head["frames"])
    card = parsed(found._repr_html_())
    assert "4 good, 0 check, 0 failed" in card.text and len(card.one("table").rows()) == 5
    body = head["body"]
    at = np.random.default_rng(1).uniform(0.25, 0.75, (60, 3)) * body.grid.size
    points = (body.index_to_physical @ np.c_[at, np.ones(60)].T)[:3].T
    for k, frame in enumerate(found.rows):
        truth = expected(body, head["shifts"][k], head["turns"][k], points)
        middle = expected(body, head["shifts"][2], head["turns"][2], points)
        off = np.linalg.norm(frame.transform.transform_points(middle) - truth, axis=1)
        assert off.mean() < 0.1 * min(body.spacing), (k, off.mean())
    assert all(frame.error_mm is not None for frame in found.rows)


@pytest.mark.parametrize("seed", range(6))
def test_parameters_are_scipys(seed: int):
    rng = np.random.default_rng(seed)
    center, shift = rng.normal(0, 50, 3), rng.normal(0, 5, 3)
    turn = Rotation.from_rotvec(rng.normal(0, 0.3, 3))
    matrix = np.eye(4)
    matrix[:3, :3] = RAS @ turn.as_matrix() @ RAS
    matrix[:3, 3] = center + RAS @ shift - matrix[:3, :3] @ center
    got = motion.parameters(matrix, center)
    np.testing.assert_allclose(got, [*shift, *turn.as_euler("xyz")], atol=1e-9)
    stretched = matrix.copy()  # only the nearest rotation must count
    stretched[:3, :3] = matrix[:3, :3] @ np.diag([1.01, 1.01, 1.01])
    np.testing.assert_allclose(motion.parameters(stretched, center)[3:], got[3:], atol=1e-9)


def test_framewise_displacement():
    """Power 2012 by hand: shifts of .1 + .2 + .3 mm, and turns of .01 and .02 rad at 50 mm."""
    rows = [np.zeros(6), np.array([0.1, -0.2, 0.3, 0.01, -0.02, 0]), np.zeros(6)]
    steps = [motion.framewise_displacement(*two) for two in zip(rows, rows[1:])]
    np.testing.assert_allclose(steps, [0.6 + 50 * 0.03] * 2)


def outputs(frames: int) -> set[str]:
    return {*motion.FILES, motion.SEAL, *(f"transform_{k:04}.h5" for k in range(frames))}


def test_the_command(head: dict[str, Any], stack: Path, tmp_path: Path, command: Command):
    out = tmp_path / "out"
    text = command("motion", stack, "--reference-frame", "0", "--out", out)
    assert "framewise displacement" in text and "4 good" in text
    assert {p.name for p in out.iterdir()} == outputs(4)
    assert f"morphseek motion {stack}" in (out / "series.html").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in (out / "motion.tsv").read_text().splitlines()]
    assert rows[0][:7] == [
        "trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z", "framewise_displacement",
    ]  # fmt: skip
    table = np.array([[float(v) for v in row[:6]] for row in rows[1:]])
    np.testing.assert_allclose(table[:, :3], head["shifts"], atol=0.1 * min(head["body"].spacing))
    np.testing.assert_allclose(table[:, 3:], head["turns"], atol=0.004)
    moved = np.abs(np.diff(table * [1, 1, 1, 50, 50, 50], axis=0)).sum(axis=1)
    assert rows[1][6] == "n/a"
    np.testing.assert_allclose([float(row[6]) for row in rows[2:]], moved, atol=1e-3)
    # the repetition time stays, and every frame is what ITK makes of its transform
    corrected, before = (sitk.ReadImage(str(p)) for p in (out / "corrected.nii.gz", stack))
    assert corrected.GetSize() == before.GetSize() and corrected.GetPixelID() == before.GetPixelID()
    np.testing.assert_allclose(corrected.GetSpacing(), before.GetSpacing(), rtol=1e-6)
    assert corrected.GetOrigin()[3] == 0.5
    last = sitk.Extract(before, [*before.GetSize()[:3], 0], [0, 0, 0, 3])
    low = float(sitk.GetArrayViewFromImage(last).min())
    made = sitk.Resample(
        last, last, sitk.ReadTransform(str(out / "transform_0003.h5")), sitk.sitkLinear, low
    )
    got = sitk.GetArrayFromImage(corrected)[3]
    np.testing.assert_allclose(got, sitk.GetArrayFromImage(made), atol=1e-3)
    # ITK reads the sequence's frames as channels; the times are in the header
    sequence = sitk.ReadImage(str(out / "corrected.seq.nrrd"))
    assert sequence.GetNumberOfComponentsPerPixel() == 4
    np.testing.assert_array_equal(sitk.GetArrayFromImage(sequence)[..., 3], got)
    np.testing.assert_allclose(sequence.GetOrigin(), last.GetOrigin(), atol=1e-4)
    head_text = (out / "corrected.seq.nrrd").read_bytes()[:900]
    assert b"axis 0 index values:=0.5 2.7 4.9 7.1" in head_text and b'units: "s"' in head_text
    facts = json.loads((out / "series.json").read_text())
    assert facts["verdicts"]["good"] == 4 and len(facts["rows"]) == 4
    assert set(facts["files"]) == outputs(4) - {"series.json"}
    # it is read back, and its table has a row a frame
    back = Series.read(out)
    assert {**back.to_dict(), "files": facts["files"]} == facts
    assert repr(back) == "Series(4 frames: 4 good, 0 check, 0 failed)"
    np.testing.assert_array_equal(back.corrected[3].array, got)
    assert back.step == pytest.approx(2.2) and back.rows[3].transform.is_linear
    back.to_csv(tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines[0].startswith("frame,name,trans_x,") and len(lines) == 5
    page = (out / "series.html").read_text()
    tree = parsed(page)
    assert len(tree.all("circle")) >= 4 * 8 and "frame 3 of" in page and not tree.all("script")
    titles = [figure.one("figcaption").text.partition(":")[0] for figure in tree.all("figure")]
    assert titles[0] == "Shift, mm" and len(titles) >= 4
    assert len(tree.one("table").rows()) == 5 and "--reference-frame 0" in tree.one("code").text
    # a series of fewer frames takes this one's place, and leaves none of its files behind
    pair = [tmp_path / f"{k}.nii.gz" for k in range(2)]
    for path, frame in zip(pair, head["frames"]):
        images.write(path, frame)
    command("motion", *pair, "--reference-frame", "first", "--out", out)
    assert {p.name for p in out.iterdir()} == outputs(2)
    assert b'labels: "frame"' in (out / "corrected.seq.nrrd").read_bytes()[:900]


def test_a_sequence_of_slicer(head: dict[str, Any], tmp_path: Path):
    """The frames of what write_sequence wrote are those of the images, with their times."""
    path, frames = tmp_path / "a.seq.nrrd", head["frames"]
    for index, unit, step in (
        ([0.5, 2.7, 4.9, 7.1], "s", 2.2),
        ([500, 2700, 4900, 7100], "ms", 2.2),
        ([0.5, 2.7, 4.9, 9], "s", 1),
        (None, "", 1),
    ):
        images.write_sequence(path, frames, index, "time", unit)
        scan = motion.read_scan([path])
        assert scan.step == pytest.approx(step) and scan.start == (0.5 if step > 2 else 0)
        for got, frame in zip(scan.volumes, frames, strict=True):
            np.testing.assert_array_equal(got.array, frame.array)
            assert got.same_grid(frame) and f" of {path}" in got.name
    images.write_sequence(path, frames[:2])
    found = morphseek.correct_motion(path, tmp_path / "out", reference="first")
    wanted = morphseek.correct_motion(frames[:2], reference="first")
    np.testing.assert_array_equal(found.rows[1].parameters, wanted.rows[1].parameters)
    images.write_sequence(path, frames[:1])
    invalid("holds 1 frame", morphseek.correct_motion, path)


def test_a_deformation(tmp_path: Path):
    """For tissue with a known bend, the table's displacements are the true ones."""
    body = phantom.make_pair(size=48).fixed
    z, y, x = np.indices(body.array.shape) / 47
    push = 1.5 * np.exp(-12 * ((x - 0.5) ** 2 + (y - 0.5) ** 2 + (z - 0.5) ** 2))
    vectors = np.zeros((*body.array.shape, 3))
    vectors[..., 0] = push * body.spacing[0]
    field = sitk.GetImageFromArray(vectors, isVector=True)
    field.CopyInformation(body.to_sitk())
    bend = sitk.DisplacementFieldTransform(field)
    bent = sitk.GetArrayFromImage(sitk.Resample(body.to_sitk(), bend))
    frames = [body, body.like(bent)]
    found = morphseek.correct_motion(frames, reference=1, motion="deformable", consistent=True)
    assert found.motion == "deformable" and found.rows[1].start == "reference"
    tissue = motion.tissue_of(found.reference, None)
    # the map of the resampling is the truth from the bent frame to the plain one
    got = found.rows[0].transform.displacement_mm(body)[tissue]
    truth = vectors[tissue]
    assert np.linalg.norm(got - truth, axis=1).mean() < 0.15 * np.linalg.norm(truth, axis=1).max()
    rigid = morphseek.correct_motion(frames, reference=1)
    assert (
        np.abs(found.corrected[0].array - bent)[tissue].mean()
        < 0.6 * np.abs(rigid.corrected[0].array - bent)[tissue].mean()
    )


def test_contrast_that_changes_tears_nothing():
    """Tissue changes sign from frame to frame, and noise is smooth: detail that the engine follows
    as between two people, or two contrasts, took points 1.7 voxels astray, and all was good.
    """
    frames = truth.inversion_recovery(96, 1, (180.0, 260.0))
    given = [frame.image for frame in frames]
    held, rigid = (
        morphseek.correct_motion(given, reference="first", motion=how)
        for how in ("deformable", "rigid")
    )
    voxel = given[0].GetSpacing()[0]
    for number, frame in enumerate(frames[1:], 1):
        ends, stays = (
            np.linalg.norm(
                s.rows[number].transform.transform_points(frame.first) - frame.here, axis=1
            )
            / voxel
            for s in (held, rigid)
        )
        assert ends.mean() < min(0.6, 0.8 * stays.mean()) and ends.max() < 2, number
        assert held.rows[number].verdict == "check", number
        assert motion.CHANGED in held.rows[number].reasons


def test_frames_of_one_contrast_are_registered_once(monkeypatch: pytest.MonkeyPatch):
    """A choice of the caller stays, and a frame that the engine took for one body is not held."""
    asked: list[dict[str, Any]] = []
    told: list[float] = []
    register = motion.register

    def counted(*pair: Any, **options: Any) -> Any:
        asked.append(options)
        return register(*pair, **options)

    monkeypatch.setattr(motion, "register", counted)
    body = phantom.make_pair(size=32).fixed
    frames = [body, body.like(np.roll(body.array, 1, axis=2))]
    quick: dict[str, Any] = {
        "reference": "first",
        "motion": "deformable",
        "model": "none",
        "refine": 10,
    }
    found = morphseek.correct_motion(frames, **quick)
    assert len(asked) == 1 and found.rows[1].verdict == "good"
    noise = np.random.default_rng(3).normal(0, 100, body.array.shape).astype(np.float32)
    other = [body, body.like(noise)]
    morphseek.correct_motion(
        other, similarity="ncc", progress=lambda report: told.append(report.fraction), **quick
    )  # fmt: skip
    assert len(asked) == 3 and told == sorted(told)
    assert asked[2]["similarity"] == "ncc" and asked[2]["smoothness"] == "high"


@pytest.mark.thorough
def test_the_worst_frame_comes_first(head: dict[str, Any], tmp_path: Path, command: Command):
    """A frame that shows something else is reported and does not count as good."""
    noise = np.random.default_rng(3).normal(0, 100, head["body"].array.shape).astype(np.float32)
    frames = [*head["frames"][:2], head["body"].like(noise), head["frames"][3]]
    found = morphseek.correct_motion(frames, reference="first", consistent=True)
    assert found.worst[0].frame == 2 and found.worst[0].verdict != "good"
    assert found.to_dict()["worst"][0] == 2
    paths = [tmp_path / f"{k}.nii.gz" for k in range(4)]
    for path, frame in zip(paths, frames):
        images.write(path, frame)
    text = command(
        "motion", *paths, "--reference-frame", "0", "--quiet", "--strict", "--out",
        tmp_path / "out", expect=7,
    )  # fmt: skip
    assert "2.nii.gz" in text.splitlines()[0]
    page = (tmp_path / "out" / "series.html").read_text()
    assert page.index("2.nii.gz", page.index("<tbody")) < page.index(
        "1.nii.gz", page.index("<tbody")
    )


@pytest.mark.thorough
def test_a_frame_that_failed_starts_from_the_concatenated_one(monkeypatch: pytest.MonkeyPatch):
    """The body keeps turning: the last frame is far from the first, but near its neighbour. By
    itself it stays where it lay.
    """
    rng, none = np.random.default_rng(4), np.zeros(3)
    body = phantom.make_pair(size=48).fixed
    frames = [moved(body, none, np.array([0, 0, 0.35 * k]), rng) for k in range(5)]
    register = motion.register

    def without_search(fixed: Any, moving: Any, **options: Any) -> Any:
        ends = np.array_equal(fixed.array, frames[0].array) and np.array_equal(
            moving.array, frames[4].array
        )
        if ends and options["initial_transform"] is None:
            options["initial"] = "none"
        return register(fixed, moving, **options)

    monkeypatch.setattr(motion, "register", without_search)
    alone = morphseek.correct_motion(frames, reference=0)
    assert alone.rows[4].verdict == "failed" and alone.worst[0].frame == 4
    found = morphseek.correct_motion(frames, reference=0, consistent=True)
    assert found.rows[4].start == "concatenated" and found.rows[4].verdict != "failed"
    turned = [frame.parameters[5] for frame in found.rows]
    np.testing.assert_allclose(turned, 0.35 * np.arange(5), atol=0.1)
    # what is good stays as it was
    for one, other in list(zip(found.rows, alone.rows))[:4]:
        assert one.start == other.start and one.parameters == other.parameters


def test_dicom(tmp_path: Path):
    volumes = write_cine(tmp_path / "scan", 3)
    frames, step = images.read_frames(tmp_path / "scan", "series")
    assert step == 1.5 and len(frames) == 3
    for frame, volume in zip(frames, volumes):
        np.testing.assert_array_equal(sitk.GetArrayFromImage(frame), volume)
        np.testing.assert_allclose(frame.GetOrigin(), (-10, 5, 0))
        np.testing.assert_allclose(frame.GetSpacing(), (2, 2, 3))
    write_cine(tmp_path / "short", 3, leave_out=8)
    unreadable(
        r"short most places .* 3 times.*complete", morphseek.correct_motion, tmp_path / "short"
    )
    write_cine(tmp_path / "one", 1)
    invalid("one holds 1 frame", morphseek.correct_motion, tmp_path / "one")


def bad_inputs(folder: Path) -> dict[str, tuple[list[Path], type[Exception], str]]:
    body = Image(blob())
    good, other, flat, empty, many, there = (
        folder / f"{n}.nii.gz" for n in ("good", "other", "flat", "empty", "many", "there")
    )
    images.write(good, body)
    images.write(other, dataclasses.replace(body, origin=(50.0, 0.0, 0.0)))
    sitk.WriteImage(sitk.GetImageFromArray(body.array[0]), str(flat))
    images.write(empty, body.like(np.zeros_like(body.array)))
    sitk.WriteImage(sitk.JoinSeries([body.to_sitk()] * 3), str(many))
    there.write_bytes(b"")
    unreadable, wrong = errors.InputUnreadableError, errors.InvalidArgumentError
    return {
        "elsewhere": (
            [good, other],
            errors.GridMismatchError,
            "other.nii.gz lies in another space",
        ),
        "flat": ([good, flat], errors.GridMismatchError, "flat.nii.gz"),
        "constant": ([good, empty], errors.ConstantVolumeError, "empty.nii.gz"),
        "zero bytes": ([good, there], unreadable, "there.nii.gz"),
        "missing": ([good, folder / "no.nii.gz"], unreadable, "no.nii.gz does not exist"),
        "several series": ([many, many], unreadable, "many.nii.gz"),
        "one volume": ([good], wrong, "good.nii.gz holds 1 frame"),
        "a plain folder": ([folder], unreadable, "holds no DICOM series"),
    }


@pytest.mark.parametrize(
    "case",
    ["elsewhere", "flat", "constant", "zero bytes", "missing", "several series", "one volume",
     "a plain folder"],
)  # fmt: skip
def test_bad_input(case: str, tmp_path: Path):
    paths, error, says = bad_inputs(tmp_path)[case]
    given = paths[0] if len(paths) == 1 else paths
    with pytest.raises(error, match=says.replace(".", r"\.")):
        morphseek.correct_motion(given, reference="first", threads=1)


@pytest.mark.parametrize(
    "options, says",
    [
        (dict(reference="last"), "mean, first, or the number"),
        (dict(reference=3), "from 0 to 2"),
        (dict(reference=-1), "from 0 to 2"),
        (dict(reference=True), "mean, first"),
        (dict(motion="elastic"), "must be rigid"),
        (dict(interpolation="best"), "must be linear"),
        (dict(refine=10), "refine says how to deform"),
        (dict(smoothness="low"), "deformable motion"),
    ],
)
def test_bad_options(options: dict[str, Any], says: str):
    invalid(says, morphseek.correct_motion, [blob()] * 3, **options)


def test_nothing_is_left_behind(tmp_path: Path, command: Command):
    paths = bad_inputs(tmp_path)["constant"][0]
    text = command(
        "motion", *paths, "--reference-frame", "first", "--out", tmp_path / "no", expect=3
    )
    assert "empty.nii.gz" in text and not (tmp_path / "no").exists()
    wrong = command.json("motion", paths[0], "--out", tmp_path / "no", expect=2)
    assert "1 frame" in wrong["error"]["message"]
    # a result is not written over a frame
    out = tmp_path / "reference.nii.gz"
    os.replace(paths[0], out)
    text = command("motion", out, paths[1], "--out", tmp_path, expect=2)
    assert "where a result would be written" in text and out.exists()


def test_it_is_cancelled_and_tells_how_far_it_is():
    told: list[morphseek.Progress] = []
    frames = [blob(shift=0.02 * k) for k in range(3)]
    morphseek.correct_motion(frames, reference=1, consistent=True, progress=told.append, threads=1)
    fractions = [report.fraction for report in told]
    assert fractions == sorted(fractions) and 0.9 < fractions[-1] <= 1
    assert {report.total for report in told} == {4}
    with pytest.raises(errors.CancelledError):
        morphseek.correct_motion(frames, progress=lambda report: False)


def test_a_second_call_on_a_folder_fails_at_once(tmp_path: Path):
    """The folder is another call's from before the work on, not while files are written alone."""
    frames = [blob(shift=0.02 * k) for k in range(2)]
    seen: list[morphseek.Progress] = []

    def again(report: morphseek.Progress) -> None:
        if not seen:
            seen.append(report)
            with pytest.raises(errors.OutputUnwritableError, match="another call of morphseek"):
                morphseek.correct_motion(frames, tmp_path / "out", progress=seen.append)

    morphseek.correct_motion(frames, tmp_path / "out", reference=0, progress=again, threads=1)
    assert len(seen) == 1 and (tmp_path / "out" / "motion.tsv").exists()


def test_arrays_and_nibabel():
    """An array (time, z, y, x) and a nibabel image in milliseconds give the list's series."""
    nibabel = pytest.importorskip("nibabel")
    frames = np.stack([blob(shift=0.02 * k) for k in range(3)])
    wanted = morphseek.correct_motion(list(frames), reference="first", threads=1)
    got = morphseek.correct_motion(frames, reference="first", threads=1)
    assert got.step is None
    assert [f.parameters for f in got.rows] == [f.parameters for f in wanted.rows]
    scan = nibabel.Nifti1Image(frames.T, np.diag([-1.0, -1, 1, 1]))
    scan.header.set_xyzt_units("mm", "msec")
    scan.header.set_zooms((1, 1, 1, 720))
    timed = morphseek.correct_motion(scan, reference="first", threads=1)
    assert timed.step == pytest.approx(0.72)
    assert timed.image().GetSpacing()[3] == pytest.approx(0.72)
    np.testing.assert_allclose(timed.rows[2].parameters, wanted.rows[2].parameters, atol=1e-5)
