"""Published protocols: the pairs and labels that count, and what others reported."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from .. import _files, errors
from .._tables import csv_text
from .layouts import Find, Row, learn2reg, mindboggle, oasis, paired_mrct

PAIR_LIST = "pairs.csv"


@dataclasses.dataclass(frozen=True)
class Published:
    """What others reported of a method; None is what they did not.

    Examples
    --------
    >>> cohort.PROTOCOLS["oasis"].published[0].method
    'TransMorph-Large'
    """

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
    """A published protocol: how its pairs are found, and what is measured.

    Examples
    --------
    >>> cohort.PROTOCOLS["oasis"].title
    'Learn2Reg OASIS (2021, task 3), validation: other people'
    """

    title: str
    find: Find
    labels: frozenset[int] | None
    """Those that count, where both maps have them; None: all."""
    published: tuple[Published, ...] = ()
    both_ways: bool = False
    """Dice is the mean of that in the fixed image's space and that in the moving one's."""


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
        learn2reg("AbdomenMRCT", "registration_val"),
        frozenset(range(1, 5)),
    ),
    "abdomen-mrct-8": Protocol(
        "Learn2Reg AbdomenMRCT, the paired training cases: the CT is fixed",
        paired_mrct,
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
        learn2reg("AbdomenCTCT", "registration_val"),
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
        oasis,
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
        learn2reg("LUMIR", "validation", labels=False),
        None,
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
        mindboggle(
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
        mindboggle(
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


def _missing(rows: Iterable[Row]) -> list[Path]:
    files = (row[column] for row in rows for column in row if column != "id")
    return sorted({path for path in files if not path.is_file()})


def write_pair_list(rows: Sequence[Row], folder: str | os.PathLike[str]) -> Path:
    """Write the pairs to pairs.csv in a folder, which is made if need be: a list for
    :func:`register_cohort`, ``morphseek pairs`` and other programs. Return its path.

    Examples
    --------
    >>> cohort.write_pair_list([{"fixed": "a.nii.gz", "moving": "b.nii.gz"}], "study").as_posix()
    'study/pairs.csv'
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = csv_text(
        columns,
        ({k: v if k == "id" else Path(v).absolute() for k, v in row.items()} for row in rows),
    )
    with _files.output_folder(folder, (PAIR_LIST,)) as temporary:
        _files.write_text(temporary / PAIR_LIST, text)
    return Path(folder) / PAIR_LIST
