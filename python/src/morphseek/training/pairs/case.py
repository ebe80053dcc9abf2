"""One volume, read in canonical orientation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import DataError


@dataclass
class Case:
    """One volume in canonical orientation, with its labels.

    Attributes
    ----------
    name : str
    image : Tensor of shape (1, 1, D, H, W)
        Intensities scaled so that the low and high percentiles are 0 and 1, not yet clipped.
    labels : Tensor of shape (1, 1, D, H, W), uint8, or None
    spacing : ndarray of shape (3,)
        Millimetres, array order.
    axes : ndarray of shape (3, 3)
        Columns are the LPS directions of the array axes z, y, x.
    centre : ndarray of shape (3,)
        LPS position of the volume's centre.
    """

    name: str
    image: Tensor
    labels: Tensor | None
    spacing: np.ndarray
    axes: np.ndarray
    centre: np.ndarray

    @property
    def size(self) -> tuple[int, int, int]:
        d, h, w = self.image.shape[2:]
        return d, h, w


def read_case(
    image: str | Path,
    labels: str | Path | None = None,
    percentiles: tuple[float, float] = (0.5, 99.5),
) -> Case:
    """Read a volume in a format of SimpleITK.

    Parameters
    ----------
    image, labels
        Files on one grid, in any orientation.
    percentiles
        Percentiles of the whole volume that become 0 and 1.

    Raises
    ------
    DataError
        A file is no volume, is cut short or has no contrast, or the labels are no labels or not on
        the image's grid.
    """
    import SimpleITK as sitk

    volume = _read(image)
    picture = sitk.DICOMOrient(volume.like(volume.float32()).to_sitk(), "LPS")
    if min(picture.GetSize()) < 2:
        raise DataError(
            f"{image}: a slice ({volume!r}); networks are for volumes, leave it out of the lists"
        )
    array, low, high = _intensities(image, picture, percentiles)
    scaled = torch.from_numpy(((array - low) / (high - low)).astype(np.float32))[None, None]
    marks = None
    if labels is not None:
        from ... import images

        label_image = _read(labels)
        m = sitk.DICOMOrient(label_image.to_sitk(), "LPS")
        if not images.read(picture).same_grid(images.read(m)):
            lost = (
                "; its header seems to be lost: give it the image's"
                if label_image.array.shape == volume.array.shape
                else ""
            )
            raise DataError(
                f"{labels}: the labels ({label_image!r}) are not on the grid of their image {image}"
                f" ({volume!r}){lost}"
            )
        values = sitk.GetArrayFromImage(m)
        # Conversion to uint8 would turn other values into wrong labels.
        odd = values[(values < 0) | (values > 255) | (values != np.round(values))]
        if odd.size:
            raise DataError(
                f"{labels}: label {odd[0]}; labels must be whole numbers from 0 to 255, renumber"
                " them"
            )
        marks = torch.from_numpy(np.ascontiguousarray(values, dtype=np.uint8))[None, None]
    direction = np.array(picture.GetDirection()).reshape(3, 3)
    middle = [(n - 1) / 2 for n in picture.GetSize()]
    return Case(
        name=Path(image).name.split(".")[0],
        image=scaled,
        labels=marks,
        spacing=np.array(picture.GetSpacing())[::-1].copy(),
        axes=direction[:, ::-1].copy(),
        centre=np.array(picture.TransformContinuousIndexToPhysicalPoint(middle)),
    )


def _read(path: str | Path) -> Any:
    """Read a file by :func:`morphseek.images.read`, which refuses files that are cut short."""
    from ... import errors, images

    try:
        return images.read(str(path))
    except errors.MorphSeekError as error:
        named = "" if str(path) in str(error) else f"{path}: "
        raise DataError(f"{named}{error}") from None


def _intensities(
    path: str | Path, picture: Any, percentiles: tuple[float, float]
) -> tuple[np.ndarray, float, float]:
    """Return the voxels as the engine prepares them, without a scanner's padding, failed fits and
    NaN, and their percentiles.
    """
    from ... import errors, images

    try:
        taken, (low, high) = images.read(picture).intensities(*percentiles)
    except errors.MorphSeekError as error:
        raise DataError(f"{path}: {error}") from None
    if not high > low:
        raise DataError(
            f"{path}: all intensities are equal, so it cannot be registered; leave it out of the"
            " lists"
        )
    return taken, low, high
