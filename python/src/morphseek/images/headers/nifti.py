"""NIfTI-1, NIfTI-2 and Analyze (.nii, .hdr and .img)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..formats import pair_of
from .fields import Stored, Unsound
from .stream import first_bytes

_FIELDS = (
    "datatype", "bitpix", "dim", "intent_p1", "intent_p2", "intent_p3", "pixdim", "vox_offset",
    "scl_slope", "scl_inter", "toffset", "descrip", "qform_code", "sform_code", "quatern",
    "qoffset", "srow", "xyzt_units", "intent_code", "intent_name", "magic", "origin",
)  # fmt: skip
LAYOUTS = {  # length of the header: types and offsets of the fields
    348: np.dtype({
        "names": _FIELDS, "itemsize": 348,
        "formats": ["i2", "i2", "8i2", "f4", "f4", "f4", "8f4", "f4", "f4", "f4", "f4", "S80", "i2",
                    "i2", "3f4", "3f4", "(3,4)f4", "u1", "i2", "S16", "S4", "3i2"],
        "offsets": [70, 72, 40, 56, 60, 64, 76, 108, 112, 116, 136, 148, 252, 254, 256, 268, 280,
                    123, 68, 328, 344, 253],
    }),
    540: np.dtype({
        "names": _FIELDS, "itemsize": 540,
        "formats": ["i2", "i2", "8i8", "f8", "f8", "f8", "8f8", "i8", "f8", "f8", "f8", "S80", "i4",
                    "i4", "3f8", "3f8", "(3,4)f8", "i4", "i4", "S16", "S8", "3i2"],
        "offsets": [12, 14, 16, 80, 88, 96, 104, 168, 176, 184, 216, 240, 344, 348, 352, 376, 400,
                    500, 504, 508, 4, 344],
    }),
}  # fmt: skip
TYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8",
    1280: "u8",
}  # fmt: skip
SECONDS = {16: 1e-3, 24: 1e-6}  # milliseconds, microseconds


@dataclasses.dataclass(frozen=True)
class Header:
    """The fields of a header that are used here, as Python numbers and arrays."""

    fields: Mapping[str, Any]
    order: Literal["<", ">", "="] = "="
    digits: float = 1e-7
    """By how much a number may be rounded: that of float32, or of ITK's six digits."""

    @classmethod
    def of_bytes(cls, data: bytes) -> Header | None:
        """Parse the first 540 bytes of a file; None where they are no NIfTI or Analyze."""
        order: Literal["<", ">"]
        for order in ("<", ">"):
            layout = LAYOUTS.get(int.from_bytes(data[:4], "little" if order == "<" else "big"))
            if layout is not None and len(data) >= layout.itemsize:
                record = np.frombuffer(data, layout.newbyteorder(order), 1)[0]
                return cls({name: record[name].tolist() for name in _FIELDS}, order)
        return None

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]

    @classmethod
    def of_itk(cls, metadata: Mapping[str, str]) -> Header | None:
        """Return the header, of six digits, that ITK keeps beside an image; None without one."""
        if "srow_x" not in metadata or "nifti_type" not in metadata:
            return None
        try:
            fields = {
                "magic": b"n+1" if int(metadata["nifti_type"]) else b"",
                "srow": [[float(v) for v in metadata[f"srow_{axis}"].split()] for axis in "xyz"],
                "quatern": [float(metadata[f"quatern_{part}"]) for part in "bcd"],
                "qoffset": [float(metadata[f"qoffset_{axis}"]) for axis in "xyz"],
                "dim": [int(metadata[f"dim[{k}]"]) for k in range(8)],
                "pixdim": [float(metadata[f"pixdim[{k}]"]) for k in range(8)],
                **{k: int(metadata[k]) for k in ("qform_code", "sform_code", "xyzt_units")},
            }
        except (KeyError, ValueError):
            return None
        return cls(fields, digits=1e-6)

    @property
    def is_nifti(self) -> bool:
        """False for Analyze, which lays nothing in space."""
        return self["magic"][:3] in (b"n+1", b"ni1", b"n+2", b"ni2")

    @property
    def shape(self) -> tuple[int, ...]:
        """Voxels along x, y, z and further axes."""
        return tuple(int(n) for n in self["dim"][1 : 1 + self["dim"][0]])

    @property
    def volume(self) -> tuple[int, ...]:
        """Voxels along x, y and z."""
        return (*self.shape, 1, 1, 1)[:3]

    @property
    def bytes(self) -> int:
        """The number of bytes that the voxels take."""
        return math.prod(self.shape) * self["bitpix"] // 8

    @property
    def offset(self) -> int:
        """The byte at which the voxels begin in a single file."""
        place = self["vox_offset"]
        offset = int(place) if math.isfinite(place) and 0 <= place < 2**62 else 0
        return max(offset, {b"n+1": 352, b"n+2": 544}.get(self["magic"][:3], 0))

    @property
    def scaling(self) -> tuple[float, float] | None:
        """Slope and intercept of stored numbers; None where they are the values."""
        slope, inter = self["scl_slope"], self["scl_inter"]
        if not self.is_nifti or not math.isfinite(slope) or slope == 0 or (slope, inter) == (1, 0):
            return None
        return slope, inter if math.isfinite(inter) else 0.0

    def values(self, stored: np.ndarray) -> np.ndarray:
        """Return what stored numbers stand for; scaled integers become float32, as by ITK."""
        if not self.scaling:
            return stored
        slope, inter = self.scaling
        kind = np.dtype(np.float32) if stored.dtype.kind in "iu" else stored.dtype
        return (stored.astype(kind, copy=False).astype(np.float64) * slope + inter).astype(kind)

    @property
    def dtype(self) -> np.dtype | None:
        """Of the stored numbers; None where they are no single real ones."""
        code = TYPES.get(self["datatype"])
        return np.dtype(code).newbyteorder(self.order) if code else None

    @property
    def seconds(self) -> tuple[float, float]:
        """When the first frame was taken and the time between two, s; 1 where it is not known."""
        unit = SECONDS.get(int(self["xyzt_units"]) & 0x38, 1.0)
        step = self["pixdim"][4] * unit
        first = self["toffset"] * unit
        known = math.isfinite(step) and step > 0
        return first if math.isfinite(first) else 0.0, step if known else 1.0


