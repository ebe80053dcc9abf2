"""Published protocols: which pairs and labels of a public data set count, how they are scored, and
what others reported.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import SimpleITK as sitk

from .. import _files, errors, images, scoring
from .._engine import bindings, core
from .._json import without_nan
from .._plain import harmless_row
from .._tables import read_table
from ..result import RegistrationResult, load
from ..transforms.dense import DenseTransform
from .batch import register_cohort
from .into import Report
from .lists import read_pairs
from .results import Cohort, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from .._engine.generated import Options
    from ..progress import Progress

Row = dict[str, Any]
"""A pair as :func:`register_cohort` takes it: ``id``, and paths by column."""

#: What a protocol leaves in its folder, beside what :func:`register_cohort` does.
PROTOCOL_FILES = ("protocol.csv", "protocol.json")
PAIR_LIST = "pairs.csv"
FIELDS = "fields"


@dataclasses.dataclass(frozen=True)
class Published:
    """What others reported of a method; None is what they did not."""

    method: str
    dice: float
    on: str
    """Which pairs and labels: whether the figure can be compared."""
    source: str
    sdlogj: float | None = None
    hd95: float | None = None
    njd_percent: float | None = None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A published protocol: how its pairs are found, and what is measured."""

    title: str
    find: Callable[[Path, Path | None], list[Row]]
    """Returns the pairs of a data folder and, where one is given, of a list of pairs."""
    labels: frozenset[int] | None
    """Those that count, where both maps have them; None: all."""
    published: tuple[Published, ...] = ()
    both_ways: bool = False
    """Dice is the mean of that in the fixed image's space and that in the moving one's."""


def _missing(rows: Iterable[Row]) -> list[Path]:
    files = (row[column] for row in rows for column in row if column != "id")
    return sorted({path for path in files if not path.is_file()})


def _row(name: str, fixed: Mapping[str, Path], moving: Mapping[str, Path]) -> Row:
    """Return a pair; each side has an ``image``, and may have ``labels`` and a ``mask``."""
    row: Row = {"id": name}
    for side, files in (("fixed", fixed), ("moving", moving)):
        for kind, path in files.items():
            row[side if kind == "image" else f"{side}_{kind}"] = path
    return row


def _stem(path: str | Path) -> str:
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


def _learn2reg(
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
            _row(f"{_stem(pair[1])}_to_{_stem(pair[0])}", *files)
            for pair, files in zip(listed, sides)
        ]

    return find


def _paired_mrct(folder: Path, pairs: Path | None) -> list[Row]:
    """The training cases that have both an MR and a CT; the CT is fixed."""
    if pairs:
        return _learn2reg("AbdomenMRCT", "registration_val")(folder, pairs)
    found = []
    for ct in sorted((folder / "imagesTr").glob("AbdomenMRCT_*_0001.nii.gz")):
        mr = ct.with_name(ct.name.replace("_0001.nii.gz", "_0000.nii.gz"))
        if mr.is_file():
            sides = [_beside(folder, f"./imagesTr/{path.name}", True) for path in (ct, mr)]
            found.append(_row(f"{_stem(mr)}_to_{_stem(ct)}", *sides))
    if not found:
        raise errors.InputUnreadableError(
            f"{folder / 'imagesTr'} has no case with both AbdomenMRCT_NNNN_0000.nii.gz (MR) and"
            " AbdomenMRCT_NNNN_0001.nii.gz (CT); give the folder that Learn2Reg's AbdomenMRCT is"
            " unpacked to"
        )
    return found


