"""A check of this installation, in a form that can be shown to anybody.

:func:`doctor` is ``morphseek info doctor``. Nothing in what it returns names a patient, a user or a
machine: of paths there are the last names alone, of environment variables the names. It needs the
standard library alone, so that it can say what else is missing: ``python -m morphseek.diagnosis``
prints it where not even the command starts.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _apart, _features

UNWELL = 5
"""The command's exit code where something is wrong: that of the runtime's failures."""
_LIMIT = 300.0
"""Seconds after which the engine's trial has hung."""


def doctor() -> dict[str, Any]:
    """Examine this installation; takes seconds.

    Returns
    -------
    dict
        ``well``; ``problems``, dicts with what and remedy; ``version``, ``platform``, ``python``;
        ``processor`` and ``runtime`` as :func:`morphseek.devices` has them; ``trial``, a small
        registration: its seconds or its error; ``features``, dicts with name, purpose, ready,
        missing and remedy; ``packages`` and their versions; ``folders``, dicts with name, place
        and writable; ``variables``, the names of those of MorphSeek's that are set. What could not
        be found out is None.

    Examples
    --------
    >>> import morphseek
    >>> report = morphseek.info.doctor()
    >>> report["features"][0]["name"], report["features"][0]["ready"]
    ('registration', True)
    """
    problems: dict[str, str] = {}  # and their remedies
    trial = _cleaned(_trial())  # text from outside
    engine = trial.get("devices") or {}
    version = _version(_features.DISTRIBUTION)
    packages, lacking = _packages(problems)
    report = {
        "version": version,
        "platform": _platform(),
        "python": _python(),
        "processor": engine.pop("processor", None),
        "runtime": engine or None,
        "trial": {"seconds": trial.get("seconds"), "error": trial.get("error", "")},
        "features": [_feature(feature, lacking, engine) for feature in _features.FEATURES],
        "packages": packages,
        "folders": _folders(problems),
        "variables": sorted(name for name in os.environ if name.startswith("MORPHSEEK_")),
    }
    again = f"pip install --force-reinstall {_features.DISTRIBUTION}"
    if version is None:
        problems["morphseek is not installed, but only found as a folder"] = again
    elif trial.get("version", version) != version:
        problems[f"the files of two versions are mixed: {version}, {trial['version']}"] = again
    if trial.get("error") and not lacking["registration"]:
        problems[f"the engine does not work: {trial['error']}"] = again
    own, cpu = os.environ.get("MORPHSEEK_ORT_LIBRARY"), _usable(engine, "cpu")
    # that there is no ONNX Runtime is nothing wrong
    if engine and (own or _version("onnxruntime") or _version("onnxruntime-gpu")):
        if not cpu["usable"]:
            remedy = "correct MORPHSEEK_ORT_LIBRARY, or unset it" if own else cpu["remedy"]
            problems[f"ONNX Runtime is there and does not work: {cpu['error']}"] = remedy
    listed = [{"what": what, "remedy": remedy} for what, remedy in problems.items()]
    return {"well": not problems, "problems": listed, **report}


def _trial() -> dict[str, Any]:
    """Run :func:`_try` in a process of its own, which may end in ways that Python cannot catch."""
    if not _apart.is_possible():
        return _try()
    call = "from morphseek.diagnosis import _try; import json; print(json.dumps(_try()))"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),  # what is seen here, and
        "PYTHONSAFEPATH": "1",  # nothing of the current folder
    }
    how: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace"}
    try:
        command = [sys.executable, "-c", call]
        done = subprocess.run(command, timeout=_LIMIT, env=environment, **how)
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"its process does not run: {type(error).__name__}"}
    with contextlib.suppress(ValueError, IndexError):
        return json.loads(done.stdout.splitlines()[-1])
    last = (done.stderr.strip() or "no word").splitlines()[-1]
    return {"error": f"its process ended with {done.returncode}: {last}"}


