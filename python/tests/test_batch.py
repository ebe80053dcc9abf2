"""Lists of pairs: on threads, resumed, stopped, and on a Dask cluster that loses a worker."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import BUNDLES, FLAGS, QUICK, Command, blob, invalid, refused, unreadable
from morphseek import (
    Transform,
    _files,
    _staging,
    errors,
    images,
    register_pairs,
    registration,
    studies,
)
from morphseek._engine import core
from morphseek._engine.table import for_engine
from morphseek.studies.label_table import read_labels_csv
from morphseek.studies.pairs import _shares, files_of
from morphseek.studies.runner import content_of as hashes_of
from pace import limit

OUTPUTS = "displacement.nrrd pair.json report.html report.json transform.h5 warped.nii.gz".split()


def listed(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def json_of(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A list of four pairs: one with labels and a mask, one without, one without an id, and one
    with a missing file.
    """
    folder = tmp_path / "study"
    folder.mkdir()
    for name, shift in (("fixed", -0.1), ("moving", 0.2)):
        image = images.Image(blob(shift=shift), (2.0, 2.0, 3.0))
        images.write(folder / f"{name}.nii.gz", image)
        labels = image.like((image.array > 0.3).astype(np.uint8))
        images.write(folder / f"{name}_labels.nii.gz", labels)
    images.write(folder / "mask.nrrd", image.like(np.ones(image.array.shape, np.uint8)))
    return listed(
        folder / "pairs.csv",
        "id,fixed,moving,fixed_labels,moving_labels,moving_mask",
        "full, fixed.nii.gz, moving.nii.gz, fixed_labels.nii.gz, moving_labels.nii.gz, mask.nrrd",
        "plain,fixed.nii.gz,moving.nii.gz,,,",
        ",moving.nii.gz,fixed.nii.gz,,,",
        "broken,fixed.nii.gz,missing.nii.gz,,,",
    )


def stamps(out: Path) -> dict[str, int]:
    """Return when each pair was finished."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/pair.json")}


def states(done: studies.Study) -> list[str]:
    return [pair.status for pair in done.rows]


def test_outputs_are_those_of_register(study: Path, tmp_path: Path):
    names = ("fixed", "moving", "fixed_labels", "moving_labels")
    fixed, moving, *labels = (study.parent / f"{name}.nii.gz" for name in names)
    out, seen = tmp_path / "out", []
    done = register_pairs(study, out, workers=2, progress=seen.append, **QUICK)
    assert [p.id for p in done.rows] == ["full", "plain", "003-fixed-to-moving", "broken"]
    assert states(done) == ["done", "done", "done", "failed"] and done.exit_code == 3
    assert done.rows[3].error == "InputUnreadableError" and "missing.nii.gz" in done.rows[3].message
    files = "index.html labels.csv plain summary.csv summary.json"
    assert sorted(os.listdir(out)) == ["003-fixed-to-moving", "full", *files.split()]
    assert sorted(os.listdir(out / "plain")) == OUTPUTS
    assert sorted(os.listdir(out / "full")) == [*OUTPUTS, "warped_labels.nii.gz"]

    mask = study.parent / "mask.nrrd"
    alone = morphseek.register(fixed, moving, moving_mask=mask, **QUICK)
    field = morphseek.Registration.read(out / "full").displacement()
    np.testing.assert_allclose(field, alone.displacement(), atol=1e-4)
    scores = morphseek.scoring.score_labels(alone, *labels)
    assert done.rows[0].dice_after == pytest.approx(morphseek.scoring.mean_dice(scores), abs=1e-6)
    assert done.rows[1].dice_after is None and done.rows[1].njd_percent == 0

    rows = list(csv.DictReader((out / "summary.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["status"] for row in rows] == states(done)
    assert float(rows[0]["dice_after"]) == done.rows[0].dice_after
    content = json_of(out / "summary.json")
    assert content["summary"]["done"] == 3 and content["summary"]["failed"] == 1
    assert content["options"] == QUICK
    assert content["summary"]["dice_after"] == done.rows[0].dice_after
    fractions = [progress.fraction for progress in seen]
    assert fractions[-1] == 1 and fractions == sorted(fractions)
    assert seen[-1].done == seen[-1].total == 4
    assert sum(p.message.startswith("broken: InputUnreadableError") for p in seen) == 1


def test_channels(study: Path, tmp_path: Path):
    """Columns of channels act as register's; a channel with one image is an error of that row."""
    both = "fixed.nii.gz,moving.nii.gz"
    listed(
        study,
        "id,fixed,moving,fixed_channel,moving_channel,fixed_label_channel,moving_label_channel",
        f"both,{both},{both},fixed_labels.nii.gz,moving_labels.nii.gz",
        f"half,{both},,,fixed_labels.nii.gz,",
    )
    done = register_pairs(study, tmp_path / "out", **QUICK)
    assert states(done) == ["done", "failed"]
    assert "fixed_label_channel alone" in (done.rows[1].message or "")
    said = morphseek.Registration.read(tmp_path / "out" / "both").metrics["channels"]
    assert [c["name"] for c in said] == ["fixed.nii.gz", "fixed_labels.nii.gz"]
    assert said[1]["similarity"] == "labels"


