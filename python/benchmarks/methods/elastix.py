"""elastix: pip install itk-elastix."""

from . import Job, Method


def _version() -> str:
    from importlib.metadata import version

    import itk

    itk.ParameterObject  # noqa: B018  (loads the module; fails where it is not installed)
    return version("itk-elastix")


def _register(job: Job) -> None:
    import itk

    fixed, moving = (itk.imread(str(path), itk.F) for path in (job.fixed, job.moving))
    shortest = min(n * s for n, s in zip(itk.size(fixed), fixed.GetSpacing()))
    parameters = itk.ParameterObject.New()
    parameters.AddParameterMap(parameters.GetDefaultParameterMap("affine"))
    parameters.AddParameterMap(
        parameters.GetDefaultParameterMap("bspline", 4, min(10.0, shortest / 8))
    )
    _, found = itk.elastix_registration_method(
        fixed,
        moving,
        parameter_object=parameters,
        number_of_threads=job.threads,
        log_to_console=False,
    )
    found.WriteParameterFiles(
        found, [str(job.folder / f"{stage}.txt") for stage in ("affine", "bspline")]
    )


def _field(job: Job):
    import itk
    import SimpleITK as sitk

    found = itk.ParameterObject.New()
    found.ReadParameterFiles([str(job.folder / f"{stage}.txt") for stage in ("affine", "bspline")])
    field = itk.transformix_deformation_field(
        itk.imread(str(job.moving), itk.F), found, output_directory=str(job.folder)
    )
    itk.imwrite(field, str(job.folder / "total.mha"))
    return sitk.ReadImage(str(job.folder / "total.mha"))


METHODS = [
    Method(
        "elastix",
        "its default parameter maps 'affine', then 'bspline' (advanced Mattes mutual information),"
        " the control points 10 mm apart as they have it, or an eighth of the shortest side, where"
        " small images would have only three of them",
        _version,
        _register,
        _field,
    )
]
