"""A made-up pair of torsos with a known answer: an MR-like fixed and a CT-like moving image, with
labels.

The anatomy is a formula, evaluated at every voxel: the fixed image at its own points, the moving
image at the points that a smooth, invertible map gives. Nothing is resampled, so the true transform
is exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .._grid import Grid, mapped
from .._percentiles import spread
from ..errors import InvalidArgumentError
from ..images.image import Image
from ..transforms import Transform
from ..transforms.field import linear_of
from .anatomy import CONTRASTS, mr_noise, render, rotation

LABELS = {
    1: "liver",
    2: "right kidney",
    3: "left kidney",
    4: "spleen",
    5: "stomach",
    6: "aorta",
    7: "spine",
    8: "right lung",
    9: "left lung",
    10: "heart",
}
"""Names of the labels."""
_FIELD_OF_VIEW = np.array([384.0, 300.0, 336.0])  # mm along x, y, z


@dataclasses.dataclass(frozen=True)
class PhantomPair:
    """Two images of one made-up patient.

    Attributes
    ----------
    fixed, moving : morphseek.images.Image
        The torso in two contrasts, or in one, float32, on different grids.
    fixed_labels, moving_labels : morphseek.images.Image
        uint8 maps of :data:`LABELS`.
    truth : callable
        Maps points (n, 3), LPS mm, from fixed to moving space.

    Examples
    --------
    >>> pair = phantom.make_pair(size=32)
    >>> pair.fixed.array.shape, pair.truth([[0.0, 0.0, 0.0]]).shape
    ((32, 32, 32), (1, 3))
    """

    fixed: Image
    moving: Image
    fixed_labels: Image
    moving_labels: Image
    truth: Callable[[np.ndarray], np.ndarray]

    def target_points(self, step: int = 3) -> np.ndarray:
        """Return every `step`-th voxel centre inside a labelled organ of the fixed image, (n, 3)
        LPS mm: where to measure the error.

        Examples
        --------
        >>> pair.target_points().shape[1]
        3
        """
        return self.fixed.grid.to_physical(self._targets(step)[:, ::-1])

    def _targets(self, step: int) -> np.ndarray:
        inside = np.zeros_like(self.fixed_labels.array, dtype=bool)
        inside[::step, ::step, ::step] = self.fixed_labels.array[::step, ::step, ::step] > 0
        return np.argwhere(inside)

    def errors(self, transform: Any, step: int = 3) -> dict[str, Any]:
        """Measure how far a transform of the pair, whatever :meth:`morphseek.Transform.of` takes,
        carries :meth:`target_points` from where they truly lie in the moving image. Points that
        truly lie outside it do not count.

        Returns
        -------
        dict
            ``points``, their number; ``before``, ``initial`` (after the initial transform) and
            ``after``, each a dict of ``mean_mm``, ``median_mm`` and ``p95_mm``; ``organs``, a list
            of the same for each organ with its ``label`` and ``name``.

        Examples
        --------
        >>> errors = pair.errors(result)
        >>> errors["after"]["mean_mm"] < errors["before"]["mean_mm"]
        True
        """
        index = self._targets(step)
        points = self.fixed.grid.to_physical(index[:, ::-1])
        true = self.truth(points)
        place = self.moving.grid.to_index(true)
        seen = ((place >= 0) & (place <= np.array(self.moving.grid.size) - 1)).all(axis=1)
        points, true = points[seen], true[seen]
        labels = self.fixed_labels.array[tuple(index[seen].T)]
        transform = Transform.of(transform)
        initial = linear_of(transform)
        found = {
            "before": points,
            "initial": mapped(initial, points),
            "after": transform.transform_points(points),
        }
        distances = {when: np.linalg.norm(there - true, axis=1) for when, there in found.items()}

        def summary(which: np.ndarray) -> dict[str, Any]:
            return {
                "points": int(np.count_nonzero(which)),
                **{when: spread(d[which]) for when, d in distances.items()},
            }

        organs = [
            {"label": label, "name": name, **summary(labels == label)}
            for label, name in LABELS.items()
            if (labels == label).any()
        ]
        return {**summary(labels > 0), "organs": organs}


def make_pair(
    size: int = 96, seed: int = 0, contrasts: tuple[str, str] = ("MR", "CT")
) -> PhantomPair:
    """Make the pair.

    Parameters
    ----------
    size : int
        Voxels of the fixed image along each axis of its 384 x 300 x 336 mm.
    seed : int
        Of the deformation and the noise.
    contrasts : tuple of str
        Of the fixed and the moving image: "MR" or "CT".

    Raises
    ------
    morphseek.errors.InvalidArgumentError
        There is no such contrast.

    Examples
    --------
    >>> pair = make_pair(size=32)
    >>> pair.fixed, pair.moving
    (Image(32 x 32 x 32 voxels of 12 x 9.375 x 10.5 mm, float32), Image(36 x 36 x 28 voxels of 10 x
    8 x 12 mm, float32))
    """
    unknown = [contrast for contrast in contrasts if contrast not in CONTRASTS]
    if unknown or len(contrasts) != 2:
        raise InvalidArgumentError(
            f"contrasts is {contrasts!r}; give two, each of {', '.join(CONTRASTS)}"
        )
    rng = np.random.default_rng(seed)
    spacing = _FIELD_OF_VIEW / size
    fixed = _grid((size, size, size), spacing, np.eye(3), np.array([0.0, 0.0, -40.0]))
    # The moving patient lies rotated and shifted in an oblique, differently sampled, taller scan.
    moving_size = tuple(int(round(f * size)) for f in (1.125, 1.125, 0.875))
    moving_spacing = np.array([10.0, 8.0, 12.0]) * 32 / size
    moving = _grid(
        moving_size, moving_spacing, rotation(0.03, -0.05, 0.07), np.array([-10.0, 18.0, -28.0])
    )
    truth = _Truth(rng)
    images = []
    for grid, contrast in zip((fixed, moving), contrasts):
        index = np.indices(grid.shape).reshape(3, -1).T[:, ::-1]
        points = grid.to_physical(index)
        points = points if grid is fixed else truth.inverse(points)
        values, labels = render(points, CONTRASTS.index(contrast), grid.spacing)
        values = values.reshape(grid.shape)
        if contrast == "MR":
            values = mr_noise(values, rng)
        else:
            values = np.clip(values + rng.normal(0, 14, values.shape), -1024, 2000)
        arrays = values.astype(np.float32), labels.reshape(grid.shape)
        images += [Image.on_grid(array, grid) for array in arrays]
    return PhantomPair(images[0], images[2], images[1], images[3], truth)


def _grid(
    size: tuple[int, ...], spacing: np.ndarray, direction: np.ndarray, center: np.ndarray
) -> Grid:
    origin = center - direction @ (spacing * (np.array(size) - 1) / 2)
    return Grid(size, tuple(spacing), tuple(origin), tuple(direction.ravel()))


class _Truth:
    """The map of points, LPS mm, from the fixed to the moving patient: p + d(p) = q backwards, d a
    few plane waves whose gradient stays below 0.6, so that it is invertible; then an affine map.
    """

    linear = rotation(-0.06, 0.04, 0.13) @ np.diag([1.06, 0.95, 1.04])
    shift = np.array([-14.0, 19.0, -22.0])

    def __init__(self, rng: np.random.Generator, waves: int = 6, bound: float = 0.6):
        direction = rng.normal(size=(waves, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        self.k = direction * (2 * np.pi / rng.uniform(150, 260, (waves, 1)))
        self.phase = rng.uniform(0, 2 * np.pi, waves)
        amplitude = rng.normal(size=(waves, 3))
        gradient = (np.linalg.norm(amplitude, axis=1) * np.linalg.norm(self.k, axis=1)).sum()
        self.amplitude = amplitude * (bound / gradient)

    def _waves(self, p: np.ndarray) -> np.ndarray:
        d = np.zeros_like(p)
        for k, phase, amplitude in zip(self.k, self.phase, self.amplitude):
            wave = np.sin(p[:, 0] * k[0] + p[:, 1] * k[1] + p[:, 2] * k[2] + phase)
            d += wave[:, None] * amplitude
        return d

    def inverse(self, points: np.ndarray) -> np.ndarray:
        p = (points - self.shift) @ self.linear.T
        return p + self._waves(p)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        x = np.asarray(points, dtype=np.float64)
        q = x.copy()
        for _ in range(60):  # a contraction by 0.6: 0.6^60 is 5e-14
            q = x - self._waves(q)
        return q @ np.linalg.inv(self.linear).T + self.shift
