"""Files of formats that ITK reads and does not check: TIFF, VTK, MINC, JPEG, BMP, GIPL, MRC."""

from __future__ import annotations

import re
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .._grid import RAS
from .headers.fields import NO_SPACING, CutShort, Unsound, units_of

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the latter two: BigTIFF
_BITS, _PHOTOMETRIC, _TEXT, _ORIENTATION, _KIND = 258, 262, 270, 274, 339
_RESOLUTIONS = (282, 283)  # along x and y
_PIECES = ((273, 279), (324, 325))  # of strips and of tiles: where they begin, their bytes
_FLOATS = 3  # a kind of numbers
_UPRIGHT = (None, 1, 4)  # orientations whose rows lie as ITK takes them
_TURNED = "its rows are turned or mirrored (Orientation); save it upright"
# of the EXIF of a JPEG or a PNG, in either order of bytes
_EXIF = re.compile(
    rb"(?s)(?:Exif\0\0|eXIf)(?:II\*\0|MM\0\*).{4,999}?"
    rb"(?:\x12\x01\x03\0\x01\0\0\0(?P<little>.)|\x01\x12\0\x03\0\0\0\x01\0(?P<big>.))"
)
_DAMAGED = "its tags are damaged; copy it again"
_PALETTE = (
    "its numbers stand for the colours of a palette, and the brightness of these is taken; of a"
    " label map save the numbers, in plain grey or as .nii.gz"
)
_WHITE_IS_ZERO = (
    "its numbers stand for white where they are 0 (PhotometricInterpretation), and are taken as"
    " they are; if it looks inverted beside the other image, save it anew with black as 0"
)
_NO_GAP = "its header does not say how far its slices are apart; 1 mm is taken"
#: Formats whose voxels are not compressed, and the bytes of their headers.
_PLAIN = {"GiplImageIO": 256, "MRCImageIO": 1024}


def check(path: Path) -> None:
    """Refuse what is cut short, or what ITK would misread, or read without end."""
    with open(path, "rb") as file:
        head = file.read(1 << 12)
    size = path.stat().st_size
    if head[:4] in _TIFF:
        try:
            _check_tiff(path, size)
        except (struct.error, TypeError, IndexError, AttributeError, OverflowError):
            raise Unsound(_DAMAGED) from None
    elif head.startswith(b"# vtk") and b"CELL_DATA" in _lines(head):
        raise Unsound("its numbers are of cells, not of points; convert them to POINT_DATA")
    elif head.startswith(b"BM") and (needed := int.from_bytes(head[2:6], "little")) > size:
        raise CutShort(path, size, needed)
    if (exif := _EXIF.search(head)) and (exif["little"] or exif["big"]) not in b"\0\1":
        raise Unsound(_TURNED)
    if head.startswith(b"\xff\xd8"):
        data = path.read_bytes()
        if data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
            raise Unsound("it is cut short; copy it again")


def doubts_of(path: Path, reader: str, image: sitk.Image) -> tuple[str, ...]:
    """Return what a file leaves in doubt; refuse plain voxels that are fewer than were read."""
    array = sitk.GetArrayViewFromImage(image)
    with open(path, "rb") as file:
        head = file.read(1 << 12)
    begins = _PLAIN.get(reader)
    if reader == "VTKImageIO" and b"\nASCII" not in head:
        begins = len(_lines(head)) if b"\nLOOKUP_TABLE" in head else 0
    size = path.stat().st_size
    if begins is not None and not path.name.lower().endswith(".gz"):
        if size < (needed := begins + array.nbytes):
            raise CutShort(path, size, needed)
    doubts = _doubts_of_colours(path, head, array)
    has_none = reader == "TIFFImageIO" and set(image.GetSpacing()) == {1.0}
    if reader == "VTKImageIO":
        has_none = not re.search(rb"(?im)^(SPACING|ASPECT_RATIO)", _lines(head))
    if has_none:
        return (*doubts, NO_SPACING)
    has_no_gap = reader == "TIFFImageIO" and image.GetSpacing()[2:] == (1.0,)
    return (*doubts, _NO_GAP) if has_no_gap else doubts


def _doubts_of_colours(path: Path, head: bytes, array: np.ndarray) -> tuple[str, ...]:
    """Return what a TIFF or a PNG says of its numbers that its voxels, as read, do not."""
    if head[:4] in _TIFF:
        tags = _pages(path, path.stat().st_size)[0]
        meant = {0: (_WHITE_IS_ZERO,), 3: (_PALETTE,)}.get(tags.get(_PHOTOMETRIC, 1), ())
        return meant if tags.get(_BITS, (1,))[0] >= 8 else ()  # ITK colours those of fewer bits
    is_indexed = head.startswith(b"\x89PNG") and head[25] == 3
    return (_PALETTE,) if is_indexed and not is_grey(array) else ()


