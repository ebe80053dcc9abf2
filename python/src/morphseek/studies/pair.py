"""Registering one pair into a folder, with its scores and its page."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import _files, _manifest, registration, scoring
from .._json import without_nan
from .._typed import COMMAND
from ..images import Image, ImageLike, label_names as names_of, read, read_on, write
from ..images.sidecars import check_apart
from ..landmarks import LandmarksLike, Matched, match_landmarks
from ..result import LABELS_BACK, OUTPUTS, Registration, write_result
from ..scoring import LabelScore, LandmarkErrors
from ..scoring.labels import (
    check_labels,
    independent_dice,
    inverse_dice,
    merge_labels,
    nothing_carried,
    on_fixed_grid,
)
from ..scoring.landmarks import measure_landmarks

Report = Literal["full", "small", "none"]
"""The page of a pair: the interactive one, one picture and the numbers, or none."""
_SIDES = ("fixed", "moving")


def register_into(
    out: str | os.PathLike[str], fixed: ImageLike, moving: ImageLike, *, title: str = "",
    report: Report = "full", keep_stages: bool = False, halfway: bool = False,
    extra: Callable[[Registration], dict[str, Any]] | None = None, **inputs: Any,
) -> dict[str, Any]:  # fmt: skip
    """Register a pair, score it, and write all that ``morphseek register`` writes: all files or, on
    an error, none. Return what report.json holds.

    Parameters
    ----------
    title : str
        Of the page.
    keep_stages : bool
        Also write the transform of each stage, under the names in the report's ``stages``.
    halfway : bool
        Also write :data:`morphseek.halfway.HALFWAY`.
    extra : callable, optional
        Returns what else report.json shall hold; under "truth", what
        :meth:`morphseek.phantom.PhantomPair.errors` says, for the page too.
    **inputs
        Of :class:`PairInputs`: options, label maps and landmarks of both sides, and what
        :func:`morphseek.register` takes besides.
    """
    check_inputs(out, fixed=fixed, moving=moving, **inputs)
    # an unwritable folder, labels on another grid, and what are no labels, fail before the work
    with _files.output_folder(out, OUTPUTS, _manifest.REPORT) as folder:
        pair = PairInputs(fixed, moving, **inputs)
        summary, _ = write_pair(
            folder, pair, title=title, command=COMMAND.get(), report=report,
            keep_stages=keep_stages, halfway=halfway, extra=extra,
        )  # fmt: skip
    return summary


def write_pair(
    folder: Path, pair: PairInputs, *, title: str = "", command: str = "", report: Report = "full",
    keep_stages: bool = False, halfway: bool = False, labels_back: bool = False,
    volumes: bool = True, cross_check: bool = False,
    extra: Callable[[Registration], dict[str, Any]] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Do the work of :func:`register_into` in an empty folder; return what report.json holds, and
    the list of the files. ``labels_back`` carries the fixed labels to the moving image, too;
    without ``volumes`` there is the report alone; ``cross_check`` measures Dice by the inverse
    transform and by SimpleITK alone, too.
    """
    fixed, moving = pair.images
    began = time.process_time()
    result = registration.register(fixed, moving, **pair.inputs, **pair.options)
    pair.cpu_seconds = time.process_time() - began
    result.options.pop("cache", None)
    scores = pair.score(result)  # whose warnings are the result's
    summary = result.to_dict() | scores
    if cross_check and pair.fixed_labels is not None and pair.moving_labels is not None:
        maps = pair.fixed_labels, pair.moving_labels
        dice = inverse_dice(result, *maps), independent_dice(result.transform, *maps)
        summary |= without_nan(dict(zip(("dice_inverse", "dice_check"), dice)))
    if pair.names:
        summary["label_names"] = {str(k): name for k, name in sorted(pair.names.items())}
    if extra is not None:
        summary |= extra(result)
    writers: dict[str, Callable[[Path], Any]] = {}
    if volumes:
        carried = {"warped_labels.nii.gz": pair.warped_labels}
        if labels_back and pair.fixed_labels is not None:
            back = result.inverse().apply(pair.fixed_labels, interpolation="nearest")
            carried[LABELS_BACK] = back
        for name, image in carried.items():
            if image is not None:
                writers[name] = functools.partial(write, image=image)
        if halfway:
            writers |= result.halfway().writers()

    def write_page(path: Path) -> None:
        from ..report import write_report

        content: dict[str, Any] = {
            "fixed_labels": pair.fixed_labels, "moving_labels": pair.moving_labels,
            "warped_labels": pair.warped_labels, "scores": pair.scores,
            "label_names": pair.names, "landmarks": pair.errors, "command": command,
            "title": title, "truth": summary.get("truth"), "size": report,
        }  # fmt: skip
        write_report(path, result, *pair.images, **content)

    if report != "none":
        writers["report.html"] = write_page
    if keep_stages:
        stages = {name: each for name, each in result.transform.stages.items() if name != "final"}
        files = {name: f"transform_{name}.h5" for name in stages}
        writers |= {files[name]: stage.save for name, stage in stages.items()}
        summary["stages"] = {**files, "final": "transform.h5"}
    return summary, write_result(result, folder, summary, writers, volumes)


