"""Tables: read as spreadsheets, statistics programs and data frames leave them, and written as CSV.

One reader serves all lists. Where a table can be read in two ways, it refuses it.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from io import StringIO
from itertools import chain, zip_longest
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from . import errors
from ._json import read_text
from ._plain import harmless

_SEPARATORS = ",;\t"
#: How pandas, R, BIDS and spreadsheets write an empty cell.
_NOTHING = {"nan", "NaN", "NAN", "NA", "<NA>", "NaT", "None", "n/a", "N/A", "#N/A"}
_INDEX = re.compile(r"(unnamed: \d+(\.\d+)*)?")  # how pandas calls the column of its index
_WHOLE = re.compile(r"\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


class Row(NamedTuple):
    """A row below the heading."""

    place: str
    """The line of the file, or the number in a data frame, for messages."""
    cells: dict[str, str]
    """Column to cell, without empty cells."""


class Table(NamedTuple):
    """A table as it stands, all rows of one length."""

    name: str
    """The name in messages: its kind, and its file."""
    rows: list[list[str]]
    places: list[str]
    separator: str
    """Empty for a data frame."""

    def refuse(self, what: str, place: str = "") -> errors.MorphSeekError:
        """Return the error of a table that does not say what it should."""
        kind = errors.InputUnreadableError if self.separator else errors.InvalidArgumentError
        return kind(f"{self.name}{place and f', {place}'}{what}")


class Records(NamedTuple):
    """The rows of a table by the names of its columns."""

    columns: tuple[str, ...]
    """The alternatives that the heading has."""
    rows: list[Row]
    table: Table


def read_records(
    source: Any,
    what: str,
    needed: Sequence[Sequence[str]],
    optional: Collection[str] | None = None,
    *,
    filled: bool = True,
    text: Collection[str] = (),
) -> Records:
    """Return the rows of a CSV file or a data frame by its heading, which must have one of the sets
    of columns ``needed`` and may have the ``optional`` ones, by default any. ``filled``: every row
    must have the needed cells. In columns of ``text`` such words as NA are no empty cell. Leave out
    a first column of whole numbers without a name, the index that pandas and R write.
    """
    table = read_table(source, what, needed, optional or ())
    return records_of(table, needed, optional, filled=filled, text=text)


def read_table(
    source: Any,
    what: str,
    needed: Sequence[Sequence[str]],
    optional: Collection[str] = (),
    is_row: Callable[[list[str]], bool] | None = None,
) -> Table:
    """Return a data frame, or a file by the separator that makes a heading with needed columns,
    else by the one with which every line `is_row`; refuse two such.
    """
    if is_frame(source):
        return _frame_table(source, what, {*chain(*needed), *optional})
    tables = _tables(source, what)
    best = next((table for table in tables if has_heading(table, needed)), tables[0])
    if is_row is None or has_heading(best, needed):
        return best
    fits = [table for table in tables if table.rows and all(map(is_row, table.rows))]
    if len(fits) > 1:
        names = " or ".join(repr(table.separator) for table in fits)
        raise best.refuse(
            f": its cells may be separated by {names}; write the heading {','.join(needed[0])} in"
            " the first line"
        )
    return fits[0] if fits else best


def has_heading(table: Table, needed: Sequence[Collection[str]]) -> bool:
    """Whether a table's first row has one of the sets of columns."""
    heading = {cell.lower() for row in table.rows[:1] for cell in row}
    return any(set(columns) <= heading for columns in needed)


def records_of(
    table: Table,
    needed: Sequence[Sequence[str]],
    optional: Collection[str] | None = None,
    *,
    filled: bool = True,
    text: Collection[str] = (),
) -> Records:
    """Return the rows of a table as :func:`read_records` does."""
    heading, rows = [cell.lower() for cell in table.rows[0]] if table.rows else [], table.rows[1:]
    start = 0
    while start < len(heading) and _INDEX.fullmatch(heading[start]) and rows:
        if not all(_WHOLE.fullmatch(row[start]) for row in rows):
            break
        start += 1
    heading, rows = heading[start:], [row[start:] for row in rows]
    while heading and not heading[-1]:  # cells below it are too many
        heading.pop()
    sets = [tuple(columns) for columns in needed if set(columns) <= set(heading)]
    strange = set(heading) - {"", *chain(*needed), *(optional or ())}
    if not sets or (optional is not None and strange):
        may = "" if optional is None else f", may have {_listed(optional)}, and no others"
        word = "column" if all(len(columns) == 1 for columns in needed) else "columns"
        raise table.refuse(
            f" needs a header with the {word}"
            f" {' or '.join(_listed(columns) for columns in needed)}{may}. Its header:"
            f" {', '.join(heading) or 'none'}"
        )
    if len(sets) > 1:
        raise table.refuse(
            f" has the columns {' and '.join(map(_listed, sets))}; leave out those that do not"
            " count"
        )
    if twice := next((name for name in heading if name and heading.count(name) > 1), None):
        raise table.refuse(f" has the column {twice} twice; leave one")
    if "" in heading:
        unnamed = heading.index("")
        cell = next(row[unnamed] for row in rows if row[unnamed])
        raise table.refuse(
            f": the column with {cell!r} has no name; write one into the header, or remove the"
            " column"
        )
    records = []
    for place, row in zip(table.places[1:], rows):
        if beyond := next(filter(None, row[len(heading) :]), ""):
            raise table.refuse(
                f": the cell {beyond!r} stands below no column; put cells that hold a separator in"
                " quotes, or name the column",
                place,
            )
        cells = {
            name: cell for name, cell in zip(heading, row)
            if cell and (name in text or cell not in _NOTHING)
        }  # fmt: skip
        missing = next((name for name in sets[0] if name not in cells), None)
        if filled and missing:
            raise table.refuse(f" has no {missing}; give every row one", place)
        records.append(Row(place, cells))
    return Records(sets[0], records, table)


