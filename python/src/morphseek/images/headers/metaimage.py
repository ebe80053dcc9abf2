"""MetaImage (.mha, .mhd)."""

from __future__ import annotations

import math
import re
from pathlib import Path

from ..sidecars import SERIES
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
    "MET_CHAR": 1, "MET_UCHAR": 1, "MET_SHORT": 2, "MET_USHORT": 2, "MET_INT": 4, "MET_UINT": 4,
    "MET_LONG": 4, "MET_ULONG": 4, "MET_LONG_LONG": 8, "MET_ULONG_LONG": 8, "MET_FLOAT": 4,
    "MET_DOUBLE": 8,
}  # fmt: skip
_VECTORS = ("ElementSpacing", "ElementSize", "Offset", "Origin", "Position", "CenterOfRotation")
_MATRICES = ("TransformMatrix", "Rotation", "Orientation")
_YES_NO = ("BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB", "CompressedData")


def parse_metaimage(path: Path) -> Stored | None:
    fields: dict[str, str] = {}
    lines, offset = header_lines(path, lambda line: line.startswith("ElementDataFile"))
    for line in lines:
        field, equals, text = (part.strip() for part in line.partition("="))
        if not line.strip():
            continue
        if not equals or not field:
            raise Unsound(f"its header has the line {short(line)}, which sets no field")
        if field in fields:
            raise Unsound(f"its header has {short(field)} twice")
        if "NDims" not in fields and field in ("DimSize", *_VECTORS, *_MATRICES):
            raise Unsound(f"its header has {field} before NDims")
        fields[field] = text
    for field in ("NDims", "DimSize", "ElementType", "ElementDataFile"):
        if not fields.get(field):
            raise Unsound(f"its header lacks {field}")
    axes = integer("NDims", fields["NDims"], 1, MOST_AXES)
    sizes = sizes_of("DimSize", fields["DimSize"], axes)
    for names, count in ((_VECTORS, axes), (_MATRICES, axes * axes)):
        for field in names:
            if field in fields:
                numbers(field, fields[field], count)
    for field in _YES_NO:
        if fields.get(field, "0").lower() not in ("true", "false", "1", "0"):
            raise Unsound(f"{field} is {short(fields[field])}; it must be True or False")
    yes = {field for field in _YES_NO if fields.get(field, "").lower() in ("true", "1")}
    bits = _BYTES.get(fields["ElementType"])
    if bits is None:
        raise Unsound(f"ElementType is {short(fields['ElementType'])}, which is no type of voxels")
    channels = integer(
        "ElementNumberOfChannels", fields.get("ElementNumberOfChannels", "1"), 1, 1 << 16
    )
    skip = integer("HeaderSize", fields.get("HeaderSize", "0"), -1, 2**62)
    packed = "CompressedData" in yes
    local = fields["ElementDataFile"].upper() == "LOCAL"
    if packed:
        length = integer("CompressedDataSize", fields.get("CompressedDataSize", "0"), 0, 2**62)
        if local and not length:  # ITK would unpack the header with the voxels
            raise Unsound("its header lacks CompressedDataSize")
    voxels = math.prod(sizes) * channels
    if is_text := "BinaryData" in fields and "BinaryData" not in yes:
        bits = 1  # text: a digit and a space, at least
    has_spacing = {"ElementSpacing", "ElementSize"} & fields.keys()
    units, doubts = units_of([fields.get("DistanceUnits", "")] * min(axes, 3))
    msb = bool(yes & {"BinaryDataByteOrderMSB", "ElementByteOrderMSB"})
    return Stored(
        [path] if local else _files(path, fields["ElementDataFile"], sizes),
        (offset if local else 0) + max(skip, 0) * (not local),
        voxels * bits,
        "zlib" if packed else "",
        bits if msb else 1,
        doubts if has_spacing else (NO_SPACING,),
        units=units if has_spacing else (),
        is_all=not (local or packed or is_text or skip < 0),
    )


def _files(path: Path, text: str, sizes: list[int]) -> list[Path]:
    """Return the files of voxels: as many as the sizes say, which ITK does not count."""
    names, axes = files_of_voxels(path), len(sizes)
    if text.startswith("LIST"):
        match = re.fullmatch(r"LIST(?: +(\d))?", text)
        own = match and (int(match[1] or 0) or axes - 1)
        if not own or own >= axes:
            raise Unsound(
                f"ElementDataFile is {short(text)}; write LIST and the axes of each file, fewer"
                f" than {axes}, and rename a file of such a name"
            )
    elif "%" in text:
        series, own = SERIES.fullmatch(text), axes - 1
        if not series or series[5] or int(series[4]) < 1:
            raise Unsound(
                f"ElementDataFile is {short(text)}; write a pattern with %d, the first number, the"
                " last one and a step of 1 or more, or list the files after LIST"
            )
    else:
        own = axes
    count = math.prod(sizes[own:])
    if len(names) != count:
        raise Unsound(
            f"ElementDataFile is {short(text)} and names {len(names)} files, and a DimSize of"
            f" {' '.join(map(str, sizes))} needs {count}; name one for each part of {own} axes"
        )
    return [path.parent / name for name in names]
