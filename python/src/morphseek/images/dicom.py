"""DICOM images, a file or a series: laid by their headers, their pixels read by GDCM."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import threading
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._files import check_regular
from .._grid import Grid
from .._itk import to_read
from .dicom_headers import (
    ORDER,
    PIXELS,
    PLACE,
    SEVERAL,
    Frame,
    clock,
    frames_of,
    is_dicom,
    plain_pixels,
    read_pixels,
    write_packed,
)
from .image import Reading, sentences

_MOST_FILES = 20_000  # a series has a few thousand
_MOST_FOLDERS = 200  # looked into for DICOM files
_TRIGGERS = ("TriggerTime", "NominalCardiacTriggerDelayTime")  # ms
_CLOCKS = (
    "AcquisitionTime", "FrameReferenceDateTime", "FrameAcquisitionDateTime", "AcquisitionDateTime",
)  # fmt: skip
_TOMOGRAPHY = ("CT", "MR", "PT", "NM")  # whose slices lie somewhere in the patient
_LEAN = 0.02  # of direction cosines of two digits
_TURN = 5e-3  # between slices that lie parallel
_NEAR = 0.02  # pixels between two slices of one place
_ROUNDED = 0.02  # of a distance, between what a header says twice


class _NamedPath(NamedTuple):
    """A file or a folder, as messages call it."""

    path: Path
    name: str

    def __str__(self) -> str:
        return f"the slices in {self.path}"

    @property
    def apart(self) -> str:
        """How a user gets one volume of it."""
        if self.path.is_dir():
            return "give one volume, the others in folders of their own"
        return "convert it to NIfTI first, for instance by dcm2niix, and give one volume"

    def unreadable(self, text: str) -> errors.MorphSeekError:
        return errors.InputUnreadableError(f"{self.name}: {text}")


def read_dicom(path: Path, name: str) -> Reading:
    """Read a file, or a folder's one series, whose frames must be one evenly spaced stack."""
    frames = (_one_series if path.is_dir() else _all_frames)(path, name)
    return _read_stack(frames, _NamedPath(path, name), {})


def read_repeated(path: Path, name: str) -> tuple[list[Reading], float | None]:
    """Return the volumes of what shows every place several times, a file or a folder of series, in
    the order of time, and the seconds between two where the headers tell.
    """
    source = _NamedPath(path, name)
    series = _by_series(path, name) if path.is_dir() else {"": _all_frames(path, name)}
    places = _places(_sound([frame for each in series.values() for frame in each], source))
    _check_copies(places, source)
    most = max(len(place) for place in places)
    if short := [place for place in places if len(place) < most]:
        raise source.unreadable(
            f"in {path} most places are shown {most} times, and {len(short)} of {len(places)}"
            f" fewer times (that of {short[0][0].frame}, {len(short[0])} times); every frame needs"
            " all its slices: complete the series, or remove the frames that are not whole"
        )

    def order(frame: Frame) -> tuple[float, ...]:
        return (*(_number(frame.text(key)) for key in ORDER), frame.serial)

    in_time = [sorted((each.frame for each in place), key=order) for place in places]
    read: dict[Path, np.ndarray] = {}
    volumes = [_read_stack([place[k] for place in in_time], source, read) for k in range(most)]
    times = _seconds(in_time[0])
    gaps = [b - a for a, b in zip(times, times[1:])]
    step = statistics.median(gaps) if gaps else 0.0
    return volumes, step if step > 0 else None


def series_files(folder: Path, name: str) -> tuple[str, ...]:
    """Return the files of a folder's one series in the order of its slices."""
    frames = _one_series(folder, name)
    if len(frames) > 1:
        slices = _sound(frames, _NamedPath(folder, name))
        frames = [each.frame for place in _places(slices) for each in place]
    return tuple(dict.fromkeys(str(frame.file) for frame in frames))


# -------------------------------------------------------------------------- which files


def _all_frames(path: Path, name: str) -> list[Frame]:
    frames = frames_of(path, name)
    if not frames:
        raise errors.InputUnreadableError(
            f"{name}: {path} is DICOM and holds no image; give the images of a series"
        )
    return frames


def _one_series(folder: Path, name: str) -> list[Frame]:
    series = list(_by_series(folder, name).values())
    if len(series) > 1:
        listing = "; ".join(  # a clinic's archive has their numbers, too
            f"{_count({f.file for f in each}, 'file')} from {each[0].file.name} on"
            for each in series
        )
        raise errors.InputUnreadableError(
            f"{name}: the folder {folder} holds {len(series)} DICOM series ({listing}); move one"
            " into its own folder"
        )
    return series[0]


