"""Images of a study, the pairs made of them, fused labels, outlying pairs, and the BIDS App."""

import contextlib
import csv
import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from html_tree import parsed

from helpers import FLAGS, QUICK, Command, blob, invalid, resampled, unreadable
from morphseek import Registration, errors, images, register_pairs, studies
from morphseek.report import IndexRow, write_index
from morphseek.scoring.labels import dice_by_label
from morphseek.studies import Item, fuse_labels
from morphseek.studies.outliers import outliers


def touched(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


SUB = "sub-1/anat/sub-1"
LAYOUTS: list[tuple[list[str], dict[str, Any], dict[str, str], str]] = [
    (["sub-02/anat/sub-02_T1w.nii.gz", "sub-01/anat/sub-01_T1w.nii", "sub-01/anat/notes.txt"],
     {}, {"sub-01": "sub-01_T1w.nii", "sub-02": "sub-02_T1w.nii.gz"}, ""),
    (["sub-1/ses-a/anat/sub-1_ses-a_T1w.nii.gz", "sub-1/ses-b/anat/sub-1_ses-b_T1w.nii.gz",
      "sub-1/ses-b/anat/sub-1_ses-b_T2w.nii.gz"],
     {"entities": {"ses": "b"}}, {"sub-1_ses-b": "sub-1_ses-b_T1w.nii.gz"}, ""),
    ([f"{SUB}_run-10_T1w.nii.gz", f"{SUB}_run-9_T1w.nii.gz"],
     {}, {"sub-1": "sub-1_run-9_T1w.nii.gz"}, "sub-1_run-9_T1w.nii.gz, and not sub-1_run-10"),
    ([f"{SUB}_acq-x_T1w.nii.gz", f"{SUB}_T1w.nii.gz"],
     {"entities": {"acq": "x,y"}}, {"sub-1": "sub-1_acq-x_T1w.nii.gz"}, ""),
    ([f"{SUB}_acq-x_FLAIR.nii.gz", "sub-1/.hidden/sub-1_FLAIR.nii.gz"],
     {"suffix": "FLAIR"}, {"sub-1": "sub-1_acq-x_FLAIR.nii.gz"}, ""),
    ([f"{SUB}_T1w.nii.gz"], {"entities": {"sub": "1,02"}}, {"sub-1": "sub-1_T1w.nii.gz"},
     "no image *_T1w.nii.gz that fits has sub-02"),
]  # fmt: skip


@pytest.mark.parametrize("names, given, expected, note", LAYOUTS)
def test_bids_layouts(names, given, expected, note, tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", errors.InputWarning)
        found = studies.find_bids(touched(tmp_path, *names), **given)
    assert {scan.id: scan.image.name for scan in found} == expected
    assert [note in str(each.message) for each in told] == ([True] if note else [])


def test_bids_label_maps(tmp_path: Path):
    touched(
        tmp_path,
        f"{SUB}_run-1_T1w.nii.gz",
        f"derivatives/{SUB}_run-2_dseg.nii.gz",  # of another run
        f"derivatives/seg/{SUB}_run-1_desc-aseg_dseg.nii.gz",
        f"derivatives/seg/{SUB}_run-1_space-MNI_dseg.nii.gz",  # on another grid
    )
    (scan,) = studies.find_bids(tmp_path)
    assert scan.labels is not None and "desc-aseg" in scan.labels.name
    assert next(iter(studies.find_bids(tmp_path, labels=False))).labels is None
    touched(tmp_path, "sub-1/anat/sub-1_run-1_dseg.nii.gz")
    invalid("has 2 label maps: .*desc=aseg", studies.find_bids, tmp_path)
    (scan,) = studies.find_bids(tmp_path, label_entities={"desc": ""})
    assert scan.labels is not None and scan.labels.name == "sub-1_run-1_dseg.nii.gz"


def test_bids_refused(tmp_path: Path):
    for folder, given, says in (
        ("none", {}, "none is no folder"),
        (".", {}, "sub-01/anat/sub-01_T1w.nii.gz"),
        ("data", {"suffix": "T2w"}, r"no image \*_T2w.nii.gz; the images there are T1w"),
        ("data", {"entities": {"ses": "3"}}, "with ses=3"),
    ):
        touched(tmp_path, "data/sub-1/anat/sub-1_T1w.nii.gz")
        unreadable(says, studies.find_bids, tmp_path / folder, **given)
    odd = {"Session": "3"}
    invalid("'Session' is no entity", studies.find_bids, tmp_path / "data", entities=odd)


def test_scans_of_folders_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    touched(tmp_path, "a.nii.gz", "b.NII", "notes.txt", ".c.nii.gz")
    assert [s.id for s in studies.read_items(tmp_path)] == ["a", "b"]
    data = touched(tmp_path / "data", "images/a.nii.gz", "images/b.nii.gz", "labels/a.nrrd")
    with pytest.warns(errors.InputWarning, match="1 of 2 images have no label map") as told:
        found = studies.read_items(data)
    assert told[0].filename == __file__  # the caller's line, however deep the reader is
    assert [s.labels and s.labels.name for s in found] == ["a.nrrd", None]
    table = tmp_path / "t.csv"
    table.write_text("moving;moving_labels;subject;session;id\na.nii;l.nii;s;2;x\nb.nii;;s;1;\n")
    first, second = studies.read_items(table)
    assert (first.id, first.image, first.labels) == ("x", tmp_path / "a.nii", tmp_path / "l.nii")
    assert (second.id, second.subject, second.labels) == ("b", "s", None)
    (tmp_path / "t.json").write_text('["a.nii", ["b.nii", "l.nii"], {"image": "c.nii", "id": 5}]')
    found = studies.read_items(tmp_path / "t.json")
    assert [s.id for s in found] == ["a", "b", "5"]
    assert [s.labels for s in found] == [None, tmp_path / "l.nii", None]
    for bad in ({"image": "a", "label": "b"}, {"labels": "b"}, ("a", "b", "c"), 5):
        invalid("row 2: give .image, labels.", studies.read_items, ["x.nii", bad])
    # two files of one name are called by their folders
    assert [s.id for s in studies.read_items(["p/t1.nii", "q/t1.nii"])] == ["p-t1", "q-t1"]
    monkeypatch.chdir(data)
    here = studies.read_items(["t1.nii", "labels/t1.nii", "../t1.nii"])
    assert [s.id for s in here] == ["data-t1", "labels-t1", f"{tmp_path.name}-t1"]
    unreadable("data-t1 is there twice", studies.read_items, ["t1.nii", "t1.nii"])


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "needs a header with the column image or moving"),
        ("image\n", "there is no image"),
        ("image,label\na,b\n", "labels, mask"),
        ("image,labels\n,b\n", "line 2 has no image"),
        ("image,moving\na,b\n", "has the columns image and moving; leave out"),
        ("image,id\na,x.\n", "'x.', which is no name for a folder"),
        ("image,id\na,x\nb,X\n", "X is there twice, for .*a and .*b"),
    ],
)
def test_tables_refused(text: str, says: str, tmp_path: Path):
    (tmp_path / "t.csv").write_text(text)
    unreadable(says, studies.read_items, tmp_path / "t.csv")