def test_resume(study: Path, tmp_path: Path):
    out = tmp_path / "out"
    register_pairs(study, out, **QUICK)
    before = stamps(out)
    shutil.copy(study.parent / "moving.nii.gz", study.parent / "missing.nii.gz")
    # the broken pair is tried again; threads and workers do not matter
    done = register_pairs(study, out, workers=2, **QUICK)
    assert states(done) == ["skipped", "skipped", "skipped", "done"] and done.exit_code == 0
    assert done.rows[0].dice_after == json_of(out / "full" / "report.json")["dice_after"]
    assert before.items() <= stamps(out).items()

    image = images.read(study.parent / "missing.nii.gz")
    images.write(study.parent / "missing.nii.gz", image.like(image.array + 1))  # other content
    with open(out / "plain" / "transform.h5", "r+b") as file:
        file.truncate(100)  # an incomplete output
    assert states(register_pairs(study, out, **QUICK)) == ["skipped", "done", "skipped", "done"]
    assert states(register_pairs(study, out, **QUICK)) == ["skipped"] * 4
    # as if the process was killed just after it had finished the pair
    (out / "plain" / f"{_staging.staging_prefix()}x").mkdir()
    assert states(register_pairs(study, out, **QUICK)) == ["skipped"] * 4
    assert not list(out.glob("*/.morphseek-*"))
    (out / "plain" / "pair.json").write_text("{")
    assert states(register_pairs(study, out, **QUICK)) == ["skipped", "done", "skipped", "skipped"]
    assert states(register_pairs(study, out, **QUICK, seed=1)) == ["done"] * 4
    assert states(register_pairs(study, out, resume=False, **QUICK, seed=1)) == ["done"] * 4

    lines = study.read_text(encoding="utf-8").splitlines()
    listed(study, lines[0], lines[1].replace(" moving_labels.nii.gz", ""))
    assert states(register_pairs(study, out, report="none", **QUICK)) == ["done"]
    assert sorted(os.listdir(out / "full")) == [n for n in OUTPUTS if n != "report.html"]
    for report, state in (("small", "done"), ("full", "done"), ("small", "skipped")):
        assert states(register_pairs(study, out, report=report, **QUICK)) == [state]
    assert sorted(os.listdir(out / "full")) == OUTPUTS
    assert 'id="viewer"' in (out / "full" / "report.html").read_text(encoding="utf-8")
    invalid("report is 'huge'", register_pairs, study, out, report="huge", **QUICK)


def test_files_of_others_stay(study: Path):
    """Folders of pairs may hold anything: the list's own images, notes, other folders."""
    lines, folder = study.read_text(encoding="utf-8").splitlines(), study.parent
    full, plain = folder / "full", folder / "plain"
    full.mkdir()
    (plain / "notes").mkdir(parents=True)
    (plain / "notes.txt").write_text("mine")
    shutil.move(folder / "moving.nii.gz", full / "t1.nii.gz")
    listed(study, *(line.replace("moving.nii.gz", "full/t1.nii.gz") for line in lines[:3]))
    for seed in (0, 1, 2):
        assert states(register_pairs(study, folder, **QUICK, seed=seed)) == ["done"] * 2
    assert set(os.listdir(full)) == {*OUTPUTS, "t1.nii.gz", "warped_labels.nii.gz"}
    assert set(os.listdir(plain)) == {*OUTPUTS, "notes", "notes.txt"}

    # A pair that fails keeps its earlier results, which still belong to the files of that run.
    labels = folder / "fixed_labels.nii.gz"
    for content, state in ((b"broken", "failed"), (labels.read_bytes(), "skipped")):
        labels.write_bytes(content)
        assert states(register_pairs(study, folder, **QUICK, seed=2)) == [state, "skipped"]

    shutil.copy(folder / "fixed.nii.gz", plain / "warped.nii.gz")
    listed(study, "id,fixed,moving", "plain,plain/warped.nii.gz,fixed.nii.gz")
    done = register_pairs(study, folder, **QUICK)
    assert "where a result would be written" in done.rows[0].message
    assert (plain / "warped.nii.gz").exists()


def content_of(path: Path) -> list[str]:
    return hashes_of(files_of(path, "moving"), "moving")


@pytest.mark.parametrize(
    "header, data",
    [("moving.mhd", "moving.raw"), ("moving.nhdr", "moving.raw"), ("moving.hdr", "moving.img")],
)
def test_headers_and_their_data(header: str, data: str, tmp_path: Path):
    sitk.WriteImage(sitk.GetImageFromArray(blob()), str(tmp_path / header))
    before = content_of(tmp_path / header)
    assert len(before) == 2 and before == content_of(tmp_path / header)
    with open(tmp_path / data, "r+b") as file:
        file.write(b"other")
    assert content_of(tmp_path / header)[1] != before[1]


