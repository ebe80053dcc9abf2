"""The verdict, through every front end: read from the metrics, never computed."""

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morphseek
from helpers import FLAGS, QUICK, Command, blob
from morphseek import errors, images, studies
from morphseek.cli.output import NOT_GOOD
from morphseek.report import write_report
from morphseek.verdict import GRADES, MEANINGS, Verdict, explain, grade_of, notes

GOOD = {"grade": "good", "reasons": [], "error_mm": 0.42}
REASONS = ["The <fields> overlap by 12 %.", "It folds."]
CHECK = {"grade": "check", "reasons": REASONS, "error_mm": 3.14}
FAILED = {"grade": "failed", "reasons": ["Nothing speaks for this place."], "error_mm": 21.0}
OLD = {"grade": "", "reasons": None, "error_mm": 0}  # the engine's verdict for an old result


@pytest.fixture
def judged(result: morphseek.Registration) -> Any:
    """Return a copy of the result whose metrics have another verdict; None: no such member."""

    def judge(verdict: dict[str, Any] | None, **others: Any) -> morphseek.Registration:
        changed = copy.copy(result)
        changed.metrics = {**result.metrics, "verdict": verdict, **others}
        if verdict is None:
            del changed.metrics["verdict"]
        return changed

    return judge


@pytest.mark.parametrize(
    "found, verdict, text, grade",
    [
        (GOOD, Verdict("good", (), 0.42), "good, estimated error 0.4 mm", "good"),
        (
            CHECK, Verdict("check", tuple(REASONS), 3.14),
            "check: The <fields> overlap by 12 %; It folds", "check",
        ),
        (
            FAILED, Verdict("failed", ("Nothing speaks for this place.",), 21.0),
            "failed: Nothing speaks for this place", "failed",
        ),
        ({**GOOD, "error_mm": 0.01}, Verdict("good", (), 0.01), "below 0.1 mm", "good"),
        (OLD, None, "", "unknown"),
        (None, None, "", "unknown"),
        ({**GOOD, "grade": "splendid"}, None, "", "unknown"),
    ],
)  # fmt: skip
def test_reads_the_metrics(found, verdict, text, grade, judged):
    result = judged(found)
    assert result.verdict == Verdict.of(result.metrics) == verdict
    assert grade_of(result.metrics) == grade
    if verdict is None:
        assert repr(result).startswith("Registration(fixed ") and "unknown" in result.explain()
    else:
        assert text in str(verdict)
        assert repr(result).startswith(f"Registration({verdict.grade}, estimated error ")


