"""Pairs of images whose true transform is known, so that the error at points can be measured, not
only the labels' overlap.

There are three sources of truth: made-up bodies, whose anatomy is a formula (:func:`torso`,
:func:`synthetic`); one image under a known map (:func:`moved`); one image twice with different
noise (:func:`aligned_torso`, or :func:`moved` by a :class:`Motion` of 0). A disturbance
(:data:`DISTURBANCES`) may then change the images, but not the truth; points that it removes do not
count, and points turn with a header. Images are SimpleITK's, points are (n, 3) LPS mm from fixed
to moving space, and a seed always gives the same pair.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from scipy import ndimage
from scipy.spatial.transform import Rotation

import morphseek
from morphseek import phantom

POINTS = 1500  # the most points of a pair made from a real image
FOREGROUND = 0.15  # in an image scaled to 0..1, larger values count as tissue


_IMAGES = ("fixed", "moving", "fixed_labels", "moving_labels")
_POINTS = ("fixed_points", "moving_points")


@dataclasses.dataclass(frozen=True)
class Pair:
    """One pair to register, with the data that score the result.

    `name` is unique within its kind; `two_modalities` is what a user knows and tells a tool that
    needs it. The points, (n, 3) LPS mm, are those of the fixed image and where they truly lie in
    the moving one; label maps lie in the spaces of the two images, 0 background.
    """

    name: str
    fixed: sitk.Image
    moving: sitk.Image
    two_modalities: bool
    fixed_points: np.ndarray | None = None
    moving_points: np.ndarray | None = None
    fixed_labels: sitk.Image | None = None
    moving_labels: sitk.Image | None = None

    def error(self, found: morphseek.Transform | morphseek.Registration) -> float:
        """Return the mean distance of the moving points from where the fixed ones are carried."""
        carried = found.transform_points(self.fixed_points)
        return float(np.linalg.norm(carried - self.moving_points, axis=1).mean())

    def without_labels(self) -> Pair:
        return dataclasses.replace(self, fixed_labels=None, moving_labels=None)

    def save(self, folder: Path) -> None:
        """Write the pair to a new folder, which :meth:`load` reads."""
        folder.mkdir(parents=True)
        for side in _IMAGES:
            if getattr(self, side) is not None:
                sitk.WriteImage(getattr(self, side), str(folder / f"{side}.mha"))
        np.savez(
            folder / "points.npz",
            **{side: getattr(self, side) for side in _POINTS if getattr(self, side) is not None},
        )
        (folder / "pair.json").write_text(
            json.dumps({"name": self.name, "two_modalities": self.two_modalities})
        )

    @classmethod
    def load(cls, folder: Path) -> Pair:
        images = {
            side: sitk.ReadImage(str(folder / f"{side}.mha"))
            for side in _IMAGES
            if (folder / f"{side}.mha").exists()
        }
        with np.load(folder / "points.npz") as points:
            return cls(**json.loads((folder / "pair.json").read_text()), **images, **points)

    def at(self, keep: np.ndarray) -> Pair:
        """Return the pair with those of its points where `keep`, (n,) bool, is true."""
        return dataclasses.replace(
            self, fixed_points=self.fixed_points[keep], moving_points=self.moving_points[keep]
        )


@dataclasses.dataclass(frozen=True)
class Motion:
    """Size of the map of :func:`moved`: smooth displacement of two scales, as (root mean square,
    sigma) in mm; the largest rotation about each axis in radians and shift along each in mm; and
    the noise of both images as a share of their range.
    """

    coarse: tuple[float, float]
    fine: tuple[float, float]
    turn: float
    shift: float
    noise: float


def array_of(image: sitk.Image) -> np.ndarray:
    return sitk.GetArrayFromImage(image)


def image_of(array: np.ndarray, like: sitk.Image) -> sitk.Image:
    """Return float32 voxels (z, y, x) on another image's grid."""
    image = sitk.GetImageFromArray(array.astype(np.float32))
    image.CopyInformation(like)
    return image


def scaled(image: sitk.Image) -> sitk.Image:
    """Return the image with its 0.5th and 99.5th percentiles at 0 and 1, clipped to these."""
    array = array_of(image).astype(np.float32)
    low, high = np.percentile(array, [0.5, 99.5])
    return image_of(np.clip((array - low) / (high - low), 0, 1), image)


