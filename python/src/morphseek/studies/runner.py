"""Run many jobs, each once: in threads, in processes, or on a Dask cluster.

A job's results lie in a folder of their own. With them comes a seal, a JSON file: it holds the
hashes of all that they depend on, the checksums of the results, and the job's row. By the time
stamps in it a further call knows in microseconds that nothing has changed.

A job locks its own folder and no other. So several calls may share the folder of a study.
"""

from __future__ import annotations

import abc
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import logging
import multiprocessing
import queue
import signal
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .. import _files, _manifest, errors
from .._features import needing
from .._json import read as read_json
from ..progress import Bar, Progress, callback_of, says_no

#: Silent unless the program that uses it sets logging up.
log = logging.getLogger("morphseek")
log.addHandler(logging.NullHandler())

FINISHED = ("done", "skipped")
DEFECT = "error.log"  # the traceback of an unexpected failure of a job
THREADS, PROCESSES = "threads", "processes"
_BUSY = "busy"
_FRESH = 2.0  # seconds, in which a file may change twice at one time stamp
PATIENCE = 600.0  # seconds, with calls that write to a shared folder for a moment
_WAIT = 0.2  # seconds between two looks at a job that another call does
_WINDOW = 4  # jobs a worker that are handed out at once
_CLUSTER_WINDOW = 2000


@dataclasses.dataclass(frozen=True)
class Job(abc.ABC):
    """One unit of work, as it travels to a worker. Its folder is named after it."""

    id: str
    folder: str

    seal: ClassVar[str]
    """The file that says that the job is finished."""
    listing: ClassVar[str]
    """The file that lists the others: the seal, or one that is written without a study, too."""
    outputs: ClassVar[Collection[str]]
    """Patterns of all files that a job may leave."""

    @abc.abstractmethod
    def inputs(self) -> dict[str, list[Path]]:
        """Return the files that the result depends on, by what messages call them."""

    @abc.abstractmethod
    def settings(self) -> Any:
        """Return all else that the result depends on, as plain data."""

    @abc.abstractmethod
    def run(self, folder: Path, progress: Callable[[Progress], Any] | None) -> Result:
        """Do the work and write its files into an empty folder."""

    def covers(self, facts: Mapping[str, Any]) -> bool:
        """Whether a finished job's files are all that this one is to write."""
        return True


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of the work of one job."""

    row: dict[str, Any]
    files: dict[str, Any]
    """Name to size and checksum."""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For :meth:`Job.covers`."""


@dataclasses.dataclass(frozen=True)
class Ending:
    """The end of a job."""

    id: str
    status: str
    """done, skipped (it was finished before), failed or pending."""
    row: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str = ""
    """The exception's class."""
    message: str = ""
    exit_code: int = 0


def run_jobs(
    jobs: Iterable[Job], *, ended: Callable[[Ending], None], meter: Meter, workers: int = 1,
    scheduler: str | None = None, resume: bool = True,
) -> None:  # fmt: skip
    """Do all jobs but those that are finished; call ``ended`` with each one's ending.

    Jobs that another call is at are waited for. The first interruption stops all.
    """
    token, coming = uuid.uuid4().hex, iter(jobs)
    is_near = scheduler in (None, THREADS)  # a job can report its progress
    running: dict[concurrent.futures.Future[Ending], tuple[Job, int]] = {}
    finished: queue.SimpleQueue[concurrent.futures.Future[Ending]] = queue.SimpleQueue()
    busy: list[Job] = []  # others are at them
    again: list[Job] = []

    def following() -> Job | None:
        if again:
            return again.pop(0)
        for job in coming:
            _files.settle(Path(job.folder))
            if not (resume and (seal := _sealed(job, quickly=True))):
                return job
            ended(Ending(job.id, "skipped", seal["row"]))
        return None

    with _places(scheduler, workers, meter) as places:
        free = [*range(len(places))]
        while True:
            while free and (job := following()) is not None:
                place, report = free.pop(), [meter.job(job.id)] if is_near else []
                work = perform, job, resume, token, *report
                try:
                    future = places[place].submit(*work)
                except concurrent.futures.BrokenExecutor:  # its process died and had no job
                    places[place] = _Process()
                    future = places[place].submit(*work)
                running[future] = job, place
                future.add_done_callback(finished.put)
            if not running and not busy:
                break
            try:
                future = finished.get(timeout=_WAIT if busy else None)
            except queue.Empty:
                meter.check()
                again.extend(busy)
                busy.clear()
                continue
            job, place = running.pop(future)
            free.append(place)
            try:
                ending = future.result()
            except concurrent.futures.BrokenExecutor:
                places[place] = _Process()
                ending = _lost(job, "the process that did it died; is there enough memory?")
            except Exception as error:  # of Dask's own: every worker that took it died, say
                log.exception("job %s failed", job.id)
                ending = _lost(job, str(error), type(error).__name__)
            if ending.status == _BUSY:
                busy.append(job)
            else:
                ended(ending)