def test_every_registration_has_one(result: morphseek.Registration, tmp_path: Path):
    verdict = result.verdict
    assert verdict is not None and verdict.grade in GRADES and verdict.error_mm > 0
    assert (verdict.grade == "good") == (verdict.reasons == ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.grade = "good"  # type: ignore[misc]
    result.save(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    expected = {"grade": verdict.grade, "error_mm": verdict.error_mm}
    assert report["verdict"] == {**expected, "reasons": list(verdict.reasons)}
    assert morphseek.Registration.read(tmp_path).verdict == verdict


def test_old_results_load_without(result: morphseek.Registration, tmp_path: Path):
    result.save(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    for name in ("verdict", "referee", "plan"):
        del report[name]
    (tmp_path / "report.json").write_text(json.dumps(report))
    old = morphseek.Registration.read(tmp_path)
    assert old.verdict is None and "Start: " in old.explain() and "Fit" not in old.explain()


def test_the_documentation_says_what_each_grade_means():
    assert tuple(MEANINGS) == GRADES
    for word in (*(f"``{grade}``" for grade in GRADES), "cannot know", "no clearance"):
        assert word in (morphseek.Verdict.__doc__ or ""), word


def test_notes_do_not_repeat_the_reasons():
    metrics = {"verdict": CHECK, "warnings": ["It folds.", "Threads were taken as 2."]}
    assert notes(metrics) == ["Threads were taken as 2."]
    assert notes({"warnings": ["It folds."]}) == ["It folds."]


REFEREE = {
    "gain": 0.4, "correlation": 0.81, "start": 0.5, "end": 1.2, "reach_mm": 25.4, "common": 0.9
}  # fmt: skip
PLAN = {
    "start": "affine", "similarity": "ncc", "search": 0.25, "smoothness_mm": 2.54,
    "reasons": ["noise is low"],
}  # fmt: skip
CHANNELS = [
    {"name": "f.nii", "weight": 0.5, "similarity": "ncc", "labels": 0, "before": 0.4, "after": 0.8},
    {"name": "organs", "weight": 1, "similarity": "labels", "labels": 4, "before": 0.5,
     "after": 0.9},
]  # fmt: skip


@pytest.mark.parametrize(
    "changes, says, silent",
    [
        (
            {"verdict": CHECK},
            [
                "Verdict: check, estimated error 3.1 mm; look at the result before you use it\n",
                "  - The <fields> overlap by 12 %.\n  - It folds.\n",
                "Start: an affine alignment, confidence 0.70 (0 to 1), the next best place 34.6 mm",
                "by 95 % of the smaller\n",
                "Similarity: local correlation of the intensities (ncc)\n",
                "Search: 25 % of the displacement",
                "Smoothness: tissue moves together over 2.5 mm\n",
                "Deformation: it brought the images closer to each other than the alignment did (+",
                "Fit: correlation 0.81 (0 to 1), over 90 % of the smaller image",
                "a shift of the aligned image by 25 mm or less makes the match worse by 50 %, ",
                "after the deformation by 120 %; if it hardly mattered",
                "Because: noise is low",
            ],
            ["unknown"],
        ),
        (
            {
                "plan": {**PLAN, "start": "header", "search": 0, "smoothness_mm": 0},
                "referee": {**REFEREE, "gain": 0},
            },
            [
                "no alignment was better; the fields of view",
                "nothing in the result is from a search",
                "Deformation: none in the result",
            ],
            ["confidence", "Smoothness"],
        ),
        (
            {"referee": {**REFEREE, "gain": -0.05}},
            ["no closer to each other than the alignment did (-0.05;"],
            [],
        ),
        (
            {"channels": CHANNELS},
            [
                "Channel f.nii: weight 0.5: local correlation of the intensities (ncc);",
                "correlation 0.40 -> 0.80",
                "Channel organs: weight 1: 4 labels; overlap (Jaccard) 0.50 -> 0.90",
            ],
            [],
        ),
        ({"verdict": OLD, "plan": None}, ["Verdict: unknown", "Start: "], ["Fit", "Because"]),
    ],
)
def test_explains(changes: dict, says: list[str], silent: list[str]):
    align = {"method": "affine", "confidence": 0.7, "rival_mm": 34.56, "overlap": 0.95}
    metrics = {"verdict": GOOD, "referee": REFEREE, "plan": PLAN, "align": align}
    text = explain({**metrics, **changes})
    assert all(word in text for word in says), text
    assert not any(word in text for word in silent), text


# ------------------------------------------------------------------------------------------ report


@pytest.mark.parametrize(
    "verdict, says",
    [
        (GOOD, ['class="verdict good"', "\u2713</span> Verdict: good", "mean error 0.4 mm<"]),
        (
            CHECK,
            [
                'class="verdict check"',
                "!</span> Verdict: check",
                "estimated mean error 3.1 mm",
                "Look at the result before you use it.",
                "<li>The &lt;fields&gt; overlap by 12 %.</li>",
            ],
        ),
        (FAILED, ['class="verdict failed"', "\u2715</span> Verdict: failed", "Do not use the"]),
        (OLD, ['class="verdict unknown"', "?</span> Verdict: unknown", "gave no verdict"]),
        (None, ["?</span> Verdict: unknown"]),
    ],
)
def test_the_report_begins_with_it(verdict: dict | None, says: list[str], tmp_path: Path):
    result = morphseek.register(blob(), blob(shift=0.1), **QUICK)
    result.metrics["verdict"] = verdict
    result.metrics["warnings"] = [*((verdict or {}).get("reasons") or []), "A note."]
    write_report(tmp_path / "report.html", result, blob(), blob(shift=0.1))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in says:
        assert page.count(words) == 1, words  # the notes do not repeat the reasons
    assert "<li>A note.</li>" in page
    head = page.index("Verdict: ")
    assert head < page.index("<img") and head < page.index('class="tiles"')


# ------------------------------------------------------------------------------------ command line


def test_no_failure_has_the_exit_code_of_strict():
    assert NOT_GOOD not in {0, *(failure["exit"] for failure in errors.TABLE)}


@pytest.fixture
def noise(tmp_path: Path) -> tuple[Path, Path]:
    """Return two unrelated images."""
    for seed, name in enumerate(("a.nrrd", "b.nrrd")):
        array = np.random.default_rng(seed).normal(size=(24, 24, 24)).astype(np.float32)
        images.write(tmp_path / name, images.Image(array, (2.0, 2.0, 2.0)))
    return tmp_path / "a.nrrd", tmp_path / "b.nrrd"


def test_the_command_ends_with_it(noise: tuple[Path, Path], tmp_path: Path, command: Command):
    """Also with the exit code of --strict; all results are written."""
    ends = {}
    for flags, expect in (([], 0), (["--strict"], 7), (["--strict", "--quiet"], 7)):
        out = tmp_path / "-".join(["out", *flags])
        text = command("register", *noise, "--out", out, *FLAGS, *flags, expect=expect)
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        verdict = Verdict.of(report)
        assert verdict is not None and verdict.grade != "good"
        assert (out / "transform.h5").exists() and (out / "report.html").exists()
        assert f"verdict: {verdict}" in text
        assert not any(f"note: {reason}" in text for reason in verdict.reasons)
        ends[" ".join(flags)] = text.strip().splitlines()
    assert ends["--strict --quiet"][-1].startswith("verdict: ")
    summary = command.json(
        "register", *noise, "--out", tmp_path / "j", *FLAGS, "--strict", expect=7
    )
    assert summary["verdict"] == report["verdict"] and "explanation" not in summary


@pytest.fixture
def alike(files: dict[str, Path], tmp_path: Path) -> Path:
    """An image that is the fixed one but for a voxel."""
    image = images.read(files["fixed"])
    array = image.array.copy()
    array[0, 0, 0] += 1
    images.write(tmp_path / "alike.nii.gz", image.like(array))
    return tmp_path / "alike.nii.gz"


def test_a_good_one_passes_strict(files: dict[str, Path], alike: Path, tmp_path: Path, command):
    process = command.start("register", files["fixed"], alike, "--out", tmp_path / "out",
                            *FLAGS, "--strict", "--explain")  # fmt: skip
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    last = out.strip().splitlines()[-1]
    length = r"(below )?[\d.]+ mm( \([\d.]+ voxels\))?"
    assert re.fullmatch(rf"verdict: good, estimated error {length}", last)
    assert re.search(r"^Start  .*\nSimilarity|^Start  .*\nDeformation", out, re.MULTILINE)
    assert "\nCertainty of place " in out
    quiet = command("register", files["fixed"], alike, "--out", tmp_path / "out", *FLAGS,
                    "--strict", "--quiet")  # fmt: skip
    assert "verdict" not in quiet


def test_strict_and_explain_are_in_the_help(command: Command):
    for name in ("register", "pairs"):
        text = " ".join(command(name, "--help").split())
        assert "--strict" in text and f"code {NOT_GOOD}" in text
    assert "--explain" in " ".join(command("register", "--help").split())


# ------------------------------------------------------------------------------------------- lists


def test_a_study_counts_them(noise, files, alike, tmp_path, command):
    (tmp_path / "pairs.csv").write_text(
        f"id,fixed,moving\nsame,{files['fixed']},{alike}\nnoise,{noise[0]},{noise[1]}\n"
    )
    arguments = ["pairs", tmp_path / "pairs.csv", "--out", tmp_path / "out", *FLAGS]
    text = command(*arguments)
    content = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    same, other = content["rows"]
    assert same["verdict"] == "good" and same["reasons"] == [] and same["error_mm"] > 0
    assert other["verdict"] in ("check", "failed") and other["reasons"]
    counted = content["summary"]["verdict"]
    assert counted["good"] == 1 and sum(counted.values()) == 2
    assert re.search(r"^verdict +1 good, \d check, \d failed$", text, re.MULTILINE), text
    header, *_ = (tmp_path / "out" / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert {"verdict", "error_mm", "reasons"} <= set(header.split(","))
    # pairs that were finished before keep their verdicts
    assert command.json(*arguments, "--strict", expect=7)["rows"][1]["verdict"] == other["verdict"]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"fixed,moving,id\n{files['fixed']},{alike},same\n")
    command(*arguments, "--strict")


def test_a_study_knows_what_it_does_not_know():
    rows = [studies.PairRow(str(i), "f", "m", "done", verdict) for i, verdict in
            enumerate(("good", "good", "failed", "unknown", ""))]  # fmt: skip
    counted = {"good": 2, "check": 0, "failed": 1, "unknown": 1}
    assert studies.Study(rows).summary()["verdict"] == counted
