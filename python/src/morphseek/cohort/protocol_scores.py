"""Registering the pairs of a published protocol, and scoring them as it does."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import _files, errors, images, scoring
from .._engine import bindings, core
from .._engine.generated import Options, Unpack
from .._json import without_nan
from .._tables import csv_text
from ..progress import Progress
from ..result import Registration
from .batch import register_cohort
from .into import Report
from .layouts import Row, stem
from .protocols import PROTOCOLS, Protocol, protocol_pairs, write_pair_list
from .results import Cohort, Outcome

#: What a protocol leaves in its folder, beside what :func:`register_cohort` does.
PROTOCOL_FILES = ("protocol.csv", "protocol.json")
FIELDS = "fields"


@dataclasses.dataclass
class ProtocolScore:
    """A pair of a protocol; NaN is what cannot be told.

    Examples
    --------
    >>> str(cohort.ProtocolScore("one", "a", "b", dice=0.8))
    'one: Dice 0.8000'
    """

    id: str
    fixed: str
    moving: str
    labels: int = 0
    """How many count and are in both maps."""
    dice_before: float = math.nan
    dice: float = math.nan
    hd95: float = math.nan
    """:func:`morphseek.scoring.learn2reg_hd95`; infinite where a label is lost."""
    sdlogj: float = math.nan
    """:func:`morphseek.scoring.learn2reg_sdlogj`."""
    njd_percent: float = math.nan
    seconds: float = math.nan
    error: str = ""

    def __str__(self) -> str:
        return f"{self.id}: {self.error or f'Dice {self.dice:.4f}'}"


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

    Examples
    --------
    >>> pair = cohort.ProtocolScore("one", "a", "b", dice=0.8)
    >>> cohort.ProtocolScores("oasis", [pair], cohort.Cohort([], {})).summary()["dice"]
    0.8
    """

    name: str
    pairs: list[ProtocolScore]
    cohort: Cohort

    def summary(self) -> dict[str, Any]:
        """Return means over the pairs that were registered, and the standard deviation of Dice over
        them; None where there is none.

        Examples
        --------
        >>> pair = cohort.ProtocolScore("one", "a", "b", dice=0.8)
        >>> cohort.ProtocolScores("oasis", [pair], cohort.Cohort([], {})).summary()["scored"]
        1
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
        """Return everything as plain data.

        Examples
        --------
        >>> sorted(cohort.ProtocolScores("oasis", [], cohort.Cohort([], {})).to_dict())
        ['options', 'pairs', 'protocol', 'published', 'summary', 'title', 'version']
        """
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

        Examples
        --------
        >>> cohort.ProtocolScores("oasis", [], cohort.Cohort([], {})).write("scores")
        >>> sorted(os.listdir("scores"))
        ['protocol.csv', 'protocol.json']
        """
        columns = [field.name for field in dataclasses.fields(ProtocolScore)]
        content = self.to_dict()
        text = csv_text(columns, content["pairs"])
        with _files.output_folder(folder, PROTOCOL_FILES, PROTOCOL_FILES[1]) as temporary:
            _files.write_text(temporary / PROTOCOL_FILES[0], text)
            _files.write_text(temporary / PROTOCOL_FILES[1], json.dumps(content, indent=1) + "\n")


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

    Examples
    --------
    >>> cohort.run_protocol("oasis", "OASIS", "out")  # doctest: +SKIP
    """
    rows = protocol_pairs(name, data, pairs=pairs, masks=masks)
    write_pair_list(rows, out)
    cohort = register_cohort(
        rows, out, workers=workers, scheduler=scheduler, report=report, command=command,
        resume=resume, progress=progress, **options,
    )  # fmt: skip
    scores = ProtocolScores(
        name,
        [
            _score(PROTOCOLS[name], row, of, Path(out), fields)
            for row, of in zip(rows, cohort.pairs)
        ],
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
    result = Registration.read(out / outcome.id)
    score.sdlogj = scoring.learn2reg_sdlogj(result)
    score.njd_percent = result.metrics["njd_percent"]
    score.seconds = result.metrics["seconds"]["total"]
    wanted = protocol.labels
    found = [
        each
        for each in result.to_dict().get("labels", [])
        if wanted is None or each["label"] in wanted
    ]
    score.labels = len(found)
    if found:
        score.dice_before, score.dice = (
            float(np.mean([each[f"dice_{when}"] for each in found])) for when in ("before", "after")
        )
        fixed, moving = (
            images.read(row[f"{side}_labels"], f"{side} labels") for side in ("fixed", "moving")
        )
        warped = images.read(out / outcome.id / "warped_labels.nii.gz", "warped labels")
        score.hd95 = float(
            np.mean(
                [scoring.learn2reg_hd95(*(m.array == each["label"] for m in (fixed, warped)))
                 for each in found]
            )
        )  # fmt: skip
        if protocol.both_ways:
            keep = {each["label"]: each["label"] for each in found}
            maps = [scoring.merge_labels(labels, keep) for labels in (fixed, moving)]
            score.dice = (score.dice + scoring.inverse_dice(result, *maps)) / 2
    if fields:
        _write_field(out / FIELDS, row, result)
    return score


def _write_field(folder: Path, row: Row, result: Registration) -> None:
    """Write a displacement as Learn2Reg reads it: of indices, so both images need one grid."""
    if not bindings.same_grid(result.grid, result.moving_grid):
        raise errors.GridMismatchError(
            f"{row['id']}: the two images lie on different grids; a field for Learn2Reg needs one"
            " grid, run without --fields"
        )
    names = [stem(row[side]) for side in ("fixed", "moving")]
    if cases := re.fullmatch(r".*_(\d{4})_(\d{4}) .*_(\d{4})_(\d{4})", " ".join(names)):
        fixed, one, moving, other = cases.groups()
        short = one == other or (one, other) == ("0000", "0001")
        names = [fixed, moving] if short else [fixed, one, moving, other]
    along_xyz = np.ascontiguousarray(result.displacement()[::-1])  # as the axes of the file lie
    image = sitk.GetImageFromArray(along_xyz, isVector=False)
    folder.mkdir(parents=True, exist_ok=True)
    _files.write_with(
        lambda path: sitk.WriteImage(image, str(path), useCompression=True),
        folder / f"disp_{'_'.join(names)}.nii.gz",
    )
