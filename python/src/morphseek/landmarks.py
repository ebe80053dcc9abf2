"""Landmarks: points of an image that a person has marked, and the files that hold them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _tables, errors
from ._engine.bindings import Doubles
from ._files import check_path, write_text
from ._grid import Grid
from ._json import parse, read_text, understood
from ._plain import unguarded
from ._points import checked_points
from .images.formats import ending_of

# columns, signs to LPS
_SPACES: dict[tuple[str, ...], tuple[int, int, int]] = {
    ("x", "y", "z"): (1, 1, 1),
    ("l", "p", "s"): (1, 1, 1),
    ("r", "a", "s"): (-1, -1, 1),
}
_SIGNS = {"lps": (1, 1, 1), "1": (1, 1, 1), "ras": (-1, -1, 1), "0": (-1, -1, 1)}
_NAMES = ("name", "label", "id")
_MOST = 5  # names in a message
_SCHEMA = (
    "https://raw.githubusercontent.com/slicer/slicer/master/Modules/Loadable/Markups/Resources/"
    "Schema/markups-schema-v1.0.3.json#"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Landmarks:
    """Points of one image, LPS mm.

    Attributes
    ----------
    points : numpy.ndarray
        float64, shape (n, 3).
    names : tuple of str
        One a point, or none.
    source : str
        What messages call them: their file.
    unplaced : tuple of str
        Names of further points, which have no place: 3D Slicer says so, or their cells are empty.

    Examples
    --------
    >>> Landmarks([[1, 2, 3], [4, 5, 6]], ["tip", "base"])
    Landmarks(2 points: tip, base)
    """

    points: Doubles
    names: tuple[str, ...] = ()
    source: str = "landmarks"
    unplaced: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        points, names = self.points, tuple(map(str, self.names))
        if _tables.is_frame(points):
            rows, found = _csv(points, self.source)
            points, names, unplaced = _placed(rows, names or found)
        else:
            unplaced = tuple(map(str, self.unplaced))
        points = checked_points(points)
        if not len(points):
            raise errors.InvalidArgumentError(f"{self.source}: there is no point; mark some")
        if names and len(names) != len(points):
            raise errors.InvalidArgumentError(
                f"{self.source}: there are {len(names)} names for {len(points)} points"
            )
        if not (whole := np.isfinite(points).all(axis=1)).all():
            first = int(np.argmin(whole))
            raise errors.InvalidArgumentError(
                f"{self.source}: the point {names[first] if names else first + 1} lies at"
                f" {points[first].tolist()}; each needs three finite numbers"
            )
        points.flags.writeable = False
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "unplaced", unplaced)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        names = f": {', '.join(self.names)}" if self.names else ""
        without = f"; without a place: {', '.join(self.unplaced)}" if self.unplaced else ""
        return f"Landmarks({len(self)} points{names}{without})"

    @classmethod
    def of(cls, source: LandmarksLike, name: str = "landmarks") -> Landmarks:
        """Return landmarks from themselves, a file, an array or a data frame with the columns of a
        CSV table (see :meth:`read`); ``name`` is what messages call them.

        Examples
        --------
        >>> morphseek.Landmarks.of("fixed_points.csv")
        Landmarks(4 points: a, b, c, d)
        """
        if isinstance(source, Landmarks):
            return source
        if isinstance(source, (str, os.PathLike)):
            return cls.read(source, name)
        try:
            return cls(source, source=name)  # type: ignore[arg-type]
        except errors.InvalidArgumentError as error:
            message = str(error)
            raise errors.InvalidArgumentError(
                message if message.startswith(name) else f"{name}: {message}"
            ) from None

    @classmethod
    def read(cls, path: str | os.PathLike[str], name: str = "landmarks") -> Landmarks:
        """Read a file: 3D Slicer's ``.mrk.json`` and ``.fcsv``, whose header says whether they are
        in LPS or RAS, or a CSV table with the columns x, y, z in LPS mm (l, p, s are the same;
        r, a, s are RAS) and, if the points have names, one of name, label and id, or else a column
        of words that are all different. A table of numbers alone, x, y, z, needs no heading. A
        decimal comma is read where it is clear. Points that have a name and no place are left out,
        and ``unplaced`` names them.

        Raises
        ------
        InputUnreadableError
            The file cannot be read, holds no points, or one that is no place.

        Examples
        --------
        >>> morphseek.Landmarks.read("fixed_points.csv").names
        ('a', 'b', 'c', 'd')
        """
        path = Path(path)
        check_path(path, name, errors.InputUnreadableError)
        read = {".json": _json, ".fcsv": _fcsv}.get(path.suffix.lower(), _csv)
        points, names, unplaced = _placed(*read(path, name))
        try:
            return cls(points, names, f"{name}: {path}", unplaced)
        except errors.InvalidArgumentError as error:
            raise errors.InputUnreadableError(str(error)) from None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a file in LPS mm: ``.mrk.json``, ``.fcsv``, or a ``.csv`` table with the columns
        name (where the points have names), x, y and z.

        Raises
        ------
        OutputUnwritableError
            The ending is another one, or the file cannot be written.

        Examples
        --------
        >>> morphseek.Landmarks([[1, 2, 3]], ["tip"]).write("points.mrk.json")
        >>> morphseek.Landmarks.read("points.mrk.json")
        Landmarks(1 points: tip)
        """
        writers = {".mrk.json": self._to_json, ".fcsv": self._to_fcsv, ".csv": self._to_csv}
        if ending := ending_of(path, writers):
            return write_text(path, writers[ending]())
        raise errors.OutputUnwritableError(
            f"{path}: points are written to {', '.join(writers)}; give the file such an ending"
        )

    def _chosen(self, names: Sequence[str]) -> Landmarks:
        order = [self.names.index(name) for name in names]
        return Landmarks(self.points[order], tuple(names), self.source, self.unplaced)

    def _alone(self, common: set[str]) -> Landmarks | None:
        names = [name for name in self.names if name not in common]
        return self._chosen(names) if names else None

    def _labels(self) -> tuple[str, ...]:
        return self.names or tuple(str(i + 1) for i in range(len(self)))

    def _to_json(self) -> str:
        points = [
            {"id": str(i + 1), "label": label, "position": list(map(float, point))}
            | {"positionStatus": "defined"}
            for i, (label, point) in enumerate(zip(self._labels(), self.points))
        ]
        markup = {
            "type": "Fiducial",
            "coordinateSystem": "LPS",
            "coordinateUnits": "mm",
            "controlPoints": points,
        }
        return json.dumps({"@schema": _SCHEMA, "markups": [markup]}, indent=2) + "\n"

    def _to_fcsv(self) -> str:
        lines = [
            "# Markups fiducial file version = 4.11",
            "# CoordinateSystem = LPS",
            "# columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID",
        ]
        rows = [
            [i + 1, *map(float, point), 0, 0, 0, 1, 1, 1, 0, label, "", ""]
            for i, (label, point) in enumerate(zip(self._labels(), self.points))
        ]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return "\n".join(lines) + "\n" + text.getvalue()

    def _to_csv(self) -> str:
        rows = [
            {"name": name, **dict(zip("xyz", map(float, point)))}
            for name, point in zip(self._labels(), self.points)
        ]
        return _tables.csv_text(["name", *"xyz"] if self.names else "xyz", rows)


