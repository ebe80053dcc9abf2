"""Tables as spreadsheets leave them."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Collection
from io import StringIO
from pathlib import Path

from .. import errors

_SEPARATORS = ",;\t"


def read_table(
    path: str | os.PathLike[str], what: str, heading: Collection[str]
) -> list[list[str]]:
    """Return the rows of a CSV file as spreadsheets leave it, the heading's first: cells stripped,
    all rows of one length, those rows and columns dropped that are empty.

    Parameters
    ----------
    path : path
    what : str
        What error messages call it.
    heading : collection of str
        Columns by which the separator is known (comma, semicolon or tab), unless a line ``sep=`` in
        front names it.

    Raises
    ------
    InputUnreadableError
        The file cannot be read, or is no text in UTF-8.
    """
    text = "\0"
    try:
        with contextlib.suppress(UnicodeDecodeError):
            text = Path(path).read_bytes().decode("utf-8-sig")  # spreadsheets put a mark in front
    except (OSError, ValueError) as error:  # ValueError: no path at all
        raise errors.InputUnreadableError(
            f"{what}: {path} cannot be read: {getattr(error, 'strerror', error)}"
        ) from None
    if "\0" in text:
        raise errors.InputUnreadableError(
            f'{what}: {path} is no text in UTF-8; save it anew as "CSV UTF-8"'
        )
    separators = _SEPARATORS
    if said := re.match(
        rf'"?sep=([{_SEPARATORS}])"?[{_SEPARATORS}]*(\r\n?|\n|$)', text, re.IGNORECASE
    ):
        separators, text = said[1], text[said.end() :]
    try:
        tables = [_rows(text, separator) for separator in separators]
    except csv.Error as error:
        raise errors.InputUnreadableError(f"{what}: {path} is not a CSV file: {error}") from None
    return next(
        (rows for rows in tables if rows and set(heading) <= {cell.lower() for cell in rows[0]}),
        tables[0],
    )


def _rows(text: str, separator: str) -> list[list[str]]:
    rows = [
        [cell.strip() for cell in row]
        for row in csv.reader(
            StringIO(text, newline=""), delimiter=separator, skipinitialspace=True
        )
    ]
    rows = [row for row in rows if any(row)]
    used = [
        c
        for c in range(max(map(len, rows), default=0))
        if any(row[c] for row in rows if c < len(row))
    ]
    return [[row[c] if c < len(row) else "" for c in used] for row in rows]


def read_labels_csv(path: str | os.PathLike[str]) -> tuple[dict[int, int], dict[int, str]]:
    """Return the map of label ids to merged ids (from 1, in the order of appearance) and the merged
    names.
    """
    heading, *table = read_table(path, "labels", {"id", "name"}) or [[]]
    try:
        cells = [dict(zip(map(str.lower, heading), row)) for row in table]
        rows = [(int(row["id"]), row["name"], row.get("structure", "")) for row in cells]
    except (KeyError, ValueError) as error:
        raise errors.InputUnreadableError(
            f"labels: {path} needs the columns id and name, and may have structure: {error!r}"
        ) from None
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
    if not any(structure for _, _, structure in rows):
        return {i: i for i in ids}, {i: name for i, name, _ in rows}
    structures = [structure or name for _, name, structure in rows]
    names = list(dict.fromkeys(structures))
    return {i: 1 + names.index(structure) for i, structure in zip(ids, structures)}, dict(
        enumerate(names, 1)
    )
