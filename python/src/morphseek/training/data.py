"""Labelled pairs of volumes: reading, the network grid, augmentation.

The network grid of a pair follows the rule that the registration engine applies, so that training
and use agree:

1. the axes of every volume are permuted and flipped to the closest canonical LPS orientation;
2. the grid has the axes of the fixed volume, is centred on the fixed volume's centre, has the
   configured spacing, and as
   many voxels as cover the fixed volume and not less than the minimum, rounded up to the network's
   size multiple;
3. both volumes are read on it by linear interpolation (the moving one through the initial
   transform), intensities are
   normalised by percentiles of the whole original volume and clipped to [0, 1]; outside the field
   of view is 0.

Arrays and tensors have axes z, y, x. Lengths are in millimetres where not said otherwise.
"""

from __future__ import annotations

import csv
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .spatial import identity_grid, sample

if TYPE_CHECKING:
    from .config import Data

__all__ = [
    "Augmentation",
    "Case",
    "DataError",
    "Grid",
    "PairSource",
    "Sample",
    "make_grid",
    "make_sample",
    "read_case",
    "read_pairs",
    "read_people",
    "rotation",
    "start_transform",
]

#: Of images and labels that are named without one.
ENDINGS = (".nii.gz", ".nii", ".nrrd", ".mha")


class DataError(ValueError):
    """A volume or a list that training cannot use; the message names the file."""


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
        return tuple(self.image.shape[2:])


def read_case(
    image: str | Path,
    labels: str | Path | None = None,
    percentiles: tuple[float, float] = (0.5, 99.5),
    label_map: dict[int, int] | None = None,
) -> Case:
    """Read a volume that SimpleITK knows.

    Parameters
    ----------
    image, labels
        Files on one grid, in whatever orientations.
    percentiles
        Of the whole volume; they become 0 and 1.
    label_map
        Merges or renames labels; those not named become background.

    Raises
    ------
    DataError
        A file that is no volume, is cut short or has no contrast; labels that are no labels, or not
        on the image's grid.
    """
    import SimpleITK as sitk

    from .. import images
    from .._engine import bindings

    given = _read(image)
    picture = sitk.DICOMOrient(given.like(given.float32()).to_sitk(), "LPS")
    array, low, high = _intensities(image, picture, percentiles)
    scaled = torch.from_numpy(((array - low) / (high - low)).astype(np.float32))[None, None]
    marks = None
    if labels is not None:
        found = _read(labels)
        m = sitk.DICOMOrient(found.to_sitk(), "LPS")
        if not bindings.same_grid(images.grid_of(picture), images.grid_of(m)):
            lost = (
                "; its header seems to be lost: give it the image's"
                if found.array.shape == given.array.shape
                else ""
            )
            raise DataError(
                f"{labels}: the labels ({found!r}) are not on the grid of their image {image}"
                f" ({given!r}){lost}"
            )
        values = sitk.GetArrayFromImage(m)
        if label_map:
            values = sum((values == old).astype(np.uint8) * new for old, new in label_map.items())
        # Others would become some other label in uint8.
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
    """A file as the rest of the package reads it (:func:`morphseek.images.read`), which knows the
    ones that are cut short.
    """
    from .. import errors, images

    try:
        return images.read(str(path))
    except errors.MorphSeekError as error:
        named = "" if str(path) in str(error) else f"{path}: "
        raise DataError(f"{named}{error}") from None


def _few(labels: set[int]) -> str:
    return ", ".join(map(str, sorted(labels)[:5])) + (", ..." if len(labels) > 5 else "")


