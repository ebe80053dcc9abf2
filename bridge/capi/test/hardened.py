"""Sees that ELF files are hardened: no stack that can run, no table of functions that can be
written after the start, programs at any address, and C++ that guards its stack.

usage: hardened.py VENV FILE...    the Python extension in VENV is looked at, too
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

_DYNAMIC, _INTERP, _STACK, _RELRO = 2, 3, 0x6474E551, 0x6474E552
_DT_FLAGS, _DT_FLAGS_1 = 30, 0x6FFFFFFB
_BIND_NOW, _NOW, _PIE = 8, 1, 0x08000000


def faults(path: Path) -> list[str]:
    """Return what a file lacks."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return ["it is no ELF file of 64 bits"]
    kind, (at,) = data[16], struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = {}
    for i in range(count):
        what, flags, place, _, _, length = struct.unpack_from("<IIQQQQ", data, at + i * size)
        segments[what] = (flags, place, length)
    tags = {}
    if _DYNAMIC in segments:
        _, place, length = segments[_DYNAMIC]
        tags = dict(struct.iter_unpack("<QQ", data[place : place + length]))
    is_program = _INTERP in segments
    found = {
        "its stack can run": _STACK not in segments or segments[_STACK][0] & 1,
        "it has no RELRO": _RELRO not in segments,
        "it binds lazily": not tags.get(_DT_FLAGS, 0) & _BIND_NOW
        and not tags.get(_DT_FLAGS_1, 0) & _NOW,
        "it lies at one address": kind != 3 or (is_program and not tags.get(_DT_FLAGS_1, 0) & _PIE),
        # of C there may be none with an array to guard
        "its stack is not guarded": is_program and b"__stack_chk_fail" not in data,
    }
    return [fault for fault, is_so in found.items() if is_so]


def main() -> None:
    venv, *files = map(Path, sys.argv[1:])
    extensions = list(venv.glob("lib/python3*/site-packages/morphseek/_native/_native*.so"))
    if not extensions:
        sys.exit(f"there is no extension in {venv}")
    wrong = [f"{path}: {fault}" for path in [*files, *extensions] for fault in faults(path)]
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
