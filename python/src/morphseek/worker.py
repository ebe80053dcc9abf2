"""A registration in a process of its own, for programs with a window: ``python -m morphseek.worker
FOLDER``.

FOLDER is a private one of the caller's. ``request.json`` in it says what to do. Arrays are .npy
files beside it, shape (z, y, x); ``matrix`` takes their continuous index (x, y, z) to LPS mm::

    {"fixed": {"file": "fixed.npy", "matrix": [[1, 0, 0, -50], [0, 1, 0, 20], ...],
               "read_from": "/scans/t1.nii",    may be absent, as "placed"; a NIfTI's doubts count
               "placed": [[...]]},              its matrix without the transforms it is under
     "moving": {...},
     "options": {"refine": 10},              as preset files have them: "on" and "off"
     "outputs": ["transform"],               of OUTPUTS; "uncertainty" sets the option
     what follows may be absent
     "fixed_mask": {...}, "moving_mask": {...}, "rigid_regions": {...},
     "channels": [{"name": "FLAIR", "labels": false, "fixed": {...}, "moving": {...}}, ...],
     "fixed_landmarks": {"points": [[1, 2, 3], ...], "names": ["tip", ...], "source": "F",
                         "unplaced": ["base"]},
     "moving_landmarks": {...},              LPS mm; they steer
     "initial_transform": [[...]],           4x4, fixed -> moving; in its place:
     "initial_field": {"file": ..., ...},    (z, y, x, 3) on the fixed grid, LPS mm
     "labels": [{"file": ...}, ...],         label maps of the moving side, on any grid
     "field_spacing": 0,                     mm between the vectors; 0: the image's own grid
     "temporary": true}                      remove FOLDER if the caller goes away

Standard output carries one JSON object a line: ``{"progress": {"stage", "fraction", "message"}}``
any number of times, then either ``{"error": {"name", "code", "class", "message"}}`` or::

    {"result": {"metrics": {...},            of Registration.metrics
                "verdict": {"grade", "sign", "meaning", "error", "reasons": [...], "notes": [...]},
                "explanation": [["Start", "a rigid alignment"], ...],
                "files": {"transform": {"file", "matrix", "initial", "linear"}, ...},
                "labels": [{"file", "matrix"}, ...],
                "places": [{"kind", "text", "tip", "lps"}, ...]}}

The words are :mod:`morphseek.verdict`'s, the places :func:`morphseek.report.worst_places`. The
label maps come back on the fixed grid, by nearest neighbours. ``transform`` and
``inverse_transform`` are the displacements before a linear map acts, their ``initial``, a 4x4
matrix, and whether they are none, ``linear``. The exit code is the command line's. A result line
means that all files are whole. The process ends when its standard input does, so that it never
outlives its caller, and at once on SIGTERM.

In place of FOLDER the worker takes questions, and prints the answer or the error as one line:

``--describe``
    What there is: ``{"version", "options", "models", "devices"}``.
``--pairs LIST``
    What :func:`morphseek.studies.read_pairs` reads, with absolute paths: ``{"pairs": [{"id",
    "fixed", "moving", ...}, ...]}``.
``--load-preset FILE``
    What :func:`morphseek.presets.load` reads: ``{"options": {...}}``.
``--save-preset FILE OPTIONS``
    Writes the options, a JSON object, by :func:`morphseek.presets.save`: ``{}``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import threading
import tokenize
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import _files, _json, errors, images, verdict
from ._engine import core
from ._engine.options import load_preset, save_preset
from ._engine.table import for_engine, in_python
from ._grid import Grid
from ._streams import open_streams
from .channels import Channel
from .images.nifti import doubts_at
from .landmarks import Landmarks
from .progress import Progress
from .registration import register
from .result import Registration
from .transforms import Field

OUTPUTS = (
    "transformed_volume",
    "transform",
    "inverse_transform",
    "displacement_magnitude",
    "jacobian",
    "uncertainty",
)
"""What can be asked for. ``transform`` and ``inverse_transform`` are float32 (z, y, x, 3), LPS mm,
components x, y, z, as :func:`vectors` returns them: from fixed to moving space, and back. The
others are float32 (z, y, x) on the fixed grid.
"""


def run(folder: Path, progress: Callable[[Progress], Any]) -> dict[str, Any]:
    """Do what ``request.json`` in a folder says; return the result line's content."""
    request = _json.read(folder / "request.json", "request")
    with _json.understood(f"{folder / 'request.json'} is not a request"):
        fixed, moving = (_read(folder, request[name], name) for name in ("fixed", "moving"))
        given: dict[str, Any] = {
            name: _read(folder, request[name], name)
            for name in ("fixed_mask", "moving_mask", "rigid_regions")
            if request.get(name) is not None
        }
        given |= {
            name: Landmarks(**entry)
            for name in ("fixed_landmarks", "moving_landmarks")
            if (entry := request.get(name)) is not None
        }
        given["channels"] = [
            Channel(
                _read(folder, entry["fixed"], f"{entry['name']}, fixed"),
                _read(folder, entry["moving"], f"{entry['name']}, moving"),
                labels=bool(entry["labels"]),
                name=entry["name"],
            )
            for entry in request.get("channels", ())
        ]
        listed = enumerate(request.get("labels", ()))
        labels = [_read(folder, entry, f"label map {i}") for i, entry in listed]
        outputs, spacing = request["outputs"], float(request.get("field_spacing", 0))
        options = {k: in_python(k, value) for k, value in request.get("options", {}).items()}
        initial = request.get("initial_transform")
        if request.get("initial_field") is not None:
            initial = _array(folder, request["initial_field"], "initial field")
        if initial is not None:
            given["initial_transform"] = np.array(initial, dtype=np.float64)
    if unknown := set(outputs) - set(OUTPUTS):
        raise errors.InvalidArgumentError(
            f"there is no output {', '.join(sorted(unknown))}; known: {', '.join(OUTPUTS)}"
        )
    if "uncertainty" in outputs:
        options = {**options, "uncertainty": True}
    result = register(fixed, moving, progress=progress, **given, **options)
    files = {}
    for name in outputs:
        progress(Progress("outputs", 1.0, name))
        if name in ("transform", "inverse_transform"):
            one = result.transform if name == "transform" else result.inverse()
            files[name] = _write(folder, name, *vectors(one, spacing))
            files[name] |= {"initial": one.initial.tolist(), "linear": one.is_linear}
        else:
            files[name] = _write(folder, name, _output(result, name), result.grid)
    warped = []
    for i, image in enumerate(labels):
        progress(Progress("outputs", 1.0, image.name))
        carried = result.apply(image, interpolation="nearest").array
        warped.append(_write(folder, f"labels-{i}", carried, result.grid))
    from .report import worst_places

    progress(Progress("outputs", 1.0, "worst places"))
    return {
        "metrics": result.to_dict(),
        "verdict": _verdict(result),
        "explanation": verdict.explanation(result.metrics),
        "files": files,
        "labels": warped,
        "places": worst_places(result, fixed),
    }


