"""NIfTI and Analyze: one file, or a header and its voxels."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path

from ..formats import PAIRS
from .fields import MOST_NUMBER, Stored, Unsound
from .stream import first_bytes


def parse_nifti(path: Path) -> Stored | None:
    """Of NIfTI the claim alone is checked here; ITK checks the header, and the stream."""
    header, voxels = path, path
    if path.name.lower().endswith(PAIRS):
        stem = re.sub(r"(?i)\.(hdr|img)(\.gz)?$", "", path.name)
        there = [path.with_name(stem + part) for part in PAIRS]
        header, voxels = (
            next((p for p in there if part in p.name[len(stem) :] and p.is_file()), path)
            for part in (".hdr", ".img")
        )
        if header == path == voxels:
            return None
    data, _ = first_bytes(header, 540)
    if len(data) < 348:
        return None
    for order in "<>":
        (length,) = struct.unpack_from(order + "i", data)
        if length in (348, 540) and len(data) >= length:
            break
    else:
        return None
    second = length == 540
    count, *size = struct.unpack_from(
        order + ("8q" if second else "8h"), data, 16 if second else 40
    )
    (bits,) = struct.unpack_from(order + "h", data, 14 if second else 72)
    if not 1 <= count <= 7 or any(n < 1 for n in size[:count]) or bits < 1:
        return None
    _check_places(data, order, second, count)
    _, packed = first_bytes(voxels, 2)
    offset = 0
    if header == voxels and not packed:
        (place,) = struct.unpack_from(
            order + ("q" if second else "f"), data, 168 if second else 108
        )
        offset = int(place) if math.isfinite(place) and 0 <= place < 2**62 else 0
    size_in_bytes = math.prod(size[:count]) * bits // 8
    return Stored([voxels], offset, size_in_bytes, "gzip" if packed else "", 1)


def _check_places(data: bytes, order: str, second: bool, count: int) -> None:
    """See that the numbers that say where voxels lie are numbers, those that are used."""
    real, codes, pixdim, quaternion, rows = (
        ("d", "2i", 104, 352, 400) if second else ("f", "2h", 76, 256, 280)
    )
    q_form, s_form = struct.unpack_from(order + codes, data, 344 if second else 252)
    used = [("pixdim", pixdim, 1 + min(count, 3))]
    used += [("quatern", quaternion, 6)] if q_form > 0 else []
    used += [("srow", rows, 12)] if s_form > 0 else []
    for field, place, numbers in used:
        for number in struct.unpack_from(f"{order}{numbers}{real}", data, place):
            if not abs(number) <= MOST_NUMBER:
                raise Unsound(f"{field} has {number}, which is no number of a grid")
