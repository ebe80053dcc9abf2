"""A bundle's manifest and the hash of its graph."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ..._shared import parse

MANIFEST_KEY = "morphseek_manifest"


def graph_sha256(path: str | Path) -> str:
    """Return the SHA-256 of the graph's bytes in the file: the raw payload of field 7 of the
    serialised ModelProto.
    """
    data = memoryview(Path(path).read_bytes())
    at, digest = 0, None

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            varint()
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError(f"{path}: truncated")
            if number == 7:
                if digest is not None:
                    raise ValueError(f"{path}: two graphs in one file")
                digest = hashlib.sha256(data[at : at + size]).hexdigest()
            at += size
        else:
            raise ValueError(f"{path}: not an ONNX file")
    if digest is None:
        raise ValueError(f"{path}: no graph in the file")
    return digest


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Return the manifest of a bundle."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    for entry in model.metadata_props:
        if entry.key == MANIFEST_KEY:
            return parse(entry.value)
    raise ValueError(f"{path} is no MorphSeek bundle: metadata key {MANIFEST_KEY!r} is missing")
