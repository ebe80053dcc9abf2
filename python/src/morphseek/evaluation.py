"""Scoring registrations by label maps: one pair, or a list of pairs with statistics."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import math
import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import SimpleITK as sitk

from . import _bindings, _core, errors, io
from ._log import log
from .registration import (
    Bar,
    Progress,
    RegistrationResult,
    callback_of,
    checked_options,
    register,
    says_no,
)
from .transform import resample_identity
from .verdict import Verdict, counts, grade_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import Options

_MEANS = (
    "dice_before",
    "dice_after",
    "dice_check",
    "dice_inverse",
    "hd95_after",
    "volume_error_percent",
    "volume_bias_percent",
    "error_mm",
    "njd_percent",
    "sdlogj",
    "seconds",
    "cpu_seconds",
)

#: What an evaluation leaves in a folder.
FILES = ("results.json", "results.csv")
INDEX = "index.html"


@dataclasses.dataclass(frozen=True)
class LabelScore:
    """Agreement of one label between the fixed map and the moving map, before and after the
    registration.

    "Before" is the identity in physical space. Distances are in mm, None where one map has lost the
    label.

    The error of volume is by how many percent the transform mistakes the label's volume in the
    moving image: its Jacobian determinant, summed over the fixed label, against the volume of the
    moving label. It means something where both images hold the structure whole.
    """

    label: int
    dice_before: float
    dice_after: float
    hd95_before: float | None
    hd95_after: float | None
    volume_error_percent: float


def score_labels(
    result: RegistrationResult, fixed_labels: io.ImageLike, moving_labels: io.ImageLike
) -> list[LabelScore]:
    """Score a registration by the labels that both images have, as Learn2Reg does.

    Parameters
    ----------
    result : RegistrationResult
    fixed_labels, moving_labels : ImageLike
        Label maps; 0 is background. The fixed one lies on the fixed image's grid. Numpy arrays lie
        on their image's grid.

    Returns
    -------
    list of LabelScore
        Empty where the two maps share no label.

    Raises
    ------
    GridMismatchError
        The fixed map is not on the fixed image's grid, or an array has not the shape of its image.
    InvalidArgumentError
        A value is no whole number.
    """
    fixed, moving, shared = _shared(result, fixed_labels, moving_labels)
    before = _agreement(fixed, resample_identity(moving, result.grid, "nearest", 0.0))
    after = _agreement(fixed, result.apply(moving, interpolation="nearest").array)
    volumes = _volume_errors(result, fixed, moving, len(shared))
    return [
        LabelScore(
            label, before[i]["dice"], after[i]["dice"], before[i]["hd95"], after[i]["hd95"], volume
        )
        for i, (label, volume) in enumerate(zip(shared, volumes), 1)
    ]


def _volume_errors(
    result: RegistrationResult, fixed: io.Image, moving: io.Image, count: int
) -> list[float]:
    """Return :attr:`LabelScore.volume_error_percent` of the labels 1 to count, which both maps
    have.
    """
    numbers, there = (image.array.astype(np.intp).ravel() for image in (fixed, moving))
    predicted = np.bincount(numbers, result.jacobian().ravel(), count + 1) * _voxel(fixed)
    true = np.bincount(there, minlength=count + 1) * _voxel(moving)
    return (100 * (predicted[1:] / true[1:] - 1)).tolist()


def _voxel(image: io.Image) -> float:
    """Return the volume of a voxel, mm^3."""
    return abs(np.linalg.det(image.index_to_physical[:3, :3]))


def _shared(
    result: RegistrationResult, fixed_labels: io.ImageLike, moving_labels: io.ImageLike
) -> tuple[io.Image, io.Image, list[int]]:
    """Return the two label maps and the labels that both have. The maps hold the labels' numbers in
    that list, from 1: the engine's voxels are float32, which does not hold every label.
    """
    fixed = on_fixed_grid(fixed_labels, result.grid)
    moving = io.read_on(moving_labels, result.moving_grid, "moving labels")
    shared = sorted(_values(fixed) & _values(moving))
    return (
        fixed.like(_numbered(fixed.array, shared)),
        moving.like(_numbered(moving.array, shared)),
        shared,
    )


def on_fixed_grid(labels: io.ImageLike, grid: np.ndarray) -> io.Image:
    """Return the fixed labels if they lie on the fixed image's grid
    (:attr:`morphseek.io.Image.grid`), else raise GridMismatchError.
    """
    labels = io.read_on(labels, grid, "fixed labels")
    if not _bindings.same_grid(grid, labels.grid):
        raise errors.GridMismatchError(
            f"the fixed labels ({labels!r}) are not on the fixed image's grid; resample them onto"
            " it, with nearest neighbours"
        )
    return labels


def _values(labels: io.Image) -> set[int]:
    """Return the labels of a map."""
    values = np.unique(labels.array)
    _check_labels(values, labels.name)
    return {int(value) for value in values} - {0}


def check_labels(labels: io.Image) -> None:
    """Raise InvalidArgumentError where a map has a value that is no label, before the work instead
    of after it.
    """
    # every value of the others is one
    if labels.array.dtype.kind == "f" or labels.array.dtype.itemsize > 4:
        _values(labels)


_MAX_LABEL = 2**53  # beyond it float64 does not tell neighbours apart


def _check_labels(values: np.ndarray, name: str) -> None:
    """Raise InvalidArgumentError for the first value of a map that is no label."""
    whole = np.isfinite(values) & (values == np.rint(values))
    if not whole.all():
        raise errors.InvalidArgumentError(
            f"the {name} have the value {values[~whole][0]:g}; labels must be whole numbers"
        )
    for value in map(int, values):
        if abs(value) > _MAX_LABEL:
            raise errors.InvalidArgumentError(
                f"the {name} have the value {value}; labels must lie within +-2^53, renumber them"
            )


def _numbered(array: np.ndarray, labels: list[int]) -> np.ndarray:
    """Return the position in ``labels``, from 1, of every voxel's label; 0 for others. float32."""
    if not labels:
        return np.zeros(array.shape, np.float32)
    if array.dtype.kind in "iu" and 0 <= array.min() and array.max() < 1 << 16:  # as most maps
        places = np.zeros(1 << 16, np.float32)
        places[labels] = np.arange(1, len(labels) + 1)
        return places[array]
    known = np.array(labels, dtype=np.float64)
    place = np.minimum(np.searchsorted(known, array), len(labels) - 1)
    return np.where(known[place] == array, place + 1, 0).astype(np.float32)


