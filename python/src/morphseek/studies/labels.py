"""Labels of several atlases, carried to each target and fused there."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import _manifest, errors, images
from .._engine import core
from .._engine.generated import Unpack
from .._grid import Grid
from .._json import Plain, without_nan
from ..images.sidecars import check_apart
from ..progress import Progress
from ..result import Registration
from ..scoring.labels import check_labels, dice_by_label, nothing_carried, on_fixed_grid
from ..transforms.labels import carry_labels
from ..verdict import tally
from ._result import mean, mean_dice
from .fusion import FUSIONS, Fused, Fusion, fuse_labels, smallest
from .pairs import Running, files_of, register_pairs
from .plan import is_file, pair_row
from .runner import FINISHED, Job, Meter, Result
from .study import SEAL, Rows, Study
from .table import Item, read_items

FUSED = ("labels.nii.gz", "agreement.nii.gz", "fusion.json")
"""The files of a target; the last one is the seal."""
TABLES = ("labels.json", "volumes.csv")
"""The files of a study beside the targets' folders; the first one lists the other."""
REGISTRATIONS = "registrations"
_COLUMNS = ("id", "label", "name", "mm3", "agreement", "dice")
_DOUBTFUL = 0.75  # of the votes


@dataclasses.dataclass(slots=True, repr=False)
class TargetLabels(Plain):
    """One target of a study. None: unknown.

    Examples
    --------
    >>> studies.TargetLabels("sub-01", "sub-01.nii.gz")
    TargetLabels(sub-01: pending, 0 labels by 0 atlases (), 0.0 % doubtful)
    """

    id: str
    image: str
    status: str = "pending"
    """done, skipped (it was finished before), failed, or pending (the study was stopped)."""
    fusion: str = ""
    voters: list[str] = dataclasses.field(default_factory=list)
    """The atlases that voted."""
    left_out: list[str] = dataclasses.field(default_factory=list)
    """Those that did not, and why."""
    warnings: list[str] = dataclasses.field(default_factory=list)
    doubtful_percent: float | None = None
    """Share of the labelled voxels for which fewer than three quarters of the votes are."""
    labels: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """label, name, mm3, agreement (the mean share of the votes within it, 0..1) and dice (with the
    target's own label map, where it has one) of each."""
    dice: float | None = None
    """Mean over the labels that the target's own map has, too."""
    dice_of_one: float | None = None
    """Mean over the atlases, each alone, that share a label with it."""
    error: str = ""
    """The exception's class."""
    message: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        if self.error:
            return f"{self.id}: {self.error}: {self.message}"
        doubt = 0.0 if self.doubtful_percent is None else self.doubtful_percent
        dice = "" if self.dice is None else f", Dice {self.dice:.3f}"
        return (
            f"{self.id}: {self.status}, {len(self.labels)} labels by {len(self.voters)} atlases"
            f" ({self.fusion}), {doubt:.1f} % doubtful{dice}"
        )


class LabelStudy(Rows):
    """Targets with their labels, and the registrations behind them: a table with a row a target
    and label, as in volumes.csv. labels.json has everything.

    Attributes
    ----------
    rows : list of TargetLabels
    registrations : Study

    Examples
    --------
    >>> studies.LabelStudy([studies.TargetLabels("a", "a.nii.gz")], studies.Study([])).exit_code
    0
    """

    _card = "labels"
    _empty = TargetLabels("", "")
    _seal = FUSED[-1]
    _tables = TABLES
    rows: list[TargetLabels]

    def __init__(self, rows: Iterable[TargetLabels], registrations: Study) -> None:
        self.rows, self.registrations = list(rows), registrations

    def _head(self) -> dict[str, Any]:
        means = ("doubtful_percent", "dice", "dice_of_one")
        return {
            "summary": {
                "targets": len(self.rows),
                "failed": sum(row.status == "failed" for row in self.rows),
                "registrations": self.registrations.summary(),
                **{name: mean(getattr(row, name) for row in self.rows) for name in means},
            },
            "version": core.version(),
        }

    def _table(self) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        return _COLUMNS, [{"id": row.id, **label} for row in self.rows for label in row.labels]

    def __repr__(self) -> str:
        states = tally(collections.Counter(row.status for row in self.rows))
        return f"LabelStudy({len(self.rows)} targets: {states}; {self.registrations!r})"

    def _write(self, temporary: Path, folder: Path) -> None:
        self.to_csv(temporary / TABLES[1])