def numbers(cells: Iterable[str], table: Table) -> list[float]:
    """Return cells of a table as numbers, with a decimal point or a decimal comma in all of them;
    NaN for what is none. Refuse a table that has both, or whose commas may separate thousands.
    """
    texts = list(cells)
    with_comma = [cell for cell in texts if "," in cell]
    if with_comma:
        point = next((cell for cell in texts if "." in cell), "")
        if point or (table.separator != ";" and all(map(_THOUSANDS.fullmatch, with_comma))):
            others = f", and {point!r} has a point" if point else ""
            raise table.refuse(
                f": the comma in {with_comma[0]!r} may separate decimals or thousands{others};"
                " write all numbers with a decimal point"
            )
        texts = [cell.replace(",", ".") for cell in texts]
    return [float(cell) if _NUMBER.fullmatch(cell) else math.nan for cell in texts]


def is_number(cell: str) -> bool:
    """Whether a cell is a number, with a decimal point or a decimal comma."""
    return _NUMBER.fullmatch(cell.replace(",", ".")) is not None


def whole_name(name: str) -> str:
    """Return a name without the ".0" that pandas gives whole numbers in a column with an empty
    cell.

    >>> whole_name("3.0"), whole_name("L3.0"), whole_name("3.5")
    ('3', 'L3.0', '3.5')
    """
    return name[:-2] if re.fullmatch(r"[0-9]+\.0", name) else name


def is_frame(source: Any) -> bool:
    """Whether something is a data frame, of pandas or of another library."""
    return hasattr(source, "columns") and any(hasattr(source, n) for n in ("itertuples", "rows"))


def is_nothing(value: Any) -> bool:
    """Whether a value stands for an empty cell."""
    return _is_missing(value) or isinstance(value, str) and value in _NOTHING


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or what pandas has in their place."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Number) and bool(value != value)


def _frame_table(frame: Any, what: str, known: Collection[str]) -> Table:
    """Return a data frame as texts, a named index as a column; refuse objects in known columns."""
    if any(name is not None for name in getattr(getattr(frame, "index", None), "names", ())):
        try:
            frame = frame.reset_index()
        except ValueError as error:
            raise errors.InvalidArgumentError(f"{what}: {error}; leave one") from None
    columns = [str(column).strip() for column in frame.columns]
    values = (
        frame.itertuples(index=False, name=None) if hasattr(frame, "itertuples") else frame.rows()
    )
    rows, places = [columns], ["row 0"]
    for number, row in enumerate(values, 1):
        places.append(f"row {number}")
        rows.append([_text(cell) for cell in row])
        for name, value in zip(columns, row):
            if name.lower() in known and not (_is_missing(value) or isinstance(value, _PLAIN)):
                raise errors.InvalidArgumentError(
                    f"{what}, {places[-1]}: {name} is given as {type(value).__name__}; a table"
                    " takes paths, texts and numbers"
                )
    return Table(what, rows, places, "")


_PLAIN = (str, os.PathLike, Number)


def _text(value: Any) -> str:
    if _is_missing(value):
        return ""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return str(value.item() if isinstance(value, np.number) else value).strip()


def csv_text(
    columns: Iterable[str], rows: Iterable[Mapping[str, Any]], separator: str = ","
) -> str:
    """Return a CSV file: a cell is empty for None and NaN, and no cell is a formula.

    >>> csv_text(["id", "mm"], [{"id": "=1+1", "mm": -0.5}, {"id": "b", "mm": math.nan}])
    "id,mm\\n'=1+1,-0.5\\nb,\\n"
    """
    text, names = StringIO(), list(columns)
    table = csv.writer(text, delimiter=separator, lineterminator="\n")
    table.writerow(names)
    table.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def bids_text(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table as BIDS has it: with tabs, and n/a where there is nothing."""
    names = list(columns)
    cells = ({k: "n/a" if row.get(k) in (None, "") else row[k] for k in names} for row in rows)
    return csv_text(names, cells, "\t")


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return harmless(value)


def data_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas DataFrame; NaN where there is no value."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise errors.InvalidArgumentError(
            f"a DataFrame needs pandas ({error}): pip install pandas"
        ) from None
    return pandas.DataFrame.from_records(list(rows))


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _tables(path: str | os.PathLike[str], what: str) -> list[Table]:
    """Return what a file is with each separator, or with the one that it names."""
    text, name = read_text(path, what), f"{what}: {path}"
    separators, first = _SEPARATORS, 1
    if mark := re.match(
        rf'"?sep=([{_SEPARATORS}])"?[{_SEPARATORS}]*(\r\n?|\n|$)', text, re.IGNORECASE
    ):
        separators, text, first = mark[1], text[mark.end() :], 2
    try:
        return [_table(name, text, separator, first) for separator in separators]
    except csv.Error as error:
        raise errors.InputUnreadableError(f"{name} is not a CSV file: {error}") from None


def _table(name: str, text: str, separator: str, first: int) -> Table:
    reader = csv.reader(StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    rows, places, line = [], [], first
    for row in reader:
        cells = [cell.strip() for cell in row]
        if any(cells):
            rows.append(cells)
            places.append(f"line {line}")
        line = first + reader.line_num
    columns = filter(any, zip_longest(*rows, fillvalue=""))
    return Table(name, [list(row) for row in zip(*columns)], places, separator)