def mean_dice(scores: Iterable[LabelScore], when: str = "after") -> float:
    """Return the mean Dice over labels, "before" or "after"; NaN without labels.

    >>> mean_dice([LabelScore(1, 0.2, 0.8, 5.0, 1.0, 3.0), LabelScore(2, 0.4, 0.6, 5.0, 1.0, -2.0)])
    0.7
    """
    values = [getattr(s, f"dice_{when}") for s in scores]
    return float(np.mean(values)) if values else math.nan


def _agreement(fixed: io.Image, other: np.ndarray) -> dict[int, dict[str, Any]]:
    scores = _bindings.label_scores(fixed.float32(), other, fixed.grid)
    return {s["label"]: s for s in scores}


@dataclasses.dataclass
class PairScore:
    """One pair of an evaluation; ``error`` says why there are no scores."""

    fixed: str
    moving: str
    labels: list[LabelScore] = dataclasses.field(default_factory=list)
    dice_before: float = math.nan
    dice_after: float = math.nan
    hd95_after: float = math.nan
    dice_check: float | None = None
    dice_inverse: float | None = None
    volume_error_percent: float = math.nan
    """Mean over the labels, of absolute values; ``volume_bias_percent``: with their signs."""
    volume_bias_percent: float = math.nan
    verdict: str = ""
    """good, check, failed, or unknown; empty where nothing was registered."""
    error_mm: float = math.nan
    """The verdict's estimate."""
    njd_percent: float = math.nan
    sdlogj: float = math.nan
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    cached: bool = False
    """The registration was done before; ``seconds`` are what it took then, and no part of the
    means.
    """
    error: str = ""
    exit_code: int = 0
    page: str = ""
    """The pair's page, in the folder of pages; empty where none was written."""
    traceback: str = ""
    """Of a defect; empty for errors that :mod:`morphseek.errors` explains."""

    def __str__(self) -> str:
        dice = (
            f"Dice {self.dice_before:.3f} -> {self.dice_after:.3f}"
            if self.labels
            else "no label in common"
        )
        return f"{self.fixed} <- {self.moving}  " + (
            self.error
            or f"verdict {self.verdict}  {dice}  NJD {self.njd_percent:.4f} %  {self.seconds:.1f} s"
        )