def _json(path: Path) -> dict:
    """The object in a JSON file of lists."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: needs an object with lists of pairs, {{...}}, not {type(content).__name__}"
        )
    return content


def _intensities(
    path: str | Path, picture: Any, percentiles: tuple[float, float]
) -> tuple[np.ndarray, float, float]:
    """Return the voxels as the engine takes them, and their percentiles: no scanner's padding, no
    failed fits, no NaN.
    """
    import SimpleITK as sitk

    from .. import errors, images
    from .._engine import bindings

    given = images.Image(
        sitk.GetArrayFromImage(picture),
        picture.GetSpacing(),
        picture.GetOrigin(),
        picture.GetDirection(),
    )
    try:
        taken, (low, high) = bindings.intensities(given.float32(), given.grid, *percentiles)
    except errors.MorphSeekError as error:
        raise DataError(f"{path}: {error}") from None
    if not high > low:
        raise DataError(f"{path}: constant intensities, nothing to register")
    return taken, low, high


@dataclass
class Grid:
    """The network grid of a pair: its size (D, H, W) and spacing in mm, both array order, on the
    fixed volume's axes.
    """

    size: tuple[int, int, int]
    spacing: np.ndarray


def make_grid(
    fixed: Case, spacing: Sequence[float], min_size: Sequence[int], multiple: int
) -> Grid:
    """Apply rule 2 of the module's description."""
    spacing = np.asarray(spacing, dtype=float)
    extent = np.array(fixed.size) * fixed.spacing / spacing
    size = [
        multiple * math.ceil(max(int(m), round(float(e), 6)) / multiple)
        for e, m in zip(extent, min_size, strict=True)
    ]
    return Grid(tuple(size), spacing)


@dataclass
class Augmentation:
    """Random changes of a training pair; every amplitude 0 leaves it alone.

    Attributes
    ----------
    mirror : float
        Probability of a left-right mirror of both images.
    rotation_deg, scale, translation_mm : float
        Half-widths of uniform distributions: rotation about each axis, relative size, shift. Drawn
        for the moving image, and, times ``fixed_share``, for the fixed one.
    shear : float
        Half-width of the off-diagonal terms.
    elastic_mm : float
        Upper end of the standard deviation of random displacements of points every 12 mm, of the
        moving image and, times ``fixed_share``, of the fixed one. Between the points they are
        interpolated, which halves them on average.
    gamma : float
        Standard deviation of the logarithm of an exponent on intensities.
    noise : float
        Upper end of the standard deviation of additive noise, in units of the normalised intensity.
    contrast : float
        Half-width of a change of the intensity window.
    """

    mirror: float = 0.0
    rotation_deg: float = 0.0
    scale: float = 0.0
    translation_mm: float = 0.0
    shear: float = 0.0
    elastic_mm: float = 0.0
    fixed_share: float = 1.0
    gamma: float = 0.0
    noise: float = 0.0
    contrast: float = 0.0

    def affine(self, rng: np.random.Generator, share: float) -> np.ndarray:
        """A random 3x4 affine in mm about the origin, array order."""
        a = np.deg2rad(self.rotation_deg * share) * rng.uniform(-1, 1, 3)
        rz, ry, rx = (rotation(i, t) for i, t in enumerate(a))
        scale = np.diag(np.exp(np.log1p(self.scale * share) * rng.uniform(-1, 1, 3)))
        shear = np.eye(3) + self.shear * share * rng.uniform(-1, 1, (3, 3)) * (1 - np.eye(3))
        shift = self.translation_mm * share * rng.uniform(-1, 1, 3)
        return np.concatenate((rz @ ry @ rx @ shear @ scale, shift[:, None]), axis=1)

    def elastic(self, rng: np.random.Generator, share: float, grid: Grid) -> Tensor:
        """A smooth random displacement in mm on ``grid``, (1, 3, D, H, W): noise every 12 mm,
        interpolated.
        """
        control = [
            max(2, math.ceil(n * s / 12.0)) for n, s in zip(grid.size, grid.spacing, strict=True)
        ]
        sd = self.elastic_mm * share * rng.random()
        noise = torch.from_numpy(rng.standard_normal((1, 3, *control), dtype=np.float32)) * sd
        field = F.interpolate(noise, size=grid.size, mode="trilinear", align_corners=False)
        # Rounds the corners of the interpolation, which would be kinks in the anatomy.
        return F.avg_pool3d(F.pad(field, (2,) * 6, mode="replicate"), 5, stride=1)


