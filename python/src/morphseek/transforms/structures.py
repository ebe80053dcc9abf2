"""RT structure sets of the moving image, carried to the fixed one as its label maps are.

Closed contours become masks of parts of voxels, the masks are sampled in every slice of the fixed
series, and are outlined there anew. Points and open lines go by the inverse transform.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import errors, images
from .._features import needing
from .._files import write_with
from .._grid import Grid
from .._regular import head
from ..images import dicom_series as dicom
from ..images.dicom_headers import is_dicom, read_object
from .contours import outlines, rasterised
from .parts import field_on
from .transform import Transform, check_frame_uid, target_grid

if TYPE_CHECKING:
    from pydicom.dataset import Dataset, FileDataset

KIND = "1.2.840.10008.5.1.4.1.1.481.3"
_CLOSED = ("CLOSED_PLANAR", "CLOSEDPLANAR_XOR")
_MOST, _MOST_OF_PLANE = 2**30, 2**24  # voxels of a mask
# C.8.8.8.1: what a structure is; another word may be anything
_TYPES = (
    "EXTERNAL", "PTV", "CTV", "GTV", "TREATED_VOLUME", "IRRAD_VOLUME", "BOLUS", "AVOIDANCE",
    "ORGAN", "MARKER", "REGISTRATION", "ISOCENTER", "CONTRAST_AGENT", "CAVITY", "SUPPORT",
    "FIXATION", "DOSE_REGION", "CONTROL", "DOSE_MEASUREMENT", "BRACHY_CHANNEL",
    "BRACHY_ACCESSORY", "BRACHY_SRC_APP", "BRACHY_CHNL_SHLD",
)  # fmt: skip


class Carried(NamedTuple):
    """Outcome of a structure set."""

    structures: list[str]
    """Names of those that lie in the fixed image."""
    outside: list[str]
    """Names of those that have contours, none of which lies there."""


class _Planes(NamedTuple):
    """The parallel planes that contours lie in."""

    axes: np.ndarray
    """Two directions in the plane and its normal, as rows."""
    first: float
    """Place of the first one along the normal, mm."""
    step: float
    pixel: float
    """Edge of a mask's pixels, mm."""

    def steps(self, points: np.ndarray) -> np.ndarray:
        """Return the column, row and plane of points, LPS mm, shape (n, 3)."""
        return (points @ self.axes.T - [0, 0, self.first]) / [self.pixel, self.pixel, self.step]


class _Mask(NamedTuple):
    values: np.ndarray
    """Part of each voxel that is inside: float32 (plane, row, column)."""
    corner: np.ndarray
    """Of its first voxel: column, row and plane, in the steps of the planes."""


def is_structure_set(path: Path) -> bool:
    """Whether a file is an RT structure set, by its first bytes."""
    return is_dicom(path) and KIND.encode() in head(path, 4096)


def carry(
    source: Path, out: Path, transform: Transform, reference: images.ImageLike | None
) -> Carried:
    """Bring a structure set, an RTSTRUCT file of the moving image, to the fixed DICOM series, the
    folder ``reference``, and write it. Refuse another patient's, and contours in no even planes.
    """
    if out.suffix.lower() != ".dcm":
        raise errors.OutputUnwritableError(
            f"{out}: a structure set is written to .dcm; give the file that ending"
        )
    source_set = read_object(source, "input")
    with needing("dicom", f"input: {source}"):
        import skimage  # noqa: F401
    if reference is None:
        raise errors.InvalidArgumentError(
            f"input: {source} is a structure set, which is drawn on slices; give the folder of the"
            " fixed DICOM series as reference"
        )
    series = dicom.series_of(reference, "reference")
    dicom.check_patient(
        source_set,
        series.header,
        f"input: the structure set {source} and the reference",
        "give the one drawn on the moving image",
    )
    _check_frame(source_set, transform, source)
    grid = target_grid(transform, reference)
    contours = _contours(source_set, source)
    drawn = [(number, kind, points) for number, each in contours.items() for kind, points in each]
    closed: dict[int, list[np.ndarray]] = {}
    for number, kind, points in drawn:
        if kind in _CLOSED:
            closed.setdefault(number, []).append(points)
    lines_of: dict[int, list[Dataset]] = {number: [] for number in contours}
    if closed:
        planes = _planes([*chain(*closed.values())], grid, transform.moving_grid, source)
        masks = {number: _mask(own, planes, source) for number, own in closed.items()}
        for k in range(grid.size[2]):
            instance = series.at(grid.to_physical([0, 0, k]))
            for number, area in _sampled(transform, grid, k, masks, planes):
                for line in outlines(area):
                    points = grid.to_physical(np.insert(line[:, ::-1], 2, k, axis=1))
                    lines_of[number].append(_contour("CLOSED_PLANAR", points, instance))
    others = [each for each in drawn if each[1] not in _CLOSED]
    inverse = transform.inverse() if others else transform
    for number, kind, points in others:
        kind = kind if kind == "POINT" else "OPEN_NONPLANAR"  # a line leaves its plane
        lines_of[number].append(_contour(kind, inverse.transform_points(points), None))
    dataset = _structure_set(source_set, series, lines_of)
    write_with(lambda temporary: dicom.save_object(dataset, temporary), out)
    names = {int(each.ROINumber): str(each.get("ROIName") or "") for each in _rois(source_set)}
    return Carried(
        [names.get(number, str(number)) for number, each in lines_of.items() if each],
        [names.get(n, str(n)) for n, each in lines_of.items() if contours[n] and not each],
    )