def test_transforms_that_begin_with_others(study: Path, tmp_path: Path):
    def write(name: str, shift: float, first: str) -> None:
        (tmp_path / name).write_text(
            f'(Transform "TranslationTransform")\n(TransformParameters {shift} 0 0)\n'
            f'(InitialTransformParameterFileName "{first}")\n'
        )

    def shift(name: str) -> tuple[str, float]:
        row = {"id": "a", "fixed": study.parent / "fixed.nii.gz"}
        row |= {"moving": row["fixed"], "initial_transform": tmp_path / name}
        (done,) = register_pairs([row], tmp_path / "out", **QUICK | {"initial": "none"}).rows
        path = tmp_path / "out" / "a" / "transform.h5"
        return done.status, float(Transform.read(path).transform_points([(0, 0, 0)])[0, 0])

    write("T.0.txt", 5, "NoInitialTransform")
    write("T.1.txt", 0, "T.0.txt")
    assert shift("T.1.txt") == ("done", 5) and shift("T.1.txt")[0] == "skipped"
    write("T.0.txt", -7, "NoInitialTransform")
    assert shift("T.1.txt") == ("done", -7)
    assert shift("T.1.txt@inverse") == ("done", 7) and shift("T.1.txt@inverse")[0] == "skipped"


@pytest.mark.parametrize("header", ["slices.mhd", "list.mhd", "slices.nhdr", "list.nhdr"])
def test_headers_and_slices(header: str, tmp_path: Path):
    """One file for each slice, named by a pattern or in a list."""
    array = blob((5, 6, 7))
    for k, plane in enumerate(array, 1):
        plane.tofile(tmp_path / f"s{k:02d}.raw")
    names = "s%02d.raw 1 5 1"
    if header.startswith("list"):
        names = "\n".join(["LIST", *(f"s{k:02d}.raw" for k in range(1, 6))])
    (tmp_path / header).write_text(
        "ObjectType = Image\nNDims = 3\nDimSize = 7 6 5\nElementType = MET_FLOAT\n"
        f"ElementDataFile = {names}\n"
        if header.endswith(".mhd")
        else "NRRD0004\ntype: float\ndimension: 3\nsizes: 7 6 5\nendian: little\nencoding: raw\n"
        f"data file: {names}\n"
    )
    np.testing.assert_array_equal(images.read(tmp_path / header).array, array)
    before = content_of(tmp_path / header)
    assert len(before) == 6
    (array[2] + 1).tofile(tmp_path / "s03.raw")
    after = content_of(tmp_path / header)
    assert [a == b for a, b in zip(before, after)] == [True, True, True, False, True, True]


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "header"),
        ("fixed,moving\n", "there is no pair"),
        ("fixed,label\na,b\n", "header"),
        ("fixed,moving,fixed_label\na,b,c\n", "fixed_labels"),
        ("fixed,moving,moving\na,b,c\n", "twice"),
        ("fixed,moving\na,\n", "line 2 has no moving"),
        ("fixed,moving\n\na,n/a\n", "line 3 has no moving"),
        ("fixed,moving\na,b\na,b,c\n", "line 3: the cell 'c' stands below no column"),
        ("fixed,moving,\na,b,\na,b,c\n", "line 3: the cell 'c' stands below no column"),
        ('fixed,moving\n"a\na",b\na,b,c\n', "line 4: the cell 'c'"),
        (",fixed,moving\nx,a,b\n", "the column with 'x' has no name"),
        (",,fixed,moving\n0,x,a,b\n", "the column with 'x' has no name"),
        ("fixed|moving\na|b\n", "header"),
        ("fixed,moving,id\na,b,x\na,c,X\n", "twice"),
        ("fixed,moving,id\na,b,../x\n", "folder"),
        ("fixed,moving,id\na,b,.\n", "folder"),
        ("fixed,moving,id\na,b,summary.csv\n", "folder"),
        ("fixed,moving,id\na,b,x.\n", "ends with a dot"),
        ("fixed,moving,id\na,b,COM1\n", "Windows has a device"),
        ("fixed,moving,id\na,b,-01\n", "begins with '-', as a formula"),
        (f"fixed,moving,id\na,b,{'x' * 256}\n", "256 bytes"),
    ],
)
def test_lists_refused(text: str, says: str, tmp_path: Path):
    (tmp_path / "pairs.csv").write_text(text)
    unreadable(says, register_pairs, tmp_path / "pairs.csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        "fixed,moving,id\r\na,b,x\r\nc,d,\r\n,,\r\n,,\r\n",
        "Fixed, MOVING ,Id\na,b,x\nc,d,\n",
        "fixed,moving,id,\na,b,x,\nc,d,,\n",
        "fixed,,moving,id\na,,b,x\nc,,d\n",
        "sep=,\r\nfixed,moving,id\r\na,b,x\r\nc,d,\r\n",
        "\ufeffsep=;\nfixed;moving;id\na;b;x\nc;d;\n",
        '"SEP=\t"\nfixed\tmoving\tid\na\tb\tx\nc\td\t\n',
        "\ufefffixed;moving;id\na;b;x\nc;d;\n;;\n",
        "fixed\tmoving\tid\ra\tb\tx\rc\td\t\r",
        'fixed;moving;id\n"a" ; b;x\nc;d;\n',
        ",fixed,moving,id\n0,a,b,x\n1,c,d,nan\n",  # pandas, with its index
        "Unnamed: 0.1,Unnamed: 0,fixed,moving,id\n0,0,a,b,x\n3,1,c,d,<NA>\n",
        '"","fixed","moving","id"\n"1","a","b","x"\n"2","c","d",NA\n',  # R
    ],
)
def test_lists_that_spreadsheets_leave(text: str, tmp_path: Path):
    (tmp_path / "pairs.csv").write_text(text, encoding="utf-8", newline="")
    found = [(pair.id, pair.files) for pair in studies.read_pairs(tmp_path / "pairs.csv")]
    assert found == [
        ("x", {"fixed": "a", "moving": "b"}),
        ("002-d-to-c", {"fixed": "c", "moving": "d"}),
    ]
    by_name = studies.read_pairs(tmp_path / "pairs.csv", data=tmp_path)  # Learn2Reg's layout
    assert [(pair.id, pair.files) for pair in by_name] == found


