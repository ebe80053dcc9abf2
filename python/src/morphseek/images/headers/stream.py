"""Compressed voxels: whether what was read is what was packed."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from isal import isal_zlib

from ... import errors
from ..._files import check_regular
from .fields import CutShort, Stored, Unsound

fast: Any = isal_zlib  # unpacks in half of zlib's time


def check_voxels(stored: Stored, voxels: np.ndarray, path: Path, name: str) -> None:
    """Compare what was read with the packed stream's checksum, or else unpack it again."""
    if stored.packed and not _is_whole(stored, voxels):
        try:
            checksum = _unpack(stored)
            plain = stored.swapped == 1 and voxels.nbytes == stored.size
            if plain and voxels.flags.c_contiguous and checksum != zlib.adler32(voxels.data):
                raise Unsound("its voxels are other than those that are compressed")
        except Unsound as error:
            raise errors.InputUnreadableError(
                f"{name}: {path} is damaged: {error}; copy it again"
            ) from None


def unpack_into(voxels: np.ndarray, stored: Stored, offset: int) -> None:
    """Fill a contiguous array from ``offset`` in a file; check a packed stream to its end."""
    content = voxels.reshape(-1).view(np.uint8).data
    (file,) = stored.files
    if not stored.packed:
        with open(file, "rb") as stream:
            stream.seek(offset)
            there = stream.readinto(content)
        if there < len(content):
            raise CutShort(file, there + offset, len(content) + offset)
        return
    at = -offset
    try:
        for part in _unpacked(file, 0):
            low, high = max(at, 0), min(at + len(part), len(content))
            if low < high:
                content[low:high] = part[low - at : high - at]
            at += len(part)
    except Unsound as error:
        if at >= len(content) or not isinstance(error, _Ended):
            raise Unsound(f"{error}; copy it again") from None
    if at < len(content):
        raise CutShort(file, at + offset, len(content) + offset)


def _is_whole(stored: Stored, voxels: np.ndarray) -> bool:
    """Whether the checksum of what was read is that at the end of the one file."""
    if len(stored.files) != 1 or voxels.nbytes != stored.size or not voxels.flags.c_contiguous:
        return False
    if stored.swapped != 1:
        if voxels.itemsize != stored.swapped:
            return False
        voxels = voxels.byteswap()
    with open(stored.files[0], "rb") as stream:
        stream.seek(-8, os.SEEK_END)
        end = stream.read(8)
    content = voxels.reshape(-1).view(np.uint8).data
    if stored.packed == "zlib":
        return zlib.adler32(content) == struct.unpack(">I", end[4:])[0]
    return (zlib.crc32(content), stored.size % 2**32) == struct.unpack("<II", end)


def _unpack(stored: Stored) -> int:
    """Return the checksum (Adler-32) of all that is packed."""
    size, offset, checksum = 0, stored.offset, 1
    for file in stored.files:
        for part in _unpacked(file, offset):
            size += len(part)
            checksum = zlib.adler32(part, checksum)
            if size > stored.size:
                raise Unsound("more voxels are compressed than its header says")
        offset = 0
    if size < stored.size:
        raise Unsound(f"{size} of {stored.size} bytes of voxels are there")
    return checksum


class _Ended(Unsound):
    """A stream that ends before its checksum."""


def _unpacked(file: Path, offset: int) -> Iterator[bytes]:
    """Unpack a file in blocks, with its checksums; gzip may come in several members."""
    with open(file, "rb") as stream:
        stream.seek(offset)
        unpacker, block = None, b""
        try:
            while block := block or stream.read(1 << 18):
                if unpacker is None or unpacker.eof:
                    packed = block.startswith(b"\x1f\x8b")
                    if unpacker is not None and not packed:
                        break  # what follows does not belong to it
                    unpacker = fast.decompressobj(31 if packed else 15)
                part = unpacker.decompress(block, 1 << 20)
                while part or unpacker.unconsumed_tail:
                    yield part
                    part = unpacker.decompress(unpacker.unconsumed_tail, 1 << 20)
                block = unpacker.unused_data
        except (zlib.error, fast.error):
            raise Unsound("its compressed voxels do not match their checksum") from None
        if unpacker is None or not unpacker.eof:
            raise _Ended("its compressed voxels are cut short")


def first_bytes(file: Path, count: int) -> tuple[bytes, bool]:
    """Return a file's first bytes, unpacked, and whether they were packed."""
    check_regular(file, "image")
    with open(file, "rb") as stream:
        raw = stream.read(1 << 12)
    if not raw.startswith(b"\x1f\x8b"):
        return raw[:count], False
    try:
        return zlib.decompressobj(31).decompress(raw, count), True
    except zlib.error:
        raise Unsound("it is damaged") from None
