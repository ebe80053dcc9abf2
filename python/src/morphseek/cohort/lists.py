"""Lists of pairs: CSV, JSON, or given in Python."""

from __future__ import annotations

import dataclasses
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import errors
from .._json import read as read_json
from .._plain import why_no_name
from .._tables import has_heading, is_frame, is_nothing, read_plain, read_records, records_of
from ..images import named


def find_list(pairs: Any, data: str | os.PathLike[str]) -> Any:
    """Return the file of a list of pairs: where it is said to be, or else in the data folder; a
    list itself as it is.

    Examples
    --------
    >>> find_list("pairs.csv", "data")
    'pairs.csv'
    """
    if (
        not isinstance(pairs, (str, os.PathLike))
        or Path(pairs).exists()
        or not (Path(data) / pairs).is_file()
    ):
        return pairs
    return Path(data) / pairs


def read_pairs(
    source: str | os.PathLike[str] | Sequence[tuple[str, str]], subset: str | None = None
) -> list[tuple[str, str]]:
    """Return the (fixed, moving) names of a pair list; see :func:`evaluate`.

    >>> read_pairs([("a", "b")])
    [('a', 'b')]
    """
    if is_frame(source):
        return _as_pairs([row.cells for row in read_records(source, "pairs", _PAIR).rows], "pairs")
    if not isinstance(source, (str, os.PathLike)):
        return _as_pairs(source, "pairs")
    path = Path(source)
    if path.suffix.lower() != ".json":
        return _as_pairs(_plain_rows(path), f"pairs: {path}")
    content = read_json(path, "pairs")
    if isinstance(content, list):
        if subset is not None:
            raise errors.InvalidArgumentError(
                f"pairs: {path} is one list of pairs, so there is no {subset!r} to choose; leave"
                " out subset, or check the file"
            )
        return _as_pairs(content, str(path))
    if not isinstance(content, dict):
        raise errors.InputUnreadableError(
            f"pairs: {path} holds neither a list of pairs nor an object with such lists"
        )
    nested = content.get("pairs")
    lists = {**content, **(nested if isinstance(nested, dict) else {})}
    lists = {
        key: value
        for key, value in lists.items()
        if isinstance(value, list) and value and not isinstance(value[0], (str, int))
    }
    if subset is None and len(lists) == 1:
        subset = next(iter(lists))
    if subset not in lists:
        missing = "" if subset is None else f"no list {subset!r}; "
        raise errors.InvalidArgumentError(
            f"pairs: {path}: {missing}it has the lists {', '.join(sorted(lists)) or '(none)'};"
            " choose one with subset"
        )
    return _as_pairs(lists[subset], f"{path}, {subset}")


def _plain_rows(path: Path) -> list[Any]:
    """Return the rows of a table: by its heading where it has one, else the first two columns."""
    table = read_plain(path, "pairs", _PAIR, lambda row: all(row[:2]) and len(row) > 1)
    if has_heading(table, [("fixed",), ("moving",)]):  # one alone is a heading that lacks the other
        return [row.cells for row in records_of(table, _PAIR).rows]
    return table.rows


def _as_pairs(rows: Any, where: str) -> list[tuple[str, str]]:
    pairs = []
    if isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise errors.InvalidArgumentError(
            f"{where} are given as {type(rows).__name__}; give a path, or a list of (fixed, moving)"
        )
    for row in rows:
        named = _by_name(row)
        entry = [named.get(side) for side in ("fixed", "moving")]
        if not all(isinstance(name, (str, os.PathLike)) and str(name) for name in entry):
            raise errors.InputUnreadableError(
                f"{where}: {row!r} is not a pair of names (fixed, moving)"
            )
        pairs.append((str(entry[0]), str(entry[1])))
    if not pairs:
        raise errors.InputUnreadableError(f"{where} holds no pair")
    return pairs


def _by_name(row: Any) -> Mapping[str, Any]:
    """Return a row by its columns: a mapping, a named tuple, a row of a data frame, or a sequence
    whose third cell and further ones have numbers; empty for anything else.
    """
    if isinstance(row, Mapping):
        return row
    for method in ("_asdict", "to_dict"):
        if hasattr(row, method):
            named: Mapping[str, Any] = getattr(row, method)()
            if {"fixed", "moving"} & set(named):  # others are called by their numbers
                return named
    if isinstance(row, (str, bytes)) or not hasattr(row, "__getitem__"):
        return {}
    return dict(zip((*IMAGES[:2], *map(str, range(3, len(row) + 1))), row))


IMAGES = (
    "fixed",
    "moving",
    "fixed_labels",
    "moving_labels",
    "fixed_mask",
    "moving_mask",
    "rigid_regions",
    "fixed_channel",
    "moving_channel",
    "fixed_label_channel",
    "moving_label_channel",
    "fixed_landmarks",
    "moving_landmarks",
    "initial_transform",
)
"""The files that a pair may have."""

