"""The BIDS App: participants at once, killed calls, results of other options, and the group."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import FLAGS, QUICK, Command, blob, invalid, unreadable
from morphseek import Transform, _files, _manifest, images, register_pairs, studies
from pace import limit

PARTICIPANTS = tuple(f"{number:02}" for number in range(1, 9))
FOUR = ("--participant-label", "01,02,03,04")
XFM = "sub-01/anat/sub-01_from-T1w_to-Ours_mode-image_xfm.json"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BIDS folder of eight people with labels, and a template beside it."""
    root = tmp_path_factory.mktemp("data") / "bids"
    names = [(f"{root}/sub-{p}/anat/sub-{p}", 0.03 * int(p)) for p in PARTICIPANTS]
    for stem, shift in [(str(root.parent / "tpl-Ours"), 0.0), *names]:
        Path(stem).parent.mkdir(parents=True, exist_ok=True)
        image = images.Image(blob((24, 24, 24), shift), (2.0, 2.0, 2.0))
        images.write(f"{stem}_T1w.nii.gz", image)
        labels = image.like((image.array > 0.3).astype(np.uint8))
        images.write(f"{stem}_dseg.nii.gz", labels)
    return root


def words(dataset: Path, out: Path, *more: Any) -> list[Any]:
    template = dataset.parent / "tpl-Ours"
    given = ("--template", f"{template}_T1w.nii.gz", "--template-labels", f"{template}_dseg.nii.gz")
    return ["bids", dataset, out, "participant", *given, "--quiet", *FLAGS, *more]


def content(out: Path) -> dict[str, bytes]:
    """Return the files of a dataset but for pages, which tell the time, and the registrations."""
    paths = [p for p in out.rglob("*") if p.is_file() and p.suffix != ".html"]
    names = {str(path.relative_to(out)): path for path in paths}
    return {n: p.read_bytes() for n, p in names.items() if not n.startswith("work/")}


def test_participants_at_once_are_one_run(dataset: Path, tmp_path: Path, command: Command):
    whole, apart = tmp_path / "whole", tmp_path / "apart"
    command(*words(dataset, whole))
    started = [
        command.start(*words(dataset, apart, "--participant-label", f"{one},{other}"))
        for one, other in zip(PARTICIPANTS[::2], PARTICIPANTS[1::2])
    ]
    for process in started:
        text = process.communicate(timeout=limit(120))
        assert process.returncode == 0, text
    for out in (whole, apart):
        command("bids", dataset, out, "group")
    one, other = content(whole), content(apart)
    assert one.keys() == other.keys() and len(one) == 8 * 6 + 7
    assert [name for name in one if one[name] != other[name]] == []
    assert {p.name for p in apart.glob("*.html")} == {
        f"sub-{p}_from-T1w_to-Ours.html" for p in PARTICIPANTS
    }
    rows = studies.Study.read(apart / "work" / "from-T1w_to-Ours").rows
    assert {row.id for row in rows} == {f"sub-{p}" for p in PARTICIPANTS}
    assert not list(apart.rglob(".morphseek-*"))


def test_spaces_and_contrasts_at_once_keep_apart(dataset: Path, tmp_path: Path, command: Command):
    shutil.copytree(dataset.parent, tmp_path, dirs_exist_ok=True)
    data, out = tmp_path / "bids", tmp_path / "out"
    for kind in ("T1w", "dseg"):  # the same template, elsewhere
        image = images.read(tmp_path / f"tpl-Ours_{kind}.nii.gz")
        away = images.Image(image.array, image.grid.spacing, (50.0, 0.0, 0.0))
        images.write(tmp_path / f"tpl-Away_{kind}.nii.gz", away)
    for path in data.glob("sub-*/anat/*_T1w.nii.gz"):
        shutil.copy(path, str(path).replace("T1w", "FLAIR"))
    away = [
        *("--template", tmp_path / "tpl-Away_T1w.nii.gz"),
        *("--template-labels", tmp_path / "tpl-Away_dseg.nii.gz"),
    ]
    given = ("--participant-label", "01,02", "--initial", "com")
    started = [
        command.start(*words(data, out, *given, *more))
        for more in ([], away, ["--suffix", "FLAIR"])
    ]
    for process in started:
        text = process.communicate(timeout=limit(120))
        assert process.returncode == 0, text
    command("bids", data, out, "group")
    for label in ("01", "02"):
        stem = f"{out}/sub-{label}/anat/sub-{label}_from-T1w_to-"
        here, there = (
            Transform.read(f"{stem}{space}_mode-image_xfm.h5").transform_points([p])
            for space, p in (("Ours", (0.0, 0.0, 0.0)), ("Away", (50.0, 0.0, 0.0)))
        )
        assert np.allclose(here, there, atol=0.5)
    assert len([*out.glob("*.html")]) == 6


