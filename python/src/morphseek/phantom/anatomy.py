"""The made-up torso as a formula: tissues, their intensities, and the noise."""

from __future__ import annotations

import numpy as np

Pair = tuple[float, float]
Triple = tuple[float, float, float]

CONTRASTS = ("MR", "CT")  # of _TISSUES
# intensities: fat-suppressed T2-weighted MR in arbitrary units, CT in Hounsfield units
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


def render(
    p: np.ndarray, contrast: int, spacing: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Paint the anatomy at the points p, each tissue with an edge about a voxel wide."""
    x, y, z = np.ascontiguousarray(p.T, dtype=np.float32)
    edge = np.float32(0.35 * np.mean(spacing))
    values = np.full(len(p), _TISSUES["air"][contrast], np.float32)
    labels = np.zeros(len(p), np.uint8)

    def paint(distance: np.ndarray, tissue: str, label: int = 0) -> None:
        """Paint where distance, in mm, is negative."""
        near = np.flatnonzero(distance < 6 * edge)
        alpha = 1 / (1 + np.exp(np.maximum(distance[near], -40 * edge) / edge))
        values[near] += alpha * (_TISSUES[tissue][contrast] - values[near])
        labels[near[distance[near] < 0]] = label

    def ellipsoid(center: Triple, radii: Triple, turn: Triple = (0.0, 0.0, 0.0)) -> np.ndarray:
        dx, dy, dz = x - center[0], y - center[1], z - center[2]
        distance = np.full(len(x), np.float32(1e3))
        near = np.flatnonzero(dx**2 + dy**2 + dz**2 < (max(radii) + 10 * edge) ** 2)
        axes = rotation(*turn) / radii
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

    def strand(
        box: tuple[Pair, Pair, Pair], length: Pair, width: float, side: int = 1
    ) -> np.ndarray:
        """Return the distance to a thin ellipsoid, turned anyhow, somewhere in a box."""
        x, y, z = (patient.uniform(*along) for along in box)
        radii = (patient.uniform(*length), width, width)
        return ellipsoid((side * x, y, z), radii, tuple(patient.uniform(-1.5, 1.5, 3)))

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
            branch = strand(((50, 100), (-45, 55), (70, 165)), (14, 26), 5, side)
            paint(branch, "vessel", 8 if side < 0 else 9)
    paint(ellipsoid((22, -28, 112), (46, 40, 44), (0, 0.4, 0.5)), "heart", 10)
    paint(ellipsoid((26, -30, 112), (27, 22, 26), (0, 0.4, 0.5)), "vessel", 10)

    lobes = np.minimum(
        ellipsoid((-72, 2, 22), (68, 78, 64), (0, -0.25, 0.1)),
        ellipsoid((0, -38, 34), (72, 34, 30), (0, 0.25, 0.2)),
    )
    paint(lobes, "liver", 1)
    for _ in range(7):
        paint(strand(((-105, -35), (-35, 35), (-5, 60)), (22, 38), 6), "vessel", 1)
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


def mr_noise(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add a receive-coil shading and Rician noise."""
    z, y, x = (np.linspace(-1, 1, n) for n in values.shape)
    shade = 1 + 0.12 * x + 0.1 * (y**2)[:, None] - 0.08 * z[:, None, None]
    shaded = values * shade
    return np.hypot(shaded + rng.normal(0, 10, values.shape), rng.normal(0, 10, values.shape))


def rotation(x: float, y: float, z: float) -> np.ndarray:
    """Return the rotation about x, then y, then z; radians."""
    c, s = np.cos([x, y, z]), np.sin([x, y, z])
    rx = np.array([[1, 0, 0], [0, c[0], -s[0]], [0, s[0], c[0]]])
    ry = np.array([[c[1], 0, s[1]], [0, 1, 0], [-s[1], 0, c[1]]])
    rz = np.array([[c[2], -s[2], 0], [s[2], c[2], 0], [0, 0, 1]])
    return rz @ ry @ rx
