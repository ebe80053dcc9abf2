"""Headers of MetaImage, NRRD and NIfTI, checked before a reader sees the file.

ITK's readers believe what a header says: they end the process over some, allocate what others
claim, and pass over a compressed stream's checksum. Here a header is read strictly, what it claims
is compared with what the file can hold, and the voxels with the checksum.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import errors
from .._files import check_regular
from .formats import PAIRS
from .sidecars import data_files

LIMIT = "MORPHSEEK_INPUT_LIMIT_GB"  # the environment variable
_DEFAULT_LIMIT_GB = 64.0
_RATIO = 1032  # deflate packs no denser
_MOST_HEADER = 1 << 24
_MOST_AXES = 5
_MOST_NUMBER = 1e15  # ITK hangs where products of larger ones become infinite


class Stored(NamedTuple):
    """Where the voxels of a file are, and how many bytes they have."""

    files: list[Path]
    offset: int
    size: int
    packed: str
    """"zlib", "gzip" or empty."""
    swapped: int
    """Bytes of a number that is stored in the other order; 1 where nothing is swapped."""


class _Unsound(Exception):
    """What is wrong with a header, in words."""


def check_header(path: Path, name: str) -> Stored | None:
    """See that a header is sound and that the file can hold what it claims; of other formats, and
    of what is only a format's by its name, the reader decides.

    Raises
    ------
    InputUnreadableError
    """
    check_regular(path, name)
    suffix = path.name.lower()
    parse: Callable[[Path], Stored | None]
    if suffix.endswith((".mha", ".mhd")):
        parse = _meta
    elif suffix.endswith((".nrrd", ".nhdr")):
        parse = _nrrd
    elif suffix.endswith((".nii", ".nii.gz", *PAIRS)):
        parse = _nifti
    else:
        return None
    try:
        stored = parse(path)
        if stored is not None:
            _check_claim(stored, name)
        return stored
    except _Unsound as error:
        raise errors.InputUnreadableError(
            f"{name}: {path} cannot be read as an image: {error}"
        ) from None


def _check_claim(stored: Stored, name: str) -> None:
    for file in stored.files:
        if not file.exists():
            raise _Unsound(f"its voxels are in {file.name}, which is not there")
        check_regular(file, name)
        if file.is_dir():
            raise _Unsound(f"its voxels are in {file.name}, which is a folder")
    held = sum(file.stat().st_size for file in stored.files) - stored.offset
    if stored.packed and stored.size > _RATIO * (held + 1):
        raise _Unsound(
            f"its header claims {stored.size} bytes of voxels, more than the {held} compressed"
            " ones can hold; copy it again"
        )
    if not stored.packed and held < stored.size:
        where = stored.files[0] if len(stored.files) == 1 else "its voxels"
        raise errors.InputUnreadableError(
            f"{name}: {where} is cut short: {max(held + stored.offset, 0)} of"
            f" {stored.size + stored.offset} bytes are there; copy it again"
        )
    most = limit()
    if stored.size > most * 2**30:
        raise _Unsound(
            f"its header claims {stored.size / 2**30:.0f} GiB of voxels, more than {most:g} GiB;"
            f" set {LIMIT} to read more"
        )


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


# ---------------------------------------------------------------- the stream


def check_voxels(stored: Stored, voxels: np.ndarray, path: Path, name: str) -> None:
    """See that what was read is what was packed: by the checksum at the stream's end, or else by
    unpacking it again.
    """
    if stored.packed and not _is_whole(stored, voxels):
        try:
            found = _unpack(stored)
            plain = stored.swapped == 1 and voxels.nbytes == stored.size
            if plain and voxels.flags.c_contiguous and found != zlib.adler32(voxels.data):
                raise _Unsound("its voxels are other than those that are compressed")
        except _Unsound as error:
            raise errors.InputUnreadableError(
                f"{name}: {path} is damaged: {error}; copy it again"
            ) from None


def check_stream(stored: Stored, voxels: np.ndarray, path: Path, name: str) -> None:
    """See that a NIfTI's gzip stream ends with the right checksum: where damage makes it run on,
    ITK stops at the last voxel and compares nothing.
    """
    if not stored.packed:
        return
    try:
        checksum, size = struct.unpack("<II", _end(stored.files[0], 8))
        header, _ = _first(stored.files[0], max((size - voxels.nbytes) % 2**32, 1))
        if voxels.flags.c_contiguous:  # of voxels as they are in the file
            content = voxels.reshape(-1).view(np.uint8).data
            if zlib.crc32(content, zlib.crc32(header)) == checksum:
                return
        for _ in _unpacked(stored.files[0], 0):
            pass
    except _Unsound as error:
        raise errors.InputUnreadableError(
            f"{name}: {path} is damaged: {error}; copy it again"
        ) from None


def _is_whole(stored: Stored, voxels: np.ndarray) -> bool:
    """Whether the checksum of what was read is that at the end of the one file."""
    if len(stored.files) != 1 or voxels.nbytes != stored.size or not voxels.flags.c_contiguous:
        return False
    if stored.swapped != 1:
        if voxels.itemsize != stored.swapped:
            return False
        voxels = voxels.byteswap()
    end = _end(stored.files[0], 8)
    content = voxels.reshape(-1).view(np.uint8).data
    if stored.packed == "zlib":
        return zlib.adler32(content) == struct.unpack(">I", end[4:])[0]
    return (zlib.crc32(content), stored.size % 2**32) == struct.unpack("<II", end)


def _end(file: Path, count: int) -> bytes:
    with open(file, "rb") as stream:
        stream.seek(-count, os.SEEK_END)
        return stream.read(count)


def _unpack(stored: Stored) -> int:
    """Return the checksum (Adler-32) of all that is packed."""
    found, offset, checksum = 0, stored.offset, 1
    for file in stored.files:
        for part in _unpacked(file, offset):
            found += len(part)
            checksum = zlib.adler32(part, checksum)
            if found > stored.size:
                raise _Unsound("more voxels are compressed than its header says")
        offset = 0
    if found < stored.size:
        raise _Unsound(f"{found} of {stored.size} bytes of voxels are there")
    return checksum


def _unpacked(file: Path, offset: int) -> Iterator[bytes]:
    """Unpack a file in blocks, with its checksums; gzip may come in several members."""
    with open(file, "rb") as stream:
        stream.seek(offset)
        unpacker = zlib.decompressobj(47)
        members = 0
        block = b""
        try:
            while block := block or stream.read(1 << 18):
                if unpacker.eof:
                    if not block.startswith(b"\x1f\x8b"):
                        break  # what follows does not belong to it
                    unpacker = zlib.decompressobj(47)
                part = unpacker.decompress(block, 1 << 20)
                while part or unpacker.unconsumed_tail:
                    yield part
                    part = unpacker.decompress(unpacker.unconsumed_tail, 1 << 20)
                members += unpacker.eof
                block = unpacker.unused_data
        except zlib.error:
            raise _Unsound("its compressed voxels do not match their checksum") from None
        if not unpacker.eof:
            raise _Unsound("its compressed voxels are cut short")


# ------------------------------------------------------------ parts of headers

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")


def _integer(field: str, text: str, least: int, most: int) -> int:
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or not least <= value <= most:
        raise _Unsound(f"{field} is {_short(text)}; it must be a whole number, {least} to {most}")
    return value


def _numbers(field: str, text: str, count: int, unknown: bool = False) -> list[float]:
    """Return numbers, finite unless ``unknown`` ones may be NaN."""
    words = text.split()
    if len(words) != count:
        raise _Unsound(f"{field} has {len(words)} numbers; it needs {count}")
    for word in words:
        sound = _NUMBER.fullmatch(word) and abs(float(word)) <= _MOST_NUMBER
        if not sound and not (unknown and word.lower().lstrip("+-") == "nan"):
            raise _Unsound(f"{field} has {_short(word)}, which is no number of a grid")
    return [float(word) for word in words]


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:30] + "...")


def _sizes(field: str, text: str, count: int) -> list[int]:
    words = text.split()
    if len(words) != count:
        raise _Unsound(f"{field} has {len(words)} numbers; it needs {count}")
    return [_integer(field, word, 1, 2**31 - 1) for word in words]


def _lines(path: Path, end: Callable[[str], bool]) -> tuple[list[str], int]:
    """Return a header's lines, up to the one that ends it, and how many bytes they are."""
    lines: list[str] = []
    with open(path, "rb") as stream:
        while raw := stream.readline(1 << 16):
            if stream.tell() > _MOST_HEADER or len(raw) == 1 << 16 and lines == []:
                raise _Unsound("its header does not end")
            if b"\0" in raw:
                raise _Unsound("its header is no text")
            lines.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
            if end(lines[-1]):
                return lines, stream.tell()
    return lines, path.stat().st_size