def _by_series(folder: Path, name: str) -> dict[str, list[Frame]]:
    entries = []
    for entry in folder.iterdir():
        check_regular(entry, name)
        entries.append(entry)
        if len(entries) > _MOST_FILES:
            raise errors.InputUnreadableError(
                f"{name}: the folder {folder} holds more than {_MOST_FILES} files; give a folder"
                " with the slices of one series"
            )
    series: dict[str, list[Frame]] = {}
    for entry in sorted(entries):
        for frame in frames_of(entry, name) if entry.is_file() else ():
            series.setdefault(frame.text("SeriesInstanceUID"), []).append(frame)
    if not series:
        there = ", ".join(_folders_with_dicom(folder))
        below = f"give one of those below it that do: {there}"
        raise errors.InputUnreadableError(
            f"{name}: the folder {folder} holds no DICOM series;"
            f" {below if there else 'give a folder of slices or a file'}"
        )
    return series


def _folders_with_dicom(folder: Path) -> list[str]:
    names = []
    for count, (place, folders, files) in enumerate(os.walk(folder)):
        folders.sort()
        paths = (Path(place, file) for file in sorted(files))
        if any(path.is_file() and is_dicom(path) for path in paths):
            names.append(str(Path(place).relative_to(folder)))
        if count >= _MOST_FOLDERS or len(names) > 3:
            break
    return [*names[:3], "..."] if len(names) > 3 else names


# ---------------------------------------------------------------------- where slices lie


class _Slice(NamedTuple):
    frame: Frame
    corner: np.ndarray
    """The middle of its first pixel, LPS mm."""
    axes: np.ndarray
    """Of its rows, its columns, and their normal, as columns."""
    pixel: np.ndarray
    """From column to column and from row to row, mm."""

    @property
    def depth(self) -> float:
        return float(self.corner @ self.axes[:, 2])


def _read_stack(
    frames: Sequence[Frame], source: _NamedPath, read: dict[Path, np.ndarray]
) -> Reading:
    """Read the frames of one volume; `read` keeps the files that hold several."""
    ordered, grid, doubts = (
        _lone(frames[0]) if len(frames) == 1 else _stack(_sound(frames, source), source)
    )
    try:
        image = sitk.GetImageFromArray(_voxels(ordered, read, source.name))
    except RuntimeError:
        raise source.unreadable(
            f"{source.path} is DICOM whose pixels GDCM cannot read: a file is cut short, or of a"
            " kind that it does not know; copy it again, or convert it to NIfTI first, for instance"
            " by dcm2niix"
        ) from None
    texts = filter(None, dict.fromkeys((*(frame.doubt for frame in ordered), *doubts)))
    return Reading(grid.place(image), sentences(texts, f"{source.name}: {source.path}"))


def _lone(frame: Frame) -> tuple[list[Frame], Grid, list[str]]:
    """Return a picture, its grid and doubts: it may lie anywhere."""
    pixel, doubt = _pixel(frame)
    doubts = [doubt]
    if pixel is None:
        pixel = np.ones(2)
        doubts = ["it does not say how large its pixels are: 1 mm is taken"]
    place = _place(frame)
    if place is None and frame.text("Modality") in _TOMOGRAPHY:
        doubts.append("it does not say where its slice lies: the patient's axes and 0 are taken")
    corner, axes = place or (np.zeros(3), np.eye(3))
    between = abs(frame.number("SpacingBetweenSlices") or 1.0)
    grid = Grid((*frame.size, 1), (*pixel, between), tuple(corner), tuple(axes.ravel()))
    return [frame], grid, doubts


def _stack(slices: list[_Slice], source: _NamedPath) -> tuple[list[Frame], Grid, list[str]]:
    """Return the frames of one volume in the order of their places, its grid and doubts."""
    places = _places(slices)
    _check_copies(places, source)
    if len(places) < len(slices):
        raise _several(places, source)
    ordered = [place[0] for place in places]
    if all(one is other for one, other in zip(ordered[::-1], slices)) and slices[0].frame.total > 1:
        ordered.reverse()  # a file's own order is even, too
    frames, first = [each.frame for each in ordered], ordered[0]
    corners = np.array([each.corner for each in ordered])
    gaps = np.diff(corners @ first.axes[:, 2])
    step, between = abs(float(np.median(gaps))), abs(float(gaps.mean()))
    if np.ptp(gaps) > 0.1 * step:
        raise _uneven(frames, np.abs(gaps), step, source)
    axes = first.axes * [1, 1, np.sign(gaps[0])]
    grid = Grid(
        (*first.frame.size, len(frames)), (*first.pixel, between), tuple(first.corner),
        tuple(axes.ravel()),
    )  # fmt: skip
    straight = first.corner + np.outer(np.arange(len(frames)) * between, axes[:, 2])
    off = np.linalg.norm(corners - straight, axis=1).max()
    # direction cosines of three digits lean by so little
    if off > 0.1 * step + 0.005 * step * len(corners):
        raise source.unreadable(
            f"{source} are no straight stack (a tilted gantry?): read as one, some would be"
            f" {off:.1f} mm off; resample the series first, for instance by dcm2niix"
        )
    steps = [abs(frame.number("SpacingBetweenSlices") or between) for frame in frames]
    wrong = max(steps, key=lambda value: abs(value - between))
    doubts = [_pixel(first.frame)[1]]
    if abs(wrong - between) > _ROUNDED * between:
        doubts.append(
            f"its slices lie {between:.4g} mm apart, and its SpacingBetweenSlices is {wrong:.4g}"
            " mm: their positions are taken"
        )
    return frames, grid, doubts