def is_grey(array: np.ndarray) -> bool:
    """Whether red, green and blue, the first of the last axis, are alike everywhere."""
    return all(np.array_equal(array[..., 0], array[..., k]) for k in (1, 2))


def laid(image: sitk.Image, reader: str, path: Path) -> sitk.Image:
    """Lay a MINC file, which ITK leaves in RAS, in LPS; space a TIFF as OME or ImageJ notes."""
    if reader == "TIFFImageIO":
        image.SetSpacing([told or step for told, step in zip(_steps(path), image.GetSpacing())])
    if reader == "MINCImageIO":
        axes = np.array(image.GetDirection()).reshape(3, 3)
        image.SetDirection((RAS[:3, :3] @ axes).ravel().tolist())
        image.SetOrigin((RAS[:3, :3] @ image.GetOrigin()).tolist())
    return image


def _steps(path: Path) -> list[float]:
    """Return the sizes of voxels along x, y and z that a TIFF notes, mm; 0 for what it does not."""
    tags = _pages(path, path.stat().st_size)[0]
    text = tags.get(_TEXT, "")
    words = dict(re.findall(r"\bPhysicalSize([XYZ](?:Unit)?)=\"([^\"]*)\"", text))  # OME's
    sizes, units = ([words.get(axis + end, "") for axis in "XYZ"] for end in ("", "Unit"))
    units = [unit or "um" for unit in units]
    if text.startswith("ImageJ="):
        lines = dict(re.findall(r"^(\w+)=(.*?)\s*$", text, re.M))
        known = (float(tags.get(tag, 0)) for tag in _RESOLUTIONS)
        sizes = [str(1 / pixels) if pixels else "" for pixels in known]
        sizes.append(lines.get("spacing", ""))
        units = [lines.get("unit", "pixel").replace("\\u00B5", "u")] * 3
    mm, unknown = units_of(units)
    try:
        steps = np.array([float(size or 0) for size in sizes]) * (mm or 1.0)
    except ValueError:
        steps = np.zeros(3)
    is_sound = not unknown and np.isfinite(steps).all() and (steps >= 0).all()
    return steps.tolist() if is_sound else [0.0] * 3


def _lines(head: bytes) -> bytes:
    """Return the lines of a VTK file that say what follows: those before the voxels."""
    match = re.match(rb"(?s).*?\nLOOKUP_TABLE[^\n]*\n", head)
    return match[0] if match else head


def _check_tiff(path: Path, size: int) -> None:
    text = ""
    for tags in _pages(path, size):
        pieces = [zip(tags[a], tags[b]) for a, b in _PIECES if a in tags and b in tags]
        for begin, length in (piece for each in pieces for piece in each):
            if begin + length > size:
                raise CutShort(path, size, begin + length)
        if not pieces:
            raise Unsound(_DAMAGED)
        if tags.get(_KIND, (1,))[0] == _FLOATS and tags.get(_BITS, (1,))[0] == 16:
            raise Unsound("its voxels are floats of 16 bits, which no reader here knows")
        if tags.get(_ORIENTATION) not in _UPRIGHT:
            raise Unsound(_TURNED)
        text = text or tags.get(_TEXT, "")
    counts = re.findall(r"^(?:frames|channels)=(\d+)", text, re.M)  # ImageJ's
    counts += re.findall(r"\bSize[TC]=\"(\d+)\"", text)  # OME's
    counts += re.findall(r"\"axes\": \"[TC]", text) and ["2"]  # tifffile's
    if any(int(count) > 1 for count in counts):
        raise Unsound("it holds several times or channels; save one volume alone")


def _pages(path: Path, size: int) -> list[dict[int, Any]]:
    """Return the tags of each page of a TIFF file; their chain must be whole."""
    from PIL import TiffImagePlugin

    pages: list[dict[int, Any]] = []
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about tags that are left out
        head = file.read(8)
        head += file.read(8) if b"+" in head[:4] else b""  # BigTIFF's is longer
        tags = TiffImagePlugin.ImageFileDirectory_v2(head)
        places: set[int] = set()
        while place := tags.next:
            if place in places:
                raise Unsound("its pages lie over one another; it is damaged")
            if place >= size:
                raise CutShort(path, size, place)
            places.add(place)
            file.seek(place)
            tags.load(file)
            pages.append(dict(tags))
    if not pages:
        raise Unsound(_DAMAGED)
    return pages
