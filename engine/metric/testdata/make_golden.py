"""Writes golden.json: what numpy, scipy and MONAI say of overlap, surface distance and
similarity.
"""

import sys
from pathlib import Path

import numpy as np
import SimpleITK as sitk
import torch
from monai.metrics import compute_hausdorff_distance
from scipy.ndimage import convolve, distance_transform_edt

sys.path.insert(0, str(Path(__file__).parents[2] / "internal/testkit"))
import golden as g

rng = np.random.default_rng(3)
grid = g.grid((14, 12, 10), (0.8, 1.5, 2.2), (1, 2, 3), g.rotation(rng, 25))


def smooth(sigma, amplitude):
    return sitk.GetArrayFromImage(g.smooth(rng, grid, sigma, amplitude))


# Label maps that resemble each other: thresholds of one image and of a disturbed copy. Labels touch
# the border.
base = smooth(2, 1)
a = np.digitize(base, [-0.4, 0.1, 0.5]).astype(np.float32)
b = np.digitize(base + smooth(1, 0.35), [-0.4, 0.1, 0.5]).astype(np.float32)
b[0, 0, 0] = 7  # in one map only
labels = [1, 2, 3]
one_hot = [torch.tensor(np.stack([x == l for l in labels])[None]) for x in (a, b)]
hd95 = compute_hausdorff_distance(
    *one_hot, include_background=True, percentile=95, spacing=grid.GetSpacing()[::-1]
)[0]
overlap = {
    "A": g.packed(g.like(a, grid)),
    "B": g.packed(g.like(b, grid)),
    "Labels": labels,
    "Dice": [2 * ((a == l) & (b == l)).sum() / ((a == l).sum() + (b == l).sum()) for l in labels],
    "HD95": hd95.tolist(),
}

# Exact distances to scattered points.
points = rng.random((10, 12, 14)) < 0.01
edt = {
    "Grid": g.geometry(grid),
    "Points": np.flatnonzero(points).tolist(),
    "Want": g.floats(distance_transform_edt(~points, sampling=grid.GetSpacing()[::-1])),
}

# Intensities with a large offset, as CT stored from 0.
x = 3000 + smooth(1, 400)
y = 50 - 0.05 * x + smooth(1, 10)
mask = (smooth(2, 1) > -0.3).astype(np.float32)


def local(x, y, w, radius):
    """Mean squared local correlation by direct summation over windows."""
    kernel = np.ones((2 * radius + 1,) * 3)
    x, y = x.astype(np.float64) - x.mean(), y.astype(np.float64) - y.mean()
    n, sx, sy, sxx, syy, sxy = (
        convolve(w * v, kernel, mode="constant")
        for v in (np.ones_like(x), x, y, x * x, y * y, x * y)
    )
    with np.errstate(all="ignore"):
        cc = (sxy - sx * sy / n) ** 2 / ((sxx - sx * sx / n) * (syy - sy * sy / n))
    return np.nan_to_num(cc)[w > 0].mean()


def normalized_information(x, y, bins):
    joint = np.histogram2d(x.astype(np.float64), y.astype(np.float64), bins)[0]
    joint /= joint.sum()
    h = lambda p: -np.sum(p[p > 0] * np.log(p[p > 0]))
    hx, hy, hxy = h(joint.sum(1)), h(joint.sum(0)), h(joint)
    return (hx + hy) / hxy


similarity = {
    "A": g.packed(g.like(x, grid)),
    "B": g.packed(g.like(y, grid)),
    "Mask": g.packed(g.like(mask, grid)),
    "Radius": 2,
    "Bins": 24,
}
for name, w in ("Whole", np.ones_like(mask)), ("Masked", mask):
    similarity[name] = {
        "LNCC": local(x, y, w, 2),
        "NMI": normalized_information(x[w > 0], y[w > 0], 24),
    }

g.write(__file__, {"Overlap": overlap, "EDT": edt, "Similarity": similarity})
