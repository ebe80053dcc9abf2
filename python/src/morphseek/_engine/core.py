"""The one place where addresses, JSON and error texts of the compiled engine become Python."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import _json, errors
from .._grid import Grid
from .._native import gopy
from .table import option_table as option_table

_forked = False


def _mark_forked() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call an engine function; its errors come out as :mod:`morphseek.errors`.

    Arrays travel as the address of their first element, grids as that of their numbers, None as
    address 0. The call holds the arrays: the engine works outside Python's lock, and memory that
    nobody holds would be another thread's before it is done.
    """
    if _forked:  # the Go runtime's threads do not survive a fork: a call would hang
        raise errors.InvalidHandleError(
            "this process was forked after morphseek had been loaded, where the engine cannot run."
            " Start workers with multiprocessing.get_context('spawn') (or 'forkserver'), or import"
            " morphseek only in the worker"
        )
    try:
        return function(*map(_crossing, args))
    except RuntimeError as error:
        raise errors._from_engine(error) from None


def check_text(name: str, value: str) -> None:
    """Refuse text with a NUL, or beyond UTF-8, which the engine would read as another."""
    try:
        value.encode()
        foreign = "\0" in value
    except UnicodeEncodeError:
        foreign = True
    if foreign:
        raise errors.InvalidArgumentError(
            f"{name} {value!r} has a NUL or characters that are not UTF-8; rename what it"
            " stands for"
        )


def _crossing(arg: Any) -> Any:
    if arg is None:
        return 0
    if isinstance(arg, str):
        check_text("the name", arg)
    arg = arg.numbers if isinstance(arg, Grid) else arg
    return arg.__array_interface__["data"][0] if isinstance(arg, np.ndarray) else arg


@functools.cache
def version() -> str:
    """Return the library's version."""
    return call(gopy.Version)


__version__ = version()


_opening = threading.Lock()
_opened = False


def open_engine() -> None:
    """Open the engine once, by the ``onnxruntime`` wheel unless the environment names a library."""
    global _opened
    # a second one would take the first's place, and wait until that has nothing to do
    with _opening:
        if not _opened:
            call(gopy.Open, "" if os.environ.get("MORPHSEEK_ORT_LIBRARY") else _wheel_runtime(), "")
            _opened = True


def _wheel_runtime() -> str:
    """Return the path of the library inside the ``onnxruntime`` wheel; import nothing."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent / "capi"
    names = ("libonnxruntime.so*", "libonnxruntime*.dylib", "onnxruntime.dll")
    return next((str(path) for name in names for path in sorted(folder.glob(name))), "")


def models() -> list[dict[str, Any]]:
    """Return the bundles that the engine knows: dicts with manifest, path, code and error.

    Examples
    --------
    >>> sorted(model["manifest"]["name"] for model in morphseek.info.models())
    ['hippocampus', 'hippocampus-morphometry']
    """
    open_engine()
    return json.loads(call(gopy.Models))


def devices() -> dict[str, Any]:
    """Try what networks can run on; takes seconds.

    Returns
    -------
    dict
        ``library``, ``version`` and ``providers`` of the ONNX Runtime in use; ``gpus``, dicts with
        name and bytes, that the NVIDIA driver shows; ``devices``, dicts with name, usable and,
        where it is not, error and remedy.

    Examples
    --------
    >>> sorted(morphseek.devices())
    ['devices', 'gpus', 'library', 'processor', 'providers', 'version']
    """
    open_engine()
    return json.loads(call(gopy.Devices))


def available_memory() -> int:
    """Return what the system and the process's limits leave, in bytes."""
    return call(gopy.AvailableMemory)


def verify_model(name: str) -> dict[str, Any]:
    """Check the bundle of that name or path; return its manifest and path."""
    open_engine()
    told = call(gopy.VerifyModel, name)
    try:
        return _json.parse(told)
    except ValueError as error:  # a stranger's manifest may hold anything as metrics
        raise errors.ModelCorruptError(
            f"model {name}: its manifest cannot be read: {error}; export it again"
        ) from None
