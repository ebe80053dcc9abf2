"""MorphSeek: deformable registration of 3-D medical images.

>>> import morphseek
>>> pair = morphseek.phantom.make_pair(size=48)
>>> result = morphseek.register(pair.fixed, pair.moving, model="none", refine=0, search="off")
>>> result.displacement.shape
(3, 48, 48, 48)

:func:`register` registers a pair; its :class:`RegistrationResult` warps images, labels and points,
and its :class:`Verdict` says whether it can be trusted.
:func:`evaluate` scores many pairs, :mod:`morphseek.batch` registers them into folders.
:mod:`morphseek.io` reads and writes images, :mod:`morphseek.errors` lists what can go wrong. The
names load when they are first used; their types are in ``__init__.pyi``.
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
    "DenseTransform": "transform",
    "Progress": "registration",
    "RegistrationResult": "registration",
    "Verdict": "verdict",
    "devices": "_core",
    "evaluate": "evaluation",
    "load": "registration",
    "register": "registration",
}
_MODULES = ("batch", "errors", "io", "phantom", "report")

__all__ = [*_WHERE, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    elif name == "__version__":
        from ._core import version

        value = version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
