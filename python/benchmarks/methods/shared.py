"""Shared by several methods: an affine for those without one, an isotropic grid, and fields in the
common convention.
"""

from __future__ import annotations

import numpy as np
import SimpleITK as sitk

from . import Job


def read(job: Job) -> list[sitk.Image]:
    return [sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (job.fixed, job.moving)]


def save(job: Job, transform: sitk.Transform) -> None:
    """Write the file that :func:`methods.field_of_file` reads."""
    sitk.WriteTransform(transform, str(job.folder / "transform.h5"))


def as_field(transform: sitk.Transform, grid: sitk.Image) -> sitk.Image:
    """Return the displacement in mm of every voxel of an image."""
    return sitk.TransformToDisplacementField(
        transform, sitk.sitkVectorFloat32,
        grid.GetSize(), grid.GetOrigin(), grid.GetSpacing(), grid.GetDirection(),
    )  # fmt: skip


def affine(fixed: sitk.Image, moving: sitk.Image) -> sitk.AffineTransform:
    """Register by SimpleITK's affine, from fixed to moving space, float32 images.

    Image centres first, then Mattes mutual information as in SimpleITK's own tutorials, which
    register whole heads. For small images, no level has fewer than 16 voxels along an axis, and up
    to 200 000 voxels are all sampled.
    """
    shrink = sorted(
        {max(1, min(factor, min(fixed.GetSize()) // 16)) for factor in (4, 2, 1)}, reverse=True
    )
    start = sitk.CenteredTransformInitializer(
        fixed, moving, sitk.AffineTransform(3), sitk.CenteredTransformInitializerFilter.GEOMETRY
    )
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(32)
    method.SetMetricSamplingStrategy(method.RANDOM)
    method.SetMetricSamplingPercentagePerLevel(
        [min(1.0, 2e5 * factor**3 / fixed.GetNumberOfPixels()) for factor in shrink], seed=1
    )
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsGradientDescent(
        1.0, 100, convergenceMinimumValue=1e-6, convergenceWindowSize=10
    )
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel(shrink)
    method.SetSmoothingSigmasPerLevel([factor / 2 if factor > 1 else 0 for factor in shrink])
    method.SetInitialTransform(start, inPlace=False)
    found = sitk.CompositeTransform(method.Execute(fixed, moving))
    return sitk.AffineTransform(found.GetBackTransform())


def isotropic(fixed: sitk.Image) -> sitk.Image:
    """Return the fixed image for a method that counts in voxels: resampled to cubic voxels of the
    same volume unless its own are cubic.

    Voxels count as cubic if the longest side is at most 1.5 times the shortest.
    """
    spacing = np.array(fixed.GetSpacing())
    if spacing.max() <= 1.5 * spacing.min():
        return fixed
    side = float(np.cbrt(spacing.prod()))
    size = np.ceil(np.array(fixed.GetSize()) * spacing / side).astype(int).tolist()
    # Cubic voxels fill the same box: the first centre moves by half the difference of the sides.
    first = fixed.TransformContinuousIndexToPhysicalPoint(((side / spacing - 1) / 2).tolist())
    return sitk.Resample(
        fixed,
        size,
        sitk.Transform(),
        sitk.sitkLinear,
        first,
        [side] * 3,
        fixed.GetDirection(),
        0.0,
        fixed.GetPixelID(),
    )


def lowest(image: sitk.Image) -> float:
    """Return the lowest intensity, the value outside the image."""
    return float(sitk.GetArrayViewFromImage(image).min())
