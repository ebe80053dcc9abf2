"""`morphseek info doctor`: what it finds when one thing is broken, and what it never tells."""

import copy
import importlib.metadata
import json
import platform
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import morphseek
from helpers import Command
from morphseek import _features, diagnosis
from morphseek.report.plot import figure
from morphseek.studies import runner

REPOSITORY = Path(__file__).parents[2]
PROJECT = (REPOSITORY / "python" / "pyproject.toml").read_text(encoding="utf-8")

NIPYPE = "morphseek.hosts.nipype"
VERSION = importlib.metadata.version("morphseek")
AVX = [{"name": "AVX", "used": True}, {"name": "AVX2", "used": False}]
DEVICES = [
    {"name": "cpu", "usable": True, "error": "", "remedy": ""},
    {"name": "cuda", "usable": False, "error": "no driver", "remedy": "install a driver"},
]
RUNTIME = {
    "processor": {"architecture": "amd64", "threads": 8, "features": AVX}, "version": "1.30",
    "library": "/opt/lib/libonnxruntime.so.1", "providers": ["CPUExecutionProvider"],
    "gpus": [{"name": "A card", "bytes": 8 << 30}], "devices": DEVICES,
}  # fmt: skip
WORKS: dict[str, Any] = {"version": VERSION, "seconds": 0.5, "devices": RUNTIME}
NO_RUNTIME = {"name": "cpu", "usable": False, "error": "not found", "remedy": "install ONNX"}


def all_there(package: str) -> str:
    return VERSION if package == "morphseek" else "9999.0"


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """A sound installation; tests change the returned result of its trial registration."""
    trial = copy.deepcopy(WORKS)
    monkeypatch.setattr(diagnosis, "_trial", lambda: copy.deepcopy(trial))
    monkeypatch.setattr(importlib.metadata, "version", all_there)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MORPHSEEK_ORT_LIBRARY", raising=False)
    return trial


def installed(monkeypatch: pytest.MonkeyPatch, **changed: str | None) -> None:
    """Pretend that packages have other versions or are missing."""

    def version(package: str) -> str:
        found = changed.get(package.replace("-", "_"), all_there(package))
        if found is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)