def _check_frame(dataset: Dataset, transform: Transform, source: Path) -> None:
    told = (str(each.get("ReferencedFrameOfReferenceUID") or "") for each in _rois(dataset))
    frames = set(filter(None, told))
    if len(frames) > 1:
        raise errors.InputUnreadableError(
            f"input: {source} has structures of {len(frames)} frames of reference; save those of"
            " the moving image alone"
        )
    check_frame_uid(transform, next(iter(frames), ""), 1, f"the structure set {source}")


def _contours(dataset: Dataset, source: Path) -> dict[int, list[tuple[str, np.ndarray]]]:
    """Return the contours of each structure, its kind and its points (n, 3)."""
    if str(dataset.get("SOPClassUID") or "") != KIND:
        raise errors.InputUnreadableError(
            f"input: {source} is DICOM, and no RT structure set; give the RTSTRUCT file"
        )
    contours: dict[int, list[tuple[str, np.ndarray]]] = {}
    try:
        for each in dataset.StructureSetROISequence:
            contours[int(each.ROINumber)] = []
        for each in dataset.get("ROIContourSequence") or []:
            own = contours[int(each.ReferencedROINumber)]
            for one in each.get("ContourSequence") or []:
                points = np.array(one.ContourData, dtype=np.float64).reshape(-1, 3)
                if not np.isfinite(points).all() or np.abs(points).max(initial=0) > 1e6:
                    raise ValueError
                if len(points):
                    own.append((str(one.ContourGeometricType), points))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise errors.InputUnreadableError(
            f"input: {source} is a structure set whose contours are damaged, or are no numbers;"
            " export it anew"
        ) from None
    return contours


def _planes(
    closed: list[np.ndarray], grid: Grid, moving_grid: Grid | None, source: Path
) -> _Planes:
    """Find the planes of closed contours."""
    normal = _normal(max(closed, key=lambda c: float(np.ptp(c, axis=0).sum())))
    row = np.eye(3)[np.abs(normal).argmin()]
    row = row - normal * (row @ normal)
    row /= np.linalg.norm(row)
    axes = np.stack([row, np.cross(normal, row), normal])
    depths = [c @ normal for c in closed]
    places = np.unique(np.round([d.mean() for d in depths], 2))
    # a plane's own contours may differ by what their numbers were rounded by
    gaps = np.diff(places)
    gaps = gaps[gaps > 0.05]
    if len(gaps):
        step = float(gaps.min())
    elif moving_grid is not None:
        step = moving_grid.spacing[int(np.abs(normal @ moving_grid.axes).argmax())]
    else:
        raise errors.InputUnreadableError(
            f"input: {source} has contours in one plane alone, which do not say how thick it is;"
            " apply the transform.h5 of the registration, which holds the moving image's grid"
        )
    first = float(places[0])
    planes = np.array([(d.mean() - first) / step for d in depths])
    uneven = np.abs(planes - np.rint(planes)).max()
    if max(float(np.ptp(d)) for d in depths) > max(0.5, 0.2 * step) or uneven > 0.2:
        raise errors.InputUnreadableError(
            f"input: {source} has contours that do not lie in parallel planes at even distances;"
            " export the structure set on the slices of its series"
        )
    return _Planes(axes, first, step, min(grid.spacing + (moving_grid or grid).spacing))


def _normal(points: np.ndarray) -> np.ndarray:
    spread = points - points.mean(axis=0)
    normal: np.ndarray = np.linalg.eigh(spread.T @ spread)[1][:, 0]
    return normal * np.sign(normal[np.abs(normal).argmax()])


def _mask(closed: list[np.ndarray], planes: _Planes, source: Path) -> _Mask:
    """Return what closed contours hold; where they overlap in a plane, the inner one is a hole."""
    lines = [planes.steps(c) for c in closed]
    low = np.floor(np.min([line.min(axis=0) for line in lines], axis=0)) - 2
    high = np.ceil(np.max([line.max(axis=0) for line in lines], axis=0)) + 2
    size = (high - low + 1)[::-1].astype(int)
    if float(np.prod(size.astype(float))) > _MOST or size[1] * size[2] > _MOST_OF_PLANE:
        raise errors.InputUnreadableError(
            f"input: {source} has a structure of {' x '.join(map(str, size))} pixels of"
            f" {planes.pixel:g} mm, more than a body; export it anew"
        )
    values = np.zeros(size, np.float32)
    by_plane: dict[int, list[np.ndarray]] = {}
    for line in lines:
        here = by_plane.setdefault(int(np.rint(line[0, 2] - low[2])), [])
        here.append(line[:, 1::-1] - low[1::-1])
    for k, here in by_plane.items():
        values[k] = rasterised(here, (int(size[1]), int(size[2])))
    return _Mask(values, low)


