"""Replace files by others: all of them or none, whatever ends the process.

New files are made in a staging folder beside their place. Several of them change places with the
old ones by a plan that is written first: the old ones go into the staging folder, then the new ones
come. So a folder never shows files of two runs side by side, and whoever finds a plan of a process
that is gone carries it out. ``engine/RATIONALE.md``, "Results on disk", has the reasons.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import _json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

PREFIX = ".morphseek-"  # of all that lies beside results for a while
_PLAN = ".plan"  # in a staging folder: what takes the place of what
_OLD = ".old"  # in a staging folder: what was there before
_LOCK = f"{PREFIX}lock"  # in a folder that is written to, on Windows alone

_OTHERS_AGE = 86400.0  # seconds after which a staging folder whose lock says nothing is left over
_PLAN_AGE = 60.0  # the same with a plan in it, which is carried out within milliseconds


@functools.cache
def staging_prefix() -> str:
    """Return how the names of this host's staging folders begin: locks do not reach other hosts."""
    import socket

    return f"{PREFIX}{socket.gethostname()}-"


class Busy(OSError):
    """Another process, or another call of this one, writes to a folder."""


def _lock(folder: Path, wait: bool = False) -> int | None:
    """Return the open lock of a folder; None where the system or file system has none."""
    if fcntl is None:
        return None
    # what others made in the place of a folder may be a pipe, which would be waited for
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise Busy(error.errno, error.strerror, str(folder)) from None
        return None
    return handle


@contextlib.contextmanager
def alone(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a folder's lock; raise :class:`Busy` where others do for ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            handle = _lock(folder) if fcntl is not None else _lock_file(folder)
            break
        except Busy:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)
        except PermissionError:  # a folder that may be written to and not read
            handle = None
            break
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
            if fcntl is None:
                with contextlib.suppress(OSError):  # another process has it open and needs it
                    (folder / _LOCK).unlink()


def _lock_file(folder: Path) -> int:
    """Lock a file in a folder, where folders cannot be locked."""
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError as error:
        os.close(handle)
        raise Busy(error.errno, error.strerror, str(folder)) from None
    return handle


@contextlib.contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Give an empty, locked folder inside ``parent``; it goes at the end, unless it has a plan."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=staging_prefix(), dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = _lock(folder, wait=True)
            if folder.exists():
                break
            if handle is not None:  # another process removed it as left over before it was locked
                os.close(handle)
    try:
        yield folder
    finally:
        if not (folder / _PLAN).exists():
            shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def switch(folder: Path, temporary: Path, new: Sequence[str], old: Sequence[str]) -> None:
    """Move new files out of a staging folder, in that order, and old ones in; undo on failure."""
    if len(new) == 1 and set(old) <= set(new):  # the system does that in one step
        os.replace(temporary / new[0], folder / new[0])
        return
    draft = temporary / f"{_PLAN}-draft"
    draft.write_text(json.dumps({"new": list(new), "old": list(old)}), encoding="utf-8")
    (temporary / _OLD).mkdir()
    os.replace(draft, temporary / _PLAN)
    try:
        _carry_out(folder, temporary, new, old)
    except BaseException:
        _undo(folder, temporary, new, old)
        raise


def _carry_out(folder: Path, temporary: Path, new: Sequence[str], old: Sequence[str]) -> None:
    """Move the files that a plan still has, then remove the plan."""
    for name in old:
        # a new file that has left the staging folder is the one that lies there
        if (name not in new or (temporary / name).exists()) and (folder / name).exists():
            os.replace(folder / name, temporary / _OLD / name)
    for name in new:
        if (temporary / name).exists():
            os.replace(temporary / name, folder / name)
    (temporary / _PLAN).unlink()


def _undo(folder: Path, temporary: Path, new: Sequence[str], old: Sequence[str]) -> None:
    """Take a plan back, unless it was carried out; the next call carries out what remains."""
    with contextlib.suppress(OSError):
        if not (temporary / _PLAN).exists():
            return
        for name in reversed(new):
            if not (temporary / name).exists():
                os.replace(folder / name, temporary / name)
        for name in reversed(old):
            if (temporary / _OLD / name).exists():
                os.replace(temporary / _OLD / name, folder / name)
        (temporary / _PLAN).unlink()


def tidy(folder: Path) -> None:
    """Carry out the plans of killed processes in a folder held alone; remove their folders."""
    for path in folder.glob(f"{PREFIX}*"):
        if path.name != _LOCK and path.is_dir() and not path.is_symlink():
            with contextlib.suppress(Busy, FileNotFoundError):
                _tidy(folder, path)


def settle(folder: Path) -> None:
    """Do :func:`tidy` where nobody holds the folder; whoever reads a result calls this first."""
    with contextlib.suppress(OSError):
        if any(name.startswith(PREFIX) for name in os.listdir(folder)):
            with alone(folder):
                tidy(folder)


def _tidy(folder: Path, path: Path) -> None:
    is_near = path.name.rpartition("-")[0] + "-" == staging_prefix()
    handle = _lock(path) if is_near else None
    try:
        planned = (path / _PLAN).exists()
        if handle is None:
            age = time.time() - (path / _PLAN if planned else path).stat().st_mtime
            if age < (_PLAN_AGE if planned else _OTHERS_AGE):
                return
        if planned:
            plan = _read_plan(path / _PLAN)
            if plan is None:
                return
            _carry_out(folder, path, *plan)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        if handle is not None:
            os.close(handle)


def _read_plan(path: Path) -> tuple[list[str], list[str]] | None:
    """Return the new and the old names of a plan; None of what no call of ours wrote."""
    try:
        plan = _json.read(path, "plan")
        new, old = list(plan["new"]), list(plan["old"])
        leads_out = any(n != os.path.basename(n) or n in ("", ".", "..") for n in (*new, *old))
        return None if leads_out else (new, old)
    except (OSError, ValueError, KeyError, TypeError):
        return None
