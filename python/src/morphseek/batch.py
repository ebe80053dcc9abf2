"""Registering into folders: one pair, or a list of pairs by several workers, here or on a Dask
cluster.

The workers here are threads, not processes. The work is the engine's and runs outside Python's
lock, so that threads lose nothing; they share its network session, whose weights and workspace are
then in memory once, and Ctrl-C reaches all of them. On a cluster the same function runs in Dask's
worker processes, on the folders that they share.

A pair is finished when its folder has ``pair.json``, which is written last. It holds a fingerprint
of the files' content, the options, the model and the library's version: where that is unchanged,
the pair is not done again.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import dataclasses
import hashlib
import json
import os
import statistics
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from . import _core, errors, evaluation, io, registration
from ._log import log
from .registration import Bar, Progress, RegistrationResult, callback_of, says_no
from .verdict import Verdict, counts, grade_of

if TYPE_CHECKING:
    from distributed import Client
    from typing_extensions import Unpack

    from ._options import Options

IMAGES = ("fixed", "moving", "fixed_labels", "moving_labels", "fixed_mask", "moving_mask")
FINISHED = "pair.json"
SUMMARIES = ("summary.csv", "summary.json")
INDEX = "index.html"
DEFECT = "error.log"  # the traceback of what should not have happened to a pair

Report = Literal["full", "small", "none"]
"""The page of a pair: the interactive one, one picture and the numbers, or none."""


def register_into(
    out: str | os.PathLike[str],
    images: tuple[io.ImageLike, io.ImageLike],
    labels: tuple[io.ImageLike | None, io.ImageLike | None] = (None, None),
    *,
    options: dict[str, Any],
    title: str = "",
    command: str = "",
    report: Report = "full",
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
    report : {"full", "small", "none"}
        What report.html is: interactive, one picture and the numbers, or not written.
    seal : str
        File in the folder that says that its results are whole: it is removed just before new ones
        come, and is the caller's to write.
    extra : callable, optional
        Returns what else report.json shall hold; under "truth", what
        :meth:`morphseek.phantom.PhantomPair.errors` says, for the page too.
    **inputs
        Masks, initial transform and progress: of :func:`morphseek.register`.

    Returns
    -------
    dict
        What report.json holds.
    """
    fixed_labels, moving_labels = labels
    io.check_apart(
        out,
        registration.OUTPUTS,
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
    with io.output_folder(out, registration.OUTPUTS, seal) as folder:
        images = io.read(images[0], "fixed"), io.read(images[1], "moving")
        if fixed_labels is not None:
            fixed_labels = evaluation.on_fixed_grid(fixed_labels, images[0].grid)
        if moving_labels is not None:
            moving_labels = io.read_on(moving_labels, images[1].grid, "moving labels")
        if fixed_labels is not None and moving_labels is not None:  # they will be scored
            evaluation.check_labels(fixed_labels)
            evaluation.check_labels(moving_labels)
        result = registration.register(images[0], images[1], **inputs, **options)
        scores = []
        if fixed_labels is not None and moving_labels is not None:
            scores = evaluation.score_labels(result, fixed_labels, moving_labels)
            if not scores:
                result.metrics["warnings"].append(
                    "The two label maps have no label in common: no overlap was measured."
                )
        result.options.pop("cache", None)
        summary = result.report()
        if scores:
            summary |= {
                "dice_before": evaluation.mean_dice(scores, "before"),
                "dice_after": evaluation.mean_dice(scores),
                "labels": [dataclasses.asdict(score) for score in scores],
            }
        if extra is not None:
            summary |= extra(result)
        others: list[Callable[[], Any]] = []
        warped_labels = None
        if moving_labels is not None:
            carried = warped_labels = result.apply(moving_labels, interpolation="nearest")
            others.append(lambda: io.write_image(folder / "warped_labels.nii.gz", carried))
        if report != "none":
            from .report import write_report

            size: Literal["full", "small"] = report
            others.append(
                lambda: write_report(
                    folder / "report.html",
                    result,
                    *images,
                    fixed_labels=fixed_labels,
                    moving_labels=moving_labels,
                    warped_labels=warped_labels,
                    scores=scores,
                    label_names=label_names,
                    command=command,
                    title=title,
                    truth=summary.get("truth"),
                    size=size,
                )
            )
        result.write(folder, summary, *others)
    return summary


@dataclasses.dataclass(frozen=True)
class Pair:
    """A row of the list: its name, and its files, relative to the list's folder."""

    id: str
    folder: str
    files: dict[str, str]

    def path(self, image: str) -> Path:
        """Return the path of one of IMAGES."""
        return Path(self.folder, self.files[image])


@dataclasses.dataclass
class Outcome:
    """What became of a pair: a row of summary.csv."""

    id: str
    fixed: str
    moving: str
    status: str = "pending"
    """done, skipped (it was finished before), failed, or pending (the batch was stopped)."""
    verdict: str = ""
    """good, check, failed, or unknown; empty where nothing was registered."""
    error_mm: float | None = None
    """The verdict's estimate."""
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Of the verdict."""
    dice_before: float | None = None
    dice_after: float | None = None
    njd_percent: float | None = None
    seconds: float | None = None
    model: str = ""
    device: str = ""
    warnings: list[str] = dataclasses.field(default_factory=list)
    error: str = ""
    """The exception's class."""
    message: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        if self.error:
            return f"{self.id}: {self.error}: {self.message}"
        dice = (
            ""
            if self.dice_after is None
            else f"Dice {self.dice_before:.3f} -> {self.dice_after:.3f}  "
        )
        return f"{self.id}: {self.status}" + (
            ""
            if self.njd_percent is None
            else f"  verdict {self.verdict}  {dice}NJD {self.njd_percent:.4f} % "
            f" {self.seconds:.1f} s"
        )


@dataclasses.dataclass
class Batch:
    """The outcomes of a list of pairs, in its order."""

    pairs: list[Outcome]
    options: dict[str, Any]

    @property
    def exit_code(self) -> int:
        """The first failure's, or 0."""
        return next((p.exit_code for p in self.pairs if p.status == "failed"), 0)

    def summary(self) -> dict[str, Any]:
        """Return how many pairs have which status, how many of the finished ones have which
        verdict, and the means over them.
        """
        states = [p.status for p in self.pairs]
        found: dict[str, Any] = {
            "pairs": len(states),
            **{state: states.count(state) for state in ("done", "skipped", "failed", "pending")},
            "verdict": counts(p.verdict for p in self.pairs if p.verdict),
        }
        means = {}
        for name in ("error_mm", "dice_before", "dice_after", "njd_percent", "seconds"):
            values = [getattr(p, name) for p in self.pairs if getattr(p, name) is not None]
            means[name] = statistics.fmean(values) if values else None
        return found | means

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "summary": self.summary(),
            "version": _core.version(),
            "options": self.options,
            "pairs": [dataclasses.asdict(p) for p in self.pairs],
        }

    def write(self, folder: str | os.PathLike[str], command: str = "") -> None:
        """Write summary.csv (one row a pair), summary.json (everything) and index.html (a table
        that opens the pairs' pages; the command that repeats the batch is on it).
        """
        text = StringIO()
        table = csv.DictWriter(
            text, [field.name for field in dataclasses.fields(Outcome)], lineterminator="\n"
        )
        table.writeheader()
        content = self.to_dict()
        table.writerows(
            {**row, **{name: " | ".join(row[name]) for name in ("reasons", "warnings")}}
            for row in content["pairs"]
        )
        for name, written in zip(
            SUMMARIES, (text.getvalue(), json.dumps(content, indent=1) + "\n")
        ):
            io.write_text(Path(folder) / name, written)
        self._write_index(Path(folder), command)

    def _write_index(self, folder: Path, command: str) -> None:
        from .report import CohortRow, write_index

        rows = []
        for pair in self.pairs:
            page = f"{pair.id}/report.html"
            rows.append(
                CohortRow(
                    pair.id,
                    pair.fixed,
                    pair.moving,
                    pair.verdict,
                    pair.error_mm,
                    pair.dice_before,
                    pair.dice_after,
                    njd_percent=pair.njd_percent,
                    seconds=pair.seconds,
                    said=pair.message or " ".join(pair.reasons) or pair.status,
                    page=page if (folder / page).is_file() else "",
                    failed=pair.status in ("failed", "pending"),
                )
            )
        write_index(folder / INDEX, rows, command=command, version=_core.version())