def voxel_of(image: sitk.Image) -> float:
    """Return the edge of a cube with a voxel's volume, mm."""
    return float(np.prod(image.GetSpacing()) ** (1 / 3))


def middle(image: sitk.Image) -> tuple[float, ...]:
    return image.TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in image.GetSize()])


def indices(image: sitk.Image, points: np.ndarray) -> np.ndarray:
    """Return the continuous indices, x first, of points in mm."""
    matrix = np.array(image.GetDirection()).reshape(3, 3) * image.GetSpacing()
    return (points - image.GetOrigin()) @ np.linalg.inv(matrix).T


def inside(image: sitk.Image, points: np.ndarray) -> np.ndarray:
    """Return which points lie between the image's outermost voxel centres."""
    index = indices(image, points)
    return ((index >= -1e-6) & (index <= np.array(image.GetSize()) - 1 + 1e-6)).all(axis=1)


def centres(image: sitk.Image) -> np.ndarray:
    """Return every voxel's centre, (z, y, x, 3) mm."""
    matrix = np.array(image.GetDirection()).reshape(3, 3) * image.GetSpacing()
    return (
        np.moveaxis(np.indices(image.GetSize()[::-1])[::-1], 0, -1) @ matrix.T + image.GetOrigin()
    )


# ----------------------------------------------------------------------------------- Made-up torsos


def torso(size: int, seed: int, contrasts: tuple[str, str]) -> Pair:
    """Return :func:`morphseek.phantom.make_pair`'s images and labels, with points in the organs
    and inside the moving image.
    """
    made = phantom.make_pair(size, seed, contrasts)
    points = made.target_points(_step(size))
    answers = made.truth(points)
    fixed, moving, *labels = (getattr(made, side).to_sitk() for side in _IMAGES)
    two = contrasts[0] != contrasts[1]
    pair = Pair(f"seed {seed}", fixed, moving, two, points, answers, *labels)
    return pair.at(inside(moving, answers))


def _step(size: int) -> int:
    """Return the step between points along an axis: four voxels of the demonstration's 96."""
    return max(1, round(size / 24))


def aligned_torso(size: int, seed: int, contrasts: tuple[str, str]) -> Pair:
    """Return two images of the same torso in the same place, which differ by their noise and
    contrast: the truth is the identity.
    """
    one, other = (
        phantom.make_pair(size, s, (contrast, contrast))
        for s, contrast in zip((seed, seed + 500), contrasts, strict=True)
    )
    points = one.target_points(_step(size))
    fixed, moving, labels = (i.to_sitk() for i in (one.fixed, other.fixed, one.fixed_labels))
    two = contrasts[0] != contrasts[1]
    return Pair(f"seed {seed}", fixed, moving, two, points, points, labels, labels)


def synthetic(body: str, size: int, seed: int, two: bool, regrid: bool) -> Pair:
    """Return two made-up subjects of one of morphseek.training's bodies ("head", "limb", "medley"),
    `size` voxels of 2 mm along each axis, in `two` contrasts or one; with `regrid` the moving image
    lies on :func:`other_grid`. It needs PyTorch.
    """
    from morphseek.training.config import Synthetic
    from morphseek.training.synthetic import SyntheticSource

    settings = Synthetic(
        bodies=[body],
        coverage=[1.0, 1.2],
        same_contrast=0.0 if two else 1.0,
        noise=0.05,
        crop=0.0,
        slices=1.0,
    )
    sample = SyntheticSource(settings, (size,) * 3, 8, seed).pair(0).sample
    rng = np.random.default_rng(seed)
    grid = sitk.Image([size] * 3, sitk.sitkFloat32)
    grid.SetSpacing((2.0,) * 3)
    fixed, moving = (
        image_of(1000 * volume[0, 0].numpy(), grid) for volume in (sample.fixed, sample.moving)
    )
    labels = [
        sitk.Cast(image_of(volume[0, 0].numpy(), grid), sitk.sitkUInt8)
        for volume in (sample.fixed_map, sample.moving_map)
    ]
    index = np.argwhere(sample.truth_mask[0, 0].numpy() > 0)
    index = index[rng.permutation(len(index))[:POINTS]]
    shift = sample.truth[0].numpy()[:, index[:, 0], index[:, 1], index[:, 2]].T
    points, answers = (2.0 * at[:, ::-1].astype(float) for at in (index, index + shift))
    there = other_grid(moving, rng) if regrid else moving
    pair = Pair(f"seed {seed}", fixed, there, two, points, answers, *labels)
    return pair.at(inside(there, answers))