def propagate_labels(
    targets: str | os.PathLike[str] | Iterable[Any],
    atlases: str | os.PathLike[str] | Iterable[Any],
    out: str | os.PathLike[str],
    *,
    fusion: Fusion = "majority",
    names: Mapping[int, str] | None = None,
    resume: bool = True,
    **how: Unpack[Running],
) -> LabelStudy:
    """Label images by several labelled ones: each atlas is registered onto each target, its labels
    are carried over, and the maps are fused.

    Parameters
    ----------
    targets, atlases : path or iterable
        As :func:`read_items` takes them. Each atlas needs a label map; a target that has one is
        scored by it. An atlas that is the target itself does not vote.
    out : path
        Folder; target ID writes to ``out/ID`` labels.nii.gz, agreement.nii.gz (the share of the
        votes, 0..1) and fusion.json. volumes.csv has a row a target and label, labels.json has
        everything, and ``out/registrations`` is a folder of :func:`register_pairs`. Targets of
        earlier calls keep their rows. Several calls may share a folder.
    fusion : {"majority", "joint", "staple"}
        How the maps are fused: see :func:`fuse_labels`. Where an atlas is of another contrast than
        the target, "joint" compares nothing that means something: then the majority counts.
    names : mapping, optional
        Label number to name, for the tables. By default those of the atlases that are given by
        name.
    resume, **how
        Of :func:`register_pairs`: workers, scheduler, report, progress and options. Targets are
        fused as pairs are registered: workers at a time.

    Returns
    -------
    LabelStudy
        A target that no atlas could be carried to is in it with its error; the others go on. An
        atlas whose registration failed, or has the verdict failed, does not vote.

    Raises
    ------
    InputUnreadableError
        There is no atlas or target, or an atlas has no label map.

    Examples
    --------
    >>> atlases = [("moving.nii.gz", "moving_labels.nii.gz")]
    >>> study = studies.propagate_labels(["fixed.nii.gz"], atlases, "out", refine=0, search=False)
    >>> [row.status for row in study.rows]
    ['done']
    """
    errors._check_choice("fusion", fusion, FUSIONS)
    to = read_items(targets, reserved=(REGISTRATIONS, *TABLES))
    known = read_items(atlases)
    if lacking := [atlas.name for atlas in known if atlas.labels is None]:
        raise errors.InputUnreadableError(
            f"atlases: {lacking[0]} has no label map ({len(lacking)} of {len(known)} lack one);"
            " give (image, labels), a table with the column labels, or a folder with images and"
            " labels of the same names"
        )
    folder = Path(out).absolute()
    check_apart(folder, TABLES, {item.id: item.image for item in (*to, *known)})
    listed = [
        (target, atlas, f"{target.id}_from_{atlas.id}")
        for target in to
        for atlas in known
        if not is_file(target.image, atlas.image)
    ]
    if not listed:
        raise errors.InvalidArgumentError(
            "label: the only atlas is the target itself; give other labelled images"
        )
    if names is None:
        names = images.label_names(*(atlas.labels for atlas in known))
    place = folder / REGISTRATIONS
    registrations = register_pairs(
        [pair_row(*pair) for pair in listed], place, resume=resume, **how
    )
    study = LabelStudy([TargetLabels(item.id, str(item.image)) for item in to], registrations)
    jobs = []
    for target, row in zip(to, study.rows):
        voters, codes = [], []
        for (of, atlas, _), pair in zip(listed, registrations.rows):
            if of is not target:
                continue
            if pair.status not in FINISHED:
                row.left_out.append(f"{atlas.id}: {pair.message or pair.status}")
                codes.append(pair.exit_code)
            elif pair.verdict == "failed":
                why = " ".join(pair.reasons)
                row.left_out.append(f"{atlas.id}: the verdict is failed. {why}".rstrip())
            else:
                row.voters.append(atlas.id)
                voters.append((_absolute(atlas), str(place / pair.id)))
        if voters:
            at = str(folder / target.id)
            jobs.append(
                FusionJob(target.id, at, _absolute(target), voters, row, fusion, dict(names))
            )
        else:
            row.status, row.error = "failed", errors.RuntimeFailedError.__name__
            row.exit_code = next(filter(None, codes), errors.RuntimeFailedError.exit_code)
            row.message = f"no atlas could be carried to it: {'; '.join(row.left_out)}"
    study._do(
        jobs, folder, Meter(len(jobs), None), keep=["left_out"], resume=resume,
        workers=how.get("workers") or 1, scheduler=how.get("scheduler"),
    )  # fmt: skip
    return study


