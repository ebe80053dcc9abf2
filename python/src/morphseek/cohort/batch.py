"""Registering a list of pairs, each into a folder of its own."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from .. import _files, errors
from .._engine.generated import Options, Unpack
from .._engine.options import checked_options
from ..images.sidecars import check_apart
from ..progress import Progress
from .executors import Meter, by_threads, on_cluster
from .into import Report
from .jobs import Job
from .listing import INDEX
from .lists import read_list
from .results import SUMMARIES, Cohort, Outcome

_PATIENCE = 600.0  # seconds, with calls that write the tables of a shared folder


def register_pairs(
    pairs: str | os.PathLike[str] | Sequence[Any],
    out: str | os.PathLike[str],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    report: Report = "small",
    labels_back: bool = False,
    command: str = "",
    resume: bool = True,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Cohort:
    """Register a list of pairs; each gets a folder of its own.

    Parameters
    ----------
    pairs : path or sequence
        CSV in UTF-8 with the columns fixed and moving and, optionally, fixed_labels, moving_labels,
        fixed_mask, moving_mask, rigid_regions, fixed_channel, moving_channel, fixed_label_channel,
        moving_label_channel, fixed_landmarks, moving_landmarks, initial_transform and id, the
        name of the pair's folder. Separated by commas, semicolons or tabs; empty rows and columns
        do not count. Paths are relative to the file. Or a data frame with those columns, a list of
        (fixed, moving), or of dicts with those names: paths, relative to the working folder. A cell
        that is empty, NaN or None gives nothing.
    out : path
        Folder; pair ID writes to ``out/ID`` what :func:`register_into` does, and pair.json.
        summary.csv, summary.json and index.html have all pairs, and those of earlier calls that
        lie there finished.
    workers : int
        Pairs at a time; each gets its share of the cores unless `threads` is given.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers see the same files. Each pair gets one thread
        unless `threads` is given.
    report : {"full", "small", "none"}
        What report.html is for each pair: interactive, up to 6 MB; one picture and the numbers,
        below 200 kB; or not written.
    labels_back : bool
        Also carry each pair's fixed labels to its moving image, by the inverse transform, as
        fixed_labels_on_moving.nii.gz.
    command : str
        What repeats the batch, for report.html.
    resume : bool
        Leave pairs that are finished as they are; False does them again.
    progress : callable or bool, optional
        Called with a :class:`morphseek.Progress` over the whole list, whose message says what
        became of a pair that is finished; returning False stops the batch. True shows a bar.
    **options
        Of :func:`morphseek.register`.

    Returns
    -------
    Cohort
        A pair that fails is in it with its error; the others go on.

    Raises
    ------
    InputUnreadableError
        The list cannot be read, lacks a column or has an id twice.
    CancelledError, KeyboardInterrupt
        The batch was stopped. Finished pairs are kept, others have no files; the same call goes on
        from there. Pairs that a cluster is at are finished by it.

    Examples
    --------
    >>> done = morphseek.register_pairs(
    ...     [("fixed.nii.gz", "moving.nii.gz")], "study", refine=0, search=False
    ... )
    >>> done.pairs[0].status
    'done'
    """
    return run_list(
        pairs, out, workers=workers, scheduler=scheduler, report=report, labels_back=labels_back,
        command=command, resume=resume, progress=progress, options=options,
    )  # fmt: skip


def run_list(
    pairs: str | os.PathLike[str] | Sequence[Any],
    out: str | os.PathLike[str],
    *,
    workers: int,
    report: Report,
    labels_back: bool,
    command: str,
    progress: Callable[[Progress], Any] | bool | None,
    options: Mapping[str, Any],
    scheduler: str | None = None,
    resume: bool = True,
    shared: bool = False,
) -> Cohort:
    """Do what :func:`register_pairs` does. Other calls may work on other pairs in a ``shared``
    folder at the same time.
    """
    if report not in get_args(Report):
        raise errors.InvalidArgumentError(f"report is {report!r}; it must be full, small or none")
    if workers < 1:
        raise errors.InvalidArgumentError(f"workers is {workers}; it must be 1 or more")
    listed = read_list(pairs)
    check_apart(out, (*SUMMARIES, INDEX), {"pairs": pairs})
    chosen, found = checked_options(options)
    shown, model = dict(chosen), chosen.get("model", "default")
    if found:
        model = found["manifest"]["sha256"]
        if found["path"]:  # a worker elsewhere is in another folder
            chosen["model"] = str(Path(found["path"]).absolute())
    if not chosen.get("threads"):
        chosen["threads"] = 1 if scheduler else max(1, _cores() // workers)
    patience = _PATIENCE if shared else 1.0
    with _files.output_folder(out, patience=patience):
        pass  # an unwritable folder, or one where another batch is at work, fails before the work
    for name in (*SUMMARIES, INDEX):
        if (Path(out) / name).is_dir():
            raise errors.OutputUnwritableError(
                f"{Path(out) / name} is a folder; the summary cannot take its place, choose another"
                " output folder"
            )
    token, folder = uuid.uuid4().hex, Path(out).absolute()
    jobs = [
        Job(
            pair, str(folder / pair.id), chosen, model, report, command, resume, token,
            labels_back and "fixed_labels" in pair.files,
        )
        for pair in listed
    ]  # fmt: skip
    batch = Cohort(
        [Outcome(pair.id, pair.files["fixed"], pair.files["moving"]) for pair in listed], shown
    )
    meter = Meter(batch, progress)
    with contextlib.ExitStack() as alone:
        if not shared:
            alone.enter_context(_files.locked(Path(out)))
        try:
            if scheduler:
                on_cluster(jobs, scheduler, meter)
            else:
                by_threads(jobs, workers, meter)
        finally:
            meter.close()
            if shared:  # for the tables alone, which take over the other calls' rows
                alone.enter_context(_files.locked(Path(out), patience))
            batch.write(out, command)
    return batch


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
