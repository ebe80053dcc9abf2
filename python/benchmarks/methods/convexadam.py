"""ConvexAdam: pip install convexadam (with PyTorch)."""

from functools import partial

from . import Job, Method


def _version() -> str:
    from importlib.metadata import version

    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt  # noqa: F401

    return f"{version('convexadam')} (torch {torch.__version__})"


def _sitk_affine(job: Job, fixed, moving):
    from .shared import affine

    return affine(fixed, moving)


def _our_affine(job: Job, fixed, moving):
    import morphseek

    result = morphseek.register(
        job.fixed,
        job.moving,
        threads=job.threads,
        device="cpu",
        model="none",
        search=False,
        refine=0,
    )
    return result.transform.stage("initial").to_sitk()


def _register(start, job: Job) -> None:
    import numpy as np
    import SimpleITK as sitk
    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt

    from .shared import isotropic, lowest

    fixed, moving = (
        sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (job.fixed, job.moving)
    )
    linear = start(job, fixed, moving)
    target = isotropic(fixed)
    source = sitk.Resample(moving, target, linear, sitk.sitkLinear, lowest(moving))
    arrays = (sitk.GetArrayFromImage(image) for image in (target, source))
    # float32, because PyTorch has no 3-D convolution in half precision on the CPU.
    # (z, y, x, 3), components z, y, x
    voxels = convex_adam_pt(*arrays, device=torch.device("cpu"), dtype=torch.float32)
    matrix = np.array(target.GetDirection()).reshape(3, 3) * target.GetSpacing()
    field = sitk.GetImageFromArray(
        np.asarray(voxels, np.float64)[..., ::-1] @ matrix.T, isVector=True
    )
    field.CopyInformation(target)
    total = sitk.CompositeTransform([linear, sitk.DisplacementFieldTransform(field)])
    sitk.WriteTransform(total, str(job.folder / "transform.h5"))


def _field(job: Job):
    import SimpleITK as sitk

    from .shared import as_field

    return as_field(sitk.ReadTransform(str(job.folder / "transform.h5")), job.fixed)


_HOW = (
    "its defaults (MIND, grid 6, 80 iterations of Adam) in isotropic voxels; it has no affine of"
    " its own, so it gets "
)

METHODS = [
    Method(
        "convexadam",
        _HOW + "SimpleITK's, in its time",
        _version,
        partial(_register, _sitk_affine),
        _field,
    ),
    Method(
        "convexadam-after-ours",
        _HOW + "MorphSeek's, in its time: the two deformable parts compared",
        _version,
        partial(_register, _our_affine),
        _field,
    ),
]