def frames() -> dict[str, Any]:
    """Return one list of two pairs, the second without labels, as people have it in Python."""
    pd = pytest.importorskip("pandas")
    rows = [{"fixed": "f", "moving": Path("m"), "fixed_labels": "l", "id": 1},
            {"fixed": "f", "moving": Path("n"), "id": 2}]  # fmt: skip
    frame = pd.DataFrame(rows)
    given = {
        "a frame": frame,
        "without an order": frame[["id", "fixed_labels", "moving", "fixed"]],
        "with capitals": frame.rename(columns=str.upper),
        "ids in the index": frame.set_index("id"),
        "strings": frame.astype("string"),
        "strings of NumPy": frame.astype(str).replace("nan", np.str_("")),
        "records": frame.to_dict("records"),
        "named tuples": list(frame.itertuples(index=False)),
        "rows": [row for _, row in frame.iterrows()],
        "read again": frame.reset_index().rename(columns={"index": "Unnamed: 0"}),
    }
    for name, nothing in {"None": None, "NaN": np.nan, "NA": pd.NA, "NaT": pd.NaT}.items():
        given[name] = [rows[0], {**rows[1], "fixed_labels": nothing, "initial_transform": nothing}]
    return given


def test_lists_of_data_frames():
    for name, frame in frames().items():
        found = [(pair.id, pair.files) for pair in studies.read_pairs(frame)]
        assert found == [
            ("1", {"fixed": "f", "moving": "m", "fixed_labels": "l"}),
            ("2", {"fixed": "f", "moving": "n"}),
        ], name
        assert {type(text) for _, files in found for text in files.values()} == {str}


