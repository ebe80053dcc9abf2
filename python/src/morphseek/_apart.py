"""Files whose reader may end the process over a damaged one, read in a process of its own with
limits: HDF5, and image formats beyond the common ones. What comes back is in a plain form.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import errors

_THREADS = "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"
RATIO = 1032  # deflate packs no denser
_START = 30.0  # seconds of computing, and more for each MB
_SECONDS_PER_MB = 0.2
_PATIENCE = 20  # times as long on the clock: a busy machine computes other things, too
_ALLOWANCE = 200 << 20
# the modules whose `rewrite` the process calls: they import this one
_READERS = {"transform": "morphseek.transforms.files", "image": "morphseek.images.files"}


@contextlib.contextmanager
def plain(kind: str, path: Path, what: str, limit: float) -> Iterator[Path]:
    """Copy a file's content, of `limit` GiB at most, into a plain file and give that: of the kind
    "transform" an ``.h5`` as :mod:`morphseek.transforms.h5` writes it, of "image" a ``.mha``.
    """
    size = path.stat().st_size
    # a field is kept several times while it is read and written
    memory = _ALLOWANCE + int(min(limit * 2**30, 8 * RATIO * size))
    seconds = _START + _SECONDS_PER_MB * size / 2**20
    with tempfile.TemporaryDirectory(prefix="morphseek-") as name:
        out = Path(name, "out.h5" if kind == "transform" else "out.mha")
        note = Path(name, "said")
        call = (
            f"import sys; sys.path[:] = sys.argv[7:]; from {_READERS[kind]} import rewrite;"
            " from morphseek import _apart; _apart.main(rewrite)"
        )
        command = [sys.executable, "-I", "-c", call, kind, os.fspath(path.absolute()), str(out),
                   str(note), str(memory), str(seconds),
                   *map(os.path.abspath, sys.path)]  # fmt: skip
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # what threads reserve would count
                env={**os.environ, "MALLOC_ARENA_MAX": "1", _THREADS: "1"},
                timeout=_PATIENCE * seconds,
                check=False,
            ).returncode
            reason = note.read_text(encoding="utf-8") if note.exists() else ""
        except subprocess.TimeoutExpired as error:
            code = 1
            reason = (
                f"its reader did not come to an end in {error.timeout:.0f} s; try again when the"
                " machine is less busy"
            )
        if code == -getattr(signal, "SIGXCPU", 0) != 0:
            reason = (
                f"its reader did not come to an end in {seconds:.0f} s of computing; write it anew,"
                " or in another format"
            )
        if code or reason or not out.exists():
            raise errors.InputUnreadableError(
                f"{what}: {path} cannot be read: {reason or 'its reader crashed; it is damaged'}"
            )
        yield out


def is_possible() -> bool:
    """Whether there is a Python to start: another program's own may not be one."""
    return Path(sys.executable or "").stem.lower().startswith("python")


def main(rewrite: Callable[[Path, Path], None]) -> None:
    """Read a file and write its plain form, or a sentence, within the caller's limits."""
    path, out, note, memory, seconds = sys.argv[2:7]
    from ._engine import core

    core.version()  # the engine's runtime begins on a thread of its own, and needs room for that
    _limit(int(memory), float(seconds))
    try:
        rewrite(Path(path), Path(out))
    except (RuntimeError, OSError, ValueError, MemoryError) as error:
        from ._itk import itk_reason

        text = str(error)
        is_memory = isinstance(error, MemoryError) or "memory" in text or "bad_alloc" in text
        reason = "it claims more than it can hold" if is_memory else itk_reason(error)
        Path(note).write_text(reason or type(error).__name__, encoding="utf-8")


def _limit(more: int, seconds: float) -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # where the system has limits
        import resource

        time = math.ceil(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) + seconds)
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        if most == resource.RLIM_INFINITY or time < most:
            resource.setrlimit(resource.RLIMIT_CPU, (time, most))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
