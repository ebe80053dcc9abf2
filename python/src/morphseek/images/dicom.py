"""A folder with one DICOM series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._files import check_regular

_MOST_FILES = 20_000  # a series has a few thousand


def read_series(folder: Path, name: str) -> sitk.Image:
    """Read a folder's one series, whose slices must be evenly spaced: ITK would spread one with
    gaps evenly, and only warn.
    """
    files, position = _dicom_files(folder, name), "0020|0032"
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
        except ValueError:  # nothing that can be compared
            return image
        _check_stack(image, corners, folder, name)
    return image


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


def _dicom_files(folder: Path, name: str) -> tuple[str, ...]:
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
    if len(series) > 1:
        listing = "; ".join(  # their numbers are in the archives of a clinic, too
            f"{len(files)} files from {Path(files[0]).name} on" for files in series.values()
        )
        raise errors.InputUnreadableError(
            f"{name}: the folder {folder} holds {len(series)} DICOM series ({listing}); move one"
            " into its own folder"
        )
    return next(iter(series.values()))
