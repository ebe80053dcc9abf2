"""NIfTI-1 and NIfTI-2: where the header lays the voxels, by the standard, and the voxels.

Every entrance (a path, an object of nibabel, an image that SimpleITK read) asks :func:`place_of`.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._grid import RAS_SIGNS, is_sheared, sheared
from .._itk import itk_io
from .dicom import Reading
from .formats import PAIRS, pair_of
from .headers.fields import MOST_NUMBER, Stored, Unsound
from .headers.stream import first_bytes, unpack_into

_FIELDS = (
    "datatype", "bitpix", "dim", "intent_p1", "intent_p2", "intent_p3", "pixdim", "vox_offset",
    "scl_slope", "scl_inter", "toffset", "descrip", "qform_code", "sform_code", "quatern",
    "qoffset", "srow", "xyzt_units", "intent_code", "intent_name", "magic",
)  # fmt: skip
_LAYOUTS = {  # length of the header: types and offsets of the fields
    348: np.dtype({
        "names": _FIELDS, "itemsize": 348,
        "formats": ["i2", "i2", "8i2", "f4", "f4", "f4", "8f4", "f4", "f4", "f4", "f4", "S80", "i2",
                    "i2", "3f4", "3f4", "(3,4)f4", "u1", "i2", "S16", "S4"],
        "offsets": [70, 72, 40, 56, 60, 64, 76, 108, 112, 116, 136, 148, 252, 254, 256, 268, 280,
                    123, 68, 328, 344],
    }),
    540: np.dtype({
        "names": _FIELDS, "itemsize": 540,
        "formats": ["i2", "i2", "8i8", "f8", "f8", "f8", "8f8", "i8", "f8", "f8", "f8", "S80", "i4",
                    "i4", "3f8", "3f8", "(3,4)f8", "i4", "i4", "S16", "S8"],
        "offsets": [12, 14, 16, 80, 88, 96, 104, 168, 176, 184, 216, 240, 344, 348, 352, 376, 400,
                    500, 504, 508, 4],
    }),
}  # fmt: skip
_TYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8",
    1280: "u8",
}  # fmt: skip
_COLOURS = {128: 3, 2304: 4}  # RGB, RGBA: bytes a voxel
_DISPLACEMENTS = 1006  # the intent of vectors in RAS, which become LPS as ITK's reader has them
_MM = {1: 1e3, 3: 1e-3}  # metres, micrometres
_SECONDS = {16: 1e-3, 24: 1e-6}  # milliseconds, microseconds
_ROUNDING = 0.01  # voxels between two places of a corner that are one
_ROUNDED = 2e-3  # cosines between axes whose numbers have three decimals
_DOUBTED = 0.1  # voxels between two places of a corner from which on they are two places


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
        for length, layout in _LAYOUTS.items():
            orders: tuple[Literal["<", ">"], ...] = ("<", ">")
            for order in orders:
                if int.from_bytes(data[:4], "little" if order == "<" else "big") == length:
                    if len(data) < length:
                        return None
                    record = np.frombuffer(data, layout.newbyteorder(order), 1)[0]
                    return cls({name: record[name].tolist() for name in _FIELDS}, order)
        return None

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]

    @classmethod
    def of_itk(cls, metadata: Mapping[str, str]) -> Header | None:
        """Return the header that ITK's reader keeps beside an image, in six digits; None where the
        image is from elsewhere.
        """
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
    def bytes(self) -> int:
        """How many bytes the voxels have."""
        return math.prod(self.shape) * self["bitpix"] // 8

    @property
    def offset(self) -> int:
        """Where the voxels begin in a single file."""
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
        code = _TYPES.get(self["datatype"])
        return np.dtype(code).newbyteorder(self.order) if code else None

    @property
    def seconds(self) -> tuple[float, float]:
        """When the first frame was taken and the time between two, s; 1 where it is not known."""
        unit = _SECONDS.get(int(self["xyzt_units"]) & 0x38, 1.0)
        step = self["pixdim"][4] * unit
        first = self["toffset"] * unit
        known = math.isfinite(step) and step > 0
        return first if math.isfinite(first) else 0.0, step if known else 1.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where voxels lie: spacing and origin in LPS mm, the directions of the axes as columns."""

    spacing: np.ndarray
    origin: np.ndarray
    direction: np.ndarray
    doubts: tuple[str, ...] = ()

    @classmethod
    def of(cls, image: Any) -> Place:
        """Return the place of a SimpleITK image, or of a reader of one, on its first three axes."""
        direction = np.array(image.GetDirection()).reshape(image.GetDimension(), -1)[:3, :3]
        return cls(np.array(image.GetSpacing()[:3]), np.array(image.GetOrigin()[:3]), direction)

    def lay(self, image: sitk.Image) -> sitk.Image:
        """Give a SimpleITK image this place on the first axes, and return it."""
        axes = image.GetDimension()
        own = min(axes, 3)
        direction = np.eye(axes)
        direction[:own, :own] = self.direction[:own, :own]
        image.SetSpacing([*self.spacing[:own].tolist(), *image.GetSpacing()[own:]])
        image.SetOrigin([*self.origin[:own].tolist(), *image.GetOrigin()[own:]])
        image.SetDirection(direction.ravel().tolist())
        return image

    def is_at(self, other: Place, size: Sequence[int]) -> bool:
        """Whether another place of so many voxels, x, y, z, is this one, but for rounding."""
        ours, theirs = (place.spacing * place.direction for place in (self, other))
        return _apart(ours, self.origin, theirs, other.origin, size) < _ROUNDING


