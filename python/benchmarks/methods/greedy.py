"""greedy, from the Penn Image Computing and Science Laboratory: pip install picsl-greedy."""

from functools import partial

from . import Job, Method


def _version() -> str:
    from importlib.metadata import version

    import picsl_greedy  # noqa: F401  (fails where it cannot run)

    return version("picsl-greedy")


def _level_less(text: str) -> str:
    """Return "-n 100x50" for "-n 100x50x10", other options as they are."""
    levels, *rest = text.removeprefix("-n ").split(" ", 1)
    return " ".join(["-n", levels.rpartition("x")[0] or levels, *rest])


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
    greedy, matrix = Greedy3D(), f"{job.folder}/affine.mat"
    # a level shrinks all axes alike, and three are too many for a stack of few slices
    for last in (False, False, True):
        try:
            greedy.execute(f"{common} {affine} -a -ia-image-centers -o {matrix}")
            if deformable:
                warp = f"-it {matrix} -o {job.folder}/warp.nii.gz"
                greedy.execute(f"{common} {deformation} {warp}")
            return
        except RuntimeError:
            if last:
                raise
            affine, deformation = map(_level_less, (affine, deformation))


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