def test_data_frames_without_names():
    """Columns without names are in the order of (fixed, moving); by name, no order counts."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"moving": ["m"], "fixed": ["f"]})
    for given in (
        frame[["fixed", "moving"]].values,
        list(frame.itertuples(index=False)),
        [pd.Series(["f", "m"])],
        zip(frame.fixed, frame.moving),
    ):
        (pair,) = studies.read_pairs(given)
        assert pair.files == {"fixed": "f", "moving": "m"}


def test_data_frames_refused(tmp_path: Path):
    pd = pytest.importorskip("pandas")
    row = {"fixed": ["a"], "moving": ["b"]}
    for given, says in (
        (pd.DataFrame({"fixed": ["a"]}), "pairs needs a header with the columns fixed and moving"),
        (pd.DataFrame({**row, "age": [3]}), "and no others. Its header: fixed, moving, age"),
        (pd.DataFrame({"fixed": ["a", "b"], "moving": ["b", None]}), "row 2 has no moving"),
        (pd.DataFrame([["a", "b", "c"]], columns=["fixed", "moving", "moving"]), "moving twice"),
        (
            pd.DataFrame({**row, "rigid_regions": [np.zeros(3)]}),
            "row 1: rigid_regions is given as ndarray",
        ),
        (pd.DataFrame(row, index=pd.Index(["x"], name="fixed")), "fixed"),
        ([("a", "b", "c")], "and no others; it has 3"),
        ([(b"a", b"b")], "fixed is given as bytes"),
    ):
        invalid(says, register_pairs, given, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_lists_of_data_frames(tmp_path: Path):
    pd = pytest.importorskip("pandas")
    scans = studies.read_items(pd.DataFrame({"image": ["a.nii"], "labels": [None], "subject": [7]}))
    assert [(s.id, s.labels, s.subject) for s in scans] == [("a", None, "7")]
    frame = pd.DataFrame({"transform": [tmp_path / "missing.h5"], "id": ["x"]})
    unreadable(r"missing\.h5", studies.morphometry, frame)
    with pytest.raises(errors.MorphSeekError, match=r"a\.nii"):
        morphseek.build_template(pd.DataFrame({"image": ["a.nii", "b.nii"]}), tmp_path / "out")


@pytest.mark.filterwarnings("ignore:.* found no deformation")
def test_pairs_of_an_earlier_call_keep_their_rows(study: Path, tmp_path: Path):
    """As a BIDS App does that is called for each person."""
    out = tmp_path / "out"
    lines = study.read_text(encoding="utf-8").splitlines()

    def run(*rows: int) -> list[tuple[str, str]]:
        listed(study, lines[0], *(lines[n] for n in rows))
        register_pairs(study, out, **QUICK)
        told = json_of(out / "summary.json")
        with open(out / "summary.csv", newline="", encoding="utf-8") as file:
            assert [r["id"] for r in csv.DictReader(file)] == [p["id"] for p in told["rows"]]
        assert told["summary"]["pairs"] == len(told["rows"])
        return [(p["id"], p["status"]) for p in told["rows"]]

    assert run(1, 4) == [("full", "done"), ("broken", "failed")]
    assert run(2) == [("plain", "done"), ("full", "done")]  # what failed lies nowhere
    assert run(1) == [("full", "skipped"), ("plain", "done")]
    found = studies.morphometry(out, fwhm=0)
    assert found.ids == ["full", "plain"]
    shutil.rmtree(out / "full")
    assert run(2) == [("plain", "skipped")]
    seal = json_of(out / "plain" / "pair.json")
    (out / "other").mkdir()
    for change in ({"error_mm": "x"}, {"reasons": [1]}, {"warnings": 5}, {"id": 5}, 5):
        row = {**seal["row"], **change} if isinstance(change, dict) else change
        (out / "other" / "pair.json").write_text(json.dumps({**seal, "row": row}))
        assert run(2) == [("plain", "skipped")], change
    (out / "summary.json").write_text("{")
    assert run(2) == [("plain", "skipped")]


def test_lists_without_a_file(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(study.parent)
    given = [
        ("fixed.nii.gz", Path("moving.nii.gz")),
        {"fixed": "moving.nii.gz", "moving": "fixed.nii.gz", "id": 7, "fixed_mask": None},
    ]
    done = register_pairs(given, tmp_path / "out", **QUICK)
    assert [(p.id, p.status) for p in done.rows] == [("001-moving-to-fixed", "done"), ("7", "done")]
    assert states(register_pairs(study, tmp_path / "file", **QUICK)).count("done") == 3
    for bad, says in (
        ([], "no pair"),
        (3, "given as int"),
        (["ab"], "row 1"),
        ([("a", "b"), ("a",)], "row 2"),
        ([{"fixed": "a", "moving": "b", "labels": "c"}], "and no others"),
        ([(blob(), "b")], "fixed is given as ndarray; a study takes paths"),
        ([("a", "")], "moving is an empty path"),
    ):
        refused(errors.MorphSeekError, says, register_pairs, bad, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "encoding, name", [("utf-16", "Müller"), ("utf-16-le", "Mueller"), ("cp1252", "Müller")]
)
def test_lists_in_other_encodings_are_told_what_to_do(encoding: str, name: str, tmp_path: Path):
    (tmp_path / "pairs.csv").write_text(f"fixed,moving,id,name\n1,{name},x,y\n", encoding=encoding)
    for read in (studies.read_pairs, read_labels_csv):
        says = "pairs.csv is no text in UTF-8; save it anew in UTF-8"
        unreadable(says, read, tmp_path / "pairs.csv")


@pytest.mark.parametrize("read", [studies.read_pairs, studies.read_items, studies.morphometry])
def test_a_spreadsheet_is_told_what_to_save(read: Any, tmp_path: Path):
    (tmp_path / "list.xlsx").write_bytes(b"PK\x03\x04\x14\0")
    unreadable('list.xlsx is no text in UTF-8; .* "CSV UTF-8"', read, tmp_path / "list.xlsx")


def test_refused_before_the_work(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for given, error in (
        ({"steps": 99}, errors.InvalidArgumentError),
        ({"model": "no such"}, errors.ModelNotFoundError),
        ({"workers": 0}, errors.InvalidArgumentError),
        ({"scheduler": "nonsense://x"}, errors.InvalidArgumentError),
    ):
        with pytest.raises(error):
            register_pairs(study, tmp_path / "out", **given)
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.OutputUnwritableError):
        register_pairs(study, tmp_path / "file" / "out")
    names = listed(tmp_path / "names.csv", "id,name", "1,body")
    for unused, role in (
        ({"labels_back": True}, "labels"), ({"labels_csv": names}, "labels"),
        ({"landmark_error": 1.0}, "landmarks"),
    ):  # fmt: skip
        says = f"{next(iter(unused))} is given, and no pair has fixed_{role}"
        invalid(says, register_pairs, [("a.nii", "b.nii")], tmp_path / "out", **unused)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(errors.InvalidArgumentError, match=r"morphseek\[dask\]"):
        register_pairs(study, tmp_path / "out", scheduler="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    "value, says",
    [
        (0.5, "fixed labels have the value 0.5; labels must be whole numbers"),
        (2**53 + 1, "renumber them"),
    ],
)
def test_what_are_no_labels_is_told_before_the_work(value, says, study, tmp_path, monkeypatch):
    path = study.parent / "fixed_labels.nii.gz"
    labels = images.read(path)
    images.write(path, labels.like(np.where(labels.array, value, 0)))
    listed(study, *study.read_text(encoding="utf-8").splitlines()[:2])
    for folder, ending in (("images", ""), ("labels", "_labels")):
        (tmp_path / folder).mkdir()
        for name in ("fixed", "moving"):
            there = tmp_path / folder / f"{name}.nii.gz"
            shutil.copy(study.parent / f"{name}{ending}.nii.gz", there)
    monkeypatch.setattr(registration, "register", lambda *_, **__: pytest.fail("was registered"))
    done = register_pairs(study, tmp_path / "out", **QUICK)
    assert done.rows[0].error == "InvalidArgumentError" and says in done.rows[0].message
    (row,) = register_pairs([("fixed", "moving")], data=tmp_path, score=True, **QUICK).rows
    assert row.exit_code == 2 and says in row.message
    images_of = {side: str(study.parent / f"{side}.nii.gz") for side in ("fixed", "moving")}
    alone = {**images_of, "moving_labels": str(path)}  # of an atlas, say
    (row,) = register_pairs([alone], **QUICK).rows
    assert row.exit_code == 2 and says.replace("fixed", "moving") in row.message


def test_options_as_register_takes_them(study: Path, tmp_path: Path):
    done = register_pairs(study, tmp_path / "out", preset=None, **{**QUICK, "refine": np.int64(0)})
    assert states(done)[:3] == ["done"] * 3 and done.options == QUICK
    assert states(register_pairs(study, tmp_path / "out", **QUICK))[:3] == ["skipped"] * 3
    # the same values in other forms, and defaults
    options = {**QUICK, "search": False, "uncertainty": False, "seed": 0}
    same = register_pairs(study, tmp_path / "out", **options)
    assert states(same)[:3] == ["skipped"] * 3 and same.options == options
    words = ((2.5, "2.5", "done"), ("2.50", "2.5", "skipped"), ("low", "low", "done"))
    for given, read, state in words:
        again = register_pairs(study, tmp_path / "out", smoothness=given, **QUICK)
        assert states(again)[:3] == [state] * 3 and again.options["smoothness"] == read


def test_no_work_where_the_summary_has_no_place(study: Path, tmp_path: Path):
    (tmp_path / "out" / "summary.csv").mkdir(parents=True)
    with pytest.raises(errors.OutputUnwritableError, match="summary.csv is a folder"):
        register_pairs(study, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["summary.csv"]


def test_a_list_is_not_written_over(study: Path):
    shutil.copy(study, study.parent / "summary.csv")
    with pytest.raises(errors.InvalidArgumentError, match="pairs: .*would be written"):
        register_pairs(study.parent / "summary.csv", study.parent, **QUICK)
    assert (study.parent / "summary.csv").read_bytes() == study.read_bytes()


@pytest.mark.parametrize("age", [-60, 60])
def test_a_pair_that_another_call_is_at(age: float, study: Path, tmp_path: Path):
    """The pair and its unfinished files are left alone; those of a killed process are removed by
    the next call, or where time stamps alone say that the pair is done, when its result is read.
    """
    pytest.importorskip("fcntl")
    for path in study.parent.iterdir():
        os.utime(path, (time.time() - age,) * 2)
    folder = tmp_path / "out" / "plain"
    folder.mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool:
        with _files.output_folder(folder) as other:
            (other / "notes.txt").write_text("half done")
            run = pool.submit(register_pairs, study, tmp_path / "out", **QUICK)
            wait_for(lambda: run.done() or len(stamps(tmp_path / "out")) == 2)
            time.sleep(0.5)
            assert not run.done() and os.listdir(folder) == [other.name]
            assert (other / "notes.txt").exists()
        assert states(run.result(timeout=limit(60))) == ["done", "done", "done", "failed"]
    (folder / f"{other.name}x").mkdir()
    assert states(register_pairs(study, tmp_path / "out", **QUICK))[1] == "skipped"
    if age > 0:
        morphseek.Registration.read(folder)
    assert sorted(os.listdir(folder)) == sorted([*OUTPUTS, "notes.txt"])


def test_two_calls_share_a_folder(study: Path, tmp_path: Path):
    """Each pair is done once, and both calls know all."""
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(register_pairs, study, tmp_path / "out", **QUICK) for _ in range(2)]
        both = [states(run.result()) for run in runs]
    for one, other in list(zip(*both))[:3]:
        assert {one, other} == {"done", "skipped"}, both
    assert len(stamps(tmp_path / "out")) == 3
    told = json_of(tmp_path / "out" / "summary.json")["rows"]
    assert [row["id"] for row in told] == ["full", "plain", "003-fixed-to-moving", "broken"]


def test_processes(study: Path, tmp_path: Path):
    """The same rows as by threads."""
    by_threads = register_pairs(study, tmp_path / "threads", **QUICK)
    out = tmp_path / "processes"
    by_processes = register_pairs(study, out, scheduler="processes", workers=2, **QUICK)
    assert states(by_processes) == states(by_threads)
    for one, other in zip(by_threads.rows, by_processes.rows):
        rest = {"seconds": None, "cpu_seconds": None}
        assert {**one.to_dict(), **rest} == {**other.to_dict(), **rest}


def test_processes_of_a_script_that_begins_anew(tmp_path: Path):
    """Python's processes import the script that starts them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import morphseek\n"
        "morphseek.register_pairs([('a.nii', 'b.nii')], 'out', scheduler='processes')\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=limit(60)
    )
    assert done.returncode == 1 and "below if __name__ == '__main__'" in done.stderr


