"""NRRD (.nrrd, .nhdr)."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from .fields import (
    MOST_AXES,
    NO_SPACING,
    Stored,
    Unsound,
    files_of_voxels,
    header_lines,
    integer,
    numbers,
    short,
    sizes_of,
    units_of,
)

_BYTES = {
    **dict.fromkeys(("signed char", "int8", "int8_t", "uchar", "unsigned char", "uint8",
                     "uint8_t"), 1),
    **dict.fromkeys(("short", "short int", "signed short", "signed short int", "int16", "int16_t",
                     "ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"), 2),
    **dict.fromkeys(("int", "signed int", "int32", "int32_t", "uint", "unsigned int", "uint32",
                     "uint32_t", "float"), 4),
    **dict.fromkeys(("longlong", "long long", "long long int", "signed long long",
                     "signed long long int", "int64", "int64_t", "ulonglong", "unsigned long long",
                     "unsigned long long int", "uint64", "uint64_t", "double"), 8),
}  # fmt: skip
_SAME = {
    "axismins": "axis mins", "axismaxs": "axis maxs", "centerings": "centers",
    "lineskip": "line skip", "byteskip": "byte skip", "datafile": "data file",
    "blocksize": "block size", "oldmin": "old min", "oldmax": "old max",
    "sampleunits": "sample units",
}  # fmt: skip
_AXES = ("spacings", "thicknesses", "axis mins", "axis maxs")
_WORDS = ("centers", "kinds")
_IN_SPACE = ("space directions", "space origin", "measurement frame")
_OTHERS = (
    "content", "number", "min", "max", "old min", "old max", "sample units", "space units",
    "labels", "units", "block size",
)  # fmt: skip
_FIELDS = {
    *_AXES, *_WORDS, *_IN_SPACE, *_OTHERS, "type", "dimension", "sizes",
    "space", "space dimension", "endian", "encoding", "line skip", "byte skip", "data file",
}  # fmt: skip
#: Kinds of axes along which voxels lie; the others' are numbers of a voxel.
DOMAINS = ("domain", "space", "time", "none", "???")
#: Spaces that ITK leaves as they are, by the signs to LPS.
_SIGNS = {
    **dict.fromkeys(("right-anterior-superior-time", "rast"), (-1.0, -1.0, 1.0)),
    **dict.fromkeys(("left-anterior-superior-time", "last"), (1.0, -1.0, 1.0)),
}
_LEFT_HANDED = "its space is left-handed and is taken for LPS: it may be mirrored"
_GZIP = ("gzip", "gz")
_RAW = ("raw",)


def parse_nrrd(path: Path) -> Stored | None:
    lines, offset = header_lines(path, lambda line: not line)
    if not lines or not re.fullmatch(r"NRRD000[1-5]", lines[0]):
        raise Unsound("it does not begin as NRRD")
    fields: dict[str, str] = {}
    for line in lines[1:]:
        if not line or line.startswith("#") or re.match(r"[^:]*:=", line):
            continue
        field, colon, text = line.partition(": ")
        field = _SAME.get(field.strip().lower(), field.strip().lower())
        if not colon or field not in _FIELDS:
            raise Unsound(f"its header has the line {short(line)}, which sets no field of NRRD")
        if field in fields:
            raise Unsound(f"its header has {field!r} twice")
        if "dimension" not in fields and field in ("sizes", *_AXES, *_WORDS):
            raise Unsound(f"its header has {field!r} before 'dimension'")
        if field in _IN_SPACE and not {"space", "space dimension"} & fields.keys():
            raise Unsound(f"its header has {field!r} before 'space'")
        fields[field] = text.strip()
        if field == "data file" and fields[field].startswith("LIST"):
            break
    for field in ("type", "dimension", "sizes", "encoding"):
        if not fields.get(field):
            raise Unsound(f"its header lacks {field!r}")
    axes = integer("dimension", fields["dimension"], 1, MOST_AXES)
    sizes = sizes_of("sizes", fields["sizes"], axes)
    for field in _AXES:
        if field in fields:
            numbers(field, fields[field], axes, unknown=True)
    for field in _WORDS:
        if field in fields and len(fields[field].split()) != axes:
            raise Unsound(f"{field!r} has {len(fields[field].split())} words; it needs {axes}")
    _check_space(fields, axes)
    bits = _BYTES.get(fields["type"].lower())
    if bits is None:
        raise Unsound(f"its type is {short(fields['type'])}, which is no type of voxels")
    encoding = fields["encoding"].lower()
    lines_skipped = integer("line skip", fields.get("line skip", "0"), 0, 2**31)
    skip = integer("byte skip", fields.get("byte skip", "0"), -1, 2**62)
    if encoding not in (*_RAW, *_GZIP):
        bits = 1  # text, and what the reader may not know
        if encoding not in ("txt", "text", "ascii", "hex"):
            raise Unsound(f"its encoding is {short(encoding)}; write it anew as raw or gzip")
    elif bits > 1 and fields.get("endian", "").lower() not in ("little", "big"):
        raise Unsound("its header does not say 'endian', little or big")
    attached = "data file" not in fields
    if encoding in _GZIP and (skip or lines_skipped):
        raise Unsound("its header skips a part of a compressed stream; write it anew without")
    return Stored(
        [path]
        if attached
        else [path.parent / file for file in files_of_voxels(path) if file != "LOCAL"],
        (offset if attached else 0) + max(skip, 0),
        math.prod(sizes) * bits,
        "gzip" if encoding in _GZIP else "",
        bits if fields.get("endian", "").lower() == "big" else 1,
        *_place(fields, sizes),
        is_all=encoding in _RAW and not (attached or lines_skipped or skip < 0),
    )


def _place(
    fields: dict[str, str], sizes: list[int]
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """Return what the header leaves in doubt, and the spacings and units that ITK passes over."""
    axes = len(sizes)
    kinds = fields.get("kinds", "domain " * axes).lower().split()
    own = [k for k in range(axes) if kinds[k] in DOMAINS][:3]
    if "space directions" in fields:
        units, doubts = units_of(_quoted(fields, "space units", 3)[:3])
        space = fields.get("space", "").lower()
        if signs := _SIGNS.get(space):
            units = tuple(np.multiply(signs, units or 1.0).tolist())
        if space.startswith(("3d-left-handed", "3dlh")):
            doubts = (*doubts, _LEFT_HANDED)
        return doubts, (), units
    spacings, lows, highs = (
        numbers(field, fields.get(field, "nan " * axes), axes, unknown=True)
        for field in ("spacings", "axis mins", "axis maxs")
    )
    if {"space", "space dimension"} & fields.keys():  # ITK passes over the ends, and the origin
        lows = [math.nan] * axes
    steps = []
    for k in own:
        node = fields.get("centers", "cell " * axes).lower().split()[k] == "node"
        step = (highs[k] - lows[k]) / max(sizes[k] - node, 1)  # as ITK takes the origin
        steps.append(1.0 if math.isfinite(spacings[k]) else step or math.nan)
    words = _quoted(fields, "units", axes)
    known = [math.isfinite(step) for step in steps]
    units, doubts = units_of([words[k] if there else "" for k, there in zip(own, known)])
    if not all(known):
        doubts = (*doubts, NO_SPACING)
    steps = [step if there else 1.0 for step, there in zip(steps, known)]
    return doubts, () if set(steps) == {1.0} else tuple(steps), units


def _quoted(fields: dict[str, str], field: str, count: int) -> list[str]:
    """Return the words of a field in quotation marks, at least so many."""
    return [*re.findall(r'"((?:[^"\\]|\\.)*)"', fields.get(field, "")), *[""] * count]


def _check_space(fields: dict[str, str], axes: int) -> None:
    """See that the vectors of a grid are as many and as long as they must be."""
    space = fields.get("space", "").lower()
    if "space dimension" in fields:
        length = integer("space dimension", fields["space dimension"], 1, MOST_AXES)
    else:
        length = 4 if space.endswith("-time") or len(space) == 4 else 3
    for field, count in (("space directions", axes), ("space origin", 1),
                         ("measurement frame", length)):  # fmt: skip
        if field not in fields:
            continue
        vectors = re.findall(r"\([^()]*\)|[^\s()]+", fields[field])
        if len(vectors) != count:
            raise Unsound(f"{field!r} has {len(vectors)} vectors; it needs {count}")
        for vector in vectors:
            if vector.startswith("("):
                numbers(field, vector[1:-1].replace(",", " "), length)
            elif vector.lower() != "none" or count == 1:
                raise Unsound(f"{field!r} has {short(vector)}, which is no vector")
