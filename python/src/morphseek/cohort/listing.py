"""What the folders of a batch and of an evaluation have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _files, _manifest

#: The table of the pairs, which opens their pages.
INDEX = "index.html"


def write_listing(path: Path, content: dict[str, Any], names: Sequence[str]) -> None:
    """Write a JSON file that lists others beside it."""
    listed = {name: _manifest.entry(path.parent / name) for name in names}
    _files.write_text(path, json.dumps({**content, _manifest.KEY: listed}, indent=1) + "\n")