@pytest.mark.parametrize(
    ("cores", "gigabytes", "last", "given", "expected"),
    [
        (16, 64, "missing", {}, (4, 4)),  # of four pairs
        (16, 64, "missing", {"threads": 8}, (2, 8)),
        (16, 1.2, "missing", {}, (2, 8)),  # half a gigabyte a small pair
        (16, 1.2, "large", {}, (1, 16)),
        (16, 1.2, "damaged", {}, (2, 8)),
        (16, 0.1, "missing", {}, (1, 16)),
        (16, 64, "missing", {"workers": 3}, (3, 5)),
        (16, 1.2, "missing", {"workers": 3}, (3, 5)),
        (16, 64, "missing", {"scheduler": "processes"}, (4, 4)),
        (16, 64, "missing", {"scheduler": "tcp://host:8786"}, (1, 1)),
        (1, 64, "missing", {}, (1, 1)),
    ],
)
def test_pairs_at_a_time(
    cores: int, gigabytes: float, last: str, given: dict[str, Any], expected: tuple[int, int],
    study: Path, monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """The image with the largest file counts, wherever it is, of those that can be read."""
    image = images.Image(np.random.default_rng(1).random((128, 128, 128), np.float32))
    if last != "missing":
        images.write(study.with_name("missing.nii.gz"), image)
    if last == "damaged":
        os.truncate(study.with_name("missing.nii.gz"), 1 << 20)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cores), raising=False)
    monkeypatch.setattr(core, "available_memory", lambda: gigabytes * 1e9)
    how = {"workers": None, "threads": 0, "scheduler": None} | given
    if given.get("workers", 0) > gigabytes:
        with pytest.warns(errors.InputWarning, match="a pair takes about 0.5 GB, so 2 would fit"):
            assert _shares(**how, pairs=studies.read_pairs(study)) == expected
    else:
        assert _shares(**how, pairs=studies.read_pairs(study)) == expected


