"""NIfTI-1 and NIfTI-2: where the header lays the voxels, by the standard, and the voxels.

Every entrance (a path, an object of nibabel, an image that SimpleITK read) asks :func:`place_of`.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._grid import RAS, Grid, is_sheared, sheared
from .._itk import itk_io
from .formats import NIFTI
from .headers.fields import MOST_NUMBER, Stored, Unsound
from .headers.nifti import LAYOUTS, SECONDS, TYPES, Header, header_of
from .headers.stream import unpack_into
from .image import Reading, sentences

_COLOURS = {128: 3, 2304: 4}  # RGB, RGBA: bytes a voxel
_DISPLACEMENTS = 1006  # the intent of vectors in RAS, which become LPS as ITK's reader has them
_MM = {1: 1e3, 3: 1e-3}  # metres, micrometres
_NO_SIDES = (
    "it is an Analyze file, which does not tell left from right; x is taken to go to the left, as"
    " by SPM"
)
_NO_PLACE = (
    "its header does not say where it lies (sform_code and qform_code are 0); as by ITK x is taken"
    " to go to the left and y to the back, which other programs take to go to the front"
)
_ROUNDING = 0.01  # voxels between two places of a corner that are one
_ROUNDED = 2e-3  # cosines between axes whose numbers have three decimals
_DOUBTED = 0.1  # voxels between two places of a corner from which on they are two places


class Place(NamedTuple):
    """The grid of a file's voxels, and what leaves it in doubt."""

    grid: Grid
    doubts: tuple[str, ...] = ()


def _apart(one: Grid, other: Grid) -> float:
    """Return how far the corners of two grids of one size lie apart, in voxels of the first."""
    least = np.linalg.norm(one.index_to_physical[:3, :3], axis=0).min()
    off = np.linalg.norm(one.corners() - other.corners(), axis=1).max()
    return float(off / least) if least > 0 else math.inf


def place_of(header: Header, name: str) -> Place:
    """Return where a header lays its voxels: by the sform, or else the qform, or else by pixdim.
    Raise Unsound where its numbers are no grid; refuse axes that are not at right angles.
    """
    unit = _MM.get(int(header["xyzt_units"]) & 7, 1.0) if header.is_nifti else 1.0
    stored = np.array(header["pixdim"][1:4], np.float64) * unit
    sizes = np.abs(stored)
    shape = header.volume
    doubts = []
    forms = header.is_nifti  # Analyze has other fields there
    qform = _qform(header, unit) if forms and header["qform_code"] > 0 else None
    if forms and header["sform_code"] > 0:
        rows = np.array(header["srow"], np.float64) * unit
        _check_numbers("srow", rows)
        matrix = RAS @ [*rows, (0, 0, 0, 1)]
        if header["dim"][0] < 3 and not matrix[:3, 2].any():  # a slice that says nothing across
            across = np.cross(matrix[:3, 0], matrix[:3, 1])
            matrix[:3, 2] = across / max(np.sqrt(np.linalg.norm(across)), 1e-30)
        sform = Grid.from_matrix(shape, matrix)
        lengths = np.array(sform.spacing)
        if lengths.all() and not sform.is_sheared(_ROUNDED):
            off = 0.0 if qform is None else _apart(sform, qform)
            if off > _DOUBTED + _slack(header, lengths, shape):
                doubts.append(
                    f"its sform and its qform say two places, up to {off * lengths.min():.3g} mm"
                    " apart; the sform is taken"
                )
            known = np.isfinite(stored) & (stored != 0)
            stretch = np.abs(sizes - lengths)[known] * (np.array(shape) - 1)[known]
            if (stretch > _DOUBTED * lengths[known]).any():
                texts = [" x ".join(f"{s:.4g}" for s in values) for values in (sizes, lengths)]
                doubts.append(
                    f"its pixdim says voxels of {texts[0]} mm and its sform of {texts[1]} mm; the"
                    " sform is taken"
                )
            elif (stored[known] < 0).any():
                doubts.append(
                    "its pixdim has a negative size, which some programs read as a mirrored image;"
                    " the sform is taken as it is"
                )
            # the bits that ITK's reader gives
            if known.all() and (np.abs(sizes - lengths) <= 1e-6 * lengths).all():
                sform = dataclasses.replace(sform, spacing=tuple(sizes))
            return _straight(sform, doubts)
        if qform is None:
            if not lengths.all():
                raise Unsound("its sform has an axis of length 0, and it has no qform")
            raise sheared(name)
        doubts.append("its sform is sheared or has an axis of length 0; the qform is taken")
    _check_numbers("pixdim", stored)
    if qform is not None and (stored < 0).any():
        doubts.append(
            "its pixdim has a negative size, which some programs read as a mirrored image; the"
            " sizes are taken without their signs"
        )
    if not sizes.all():
        doubts.append("its pixdim has a size of 0; 1 mm is taken")
    spacing = tuple(np.where(sizes > 0, sizes, 1.0))
    if qform is not None:
        return _straight(dataclasses.replace(qform, spacing=spacing), doubts)
    if not forms:
        return Place(_analyze(header, shape, np.array(spacing)), (*doubts, _NO_SIDES))
    return Place(Grid(shape, spacing), (*doubts, _NO_PLACE))