# -------------------------------------------------------------------- MetaImage

_META_BYTES = {
    "MET_CHAR": 1, "MET_UCHAR": 1, "MET_SHORT": 2, "MET_USHORT": 2, "MET_INT": 4, "MET_UINT": 4,
    "MET_LONG": 4, "MET_ULONG": 4, "MET_LONG_LONG": 8, "MET_ULONG_LONG": 8, "MET_FLOAT": 4,
    "MET_DOUBLE": 8,
}  # fmt: skip
_META_VECTORS = ("ElementSpacing", "ElementSize", "Offset", "Origin", "Position",
                 "CenterOfRotation")  # fmt: skip
_META_MATRICES = ("TransformMatrix", "Rotation", "Orientation")
_META_YES_NO = ("BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB", "CompressedData")


def _meta(path: Path) -> Stored | None:
    fields: dict[str, str] = {}
    lines, offset = _lines(path, lambda line: line.startswith("ElementDataFile"))
    for line in lines:
        field, equals, text = (part.strip() for part in line.partition("="))
        if not line.strip():
            continue
        if not equals or not field:
            raise _Unsound(f"its header has the line {_short(line)}, which sets no field")
        if field in fields:
            raise _Unsound(f"its header has {_short(field)} twice")
        if "NDims" not in fields and field in ("DimSize", *_META_VECTORS, *_META_MATRICES):
            raise _Unsound(f"its header has {field} before NDims")
        fields[field] = text
    for field in ("NDims", "DimSize", "ElementType", "ElementDataFile"):
        if not fields.get(field):
            raise _Unsound(f"its header lacks {field}")
    axes = _integer("NDims", fields["NDims"], 1, _MOST_AXES)
    sizes = _sizes("DimSize", fields["DimSize"], axes)
    for names, count in ((_META_VECTORS, axes), (_META_MATRICES, axes * axes)):
        for field in names:
            if field in fields:
                _numbers(field, fields[field], count)
    for field in _META_YES_NO:
        if fields.get(field, "0").lower() not in ("true", "false", "1", "0"):
            raise _Unsound(f"{field} is {_short(fields[field])}; it must be True or False")
    yes = {field for field in _META_YES_NO if fields.get(field, "").lower() in ("true", "1")}
    bits = _META_BYTES.get(fields["ElementType"])
    if bits is None:
        raise _Unsound(
            f"ElementType is {_short(fields['ElementType'])}, which is no type of voxels"
        )
    channels = _integer(
        "ElementNumberOfChannels", fields.get("ElementNumberOfChannels", "1"), 1, 1 << 16
    )
    skip = _integer("HeaderSize", fields.get("HeaderSize", "0"), -1, 2**62)
    packed = "CompressedData" in yes
    local = fields["ElementDataFile"].upper() == "LOCAL"
    if packed:
        told = _integer("CompressedDataSize", fields.get("CompressedDataSize", "0"), 0, 2**62)
        if local and not told:  # ITK would unpack the header with the voxels
            raise _Unsound("its header lacks CompressedDataSize")
    voxels = math.prod(sizes) * channels
    if "BinaryData" in fields and "BinaryData" not in yes:
        bits = 1  # text: a digit and a space, at least
    msb = bool(yes & {"BinaryDataByteOrderMSB", "ElementByteOrderMSB"})
    return Stored(
        [path] if local else [path.parent / file for file in _named(path)],
        (offset if local else 0) + max(skip, 0) * (not local),
        voxels * bits,
        "zlib" if packed else "",
        bits if msb else 1,
    )


