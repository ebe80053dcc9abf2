"""Tensor-based morphometry: where and by how much images are larger than the one that all were
registered to.
"""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import SimpleITK as sitk

from .. import _files, errors, images
from .._engine import bindings, core
from .._grid import Grid
from .._json import Plain
from ..images.sidecars import check_apart
from ..progress import Progress
from ..scoring.labels import check_labels, on_fixed_grid
from ..transforms import Transform
from ..transforms.linear import linear_part
from ..verdict import GRADES
from ._result import Tabled, folder_for, mean
from .means import Mean
from .runner import FINISHED, Meter
from .study import Study
from .table import Item, read_pairs, read_transforms

#: What a study leaves in a folder; the last one lists the others.
_MAP = "logj_{}.nii.gz"
STUDY = (_MAP.format("*"), "mean_logj.nii.gz", "sd_logj.nii.gz", "volumes.csv", "morphometry.json")
_SIGMA = 2 * math.sqrt(2 * math.log(2))  # a Gaussian's full width at half maximum
_LEAST_VOXELS = 4  # along an axis, that SimpleITK's Gaussian takes
_LEAST_SUBJECTS = 3  # that a correlation is of
_SAME = 1e-4  # off 1, of a determinant


@dataclasses.dataclass(frozen=True)
class LabelVolume(Plain):
    """The volume of a label in one subject: by the Jacobian determinant over the fixed image's
    label and, where the subject's own labels are given, as they have it. Changes are in % of the
    fixed image's.

    Examples
    --------
    >>> studies.LabelVolume("sub-01", 17, "hippocampus", 3000.0, 2700.0, -10.0).change_percent
    -10.0
    """

    id: str
    label: int
    name: str
    fixed_mm3: float
    volume_mm3: float
    change_percent: float
    true_mm3: float = math.nan
    true_change_percent: float = math.nan


@dataclasses.dataclass(repr=False)
class Morphometry(Tabled):
    """Maps of the logarithm of the Jacobian determinant over a study, and volumes by label: a table
    with a row a subject and label, as in volumes.csv.

    Examples
    --------
    >>> subject = studies.Item("sub-01", "result/transform.h5", "moving_labels.nii.gz")
    >>> study = studies.morphometry([subject])
    >>> study.mean.shape, study.ids
    ((48, 48, 48), ['sub-01'])
    """

    _card: ClassVar = "morphometry"
    ids: list[str]
    grid: Grid
    """The fixed image's."""
    mean: np.ndarray
    """Over the subjects, smoothed: float32, shape (z, y, x)."""
    sd: np.ndarray
    volumes: list[LabelVolume]
    """Of the maps as they are, not smoothed; empty without labels."""
    folded: Mapping[str, float]
    """Percentage of each subject's voxels where the map folds. They count in no map."""
    fwhm: float
    """Of the smoothing, mm."""
    affine: bool
    """Whether the linear part counts."""

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        columns = [field.name for field in dataclasses.fields(LabelVolume)]
        return columns, [dataclasses.asdict(volume) for volume in self.volumes]

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.grid.size))
        return f"Morphometry({len(self.ids)} subjects, {len(self.volumes)} volumes, on {size})"

    def _planes(self) -> tuple[np.ndarray, Grid]:
        return self.mean, self.grid

    def labels(self) -> list[dict[str, Any]]:
        """Return for each label mean and SD of its change and, where true volumes are known, those
        of the true one, the mean error, and the correlation of both over the subjects; None where
        there are too few.

        Examples
        --------
        >>> subject = studies.Item("sub-01", "result/transform.h5")
        >>> studies.morphometry([subject], fixed_labels="fixed_labels.nii.gz").labels()[0]["label"]
        1
        """
        by_label: dict[int, list[LabelVolume]] = {}
        for volume in self.volumes:
            by_label.setdefault(volume.label, []).append(volume)
        return [_summary(rows) for rows in by_label.values()]

    def _facts(self) -> dict[str, Any]:
        return {
            "version": core.version(),
            "subjects": self.ids,
            "fwhm_mm": self.fwhm,
            "affine": self.affine,
            "folded_percent": dict(self.folded),
            "grid": self.grid.numbers.tolist(),
            "labels": self.labels(),
            "volumes": self._table()[1],
        }


def _summary(rows: Sequence[LabelVolume]) -> dict[str, Any]:
    """Return the row of one label for :meth:`Morphometry.labels`."""
    changes = [row.change_percent for row in rows]
    both = [row for row in rows if math.isfinite(row.true_change_percent)]
    known, of_both = [r.true_change_percent for r in both], [r.change_percent for r in both]
    varies = len(both) >= _LEAST_SUBJECTS and len({*of_both}) > 1 and len({*known}) > 1
    return {
        "label": rows[0].label,
        "name": rows[0].name,
        "subjects": len(rows),
        "change_percent": mean(changes),
        "change_sd": statistics.stdev(changes) if len(changes) > 1 else None,
        "true_change_percent": mean(known),
        "true_change_sd": statistics.stdev(known) if len(known) > 1 else None,
        "error_percent": mean(change - true for change, true in zip(of_both, known)),
        "correlation": statistics.correlation(of_both, known) if varies else None,
    }