def _apart(
    one: np.ndarray, at: np.ndarray, other: np.ndarray, there: np.ndarray, shape: Any
) -> float:
    """Return the largest distance between the corners of two grids, in voxels of the first."""
    last = np.maximum(np.array(shape[:3]) - 1, 0)
    corners = np.array(np.meshgrid(*zip((0, 0, 0), last), indexing="ij")).reshape(3, -1)
    off = (one - other) @ corners + (at - there)[:, None]
    least = np.linalg.norm(one, axis=0).min()
    return float(np.linalg.norm(off, axis=0).max() / least) if least > 0 else math.inf


def place_of(header: Header, name: str) -> Place:
    """Return where a header lays its voxels: by the sform, or else the qform, or else by pixdim.

    Raises
    ------
    InputUnreadableError
        Its numbers are no numbers, or none of its forms is a grid.
    InvalidDirectionError
        The axes are not at right angles.
    """
    unit = _MM.get(int(header["xyzt_units"]) & 7, 1.0) if header.is_nifti else 1.0
    stored = np.array(header["pixdim"][1:4], np.float64) * unit
    sizes = np.abs(stored)
    shape = (*header.shape, 1, 1, 1)[:3]
    doubts = []
    forms = header.is_nifti  # Analyze has other fields there
    qform = _qform(header, unit) if forms and header["qform_code"] > 0 else None
    if forms and header["sform_code"] > 0:
        rows = np.array(header["srow"], np.float64) * unit
        _check_numbers("srow", rows)
        axes, origin = RAS_SIGNS[:, None] * rows[:, :3], RAS_SIGNS * rows[:, 3]
        if header["dim"][0] < 3 and not axes[:, 2].any():  # a slice that says nothing across
            across = np.cross(axes[:, 0], axes[:, 1])
            axes[:, 2] = across / max(np.sqrt(np.linalg.norm(across)), 1e-30)
        lengths = np.sqrt((axes**2).sum(axis=0))
        directions = axes / np.where(lengths > 0, lengths, 1)
        if lengths.all() and not is_sheared(directions, _ROUNDED):
            rounded = _slack(header, lengths, shape)
            if qform is not None and _apart(axes, origin, *qform, shape) > _DOUBTED + rounded:
                off = _apart(axes, origin, *qform, shape) * lengths.min()
                doubts.append(
                    f"its sform and its qform say two places, up to {off:.3g} mm apart; the sform"
                    " is taken"
                )
            known = np.isfinite(stored) & (stored != 0)
            stretch = np.abs(sizes - lengths)[known] * (np.array(shape) - 1)[known]
            if (stretch > _DOUBTED * lengths[known]).any():
                said, found = (" x ".join(f"{s:.4g}" for s in v) for v in (sizes, lengths))
                doubts.append(
                    f"its pixdim says voxels of {said} mm and its sform of {found} mm; the sform is"
                    " taken"
                )
            elif (stored[known] < 0).any():
                doubts.append(
                    "its pixdim has a negative size, which some programs read as a mirrored image;"
                    " the sform is taken as it is"
                )
            # the bits that ITK's reader gives
            same = known.all() and (np.abs(sizes - lengths) <= 1e-6 * lengths).all()
            return _straight(sizes if same else lengths, origin, directions, shape, doubts)
        if qform is None:
            if not lengths.all():
                raise Unsound("its sform has an axis of length 0, and it has no qform")
            raise sheared(name)
        doubts.append("its sform is sheared or has an axis of length 0; the qform is taken")
    if qform is not None:
        _check_numbers("pixdim", stored)
        lengths = np.where(sizes > 0, sizes, 1.0)
        axes, origin = qform
        if (stored < 0).any():
            doubts.append(
                "its pixdim has a negative size, which some programs read as a mirrored image; the"
                " sizes are taken without their signs"
            )
        if not sizes.all():
            doubts.append("its pixdim has a size of 0; 1 mm is taken")
        return _straight(lengths, origin, axes / np.sqrt((axes**2).sum(axis=0)), shape, doubts)
    _check_numbers("pixdim", stored)
    if not sizes.all():
        doubts.append("its pixdim has a size of 0; 1 mm is taken")
    return Place(np.where(sizes > 0, sizes, 1.0), np.zeros(3), np.eye(3), tuple(doubts))