LandmarksLike = Landmarks | str | os.PathLike[str] | np.ndarray | Sequence[Any]
"""Landmarks, a file with some, or points: (n, 3) in LPS mm."""


@dataclasses.dataclass(frozen=True)
class Matched:
    """The landmarks of two images, sorted by what the other has of them."""

    fixed: Landmarks
    moving: Landmarks
    """Those that belong together, at one place."""
    only_fixed: Landmarks | None = None
    only_moving: Landmarks | None = None
    """Those that one image alone has."""

    @property
    def names(self) -> list[str]:
        """What the pairs are called."""
        return list(self.fixed.names or self.moving._labels())

    def notes(
        self, fixed: Grid | None = None, moving: Grid | None = None, is_refused: bool = True
    ) -> list[str]:
        """Return warnings of points outside their images' grids, where these are known, of points
        without a place or a partner, of names that tell nothing, and of points that are the same in
        both images; refuse points that all lie outside, or warn of them.
        """
        grids = fixed, moving
        outside = [
            check_inside(p, grid, side, is_refused) for (p, side), grid in zip(self._sides(), grids)
        ]
        notes = [note for note in outside if note]
        if nowhere := _of_sides([(p.unplaced, side) for p, side in self._sides()]):
            notes.append(f"Landmarks without a place were left out: {nowhere}.")
        named = [set(points.names) - {""} for points, _ in self._sides()]
        alone = ((self.only_fixed, "fixed"), (self.only_moving, "moving"))
        if len(self.fixed) > 1 and np.array_equal(self.fixed.points, self.moving.points):
            notes.append(
                "The landmarks of the two images are the same points: if you mean two lists, one"
                " was given twice."
            )
        elif all(named) and not set.intersection(*named):
            notes.append(
                "The landmarks of the two images have no name in common: they were paired in the"
                " order of the files."
            )
        elif carried := _of_sides([(p.names, side) for p, side in alone if p is not None]):
            notes.append(f"Landmarks that one image alone has were carried over: {carried}.")
        return notes

    def _sides(self) -> tuple[tuple[Landmarks, str], ...]:
        return (self.fixed, "fixed"), (self.moving, "moving")


