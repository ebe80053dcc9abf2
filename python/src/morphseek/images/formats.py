"""The one table of image files: what is written, and what comes in two files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

PAIRS = (".hdr", ".img", ".hdr.gz", ".img.gz")  # a header and its voxels
#: What a pair list may leave out.
SEARCHED = (".nii.gz", ".nii", ".nrrd", ".mha", ".mhd")
#: NIfTI or Analyze: ITK does not say where voxels are missing, so we count them.
NIFTI = (".nii.gz", ".nii", *PAIRS)
#: By the suffix of a header those of the files beside it that may have its voxels.
BESIDE: dict[str, tuple[str, ...]] = {
    ".mhd": (".raw", ".zraw"), ".nhdr": (".raw", ".raw.gz"), **dict.fromkeys(PAIRS, PAIRS)
}  # fmt: skip
#: What keeps a grid's place and directions, and is told when a disk is full: no other is written.
WRITTEN = tuple(dict.fromkeys((*SEARCHED, *BESIDE)))


def ending_of(path: str | os.PathLike[str], endings: Iterable[str]) -> str:
    """Return the first of several endings that a name has; empty where it has none."""
    return next((ending for ending in endings if os.fspath(path).lower().endswith(ending)), "")


def pair_of(path: Path) -> list[Path]:
    """Return what may be a header and its voxels, first those compressed as this file is."""
    match = re.search(r"(?i)\.(?:hdr|img)(\.gz)?$", path.name)
    if match is None:
        return []
    first, second = (PAIRS[2:], PAIRS[:2]) if match[1] else (PAIRS[:2], PAIRS[2:])
    stem, is_upper = path.name[: match.start()], match[0].isupper()
    return [path.with_name(stem + (p.upper() if is_upper else p)) for p in (*first, *second)]
