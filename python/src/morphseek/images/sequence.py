"""Sequences of volumes in 3D Slicer's format (``.seq.nrrd``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._files import write_with
from .image import Image
from .writers import store

SEQUENCES = (".seq.nrrd", ".seq.nhdr")
_INDEX = "axis 0 index values"
_SECONDS = {"s": 1.0, "ms": 1e-3}
_TYPES = {"float32": "float", "float64": "double"}  # other types have the same name in both


def write_sequence(
    path: str | os.PathLike[str],
    frames: Sequence[Image],
    index: Sequence[float] | None = None,
    label: str = "frame",
    unit: str = "",
) -> None:
    """Write volumes of one grid and one type as a sequence: the frames are the first axis, as every
    version of Slicer reads it.

    Parameters
    ----------
    index : sequence of float, optional
        The value of each frame, as its time; by default its number.
    label, unit : str
        What the index is called, and its unit.

    Raises
    ------
    OutputUnwritableError
        The ending is not ``.seq.nrrd``, which tells Slicer what is in the file.

    Examples
    --------
    >>> images.write_sequence("breath.seq.nrrd", [pair.fixed, pair.fixed], [0.0, 0.5], "time", "s")
    >>> import SimpleITK as sitk
    >>> sitk.ReadImage("breath.seq.nrrd").GetNumberOfComponentsPerPixel()
    2
    """
    if not Path(path).name.endswith(".seq.nrrd"):
        raise errors.OutputUnwritableError(f"{path}: give a sequence the ending .seq.nrrd")
    first = frames[0]
    little = first.array.dtype.newbyteorder("<")
    axes = np.array(first.direction).reshape(3, 3) * first.spacing
    values = range(len(frames)) if index is None else index

    def vector(numbers: np.ndarray) -> str:
        return "(" + ",".join(repr(float(n)) for n in numbers) + ")"

    lines = [
        "NRRD0005",
        f"type: {_TYPES.get(little.name, little.name)}",
        "dimension: 4",
        "space: left-posterior-superior",
        f"sizes: {len(frames)} {' '.join(str(n) for n in first.array.shape[::-1])}",
        f"space directions: none {' '.join(vector(axis) for axis in axes.T)}",
        "kinds: list domain domain domain",
        f'labels: "{label}" "" "" ""',
        *([f'units: "{unit}" "" "" ""'] if unit else []),
        "endian: little",
        "encoding: gzip",
        f"space origin: {vector(np.array(first.origin))}",
        "measurement frame: (1,0,0) (0,1,0) (0,0,1)",
        "DataNodeClassName:=vtkMRMLScalarVolumeNode",
        "axis 0 index type:=numeric",
        f"{_INDEX}:={' '.join(f'{float(v):.7g}' for v in values)}",
    ]

    head = ("\n".join(lines) + "\n\n").encode()
    slices = zip(*(frame.array for frame in frames))
    pieces = (np.stack(of_frames, axis=-1).astype(little) for of_frames in slices)
    write_with(lambda temporary: store(temporary, head, pieces, is_packed=True), path)


def series_of(image: sitk.Image) -> sitk.Image:
    """Return a sequence's frames, ITK's channels, along a fourth axis: time, in equal steps."""
    count = image.GetNumberOfComponentsPerPixel()
    if count == 1:
        return image
    start, step = 0.0, 1.0
    with contextlib.suppress(RuntimeError, KeyError, ValueError):  # the header has no time
        second = _SECONDS[image.GetMetaData("NRRD_units[pixel]")]
        times = np.array(image.GetMetaData(_INDEX).split(), dtype=float) * second
        steps = np.diff(times)
        if len(times) == count and steps.min() > 0 and np.allclose(steps, steps[0], rtol=1e-3):
            start, step = float(times[0]), float(steps.mean())
    frames = [sitk.VectorIndexSelectionCast(image, k) for k in range(count)]
    return sitk.JoinSeries(frames, start, step)
