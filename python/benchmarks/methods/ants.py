"""ANTs: pip install antspyx.

`ants-syn` is antspyx's default: affine, then SyN, both by mutual information. `ants-syncc` takes
local correlation for SyN, of radius 2 and 30x99x11 iterations, as in Klein et al., NeuroImage 2009
(antspyx's own 'SyNCC' asks for 2100x1200x1200x20).
"""

from functools import partial
from typing import Any

from . import Job, Method


def _version() -> str:
    import ants

    return ants.__version__


def _register(options: dict[str, Any], job: Job) -> None:
    import ants

    fixed, moving = (ants.image_read(str(path)) for path in (job.fixed, job.moving))
    ants.registration(fixed, moving, "SyN", outprefix=f"{job.folder}/", random_seed=1, **options)


def _field(job: Job):
    import ants
    import SimpleITK as sitk

    fixed, moving = (ants.image_read(str(path)) for path in (job.fixed, job.moving))
    chain = [str(job.folder / name) for name in ("1Warp.nii.gz", "0GenericAffine.mat")]
    total = ants.apply_transforms(fixed, moving, chain, compose=f"{job.folder}/total")
    return sitk.ReadImage(total)


_CC = {"syn_metric": "CC", "syn_sampling": 2, "reg_iterations": (30, 99, 11)}
METHODS = [
    Method("ants-syn", _version, partial(_register, {}), _field),
    Method("ants-syncc", _version, partial(_register, _CC), _field),
]