def _analyze(header: Header, shape: tuple[int, ...], spacing: np.ndarray) -> Grid:
    """Lay an Analyze file as SPM: x left, y front, z up, about its noted origin or middle."""
    size, noted = np.array(shape), np.array(header.fields.get("origin", (0, 0, 0)))
    is_noted = noted.any() and (noted > -size).all() and (noted < 2 * size).all()
    axes = np.diag(spacing) * (-1, 1, 1)
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = axes, -axes @ (noted - 1 if is_noted else (size - 1) / 2)
    return Grid.from_matrix(shape, RAS @ matrix)


def place_of_itk(by_itk: Grid, metadata: Mapping[str, str], name: str) -> Place:
    """Return where a header lays ITK's image: ``by_itk`` where it was laid elsewhere since."""
    header = Header.of_itk(metadata)
    if header is None:
        return Place(by_itk)
    readings = []
    for sign in (1.0, -1.0):  # of the third axis, which ITK does not keep
        fields = {**header.fields, "pixdim": [sign, *header["pixdim"][1:]]}
        signed = dataclasses.replace(header, fields=fields)
        try:
            grid, doubts = place_of(signed, name)
        except (Unsound, errors.InvalidDirectionError):
            continue
        is_there = _apart(dataclasses.replace(grid, size=by_itk.size), by_itk) < _ROUNDING
        if is_there and not doubts:
            return Place(by_itk)
        readings.append((signed, Place(by_itk if is_there else grid, doubts)))
    for signed, place in readings:
        at = dataclasses.replace(_by_itk(signed), size=by_itk.size)
        if _apart(at, by_itk) < _ROUNDING:
            return place
    return Place(by_itk)


def doubts_at(path: Path, grid: Grid, name: str) -> tuple[str, ...]:
    """Return what the header of a NIfTI leaves in doubt about an image that ITK's reader laid on
    ``grid``; nothing about one that was laid elsewhere since.
    """
    try:
        header = header_of(path) if path.name.lower().endswith(NIFTI) else None
        if header is None:
            return ()
        at, doubts = place_of(header, name)
    except (OSError, Unsound, errors.MorphSeekError):  # the image was read all the same
        return ()
    if _apart(dataclasses.replace(at, size=grid.size), grid) < _ROUNDING:
        return sentences(doubts, f"{name}: {path}")
    if _apart(dataclasses.replace(_by_itk(header), size=grid.size), grid) < _ROUNDING:
        off = np.linalg.norm(at.corners() - grid.corners(), axis=1).max()
        told = f"its header and ITK's reader say two places, up to {off:.3g} mm apart"
        return sentences([f"{told}; the reader's is taken"], f"{name}: {path}")
    return ()


def _by_itk(header: Header) -> Grid:
    """Return where ITK's reader lays voxels of this header: it weighs the forms in another way."""
    record = np.zeros((), LAYOUTS[348])
    for field, value in header.fields.items():
        record[field] = value
    record["dim"], record["datatype"], record["bitpix"] = [3, 1, 1, 1, 0, 0, 0, 0], 2, 8
    record["vox_offset"] = 352
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder, itk_io():
        path = Path(folder, "header.nii")
        path.write_bytes(struct.pack("=i", 348) + record.tobytes()[4:] + bytes(5))
        try:
            return Grid.of(sitk.ReadImage(str(path)))
        except RuntimeError:
            return Grid((1, 1, 1), origin=(math.inf,) * 3)


def _straight(grid: Grid, doubts: list[str]) -> Place:
    """Return a place whose axes are at right angles: those of a header may be rounded."""
    if grid.is_sheared(1e-6):
        u, _, v = np.linalg.svd(grid.axes)
        straight = dataclasses.replace(grid, direction=tuple((u @ v).ravel()))
        off = _apart(grid, straight)
        if off > _DOUBTED:
            doubts.append(
                f"its axes are not quite at right angles; straightened, a corner moves by {off:.2g}"
                " voxels"
            )
        if off > 1e-3:
            grid = straight
    return Place(grid, tuple(doubts))


