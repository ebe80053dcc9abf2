"""Transforms as ITK's HDF5 files, with displacements of float32: SimpleITK writes float64 alone
(engine/RATIONALE.md, transform.h5). What is written here is read here, too, byte by byte: HDF5's
library may end the process over a damaged file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_UNDEFINED = 2**64 - 1
_LEAF, _INTERNAL = 4, 16  # HDF5's defaults: a group node has up to 2 * _LEAF members
_SEAL = "MorphSeekChecksum"
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


def write(path: Path, parts: Sequence[Part], note: str = "", sealed: bool = False) -> None:
    """Write one transform or, of several, a composite in which the last acts first; with a note,
    near the file's beginning, and a checksum, which ITK both does not look at.
    """
    file = _File(max(_LEAF, len(parts) // 2 + 1))
    texts = {
        "ITKVersion": "5.4.0",
        "HDFVersion": "HDF5 library version: 1.8.0",
        "OSName": platform.system(),
        "OSVersion": platform.release(),
        **({"MorphSeek": note} if note else {}),
        **({_SEAL: checksum(parts)} if sealed else {}),
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


def checksum(parts: Sequence[Part]) -> str:
    """Return what tells transforms from others: SHA-256 of their names and numbers."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.name.encode() + b"\0")
        for numbers in (np.asarray(part.fixed, np.float64), np.asarray(part.parameters)):
            little = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<"))
            found.update(little.reshape(-1).view(np.uint8).data)
    return f"sha256 {found.hexdigest()}"


class DamagedError(Exception):
    """A file that :func:`write` wrote is not what it was."""


def read(path: Path) -> list[Part] | None:
    """Return the transforms of a file as :func:`write` writes it, None of any other.

    Raises
    ------
    DamagedError
        Its checksum is another.
    """
    try:
        with open(path, "rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        with data:
            return _Reading(data).transforms()
    except (_OtherError, struct.error, IndexError, KeyError, ValueError):
        return None


class _OtherError(Exception):
    """The file is damaged, or not written by this module."""


class _Reading:
    """A file taken apart again; every place and size is compared with the file's end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.leaf = _LEAF

    def at(self, place: int, size: int) -> bytes:
        if not 0 <= place <= place + size <= len(self.data):
            raise _OtherError
        return self.data[place : place + size]

    def transforms(self) -> list[Part]:
        mark, self.leaf, internal = struct.unpack("<16sHH4x", self.at(0, 24))
        if mark != _MARK or internal != _INTERNAL:
            raise _OtherError
        (root,) = struct.unpack("<Q", self.at(64, 8))
        members = self.group(root)
        group = self.group(members["TransformGroup"])
        parts: list[Part] = []
        for i in range(len(group)):
            one = self.group(group[str(i)])
            kind = self.text(one["TransformType"])
            name, precision, *sizes = kind.rsplit("_", 3)
            if sizes != ["3", "3"] or precision not in ("float", "double"):
                raise _OtherError
            if name == "CompositeTransform" and i == 0 and len(group) > 1:
                continue
            fixed = self.numbers(one["TransformFixedParameters"])
            parts.append(Part(name, fixed, self.numbers(one["TransformParameters"])))
        if not parts or any(not np.isfinite(part.fixed).all() for part in parts):
            raise _OtherError
        if _SEAL in members and self.text(members[_SEAL]) != checksum(parts):
            raise DamagedError("its numbers do not match their checksum; copy it again")
        return parts

    def messages(self, place: int) -> dict[int, bytes]:
        version, count, _, size = struct.unpack("<BxHII4x", self.at(place, 16))
        body = self.at(place + 16, min(size, 1 << 16))
        if version != 1 or count > 8:
            raise _OtherError
        found, at = {}, 0
        for _ in range(count):
            kind, length = struct.unpack_from("<HH4x", body, at)
            found[kind] = body[at + 8 : at + 8 + length]
            at += 8 + length
        return found

    def group(self, place: int) -> dict[str, int]:
        """Return the places of a group's members by name."""
        tree, heap = struct.unpack("<QQ", self.messages(place)[0x11])
        if self.at(tree, 8) != b"TREE" + struct.pack("<BBH", 0, 0, 1):
            raise _OtherError
        (leaf,) = struct.unpack("<Q", self.at(tree + 32, 8))
        mark, size, _, names_at = struct.unpack("<4sxxxxQQQ", self.at(heap, 32))
        names = self.at(names_at, min(size, 1 << 20))
        node, count = struct.unpack("<4sxxH", self.at(leaf, 8))
        if mark != b"HEAP" or node != b"SNOD" or count > 2 * self.leaf:
            raise _OtherError
        members = {}
        for i in range(count):
            name, header = struct.unpack("<QQ", self.at(leaf + 8 + 40 * i, 16))
            members[names[name : names.index(0, name)].decode()] = header
        return members

    def data_set(self, place: int, kind: bytes) -> tuple[int, int, int]:
        """Return how many values there are, where, and how many bytes they have."""
        found = self.messages(place)
        axes, count = struct.unpack("<xBxxxxxxQ", found[1][:16])
        form, where, size = struct.unpack("<HQQ", found[8][:18])
        if axes != 1 or found[3][: len(kind)] != kind or form != 0x103:
            raise _OtherError
        return count, where, size

    def numbers(self, place: int) -> np.ndarray:
        for width, kind in _KINDS.items():
            if self.messages(place)[3][: len(kind)] == kind:
                count, where, size = self.data_set(place, kind)
                if size != count * width or where + size > len(self.data):
                    raise _OtherError
                return np.frombuffer(self.at(where, size), f"<f{width}")
        raise _OtherError

    def text(self, place: int) -> str:
        count, where, _ = self.data_set(place, _TEXT)
        length, heap, index = struct.unpack("<IQI", self.at(where, 16))
        mark, version, size = struct.unpack("<4sBxxxQ", self.at(heap, 16))
        if (count, mark, version, index) != (1, b"GCOL", 1, 1) or length > min(size, 1 << 16):
            raise _OtherError
        return self.at(heap + 32, length).decode()


class _Group(NamedTuple):
    header: int
    tree: int
    heap: int


class _File:
    """The pieces of a file of HDF5's first format, which every version reads, by their places."""

    def __init__(self, leaf: int) -> None:
        self.leaf = leaf
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
        return self._data_set(1, _TEXT, value, 16)

    def numbers(self, array: np.ndarray) -> int:
        """Add a data set of float32 or float64."""
        array = np.ascontiguousarray(array).reshape(-1)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return self._data_set(array.size, _KINDS[array.itemsize], self.add(little), array.nbytes)

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

    def save(self, path: Path, root: _Group) -> None:
        superblock = _MARK + struct.pack(
            "<HHIQQQQQQI4xQQ",
            self.leaf, _INTERNAL, 0,
            0, _UNDEFINED, self.end, _UNDEFINED, 0, root.header, 1, root.tree, root.heap,
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
