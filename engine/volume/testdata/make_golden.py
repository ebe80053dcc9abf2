"""Writes golden.json: what SimpleITK and numpy say of resampling, orientation, percentiles and
splines. Run with both installed.
"""

import sys
from pathlib import Path

import numpy as np
import SimpleITK as sitk

sys.path.insert(0, str(Path(__file__).parents[2] / "internal/testkit"))
import golden as g

rng = np.random.default_rng(1)

# Resampling between oblique, anisotropic, unequal grids through an affine; part of the target lies
# outside.
moving = g.smooth(
    rng, g.grid((11, 10, 8), (1.3, 2.2, 3.4), (10, -20, 30), g.rotation(rng, 33)), 1, 100
)
target = g.grid((10, 12, 9), (1.9, 1.5, 2.4), (12, -18, 28), g.rotation(rng, 115))
transform = sitk.AffineTransform(3)
transform.SetMatrix((g.rotation(rng, 12) @ np.diag([1.1, 0.9, 1.05])).ravel())
transform.SetCenter((11, -19, 29))
transform.SetTranslation((1.5, -0.5, 2))
# Shifts by exact half voxels, which probe both ends of the inside rule and the rounding of halves.
straight = g.smooth(rng, g.grid((5, 4, 3), (1, 2, 4), (0, 0, 0)), 0.5, 10)
resample = []
for image, reference, t in [(moving, target, transform)] + [
    (
        straight,
        straight,
        sitk.AffineTransform(np.eye(3).ravel(), tuple(s * np.array([0.5, 1.0, 2.0]))),
    )
    for s in (-3, -1, 0, 1, 3)
]:
    for name, interpolator in ("linear", sitk.sitkLinear), ("nearest", sitk.sitkNearestNeighbor):
        out = sitk.Resample(image, reference, t, interpolator, -1000.0)
        resample.append(
            {
                "Image": g.packed(image),
                "Affine": g.affine(t),
                "Interpolation": name,
                "Background": -1000,
                "Want": g.packed(out),
            }
        )

# Orientation, with directions near and far from the axes. Values tell the voxels apart.
orient = []
for degrees in (0, 10, 40, 75, 120, 175):
    direction = g.rotation(rng, degrees)[:, rng.permutation(3)]
    image = g.grid((3, 4, 5), (0.7, 1.1, 2.3), (5, 6, 7), direction)
    orient.append({"Grid": g.geometry(image), "Want": g.geometry(sitk.DICOMOrient(image, "LPS"))})

points = []
for x in rng.uniform(-3, 12, (5, 3)):
    points.append(
        {
            "Grid": g.geometry(moving),
            "Index": list(x),
            "Point": moving.TransformContinuousIndexToPhysicalPoint(x.tolist()),
        }
    )

percentiles = []
for values in (
    rng.normal(size=501) * 10,
    rng.integers(-3, 4, 64),
    np.array([7.0]),
    np.array([-1e30, -2.5, -0.0, 0.0, 1e-40, 3.0, 1e30]),
):
    values = values.astype(np.float32)
    dirty = np.insert(values, rng.integers(0, values.size, 3), [np.nan, np.inf, -np.inf])
    ps = [0, 0.5, 1, 25, 50, 73.3, 99, 99.9, 100]
    percentiles.append(
        {
            "Values": g.floats(dirty),
            "Ps": ps,
            "Want": list(np.percentile(values.astype(np.float64), ps)),
        }
    )

# Cubic B-splines on another grid within the image, through a rotation and along its own axes, with
# lines as short as two voxels.
spline = []
for size, spacing, degrees in ((11, 10, 8), (1.3, 2.2, 3.4), 20), ((9, 2, 40), (1, 1, 1), 0):
    image = g.smooth(rng, g.grid(size, spacing, (10, -20, 30), g.rotation(rng, 33)), 0.5, 100)
    steps = np.array((0.5, 0.35, 0.9))
    inner = g.grid(
        [int(0.6 * (n - 1) / s) + 1 for n, s in zip(size, steps)],
        steps * spacing,
        (10.1, -20.1, 30.2),
        np.reshape(image.GetDirection(), (3, 3)),
    )
    turn = sitk.AffineTransform(g.rotation(rng, degrees).ravel(), (0, 0, 0), (10, -20, 30))
    spline.append(
        {
            "Image": g.packed(image),
            "Affine": g.affine(turn),
            "Want": g.packed(sitk.Resample(image, inner, turn, sitk.sitkBSpline, -1e3)),
        }
    )

g.write(
    __file__,
    {
        "Resample": resample,
        "Orient": orient,
        "Points": points,
        "Percentiles": percentiles,
        "Spline": spline,
    },
)
