"""Transforms as ITK's HDF5 files, with displacements of float32: SimpleITK writes float64 alone
(engine/RATIONALE.md, transform.h5).

HDF5's library may end the process over a damaged file. So a file of ours has an index behind what
that library reads: where the numbers are, and their checksums.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._grid import Grid

_UNDEFINED = 2**64 - 1
_LEAF, _INTERNAL = 4, 16  # HDF5's defaults: a group node has up to 2 * _LEAF members
_END = struct.Struct("<QI8s")  # the last bytes: the index's length, its CRC-32, and a mark
_OURS = b"mseek h5"
_DAMAGED = "its numbers do not match their checksum; copy it again"
_MARK = b"\x89HDF\r\n\x1a\n" + struct.pack("<BBBxBBBx", 0, 0, 0, 0, 8, 8)


def _kind(size: int, sign: int, exponent: int, exponent_bits: int, bias: int) -> bytes:
    """Return the message that says a type of numbers: where the sign and the exponent lie."""
    return struct.pack("<BBBBI", 0x11, 0x20, sign, 0, size) + struct.pack(
        "<HHBBBBI", 0, 8 * size, exponent, exponent_bits, 0, exponent, bias
    )


_KINDS = {4: _kind(4, 31, 23, 8, 127), 8: _kind(8, 63, 52, 11, 1023)}
_TEXT = struct.pack("<BBBBI", 0x19, 1, 0, 0, 16) + struct.pack("<BBBBIHH", 0x10, 0, 0, 0, 1, 0, 8)


class Part(NamedTuple):
    """One transform: ITK's name for it without precision, and its parameters."""

    name: str
    fixed: np.ndarray
    parameters: np.ndarray


