"""Registering the frames of a series."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import errors, images
from .._engine.generated import Options, Unpack
from .._engine.options import BENDING, STILL
from .._grid import Grid
from ..progress import Bar, Progress, callback_of
from ..registration import register
from ..result import Registration
from ..transforms import INTERPOLATIONS, Affine, Field, Transform
from ..transforms.resample import resample
from ..verdict import GRADES, Verdict
from .frames import Frames, read_frames
from .measures import distance, parameters, tissue_of
from .result import FrameMotion, Series

MOTIONS = ("rigid", "affine", "deformable")
#: Regimes (``plan.regime``) that suit frames of one body. The others follow detail as between two
#: people, or compare two contrasts, where noise and nulled tissue look like motion.
ONE_BODY = (
    "", "asked", "frames of one scan", "noise", "one body, tissue new or gone",
    "one body nearly everywhere", "one body",
)  # fmt: skip
#: How the frames of other regimes are registered, where the caller did not choose.
HELD = {"similarity": "mind", "smoothness": "high", "search": False}
CHANGED = (
    "The contrast, or noise, differs too much from the reference's to follow detail: tissue was"
    " held together. Look where it moved by itself, and compare with a rigid motion."
)


def correct_motion(
    frames: images.ImageLike | Iterable[images.ImageLike],
    *,
    reference: str | int = "mean",
    motion: str = "rigid",
    consistent: bool = False,
    interpolation: str = "linear",
    mask: images.ImageLike | None = None,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Series:
    """Register the frames of a time series onto one of them, or onto their mean.

    Parameters
    ----------
    frames : ImageLike or sequence of ImageLike
        An image with a time axis (a file, SimpleITK's, nibabel's, an array (time, z, y, x)), a
        folder with a DICOM series of several frames, or a list of volumes, in the order of time.
        All have one grid.
    reference : {"mean", "first"} or int
        What they are registered onto: the number of a frame, from 0; "first" is 0. "mean" takes two
        rounds: onto the middle frame, then onto the mean of what that gave.
    motion : {"rigid", "affine", "deformable"}
        rigid, for a head; deformable, for a heart or a chest: on a rigid start, the whole
        registration. A frame whose contrast differs from the reference's (inversion recovery,
        perfusion) is then registered with similarity mind, smoothness high and no search, unless
        the options say otherwise, and its verdict is check at best.
    consistent : bool
        Also register each frame onto the one before, concatenate these transforms, and measure how
        far the direct ones lie from them. A frame whose verdict is not good is registered again
        from the concatenated transform, and the better of the two is kept.
    interpolation : {"linear", "cubic", "sinc", "nearest", "label"}
        Of the corrected frames.
    mask : ImageLike, optional
        On the frames' grid: where not zero, the image counts that is registered onto.
    progress : callable or bool, optional
        As of :func:`morphseek.register`.
    **options
        Of :func:`morphseek.register`; those of the deformation for a deformable motion alone.

    Returns
    -------
    Series

    Raises
    ------
    morphseek.errors.MorphSeekError
        Frames that cannot be read, lie on several grids or are empty: the message has the name.

    Examples
    --------
    >>> import morphseek
    >>> import numpy as np
    >>> body = morphseek.phantom.make_pair(size=40).fixed
    >>> moved = body.like(np.roll(body.array, 1, axis=2))  # one voxel of 9.6 mm to the left
    >>> found = morphseek.correct_motion([body, moved], reference="first", threads=1)
    >>> [round(v) for v in found.framewise_displacement[1:]]
    [10]
    """
    if motion not in MOTIONS:
        raise errors.InvalidArgumentError(
            f"motion is {motion!r}; it must be one of {', '.join(MOTIONS)}"
        )
    if interpolation not in INTERPOLATIONS:
        raise errors.InvalidArgumentError(
            f"interpolation is {interpolation!r}; it must be one of {', '.join(INTERPOLATIONS)}"
        )
    given = read_frames(frames)
    chosen = _chosen(motion, dict(options))
    at = _reference(reference, len(given.volumes))
    count = len(given.volumes)
    rounds = [count - 1] if at is not None else [count - 1, count]
    where = None if mask is None else images.read_on(mask, given.volumes[0].grid, "mask")
    work = _Work(given, chosen, where, sum(rounds) + (count - 1) * consistent, progress)
    try:
        return _run(work, at, str(reference), motion, consistent, interpolation)
    finally:
        work.close()


def _chosen(motion: str, options: dict[str, Any]) -> dict[str, Any]:
    if motion == "deformable":
        return {"initial": "rigid", **options}
    for name in BENDING:
        if name in options:
            raise errors.InvalidArgumentError(
                f"{name} says how to deform, and the motion is {motion}; leave it out, or ask for a"
                " deformable motion"
            )
    return {**options, **STILL, "initial": motion}


def _reference(reference: str | int, count: int) -> int | None:
    """Return the number of the frame; None for the mean."""
    if reference == "mean":
        return None
    try:
        at = 0 if reference == "first" else int(reference)
    except (TypeError, ValueError):
        at = -1
    if not 0 <= at < count or isinstance(reference, (bool, float)):
        raise errors.InvalidArgumentError(
            f"reference is {reference!r}; it must be mean, first, or the number of a frame from 0"
            f" to {count - 1}"
        )
    return at


class _Work:
    """The frames, and one registration after another with a common progress."""

    def __init__(
        self,
        given: Frames,
        options: dict[str, Any],
        mask: images.Image | None,
        total: int,
        progress: Callable[[Progress], Any] | bool | None,
    ):
        self.given, self.volumes, self.options, self.mask = given, given.volumes, options, mask
        self._done, self._total, self._callback = 0, total, callback_of(progress)

    def close(self) -> None:
        if isinstance(self._callback, Bar):
            self._callback.close()

    def register(
        self, fixed: images.Image, frame: int, start: Transform | None = None, again: bool = False
    ) -> Registration:
        """Register one frame; its name is in what goes wrong."""
        moving, done = self.volumes[frame], min(self._done, self._total)
        given: dict[str, Any] = {"fixed_mask": self.mask, "initial_transform": start}

        def told(report: Progress) -> Any:
            share = 0.0 if again else report.fraction
            fraction = min(1.0, (done + share) / self._total)
            if self._callback is not None:
                name = os.path.basename(moving.name)
                return self._callback(Progress("frames", fraction, name, done, self._total))
            return None

        if not again:
            self._done += 1
        try:
            found = register(fixed, moving, progress=told, **given, **self.options)
            if found.metrics["plan"]["regime"] in ONE_BODY:
                return found
            done, again = min(self._done, self._total), True  # the bar has this frame already
            held = register(fixed, moving, progress=told, **given, **{**HELD, **self.options})
            return _doubted(held)
        except errors.CancelledError:
            raise
        except errors.MorphSeekError as error:
            of = moving.name
            if "fixed volume" in str(error) and fixed.name != moving.name:
                of = fixed.name
            raise type(error)(
                f"series: {of}: {error}; leave the frame out if it shows nothing"
            ) from None


def _run(
    work: _Work, at: int | None, said: str, motion: str, consistent: bool, interpolation: str
) -> Series:
    volumes = work.volumes
    count, grid = len(volumes), volumes[0].grid
    anchor = count // 2 if at is None else at
    target = volumes[anchor]
    results: list[Registration | None] = [
        None if k == anchor else work.register(target, k) for k in range(count)
    ]
    if at is None:
        target = _mean(work, results)
        results = [
            work.register(target, k, None if found is None else _transform(found, grid))
            for k, found in enumerate(results)
        ]
    starts = ["reference" if found is None else "direct" for found in results]
    tissue = tissue_of(target, work.mask)
    direct = [_transform(found, grid) for found in results]
    apart: list[Any] = [None] * count
    if consistent:
        chain = _concatenated(work, anchor, direct[anchor])
        for k, found in enumerate(results):
            if found is None:
                continue
            apart[k] = distance(direct[k], chain[k], grid, tissue)
            if found.verdict is not None and found.verdict.grade != GRADES[0]:
                again = work.register(target, k, chain[k], again=True)
                if _is_better(again, found):
                    results[k], starts[k] = again, "concatenated"
                    direct[k] = _transform(again, grid)
                    apart[k] = distance(direct[k], chain[k], grid, tissue)
    center = grid.center
    moved = [
        FrameMotion(
            k,
            volumes[k].name,
            direct[k],
            _six(found, center),
            distance(direct[k], None, grid, tissue),
            None if found is None else found.verdict,
            starts[k],
            apart[k],
        )
        for k, found in enumerate(results)
    ]
    corrected = [
        volume if found is None else resample(volume, grid, way.to_sitk(), interpolation)
        for volume, found, way in zip(volumes, results, direct)
    ]
    given = work.given
    return Series(moved, corrected, target, said, motion, given.start, given.step)


def _transform(found: Registration | None, grid: Grid) -> Transform:
    if found is None:
        return Affine(np.eye(4), grid, grid)
    return Transform.of(found.transform.to_sitk(), grid, grid)


def _six(found: Registration | None, center: np.ndarray) -> tuple[float, ...]:
    matrix = np.eye(4) if found is None else found.transform.initial
    return tuple(float(v) for v in parameters(matrix, center))


def _mean(work: _Work, results: list[Registration | None]) -> images.Image:
    """Return the mean of the frames that were brought onto one of them; what failed does not
    count, nor what a frame does not show.
    """
    grid = work.volumes[0].grid
    total = np.zeros(work.volumes[0].array.shape)
    shown = np.zeros_like(total)
    for volume, found in zip(work.volumes, results):
        verdict: Verdict | None = None if found is None else found.verdict
        if verdict is not None and verdict.grade == GRADES[-1]:
            continue
        values = volume.float32()
        whole = volume.like(np.ones_like(values))
        share = whole.array
        if found is not None:
            way = found.transform.to_sitk()
            values = resample(volume.like(values), grid, way).array
            share = resample(whole, grid, way, background=0.0).array
        inside = (share > 0.999) & np.isfinite(values)
        total += np.where(inside, values, 0)
        shown += inside
    anchor = work.volumes[len(work.volumes) // 2].float32()
    mean = np.where(shown > 0, total / np.maximum(shown, 1), anchor).astype(np.float32)
    return images.Image.on_grid(mean, grid, "the mean of the frames")


def _concatenated(work: _Work, anchor: int, first: Transform) -> list[Transform]:
    """Return the transforms from the reference to each frame by way of all between it and the
    anchor, from where they go outwards, frame by frame.
    """
    volumes, grid = work.volumes, work.volumes[0].grid
    ways: list[Transform] = [first] * len(volumes)
    outwards = [(k, k - 1) for k in range(anchor + 1, len(volumes))]
    outwards += [(k, k + 1) for k in range(anchor - 1, -1, -1)]
    for k, before in outwards:
        step = _transform(work.register(volumes[before], k), grid)
        way = step @ ways[before]
        if not way.is_linear:  # one field, however long the chain is
            way = Field.from_mm(way.displacement_mm(volumes[0]), grid, grid)
        ways[k] = way
    return ways


def _doubted(found: Registration) -> Registration:
    """Return a result whose verdict is check at best, for the contrast changed."""
    verdict = found.metrics["verdict"]
    grade = GRADES[1] if verdict["grade"] == GRADES[0] else verdict["grade"]
    verdict["grade"], verdict["reasons"] = grade, [*(verdict["reasons"] or ()), CHANGED]
    return found


def _is_better(one: Registration, other: Registration) -> bool:
    """Whether a registration of the same two images has the better verdict than another or, with
    the same, ended closer, as far as their similarities can be compared.
    """
    a, b = one.metrics, other.metrics
    grades = [result["verdict"]["grade"] for result in (a, b)]
    if grades[0] != grades[1]:
        return grades[0] in GRADES and GRADES.index(grades[0]) < GRADES.index(grades[1])
    return bool(
        a["similarity"] == b["similarity"] and a["similarity_after"] > b["similarity_after"]
    )