def match_landmarks(fixed: LandmarksLike | None, moving: LandmarksLike | None) -> Matched:
    """Return the landmarks of two images, paired by the names that both have, else in the order
    given. Refuse a side without any, a name that is there twice, and different numbers unnamed.
    """
    if fixed is None or moving is None:
        own, missing = ("moving", "fixed") if fixed is None else ("fixed", "moving")
        raise errors.InvalidArgumentError(
            f"{own} landmarks are given without {missing} landmarks; give both"
        )
    here, there = Landmarks.of(fixed, "fixed landmarks"), Landmarks.of(moving, "moving landmarks")
    common = set(here.names) & set(there.names)
    is_ordered = not common or here.names == there.names and len(set(here.names)) < len(here)
    for points in (here, there):
        if is_ordered and points.unplaced:
            raise errors.InvalidArgumentError(
                f"{points.source}: {_listed(set(points.unplaced))} has no place, and there are no"
                " common names by which to pair the others; place or delete it"
            )
    if not common:
        if len(here) != len(there):
            raise errors.InvalidArgumentError(
                f"{here.source} has {len(here)} landmarks, {there.source} has {len(there)}, and no"
                " names in common; give as many of each, or points that belong together the same"
                " name"
            )
        return Matched(here, there)
    for points in (here, there):
        if twice := {name for name in points.names if points.names.count(name) > 1}:
            if here.names == there.names:  # such lists have no names to tell points by
                return Matched(here, there)
            raise errors.InvalidArgumentError(
                f"{points.source} has the name {_listed(twice)} twice; give every point a name of"
                " its own"
            )
    return Matched(
        here._chosen([name for name in here.names if name in common]),
        there._chosen([name for name in here.names if name in common]),
        here._alone(common),
        there._alone(common),
    )


def pair_landmarks(fixed: LandmarksLike, moving: LandmarksLike) -> tuple[Landmarks, Landmarks]:
    """Do what :func:`match_landmarks` does; refuse names of which only some agree, but those whose
    partner has no place.
    """
    matched = match_landmarks(fixed, moving)
    sides = zip((matched.only_fixed, matched.only_moving), reversed(matched._sides()))
    for points, (partners, other) in sides:
        if points is not None and (alone := set(points.names) - set(partners.unplaced)):
            raise errors.InvalidArgumentError(
                f"{points.source}: {_listed(alone)} has no partner of that name among the {other}"
                " landmarks; give every point one, or leave it out"
            )
    return matched.fixed, matched.moving


