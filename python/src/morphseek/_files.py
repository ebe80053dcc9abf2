"""The one way to write files: in a temporary folder, then moved to their place, all or none."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import _json, _manifest, _staging, errors
from ._interrupts import SignalDelay
from ._itk import itk_reason
from ._regular import check_regular as check_regular, special
from ._staging import settle as settle


def check_path(path: Path, name: str, error: type[errors.MorphSeekError]) -> None:
    """Refuse a path that is not UTF-8: SimpleITK would end the process."""
    try:
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError:
        reason = "is no valid UTF-8; rename it"
        with contextlib.suppress(UnicodeError):
            os.fsencode(path).decode("utf-8")
            reason = (
                f"is UTF-8, and this process reads names as {sys.getfilesystemencoding()}; set"
                " PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8"
            )
        raise error(f"{name}: the path {os.fsencode(path)!r} {reason}") from None


@contextlib.contextmanager
def readable(path: Path, name: str, foreign: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """See that a file or folder is there, and name it in what the system says of it, and a library
    by `foreign` exceptions.
    """
    check_path(path, name, errors.InputUnreadableError)
    try:
        check_regular(path, name)
        if not path.exists():
            raise errors.InputUnreadableError(f"{name}: {path} does not exist; check the path")
        yield
    except errors.MorphSeekError:
        raise
    except foreign as error:
        reason = " ".join(str(error).split())
        raise errors.InputUnreadableError(f"{name}: {path} cannot be read: {reason}") from None
    except OSError as error:
        reason = error.strerror or "it is cut short"
        raise errors.InputUnreadableError(f"{name}: {path} cannot be read: {reason}") from None


def stamp(paths: Iterable[Path]) -> list[tuple[str, int, int, int]]:
    """Return path, inode, size and time of each file that is there: by them a change is noticed."""
    stamps = []
    for path in paths:
        with contextlib.suppress(OSError):
            state = os.stat(path)
            stamps.append((str(path), state.st_ino, state.st_size, state.st_mtime_ns))
    return stamps


def check_unchanged(before: list[tuple[str, int, int, int]], name: str) -> None:
    """See that files are what they were when they were stamped."""
    for was, now in zip(before, [stamp([Path(path)]) for path, *_ in before]):
        if now != [was]:
            raise errors.InputUnreadableError(
                f"{name}: {was[0]} was changed or removed while it was in use; run it again when"
                " nobody writes to it"
            )


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8."""
    write_with(lambda temporary: temporary.write_text(text, encoding="utf-8"), path)


