"""Where the command keeps finished registrations."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_VARIABLE = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
_DEFAULT = "Library/Caches" if sys.platform == "darwin" else ".cache"
_NAME = "morphseek"


def cache_folder() -> Path:
    """Return the user's folder, which need not be there.

    Raises
    ------
    RuntimeError
        The user has no home.
    """
    base = os.environ.get(_VARIABLE)
    return (Path(base) if base else Path.home() / _DEFAULT) / _NAME


def cache_place() -> str:
    """Return the same in words that name no user."""
    return f"{_VARIABLE if os.environ.get(_VARIABLE) else '~/' + _DEFAULT}/{_NAME}"