def steering(
    matched: Matched, fixed_grid: Grid, moving_grid: Grid, options: dict[str, Any]
) -> tuple[tuple[Doubles, list[str]], list[str]]:
    """Return landmarks that steer a registration: numbers (n, 6), fixed, then moving, LPS mm, with
    their names; and warnings. Refuse them without ``landmark_error``, or all outside an image.
    """
    here, there = matched.fixed, matched.moving
    if not options.get("landmark_error"):
        raise errors.InvalidArgumentError(
            f"{here.source} and {there.source} are to steer, and landmark_error is not given; set"
            " it to how exactly they were marked, mm (1 to 2 for clear points). To measure at them"
            " instead: morphseek.scoring.score_landmarks"
        )
    notes = matched.notes(fixed_grid, moving_grid)
    points = np.ascontiguousarray(np.hstack([here.points, there.points]))
    return (points, matched.names), notes


def _of_sides(sides: list[tuple[Sequence[str], str]]) -> str:
    return ", ".join(f"{_listed(set(names))} ({side})" for names, side in sides if names)


def _listed(names: set[str]) -> str:
    first, more = sorted(names)[:_MOST], len(names) - _MOST
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def check_inside(
    landmarks: Landmarks, grid: Grid | None, image: str, is_refused: bool = True
) -> str:
    """Return a warning that names the points outside a grid; where all are, refuse them or warn."""
    if grid is None:
        return ""
    index = grid.to_index(landmarks.points)
    outside = np.any((index < -0.5) | (index > np.array(grid.size) - 0.5), axis=1)
    if outside.all():
        text = (
            f"{landmarks.source}: every point lies outside the {image} image, the first at"
            f" {landmarks.points[0].round(1).tolist()} mm; points are in LPS mm, those of a table"
            " in RAS need the columns r, a, s"
        )
        if is_refused:
            raise errors.InvalidArgumentError(text)
        return text
    if not outside.any():
        return ""
    names = _listed({landmarks._labels()[i] for i in np.flatnonzero(outside)})
    return f"Landmarks outside the {image} image, where the transform only goes on: {names}."


_Rows = list[list[float] | None]  # None: a point without a place


def _placed(rows: _Rows, names: Sequence[str]) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Return points, their names, and the names of those without a place; these are NaN where
    points are told by their order.
    """
    if len(names) != len(rows):
        return np.reshape([row or [math.nan] * 3 for row in rows], (-1, 3)), tuple(names), ()
    kept = [(row, name) for row, name in zip(rows, names) if row is not None]
    unplaced = tuple(name for row, name in zip(rows, names) if row is None)
    points = np.reshape([row for row, _ in kept], (-1, 3))
    return points, tuple(name for _, name in kept), unplaced


def _number(cell: Any) -> float:
    """Return a cell's number; NaN where it is none, which is refused later by the point's name."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def _csv(source: Any, name: str) -> tuple[_Rows, list[str]]:
    wanted = list(_SPACES)
    table = _tables.read_table(source, name, wanted, _NAMES, _is_point)
    if _tables.has_heading(table, wanted):
        records = _tables.records_of(table, wanted, filled=False, text=_NAMES)
        rows = [
            [row.cells.get(column, "") if _is_marked(row) else "" for column in records.columns]
            for row in records.rows
        ]
        signs = _SPACES[records.columns]
        called = next((n for n in _NAMES if any(n in row.cells for row in records.rows)), "")
        called = called or _words(records)
        cells = [row.cells.get(called, "") for row in records.rows] if called else []
        names = [_tables.whole_name(unguarded(cell)) for cell in cells]
    else:
        rows, signs, names = table.rows, (1, 1, 1), []
        if not table.separator and all(map(str.isdecimal, rows[0])):  # a frame's unnamed columns
            rows = table.rows[1:]
        if not rows or not all(map(_is_point, rows)):
            heading = ", ".join(table.rows[0]) if table.rows else "none"
            raise table.refuse(
                " needs the columns x, y and z (LPS mm; or r, a and s), and may have name. Its"
                f" heading: {heading}"
            )
    values = _tables.numbers([cell for row in rows for cell in row], table)
    points: _Rows = [
        [s * v for s, v in zip(signs, values[3 * k : 3 * k + 3])] if any(row) else None
        for k, row in enumerate(rows)
    ]
    return points, names