# ----------------------------------------------------- A thorax after an inversion of magnetisation

INVERSION_TIMES = (180.0, 260.0, 1000.0, 2800.0)
"""ms, as of a T1 mapping; between the second and the third most tissue changes its sign."""

_THORAX = (  # centre x, y, half axes x, y (of half the image), turn, T1 ms, proton density
    (0, 0, 0.92, 0.66, 0, 300, 1.0),  # fat
    (0, 0, 0.84, 0.58, 0, 1000, 0.8),  # muscle
    (-0.45, 0, 0.34, 0.44, 0, 1200, 0.08),  # lungs
    (0.45, 0, 0.34, 0.44, 0, 1200, 0.08),
    (0, 0.38, 0.12, 0.12, 0, 500, 0.7),  # spine and its canal
    (0, 0.38, 0.04, 0.04, 0, 3000, 1.0),
    (0.14, 0.2, 0.06, 0.06, 0, 1550, 0.95),  # aorta
    (-0.5, 0.25, 0.26, 0.22, 0, 600, 0.8),  # liver
    (0.1, -0.08, 0.34, 0.27, 0.5, 1000, 0.75),  # heart: right and left, wall and blood
    (0, -0.14, 0.2, 0.14, 0.6, 1550, 0.95),
    (0.2, -0.04, 0.2, 0.2, 0, 980, 0.8),
    (0.2, -0.04, 0.12, 0.12, 0, 1560, 0.95),
)


@dataclasses.dataclass(frozen=True)
class Frame:
    """One frame of a series, and points (n, 3) LPS mm: where they are in the first frame, which
    does not move, and in this one.
    """

    image: sitk.Image
    first: np.ndarray
    here: np.ndarray


