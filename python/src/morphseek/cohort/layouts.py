"""How public data sets lie on disk, and which pairs their owners list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import errors
from .._tables import read_records
from .lists import read_pairs

Row = dict[str, Any]
"""A pair as :func:`register_cohort` takes it: ``id``, and paths by column."""

Find = Callable[[Path, "Path | None"], list[Row]]
"""Returns the pairs of a data folder and, where one is given, of a list of pairs."""


def _row(name: str, fixed: Mapping[str, Path], moving: Mapping[str, Path]) -> Row:
    """Return a pair; each side has an ``image``, and may have ``labels`` and a ``mask``."""
    row: Row = {"id": name}
    for side, files in (("fixed", fixed), ("moving", moving)):
        for kind, path in files.items():
            row[side if kind == "image" else f"{side}_{kind}"] = path
    return row


def stem(path: str | Path) -> str:
    """Return a NIfTI file's name without its ending."""
    return Path(path).name.removesuffix(".nii.gz")


def _beside(folder: Path, entry: str, labels: bool) -> dict[str, Path]:
    """Return a Learn2Reg entry's image, its labels, and its mask where there is one: the same path
    with "images" replaced.
    """
    if not entry.removeprefix("./").startswith("images") or Path(entry).is_absolute():
        raise errors.InputUnreadableError(
            f"pairs: {entry!r} is no Learn2Reg entry; it must begin with ./images, such as"
            " ./imagesTr/OASIS_0395_0000.nii.gz"
        )
    paths = {
        kind: folder / entry.replace("images", word, 1)
        for kind, word in (("image", "images"), ("labels", "labels"), ("mask", "masks"))
    }
    keep = {"image", "labels"} if labels else {"image"}
    return {kind: path for kind, path in paths.items() if kind in keep or path.is_file()}


def learn2reg(
    task: str, subset: str, *, labels: bool = True
) -> Callable[[Path, Path | None], list[Row]]:
    """Return how the pairs of a Learn2Reg task's dataset.json are found."""

    def find(folder: Path, pairs: Path | None) -> list[Row]:
        lists = [pairs] if pairs else sorted(folder.glob(f"{task}*_dataset.json"))
        if not lists:
            raise errors.InputUnreadableError(
                f"{folder} has no {task}_dataset.json; give the folder that has it beside imagesTr,"
                " as Learn2Reg's archive is unpacked"
            )
        listed = read_pairs(lists[0], subset if lists[0].suffix.lower() == ".json" else None)
        sides = [[_beside(folder, entry, labels) for entry in pair] for pair in listed]
        return [
            _row(f"{stem(pair[1])}_to_{stem(pair[0])}", *files)
            for pair, files in zip(listed, sides)
        ]

    return find


def paired_mrct(folder: Path, pairs: Path | None) -> list[Row]:
    """The training cases that have both an MR and a CT; the CT is fixed."""
    if pairs:
        return learn2reg("AbdomenMRCT", "registration_val")(folder, pairs)
    found = []
    for ct in sorted((folder / "imagesTr").glob("AbdomenMRCT_*_0001.nii.gz")):
        mr = ct.with_name(ct.name.replace("_0001.nii.gz", "_0000.nii.gz"))
        if mr.is_file():
            sides = [_beside(folder, f"./imagesTr/{path.name}", True) for path in (ct, mr)]
            found.append(_row(f"{stem(mr)}_to_{stem(ct)}", *sides))
    if not found:
        raise errors.InputUnreadableError(
            f"{folder / 'imagesTr'} has no case with both AbdomenMRCT_NNNN_0000.nii.gz (MR) and"
            " AbdomenMRCT_NNNN_0001.nii.gz (CT); give the folder that Learn2Reg's AbdomenMRCT is"
            " unpacked to"
        )
    return found


def _names(path: Path, columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (fixed, moving) of a table that has one of the pairs of columns."""
    table = read_records(path, "pairs", columns)
    if not table.rows:
        raise table.table.refuse(" needs a row for each pair below its heading")
    return [(cells[fixed], cells[moving]) for _, cells in table.rows
            for fixed, moving in [table.columns]]  # fmt: skip


def oasis(folder: Path, pairs: Path | None) -> list[Row]:
    """Learn2Reg's release of today, with OASIS_dataset.json; or that of 2021, by numbers."""
    if (pairs or folder).suffix.lower() == ".json" or list(folder.glob("OASIS*_dataset.json")):
        return learn2reg("OASIS", "registration_val")(folder, pairs)
    path = pairs or folder / "pairs_val.csv"
    if not path.is_file():
        raise errors.InputUnreadableError(
            f"{folder} has neither OASIS_dataset.json nor pairs_val.csv; give the folder of"
            " Learn2Reg's OASIS, or its list of pairs by --pairs (columns fixed and moving, such as"
            " 438,439)"
        )

    def files(name: str) -> dict[str, Path]:
        if not name.isdecimal():
            raise errors.InputUnreadableError(
                f"pairs: {path}: {name!r} is no number of a person, such as 438"
            )
        person = folder / f"OASIS_OAS1_{int(name):04d}_MR1"
        if person.is_dir():
            return {
                "image": person / "aligned_norm.nii.gz", "labels": person / "aligned_seg35.nii.gz"
            }  # fmt: skip
        return {
            "image": folder / f"img{int(name):04d}.nii.gz",
            "labels": folder / f"seg{int(name):04d}.nii.gz",
        }

    return [
        _row(f"{int(moving):04d}_to_{int(fixed):04d}", here, there)
        for fixed, moving in _names(path, [("fixed", "moving")])
        for here, there in [(files(fixed), files(moving))]
    ]


def mindboggle(image: str, maps: Sequence[str]) -> Callable[[Path, Path | None], list[Row]]:
    """Return how the pairs of Mindboggle-101 are found whose folders hold files of these names."""

    def find(folder: Path, pairs: Path | None) -> list[Row]:
        if pairs is None:
            raise errors.InvalidArgumentError(
                "Mindboggle-101 has no list of pairs of its own: give one by --pairs, with the"
                " columns subject1 (fixed) and subject2 (moving). The published figures are of"
                " examples/pairs.csv in github.com/stnava/syntx"
            )
        people = {
            path.parent.name: path.parent
            for pattern in (f"*/{image}", f"*/*/{image}")
            for path in sorted(folder.glob(pattern))
        }
        if not people:
            raise errors.InputUnreadableError(
                f"{folder} has no folder with {image}, such as"
                f" OASIS-TRT-20_volumes/OASIS-TRT-20-1/{image}; unpack Mindboggle-101's volumes"
                " there"
            )

        def files(name: str) -> dict[str, Path]:
            if name not in people:
                raise errors.InputUnreadableError(
                    f"pairs: {pairs}: {folder} has no {image} of {name}; unpack its volumes there"
                )
            person = people[name]
            known = [person / each for each in maps if (person / each).is_file()]
            return {"image": person / image, "labels": (known or [person / maps[0]])[0]}

        return [
            _row(f"{moving}_to_{fixed}", files(fixed), files(moving))
            for fixed, moving in _names(pairs, [("subject1", "subject2"), ("fixed", "moving")])
        ]

    return find
