"""Check the kind of a path before it is opened."""

from __future__ import annotations

import os
import stat

from . import errors

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def special(path: str | os.PathLike[str]) -> str:
    """Return what lies there that is neither a file nor a folder; empty where nothing does."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "")
    except (OSError, ValueError):
        return ""


def check_regular(path: str | os.PathLike[str], name: str) -> None:
    """Refuse a pipe, which would be waited for without end, a device, and a link to nothing, as
    git-annex leaves them. What is not there passes; opening it will tell.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise errors.InputUnreadableError(
            f"{name}: {path} is a link to {os.readlink(path)}, which is not there; fetch the file"
            " (datalad get), or mend the link"
        )
    if kind := special(path):
        raise errors.InputUnreadableError(
            f"{name}: {path} is {kind}, and no regular file; save what it gives to a file first"
        )


def head(path: str | os.PathLike[str], count: int) -> bytes:
    """Return the first bytes of a regular file; none of anything else, or on an error."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(count)
    except (OSError, ValueError):
        return b""
