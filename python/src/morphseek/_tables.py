"""Tables as spreadsheets leave them."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Collection
from io import StringIO
from pathlib import Path

from . import errors
from ._files import check_regular
from ._json import check_size

_SEPARATORS = ",;\t"


def read_table(
    path: str | os.PathLike[str], what: str, heading: Collection[str]
) -> list[list[str]]:
    r"""Return the rows of a CSV file as spreadsheets leave it, the heading's first: cells stripped,
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

    Examples
    --------
    >>> _ = Path("pairs.csv").write_text("fixed;moving\na.nii;b.nii\n")
    >>> cohort.read_table("pairs.csv", "pairs", {"fixed", "moving"})
    [['fixed', 'moving'], ['a.nii', 'b.nii']]
    """
    text = "\0"
    check_regular(path, what)
    try:
        check_size(path)
        with contextlib.suppress(UnicodeDecodeError):
            text = Path(path).read_bytes().decode("utf-8-sig")  # spreadsheets add a mark
    except (OSError, ValueError) as error:  # ValueError: not a path
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
