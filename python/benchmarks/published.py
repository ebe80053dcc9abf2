"""Public data sets: files on disk, pairs and labels that count, and what others reported."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from morphseek import errors
from morphseek.studies import read_pairs

Row = dict[str, Any]
"""A pair as :func:`morphseek.register_pairs` takes it: ``id``, and paths by column."""

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
        chosen = subset if lists[0].suffix.lower() == ".json" else None
        listed = [
            (pair.files["fixed"], pair.files["moving"])
            for pair in read_pairs(lists[0], data=folder, subset=chosen)
        ]
        sides = [[_beside(folder, entry, labels) for entry in pair] for pair in listed]
        return [
            _row(f"{stem(moving)}_to_{stem(fixed)}", *files)
            for (fixed, moving), files in zip(listed, sides)
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
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    heading, *rows = [[cell.strip() for cell in row] for row in csv.reader(lines)] or [[]]
    for pair in columns:
        if set(pair) <= set(heading) and rows:
            fixed, moving = map(heading.index, pair)
            return [(row[fixed], row[moving]) for row in rows if row]
    wanted = " or ".join(" and ".join(pair) for pair in columns)
    raise errors.InputUnreadableError(
        f"pairs: {path} needs the columns {wanted}, and a row for each pair below its heading"
    )


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


@dataclasses.dataclass(frozen=True)
class Published:
    """The figures that others reported of a method; None where they reported none. `on` says of
    which pairs and labels: whether the figure can be compared.
    """

    method: str
    dice: float
    on: str
    source: str
    sdlogj: float | None = None
    hd95: float | None = None
    njd_percent: float | None = None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A published protocol: how its pairs are found, and what is measured. `labels` are those that
    count, where both maps have them; None: all. With `both_ways` Dice is the mean of that in the
    fixed image's space and that in the moving one's.
    """

    title: str
    find: Find
    labels: frozenset[int] | None
    published: tuple[Published, ...] = ()
    both_ways: bool = False


#: Of the Desikan-Killiany-Tourville protocol: 31 regions a hemisphere.
_DKT31 = frozenset(
    side + region for side in (1000, 2000) for region in (2, 3, *range(5, 32), 34, 35)
)
_L2R = "github.com/MDL-UzL/L2R, examples/task_specific/AbdomenCTCT/AbdomenCTCT_example.json"
_ANATOMIX = "github.com/neel-dey/anatomix, anatomix/registration/tests/README.md"
_TRANSMORPH = (
    "github.com/junyuchen245/TransMorph_Transformer_for_Medical_Image_Registration,"
    " OASIS/TransMorph_on_OASIS.md"
)
_LUMIR = "github.com/JHU-MedImage-Reg/LUMIR25_L2R25, README.md"
_SYNTX = "github.com/stnava/syntx, README.md"
_TRAINED = "the validation pairs; trained with labels"
_NETWORK = "the validation pairs; with a segmentation network"
_HIDDEN = "the hidden test set"
_VALIDATION = "the validation pairs, by private labels"
_NINETY = "the 90 pairs of examples/pairs.csv"