def morphometry(
    subjects: str | os.PathLike[str] | Iterable[Any] | Mapping[str, Any],
    out: str | os.PathLike[str] | None = None,
    *,
    fixed_labels: images.ImageLike | None = None,
    pairs: str | os.PathLike[str] | None = None,
    names: Mapping[int, str] | None = None,
    fwhm: float = 8.0,
    affine: bool = True,
    progress: Callable[[Progress], Any] | bool | None = None,
) -> Morphometry:
    """Measure where and by how much images are larger or smaller than the one that all were
    registered to.

    Parameters
    ----------
    subjects : path, iterable or mapping
        The folder of a study (:func:`register_pairs`), of which a registration with the verdict
        failed does not count; a table with the columns transform and,
        optionally, id and labels (of the moving image), relative to the file; a list of
        (transform, labels) or of :class:`Item`, whose image is the transform; or a mapping of names
        to transforms. A transform may be a result's folder. All are of one fixed image.
    out : path, optional
        Folder for logj_ID.nii.gz, mean_logj.nii.gz, sd_logj.nii.gz, volumes.csv and
        morphometry.json: all of them or, on an error, none.
    fixed_labels : ImageLike, optional
        Label map of the fixed image, on its grid: volumes are measured in its labels.
    pairs : path, optional
        The list that the study was of: its label maps are taken, by the ids.
    names : mapping, optional
        Label number to name. By default those of an atlas whose label map is given by name.
    fwhm : float
        Full width at half maximum, mm, of the Gaussian on the maps; 0 leaves them as they are.
    affine : bool
        False leaves the linear part of each transform out: what is left is relative to the whole.
    progress : callable or bool, optional
        As of :func:`register_pairs`, over the subjects.

    Raises
    ------
    GridMismatchError
        The transforms are not on one grid, or the labels not on it.
    InvalidArgumentError
        The study has several fixed images, or there is nothing to measure.

    Examples
    --------
    >>> subject = studies.Item("sub-01", "result/transform.h5", "moving_labels.nii.gz")
    >>> study = studies.morphometry([subject], fixed_labels="fixed_labels.nii.gz")
    >>> study.ids, len(study.volumes)
    (['sub-01'], 10)
    """
    errors._check_number("fwhm", fwhm, 0)
    if out is not None:
        check_apart(out, STUDY, {"pairs": pairs, "fixed_labels": fixed_labels})
    listed, pair_labels = _subjects(subjects, pairs)
    fixed_labels = pair_labels if fixed_labels is None else fixed_labels
    names = images.label_names(fixed_labels) if names is None else names
    volumes: list[LabelVolume] = []
    folded: dict[str, float] = {}
    still: list[str] = []
    with Meter(len(listed), progress) as meter, folder_for(out, STUDY) as folder:
        _, grid = _transform(listed[0])
        logs, squares, labels = Mean(grid.shape), Mean(grid.shape), None
        if fixed_labels is not None:
            labels = images.Image.on_grid(on_fixed_grid(fixed_labels, grid).array, grid)
            check_labels(labels)
        for subject in listed:
            transform, own = _transform(subject)
            if not bindings.same_grid(grid, own):
                raise errors.GridMismatchError(
                    f"{subject.id} was registered to another image than {listed[0].id}:"
                    f" {transform.name} is on another grid; register all to one fixed image"
                )
            determinant = transform.jacobian()
            if not affine:
                linear = linear_part(transform.stage("initial").to_sitk())
                determinant = determinant / abs(float(np.linalg.det(linear[:3, :3])))
            if np.abs(determinant - 1).max() < _SAME:
                still.append(subject.id)
            whole = determinant > 0
            folded[subject.id] = float(100 * (1 - whole.mean()))
            if labels is not None:
                volumes += _volumes(subject, determinant, labels, names, affine)
            logarithm = _smoothed(np.log(np.where(whole, determinant, 1)), whole, grid, fwhm)
            logs.add(logarithm)
            squares.add(logarithm**2)
            if folder is not None:
                image = images.Image.on_grid(logarithm, grid)
                images.write(folder / _MAP.format(subject.id), image)
            meter.ended(subject.id, subject.id)
        center, count = logs.result(), logs.count
        with np.errstate(invalid="ignore", divide="ignore"):
            sd = np.sqrt(np.maximum(squares.total - count * center**2, 0) / (count - 1))
        sd[count < 2] = np.nan
        maps = center.astype(np.float32), sd.astype(np.float32)
        study = Morphometry(list(folded), grid, *maps, volumes, folded, fwhm, affine)
        if folder is not None:
            for name, array in (("mean_logj", study.mean), ("sd_logj", study.sd)):
                images.write(folder / f"{name}.nii.gz", images.Image.on_grid(array, grid))
            study.to_csv(folder / "volumes.csv")
            _files.write_seal(folder / STUDY[-1], study.to_dict())
    if still:
        errors._warn(
            f"{_few(still)}: the registration found no deformation, so no part grew or shrank; a"
            " small change may have been taken for noise: register again with smoothness = 'high'"
        )
    return study


