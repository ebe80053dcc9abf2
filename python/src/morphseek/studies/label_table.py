"""Read the table that names and merges labels."""

from __future__ import annotations

import os

from .. import errors
from .._tables import numbers, read_records

_MOST = 2**53  # beyond it not every whole number is a float


def read_label_names(path: str | os.PathLike[str]) -> dict[int, str]:
    """Return the name of each label, for maps whose labels are not merged."""
    return {id: name for id, name, _ in _rows(path)}


def read_labels_csv(path: str | os.PathLike[str]) -> tuple[dict[int, int], dict[int, str]]:
    """Return the map of label ids to merged ids (from 1, in the order of appearance), and the
    merged names.
    """
    rows = _rows(path)
    if not any(structure for _, _, structure in rows):
        return {i: i for i, _, _ in rows}, {i: name for i, name, _ in rows}
    structures = {i: structure or name for i, name, structure in rows}
    names = list(dict.fromkeys(structures.values()))
    merged = {i: 1 + names.index(structure) for i, structure in structures.items()}
    return merged, dict(enumerate(names, 1))


def _rows(path: str | os.PathLike[str]) -> list[tuple[int, str, str]]:
    """Return id, name and structure of each label but the background."""
    table = read_records(
        path, "labels", [("id", "name")], filled=False, text=("name", "structure")
    )  # fmt: skip
    rows = []
    for place, row in table.rows:
        (number,) = numbers([row.get("id", "")], table.table)
        if not number.is_integer() or abs(number) > _MOST:
            raise table.table.refuse(f" has the id {row.get('id', '')!r}, which is no label", place)
        rows.append((int(number), row.get("name", ""), row.get("structure", "")))
    rows = [row for row in rows if row[0] != 0]  # the background, whatever a table calls it
    ids = [row[0] for row in rows]
    if not rows:
        raise errors.InputUnreadableError(
            f"labels: {path} has no labels; it needs the columns id and name, and a row for each"
            " label"
        )
    if len(set(ids)) < len(ids):
        raise errors.InputUnreadableError(
            f"labels: {path} has the id {next(i for i in ids if ids.count(i) > 1)} twice"
        )
    return rows
