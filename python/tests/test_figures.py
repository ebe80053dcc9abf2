"""Every figure that a page quotes is of the run in benchmarks/results.json."""

import json
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import figures  # noqa: E402

RESULTS = figures.load()
FOREIGN = {
    "antspyx 0.6.3", "ANTs 0.6.3", "pydicomrt 0.9.1", "with 0.6.14", "| 0.6.0 |", "| 0.2.0 |",
}  # fmt: skip
"""Versions of other things that pages name: packages, and the built-in networks."""


def named(page: Path) -> str:
    return str(page.relative_to(figures.REPOSITORY))


@pytest.mark.parametrize("page", figures.PAGES, ids=named)
def test_blocks_have_the_figures_of_the_run(page: Path):
    """`python python/benchmarks/everything.py --write` fills them."""
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- figures: ") == text.count("<!-- end -->") == len(figures.names(text))
    assert figures.filled(text, RESULTS) == text


def test_every_block_is_shown():
    shown = {name for page in figures.PAGES for name in figures.names(page.read_text("utf-8"))}
    assert shown == set(figures.BLOCKS)


@pytest.mark.parametrize("page", figures.PAGES, ids=named)
def test_no_figure_is_of_another_version(page: Path):
    text = figures.without_blocks(page.read_text(encoding="utf-8"))
    for foreign in FOREIGN:
        text = text.replace(foreign, "")
    versions = set(re.findall(r"(?<![\w.])0\.\d{1,2}\.\d+(?![\w.])", text))
    assert versions <= {RESULTS["run"]["version"]}


def test_parts_are_of_one_build():
    run = RESULTS["run"]
    assert run["engine"].startswith(run["version"]) and set(run["seconds"]) >= {"truth", "overlap"}


def test_readme_has_few_rows():
    table = figures.readme(RESULTS).splitlines()
    assert 2 < len(table) <= 8


def entry(kind: str, method: str, **values: float) -> dict:
    cost = {"pairs": 2, "failed": 0, "cpu": 10.0, "affine": 3.0, "p95": 1.0}
    return {"kind": kind, "method": method, **cost, **values}


def results(*entries: dict) -> dict:
    run = {"pairs_of_peers": {"truth": {"ants-syn": 1}}}
    return {"run": run, "parts": {"truth": list(entries)}}


def test_what_beats_us_is_bold():
    """A peer is compared on the pairs that it ran: `ours_error` is ours on those."""
    rows = [
        entry("brain", "morphseek", error=0.5, cpu=9.0),
        entry("brain", "greedy", error=0.4, ours_error=0.5, cpu=12.0, ours_cpu=9.0),
        entry("head", "morphseek", error=0.5, cpu=9.0),
        entry("head", "ants-syn", error=0.6, ours_error=0.7, cpu=8.0, ours_cpu=9.0),
    ]
    text = figures.truth(results(*rows)).splitlines()
    assert text[0] == "| kind (pairs) | affine | MorphSeek | greedy | ANTs SyN [1] |"
    assert text[2:] == [
        "| brain (2) | 3.00 | 0.50 (1.00); **9** | **0.40** (1.00); 12 |  |",
        "| head (2) | 3.00 | 0.50 (1.00); 9 |  | **0.60** (1.00); **8** |",
    ]


def test_a_failure_is_told():
    rows = [entry("brain", "morphseek", error=0.5), entry("brain", "greedy", error=9.0, failed=1)]
    assert "9.00 (1.00); 10 (1 failed)" in figures.truth(results(*rows))


def test_filling_changes_blocks_alone(tmp_path: Path):
    text = "a\n<!-- figures: estimate -->\nold\n<!-- end -->\nb\n"
    after = figures.filled(text, results())
    assert after.startswith("a\n<!-- figures: estimate -->\nNo pair") and after.endswith("b\n")
    assert "old" not in after and figures.filled(after, results()) == after
    with pytest.raises(KeyError):
        figures.filled("<!-- figures: nosuch -->\n<!-- end -->", results())


# ------------------------------------------------------------------------------- The run


def test_the_command_is_timed(files: dict[str, Path]):
    import command

    labels = (files["fixed_labels"], files["moving_labels"])
    least = command.measure((files["fixed"], files["moving"]), labels, 1, greedy="")
    assert list(least) == ["command"] and least["command"] > 0.1


def test_a_run_goes_on_where_it_stopped(tmp_path: Path):
    """Of another build ours is measured again, a peer is not; what raised is tried again."""
    everything = pytest.importorskip("everything", reason="needs morphseek[benchmark,training]")
    ran = []

    def units(part, context):
        for key, method in (("a", "morphseek"), ("b", "greedy"), ("c", "morphseek")):

            def run(key: str = key) -> list[dict]:
                ran.append(key)
                if key == "c" and ran.count("c") == 1:
                    raise RuntimeError("lost")
                return [{"key": key}]

            yield everything.Unit(key, method, run)

    part = everything.Part("truth", 1, units, everything.unchanged)
    context = everything.Context(tmp_path, tmp_path, {"greedy": "1"}, True)
    raised = []
    for build in ("one", "one", "one", "two"):
        ran.append(build)
        raised.append(everything.run_part(part, context, build, 1))
    assert raised == [["c"], [], [], []]
    assert ran == ["one", "a", "b", "c", "one", "c", "one", "two", "a", "c"]
    content = json.loads((tmp_path / "truth.json").read_text("utf-8"))
    builds = {key: unit["by"] for key, unit in content["units"].items()}
    assert builds == {"a": "two", "b": "1", "c": "two"}


def test_grades_against_the_truth():
    everything = pytest.importorskip("everything", reason="needs morphseek[benchmark,training]")

    def pair(name: str, grade: str, affine: float, true: float, estimate: float) -> list[dict]:
        head = {"kind": "brain", "pair": name, "method": "morphseek", "status": "ok"}
        verdict = {"grade": grade, "error_mm": estimate}
        return [
            {**head, "state": "affine", "error": {"mean": affine}},
            {**head, "state": "final", "error": {"mean": true}, "verdict": verdict},
        ]

    rows = [
        *pair("right", "good", 3, 0.5, 0.5),
        *pair("wrong", "good", 9, 5, 1),
        *pair("harmed", "good", 1, 1.5, 1),
        *pair("seen", "failed", 1, 9, 1),
    ]
    (counted,), estimate = everything.graded(rows)
    assert [counted[k] for k in ("pairs", "good", "check", "failed")] == [4, 3, 0, 1]
    assert (counted["wrong"], counted["harmed"]) == (1, 1)
    assert estimate["pairs"] == 4 and estimate["within_two"] == 50
