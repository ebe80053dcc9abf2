"""Helpers of the folders of many pairs and of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _files, _manifest

#: The table of the pairs, which opens their pages.
INDEX = "index.html"
#: What a finished pair's folder has.
FINISHED = "pair.json"


def write_listing(path: Path, content: dict[str, Any], names: Sequence[str]) -> None:
    """Write a JSON file that lists others beside it."""
    listed = {name: _manifest.entry(path.parent / name) for name in names}
    _files.write_text(path, json.dumps({**content, _manifest.KEY: listed}, indent=1) + "\n")


def fits(row: Mapping[str, Any], plain: Any) -> bool:
    """Whether what a file says has the types of an object's attributes; None is a number."""
    for name, value in row.items():
        of = getattr(plain, name)
        if of is None or isinstance(of, (int, float)):
            if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
                return False
        elif not isinstance(value, type(of)):
            return False
    return True
