"""Progress of a registration: reports to a function, the bar, and Ctrl-C."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import errors
from ._interrupts import SignalDelay
from ._plain import plain


class Progress(NamedTuple):
    """One report of what is running: a registration, or a list of them.

    >>> print(Progress("align", 0.25, "affine, 4 mm"))
    align      25 %  affine, 4 mm
    >>> print(Progress("pairs", 0.5, "a <- b", done=1, total=3))
    1/3        50 %  a <- b
    """

    stage: str
    """align, search, network, refine, uncertainty or finish; of a list of pairs, pairs."""
    fraction: float
    """Of the whole, 0 to 1, never decreasing."""
    message: str
    """For a log; may be empty. Of a list it says what became of a pair that is finished."""
    done: int = 0
    """Of a list: how many pairs are finished."""
    total: int = 0
    """Of a list: how many there are."""

    @property
    def title(self) -> str:
        """The stage, or how much of a list is done."""
        return f"{self.done}/{self.total}" if self.total else self.stage

    def __str__(self) -> str:
        return f"{self.title:<8} {100 * self.fraction:4.0f} %  {self.message}".rstrip()


def says_no(answer: Any) -> bool:
    """Whether a progress callback's answer cancels: False, numpy's too, but neither None nor 0."""
    return isinstance(answer, (bool, np.bool_)) and not answer


def callback_of(progress: Callable[[Any], Any] | bool | None) -> Callable[[Any], Any] | None:
    """Return the callback of progress: a new :class:`Bar` for True; refuse what is none."""
    if progress is None or isinstance(progress, (bool, np.bool_)):
        return Bar() if progress else None
    if not callable(progress):
        raise errors.InvalidArgumentError(
            f"progress is given as {type(progress).__name__}; give a function, True for a bar, or"
            " nothing"
        )
    return progress


class Reporter(SignalDelay):
    """The progress callback: what it raises, or Ctrl-C, cancels the engine and is kept."""

    def __init__(self, progress: Callable[[Progress], Any] | bool | None):
        super().__init__()
        self._callback = callback_of(progress)
        self._last: tuple[Any, float] = (None, 0.0)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(self._callback, Bar):
            self._callback.close()
        if isinstance(error, errors.CancelledError):
            self.release()

    def __call__(self, stage: str, fraction: float, message: str) -> bool:
        try:
            if self.interruption is not None:
                return False
            if self._callback is None:
                return True
            now = time.monotonic()
            if (stage, fraction) == self._last[0] and not message and now - self._last[1] < 1:
                return True  # a heartbeat, which only lets Ctrl-C through
            self._last = (stage, fraction), now
            return not says_no(self._callback(Progress(stage, fraction, message)))
        except BaseException as error:
            self.interruption = error
            return False


class Bar:
    """A progress bar on standard error; silent where that is no terminal, or ``CI`` is set."""

    def __init__(self) -> None:
        self._bar: Any = None
        if not _is_shown():
            return
        # importing rich takes longer than registering something small
        from rich import progress as rich
        from rich.console import Console

        columns = (
            rich.TextColumn("{task.fields[stage]:<11}"),
            rich.BarColumn(),
            rich.TextColumn("{task.percentage:3.0f} %"),
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.description}", markup=False),  # names and paths of the user's
        )
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar = rich.Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=1.0, stage="")
        self._bar.start()

    def __call__(self, report: Progress) -> None:
        if self._bar is None:
            return
        if report.message:
            new = "" if report.message == report.title else plain(report.message)
            self._bar.update(self._task, description=new)
        self._bar.update(self._task, completed=report.fraction, stage=report.title)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        line = plain(line)
        if self._bar is None:
            if sys.stderr is not None:  # else it would go to standard output
                print(line, file=sys.stderr)
        else:
            self._bar.console.print(line, soft_wrap=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _is_shown() -> bool:
    """Whether standard error is a terminal, or shall be taken for one, and no CI's."""
    if sys.stderr is None or os.environ.get("CI"):  # a program with a window may have none
        return False
    return sys.stderr.isatty() or bool(os.environ.get("FORCE_COLOR"))
