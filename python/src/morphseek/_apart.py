"""Files whose reader may end the process over a damaged one, read in a process of its own with
limits: HDF5, and image formats beyond the common ones. What comes back is in a plain form.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import errors

_THREADS = "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"
_RATIO = 1032  # deflate packs no denser
_START = 30.0  # seconds that a busy machine may take to begin
_SECONDS_PER_MB = 0.2
_ALLOWANCE = 200 << 20
# the modules whose `rewrite` the process calls: they import this one
_READERS = {"transform": "morphseek.transforms.files", "image": "morphseek.images.files"}


@contextlib.contextmanager
def plain(kind: str, path: Path, what: str, limit: float) -> Iterator[Path]:
    """Copy a file's content into a plain file, and give that one: for the kind "transform" an
    ``.h5`` as :mod:`morphseek.transforms.h5` writes it, for the kind "image" a ``.mha``. It may
    hold `limit` GiB.

    Raises
    ------
    InputUnreadableError
    """
    size = path.stat().st_size
    # a field is kept several times while it is read and written
    memory = _ALLOWANCE + int(min(limit * 2**30, 8 * _RATIO * size))
    with tempfile.TemporaryDirectory(prefix="morphseek-") as name:
        out = Path(name, "out.h5" if kind == "transform" else "out.mha")
        note = Path(name, "said")
        call = (
            f"import sys; sys.path[:] = sys.argv[6:]; from {_READERS[kind]} import rewrite;"
            " from morphseek import _apart; _apart.main(rewrite)"
        )
        command = [sys.executable, "-I", "-c", call, kind, os.fspath(path.absolute()), str(out),
                   str(note), str(memory), *map(os.path.abspath, sys.path)]  # fmt: skip
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # what threads reserve would count
                env={**os.environ, "MALLOC_ARENA_MAX": "1", _THREADS: "1"},
                timeout=_START + _SECONDS_PER_MB * size / 2**20,
                check=False,
            ).returncode
            reason = note.read_text(encoding="utf-8") if note.exists() else ""
        except subprocess.TimeoutExpired:
            code, reason = 1, "its reader did not come to an end over it; it is damaged"
        if code or reason or not out.exists():
            raise errors.InputUnreadableError(
                f"{what}: {path} cannot be read: {reason or 'its reader crashed; it is damaged'}"
            )
        yield out


def is_possible() -> bool:
    """Whether there is a Python to start: another program's own may not be one."""
    return Path(sys.executable or "").stem.lower().startswith("python")


def main(rewrite: Callable[[Path, Path], None]) -> None:
    """Read a file and write its plain form, or a sentence, within the memory that the caller of
    this process allows.
    """
    path, out, note, memory = sys.argv[2:6]
    from ._engine import core

    core.version()  # the engine's runtime begins on a thread of its own, and needs room for that
    _limit_memory(int(memory))
    try:
        rewrite(Path(path), Path(out))
    except (RuntimeError, OSError, ValueError, MemoryError) as error:
        from ._itk import itk_reason

        reason = "it claims more than it can hold" if _is_memory(error) else itk_reason(error)
        Path(note).write_text(reason or type(error).__name__, encoding="utf-8")


def _is_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "memory" in str(error) or "bad_alloc" in str(error)


def _limit_memory(more: int) -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # where the system has limits
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