PROTOCOLS: dict[str, Protocol] = {
    "abdomen-mrct": Protocol(
        "Learn2Reg AbdomenMRCT, validation: the MR is fixed",
        learn2reg("AbdomenMRCT", "registration_val"), frozenset(range(1, 5)),
    ),
    "abdomen-mrct-8": Protocol(
        "Learn2Reg AbdomenMRCT, the paired training cases: the CT is fixed",
        paired_mrct, frozenset(range(1, 5)),
        (Published("anatomix + MIND-SSC, FireANTs", 0.8790, "the 8 pairs", _ANATOMIX,
                   njd_percent=0.0, seconds=30.0),),
    ),
    "abdomen-ctct": Protocol(
        "Learn2Reg AbdomenCTCT, validation: other people",
        learn2reg("AbdomenCTCT", "registration_val"), frozenset(range(1, 14)),
        (Published("Learn2Reg's example", 0.4707, _NETWORK, _L2R, 0.3909, 12.50),),
    ),
    "oasis": Protocol(
        "Learn2Reg OASIS (2021, task 3), validation: other people",
        oasis, frozenset(range(1, 36)),
        (
            Published("TransMorph-Large", 0.8623, _TRAINED, _TRANSMORPH, 0.1276, 1.4315),
            Published("TransMorph", 0.8575, _TRAINED, _TRANSMORPH, 0.1253, 1.4594),
            Published("LapIRN", 0.82, _HIDDEN, _TRANSMORPH, 0.07, 1.67),
            Published("convexAdam", 0.81, _HIDDEN, _TRANSMORPH, 0.07, 1.63),
        ),
    ),
    "lumir": Protocol(
        "Learn2Reg LUMIR, validation: other people",
        learn2reg("LUMIR", "validation", labels=False), None,
        (
            Published("VFA", 0.7726, _VALIDATION, _LUMIR, hd95=3.2127),
            Published("TransMorph", 0.7594, _VALIDATION, _LUMIR, hd95=3.5074),
            Published("uniGradICON optimised", 0.7512, _VALIDATION, _LUMIR, hd95=3.5080),
            Published("SyN (ANTs)", 0.6988, _VALIDATION, _LUMIR, hd95=3.7048),
            Published("deedsBCV", 0.6977, _VALIDATION, _LUMIR, hd95=3.9540),
            Published("no registration", 0.5657, _VALIDATION, _LUMIR, hd95=4.7876),
            Published("SITReg", 0.7851, _HIDDEN, _LUMIR, hd95=3.0352),
            Published("uniGradICON optimised", 0.7596, _HIDDEN, _LUMIR, hd95=3.4010),
            Published("SyN (ANTs)", 0.7025, _HIDDEN, _LUMIR, hd95=3.6877),
        ),
    ),
    "mindboggle": Protocol(
        "Mindboggle-101 in each person's own space, 62 cortical labels",
        mindboggle("t1weighted_brain.nii.gz",
                   ("labels.DKT31.manual.nii.gz", "labels.DKT31.manual+aseg.nii.gz")),
        _DKT31,
        (
            Published("syntx.tvf", 0.6466, _NINETY, _SYNTX, njd_percent=0.0007, seconds=160.4),
            Published("syntx.syngs", 0.6382, _NINETY, _SYNTX, njd_percent=0.0618, seconds=112.3),
            Published("syntx.syn", 0.6342, _NINETY, _SYNTX, njd_percent=0.0005, seconds=48.8),
            Published("SyN (ANTs)", 0.6216, _NINETY, _SYNTX, njd_percent=0.0, seconds=135.2),
        ),
        both_ways=True,
    ),
    "mindboggle-mni152": Protocol(
        "Mindboggle-101 in MNI152 space, 62 cortical labels",
        mindboggle("t1weighted_brain.MNI152.nii.gz",
                   ("labels.DKT31.manual+aseg.MNI152.nii.gz", "labels.DKT31.manual.MNI152.nii.gz")),
        _DKT31,
        both_ways=True,
    ),
}  # fmt: skip
"""Name to protocol; docs/evidence/protocols.md tells of them."""


def protocol_pairs(
    name: str, data: Path, *, pairs: Path | None = None, masks: bool = True
) -> list[Row]:
    """Return the pairs of a protocol as :func:`morphseek.register_pairs` takes them; `data` is the
    folder of the data set, as its owners pack it.

    Raises
    ------
    morphseek.errors.InputUnreadableError
        The folder, its list or a file is missing or unreadable.
    morphseek.errors.InvalidArgumentError
        There is no such protocol, or it needs a list of pairs.
    """
    if name not in PROTOCOLS:
        raise errors.InvalidArgumentError(
            f"protocol: {name!r} is none; there are {', '.join(PROTOCOLS)}"
        )
    if not data.is_dir():
        raise errors.InputUnreadableError(
            f"data: {data} is no folder; give the one that the data set is unpacked to"
        )
    rows = PROTOCOLS[name].find(data, pairs)
    if not masks:
        rows = [{k: v for k, v in row.items() if not k.endswith("_mask")} for row in rows]
    if missing := _missing(rows):
        raise errors.InputUnreadableError(
            f"data: {missing[0]} is missing"
            + (f", and {len(missing) - 1} more" if len(missing) > 1 else "")
            + f"; {name} needs the data set whole, unpacked to {data}"
        )
    return rows


def _missing(rows: Iterable[Row]) -> list[Path]:
    files = (row[column] for row in rows for column in row if column != "id")
    return sorted({path for path in files if not path.is_file()})