def _lost(job: Job, message: str, error: str = "RuntimeFailedError") -> Ending:
    code = errors.RuntimeFailedError.exit_code
    return Ending(job.id, "failed", error=error, message=message, exit_code=code)


@contextlib.contextmanager
def _places(
    scheduler: str | None, workers: int, meter: Meter
) -> Iterator[list[concurrent.futures.Executor]]:
    """Give what takes a job, once for each that is handed out at a time: threads; a process, so
    that one which dies takes no other's job along; or a Dask cluster. After an error nobody waits
    for the jobs under way, which are kept or done again.
    """
    places: list[concurrent.futures.Executor] = []
    with contextlib.ExitStack() as stack:
        if scheduler in (None, THREADS):
            places += [concurrent.futures.ThreadPoolExecutor(workers)] * workers * _WINDOW
        elif scheduler == PROCESSES:
            places += [_Process() for _ in range(workers)]
            try:
                places[0].submit(int).result()
            except concurrent.futures.BrokenExecutor:
                raise errors.InvalidArgumentError(
                    "scheduler: no process can be started; a script must call this below"
                    " if __name__ == '__main__': and lie in a file, or give threads"
                ) from None
        else:
            client = stack.enter_context(_client(str(scheduler)))  # its end cancels what is left
            places += [client.get_executor(pure=False)] * _CLUSTER_WINDOW
        try:
            yield places
        except BaseException as error:
            meter.stop(error)
            raise
        finally:
            for executor in {*places} if scheduler in (None, THREADS, PROCESSES) else ():
                for process in [*(getattr(executor, "_processes", None) or {}).values()]:
                    process.terminate()
                executor.shutdown(wait=False, cancel_futures=True)