def _names(path: Path, columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (fixed, moving) of a table that has one of the pairs of columns."""
    heading, *rows = read_table(path, "pairs", set(columns[-1])) or [[]]
    titles = [cell.lower() for cell in heading]
    for pair in columns:
        if set(pair) <= set(titles) and rows:
            one, other = (titles.index(name) for name in pair)
            return [(row[one], row[other]) for row in rows]
    wanted = " or ".join(" and ".join(pair) for pair in columns)
    raise errors.InputUnreadableError(
        f"pairs: {path} needs a heading with the columns {wanted}, and a row for each pair"
    )


def _oasis(folder: Path, pairs: Path | None) -> list[Row]:
    """Learn2Reg's release of today, with OASIS_dataset.json; or that of 2021, by numbers."""
    if (pairs or folder).suffix.lower() == ".json" or list(folder.glob("OASIS*_dataset.json")):
        return _learn2reg("OASIS", "registration_val")(folder, pairs)
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


def _mindboggle(image: str, maps: Sequence[str]) -> Callable[[Path, Path | None], list[Row]]:
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


#: Of the Desikan-Killiany-Tourville protocol: 31 regions a hemisphere.
_DKT31 = frozenset(
    side + region for side in (1000, 2000) for region in (2, 3, *range(5, 32), 34, 35)
)
_L2R = "github.com/MDL-UzL/L2R"
_ANATOMIX = "github.com/neel-dey/anatomix, anatomix/registration/tests/README.md"
_TRANSMORPH = (
    "github.com/junyuchen245/TransMorph_Transformer_for_Medical_Image_Registration,"
    " OASIS/TransMorph_on_OASIS.md"
)
_LUMIR = "github.com/JHU-MedImage-Reg/LUMIR25_L2R25, README.md"
_SYNTX = "github.com/stnava/syntx, README.md"
_TRAINED = "the validation pairs; trained with labels"
_HIDDEN = "the hidden test set"
_VALIDATION = "the validation pairs, by private labels"
_NINETY = "the 90 pairs of examples/pairs.csv"

PROTOCOLS: dict[str, Protocol] = {
    "abdomen-mrct": Protocol(
        "Learn2Reg AbdomenMRCT, validation: the MR is fixed",
        _learn2reg("AbdomenMRCT", "registration_val"),
        frozenset(range(1, 5)),
    ),
    "abdomen-mrct-8": Protocol(
        "Learn2Reg AbdomenMRCT, the paired training cases: the CT is fixed",
        _paired_mrct,
        frozenset(range(1, 5)),
        (
            Published(
                "anatomix + MIND-SSC, FireANTs",
                0.8790,
                "the 8 pairs",
                _ANATOMIX,
                njd_percent=0.0,
                seconds=30.0,
            ),
        ),
    ),
    "abdomen-ctct": Protocol(
        "Learn2Reg AbdomenCTCT, validation: other people",
        _learn2reg("AbdomenCTCT", "registration_val"),
        frozenset(range(1, 14)),
        (
            Published(
                "Learn2Reg's example",
                0.4707,
                "the validation pairs; with a segmentation network",
                f"{_L2R}, examples/task_specific/AbdomenCTCT/AbdomenCTCT_example.json",
                sdlogj=0.3909,
                hd95=12.50,
            ),
        ),
    ),
    "oasis": Protocol(
        "Learn2Reg OASIS (2021, task 3), validation: other people",
        _oasis,
        frozenset(range(1, 36)),
        (
            Published("TransMorph-Large", 0.8623, _TRAINED, _TRANSMORPH, 0.1276, 1.4315),
            Published("TransMorph", 0.8575, _TRAINED, _TRANSMORPH, 0.1253, 1.4594),
            Published("LapIRN", 0.82, _HIDDEN, _TRANSMORPH, 0.07, 1.67),
            Published("convexAdam", 0.81, _HIDDEN, _TRANSMORPH, 0.07, 1.63),
        ),
    ),
    "lumir": Protocol(
        "Learn2Reg LUMIR, validation: other people",
        _learn2reg("LUMIR", "validation", labels=False),
        None,
        (
            Published("VFA", 0.7726, _VALIDATION, _LUMIR, hd95=3.2127),
            Published("TransMorph", 0.7594, _VALIDATION, _LUMIR, hd95=3.5074),
            Published("uniGradICON, optimised", 0.7512, _VALIDATION, _LUMIR, hd95=3.5080),
            Published("SyN (ANTs)", 0.6988, _VALIDATION, _LUMIR, hd95=3.7048),
            Published("deedsBCV", 0.6977, _VALIDATION, _LUMIR, hd95=3.9540),
            Published("no registration", 0.5657, _VALIDATION, _LUMIR, hd95=4.7876),
            Published("SITReg", 0.7851, _HIDDEN, _LUMIR, hd95=3.0352),
            Published("uniGradICON, optimised", 0.7596, _HIDDEN, _LUMIR, hd95=3.4010),
            Published("SyN (ANTs)", 0.7025, _HIDDEN, _LUMIR, hd95=3.6877),
        ),
    ),
    "mindboggle": Protocol(
        "Mindboggle-101 in each person's own space, 62 cortical labels",
        _mindboggle(
            "t1weighted_brain.nii.gz",
            ("labels.DKT31.manual.nii.gz", "labels.DKT31.manual+aseg.nii.gz"),
        ),
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
        _mindboggle(
            "t1weighted_brain.MNI152.nii.gz",
            ("labels.DKT31.manual+aseg.MNI152.nii.gz", "labels.DKT31.manual.MNI152.nii.gz"),
        ),
        _DKT31,
        both_ways=True,
    ),
}
"""Name to protocol; ``docs/evidence/protocols.md`` tells of them."""


def _known(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise errors.InvalidArgumentError(
            f"protocol: {name!r} is none; there are {', '.join(PROTOCOLS)}"
        )
    return PROTOCOLS[name]


def protocol_pairs(
    name: str,
    data: str | os.PathLike[str],
    *,
    pairs: str | os.PathLike[str] | None = None,
    masks: bool = True,
) -> list[Row]:
    """Return the pairs of a published protocol as :func:`register_cohort` takes them.

    Parameters
    ----------
    name : str
        Of :data:`PROTOCOLS`.
    data : path
        Folder of the data set, as its owners pack it.
    pairs : path, optional
        A list of pairs instead of the data set's own. Mindboggle-101 has none and needs one:
        columns subject1 (fixed) and subject2 (moving).
    masks : bool
        Take the masks that the data set has.

    Raises
    ------
    InputUnreadableError
        The folder, its list or a file is missing or unreadable.
    InvalidArgumentError
        There is no such protocol, or it needs a list of pairs.

    Examples
    --------
    >>> rows = protocol_pairs("oasis", "OASIS")  # doctest: +SKIP
    >>> rows[0]["id"]  # doctest: +SKIP
    'OASIS_0396_0000_to_OASIS_0395_0000'
    """
    protocol, folder = _known(name), Path(data)
    if not folder.is_dir():
        raise errors.InputUnreadableError(
            f"data: {folder} is no folder; give the one that the data set is unpacked to"
        )
    rows = protocol.find(folder, None if pairs is None else Path(pairs))
    if not masks:
        rows = [{k: v for k, v in row.items() if not k.endswith("_mask")} for row in rows]
    if missing := _missing(rows):
        raise errors.InputUnreadableError(
            f"data: {missing[0]} is missing"
            + (f", and {len(missing) - 1} more" if len(missing) > 1 else "")
            + f"; {name} needs the data set whole, unpacked to {folder}"
        )
    return rows


def learn2reg_sdlogj(transform: DenseTransform) -> float:
    """Return the standard deviation of log(det J + 3), two voxels from the border: what Learn2Reg
    calls SDlogJ. The metric ``sdlogj`` is that of log(det J) everywhere.
    """
    inside = np.asarray(transform.jacobian(), np.float64)[2:-2, 2:-2, 2:-2]
    return float(np.log(np.clip(inside + 3, 1e-9, 1e9)).std()) if inside.size else math.nan


@dataclasses.dataclass
class ProtocolScore:
    """A pair of a protocol; NaN is what cannot be told."""

    id: str
    fixed: str
    moving: str
    labels: int = 0
    """How many count and are in both maps."""
    dice_before: float = math.nan
    dice: float = math.nan
    hd95: float = math.nan
    """In voxels, as Learn2Reg has it; infinite where a label is lost."""
    sdlogj: float = math.nan
    """:func:`learn2reg_sdlogj`."""
    njd_percent: float = math.nan
    seconds: float = math.nan
    error: str = ""


@dataclasses.dataclass
class ProtocolScores:
    """What a protocol measured, beside what others reported.

    Attributes
    ----------
    name : str
        Of :data:`PROTOCOLS`.
    pairs : list of ProtocolScore
    cohort : Cohort
        Of the registrations.
    """

    name: str
    pairs: list[ProtocolScore]
    cohort: Cohort

    def summary(self) -> dict[str, Any]:
        """Return means over the pairs that were registered, and the standard deviation of Dice over
        them; None where there is none.
        """
        done = [pair for pair in self.pairs if not pair.error]

        def values(name: str) -> list[float]:
            return [v for pair in done if not math.isnan(v := getattr(pair, name))]

        names = ("dice_before", "dice", "hd95", "sdlogj", "njd_percent", "seconds")
        means = {name: float(np.mean(v)) if (v := values(name)) else None for name in names}
        dice = values("dice")
        return {
            "pairs": len(self.pairs),
            "failed": len(self.pairs) - len(done),
            "scored": len(dice),
            **means,
            "dice_sd": float(np.std(dice)) if dice else None,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        protocol = PROTOCOLS[self.name]
        return {
            "protocol": self.name,
            "title": protocol.title,
            "version": core.version(),
            "options": self.cohort.options,
            "summary": without_nan(self.summary()),
            "published": [dataclasses.asdict(row) for row in protocol.published],
            "pairs": [without_nan(dataclasses.asdict(pair)) for pair in self.pairs],
        }

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write protocol.csv (a row a pair) and protocol.json (everything) into an existing folder:
        both or, on an error, none.
        """
        text = StringIO()
        columns = [field.name for field in dataclasses.fields(ProtocolScore)]
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        content = self.to_dict()
        table.writerows(harmless_row(row) for row in content["pairs"])
        with _files.output_folder(folder, PROTOCOL_FILES, PROTOCOL_FILES[1]) as temporary:
            _files.write_text(temporary / PROTOCOL_FILES[0], text.getvalue())
            _files.write_text(temporary / PROTOCOL_FILES[1], json.dumps(content, indent=1) + "\n")


def write_pair_list(rows: Sequence[Row], folder: str | os.PathLike[str]) -> Path:
    """Write the pairs to pairs.csv in a folder, which is made if need be: a list for
    :func:`register_cohort`, ``morphseek batch`` and other programs. Return its path.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = StringIO()
    table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(
        {k: v if k == "id" else Path(v).absolute() for k, v in row.items()} for row in rows
    )
    with _files.output_folder(folder, (PAIR_LIST,)) as temporary:
        _files.write_text(temporary / PAIR_LIST, text.getvalue())
    return Path(folder) / PAIR_LIST


def run_protocol(
    name: str,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    pairs: str | os.PathLike[str] | None = None,
    masks: bool = True,
    fields: bool = False,
    workers: int = 1,
    scheduler: str | None = None,
    report: Report = "small",
    command: str = "",
    resume: bool = True,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> ProtocolScores:
    """Register the pairs of a published protocol and score them as it does.

    Parameters
    ----------
    name, data, pairs, masks
        As of :func:`protocol_pairs`.
    out : path
        Folder: what :func:`register_cohort` writes, pairs.csv, protocol.csv and protocol.json.
    fields : bool
        Also write displacements as Learn2Reg takes submissions: ``fields/disp_0396_0395.nii.gz``,
        voxels, axes (x, y, z, component).
    workers, scheduler, report, command, resume, progress, **options
        Of :func:`register_cohort`, which goes on where it stopped.

    Returns
    -------
    ProtocolScores
        A pair that fails is in it, with its error; the others go on.

    Raises
    ------
    MorphSeekError
        Before the first pair: of :func:`protocol_pairs` and :func:`register_cohort`.
    """
    protocol = _known(name)
    rows = protocol_pairs(name, data, pairs=pairs, masks=masks)
    write_pair_list(rows, out)
    cohort = register_cohort(
        rows, out, workers=workers, scheduler=scheduler, report=report, command=command,
        resume=resume, progress=progress, **options,
    )  # fmt: skip
    scores = ProtocolScores(
        name,
        [_score(protocol, row, of, Path(out), fields) for row, of in zip(rows, cohort.pairs)],
        cohort,
    )
    scores.write(out)
    return scores


def _score(
    protocol: Protocol, row: Row, outcome: Outcome, out: Path, fields: bool
) -> ProtocolScore:
    """Return the scores of a pair from the files of its folder."""
    score = ProtocolScore(outcome.id, outcome.fixed, outcome.moving)
    if outcome.status not in ("done", "skipped"):
        score.error = f"{outcome.error or outcome.status}: {outcome.message}"
        return score
    result = load(out / outcome.id)
    score.sdlogj = learn2reg_sdlogj(result)
    score.njd_percent = result.metrics["njd_percent"]
    score.seconds = result.metrics["seconds"]["total"]
    wanted = protocol.labels
    found = [
        each
        for each in result.metrics.get("labels", [])
        if wanted is None or each["label"] in wanted
    ]
    score.labels = len(found)
    if found:
        score.dice_before, score.dice = (
            float(np.mean([each[f"dice_{when}"] for each in found])) for when in ("before", "after")
        )
        score.hd95 = _in_voxels([each["hd95_after"] for each in found], row["fixed"])
        if protocol.both_ways:
            keep = None if wanted is None else {label: label for label in wanted}
            maps = [
                scoring.merge_labels(images.read(row[f"{side}_labels"], f"{side} labels"), keep)
                for side in ("fixed", "moving")
            ]
            score.dice = (score.dice + scoring.inverse_dice(result, *maps)) / 2
    if fields:
        _write_field(out / FIELDS, row, result)
    return score


def _in_voxels(distances: Sequence[float | None], image: Path) -> float:
    """Return the mean of distances in mm in voxels; infinite where one is None, and NaN where the
    voxels are no cubes, of which a length in voxels says nothing.
    """
    spacing = images.read(image, "fixed").spacing
    if max(spacing) > 1.001 * min(spacing):
        return math.nan
    mean = np.mean([math.inf if d is None else d for d in distances])
    return float(mean) / spacing[0]


def _write_field(folder: Path, row: Row, result: RegistrationResult) -> None:
    """Write a displacement as Learn2Reg reads it: of indices, so both images need one grid."""
    if not bindings.same_grid(result.grid, result.moving_grid):
        raise errors.GridMismatchError(
            f"{row['id']}: the two images lie on different grids; a field for Learn2Reg needs one"
            " grid, run without --fields"
        )
    case = [re.search(r"_(\d{4})_(\d{4})$", _stem(row[side])) for side in ("fixed", "moving")]
    if None in case:
        numbers = [_stem(row[side]) for side in ("fixed", "moving")]
    else:
        (fixed, one), (moving, other) = (found.groups() for found in case if found)
        short = one == other or (one, other) == ("0000", "0001")
        numbers = [fixed, moving] if short else [fixed, one, moving, other]
    image = sitk.GetImageFromArray(np.ascontiguousarray(result.displacement), isVector=False)
    folder.mkdir(parents=True, exist_ok=True)
    _files.write_with(
        lambda path: sitk.WriteImage(image, str(path), useCompression=True),
        folder / f"disp_{'_'.join(numbers)}.nii.gz",
    )
