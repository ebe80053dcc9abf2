"""Images of a cohort, one by one, and the pairs that are made of them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import SimpleITK as sitk

from .. import errors, images
from .._plain import why_no_name
from .._tables import is_frame, read_records
from ..images import named
from ..images.formats import SEARCHED

_OPTIONAL = ("labels", "moving_labels", "mask", "moving_mask", "subject", "session", "id")


@dataclasses.dataclass(frozen=True)
class Scan:
    """An image of a cohort, with what belongs to it.

    Examples
    --------
    >>> cohort.Scan("sub-01", Path("sub-01_T1w.nii.gz")).labels is None
    True
    """

    id: str
    path: Path
    labels: Path | None = None
    mask: Path | None = None
    subject: str = ""
    session: str = ""


@dataclasses.dataclass
class Scans:
    """Images of a cohort, and what their reader is to be told.

    >>> [scan.id for scan in Scans([Scan("a", Path("a.nii"))])]
    ['a']
    """

    scans: list[Scan]
    notes: list[str] = dataclasses.field(default_factory=list)

    def __iter__(self) -> Iterator[Scan]:
        return iter(self.scans)

    def __len__(self) -> int:
        return len(self.scans)


def read_scans(source: str | os.PathLike[str] | Iterable[Any]) -> Scans:
    """Return the images of a folder, of a table, or of a list.

    Parameters
    ----------
    source : path or iterable
        A folder of images, or one with the folders ``images`` and ``labels`` in which a label map
        has its image's name. A CSV file with the column image (or moving) and, optionally, labels,
        mask, subject, session and id; paths are relative to it. A data frame with these. Or a list
        of paths, of (image, labels) or of :class:`Scan`.

    Raises
    ------
    InputUnreadableError
        It cannot be read, has no image, or has an id twice.

    Examples
    --------
    >>> [scan.id for scan in cohort.read_scans(["fixed.nii.gz", "moving.nii.gz"])]
    ['fixed', 'moving']
    """
    notes: list[str] = []
    if isinstance(source, Scans):
        return source
    if is_frame(source):
        scans, where = _of_table(source), "images"
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            scans = _of_folder(path, notes)
        elif path.suffix.lower() in (".csv", ".tsv", ".txt"):
            scans = _of_table(path)
        else:
            scans = [_of_item(path)]
        where = str(path)
    elif isinstance(source, bytes) or not isinstance(source, Iterable):
        raise errors.InvalidArgumentError(
            f"images are given as {type(source).__name__}; give a folder, a table, or a list"
        )
    else:
        scans, where = [_of_item(item) for item in source], "images"
    if not scans:
        raise errors.InputUnreadableError(f"{where}: there is no image")
    return Scans(_named(scans, where), notes)


def _of_item(item: Any) -> Scan:
    if isinstance(item, Scan):
        return item
    if isinstance(item, (str, os.PathLike)):
        return Scan("", Path(item))
    if isinstance(item, Sequence) and len(item) == 2 and all(
        isinstance(part, (str, os.PathLike)) for part in item
    ):  # fmt: skip
        return Scan("", Path(item[0]), Path(item[1]))
    raise errors.InvalidArgumentError(
        f"images: {item!r} is neither a path, nor (image, labels), nor a Scan"
    )


def _stem(path: Path) -> str:
    if name := named.stem(path):
        return name
    lower = path.name.lower()
    ending = next((s for s in SEARCHED if lower.endswith(s)), path.suffix)
    return path.name[: len(path.name) - len(ending)] or path.name


def _named(scans: list[Scan], where: str) -> list[Scan]:
    """Give those a name that have none: the file's, with its folder's where two are alike."""
    stems = [scan.id or _stem(scan.path) for scan in scans]
    named: dict[str, Scan] = {}
    for scan, stem in zip(scans, stems):
        alike = not scan.id and stems.count(stem) > 1
        name = f"{scan.path.parent.name}-{stem}" if alike else stem
        key = name.casefold()
        if key in named:
            raise errors.InputUnreadableError(
                f"{where}: {name} is there twice: {named[key].path} and {scan.path}; name each"
                " image once, or give ids in a table"
            )
        if reason := why_no_name(name):
            raise errors.InputUnreadableError(
                f"{where}: {scan.path} has the id {name!r}, which is no name for a folder:"
                f" {reason}; give ids in a table"
            )
        named[key] = dataclasses.replace(scan, id=name)
    return list(named.values())


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".") and path.name.lower().endswith(SEARCHED)
    )


def _of_folder(folder: Path, notes: list[str]) -> list[Scan]:
    inner, maps = folder / "images", folder / "labels"
    if not inner.is_dir():
        found = [Scan("", path) for path in _images_in(folder)]
        if not found and any(folder.glob("sub-*")):
            raise errors.InputUnreadableError(
                f"{folder}: the images are in folders sub-...; read it as BIDS"
            )
        if not found:
            raise errors.InputUnreadableError(
                f"{folder} has no image; its name must end in {', '.join(SEARCHED)}"
            )
        return found
    labels = {_stem(path): path for path in _images_in(maps)} if maps.is_dir() else {}
    found = [Scan("", path, labels.get(_stem(path))) for path in _images_in(inner)]
    if not found:
        raise errors.InputUnreadableError(
            f"{inner} has no image; its name must end in {', '.join(SEARCHED)}"
        )
    lacking = [scan.path.name for scan in found if scan.labels is None]
    if labels and lacking:
        notes.append(
            f"{len(lacking)} of {len(found)} images have no label map of their name in {maps}:"
            f" {', '.join(lacking[:3])}{', ...' if len(lacking) > 3 else ''}"
        )
    return found


def _of_table(source: Any) -> list[Scan]:
    table = read_records(source, "images", [("image",), ("moving",)], _OPTIONAL)
    folder = Path() if is_frame(source) else Path(source).parent
    scans = []
    for _, cells in table.rows:
        row = {name.removeprefix("moving_"): cell for name, cell in cells.items()}
        image, labels, mask = (
            named.beside(folder, row[k]) if k in row else None
            for k in (*table.columns, "labels", "mask")
        )
        assert image is not None  # a row has one
        scans.append(
            Scan(row.get("id", ""), image, labels, mask, row.get("subject", ""),
                 row.get("session", ""))
        )  # fmt: skip
    return scans


def check_alike(scans: Iterable[Scan], *must: Scan) -> None:
    """Refuse a cohort of 2-D and 3-D images before the work. A file that cannot be read is its
    pair's failure, unless all need it: those in ``must``.
    """
    first: tuple[Scan, int] | None = None
    for scan in must:
        images.read(scan.path, scan.id)
    for scan in (*must, *scans):
        count = _axes(scan.path)
        if count is None:
            continue
        if first is None:
            first = scan, count
        elif count != first[1]:
            raise errors.InvalidArgumentError(
                f"{scan.path} has {count} axes and {first[0].path} has {first[1]}; register images"
                " of 2-D and of 3-D apart"
            )


def _axes(path: Path) -> int | None:
    """Return how many axes of more than one voxel an image has, by its header."""
    if not path.is_file():
        return None
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        reader.ReadImageInformation()
    except RuntimeError:
        return None
    return max(2, sum(n > 1 for n in reader.GetSize()))


def _row(fixed: Scan, moving: Scan, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"fixed": fixed.path, "moving": moving.path, "id": name}
    for side, scan in (("fixed", fixed), ("moving", moving)):
        row |= {f"{side}_labels": scan.labels, f"{side}_mask": scan.mask}
    return {key: value for key, value in row.items() if value is not None}


def pairs_to(
    scans: Iterable[Scan],
    template: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    mask: str | os.PathLike[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the pairs of :func:`register_pairs` that bring every image to one: the template is
    fixed. A pair is called as its image.

    >>> rows = cohort.pairs_to([Scan("sub-01", Path("moving.nii.gz"))], "fixed.nii.gz")
    >>> rows[0]["id"], str(rows[0]["fixed"]), str(rows[0]["moving"])
    ('sub-01', 'fixed.nii.gz', 'moving.nii.gz')
    """
    fixed = Scan(
        "template", Path(template),
        None if labels is None else Path(labels), None if mask is None else Path(mask),
    )  # fmt: skip
    listed = [scan for scan in scans if not _same(scan.path, fixed.path)]
    if not listed:
        raise errors.InvalidArgumentError(f"template: there is no image but {template} itself")
    check_alike(listed, fixed)
    return [_row(fixed, scan, scan.id) for scan in listed]


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute()