@dataclasses.dataclass
class Evaluation:
    """The scores of many pairs.

    Attributes
    ----------
    pairs : list of PairScore
    names : dict
        Label number to name.
    options : dict
        Of the registrations.
    wilcoxon : dict, optional
        Two-sided signed-rank test of the pairs' mean Dice against another run.
    """

    pairs: list[PairScore]
    names: dict[int, str]
    options: dict[str, Any]
    wilcoxon: dict[str, Any] | None = None

    def summary(self) -> dict[str, Any]:
        """Return means over the pairs that were scored, the worst pair, and the counts;
        ``unscored`` are those without a common label.
        """
        scored = [p for p in self.pairs if not p.error]

        def mean(name: str) -> float | None:
            counted = [p for p in scored if not (p.cached and name in ("seconds", "cpu_seconds"))]
            values = [
                v
                for v in (getattr(p, name) for p in counted)
                if v is not None and not math.isnan(v)
            ]
            return float(np.mean(values)) if values else None

        by_label: dict[int, list[float]] = {}
        for pair in scored:
            for score in pair.labels:
                by_label.setdefault(score.label, []).append(score.dice_after)
        with_dice = [p for p in scored if not math.isnan(p.dice_after)]
        worst = min(with_dice, key=lambda p: p.dice_after, default=None)
        return {
            "pairs": len(self.pairs),
            "failed": len(self.pairs) - len(scored),
            "unscored": len(scored) - len(with_dice),
            "cached": sum(p.cached for p in scored),
            "verdict": counts(p.verdict for p in self.pairs if p.verdict),
            **{name: mean(name) for name in _MEANS},
            "worst": (
                None
                if worst is None
                else {"fixed": worst.fixed, "moving": worst.moving, "dice_after": worst.dice_after}
            ),
            "dice_by_label": {label: float(np.mean(v)) for label, v in sorted(by_label.items())},
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, NaN as None."""
        content = {
            "summary": self.summary(),
            "wilcoxon": self.wilcoxon,
            "options": self.options,
            "names": self.names,
            "pairs": [dataclasses.asdict(p) for p in self.pairs],
        }
        return json.loads(json.dumps(content), parse_constant=lambda _: None)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the files of :meth:`save` into an existing folder."""
        columns = [
            "fixed",
            "moving",
            "label",
            "name",
            "dice_before",
            "dice_after",
            "hd95_before",
            "hd95_after",
            "volume_error_percent",
            "verdict",
            "error_mm",
            "njd_percent",
            "seconds",
            "error",
        ]
        rows = StringIO()
        writer = csv.DictWriter(rows, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for pair in self.pairs:
            row = {
                "fixed": pair.fixed,
                "moving": pair.moving,
                "verdict": pair.verdict,
                "error_mm": pair.error_mm,
                "njd_percent": pair.njd_percent,
                "seconds": pair.seconds,
                "error": pair.error,
            }
            scores: Sequence[LabelScore | None] = pair.labels or [None]
            for score in scores:
                of_label = (
                    {}
                    if score is None
                    else {**dataclasses.asdict(score), "name": self.names.get(score.label, "")}
                )
                writer.writerow(without_nan({**row, **of_label}))
        for name, text in zip(
            FILES, (json.dumps(self.to_dict(), indent=1) + "\n", rows.getvalue())
        ):
            io.write_text(Path(folder) / name, text)
        self._write_index(Path(folder))

    def _write_index(self, folder: Path) -> None:
        from .report import CohortRow, write_index

        rows = [
            CohortRow(
                f"{pair.moving} onto {pair.fixed}",
                verdict=pair.verdict,
                error_mm=pair.error_mm,
                dice_before=pair.dice_before,
                dice_after=pair.dice_after,
                njd_percent=pair.njd_percent,
                seconds=pair.seconds,
                said=pair.error,
                page=pair.page,
                failed=bool(pair.error),
            )
            for pair in self.pairs
        ]
        write_index(folder / INDEX, rows, title="Evaluation", version=_core.version())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write results.json (everything), results.csv (one row a pair and label) and index.html
        (a table of the pairs): all of them or, on an error, none.
        """
        with io.output_folder(folder) as temporary:
            self.write(temporary)


def evaluate(
    pairs: str | os.PathLike[str] | Sequence[tuple[str, str]],
    data: str | os.PathLike[str],
    *,
    subset: str | None = None,
    labels_csv: str | os.PathLike[str] | None = None,
    against: str | os.PathLike[str] | None = None,
    check: bool = False,
    inverse: bool = False,
    pages: str | os.PathLike[str] | None = None,
    report: Literal["full", "small"] = "small",
    progress: Callable[[PairScore], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Evaluation:
    """Register many pairs and score them by their label maps.

    Parameters
    ----------
    pairs : path or sequence of (fixed, moving)
        CSV in UTF-8 with the columns fixed and moving, or without a heading and these two first; or
        JSON: a list of pairs, or a Learn2Reg-like file of several lists, of which `subset` names
        one. A file that is not there is looked for in `data`.
    data : path
        Folder with ``images`` and ``labels``; a pair's entries are file names there, suffix
        optional. An entry with a slash is a path below `data`, its label map the same path with
        "images" replaced by "labels".
    subset : str, optional
        Which list of a JSON file.
    labels_csv : path, optional
        Columns id, name and, to merge labels, structure. Labels that it does not list are left out.
    against : path, optional
        Folder of another evaluation of the same pairs, for the Wilcoxon test.
    check : bool
        Compute Dice a second time with SimpleITK alone, from the transform written to a file and
        read back (``dice_check``).
    inverse : bool
        Measure Dice in the moving image's space, too (``dice_inverse``): the fixed labels, carried
        over by the inverse transform, against the moving ones, where the fixed image reaches. Dice
        on the fixed grid is blind to what the transform jumps over; where this one is much lower,
        the transform is good for carrying labels over and for little else.
    pages : path, optional
        Folder for a page of each pair, ``pair-0001.html`` and so on, which the index opens.
    report : {"full", "small"}
        Which page: the interactive one, or one picture and the numbers.
    progress : callable or bool, optional
        Called with every :class:`PairScore`; returning False stops the evaluation. True shows a
        bar.
    **options
        Of :func:`morphseek.register`, but for ``uncertainty``.

    Returns
    -------
    Evaluation
        A pair that fails is in it, with its error; the others go on.

    Raises
    ------
    MorphSeekError
        Before the first pair: the list, the data folder, an option or the model is at fault.
    CancelledError, KeyboardInterrupt
        The evaluation was stopped.
    """
    listed = read_pairs(find_list(pairs, data), subset)
    chosen, _ = checked_options(options)
    if chosen.get("uncertainty", "off") != "off":
        raise errors.InvalidArgumentError(
            "uncertainty: an evaluation has no place for it; register, or a batch, writes it for"
            " each pair"
        )
    root = Path(data)
    if not root.is_dir():
        raise errors.InputUnreadableError(
            f"data: {root} is no folder; give the one with images and labels"
        )
    merge, names = read_labels_csv(labels_csv) if labels_csv else (None, {})
    other = _read_run(against) if against else None
    if other is not None and not other.keys() & set(listed):
        raise errors.InvalidArgumentError(
            f"against: {against} has no pair in common with {len(listed)} listed here; evaluate"
            " both over the same pairs"
        )
    scores: list[PairScore] = []
    callback = callback_of(progress)
    bar = callback if isinstance(callback, Bar) else None

    def within(progress: Progress) -> None:
        assert bar is not None
        done, pair = len(scores), " <- ".join(listed[len(scores)])
        bar(Progress(f"{done}/{len(listed)}", (done + progress.fraction) / len(listed), pair))

    try:
        for fixed, moving in listed:
            page = None
            if pages is not None:
                page = _Page(Path(pages, f"pair-{len(scores) + 1:04d}.html"), report, names)
            scores.append(
                _evaluate_pair(
                    root, fixed, moving, merge, check, inverse, chosen, page, bar and within
                )
            )
            if bar is not None:
                bar.say(str(scores[-1]))
            elif callback is not None and says_no(callback(scores[-1])):
                raise errors.CancelledError("the evaluation was cancelled")
    finally:
        if bar is not None:
            bar.close()
    evaluation = Evaluation(scores, names, chosen)
    if other is not None:
        evaluation.wilcoxon = _wilcoxon(scores, other)
    return evaluation


@dataclasses.dataclass
class _Page:
    """Where a pair's page goes, which one it is, and how labels are called."""

    path: Path
    size: Literal["full", "small"]
    names: dict[int, str]


def _evaluate_pair(
    root: Path,
    fixed: str,
    moving: str,
    merge: dict[int, int] | None,
    check: bool,
    inverse: bool,
    options: dict[str, Any],
    page: _Page | None,
    progress: Callable[[Progress], Any] | None,
) -> PairScore:
    score = PairScore(fixed, moving)
    try:
        images = [
            io.read(find_file(root, name, "images"), f"{which} {name}")
            for which, name in (("fixed", fixed), ("moving", moving))
        ]
        labels = [
            merge_labels(io.read(find_file(root, name, "labels"), f"labels of {name}"), merge)
            for name in (fixed, moving)
        ]
        labels = [
            on_fixed_grid(labels[0], images[0].grid),
            io.read_on(labels[1], images[1].grid, "moving labels"),
        ]
        for image in labels:  # before the work
            check_labels(image)
        started = time.process_time()
        result = register(*images, progress=progress, **options)
        score.cpu_seconds = time.process_time() - started
        score.labels = score_labels(result, *labels)
        score.dice_before, score.dice_after = (
            mean_dice(score.labels, "before"),
            mean_dice(score.labels),
        )
        distances = [s.hd95_after for s in score.labels if s.hd95_after is not None]
        score.hd95_after = float(np.mean(distances)) if distances else math.nan
        if score.labels:
            volumes = np.array([s.volume_error_percent for s in score.labels])
            score.volume_error_percent, score.volume_bias_percent = (
                float(np.abs(volumes).mean()),
                float(volumes.mean()),
            )
        score.verdict = grade_of(result.metrics)
        if verdict := Verdict.of(result.metrics):
            score.error_mm = verdict.error_mm
        score.njd_percent, score.sdlogj = result.metrics["njd_percent"], result.metrics["sdlogj"]
        score.seconds, score.cached = result.metrics["seconds"]["total"], result.metrics["cached"]
        if check:
            score.dice_check = _independent_dice(result, *labels)
        if inverse:
            score.dice_inverse = inverse_dice(result, *labels)
        if page is not None:
            from .report import write_report

            write_report(
                page.path,
                result,
                *images,
                fixed_labels=labels[0],
                moving_labels=labels[1],
                scores=score.labels,
                label_names=page.names,
                title=f"{moving} onto {fixed}",
                size=page.size,
            )
            score.page = page.path.name
    except errors.CancelledError:
        raise
    except errors.MorphSeekError as error:
        score.error, score.exit_code = f"{error.name}: {error}", error.exit_code
    except Exception as error:  # a defect costs one pair, not the others' results
        score.error, score.exit_code = (
            f"{type(error).__name__}: {error}",
            errors.InternalError.exit_code,
        )
        log.exception("pair %s <- %s failed", fixed, moving)
        score.traceback = traceback.format_exc()
    return score


def inverse_dice(
    result: RegistrationResult, fixed_labels: io.ImageLike, moving_labels: io.ImageLike
) -> float:
    """Return the mean Dice, over the labels that both images have, in the moving image's space.

    The fixed labels, carried over by the inverse transform with nearest neighbours, are compared
    with the moving ones on the moving image's grid, wherever the fixed image reaches. NaN without a
    common label.

    Raises
    ------
    GridMismatchError, InvalidArgumentError
        As :func:`score_labels`.
    """
    fixed, moving, _ = _shared(result, fixed_labels, moving_labels)
    # 0: beyond the fixed image
    carried = result.inverse().apply(
        fixed.like(fixed.array + 1), interpolation="nearest", background=0.0
    )
    known = carried.array > 0
    there = np.where(
        known, resample_identity(moving, result.moving_grid, "nearest", 0.0), 0
    ).astype(np.float32)
    here = np.where(known, carried.array - 1, 0).astype(np.float32)
    scores = _agreement(carried.like(there), here)
    return float(np.mean([score["dice"] for score in scores.values()])) if scores else math.nan


def _independent_dice(result: RegistrationResult, fixed: io.Image, moving: io.Image) -> float:
    """Return the mean Dice by SimpleITK alone, from transform.h5."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transform.h5"
        result.write_transform(path)
        transform = io.read_transform(path)
    *maps, shared = _shared(result, fixed, moving)
    a, b = (sitk.Cast(image.to_sitk(), sitk.sitkUInt32) for image in maps)
    warped = sitk.Resample(b, a, transform, sitk.sitkNearestNeighbor, 0)
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(a, warped)
    return (
        float(np.mean([overlap.GetDiceCoefficient(i) for i, _ in enumerate(shared, 1)]))
        if shared
        else math.nan
    )


def without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with None, an empty cell, for every NaN."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
    }


def find_list(pairs: Any, data: str | os.PathLike[str]) -> Any:
    """Return the file of a list of pairs: where it is said to be, or else in the data folder; a
    list itself as it is.
    """
    if (
        not isinstance(pairs, (str, os.PathLike))
        or Path(pairs).exists()
        or not (Path(data) / pairs).is_file()
    ):
        return pairs
    return Path(data) / pairs


def read_pairs(
    source: str | os.PathLike[str] | Sequence[tuple[str, str]], subset: str | None = None
) -> list[tuple[str, str]]:
    """Return the (fixed, moving) names of a pair list; see :func:`evaluate`.

    >>> read_pairs([("a", "b")])
    [('a', 'b')]
    """
    if not isinstance(source, (str, os.PathLike)):
        return _as_pairs(source, "pairs")
    path = Path(source)
    if path.suffix.lower() == ".json":
        try:
            content = json.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise errors.InputUnreadableError(
                f"pairs: {path} cannot be read: {error.strerror}"
            ) from None
        except ValueError as error:
            raise errors.InputUnreadableError(
                f"pairs: {path} is not a list of pairs: {error}"
            ) from None
    else:
        content = _columns(read_table(path, "pairs", {"fixed", "moving"}))
    if isinstance(content, list):
        if subset is not None:
            raise errors.InvalidArgumentError(
                f"pairs: {path} is one list of pairs, so there is no {subset!r} to choose; leave"
                " out subset, or check the file"
            )
        return _as_pairs(content, str(path))
    if not isinstance(content, dict):
        raise errors.InputUnreadableError(
            f"pairs: {path} holds neither a list of pairs nor an object with such lists"
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
            f"pairs: {path}: {missing}it has the lists {', '.join(sorted(lists)) or '(none)'};"
            " choose one with subset"
        )
    return _as_pairs(lists[subset], f"{path}, {subset}")


def _columns(rows: list[list[str]]) -> list[list[str]]:
    """Return the columns fixed and moving of a table: by its heading where it has one, else the
    first two.
    """
    heading = [cell.lower() for cell in rows[0]] if rows else []
    if not {"fixed", "moving"} <= set(heading):
        return rows
    columns = heading.index("fixed"), heading.index("moving")
    return [[row[c] for c in columns] for row in rows[1:]]


_SEPARATORS = ",;\t"


def read_table(
    path: str | os.PathLike[str], what: str, heading: Collection[str]
) -> list[list[str]]:
    """Return the rows of a CSV file as spreadsheets leave it, the heading's first: cells stripped,
    all rows of one length, those rows and columns dropped that are empty.

    Parameters
    ----------
    path : path
    what : str
        What error messages call it.
    heading : collection of str
        Columns by which the separator is known (comma, semicolon or tab), unless a line ``sep=`` in
        front names it.

    Raises
    ------
    InputUnreadableError
        The file cannot be read, or is no text in UTF-8.
    """
    text = "\0"
    try:
        with contextlib.suppress(UnicodeDecodeError):
            text = Path(path).read_bytes().decode("utf-8-sig")  # spreadsheets put a mark in front
    except (OSError, ValueError) as error:  # ValueError: no path at all
        raise errors.InputUnreadableError(
            f"{what}: {path} cannot be read: {getattr(error, 'strerror', error)}"
        ) from None
    if "\0" in text:
        raise errors.InputUnreadableError(
            f'{what}: {path} is no text in UTF-8; save it anew as "CSV UTF-8"'
        )
    separators = _SEPARATORS
    if said := re.match(
        rf'"?sep=([{_SEPARATORS}])"?[{_SEPARATORS}]*(\r\n?|\n|$)', text, re.IGNORECASE
    ):
        separators, text = said[1], text[said.end() :]
    try:
        tables = [_rows(text, separator) for separator in separators]
    except csv.Error as error:
        raise errors.InputUnreadableError(f"{what}: {path} is not a CSV file: {error}") from None
    return next(
        (rows for rows in tables if rows and set(heading) <= {cell.lower() for cell in rows[0]}),
        tables[0],
    )


def _rows(text: str, separator: str) -> list[list[str]]:
    rows = [
        [cell.strip() for cell in row]
        for row in csv.reader(
            StringIO(text, newline=""), delimiter=separator, skipinitialspace=True
        )
    ]
    rows = [row for row in rows if any(row)]
    used = [
        c
        for c in range(max(map(len, rows), default=0))
        if any(row[c] for row in rows if c < len(row))
    ]
    return [[row[c] if c < len(row) else "" for c in used] for row in rows]


def _as_pairs(rows: Any, where: str) -> list[tuple[str, str]]:
    pairs = []
    if not isinstance(rows, Iterable):
        raise errors.InvalidArgumentError(
            f"{where} are given as {type(rows).__name__}; give a path, or a list of (fixed, moving)"
        )
    for row in rows:
        entry: tuple[Any, ...] = (
            (row.get("fixed"), row.get("moving"))
            if isinstance(row, dict)
            else tuple(row)
            if isinstance(row, (list, tuple))
            else ()
        )
        if len(entry) < 2 or not all(
            isinstance(name, (str, os.PathLike)) and str(name) for name in entry[:2]
        ):
            raise errors.InputUnreadableError(
                f"{where}: {row!r} is not a pair of names (fixed, moving)"
            )
        pairs.append((str(entry[0]), str(entry[1])))
    if not pairs:
        raise errors.InputUnreadableError(f"{where} holds no pair")
    return pairs


_SUFFIXES = ("", ".nii.gz", ".nii", ".nrrd", ".mha", ".mhd")


def find_file(root: Path, name: str, kind: str) -> Path:
    """Return the path of a pair's entry below the data folder; kind is "images" or "labels". See
    :func:`evaluate`.
    """
    if "/" in name:
        if kind == "labels" and "images" not in name:
            raise errors.InputUnreadableError(
                f"{root / name}: where its label map is cannot be told; a path in a pair list must"
                ' have "images" in it, which "labels" replaces'
            )
        base = root / (name if kind == "images" else name.replace("images", "labels", 1))
    else:
        base = root / kind / name
    for suffix in _SUFFIXES:
        path = base.with_name(base.name + suffix)
        if path.exists():
            return path
    raise errors.InputUnreadableError(
        f"{base}: there is no such file, with or without {', '.join(_SUFFIXES[1:])}; check the data"
        " folder and the pair list"
    )


def read_labels_csv(path: str | os.PathLike[str]) -> tuple[dict[int, int], dict[int, str]]:
    """Return the map of label ids to merged ids (from 1, in the order of appearance) and the merged
    names.
    """
    heading, *table = read_table(path, "labels", {"id", "name"}) or [[]]
    try:
        cells = [dict(zip(map(str.lower, heading), row)) for row in table]
        rows = [(int(row["id"]), row["name"], row.get("structure", "")) for row in cells]
    except (KeyError, ValueError) as error:
        raise errors.InputUnreadableError(
            f"labels: {path} needs the columns id and name, and may have structure: {error!r}"
        ) from None
    rows = [row for row in rows if row[0] != 0]  # the background, whatever a table calls it
    ids = [row[0] for row in rows]
    if not rows:
        raise errors.InputUnreadableError(
            f"labels: {path} has no labels; it needs the columns id and name, and a row for each"
            " label"
        )
    if len(set(ids)) < len(ids):
        raise errors.InputUnreadableError(
            f"labels: {path} has the id {next(i for i in ids if ids.count(i) > 1)} twice"
        )
    if not any(structure for _, _, structure in rows):
        return {i: i for i in ids}, {i: name for i, name, _ in rows}
    structures = [structure or name for _, name, structure in rows]
    names = list(dict.fromkeys(structures))
    return {i: 1 + names.index(structure) for i, structure in zip(ids, structures)}, dict(
        enumerate(names, 1)
    )


def merge_labels(labels: io.Image, merge: dict[int, int] | None) -> io.Image:
    """Return the label map with every label renamed as `merge` says, and without those that it does
    not name.
    """
    if merge is None:
        return labels
    values, inverse = np.unique(labels.array, return_inverse=True)
    _check_labels(values, labels.name)
    merged = np.array([merge.get(int(v), 0) for v in values], dtype=np.int32)
    return labels.like(merged[inverse].reshape(labels.array.shape))


def run_file(folder: str | os.PathLike[str]) -> Path:
    """Return the file that an earlier evaluation is read from, given its folder or the file
    itself.
    """
    return Path(folder) / FILES[0] if Path(folder).is_dir() else Path(folder)


def _read_run(folder: str | os.PathLike[str]) -> dict[tuple[str, str], float]:
    path = run_file(folder)
    try:
        pairs = json.loads(path.read_text(encoding="utf-8"))["pairs"]
        return {
            (p["fixed"], p["moving"]): p["dice_after"] for p in pairs if p["dice_after"] is not None
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.InputUnreadableError(
            f"against: {path} is not an evaluation's results.json: {error!r}"
        ) from None


def _wilcoxon(
    scores: list[PairScore], other: dict[tuple[str, str], float]
) -> dict[str, Any] | None:
    from scipy.stats import wilcoxon

    common = [
        (s.dice_after, other[s.fixed, s.moving])
        for s in scores
        if (s.fixed, s.moving) in other and not math.isnan(s.dice_after)
    ]
    if not common:  # none that could be scored
        return None
    difference = np.array([a - b for a, b in common])
    p_value = float(wilcoxon(difference).pvalue) if np.any(difference) else 1.0
    return {
        "pairs": len(common),
        "mean_difference": float(difference.mean()),
        "p_value": p_value,
        "better": int((difference > 0).sum()),
        "worse": int((difference < 0).sum()),
    }
