"""ANTs: pip install antspyx."""

from functools import partial
from typing import Any

from . import Job, Method


def _version() -> str:
    import ants

    return ants.__version__


def _register(kind: str, options: dict[str, Any], job: Job) -> None:
    import ants

    fixed, moving = (ants.image_read(str(path)) for path in (job.fixed, job.moving))
    ants.registration(fixed, moving, kind, outprefix=f"{job.folder}/", random_seed=1, **options)


def _field(job: Job):
    import ants
    import SimpleITK as sitk

    fixed, moving = (ants.image_read(str(path)) for path in (job.fixed, job.moving))
    chain = [
        str(path)
        for path in (job.folder / "1Warp.nii.gz", job.folder / "0GenericAffine.mat")
        if path.exists()
    ]
    return sitk.ReadImage(
        ants.apply_transforms(fixed, moving, chain, compose=f"{job.folder}/total")
    )


METHODS = [
    Method(
        "ants-affine",
        "antspyx's 'Affine': from the centres of mass, by mutual information",
        _version,
        partial(_register, "Affine", {}),
        _field,
    ),
    Method(
        "ants-syn",
        "antspyx's default: affine, then SyN, both by mutual information",
        _version,
        partial(_register, "SyN", {}),
        _field,
    ),
    Method(
        "ants-syncc",
        "the same with SyN by local correlation of radius 2 and 30x99x11 iterations, as in Klein et"
        " al., NeuroImage 2009 (antspyx's own 'SyNCC' asks for 2100x1200x1200x20)",
        _version,
        partial(
            _register,
            "SyN",
            {"syn_metric": "CC", "syn_sampling": 2, "reg_iterations": (30, 99, 11)},
        ),
        _field,
        one_modality=True,
    ),
]
