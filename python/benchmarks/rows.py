"""Rows of a run that may be killed and goes on where it stopped: a JSON line each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import morphseek

Row = dict[str, Any]
Task = tuple[Row, Callable[[], Row]]
"""A row's identifying cells, and a function that returns its other cells."""


def read(path: Path) -> list[Row]:
    """Return the rows of a file, none if it is missing; a last line that was cut off by a kill is
    left out.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def collect(path: Path, tasks: Iterable[Task], minutes: float) -> Iterator[Row]:
    """Run the tasks that the file lacks, append their rows, and yield each; start none after so
    many minutes.
    """
    until = time.monotonic() + 60 * minutes
    kept = read(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        for head, run in tasks:
            if any(head.items() <= row.items() for row in kept):
                continue
            if time.monotonic() > until:
                return
            row = {**head, **run(), "version": morphseek.__version__}
            file.write(json.dumps(row) + "\n")
            file.flush()
            yield row
