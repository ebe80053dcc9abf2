"""Read what a study is of: images with their roles, or pairs of them.

Tables (CSV, TSV, JSON, data frames), folders and lists all become :class:`Items` or a list of
:class:`Pair`.
"""

from __future__ import annotations

import dataclasses
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import errors, images
from .._json import read as read_json
from .._plain import why_no_name
from .._tables import has_heading, is_frame, is_nothing, read_plain, read_records, records_of
from ..images import named
from ..images.formats import SEARCHED
from .folders import find_file, has_labels

TABLES = (".csv", ".tsv", ".txt", ".json")
#: The files that belong to an image.
ROLES = ("labels", "mask", "landmarks", "channel")
_ITEM = (*ROLES, *(f"moving_{role}" for role in ROLES), "subject", "session", "id")
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
_PAIR = (*IMAGES[2:], "id")


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
    """A path, an atlas's name, or an image in memory."""
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


@dataclasses.dataclass
class Items:
    """Images of a study, and notes for their reader.

    >>> [item.id for item in Items([Item("a", Path("a.nii"))])]
    ['a']
    """

    items: list[Item]
    notes: list[str] = dataclasses.field(default_factory=list)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


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


def read_items(source: Any, labels: Any = None) -> Items:
    """Return the images of a folder, of a table, or of a list.

    Parameters
    ----------
    source : path or iterable
        A folder of images, or one with the folders ``images`` and ``labels`` in which a label map
        has its image's name. A table (CSV, TSV, JSON, data frame) with the column image (or moving)
        and, optionally, labels, mask, landmarks, channel, subject, session and id; paths are
        relative to it. Or a list of images, of (image, labels), of dicts with these names or of
        :class:`Item`.
    labels : path or sequence, optional
        Label maps of a list of images: one for each, in their order, or the folder that has them
        under the images' names.

    Raises
    ------
    InputUnreadableError
        It cannot be read, has no image, or has an id twice.

    Examples
    --------
    >>> [item.id for item in studies.read_items(["fixed.nii.gz", "moving.nii.gz"])]
    ['fixed', 'moving']
    """
    notes: list[str] = []
    where, is_list = "images", False
    if isinstance(source, Items):
        items, notes = source.items, source.notes
    elif is_table(source):
        items = _of_table(source)
    elif _is_path(source):
        where = str(source)
        is_folder = Path(source).is_dir() and not any(Path(source).glob("*.dcm"))
        items = _of_folder(Path(source), notes) if is_folder else [_of_entry(source)]
    elif (
        images.convert.is_image(source)
        or not isinstance(source, Iterable)
        or isinstance(source, bytes)
    ):
        raise errors.InvalidArgumentError(
            f"images are given as {type(source).__name__}; give a folder, a table, or a list"
        )
    else:
        items, is_list = [_of_entry(entry) for entry in source], True
    if labels is not None:
        if not is_list and (is_table(source) or not _is_path(source)):
            raise errors.InvalidArgumentError(
                "labels: the table of the images says where the label maps are; leave labels out,"
                " or list the images instead"
            )
        items = _labelled(items, labels)
    if not items:
        raise errors.InputUnreadableError(f"{where}: there is no image")
    return Items(_named(items, where), notes)


def is_table(source: Any) -> bool:
    """Whether something is a table: a data frame, or the path of a file that is one."""
    return is_frame(source) or (_is_path(source) and Path(source).suffix.lower() in TABLES)


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _of_entry(entry: Any) -> Item:
    if isinstance(entry, Item):
        return entry
    if _is_path(entry):
        return Item("", Path(entry))
    if isinstance(entry, Mapping):
        return _item(_texts(entry), Path())
    if isinstance(entry, Sequence) and len(entry) == 2 and all(map(_is_path, entry)):
        return Item("", Path(entry[0]), Path(entry[1]))
    if images.convert.is_image(entry):
        return Item("", entry)
    raise errors.InvalidArgumentError(
        f"images: {entry!r} is neither an image, nor (image, labels), nor an Item"
    )


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {str(k): str(v) for k, v in row.items() if not is_nothing(v)}


def _of_table(source: Any) -> list[Item]:
    folder = Path() if is_frame(source) else Path(source).parent
    if not is_frame(source) and Path(source).suffix.lower() == ".json":
        entries = _json_rows(Path(source), "images", None)
        return [_item(_cells(entry, ("image", "labels")), folder) for entry in entries]
    table = read_records(source, "images", [("image",), ("moving",)], _ITEM)
    return [_item(row.cells, folder) for row in table.rows]


def _cells(entry: Any, names: Sequence[str]) -> dict[str, str]:
    """Return an element of a JSON list by the names of columns."""
    if isinstance(entry, Mapping):
        return _texts(entry)
    parts = [entry] if isinstance(entry, str) else entry
    if not isinstance(parts, list) or len(parts) > len(names) or not all(
        isinstance(part, str) for part in parts
    ):  # fmt: skip
        raise errors.InputUnreadableError(
            f"images: {entry!r} is neither a path, nor a list of {' and '.join(names)}, nor an"
            " object with these"
        )
    return dict(zip(names, parts))


