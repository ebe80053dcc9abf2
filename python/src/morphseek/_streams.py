"""Standard output and error of a program of ours."""

from __future__ import annotations

import contextlib
import io
import os
import sys


class _Errors(io.TextIOWrapper):
    """Standard error: what a full disk or a closed pipe does not take is lost, and no failure."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def open_streams() -> None:
    """Make standard streams take any text, even closed ones; call it before opening a file."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Errors(
            sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", line_buffering=True
        )
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _occupy(number)
            mode = "w" if number else "r"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8", errors="backslashreplace"))


def _occupy(number: int) -> None:
    """Open a closed descriptor: else a file of results may get it, and what libraries print."""
    try:
        os.fstat(number)
    except OSError:
        with contextlib.suppress(OSError):
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
