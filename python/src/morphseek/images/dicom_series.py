"""References from DICOM objects to a series of images and its patient. By pydicom."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import errors
from .dicom import series_files
from .dicom_headers import is_dicom, read_object

if TYPE_CHECKING:
    from pydicom.dataset import Dataset, FileDataset

_PATIENT = ("PatientName", "PatientID", "PatientBirthDate", "PatientSex")
_STUDY = ("StudyDate", "StudyTime", "ReferringPhysicianName", "StudyID", "AccessionNumber")
_MORE = (
    "IssuerOfPatientID", "PatientIdentityRemoved", "DeidentificationMethod",
    "DeidentificationMethodCodeSequence", "LongitudinalTemporalInformationModified",
    "StudyDescription",
)  # fmt: skip
_HEADER = [
    "SpecificCharacterSet", "SOPClassUID", "SOPInstanceUID", "StudyInstanceUID",
    "SeriesInstanceUID", "FrameOfReferenceUID", "PositionReferenceIndicator",
    "ImagePositionPatient", *_PATIENT, *_STUDY, *_MORE,
]  # fmt: skip


class Instance(NamedTuple):
    """One file of a series."""

    sop_class: str
    uid: str
    position: tuple[float, ...]
    """Of its first voxel, LPS mm; empty where the header has none."""


class DicomSeries(NamedTuple):
    """A series of images, as other objects refer to it."""

    header: Dataset
    """Of its first file: the patient and the study."""
    frame: str
    study: str
    uid: str
    instances: list[Instance]
    """In the order of the slices."""

    def at(self, place: np.ndarray) -> Instance:
        """Return the file whose first voxel lies next to a place."""

        def far(one: Instance) -> float:
            return float(np.linalg.norm(np.subtract(one.position, place))) if one.position else 0.0

        return min(self.instances, key=far)


def series_of(image: Any, name: str) -> DicomSeries:
    """Return the series of a DICOM folder or file; refuse headers that nothing can refer to."""
    if not isinstance(image, (str, os.PathLike)):
        raise errors.InvalidArgumentError(
            f"{name}: a DICOM object refers to DICOM images; give the folder of the series"
        )
    path = Path(image)
    if not path.is_dir() and not is_dicom(path):
        raise errors.InvalidArgumentError(
            f"{name}: {path} is no DICOM, and a DICOM object refers to DICOM images; give the"
            " folder of the series, or write another format"
        )
    files = [Path(file) for file in series_files(path, name)] if path.is_dir() else [path]
    headers = [read_object(file, name, _HEADER) for file in files]
    for key in ("FrameOfReferenceUID", "StudyInstanceUID", "SeriesInstanceUID"):
        values = {str(header.get(key) or "") for header in headers}
        if len(values) > 1 or "" in values:
            says = "differ in" if len(values) > 1 else "lack"
            raise errors.InputUnreadableError(
                f"{name}: the files of {path} {says} the {key}, by which DICOM objects refer to"
                " images; give the series as the scanner or the archive wrote it"
            )
    first = headers[0]
    return DicomSeries(
        first,
        str(first.FrameOfReferenceUID),
        str(first.StudyInstanceUID),
        str(first.SeriesInstanceUID),
        [_instance(file, header, name) for file, header in zip(files, headers)],
    )


def _instance(file: Path, header: Dataset, name: str) -> Instance:
    kind, uid = (str(header.get(key) or "") for key in ("SOPClassUID", "SOPInstanceUID"))
    if not kind or not uid:
        raise errors.InputUnreadableError(
            f"{name}: {file} has no SOPClassUID or no SOPInstanceUID, by which DICOM objects refer"
            " to images; give the series as the scanner or the archive wrote it"
        )
    return Instance(kind, uid, tuple(float(v) for v in header.get("ImagePositionPatient") or ()))


def frame_of(image: Any) -> str:
    """Return the FrameOfReferenceUID of a DICOM folder or file; empty of anything else."""
    if not isinstance(image, (str, os.PathLike)):
        return ""
    path = Path(image)
    if path.is_dir():
        path = Path(series_files(path, "image")[0])
    if not is_dicom(path):
        return ""
    return str(read_object(path, "image", ["FrameOfReferenceUID"]).get("FrameOfReferenceUID") or "")


def check_patient(one: Dataset, other: Dataset, what: str, advice: str) -> None:
    """Refuse to join what belongs to two patients. Where one has no identifier, nobody knows."""
    first, second = (str(each.get("PatientID") or "").strip() for each in (one, other))
    if first and second and first != second:
        raise errors.InvalidArgumentError(
            f"{what} belong to different patients (PatientID), and a DICOM object to one; {advice}"
        )


def new_object(
    series: DicomSeries, sop_class: str, modality: str, description: str, dated: str
) -> FileDataset:
    """Return an object of the patient, study and frame of reference of a series, with UIDs of its
    own; nothing is made up about the patient. What is `dated` is a word of its kind's: Content.
    """
    import pydicom

    from .. import __version__

    uid = pydicom.uid.generate_uid()
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = pydicom.uid.UID(sop_class)
    meta.MediaStorageSOPInstanceUID = uid
    # implicit, for contours are longer than the 64 KiB that their type may have in the other
    meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian
    dataset: FileDataset = pydicom.dataset.FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    header = series.header
    for key in ("SpecificCharacterSet", *_PATIENT, *_STUDY, *_MORE):
        if key in header:
            dataset[key] = header[key]
        elif key in (*_PATIENT, *_STUDY):
            setattr(dataset, key, "")
    now = datetime.datetime.now()
    dataset.SOPClassUID, dataset.SOPInstanceUID = sop_class, uid
    dataset.StudyInstanceUID = series.study
    dataset.SeriesInstanceUID = pydicom.uid.generate_uid()
    dataset.SeriesNumber, dataset.InstanceNumber = 900, 1  # behind a scanner's own
    dataset.SeriesDescription = description
    dataset.Modality = modality
    dataset.Manufacturer = dataset.ManufacturerModelName = "MorphSeek"
    dataset.DeviceSerialNumber, dataset.SoftwareVersions = "0", __version__
    for what in ("InstanceCreation", "Series", dated):
        setattr(dataset, f"{what}Date", now.strftime("%Y%m%d"))
        setattr(dataset, f"{what}Time", now.strftime("%H%M%S"))
    dataset.FrameOfReferenceUID = series.frame
    dataset.PositionReferenceIndicator = header.get("PositionReferenceIndicator") or ""
    return dataset


def item(**values: Any) -> Dataset:
    """Return a sequence's item."""
    from pydicom.dataset import Dataset

    dataset = Dataset()
    for key, value in values.items():
        setattr(dataset, key, value)
    return dataset