def test_pairs(tmp_path: Path):
    scans = [Item(n, tmp_path / n, tmp_path / f"{n}l") for n in "abc"]
    both = studies.all_pairs(scans, both_ways=True)
    assert len(both) == 6 and len({row["id"] for row in both}) == 6
    assert both[1]["fixed"] == scans[1].image and both[1]["moving_labels"] == scans[0].labels
    sessions = [
        Item(f"sub-{s}_ses-{k}", tmp_path / f"{s}{k}", subject=f"sub-{s}", session=f"ses-{k}")
        for s, k in (("1", "10"), ("1", "2"), ("1", "9"), ("2", "1"))
    ]
    later = studies.within_subject(sessions)
    assert [row["id"] for row in later] == ["sub-1_ses-9_to_ses-2", "sub-1_ses-10_to_ses-2"]
    assert {str(row["fixed"]) for row in later} == {str(tmp_path / "12")}
    for *labels, says in (
        ("V2", "V10", ""), ("2.0", "10.0", ""), ("M6", "M12", ""),
        ("9", "baseline", "of s 9 is the first, before baseline"),
        ("ses-post", "ses-pre", "of s ses-post is the first, before ses-pre"),
    ):  # fmt: skip
        early, late = (Item(k, tmp_path / k, subject="s", session=k) for k in labels)
        with pytest.warns(errors.InputWarning, match=says) if says else contextlib.nullcontext():
            assert studies.within_subject([late, early])[0]["fixed"] == early.image
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for other in (tmp_path / "x" / ".." / "a", tmp_path / "link"):
        (tmp_path / "x").mkdir(exist_ok=True)
        invalid("no image but", studies.pairs_to, [Item("same", other)], tmp_path / "a")
    for given, says in (
        (lambda: studies.all_pairs(scans[:1]), "two images or more"),
        (lambda: studies.within_subject(scans), "nothing says of whom"),
        (lambda: studies.within_subject(sessions[3:]), "none of the 1 subjects"),
        (lambda: studies.pairs_to(scans[:1], scans[0].image), "no image but"),
    ):
        invalid(says, given)