def write(path: Path, parts: Sequence[Part], grids: Sequence[Grid | None] = (None, None)) -> None:
    """Write one transform, or several of which the last acts first, and an index with the grids."""
    file = _File(max(_LEAF, len(parts) // 2 + 1))
    texts = {
        "ITKVersion": "5.4.0",
        "HDFVersion": "HDF5 library version: 1.8.0",
        "OSName": platform.system(),
        "OSVersion": platform.release(),
    }
    members: dict[str, int | _Group] = {name: file.text(text) for name, text in texts.items()}
    transforms, entries = [], []
    if len(parts) > 1:
        transforms.append(file.group({"TransformType": file.text("CompositeTransform_double_3_3")}))
    for part in parts:
        kind = part.parameters.dtype.newbyteorder("<")
        values, place = np.ascontiguousarray(part.parameters, kind).reshape(-1), file.end
        precision = "float" if kind.itemsize == 4 else "double"
        own: dict[str, int | _Group] = {
            "TransformParameters": file.numbers(values),
            "TransformType": file.text(f"{part.name}_{precision}_3_3"),
            "TransformFixedParameters": file.numbers(part.fixed),
        }
        transforms.append(file.group(own))
        entries.append(
            {
                "name": part.name,
                "fixed": part.fixed.tolist(),
                "place": place,
                "bytes": values.nbytes,
                "type": kind.str,
                "crc32": zlib.crc32(values.view(np.uint8).data),
            }
        )
    members["TransformGroup"] = file.group({str(i): t for i, t in enumerate(transforms)})
    index = {"parts": entries, "grids": [each and each.numbers.tolist() for each in grids]}
    text = json.dumps(index).encode()
    file.save(path, file.group(members), text + _END.pack(len(text), zlib.crc32(text), _OURS))


def read(path: Path) -> list[Part] | None:
    """Return the transforms of a file of :func:`write`, None of any other; check its checksums."""
    index = _index(path)
    if index is None:
        return None
    parts = []
    with open(path, "rb") as file:
        for entry in index["parts"]:
            file.seek(entry["place"])
            data = file.read(entry["bytes"])
            if zlib.crc32(data) != entry["crc32"]:
                raise RuntimeError(_DAMAGED)
            fixed = np.array(entry["fixed"], np.float64)
            parts.append(Part(entry["name"], fixed, np.frombuffer(data, entry["type"])))
    return parts


def grids(path: Path) -> tuple[Grid | None, Grid | None]:
    """Return the fixed and the moving grid that :func:`write` left in a file, or None."""
    index = _index(path)
    fixed, moving = (None, None) if index is None else index["grids"]
    return fixed and Grid.from_numbers(fixed), moving and Grid.from_numbers(moving)


def _index(path: Path) -> dict[str, Any] | None:
    """Return the index at a file's end; None where there is none."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END) - _END.size
        if end < 0:
            return None
        file.seek(end)
        length, checksum, mark = _END.unpack(file.read())
        if mark != _OURS or length > end:
            return None
        file.seek(end - length)
        text = file.read(length)
    if zlib.crc32(text) != checksum:
        raise RuntimeError(_DAMAGED)
    return json.loads(text)


class _Group(NamedTuple):
    header: int
    tree: int
    heap: int


class _File:
    """The pieces of a file of HDF5's first format, which every version reads, by their places."""

    def __init__(self, leaf: int) -> None:
        self.leaf = leaf
        self.pieces: list[tuple[int, Any]] = []  # bytes and arrays
        self.end = 96  # after the superblock

    def add(self, piece: Any) -> int:
        place = self.end
        self.pieces.append((place, piece))
        self.end = place + (memoryview(piece).nbytes + 7) // 8 * 8
        return place

    def text(self, text: str) -> int:
        """Add a data set of one text of variable length, in a heap of its own."""
        data, size = text.encode(), 4096  # the least
        entry = struct.pack("<HHIQ", 1, 1, 0, len(data)) + data + bytes(-len(data) % 8)
        rest = size - 16 - len(entry)
        heap = self.add(
            b"GCOL" + struct.pack("<BxxxQ", 1, size) + entry
            + struct.pack("<HHIQ", 0, 0, 0, rest) + bytes(rest - 16)
        )  # fmt: skip
        value = self.add(struct.pack("<IQI", len(data), heap, 1))
        return self._data_set(1, _TEXT, value, 16)

    def numbers(self, array: np.ndarray) -> int:
        """Add a data set of float32 or float64."""
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
        return self._data_set(little.size, _KINDS[little.itemsize], self.add(little), little.nbytes)

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
        leaf = self.add(node + bytes(8 + 2 * self.leaf * 40 - len(node)))
        tree = b"TREE" + struct.pack(
            "<BBHQQQQQ", 0, 0, 1, _UNDEFINED, _UNDEFINED, 0, leaf, keys[-1]
        )
        tree_at = self.add(tree + bytes(24 + (4 * _INTERNAL + 1) * 8 - len(tree)))
        data = self.add(bytes(names))
        heap_at = self.add(b"HEAP" + struct.pack("<BxxxQQQ", 0, len(names), 1, data))
        header = self.add(_header((0x11, struct.pack("<QQ", tree_at, heap_at))))
        return _Group(header, tree_at, heap_at)

    def save(self, path: Path, root: _Group, index: bytes) -> None:
        superblock = _MARK + struct.pack(
            "<HHIQQQQQQI4xQQ",
            self.leaf, _INTERNAL, 0,
            0, _UNDEFINED, self.end, _UNDEFINED, 0, root.header, 1, root.tree, root.heap,
        )  # fmt: skip
        with open(path, "wb") as file:
            if hasattr(os, "posix_fallocate"):  # a full disk is told before the work
                os.posix_fallocate(file.fileno(), 0, self.end + len(index))
            file.write(superblock)
            for place, piece in self.pieces:
                file.seek(place)
                file.write(piece)
            file.seek(self.end)
            file.write(index)


def _header(*messages: tuple[int, bytes]) -> bytes:
    body = b""
    for kind, data in messages:
        data += bytes(-len(data) % 8)
        body += struct.pack("<HHB3x", kind, len(data), 0) + data
    return struct.pack("<BxHII4x", 1, len(messages), 1, len(body)) + body