def _try() -> dict[str, Any]:
    """Ask the engine for its devices, and register a small pair."""
    answer: dict[str, Any] = {}
    try:
        from . import phantom
        from ._engine import core
        from .registration import register

        answer["version"] = core.version()
        answer["devices"] = core.devices()
        pair = phantom.make_pair(size=32)
        began = time.perf_counter()
        register(pair.fixed, pair.moving, model="none", initial="com", search=False, refine=0)
        answer["seconds"] = round(time.perf_counter() - began, 2)
    except Exception as error:  # any failure here is a finding
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def _usable(engine: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    devices: dict[str, Any] = {each["name"]: each for each in engine.get("devices", ())}
    return devices.get(name, {"usable": False, "error": "", "remedy": ""})


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages(
    problems: dict[str, str],
) -> tuple[dict[str, str | None], dict[str, list[str] | None]]:
    """Return the versions of what features ask for, and what each lacks; None: not known."""
    versions: dict[str, str | None] = {}
    lacking: dict[str, list[str] | None] = {}
    for feature in _features.FEATURES:
        try:
            asked = _features.requirements(feature)
        except ImportError as error:  # packaging, which reads requirements, or the whole
            is_whole = isinstance(error, importlib.metadata.PackageNotFoundError)
            lacking[feature.name] = None if feature.extra or is_whole else ["packaging"]
            continue
        lacking[feature.name] = lacks = []
        for each in asked:
            versions[each.package] = version = _version(each.package)
            if version is None or not each.allows(version):
                lacks.append(each.wanted)
                if not feature.extra:
                    state = f"is {version}, another version" if version else "is missing"
                    what = f"the package {each.wanted} is needed and {state}"
                    problems[what] = _features.install(each.wanted)
    if lacking["registration"] == ["packaging"] and not versions:
        what = "the package packaging is missing, without which no version can be judged"
        problems[what] = _features.install("packaging")
    return dict(sorted(versions.items())), lacking


def _feature(
    feature: _features.Feature, lacking: Mapping[str, list[str] | None], engine: Mapping[str, Any]
) -> dict[str, Any]:
    missing = lacking[feature.name] or []
    ready, remedy = lacking[feature.name] == [], _features.remedy(feature)
    device = {"network": "cpu", "gpu": "cuda"}.get(feature.name)
    if device:  # the engine has tried it, whichever package brought the runtime
        ready = bool(_usable(engine, device)["usable"])
        if not ready and not missing:
            remedy = _usable(engine, device)["remedy"]
    lacks = {"missing": [], "remedy": ""} if ready else {"missing": missing, "remedy": remedy}
    return {"name": feature.name, "purpose": feature.purpose, "ready": ready, **lacks}


def _platform() -> dict[str, str]:
    """Return the system, without what its administrator may have put into its names."""
    release = re.match(r"\d+(\.\d+)*", platform.release())
    distribution = ""
    with contextlib.suppress(OSError, AttributeError):
        names = platform.freedesktop_os_release()
        distribution = f"{names['ID']} {names.get('VERSION_ID', '')}".strip()
    return {
        "system": platform.system(),
        "release": release[0] if release else "",
        "distribution": distribution,
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip(),
    }


def _python() -> dict[str, str]:
    kind = "system"
    if os.environ.get("CONDA_PREFIX") and Path(sys.prefix, "conda-meta").is_dir():
        kind = "conda"
    elif sys.prefix != sys.base_prefix:
        kind = "virtual environment"
    threads = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", free-threaded"
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation() + threads,
        "environment": kind,
    }


def _folders(problems: dict[str, str]) -> list[dict[str, Any]]:
    """Return the folders that a registration writes to beside its output."""
    if reason := _unwritable(tempfile.gettempdir):
        what = f"no folder for temporary files can be written: {reason}"
        problems[what] = "name one by TMPDIR (on Windows TEMP)"
    here = _unwritable(os.getcwd)  # results go elsewhere, if need be
    return [
        {"name": "temporary", "place": "TMPDIR", "writable": not reason},
        {"name": "current", "place": ".", "writable": not here},
    ]


def _unwritable(place: Callable[[], str]) -> str:
    """Return why no file can be made in a folder; empty where one can."""
    try:
        with tempfile.TemporaryFile(dir=place()):
            return ""
    except OSError as error:
        return str(error.strerror)