def _verdict(result: Registration) -> dict[str, Any]:
    own = result.verdict
    assert own is not None  # this library gives one
    return {
        "grade": own.grade,
        "sign": verdict.SIGNS[own.grade],
        "meaning": own.meaning,
        "error": verdict.millimetres(own.error_mm),
        "reasons": own.reasons,
        "notes": verdict.notes(result.metrics),
    }


def _read(folder: Path, entry: dict[str, Any], name: str) -> images.Image:
    array = _array(folder, entry, name)
    matrix = np.array(entry["matrix"], dtype=np.float64).reshape(4, 4)
    place = Grid.from_matrix((1, 1, 1), matrix)  # the array gives the size
    image = images.Image.on_grid(array, place, name.replace("_", " "))
    if path := entry.get("read_from"):
        at = Grid.from_matrix(image.grid.size, np.array(entry["placed"], dtype=np.float64))
        image = dataclasses.replace(image, doubts=doubts_at(Path(path), at, image.name))
    return image


def _array(folder: Path, entry: dict[str, Any], name: str) -> np.ndarray:
    path = folder / entry["file"]
    try:
        with _files.readable(path, name):
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
            return array
    except (
        ValueError, SyntaxError, EOFError, OverflowError, MemoryError, tokenize.TokenError
    ) as error:  # fmt: skip
        raise errors.InputUnreadableError(f"{name}: {path} is no array: {error!r}") from None


