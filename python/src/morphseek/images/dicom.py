"""A folder with one DICOM series."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._files import check_regular

_MOST_FILES = 20_000  # a series has a few thousand
_POSITION, _ORIENTATION, _TRIGGER = "0020|0032", "0020|0037", "0018|1060"
_ACQUIRED = "0008|0032"  # hhmmss.ffffff
# what tells the frames of one place apart, in this order: the series, the temporal position, the
# delay after the trigger, when it was acquired, the numbers of acquisition and image
_ORDER = ("0020|0011", "0020|0100", _TRIGGER, "0008|0022", _ACQUIRED, "0020|0012", "0020|0013")


def read_series(folder: Path, name: str) -> sitk.Image:
    """Read a folder's one series, whose slices must be evenly spaced: ITK would spread one with
    gaps evenly, and only warn.
    """
    return _read_stack(series_files(folder, name), folder, name)


def _read_stack(files: Sequence[str], folder: Path, name: str) -> sitk.Image:
    position = _POSITION
    reader = sitk.ImageSeriesReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileNames(files)
    reader.MetaDataDictionaryArrayUpdateOn()
    image = reader.Execute()
    slices = range(len(files))
    scales = {
        tuple(
            reader.GetMetaData(i, key)
            for key in ("0028|1053", "0028|1052")
            if reader.HasMetaDataKey(i, key)
        )
        for i in slices
    }
    # PET: the type that the first slice's slope asks for does not hold the others
    if len(scales) > 1:
        reader.SetOutputPixelType(sitk.sitkFloat64)
        image = reader.Execute()
    if (
        len(files) > 1
        and image.GetDepth() == len(files)
        and all(reader.HasMetaDataKey(i, position) for i in slices)
    ):
        try:
            corners = np.array(
                [[float(v) for v in reader.GetMetaData(i, position).split("\\")] for i in slices]
            )
        except ValueError:  # it cannot be compared
            return image
        _check_stack(image, corners, folder, name)
    return image


class _Slice(NamedTuple):
    file: str
    place: float
    """Along the normal, mm."""
    order: tuple[float, ...]
    seconds: float | None
    """When it was acquired, from some start."""


def read_repeated(folder: Path, name: str) -> tuple[list[sitk.Image], float | None]:
    """Read a folder whose slices show every place several times: the frames of one series, or of
    several series. Return them in the order of time, and the seconds between two where the headers
    tell.
    """
    places: dict[float, list[_Slice]] = {}
    for file in _all_files(folder, name):
        one = _slice(file, name)
        places.setdefault(one.place, []).append(one)
    counts = {place: len(found) for place, found in places.items()}
    most = max(counts.values())
    if short := [place for place, count in sorted(counts.items()) if count < most]:
        file = Path(places[short[0]][0].file).name
        raise errors.InputUnreadableError(
            f"{name}: in {folder} most places are shown {most} times, and {len(short)} of"
            f" {len(places)} fewer times (that of {file}, {counts[short[0]]} times); every frame"
            " needs all its slices: complete the series, or remove the frames that are not whole"
        )
    stacks = [sorted(places[place], key=lambda one: one.order) for place in sorted(places)]
    frames = [
        _read_stack([stack[k].file for stack in stacks], folder, f"{name}: frame {k}")
        for k in range(most)
    ]
    times = [one.seconds for one in stacks[0]]
    gaps = [b - a for a, b in zip(times, times[1:]) if a is not None and b is not None]
    step = statistics.median(gaps) if len(gaps) == most - 1 and gaps else 0.0
    return frames, step if step > 0 else None


def _slice(file: str, name: str) -> _Slice:
    reader = sitk.ImageFileReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileName(file)
    reader.ReadImageInformation()

    def numbers(key: str) -> list[float]:
        try:
            return [float(v) for v in reader.GetMetaData(key).split("\\")]
        except (RuntimeError, ValueError):  # it is not there, or no number
            return []

    corner, axes = numbers(_POSITION), numbers(_ORIENTATION)
    if len(corner) != 3 or len(axes) != 6:
        raise errors.InputUnreadableError(
            f"{name}: {file} does not say where its slice lies; convert the series to NIfTI first,"
            " for instance by dcm2niix"
        )
    normal = np.cross(axes[:3], axes[3:])
    trigger, clock = numbers(_TRIGGER), numbers(_ACQUIRED)
    seconds = None
    if trigger:
        seconds = trigger[0] / 1000
    elif clock:
        seconds = clock[0] // 10000 * 3600 + clock[0] // 100 % 100 * 60 + clock[0] % 100
    order = tuple((numbers(key) or [0.0])[0] for key in _ORDER)
    return _Slice(file, round(float(normal @ corner), 2) + 0.0, order, seconds)


def _check_stack(image: sitk.Image, corners: np.ndarray, folder: Path, name: str) -> None:
    """See that every slice of a series lies where its header says, (x, y, z): ITK stacks them
    straight and evenly from the first to the last.
    """
    gaps = np.diff(corners @ np.array(image.GetDirection()).reshape(3, 3)[:, 2])
    step = abs(np.median(gaps))
    if step < 1e-3 * min(image.GetSpacing()[:2]):
        raise errors.InputUnreadableError(
            f"{name}: {len(corners)} slices in {folder} are all at one position; give one volume,"
            " each slice at its own place"
        )
    if np.ptp(gaps) > 0.1 * step:
        raise errors.InputUnreadableError(
            f"{name}: the slices in {folder} are {gaps.min():.1f} to {gaps.max():.1f} mm apart;"
            " complete the series, or resample it evenly"
        )
    read = np.array([image.TransformIndexToPhysicalPoint((0, 0, i)) for i in range(len(corners))])
    off = np.linalg.norm(corners - read, axis=1).max()
    # direction cosines of three digits lean by so little
    if off > 0.1 * step + 0.005 * step * len(corners):
        raise errors.InputUnreadableError(
            f"{name}: the slices in {folder} are no straight stack (a tilted gantry?): read as one,"
            f" some would be {off:.1f} mm off; resample the series first, for instance by dcm2niix"
        )


def _all_files(folder: Path, name: str) -> list[str]:
    return [file for files in _by_series(folder, name).values() for file in files]


def series_files(folder: Path, name: str) -> tuple[str, ...]:
    """Return the files of a folder's one series in the order of its slices."""
    series = _by_series(folder, name)
    if len(series) > 1:
        listing = "; ".join(  # a clinic's archive has their numbers, too
            f"{len(files)} files from {Path(files[0]).name} on" for files in series.values()
        )
        raise errors.InputUnreadableError(
            f"{name}: the folder {folder} holds {len(series)} DICOM series ({listing}); move one"
            " into its own folder"
        )
    return next(iter(series.values()))


def _by_series(folder: Path, name: str) -> dict[str, tuple[str, ...]]:
    for count, entry in enumerate(folder.iterdir(), 1):  # GDCM opens all of them
        check_regular(entry, name)
        if count > _MOST_FILES:
            raise errors.InputUnreadableError(
                f"{name}: the folder {folder} holds more than {_MOST_FILES} files; give a folder"
                " with the slices of one series"
            )
    reader = sitk.ImageSeriesReader
    series = {
        uid: reader.GetGDCMSeriesFileNames(str(folder), uid)
        for uid in reader.GetGDCMSeriesIDs(str(folder))
    }
    if not series:
        raise errors.InputUnreadableError(
            f"{name}: the folder {folder} holds no DICOM series; give a folder of slices or a file"
        )
    return series