def feature(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [f for f in report["features"] if f["name"] == name]
    return found


def test_all_well(healthy: dict[str, Any]):
    report = diagnosis.doctor()
    assert report["well"] and report["problems"] == []
    assert report["processor"] == WORKS["devices"]["processor"]
    assert report["runtime"]["library"] == "…/libonnxruntime.so.1"
    assert all(f["ready"] for f in report["features"] if f["name"] != "gpu")
    assert feature(report, "gpu")["remedy"] == "install a driver"
    said = dict(diagnosis.rows(report))
    assert said["processor"] == "amd64, 8 threads, uses AVX, not AVX2"
    assert said["GPUs"] == "A card (8 GiB)" and "all is well" in said


@pytest.mark.parametrize(
    "changed, lacks",
    [
        ({"numpy": None}, "numpy>=1.24 is needed and is missing"),
        ({"numpy": "1.20.1"}, "numpy>=1.24 is needed and is 1.20.1"),
        ({"SimpleITK": "2.2.1"}, "SimpleITK>=2.3 is needed and is 2.2.1"),
        ({"click": None, "rich": None}, "rich>=13 is needed and is missing"),
    ],
)
def test_packages_of_the_main_job(healthy, monkeypatch, changed, lacks):
    installed(monkeypatch, **changed)
    report = diagnosis.doctor()
    assert not report["well"] and not feature(report, "registration")["ready"]
    assert len(report["problems"]) == len(changed)
    (problem,) = [p for p in report["problems"] if lacks in p["what"]]
    wanted = lacks.split()[0]
    assert problem["remedy"] == f"pip install '{wanted}'"
    assert wanted in feature(report, "registration")["missing"]


@pytest.mark.parametrize(
    "name, changed, missing",
    [
        ("plot", {"matplotlib": None}, ["matplotlib>=3.7"]),
        ("plot", {"matplotlib": "3.0"}, ["matplotlib>=3.7"]),
        ("dask", {"distributed": None}, ["distributed>=2024.1"]),
        ("nipype", {"nipype": "1.0"}, ["nipype>=1.8"]),
        ("training", {"torch": None, "monai": "1.0"}, ["torch>=2.6", "monai>=1.4"]),
    ],
)
def test_packages_of_an_extra(healthy, monkeypatch, name, changed, missing):
    installed(monkeypatch, **changed)
    report = diagnosis.doctor()
    found = feature(report, name)
    assert report["well"]  # a missing extra is no problem
    assert not found["ready"] and found["missing"] == missing
    assert found["remedy"] == f"pip install 'morphseek[{name}]'"


@pytest.mark.parametrize("gone", [True, False])
def test_onnxruntime(healthy: dict[str, Any], monkeypatch: pytest.MonkeyPatch, gone: bool):
    """A missing ONNX Runtime is no problem, but one that does not work is."""
    healthy["devices"] |= {"library": "", "version": "", "providers": [], "devices": [NO_RUNTIME]}
    if gone:
        installed(monkeypatch, onnxruntime=None, onnxruntime_gpu=None)
    report = diagnosis.doctor()
    found = feature(report, "network")
    assert not found["ready"] and report["well"] == gone
    if gone:
        assert found["missing"] == ["onnxruntime>=1.26"]
        assert found["remedy"] == "pip install 'morphseek[network]'"
    else:
        (problem,) = report["problems"]
        assert "ONNX Runtime is there" in problem["what"] and problem["remedy"] == "install ONNX"
    assert feature(report, "registration")["ready"]


def test_two_versions_mixed(healthy: dict[str, Any]):
    healthy["version"] = "0.1.0"
    (problem,) = diagnosis.doctor()["problems"]
    assert "two versions" in problem["what"] and "--force-reinstall" in problem["remedy"]


def test_engine_fails(healthy: dict[str, Any]):
    del healthy["devices"], healthy["seconds"]
    healthy["error"] = "ImportError: no"
    report = diagnosis.doctor()
    (problem,) = report["problems"]
    assert problem["what"] == "the engine does not work: ImportError: no"
    assert report["processor"] is None and dict(diagnosis.rows(report))["a registration"]


def test_command(command: Command, tmp_path: Path):
    report = command.json("info", "doctor")
    assert report["well"] and report == command.json("info", "doctor") | {"trial": report["trial"]}
    assert report["version"] == morphseek.__version__ and report["trial"]["seconds"] > 0
    assert report["processor"]["threads"] >= 1
    text = command("info", "doctor")
    assert "all is well" in text and "processor" in text


def test_module_where_the_command_does_not_start(command: Command, tmp_path: Path):
    (tmp_path / "click.py").write_text("raise ImportError('no click')")
    command.environment["PYTHONPATH"] = str(tmp_path)
    command("info", "doctor", expect=1)
    found = [sys.executable, "-m", "morphseek.diagnosis", "--json"]
    done = subprocess.run(found, env=command.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["trial"]["seconds"] > 0


def broken_runtime(command: Command, folder: Path) -> None:
    (folder / "libonnxruntime.so.1").write_text("no library")
    command.environment["MORPHSEEK_ORT_LIBRARY"] = str(folder / "libonnxruntime.so.1")


def broken_numpy(command: Command, folder: Path) -> None:
    """Install a NumPy that ends the process, as a wheel for another processor does."""
    (folder / "numpy.py").write_text("import os; os._exit(132)")
    command.environment["PYTHONPATH"] = str(folder)


@pytest.mark.parametrize(
    "break_it, words",
    [
        (broken_runtime, ["ONNX Runtime is there and does not work", "MORPHSEEK_ORT_LIBRARY"]),
        (broken_numpy, ["the engine does not work: its process ended with 132", "reinstall"]),
    ],
)
def test_command_where_something_is_broken(command, tmp_path, break_it, words):
    break_it(command, tmp_path)
    report = command.json("info", "doctor", expect=diagnosis.UNWELL)
    (problem,) = report["problems"]
    assert not report["well"]
    assert words[0] in problem["what"] and words[1] in problem["remedy"]
    text = command("info", "doctor", expect=diagnosis.UNWELL)
    assert words[0] in text and "not well" in text
    assert str(tmp_path) not in text + json.dumps(report)


def test_tells_nothing_about_anybody(command: Command, tmp_path: Path):
    """The names of user, computer, patient and home are in the environment, not in the output."""
    home = tmp_path / "Jane Quintrel"
    library = home / "Müller, Anna 1957" / "libonnxruntime.so.1"
    library.parent.mkdir(parents=True)
    library.write_text("no library")
    command.environment |= {"HOME": str(home), "USER": "jdoe", "HOSTNAME": "ward7.example.org"}
    command.environment |= {"MORPHSEEK_ORT_LIBRARY": str(library), "SECRET_TOKEN": "sesame-open"}
    report = command.json("info", "doctor", expect=5)
    said = command("info", "doctor", expect=5) + json.dumps(report, ensure_ascii=False)
    for word in ("Jane", "Quintrel", "jdoe", "ward7", "Müller", "Anna", "1957", "sesame", "SECRET"):
        assert word.lower() not in said.lower(), word
    if len(platform.node()) > 3:
        assert platform.node() not in said
    assert str(tmp_path) not in said and sys.prefix not in said
    assert "MORPHSEEK_ORT_LIBRARY" in said


@pytest.mark.parametrize(
    "text, told",
    [
        ("cannot load /a/b/c.so: /a/b/c.so: x", "cannot load …/c.so: …/c.so: x"),
        (r"C:\Users\Jane\x.dll failed", "…/x.dll failed"),
        (r"\\server\share\Jane\x.dll failed", "…/x.dll failed"),
        ("GNU/Linux, 1/2, read/write", "GNU/Linux, 1/2, read/write"),
        ("CUDA failure 100 ; hostname=ward7 ;", "CUDA failure 100 ; hostname=*** ;"),
        ("of user jdoe, JDOE; jdoes stays", "of user ***, ***; jdoes stays"),
    ],
)
def test_without_names(monkeypatch: pytest.MonkeyPatch, text: str, told: str):
    monkeypatch.setattr(platform, "node", lambda: "ward7.example.org")
    monkeypatch.setenv("USER", "jdoe")
    assert diagnosis.without_names(text) == told


# ------------------------------------------------------------------------- the table of features


def extras() -> set[str]:
    section = PROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = ", section, re.M))


def test_features_are_extras():
    offered = {f.extra for f in _features.FEATURES} - {""}
    assert offered == extras() - {"benchmark", "test", "coverage", "docs", "lint", "all"}
    needs = "numpy SimpleITK pydicom click rich packaging isal lazy-loader jinja2 pillow"
    found = {r.package for r in _features.requirements(_features.FEATURES[0])}
    assert found == set(needs.split())
    # an extra that includes another one brings that one's packages, too
    assert {"torch", "onnxruntime", "tensorboard"} <= _features.brings("training")


def test_what_pages_and_errors_say_to_install():
    """Every extra that a page or an error names exists."""
    kinds = ("python/**/*.md", "slicer/**/*.md", "plugin/**/*.md", "python/src/**/*.py")
    told = {
        (extra, path.name)
        for pattern in ("*.md", *kinds, "engine/**/*.go")
        for path in REPOSITORY.glob(pattern)
        for found in re.findall(r"morphseek\[([\w,]+)\]", path.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert {"network", "gpu", "plot", "dask"} <= {extra for extra, _ in told}
    assert [each for each in told if each[0] not in extras()] == []


@pytest.mark.parametrize(
    "name, package, use, asked",
    [
        ("plot", "matplotlib", lambda: figure(None, None, None), "plot"),
        ("dask", "distributed", lambda: runner._client("tcp://x:1"), "scheduler"),
        ("nipype", "nipype", lambda: import_module(NIPYPE), NIPYPE),
    ],
)
def test_missing_package_names_its_extra(monkeypatch, name, package, use, asked):
    monkeypatch.delitem(sys.modules, NIPYPE, raising=False)
    for module in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises((ValueError, ImportError)) as caught:
        use()
    says = f"{asked}: the package {package} is needed: pip install 'morphseek[{name}]'"
    assert str(caught.value) == says
