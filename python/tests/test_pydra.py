"""The pydra tasks, run by pydra: a workflow gives the Python API's result, bit for bit. The test
hosts-back-ends runs it in the environment that has pydra.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morphseek
from helpers import QUICK, refused
from morphseek._engine.table import is_flag, limits, option_table

pytest.importorskip("pydra.compose.shell", reason="needs pydra 1.0", exc_type=ImportError)
from fileformats.generic import File
from pydra.compose import workflow
from pydra.utils.general import get_fields

from morphseek.hosts.pydra import Apply, Register

pytestmark = pytest.mark.filterwarnings("ignore")  # pydra's own
ONE: dict[str, Any] = {**QUICK, "threads": 1}
WORDS = {**ONE, "search": "off"}  # of the command
COMMAND = [sys.executable, "-m", "morphseek"]


@workflow.define(outputs=["labels", "warped", "warped_labels", "transform", "report", "verdict",
                          "reasons", "error"])  # fmt: skip
def pair_of(fixed: File, moving: File, labels: File) -> Any:
    found = workflow.add(
        Register(fixed=fixed, moving=moving, moving_labels=labels,
                 executable=[*COMMAND, "register"], append_args=["--report", "none"], **WORDS)
    )  # fmt: skip
    brought = workflow.add(
        Apply(transform=found.transform, image=labels, reference=fixed, interpolation="nearest",
              executable=[*COMMAND, "apply"])
    )  # fmt: skip
    return (brought.out, found.warped, found.warped_labels, found.transform, found.report,
            found.verdict, found.reasons, found.estimated_error)  # fmt: skip


def array(path: Any) -> np.ndarray:
    return morphseek.images.read(str(path)).array


def test_a_workflow_gives_what_python_gives(files: dict[str, Path], tmp_path: Path):
    fixed, moving, labels = (files[name] for name in ("fixed", "moving", "moving_labels"))
    out = pair_of(fixed=fixed, moving=moving, labels=labels)(cache_root=tmp_path / "cache")
    result = morphseek.register(fixed, moving, **ONE)
    np.testing.assert_array_equal(array(out.warped), result.warped)
    expected = result.apply(labels, interpolation="nearest")
    expected = morphseek.images.read(expected).array
    assert len(np.unique(expected)) > 2
    np.testing.assert_array_equal(array(out.labels), expected)
    np.testing.assert_array_equal(array(out.warped_labels), expected)
    result.transform.save(tmp_path / "t.h5")
    points = np.random.default_rng(1).uniform(0, 30, (50, 3))
    np.testing.assert_array_equal(
        *(morphseek.Transform.read(path).transform_points(points)
          for path in (str(out.transform), tmp_path / "t.h5"))
    )  # fmt: skip
    assert result.verdict is not None
    assert (out.verdict, out.reasons, out.error) == (
        result.verdict.grade, list(result.verdict.reasons), result.verdict.error_mm,
    )  # fmt: skip
    said = json.loads(Path(str(out.report)).read_text())["options"]
    assert {name: said[name] for name in ONE} == ONE


def test_every_option_comes_to_the_command(files: dict[str, Path]):
    given: dict[str, Any] = {}
    for option in option_table():
        if option["name"] == "cache":  # pydra has its own cache
            continue
        numbers = {"int": int, "float": float}
        if "number" in option:
            given[option["name"]] = 2.5
        elif is_flag(option):
            given[option["name"]] = True
        elif "choices" in option:
            given[option["name"]] = option["choices"][-1]
        elif option["type"] in numbers:  # 0, where it may be
            given[option["name"]] = numbers[option["type"]](max(limits(option)[0] or 0, 0))
        else:
            given[option["name"]] = "a name"
    names = {field.name for field in get_fields(Register)}
    assert set(given) <= names and "cache" not in names
    words = shlex.split(Register(fixed=files["fixed"], moving=files["moving"], **given).cmdline)
    assert words[:4] == ["morphseek", "register", str(files["fixed"]), str(files["moving"])]
    for name, value in given.items():
        at = words.index(f"--{name.replace('_', '-')}")
        assert value is True or words[at + 1] == str(value)


@pytest.mark.parametrize(
    "wrong", [{"refine": -7}, {"refine": 1001}, {"preset": "slow"}, {"tau": "warm"}]
)
def test_wrong_values_are_found_before_anything_runs(files: dict[str, Path], wrong: dict[str, Any]):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        Register(fixed=files["fixed"], moving=files["moving"], **wrong)


def test_several_transforms_and_zero(files: dict[str, Path]):
    task = Apply(
        transform=[files["fixed"], files["moving"]], image=files["moving"], background=0,
        inverse=True, out=Path("tracts.trk"),
    )  # fmt: skip
    words = shlex.split(task.cmdline)
    assert words == [
        "morphseek", "apply", "--transform", str(files["fixed"]), "--transform",
        str(files["moving"]), "--input", str(files["moving"]), "--background", "0.0", "--inverse",
        "--out-file", "tracts.trk",
    ]  # fmt: skip


def test_a_failure_is_told(files: dict[str, Path], tmp_path: Path):
    broken = tmp_path / "broken.nii.gz"
    broken.write_bytes(files["moving"].read_bytes()[:500])
    task = Register(fixed=files["fixed"], moving=broken, executable=[*COMMAND, "register"])
    refused(RuntimeError, r"morphseek: .*broken\.nii\.gz", task, cache_root=tmp_path / "cache")


@workflow.define(outputs=["warped", "verdict", "labels"])
def cohort_of(fixed: File, moving: list[File], labels: File) -> Any:
    found = workflow.add(
        Register(fixed=fixed, executable=[*COMMAND, "register"], **WORDS).split(moving=moving)
    )
    brought = workflow.add(
        Apply(transform=found.transform, image=labels, interpolation="nearest",
              executable=[*COMMAND, "apply"])
    )  # fmt: skip
    return found.warped, found.verdict, brought.out


def test_over_a_cohort(files: dict[str, Path], tmp_path: Path):
    """Files with the same name are numbered and keep their ending."""
    cohort = cohort_of(
        fixed=files["fixed"],
        moving=[files["moving"], files["fixed"]],
        labels=files["moving_labels"],
    )
    out = cohort(cache_root=tmp_path / "cache")
    one, other = (array(path) for path in out.warped)
    assert one.shape == other.shape and not np.array_equal(one, other)
    assert out.verdict[1] == "good"  # of one image, given twice
    labels = files["moving_labels"]
    result = morphseek.register(files["fixed"], files["moving"], **ONE)
    expected = morphseek.images.read(result.apply(labels, interpolation="nearest")).array
    np.testing.assert_array_equal(array(out.labels[0]), expected)
    assert not np.array_equal(array(out.labels[1]), expected)
