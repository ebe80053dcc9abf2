"""Images with a fourth axis, frame by frame."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors
from . import named
from .convert import as_kind_of, is_colour, loaded, of_atlas, read
from .files import read_path
from .headers.nifti import Header
from .image import Image, ImageLike, storable, tell
from .nifti import keep_times, metadata_of, notes_of
from .sequence import SEQUENCES, series_of

# NIfTI's intents of what turns with the tissue: matrices, tensors, vectors, quaternions
_TURNING = {"1003", "1004", "1005", "1006", "1007", "1010"}
_HARMONICS = {6, 15, 28, 45, 66, 91}  # numbers of even spherical harmonics; 6 are a tensor's, too


class Frames:
    """The volumes of an image: one, or those along its fourth axis."""

    def __init__(self, source: ImageLike, name: str):
        if isinstance(source, (str, os.PathLike)) and (atlas := named.find(source, name)):
            source = of_atlas(atlas, name).to_sitk() if atlas.image else atlas.files[0]
        self._source, self.name = source, name
        self._series: Any = None
        self._colours: list[sitk.Image] = []
        self._doubts: tuple[str, ...] = ()
        if isinstance(source, (str, os.PathLike)):
            self.name = f"{name}: {source}"
            self._series, self._doubts = read_path(Path(source), name)
            if Path(source).name.lower().endswith(SEQUENCES):
                self._series = series_of(self._series)
        elif isinstance(source, sitk.Image):
            self._series = source
        elif hasattr(source, "slicer") and hasattr(source, "dataobj"):
            shape, header = source.dataobj.shape, getattr(source, "header", {})
            self._series = source if len(shape) == 4 and shape[3] > 1 else None
            self._check_scalar(notes_of(header), int(np.prod(shape[3:])))
        if isinstance(self._series, sitk.Image) and is_colour(self._series):
            count = self._series.GetNumberOfComponentsPerPixel()
            self._colours = [sitk.VectorIndexSelectionCast(self._series, k) for k in range(count)]
            self._series = None
        if isinstance(self._series, sitk.Image):
            size = self._series.GetSize()
            components = self._series.GetNumberOfComponentsPerPixel()
            self._check_scalar(metadata_of(self._series), int(np.prod(size[3:])), components)
            if len(size) != 4 or size[3] == 1:
                self._source, self._series = self._series, None

    def _check_scalar(
        self, header: Mapping[str, str], frames: int = 1, components: int = 1
    ) -> None:
        by_mrtrix = header.get("descrip", "").startswith("MRtrix") and frames in _HARMONICS
        if components > 1 or header.get("intent_code") in _TURNING or by_mrtrix:
            raise errors.InvalidArgumentError(
                f"{self.name} holds {components * frames} numbers a voxel that turn with the tissue"
                " (vectors, a tensor, an FOD); only scalar images and label maps are resampled"
                " here: use the program that made it, with the transform converted by morphseek"
                " transform convert"
            )

    def __len__(self) -> int:
        if self._series is None:
            return 1
        if isinstance(self._series, sitk.Image):
            return int(self._series.GetSize()[3])
        return int(self._series.shape[3])

    @property
    def time(self) -> tuple[float, float]:
        """When the first frame was taken and the time between two, s; else 0 and 1."""
        if isinstance(self._series, sitk.Image):
            return float(self._series.GetOrigin()[3]), float(self._series.GetSpacing()[3])
        if self._series is None or not hasattr(self._series.header, "get_xyzt_units"):
            return 0.0, 1.0
        header = Header.of_bytes(self._series.header.binaryblock)
        assert header is not None
        return header.seconds

    def __iter__(self) -> Iterator[Image]:
        if self._series is None:
            volume = read(self._source, self.name)
            yield dataclasses.replace(volume, doubts=volume.doubts + self._doubts)
        elif isinstance(self._series, sitk.Image):
            size = [*self._series.GetSize()[:3], 0]
            for k in range(self._series.GetSize()[3]):
                volume = read(sitk.Extract(self._series, size, [0, 0, 0, k]), self.name)
                yield dataclasses.replace(volume, doubts=self._doubts)
        else:
            for k in range(self._series.shape[3]):
                with loaded(self._series, self.name):
                    frame = self._series.slicer[..., k]
                yield read(frame, self.name)

    def map(self, function: Callable[[Image], Image]) -> Any:
        """Return what a function makes of each volume, as the source's kind; warn of its doubts."""
        volumes, doubts = [], dict.fromkeys(self._doubts)
        for frame in [read(colour, self.name) for colour in self._colours] or self:
            doubts |= dict.fromkeys(frame.doubts)
            volumes.append(function(frame))
        tell(doubts)
        if self._colours:
            return sitk.Compose([as_kind_of(self._source, volume) for volume in volumes])
        if self._series is None:
            return as_kind_of(self._source, volumes[0])
        if isinstance(self._series, sitk.Image):
            origin, step = self._series.GetOrigin()[3], self._series.GetSpacing()[3]
            joined = sitk.JoinSeries([frame.to_sitk() for frame in volumes], origin, step)
            return keep_times(joined, self._series)
        first = as_kind_of(self._series.slicer[..., 0], volumes[0])
        joined = type(first)(
            np.stack([storable(frame.array).T for frame in volumes], axis=-1),
            first.affine,
            first.header,
        )
        if hasattr(joined.header, "get_xyzt_units"):
            joined.header["toffset"] = self._series.header["toffset"]
        if hasattr(joined.header, "set_zooms"):
            steps = self._series.header.get_zooms()[3:4]
            joined.header.set_zooms((*joined.header.get_zooms()[:3], *steps))
        return joined