def check_inputs(out: str | os.PathLike[str], **inputs: Any) -> None:
    """See that no input of a pair lies where an output goes."""
    for number, channel in enumerate(inputs.pop("channels", None) or (), 2):
        inputs |= {f"channel {number}, {side}": getattr(channel, side) for side in _SIDES}
    check_apart(out, OUTPUTS, {name.replace("_", " "): path for name, path in inputs.items()})


class PairInputs:
    """The inputs of a pair, read and checked, and the scores of their registration. Names of labels
    are by default those of an atlas that is given by name.
    """

    fixed_labels: Image | None = None
    moving_labels: Image | None = None
    warped_labels: Image | None = None
    """The moving labels on the fixed image, once they are scored."""
    points: Matched | None = None
    errors: LandmarkErrors | None = None
    cpu_seconds: float = 0.0
    """Of the registration, of the whole process."""

    def __init__(
        self, fixed: ImageLike, moving: ImageLike, options: dict[str, Any], *,
        fixed_labels: ImageLike | None = None, moving_labels: ImageLike | None = None,
        fixed_landmarks: LandmarksLike | None = None, moving_landmarks: LandmarksLike | None = None,
        label_names: dict[int, str] | None = None, merge: dict[int, int] | None = None,
        **inputs: Any,
    ):  # fmt: skip
        if fixed_landmarks is not None or moving_landmarks is not None:
            self.points = match_landmarks(fixed_landmarks, moving_landmarks)
        self.images = read(fixed, "fixed"), read(moving, "moving")
        self.options, self.inputs = options, inputs
        self.scores: list[LabelScore] = []
        self._remarks: list[str] = []
        self._steers = bool(options.get("landmark_error"))
        if (points := self.points) is not None:
            self._remarks = points.notes(self.images[0].grid, self.images[1].grid)
            if self._steers:
                inputs |= {"fixed_landmarks": points.fixed, "moving_landmarks": points.moving}
        if fixed_labels is not None:
            on_grid = on_fixed_grid(fixed_labels, self.images[0].grid)
            self.fixed_labels = merge_labels(self._undoubted(on_grid), merge)
        if moving_labels is not None:
            own = read_on(moving_labels, self.images[1].grid, "moving labels")
            is_file = isinstance(moving_labels, (str, os.PathLike))
            self._called = f"moving labels: {moving_labels}" if is_file else own.name
            self.moving_labels = merge_labels(self._undoubted(own), merge)
        here, there = self.fixed_labels, self.moving_labels
        for labels in filter(None, (here, there)):
            check_labels(labels)
        if here and there and here.same_grid(there) and np.array_equal(here.array, there.array):
            self._remarks.append(
                "The label maps of both images are the same, voxel for voxel: if you mean two, one"
                " file was given twice."
            )
        self.names = label_names or names_of(fixed_labels, moving_labels)

    def _undoubted(self, labels: Image) -> Image:
        """Return labels without their doubts, which the result tells, and not who applies it."""
        self._remarks += labels.doubts
        return dataclasses.replace(labels, doubts=())

    def score(self, result: Registration) -> dict[str, Any]:
        """Score a registration, add to its warnings, and return what report.json holds."""
        facts: dict[str, Any] = {}
        fixed, moving, warnings = self.fixed_labels, self.moving_labels, result.metrics["warnings"]
        if moving is not None:
            warped = self.warped_labels = result.apply(moving, interpolation="nearest")
            self._remarks.append(nothing_carried(moving.array, warped.array, self._called))
        if fixed is not None and moving is not None:
            self.scores = scoring.score_labels(
                result, fixed, moving, warped_labels=self.warped_labels
            )
            if not self.scores:
                warnings.append(
                    "The two label maps have no label in common: no overlap was measured."
                )
        if self.scores:
            facts = {
                "dice_before": scoring.mean_dice(self.scores, "before"),
                "dice_after": scoring.mean_dice(self.scores),
                "labels": [score.to_dict() for score in self.scores],
            }
        if (points := self.points) is not None:
            fit = result.metrics["landmark_fit"] if self._steers else None
            left_out = fit["left_out"] if fit else None
            self.errors = measure_landmarks(result.transform, points, left_out)
            facts |= self.errors.to_dict()
        # the registration has told what it found itself
        warnings.extend(note for note in self._remarks if note and note not in warnings)
        return facts
