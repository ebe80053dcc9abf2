"""Lists of pairs: CSV, JSON, or given in Python."""

from __future__ import annotations

import dataclasses
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import errors
from .._json import read as read_json
from .._tables import read_table
from ..images import named


def find_list(pairs: Any, data: str | os.PathLike[str]) -> Any:
    """Return the file of a list of pairs: where it is said to be, or else in the data folder; a
    list itself as it is.

    Examples
    --------
    >>> cohort.find_list("pairs.csv", "data")
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
    if not isinstance(source, (str, os.PathLike)):
        return _as_pairs(source, "pairs")
    path = Path(source)
    if path.suffix.lower() == ".json":
        try:
            content = read_json(path, "pairs")
        except errors.MorphSeekError:
            raise
        except OSError as error:
            raise errors.InputUnreadableError(
                f"pairs: {path} cannot be read: {error.strerror}"
            ) from None
        except ValueError as error:
            raise errors.InputUnreadableError(
                f"pairs: {path} is not a list of pairs: {error}"
            ) from None
    else:
        content = _columns(read_table(path, "pairs", {"fixed", "moving"}))
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


def _columns(rows: list[list[str]]) -> list[list[str]]:
    """Return the columns fixed and moving of a table: by its heading where it has one, else the
    first two.
    """
    heading = [cell.lower() for cell in rows[0]] if rows else []
    if not {"fixed", "moving"} <= set(heading):
        return rows
    columns = heading.index("fixed"), heading.index("moving")
    return [[row[c] for c in columns] for row in rows[1:]]


def _as_pairs(rows: Any, where: str) -> list[tuple[str, str]]:
    pairs = []
    if not isinstance(rows, Iterable):
        raise errors.InvalidArgumentError(
            f"{where} are given as {type(rows).__name__}; give a path, or a list of (fixed, moving)"
        )
    for row in rows:
        entry: tuple[Any, ...] = (
            (row.get("fixed"), row.get("moving"))
            if isinstance(row, dict)
            else tuple(row)
            if isinstance(row, (list, tuple))
            else ()
        )
        if len(entry) < 2 or not all(
            isinstance(name, (str, os.PathLike)) and str(name) for name in entry[:2]
        ):
            raise errors.InputUnreadableError(
                f"{where}: {row!r} is not a pair of names (fixed, moving)"
            )
        pairs.append((str(entry[0]), str(entry[1])))
    if not pairs:
        raise errors.InputUnreadableError(f"{where} holds no pair")
    return pairs


IMAGES = (
    "fixed",
    "moving",
    "fixed_labels",
    "moving_labels",
    "fixed_mask",
    "moving_mask",
    "rigid",
    "fixed_channel",
    "moving_channel",
    "fixed_label_channel",
    "moving_label_channel",
    "fixed_landmarks",
    "moving_landmarks",
    "initial_transform",
)
"""The files that a pair may have."""


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
    """Return the pairs of a CSV file, or of a list; see :func:`register_cohort`. A pair without id
    is called NUMBER-MOVING-to-FIXED.

    Examples
    --------
    >>> [pair.id for pair in cohort.read_list([("fixed.nii.gz", "moving.nii.gz")])]
    ['001-moving-to-fixed']
    """
    if isinstance(source, (str, os.PathLike)):
        where, folder, rows = f"pairs: {source}", Path(source).parent, _table(Path(source))
    else:
        where, folder, rows = "pairs", Path(), _given(source)
    pairs: dict[str, Pair] = {}
    for number, row in enumerate(rows, 1):
        files = {image: row[image] for image in IMAGES if row.get(image)}
        name = row.get("id") or f"{number:03d}-{_stem(files['moving'])}-to-{_stem(files['fixed'])}"
        if not _is_name(name):
            raise errors.InputUnreadableError(
                f"{where}, row {number}: the id {name!r} is no name for a folder"
            )
        key = unicodedata.normalize("NFC", name).casefold()
        if key in pairs:
            same = (
                "" if pairs[key].id == name else f" (as {pairs[key].id}: some disks tell no case)"
            )
            raise errors.InputUnreadableError(
                f"{where}, row {number}: the id {name} is there twice{same};"
                " give each pair one of its own"
            )
        pairs[key] = Pair(name, str(folder.absolute()), files)
    if not pairs:
        raise errors.InputUnreadableError(f"{where}: there is no pair")
    return list(pairs.values())


#: Windows' devices, which no file there may be called, whatever ending it has.
_DEVICES = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\..*)?"
)


def _is_name(name: str) -> bool:
    """Whether a folder can have that name on every system, and takes no other file's."""
    lower = name.lower()
    return not (
        lower.startswith((".", " ", "summary.", "index."))
        or lower.endswith((".", " "))
        or any(c in '/\\:*?"<>|' or ord(c) < 32 for c in name)
        or _DEVICES.fullmatch(lower)
        or len(os.fsencode(name)) > 255
    )