def rotation(axis: int, angle: float) -> np.ndarray:
    """Rotation about one axis by radians; 3x3 for (z, y, x) vectors."""
    c, s = np.cos(angle), np.sin(angle)
    i, j = [k for k in range(3) if k != axis]
    r = np.eye(3)
    r[i, i], r[i, j], r[j, i], r[j, j] = c, -s, s, c
    return r


_IDENTITY = np.eye(3, 4)


@dataclass
class Sample:
    """A pair on its network grid.

    Attributes
    ----------
    fixed, moving : (1, 1, D, H, W)
        Normalised intensities in [0, 1], 0 outside the field of view.
    fixed_fov, moving_fov : (1, 1, D, H, W)
        1 inside the field of view.
    fixed_labels, moving_labels : (1, K, D, H, W)
        Linearly interpolated one-hot labels; K is 0 for unlabelled pairs.
    fixed_map, moving_map : (1, 1, D, H, W)
        The same as label maps (float): nearest neighbour.
    truth : (1, 3, D, H, W), optional
        The true displacement in voxels, where it is known.
    truth_mask : (1, 1, D, H, W), optional
        1 where the images can tell the truth.
    """

    fixed: Tensor
    moving: Tensor
    fixed_fov: Tensor
    moving_fov: Tensor
    fixed_labels: Tensor
    moving_labels: Tensor
    fixed_map: Tensor
    moving_map: Tensor
    truth: Tensor | None = None
    truth_mask: Tensor | None = None

    def to(self, device: torch.device | str) -> Sample:
        return Sample(**{k: v if v is None else v.to(device) for k, v in self.__dict__.items()})