def test_a_link_to_what_was_not_fetched_is_an_image(tmp_path: Path):
    """As git-annex leaves it."""
    touched(tmp_path, "a.nii.gz")
    (tmp_path / "b.nii.gz").symlink_to(".git/annex/gone")
    items = studies.read_items(tmp_path)
    assert [item.id for item in items] == ["a", "b"]
    says = r"b.nii.gz is a link to .git/annex/gone, which is not there; fetch"
    unreadable(says, images.read, items[1].image)
    done = register_pairs(studies.all_pairs(items), tmp_path / "out", **QUICK)
    assert "is a link to .git/annex/gone" in done.rows[0].message


def test_mixed_dimensions_and_empty_files(tmp_path: Path):
    images.write(tmp_path / "volume.nii.gz", images.Image(blob()))
    sitk.WriteImage(sitk.GetImageFromArray(blob()[10]), str(tmp_path / "slice.nii.gz"))
    (tmp_path / "empty.nii.gz").touch()
    scans = [Item(n, tmp_path / f"{n}.nii.gz") for n in ("volume", "empty", "slice")]
    unreadable(r"empty.nii.gz", studies.pairs_to, scans[:1], tmp_path / "empty.nii.gz")
    done = register_pairs(studies.pairs_to(scans[1:], scans[0].image), tmp_path / "out", **QUICK)
    assert "one slice and the fixed image a volume" in done.rows[1].message
    assert "empty.nii.gz" in done.rows[0].message and not (tmp_path / "out" / "empty").exists()


def maps() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    true = np.zeros((9, 10, 11), int)
    true[2:7, 2:8, 3:9], true[4:6, 4:6, 4:6] = 3, 70000
    return [np.where(rng.random(true.shape) < 0.2, np.roll(true, k, 1), true) for k in (1, 2, 3)]


def in_itk(given: list[np.ndarray]) -> list[sitk.Image]:
    return [sitk.GetImageFromArray(array.astype(np.uint32)) for array in given]


def test_majority_is_that_of_simpleitk():
    given = maps()
    fused = fuse_labels(given)
    undecided = 99999
    theirs = sitk.GetArrayFromImage(sitk.LabelVoting(in_itk(given), undecided))
    decided = theirs != undecided
    assert (fused.labels[decided] == theirs[decided]).all() and decided.mean() > 0.9
    ties = np.sort(np.stack(given)[:, ~decided], 0)[0]
    assert (fused.labels[~decided] == ties).all()
    votes = (np.stack(given) == fused.labels).mean(0)
    np.testing.assert_allclose(fused.agreement, votes, atol=1e-6)


def test_staple_is_that_of_simpleitk():
    given = [np.where(m == 70000, 5, m) for m in maps()]
    theirs = sitk.GetArrayFromImage(sitk.MultiLabelSTAPLE(in_itk(given), 9))
    assert (fuse_labels(given, "staple").labels == theirs).mean() > 0.98


