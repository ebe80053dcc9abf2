"""Read what a study is of: images with their roles, or pairs of them.

Tables (CSV, TSV, JSON, data frames), folders and lists all become lists of :class:`Item`
or of :class:`Pair`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import errors, images
from .._json import read as read_json
from .._plain import why_no_name
from .._tables import is_frame, is_nothing, read_records, whole_name
from ..images import named
from ..images.formats import SEARCHED, ending_of
from .folders import check_alone, find_file, has_labels
from .study import TABLES

#: Of tables; what a spreadsheet saves is refused as one, with what to do.
_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".xlsx", ".xls", ".ods")
#: The files that belong to an image.
ROLES = ("labels", "mask", "landmarks", "channel")
_WORDS = ("subject", "session", "id")
IMAGES = (
    "fixed", "moving", "fixed_labels", "moving_labels", "fixed_mask", "moving_mask",
    "rigid_regions", "fixed_channel", "moving_channel", "fixed_label_channel",
    "moving_label_channel", "fixed_landmarks", "moving_landmarks", "initial_transform",
)  # fmt: skip
"""The files that a pair may have."""


class _Kind(NamedTuple):
    """The kind of a table's rows: their columns, for the reader and for messages."""

    name: str
    first: tuple[str, ...]
    """The columns of a row without names."""
    needed: list[tuple[str, ...]]
    """The sets of columns of which a row must have one."""
    optional: tuple[str, ...]


_ITEMS = _Kind(
    "images",
    ("image", "labels"),
    [("image",), ("moving",)],
    (*ROLES, *(f"moving_{role}" for role in ROLES), *_WORDS),
)
_TRANSFORMS = _Kind("transforms", ("transform", "labels"), [("transform",)], ("labels", *_WORDS))
_PAIRS = _Kind("pairs", IMAGES[:2], [IMAGES[:2]], (*IMAGES[2:], "id"))


@dataclasses.dataclass(frozen=True)
class Item:
    """An image of a study, with what belongs to it.

    Examples
    --------
    >>> studies.Item("sub-01", Path("sub-01_T1w.nii.gz")).labels is None
    True
    """

    id: str
    image: Any
    """A path, an atlas's name, or an image in memory; for a study of shape its transform."""
    labels: Any = None
    mask: Any = None
    landmarks: Any = None
    channel: Any = None
    """A further image of it, in another contrast."""
    subject: str = ""
    session: str = ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.image) if _is_path(self.image) else f"image {self.id}"


@dataclasses.dataclass(frozen=True)
class Pair:
    """A pair of a study: its name, and its files, relative to a folder, or atlases.

    Examples
    --------
    >>> row = studies.Pair("one", "data", {"fixed": "a.nii.gz", "moving": "b.nii.gz"})
    >>> row.path("fixed").as_posix()
    'data/a.nii.gz'
    """

    id: str
    folder: str
    files: dict[str, str]
    """Role, one of IMAGES, to file."""
    is_named: bool = False
    """The files are names below the folders images and labels."""

    def path(self, role: str) -> Path:
        """Return the path of a file by its role.

        Examples
        --------
        >>> studies.Pair("one", "data", {"fixed": "a.nii.gz"}).path("fixed").as_posix()
        'data/a.nii.gz'
        """
        if not self.is_named:
            return named.beside(Path(self.folder), self.files[role])
        kind = "labels" if role.endswith("labels") else "images"
        return find_file(Path(self.folder), self.files[role], kind)


def read_items(source: Any, reserved: Collection[str] = ()) -> list[Item]:
    """Return the images of a folder, of a table, or of a list.

    Parameters
    ----------
    source : path or iterable
        A folder of images, or one with the folders ``images`` and ``labels`` in which a label map
        has its image's name. A table (CSV, TSV, JSON, data frame) with the column image (or moving)
        and, optionally, labels, mask, landmarks, channel, subject, session and id; paths are
        relative to it. Or a list of images, of (image, labels), of dicts with these names or of
        :class:`Item`.
    reserved : collection of str, optional
        Ids that no image may have, in lower case.

    Raises
    ------
    InputUnreadableError
        It cannot be read, has no image, or has an id twice.

    Warns
    -----
    InputWarning
        Some images of a folder with labels have none.

    Examples
    --------
    >>> [item.id for item in studies.read_items(["fixed.nii.gz", "moving.nii.gz"])]
    ['fixed', 'moving']
    """
    return _items(source, _ITEMS, reserved)