def _sampled(
    transform: Transform, grid: Grid, k: int, masks: dict[int, _Mask], planes: _Planes
) -> Iterator[tuple[int, np.ndarray]]:
    """Give the structures that show in slice k of the fixed image, as parts of its voxels."""
    from scipy.ndimage import map_coordinates

    one = grid.part((0, 0, k), (*grid.size[:2], 1))
    there = (one.points() + field_on(transform.to_sitk(), one)).reshape(-1, 3)
    index = planes.steps(there)
    for number, mask in masks.items():
        own = index - mask.corner
        inside = ((own > 0) & (own < np.array(mask.values.shape[::-1]) - 1)).all(axis=1)
        if not inside.any():
            continue
        area = np.zeros(len(own), np.float32)
        area[inside] = map_coordinates(mask.values, own[inside, ::-1].T, order=1)
        if area.max() > 0.5:
            yield number, area.reshape(one.shape[1:])


def _contour(kind: str, points: np.ndarray, instance: dicom.Instance | None) -> Dataset:
    contour = dicom.item(
        ContourGeometricType=kind,
        NumberOfContourPoints=len(points),
        ContourData=[f"{v + 0.0:.3f}" for v in points.ravel()],
    )
    if instance is not None:
        contour.ContourImageSequence = dicom.refer([instance])
    return contour


def _rois(dataset: Dataset) -> Any:
    return dataset.get("StructureSetROISequence") or []


def _structure_set(
    source: Dataset, series: dicom.DicomSeries, lines_of: dict[int, list[Dataset]]
) -> FileDataset:
    """Return the structure set of the fixed series. Names, numbers, colours and types stay: other
    text is of the moving patient or study, and this object is the fixed one's.
    """
    name = "Structures carried by MorphSeek"
    dataset = dicom.new_object(series, KIND, "RTSTRUCT", name, "StructureSet")
    dataset.OperatorsName = ""
    dataset.StructureSetLabel = "STRUCTURES"
    dataset.ApprovalStatus = "UNAPPROVED"  # the approval was of other contours
    study = dicom.item(
        ReferencedSOPClassUID="1.2.840.10008.3.1.2.3.1",
        ReferencedSOPInstanceUID=series.study,
        RTReferencedSeriesSequence=[
            dicom.item(
                SeriesInstanceUID=series.uid, ContourImageSequence=dicom.refer(series.instances)
            )
        ],
    )
    dataset.ReferencedFrameOfReferenceSequence = [
        dicom.item(FrameOfReferenceUID=series.frame, RTReferencedStudySequence=[study])
    ]
    if re.fullmatch(r"[0-9.]{1,64}", number := str(source.get("SOPInstanceUID") or "")):
        dataset.PredecessorStructureSetSequence = dicom.refer([dicom.Instance(KIND, number, ())])
    dataset.StructureSetROISequence = [
        dicom.item(
            ROINumber=int(each.ROINumber),
            ReferencedFrameOfReferenceUID=series.frame,
            ROIName=str(each.get("ROIName") or ""),
            ROIGenerationAlgorithm="AUTOMATIC",
            ROIGenerationDescription="carried from another series by its registration",
        )
        for each in _rois(source)
    ]
    dataset.ROIContourSequence = []
    for each in source.get("ROIContourSequence") or []:
        one = dicom.item(ReferencedROINumber=int(each.ReferencedROINumber))
        if colour := _colour(each):
            one.ROIDisplayColor = colour
        if lines := lines_of[int(each.ReferencedROINumber)]:
            one.ContourSequence = lines
        dataset.ROIContourSequence.append(one)
    types = {
        str(each.get("ReferencedROINumber")): str(each.get("RTROIInterpretedType") or "")
        for each in source.get("RTROIObservationsSequence") or []
    }
    dataset.RTROIObservationsSequence = [
        dicom.item(
            ObservationNumber=k,
            ReferencedROINumber=number,
            RTROIInterpretedType=kind if (kind := types[str(number)]) in _TYPES else "",
            ROIInterpreter="",  # no person has reviewed these
        )
        for k, number in enumerate((n for n in lines_of if str(n) in types), 1)
    ]
    return dataset


def _colour(contours: Dataset) -> list[int]:
    try:
        colour = [int(v) for v in contours.get("ROIDisplayColor") or []]
    except (TypeError, ValueError):
        return []
    return colour if len(colour) == 3 else []