def place_of_itk(
    place_by_itk: Place, metadata: Mapping[str, str], size: Sequence[int], name: str
) -> Place:
    """Return where the header of a file lays an image that ITK read of it: ``place_by_itk`` where
    the image is from elsewhere, or was laid elsewhere since.
    """
    header = Header.of_itk(metadata)
    if header is None or len(size) < 3:
        return place_by_itk
    readings = []
    for sign in (1.0, -1.0):  # of the third axis, which ITK does not keep
        fields = {**header.fields, "pixdim": [sign, *header["pixdim"][1:]]}
        signed = dataclasses.replace(header, fields=fields)
        try:
            place = place_of(signed, name)
        except (Unsound, errors.InvalidDirectionError):
            continue
        if place.is_at(place_by_itk, size) and not place.doubts:
            return place_by_itk
        readings.append((signed, place))
    for signed, place in readings:
        if _by_itk(signed).is_at(place_by_itk, size):
            at = place_by_itk if place.is_at(place_by_itk, size) else place
            return dataclasses.replace(at, doubts=place.doubts)
    return place_by_itk


def _by_itk(header: Header) -> Place:
    """Return where ITK's reader lays voxels of this header: it weighs the forms in another way."""
    record = np.zeros((), _LAYOUTS[348])
    for field, value in header.fields.items():
        record[field] = value
    record["dim"], record["datatype"], record["bitpix"] = [3, 1, 1, 1, 0, 0, 0, 0], 2, 8
    record["vox_offset"] = 352
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder, itk_io():
        path = Path(folder, "header.nii")
        path.write_bytes(struct.pack("=i", 348) + record.tobytes()[4:] + bytes(5))
        try:
            return Place.of(sitk.ReadImage(str(path)))
        except RuntimeError:
            return Place(np.ones(3), np.full(3, np.inf), np.eye(3))


def _straight(
    lengths: np.ndarray, origin: np.ndarray, directions: np.ndarray, shape: Any, doubts: list[str]
) -> Place:
    """Return a place whose axes are at right angles: those of a header may be rounded."""
    if np.abs(directions.T @ directions - np.eye(3)).max() > 1e-6:
        u, _, v = np.linalg.svd(directions)
        straight = u @ v
        off = _apart(directions * lengths, origin, straight * lengths, origin, shape)
        if off > _DOUBTED:
            doubts.append(
                f"its axes are not quite at right angles; straightened, a corner moves by {off:.2g}"
                " voxels"
            )
        if off > 1e-3:
            directions = straight
    return Place(lengths, origin, directions, tuple(doubts))