def read_transforms(source: Any) -> list[Item]:
    """Return transforms as :func:`read_items` returns images; the first column is transform."""
    return _items(source, _TRANSFORMS)


def _items(source: Any, kind: _Kind, reserved: Collection[str] = ()) -> list[Item]:
    where = kind.name
    if is_frame(source) or (_is_path(source) and Path(source).suffix.lower() in _SUFFIXES):
        folder = Path() if is_frame(source) else Path(source).parent
        items = [_item(cells, folder) for _, cells in _rows(source, kind)]
    elif _is_path(source):
        where = str(source)
        is_folder = Path(source).is_dir() and not any(Path(source).glob("*.dcm"))
        items = _of_folder(Path(source)) if is_folder else [Item("", Path(source))]
    elif images.convert.is_image(source) or not _is_list(source):
        raise errors.InvalidArgumentError(
            f"{where} are given as {type(source).__name__}; give a folder, a table, or a list"
        )
    else:
        items = []
        for k, entry in enumerate(source, 1):
            if images.convert.is_image(entry) and not _is_path(entry):
                entry = Item("", entry)
            elif not isinstance(entry, Item):
                cells = _cells(entry, kind, f"{where}, row {k}", errors.InvalidArgumentError)
                entry = _item(cells, Path())
            items.append(entry)
    if not items:
        raise errors.InputUnreadableError(f"{where}: there is no {kind.first[0]}")
    return _named(items, where, reserved)


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _is_list(source: Any) -> bool:
    return isinstance(source, Iterable) and not isinstance(source, bytes)


def _item(cells: Mapping[str, str], folder: Path) -> Item:
    row = {name.removeprefix("moving_"): cell for name, cell in cells.items()}
    image = named.beside(folder, row.get("image") or row.get("moving") or row["transform"])
    files: dict[str, Any] = {role: named.beside(folder, row[role]) for role in ROLES if role in row}
    words = {name: whole_name(row.get(name, "")) for name in _WORDS}
    return Item(image=image, **files, **words)


def _stem(image: Any, number: int) -> str:
    if not _is_path(image):
        return f"image-{number:04}"
    if name := named.stem(image):
        return name
    path = Path(image)
    if path.name == "transform.h5":  # of a result, whose folder is called after it
        return path.parent.name
    ending = ending_of(path.name, SEARCHED) or path.suffix
    return path.name[: len(path.name) - len(ending)] or path.name


def _named(items: list[Item], where: str, reserved: Collection[str]) -> list[Item]:
    """Give those a name that have none: the file's, with its folder's where two are alike."""
    stems = [item.id or _stem(item.image, number) for number, item in enumerate(items)]
    alike = {stem for stem, count in Counter(stems).items() if count > 1}
    ids = [
        f"{_folder_of(item.image)}-{stem}" if stem in alike and not item.id else stem
        for item, stem in zip(items, stems)
    ]
    _check_ids(zip(ids, (item.name for item in items)), where, reserved)
    return [dataclasses.replace(item, id=id) for item, id in zip(items, ids)]


def _folder_of(image: Any) -> str:
    """Return the name of a file's folder, the working one's, too."""
    return os.path.basename(os.path.dirname(os.path.abspath(image)))


def _check_ids(named: Iterable[tuple[str, str]], where: str, reserved: Collection[str]) -> None:
    """Refuse an id that two things have, on any disk, or that no folder can be called."""
    known: dict[str, str] = {}
    for id, what in named:
        key = unicodedata.normalize("NFC", id).casefold()
        if reason := "the study writes one of that name" if key in reserved else why_no_name(id):
            raise errors.InputUnreadableError(
                f"{where}: {what} has the id {id!r}, which is no name for a folder: {reason};"
                " give another id"
            )
        if key in known:
            raise errors.InputUnreadableError(
                f"{where}: the id {id} is there twice, for {known[key]} and {what};"
                " give each an id of its own, which differs in more than case"
            )
        known[key] = what


