"""Transforms as ITK's HDF5 files, with displacements of float32: SimpleITK writes float64 alone
(engine/RATIONALE.md, transform.h5).
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_UNDEFINED = 2**64 - 1
_LEAF, _INTERNAL = 4, 16  # HDF5's defaults: a group node has up to 2 * _LEAF members
MOST = 2 * _LEAF - 1  #: parts, beside the composite


class Part(NamedTuple):
    """One transform: ITK's name for it without precision, and its parameters."""

    name: str
    fixed: np.ndarray
    parameters: np.ndarray


def write(path: Path, parts: Sequence[Part], note: str = "") -> None:
    """Write one transform or, of several, a composite in which the last acts first; with a note,
    near the file's beginning, that ITK does not look at.
    """
    file = _File()
    texts = {
        "ITKVersion": "5.4.0",
        "HDFVersion": "HDF5 library version: 1.8.0",
        "OSName": platform.system(),
        "OSVersion": platform.release(),
        **({"MorphSeek": note} if note else {}),
    }
    members: dict[str, int | _Group] = {name: file.text(text) for name, text in texts.items()}
    transforms = []
    if len(parts) > 1:
        transforms.append(file.group({"TransformType": file.text("CompositeTransform_double_3_3")}))
    for part in parts:
        precision = "float" if part.parameters.dtype == np.float32 else "double"
        transforms.append(
            file.group(
                {
                    "TransformType": file.text(f"{part.name}_{precision}_3_3"),
                    "TransformFixedParameters": file.numbers(part.fixed),
                    "TransformParameters": file.numbers(part.parameters),
                }
            )
        )
    members["TransformGroup"] = file.group({str(i): t for i, t in enumerate(transforms)})
    file.save(path, file.group(members))


class _Group(NamedTuple):
    header: int
    tree: int
    heap: int


class _File:
    """The pieces of a file of HDF5's first format, which every version reads, by their places."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes | np.ndarray]] = []
        self.end = 96  # after the superblock

    def add(self, piece: bytes | np.ndarray) -> int:
        place = self.end
        size = piece.nbytes if isinstance(piece, np.ndarray) else len(piece)
        self.pieces.append((place, piece))
        self.end = place + (size + 7) // 8 * 8
        return place

    def text(self, text: str) -> int:
        """Add a data set of one text of variable length, in a heap of its own."""
        data = text.encode() + bytes(-len(text.encode()) % 8)
        size = 4096  # the least
        entry = struct.pack("<HHIQ", 1, 1, 0, len(text.encode())) + data
        rest = size - 16 - len(entry)
        heap = self.add(
            b"GCOL" + struct.pack("<BxxxQ", 1, size) + entry
            + struct.pack("<HHIQ", 0, 0, 0, rest) + bytes(rest - 16)
        )  # fmt: skip
        value = self.add(struct.pack("<IQI", len(text.encode()), heap, 1))
        kind = struct.pack("<BBBBI", 0x19, 1, 0, 0, 16) + struct.pack(
            "<BBBBIHH", 0x10, 0, 0, 0, 1, 0, 8
        )
        return self._data_set(1, kind, value, 16)

    def numbers(self, array: np.ndarray) -> int:
        """Add a data set of float32 or float64."""
        array = np.ascontiguousarray(array).reshape(-1)
        # where the sign lies; bits; the exponent's place and bits; the mantissa's bits; the bias
        layouts = {4: (31, 32, 23, 8, 23, 127), 8: (63, 64, 52, 11, 52, 1023)}
        sign, bits, *rest = layouts[array.itemsize]
        exponent, exponent_bits, mantissa_bits, bias = rest
        kind = struct.pack("<BBBBI", 0x11, 0x20, sign, 0, array.itemsize) + struct.pack(
            "<HHBBBBI", 0, bits, exponent, exponent_bits, 0, mantissa_bits, bias
        )
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return self._data_set(array.size, kind, self.add(little), array.nbytes)

    def _data_set(self, count: int, kind: bytes, place: int, size: int) -> int:
        return self.add(
            _header(
                (1, struct.pack("<BBBxxxxxQ", 1, 1, 0, count)),  # one axis
                (3, kind),
                (8, struct.pack("<BBQQ", 3, 1, place, size)),  # in one piece
            )
        )

    def group(self, members: Mapping[str, int | _Group]) -> _Group:
        names, entries = bytearray(8), b""
        keys = []
        for name, member in sorted(members.items()):
            keys.append(len(names))
            if isinstance(member, _Group):
                entries += struct.pack(
                    "<QQI4xQQ", len(names), member.header, 1, member.tree, member.heap
                )
            else:
                entries += struct.pack("<QQI4x16x", len(names), member, 0)
            names += name.encode() + bytes(8 - len(name) % 8)
        node = b"SNOD" + struct.pack("<BxH", 1, len(members)) + entries
        leaf = self.add(node + bytes(8 + 2 * _LEAF * 40 - len(node)))
        tree = b"TREE" + struct.pack(
            "<BBHQQQQQ", 0, 0, 1, _UNDEFINED, _UNDEFINED, 0, leaf, keys[-1]
        )
        tree_at = self.add(tree + bytes(24 + (4 * _INTERNAL + 1) * 8 - len(tree)))
        data = self.add(bytes(names))
        heap_at = self.add(b"HEAP" + struct.pack("<BxxxQQQ", 0, len(names), 1, data))
        header = self.add(_header((0x11, struct.pack("<QQ", tree_at, heap_at))))
        return _Group(header, tree_at, heap_at)

    def save(self, path: Path, root: _Group) -> None:
        superblock = b"\x89HDF\r\n\x1a\n" + struct.pack(
            "<BBBxBBBxHHIQQQQQQI4xQQ",
            0, 0, 0, 0, 8, 8, _LEAF, _INTERNAL, 0, 0, _UNDEFINED, self.end, _UNDEFINED,
            0, root.header, 1, root.tree, root.heap,
        )  # fmt: skip
        with open(path, "wb") as file:
            if hasattr(os, "posix_fallocate"):  # a full disk is told before the work
                os.posix_fallocate(file.fileno(), 0, self.end)
            file.write(superblock)
            for place, piece in self.pieces:
                file.seek(place)
                file.write(piece.data if isinstance(piece, np.ndarray) else piece)
            file.truncate(self.end)


def _header(*messages: tuple[int, bytes]) -> bytes:
    body = b""
    for kind, data in messages:
        data += bytes(-len(data) % 8)
        body += struct.pack("<HHB3x", kind, len(data), 0) + data
    return struct.pack("<BxHII4x", 1, len(messages), 1, len(body)) + body
