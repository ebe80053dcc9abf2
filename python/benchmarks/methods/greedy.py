"""greedy, from the Penn Image Computing and Science Laboratory: pip install picsl-greedy."""

from functools import partial

from . import Job, Method


def _version() -> str:
    from importlib.metadata import version

    import picsl_greedy  # noqa: F401  (fails where it cannot run)

    return version("picsl-greedy")


def _register(deformable: bool, fine: bool, job: Job) -> None:
    from picsl_greedy import Greedy3D

    metric = "NMI" if job.two_modalities else "NCC 2x2x2"
    common = f"-i {job.fixed} {job.moving} -threads {job.threads} -m {metric}"
    affine = deformation = "-n 100x50x10"
    if fine:
        import SimpleITK as sitk  # here, so that plain greedy does not pay for the import

        reader = sitk.ImageFileReader()
        reader.SetFileName(str(job.fixed))
        reader.ReadImageInformation()
        # a quarter of a small image is too little for the coarsest level
        small = min(reader.GetSize()) < 64
        affine, deformation = ("-n 100x100", "-n 100x100") if small else (affine, "-n 100x100x30")
        deformation += " -s 1.732vox 0.3vox"
    greedy = Greedy3D()
    greedy.execute(f"{common} {affine} -a -ia-image-centers -o {job.folder}/affine.mat")
    if deformable:
        greedy.execute(
            f"{common} {deformation} -it {job.folder}/affine.mat -o {job.folder}/warp.nii.gz"
        )


def _field(job: Job):
    import SimpleITK as sitk
    from picsl_greedy import Greedy3D

    chain = [
        str(path)
        for path in (job.folder / "warp.nii.gz", job.folder / "affine.mat")
        if path.exists()
    ]
    Greedy3D().execute(f"-rf {job.fixed} -rc {job.folder}/total.mha -r {' '.join(chain)}")
    return sitk.ReadImage(f"{job.folder}/total.mha")


METHODS = [
    Method(
        "greedy-affine",
        "affine from the image centres, by NCC 2x2x2 (NMI for two modalities), 100x50x10"
        " iterations: the settings of its tutorial",
        _version,
        partial(_register, False, False),
        _field,
    ),
    Method(
        "greedy",
        "affine from the image centres, then deformable, both by NCC 2x2x2 (NMI for two modalities:"
        " it has no MIND), 100x50x10 iterations: the settings of its tutorial",
        _version,
        partial(_register, True, False),
        _field,
    ),
    Method(
        "greedy-fine",
        "the same with more iterations, 100x100x30, and less smoothing of the field, 0.3 voxels in"
        " place of 0.7; small images on two levels instead of three: the best that we found for it"
        " on a few of these pairs",
        _version,
        partial(_register, True, True),
        _field,
    ),
]