def _named(path: Path) -> list[str]:
    with open(path, "rb") as stream:
        header = stream.read(_MOST_HEADER)
    return data_files(header)


# ------------------------------------------------------------------------- NRRD

_NRRD_BYTES = {
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
_NRRD_SAME = {
    "axismins": "axis mins", "axismaxs": "axis maxs", "centerings": "centers",
    "lineskip": "line skip", "byteskip": "byte skip", "datafile": "data file",
    "blocksize": "block size", "oldmin": "old min", "oldmax": "old max",
    "sampleunits": "sample units",
}  # fmt: skip
_NRRD_AXES = ("spacings", "thicknesses", "axis mins", "axis maxs")
_NRRD_WORDS = ("centers", "kinds")
_NRRD_IN_SPACE = ("space directions", "space origin", "measurement frame")
_NRRD_OTHERS = (
    "content", "number", "min", "max", "old min", "old max", "sample units", "space units",
    "labels", "units", "block size",
)  # fmt: skip
_NRRD_FIELDS = {
    *_NRRD_AXES, *_NRRD_WORDS, *_NRRD_IN_SPACE, *_NRRD_OTHERS, "type", "dimension", "sizes",
    "space", "space dimension", "endian", "encoding", "line skip", "byte skip", "data file",
}  # fmt: skip
_GZIP = ("gzip", "gz")
_RAW = ("raw",)


def _nrrd(path: Path) -> Stored | None:
    lines, offset = _lines(path, lambda line: not line)
    if not lines or not re.fullmatch(r"NRRD000[1-5]", lines[0]):
        raise _Unsound("it does not begin as NRRD")
    fields: dict[str, str] = {}
    for line in lines[1:]:
        if not line or line.startswith("#") or re.match(r"[^:]*:=", line):
            continue
        field, colon, text = line.partition(": ")
        field = _NRRD_SAME.get(field.strip().lower(), field.strip().lower())
        if not colon or field not in _NRRD_FIELDS:
            raise _Unsound(f"its header has the line {_short(line)}, which sets no field of NRRD")
        if field in fields:
            raise _Unsound(f"its header has {field!r} twice")
        if "dimension" not in fields and field in ("sizes", *_NRRD_AXES, *_NRRD_WORDS):
            raise _Unsound(f"its header has {field!r} before 'dimension'")
        if field in _NRRD_IN_SPACE and not {"space", "space dimension"} & fields.keys():
            raise _Unsound(f"its header has {field!r} before 'space'")
        fields[field] = text.strip()
        if field == "data file" and fields[field].startswith("LIST"):
            break
    for field in ("type", "dimension", "sizes", "encoding"):
        if not fields.get(field):
            raise _Unsound(f"its header lacks {field!r}")
    axes = _integer("dimension", fields["dimension"], 1, _MOST_AXES)
    sizes = _sizes("sizes", fields["sizes"], axes)
    for field in _NRRD_AXES:
        if field in fields:
            _numbers(field, fields[field], axes, unknown=True)
    for field in _NRRD_WORDS:
        if field in fields and len(fields[field].split()) != axes:
            raise _Unsound(f"{field!r} has {len(fields[field].split())} words; it needs {axes}")
    _check_space(fields, axes)
    bits = _NRRD_BYTES.get(fields["type"].lower())
    if bits is None:
        raise _Unsound(f"its type is {_short(fields['type'])}, which is no type of voxels")
    encoding = fields["encoding"].lower()
    lines_skipped = _integer("line skip", fields.get("line skip", "0"), 0, 2**31)
    skip = _integer("byte skip", fields.get("byte skip", "0"), -1, 2**62)
    if encoding not in (*_RAW, *_GZIP):
        bits = 1  # text, and what the reader may not know
        if encoding not in ("txt", "text", "ascii", "hex"):
            raise _Unsound(f"its encoding is {_short(encoding)}; write it anew as raw or gzip")
    elif bits > 1 and fields.get("endian", "").lower() not in ("little", "big"):
        raise _Unsound("its header does not say 'endian', little or big")
    attached = "data file" not in fields
    if encoding in _GZIP and (skip or lines_skipped):
        raise _Unsound("its header skips a part of a compressed stream; write it anew without")
    return Stored(
        [path] if attached else [path.parent / file for file in _named(path) if file != "LOCAL"],
        (offset if attached else 0) + max(skip, 0),
        math.prod(sizes) * bits,
        "gzip" if encoding in _GZIP else "",
        bits if fields.get("endian", "").lower() == "big" else 1,
    )


def _check_space(fields: dict[str, str], axes: int) -> None:
    """See that the vectors of a grid are as many and as long as they must be."""
    space = fields.get("space", "").lower()
    if "space dimension" in fields:
        length = _integer("space dimension", fields["space dimension"], 1, _MOST_AXES)
    else:
        length = 4 if space.endswith("-time") or len(space) == 4 else 3
    for field, count in (("space directions", axes), ("space origin", 1),
                         ("measurement frame", length)):  # fmt: skip
        if field not in fields:
            continue
        vectors = re.findall(r"\([^()]*\)|[^\s()]+", fields[field])
        if len(vectors) != count:
            raise _Unsound(f"{field!r} has {len(vectors)} vectors; it needs {count}")
        for vector in vectors:
            if vector.startswith("("):
                _numbers(field, vector[1:-1].replace(",", " "), length)
            elif vector.lower() != "none" or count == 1:
                raise _Unsound(f"{field!r} has {_short(vector)}, which is no vector")


# ------------------------------------------------------------------------ NIfTI


def _nifti(path: Path) -> Stored | None:
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
    data, _ = _first(header, 540)
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
    _, packed = _first(voxels, 2)
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
            if not abs(number) <= _MOST_NUMBER:
                raise _Unsound(f"{field} has {number}, which is no number of a grid")


def _first(file: Path, count: int) -> tuple[bytes, bool]:
    """Return a file's first bytes, unpacked, and whether they were packed."""
    check_regular(file, "image")
    with open(file, "rb") as stream:
        raw = stream.read(1 << 12)
    if not raw.startswith(b"\x1f\x8b"):
        return raw[:count], False
    try:
        return zlib.decompressobj(31).decompress(raw, count), True
    except zlib.error:
        raise _Unsound("it is damaged") from None