@pytest.mark.thorough
def test_the_official_validator_finds_no_error(dataset: Path, tmp_path: Path, command: Command):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    validator = shutil.which("bids-validator-deno", path=path)
    if validator is None:
        pytest.skip("NOT VALIDATED: there is no validator; pip install bids-validator-deno")
    out = tmp_path / "out"
    command(*words(dataset, out, *FOUR))
    command("bids", dataset, out, "group")

    def severities() -> list[str]:
        run = [validator, "--format", "json", str(out)]
        text = subprocess.run(run, capture_output=True, text=True, check=False).stdout
        return [issue["severity"] for issue in json.loads(text)["issues"]["issues"]]

    assert set(severities()) <= {"warning"}
    (out / "sub-01" / "anat" / "sub-01_strange.nii.gz").touch()
    assert "error" in severities()


KILLED = """
import os, sys
from pathlib import Path
from morphseek import studies
from morphseek.studies.derivatives import Dataset
data, work, out, point = sys.argv[1:]
items = [i for i in studies.find_bids(data) if i.id == "sub-01"]
pairs = studies.pairs_to(items, os.path.join(os.path.dirname(data), "tpl-Ours_T1w.nii.gz"))
study = studies.Study.read(work)
count, plain = 0, {name: getattr(os, name) for name in ("replace", "unlink", "link", "mkdir")}
def counted(name):
    def step(*given, **more):
        global count
        count += 1
        if count == int(point):
            os._exit(9)
        return plain[name](*given, **more)
    return step
for name in plain:
    setattr(os, name, counted(name))
Dataset(Path(out), "Ours", study.options, True, pairs).write(study, work)
print(count)
"""


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.nightly), 9], ids=["every", "some"]
)
def test_a_killed_call_leaves_no_transform_beside_another_verdict(step, dataset, tmp_path):
    """A process ends at each of its changes of the disk."""
    items = [item for item in studies.find_bids(dataset) if item.id == "sub-01"]
    template = dataset.parent / "tpl-Ours_T1w.nii.gz"
    pairs = studies.pairs_to(items, template)
    works = [tmp_path / name for name in ("old", "new")]
    for work, seed in zip(works, (0, 1)):
        register_pairs(pairs, work, **QUICK | {"initial": ("com", "none")[seed]})
    out = tmp_path / "out"
    folder = (out / XFM).parent

    def write(work: Path, point: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, dataset, work, out, str(point)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def check() -> dict[str, Any]:
        """What is described is there, and is of one run."""
        if not (out / XFM).exists():
            return {}
        told: dict[str, Any] = json.loads((out / XFM).read_text())
        for name, entry in told["Files"].items():
            assert _manifest.is_same(folder / name, entry), name
        return told

    done = write(works[0])
    assert done.returncode == 0, done.stderr
    old = check()["Origin"]
    for point in range(1, 200, step):
        done = write(works[1], point)
        check()
        _files.settle(folder)
        told = check()
        assert told, "neither the old nor the new result"
        if done.returncode == 0:
            break
        assert done.returncode == 9, done.stderr
        write(works[0])
        assert check()["Origin"] == old
    assert done.returncode == 0 and told["Origin"] != old and point > 10


Change = Callable[[Path, Path], list[Any]]


def other_template(data: Path, _: Path) -> list[Any]:
    return ["--template", data / "sub-02/anat/sub-02_T1w.nii.gz", "--space", "Ours"]


def older(_: Path, out: Path) -> list[Any]:
    told = json.loads((out / XFM).read_text())
    told["Origin"]["version"] = "0.1.0"
    (out / XFM).write_text(json.dumps(told))
    return []


def other_image(data: Path, _: Path) -> list[Any]:
    path = data / "sub-01/anat/sub-01_T1w.nii.gz"
    image = images.read(path)
    images.write(path, image.like(image.array + 1))
    return []


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda *_: ["--refine", 1], "its option refine was 0, and is 1"),
        (lambda *_: ["--seed", 3, "--work", "elsewhere"], "its option seed was 0, and is 3"),
        (other_template, "its template was 'tpl-Ours_T1w.nii.gz ("),
        (older, "its version was '0.1.0', and is "),
        (other_image, "its image was 'sub-01_T1w.nii.gz ("),
    ],
)
def test_results_of_another_origin_are_not_replaced(change, says, dataset, tmp_path, command):
    data, out = tmp_path / "bids", tmp_path / "out"
    shutil.copytree(dataset.parent, tmp_path, dirs_exist_ok=True)
    one = ("--participant-label", "01")
    command(*words(data, out, *one))
    more = change(data, out)
    before = content(out)
    text = command(*words(data, out, *one, *more), expect=2, cwd=tmp_path)
    assert f"{out / XFM}: a result of this image is there, and {says}" in " ".join(text.split())
    assert "--no-resume to replace" in text and content(out) == before
    assert not (tmp_path / "elsewhere").exists()
    command(*words(data, out, *one, *more, "--space", "Other"), cwd=tmp_path)
    command(*words(data, out, *one, *more, "--no-resume"), cwd=tmp_path)
    assert content(out)[XFM] != before[XFM]
    command(*words(data, out, *one, *more), cwd=tmp_path)