def _is_marked(row: _tables.Row) -> bool:
    """Whether a point was placed, which a table of 3D Slicer says."""
    return row.cells.get("defined", "1") not in ("0", "False", "false")


def _words(records: _tables.Records) -> str:
    """Return the first column of words that tell all rows apart; empty where there is none."""
    for column in records.rows[0].cells if records.rows else ():
        cells = {row.cells.get(column, "") for row in records.rows} - {""}
        is_full = len(cells) == len(records.rows) and column not in records.columns
        if is_full and not any(map(_tables.is_number, cells)):
            return column
    return ""


def _is_point(row: list[str]) -> bool:
    return len(row) == 3 and all(map(_tables.is_number, row))


def _fcsv(path: Path, name: str) -> tuple[_Rows, list[str]]:
    lines = read_text(path, name).splitlines()
    fields = {
        match[1].lower(): match[2]
        for line in lines
        if (match := re.match(r"#\s*(\w+)\s*=\s*(.*?)\s*$", line))
    }
    space = fields.get("coordinatesystem", "ras").lower()  # as Slicer takes old files
    if space not in _SIGNS:
        raise errors.InputUnreadableError(
            f"{name}: {path} is in {space.upper()}, not in LPS or RAS; save it anew from 3D Slicer"
        )
    columns = fields.get("columns", "id,x,y,z").lower().split(",")
    if not {"x", "y", "z"} <= set(columns):
        raise errors.InputUnreadableError(f"{name}: {path} has no columns x, y and z")
    points: _Rows = []
    names: list[str] = []
    for cells in csv.reader(line for line in lines if line.strip() and line[0] != "#"):
        row = dict(zip(columns, cells))
        # Slicer 5 adds cells without a column; the first says whether the point was placed
        is_placed = cells[len(columns) :][:1] in ([], [""], ["2"])
        place = [s * _number(row.get(c)) for s, c in zip(_SIGNS[space], "xyz")]
        points.append(place if is_placed else None)
        names.append(row.get("label") or row.get("id") or str(len(points)))
    return points, names


def _json(path: Path, name: str) -> tuple[_Rows, list[str]]:
    with understood(f"{name}: {path} is not 3D Slicer's list of points (.mrk.json)"):
        lists = parse(read_text(path, name))["markups"]
        if len(lists) != 1:
            raise errors.InputUnreadableError(
                f"{name}: {path} holds {len(lists)} lists of points; save one alone"
            )
        space = str(lists[0].get("coordinateSystem", "LPS"))
        units = lists[0].get("coordinateUnits") or "mm"
        if space.lower() not in ("lps", "ras") or {
            *([units] if isinstance(units, str) else units)
        } != {"mm"}:
            raise errors.InputUnreadableError(
                f"{name}: {path} is in {space} and {units}, not in LPS or RAS mm; save it anew"
                " from 3D Slicer"
            )
        points: _Rows = []
        names: list[str] = []
        for i, point in enumerate(lists[0]["controlPoints"]):
            is_defined = point.get("positionStatus", "defined") == "defined"
            place = point["position"] if is_defined else ()
            cells = [_number(v) for v in place] if len(place) == 3 else [math.nan] * 3
            signed = [s * v for s, v in zip(_SIGNS[space.lower()], cells)]
            points.append(signed if is_defined else None)
            names.append(str(point.get("label") or point.get("id") or i + 1))
    return points, names