def _qform(header: Header, unit: float) -> Grid:
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
    matrix = np.eye(4)
    # rounded as the reference implementation rounds, whose bits ITK's reader gives
    matrix[:3, :3] = (turn * sizes).astype(np.float32).astype(np.float64) * unit
    matrix[:3, 3] = np.array(header["qoffset"], np.float64) * unit
    return Grid.from_matrix(header.volume, RAS @ matrix)


def _slack(header: Header, lengths: np.ndarray, shape: Any) -> float:
    """Return how far, in voxels, a quaternion's last digits turn a corner near a half turn."""
    rest = 1 - sum(part * part for part in header["quatern"])
    off = 2 * header.digits
    angle = 2 * (math.sqrt(max(rest + off, 0)) - math.sqrt(max(rest - off, 0)))
    return float(angle * np.linalg.norm(lengths * shape) / lengths.min())


def _check_numbers(field: str, values: np.ndarray) -> None:
    for value in values.ravel():
        if not abs(value) <= MOST_NUMBER:
            raise Unsound(f"{field} has {value:g}, which is no number of a grid")


_NOTES = ("intent_code", "intent_name", "intent_p1", "intent_p2", "intent_p3", "descrip")
TIMES = ("pixdim[4]", "toffset", "xyzt_units")
_SECOND, _TIME = 8, 0x38  # the code of a second, and the bits of a unit of time


def keep_times(image: sitk.Image, series: sitk.Image) -> sitk.Image:
    """Note beside an image what the header that its series came from says of time; return it."""
    for field in TIMES:
        if series.HasMetaDataKey(field):
            image.SetMetaData(field, series.GetMetaData(field))
    return image


def metadata_of(image: Any) -> dict[str, str]:
    """Return what an image of SimpleITK or itk keeps of its file's header."""
    if isinstance(image, sitk.Image):
        return {key: image.GetMetaData(key) for key in image.GetMetaDataKeys()}
    return {key: text for key, text in dict(image).items() if isinstance(text, str)}


def notes_of(header: Any) -> dict[str, str]:
    """Return what a header, or one of nibabel, says of its numbers as SimpleITK's metadata."""
    notes = {}
    for key in _NOTES if hasattr(header, "keys") else ():
        if key in header.keys():
            field = np.asarray(header[key]).item()
            notes[key] = field.decode("latin-1") if isinstance(field, bytes) else f"{field:g}"
    return notes


def times_beyond_itk(image: sitk.Image) -> dict[str, Any]:
    """Return fields for times that ITK cannot write: a step of 0, a unit that is not of time."""
    if not all(image.HasMetaDataKey(field) for field in TIMES):
        return {}
    step, first, units = (float(image.GetMetaData(field)) for field in TIMES)
    unit = int(units) & _TIME
    if step > 0 and unit in (_SECOND, *SECONDS):
        return {}
    return {"pixdim[4]": step, "toffset": first, "xyzt_units": 2 | unit}  # 2: mm


def read_nifti(header: Header, stored: Stored, name: str) -> Reading:
    """Return a file's image: three axes, four with volumes; vectors of several numbers a voxel."""
    place = place_of(header, name)
    if not header.is_nifti and stored.files[0].with_suffix(".mat").exists():
        told = f"{stored.files[0].stem}.mat of SPM lies beside it and is not read"
        place = place._replace(doubts=(*place.doubts, f"{told}; let SPM write NIfTI"))
    shape = header.shape
    frames, channels = math.prod(shape[3:4]), _COLOURS.get(header["datatype"], 1)
    planes = math.prod(shape[4:])
    if frames > 1 and channels * planes > 1:
        raise Unsound(f"it has {frames} volumes of {channels * planes} numbers a voxel; give one")
    if header["datatype"] not in {**TYPES, **_COLOURS}:
        raise Unsound(
            f"its voxels are of datatype {header['datatype']}, which is no real number; convert"
            " them, complex ones to their magnitude"
        )
    kind = np.dtype("u1" if channels > 1 else TYPES[header["datatype"]])
    if kind.itemsize * channels * 8 != header["bitpix"]:
        raise Unsound(f"its datatype is {header['datatype']} and its bitpix {header['bitpix']}")
    if len(shape) < 2:
        raise Unsound("it has one axis; give a volume or a slice")
    size = shape[:3]
    if len(shape) == 2 and is_sheared(place.grid.axes[:2, :2]):  # a slice across the axes
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
    for field, text in notes_of(header.fields).items():
        image.SetMetaData(field, text)
    return Reading(place.grid.place(image), sentences(place.doubts, name))