def write_seal(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result's JSON file, with the sizes and checksums of all files that lie beside it."""
    entries = {file.name: _manifest.entry(file) for file in sorted(path.parent.iterdir())}
    write_text(path, json.dumps({**content, _manifest.KEY: entries}, indent=1) + "\n")


def read_seal(path: Path, what: str) -> dict[str, Any]:
    """Return the content of a file of :func:`write_seal`; refuse it where its files changed."""
    settle(path.parent)
    content = _json.read(path, what, _json.MOST_RESULT_BYTES)
    with _json.understood(f"{path} is not a {what}'s"):
        entries = dict(content[_manifest.KEY])
        _manifest.check(path.parent, entries, list(entries), what)
        return dict(content)


def write_with(write: Callable[[Path], Any], path: str | os.PathLike[str]) -> None:
    """Write a file by a function of its temporary place; what it raises becomes our errors."""
    with replacing(path) as temporary:
        try:
            write(temporary)
        except (RuntimeError, OSError) as error:
            raise output_error(error, path) from None


def reserve(path: Path, size: int) -> None:
    """See that the disk takes size bytes: ITK's text writer would say nothing, HDF5 crash."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    elif shutil.disk_usage(path.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class BusyError(errors.OutputUnwritableError):
    """Another call writes to a folder."""


def output_error(error: Exception, path: str | os.PathLike[str]) -> errors.MorphSeekError:
    """Return the error of ours for a file that could not be written."""
    staged = next((p for p in Path(path).parents if p.name.startswith(_staging.PREFIX)), None)
    if staged is not None:  # the name of the final file says more
        path = staged.parent / Path(path).name
    folder = Path(path).parent
    number = getattr(error, "errno", None)
    full = number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if number in (None, errno.EIO):  # ITK does not report it
        with contextlib.suppress(OSError):  # the system cannot look up a name that is too long
            usage = shutil.disk_usage(folder) if folder.is_dir() else None
            # files in /proc have no size
            full = full or usage is not None and usage.total > 0 and usage.free < 1 << 16
    if full:
        return errors.DiskFullError(
            f"{path}: the disk is full; free some space or choose another folder"
        )
    if staged is not None and not staged.exists():
        return errors.OutputUnwritableError(
            f"{path} cannot be written: somebody removed {folder}, or what was in it, meanwhile;"
            " start again"
        )
    if isinstance(error, FileNotFoundError) and not folder.exists():
        return errors.OutputUnwritableError(
            f"{path} cannot be written: there is no folder {folder}; make it first"
        )
    return errors.OutputUnwritableError(f"{path} cannot be written: {itk_reason(error)}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary place for a file, which becomes ``path`` when the block ends well; so does
    that of the voxels, which its header names (.mhd, .nhdr, .hdr).
    """
    path = Path(path)
    check_path(path, "output", errors.OutputUnwritableError)
    check_places(path.parent, [path.name])
    settle(path.parent)
    with together(path.parent, seal=path.name) as temporary:
        yield temporary / path.name
        if not (temporary / path.name).exists():
            others = ", ".join(sorted(file.name for file in temporary.iterdir()))
            raise errors.OutputUnwritableError(
                f"{path} cannot be written under that name (ITK makes {others} of it); write its"
                " ending in lower case"
            )


@contextlib.contextmanager
def output_folder(
    folder: str | os.PathLike[str],
    known: Collection[str] = (),
    seal: str = "",
    ours: Collection[str] = (),
    patience: float = 1.0,
) -> Iterator[Path]:
    """Give an empty folder to write to; its files appear in ``folder`` together when the block ends
    well, or not at all. Nobody else writes there meanwhile; ``patience`` is how many seconds to
    wait for them. A folder that was made is removed again on failure.

    An earlier run's files whose names match the patterns ``known``, and the files ``ours``, are
    removed where the block wrote others. ``seal`` is the file that lists them: the last one to
    come, the first one to go; without it nothing is known of an earlier run.
    """
    folder = Path(folder)
    check_path(folder, "output", errors.OutputUnwritableError)
    parents: list[Path] = []
    try:
        with contextlib.ExitStack() as stack:
            with SignalDelay() as signals:  # Ctrl-C waits until the clean-up is in place
                try:
                    parents = [p for p in (folder, *folder.parents) if not p.exists()]
                    folder.mkdir(parents=True, exist_ok=True)
                except (FileExistsError, NotADirectoryError):
                    file = next((p for p in (folder, *folder.parents) if p.is_file()), folder)
                    raise errors.OutputUnwritableError(
                        f"output: {folder} cannot be written: {file} is a file; results go to a"
                        " folder, choose another name"
                    ) from None
                except OSError as error:
                    raise output_error(error, folder) from None
                stack.enter_context(locked(folder, patience))
                temporary = stack.enter_context(together(folder, known, seal, ours))
            signals.release()
            yield temporary
        parents = []
    finally:
        with contextlib.suppress(OSError):
            for path in parents:
                path.rmdir()


@contextlib.contextmanager
def locked(folder: Path, patience: float = 1.0) -> Iterator[None]:
    """Hold a folder against other writers, waiting ``patience`` s; clear up behind killed ones."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_staging.alone(folder, patience))
            _staging.tidy(folder)
        except _staging.Busy:
            raise BusyError(
                f"output: another call of morphseek is writing to {folder}; wait until it is done,"
                " or choose another folder"
            ) from None
        except OSError as error:
            raise output_error(error, folder / "output") from None
        yield


@contextlib.contextmanager
def together(
    folder: Path, known: Collection[str] = (), seal: str = "", ours: Collection[str] = ()
) -> Iterator[Path]:
    """Give an empty folder as :func:`output_folder` does, inside one that the caller holds."""
    name = seal or "output"
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(_staging.staging(folder))
        except OSError as error:
            raise output_error(error, folder / name) from None
        yield temporary
        try:
            names = (path.name for path in temporary.iterdir())
            new = [file for file in names if not file.startswith(_staging.PREFIX)]
            check_places(folder, new)  # before the first of them takes its place
            if not new:
                return  # and what was there before stays
            new.sort(key=lambda file: (file == seal, file))
            stale = set(ours)
            if seal and known:
                stale |= _manifest.owned(folder, known, seal, new)
            old = [file for file in {*new, *stale} if (folder / file).exists()]
            old.sort(key=lambda file: (file != seal, file))
            _staging.switch(folder, temporary, new, old)
        except OSError as error:
            path = error.filename if folder.exists() else temporary / name
            raise output_error(error, error.filename2 or path or folder) from None


def check_places(folder: Path, names: Iterable[str]) -> None:
    """Refuse files where folders, pipes or devices lie: a new file would take their place."""
    for path in (folder / name for name in names):
        if kind := "a folder" if path.is_dir() else special(path):
            raise errors.OutputUnwritableError(
                f"{path} is {kind}, where a file is to be written; move it away or choose another"
                " place"
            )
