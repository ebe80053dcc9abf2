"""Labels of several atlases, carried to each target and fused there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _manifest, errors, images
from .._engine import core
from .._engine.generated import Options, Unpack
from .._grid import Grid
from .._json import read as read_json, without_nan
from .._plain import why_no_name
from .._tables import csv_text, data_frame
from ..images.sidecars import check_apart
from ..progress import Progress
from ..result import Registration
from ..scoring.labels import check_labels, dice_of, on_fixed_grid
from .fusion import FUSIONS, Fused, Fusion, fuse_labels
from .pair import Report
from .pairs import register_pairs
from .plan import check_alike
from .study import SEAL, PairRow, Study, fits
from .table import Item, Items, read_items

#: What a target's folder has; the last one lists the others.
FUSED = ("labels.nii.gz", "agreement.nii.gz", "fusion.json")
#: What the study's folder has beside the targets' folders.
TABLES = ("volumes.csv", "labels.json")
REGISTRATIONS = "registrations"
_DOUBTFUL = 0.75  # of the votes


@dataclasses.dataclass
class LabelSize:
    """A label on one target."""

    id: str
    label: int
    name: str
    mm3: float
    agreement: float
    """Mean share of the votes within the label, 0..1."""
    dice: float = math.nan
    """With the target's own label map, where it has one."""


@dataclasses.dataclass
class TargetLabels:
    """The outcome of one target.

    Examples
    --------
    >>> studies.TargetLabels("sub-01", "sub-01.nii.gz").status
    'done'
    """

    id: str
    image: str
    status: str = "done"
    """done, skipped (it was finished before) or failed."""
    fusion: str = ""
    voters: list[str] = dataclasses.field(default_factory=list)
    """The atlases that voted."""
    left_out: list[str] = dataclasses.field(default_factory=list)
    """Those that did not, and why."""
    doubtful_percent: float = math.nan
    """Share of the labelled voxels for which fewer than three quarters of the votes are."""
    labels: list[LabelSize] = dataclasses.field(default_factory=list)
    dice: float = math.nan
    """Mean over the labels that the target's own map has, too."""
    dice_of_one: float = math.nan
    """Mean over the atlases, each alone."""
    message: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        if self.message and self.status == "failed":
            return f"{self.id}: {self.message}"
        dice = "" if math.isnan(self.dice) else f", Dice {self.dice:.3f}"
        return (
            f"{self.id}: {self.status}, {len(self.labels)} labels by {len(self.voters)} atlases"
            f" ({self.fusion}), {self.doubtful_percent:.1f} % doubtful{dice}"
        )


@dataclasses.dataclass(repr=False)
class Labelled:
    """The targets with their labels, and the registrations behind them.

    Examples
    --------
    >>> studies.Labelled([studies.TargetLabels("a", "a.nii.gz")], studies.Study([])).exit_code
    0
    """

    targets: list[TargetLabels]
    registrations: Study
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The first failed target's, or 0."""
        return next((t.exit_code for t in self.targets if t.exit_code), 0)

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the columns and the rows of volumes.csv."""
        columns = [field.name for field in dataclasses.fields(LabelSize)]
        return columns, [
            dataclasses.asdict(row) for target in self.targets for row in target.labels
        ]

    def to_dataframe(self) -> Any:
        """Return a row a target and label as a pandas DataFrame: the columns of volumes.csv.

        Examples
        --------
        >>> target = studies.TargetLabels("a", "a.nii.gz")
        >>> len(studies.Labelled([target], studies.Study([])).to_dataframe())
        0
        """
        return data_frame(self._table()[1])

    def __repr__(self) -> str:
        failed = sum(target.status == "failed" for target in self.targets)
        return f"Labelled({len(self.targets)} targets, {failed} failed; {self.registrations!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the registrations as plain data, NaN as None.

        Examples
        --------
        >>> target = studies.TargetLabels("a", "a.nii.gz")
        >>> sorted(studies.Labelled([target], studies.Study([])).to_dict())
        ['notes', 'summary', 'targets', 'version']
        """

        def mean(name: str) -> float | None:
            known = [v for t in self.targets if not math.isnan(v := getattr(t, name))]
            return float(np.mean(known)) if known else None

        targets = [without_nan(dataclasses.asdict(t)) for t in self.targets]
        return {
            "summary": {
                "targets": len(targets),
                "failed": sum(t.status == "failed" for t in self.targets),
                "registrations": self.registrations.summary(),
                **{name: mean(name) for name in ("doubtful_percent", "dice", "dice_of_one")},
            },
            "version": core.version(),
            "notes": self.notes,
            "targets": targets,
        }


