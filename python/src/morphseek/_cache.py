"""Where the command keeps finished registrations."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_NAME = "morphseek"


def _place() -> tuple[str, str]:
    """Return the variable that names the caches' folder here, and where they are without it."""
    return (
        "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME",
        "Library/Caches" if sys.platform == "darwin" else ".cache",
    )


def cache_folder() -> Path:
    """Return the user's folder, which need not be there.

    Raises
    ------
    RuntimeError
        The user has no home.
    """
    variable, default = _place()
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / default) / _NAME


def cache_place() -> str:
    """Return the same in words that name no user."""
    variable, default = _place()
    return f"{variable if os.environ.get(variable) else '~/' + default}/{_NAME}"