def by_value(label: str) -> list[tuple[bool, int, str]]:
    """Return what sorts labels of sessions and runs: the numbers in them by value, before words."""
    parts = re.split(r"([0-9]+)", label.removeprefix("ses-"))
    return [(False, int(p), "") if k % 2 else (True, 0, p) for k, p in enumerate(parts) if p]


def _images_in(folder: Path) -> list[Path]:
    paths = (path for path in folder.iterdir() if not path.name.startswith("."))
    # a link to what is not there is an image, whose reader says so
    return sorted(p for p in paths if p.name.lower().endswith(SEARCHED) and not p.is_dir())


def _of_folder(folder: Path) -> list[Item]:
    inner, maps = folder / "images", folder / "labels"
    is_nested = inner.is_dir()
    place = inner if is_nested else folder
    paths = _images_in(place)
    if not paths and not is_nested and any(folder.glob("sub-*")):
        raise errors.InputUnreadableError(
            f"{folder}: the images are in folders sub-...; read it as BIDS"
        )
    if not paths:
        raise errors.InputUnreadableError(
            f"{place} has no image; its name must end in {', '.join(SEARCHED)}"
        )
    labels: dict[str, Path] = {}
    if is_nested and maps.is_dir():
        for path in _images_in(maps):
            check_alone([*filter(None, [labels.get(_stem(path, 0))]), path])
            labels[_stem(path, 0)] = path
    items = [Item("", path, labels.get(_stem(path, 0))) for path in paths]
    lacking = [item.image.name for item in items if item.labels is None]
    if labels and lacking:
        errors._warn(
            f"{len(lacking)} of {len(items)} images have no label map of their name in {maps}:"
            f" {', '.join(lacking[:3])}{', ...' if len(lacking) > 3 else ''}"
        )
    return items


def read_pairs(
    source: Any, *, data: str | os.PathLike[str] | None = None, subset: str | None = None
) -> list[Pair]:
    """Return the pairs of a table, or of a list; see :func:`morphseek.register_pairs`. A pair
    without id is called NUMBER-MOVING-to-FIXED.

    Examples
    --------
    >>> [pair.id for pair in studies.read_pairs([("fixed.nii.gz", "moving.nii.gz")])]
    ['001-moving-to-fixed']
    """
    where, folder = "pairs", Path()
    if _is_path(source):
        source = find_list(source, data)
        where, folder = f"pairs: {source}", Path(source).parent
    if data is not None:
        folder = Path(data)
        if not folder.is_dir():
            raise errors.InputUnreadableError(
                f"data: {folder} is no folder; give the one with images and labels"
            )
    pairs, places = [], []
    for number, (line, row) in enumerate(_rows(source, _PAIRS, subset), 1):
        files = {role: row[role] for role in IMAGES if row.get(role)}
        if not {"fixed", "moving"} <= files.keys():
            raise errors.InputUnreadableError(
                f"{where}, {line} is not a pair; give fixed and moving in every row"
            )
        if data is not None:
            for side in ("fixed", "moving"):
                if f"{side}_labels" in files or has_labels(folder, files[side]):
                    files[f"{side}_labels"] = files[side]
        moving, fixed = (_stem(files[side], 0) for side in ("moving", "fixed"))
        id = whole_name(row.get("id", "")) or f"{number:03d}-{moving}-to-{fixed}"
        pairs.append(Pair(id, str(folder.absolute()), files, data is not None))
        places.append(line)
    if not pairs:
        raise errors.InputUnreadableError(f"{where}: there is no pair")
    _check_ids(zip((pair.id for pair in pairs), places), where, TABLES)
    return pairs