def _absolute(item: Item) -> Item:
    """Return an item for a worker elsewhere, which is in another folder."""
    labels = None if item.labels is None else images.named.absolute(item.labels)
    return dataclasses.replace(item, image=images.named.absolute(item.image), labels=labels)


@dataclasses.dataclass(frozen=True)
class FusionJob(Job):
    """The fusion of the maps of one target."""

    target: Item
    voters: Sequence[tuple[Item, str]]
    """Atlases, and the folders of their registrations onto the target."""
    row: TargetLabels
    fusion: Fusion
    names: Mapping[int, str]

    seal: ClassVar[str] = FUSED[-1]
    listing: ClassVar[str] = FUSED[-1]
    outputs = FUSED

    def inputs(self) -> dict[str, list[Path]]:
        """Return the registrations' seals, which tell of their inputs, and the own labels."""
        files = {f"registration of {a.id}": [Path(folder) / SEAL] for a, folder in self.voters}
        if self.target.labels is not None:
            files["labels"] = files_of(Path(self.target.labels), f"labels of {self.id}")
        return files

    def settings(self) -> Any:
        how = fuse_labels.__kwdefaults__
        return [core.version(), self.row.voters, self.fusion, how, sorted(self.names.items())]

    def run(self, folder: Path, progress: Callable[[Progress], Any] | None) -> Result:
        grid, fusion, warnings = Grid((0, 0, 0)), self.fusion, list[str]()
        maps, reach, warped, alike = [], [], [], True
        for atlas, pair in self.voters:
            result = Registration.read(pair)
            grid = result.grid
            labels = images.read_on(str(atlas.labels), result.moving_grid, f"labels of {atlas.id}")
            check_labels(labels)
            doubts, labels = labels.doubts, dataclasses.replace(labels, doubts=())
            numbers, known = carry_labels(labels, result.apply)
            lost = nothing_carried(labels.array, numbers, str(atlas.labels))
            warnings += [*doubts, *filter(None, [lost])]
            maps.append(smallest(numbers))
            reach.append(known)
            warped.append(result.warped)
            alike = alike and bool(result.metrics["align"]["same_modality"])
        if fusion == "joint" and not alike:
            fusion = "majority"
            warnings.append("an atlas is of another contrast: the majority counts")
        image = images.read(self.target.image, self.id) if fusion == "joint" else None
        fused = fuse_labels(
            maps, fusion, reach=reach, images=warped,
            target=None if image is None else image.float32(),
        )  # fmt: skip
        measured = self._measured(fused, grid, maps)
        images.write(folder / FUSED[0], images.Image.on_grid(smallest(fused.labels), grid))
        images.write(folder / FUSED[1], images.Image.on_grid(fused.agreement, grid))
        row = {
            "image": self.row.image, "fusion": fusion, "voters": self.row.voters,
            "left_out": self.row.left_out, "warnings": warnings, **measured,
        }  # fmt: skip
        files = {name: _manifest.entry(folder / name) for name in FUSED[:2]}
        return Result(without_nan(row), files)

    def _measured(self, fused: Fused, grid: Grid, maps: Sequence[np.ndarray]) -> dict[str, Any]:
        dice, row = dict[int, float](), dict[str, Any]()
        if self.target.labels is not None:
            own = on_fixed_grid(str(self.target.labels), grid)
            check_labels(own)
            dice = dice_by_label(fused.labels, own.array)
            alone = (mean_dice(dice_by_label(labels, own.array)) for labels in maps)
            row = {"dice": mean_dice(dice), "dice_of_one": mean(alone)}
        inside = fused.agreement[fused.labels != 0]
        row["doubtful_percent"] = float(100 * (inside < _DOUBTFUL).mean()) if inside.size else None
        keys = ("label", "name", "mm3", "agreement", "dice")
        row["labels"] = [
            dict(zip(keys, (k, self.names.get(k, ""), n * grid.voxel, share, dice.get(k))))
            for k, n, share in (each.values() for each in fused.to_dict()["labels"])
            if k
        ]
        return row