def _sound(frames: Sequence[Frame], source: _NamedPath) -> list[_Slice]:
    """Return slices that say where they lie, have one size and lie parallel."""
    slices = []
    for frame in frames:
        place, (pixel, _) = _place(frame), _pixel(frame)
        if place is None and frame.total > 1:
            raise source.unreadable(
                f"{frame.file} has {frame.total} frames and does not say where each one lies: a"
                " film, projections or tiles are no volume; give one frame of it, or convert it to"
                " NIfTI with its geometry"
            )
        if place is None or pixel is None:
            lacks = PIXELS[0]
            if place is None:
                lacks = PLACE[0 if frame.numbers(PLACE[0], 3) is None else 1]
            raise source.unreadable(
                f"{frame.file} has no sound {lacks}, so that nobody knows where its slice lies;"
                " give the series as the scanner wrote it, or convert it to NIfTI with its geometry"
            )
        slices.append(_Slice(frame, *place, pixel))
    for what, values, tolerance in (
        ("of another size", [each.frame.size for each in slices], 0.0),
        ("turned otherwise (a localizer?)", [each.axes[:, :2].ravel() for each in slices], _TURN),
        ("of another pixel size", [np.log(each.pixel) for each in slices], _ROUNDED),
    ):
        unlike = _unlike(np.array(values), tolerance)
        if len(unlike):
            more = f" and {len(unlike) - 1} more are" if len(unlike) > 1 else " is"
            raise source.unreadable(
                f"{source} are not alike: {frames[unlike[0]]}{more} {what}, and"
                f" {len(slices) - len(unlike)} are not; {source.apart}"
            )
    return slices


def _unlike(values: np.ndarray, tolerance: float) -> np.ndarray:
    """Return which rows are not those of the largest group of like ones."""
    left, usual = np.arange(len(values)), np.arange(0)
    while len(left) > len(usual):
        near = np.abs(values[left] - values[left[0]]).max(axis=1) <= tolerance
        usual = max(usual, left[near], key=len)
        left = left[~near]
    return np.setdiff1d(np.arange(len(values)), usual)


def _place(frame: Frame) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a slice's position and its axes at right angles; None where it does not say."""
    corner, cosines = frame.numbers(PLACE[0], 3), frame.numbers(PLACE[1], 6)
    if corner is None or cosines is None:
        return None
    row, column = cosines.reshape(2, 3)
    if max(abs(row @ row - 1), abs(column @ column - 1), abs(row @ column)) > _LEAN:
        return None
    normal = np.cross(row, column)
    normal /= np.linalg.norm(normal)
    row = np.cross(column, normal)
    row /= np.linalg.norm(row)
    return corner, np.stack([row, np.cross(normal, row), normal], axis=1)


def _pixel(frame: Frame) -> tuple[np.ndarray | None, str]:
    """Return the size of a pixel along rows and columns, and what makes it unsure."""
    for key in PIXELS:
        sizes = frame.numbers(key, 2)
        if sizes is None and (size := frame.number(key)) is not None:
            sizes = np.array([size, size])
        if sizes is not None and (sizes > 0).all():
            doubt = f"it has no PixelSpacing: {key}, which nobody measured in the patient, is taken"
            return sizes[::-1], "" if key == PIXELS[0] else doubt
    return None, ""


def _places(slices: Sequence[_Slice]) -> list[list[_Slice]]:
    """Return the slices of each place, from low to high along their normal."""
    near = _NEAR * float(slices[0].pixel.min())
    places: list[list[_Slice]] = []
    for one in sorted(slices, key=lambda one: one.depth):
        if places and one.depth - places[-1][-1].depth < near:
            places[-1].append(one)
        else:
            places.append([one])
    return places


# ------------------------------------------------------------------------- what is wrong