def run(
    pairs: str | os.PathLike[str] | Sequence[Any],
    out: str | os.PathLike[str],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    report: Report = "small",
    html: bool | None = None,
    command: str = "",
    anew: bool = False,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Batch:
    """Register a list of pairs; each gets a folder of its own.

    Parameters
    ----------
    pairs : path or sequence
        CSV in UTF-8 with the columns fixed and moving and, optionally, fixed_labels, moving_labels,
        fixed_mask, moving_mask and id, the name of the pair's folder. Separated by commas,
        semicolons or tabs; empty rows and columns do not count. Paths are relative to the file. Or
        a list of (fixed, moving), or of dicts with those names: paths, relative to the working
        folder.
    out : path
        Folder; pair ID writes to ``out/ID`` what :func:`register_into` does, and pair.json.
        summary.csv and summary.json have all pairs.
    workers : int
        Pairs at a time; each gets its share of the cores unless `threads` is given.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers see the same files. Each pair gets one thread
        unless `threads` is given.
    report : {"full", "small", "none"}
        What report.html is for each pair: interactive, up to 6 MB; one picture and the numbers,
        below 200 kB; or not written.
    html : bool
        Deprecated: True is ``report="full"``, False ``report="none"``.
    command : str
        What repeats the batch, for report.html.
    anew : bool
        Do pairs again that are finished.
    progress : callable or bool, optional
        Called with a :class:`morphseek.Progress` over the whole list, whose message names the pair
        that is finished; returning False stops the batch. True shows a bar.
    **options
        Of :func:`morphseek.register`.

    Returns
    -------
    Batch
        A pair that fails is in it with its error; the others go on.

    Raises
    ------
    InputUnreadableError
        The list cannot be read, lacks a column or has an id twice.
    CancelledError, KeyboardInterrupt
        The batch was stopped. Finished pairs are kept, others have no files; the same call goes on
        from there. Pairs that a cluster is at are finished by it.
    """
    if html is not None:
        warnings.warn(
            'html is deprecated; report is "full", "small" or "none"',
            DeprecationWarning,
            stacklevel=2,
        )
        report = "full" if html else "none"
    if report not in get_args(Report):
        raise errors.InvalidArgumentError(f"report is {report!r}; it must be full, small or none")
    if workers < 1:
        raise errors.InvalidArgumentError(f"workers is {workers}; it must be 1 or more")
    listed = read_list(pairs)
    io.check_apart(out, (*SUMMARIES, INDEX), {"pairs": pairs})
    chosen, found = registration.checked_options(options)
    shown, model = dict(chosen), chosen.get("model", "default")
    if found:
        model = found["manifest"]["sha256"]
        if found["path"]:  # a worker elsewhere is in another folder
            chosen["model"] = str(Path(found["path"]).absolute())
    if not chosen.get("threads"):
        chosen["threads"] = 1 if scheduler else max(1, _cores() // workers)
    with io.output_folder(out):
        pass  # an unwritable folder fails before the work
    for name in (*SUMMARIES, INDEX):
        if (Path(out) / name).is_dir():
            raise errors.OutputUnwritableError(
                f"{Path(out) / name} is a folder; the summary cannot take its place, choose another"
                " output folder"
            )
    token = uuid.uuid4().hex
    jobs = [
        _Job(pair, str(Path(out).absolute() / pair.id), chosen, model, report, command, anew, token)
        for pair in listed
    ]
    batch = Batch(
        [Outcome(pair.id, pair.files["fixed"], pair.files["moving"]) for pair in listed], shown
    )
    meter = _Meter(batch, progress)
    try:
        if scheduler:
            _on_cluster(jobs, scheduler, meter)
        else:
            _by_threads(jobs, workers, meter)
    finally:
        meter.close()
        batch.write(out, command)
    return batch


def read_list(source: str | os.PathLike[str] | Sequence[Any]) -> list[Pair]:
    """Return the pairs of a CSV file, or of a list; see :func:`run`. A pair without id is called
    NUMBER-MOVING-to-FIXED.
    """
    if isinstance(source, (str, os.PathLike)):
        where, folder, rows = f"pairs: {source}", Path(source).parent, _table(Path(source))
    else:
        where, folder, rows = "pairs", Path(), _given(source)
    pairs: dict[str, Pair] = {}
    for number, row in enumerate(rows, 1):
        files = {image: row[image] for image in IMAGES if row.get(image)}
        name = row.get("id") or f"{number:03d}-{_stem(files['moving'])}-to-{_stem(files['fixed'])}"
        if name.startswith((".", "summary.", "index.")) or any(
            c in '/\\:*?"<>|' or ord(c) < 32 for c in name
        ):
            raise errors.InputUnreadableError(
                f"{where}, row {number}: the id {name!r} is no name for a folder"
            )
        if name.lower() in pairs:
            raise errors.InputUnreadableError(
                f"{where}, row {number}: the id {name} is there twice"
            )
        pairs[name.lower()] = Pair(name, str(folder.absolute()), files)
    if not pairs:
        raise errors.InputUnreadableError(f"{where}: there is no pair")
    return list(pairs.values())


def _table(path: Path) -> Iterator[dict[str, str]]:
    """Return the rows of a CSV file, column to cell."""
    heading, *rows = evaluation.read_table(path, "pairs", {"fixed", "moving"}) or [[]]
    heading = [name.lower() for name in heading]
    while heading and not heading[-1]:  # the cells below it are too many
        heading.pop()
    columns = set(heading)
    if len(columns) < len(heading):
        raise errors.InputUnreadableError(f"pairs: {path} has a column twice: {', '.join(heading)}")
    if not rows or not {"fixed", "moving"} <= columns or columns - {*IMAGES, "id"}:
        raise errors.InputUnreadableError(
            f"pairs: {path} needs a header with the columns fixed and moving, may have"
            f" {', '.join(IMAGES[2:])} and id, and no others; and a row for each pair. Its header:"
            f" {', '.join(heading) or 'none'}; rows below: {len(rows)}"
        )
    for number, cells in enumerate(rows, 1):
        row = dict(zip(heading, cells))
        if any(cells[len(heading) :]) or not row["fixed"] or not row["moving"]:
            raise errors.InputUnreadableError(
                f"pairs: {path}, row {number}: there must be a fixed and a moving image, and no"
                " more cells than columns"
            )
        yield row


def _given(pairs: Any) -> Iterator[dict[str, str]]:
    """Return the rows of a list of pairs or of dicts, as :func:`_table` does."""
    if not isinstance(pairs, Iterable):
        raise errors.InvalidArgumentError(
            f"pairs are given as {type(pairs).__name__}; give the path of a CSV file, or a list of"
            " (fixed, moving)"
        )
    for number, pair in enumerate(pairs, 1):
        row = (
            pair
            if isinstance(pair, Mapping)
            else (
                dict(zip(IMAGES, pair))
                if isinstance(pair, (list, tuple)) and len(pair) == 2
                else {}
            )
        )
        row = {
            name: str(value) if name == "id" else value
            for name, value in row.items()
            if value is not None
        }
        if not {"fixed", "moving"} <= row.keys() or row.keys() - {*IMAGES, "id"}:
            raise errors.InvalidArgumentError(
                f"pairs, row {number}: give (fixed, moving), or a dict with these, which may have"
                f" {', '.join(IMAGES[2:])} and id, and no others"
            )
        for name, value in row.items():
            if not isinstance(value, (str, os.PathLike)):
                raise errors.InvalidArgumentError(
                    f"pairs, row {number}: {name} is given as {type(value).__name__}; a batch takes"
                    " paths, give images to morphseek.register"
                )
            if not os.fspath(value) and name != "id":
                raise errors.InvalidArgumentError(f"pairs, row {number}: {name} is an empty path")
        yield {name: os.fspath(value) for name, value in row.items()}


def _stem(path: str) -> str:
    return Path(path).name.split(".")[0]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclasses.dataclass(frozen=True)
class _Job:
    """A pair as it travels to a worker."""

    pair: Pair
    folder: str
    options: dict[str, Any]
    model: str  # "none", "default", or the bundle's sha256
    report: Report
    command: str
    anew: bool
    batch: str  # which call of run() it belongs to

    def fingerprint(self) -> str:
        """Return a hash of all that the result depends on. Threads may change its last bit, no
        more.
        """
        options = {
            name: value
            for name, value in registration.all_options(self.options).items()
            if name not in ("threads", "cache", "model")
        }
        content = {
            image: _content(self.pair.path(image), image.replace("_", " "))
            for image in self.pair.files
        }
        return hashlib.sha256(
            json.dumps([_core.version(), options, self.model, content]).encode()
        ).hexdigest()


def _content(path: Path, name: str) -> list[str]:
    """Return the hashes of an image's files: one, a DICOM folder's, or a header and its data."""
    hashes = []
    try:
        for file in (
            sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else io.parts(path)
        ):
            content = hashlib.sha256()
            with open(file, "rb") as stream:
                while chunk := stream.read(1 << 20):
                    content.update(chunk)
            hashes.append(content.hexdigest())
    except OSError as error:
        raise errors.InputUnreadableError(
            f"{name}: {error.filename} cannot be read: {error.strerror}; check the list"
        ) from None
    return hashes


def _run(job: _Job, progress: Callable[[Progress], Any] | None = None) -> Outcome:
    """Do a job, unless it is done. Errors come back in the outcome: another pair's worker has no
    use for them.
    """
    pair = job.pair
    outcome = Outcome(pair.id, pair.files["fixed"], pair.files["moving"])
    try:
        folder, fingerprint = Path(job.folder), job.fingerprint()
        before = _finished(folder)
        same = before.get("fingerprint") == fingerprint and all(
            _size(folder / name) == size for name, size in before["files"].items()
        )
        if (
            same
            and _has_page(before, job.report)
            and (not job.anew or before["batch"] == job.batch)
        ):
            io.remove_left(folder)  # by a process that was killed just after its last file
            # Of this very batch: a worker of the cluster was lost between its last file and its
            # answer.
            with contextlib.suppress(TypeError):  # a result of another making is none
                return dataclasses.replace(
                    outcome,
                    status="done" if before["batch"] == job.batch else "skipped",
                    **before["result"],
                )
        images = {image: pair.path(image) for image in pair.files}
        summary = register_into(
            folder,
            (images["fixed"], images["moving"]),
            (images.get("fixed_labels"), images.get("moving_labels")),
            options=job.options,
            title=pair.id,
            command=job.command,
            report=job.report,
            seal=FINISHED,
            progress=progress,
            fixed_mask=images.get("fixed_mask"),
            moving_mask=images.get("moving_mask"),
        )
        result = evaluation.without_nan(
            {
                name: summary.get(name)
                for name in (
                    "dice_before",
                    "dice_after",
                    "njd_percent",
                    "model",
                    "device",
                    "warnings",
                )
            }
        )
        result["seconds"] = summary["seconds"]["total"]
        result["verdict"] = grade_of(summary)
        if verdict := Verdict.of(summary):
            result |= {"error_mm": verdict.error_mm, "reasons": list(verdict.reasons)}
        files = {
            name: _size(folder / name) for name in registration.OUTPUTS if (folder / name).is_file()
        }
        finished = {
            "fingerprint": fingerprint,
            "batch": job.batch,
            "report": job.report,
            "files": files,
            "result": result,
        }
        io.write_text(folder / FINISHED, json.dumps(finished, indent=1) + "\n")
        (folder / DEFECT).unlink(missing_ok=True)
        return dataclasses.replace(outcome, status="done", **result)
    except errors.CancelledError:
        return outcome
    except Exception as error:
        code = (
            error.exit_code
            if isinstance(error, errors.MorphSeekError)
            else errors.InternalError.exit_code
        )
        if code == errors.InternalError.exit_code:
            log.exception("pair %s failed", pair.id)
            _keep_traceback(Path(job.folder))
        return dataclasses.replace(
            outcome, status="failed", error=type(error).__name__, message=str(error), exit_code=code
        )


def _keep_traceback(folder: Path) -> None:
    """Write the exception being handled into a pair's folder, where one can be made."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DEFECT).write_text(traceback.format_exc(), encoding="utf-8")


def _finished(folder: Path) -> dict[str, Any]:
    """Return what pair.json holds; nothing where it is missing or unsound."""
    try:
        found = json.loads((folder / FINISHED).read_text(encoding="utf-8"))
        whole = {"fingerprint", "batch", "files", "result"} <= found.keys() and isinstance(
            found["files"], dict
        )
        return found if whole else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _has_page(finished: Mapping[str, Any], report: Report) -> bool:
    """Whether a finished pair has the page that is asked for; a larger one does too."""
    if report == "none":
        return True
    # older libraries wrote the full one alone
    return "report.html" in finished["files"] and report in (
        "small",
        finished.get("report", "full"),
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


class _Meter:
    """The batch's progress, from its pairs'. Workers call it, but only the caller's thread gets to
    see an error of the caller's function.
    """

    def __init__(self, batch: Batch, progress: Callable[[Progress], Any] | bool | None):
        self._callback = callback_of(progress)
        self._bar = self._callback if isinstance(self._callback, Bar) else None
        self._places = {pair.id: i for i, pair in enumerate(batch.pairs)}
        self._batch = batch
        self._done = 0
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stop: BaseException | None = None

    def pair(self, name: str) -> Callable[[Progress], bool]:
        """Return the callback of a pair's registration."""

        def report(progress: Progress) -> bool:
            with self._lock:
                self._running[name] = progress.fraction
                self._tell("")
            return self._stop is None

        return report

    def finished(self, outcome: Outcome) -> None:
        """Take a pair's outcome; raise what stops the batch, if anything does."""
        with self._lock:
            if outcome.status != "pending":
                self._batch.pairs[self._places[outcome.id]] = outcome
                self._running.pop(outcome.id, None)
                self._done += 1
                if self._bar is not None:
                    self._bar.say(str(outcome))
                self._tell(str(outcome))
        if self._stop is not None:
            raise self._stop

    def _tell(self, message: str) -> None:
        if self._callback is None or self._stop is not None:
            return
        total = len(self._places)
        try:
            if says_no(
                self._callback(
                    Progress(
                        f"{self._done}/{total}",
                        (self._done + sum(self._running.values())) / total,
                        message,
                    )
                )
            ):
                self.stop(errors.CancelledError("the batch was cancelled"))
        except Exception as error:
            self.stop(error)

    def stop(self, reason: BaseException) -> None:
        """Let the registrations under way end."""
        self._stop = reason

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _by_threads(jobs: list[_Job], workers: int, meter: _Meter) -> None:
    def work(job: _Job) -> Outcome:
        return _run(job, meter.pair(job.pair.id))

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            for future in concurrent.futures.as_completed(futures):
                meter.finished(future.result())
        except BaseException as error:
            meter.stop(error)
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _on_cluster(jobs: list[_Job], scheduler: str, meter: _Meter) -> None:
    """Dask gives a lost worker's pairs to others; one that has been finished there is found so."""
    with _client(scheduler) as client:
        from distributed import as_completed

        names = {f"morphseek-{job.batch}-{job.pair.id}": job for job in jobs}
        futures = [client.submit(_run, job, key=key, pure=False) for key, job in names.items()]
        try:
            for future in as_completed(futures, loop=client.loop):
                meter.finished(_answer(future, names[future.key]))
        except BaseException:
            client.cancel(futures)
            raise


def _client(scheduler: str) -> Client:
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise errors.InvalidArgumentError(
            "scheduler: the package distributed is needed: pip install 'morphseek[dask]'"
        ) from None
    try:
        return Client(scheduler, set_as_default=False)
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(
            f"scheduler: there is no Dask scheduler at {scheduler}: {error}"
        ) from None


def _answer(future: Any, job: _Job) -> Outcome:
    """Return a future's outcome; an error of Dask's own (every worker that took the pair died, say)
    is the pair's.
    """
    try:
        return future.result()
    except Exception as error:
        log.exception("pair %s failed", job.pair.id)
        files = job.pair.files
        return Outcome(
            job.pair.id,
            files["fixed"],
            files["moving"],
            "failed",
            error=type(error).__name__,
            message=str(error),
            exit_code=errors.RuntimeFailedError.exit_code,
        )