def inversion_recovery(
    size: int, seed: int, times: tuple[float, ...] = INVERSION_TIMES, noise: float = 0.06
) -> list[Frame]:
    """Return a thorax of eight slices at several times after an inversion: magnitudes of
    density (1 - 2 exp(-t / T1)), so that tissues change their sign one after another.

    Each frame after the first moves by up to a voxel and bends by less than two, within the slices.
    Noise is complex and as smooth as of scanners that interpolate: over a voxel.
    """
    rng = np.random.default_rng(seed)
    grid = sitk.Image(size, size, 8, sitk.sitkFloat32)
    grid.SetSpacing((360 / size, 360 / size, 8.0))
    voxel, shape = grid.GetSpacing()[0], (8, size, size)
    y, x = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size), indexing="ij")
    t1, density = np.full(shape, 300.0), np.zeros(shape)
    for cx, cy, a, b, turn, time, share in _THORAX:
        u = np.cos(turn) * (x - cx) + np.sin(turn) * (y - cy)
        v = np.cos(turn) * (y - cy) - np.sin(turn) * (x - cx)
        for k in range(8):  # narrower by a tenth from slice to slice
            within = (u / a) ** 2 + (v / b) ** 2 < (1.1 - 0.2 * k / 7) ** 2
            t1[k][within], density[k][within] = time, share
    t1 *= 1 + 0.05 * _unit(smooth(grid, 1, 2 * voxel, rng, 1)[..., 0])
    density *= (1.2 - 0.5 * y) * (1 + 0.04 * _unit(smooth(grid, 1, 1.5 * voxel, rng, 1)[..., 0]))
    tissue = density > 0.3
    tissue[:, : size // 20] = tissue[:, -size // 20 :] = False
    at = np.argwhere(tissue)[:, ::-1]
    here = at[rng.permutation(len(at))[:POINTS]]
    frames = []
    for number, time in enumerate(times):
        u = smooth(grid, 1, 18 * voxel, rng)
        u *= 1.8 * rng.uniform(0.6, 1) * voxel / np.abs(u[..., :2]).max()
        u = (u + rng.uniform(-voxel, voxel, 3)) * [1, 1, 0] * (number > 0)
        field = sitk.GetImageFromArray(u.astype(np.float64), isVector=True)
        field.CopyInformation(grid)
        signal = image_of(density * (1 - 2 * np.exp(-time / t1)), grid)
        to = sitk.DisplacementFieldTransform(field)
        seen = array_of(sitk.Resample(signal, signal, to, sitk.sitkBSpline, 0.0))
        whites = [image_of(white, grid) for white in rng.standard_normal((2, *shape))]
        real, imaginary = (
            noise
            * _unit(array_of(sitk.DiscreteGaussian(white, [1, 1, 0.01], useImageSpacing=False)))
            for white in whites
        )
        shift = u[here[:, 2], here[:, 1], here[:, 0]]
        points = here * grid.GetSpacing()
        image = image_of(1000 * np.hypot(seen + real, imaginary), grid)
        frames.append(Frame(image, points + shift, points))
    return frames


def sections(size: int, seed: int) -> Pair:
    """Return two neighbouring sections of one tissue in two stains, size x size pixels of .01 mm.

    Both show the tissue's outline, airspaces, walls and vessels; each has cells of its own. A stain
    gives every part a grey of its own, and the glass is the brightest. The moving section is turned
    by up to 20 degrees, shifted and bent smoothly.
    """
    rng = np.random.default_rng(seed)
    grid = sitk.Image(size, size, 1, sitk.sitkFloat32)
    grid.SetSpacing((0.01, 0.01, 0.01))

    def plane(sigma: float) -> np.ndarray:
        return _unit(ndimage.gaussian_filter(rng.standard_normal((size, size)), sigma, mode="wrap"))

    y, x = np.meshgrid(*2 * [np.linspace(-1, 1, size)], indexing="ij")
    inside = np.hypot(x / 0.8, y / 0.65) + 0.12 * plane(size / 10) < 1
    spaces, thick = plane(size / 60), plane(size / 15)
    parts = [
        inside & (spaces <= 0.4),
        inside & (spaces > 0.1) & (spaces <= 0.4),  # the walls of the airspaces
        inside & (thick > 1.4),
    ]
    crowd = 0.3 + 1.2 * ndimage.gaussian_filter(parts[1].astype(float), 2)

    def stained(parts: list[np.ndarray], crowd: np.ndarray, greys: np.ndarray) -> sitk.Image:
        image = np.full((size, size), 240.0)
        for part, grey in zip(parts, greys[:3], strict=True):
            image += (grey - image) * np.clip(part, 0, 1)
        cells = (plane(1.5) > 2 - crowd) & (image < 230)
        image = np.where(cells, greys[3] * image, image) + 3 * rng.standard_normal(image.shape)
        return image_of(np.clip(image, 0, 255)[None], grid)

    turn, shift = np.radians(rng.uniform(-20, 20)), rng.uniform(-0.05, 0.05, 2) * size
    bend = [0.012 * size * plane(size / 8) + 0.003 * size * plane(size / 25) for _ in range(2)]
    row, column = np.meshgrid(*2 * [np.arange(size) - (size - 1) / 2], indexing="ij")
    there = (
        np.stack(  # where each pixel of the moving section lies in the fixed one: row, column
            [
                np.cos(turn) * row + np.sin(turn) * column + shift[0] + bend[0],
                np.cos(turn) * column - np.sin(turn) * row + shift[1] + bend[1],
            ]
        )
        + (size - 1) / 2
    )
    seen = [
        ndimage.map_coordinates(np.asarray(part, float), there, order=1) for part in (*parts, crowd)
    ]

    def stain() -> np.ndarray:
        """Return greys of the three parts, and what cells multiply them by."""
        return rng.uniform(0.45, 0.75, 4) * [300, 300, 300, 1]

    fixed = stained([part.astype(float) for part in parts], crowd, stain())
    moving = stained(seen[:3], seen[3], stain())
    at = np.argwhere(seen[0] > 0.5)
    at = at[rng.permutation(len(at))[:POINTS]]
    points = [
        np.c_[place[:, 1], place[:, 0], 0 * place[:, 0]] * grid.GetSpacing()
        for place in (there[:, at[:, 0], at[:, 1]].T, at)
    ]
    return Pair(f"seed {seed}", fixed, moving, True, *points)


def _unit(array: np.ndarray) -> np.ndarray:
    return array / array.std()


# --------------------------------------------------------------- One image seen through a known map


def smooth(
    grid: sitk.Image, rms: float, sigma: float, rng: np.random.Generator, parts: int = 3
) -> np.ndarray:
    """Return noise (z, y, x, parts) in mm, smooth over sigma mm, with that root mean square.

    It is made on a larger grid, because smoothing makes noise larger at the border.
    """
    pad = [int(np.ceil(3 * sigma / s)) for s in grid.GetSpacing()][::-1]
    shape = grid.GetSize()[::-1]
    planes = []
    for _ in range(parts):
        white = sitk.GetImageFromArray(
            rng.standard_normal([n + 2 * p for n, p in zip(shape, pad, strict=True)]).astype(
                np.float32
            )
        )
        white.SetSpacing(grid.GetSpacing())
        wide = array_of(sitk.SmoothingRecursiveGaussian(white, [sigma] * 3))
        planes.append(wide[tuple(slice(p, p + n) for n, p in zip(shape, pad, strict=True))])
    u = np.stack(planes, -1)
    u -= u.mean((0, 1, 2))
    return u * (rms / np.sqrt((u**2).sum(-1).mean()))


def smallest_determinant(u: np.ndarray, spacing: tuple[float, ...]) -> float:
    """Return the least det(I + grad u) of u, (z, y, x, 3) in mm, x first."""
    gradient = [np.stack(np.gradient(u[..., k], *spacing[::-1]), -1)[..., ::-1] for k in range(3)]
    return float(np.linalg.det(np.stack(gradient, -2) + np.eye(3)).min())


def map_of(image: sitk.Image, motion: Motion, rng: np.random.Generator) -> sitk.Transform:
    """Return a map without folds: a smooth displacement, then a rotation about the image's centre
    and a shift.
    """
    rigid = sitk.Euler3DTransform()
    rigid.SetCenter(middle(image))
    rigid.SetRotation(*map(float, rng.uniform(-motion.turn, motion.turn, 3)))
    rigid.SetTranslation(list(map(float, rng.uniform(-motion.shift, motion.shift, 3))))
    u = smooth(image, *motion.coarse, rng) + smooth(image, *motion.fine, rng)
    while smallest_determinant(u, image.GetSpacing()) < 0.2:
        u *= 0.9
    field = sitk.GetImageFromArray(u.astype(np.float64), isVector=True)
    field.CopyInformation(image)
    # the last transform acts first
    return sitk.CompositeTransform([rigid, sitk.DisplacementFieldTransform(field)])


def other_contrast(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Map values of 0..1 by a random curve with five knots that is not monotone; values near 0
    stay.
    """
    while True:
        knots = np.concatenate([[0], rng.uniform(0.15, 1, 4)])
        rises = np.diff(knots)
        if (rises[1:] > 0.15).any() and (rises[1:] < -0.15).any():
            return np.interp(array, np.linspace(0, 1, 5), knots)


def other_grid(image: sitk.Image, rng: np.random.Generator) -> sitk.Image:
    """Return the image on another grid, turned by a few degrees, 7 % finer and shifted, so that the
    pair's grids tell nothing.
    """
    turn = sitk.Euler3DTransform()
    turn.SetRotation(*map(float, rng.uniform(-0.12, 0.12, 3)))
    direction = np.array(turn.GetMatrix()).reshape(3, 3) @ np.array(image.GetDirection()).reshape(
        3, 3
    )
    spacing, size = (
        0.93 * np.array(image.GetSpacing()),
        np.ceil(1.06 * np.array(image.GetSize()) / 0.93).astype(int),
    )
    centre = np.array(middle(image)) + rng.uniform(-0.5, 0.5, 3) * spacing
    origin = centre - direction @ (spacing * (size - 1) / 2)
    return sitk.Resample(
        image,
        size.tolist(),
        sitk.Transform(),
        sitk.sitkBSpline,
        origin.tolist(),
        spacing.tolist(),
        direction.ravel().tolist(),
        0.0,
    )


def moved(
    image: sitk.Image,
    motion: Motion,
    two: bool,
    regrid: bool,
    rng: np.random.Generator,
    name: str,
    labels: sitk.Image | None = None,
) -> Pair:
    """Return the image as the moving one and, under a random map, as the fixed one, each with its
    own noise.

    Parameters
    ----------
    image, labels : SimpleITK.Image
        The image and its labels.
    motion : Motion
        Size of the map. With a coarse scale of 0 mm the image stays: the truth is the identity.
    two : bool
        The moving image's intensities go through :func:`other_contrast`.
    regrid : bool
        The moving image lies on :func:`other_grid`.
    """
    base = scaled(image)
    array = array_of(base)
    known = map_of(base, motion, rng) if motion.coarse[0] > 0 else sitk.Transform()
    seen = array_of(sitk.Resample(base, base, known, sitk.sitkBSpline, 0.0)).clip(0, 1)
    bias = smooth(base, 1, 60, rng, 1)[..., 0]
    fixed = seen * (1 + 0.15 * bias / np.abs(bias).max()) + rng.normal(0, motion.noise, array.shape)
    there = image_of(other_contrast(array, rng) if two else array, base)
    there = other_grid(there, rng) if regrid else there
    moving = array_of(there).clip(0, 1)
    moving = moving + rng.normal(0, motion.noise, moving.shape)
    voxels = np.argwhere(seen > FOREGROUND)[:, ::-1]
    points, answers = [], []
    for index in voxels[rng.permutation(len(voxels))]:
        point = base.TransformIndexToPhysicalPoint(index.tolist())
        answer = known.TransformPoint(point)
        if inside(base, np.array([answer]))[0]:
            points.append(point)
            answers.append(answer)
        if len(points) == POINTS:
            break
    seen_labels = (
        None if labels is None else sitk.Resample(labels, base, known, sitk.sitkNearestNeighbor, 0)
    )
    images = image_of(1000 * fixed, base), image_of(1000 * moving, there)
    return Pair(name, *images, two, np.array(points), np.array(answers), seen_labels, labels)


# ------------------------------------------------------------------------------------- Disturbances

Disturbance = Callable[[Pair, np.random.Generator], Pair]


def _range(array: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(array, [0.5, 99.5])
    return float(low), float(high)


def contrast(pair: Pair, rng: np.random.Generator) -> Pair:
    """Map the moving image's intensities by a random curve that is not monotone."""
    remapped = 1000 * other_contrast(array_of(scaled(pair.moving)), rng)
    return dataclasses.replace(pair, moving=image_of(remapped, pair.moving), two_modalities=True)


def noise(pair: Pair, rng: np.random.Generator, share: float = 0.05) -> Pair:
    """Add noise to both images, a share of their range."""

    def noisy(image: sitk.Image) -> sitk.Image:
        array = array_of(image)
        low, high = _range(array)
        return image_of(array + rng.normal(0, share * (high - low), array.shape), image)

    return dataclasses.replace(pair, fixed=noisy(pair.fixed), moving=noisy(pair.moving))


def bias(pair: Pair, rng: np.random.Generator, share: float = 0.5) -> Pair:
    """Shade each image differently and smoothly: up to half brighter and darker."""

    def shaded(image: sitk.Image) -> sitk.Image:
        array = array_of(image)
        low, _ = _range(array)
        shade = smooth(image, 1, 60, rng, 1)[..., 0]
        return image_of(low + (array - low) * (1 + share * shade / np.abs(shade).max()), image)

    return dataclasses.replace(pair, fixed=shaded(pair.fixed), moving=shaded(pair.moving))


def worse_scan(pair: Pair, rng: np.random.Generator) -> Pair:
    """Take the moving image for a worse scan of the same body: its intensities under a power of
    1/2 or 2, two ghosts along an axis, as of breathing, and noise of a twentieth of its range.
    """
    array = array_of(pair.moving)
    low, high = _range(array)
    curved = np.maximum((array - low) / (high - low), 0) ** rng.choice([0.5, 2.0])
    axis, n = rng.integers(array.ndim), min(array.shape)
    ghosts = 0.25 * np.roll(curved, n // 3, axis) + 0.15 * np.roll(curved, -(n // 4), axis)
    noisy = curved + ghosts + rng.normal(0, 0.05, array.shape)
    return dataclasses.replace(pair, moving=image_of(low + (high - low) * noisy, pair.moving))


def speckle(pair: Pair, rng: np.random.Generator) -> Pair:
    """Multiply both images by the magnitude of complex noise, correlated over a voxel: fully
    developed speckle, as in ultrasound.
    """

    def speckled(image: sitk.Image) -> sitk.Image:
        array = array_of(image)
        low, _ = _range(array)
        waves = [
            array_of(
                sitk.DiscreteGaussian(
                    image_of(rng.standard_normal(array.shape), image),
                    variance=[0.7] * 3,
                    useImageSpacing=False,
                )
            )
            for _ in range(2)
        ]
        magnitude = np.hypot(*waves)
        return image_of(low + np.maximum(array - low, 0) * magnitude / magnitude.mean(), image)

    return dataclasses.replace(pair, fixed=speckled(pair.fixed), moving=speckled(pair.moving))


def sector(pair: Pair, rng: np.random.Generator) -> Pair:
    """Keep only a cone of 80 degrees from the middle of the image's front, with the lowest
    intensity around it: as from an ultrasound probe.
    """

    def cone(image: sitk.Image, points: np.ndarray) -> np.ndarray:
        size = np.array(image.GetSize())
        apex = np.array(
            image.TransformContinuousIndexToPhysicalPoint(
                [(size[0] - 1) / 2, -0.1 * size[1], (size[2] - 1) / 2]
            )
        )
        axis = np.array(image.GetDirection()).reshape(3, 3)[:, 1]
        along = (points - apex) @ axis
        return along > np.cos(np.deg2rad(40)) * np.linalg.norm(points - apex, axis=-1)

    def cut(image: sitk.Image) -> sitk.Image:
        array = array_of(image)
        return image_of(np.where(cone(image, centres(image)), array, array.min()), image)

    kept = cone(pair.fixed, pair.fixed_points) & cone(pair.moving, pair.moving_points)
    return (
        dataclasses.replace(pair, fixed=cut(pair.fixed), moving=cut(pair.moving))
        .at(kept)
        .without_labels()
    )


def thick_slices(pair: Pair, rng: np.random.Generator, mm: float) -> Pair:
    """Make slices of about `mm` of the moving image, each the mean over its thickness."""
    factor = max(2, round(mm / pair.moving.GetSpacing()[2]))
    moving = sitk.BinShrink(pair.moving, [1, 1, factor])
    return dataclasses.replace(pair, moving=moving).at(inside(moving, pair.moving_points))


def _cropped(image: sitk.Image, low: tuple[float, ...], high: tuple[float, ...]) -> sitk.Image:
    size = image.GetSize()
    return sitk.Crop(
        image,
        [round(a * n) for a, n in zip(low, size, strict=True)],
        [round((1 - b) * n) for b, n in zip(high, size, strict=True)],
    )


def cropped(pair: Pair, rng: np.random.Generator) -> Pair:
    """Keep the middle 60 % of every axis of the fixed image."""
    low, high = (0.2,) * 3, (0.8,) * 3
    fixed = _cropped(pair.fixed, low, high)
    labels = None if pair.fixed_labels is None else _cropped(pair.fixed_labels, low, high)
    return dataclasses.replace(pair, fixed=fixed, fixed_labels=labels).at(
        inside(fixed, pair.fixed_points)
    )


def partial_view(pair: Pair, rng: np.random.Generator) -> Pair:
    """Keep the upper 75 % of the fixed image and the lower 75 % of the moving one, which overlap in
    the middle.
    """
    fixed = _cropped(pair.fixed, (0, 0, 0.25), (1, 1, 1))
    moving = _cropped(pair.moving, (0, 0, 0), (1, 1, 0.75))
    kept = inside(fixed, pair.fixed_points) & inside(moving, pair.moving_points)
    return dataclasses.replace(pair, fixed=fixed, moving=moving).at(kept).without_labels()


def resection(pair: Pair, rng: np.random.Generator, share: float = 0.14) -> Pair:
    """Replace a ball of tissue in the fixed image by dark, noisy fluid; points in it have no
    counterpart and do not count.
    """
    radius = share * min(
        n * s for n, s in zip(pair.fixed.GetSize(), pair.fixed.GetSpacing(), strict=True)
    )
    ball = pair.fixed_points[rng.integers(len(pair.fixed_points))]
    array = array_of(pair.fixed)
    low, high = _range(array)
    gone = np.linalg.norm(centres(pair.fixed) - ball, axis=-1) < radius
    array[gone] = (
        low + 0.1 * (high - low) + rng.normal(0, 0.02 * (high - low), np.count_nonzero(gone))
    )
    kept = np.linalg.norm(pair.fixed_points - ball, axis=1) > radius + max(pair.fixed.GetSpacing())
    return dataclasses.replace(pair, fixed=image_of(array, pair.fixed)).at(kept).without_labels()


def cut_out(pair: Pair, rng: np.random.Generator, share: float = 0.06) -> Pair:
    """Leave of the fixed image the inside of the body alone, as a stripped brain is left of a head;
    points beyond it do not count.
    """
    array = array_of(pair.fixed)
    low, high = _range(array)
    body = ndimage.binary_fill_holes(array > low + FOREGROUND * (high - low))
    kept = ndimage.binary_erosion(body, iterations=max(round(share * min(array.shape)), 1))
    array[~kept] = array.min()
    column, row, z = np.rint(indices(pair.fixed, pair.fixed_points)).astype(int).T
    seen = kept[z, row, column]
    return dataclasses.replace(pair, fixed=image_of(array, pair.fixed)).at(seen).without_labels()


def sliding(pair: Pair, rng: np.random.Generator, mm: float = 12.0) -> Pair:
    """Shift a torso's organs before the spine by `mm`, up or down, in the fixed image. The wall
    stays, so the motion jumps there.
    """

    def slid(points: np.ndarray) -> np.ndarray:
        x, y = points[..., 0], points[..., 1]
        along = np.zeros_like(points)
        along[..., 2] = np.where((x / 105) ** 2 + ((y + 25) / 50) ** 2 < 1, step, 0.0)
        return along

    step = mm * float(rng.choice([-1, 1]))
    field = sitk.GetImageFromArray(slid(centres(pair.fixed)), isVector=True)
    field.CopyInformation(pair.fixed)
    slide = sitk.DisplacementFieldTransform(field)
    fixed = sitk.Resample(pair.fixed, slide, sitk.sitkLinear, float(array_of(pair.fixed).min()))
    labels = (
        None
        if pair.fixed_labels is None
        else sitk.Resample(pair.fixed_labels, slide, sitk.sitkNearestNeighbor, 0)
    )
    # A point from p now lies at p - slid(p): the jump is along the wall, so both are on the same
    # side of it.
    points = pair.fixed_points - slid(pair.fixed_points)
    return dataclasses.replace(pair, fixed=fixed, fixed_labels=labels, fixed_points=points).at(
        inside(fixed, points)
    )


def any_pose(pair: Pair, rng: np.random.Generator) -> Pair:
    """Turn the moving image about its centre by a rotation drawn evenly from all. Its header turns,
    and with it the points and labels; its voxels stay.
    """
    quaternion = rng.normal(size=4)
    turn = Rotation.from_quat(quaternion / np.linalg.norm(quaternion)).as_matrix()
    middle = [(n - 1) / 2 for n in pair.moving.GetSize()]
    centre = np.array(pair.moving.TransformContinuousIndexToPhysicalPoint(middle))

    def turned(image: sitk.Image | None) -> sitk.Image | None:
        if image is None:
            return None
        image = sitk.Image(image)
        axes = np.reshape(image.GetDirection(), (3, 3))
        image.SetOrigin(list(centre + turn @ (np.array(image.GetOrigin()) - centre)))
        image.SetDirection((turn @ axes).ravel().tolist())
        return image

    return dataclasses.replace(
        pair,
        moving=turned(pair.moving),
        moving_labels=turned(pair.moving_labels),
        moving_points=centre + (pair.moving_points - centre) @ turn.T,
    )


def undisturbed(pair: Pair, rng: np.random.Generator) -> Pair:
    return pair


DISTURBANCES: dict[str, Disturbance] = {
    "": undisturbed,
    "two contrasts": contrast,
    "noise": noise,
    "bias": bias,
    "speckle": speckle,
    "worse scan": worse_scan,
    "sector": sector,
    "slices of 12 mm": functools.partial(thick_slices, mm=12),
    "slices of 5 mm": functools.partial(thick_slices, mm=5),
    "cropped": cropped,
    "partial view": partial_view,
    "resection": resection,
    "cut out": cut_out,
    "sliding": sliding,
    "any pose": any_pose,
}
"""The disturbances by name, the part after the comma in a kind's name."""