def files_of(path: Path) -> tuple[Path, Path]:
    """Return the files with the header and with the voxels; raise Unsound where one is missing."""
    listed = pair_of(path)
    if not listed or first_bytes(path, 348)[0][344:348] == b"n+1\0":  # a file of both, so called
        return path, path
    pair = []
    for part in (".hdr", ".img"):
        files = [file for file in listed if part in file.name[-7:].lower()]
        there = next((file for file in (path, *files) if file in files and file.is_file()), None)
        if there is None:
            what = "header is" if part == ".hdr" else "voxels are"
            raise Unsound(f"its {what} in {files[0].name}, which is not there; put it beside it")
        pair.append(there)
    return pair[0], pair[1]


def header_of(path: Path) -> Header | None:
    """Return the header of a file that is called NIfTI or Analyze; None where it is neither."""
    return Header.of_bytes(first_bytes(files_of(path)[0], 540)[0])


def parse_nifti(path: Path) -> Stored | None:
    """Return where the voxels of a NIfTI or Analyze file are; None where it is neither."""
    header = header_of(path)
    if header is None:
        return None
    count = header["dim"][0]
    if not 1 <= count <= 7 or any(n < 1 for n in header.shape) or header["bitpix"] < 1:
        raise Unsound(f"its header's dim is {header['dim']}, which is no size of an image")
    _, voxels = files_of(path)
    _, packed = first_bytes(voxels, 2)
    offset = 0 if packed else header.offset
    return Stored([voxels], offset, header.bytes, "gzip" if packed else "", 1)
