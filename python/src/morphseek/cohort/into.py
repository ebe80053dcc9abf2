"""Registering one pair into a folder, with its scores and its page."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any

from .. import _files, registration, scoring
from ..images import ImageLike, check_apart, read, read_on, write
from ..result import OUTPUTS, RegistrationResult

_drawing = threading.Lock()  # Matplotlib is not made for threads


def register_into(
    out: str | os.PathLike[str],
    images: tuple[ImageLike, ImageLike],
    labels: tuple[ImageLike | None, ImageLike | None] = (None, None),
    *,
    options: dict[str, Any],
    title: str = "",
    command: str = "",
    html: bool = True,
    seal: str = "",
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
    options : dict
        Of the engine.
    title, command, label_names
        For report.html; see :func:`morphseek.report.write_report`.
    html : bool
        Write report.html.
    seal : str
        File in the folder that says that its results are whole: it is removed just before new ones
        come, and is the caller's to write.
    extra : callable, optional
        Returns what else report.json shall hold; under "truth", what
        :meth:`morphseek.phantoms.PhantomPair.errors` says, for the page too.
    **inputs
        Masks, initial transform and progress: of :func:`morphseek.register`.

    Returns
    -------
    dict
        What report.json holds.
    """
    fixed_labels, moving_labels = labels
    check_apart(
        out,
        OUTPUTS,
        {
            "fixed": images[0],
            "moving": images[1],
            "fixed labels": fixed_labels,
            "moving labels": moving_labels,
            **inputs,
        },
    )
    # First: an unwritable folder, labels on another grid, and what are no labels, fail before the
    # work.
    with _files.output_folder(out, OUTPUTS, seal) as folder:
        images = read(images[0], "fixed"), read(images[1], "moving")
        if fixed_labels is not None:
            fixed_labels = scoring.on_fixed_grid(fixed_labels, images[0].grid)
        if moving_labels is not None:
            moving_labels = read_on(moving_labels, images[1].grid, "moving labels")
        if fixed_labels is not None and moving_labels is not None:  # they will be scored
            scoring.check_labels(fixed_labels)
            scoring.check_labels(moving_labels)
        result = registration.register(images[0], images[1], **inputs, **options)
        scores = []
        if fixed_labels is not None and moving_labels is not None:
            scores = scoring.score_labels(result, fixed_labels, moving_labels)
            if not scores:
                result.metrics["warnings"].append(
                    "The two label maps have no label in common: no overlap was measured."
                )
        result.options.pop("cache", None)
        summary = result.report()
        if scores:
            summary |= {
                "dice_before": scoring.mean_dice(scores, "before"),
                "dice_after": scoring.mean_dice(scores),
                "labels": [dataclasses.asdict(score) for score in scores],
            }
        if extra is not None:
            summary |= extra(result)
        others: list[Callable[[], Any]] = []
        if html:
            from ..report import write_report

            def page() -> None:
                with _drawing:
                    write_report(
                        folder / "report.html",
                        result,
                        *images,
                        fixed_labels=fixed_labels,
                        moving_labels=moving_labels,
                        scores=scores,
                        label_names=label_names,
                        command=command,
                        title=title,
                        truth=summary.get("truth"),
                    )

            others.append(page)
        if moving_labels is not None:
            others.append(
                lambda: write(
                    folder / "warped_labels.nii.gz",
                    result.apply(moving_labels, interpolation="nearest"),
                )
            )
        result.write(folder, summary, *others)
    return summary