class _Process(concurrent.futures.ProcessPoolExecutor):
    """A process that no Ctrl-C reaches, not even while it starts with the signal blocked."""

    def __init__(self) -> None:
        super().__init__(1, multiprocessing.get_context("spawn"), _ignore_interrupts)

    def submit(self, *work: Any, **named: Any) -> concurrent.futures.Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*work, **named)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return super().submit(*work, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # for what it starts itself
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _client(address: str) -> Any:
    with needing("dask", "scheduler"):
        from distributed import Client
    try:
        return Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(
            f"scheduler: there is no Dask scheduler at {address}: {error}; give threads, processes"
            " or an address"
        ) from None


class Meter:
    """The progress of several jobs as that of one. Workers call it, but only the caller's thread
    gets to see an error of the caller's function: where the block ends, or by :meth:`check`.
    """

    def __init__(
        self, total: int, progress: Callable[[Progress], Any] | bool | None, stage: str = "pairs"
    ):
        self._callback, self._stage = callback_of(progress), stage
        self._total, self._done = max(1, total), 0
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stop: BaseException | None = None

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(self._callback, Bar):
            self._callback.close()
        if isinstance(error, errors.CancelledError):
            self.check()

    def job(self, id: str, message: str = "", jobs: int = 1) -> Callable[[Progress], bool]:
        """Return the callback of a job, or of what counts as several of them, or as none."""

        def report(progress: Progress) -> bool:
            with self._lock:
                self._running[id] = jobs * progress.fraction
                self._tell(message, progress.done)
            return self._stop is None

        return report

    def ended(self, id: str, message: str = "", jobs: int = 1) -> None:
        """Count a job that ended; raise the error that stops the study, if one does."""
        with self._lock:
            self._running.pop(id, None)
            self._done += jobs
            if message and isinstance(self._callback, Bar):
                self._callback.say(message)
            self._tell(message)
        self.check()

    def check(self) -> None:
        """Raise the error that stops the study, if one does."""
        if self._stop is not None:
            raise self._stop

    def _tell(self, message: str, done: int = 0) -> None:
        if self._callback is None or self._stop is not None:
            return
        fraction = (self._done + sum(self._running.values())) / self._total
        try:
            report = Progress(self._stage, fraction, message, self._done + done, self._total)
            if says_no(self._callback(report)):
                self.stop(errors.CancelledError("the study was cancelled"))
        except Exception as error:
            self.stop(error)

    def stop(self, reason: BaseException) -> None:
        """Let the jobs under way end."""
        self._stop = reason


def digest(*facts: Any) -> str:
    """Return a hash of plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def perform(
    job: Job, resume: bool = True, token: str = "",
    progress: Callable[[Progress], Any] | None = None,
) -> Ending:  # fmt: skip
    """Do a job, unless it is done. Errors come back in its ending."""
    folder = Path(job.folder)
    try:
        files = job.inputs()
        stamps = {name: _files.stamp(listed) for name, listed in files.items()}
        _files.settle(folder)  # left by a process that was killed while it wrote its last files
        seal = _sealed(job, resume, token)
        if not seal:
            with _files.output_folder(
                folder, job.outputs, job.listing, (job.seal, DEFECT), patience=0.0
            ) as temporary:
                seal = _sealed(job, resume, token)  # another call did it meanwhile
                if not seal:
                    hashes = _hashes(files)
                    result = job.run(temporary, progress)
                    for name, stamp in stamps.items():  # or the inputs changed since
                        _files.check_unchanged(stamp, name)
                    seal = {
                        "settings": digest(job.settings()), "inputs": hashes, "run": token,
                        "stamps": _stamps(files, temporary, result.files), "facts": result.facts,
                        _manifest.KEY: result.files, "row": result.row,
                    }  # fmt: skip
                    _files.write_text(temporary / job.seal, json.dumps(seal, indent=1) + "\n")
        return Ending(job.id, "done" if seal["run"] == token else "skipped", seal["row"])
    except _files.BusyError:
        return Ending(job.id, _BUSY)
    except errors.CancelledError:
        return Ending(job.id, "pending")
    except Exception as error:
        internal = errors.InternalError.exit_code
        code = error.exit_code if isinstance(error, errors.MorphSeekError) else internal
        if code == internal:
            log.exception("job %s failed", job.id)
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / DEFECT).write_text(traceback.format_exc(), encoding="utf-8")
        return Ending(job.id, "failed", {}, type(error).__name__, str(error), code)


def _sealed(
    job: Job, resume: bool = True, token: str = "", quickly: bool = False
) -> dict[str, Any]:
    """Return a finished job's seal, else an empty one; ``quickly``: by the time stamps alone."""
    folder = Path(job.folder)
    try:
        seal: dict[str, Any] = read_json(folder / job.seal, "seal")
        fits = seal["settings"] == digest(job.settings()) and job.covers(seal["facts"])
        # of this very run: a worker was lost between its last file and its answer
        counts = resume or seal["run"] == token
        if not (fits and counts and isinstance(seal["row"], dict)):
            return {}
        files, results = job.inputs(), dict(seal[_manifest.KEY])
        if seal["stamps"] and seal["stamps"] == _stamps(files, folder, results):
            return seal
        whole = not quickly and seal["inputs"] == _hashes(files)
        return seal if whole and _manifest.changed(folder, results) is None else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _stamps(
    files: Mapping[str, list[Path]], folder: Path, results: Iterable[str]
) -> list[list[Any]]:
    """Return the time stamps of inputs and results; none where an input is too fresh to tell."""
    inputs = _files.stamp(path for listed in files.values() for path in listed)
    if any(time.time_ns() - changed < _FRESH * 1e9 for *_, changed in inputs):
        return []
    made = _files.stamp(folder / name for name in results)
    return [[*each] for each in inputs] + [each[1:] for each in map(list, made)]


def _hashes(files: Mapping[str, list[Path]]) -> dict[str, list[str]]:
    return {name: content_of(listed, name) for name, listed in files.items()}


def content_of(files: Sequence[Path], name: str) -> list[str]:
    """Return the hashes of files."""
    hashes = []
    for path in files:
        found = hashlib.sha256()
        with _files.readable(path, name), open(path, "rb") as stream:
            while chunk := stream.read(1 << 20):
                found.update(chunk)
        hashes.append(found.hexdigest())
    return hashes
