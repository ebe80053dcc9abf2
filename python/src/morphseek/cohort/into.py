"""Registering one pair into a folder, with its scores and its page."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

from .. import _files, _manifest, registration, scoring
from ..images import ImageLike, check_apart, label_names as names_of, read, read_on, write
from ..landmarks import LandmarksLike, check_inside, match_landmarks
from ..result import LABELS_BACK, OUTPUTS, RegistrationResult, write_result
from ..transforms import Transform

Report = Literal["full", "small", "none"]
"""The page of a pair: the interactive one, one picture and the numbers, or none."""


def register_into(
    out: str | os.PathLike[str],
    images: tuple[ImageLike, ImageLike],
    labels: tuple[ImageLike | None, ImageLike | None] = (None, None),
    *,
    landmarks: tuple[LandmarksLike | None, LandmarksLike | None] = (None, None),
    options: dict[str, Any],
    title: str = "",
    command: str = "",
    report: Report = "full",
    keep_stages: bool = False,
    halfway: bool = False,
    labels_back: bool = False,
    ours: Collection[str] = (),
    also: Callable[[Path, dict[str, Any], dict[str, Any]], Any] | None = None,
    label_names: dict[int, str] | None = None,
    extra: Callable[[RegistrationResult], dict[str, Any]] | None = None,
    **inputs: Any,
) -> dict[str, Any]:
    """Register a pair, score it, and write all that ``morphseek register`` writes: all files or, on
    an error, none.

    Parameters
    ----------
    out : path
        Folder for the files; made if need be.
    images, labels : tuple
        Fixed and moving.
    landmarks : tuple, optional
        Fixed and moving ones, at which the error is measured. With the option ``landmark_error``
        they steer.
    options : dict
        Of the engine.
    title, command
        For report.html; see :func:`morphseek.report.write_report`.
    label_names : dict, optional
        For report.json and report.html: label to name. By default those of an atlas that was given
        by name, of the fixed labels before the moving ones.
    report : {"full", "small", "none"}
        What report.html is: interactive, one picture and the numbers, or not written.
    keep_stages : bool
        Also write the transform of each stage, under the names in the report's ``stages``.
    halfway : bool, optional
        Also write :data:`morphseek.halfway.HALFWAY`.
    labels_back : bool, optional
        Also write :data:`morphseek.result.LABELS_BACK`: the fixed labels on the moving image, by
        the inverse transform and nearest neighbours.
    ours : collection of str
        Further files in the folder that are of an earlier call.
    also : callable, optional
        Writes more files to a folder, from where they move to ``out`` with the others; called with
        that, what report.json holds, and the list of the files with their checksums.
    extra : callable, optional
        Returns what else report.json shall hold; under "truth", what
        :meth:`morphseek.phantoms.PhantomPair.errors` says, for the page too.
    **inputs
        Masks, initial transform and progress: of :func:`morphseek.register`.

    Returns
    -------
    dict
        What report.json holds, and ``cpu_seconds``: what the process took until here ("start"), and
        for reading, the engine, scores, the page and writing.

    Examples
    --------
    >>> options = {"refine": 0, "search": "off"}
    >>> report = cohort.register_into("out", ("fixed.nii.gz", "moving.nii.gz"), options=options)
    >>> report["verdict"]["grade"] in ("good", "check", "failed")
    True
    """
    phases = {"start": time.process_time()}

    def took(phase: str) -> None:
        phases[phase] = time.process_time() - sum(phases.values())

    fixed_labels, moving_labels = labels
    check_apart(
        out,
        OUTPUTS,
        {
            "fixed": images[0],
            "moving": images[1],
            "fixed labels": fixed_labels,
            "moving labels": moving_labels,
            "fixed landmarks": landmarks[0],
            "moving landmarks": landmarks[1],
            **inputs,
            **{
                f"channel {number}, {side}": getattr(channel, side)
                for number, channel in enumerate(inputs.get("channels") or (), 2)
                for side in ("fixed", "moving")
            },
        },
    )
    # First: an unwritable folder, labels on another grid, and what are no labels, fail before the
    # work.
    with _files.output_folder(out, OUTPUTS, _manifest.REPORT, ours) as folder:
        matched = None if landmarks == (None, None) else match_landmarks(*landmarks)
        images = read(images[0], "fixed"), read(images[1], "moving")
        outside = (
            []
            if matched is None
            else [
                check_inside(matched.fixed, images[0].grid, "fixed"),
                check_inside(matched.moving, images[1].grid, "moving"),
                matched.note(),
            ]
        )
        steers = matched is not None and bool(options.get("landmark_error"))
        if matched is not None and steers:
            inputs |= {"fixed_landmarks": matched.fixed, "moving_landmarks": matched.moving}
            outside = outside[2:]  # the engine checks the others
        if fixed_labels is not None:
            fixed_labels = scoring.on_fixed_grid(fixed_labels, images[0].grid)
        if moving_labels is not None:
            moving_labels = read_on(moving_labels, images[1].grid, "moving labels")
        if fixed_labels is not None and moving_labels is not None:  # they will be scored
            scoring.check_labels(fixed_labels)
            scoring.check_labels(moving_labels)
        label_names = label_names or names_of(*labels)
        took("read")
        result = registration.register(images[0], images[1], **inputs, **options)
        took("engine")
        scores, warped_labels = [], None
        if moving_labels is not None:
            warped_labels = result.apply(moving_labels, interpolation="nearest")
        if fixed_labels is not None and moving_labels is not None:
            scores = scoring.score_labels(
                result, fixed_labels, moving_labels, warped_labels=warped_labels
            )
            if not scores:
                result.metrics["warnings"].append(
                    "The two label maps have no label in common: no overlap was measured."
                )
        points = None
        if matched is not None:
            points = scoring.score_landmarks(result, matched.fixed, matched.moving)
            points.only(matched.only_fixed, matched.only_moving, result)
            if steers:
                points.steered_by(result.metrics["landmark_fit"]["left_out"])
        result.metrics["warnings"].extend(filter(None, outside))
        result.options.pop("cache", None)
        summary = result.to_dict()
        if scores:
            summary |= {
                "dice_before": scoring.mean_dice(scores, "before"),
                "dice_after": scoring.mean_dice(scores),
                "labels": [dataclasses.asdict(score) for score in scores],
            }
        if label_names:
            summary["label_names"] = {str(k): name for k, name in sorted(label_names.items())}
        if points is not None:
            summary |= points.summary()
        if extra is not None:
            summary |= extra(result)
        took("score")
        phases["page"] = 0.0
        others: dict[str, Callable[[Path], Any]] = {}
        if warped_labels is not None:
            carried = warped_labels
            others["warped_labels.nii.gz"] = lambda path: write(path, carried)
        if labels_back and fixed_labels is not None:
            back = result.inverse().apply(fixed_labels, interpolation="nearest")
            others[LABELS_BACK] = lambda path: write(path, back)
        if halfway:
            others |= result.halfway().writers()
        if report != "none":
            from ..report import write_report

            size: Literal["full", "small"] = report

            def page(path: Path) -> None:
                before = time.thread_time()  # other threads write meanwhile
                write_report(
                    path,
                    result,
                    *images,
                    fixed_labels=fixed_labels,
                    moving_labels=moving_labels,
                    warped_labels=warped_labels,
                    scores=scores,
                    label_names=label_names,
                    landmarks=points,
                    command=command,
                    title=title,
                    truth=summary.get("truth"),
                    size=size,
                )
                phases["page"] = time.thread_time() - before

            others["report.html"] = page
        if keep_stages:
            stages = {name: f"transform_{name}.h5" for name in result.stages if name != "final"}
            for name, file in stages.items():
                others[file] = functools.partial(_write_stage, result.stages[name])
            summary["stages"] = {**stages, "final": "transform.h5"}
        listed = write_result(result, folder, summary, others)
        if also is not None:
            also(folder, summary, listed)
        took("write")
    return summary | {"cpu_seconds": phases}


def _write_stage(stage: Transform, path: Path) -> None:
    stage.save(path)