@pytest.mark.parametrize(
    ("model", "given", "expected"), [("none", None, None), ("tiny", None, 1), ("tiny", 2, 2)]
)
def test_pairs_at_a_time_with_a_network(
    model: str, given: int | None, expected: int | None, study: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """Memory is not known for more than one."""
    shares = Mock(side_effect=ZeroDivisionError)
    monkeypatch.setattr("morphseek.studies.pairs._shares", shares)
    with pytest.raises(ZeroDivisionError):
        path = model if model == "none" else BUNDLES / f"{model}.onnx"
        register_pairs(study, study.with_name("out"), workers=given, model=path)
    assert shares.call_args.args[0] == expected


def test_stopped_by_its_progress(study: Path, tmp_path: Path):
    out = tmp_path / "out"
    with pytest.raises(errors.CancelledError):
        register_pairs(study, out, workers=1, progress=lambda p: np.bool_(not p.message), **QUICK)
    pending = [pair["status"] for pair in json_of(out / "summary.json")["rows"]]
    assert pending[0] == "done" and pending.count("pending") == 3
    with pytest.raises(ZeroDivisionError):
        register_pairs(study, out, progress=lambda progress: 1 / 0, **QUICK)
    assert states(register_pairs(study, out, **QUICK))[0] == "skipped"


SLOW = {**QUICK, "refine": 15, "similarity": "ncc"}  # takes a good part of a second


def many(folder: Path, pairs: int) -> Path:
    """A list of slow pairs."""
    pair = morphseek.phantom.make_pair(size=40)
    for name in ("fixed", "moving"):
        images.write(folder / f"{name}.nrrd", getattr(pair, name))
    rows = (f"fixed.nrrd,moving.nrrd,p{i}" for i in range(pairs))
    return listed(folder / "pairs.csv", "fixed,moving,id", *rows)


def wait_for(condition: Any, seconds: float = 300) -> None:
    deadline = time.monotonic() + limit(seconds)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c(tmp_path: Path, command: Command):
    study, out = many(tmp_path, 5), tmp_path / "out"
    flags = (f"--{name}={for_engine(value)}" for name, value in SLOW.items())
    process = command.start("pairs", study, "--out", out, "--workers", 2, *flags)
    busy = lambda: stamps(out) and any(out.glob("*/.morphseek-*"))
    wait_for(lambda: process.poll() is not None or busy())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=limit(60))
    assert process.returncode == 130 and "Traceback" not in err and "cancelled" in err, err
    whole = stamps(out)
    assert 0 < len(whole) < 5
    # no half-done pair's folder
    files = {"index.html", "summary.csv", "summary.json"}
    assert {path.name for path in out.iterdir()} == {*whole, *files}
    again = register_pairs(study, out, **SLOW)
    assert again.summary()["skipped"] == len(whole) and again.summary()["done"] == 5 - len(whole)


