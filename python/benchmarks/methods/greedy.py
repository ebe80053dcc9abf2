"""greedy, from the Penn Image Computing and Science Laboratory: pip install picsl-greedy.

Affine from the image centres, then deformable, both by NCC 2x2x2 (NMI for two modalities: it has no
MIND), 100x50x10 iterations: the settings of its tutorial.
"""

from . import Job, Method


def _version() -> str:
    from importlib.metadata import version

    import picsl_greedy  # noqa: F401  (fails where it cannot run)

    return version("picsl-greedy")


def _register(job: Job) -> None:
    from picsl_greedy import Greedy3D

    metric = "NMI" if job.two_modalities else "NCC 2x2x2"
    greedy, matrix = Greedy3D(), f"{job.folder}/affine.mat"
    # a level shrinks all axes alike, and three are too many for a stack of few slices
    for levels in ("100x50x10", "100x50", "100"):
        common = f"-i {job.fixed} {job.moving} -threads {job.threads} -m {metric} -n {levels}"
        try:
            greedy.execute(f"{common} -a -ia-image-centers -o {matrix}")
            greedy.execute(f"{common} -it {matrix} -o {job.folder}/warp.nii.gz")
            return
        except RuntimeError:
            if levels == "100":
                raise


def _field(job: Job):
    import SimpleITK as sitk
    from picsl_greedy import Greedy3D

    total, chain = f"{job.folder}/total.mha", f"{job.folder}/warp.nii.gz {job.folder}/affine.mat"
    Greedy3D().execute(f"-rf {job.fixed} -rc {total} -r {chain}")
    return sitk.ReadImage(total)


METHODS = [Method("greedy", _version, _register, _field)]
