"""Writes golden.json: what SimpleITK, scipy and numpy say of warping, composing, inverting and
measuring fields.
"""

import sys
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from scipy.ndimage import map_coordinates
from scipy.optimize import root

sys.path.insert(0, str(Path(__file__).parents[2] / "internal/testkit"))
import golden as g

rng = np.random.default_rng(2)


def field_json(mm):
    """A field as its grid and mm vectors, x, y, z interleaved."""
    return {"Grid": g.geometry(mm), "MM": g.floats(sitk.GetArrayFromImage(mm))}


def voxels(mm):
    """The displacement (3, z, y, x) in voxels along the array axes, 64-bit."""
    a = sitk.GetArrayFromImage(mm)
    direction = np.array(mm.GetDirection()).reshape(3, 3)
    return np.moveaxis(a @ direction / np.array(mm.GetSpacing()), -1, 0)[::-1]  # u = S^-1 D^T d


def transform(mm):
    return sitk.DisplacementFieldTransform(sitk.Image(mm))  # the constructor empties its argument


def displacements(t, reference):
    return sitk.TransformToDisplacementField(
        t,
        sitk.sitkVectorFloat64,
        reference.GetSize(),
        reference.GetOrigin(),
        reference.GetSpacing(),
        reference.GetDirection(),
    )


fixed = g.grid((9, 10, 8), (1.8, 1.2, 2.8), (40, -15, 7), g.rotation(rng, 50))
moving = g.smooth(
    rng, g.grid((12, 9, 10), (1.2, 1.9, 1.6), (41, -14, 8), g.rotation(rng, 160)), 1, 50
)
first = g.smooth_field(rng, fixed, 1.5, 3.0)
second = g.smooth_field(rng, fixed, 1.5, 2.0)

warp = {"Moving": g.packed(moving), "Background": -100}
for name, interpolator in ("Linear", sitk.sitkLinear), ("Nearest", sitk.sitkNearestNeighbor):
    out = sitk.Resample(moving, fixed, transform(first), interpolator, warp["Background"])
    warp[name] = g.floats(sitk.GetArrayFromImage(out))

# prev o phi. ITK's composite applies the transform added last first; it agrees where phi stays on
# the grid. scipy's mode="nearest" clamps, and so agrees everywhere.
composite = sitk.CompositeTransform([transform(first), transform(second)])
prev, phi = voxels(first), voxels(second)
at = np.stack(np.meshgrid(*(np.arange(n) for n in phi.shape[1:]), indexing="ij")) + phi
inside = np.all([(c >= 0) & (c <= n - 1) for c, n in zip(at, phi.shape[1:])], axis=0)
compose = {
    "Phi": field_json(second),
    "Inside": g.floats(inside),
    "ITK": g.floats(sitk.GetArrayFromImage(displacements(composite, fixed))),
    "Scipy": g.floats(
        phi + np.stack([map_coordinates(p, at, order=1, mode="nearest") for p in prev])
    ),
}

# Jacobian: numpy's gradients (one-sided at the border) of a field in voxels; ITK's filter inside,
# on vectors and grid turned to the axes because the filter ignores the direction. The field is
# strong enough to fold.
strong = g.smooth_field(rng, fixed, 1.2, 6.0)
v = voxels(strong)
gradient = np.array([[np.gradient(v[i], axis=j) for j in range(3)] for i in range(3)])
det = np.linalg.det(np.moveaxis(gradient, (0, 1), (-2, -1)) + np.eye(3))
turned = g.like(
    sitk.GetArrayFromImage(strong) @ np.array(fixed.GetDirection()).reshape(3, 3), fixed
)
turned.SetDirection(np.eye(3).ravel())
itk = sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(turned))
log = np.log(np.maximum(det, 1e-9))
length = np.linalg.norm(sitk.GetArrayFromImage(strong), axis=-1)
jacobian = {
    "Field": field_json(strong),
    "Numpy": g.floats(det),
    "ITK": g.floats(itk),
    "Stats": {
        "njd_percent": 100 * np.mean(det < 0),
        "sdlogj": log.std(),
        "jacobian_min": det.min(),
        "jacobian_max": det.max(),
        "displacement_mean_mm": length.mean(),
        "displacement_max_mm": length.max(),
    },
}
assert (det < 0).sum() > 5

# The total transform p -> initial(p + d(p)): d on a network grid that covers the fixed one, the
# initial affine large.
initial = sitk.AffineTransform(3)
initial.SetMatrix((g.rotation(rng, 40) @ np.diag([1.3, 0.8, 1.1])).ravel())
initial.SetCenter((35, -10, 0))
initial.SetTranslation((20, -30, 15))
network = g.grid((10, 11, 9), (3.1, 2.7, 3.4), (40, -15, 7))
deform = g.smooth_field(rng, network, 1.5, 4.0)
whole = sitk.CompositeTransform([initial, transform(deform)])
total = {
    "Initial": g.affine(initial),
    "Deform": field_json(deform),
    "Fixed": g.geometry(fixed),
    "Want": g.floats(sitk.GetArrayFromImage(displacements(whole, fixed))),
    "Affine": g.floats(sitk.GetArrayFromImage(displacements(initial, fixed))),
    "Resampled": g.floats(sitk.GetArrayFromImage(displacements(transform(deform), fixed))),
}

# Points inside the grid of a field.
on_fixed = transform(first)
index = rng.uniform(0, 1, (40, 3)) * (np.array(fixed.GetSize()) - 1)
points = np.array([fixed.TransformContinuousIndexToPhysicalPoint(x.tolist()) for x in index])
mapped = np.array([on_fixed.TransformPoint(p.tolist()) for p in points])

# The inverse of that total transform, on a grid of the moving side, solved voxel by voxel by scipy
# on ITK's transform of the same sampled field. Only voxels whose preimage is well inside the fixed
# grid are kept.
sampled = displacements(whole, fixed)
forward = transform(sampled)
center = np.array(
    whole.TransformPoint(
        fixed.TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in fixed.GetSize()])
    )
)
target = g.grid((9, 8, 10), (2.1, 1.9, 2.3), center, g.rotation(rng, 20))
back = initial.GetInverse()
wanted = []
for k in np.ndindex(*target.GetSize()):
    q = np.array(target.TransformIndexToPhysicalPoint([int(i) for i in k]))
    solved = root(
        lambda p: np.array(forward.TransformPoint(p.tolist())) - q,
        back.TransformPoint(q.tolist()),
        method="hybr",
        tol=1e-10,
    )
    x = np.array(fixed.TransformPhysicalPointToContinuousIndex(solved.x.tolist()))
    if np.linalg.norm(solved.fun) < 1e-6 and np.all(
        (x > 0.2) & (x < np.array(fixed.GetSize()) - 1.2)
    ):
        wanted.append({"Index": k, "Displacement": list(solved.x - q)})
print(len(wanted), "voxels of the inverse")
inverse = {"Field": field_json(sampled), "Grid": g.geometry(target), "Want": wanted[::4]}

g.write(
    __file__,
    {
        "Prev": field_json(first),
        "Warp": warp,
        "Compose": compose,
        "Jacobian": jacobian,
        "Total": total,
        "Inverse": inverse,
        "Points": {"In": points.ravel().tolist(), "Want": mapped.ravel().tolist()},
    },
)
