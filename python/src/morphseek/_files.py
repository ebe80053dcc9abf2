"""The one way in which files are written: in a temporary folder beside their place, and moved there
when they are complete; several together or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import errors
from ._itk import itk_reason

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def check_path(path: Path, name: str, error: type[errors.MorphSeekError]) -> None:
    """Refuse a path that is not UTF-8: SimpleITK would end the process."""
    try:
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError:
        raise error(
            f"{name}: the path {os.fsencode(path)!r} is no valid UTF-8; rename it"
        ) from None


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: str | os.PathLike[str], name: str) -> None:
    """Refuse what is neither a file nor a folder before it is opened: a pipe that nobody writes to
    would be waited for without end. What is not there passes; opening it will tell.
    """
    try:
        kind = _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return
    if kind:
        raise errors.InputUnreadableError(
            f"{name}: {path} is {kind}, and no regular file; save what it gives to a file first"
        )


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8."""
    write_with(lambda temporary: temporary.write_text(text, encoding="utf-8"), path)


def write_array(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an array as ``.npy``."""
    write_with(lambda temporary: np.save(temporary, array), path)


def at_once(*writers: Callable[[], Any]) -> None:
    """Call each in a thread of its own, and wait for all: what they do is mostly outside Python's
    lock. The first one's error is raised.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(writers)) as pool:
        for future in [pool.submit(writer) for writer in writers]:
            future.result()


def write_with(write: Callable[[Path], Any], path: str | os.PathLike[str]) -> None:
    """Write a file by a function of its temporary place; what it raises becomes our errors."""
    with replacing(path) as temporary:
        try:
            write(temporary)
        except (RuntimeError, OSError) as error:
            raise _output_error(error, path) from None


def reserve(path: Path, size: int) -> None:
    """See that the disk takes size bytes: where it does not, ITK's text writer says nothing, and
    HDF5 crashes as the process ends.
    """
    if hasattr(os, "posix_fallocate"):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    elif shutil.disk_usage(path.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _output_error(error: Exception, path: str | os.PathLike[str]) -> errors.MorphSeekError:
    folder = Path(path).parent
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    with contextlib.suppress(OSError):  # of a name that is too long nothing can be asked
        usage = shutil.disk_usage(folder) if folder.is_dir() else None
        # /proc has no size
        full = full or usage is not None and usage.total > 0 and usage.free < 1 << 16
    if full:
        return errors.DiskFullError(
            f"{path}: the disk is full; free some space or choose another folder"
        )
    if isinstance(error, FileNotFoundError) and not folder.exists():
        return errors.OutputUnwritableError(
            f"{path} cannot be written: there is no folder {folder}; make it first"
        )
    return errors.OutputUnwritableError(f"{path} cannot be written: {itk_reason(error)}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary place for a file of that name; the file becomes ``path`` when the block ends
    well and is removed otherwise.

    Where a format has the voxels in a file of their own (.mhd, .nhdr, .hdr), that one comes along,
    under the name that the header says.
    """
    path = Path(path)
    check_path(path, "output", errors.OutputUnwritableError)
    with _staging(path.parent, path.name) as temporary:
        yield temporary / path.name
        if not (temporary / path.name).exists():
            others = ", ".join(sorted(file.name for file in temporary.iterdir()))
            raise errors.OutputUnwritableError(
                f"{path} cannot be written under that name (ITK makes {others} of it); write its"
                " ending in lower case"
            )


@contextlib.contextmanager
def output_folder(
    folder: str | os.PathLike[str], replaced: Collection[str] = (), seal: str = ""
) -> Iterator[Path]:
    """Give an empty folder to write to; its files appear in ``folder`` together when the block ends
    well, or not at all.

    ``folder`` is made if need be, and removed again on failure if it was. Files there called one of
    ``replaced`` belong to what was there before: those that the block did not write are removed
    when it ends well. ``seal`` is the file that says that what was there before is whole: it goes
    before the first new file comes.
    """
    folder = Path(folder)
    check_path(folder, "output", errors.OutputUnwritableError)
    made: list[Path] = []
    try:
        try:
            made = [p for p in (folder, *folder.parents) if not p.exists()]
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise errors.OutputUnwritableError(
                f"output: {folder} is a file; results go to a folder, choose another name"
            ) from None
        except OSError as error:
            raise _output_error(error, folder) from None
        with _staging(folder, "output", replaced, seal) as temporary:
            yield temporary
        made = []
    finally:
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()


@contextlib.contextmanager
def _staging(
    folder: Path, name: str, replaced: Collection[str] = (), seal: str = ""
) -> Iterator[Path]:
    """Give an empty folder inside ``folder``, whose files move up when the block ends well, the one
    called ``name`` last.

    What processes that were killed left there is removed.
    """
    try:
        remove_left(folder)
        temporary, lock = _locked_folder(folder)
    except OSError as error:
        raise _output_error(error, folder / name) from None
    try:
        yield temporary
        new = sorted(temporary.iterdir(), key=lambda p: (p.name == name, p.name))
        for path in new:  # before the first of them takes its place
            if (folder / path.name).is_dir():
                raise errors.OutputUnwritableError(
                    f"{folder / path.name} is a folder, where a file is to be written; move it away"
                    " or choose another place"
                )
        try:
            if seal:
                (folder / seal).unlink(missing_ok=True)
            for path in new:
                os.replace(path, folder / path.name)
        except OSError as error:
            raise _output_error(error, error.filename2 or error.filename or folder) from None
        for stale in set(replaced) - {path.name for path in new}:
            with contextlib.suppress(OSError):
                (folder / stale).unlink()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@functools.cache
def _staging_prefix() -> str:
    """What a staging folder's name begins with. It is locked as long as its process lives, however
    that ends; locks on folders do not reach other hosts, so the name says on which one they
    count.
    """
    import socket

    return f".morphseek-{socket.gethostname()}-"


_OTHERS_AGE = 86400.0  # seconds after which a staging folder whose lock says nothing is left over


def _lock(folder: Path, wait: bool) -> int | None:
    """Return the open lock of a folder; None where another process holds it, or the system has no
    such locks.
    """
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def _locked_folder(parent: Path) -> tuple[Path, int | None]:
    """Make a staging folder and lock it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_staging_prefix(), dir=parent))
        with contextlib.suppress(FileNotFoundError):
            lock = _lock(folder, wait=True)
            if folder.exists():
                return folder, lock
            if lock is not None:  # another process took it for left over before it was locked
                os.close(lock)


def remove_left(folder: Path) -> None:
    """Remove the staging folders that killed processes left in a folder."""
    for staging in folder.glob(".morphseek-*"):
        _remove_if_left(staging)


def _remove_if_left(folder: Path) -> None:
    """Remove a staging folder whose process is gone."""
    with contextlib.suppress(OSError):
        if fcntl is None or folder.name.rpartition("-")[0] + "-" != _staging_prefix():
            if time.time() - folder.stat().st_mtime > _OTHERS_AGE:
                shutil.rmtree(folder, ignore_errors=True)
        elif (lock := _lock(folder, wait=False)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
