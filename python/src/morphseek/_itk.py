"""What readers and writers of ITK's formats share."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

# ITK's HDF5 is not made for threads, and SimpleITK runs it outside Python's lock
hdf5_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a forked process would wait for a thread that it lacks
    os.register_at_fork(
        before=hdf5_lock.acquire,
        after_in_parent=hdf5_lock.release,
        after_in_child=hdf5_lock.release,
    )


def itk_reason(error: Exception) -> str:
    """Return what an ITK exception says, without the source lines before it."""
    text = re.split(r"(?:ITK|sitk::)\s?ERROR: ", str(error).strip())[-1]
    if text.startswith("Unable to determine ImageIO reader"):
        return "its format is none that ITK knows; convert it to .nii.gz, .nrrd or .mha"
    return " ".join(text.split())


# which ITK gives to one library
HDF5 = (".h5", ".hdf5", ".hdf", ".he5", ".hd5", ".hdf4", ".he2", ".he4", ".h4", ".hd4")


@contextlib.contextmanager
def to_read(path: Path, others: Sequence[Path] = ()) -> Iterator[Path]:
    """Give the name by which ITK can open a file. On Windows most of its formats open no name with
    a letter beyond ASCII, in the folder's name or the file's: there it is a copy's, elsewhere.

    Parameters
    ----------
    path : Path
        The file.
    others : sequence of Path
        What else the image is in; the file knows them by name.
    """
    if _opens(path):
        yield path
        return
    with _plain_folder() as folder:
        copy = folder / (path.name if others else _plain(path))
        for source, target in ((path, copy), *((p, folder / p.name) for p in others)):
            try:
                os.link(source, target)
            except OSError:  # another drive
                shutil.copyfile(source, target)
        yield copy


@contextlib.contextmanager
def to_write(path: Path) -> Iterator[Path]:
    """Give the name by which ITK can write a file; what is there when the block ends well goes to
    where it belongs.
    """
    if _opens(path):
        yield path
        return
    with _plain_folder() as folder:
        own = folder / _plain(path)
        yield own
        for made in folder.iterdir():
            shutil.move(made, path if made == own else path.parent / made.name)


def _opens(path: Path) -> bool:
    return sys.platform != "win32" or str(path).isascii()


def _plain(path: Path) -> str:
    """Return a name in ASCII that says the same format."""
    return path.name if path.name.isascii() else "image" + "".join(path.suffixes[-2:])


@contextlib.contextmanager
def _plain_folder() -> Iterator[Path]:
    """Give a folder for a moment, with a name in ASCII: the usual one has the user's name in it."""
    places = (tempfile.gettempdir(), os.environ.get("PUBLIC"), os.environ.get("PROGRAMDATA"))
    for place in places:
        if place and place.isascii() and os.access(place, os.W_OK):
            with tempfile.TemporaryDirectory(prefix="morphseek-", dir=place) as folder:
                yield Path(folder)
            return
    raise OSError(None, "its name has letters beyond ASCII; set TEMP to a folder without them")