_PAIR = [IMAGES[:2]]
_OTHERS = (*IMAGES[2:], "id")


@dataclasses.dataclass(frozen=True)
class Pair:
    """A row of the list: its name, and its files, relative to the list's folder, or atlases.

    Examples
    --------
    >>> row = cohort.Pair("one", "data", {"fixed": "a.nii.gz", "moving": "b.nii.gz"})
    >>> row.path("fixed").as_posix()
    'data/a.nii.gz'
    """

    id: str
    folder: str
    files: dict[str, str]

    def path(self, image: str) -> Path:
        """Return the path of one of IMAGES.

        Examples
        --------
        >>> cohort.Pair("one", "data", {"fixed": "a.nii.gz"}).path("fixed").as_posix()
        'data/a.nii.gz'
        """
        return named.beside(Path(self.folder), self.files[image])


def read_list(source: str | os.PathLike[str] | Sequence[Any]) -> list[Pair]:
    """Return the pairs of a CSV file, or of a list; see :func:`register_pairs`. A pair without id
    is called NUMBER-MOVING-to-FIXED.

    Examples
    --------
    >>> [pair.id for pair in cohort.read_list([("fixed.nii.gz", "moving.nii.gz")])]
    ['001-moving-to-fixed']
    """
    where, folder, rows = "pairs", Path(), _given(source)
    if isinstance(source, (str, os.PathLike)):
        where, folder = f"pairs: {source}", Path(source).parent
    pairs: dict[str, Pair] = {}
    for number, (place, row) in enumerate(rows, 1):
        files = {image: row[image] for image in IMAGES if row.get(image)}
        name = row.get("id") or f"{number:03d}-{_stem(files['moving'])}-to-{_stem(files['fixed'])}"
        reason = why_no_name(name)
        if name.lower().startswith(("summary.", "index.")):
            reason = "the batch writes a file of that name"
        if reason:
            raise errors.InputUnreadableError(
                f"{where}, {place}: the id {name!r} is no name for a folder: {reason}; give the"
                " pair another id"
            )
        key = unicodedata.normalize("NFC", name).casefold()
        if key in pairs:
            same = (
                "" if pairs[key].id == name else f" (as {pairs[key].id}: some disks tell no case)"
            )
            raise errors.InputUnreadableError(
                f"{where}, {place}: the id {name} is there twice{same};"
                " give each pair one of its own"
            )
        pairs[key] = Pair(name, str(folder.absolute()), files)
    if not pairs:
        raise errors.InputUnreadableError(f"{where}: there is no pair")
    return list(pairs.values())


def _given(pairs: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the rows of a file, a data frame, or a list of pairs or of dicts, and their places."""
    if isinstance(pairs, (str, os.PathLike)) or is_frame(pairs):
        for row in read_records(pairs, "pairs", _PAIR, _OTHERS).rows:
            yield row.place, row.cells
        return
    if isinstance(pairs, bytes) or not isinstance(pairs, Iterable):
        raise errors.InvalidArgumentError(
            f"pairs are given as {type(pairs).__name__}; give the path of a CSV file, a data frame,"
            " or a list of (fixed, moving)"
        )
    for number, pair in enumerate(pairs, 1):
        place = f"row {number}"
        yield place, _checked(_by_name(pair), f"pairs, {place}")


def _checked(row: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return a row that was given in Python, without what stands for an empty cell."""
    row = {
        name: str(value) if name == "id" else value
        for name, value in row.items()
        if not is_nothing(value) and not (isinstance(value, str) and not value and name in _OTHERS)
    }
    strange = row.keys() - {*IMAGES, "id"}
    if not {"fixed", "moving"} <= row.keys() or strange:
        raise errors.InvalidArgumentError(
            f"{where}: give (fixed, moving), or a dict with these, which may have"
            f" {', '.join(IMAGES[2:])} and id, and no others"
            + (f"; it has {', '.join(sorted(map(str, strange)))}" if strange else "")
        )
    for name, value in row.items():
        if not isinstance(value, (str, os.PathLike)):
            raise errors.InvalidArgumentError(
                f"{where}: {name} is given as {type(value).__name__}; a batch takes paths, give"
                " images to morphseek.register"
            )
        if not os.fspath(value):
            raise errors.InvalidArgumentError(
                f"{where}: {name} is an empty path; give a path, or leave it out"
            )
    return {name: str(os.fspath(value)) for name, value in row.items()}  # no numpy.str_


def _stem(path: str) -> str:
    return named.stem(path) or Path(path).name.split(".")[0]
