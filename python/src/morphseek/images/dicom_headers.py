"""Headers of DICOM files, by pydicom: objects whole, and each frame of an image by itself.

Other readers show the elements of a file alone. What a frame of an enhanced file is and where it
lies is in sequences: its own, one that all frames share, and the file's elements behind them.
"""

from __future__ import annotations

import contextlib
import math
import warnings
import zlib
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import errors
from .._files import readable
from .._regular import head as beginning

if TYPE_CHECKING:
    from pydicom.dataset import Dataset
    from pydicom.uid import UID

_MARK = 128  # bytes before the letters DICM
_META = _MARK + 16  # bytes before what the length of the meta header counts
_WHOLE = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32)
_CHUNK, _MOST_UNPACKED = 1 << 20, 1 << 30  # bytes
_OLD = (b"\x02\x00", b"\x08\x00")  # groups that a file without the letters begins with

_DOSE = "1.2.840.10008.5.1.4.1.1.481.2"
_CAPTURE = "1.2.840.10008.5.1.4.1.1.7.3"  # of many frames, which GDCM reads as they are stored
_FLOATS = ("FloatPixelData", "DoubleFloatPixelData")
PLACE = ("ImagePositionPatient", "ImageOrientationPatient")
_SHARED, _OWN = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"
_DETECTOR = "DetectorInformationSequence"
_MACROS = (
    "PlanePositionSequence", "PlaneOrientationSequence", "PlanePositionVolumeSequence",
    "PlaneOrientationVolumeSequence", "PixelMeasuresSequence", "PixelValueTransformationSequence",
    "FrameContentSequence", "CardiacSynchronizationSequence", "MREchoSequence",
    "MRDiffusionSequence", "MRModifierSequence", "MRImageFrameTypeSequence",
    "CTImageFrameTypeSequence", "PETFrameTypeSequence", "SegmentIdentificationSequence",
)  # fmt: skip
# of a volume of ultrasound, which lies somewhere in the patient
_IN_VOLUME = {"ImagePositionVolume": PLACE[0], "ImageOrientationVolume": PLACE[1]}
# by creator: how many slices a Siemens or a UIH picture is tiled with
_TILES = {"SIEMENS MR HEADER": (0x0019, 0x0A), "Image Private Header": (0x0065, 0x50)}
_BITS = ("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "BitsAllocated")
# what tells the frames of one place apart, in this order
ORDER = (
    "SeriesNumber", "TemporalPositionIdentifier", "TemporalPositionIndex", "TimeSlotVector",
    "TriggerTime", "NominalCardiacTriggerDelayTime", "AcquisitionDate", "AcquisitionTime",
    "AcquisitionDateTime", "FrameReferenceDateTime", "FrameAcquisitionDateTime",
    "AcquisitionNumber", "InstanceNumber",
)  # fmt: skip
# why a series shows a place several times; the first element that differs tells
SEVERAL = {
    "ReferencedSegmentNumber": "segments",
    "EnergyWindowVector": "energy windows",
    "StackID": "stacks",
    "EchoTime": "echo times",
    "EffectiveEchoTime": "echo times",
    "EchoNumbers": "echoes",
    "InversionTime": "inversion times",
    "DiffusionBValue": "diffusion weightings",
    "ImageType": "kinds, such as magnitude and phase",
    "FrameType": "kinds, such as magnitude and phase",
    "ComplexImageComponent": "kinds, such as magnitude and phase",
    "TemporalPositionIdentifier": "times",
    "TemporalPositionIndex": "times",
    "TimeSlotVector": "times",
    "TriggerTime": "times",
    "NominalCardiacTriggerDelayTime": "times",
    "AcquisitionNumber": "acquisitions",
    "AcquisitionTime": "times",
    "FrameAcquisitionDateTime": "times",
}
PIXELS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")
TYPE = ("BitsAllocated", "BitsStored", "PixelRepresentation")  # of pixels
_ELEMENTS = {
    *PLACE, *PIXELS, *TYPE, *ORDER, *SEVERAL, *_IN_VOLUME, *_BITS, "SOPClassUID", "SOPInstanceUID",
    "SeriesInstanceUID", "Modality", "SpacingBetweenSlices", "RescaleSlope", "RescaleIntercept",
    "GridFrameOffsetVector", "DoseGridScaling", "SliceVector", "PhotometricInterpretation",
    "HighBit",
}  # fmt: skip


def is_dicom(path: Path) -> bool:
    """Whether a file begins as DICOM's do."""
    return beginning(path, _MARK + 4)[_MARK:] == b"DICM"


def read_object(path: Path, name: str, tags: list[str] | None = None) -> Dataset:
    """Read a DICOM file, or the elements `tags` of it alone."""
    import pydicom

    with _parsed(path, name):
        _check_deflated(path, name)
        read = pydicom.dcmread(path, stop_before_pixels=tags is not None, specific_tags=tags)
        if not tags:
            for element in read.iterall():  # or pydicom parses them later, unguarded
                _ = element.value
        return read


@contextlib.contextmanager
def _parsed(path: Path, name: str) -> Iterator[None]:
    """Make what pydicom raises our errors, and keep its warnings to itself."""
    try:
        with readable(path, name), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about values that break the standard's rules
            yield
    except errors.MorphSeekError:
        raise
    except Exception:  # pydicom raises many kinds for damaged files
        raise _refused(path, name) from None


def _refused(path: Path, name: str, why: str = "") -> errors.MorphSeekError:
    """Return the error of a file; without a reason, of a damaged one."""
    damaged = "cannot be read as DICOM: it is cut short or damaged, or no DICOM file; copy it again"
    return errors.InputUnreadableError(f"{name}: {path} {why or damaged}")


def _check_deflated(path: Path, name: str) -> None:
    """Refuse a compressed object that is larger than any is, before it is unpacked."""
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    meta = read_file_meta_info(path)
    if meta.get("TransferSyntaxUID") != DeflatedExplicitVRLittleEndian:
        return
    unpacker, size = zlib.decompressobj(-zlib.MAX_WBITS), 0
    with open(path, "rb") as file:
        file.seek(_META + int(meta.FileMetaInformationGroupLength))
        waiting = file.read(_CHUNK)
        while waiting and not unpacker.eof:
            size += len(unpacker.decompress(waiting, _CHUNK))
            waiting = unpacker.unconsumed_tail or file.read(_CHUNK)
            if size > _MOST_UNPACKED:
                most = f"{_MOST_UNPACKED >> 20} MiB"
                why = f"unpacks to more than {most}; save it without compression"
                raise _refused(path, name, why)


class Frame(NamedTuple):
    """A slice: the image of a file, or one of those in it."""

    file: Path
    serial: int
    """In its file."""
    total: int
    """Of frames in the file."""
    elements: ChainMap[str, Any]
    """By keyword: the frame's own, those that all share, the file's."""
    is_packed: bool = False
    """Whether the pixels are compressed, or in a form that GDCM alone may know."""
    doubt: str = ""
    """Why its place is not sure."""
    shifts: tuple[int, int] = (0, 0)
    """Bits by which a stored word moves up, then down, to leave its value."""
    table: tuple[int, np.ndarray] | None = None
    """The values of the stored numbers from the first one on, in place of a scale."""

    def __str__(self) -> str:
        return self.file.name if self.total == 1 else f"frame {self.serial + 1} of {self.file.name}"

    def numbers(self, key: str, length: int) -> np.ndarray | None:
        """Return the numbers of an element; None where it has others or none."""
        try:
            values = np.array(self.elements[key], dtype=np.float64).ravel()
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return values if values.size == length and np.isfinite(values).all() else None

    def number(self, key: str) -> float | None:
        values = self.numbers(key, 1)
        return None if values is None else float(values[0])

    def text(self, key: str) -> str:
        value = self.elements.get(key)
        return "" if value is None else str(value).strip()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return int(self.elements["Columns"]), int(self.elements["Rows"])

    @property
    def scale(self) -> tuple[float, float]:
        """The slope and the intercept of its values."""
        if self.text("SOPClassUID") == _DOSE:
            return self.number("DoseGridScaling") or 1.0, 0.0
        return self.number("RescaleSlope") or 1.0, self.number("RescaleIntercept") or 0.0

    def values(self, stored: np.ndarray) -> np.ndarray:
        """Return the values of stored pixels: whole numbers where scale and offset are whole."""
        up, down = self.shifts
        if up or down:
            stored = stored << up >> down
        if self.table:
            first, table = self.table
            return table[np.clip(stored.astype(np.int64) - first, 0, len(table) - 1)]
        slope, intercept = self.scale
        if (slope, intercept) == (1, 0):
            return stored
        scaled = stored * slope + intercept
        bits = int(self.number("BitsStored") or self.number("BitsAllocated") or 0)
        least = -(2.0 ** (bits - 1)) if self.is_signed else 0.0
        ends = sorted(end * slope + intercept for end in (least, least + 2.0**bits - 1))
        for kind in _WHOLE if slope.is_integer() and intercept.is_integer() else ():
            if np.iinfo(kind).min <= ends[0] and ends[1] <= np.iinfo(kind).max:
                return scaled.astype(kind)
        return scaled

    @property
    def is_signed(self) -> bool:
        """Whether its stored pixels may lie below 0."""
        return bool(self.number("PixelRepresentation"))


def frames_of(path: Path, name: str) -> list[Frame]:
    """Return the frames of a DICOM file; none where it is no DICOM, or no image."""
    start = beginning(path, _MARK + 4)
    is_new = start[_MARK:] == b"DICM"
    if not is_new and start[:2] not in _OLD:
        return []
    try:
        with _parsed(path, name):
            return _frames(path, name, is_new)
    except errors.InputUnreadableError:
        if is_new:
            raise
        return []  # it began by chance as DICOM without the letters does


def _frames(path: Path, name: str, is_new: bool) -> list[Frame]:
    from pydicom import dcmread

    if is_new:
        _check_deflated(path, name)
    head = dcmread(path, stop_before_pixels=True, force=not is_new)
    top = _elements(head)
    if not top.get("Rows") or not top.get("Columns"):
        if "Image Storage" in getattr(head.file_meta.get("MediaStorageSOPClassUID"), "name", ""):
            raise _refused(path, name)
        return []
    count = int(top.get("NumberOfFrames") or 1)
    if min(int(top["Rows"]), int(top["Columns"]), count) < 1 or count > path.stat().st_size:
        raise _refused(path, name)
    colours = int(top.get("SamplesPerPixel") or 1)
    if colours > 1 or str(top.get("PhotometricInterpretation")).startswith("PALETTE"):
        what = f"{colours} numbers a pixel" if colours > 1 else "those of a palette"
        raise _refused(path, name, f"is a picture in colours, {what}; give a scalar image")
    if count == 1 and _is_mosaic(head, top):
        why = "is a mosaic, the slices of a volume as the tiles of one picture; convert it to NIfTI"
        raise _refused(path, name, f"{why} first, for instance by dcm2niix")
    shared = _macros(*_items(head, _SHARED)[:1])
    own = [_macros(each) for each in _items(head, _OWN)]
    if detector := _items(head, _DETECTOR):
        elements = _elements(detector[0])
        top |= {key: elements[key] for key in PLACE if key in elements}
    if own and len(own) != count:
        why = f"describes {len(own)} frames, and has {count}; copy it again, or save it anew"
        raise _refused(path, name, why)
    doubt = ""
    if any("ImagePositionVolume" in each for each in (shared, *own)):
        doubt = "it does not say how its volume lies in the patient"
    own = own or [{} for _ in range(count)]
    if count > 1 and not any(PLACE[0] in each for each in (shared, *own)):
        places, doubt = _stacked(top, count)
        top.pop(PLACE[0], None)  # of the first one alone
        own = [{**each, **place} for each, place in zip(own, places)]
    syntax = _syntax(head)
    is_packed = syntax is None or syntax.is_encapsulated
    shifts, table = _shifts(top, syntax, path, name), _table(head, _order(syntax))
    return [
        Frame(path, k, count, ChainMap(each, shared, top), is_packed, doubt, shifts, table)
        for k, each in enumerate(own)
    ]


def _syntax(data: Dataset) -> UID | None:
    """Return the way in which a file is written; None where pydicom does not know it."""
    syntax = data.file_meta.get("TransferSyntaxUID")
    return syntax if syntax and syntax.is_transfer_syntax and not syntax.is_private else None


def _order(syntax: UID | None) -> str:
    return ">" if syntax is not None and not syntax.is_little_endian else "<"


def _shifts(top: Mapping[str, Any], syntax: UID | None, path: Path, name: str) -> tuple[int, int]:
    """Return :attr:`Frame.shifts`; what JPEG and its kin unpack needs none."""
    from pydicom.uid import RLELossless

    word = int(top.get("BitsAllocated") or 0)
    stored = int(top.get("BitsStored") or word)
    high = int(top.get("HighBit") or 0)
    if word not in (8, 16, 32) or stored > word:
        return 0, 0
    high = high if stored <= high < word else stored - 1
    if syntax is not None and syntax.is_encapsulated and syntax != RLELossless:
        if high == stored - 1:
            return 0, 0
        why = f"is compressed, and its values are in bits {high + 1 - stored} to {high} of {word}"
        raise _refused(path, name, f"{why}; save it uncompressed, for instance by gdcmconv --raw")
    return word - 1 - high, word - stored


def _table(head: Dataset, order: str) -> tuple[int, np.ndarray] | None:
    """Return :attr:`Frame.table`: the modality LUT of a file (PS3.3 C.11.1.1)."""
    for item in _items(head, "ModalityLUTSequence")[:1]:
        count, first, bits = item.LUTDescriptor
        count, data = int(count) % 2**16 or 2**16, item.LUTData
        is_packed = bits == 8 and len(data) < 2 * count  # some give its bytes a word each
        kind = "u1" if is_packed else f"{order}u2"
        values = np.frombuffer(data, kind) if isinstance(data, bytes) else np.ravel(data)
        if values.size < count:
            raise ValueError
        return int(first), values[:count].astype(np.uint16)
    return None


def _bytes(elements: Mapping[str, Any]) -> int:
    """Return how many bytes the pixels take where they are not compressed."""
    return -(-math.prod(int(elements.get(key) or 1) for key in _BITS) // 8)


def read_pixels(frame: Frame, name: str) -> Dataset:
    """Read the elements of a frame's file that say what its pixels are, and these."""
    from pydicom import dcmread

    wanted = [*_BITS, *TYPE, *_FLOATS, "HighBit", "PixelData"]
    with _parsed(frame.file, name):
        read = dcmread(frame.file, force=True, specific_tags=wanted)
        if floats := [key for key in _FLOATS if key in read]:
            why = f"has floating-point pixels ({floats[0]}), which are not read; convert it to"
            raise _refused(frame.file, name, f"{why} NIfTI first, for instance by dcm2niix")
        if not frame.is_packed and len(read.PixelData) < _bytes(_elements(read)):
            raise _refused(frame.file, name)
        return read


def plain_pixels(read: Dataset, frame: Frame, name: str) -> np.ndarray:
    """Return pixels that are not compressed, (frame, row, column)."""
    with _parsed(frame.file, name):
        (columns, rows), bits = frame.size, int(read.BitsAllocated)
        count, data, order = frame.total * rows * columns, read.PixelData, _order(_syntax(read))
        if bits not in (1, 8, 16, 32, 64):
            why = f"has pixels of {bits} bits, which are not read; convert it to NIfTI first, for"
            raise _refused(frame.file, name, f"{why} instance by dcm2niix")
        if bits <= 8 and order == ">" and read["PixelData"].VR == "OW":  # two in a word
            data = np.frombuffer(data, ">u2").astype("<u2").tobytes()
        if bits == 1:
            words = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little")
        else:
            kind = np.dtype(f"{order}{'i' if frame.is_signed else 'u'}{bits // 8}")
            words = np.frombuffer(data, kind, count).astype(kind.newbyteorder("="))
        return words.reshape(frame.total, rows, columns)


def write_packed(read: Dataset, frame: Frame, to: Path, name: str) -> None:
    """Write pixels that are compressed to a file of their own, without scale and place."""
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import UID

    with _parsed(frame.file, name):
        read.PhotometricInterpretation = "MONOCHROME2"
        if any(frame.shifts):
            read.BitsStored, read.HighBit = read.BitsAllocated, read.BitsAllocated - 1
        meta = FileMetaDataset()
        if syntax := read.file_meta.get("TransferSyntaxUID"):
            meta.TransferSyntaxUID = syntax
        meta.MediaStorageSOPClassUID = read.SOPClassUID = UID(_CAPTURE)
        meta.MediaStorageSOPInstanceUID = read.SOPInstanceUID = UID("2.25.1")
        read.file_meta, read.preamble = meta, bytes(_MARK)
        read.save_as(to)


def _items(data: Dataset, key: Any) -> list[Dataset]:
    try:
        return list(data[key].value) if key in data else []
    except Exception:  # pydicom raises many kinds for damaged values
        return []


def _elements(data: Dataset) -> dict[str, Any]:
    """Return what pydicom can read of the elements that matter, beside sequences."""
    from pydicom.datadict import keyword_for_tag

    elements = {}
    for tag in data.keys():
        if (key := keyword_for_tag(tag)) not in _ELEMENTS:
            continue
        try:
            element = data[tag]
        except Exception:  # pydicom raises many kinds for damaged values
            continue
        if not element.is_empty:
            elements[key] = element.value
    return elements


def _macros(*groups: Dataset) -> dict[str, Any]:
    elements: dict[str, Any] = {}
    for item in (item for group in groups for key in _MACROS for item in _items(group, key)[:1]):
        elements |= _elements(item)
    return elements | {new: elements[old] for old, new in _IN_VOLUME.items() if old in elements}


def _is_mosaic(head: Dataset, top: Mapping[str, Any]) -> bool:
    kinds = top.get("ImageType") or ()
    if "MOSAIC" in ([kinds] if isinstance(kinds, str) else list(kinds)):
        return True
    for creator, (group, element) in _TILES.items():
        try:
            tiles = head.private_block(group, creator)[element].value
            count = int.from_bytes(tiles, "little") if isinstance(tiles, bytes) else int(tiles)
        except Exception:  # it is not there, or damaged
            continue
        if count > 1:
            return True
    return False


def _stacked(top: dict[str, Any], count: int) -> tuple[list[dict[str, Any]], str]:
    """Return where frames with one position for all lie (RT dose, NM), and a doubt."""
    first = Frame(Path(), 0, count, ChainMap(top))
    corner, axes = (first.numbers(key, n) for key, n in zip(PLACE, (3, 6)))
    between = first.number("SpacingBetweenSlices") or 0.0
    offsets, doubt = None, ""
    if (grid := first.numbers("GridFrameOffsetVector", count)) is not None:
        offsets = grid - grid[0]
        if corner is not None and min(abs(grid[0]), abs(grid[0] - corner[2])) > 1e-2:
            doubt = "its GridFrameOffsetVector begins neither with 0 nor with its first slice's z"
    elif first.text("Modality") == "NM":
        if "RECON" in first.text("ImageType") and between:  # the sign says which way: C.8.4.15.1.1
            slices = first.numbers("SliceVector", count)
            offsets = between * ((np.arange(count) + 1.0 if slices is None else slices) - 1)
    elif between > 0:
        offsets = between * np.arange(count)
        doubt = "its frames have no positions of their own: SpacingBetweenSlices is taken"
    if offsets is None or corner is None or axes is None:
        return [{}] * count, ""
    normal = np.cross(axes[:3], axes[3:])
    vectors = {key: first.numbers(key, count) for key in ("TimeSlotVector", "EnergyWindowVector")}
    return [
        {PLACE[0]: (corner + offset * normal).tolist()}
        | {key: float(values[k]) for key, values in vectors.items() if values is not None}
        for k, offset in enumerate(offsets)
    ], doubt


def clock(text: str) -> float | None:
    """Return the seconds since midnight of a time, or of a date and time."""
    digits = text.replace(":", "").partition("+")[0].partition("-")[0]
    if len(digits.partition(".")[0]) >= 12:
        digits = digits[8:]
    try:
        seconds = int(digits[:2]) * 3600 + int(digits[2:4] or 0) * 60 + float(digits[4:] or 0)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
