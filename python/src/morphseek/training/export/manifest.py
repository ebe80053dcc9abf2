"""A bundle's manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..._shared import verify_model

MANIFEST_KEY = "morphseek_manifest"


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Return the manifest of a bundle, which the engine checks as before a registration: whole,
    untampered, of a known format, nothing outside itself.
    """
    manifest: dict[str, Any] = verify_model(str(Path(path).absolute()))["manifest"]
    return manifest