def _output(result: Registration, name: str) -> np.ndarray:
    if name == "transformed_volume":
        return result.warped
    if name == "jacobian":
        return result.jacobian()
    if name == "uncertainty":
        assert result.uncertainty is not None  # run asked for it
        return result.uncertainty
    return np.linalg.norm(result.displacement_mm(), axis=-1)


def _write(folder: Path, name: str, array: np.ndarray, grid: Grid) -> dict[str, Any]:
    path = folder / f"{name}.npy"
    _files.write_with(lambda temporary: np.save(temporary, array), path)
    return {"file": path.name, "matrix": grid.index_to_physical.tolist()}


def vectors(transform: Field, spacing: float = 0.0) -> tuple[np.ndarray, Grid]:
    """Return the displacements of a transform before its initial one acts, with the margin beyond
    the fixed grid in which they fade, and at least ``spacing`` mm between them: float32 (z, y, x,
    3), LPS mm, components x, y, z; and where they lie.
    """
    own = np.array(transform.grid.spacing)
    if spacing <= own.min():
        return transform._behind_initial()
    extent = (np.array(transform.grid.size) - 1) * own
    steps = np.maximum(np.floor(extent / np.maximum(own, spacing) + 1e-9), 1)
    grid = dataclasses.replace(transform.grid, size=tuple(steps + 1), spacing=tuple(extent / steps))
    points = grid.points()
    shifts = transform.transform_points(points.reshape(-1, 3)).reshape(points.shape) - points
    return Field.from_mm(shifts, grid, transform.moving_grid, transform.initial)._behind_initial()


def describe() -> dict[str, Any]:
    """Return what a panel shows: version, options, models, and usable devices by name."""
    devices = core.devices()
    usable = {d["name"] for d in devices["devices"] if d["usable"]}
    cards = {"cuda": devices["gpus"][0]["name"]} if "cuda" in usable and devices["gpus"] else {}
    return {
        "version": core.version(),
        "options": core.option_table(),
        "models": core.models(),
        "devices": {"cpu": f"{os.cpu_count()} cores", **cards},
    }


QUESTIONS = {"--describe": 0, "--pairs": 1, "--load-preset": 1, "--save-preset": 2}
"""How many values each question has."""


def answer(question: str, *values: str) -> dict[str, Any]:
    """Return the answer to one of QUESTIONS."""
    if question == "--describe":
        return describe()
    if question == "--pairs":
        from .studies import read_pairs

        listed = read_pairs(*values)
        files = [{name: str(pair.path(name)) for name in pair.files} for pair in listed]
        return {"pairs": [{"id": pair.id, **each} for pair, each in zip(listed, files)]}
    if question == "--load-preset":
        read = load_preset(*values)
        return {"options": {name: for_engine(value) for name, value in read.items()}}
    path, options = values
    words = json.loads(options)
    save_preset(path, **{name: in_python(name, value) for name, value in words.items()})
    return {}


def _end_with_caller(folder: Path) -> None:
    """Wait for the end of standard input, that is, of the caller; then end."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    if _json.object_in(folder / "request.json").get("temporary") is True:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(errors.CancelledError.exit_code)


def main(arguments: list[str]) -> int:
    """The command; returns its exit code."""
    open_streams()
    question, *values = arguments or [""]
    if len(values) != QUESTIONS.get(question, 0) or not question:
        usage = " | ".join(("FOLDER", *QUESTIONS))
        print(f"usage: python -m morphseek.worker {usage}", file=sys.stderr)
        return errors.InvalidArgumentError.exit_code
    # our lines alone go to standard output: what a library prints goes to standard error
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def send(**line: Any) -> None:
        lines.write(json.dumps(line) + "\n")

    try:
        if question in QUESTIONS:
            send(**answer(question, *values))
            return 0
        folder = Path(question)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=_end_with_caller, args=(folder,), daemon=True).start()

        def tell(report: Progress) -> None:
            send(progress={k: getattr(report, k) for k in ("stage", "fraction", "message")})

        send(result=run(folder, tell))
        return 0
    except (Exception, KeyboardInterrupt) as error:
        failure = errors._from_exception(error)
        if isinstance(failure, errors.InternalError):
            traceback.print_exc()
    said = {"name": failure.name, "code": failure.code, "class": type(failure).__name__}
    send(error={**said, "message": str(failure)})
    return failure.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
