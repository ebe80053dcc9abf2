"""The public package's types are strict, and those of the options are the engine's."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from morphseek import errors
from morphseek._engine import core
from morphseek._engine.generated import Options

PYTHON = Path(__file__).parents[1]


def test_the_options_are_the_engines():
    assert list(Options.__annotations__) == [option["name"] for option in core.option_table()]


def test_the_tables_are_the_engines():
    """The tables are committed, so that the help needs no engine."""
    assert core.option_table() == json.loads(core.gopy.OptionTable())
    assert errors.TABLE == json.loads(core.gopy.FaultTable())


def test_errors_are_what_a_caller_would_catch():
    for failure in errors.TABLE:
        found = getattr(errors, failure["python"])
        assert issubclass(found, errors.MorphSeekError) and found.__doc__
        assert found.__mro__[1].__module__ == "builtins" and found.__mro__[1] is not Exception
        assert pickle.loads(pickle.dumps(found("why"))).args == ("why",)


def test_every_module_is_checked():
    tomllib = pytest.importorskip("tomllib")
    settings = tomllib.loads((PYTHON / "pyproject.toml").read_text(encoding="utf-8"))
    for override in settings["tool"]["mypy"]["overrides"]:
        assert "ignore_errors" not in override, override["module"]


@pytest.mark.parametrize(
    "call, complaint",
    [
        ('register("a", "b", similarity="ncc", refine=20, smoothness=2.5)', ""),
        ('register("a", "b", similarty="ncc")', "similarty"),
        ('register("a", "b", similarity="nccc")', "nccc"),
        ('register("a", "b", refine="many")', "refine"),
        ('register_cohort("a", "b", serch="on")', "serch"),
        ('evaluate("a", "b", search="no")', "search"),
        ('register("a", "b").verdict.grade', "None"),  # of an old report
        ('Verdict("good", (), 0.4).error_mm', ""),
        ('Verdict("splendid", (), 0.4)', "splendid"),
        ('read_transform("a.h5").apply("b", "c").nothing', '"Image" has no attribute'),
        ('read_transform("a.h5").apply(3)', "int"),
        ('register("a", "b").apply(morphseek.images.read("c")).spacing', ""),
        (
            'register("a", "b").apply(morphseek.images.read("c")).nothing_there',
            '"Image" has no attribute',
        ),
        ('register(1, "b")', "int"),
        ("NoSuchName", "NoSuchName"),
        ("errors.NoOverlapError.exit_code", ""),
        ("errors.NoOverlapErorr", "NoOverlapErorr"),
    ],
)
def test_mypy_finds_mistakes(call: str, complaint: str, tmp_path: Path):
    pytest.importorskip("mypy", reason="needs the extra: pip install morphseek[lint]")
    script = tmp_path / "script.py"
    script.write_text(f"import morphseek\nmorphseek.{call}\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "script.py"],
        cwd=tmp_path,
        env={"MYPY_CACHE_DIR": str(tmp_path.parent / "mypy"), **os.environ},
        capture_output=True,
        text=True,
    )
    if complaint:
        assert done.returncode == 1 and complaint in done.stdout, done.stdout + done.stderr
        assert done.stdout.count("error:") == 1, done.stdout
    else:
        assert done.returncode == 0, done.stdout + done.stderr