def _qform(header: Header, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the axes, as long as voxels, and the origin of the qform, LPS mm."""
    b, c, d = quatern = header["quatern"]
    _check_numbers("quatern", np.array(quatern))
    _check_numbers("qoffset", np.array(header["qoffset"]))
    square = b * b + c * c + d * d
    if 1 - square < 1e-7:
        scale = 1 / math.sqrt(square)
        a, b, c, d = 0.0, b * scale, c * scale, d * scale
    else:
        a = math.sqrt(1 - square)
    turn = np.array([
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - c * c - b * b],
    ])  # fmt: skip
    sizes = np.abs(np.array(header["pixdim"][1:4], np.float64))
    sizes = np.where(np.isfinite(sizes) & (sizes > 0), sizes, 1.0)
    if header["pixdim"][0] < 0:
        turn[:, 2] *= -1
    # rounded as the reference implementation rounds, whose bits ITK's reader gives
    axes = (turn * sizes).astype(np.float32).astype(np.float64) * unit
    return RAS_SIGNS[:, None] * axes, RAS_SIGNS * np.array(header["qoffset"], np.float64) * unit


def _slack(header: Header, lengths: np.ndarray, shape: Any) -> float:
    """Return how far a corner may be turned off by the digits of a quaternion, in voxels: near a
    half turn the angle depends on its last ones.
    """
    rest = 1 - sum(part * part for part in header["quatern"])
    off = 2 * header.digits
    angle = 2 * (math.sqrt(max(rest + off, 0)) - math.sqrt(max(rest - off, 0)))
    return float(angle * np.linalg.norm(lengths * shape) / lengths.min())


def _check_numbers(field: str, values: np.ndarray) -> None:
    for value in values.ravel():
        if not abs(value) <= MOST_NUMBER:
            raise Unsound(f"{field} has {value:g}, which is no number of a grid")


TIMES = ("pixdim[4]", "toffset", "xyzt_units")
_SECOND, _TIME = 8, 0x38  # the code of a second, and the bits of a unit of time


def keep_times(image: sitk.Image, series: sitk.Image) -> sitk.Image:
    """Note beside an image what the header that its series came from says of time; return it."""
    for field in TIMES:
        if series.HasMetaDataKey(field):
            image.SetMetaData(field, series.GetMetaData(field))
    return image


def times_beyond_itk(image: sitk.Image) -> dict[int, bytes]:
    """Return what a NIfTI-1 header needs for times that ITK's writer has no word for, by offset: a
    step of 0, or a unit that is none of time.
    """
    if not all(image.HasMetaDataKey(field) for field in TIMES):
        return {}
    step, first, units = (float(image.GetMetaData(field)) for field in TIMES)
    unit = int(units) & _TIME
    if step > 0 and unit in (_SECOND, *_SECONDS):
        return {}
    return {
        92: struct.pack("=f", step),
        136: struct.pack("=f", first),
        123: bytes([2 | unit]),  # 2: mm
    }


def files_of(path: Path) -> tuple[Path, Path]:
    """Return the files with the header and with the voxels."""
    there = pair_of(path)
    if not there:
        return path, path
    header, voxels = (
        next((p for p, e in zip(there, PAIRS) if e.startswith(part) and p.is_file()), path)
        for part in (".hdr", ".img")
    )
    return header, voxels


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
    source, voxels = files_of(path)
    _, packed = first_bytes(voxels, 2)
    offset = header.offset if source == voxels and not packed else 0
    return Stored([voxels], offset, header.bytes, "gzip" if packed else "", 1)


def read_nifti(header: Header, stored: Stored, name: str) -> Reading:
    """Return the image of a file: of one volume it has three axes, else four; of several numbers a
    voxel it is a vector image.
    """
    place = place_of(header, name)
    shape = header.shape
    frames, channels = math.prod(shape[3:4]), _COLOURS.get(header["datatype"], 1)
    planes = math.prod(shape[4:])
    if frames > 1 and channels * planes > 1:
        raise Unsound(f"it has {frames} volumes of {channels * planes} numbers a voxel; give one")
    if header["datatype"] not in {**_TYPES, **_COLOURS}:
        raise Unsound(
            f"its voxels are of datatype {header['datatype']}, which is no real number; convert"
            " them, complex ones to their magnitude"
        )
    kind = np.dtype("u1" if channels > 1 else _TYPES[header["datatype"]])
    if kind.itemsize * channels * 8 != header["bitpix"]:
        raise Unsound(f"its datatype is {header['datatype']} and its bitpix {header['bitpix']}")
    if len(shape) < 2:
        raise Unsound("it has one axis; give a volume or a slice")
    size = shape[:3]
    if len(shape) == 2 and is_sheared(place.direction[:2, :2]):  # a slice across the axes
        size = (*shape, 1)
    raw = np.empty((planes, frames, *size[::-1], channels), kind)
    unpack_into(raw, stored, header.offset)
    array = header.values(raw.byteswap() if header.order == ">" else raw)
    if planes > 1:
        array = np.ascontiguousarray(np.moveaxis(array[:, 0, ..., 0], 0, -1))
        if header["intent_code"] == _DISPLACEMENTS:
            array[..., :2] *= -1
    elif channels > 1:
        array = array[0, 0]
    else:
        array = array[0, :, ..., 0] if frames > 1 else array[0, 0, ..., 0]
    image = sitk.GetImageFromArray(array, isVector=channels * planes > 1)
    if frames > 1:
        first, step = header.seconds
        image.SetOrigin([0, 0, 0, first])
        image.SetSpacing([1, 1, 1, step])
        for field in TIMES:
            value = header["pixdim"][4] if field == "pixdim[4]" else header[field]
            image.SetMetaData(field, repr(value))
    for field in ("intent_code", "intent_name", "intent_p1", "intent_p2", "intent_p3", "descrip"):
        value = header[field]
        text = value.decode("latin-1") if isinstance(value, bytes) else f"{value:g}"
        image.SetMetaData(field, text)
    return Reading(place.lay(image), place.doubts)
