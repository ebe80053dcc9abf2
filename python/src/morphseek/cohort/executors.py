"""Run jobs: by threads here, or the workers of a Dask cluster.

The workers here are threads, not processes. The work is the engine's and runs outside Python's
lock, so that threads lose nothing; they share its network session, whose weights and workspace are
then in memory once, and Ctrl-C reaches all of them. On a cluster the same function runs in Dask's
worker processes, on the folders that they share.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import errors
from .._features import needed
from .._log import log
from ..progress import Bar, Progress, callback_of, says_no
from .jobs import Job, run_job
from .results import Cohort, Outcome

if TYPE_CHECKING:
    from distributed import Client


class Meter:
    """The batch's progress, from its pairs'. Workers call it, but only the caller's thread gets to
    see an error of the caller's function.
    """

    def __init__(self, batch: Cohort, progress: Callable[[Progress], Any] | bool | None):
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
                        "pairs",
                        (self._done + sum(self._running.values())) / total,
                        message,
                        self._done,
                        total,
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


def by_threads(jobs: list[Job], workers: int, meter: Meter) -> None:
    def work(job: Job) -> Outcome:
        return run_job(job, meter.pair(job.pair.id))

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            for future in concurrent.futures.as_completed(futures):
                meter.finished(future.result())
        except BaseException as error:
            meter.stop(error)
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def on_cluster(jobs: list[Job], scheduler: str, meter: Meter) -> None:
    """Dask gives a lost worker's pairs to others; one that has been finished there is found so."""
    with _client(scheduler) as client:
        from distributed import as_completed

        names = {f"morphseek-{job.batch}-{job.pair.id}": job for job in jobs}
        futures = [client.submit(run_job, job, key=key, pure=False) for key, job in names.items()]
        try:
            for future in as_completed(futures, loop=client.loop):
                meter.finished(_answer(future, names[future.key]))
        except BaseException:
            client.cancel(futures)
            raise


def _client(scheduler: str) -> Client:
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise errors.InvalidArgumentError(needed("dask", "scheduler", error)) from None
    try:
        return Client(scheduler, set_as_default=False)
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(
            f"scheduler: there is no Dask scheduler at {scheduler}: {error}"
        ) from None


def _answer(future: Any, job: Job) -> Outcome:
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
