"""Names of modules that have been divided: they still work, and say where to find them now."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def moved(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of an old module; `names` says where below ``morphseek`` each of
    its names is now.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new = names[name].rpartition(".")
        warnings.warn(
            f"{module}.{name} is now morphseek.{names[name]}", DeprecationWarning, stacklevel=2
        )
        return getattr(importlib.import_module(f"morphseek.{place}"), new)

    return find
