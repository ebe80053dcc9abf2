"""MorphSeek: deformable registration of 3-D medical images.

>>> import morphseek
>>> pair = morphseek.phantoms.make_pair(size=48)
>>> result = morphseek.register(pair.fixed, pair.moving, model="none", refine=0, search=False)
>>> result.displacement.shape
(3, 48, 48, 48)

:func:`register` registers a pair; its :class:`RegistrationResult` warps images, labels and points,
and its :class:`Verdict` says whether it can be trusted.
:func:`register_cohort` registers many pairs into folders, :func:`evaluate` scores them,
:func:`series` registers the frames of a time series, :func:`template` makes the
mean of many images.
:mod:`morphseek.images` and :mod:`morphseek.transforms` read and write, :mod:`morphseek.scoring`
measures overlap, :mod:`morphseek.errors` lists what can go wrong. The names load when they are
first used; their types are in ``__init__.pyi``.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

# Two of the libraries beneath us call home unless told otherwise before they load: ONNX Runtime
# (telemetry; here for the training, the engine sees to its own) and nipype (a look for updates).
# MorphSeek promises that no connection is opened, whatever was set.
os.environ.update(ORT_DISABLE_TELEMETRY="1", NIPYPE_NO_ET="1")

_WHERE = {
    "Channel": "channels",
    "DenseTransform": "transforms",
    "Grid": "images",
    "Image": "images",
    "Landmarks": "landmarks",
    "Progress": "progress",
    "RegistrationResult": "result",
    "Template": "atlas",
    "Transform": "transforms",
    "Verdict": "verdict",
    "correct_epi": "epi",
    "devices": "_engine.core",
    "doctor": "diagnosis",
    "evaluate": "cohort",
    "load": "result",
    "load_preset": "_engine.options",
    "read_transform": "transforms",
    "register": "registration",
    "register_cohort": "cohort",
    "save_preset": "_engine.options",
    "series": "motion",
    "template": "atlas",
}
_MODULES = ("cohort", "errors", "images", "phantoms", "report", "scoring", "transforms")

__all__ = [*_WHERE, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    elif name == "__version__":
        from ._engine.core import version

        value = version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
