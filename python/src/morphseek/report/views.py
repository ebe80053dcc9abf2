"""Views of a page, turned to the patient: volumes whose axes run to the left, back and head."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import images
from .._grid import Grid, mapped
from .._percentiles import distinct, percentiles
from ..scoring.labels import numbered
from ..transforms.labels import minimum
from ..transforms.resample import resample_identity
from . import pack, picture
from .axes import Axes, plane_letters, plane_sizes, planes
from .inputs import Registration
from .pack import Bytes

MOST_LABELS = 255
LARGE = 1_500_000  # voxels above which "before" and the maps come at half the resolution
_MOST_OUTLINED = 12  # labels whose outlines a still picture shows


@dataclasses.dataclass
class Volume:
    """A volume of the page, and how many of the page's voxels one of its own covers."""

    array: Bytes
    halves: list[int]
    """1 or 2, along z, y and x."""
    image: bool
    """Intensities; otherwise labels."""


class Scene:
    """All volumes of a page on one grid, in bytes, turned, and cut to where there is something.
    Without ``fixed`` and ``moving``, what was registered, it shows the warped image alone. The
    fixed labels lie on the fixed grid, and so do the warped ones, which are made where they are not
    given.
    """

    def __init__(
        self, result: Registration, fixed: images.ImageLike | None,
        moving: images.ImageLike | None, fixed_labels: images.ImageLike | None = None,
        moving_labels: images.ImageLike | None = None,
        warped_labels: images.ImageLike | None = None,
    ):  # fmt: skip
        here, there = result.transform.grid, result.transform.moving_grid
        self.result = result
        self.fixed, self.moving = _read(fixed, here, "fixed"), _read(moving, there, "moving")
        self.axes = Axes(result.transform.grid)
        self.full = self.axes.turn(np.broadcast_to(np.uint8(0), result.transform.grid.shape)).shape
        self.large = result.warped.size > LARGE
        self.ranges: dict[str, tuple[float, float]] = {}
        self.windows: dict[str, tuple[int, int]] = {}
        self.volumes: dict[str, Volume] = {}
        self.values: dict[int, int] = {}
        """The label maps' values, by the page's labels, which count from 1."""
        self.merged = False
        """There were more labels than a byte holds; those of the largest numbers share the last."""
        self._images()
        one = _read(fixed_labels, here, "fixed labels")
        other = _read(moving_labels, there, "moving labels")
        if one is not None and other is not None:
            self._labels(one, other, _read(warped_labels, here, "warped labels"))
        self.start = [0, 0, 0]  # z, y, x
        self.step = [1, 1, 1]
        self._middle: tuple[tuple[int, ...], list[int]] | None = None
        self._crop()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (z, y, x) of the volumes."""
        return self.volumes["after"].array.shape

    @property
    def to_index(self) -> np.ndarray:
        """4x4 matrix from the page's index x, y, z to the fixed image's."""
        page = np.diag([*map(float, self.step[::-1]), 1.0])
        page[:3, 3] = [o + (s - 1) / 2 for o, s in zip(self.start[::-1], self.step[::-1])]
        return self.axes.to_index @ page

    @property
    def to_mm(self) -> np.ndarray:
        """4x4 matrix from the page's index to LPS mm."""
        return self.axes.matrix @ self.to_index

    @property
    def spacing(self) -> list[float]:
        """Along the page's x, y, z, mm."""
        return [float(v) for v in np.linalg.norm(self.to_mm[:3, :3], axis=0)]

    def _images(self) -> None:
        fixed, moving = self.fixed, self.moving
        warped = known(self.result.warped)
        shown = {"after": warped}
        if moving is not None:
            source = moving.like(known(moving.array))
            halves, grid = self._coarse()
            before = resample_identity(source, grid, "linear", minimum(source.array))
            shown["before"] = before
        self._window("moving", list(shown.values()))
        if fixed is not None:
            self._window("fixed", [known(fixed.array)])
            self._add_image("fixed", self.axes.turn(known(fixed.array)), [1, 1, 1])
        self._add_image("after", self.axes.turn(warped), [1, 1, 1])
        if moving is not None:
            self._add_image("before", before, halves)

    def _window(self, kind: str, volumes: list[np.ndarray]) -> None:
        """Choose from where to where intensities are kept, and what is black and white at first."""
        picked = np.concatenate([_thinned(v).ravel() for v in volumes]).astype(np.float32)
        low, dark, bright, high = percentiles(picked, (0.02, 0.5, 99.5, 99.98))
        if high <= low:
            high = low + 1
        scale = 255 / (high - low)
        self.ranges[kind] = low, high
        white = round((bright - low) * scale) if bright > dark else 255
        self.windows[kind] = round((dark - low) * scale), white

    def _add_image(self, name: str, turned: np.ndarray, halves: list[int]) -> None:
        low, high = self.ranges["fixed" if name == "fixed" else "moving"]
        self.volumes[name] = Volume(pack.quantised(turned, low, high), halves, True)

    def _coarse(self) -> tuple[list[int], Grid]:
        """Return the turned grid that "before" has: of a large image at half the resolution."""
        halves = [2 if self.large and n >= 32 else 1 for n in self.full]
        steps = np.array(halves[::-1])
        whole = Grid.from_matrix(self.full[::-1], self.axes.matrix @ self.axes.to_index)
        return halves, Grid(
            tuple(-(-np.array(whole.size) // steps)),
            tuple(steps * whole.spacing),
            tuple(whole.to_physical((steps - 1) / 2)),
            whole.direction,
        )

    def _labels(
        self, fixed: images.Image, moving: images.Image, warped: images.Image | None
    ) -> None:
        values = sorted({int(v) for i in (fixed, moving) for v in distinct(i.array)} - {0})
        self.merged = len(values) > MOST_LABELS
        self.values = dict(enumerate(values[: MOST_LABELS - self.merged], 1))
        halves, grid = self._coarse()
        numbers = moving.like(self._numbered(moving.array))
        if warped is None:
            warped = self.result.transform.apply(moving, interpolation="nearest")
        before = resample_identity(numbers, grid, "nearest", 0.0).astype(np.uint8)
        for name, array in (("fixed", fixed.array), ("after", warped.array)):
            turned = self.axes.turn(self._numbered(array))
            self.volumes[f"labels-{name}"] = Volume(turned, [1, 1, 1], False)
        self.volumes["labels-before"] = Volume(before, halves, False)

    def _numbered(self, labels: np.ndarray) -> Bytes:
        """Return the place of every voxel's label among the values, from 1; 0 for background."""
        numbers = numbered(labels, [*self.values.values()])
        if self.merged:
            numbers[(numbers == 0) & (labels != 0)] = MOST_LABELS
        return numbers.astype(np.uint8)

    def _crop(self) -> None:
        """Cut off what is black in every image and has no label."""
        filled = [np.zeros(n + 1, bool) for n in self.full]
        for volume in self.volumes.values():
            rows = volume.array.max(axis=2)
            profiles = rows.max(axis=1), rows.max(axis=0), volume.array.max(axis=0).max(axis=0)
            for axis, profile in enumerate(profiles):
                there = np.repeat(profile > (2 if volume.image else 0), volume.halves[axis])
                filled[axis][: len(there)] |= there[: len(filled[axis])]
        box = []
        for flags, size in zip(filled, self.full):
            there = np.flatnonzero(flags[:size])
            low, high = (int(there[0]), int(there[-1])) if there.size else (0, size - 1)
            box.append((max(0, low - 2) // 2 * 2, min(size, high + 3)))
        self.start = [low for low, _ in box]
        for volume in self.volumes.values():
            cut = (slice(low // h, -(-high // h)) for (low, high), h in zip(box, volume.halves))
            volume.array = np.ascontiguousarray(volume.array[tuple(cut)])

    def halve(self) -> int:
        """Halve the resolution along the finest axis, and return which of x, y, z it was."""
        axis = 2 - int(np.argmin(self.spacing))
        for volume in self.volumes.values():
            if volume.halves[axis] == 2:
                volume.halves[axis] = 1  # it has that resolution already
            else:
                volume.array = pack.halved(volume.array, axis, volume.image)
        self.step[axis] *= 2
        return 2 - axis

    def nodes(self, steps: Sequence[int]) -> list[np.ndarray]:
        """Return, for z, y, x, the fixed grid's voxels in the middle of so many of the page's."""
        places = []
        for axis, step in enumerate(steps):
            middles = np.minimum(
                np.arange(0, self.shape[axis], step) + step // 2, self.shape[axis] - 1
            )
            places.append(self.start[axis] + middles * self.step[axis])
        return [np.minimum(p, n - 1) for p, n in zip(places, self.full)]

    def sampled(self, volume: np.ndarray, nodes: list[np.ndarray]) -> np.ndarray:
        """Return a volume of the fixed grid at :meth:`nodes`."""
        return self.axes.turn(volume)[np.ix_(*nodes)]

    def cropped(self, volume: np.ndarray) -> np.ndarray:
        """Return a volume of the fixed grid, turned, where the page shows it."""
        box = (slice(o, o + n * s) for o, n, s in zip(self.start, self.shape, self.step))
        return np.ascontiguousarray(self.axes.turn(volume)[tuple(box)])

    def bend(self, nodes: list[np.ndarray]) -> NDArray[np.float32]:
        """Return the displacement before the initial transform: mm along x, y, z, (3, z, y, x)."""
        field, to_mm = self.result.transform, self.axes.matrix
        turned = np.stack(np.meshgrid(*nodes, indexing="ij")[::-1], axis=-1)  # x, y, z
        index = mapped(self.axes.to_index, turned)
        # component i is along array axis i
        steps = [self.sampled(voxels, nodes) for voxels in field.displacement()[::-1]]
        moved = mapped(np.linalg.inv(field.initial) @ to_mm, index + np.stack(steps, axis=-1))
        along = np.linalg.inv(self.to_mm[:3, :3] / np.array(self.spacing))
        rest = (moved - mapped(to_mm, index)) @ along.T
        return np.moveaxis(rest, -1, 0).astype(np.float32, order="C")

    def body(self) -> NDArray[np.bool_]:
        """Return where the fixed image shows something."""
        name = "fixed" if "fixed" in self.volumes else "after"
        low, high = self.windows["fixed" if name == "fixed" else "moving"]
        return self.volumes[name].array > low + max(1, (high - low) // 8)

    def middle(self) -> list[int]:
        """Return the voxel x, y, z in the middle of the labels, or of the body."""
        if self._middle is not None and self._middle[0] == self.shape:
            return self._middle[1]
        inside = self.volumes["labels-fixed"].array > 0 if self.values else self.body()
        middle = [_median(inside, axis) for axis in (2, 1, 0)]
        self._middle = self.shape, middle
        return middle

    def slices(self, name: str, at: Sequence[int]) -> list[np.ndarray]:
        """Return the axial, coronal and sagittal slice through a voxel, as they are shown."""
        array, halves = self.volumes[name].array, self.volumes[name].halves
        return planes(array, [p // h for p, h in zip(at, halves[::-1])])

    def sizes_mm(self) -> list[tuple[float, float]]:
        """Return height and width of the planes."""
        return plane_sizes([n * s for n, s in zip(self.shape[::-1], self.spacing)])

    @property
    def is_outlined(self) -> bool:
        """Whether a still picture shows the outlines of the labels."""
        return 0 < len(self.values) <= _MOST_OUTLINED

    def still(self, width: int, limit: int) -> bytes:
        """Return three planes before and after, of a slice its own, as a PNG below a limit."""
        at = self.middle()
        one = [k for k, n in enumerate(self.shape) if n == 1]  # axial runs through z, and so on
        kept = one if len(one) == 1 else [0, 1, 2]

        def chosen(three: Sequence[Any]) -> list[Any]:
            return [three[k] for k in kept]

        low, high = self.windows["moving"]
        rows, outlines = [], []
        for name in ("before", "after"):
            if name not in self.volumes:
                continue
            grey = (s.astype(np.float32) for s in chosen(self.slices(name, at)))
            rows.append([(s - low) / max(1, high - low) for s in grey])
            if self.is_outlined:
                maps = (self.slices(f"labels-{which}", at) for which in ("fixed", name))
                pairs = zip(*(chosen(m) for m in maps))
                outlines += [[(f, picture.FIXED), (m, picture.MOVING)] for f, m in pairs]
            else:
                outlines += [[] for _ in kept]
        letters, sizes = chosen(plane_letters(self.axes.letters())), chosen(self.sizes_mm())
        while True:
            file = picture.png(picture.sheet(rows, outlines, sizes, letters, width))
            if len(file) <= limit or width < 200:
                return file
            width = max(160, int(width * min(0.9, (limit / len(file)) ** 0.5)))

    def thumbnail(self, side: int = 72) -> bytes:
        """Return the middle of the warped image as a small PNG file: the plane that shows most."""
        sizes = self.sizes_mm()
        plane = max(range(3), key=lambda p: min(sizes[p]))
        low, high = self.windows["moving"]
        shown = self.slices("after", self.middle())[plane].astype(np.float32)
        height, width = sizes[plane]
        scale = side / max(height, width)
        shown = picture.stretched(
            shown, max(1, round(height * scale)), max(1, round(width * scale))
        )
        grey = np.clip((shown - low) / max(1, high - low), 0, 1) * (picture.GREYS - 1)
        # 16 shades: there may be a thousand on a page
        return picture.png(grey.astype(np.uint8) & np.uint8(0xFC))


def _read(source: images.ImageLike | None, grid: Grid, name: str) -> images.Image | None:
    return None if source is None else images.read_on(source, grid, name)


def known(array: np.ndarray) -> np.ndarray:
    """Return the voxels, with the least of them where the engine sees no intensity."""
    if array.dtype.kind != "f":
        return array
    low, high = array.min(), array.max()  # NaN where one is
    if low >= -1e37 and high <= 1e37:
        return array
    with np.errstate(invalid="ignore"):
        sound = np.abs(array) <= 1e37
    return np.where(sound, array, array[sound].min() if sound.any() else 0)


def _thinned(volume: np.ndarray) -> np.ndarray:
    step = max(1, round((volume.size / 60_000) ** (1 / 3)))
    steps = [min(step, max(1, n // 8)) for n in volume.shape]
    return volume[tuple(slice(s // 2, None, s) for s in steps)]


def _median(inside: np.ndarray, axis: int) -> int:
    """Return the middle index along an axis of the voxels that are true; of all where none is."""
    thin = [slice(None) if a == axis else slice(None, None, 2) for a in range(3)]
    inside = inside[tuple(thin)] if inside.size > LARGE else inside
    counts = np.cumsum(np.count_nonzero(inside, axis=tuple({0, 1, 2} - {axis})))
    return int(np.searchsorted(counts, (counts[-1] + 1) // 2)) if counts[-1] else len(counts) // 2
