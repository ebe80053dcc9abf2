"""The frames of a series, from whatever holds them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import errors, images
from ..images.dicom_headers import is_dicom
from ..images.files import read_times
from ..images.frames import Frames as ImageFrames

_FEWEST = 2


class Frames(NamedTuple):
    """Volumes on one grid, in the order of time; each one's name is what messages call it."""

    volumes: list[images.Image]
    start: float
    """When the first one was taken, s."""
    step: float | None
    """Between two, s; None where nothing says."""


def read_frames(given: Any) -> Frames:
    """Return the frames of one source with a fourth axis, of DICOM, or of a list of volumes.

    Raises
    ------
    MorphSeekError
        With the name of the frame: it cannot be read, has another number of axes or lies on another
        grid than the first one, or there is one frame alone.
    """
    several = isinstance(given, Iterable) and not images.convert.is_image(given)
    sources = list(given) if several else [given]
    if len(sources) == 1:
        found = _of_one(sources[0])
    else:
        found = Frames([_read(s, f"frame {k}") for k, s in enumerate(sources)], 0.0, None)
    if len(found.volumes) < _FEWEST:
        name = found.volumes[0].name if found.volumes else "the list"
        raise errors.InvalidArgumentError(
            f"series: {name} holds {len(found.volumes)} frame(s), and motion needs {_FEWEST} or"
            " more; give an image with a time axis, a DICOM folder with several frames, or a file"
            " for each frame"
        )
    _check_grids(found.volumes)
    return found


def _of_one(source: Any) -> Frames:
    if images.arrays.is_array(source):
        source = images.arrays.as_array(source, "series")
        if source.ndim != 4:
            raise errors.InvalidArgumentError(
                f"series: the array has shape {source.shape}; a series has (time, z, y, x)"
            )
        return Frames([_read(v, f"frame {k}") for k, v in enumerate(source)], 0.0, None)
    if isinstance(source, (str, os.PathLike)) and (Path(source).is_dir() or is_dicom(Path(source))):
        found, step = read_times(Path(source), "series")
        volumes = _named((reading.image for reading in found), str(source))
        doubtful = [dataclasses.replace(v, doubts=r.doubts) for v, r in zip(volumes, found)]
        return Frames(doubtful, 0.0, step)
    frames = ImageFrames(source, "series")
    start, step = frames.time
    said = str(source) if isinstance(source, (str, os.PathLike)) else "the series"
    if len(frames) == 1:
        return Frames([dataclasses.replace(_read(source, "series"), name=said)], start, step)
    return Frames(_named(frames, said), start, step if step > 0 else None)


def _named(volumes: Iterable[Any], source: str) -> list[images.Image]:
    return [_read(volume, f"frame {k} of {source}") for k, volume in enumerate(volumes)]


def _read(source: Any, name: str) -> images.Image:
    """Return one volume, whose name has the file's."""
    path = str(source) if isinstance(source, (str, os.PathLike)) else ""
    try:
        image = images.read(source, name)
    except errors.MorphSeekError as error:
        if not path or path in str(error):
            raise
        raise type(error)(f"{error} ({path})") from None
    return dataclasses.replace(image, name=f"{name}: {path}" if path else name)


def _check_grids(volumes: Sequence[images.Image]) -> None:
    first = volumes[0]
    for other in volumes[1:]:
        if not first.same_grid(other):
            raise errors.GridMismatchError(
                f"series: {other.name} lies in another space than {first.name}:"
                f" {_place(other)}, not {_place(first)}; the frames of a series have one grid:"
                " leave it out, resample it onto the first one's, or register it as a pair"
            )


def _place(image: images.Image) -> str:
    center = image.grid.center
    at = ", ".join(f"{v:.1f}" for v in center)
    return f"{repr(image)[6:-1].rpartition(',')[0]} around ({at})"