def test_who_does_not_reach_does_not_vote():
    given = [np.full((1, 1, 3), k) for k in (0, 0, 5)]
    reach = [np.array([[[True, False, False]]])] * 2 + [np.array([[[True, True, False]]])]
    fused = fuse_labels(given, reach=reach)
    assert fused.labels.ravel().tolist() == [0, 5, 0]
    np.testing.assert_allclose(fused.agreement.ravel(), [2 / 3, 1, 0])


def test_joint_weights_are_those_of_the_paper():
    """Compared voxel by voxel with the paper's formula."""
    rng = np.random.default_rng(0)
    shape, radius = (7, 8, 9), 2
    target = rng.normal(size=shape).cumsum(0)
    atlases = [target + rng.normal(size=shape) * s for s in (0.3, 0.5, 2)]
    given = [np.full(shape, k) for k in (1, 2, 3)]
    fused = fuse_labels(given, "joint", target=target, images=atlases, radius=radius)
    padded = [np.pad(a, radius, mode="edge") for a in (target, *atlases)]

    def patch(image: np.ndarray, place: np.ndarray) -> np.ndarray:
        values = image[tuple(slice(p, p + 2 * radius + 1) for p in place)].ravel()
        return (values - values.mean()) / values.std()

    for place in map(np.array, ((3, 4, 4), (0, 0, 0), (6, 7, 8), (2, 7, 1))):
        apart = [abs(patch(image, place) - patch(padded[0], place)) for image in padded[1:]]
        matrix = np.array([[(a @ b / 124) ** 2 for a in apart] for b in apart])
        weights = np.linalg.solve(matrix + np.eye(3), np.ones(3))
        weights /= weights.sum()
        assert fused.labels[tuple(place)] == weights.argmax() + 1
        share = weights.max() / weights.sum()
        assert fused.agreement[tuple(place)] == pytest.approx(min(1, share), abs=1e-5)


def test_lists_are_arrays():
    given = maps()
    fused, listed = fuse_labels(given), fuse_labels([array.tolist() for array in given])
    assert (listed.labels == fused.labels).all() and (listed.agreement == fused.agreement).all()
    reach = [np.ones((1, 1, 1), bool)] * 2
    assert fuse_labels([[[[3]]]] * 2, reach=[r.tolist() for r in reach]).labels.item() == 3


def test_fusion_refused():
    one, other = np.zeros((2, 2, 2), int), np.ones((2, 2, 2), int)
    for given, says in (
        (([one], "best"), "fusion is 'best'"),
        (([],), "no label map"),
        (([one, other[1:]],), "one grid"),
        (([one, other], "joint"), "give the target"),
        (([one, "b.nii"],), "a str is no array"),
        (([[[0, 1], [2]]],), "a list is no array"),
        (([images.Image(one)],), "a Image is no array"),
    ):
        invalid(says, fuse_labels, *given)


def test_outliers_are_those_of_the_robust_score():
    stats = pytest.importorskip("scipy.stats")
    values = [0.5, 0.52, 0.49, 0.51, 0.48, 0.5, 0.53, 0.5, 0.47, 2.0]
    spread = stats.median_abs_deviation(values, scale="normal")
    score = (2.0 - np.median(values)) / spread
    found = outliers({"error": [*values, None]})
    assert [bool(f) for f in found] == [False] * 9 + [True, False]
    assert found[9][0].startswith("error 2, the study has 0.5 (robust z +")
    assert float(found[9][0].split("+")[1][:-1]) == pytest.approx(score, rel=2e-3)
    # if most are equal, the mean deviation counts; if all are, there is no outlier
    assert outliers({"a": [1.0] * 30 + [9.0]})[30]
    assert not any(outliers({"a": [1.0] * 30}))
    assert not any(outliers({"a": [1.0, 1, 1, 1, 1, 1, 50]}))  # too few to tell


