"""SimpleITK's affine from the image centres, by Mattes mutual information on three levels: as in
its tutorials.
"""

from . import Job, Method


def _version() -> str:
    import SimpleITK as sitk

    return sitk.Version_VersionString()


def _register(job: Job) -> None:
    from .shared import affine, read, save

    save(job, affine(*read(job)))


METHODS = [Method("sitk-affine", _version, _register)]
