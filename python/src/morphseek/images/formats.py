"""The one table of image files: what is written, which suffixes a name may leave out, and what
comes in two files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Format(NamedTuple):
    """A suffix in lower case."""

    suffix: str
    searched: bool = False
    """A pair list may leave it out."""
    nifti: bool = False
    """NIfTI or Analyze: ITK does not say where voxels are missing, so we count them."""
    others: tuple[str, ...] = ()
    """Suffixes of the files beside a header that may have its voxels."""


PAIRS = (".hdr", ".img", ".hdr.gz", ".img.gz")  # a header and its voxels

#: What keeps a grid's place and directions, and is told when a disk is full: no other is written.
FORMATS = (
    Format(".nii.gz", searched=True, nifti=True),
    Format(".nii", searched=True, nifti=True),
    Format(".nrrd", searched=True),
    Format(".mha", searched=True),
    Format(".mhd", searched=True, others=(".raw", ".zraw")),
    Format(".nhdr", others=(".raw", ".raw.gz")),
    *(Format(suffix, nifti=True, others=PAIRS) for suffix in PAIRS),
)
WRITTEN = tuple(f.suffix for f in FORMATS)
NIFTI = tuple(f.suffix for f in FORMATS if f.nifti)
SEARCHED = tuple(f.suffix for f in FORMATS if f.searched)


def pair_of(path: Path) -> list[Path]:
    """Return what may be a header and its voxels, first those compressed as this file is."""
    match = re.search(r"(?i)\.(?:hdr|img)(\.gz)?$", path.name)
    if match is None:
        return []
    first, second = (PAIRS[2:], PAIRS[:2]) if match[1] else (PAIRS[:2], PAIRS[2:])
    stem, is_upper = path.name[: match.start()], match[0].isupper()
    return [path.with_name(stem + (p.upper() if is_upper else p)) for p in (*first, *second)]