def propagate_labels(
    targets: str | os.PathLike[str] | Iterable[Any],
    atlases: str | os.PathLike[str] | Iterable[Any],
    out: str | os.PathLike[str],
    *,
    fusion: Fusion = "majority",
    names: Mapping[int, str] | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    report: Report = "small",
    command: str = "",
    resume: bool = True,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Labelled:
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
        earlier calls that lie there finished keep their rows.
    fusion : {"majority", "joint", "staple"}
        How the maps are fused: see :func:`fuse_labels`. Where an atlas is of another contrast than
        the target, "joint" compares nothing that means something: then the majority counts.
    names : mapping, optional
        Label number to name, for the tables. By default those of the atlases that are given by
        name.
    workers, scheduler, report, command, resume, progress, **options
        Of :func:`register_pairs`.

    Returns
    -------
    Labelled
        A target that no atlas could be carried to is in it with its error; the others go on. An
        atlas whose registration failed, or has the verdict failed, does not vote.

    Raises
    ------
    InputUnreadableError
        There is no atlas or target, or an atlas has no label map.

    Examples
    --------
    >>> atlases = [("moving.nii.gz", "moving_labels.nii.gz")]
    >>> found = studies.propagate_labels(["fixed.nii.gz"], atlases, "out", refine=0, search=False)
    >>> [target.status for target in found.targets]
    ['done']
    """
    if fusion not in FUSIONS:
        raise errors.InvalidArgumentError(
            f"fusion is {fusion!r}; it must be {', '.join(FUSIONS[:-1])} or {FUSIONS[-1]}"
        )
    to, known = read_items(targets), read_items(atlases)
    _check(to, known)
    folder = Path(out)
    check_apart(folder, TABLES, {s.id: s.image for s in (*to, *known)})
    rows, pairs = [], {}
    for target in to:
        for atlas in known:
            if target.image.absolute() != atlas.image.absolute():
                name = f"{target.id}_from_{atlas.id}"
                pairs[target.id, atlas.id] = name
                rows.append(_row(target, atlas, name))
    if not rows:
        raise errors.InvalidArgumentError(
            "label: the only atlas is the target itself; give other labelled images"
        )
    if names is None:
        names = images.label_names(*(atlas.labels for atlas in known))
    study = register_pairs(
        rows, folder / REGISTRATIONS, workers=workers, scheduler=scheduler, report=report,
        command=command, resume=resume, progress=progress, **options,
    )  # fmt: skip
    done = {pair.id: pair for pair in study.rows}
    found = []
    for target in to:
        of_atlas = [
            (atlas, done[pairs[target.id, atlas.id]])
            for atlas in known
            if (target.id, atlas.id) in pairs
        ]
        found.append(_target(target, of_atlas, folder, fusion, names, resume))
    labelled = Labelled(found, study, [*to.notes, *known.notes])
    with _files.output_folder(folder, TABLES, TABLES[-1]) as temporary:
        earlier = _earlier(folder, {target.id for target in to})
        _write(dataclasses.replace(labelled, targets=[*found, *earlier]), temporary)
    return labelled


def _check(targets: Items, atlases: Items) -> None:
    lacking = [atlas.image for atlas in atlases if atlas.labels is None]
    if lacking:
        raise errors.InputUnreadableError(
            f"atlases: {lacking[0]} has no label map ({len(lacking)} of {len(atlases)} lack one);"
            " give (image, labels), a table with the column labels, or a folder with images and"
            " labels of the same names"
        )
    for target in targets:
        reason = why_no_name(target.id)
        if target.id.casefold() in (REGISTRATIONS, *TABLES):
            reason = "the study writes a folder or a file of that name"
        if reason:
            raise errors.InvalidArgumentError(
                f"targets: {target.image} has the id {target.id!r}, which is no name for a folder:"
                f" {reason}; give ids in a table"
            )
    check_alike([*targets, *atlases])


def _row(target: Item, atlas: Item, name: str) -> dict[str, Any]:
    row = {
        "id": name,
        "fixed": target.image,
        "moving": atlas.image,
        "fixed_labels": target.labels,
        "moving_labels": atlas.labels,
        "fixed_mask": target.mask,
        "moving_mask": atlas.mask,
    }
    return {key: value for key, value in row.items() if value is not None}


def _target(
    target: Item,
    of_atlas: Sequence[tuple[Item, PairRow]],
    out: Path,
    fusion: Fusion,
    names: Mapping[int, str],
    resume: bool,
) -> TargetLabels:
    """Fuse a target's maps, unless that was done. Errors come back in the result."""
    made = TargetLabels(target.id, str(target.image))
    voters = []
    for atlas, outcome in of_atlas:
        if outcome.status not in ("done", "skipped"):
            made.left_out.append(f"{atlas.id}: {outcome.message or outcome.status}")
        elif outcome.verdict == "failed":
            why = " ".join(outcome.reasons)
            made.left_out.append(f"{atlas.id}: the verdict is failed. {why}".rstrip())
        else:
            voters.append((atlas, out / REGISTRATIONS / outcome.id))
    if not voters:
        made.status, made.exit_code = "failed", errors.RuntimeFailedError.exit_code
        codes = [outcome.exit_code for _, outcome in of_atlas if outcome.exit_code]
        made.exit_code = codes[0] if codes else made.exit_code
        made.message = f"no atlas could be carried to it: {'; '.join(made.left_out)}"
        return made
    try:
        made.voters = [atlas.id for atlas, _ in voters]
        of = _fingerprint([folder for _, folder in voters], target, fusion, names)
        folder = out / target.id
        if resume and (before := _before(folder, of)):
            return dataclasses.replace(made, **before, status="skipped")
        with _files.output_folder(folder, FUSED, FUSED[-1]) as temporary:
            _fuse(made, target, voters, fusion, names)(temporary, of)
    except (errors.MorphSeekError, MemoryError) as error:
        failure = errors.from_exception(error)
        made.status, made.message, made.exit_code = "failed", str(failure), failure.exit_code
    return made


def _fuse(
    made: TargetLabels,
    target: Item,
    voters: Sequence[tuple[Item, Path]],
    fusion: Fusion,
    names: Mapping[int, str],
) -> Callable[[Path, str], None]:
    """Fuse a target's maps and return what writes them."""
    grid = Grid((0, 0, 0))
    maps, reach, warped, alike = [], [], [], True
    for atlas, folder in voters:
        result = Registration.read(folder)
        grid = result.grid
        labels = images.read_on(str(atlas.labels), result.moving_grid, f"labels of {atlas.id}")
        check_labels(labels)
        # 0 is outside the atlas, where its labels are unknown
        carried = result.apply(
            labels.like(_above(labels.array)), interpolation="nearest", background=0.0
        ).array.astype(np.int64)
        reach.append(carried != 0)
        maps.append(np.where(carried != 0, carried + int(labels.array.min()) - 1, 0))
        warped.append(result.warped)
        alike = alike and bool(result.metrics["align"]["same_modality"])
    if fusion == "joint" and not alike:
        fusion = "majority"
        made.message = "an atlas is of another contrast: the majority counts"
    image = images.read(target.image, target.id) if fusion == "joint" else None
    fused = fuse_labels(
        maps, fusion, reach=reach, images=warped,
        target=None if image is None else image.float32(),
    )  # fmt: skip
    made.fusion = fusion
    own = None
    if target.labels is not None:
        own = on_fixed_grid(str(target.labels), grid)
        check_labels(own)
    _measure(made, fused, grid, names, maps, None if own is None else own.array)

    def write(folder: Path, of: str) -> None:
        labels = images.Image.on_grid(_small(fused.labels), grid)
        images.write(folder / FUSED[0], labels)
        images.write(folder / FUSED[1], images.Image.on_grid(fused.agreement, grid))
        result = dataclasses.asdict(made)
        kept = {k: v for k, v in result.items() if k not in ("status", "exit_code")}
        listed = {name: _manifest.entry(folder / name) for name in FUSED[:2]}
        content = {"made_of": of, "result": without_nan(kept), _manifest.KEY: listed}
        _files.write_text(folder / FUSED[2], json.dumps(content, indent=1) + "\n")

    return write


def _above(labels: np.ndarray) -> np.ndarray:
    """Return labels whose least is 1, in a type that the resampling is quick for."""
    above = labels.astype(np.int64) - int(labels.min()) + 1
    return above.astype(np.int32) if above.max() < 2**24 else above


def _small(labels: np.ndarray) -> np.ndarray:
    low, high = int(labels.min(initial=0)), int(labels.max(initial=0))
    kinds = (np.uint8, np.uint16, np.int32) if low >= 0 else (np.int16, np.int32)
    for kind in kinds:
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return labels.astype(kind)
    return labels


def _measure(
    made: TargetLabels,
    fused: Fused,
    grid: Grid,
    names: Mapping[int, str],
    maps: Sequence[np.ndarray],
    own: np.ndarray | None,
) -> None:
    dice = {} if own is None else dice_of(fused.labels, own)
    values, place, counts = np.unique(fused.labels, return_inverse=True, return_counts=True)
    agreement = np.bincount(place.ravel(), weights=fused.agreement.ravel()) / counts
    made.labels = [
        LabelSize(
            made.id, int(v), names.get(int(v), ""), float(n * grid.voxel), float(a),
            dice.get(int(v), math.nan),
        )
        for v, n, a in zip(values, counts, agreement)
        if v
    ]  # fmt: skip
    inside = fused.labels != 0
    if inside.any():
        made.doubtful_percent = float(100 * (fused.agreement[inside] < _DOUBTFUL).mean())
    if own is not None:
        made.dice = _mean(dice)
        made.dice_of_one = float(np.mean([_mean(dice_of(m, own)) for m in maps]))


def _mean(dice: Mapping[int, float]) -> float:
    return float(np.mean(list(dice.values()))) if dice else math.nan


def _fingerprint(
    folders: Sequence[Path], target: Item, fusion: Fusion, names: Mapping[int, str]
) -> str:
    """Return a hash of all that a target's labels depend on; the pairs know their inputs."""
    pairs = [_manifest_of(folder) for folder in folders]
    own = None if target.labels is None else str(target.labels)
    how = fuse_labels.__kwdefaults__
    content = [core.version(), pairs, own, fusion, how, sorted(names.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _manifest_of(folder: Path) -> Any:
    return read_json(folder / SEAL, "pair")["fingerprint"]


def _before(folder: Path, of: str) -> dict[str, Any]:
    """Return what a target's folder has of an earlier run; nothing where it is of other files."""
    _files.settle(folder)
    result = _kept(folder, of)
    return {k: v for k, v in result.items() if k not in ("id", "image", "voters", "left_out")}


def _earlier(folder: Path, now: Collection[str]) -> list[TargetLabels]:
    """Return the targets of earlier calls that lie finished in a folder."""
    found = []
    for path in sorted(folder.glob(f"*/{FUSED[2]}")):
        result = {} if path.parent.name in now else _kept(path.parent)
        if result.get("id") == path.parent.name:
            found.append(TargetLabels(**result, status="skipped"))
    return found


def _kept(folder: Path, of: str | None = None) -> dict[str, Any]:
    """Return what a target's folder says of it; nothing where its files are not whole, or made of
    other ones.
    """
    try:
        found = read_json(folder / FUSED[2], "fusion")
        whole = of in (None, found["made_of"]) and all(
            _manifest.is_same(folder / name, found[_manifest.KEY][name]) for name in FUSED[:2]
        )
        if not whole:
            return {}
        result: dict[str, Any] = {
            name: math.nan if value is None else value for name, value in found["result"].items()
        }
        result["labels"] = [
            LabelSize(**dict(row, dice=math.nan if row["dice"] is None else row["dice"]))
            for row in result["labels"]
        ]
        if not fits(result, TargetLabels("", "")):
            return {}
    except (errors.MorphSeekError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return result


def _write(study: Labelled, folder: Path) -> None:
    _files.write_text(folder / TABLES[0], csv_text(*study._table()))
    content = {
        **study.to_dict(), _manifest.KEY: {TABLES[0]: _manifest.entry(folder / TABLES[0])}
    }  # fmt: skip
    _files.write_text(folder / TABLES[1], json.dumps(content, indent=1) + "\n")