def _check_copies(places: Sequence[Sequence[_Slice]], source: _NamedPath) -> None:
    copies = []
    for place in places:
        first: dict[tuple[str, int], Frame] = {}
        for frame in (each.frame for each in place if each.frame.text("SOPInstanceUID")):
            same = first.setdefault((frame.text("SOPInstanceUID"), frame.serial), frame)
            if same is not frame:
                copies.append((same, frame))
    if copies:
        raise source.unreadable(
            f"{source.path} holds {_count(copies, 'image')} twice ({_pair(*copies[0])} are the"
            " same); remove the copies"
        )


def _several(places: Sequence[Sequence[_Slice]], source: _NamedPath) -> errors.MorphSeekError:
    """Return why slices of one place are no volume."""
    place = max(places, key=len)
    one, other = place[:2]
    if np.linalg.norm(one.corner - other.corner) > one.pixel.min():
        return source.unreadable(
            f"{source} lie side by side ({_pair(one.frame, other.frame)}); {source.apart}"
        )
    for key, what in SEVERAL.items():
        values = {each.frame.text(key): each.frame for each in place}
        if len(values) > 1:
            motion = ", or all to morphseek motion" if what == "times" else ""
            return source.unreadable(
                f"{source} show one place {len(values)} times: {_pair(*values.values())} are of"
                f" different {what} ({key}); {source.apart}{motion}"
            )
    if len(places) == 1:
        return source.unreadable(
            f"{_count(place, 'slice')} in {source.path} are all at one position; give one volume,"
            " each slice at its own place"
        )
    return source.unreadable(
        f"{source} lie at one place more than once, as {_pair(one.frame, other.frame)} do;"
        f" {source.apart}"
    )


def _uneven(
    frames: Sequence[Frame], gaps: np.ndarray, step: float, source: _NamedPath
) -> errors.MorphSeekError:
    k = int(gaps.argmax())
    rest = np.delete(gaps, k)
    if k in (0, len(gaps) - 1) and len(rest) > 1 and np.ptp(rest) <= 0.1 * step:
        lone = frames[0 if k == 0 else -1]
        return source.unreadable(
            f"{source} are {step:.1f} mm apart, and {lone} lies {gaps[k]:.1f} mm from the others;"
            " complete the series, or give one volume without that slice"
        )
    return source.unreadable(
        f"{source} are {gaps.min():.1f} to {gaps.max():.1f} mm apart, most between {frames[k]} and"
        f" {frames[k + 1]}; complete the series, or resample it evenly"
    )


def _pair(one: Frame, other: Frame, *_: Frame) -> str:
    return f"{one} and {other}"


def _count(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _number(text: str) -> float:
    """Return a number, or a date and time without its zone."""
    try:
        return float(text.partition("+")[0] or 0)
    except ValueError:
        return 0.0


def _seconds(frames: Sequence[Frame]) -> list[float]:
    """Return when the frames of one place were taken; nothing where their headers do not tell."""
    for key in (*_TRIGGERS, *_CLOCKS):
        triggered = key in _TRIGGERS
        times = [frame.number(key) if triggered else clock(frame.text(key)) for frame in frames]
        known = [time for time in times if time is not None]
        if len(known) == len(frames) and len(set(known)) > 1:
            return [time / 1000 for time in known] if triggered else known
    return []


# -------------------------------------------------------------------------------- pixels


def _voxels(frames: Sequence[Frame], read: dict[Path, np.ndarray], name: str) -> np.ndarray:
    """Return the values of frames, (frame, row, column)."""
    slices = []
    for frame in frames:
        stored = read[frame.file] if frame.file in read else _stored(frame, name)
        if frame.total > 1:
            read[frame.file] = stored
        slices.append(frame.values(stored[frame.serial]))
    return np.stack(slices)


def _stored(frame: Frame, name: str) -> np.ndarray:
    """Return the pixels of a frame's file, those that are compressed by GDCM."""
    pixels = read_pixels(frame, name)
    if not frame.is_packed:
        return plain_pixels(pixels, frame, name)
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder:
        copy = Path(folder, "pixels.dcm")
        write_packed(pixels, frame, copy, name)
        with to_read(copy) as openable, _silence():
            image = sitk.ReadImage(str(openable), imageIO="GDCMImageIO")
    array = sitk.GetArrayFromImage(image)
    if array.shape != (frame.total, *frame.size[::-1]):
        raise RuntimeError
    return array


_silent = threading.Lock()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep from the terminal what the unpackers of JPEG print past ITK, over sound files, too."""
    with _silent, open(os.devnull, "wb") as nothing:
        try:
            own = os.dup(2)
        except OSError:  # there is no terminal
            yield
            return
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)
