"""MorphSeek, by its default options: affine, then the search where the images match badly, then the
refinement.
"""

from . import Job, Method


def _version() -> str:
    """Return the version and a digest of the compiled engine, because a version in development is
    built many times.
    """
    import hashlib
    from pathlib import Path

    import morphseek

    digest = hashlib.sha256()
    for library in sorted(Path(morphseek.__file__).parent.glob("_native/*.so")):
        digest.update(library.read_bytes())
    return f"{morphseek.__version__} ({digest.hexdigest()[:8]})"


def _register(job: Job) -> None:
    import morphseek

    result = morphseek.register(job.fixed, job.moving, threads=job.threads, device="cpu")
    result.transform.save(job.folder / "transform.h5")


METHODS = [Method("morphseek-default", _version, _register)]
