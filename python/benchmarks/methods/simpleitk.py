"""SimpleITK: its affine, and its demons after the affine."""

from . import Job, Method


def _version() -> str:
    import SimpleITK as sitk

    return sitk.Version_VersionString()


def _affine(job: Job) -> None:
    import SimpleITK as sitk

    from .shared import affine

    fixed, moving = (
        sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (job.fixed, job.moving)
    )
    sitk.WriteTransform(affine(fixed, moving), str(job.folder / "transform.h5"))


def _demons(job: Job) -> None:
    import SimpleITK as sitk

    from .shared import affine, lowest

    fixed, moving = (
        sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (job.fixed, job.moving)
    )
    linear = affine(fixed, moving)
    source = sitk.HistogramMatching(
        sitk.Resample(moving, fixed, linear, sitk.sitkLinear, lowest(moving)), fixed, 1024, 7
    )

    demons = sitk.FastSymmetricForcesDemonsRegistrationFilter()
    demons.SetNumberOfIterations(50)
    demons.SetSmoothDisplacementField(True)
    demons.SetStandardDeviations(1.5)
    field = None
    for shrink in (4, 2, 1):
        # never fewer than 16 voxels along an axis
        factors = [max(1, min(shrink, n // 16)) for n in fixed.GetSize()]
        sigma = [0.5 * factor * side for factor, side in zip(factors, fixed.GetSpacing())]
        target, other = fixed, source
        if shrink > 1:
            target, other = (
                sitk.Shrink(sitk.SmoothingRecursiveGaussian(image, sigma), factors)
                for image in (fixed, source)
            )
        if field is None:
            field = demons.Execute(target, other)
        else:
            field = demons.Execute(
                target,
                other,
                sitk.Resample(
                    field, target, sitk.Transform(), sitk.sitkLinear, 0.0, field.GetPixelID(), True
                ),
            )
    # The transform that is added first is applied last: the field maps a point first, then the
    # affine.
    total = sitk.CompositeTransform(
        [linear, sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64))]
    )
    sitk.WriteTransform(total, str(job.folder / "transform.h5"))


def _field(job: Job):
    import SimpleITK as sitk

    from .shared import as_field

    return as_field(sitk.ReadTransform(str(job.folder / "transform.h5")), job.fixed)


METHODS = [
    Method(
        "sitk-affine",
        "SimpleITK's affine from the image centres, by Mattes mutual information on three levels:"
        " as in its tutorials",
        _version,
        _affine,
        _field,
    ),
    Method(
        "sitk-demons",
        "SimpleITK's affine (Mattes mutual information), histogram matching, fast symmetric forces"
        " demons, 50 iterations on each of three levels, sigma 1.5: as in its tutorials",
        _version,
        _demons,
        _field,
        one_modality=True,
    ),
]
