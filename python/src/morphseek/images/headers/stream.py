"""Compressed voxels: whether what was read is what was packed."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ... import errors
from ..._files import check_regular
from .fields import Stored, Unsound


def check_voxels(stored: Stored, voxels: np.ndarray, path: Path, name: str) -> None:
    """See that what was read is what was packed: by the checksum at the stream's end, or else by
    unpacking it again.
    """
    if stored.packed and not _is_whole(stored, voxels):
        try:
            found = _unpack(stored)
            plain = stored.swapped == 1 and voxels.nbytes == stored.size
            if plain and voxels.flags.c_contiguous and found != zlib.adler32(voxels.data):
                raise Unsound("its voxels are other than those that are compressed")
        except Unsound as error:
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
        header, _ = first_bytes(stored.files[0], max((size - voxels.nbytes) % 2**32, 1))
        if voxels.flags.c_contiguous:  # of voxels as they are in the file
            content = voxels.reshape(-1).view(np.uint8).data
            if zlib.crc32(content, zlib.crc32(header)) == checksum:
                return
        for _ in _unpacked(stored.files[0], 0):
            pass
    except Unsound as error:
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
                raise Unsound("more voxels are compressed than its header says")
        offset = 0
    if found < stored.size:
        raise Unsound(f"{found} of {stored.size} bytes of voxels are there")
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
            raise Unsound("its compressed voxels do not match their checksum") from None
        if not unpacker.eof:
            raise Unsound("its compressed voxels are cut short")


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