def _item(cells: Mapping[str, str], folder: Path) -> Item:
    row = {name.removeprefix("moving_"): cell for name, cell in cells.items()}
    if not (image := row.get("image") or row.get("moving")):
        raise errors.InvalidArgumentError(
            f"images: {cells!r} has no image; give each its file under that name"
        )
    files: dict[str, Any] = {role: named.beside(folder, row[role]) for role in ROLES if role in row}
    people = {name: row.get(name, "") for name in ("subject", "session")}
    return Item(row.get("id", ""), named.beside(folder, image), **files, **people)


def _labelled(items: list[Item], labels: Any) -> list[Item]:
    maps = [_beside(Path(labels), item) for item in items] if _is_path(labels) else list(labels)
    if len(maps) != len(items):
        last = maps[-1] if maps else None
        name = str(last) if _is_path(last) else f"the last of {len(maps)}"
        raise errors.InvalidArgumentError(
            f"labels: {len(maps)} label maps for {len(items)} images; give one for each, in the"
            f" same order (the last one is {name if maps else 'missing'})"
        )
    return [dataclasses.replace(item, labels=of) for item, of in zip(items, maps)]


def _beside(folder: Path, item: Item) -> Path:
    """Return the file in a folder of label maps that is called like an image."""
    if not folder.is_dir():
        raise errors.InputUnreadableError(
            f"labels: {folder} is no folder; give one with a label map for each image, under the"
            " image's name, or a list of label maps"
        )
    if not _is_path(item.image):
        raise errors.InvalidArgumentError(
            "labels: a folder has label maps for files; give a list for images in memory"
        )
    path = folder / Path(item.image).name
    if not path.exists():
        raise errors.InputUnreadableError(
            f"labels: there is no {path} for the image {item.image}; label maps have their images'"
            " names"
        )
    return path


def _stem(image: Any, number: int) -> str:
    if not _is_path(image):
        return f"image-{number:04}"
    if name := named.stem(image):
        return name
    path = Path(image)
    lower = path.name.lower()
    ending = next((s for s in SEARCHED if lower.endswith(s)), path.suffix)
    return path.name[: len(path.name) - len(ending)] or path.name


def _named(items: list[Item], where: str) -> list[Item]:
    """Give those a name that have none: the file's, with its folder's where two are alike."""
    stems = [item.id or _stem(item.image, number) for number, item in enumerate(items)]
    known: dict[str, Item] = {}
    for item, stem in zip(items, stems):
        alike = not item.id and stems.count(stem) > 1
        name = f"{Path(item.image).parent.name}-{stem}" if alike else stem
        key = unicodedata.normalize("NFC", name).casefold()
        if key in known:
            raise errors.InputUnreadableError(
                f"{where}: {name} is there twice: {known[key].name} and {item.name}; name each"
                " image once, or give ids in a table"
            )
        if reason := why_no_name(name):
            raise errors.InputUnreadableError(
                f"{where}: {item.name} has the id {name!r}, which is no name for a folder:"
                f" {reason}; give ids in a table"
            )
        known[key] = dataclasses.replace(item, id=name)
    return list(known.values())


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".") and path.name.lower().endswith(SEARCHED)
    )


