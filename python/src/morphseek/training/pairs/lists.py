"""Lists of pairs and of subjects in a data folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from ... import _files
from .errors import DataError


def _json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file of lists."""
    _files.check_regular(path, "pairs")
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: needs an object with lists of pairs, {{...}}, not {type(content).__name__}"
        )
    return content


def read_pairs(data: str | Path, split: str) -> list[tuple[str, str]]:
    """Pairs [fixed, moving] of a data folder.

    Three layouts are known:

    - ``split.json`` with ``{"pairs": {split: [[fixed, moving], ...]}}``;
    - Learn2Reg's ``*_dataset.json`` with ``registration_val``/``registration_test`` lists of
      ``{"fixed": path, "moving": path}`` (``split`` names the list with or without the prefix;
      lists of single images are ignored);
    - a CSV file: ``split`` is its path (relative to ``data``), with columns ``fixed`` and
      ``moving``.

    Names are file stems in ``images/``, or paths relative to ``data``.
    """
    data = Path(data)
    if split.endswith(".csv"):
        # utf-8-sig: Excel writes a byte order mark first.
        _files.check_regular(data / split, "pairs")
        with open(data / split, newline="", encoding="utf-8-sig") as f:
            rows = list(csv.DictReader(f))
        if not rows:
            raise DataError(
                f"{data / split}: no pairs; needs a line 'fixed,moving' and then one line per pair"
            )
        if not {"fixed", "moving"} <= rows[0].keys():
            raise DataError(f"{data / split}: needs a header with the columns 'fixed' and 'moving'")
        if short := [i for i, r in enumerate(rows, 1) if not (r["fixed"] and r["moving"])]:
            raise DataError(f"{data / split}: pair {short[0]} has only one name")
        return [(r["fixed"], r["moving"]) for r in rows]
    if (data / "split.json").exists():
        pairs = _json(data / "split.json").get("pairs")
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
        found = pairs[split]
        if not isinstance(found, list) or not all(
            isinstance(p, list) and len(p) == 2 and all(isinstance(n, str) for n in p)
            for p in found
        ):
            raise DataError(
                f"{data / 'split.json'}: the list {split!r} must be of pairs of names, [[fixed,"
                " moving], ...]"
            )
        return [tuple(p) for p in found]
    for name in sorted(data.glob("*dataset*.json")):
        content = _json(name)
        for key in (f"registration_{split}", split):
            found = content.get(key)
            if isinstance(found, list) and all(
                isinstance(p, dict) and {"fixed", "moving"} <= p.keys() for p in found
            ):
                return [(p["fixed"], p["moving"]) for p in found]
    raise FileNotFoundError(
        f"{data}: neither split.json nor a Learn2Reg *_dataset.json with the list of pairs"
        f" {split!r}"
    )


def read_people(data: str | Path, split: str) -> list[str]:
    """Names of the subjects of a split: the list of that name, or all that occur in its pairs.

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
        found = _json(name).get(split)
        if isinstance(found, list):
            people: list[Any] = [p.get("image") if isinstance(p, dict) else p for p in found]
            if people and all(isinstance(p, str) for p in people):
                return people
    return sorted({name for pair in read_pairs(data, split) for name in pair})
