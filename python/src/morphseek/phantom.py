"""A made-up pair of torsos with a known answer: an MR-like fixed and a CT-like moving image, with
labels.

The anatomy is a formula, evaluated at every voxel: the fixed image at its own points, the moving
image at the points that a smooth, invertible map gives. Nothing is resampled, so the true transform
is exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InvalidArgumentError
from .io import Image

if TYPE_CHECKING:
    from .registration import RegistrationResult

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

_Triple = tuple[float, float, float]

_CONTRASTS = ("MR", "CT")  # of _TISSUES

# Intensity of each tissue: fat-suppressed T2-weighted MR in arbitrary units, CT in Hounsfield
# units.
_TISSUES = {
    "air": (8, -1000),
    "fat": (95, -95),
    "muscle": (150, 55),
    "cavity": (80, -75),
    "bowel": (210, 25),
    "bowel content": (520, 5),
    "bone": (110, 320),
    "cortex": (40, 720),
    "disc": (300, 80),
    "csf": (640, 15),
    "lung": (45, -820),
    "heart": (260, 120),
    "liver": (200, 105),
    "vessel": (60, 165),
    "gallbladder": (700, 8),
    "stomach": (300, 30),
    "spleen": (430, 125),
    "kidney": (480, 175),
    "renal pelvis": (640, 40),
}

_FIELD_OF_VIEW = np.array([384.0, 300.0, 336.0])  # mm along x, y, z


@dataclasses.dataclass(frozen=True)
class PhantomPair:
    """Two images of one made-up patient.

    Attributes
    ----------
    fixed, moving : morphseek.io.Image
        The torso in two contrasts, or in one, float32, on different grids.
    fixed_labels, moving_labels : morphseek.io.Image
        uint8 maps of :data:`LABELS`.
    truth : callable
        Maps points (n, 3), LPS mm, from fixed to moving space.
    """

    fixed: Image
    moving: Image
    fixed_labels: Image
    moving_labels: Image
    truth: Callable[[np.ndarray], np.ndarray]

    def target_points(self, step: int = 3) -> np.ndarray:
        """Return every `step`-th voxel centre inside a labelled organ of the fixed image, (n, 3)
        LPS mm: where to measure the error.
        """
        return _physical(self.fixed, self._targets(step))

    def _targets(self, step: int) -> np.ndarray:
        """Return the array indices of the target points, (n, 3) z, y, x."""
        inside = np.zeros_like(self.fixed_labels.array, dtype=bool)
        inside[::step, ::step, ::step] = self.fixed_labels.array[::step, ::step, ::step] > 0
        return np.argwhere(inside)

    def errors(self, result: RegistrationResult, step: int = 3) -> dict[str, Any]:
        """Measure how far a registration of the pair carries points from where they truly lie in
        the moving image.

        Parameters
        ----------
        result : morphseek.RegistrationResult
            Of this pair.
        step : int
            Of :meth:`target_points`. Points that truly lie outside the moving image do not count.

        Returns
        -------
        dict
            ``points``, their number; ``before``, ``initial`` (after the initial transform) and
            ``after``, each a dict of ``mean_mm``, ``median_mm`` and ``p95_mm``; ``organs``, a list
            of the same for each organ with its ``label`` and ``name``.
        """
        index = self._targets(step)
        points = _physical(self.fixed, index)
        true = self.truth(points)
        moving = np.linalg.inv(self.moving.index_to_physical)
        place = true @ moving[:3, :3].T + moving[:3, 3]
        seen = ((place >= 0) & (place <= np.array(self.moving.array.shape[::-1]) - 1)).all(axis=1)
        points, true, labels = (
            points[seen],
            true[seen],
            self.fixed_labels.array[tuple(index[seen].T)],
        )
        found = {
            "before": points,
            "initial": points @ result.initial[:3, :3].T + result.initial[:3, 3],
            "after": result.transform_points(points),
        }
        distances = {when: np.linalg.norm(there - true, axis=1) for when, there in found.items()}

        def summary(which: np.ndarray) -> dict[str, Any]:
            return {
                "points": int(np.count_nonzero(which)),
                **{when: _spread(d[which]) for when, d in distances.items()},
            }

        organs = [
            {"label": label, "name": name, **summary(labels == label)}
            for label, name in LABELS.items()
            if (labels == label).any()
        ]
        return {**summary(labels > 0), "organs": organs}


def _physical(image: Image, index: np.ndarray) -> np.ndarray:
    """Return the points of array indices, (n, 3) z, y, x, as LPS mm."""
    m = image.index_to_physical
    return index[:, ::-1] @ m[:3, :3].T + m[:3, 3]


def _spread(distances: np.ndarray) -> dict[str, float]:
    return {
        "mean_mm": float(distances.mean()),
        "median_mm": float(np.median(distances)),
        "p95_mm": float(np.percentile(distances, 95)),
    }


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
    unknown = [contrast for contrast in contrasts if contrast not in _CONTRASTS]
    if unknown or len(contrasts) != 2:
        raise InvalidArgumentError(
            f"contrasts is {contrasts!r}; give two, each of {', '.join(_CONTRASTS)}"
        )
    rng = np.random.default_rng(seed)
    spacing = _FIELD_OF_VIEW / size
    fixed = _grid((size, size, size), spacing, np.eye(3), np.array([0.0, 0.0, -40.0]))
    # The moving patient lies rotated and shifted in an oblique, differently sampled, taller scan.
    moving_size = tuple(int(round(f * size)) for f in (1.125, 1.125, 0.875))
    moving_spacing = np.array([10.0, 8.0, 12.0]) * 32 / size
    moving = _grid(
        moving_size, moving_spacing, _rotation(0.03, -0.05, 0.07), np.array([-10.0, 18.0, -28.0])
    )
    bend = _Bend(rng)
    linear = _rotation(-0.06, 0.04, 0.13) @ np.diag([1.06, 0.95, 1.04])
    shift = np.array([-14.0, 19.0, -22.0])

    def to_canonical(p: np.ndarray) -> np.ndarray:
        return bend((p - shift) @ linear.T)

    def truth(points: np.ndarray) -> np.ndarray:
        q = bend.inverse(np.asarray(points, dtype=np.float64))
        return q @ np.linalg.inv(linear).T + shift

    images = []
    for grid, contrast in zip((fixed, moving), contrasts):
        points = _points(grid) if grid is fixed else to_canonical(_points(grid))
        values, labels = _render(points, _CONTRASTS.index(contrast), grid)
        values = values.reshape(grid.array.shape)
        if contrast == "MR":
            values = _mr_noise(values, rng)
        else:
            values = np.clip(values + rng.normal(0, 14, values.shape), -1024, 2000)
        images += [
            grid.like(values.astype(np.float32)),
            grid.like(labels.reshape(grid.array.shape)),
        ]
    return PhantomPair(images[0], images[2], images[1], images[3], truth)


def _grid(
    size: tuple[int, ...], spacing: np.ndarray, direction: np.ndarray, center: np.ndarray
) -> Image:
    origin = center - direction @ (spacing * (np.array(size) - 1) / 2)
    return Image(
        np.zeros(size[::-1], np.uint8),
        tuple(spacing.tolist()),
        tuple(origin.tolist()),
        tuple(direction.ravel().tolist()),
    )


def _points(image: Image) -> np.ndarray:
    z, y, x = (a.ravel() for a in np.indices(image.array.shape))
    m = image.index_to_physical
    return np.stack([x, y, z], axis=1) @ m[:3, :3].T + m[:3, 3]


def _rotation(x: float, y: float, z: float) -> np.ndarray:
    """Return the rotation about x, then y, then z; radians."""
    c, s = np.cos([x, y, z]), np.sin([x, y, z])
    rx = np.array([[1, 0, 0], [0, c[0], -s[0]], [0, s[0], c[0]]])
    ry = np.array([[c[1], 0, s[1]], [0, 1, 0], [-s[1], 0, c[1]]])
    rz = np.array([[c[2], -s[2], 0], [s[2], c[2], 0], [0, 0, 1]])
    return rz @ ry @ rx


class _Bend:
    """p -> p + d(p), d a few plane waves. Its gradient's norm stays below 0.6, so the map is
    invertible.
    """

    def __init__(self, rng: np.random.Generator, waves: int = 6, bound: float = 0.6):
        direction = rng.normal(size=(waves, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        self.k = direction * (2 * np.pi / rng.uniform(150, 260, (waves, 1)))
        self.phase = rng.uniform(0, 2 * np.pi, waves)
        amplitude = rng.normal(size=(waves, 3))
        gradient = (np.linalg.norm(amplitude, axis=1) * np.linalg.norm(self.k, axis=1)).sum()
        self.amplitude = amplitude * (bound / gradient)

    def displacement(self, p: np.ndarray) -> np.ndarray:
        d = np.zeros_like(p)
        for k, phase, amplitude in zip(self.k, self.phase, self.amplitude):
            d += (
                np.sin(p[:, 0] * k[0] + p[:, 1] * k[1] + p[:, 2] * k[2] + phase)[:, None]
                * amplitude
            )
        return d

    def __call__(self, p: np.ndarray) -> np.ndarray:
        return p + self.displacement(p)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        q = x.copy()
        for _ in range(60):  # a contraction by 0.6: 0.6^60 is 5e-14
            q = x - self.displacement(q)
        return q


def _render(p: np.ndarray, contrast: int, grid: Image) -> tuple[np.ndarray, np.ndarray]:
    """Paint the anatomy at the points p, tissue over tissue, each with an edge about a voxel
    wide.
    """
    x, y, z = np.ascontiguousarray(p.T, dtype=np.float32)
    edge = np.float32(0.35 * np.mean(grid.spacing))
    values = np.full(len(p), _TISSUES["air"][contrast], np.float32)
    labels = np.zeros(len(p), np.uint8)

    def paint(distance: np.ndarray, tissue: str, label: int = 0) -> None:
        """Paint where distance, in mm, is negative."""
        near = np.flatnonzero(distance < 6 * edge)
        alpha = 1 / (1 + np.exp(np.maximum(distance[near], -40 * edge) / edge))
        values[near] += alpha * (_TISSUES[tissue][contrast] - values[near])
        labels[near[distance[near] < 0]] = label

    def ellipsoid(center: _Triple, radii: _Triple, turn: _Triple = (0.0, 0.0, 0.0)) -> np.ndarray:
        dx, dy, dz = x - center[0], y - center[1], z - center[2]
        distance = np.full(len(x), np.float32(1e3))
        near = np.flatnonzero(dx**2 + dy**2 + dz**2 < (max(radii) + 10 * edge) ** 2)
        axes = _rotation(*turn) / radii
        along = [
            dx[near] * axes[0, i] + dy[near] * axes[1, i] + dz[near] * axes[2, i] for i in range(3)
        ]
        distance[near] = (np.sqrt(along[0] ** 2 + along[1] ** 2 + along[2] ** 2) - 1) * min(radii)
        return distance

    def tube(
        cx: float | np.ndarray, cy: float | np.ndarray, rx: float, ry: float | None = None
    ) -> np.ndarray:
        ry = ry or rx
        return (np.hypot((x - cx) / rx, (y - cy) / ry) - 1) * min(rx, ry)

    waist = 1 - 0.06 * np.cos((z + 20) / 70)
    torso = ((np.abs(x) / (160 * waist)) ** 2.5 + (np.abs(y - 4) / (112 * waist)) ** 2.5) ** 0.4
    body = (torso - 1) * 112
    paint(body, "fat")
    paint(body + 15 + 6 * np.cos(np.arctan2(y, x)) ** 2, "muscle")
    cavity = np.maximum(body + 34, tube(0, -8, 118, 88))
    paint(cavity, "cavity")

    # bowel and vessels are the patient's, whatever the deformation's seed
    patient = np.random.default_rng(7)
    for _ in range(16):
        c = (patient.uniform(-80, 80), patient.uniform(-60, 15), patient.uniform(-170, -65))
        r, turn = (patient.uniform(24, 40), 15, 15), tuple(patient.uniform(-1.5, 1.5, 3))
        paint(ellipsoid(c, r, turn), "bowel")
        paint(ellipsoid(c, (r[0] - 6, 8, 8), turn), "bowel content")

    for side in (-1, 1):  # iliac wings, psoas
        wing = np.abs(ellipsoid((side * 60, 30, -180), (62, 62, 58))) + np.maximum(
            -side * (x - side * 40), 0
        )
        paint(wing - 8, "cortex")
        paint(wing - 4, "bone")
        paint(tube(side * 38, 66, 19, 21) + np.maximum(z + 20, 0), "muscle")

    curve = 50 + 8 * np.cos(z / 90)
    slant = np.abs((z - 0.45 * y - 0.1 * np.abs(x) + 12) % 30 - 15)
    for thickness, tissue in ((0.0, "cortex"), (2.5, "bone")):
        rib = np.maximum(np.abs(body + 25) - 6, slant - 7) + thickness
        paint(np.maximum(rib, 5 - z), tissue)

    paint(ellipsoid((-74, 4, 128), (56, 78, 88)), "lung", 8)
    paint(ellipsoid((76, 8, 128), (54, 74, 88)), "lung", 9)
    for side in (-1, 1):
        for _ in range(9):
            c = (
                side * patient.uniform(50, 100),
                patient.uniform(-45, 55),
                patient.uniform(70, 165),
            )
            paint(
                ellipsoid(c, (patient.uniform(14, 26), 5, 5), tuple(patient.uniform(-1.5, 1.5, 3))),
                "vessel",
                8 if side < 0 else 9,
            )
    paint(ellipsoid((22, -28, 112), (46, 40, 44), (0, 0.4, 0.5)), "heart", 10)
    paint(ellipsoid((26, -30, 112), (27, 22, 26), (0, 0.4, 0.5)), "vessel", 10)

    lobes = np.minimum(
        ellipsoid((-72, 2, 22), (68, 78, 64), (0, -0.25, 0.1)),
        ellipsoid((0, -38, 34), (72, 34, 30), (0, 0.25, 0.2)),
    )
    paint(lobes, "liver", 1)
    for _ in range(7):
        c = (patient.uniform(-105, -35), patient.uniform(-35, 35), patient.uniform(-5, 60))
        paint(
            ellipsoid(c, (patient.uniform(22, 38), 6, 6), tuple(patient.uniform(-1.5, 1.5, 3))),
            "vessel",
            1,
        )
    paint(ellipsoid((-38, -58, -22), (13, 14, 26), (0.3, 0.2, 0)), "gallbladder")
    paint(ellipsoid((62, -30, 30), (38, 36, 44), (0.2, 0.5, 0)), "stomach", 5)
    paint(ellipsoid((108, 40, 34), (24, 42, 44), (0.3, 0.2, -0.3)), "spleen", 4)

    for side, label, drop in ((-1, 2, -12), (1, 3, 0)):
        turn = (0.12, side * 0.22, 0)
        paint(ellipsoid((side * 66, 58, -46 + drop), (29, 25, 52), turn), "kidney", label)
        paint(ellipsoid((side * 54, 54, -46 + drop), (14, 11, 27), turn), "renal pelvis", label)

    paint(tube(0, curve, 25, 20), "cortex", 7)
    paint(tube(0, curve, 21, 16), "bone", 7)
    paint(np.maximum(tube(0, curve, 25, 20), np.abs((z + 160) % 34 - 17) - 4), "disc", 7)
    paint(np.maximum(tube(0, curve + 40, 8, 20), np.abs((z + 150) % 34 - 17) - 11), "cortex", 7)
    paint(tube(0, curve + 28, 14), "bone", 7)
    paint(tube(0, curve + 28, 8), "csf")
    paint(tube(14 + 4 * np.sin(z / 60), curve - 31, 11), "vessel", 6)
    paint(tube(-19, curve - 32, 12, 10), "vessel")
    return values, labels


def _mr_noise(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add a receive-coil shading and Rician noise."""
    z, y, x = (np.linspace(-1, 1, n) for n in values.shape)
    shade = 1 + 0.12 * x + 0.1 * (y**2)[:, None] - 0.08 * z[:, None, None]
    shaded = values * shade
    return np.hypot(shaded + rng.normal(0, 10, values.shape), rng.normal(0, 10, values.shape))