def refer(instances: Sequence[Instance]) -> list[Dataset]:
    """Return the items that refer to files of a series."""
    return [
        item(ReferencedSOPClassUID=each.sop_class, ReferencedSOPInstanceUID=each.uid)
        for each in instances
    ]


def refer_by_study(dataset: Dataset, all_series: Sequence[DicomSeries]) -> None:
    """Say which series an object refers to: those of its own study, and those of others."""
    unlike = {series.uid: series for series in all_series}
    others: dict[str, list[Dataset]] = {}
    for series in unlike.values():
        one = item(SeriesInstanceUID=series.uid, ReferencedInstanceSequence=refer(series.instances))
        others.setdefault(series.study, []).append(one)
    if own := others.pop(str(dataset.StudyInstanceUID), None):
        dataset.ReferencedSeriesSequence = own
    if others:
        dataset.StudiesContainingOtherReferencedInstancesSequence = [
            item(StudyInstanceUID=study, ReferencedSeriesSequence=each)
            for study, each in others.items()
        ]


def save_object(dataset: FileDataset, path: Path) -> None:
    """Write an object; RuntimeError where a value that was carried over cannot be written."""
    from pydicom.dataset import validate_file_meta

    try:
        dataset.file_meta.FileMetaInformationGroupLength = 0  # pydicom counts
        validate_file_meta(dataset.file_meta)
        dataset.save_as(path)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RuntimeError(
            f"a value of the series that it describes cannot be written as DICOM ({error}); mend"
            " that series' patient and study, or write another format"
        ) from None
