"""FireANTs, if there is a CUDA device.

It pins SimpleITK 2.2.1, which is too old for MorphSeek: pip install --no-deps fireants, then
hydra-core, scikit-image and tqdm.
"""

from . import Job, Method

_DEVICE = "cuda"


def _version() -> str:
    from importlib.metadata import version

    import fireants.registration.greedy  # noqa: F401
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("there is no CUDA device")
    return f"{version('fireants')} (torch {torch.__version__}, {torch.cuda.get_device_name()})"


def _register(job: Job) -> None:
    from fireants.io import BatchedImages, Image
    from fireants.registration.affine import AffineRegistration
    from fireants.registration.greedy import GreedyRegistration

    pair = [
        BatchedImages([Image.load_file(str(path), device=_DEVICE)])
        for path in (job.fixed, job.moving)
    ]
    loss = {"loss_type": "mi"} if job.two_modalities else {"loss_type": "cc", "cc_kernel_size": 5}
    affine = AffineRegistration(
        [8, 4, 2, 1],
        [200, 100, 50, 20],
        *pair,
        **loss,
        optimizer="Adam",
        optimizer_lr=3e-3,
        init_rigid="cof",
    )
    affine.optimize()
    deform = GreedyRegistration(
        [4, 2, 1],
        [200, 100, 50],
        *pair,
        **loss,
        deformation_type="compositive",
        smooth_grad_sigma=1,
        smooth_warp_sigma=0.25,
        optimizer="Adam",
        optimizer_lr=0.5,
        init_affine=affine.get_affine_matrix().detach(),
    )
    deform.optimize()
    deform.save_as_ants_transforms(f"{job.folder}/warp.nii.gz")


def _field(job: Job):
    import SimpleITK as sitk

    return sitk.ReadImage(f"{job.folder}/warp.nii.gz")


METHODS = [
    Method(
        "fireants",
        "affine from the image centres, then its greedy compositive deformation, both by"
        " cross-correlation of 5 voxels (mutual information for two modalities): the settings of"
        " its tutorial",
        _version,
        _register,
        _field,
    )
]