def _of_folder(folder: Path, notes: list[str]) -> list[Item]:
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
    labels = {}
    if is_nested and maps.is_dir():
        labels = {_stem(path, 0): path for path in _images_in(maps)}
    items = [Item("", path, labels.get(_stem(path, 0))) for path in paths]
    lacking = [item.image.name for item in items if item.labels is None]
    if labels and lacking:
        notes.append(
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
    pairs: dict[str, Pair] = {}
    for number, (line, row) in enumerate(_pair_rows(source, subset, data is not None), 1):
        place = f"{where}, {line}"
        files = {role: row[role] for role in IMAGES if row.get(role)}
        if not {"fixed", "moving"} <= files.keys():
            raise errors.InputUnreadableError(
                f"{place} is not a pair; give fixed and moving in every row"
            )
        if data is not None:
            for side in ("fixed", "moving"):
                if f"{side}_labels" in files or has_labels(folder, files[side]):
                    files[f"{side}_labels"] = files[side]
        moving, fixed = (_short(files[side]) for side in ("moving", "fixed"))
        name = row.get("id") or f"{number:03d}-{moving}-to-{fixed}"
        reason = why_no_name(name)
        if name.lower().startswith(("summary.", "index.", "jobs.", "labels.")):
            reason = "the study writes a file of that name"
        if reason:
            raise errors.InputUnreadableError(
                f"{place}: the id {name!r} is no name for a folder: {reason}; give the pair"
                " another id"
            )
        key = unicodedata.normalize("NFC", name).casefold()
        if key in pairs:
            alike = "" if pairs[key].id == name else pairs[key].id
            raise errors.InputUnreadableError(
                f"{place}: the id {name} is there twice"
                f"{alike and f' (as {alike}: some disks tell no case)'};"
                " give each pair one of its own"
            )
        pairs[key] = Pair(name, str(folder.absolute()), files, data is not None)
    if not pairs:
        raise errors.InputUnreadableError(f"{where}: there is no pair")
    return list(pairs.values())


def find_list(pairs: Any, data: str | os.PathLike[str] | None) -> Any:
    """Return the file of a list of pairs: where it is said to be, or else in the data folder."""
    if data is None or not _is_path(pairs) or Path(pairs).exists():
        return pairs
    return Path(data) / pairs if (Path(data) / pairs).is_file() else pairs


def _pair_rows(
    source: Any, subset: str | None, is_named: bool
) -> Iterator[tuple[str, dict[str, str]]]:
    """Give the rows of a file, a data frame, or a list of pairs or of dicts, and their places."""
    if subset is not None and not (_is_path(source) and Path(source).suffix.lower() == ".json"):
        raise errors.InvalidArgumentError(
            f"subset {subset!r} names one of a JSON file's lists; leave it out"
        )
    if _is_path(source) and Path(source).suffix.lower() == ".json":
        entries: Iterable[Any] = _json_rows(Path(source), "pairs", subset)
    elif _is_path(source) and is_named:
        table = read_plain(source, "pairs", [IMAGES[:2]], lambda r: all(r[:2]) and len(r) > 1)
        # one of the two alone is a heading that lacks the other
        if not has_heading(table, [("fixed",), ("moving",)]):
            for place, cells in zip(table.places, table.rows):
                yield place, dict(zip(IMAGES, cells[:2]))
            return
        for row in records_of(table, [IMAGES[:2]]).rows:
            yield row.place, {k: v for k, v in row.cells.items() if k in ("fixed", "moving", "id")}
        return
    elif _is_path(source) or is_frame(source):
        for row in read_records(source, "pairs", [IMAGES[:2]], _PAIR).rows:
            yield row.place, row.cells
        return
    elif isinstance(source, bytes) or not isinstance(source, Iterable):
        raise errors.InvalidArgumentError(
            f"pairs are given as {type(source).__name__}; give the path of a table, a data frame,"
            " or a list of (fixed, moving)"
        )
    else:
        entries = source
    for number, pair in enumerate(entries, 1):
        place = f"row {number}"
        where = f"pairs: {source}" if _is_path(source) else "pairs"
        try:
            checked = _checked(_by_name(pair), f"{where}, {place}")
        except errors.InvalidArgumentError as error:
            if _is_path(source):
                raise errors.InputUnreadableError(str(error)) from None
            raise
        yield place, checked


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


def _by_name(row: Any) -> Mapping[str, Any]:
    """Return a row by its columns: a mapping, a named tuple, a row of a data frame, or a sequence
    whose third cell and further ones have numbers; empty for anything else.
    """
    if isinstance(row, Mapping):
        return row
    for method in ("_asdict", "to_dict"):
        if hasattr(row, method):
            by_name: Mapping[str, Any] = getattr(row, method)()
            if {"fixed", "moving"} & set(by_name):  # others are called by their numbers
                return by_name
    if isinstance(row, (str, bytes)) or not hasattr(row, "__getitem__"):
        return {}
    return dict(zip((*IMAGES[:2], *map(str, range(3, len(row) + 1))), row))


def _checked(row: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return a row that was given in Python, without what stands for an empty cell."""
    row = {
        name: str(value) if name == "id" else value
        for name, value in row.items()
        if not is_nothing(value) and not (isinstance(value, str) and not value and name in _PAIR)
    }
    strange = row.keys() - {*IMAGES, "id"}
    if not {"fixed", "moving"} <= row.keys() or strange:
        raise errors.InvalidArgumentError(
            f"{where}: give (fixed, moving), or a dict with these, which may have"
            f" {', '.join(IMAGES[2:])} and id, and no others"
            + (f"; it has {', '.join(sorted(map(str, strange)))}" if strange else "")
        )
    for name, value in row.items():
        if not _is_path(value):
            raise errors.InvalidArgumentError(
                f"{where}: {name} is given as {type(value).__name__}; a study takes paths, give"
                " images to morphseek.register"
            )
        if not os.fspath(value):
            raise errors.InvalidArgumentError(
                f"{where}: {name} is an empty path; give a path, or leave it out"
            )
    return {name: str(os.fspath(value)) for name, value in row.items()}  # no numpy.str_


def _short(path: str) -> str:
    return named.stem(path) or Path(path).name.split(".")[0]
