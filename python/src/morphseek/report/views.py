"""What a page shows, turned to the patient: volumes whose axes run to the left, back and head."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import io
from ..registration import RegistrationResult
from ..transform import minimum, resample_identity
from . import pack, picture
from .pack import Bytes

PLANES = ("axial", "coronal", "sagittal")
MOST_LABELS = 255
_AXES = (("R", "L"), ("A", "P"), ("I", "S"))
_OBLIQUE = math.sin(math.radians(15))
# Which of x, y, z run across a plane and down it; downwards z is turned, for the head is up.
ACROSS_DOWN = ((0, 1), (0, 2), (1, 2))


class Axes:
    """How a grid's index axes lie in the patient, and how to turn volumes to the nearest anatomical
    ones.
    """

    def __init__(self, grid: np.ndarray):
        self.matrix = io.index_to_physical(grid)
        direction = self.matrix[:3, :3] / np.linalg.norm(self.matrix[:3, :3], axis=0)
        columns = max(  # the index axis that runs along x, y, z
            itertools.permutations(range(3)),
            key=lambda order: sum(abs(direction[r, c]) for r, c in enumerate(order)),
        )
        self.signs = [1.0 if direction[r, c] >= 0 else -1.0 for r, c in enumerate(columns)]
        self.columns = columns
        self._order = [2 - columns[r] for r in (2, 1, 0)]  # the array axes that run along z, y, x
        self._directions = direction[:, columns] * self.signs
        size = grid[:3].astype(int)
        turned = np.zeros((4, 4))  # from the turned index x, y, z to the grid's own
        turned[3, 3] = 1
        for r, c in enumerate(columns):
            turned[c, r] = self.signs[r]
            turned[c, 3] = 0 if self.signs[r] > 0 else size[c] - 1
        self.to_index = turned

    def turn(self, volume: np.ndarray) -> np.ndarray:
        """Return a view of the volume with axes z, y, x running to the head, back and left."""
        flips = (slice(None, None, -1 if self.signs[r] < 0 else 1) for r in (2, 1, 0))
        turned: np.ndarray = volume.transpose(self._order)[tuple(flips)]
        return turned

    def letters(self) -> list[tuple[str, str]]:
        """Return what lies at the low and the high end of x, y and z: one letter, or the two or
        three that an oblique axis runs between, the nearest first.
        """
        return [self._letters(self._directions[:, a]) for a in range(3)]

    @staticmethod
    def _letters(direction: np.ndarray) -> tuple[str, str]:
        order = [r for r in np.argsort(-abs(direction), kind="stable") if abs(direction[r]) > _OBLIQUE]
        ends = [_AXES[r] if direction[r] > 0 else _AXES[r][::-1] for r in order]
        return "".join(low for low, _ in ends), "".join(high for _, high in ends)

    def tilt(self) -> float:
        """Return by how many degrees an axis is off its anatomical one, at most."""
        worst = min(abs(self._directions[a, a]) for a in range(3))
        return math.degrees(math.acos(min(1.0, float(worst))))


def plane_letters(letters: Sequence[tuple[str, str]]) -> list[tuple[str, str, str, str]]:
    """Return the letters at the left, right, top and bottom of the three planes."""
    found = []
    for across, down in ACROSS_DOWN:
        top, bottom = letters[down] if down == 1 else letters[down][::-1]
        found.append((*letters[across], top, bottom))
    return found


@dataclasses.dataclass
class Labels:
    """Label maps as numbers from 1 that a byte holds, and what the numbers stand for."""

    values: list[int]
    fixed: Bytes
    before: Bytes
    after: Bytes
    merged: bool
    """There were more labels than a byte holds; the smallest ones share the last number."""


class Scene:
    """All volumes of a page on one grid, in bytes, turned, and cut to where there is something.

    Parameters
    ----------
    result : RegistrationResult
    fixed, moving : Image, optional
        What was registered; without, only the warped image is shown.
    fixed_labels, moving_labels : Image, optional
        Label maps; the fixed one on the fixed grid.
    """

    def __init__(
        self,
        result: RegistrationResult,
        fixed: io.Image | None,
        moving: io.Image | None,
        fixed_labels: io.Image | None = None,
        moving_labels: io.Image | None = None,
    ):
        self.result = result
        self.axes = Axes(result.grid)
        self.ranges: dict[str, tuple[float, float]] = {}
        self.windows: dict[str, tuple[int, int]] = {}
        volumes: dict[str, np.ndarray] = {"after": known(result.warped)}
        if moving is not None:
            source = known(moving.array)
            volumes["before"] = resample_identity(
                moving.like(source), result.grid, "linear", minimum(source)
            )
        moving_range = _range([v for k, v in volumes.items()])
        self.images: dict[str, Bytes] = {}
        for name, volume in volumes.items():
            self.images[name] = self._bytes(name, "moving", volume, moving_range)
        if fixed is not None:
            array = known(fixed.array)
            self.images["fixed"] = self._bytes("fixed", "fixed", array, _range([array]))
        self.labels = self._labels(fixed_labels, moving_labels)
        self.start = [0, 0, 0]  # z, y, x
        self.step = [1, 1, 1]
        self._crop()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (z, y, x) of the volumes."""
        return self.images["after"].shape

    @property
    def to_index(self) -> np.ndarray:
        """4x4 matrix from the page's index x, y, z to the fixed image's."""
        page = np.diag([*map(float, self.step[::-1]), 1.0])
        page[:3, 3] = [o + (s - 1) / 2 for o, s in zip(self.start[::-1], self.step[::-1])]
        matrix: np.ndarray = self.axes.to_index @ page
        return matrix

    @property
    def to_mm(self) -> np.ndarray:
        """4x4 matrix from the page's index to LPS mm."""
        matrix: np.ndarray = self.axes.matrix @ self.to_index
        return matrix

    @property
    def spacing(self) -> list[float]:
        """Along the page's x, y, z, mm."""
        return [float(v) for v in np.linalg.norm(self.to_mm[:3, :3], axis=0)]

    def _bytes(
        self, name: str, kind: str, volume: np.ndarray, limits: tuple[float, float, float, float]
    ) -> Bytes:
        low, high, dark, bright = limits
        self.ranges[kind] = (low, high)
        scale = 255 / (high - low)
        self.windows[kind] = (round((dark - low) * scale), round((bright - low) * scale))
        return pack.quantised(self.axes.turn(volume), low, high)

    def _labels(self, fixed: io.Image | None, moving: io.Image | None) -> Labels | None:
        if fixed is None or moving is None:
            return None
        values = sorted({int(v) for image in (fixed, moving) for v in _distinct(image.array)} - {0})
        merged = len(values) > MOST_LABELS
        kept = values[: MOST_LABELS - 1] if merged else values
        numbers = [image.like(_numbered(image.array, kept, merged)) for image in (fixed, moving)]
        before = resample_identity(numbers[1], self.result.grid, "nearest", 0.0).astype(np.uint8)
        after = self.result.apply(numbers[1], interpolation="nearest").array
        turned = (np.ascontiguousarray(self.axes.turn(v)) for v in (numbers[0].array, before, after))
        return Labels(kept, *turned, merged)

    def _crop(self) -> None:
        """Cut off what is black in every image and has no label."""
        volumes = list(self.images.values())
        volumes += [self.labels.fixed, self.labels.after] if self.labels else []
        box = []
        for axis in range(3):
            others = tuple({0, 1, 2} - {axis})
            filled = np.zeros(self.shape[axis], bool)
            for volume in volumes:
                filled |= volume.max(axis=others) > 2
            found = np.flatnonzero(filled)
            low, high = (int(found[0]), int(found[-1])) if found.size else (0, len(filled) - 1)
            box.append(slice(max(0, low - 2), min(len(filled), high + 3)))
        self.start = [b.start for b in box]
        self._each(lambda volume, _: np.ascontiguousarray(volume[tuple(box)]))

    def halve(self) -> int:
        """Halve the resolution along the finest axis, and return which of x, y, z it was."""
        axis = 2 - int(np.argmin(self.spacing))
        self._each(lambda volume, image: pack.halved(volume, [axis], image))
        self.step[axis] *= 2
        return 2 - axis

    def _each(self, change: Any) -> None:
        for name in self.images:
            self.images[name] = change(self.images[name], True)
        if self.labels:
            for name in ("fixed", "before", "after"):
                setattr(self.labels, name, change(getattr(self.labels, name), False))

    def nodes(self, steps: Sequence[int]) -> list[np.ndarray]:
        """Return, for z, y, x, the voxels of the turned fixed grid in the middle of every so many
        voxels of the page.
        """
        places = []
        for axis, step in enumerate(steps):
            middles = np.minimum(np.arange(0, self.shape[axis], step) + step // 2, self.shape[axis] - 1)
            places.append(self.start[axis] + middles * self.step[axis])
        return [np.minimum(p, n - 1) for p, n in zip(places, self._full())]

    def _full(self) -> tuple[int, ...]:
        return self.axes.turn(np.broadcast_to(np.uint8(0), self.result.shape)).shape

    def sampled(self, volume: np.ndarray, nodes: list[np.ndarray]) -> np.ndarray:
        """Return a volume of the fixed grid at :meth:`nodes`."""
        picked: np.ndarray = self.axes.turn(volume)[np.ix_(*nodes)]
        return picked

    def bend(self, nodes: list[np.ndarray]) -> NDArray[np.float32]:
        """Return the displacement behind the initial transform at nodes: mm along the page's x, y
        and z, shape (3, z, y, x).
        """
        result, axes = self.result, self.axes
        z, y, x = np.meshgrid(*nodes, indexing="ij")
        turned = np.stack([x, y, z]).reshape(3, -1).astype(np.float64)
        index = axes.to_index[:3, :3] @ turned + axes.to_index[:3, 3:]
        moved = index.copy()
        for c in range(3):  # the component of index axis c is that of array axis 2 - c
            moved[c] += self.sampled(result.displacement[2 - c], nodes).ravel()
        back = np.linalg.inv(result.initial) @ axes.matrix
        rest = back[:3, :3] @ moved + back[:3, 3:]
        rest -= axes.matrix[:3, :3] @ index + axes.matrix[:3, 3:]
        along = np.linalg.inv(self.to_mm[:3, :3] / np.array(self.spacing)) @ rest
        return along.reshape(3, *x.shape).astype(np.float32)

    def body(self) -> NDArray[np.bool_]:
        """Return where the fixed image shows something."""
        image = self.images.get("fixed", self.images["after"])
        low, high = self.windows["fixed" if "fixed" in self.images else "moving"]
        return image > low + max(1, (high - low) // 8)

    def middle(self) -> list[int]:
        """Return the voxel x, y, z in the middle of the labels, or of the body."""
        inside = self.labels.fixed > 0 if self.labels else self.body()
        return [_median(inside, axis) for axis in (2, 1, 0)]

    def slices(self, volume: np.ndarray, at: Sequence[int]) -> list[np.ndarray]:
        """Return the axial, coronal and sagittal slice through a voxel, as they are shown."""
        x, y, z = at
        return [volume[z], volume[::-1, y], volume[::-1, :, x]]

    def sizes_mm(self) -> list[tuple[float, float]]:
        """Return height and width of the planes."""
        size = [n * s for n, s in zip(self.shape[::-1], self.spacing)]
        return [(size[down], size[across]) for across, down in ACROSS_DOWN]

    def still(self, width: int, limit: int) -> bytes:
        """Return the three planes before and after, with the labels' outlines, as a PNG file of at
        most so many bytes.
        """
        at = self.middle()
        low, high = self.windows["moving"]
        rows, outlines = [], []
        for name in ("before", "after"):
            if name in self.images:
                shown = self.slices(self.images[name], at)
                rows.append([(s.astype(np.float32) - low) / max(1, high - low) for s in shown])
                if self.labels is not None and len(self.labels.values) <= 12:
                    moved = self.labels.before if name == "before" else self.labels.after
                    both = (self.slices(v, at) for v in (self.labels.fixed, moved))
                    outlines += [[(f, picture.FIXED), (m, picture.MOVING)] for f, m in zip(*both)]
                else:
                    outlines += [[]] * 3
        letters = plane_letters(self.axes.letters())
        while True:
            file = picture.png(picture.sheet(rows, outlines, self.sizes_mm(), letters, width))
            if len(file) <= limit or width < 200:
                return file
            width = max(160, int(width * min(0.9, (limit / len(file)) ** 0.5)))

    def thumbnail(self, side: int = 72) -> bytes:
        """Return the middle of the warped image as a small PNG file: the plane that shows most."""
        sizes = self.sizes_mm()
        plane = max(range(3), key=lambda p: min(sizes[p]))
        low, high = self.windows["moving"]
        shown = self.slices(self.images["after"], self.middle())[plane].astype(np.float32)
        height, width = sizes[plane]
        scale = side / max(height, width)
        shown = picture.stretched(shown, max(1, round(height * scale)), max(1, round(width * scale)))
        grey = np.clip((shown - low) / max(1, high - low), 0, 1) * (picture.GREYS - 1)
        return picture.png(grey.astype(np.uint8) & 0xFC)  # 16 shades, for there may be a thousand


def known(array: np.ndarray) -> np.ndarray:
    """Return the voxels with the least of them where there is no intensity: the engine's rule, NaN,
    infinite, or next to it.
    """
    if array.dtype.kind != "f":
        return array
    low, high = array.min(), array.max()  # NaN where one is
    if low >= -1e37 and high <= 1e37:
        return array
    with np.errstate(invalid="ignore"):
        sound = np.abs(array) <= 1e37
    return np.where(sound, array, array[sound].min() if sound.any() else 0)


def _range(volumes: list[np.ndarray]) -> tuple[float, float, float, float]:
    """Return from where to where intensities are kept, and what is shown as black and as white."""
    picked = np.concatenate([_thinned(v).ravel() for v in volumes]).astype(np.float32)
    low, dark, bright, high = (float(v) for v in np.percentile(picked, (0.02, 0.5, 99.5, 99.98)))
    if high <= low:
        high = low + 1
    return low, high, dark, bright if bright > dark else high


def _thinned(volume: np.ndarray) -> np.ndarray:
    step = max(1, round((volume.size / 60_000) ** (1 / 3)))
    steps = [min(step, max(1, n // 8)) for n in volume.shape]
    return volume[tuple(slice(s // 2, None, s) for s in steps)]


def _distinct(labels: np.ndarray) -> np.ndarray:
    """Return a label map's values."""
    if labels.dtype.kind in "ui" and labels.dtype.itemsize <= 2 and labels.min(initial=0) >= 0:
        return np.flatnonzero(np.bincount(labels.ravel(), minlength=1))
    return np.unique(labels)


def _numbered(labels: np.ndarray, values: list[int], merged: bool) -> Bytes:
    """Return the place of every voxel's label among the values, from 1; 0 for the background."""
    if labels.dtype.kind in "ui" and labels.dtype.itemsize <= 2 and labels.min(initial=0) >= 0:
        table = np.full(int(labels.max(initial=0)) + 1, MOST_LABELS if merged else 0, np.uint8)
        table[0] = 0
        for place, value in enumerate(values, 1):
            if value < len(table):
                table[value] = place
        return table[labels]
    known_values = np.array(values or [0], np.float64)
    place = np.minimum(np.searchsorted(known_values, labels), len(known_values) - 1)
    found = known_values[place] == labels
    other = np.where(labels != 0, MOST_LABELS if merged else 0, 0)
    return np.where(found & (labels != 0), place + 1, other).astype(np.uint8)


def _median(inside: np.ndarray, axis: int) -> int:
    """Return the index along an axis in the middle of the voxels that are true; of all where none
    is.
    """
    counts = np.cumsum(np.count_nonzero(inside, axis=tuple({0, 1, 2} - {axis})))
    return int(np.searchsorted(counts, (counts[-1] + 1) // 2)) if counts[-1] else len(counts) // 2