def test_page_names_outliers(tmp_path: Path):
    rows = [
        IndexRow("plain", verdict="good", error_mm=0.4),
        IndexRow("odd", verdict="good", error_mm=0.3, unlike=("scale 2 <b>",)),
        IndexRow("bad", verdict="failed", remark="It folds."),
    ]
    write_index(tmp_path / "index.html", rows)
    page = parsed((tmp_path / "index.html").read_text(encoding="utf-8"))
    _, *body = page.one("table", id="pairs").rows()
    assert [(row[0], row[-1]) for row in body] == [
        ("bad", "It folds."), ("odd", "outlier: scale 2 <b>"), ("plain", "")
    ]  # fmt: skip
    assert page.one("option", value="outlier").text == "outliers"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A BIDS folder of three subjects, the first with two sessions; one has labels."""
    root = tmp_path / "bids"
    for name, shift in (("1_ses-1", 0.0), ("1_ses-2", 0.1), ("2_ses-1", 0.2), ("3_ses-1", -0.1)):
        place = root / f"sub-{name.replace('_', '/')}" / "anat"
        place.mkdir(parents=True)
        image = images.Image(blob(shift=shift), (2.0, 2.0, 3.0))
        images.write(place / f"sub-{name}_T1w.nii.gz", image)
        inside = (image.array > 0.3).astype(np.uint8) * 4
        images.write(place / f"sub-{name}_dseg.nii.gz", image.like(inside))
    return root


def test_command_all_to_one_of_bids(people: Path, tmp_path: Path, command: Command):
    anat = people / "sub-1" / "ses-1" / "anat"
    out = tmp_path / "out"
    text = command(
        "pairs", "--bids", people, "--template", anat / "sub-1_ses-1_T1w.nii.gz",
        "--template-labels", anat / "sub-1_ses-1_dseg.nii.gz", "--labels-back",
        "--entity", "ses=1", "--out", out, *FLAGS,
    )  # fmt: skip
    assert "2: 2 done" in text
    assert sorted(p.name for p in out.iterdir() if p.is_dir()) == ["sub-2_ses-1", "sub-3_ses-1"]
    back = images.read(out / "sub-2_ses-1" / "fixed_labels_on_moving.nii.gz")
    own = images.read(people / "sub-2" / "ses-1" / "anat" / "sub-2_ses-1_dseg.nii.gz")
    assert back.array.shape == own.array.shape
    both = dice_by_label(back.array, own.array)
    result = Registration.read(out / "sub-2_ses-1")
    template = images.read(anat / "sub-1_ses-1_dseg.nii.gz")
    assert both[4] > dice_by_label(template.array, own.array)[4] + 0.1
    theirs = resampled(template, own, result.inverse().to_sitk(), sitk.sitkNearestNeighbor)
    assert (theirs != back.array).mean() < 1e-3
    # without the labels it is another batch
    pairs = ("pairs", "--bids", people, "--within-subject", "--out", tmp_path / "later")
    again = command.json(*pairs, *FLAGS)
    assert [p["id"] for p in again["rows"]] == ["sub-1_ses-2_to_ses-1"]


def test_bids_app(people: Path, tmp_path: Path, command: Command):
    """The derivatives have BIDS names; ITK maps the image onto the template and back by them."""
    anat, out = people / "sub-1" / "ses-1" / "anat", tmp_path / "out"
    template, labels = (tmp_path / f"tpl-Ours_res-01_{kind}.nii.gz" for kind in ("T1w", "dseg"))
    for path, name in ((template, "T1w"), (labels, "dseg")):
        path.write_bytes((anat / f"sub-1_ses-1_{name}.nii.gz").read_bytes())
    words = ("bids", people, out, "participant", "--template", template, "--template-labels",
             labels, "--participant_label", "2,sub-3", "--session-label", "1", *FLAGS)  # fmt: skip
    command(*words)
    made = {str(path.relative_to(out)) for path in out.glob("sub-*/**/*.*")}
    stem = "sub-2/ses-1/anat/sub-2_ses-1"
    assert {name for name in made if "sub-2" in name} == {
        f"{stem}_{ending}"
        for ending in (
            "from-T1w_to-Ours_mode-image_xfm.h5", "from-T1w_to-Ours_mode-image_xfm.json",
            "from-Ours_to-T1w_mode-image_xfm.h5", "space-Ours_T1w.nii.gz",
            "space-Ours_desc-T1w_dseg.nii.gz", "space-T1w_desc-Ours_dseg.nii.gz",
        )
    }  # fmt: skip
    assert (out / "sub-2_ses-1_from-T1w_to-Ours.html").exists() and not any(
        "sub-1" in name for name in made
    )
    described = json.loads((out / "dataset_description.json").read_text())
    assert described["DatasetType"] == "derivative" and described["GeneratedBy"]

    own, onto = images.read(people / f"{stem}_T1w.nii.gz"), images.read(template)
    there, back = (
        sitk.ReadTransform(str(out / f"{stem}_from-{way}_mode-image_xfm.h5"))
        for way in ("T1w_to-Ours", "Ours_to-T1w")
    )
    moved = resampled(own, onto, there, background=float(own.array.min()))
    ours = images.read(out / f"{stem}_space-Ours_T1w.nii.gz").array
    assert np.abs(moved - ours).max() < 1e-3 * np.ptp(ours)
    returned = resampled(onto, own, back)
    fits = [np.corrcoef(a.ravel(), own.array.ravel())[0, 1] for a in (returned, onto.array)]
    assert fits[0] > 0.95 > fits[1]

    forward = out / f"{stem}_from-Ours_to-T1w_mode-image_xfm.h5"
    before = forward.stat().st_mtime_ns
    command(*words)  # all is finished: nothing is made again
    assert forward.stat().st_mtime_ns == before
    assert "group_xfm.tsv" in command("bids", people, out, "group")
    table = (out / "group_xfm.tsv").read_text().splitlines()
    rows = list(csv.DictReader(table, delimiter="\t"))
    assert {row["participant_id"] for row in rows} == {"sub-2", "sub-3"}
    grades = [("failed", "check", "good").index(row["verdict"]) for row in rows]
    assert grades == sorted(grades)  # the worst first
    assert {row["session_id"] for row in rows} == {"ses-1"} and float(rows[0]["dice_after"]) > 0.8


@pytest.mark.parametrize(
    "words, says, code",
    [
        (["participant"], "--template IMAGE is missing", 2),
        (["participant", "--template", "t.nii", "--space", "a-b"], "letters and digits", 2),
        (["participant", "--template", "t.nii", "--participant-label", "9"], "no image", 3),
        (["participant", "--template", "t.nii", "--space", "x" * 300], "99 at most", 2),
        (["participant", "--template", f"{'x' * 250}.nii"], "99 at most", 2),
        (["group"], "run the level participant first", 3),
    ],
)
def test_bids_app_refused(words, says, code, people, tmp_path, command):
    image = people / "sub-1" / "ses-1" / "anat" / "sub-1_ses-1_T1w.nii.gz"
    for name in (word for word in words if word.endswith(".nii")):
        (tmp_path / name).write_bytes(gzip.decompress(image.read_bytes()))
    words = [str(tmp_path / word) if word.endswith(".nii") else word for word in words]
    failed = command("bids", people, tmp_path / "out", *words, expect=code)
    assert says in failed and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--bids", "x"], "say which pairs"),
        (["--bids", "x", "--all-pairs", "--within-subject"], "choose one"),
        (["a.nii", "b.nii"], "give one list of pairs"),
        (["a.nii", "--both-ways"], "belongs to --all-pairs"),
        (["a.nii", "--template-labels", "l.nii", "--all-pairs"], "belong to --template"),
        (["--bids", "x", "a.nii", "--all-pairs"], "leave out a.nii"),
        (["--bids", "x", "--all-pairs", "--entity", "ses"], "KEY=VALUE"),
        (["--all-pairs"], "there is no image"),
    ],
)
def test_usage_refused(arguments: list[str], says: str, tmp_path: Path, command: Command):
    out = tmp_path / "out"
    failure = command.json("pairs", *arguments, "--out", out, expect=2)["error"]
    assert says in failure["message"] and not out.exists()
