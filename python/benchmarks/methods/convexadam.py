"""ConvexAdam: pip install convexadam (with PyTorch).

Its defaults (MIND, grid 6, 80 iterations of Adam) in isotropic voxels. It has no affine of its own,
so it gets SimpleITK's, in its time.
"""

from . import Job, Method


def _version() -> str:
    from importlib.metadata import version

    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt  # noqa: F401

    return f"{version('convexadam')} (torch {torch.__version__})"


def _register(job: Job) -> None:
    import numpy as np
    import SimpleITK as sitk
    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt

    from .shared import affine, isotropic, lowest, read, save

    fixed, moving = read(job)
    linear = affine(fixed, moving)
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
    save(job, sitk.CompositeTransform([linear, sitk.DisplacementFieldTransform(field)]))


METHODS = [Method("convexadam", _version, _register)]
