"""Untrusted image files, made when they are needed: sound ones, and unsound ones with the message
of their refusal.

The tests of Python and of the command-line module read the same files.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib

import numpy as np

SHAPE = (6, 7, 8)  # z, y, x
VOXELS = np.random.default_rng(3).integers(0, 900, SHAPE).astype("<i2")
RAW = VOXELS.tobytes()

META = (
    "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n"
    "CompressedData = False\nTransformMatrix = 1 0 0 0 1 0 0 0 1\nOffset = 1 2 3\n"
    "ElementSpacing = 1 1 2.5\nDimSize = 8 7 6\nElementType = MET_SHORT\nElementDataFile = LOCAL\n"
)
NRRD = (
    "NRRD0004\n# a comment\ntype: short\ndimension: 3\nspace: left-posterior-superior\n"
    "sizes: 8 7 6\nspace directions: (1,0,0) (0,1,0) (0,0,2.5)\nkinds: domain domain domain\n"
    "endian: little\nencoding: raw\nspace origin: (1,2,3)\nkey:=value\n\n"
)


def meta(old: str = "", new: str = "", data: bytes = RAW) -> bytes:
    assert old in META
    return META.replace(old, new, 1).encode() + data


def nrrd(old: str = "", new: str = "", data: bytes = RAW) -> bytes:
    assert old in NRRD
    return NRRD.replace(old, new, 1).encode() + data


def packed_meta(data: bytes) -> bytes:
    compressed = f"CompressedData = True\nCompressedDataSize = {len(data)}"
    return meta("CompressedData = False", compressed, data)


def packed_nrrd(data: bytes) -> bytes:
    return nrrd("encoding: raw", "encoding: gzip", data)


def nifti(sizes: tuple[int, ...] = SHAPE[::-1], data: bytes = RAW) -> bytes:
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *sizes, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 4, 16)
    struct.pack_into("<8f", header, 76, 1, 1, 1, 2.5, 1, 1, 1, 1)
    struct.pack_into("<f", header, 108, 352)
    header[344:348] = b"n+1\0"
    return bytes(header) + data


def formed(code: int, number: float) -> bytes:
    """Return a file whose matrix rows hold a number, whether or not the rows are used."""
    data = bytearray(nifti())
    struct.pack_into("<2h", data, 252, 0, code)
    struct.pack_into("<12f", data, 280, 1, 0, 0, 0, 0, 1, 0, 0, 0, number, 2.5, 0)
    return bytes(data)


def flipped(data: bytes, place: float) -> bytes:
    out = bytearray(data)
    out[int(place * (len(data) - 1))] ^= 4
    return bytes(out)


def run_on(packed: bytes) -> bytes:
    """Return a stream without an end mark: the last bytes before the checksum are changed."""
    return packed[:-12] + b"\xff" * 4 + packed[-8:]


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


ZLIB, GZIP, PACKED = zlib.compress(RAW), zipped(RAW), zipped(nifti())
BIG = VOXELS.astype(">i2").tobytes()

SOUND = {
    "plain.mha": meta(),
    "plain.nrrd": nrrd(),
    "plain.nii": nifti(),
    "unused.nii": formed(0, math.nan),
    "packed.mha": packed_meta(ZLIB),
    "packed.nrrd": packed_nrrd(GZIP),
    "packed.nii.gz": PACKED,
    "big.mha": meta("OrderMSB = False", "OrderMSB = True", BIG),
    "big.nrrd": nrrd("endian: little\nencoding: raw", "endian: big\nencoding: gz", zipped(BIG)),
    "crlf.nrrd": NRRD.replace("\n", "\r\n").encode() + RAW,
    "members.nrrd": packed_nrrd(zipped(RAW[:100]) + zipped(RAW[100:])),
}

STREAMS = (("mha", packed_meta, ZLIB), ("nrrd", packed_nrrd, GZIP))
UNSOUND = {
    # invalid headers
    "dims.mha": (meta("NDims = 3", "NDims = 1e308"), "NDims is '1e308'"),
    "negative.mha": (meta("NDims = 3", "NDims = -3"), "NDims is '-3'"),
    "many.mha": (meta("NDims = 3", "NDims = 300"), "NDims is '300'"),
    "no-dims.mha": (meta("NDims = 3\n"), "before NDims"),
    "late.mha": (
        meta("NDims = 3\n").replace(b"ElementType", b"NDims = 3\nElementType"), "before NDims",
    ),
    "size.mha": (meta("8 7 6", "8 7 -6"), "DimSize is '-6'"),
    "sizes.mha": (meta("8 7 6", "8 7"), "DimSize has 2 numbers; it needs 3"),
    "fraction.mha": (meta("8 7 6", "8 7 6.5"), "DimSize is '6.5'"),
    "zero.mha": (meta("8 7 6", "8 7 0"), "DimSize is '0'"),
    "spacing.mha": (meta("1 1 2.5", "1 1 nan"), "ElementSpacing has 'nan'"),
    "spacings.mha": (meta("1 1 2.5", "1 1 1e999"), "ElementSpacing has '1e999'"),
    "endless.mha": (meta("0 0 0 1\n", "0 1e308 0 1\n"), "TransformMatrix has '1e308'"),
    "endless.nrrd": (nrrd("(0,1,0)", "(0,1e308,0)"), "space directions has '1e308'"),
    "endless.nii": (formed(1, math.inf), "srow has inf"),
    "nowhere.nii": (formed(1, math.nan), "srow has nan"),
    "matrix.mha": (meta("1 0 0 0 1 0 0 0 1", "1 0 0"), "TransformMatrix has 3 numbers"),
    "type.mha": (meta("MET_SHORT", "MET_STRING"), "ElementType is 'MET_STRING'"),
    "twice.mha": (meta("NDims = 3", "NDims = 3\nNDims = 4"), "'NDims' twice"),
    "line.mha": (meta("NDims = 3", "NDims = 3\nnothing"), "sets no field"),
    "truth.mha": (meta("CompressedData = False", "CompressedData = perhaps"), "True or False"),
    "endless.nii.gz": (run_on(PACKED), "cut short"),
    "told.mha": (
        meta("CompressedData = False", "CompressedData = True", ZLIB),
        "lacks CompressedDataSize",
    ),
    "zero-byte.mha": (meta("Offset = 1", "Offset = \0 1"), "is no text"),
    "elsewhere.mhd": (meta("= LOCAL", "= /dev/zero"), "is a device"),
    "nowhere.mhd": (meta("= LOCAL", "= absent.raw"), "which is not there"),
    "magic.nrrd": (nrrd("NRRD0004", "NRRD9"), "does not begin as NRRD"),
    "dims.nrrd": (nrrd("dimension: 3", "dimension: 1e308"), "dimension is '1e308'"),
    "swapped.nrrd": (
        nrrd("dimension: 3\nspace: left-posterior-superior\nsizes: 8 7 6",
             "sizes: 8 7 6\nspace: left-posterior-superior\ndimension: 3"),
        "'sizes' before 'dimension'",
    ),
    "space.nrrd": (nrrd("space: left-posterior-superior\n"), "before 'space'"),
    "sizes.nrrd": (nrrd("8 7 6", "8 7"), "sizes has 2 numbers; it needs 3"),
    "size.nrrd": (nrrd("8 7 6", "8 7 -6"), "sizes is '-6'"),
    "type.nrrd": (nrrd("type: short", "type: block"), "its type is 'block'"),
    "endian.nrrd": (nrrd("endian: little\n"), "does not say 'endian'"),
    "origin.nrrd": (nrrd("(1,2,3)", "(1,2,inf)"), "space origin has 'inf'"),
    "directions.nrrd": (nrrd("(0,1,0) ", ""), "'space directions' has 2 vectors; it needs 3"),
    "kinds.nrrd": (nrrd("domain domain domain", "domain"), "'kinds' has 1 words; it needs 3"),
    "field.nrrd": (nrrd("type: short", "type: short\nnonsense: 1"), "sets no field of NRRD"),
    "twice.nrrd": (nrrd("sizes: 8 7 6", "sizes: 8 7 6\nsizes: 9 7 6"), "'sizes' twice"),
    # damaged voxels
    **{
        f"flip-{place}.{end}": (make(flipped(stream, place)), "is damaged" if end == "mha" else "")
        for end, make, stream in STREAMS
        for place in (0.1, 0.4, 0.7, 0.9, 1)
    },
    **{
        f"cut-{left}.{end}": (make(stream[:left]), "")
        for end, make, stream in STREAMS
        for left in (1, 20, len(stream) // 2, len(stream) - 1)
    },
    "more.mha": (packed_meta(zlib.compress(RAW + RAW)), "is damaged"),
    "less.nrrd": (packed_nrrd(zipped(RAW[:-2])), ""),
    "garbage.nii.gz": (b"not an image", ""),
    "cut-0.4.nii.gz": (PACKED[: int(0.4 * len(PACKED))], "cut short"),
    "cut-0.95.nii.gz": (PACKED[: int(0.95 * len(PACKED))], "cut short"),
    "cut.mha": (meta(data=RAW[:-1]), "is cut short"),
    "cut.nrrd": (nrrd(data=RAW[:-1]), "is cut short"),
    "cut.nii": (nifti(data=RAW[:-1]), "is cut short"),
    # more than the file can hold
    "claim.mha": (meta("8 7 6", "2000 2000 2000"), "is cut short"),
    "claim.nrrd": (nrrd("8 7 6", "2000 2000 2000"), "is cut short"),
    "claim.nii": (nifti((1500, 1500, 1500)), "is cut short"),
    "bomb.nii.gz": (zipped(nifti((1500, 1500, 1500))), "header claims"),
    "bomb.nrrd": (packed_nrrd(GZIP).replace(b"8 7 6", b"2000 2000 2000"), "header claims"),
    "bomb.mha": (packed_meta(ZLIB).replace(b"8 7 6", b"2000 2000 2000"), "header claims"),
}  # fmt: skip
