"""Lists of pairs and of subjects in a data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ... import errors
from ..._shared import read_object, read_records
from .errors import DataError


def _lists(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file of lists."""
    try:
        return read_object(path, "pairs")
    except errors.InputUnreadableError as error:
        raise DataError(str(error)) from None


def read_pairs(data: str | Path, split: str) -> list[tuple[str, str]]:
    """Return the pairs [fixed, moving] of a data folder.

    Three layouts are known:

    - ``split.json`` with ``{"pairs": {split: [[fixed, moving], ...]}}``;
    - Learn2Reg's ``*_dataset.json`` with ``registration_val``/``registration_test`` lists of
      ``{"fixed": path, "moving": path}`` (``split`` names the list with or without the prefix;
      lists of single images are ignored);
    - a CSV file: ``split`` is its path (relative to ``data``), with columns ``fixed`` and
      ``moving``.

    Names are those of files in ``images/``, with or without their ending, or paths relative to
    ``data``.
    """
    data = Path(data)
    if split.lower().endswith((".csv", ".tsv", ".txt")):
        try:
            rows = read_records(data / split, "pairs", [("fixed", "moving")]).rows
        except errors.InputUnreadableError as error:
            raise DataError(str(error)) from None
        if not rows:
            raise DataError(f"{data / split}: no pairs; needs a row for each below its heading")
        return [(cells["fixed"], cells["moving"]) for _, cells in rows]
    if (data / "split.json").exists():
        pairs = _lists(data / "split.json").get("pairs")
        if not isinstance(pairs, dict):
            raise DataError(
                f'{data / "split.json"}: no lists of pairs; needs {{"pairs": {{NAME: [[fixed,'
                " moving], ...]}}"
            )
        if split not in pairs:
            raise DataError(
                f"{data / 'split.json'}: no pair list {split!r}; there are"
                f" {', '.join(sorted(pairs))}"
            )
        entries = pairs[split]
        if not isinstance(entries, list) or not all(
            isinstance(p, list) and len(p) == 2 and all(isinstance(n, str) for n in p)
            for p in entries
        ):
            raise DataError(
                f"{data / 'split.json'}: the list {split!r} must be of pairs of names, [[fixed,"
                " moving], ...]"
            )
        return [tuple(p) for p in entries]
    for name in sorted(data.glob("*dataset*.json")):
        content = _lists(name)
        for key in (f"registration_{split}", split):
            entries = content.get(key)
            if isinstance(entries, list) and all(
                isinstance(p, dict) and {"fixed", "moving"} <= p.keys() for p in entries
            ):
                return [(p["fixed"], p["moving"]) for p in entries]
    raise FileNotFoundError(
        f"{data}: neither split.json nor a Learn2Reg *_dataset.json with the list of pairs"
        f" {split!r}"
    )


def read_subjects(data: str | Path, split: str) -> list[str]:
    """Return the names of the subjects of a split: the list of that name, or all that occur in its
    pairs.

    A list is in ``split.json`` or in Learn2Reg's ``*_dataset.json`` (``training``), and has names
    or ``{"image": path}``.
    """
    data = Path(data)
    files = (
        [data / "split.json"]
        if (data / "split.json").exists()
        else sorted(data.glob("*dataset*.json"))
    )
    for name in files:
        entries = _lists(name).get(split)
        if isinstance(entries, list):
            subjects: list[Any] = [p.get("image") if isinstance(p, dict) else p for p in entries]
            if subjects and all(isinstance(p, str) for p in subjects):
                return subjects
            if name.name == "split.json":
                raise DataError(f"{name}: the list {split!r} must be of names, in quotes")
    return sorted({name for pair in read_pairs(data, split) for name in pair})