def test_the_group_believes_whole_results_alone(dataset: Path, tmp_path: Path, command: Command):
    out = tmp_path / "out"
    command(*words(dataset, out, *FOUR))
    anat = {p: out / f"sub-{p}" / "anat" / f"sub-{p}" for p in PARTICIPANTS}
    Path(f"{anat['01']}_from-T1w_to-Ours_mode-image_xfm.json").write_text("{")
    Path(f"{anat['02']}_space-Ours_T1w.nii.gz").unlink()
    transform = Path(f"{anat['03']}_from-T1w_to-Ours_mode-image_xfm.h5")
    transform.unlink()  # it is the registration's own file, by another name
    transform.write_bytes(b"damaged")
    text = command("bids", dataset, out, "group", expect=3)
    for says in ("is no JSON", "sub-02_space-Ours_T1w.nii.gz is not the file", "xfm.h5 is not the"):
        assert says in " ".join(text.split()), text
    table = (out / "group_xfm.tsv").read_text().splitlines()
    rows = list(csv.DictReader(table, delimiter="\t"))
    assert [row["verdict"] for row in rows[:3]] == ["error"] * 3 and len(rows) == 4
    assert rows[3]["participant_id"] == "sub-04" and rows[0]["error_mm"] == "n/a"
    command(*words(dataset, out, *FOUR))  # mends it
    command("bids", dataset, out, "group")


TOLD = {
    "Verdict": "good", "EstimatedError": 0.4, "Reasons": ["a"], "FoldedVoxelsPercent": 0.0,
    "DiceBefore": None, "DiceAfter": 0.9, "Files": {},
}  # fmt: skip


@pytest.mark.parametrize(
    "text, says",
    [
        (json.dumps(TOLD)[:-2], "is no JSON"),
        ("[]", "is no JSON object"),
        ("\xff", "no text in UTF-8"),
        ("[" * 100_000, "is no JSON"),
        *(
            (json.dumps({**TOLD, **change}), "is no description of a transform")
            for change in (
                {"Verdict": 5}, {"Reasons": 5}, {"Reasons": [5]}, {"Reasons": None}, {"Files": 5},
                {"EstimatedError": "0.4"}, {"DiceAfter": True}, {"FoldedVoxelsPercent": []},
            )
        ),
        (json.dumps({**TOLD, "Files": {"a": {"bytes": "x"}}}), "a is not the file that"),
    ],
)  # fmt: skip
def test_a_description_that_is_damaged(text: str, says: str, tmp_path: Path):
    folder = tmp_path / "sub-1" / "anat"
    folder.mkdir(parents=True)
    (folder / "sub-1_from-T1w_to-X_mode-image_xfm.json").write_text(json.dumps(TOLD))
    (folder / "sub-1_from-T2w_to-X_mode-image_xfm.json").write_text(text, encoding="latin-1")
    table, (problem,) = studies.write_group(str(tmp_path))
    assert says in problem and "run the participant level again" in problem
    assert [line.split("\t")[3] for line in table.read_text().splitlines()[1:]] == ["error", "good"]


def test_a_skull_stripped_image_says_so(dataset: Path, tmp_path: Path):
    shutil.copytree(dataset, tmp_path / "bids")
    for label in ("01", "02"):
        sidecar = tmp_path / f"bids/sub-{label}/anat/sub-{label}_T1w.json"
        sidecar.write_text(json.dumps({"SkullStripped": label == "01"}))
    template = tmp_path / "bids/sub-04/anat/sub-04_T1w.nii.gz"
    items = studies.find_bids(tmp_path / "bids")[:2]
    studies.register_bids(items, template, tmp_path / "out", space="X", **QUICK)
    told = [path.name for path in (tmp_path / "out").rglob("sub-*_space-X_T1w.json")]
    assert told == ["sub-01_space-X_T1w.json"]
    whole = json.loads((tmp_path / "out" / "space-X_T1w.json").read_text())
    assert whole["SkullStripped"] is False and whole["SpatialReference"] == "sub-04_T1w.nii.gz"


def test_what_fails_is_said_to_who_wants_quiet(dataset: Path, tmp_path: Path, command: Command):
    data = shutil.copytree(dataset, tmp_path / "bids")
    (data / "sub-02" / "anat" / "sub-02_T1w.nii.gz").write_bytes(b"")
    template = dataset.parent / "tpl-Ours_T1w.nii.gz"
    words = ("bids", data, tmp_path / "out", "participant", "--template", template, "--quiet")
    told = command(*words, *FLAGS, "--participant-label", "01,02,99", expect=3)
    assert "sub-02: InputUnreadableError" in told and "has sub-99" in told


def test_spaces_and_failures(dataset: Path, tmp_path: Path):
    items, template = studies.find_bids(dataset), dataset.parent / "tpl-Ours_T1w.nii.gz"
    for space in ("a-b", "x" * 300):
        invalid(
            "letters and digits alone, 99",
            studies.register_bids,
            items,
            template,
            tmp_path,
            space=space,
            **QUICK,
        )
    assert not (tmp_path / "work").exists()
    unreadable("run the level participant first", studies.write_group, tmp_path)