def _smoothed(values: np.ndarray, known: np.ndarray, grid: Grid, fwhm: float) -> np.ndarray:
    """Return a map after a Gaussian over the voxels that are known; NaN far from all of them."""
    if not fwhm:
        return np.where(known, values, np.nan).astype(np.float32)
    if min(grid.size) < _LEAST_VOXELS:
        raise errors.InvalidArgumentError(
            f"the fixed image has an axis of {min(grid.size)} voxels, too few for the"
            " Gaussian; set fwhm to 0"
        )

    def blurred(array: np.ndarray) -> np.ndarray:
        image = grid.place(sitk.GetImageFromArray(array.astype(np.float64)))
        return sitk.GetArrayFromImage(sitk.SmoothingRecursiveGaussian(image, fwhm / _SIGMA))

    if known.all():
        return blurred(values).astype(np.float32)
    share = blurred(known)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = blurred(np.where(known, values, 0)) / share
    return np.where(share > 1e-3, mean, np.nan).astype(np.float32)


def _sizes(labels: images.Image) -> dict[int, float]:
    """Return the volume of each label, mm^3."""
    values, counts = np.unique(labels.array, return_counts=True)
    return {int(v): float(n * labels.grid.voxel) for v, n in zip(values, counts) if v}


def _volumes(
    subject: Item, determinant: np.ndarray, labels: images.Image, names: Mapping[int, str],
    affine: bool,
) -> list[LabelVolume]:  # fmt: skip
    true: dict[int, float] = {}
    if subject.labels is not None and affine:
        own = images.read(subject.labels, f"labels of {subject.id}")
        check_labels(own)
        true = _sizes(own)
    rows = []
    for label, size in sorted(_sizes(labels).items()):
        inside = determinant[labels.array == label]
        volume = float(inside.sum(dtype=np.float64)) * labels.grid.voxel
        known, name = true.get(label, math.nan), names.get(label, "")
        change, truth = (100 * (each / size - 1) for each in (volume, known))
        rows.append(LabelVolume(subject.id, label, name, size, volume, change, known, truth))
    return rows


def _transform(subject: Item) -> tuple[Transform, Grid]:
    """Return a subject's transform, and the grid of the fixed image."""
    source = subject.image
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        source = Path(source) / "transform.h5"
    transform = Transform.of(source)
    if transform.grid is None:
        raise errors.InvalidArgumentError(
            f"{subject.id}: {transform.name} does not say on which grid the fixed image lies; give"
            " the transform.h5 of a registration"
        )
    return transform, transform.grid


def _subjects(
    source: Any, pairs: str | os.PathLike[str] | None
) -> tuple[list[Item], images.ImageLike | None]:
    """Return the subjects, and the fixed labels that the list of pairs names."""
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        source = _finished_pairs(Path(source))
    elif isinstance(source, Mapping):
        source = [Item(str(name), transform) for name, transform in source.items()]
    subjects = read_transforms(source)
    files = read_pairs(pairs) if pairs is not None else []
    if files and not {pair.id for pair in files} & {subject.id for subject in subjects}:
        raise errors.InvalidArgumentError(
            f"pairs: {pairs} has no subject: its ids are such as {files[0].id}, and the subjects'"
            f" such as {subjects[0].id}; give the list that the study was of"
        )
    labels = {
        pair.id: pair.path("moving_labels") for pair in files if "moving_labels" in pair.files
    }
    fixed = (pair.path("fixed_labels") for pair in files if "fixed_labels" in pair.files)
    return [
        dataclasses.replace(s, labels=labels.get(s.id)) if s.labels is None else s for s in subjects
    ], next(fixed, None)


def _few(ids: list[str]) -> str:
    return f"{', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''}"


def _finished_pairs(folder: Path) -> list[Item]:
    done = [row for row in Study.read(folder).rows if row.status in FINISHED]
    lost = [row.id for row in done if row.verdict == GRADES[-1]]
    done = [row for row in done if row.id not in lost]
    if lost:
        errors._warn(
            f"{len(lost)} registrations are left out, for their verdict is failed: {_few(lost)}"
        )
    if not done:
        raise errors.InvalidArgumentError(
            f"{folder} has no finished registration whose verdict is not failed; look at its"
            " index.html"
        )
    fixed = sorted({row.fixed for row in done})
    if len(fixed) > 1:
        raise errors.InvalidArgumentError(
            f"{folder} has results of {len(fixed)} fixed images ({fixed[0]}, {fixed[1]}, ...);"
            " register all to one, or list the transforms in a CSV"
        )
    return [Item(row.id, folder / row.id) for row in done]
