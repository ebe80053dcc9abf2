"""deedsBCV, if its programs linearBCV, deedsBCV and applyBCVfloat are on PATH (it is built from
source).
"""

import shutil
import subprocess

from . import Job, Method

_PROGRAMS = ("linearBCV", "deedsBCV", "applyBCVfloat")


def _version() -> str:
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise FileNotFoundError(f"{', '.join(missing)} not on PATH")
    return "no version of its own"


def _register(job: Job) -> None:
    import SimpleITK as sitk

    from .shared import isotropic, lowest

    # It needs both images on one grid of isotropic voxels: their centres are aligned.
    fixed, moving = (
        sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (job.fixed, job.moving)
    )
    target = isotropic(fixed)
    start = sitk.CenteredTransformInitializer(
        target,
        moving,
        sitk.TranslationTransform(3),
        sitk.CenteredTransformInitializerFilter.GEOMETRY,
    )
    sitk.WriteTransform(start, str(job.folder / "start.h5"))
    sitk.WriteImage(target, str(job.folder / "fixed.nii.gz"))
    sitk.WriteImage(
        sitk.Resample(moving, target, start, sitk.sitkLinear, lowest(moving)),
        str(job.folder / "moving.nii.gz"),
    )
    pair = ["-F", "fixed.nii.gz", "-M", "moving.nii.gz"]
    subprocess.run(["linearBCV", *pair, "-O", "affine"], check=True, cwd=job.folder)
    subprocess.run(
        ["deedsBCV", *pair, "-O", "deeds", "-A", "affine_matrix.txt"], check=True, cwd=job.folder
    )


def _field(job: Job):
    """Read the field from three ramp images that deeds has warped, without its file format."""
    import numpy as np
    import SimpleITK as sitk

    from .shared import as_field

    grid = sitk.ReadImage(str(job.folder / "fixed.nii.gz"))
    index = np.indices(grid.GetSize()[::-1], dtype=np.float32)[::-1]  # x, y, z
    warped = []
    for ramp in index:
        image = sitk.GetImageFromArray(ramp)
        image.CopyInformation(grid)
        sitk.WriteImage(image, str(job.folder / "ramp.nii.gz"))
        apply = [
            "applyBCVfloat",
            "-M",
            "ramp.nii.gz",
            "-O",
            "deeds",
            "-D",
            "warped.nii.gz",
            "-A",
            "affine_matrix.txt",
        ]
        subprocess.run(apply, check=True, cwd=job.folder)
        warped.append(sitk.GetArrayFromImage(sitk.ReadImage(str(job.folder / "warped.nii.gz"))))
    matrix = np.array(grid.GetDirection()).reshape(3, 3) * grid.GetSpacing()
    field = sitk.GetImageFromArray(
        np.moveaxis(np.array(warped) - index, 0, -1).astype(np.float64) @ matrix.T, isVector=True
    )
    field.CopyInformation(grid)
    start = sitk.ReadTransform(str(job.folder / "start.h5"))
    return as_field(
        sitk.CompositeTransform([start, sitk.DisplacementFieldTransform(field)]), job.fixed
    )


METHODS = [
    Method(
        "deeds",
        "linearBCV, then deedsBCV, their defaults, in isotropic voxels from the image centres: as"
        " its README has it",
        _version,
        _register,
        _field,
    )
]
