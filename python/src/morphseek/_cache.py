"""Where this user's caches are."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def caches() -> Path:
    """Return the folder of the user's caches.

    Raises
    ------
    RuntimeError
        The user has no home.
    """
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    default = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path(base) if base else Path.home() / default
