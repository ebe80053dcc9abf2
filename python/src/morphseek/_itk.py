"""Helpers of the readers and writers of ITK's formats."""

from __future__ import annotations

import contextlib
import ctypes
import locale
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import SimpleITK as sitk

# ITK's HDF5 is not made for threads, and SimpleITK runs it outside Python's lock
hdf5_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a forked process would wait for a thread that it lacks
    os.register_at_fork(
        before=hdf5_lock.acquire,
        after_in_parent=hdf5_lock.release,
        after_in_child=hdf5_lock.release,
    )


NO_TRANSFORM = "it is cut short, damaged, or no transform"


def itk_reason(error: Exception) -> str:
    """Return what an ITK exception says, without the source lines before it."""
    if isinstance(error, UnicodeDecodeError):  # SimpleITK's message quotes the file
        return "it is cut short, or damaged"
    text = re.split(r"(?:ITK |itk::|sitk::)\s?ERROR: ", str(error).strip())[-1]
    text = re.sub(r"(?m)^.*\.[cht](?:xx|pp)?:\d+: *$", "", text)
    if text.startswith("Unable to determine ImageIO reader"):
        return "its format is none that ITK knows; convert it to .nii.gz, .nrrd or .mha"
    if text.startswith("Unknown PixelType"):  # two numbers a pixel
        return "its pixels are of a kind that no reader here knows; save it in plain grey"
    # ITK blames the suffix, or tells addresses
    if "Could not create Transform IO" in text or "failed to read file" in text:
        return NO_TRANSFORM
    return " ".join(re.sub(r"\w+ ?\(0x[0-9A-Fa-f]+\):? ?", "", text).split())


@contextlib.contextmanager
def itk_io() -> Iterator[None]:
    """Have ITK read and write numbers with a decimal point, and keep its warnings to itself."""
    with _plain_numbers(), _without_warnings():
        yield


_busy, _shown = 0, True
_display_lock = threading.Lock()


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Switch ITK's warnings off, which are the process's, until the last thread is out."""
    global _busy, _shown
    process = sitk.ProcessObject
    with _display_lock:
        if _busy == 0:
            _shown = process.GetGlobalWarningDisplay()
            process.SetGlobalWarningDisplay(False)
        _busy += 1
    try:
        yield
    finally:
        with _display_lock:
            _busy -= 1
            if _busy == 0:
                process.SetGlobalWarningDisplay(_shown)


@contextlib.contextmanager
def _plain_numbers() -> Iterator[None]:
    """Give this thread the decimal point: hosts set a comma, and ITK then reads 1.5 as 1."""
    if locale.localeconv()["decimal_point"] == ".":
        yield
        return
    with _windows_numbers() if sys.platform == "win32" else _posix_numbers():
        yield


@contextlib.contextmanager
def _windows_numbers() -> Iterator[None]:
    library: Any = ctypes.CDLL("ucrtbase")
    library.setlocale.restype = ctypes.c_char_p
    kind = library._configthreadlocale(_OF_THREAD)
    own = library.setlocale(locale.LC_NUMERIC, None)
    library.setlocale(locale.LC_NUMERIC, b"C")
    try:
        yield
    finally:
        library.setlocale(locale.LC_NUMERIC, own)
        library._configthreadlocale(kind)


@contextlib.contextmanager
def _posix_numbers() -> Iterator[None]:
    library: Any = ctypes.CDLL(None)
    for function in (library.newlocale, library.duplocale, library.uselocale):
        function.restype = ctypes.c_void_p
    mask = 1 << (_MACOS_NUMBERS if sys.platform == "darwin" else locale.LC_NUMERIC)
    own = library.duplocale(ctypes.c_void_p(_GLOBAL_LOCALE))
    plain = library.newlocale(mask, b"C", ctypes.c_void_p(own))
    before = library.uselocale(ctypes.c_void_p(plain))
    try:
        yield
    finally:
        library.uselocale(ctypes.c_void_p(before))
        library.freelocale(ctypes.c_void_p(plain))


_OF_THREAD = 1  # _ENABLE_PER_THREAD_LOCALE
_GLOBAL_LOCALE = -1  # LC_GLOBAL_LOCALE
_MACOS_NUMBERS = 4  # LC_NUMERIC_MASK is 1 << 4 there

# which ITK gives to one library
HDF5 = (".h5", ".hdf5", ".hdf", ".he5", ".hd5", ".hdf4", ".he2", ".he4", ".h4", ".hd4")


@contextlib.contextmanager
def to_read(path: Path, others: Sequence[Path] = ()) -> Iterator[Path]:
    """Give the name by which ITK can open a file: on Windows, for a name beyond ASCII, a copy's in
    another folder. The file knows ``others``, which the image is in besides, by name.
    """
    if _opens(path):
        with itk_io():
            yield path
        return
    with _plain_folder() as folder, itk_io():
        copy = folder / (path.name if others else _plain(path))
        for source, target in ((path, copy), *((p, folder / p.name) for p in others)):
            try:
                os.link(source, target)
            except OSError:  # another drive
                shutil.copyfile(source, target)
        yield copy


@contextlib.contextmanager
def to_write(path: Path) -> Iterator[Path]:
    """Give the name by which ITK can write a file, and move what it wrote to its place."""
    if _opens(path):
        with itk_io():
            yield path
        return
    with _plain_folder() as folder, itk_io():
        own = folder / _plain(path)
        yield own
        for file in folder.iterdir():
            shutil.move(file, path if file == own else path.parent / file.name)


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
