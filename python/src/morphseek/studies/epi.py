"""Distortion of echo-planar images, from two of opposite phase encodings."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import _files, errors, images
from .._engine import bindings, core
from .._grid import Grid
from .._json import read_object
from ..images.sidecars import check_apart
from ..progress import Progress, Reporter
from ..transforms.field import Field
from ._result import Saved, folder_for

_IMAGES = ("shift", "fieldmap", "first", "second", "mean")
_TRANSFORMS = ("first", "second")
#: What a correction may leave in a folder; the last one lists the others.
OUTPUTS = (
    *(f"{name}.nii.gz" for name in _IMAGES), *(f"{name}.h5" for name in _TRANSFORMS), "epi.json"
)  # fmt: skip

_LEAST_S = 1e-6
_DIRECTIONS = ("i", "i-", "j", "j-", "k", "k-")


@dataclasses.dataclass(frozen=True, repr=False)
class EPICorrection(Saved):
    """The result of :func:`correct_epi`.

    Its folder has shift.nii.gz, first.nii.gz, second.nii.gz, mean.nii.gz, first.h5 and second.h5
    (the transforms), epi.json and, where the readout time is known, fieldmap.nii.gz.

    Examples
    --------
    >>> correction
    EPICorrection(along j, shifts up to ... voxels)
    >>> correction.save("epi")
    >>> os.path.exists("epi/shift.nii.gz")
    True
    """

    _outputs: ClassVar = OUTPUTS
    _card: ClassVar = "epi"
    shift: images.Image
    """Voxels along the axis of the phase encoding: what lies at x is shown at x + shift by the
    first image, at x - shift by the second.
    """
    fieldmap: images.Image | None
    """Hz: the shift over the readout time, with the sign of the first image's encoding. None where
    that time is not known.
    """
    first: images.Image
    """The images without distortion, their intensities corrected too, and their mean."""
    second: images.Image
    mean: images.Image
    phase_encoding: str
    """Of the first image, as in BIDS: i, i-, j, j-, k or k-, axes of the file."""
    readout_time: float | None
    """s, as BIDS' TotalReadoutTime."""

    def __repr__(self) -> str:
        largest = float(np.abs(self.shift.array).max())
        return f"EPICorrection(along {self.phase_encoding}, shifts up to {largest:.1f} voxels)"

    def _planes(self) -> tuple[np.ndarray, Grid]:
        return self.mean.array, self.mean.grid

    def transform(self, which: str = "first") -> Field:
        """Return the map that takes the distortion of the first or the second image from others of
        the same encoding; with the intensities: ``morphseek apply --modulate``.

        Examples
        --------
        >>> correction.transform("second").grid.size
        (48, 48, 48)
        """
        errors._check_choice("which", which, _TRANSFORMS)
        field = np.zeros((3, *self.shift.array.shape), np.float32)
        sign = 1 if which == "first" else -1
        field["kji".index(self.phase_encoding[0])] = sign * self.shift.array
        return Field(field, self.shift.grid, self.shift.grid)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers: the encoding, the largest shift, and how far the corrected images
        differ, as a share of their mean.

        Examples
        --------
        >>> sorted(correction.to_dict())
        ['difference_after', 'largest_shift_voxels', 'phase_encoding', 'readout_time']
        """
        one, other = self.first.array, self.second.array
        size = max(float(np.abs(one + other).mean()) / 2, 1e-30)
        return {
            "phase_encoding": self.phase_encoding,
            "readout_time": self.readout_time,
            "largest_shift_voxels": float(np.abs(self.shift.array).max()),
            "difference_after": float(np.abs(one - other).mean() / size),
        }

    def _write(self, folder: Path) -> None:
        for name in _IMAGES:
            if (image := getattr(self, name)) is not None:
                images.write(folder / f"{name}.nii.gz", image)
        for name in _TRANSFORMS:
            self.transform(name).save(folder / f"{name}.h5")
        _files.write_seal(folder / OUTPUTS[-1], self.to_dict())


def correct_epi(
    first: images.ImageLike,
    second: images.ImageLike,
    out: str | os.PathLike[str] | None = None,
    *,
    phase_encoding: str | None = None,
    readout_time: float | None = None,
    progress: Callable[[Progress], Any] | bool | None = None,
) -> EPICorrection:
    """Find the distortion of two echo-planar images of opposite phase encodings, and take it back.

    The head must lie still between the two, and both must have the same readout time.

    Parameters
    ----------
    first, second : ImageLike
        On one grid; as :func:`morphseek.register` takes them. What a BIDS file FILE.json beside a
        NIfTI says of the encoding and the readout time is read.
    out : path, optional
        Folder for the files of :class:`EPICorrection`, which no other call writes to meanwhile.
    phase_encoding : str, optional
        Of the first image: i, j or k, the axis of the file along which it was encoded, with "-" for
        the opposite direction; the second image's is the opposite. Needed where no BIDS file says.
    readout_time : float, optional
        BIDS' TotalReadoutTime, s: for a field map in Hz.
    progress : callable or bool, optional
        As of :func:`morphseek.register`.

    Raises
    ------
    morphseek.errors.MorphSeekError
        Encodings that are not opposite or not known, other grids, images that cannot be read.

    Examples
    --------
    >>> up, down = pair.fixed, pair.fixed.like(np.roll(pair.fixed.array, 1, axis=1))
    >>> correction = morphseek.correct_epi(up, down, phase_encoding="j")
    >>> correction.shift.array.shape
    (48, 48, 48)
    """
    if out is not None:
        check_apart(out, OUTPUTS, {"first": first, "second": second})
    with folder_for(out, OUTPUTS) as folder:
        sidecars = [_bids(image, name) for image, name in ((first, "first"), (second, "second"))]
        encoding = _encoding(phase_encoding, sidecars)
        time = _readout(readout_time, sidecars)
        one, other = images.read(first, "first"), images.read(second, "second")
        with Reporter(progress) as reporter:
            core.open_engine()
            shift, a, b = bindings.correct_epi(
                (one.float32(), one.grid), (other.float32(), other.grid),
                "ijk".index(encoding[0]), reporter,
            )  # fmt: skip
        on_grid = functools.partial(images.Image.on_grid, grid=one.grid)
        sign = -1 if encoding.endswith("-") else 1
        fieldmap = None if time is None else on_grid((sign / time) * shift)
        corrected = on_grid(a), on_grid(b), on_grid(0.5 * (a + b))
        correction = EPICorrection(on_grid(shift), fieldmap, *corrected, encoding, time)
        if folder is not None:
            correction._write(folder)
    return correction


def _bids(image: images.ImageLike, name: str) -> dict[str, Any]:
    """Return the content of the BIDS file beside an image."""
    if not isinstance(image, (str, os.PathLike)):
        return {}
    path = Path(image)
    stem = path.name.removesuffix(".gz").removesuffix(".nii")
    sidecar = path.with_name(f"{stem}.json")
    if stem == path.name or not sidecar.is_file():
        return {}
    return read_object(sidecar, f"{name}: BIDS file")


def _encoding(phase_encoding: str | None, sidecars: list[dict[str, Any]]) -> str:
    """Return the first image's encoding, which all that is known must agree with."""
    known = {"phase_encoding": phase_encoding}
    key = "PhaseEncodingDirection"
    for name, one in zip(("first", "second"), sidecars):
        known[f"{name}: {key} in its BIDS file"] = one.get(key)
    for name, direction in known.items():
        if direction is not None:
            errors._check_choice(name, direction, _DIRECTIONS)
    asked, first, second = known.values()
    opposite = second and (second[0] if second.endswith("-") else f"{second}-")
    directions = {each for each in (asked, first, opposite) if each}
    if not directions:
        raise errors.InvalidArgumentError(
            "the phase encoding is not known: no BIDS file beside the images says; give"
            " phase_encoding, j for most scanners"
        )
    if len(directions) > 1:
        words = "; ".join(f"{name} is {each}" for name, each in known.items() if each)
        raise errors.InvalidArgumentError(
            f"the phase encodings are not opposite: {words}; give that of the first image, of two"
            " whose distortions are opposite, or correct the files"
        )
    return str(*directions)


def _readout(readout_time: float | None, sidecars: list[dict[str, Any]]) -> float | None:
    """Return the readout time, s, that both images have."""
    told = [readout_time, *(one.get("TotalReadoutTime") for one in sidecars)]
    times = [time for time in told if time is not None]
    for time in times:
        errors._check_number("the readout time in seconds", time, _LEAST_S, 10)
    if times and max(times) > 1.001 * min(times):
        raise errors.InvalidArgumentError(
            f"the readout times {min(times):g} and {max(times):g} s differ: the two distortions are"
            " not of one size; give images of one readout time"
        )
    return times[0] if times else None
