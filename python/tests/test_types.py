"""The public package's types are strict, and those of the options are the engine's."""

import importlib
import inspect
import json
import os
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_api import MODULES

import morphseek
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


def public() -> dict[str, Any]:
    """Return everything public that has annotations: functions, classes and what these define."""
    rooms = [morphseek, *(importlib.import_module(f"morphseek.{name}") for name in MODULES)]
    found: dict[str, Any] = {}
    for room in [*rooms, morphseek.errors]:
        found |= {f"{room.__name__}.{name}": getattr(room, name) for name in room.__all__}
    for name, thing in list(found.items()):
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                inner = (getattr(value, name, None) for name in ("fget", "func", "__func__"))
                found[f"{name}.{member}"] = next((one for one in inner if one), value)
    return {n: v for n, v in found.items() if inspect.isclass(v) or inspect.isfunction(v)}


def test_the_types_are_there_while_a_program_runs():
    """Checkers at run time (beartype), documentation and GUIs made of functions ask for them."""
    hints, missing = {}, {}
    for name, thing in public().items():
        try:
            hints[name] = typing.get_type_hints(thing)
        except NameError as error:
            missing[name] = str(error)
    assert missing == {} and len(hints) > 200
    register = hints["morphseek.register"]
    assert register["return"] is morphseek.Registration
    assert np.ndarray in typing.get_args(register["fixed_mask"])
    if sys.version_info >= (3, 11):
        assert typing.get_args(register["options"]) == (Options,)


def test_every_module_is_checked():
    tomllib = pytest.importorskip("tomllib")
    settings = tomllib.loads((PYTHON / "pyproject.toml").read_text(encoding="utf-8"))
    for override in settings["tool"]["mypy"]["overrides"]:
        assert "ignore_errors" not in override, override["module"]


TENSOR = """
import numpy

class Tensor:
    shape = (1, 2, 3)

    def __array__(self, dtype: object = None) -> numpy.ndarray:
        return numpy.zeros(self.shape)
"""


# What is written after "morphseek.", and a word of mypy's complaint.
CALLS = [
    ('register("a", "b", similarity="ncc", refine=20, smoothness=2.5)', ""),
    ('register("a", "b", similarty="ncc")', "similarty"),
    ('register("a", "b", similarity="nccc")', "nccc"),
    ('register("a", "b", refine="many")', "refine"),
    ('register_pairs("a", "b", serch=True)', "serch"),
    ('propagate_labels("a", "b", "c", search="off")', "search"),
    ('register("a", "b", search=False, symmetric=True, refine=None)', ""),
    ('register("a", "b").verdict.grade', "None"),  # of an old report
    ('Verdict("good", (), 0.4).error_mm', ""),
    ('Verdict("splendid", (), 0.4)', "splendid"),
    ('Transform.read("a.h5").apply("b", "c").nothing', '"Image" has no attribute'),
    ('Transform.read("a.h5").apply(3)', "int"),
    ('register("a", "b").apply(morphseek.images.read("c")).spacing', ""),
    ('register("a", "b").apply(morphseek.images.read("c")).nothing', '"Image" has no attribute'),
    ('register(1, "b")', "int"),
    ('register("a", "b", preset="ours.json")', ""),
    ('register("a", "b", preset=pathlib.Path("ours.json"))', ""),
    ('register("a", "b", preset=1)', "preset"),
    ('register_pairs("a", "b", preset=pathlib.Path("ours.json"))', ""),
    ('presets.save("a.json", preset="fast")', ""),
    ("register(numpy.zeros(3), ours.Tensor()).apply(ours.Tensor()).dtype", ""),
    ("NoSuchName", "NoSuchName"),
    ("errors.NoOverlapError.exit_code", ""),
    ("errors.NoOverlapErorr", "NoOverlapErorr"),
]


@pytest.fixture(scope="module")
def mypy_says(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The complaints by script, of one run over a script for every call."""
    pytest.importorskip("mypy", reason="needs the extra: pip install morphseek[lint]")
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "ours.py").write_text(TENSOR)
    complaints: dict[str, list[str]] = {f"script{k}.py": [] for k in range(len(CALLS))}
    for name, (call, _) in zip(complaints, CALLS, strict=True):
        (folder / name).write_text(f"import pathlib, numpy, ours, morphseek\nmorphseek.{call}\n")
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", *complaints]
    environment = {"MYPY_CACHE_DIR": str(folder / "mypy"), **os.environ}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        if ": error:" in line:
            complaints[line.partition(":")[0]].append(line)
    return complaints


@pytest.mark.parametrize("k", range(len(CALLS)), ids=[call for call, _ in CALLS])
def test_mypy_finds_mistakes(k: int, mypy_says: dict[str, list[str]]):
    complaint, said = CALLS[k][1], mypy_says[f"script{k}.py"]
    assert len(said) == bool(complaint) and all(complaint in line for line in said), said