def find_list(pairs: Any, data: str | os.PathLike[str] | None) -> Any:
    """Return the file of a list of pairs: where it is said to be, or else in the data folder."""
    if data is None or not _is_path(pairs) or Path(pairs).exists():
        return pairs
    return Path(data) / pairs if (Path(data) / pairs).is_file() else pairs


def _rows(
    source: Any, kind: _Kind, subset: str | None = None
) -> Iterator[tuple[str, dict[str, str]]]:
    """Give the rows of a file, a data frame or a list, and their places."""
    where: str = kind.name
    error: type[errors.MorphSeekError] = errors.InvalidArgumentError
    if _is_path(source) and Path(source).suffix.lower() == ".json":
        where, error = f"{where}: {source}", errors.InputUnreadableError
        source = _json_rows(Path(source), kind.name, subset)
    elif subset is not None:
        raise error(f"subset {subset!r} names one of a JSON file's lists; leave it out")
    elif _is_path(source) or is_frame(source):
        yield from read_records(source, kind.name, kind.needed, kind.optional).rows
        return
    elif not _is_list(source):
        raise errors.InvalidArgumentError(
            f"pairs are given as {type(source).__name__}; give the path of a table, a data frame,"
            " or a list of (fixed, moving)"
        )
    for number, entry in enumerate(source, 1):
        yield f"row {number}", _cells(entry, kind, f"{where}, row {number}", error)


def _json_rows(path: Path, what: str, subset: str | None) -> list[Any]:
    """Return a JSON file's list: all of it, or one of an object's lists, as Learn2Reg has them."""
    content = read_json(path, what)
    if isinstance(content, list):
        if subset is not None:
            raise errors.InvalidArgumentError(
                f"{what}: {path} is one list, so there is no {subset!r} to choose; leave out"
                " subset, or check the file"
            )
        return content
    if not isinstance(content, dict):
        raise errors.InputUnreadableError(
            f"{what}: {path} holds neither a list nor an object with such lists"
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
            f"{what}: {path}: {missing}it has the lists {', '.join(sorted(lists)) or '(none)'};"
            " choose one with subset"
        )
    return list(lists[subset])


def _cells(
    entry: Any, kind: _Kind, where: str, error: type[errors.MorphSeekError]
) -> dict[str, str]:
    """Return an entry of a list, whatever its kind, by columns, without empty cells."""
    row: Mapping[Any, Any] = {}
    for method in ("_asdict", "to_dict"):
        if not isinstance(entry, Mapping) and hasattr(entry, method):
            by_name = getattr(entry, method)()  # other columns are called by their numbers
            entry = by_name if set(kind.first) & set(by_name) else entry
    if _is_path(entry) and len(kind.needed[0]) == 1:
        entry = [entry]
    if isinstance(entry, Mapping):
        row = entry
    elif not isinstance(entry, (str, bytes)) and hasattr(entry, "__getitem__"):
        row = dict(zip((*kind.first, *map(str, range(3, len(entry) + 1))), entry))
    row = {
        name: str(value) if name in _WORDS else value
        for name, value in row.items()
        if not is_nothing(value)
        and not (isinstance(value, str) and not value and name in kind.optional)
    }
    strange = row.keys() - {*kind.optional, *(name for names in kind.needed for name in names)}
    if strange or not any({*names} <= row.keys() for names in kind.needed):
        raise error(
            f"{where}: give ({', '.join(kind.first)}), or a dict with"
            f" {' or '.join(' and '.join(names) for names in kind.needed)}, which may have"
            f" {', '.join(kind.optional)}, and no others"
            + (f"; it has {', '.join(sorted(map(str, strange)))}" if strange else "")
        )
    for name, value in row.items():
        if not _is_path(value):
            raise error(
                f"{where}: {name} is given as {type(value).__name__}; a study takes paths, write"
                " it to a file"
            )
        if not os.fspath(value):
            raise error(f"{where}: {name} is an empty path; give a path, or leave it out")
    return {name: str(os.fspath(value)) for name, value in row.items()}  # no numpy.str_