def _table(path: Path) -> Iterator[dict[str, str]]:
    """Return the rows of a CSV file, column to cell."""
    heading, *rows = read_table(path, "pairs", {"fixed", "moving"}) or [[]]
    heading = [name.lower() for name in heading]
    while heading and not heading[-1]:  # the cells below it are too many
        heading.pop()
    columns = set(heading)
    if len(columns) < len(heading):
        raise errors.InputUnreadableError(f"pairs: {path} has a column twice: {', '.join(heading)}")
    if not rows or not {"fixed", "moving"} <= columns or columns - {*IMAGES, "id"}:
        raise errors.InputUnreadableError(
            f"pairs: {path} needs a header with the columns fixed and moving, may have"
            f" {', '.join(IMAGES[2:])} and id, and no others; and a row for each pair. Its header:"
            f" {', '.join(heading) or 'none'}; rows below: {len(rows)}"
        )
    for number, cells in enumerate(rows, 1):
        row = dict(zip(heading, cells))
        if any(cells[len(heading) :]) or not row["fixed"] or not row["moving"]:
            raise errors.InputUnreadableError(
                f"pairs: {path}, row {number}: there must be a fixed and a moving image, and no"
                " more cells than columns"
            )
        yield row


def _given(pairs: Any) -> Iterator[dict[str, str]]:
    """Return the rows of a list of pairs or of dicts, as :func:`_table` does."""
    if not isinstance(pairs, Iterable):
        raise errors.InvalidArgumentError(
            f"pairs are given as {type(pairs).__name__}; give the path of a CSV file, or a list of"
            " (fixed, moving)"
        )
    for number, pair in enumerate(pairs, 1):
        row = (
            pair
            if isinstance(pair, Mapping)
            else (
                dict(zip(IMAGES, pair))
                if isinstance(pair, (list, tuple)) and len(pair) == 2
                else {}
            )
        )
        row = {
            name: str(value) if name == "id" else value
            for name, value in row.items()
            if value is not None
        }
        if not {"fixed", "moving"} <= row.keys() or row.keys() - {*IMAGES, "id"}:
            raise errors.InvalidArgumentError(
                f"pairs, row {number}: give (fixed, moving), or a dict with these, which may have"
                f" {', '.join(IMAGES[2:])} and id, and no others"
            )
        for name, value in row.items():
            if not isinstance(value, (str, os.PathLike)):
                raise errors.InvalidArgumentError(
                    f"pairs, row {number}: {name} is given as {type(value).__name__}; a batch takes"
                    " paths, give images to morphseek.register"
                )
            if not os.fspath(value) and name != "id":
                raise errors.InvalidArgumentError(
                    f"pairs, row {number}: {name} is an empty path; give a path, or leave it out"
                )
        yield {name: os.fspath(value) for name, value in row.items()}


def _stem(path: str) -> str:
    return named.stem(path) or Path(path).name.split(".")[0]
