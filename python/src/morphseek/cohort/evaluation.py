"""Registering many pairs and scoring them by their label maps."""

from __future__ import annotations

import dataclasses
import math
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import errors, registration
from .._engine.generated import Options, Unpack
from .._engine.options import checked_options
from .._json import MOST_RESULT_BYTES, read as read_json
from .._log import log
from .._plain import is_formula
from ..images import read, read_on
from ..progress import Bar, Progress, callback_of, says_no
from ..scoring.labels import (
    check_labels,
    independent_dice,
    inverse_dice,
    mean_dice,
    merge_labels,
    on_fixed_grid,
    score_labels,
)
from ..scoring.statistics import signed_rank
from ..verdict import Verdict, grade_of
from .folders import find_file
from .lists import find_list, read_pairs
from .scores import FILES, Evaluation, PairScore
from .tables import read_labels_csv


def evaluate(
    pairs: str | os.PathLike[str] | Sequence[tuple[str, str]],
    data: str | os.PathLike[str],
    *,
    subset: str | None = None,
    labels_csv: str | os.PathLike[str] | None = None,
    against: str | os.PathLike[str] | None = None,
    cross_check: bool = False,
    score_inverse: bool = False,
    pages: str | os.PathLike[str] | None = None,
    report: Literal["full", "small"] = "small",
    progress: Callable[[Progress], Any] | bool | None = None,
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
    cross_check : bool
        Compute Dice a second time with SimpleITK alone, from the transform written to a file and
        read back (``dice_check``).
    score_inverse : bool
        Measure Dice in the moving image's space, too (``dice_inverse``): the fixed labels, carried
        over by the inverse transform, against the moving ones, where the fixed image reaches. Dice
        on the fixed grid is blind to what the transform jumps over; where this one is much lower,
        the transform is good for carrying labels over and for little else.
    pages : path, optional
        Folder for a page of each pair, ``pair-0001.html`` and so on, which the index opens.
    report : {"full", "small"}
        Which page: the interactive one, or one picture and the numbers.
    progress : callable or bool, optional
        Called with a :class:`morphseek.Progress` over the whole list, whose message says what
        became of a pair that is finished; returning False stops the evaluation. True shows a bar.
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

    Examples
    --------
    >>> for folder in ("data/images", "data/labels"):
    ...     os.makedirs(folder)
    >>> for name in ("fixed", "moving"):
    ...     _ = Path(f"{name}.nii.gz").rename(f"data/images/{name}.nii.gz")
    ...     _ = Path(f"{name}_labels.nii.gz").rename(f"data/labels/{name}.nii.gz")
    >>> found = morphseek.evaluate([("fixed", "moving")], "data", refine=0, search=False)
    >>> found.pairs[0].dice_after > found.pairs[0].dice_before
    True
    """
    listed = read_pairs(find_list(pairs, data), subset)
    for name in (name for pair in listed for name in pair):
        if is_formula(name):
            raise errors.InvalidArgumentError(
                f"pairs: {name!r} begins as a formula of a spreadsheet, and results.csv would show"
                " it otherwise; rename the file"
            )
    chosen, _ = checked_options(options)
    if chosen.get("uncertainty"):
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
    stop: list[BaseException] = []  # the caller's own function raised it, not the pair

    def tell(fraction: float, message: str) -> bool:
        done, total = len(scores), len(listed)
        report = Progress("pairs", (done + fraction) / total, message, done, total)
        return callback is None or not says_no(callback(report))

    def within(progress: Progress) -> bool:
        try:
            return tell(progress.fraction, " <- ".join(listed[len(scores)]) if bar else "")
        except Exception as error:
            stop.append(error)
            return False

    try:
        for fixed, moving in listed:
            page = None
            if pages is not None:
                page = _Page(Path(pages, f"pair-{len(scores) + 1:04d}.html"), report, names)
            scores.append(
                _evaluate_pair(
                    root,
                    fixed,
                    moving,
                    merge,
                    cross_check,
                    score_inverse,
                    chosen,
                    page,
                    callback and within,
                )
            )
            if bar is not None:
                bar.say(str(scores[-1]))
            if not tell(0.0, "" if bar else str(scores[-1])):
                raise errors.CancelledError("the evaluation was cancelled")
    except errors.CancelledError:
        if stop:
            raise stop[0] from None
        raise
    finally:
        if bar is not None:
            bar.close()
    evaluation = Evaluation(scores, names, chosen)
    if other is not None:
        evaluation.wilcoxon = signed_rank(
            [
                s.dice_after - other[s.fixed, s.moving]
                for s in scores
                if (s.fixed, s.moving) in other and not math.isnan(s.dice_after)
            ]
        )
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
    cross_check: bool,
    score_inverse: bool,
    options: dict[str, Any],
    page: _Page | None,
    progress: Callable[[Progress], Any] | None,
) -> PairScore:
    score = PairScore(fixed, moving)
    try:
        images = [
            read(find_file(root, name, "images"), f"{which} {name}")
            for which, name in (("fixed", fixed), ("moving", moving))
        ]
        labels = [
            merge_labels(read(find_file(root, name, "labels"), f"labels of {name}"), merge)
            for name in (fixed, moving)
        ]
        labels = [
            on_fixed_grid(labels[0], images[0].grid),
            read_on(labels[1], images[1].grid, "moving labels"),
        ]
        for image in labels:  # before the work
            check_labels(image)
        started = time.process_time()
        result = registration.register(*images, progress=progress, **options)
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
        if cross_check:
            score.dice_check = independent_dice(result.transform, *labels)
        if score_inverse:
            score.dice_inverse = inverse_dice(result, *labels)
        if page is not None:
            from ..report import write_report

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


def run_file(folder: str | os.PathLike[str]) -> Path:
    """Return the file that an earlier evaluation is read from, given its folder or the file
    itself.

    Examples
    --------
    >>> run_file("scores.json").name
    'scores.json'
    """
    return Path(folder) / FILES[0] if Path(folder).is_dir() else Path(folder)


def _read_run(folder: str | os.PathLike[str]) -> dict[tuple[str, str], float]:
    path = run_file(folder)
    try:
        pairs = read_json(path, "against", MOST_RESULT_BYTES)["pairs"]
        return {
            (p["fixed"], p["moving"]): p["dice_after"] for p in pairs if p["dice_after"] is not None
        }
    except errors.InputUnreadableError:
        raise
    except (KeyError, TypeError) as error:
        raise errors.InputUnreadableError(
            f"against: {path} is not an evaluation's results.json: {error!r}"
        ) from None
