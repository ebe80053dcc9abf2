"""elastix: pip install itk-elastix.

Its default parameter maps 'affine', then 'bspline' (advanced Mattes mutual information), the
control points 10 mm apart as they have it, or an eighth of the shortest side, where small images
would have only three of them.
"""

from . import Job, Method


def _version() -> str:
    from importlib.metadata import version

    import itk

    itk.ParameterObject  # noqa: B018  (loads the module; fails where it is not installed)
    return version("itk-elastix")


def _files(job: Job) -> list[str]:
    return [str(job.folder / f"{stage}.txt") for stage in ("affine", "bspline")]


def _register(job: Job) -> None:
    import itk

    fixed, moving = (itk.imread(str(path), itk.F) for path in (job.fixed, job.moving))
    shortest = min(n * s for n, s in zip(itk.size(fixed), fixed.GetSpacing()))
    maps = itk.ParameterObject.New()
    maps.AddParameterMap(maps.GetDefaultParameterMap("affine"))
    maps.AddParameterMap(maps.GetDefaultParameterMap("bspline", 4, min(10.0, shortest / 8)))
    how = {"number_of_threads": job.threads, "log_to_console": False}
    _, found = itk.elastix_registration_method(fixed, moving, parameter_object=maps, **how)
    found.WriteParameterFiles(found, _files(job))


def _field(job: Job):
    import itk
    import SimpleITK as sitk

    found = itk.ParameterObject.New()
    found.ReadParameterFiles(_files(job))
    field = itk.transformix_deformation_field(
        itk.imread(str(job.moving), itk.F), found, output_directory=str(job.folder)
    )
    itk.imwrite(field, str(job.folder / "total.mha"))
    return sitk.ReadImage(str(job.folder / "total.mha"))


METHODS = [Method("elastix", _version, _register, _field)]