def _place(case: Case, points_mm: Tensor, labels: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Read a case at points given in mm from its centre, in its own array axes: (1, 3, D, H, W)."""
    scale = torch.as_tensor(1.0 / case.spacing, dtype=torch.float32).view(1, 3, 1, 1, 1)
    half = torch.tensor([(n - 1) / 2 for n in case.size]).view(1, 3, 1, 1, 1)
    index = points_mm * scale + half
    last = 2 * half
    # As ITK: a point belongs to the volume up to half a voxel beyond the outermost centres, where
    # the border value holds.
    inside = ((index >= -0.5) & (index <= last + 0.5)).all(dim=1, keepdim=True).float()
    if labels and case.labels is not None:
        hot = torch.cat([(case.labels == k).float() for k in range(1, labels + 1)], dim=1)
        stack = torch.cat((case.image, hot), dim=1)
    else:
        stack = case.image
    read = sample(stack, index, padding="border") * inside
    soft = read[:, 1:]
    if soft.shape[1]:
        both = torch.cat((1.0 - soft.sum(1, keepdim=True), soft), dim=1)
        hard = both.argmax(dim=1, keepdim=True).float()
    else:
        hard = torch.zeros_like(inside)
    return read[:, :1].clamp(0.0, 1.0), inside, soft, hard


def make_sample(
    fixed: Case,
    moving: Case,
    grid: Grid,
    labels: int,
    augmentation: Augmentation | None = None,
    rng: np.random.Generator | None = None,
    initial: np.ndarray | None = None,
) -> Sample:
    """Put a pair on its network grid.

    Parameters
    ----------
    fixed, moving
        The pair. Without ``initial`` their centres are aligned.
    grid
        From :func:`make_grid`.
    labels : int
        Number of labels, background aside.
    augmentation, rng
        Random changes, drawn from ``rng``.
    initial : ndarray of shape (4, 4), optional
        Homogeneous LPS transform that maps points of the fixed space to points of the moving space.
    """
    half = torch.tensor([(n - 1) / 2 for n in grid.size]).view(1, 3, 1, 1, 1)
    step = torch.as_tensor(grid.spacing, dtype=torch.float32).view(1, 3, 1, 1, 1)
    points = (identity_grid(grid.size, torch.device("cpu")) - half) * step
    a_fixed = a_moving = _IDENTITY
    if augmentation is not None:
        if rng.random() < augmentation.mirror:
            # The last array axis is x, and x is left-right in the canonical LPS orientation.
            points = points * torch.tensor([1.0, 1.0, -1.0]).view(1, 3, 1, 1, 1)
        a_fixed = augmentation.affine(rng, augmentation.fixed_share)
        a_moving = augmentation.affine(rng, 1.0)
    p_fixed = _apply(a_fixed, points)
    p_seen = _apply(a_moving, points)
    if augmentation is not None and augmentation.elastic_mm:
        p_fixed = p_fixed + augmentation.elastic(rng, augmentation.fixed_share, grid)
        p_seen = p_seen + augmentation.elastic(rng, 1.0, grid)
    p_moving = _apply(start_transform(fixed, moving, initial), p_seen)
    f, f_fov, f_soft, f_map = _place(fixed, p_fixed, labels)
    m, m_fov, m_soft, m_map = _place(moving, p_moving, labels)
    if augmentation is not None:
        f = _change_intensity(f, f_fov, augmentation, rng)
        m = _change_intensity(m, m_fov, augmentation, rng)
    return Sample(f, m, f_fov, m_fov, f_soft, m_soft, f_map, m_map)


def start_transform(fixed: Case, moving: Case, initial: np.ndarray | None = None) -> np.ndarray:
    """Where the registration starts: the 3x4 map of points in mm from the fixed volume's centre,
    along its axes, to such points of the moving volume.

    Parameters
    ----------
    initial : ndarray of shape (4, 4), optional
        As in :func:`make_sample`; without it the centres coincide.
    """
    back = np.linalg.inv(moving.axes)
    if initial is None:
        return np.concatenate((back @ fixed.axes, np.zeros((3, 1))), axis=1)
    linear, offset = initial[:3, :3], initial[:3, 3]
    shift = back @ (linear @ fixed.centre + offset - moving.centre)
    return np.concatenate((back @ linear @ fixed.axes, shift[:, None]), axis=1)


def _apply(affine: np.ndarray, points: Tensor) -> Tensor:
    if affine is _IDENTITY:
        return points
    a = torch.as_tensor(affine, dtype=torch.float32)
    return torch.einsum("ij,bjdhw->bidhw", a[:, :3], points) + a[:, 3].view(1, 3, 1, 1, 1)


def _change_intensity(
    image: Tensor, fov: Tensor, augmentation: Augmentation, rng: np.random.Generator
) -> Tensor:
    if augmentation.contrast:
        low, high = augmentation.contrast * rng.uniform(-1, 1, 2)
        image = ((image - low) / (1.0 + high - low)).clamp(0.0, 1.0)
    if augmentation.gamma:
        image = image.clamp_min(1e-4) ** float(np.exp(augmentation.gamma * rng.standard_normal()))
    if augmentation.noise:
        sd = augmentation.noise * rng.random()
        image = image + torch.from_numpy(rng.standard_normal(image.shape, dtype=np.float32)) * sd
    return image.clamp(0.0, 1.0) * fov


def read_pairs(data: str | Path, split: str) -> list[tuple[str, str]]:
    """Pairs [fixed, moving] of a data folder.

    Three layouts are known:

    - ``split.json`` with ``{"pairs": {split: [[fixed, moving], ...]}}``;
    - Learn2Reg's ``*_dataset.json`` with ``registration_val``/``registration_test`` lists of
      ``{"fixed": path, "moving": path}`` (``split`` names the list with or without the prefix;
      other lists, of single images, are passed over);
    - a CSV file: ``split`` is its path (relative to ``data``), with columns ``fixed`` and
      ``moving``.

    Names are file stems in ``images/``, or paths relative to ``data``.
    """
    data = Path(data)
    if split.endswith(".csv"):
        # Excel puts a byte order mark in front.
        with open(data / split, newline="", encoding="utf-8-sig") as f:
            rows = list(csv.DictReader(f))
        if not rows:
            raise DataError(
                f"{data / split}: no pairs; needs a line 'fixed,moving' and then a line a pair"
            )
        if not {"fixed", "moving"} <= rows[0].keys():
            raise DataError(f"{data / split}: needs the columns 'fixed' and 'moving'")
        if short := [i for i, r in enumerate(rows, 1) if not (r["fixed"] and r["moving"])]:
            raise DataError(f"{data / split}: pair {short[0]} has only one name")
        return [(r["fixed"], r["moving"]) for r in rows]
    if (data / "split.json").exists():
        pairs = _json(data / "split.json").get("pairs")
        if not isinstance(pairs, dict):
            raise DataError(
                f'{data / "split.json"}: no lists of pairs; needs {{"pairs": {{NAME: [[fixed,'
                " moving], ...]}}"
            )
        if split not in pairs:
            raise DataError(
                f"{data / 'split.json'}: no pair list {split!r}; there are"
                f" {', '.join(sorted(pairs))}"
            )
        found = pairs[split]
        if not isinstance(found, list) or not all(
            isinstance(p, list) and len(p) == 2 and all(isinstance(n, str) for n in p)
            for p in found
        ):
            raise DataError(
                f"{data / 'split.json'}: the list {split!r} must be of pairs of names, [[fixed,"
                " moving], ...]"
            )
        return [tuple(p) for p in found]
    for name in sorted(data.glob("*dataset*.json")):
        content = _json(name)
        for key in (f"registration_{split}", split):
            found = content.get(key)
            if isinstance(found, list) and all(
                isinstance(p, dict) and {"fixed", "moving"} <= p.keys() for p in found
            ):
                return [(p["fixed"], p["moving"]) for p in found]
    raise FileNotFoundError(
        f"{data}: neither split.json nor a Learn2Reg *_dataset.json with the list of pairs"
        f" {split!r}"
    )


def read_people(data: str | Path, split: str) -> list[str]:
    """Names of the people of a split: the list of that name, or whoever occurs in its pairs.

    A list is in ``split.json`` or in Learn2Reg's ``*_dataset.json`` (``training``), and has names
    or ``{"image": path}``.
    """
    data = Path(data)
    files = (
        [data / "split.json"]
        if (data / "split.json").exists()
        else sorted(data.glob("*dataset*.json"))
    )
    for name in files:
        found = _json(name).get(split)
        if isinstance(found, list):
            people = [p.get("image") if isinstance(p, dict) else p for p in found]
            if people and all(isinstance(p, str) for p in people):
                return people
    return sorted({name for pair in read_pairs(data, split) for name in pair})


class PairSource:
    """The pairs of a run, every volume read once and kept in memory.

    Parameters
    ----------
    data : path
        Folder with ``images/`` and ``labels/`` (same names), or the root of the relative paths in
        the pair list.
    labels : int
        Number of labels, background aside; 0 for unlabelled data.
    percentiles
        See :func:`read_case`.
    initial : str
        Where pairs start: ``"centres"`` of the volumes aligned, or an ``initial`` of
        :func:`morphseek.register`.

    Attributes
    ----------
    labels_needed : bool
        Refuse a volume whose labels are all above ``labels``; otherwise that is a warning.
    """

    def __init__(
        self,
        data: str | Path,
        labels: int,
        percentiles: tuple[float, float] = (0.5, 99.5),
        initial: str = "centres",
    ):
        self.data = Path(data)
        self.labels = labels
        self.percentiles = percentiles
        self.initial = initial
        self.labels_needed = False
        self._warned = False
        self._cases: dict[str, Case] = {}
        self._starts: dict[tuple[str, str], np.ndarray] = {}
        if not self.data.is_dir():
            raise FileNotFoundError(f"data folder {self.data} does not exist")

    @classmethod
    def configured(cls, data: Data, path: str | Path | None = None) -> PairSource:
        """The source that a run's ``[data]`` section describes, of another folder if ``path`` is
        given.
        """
        return cls(
            data.path if path is None else path, data.labels, tuple(data.percentiles), data.initial
        )

    def case(self, name: str) -> Case:
        """The volume called ``name``."""
        if name not in self._cases:
            case = read_case(*self._files(name), self.percentiles)
            if case.labels is not None:
                self._look_for_others(case.labels, self._files(name)[1])
            self._cases[name] = case
        return self._cases[name]

    def _look_for_others(self, labels: Tensor, path: Path) -> None:
        """Labels above ``data.labels`` become background, which must not pass in silence."""
        found = set(labels.unique().tolist()) - {0}
        if not found or max(found) <= self.labels:
            return
        if min(found) > self.labels and self.labels_needed:
            raise DataError(
                f"{path}: its labels are {_few(found)}, none of the 1 to {self.labels} that"
                f" data.labels = {self.labels} means; renumber them from 1, or set data.labels to"
                " the greatest"
            )
        if not self._warned:
            self._warned = True
            logging.getLogger(__name__).warning(
                "%s: label %d is above data.labels = %d and counts as background; set data.labels"
                " to the greatest label if it should count",
                path,
                max(found),
                self.labels,
            )

    def pair(
        self,
        fixed: str,
        moving: str,
        data: Data,
        multiple: int,
        labels: int,
        augmentation: Augmentation | None = None,
        rng: np.random.Generator | None = None,
    ) -> Sample:
        """The pair of these names on its network grid, of ``data``'s spacing and least size:
        :func:`make_grid`, :func:`make_sample`.
        """
        f, m = self.case(fixed), self.case(moving)
        grid = make_grid(f, data.spacing, data.min_size, multiple)
        return make_sample(f, m, grid, labels, augmentation, rng, self.start(fixed, moving))

    def has_labels(self, name: str) -> bool:
        """Whether the volume called ``name`` has a label file; reads neither."""
        return self._files(name)[1] is not None

    def start(self, fixed: str, moving: str) -> np.ndarray | None:
        """The initial transform of a pair, by the engine, once: 4x4, LPS, from the fixed to the
        moving space; None aligns the centres.
        """
        if self.initial == "centres":
            return None
        if (fixed, moving) not in self._starts:
            try:
                from .. import register
            except ImportError as error:
                raise RuntimeError(
                    f"data.initial = {self.initial!r} needs the compiled engine; install morphseek,"
                    " or use 'centres'"
                ) from error
            options = {
                "initial": self.initial,
                "model": "none",
                "search": "off",
                "refine": 0,
                "threads": 1,
            }
            self._starts[fixed, moving] = register(
                self._files(fixed)[0], self._files(moving)[0], **options
            ).initial
        return self._starts[fixed, moving]

    def _files(self, name: str) -> tuple[Path, Path | None]:
        path = self.data / name
        if path.is_file():
            return path, self._labels_of(path)
        for ending in ENDINGS:
            path = self.data / "images" / (name + ending)
            if path.exists():
                return path, self._labels_of(path)
        raise FileNotFoundError(
            f"no image {name!r} in {self.data} (tried images/{name}.nii.gz, .nii, .nrrd, .mha)"
        )

    def _labels_of(self, image: Path) -> Path | None:
        """imagesTr/x.nii.gz has its labels in labelsTr/x.nii.gz, or in x with another ending."""
        # Folders above the data may be called anything.
        inside = image.relative_to(self.data) if image.is_relative_to(self.data) else image
        # The file's own name may have the word too: labelsTr/images_1.nii.gz or
        # labelsTr/labels_1.nii.gz.
        for text in (
            str(inside).replace("images", "labels", 1),
            str(inside).replace("images", "labels"),
        ):
            if text == str(inside):
                continue
            stem = next((text.removesuffix(e) for e in ENDINGS if text.endswith(e)), text)
            for marks in (self.data / name for name in (text, *(stem + e for e in ENDINGS))):
                if self.labels and marks.is_file():
                    return marks
        return None