def all_pairs(scans: Iterable[Scan], *, both_ways: bool = False) -> list[dict[str, Any]]:
    """Return every pair of the images, once: the one that comes first is fixed. n images make
    n (n - 1) / 2 pairs; ``both_ways``, twice as many.

    >>> scans = [Scan(name, Path(f"{name}.nii")) for name in "abc"]
    >>> [row["id"] for row in all_pairs(scans)]
    ['b_to_a', 'c_to_a', 'c_to_b']
    """
    listed = list(scans)
    if len(listed) < 2:
        raise errors.InvalidArgumentError("all pairs: there must be two images or more")
    check_alike(listed)
    rows = []
    for fixed, moving in combinations(listed, 2):
        rows.append(_row(fixed, moving, f"{moving.id}_to_{fixed.id}"))
        if both_ways:
            rows.append(_row(moving, fixed, f"{fixed.id}_to_{moving.id}"))
    return rows


def within_subject(scans: Iterable[Scan]) -> list[dict[str, Any]]:
    """Return the pairs of each subject's later images with the first, which is fixed. Sessions are
    in the order of their names, numbers by value.

    >>> scans = [Scan(f"sub-1_ses-{k}", Path(f"{k}.nii"), subject="sub-1", session=f"ses-{k}")
    ...          for k in (10, 9)]
    >>> [row["id"] for row in within_subject(scans)]
    ['sub-1_ses-10_to_ses-9']
    """
    subjects: dict[str, list[Scan]] = {}
    for scan in scans:
        if not scan.subject:
            raise errors.InvalidArgumentError(
                f"within subject: nothing says of whom {scan.path} is; give a BIDS folder, or a"
                " table with the columns subject and session"
            )
        subjects.setdefault(scan.subject, []).append(scan)
    rows = []
    for listed in subjects.values():
        first, *later = sorted(listed, key=_when)
        check_alike(listed)
        rows += [_row(first, scan, f"{scan.id}_to_{first.session or first.id}") for scan in later]
    if not rows:
        raise errors.InvalidArgumentError(
            f"within subject: none of the {len(subjects)} subjects has a second session"
        )
    return rows


def _when(scan: Scan) -> tuple[bool, int, str]:
    name = scan.session.removeprefix("ses-")
    return not name.isdigit(), int(name) if name.isdigit() else 0, name