def _cleaned(value: Any) -> Any:
    """Return what came from outside without what may identify somebody in its texts."""
    if isinstance(value, dict):
        return {key: _cleaned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    return without_names(value) if isinstance(value, str) else value


_PATH = re.compile(
    r"""(?:~|\b[A-Za-z]:)?(?<![\w.)])[\\/]{1,2}(?:[^\s:;'"\\/]+[\\/])*([^\s:;'"\\/]*)"""
)


def without_names(text: str) -> str:
    """Return a text in which every absolute path is its last name alone, and no user's or
    machine's name.

    >>> without_names("cannot load /data/Jane/lib/libonnxruntime.so: no such file")
    'cannot load …/libonnxruntime.so: no such file'
    """
    variables = [os.environ.get(name, "") for name in os.environ if name.startswith("MORPHSEEK_")]
    # paths that may hold blanks, where the pattern would end
    known = {os.path.expanduser("~"), sys.prefix, sys.base_prefix, tempfile.gettempdir(), *sys.path}
    known |= {os.path.dirname(value) for value in variables}
    with contextlib.suppress(OSError):
        known.add(os.getcwd())
    for folder in sorted(known, key=len, reverse=True):
        if len(Path(folder).parts) > 1:
            text = text.replace(folder, "/…")
    text = _PATH.sub(r"…/\1", text)
    names = {platform.node(), platform.node().partition(".")[0]}
    names |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "HOSTNAME")}
    names.add(Path(os.path.expanduser("~")).name)
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "***", text, flags=re.IGNORECASE)
    return text


def rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a report as lines: what, and its value."""
    system, python = report["platform"], report["python"]
    lines = [
        ("morphseek", report["version"] or "not installed"),
        ("platform", ", ".join(filter(None, system.values()))),
        ("Python", ", ".join(python.values())),
    ]
    if processor := report["processor"]:
        used = [f["name"] for f in processor["features"] if f["used"]]
        unused = [f["name"] for f in processor["features"] if not f["used"]]
        words = f"{processor['architecture']}, {processor['threads']} threads"
        words += f", uses {', '.join(used) or 'no vectors'}"
        lines.append(("processor", words + (f", not {', '.join(unused)}" if unused else "")))
    trial = report["trial"]
    works = f"works ({trial['seconds']} s, a small made-up pair)"
    lines.append(("a registration", trial["error"] or works))
    if runtime := report["runtime"]:
        lines += runtime_rows(runtime, "none")
    packages = [f"{name} {version}" for name, version in report["packages"].items() if version]
    lines.append(("packages", ", ".join(packages)))
    for folder in report["folders"]:
        state = "writable" if folder["writable"] else "NOT writable"
        lines.append((f"{folder['name']} folder", f"{folder['place']}, {state}"))
    lines.append(("variables set", ", ".join(report["variables"]) or "none"))
    for feature in report["features"]:
        words = "ready" if feature["ready"] else "not here"
        if feature["missing"]:
            words += f", lacks {', '.join(feature['missing'])}"
        if feature["remedy"]:
            words += f". To have it: {feature['remedy']}"
        lines.append((feature["name"], f"{feature['purpose']}: {words}"))
    for problem in report["problems"]:
        lines.append(("PROBLEM", f"{problem['what']}. To mend it: {problem['remedy']}"))
    lines.append(("all is well" if report["well"] else "not well", ""))
    return lines


def runtime_rows(runtime: Mapping[str, Any], without: str) -> list[tuple[str, str]]:
    """Return what :func:`morphseek.devices` says of ONNX Runtime and of GPUs as lines."""
    library = f"{runtime['version']}  {runtime['library']}" if runtime["library"] else without
    cards = [f"{gpu['name']} ({gpu['bytes'] / 2**30:.0f} GiB)" for gpu in runtime["gpus"]]
    return [
        ("ONNX Runtime", library),
        ("its providers", ", ".join(runtime["providers"]) or "none"),
        ("GPUs", ", ".join(cards) or "none that an NVIDIA driver shows"),
    ]


def main(arguments: list[str]) -> int:
    """Print the report; return the exit code."""
    report = doctor()
    if arguments == ["--json"]:
        print(json.dumps(report))
    else:
        table = rows(report)
        width = max(len(name) for name, _ in table)
        print("\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in table))
    return 0 if report["well"] else UNWELL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
