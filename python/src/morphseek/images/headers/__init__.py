"""Headers of MetaImage, NRRD and NIfTI, checked before a reader sees the file.

ITK's readers believe what a header says: they end the process over some, allocate what others
claim, and pass over a compressed stream's checksum. Here a header is read strictly, what it claims
is compared with what the file can hold, and the voxels with the checksum.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ... import errors
from ..._apart import RATIO
from ..._files import check_regular
from ..formats import NIFTI, ending_of, pair_of
from .fields import CutShort, Stored, Unsound
from .metaimage import parse_metaimage
from .nifti import parse_nifti
from .nrrd import parse_nrrd
from .stream import check_voxels

__all__ = ["Stored", "check_header", "check_voxels", "limit", "sound"]

LIMIT = "MORPHSEEK_INPUT_LIMIT_GB"  # the environment variable
_DEFAULT_LIMIT_GB = 64.0
_PARSERS: dict[tuple[str, ...], Callable[[Path], Stored | None]] = {
    (".mha", ".mhd"): parse_metaimage,
    (".nrrd", ".nhdr"): parse_nrrd,
    NIFTI: parse_nifti,
}


def check_header(path: Path, name: str) -> Stored | None:
    """Refuse an unsound header, or a claim beyond the file; None of formats unknown here."""
    for file in (path, *pair_of(path)):
        check_regular(file, name)
    parse = next((parse for endings, parse in _PARSERS.items() if ending_of(path, endings)), None)
    if parse is None:
        return None
    with sound(path, name):
        stored = parse(path)
        if stored is not None:
            _check_claim(stored, name)
            return _doubted(stored)
        return stored


@contextlib.contextmanager
def sound(path: Path, name: str) -> Iterator[None]:
    """Turn what is wrong with a file into our error, which names it."""
    try:
        yield
    except CutShort as error:
        raise errors.InputUnreadableError(f"{name}: {error}") from None
    except Unsound as error:
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read as an image: {error}"
        ) from None


def _check_claim(stored: Stored, name: str) -> None:
    for file in stored.files:
        if not file.exists():
            raise Unsound(f"its voxels are in {file.name}, which is not there")
        check_regular(file, name)
        if file.is_dir():
            raise Unsound(f"its voxels are in {file.name}, which is a folder")
    if not stored.files:
        raise Unsound("its header names no file that has its voxels")
    there = sum(file.stat().st_size for file in stored.files) - stored.offset
    if stored.packed and stored.size > RATIO * (there + 1):
        raise Unsound(
            f"its header claims {stored.size} bytes of voxels, more than the {there} compressed"
            " ones can hold; copy it again"
        )
    for file in () if stored.packed else stored.files:
        if file.stat().st_size < stored.needed:
            raise CutShort(file, file.stat().st_size, stored.needed)
    most = limit()
    if stored.size > most * 2**30:
        raise Unsound(
            f"its header claims {stored.size / 2**30:.0f} GiB of voxels, more than {most:g} GiB;"
            f" set {LIMIT} to read more"
        )


def _doubted(stored: Stored) -> Stored:
    """Add the doubt of a header, often written by hand, that passes over a part of its file."""
    for file in stored.files if stored.is_all else ():
        if file.stat().st_size > stored.needed:
            doubt = (
                f"{file.name} holds {file.stat().st_size - stored.needed} more bytes than its"
                " header says: its size, its type or the number of bytes before the voxels is wrong"
            )
            return stored._replace(doubts=(*stored.doubts, doubt))
    return stored


def limit() -> float:
    """Return how many GiB a file may claim."""
    try:
        most = float(os.environ.get(LIMIT) or _DEFAULT_LIMIT_GB)
        if most > 0:  # false for NaN
            return most
        raise ValueError
    except ValueError:
        raise errors.InvalidArgumentError(
            f"{LIMIT} is {os.environ[LIMIT]!r}; it must be a number of GiB"
        ) from None