def test_command(study: Path, tmp_path: Path, command: Command):
    out = tmp_path / "out"
    text = command("pairs", study, "--out", out, "--workers", 2, *FLAGS, expect=3)
    assert "3 done, 1 failed" in text and "mean Dice" in text
    assert "broken: InputUnreadableError" in text
    again = command.json("pairs", study, "--out", out, *FLAGS, expect=3)
    assert again["summary"]["skipped"] == 3
    assert again["options"] == QUICK
    (tmp_path / "empty.csv").write_text("")
    empty = command.json("pairs", tmp_path / "empty.csv", "--out", out, expect=3)
    assert empty["error"]["name"] == "input_unreadable"


def test_reports_have_the_command_only_where_one_was_given(study, tmp_path, command, monkeypatch):
    listed(study, "id,fixed,moving", "plain,fixed.nii.gz,moving.nii.gz")
    monkeypatch.setattr(sys, "argv", ["some_study.py", "--of", "mine"])
    assert states(register_pairs(study, tmp_path / "python", **QUICK)) == ["done"]
    page = (tmp_path / "python" / "plain" / "report.html").read_text(encoding="utf-8")
    assert "--of mine" not in page and "morphseek pairs" not in page
    typed = tmp_path / "typed"
    command("pairs", study, "--out", typed, "--report", "small", *FLAGS)
    page = (typed / "plain" / "report.html").read_text(encoding="utf-8")
    assert f"morphseek pairs {study} --out {typed} --report small --model=none" in page
    assert len(page) < 200_000
    index = (typed / "index.html").read_text(encoding="utf-8")
    assert f"morphseek pairs {study}" in index and 'href="plain/report.html"' in index
    assert index.count('<img src="data:image/png;base64,') == 1


@pytest.mark.thorough
def test_cluster_that_loses_a_worker(tmp_path: Path):
    """Every pair is done once. Pairs that were finished before the loss are not touched; the one
    that the lost worker was at is done by the other worker.
    """
    distributed = pytest.importorskip("distributed")
    study, out = many(tmp_path, 5), tmp_path / "out"
    with open(study, "a") as file:
        file.write("missing.nrrd,moving.nrrd,broken\n")
    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**how, processes=True, silence_logs="ERROR") as cluster:
        given = {"scheduler": cluster.scheduler_address, **SLOW}
        busy = lambda: stamps(out) and len(list(out.glob("*/.morphseek-*"))) == 2
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(register_pairs, study, out, **given)
            wait_for(lambda: run.done() or busy())
            before = stamps(out)
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            done = run.result(timeout=limit(300))
        assert states(done) == ["done"] * 5 + ["failed"]
        assert done.rows[5].error == "InputUnreadableError"
        after = stamps(out)
        assert sorted(after) == [f"p{i}" for i in range(5)] and before.items() <= after.items()
        assert 0 < len(before) < 5
        for name in after:
            # nothing is left of the lost worker's attempt
            assert sorted(os.listdir(out / name)) == OUTPUTS
        again = register_pairs(study, out, **given)
        assert states(again) == ["skipped"] * 5 + ["failed"] and stamps(out) == after


def test_a_defect_keeps_its_traceback(study, tmp_path, monkeypatch, caplog):
    def defect(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("in the middle of it")

    monkeypatch.setattr(registration, "register", defect)
    out = tmp_path / "out"
    done = register_pairs(study, out, **QUICK)
    assert done.rows[1].error == "ZeroDivisionError"
    log = (out / "plain" / "error.log").read_text(encoding="utf-8")
    assert "Traceback" in log and "in defect" in log and "in the middle of it" in log
    assert not (out / "broken").exists()  # a missing file is not a defect of the program
    assert "job plain failed" in caplog.text and "in defect" in caplog.text
    monkeypatch.undo()
    assert register_pairs(study, out, **QUICK).rows[1].status == "done"
    assert not (out / "plain" / "error.log").exists()


def test_roles_of_images(tmp_path: Path):
    """Tables of images in CSV, TSV, JSON and frames: one reader, one result."""
    pd = pytest.importorskip("pandas")
    rows = [
        {"image": "a.nii", "labels": "al.nii", "landmarks": "a.fcsv", "channel": "a2.nii"},
        {"image": "b.nii", "landmarks": "b.fcsv", "id": "B", "subject": "x"},
    ]
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t", na_rep="n/a")
    (tmp_path / "t.json").write_text(json.dumps(rows))
    for name in ("t.csv", "t.tsv", "t.json"):
        items = list(studies.read_items(tmp_path / name))
        assert [i.id for i in items] == ["a", "B"] and items[1].subject == "x"
        assert items[0].channel == tmp_path / "a2.nii" and items[1].labels is None
        with pytest.warns(errors.InputWarning, match="a channel does not count in a pair"):
            (pair,) = studies.all_pairs(items)
        # a channel or landmarks of one image alone say nothing of the pair
        assert {k: Path(v).name for k, v in pair.items()} == {
            "fixed": "a.nii", "moving": "b.nii", "id": "B_to_a", "fixed_labels": "al.nii",
            "fixed_landmarks": "a.fcsv", "moving_landmarks": "b.fcsv",
        }  # fmt: skip
    assert list(studies.read_items(frame))[0].landmarks == Path("a.fcsv")
    assert list(studies.read_items(rows))[1].id == "B"
