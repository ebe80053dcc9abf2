"""MorphSeek: its stages one after the other, its presets, its hippocampus network, and its compiled
program.
"""

import shutil
import subprocess
from functools import partial
from typing import Any

from . import Job, Method

_PROGRAM = "MorphSeekRegistration"


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


def _register(options: dict[str, Any], job: Job) -> None:
    import morphseek

    result = morphseek.register(job.fixed, job.moving, threads=job.threads, device="cpu", **options)
    result.transform.save(job.folder / "transform.h5")


def _field(job: Job):
    import SimpleITK as sitk

    from .shared import as_field

    return as_field(sitk.ReadTransform(str(job.folder / "transform.h5")), job.fixed)


def _program_version() -> str:
    program = shutil.which(_PROGRAM)
    if program is None:
        raise FileNotFoundError(
            f"{_PROGRAM} is not on PATH (built by CMake wherever ITK is found; see plugin/)"
        )
    return subprocess.run(
        [program, "--version"], check=True, capture_output=True, text=True
    ).stdout.split()[-1]


def _run_program(job: Job) -> None:
    command = [
        _PROGRAM,
        job.fixed,
        job.moving,
        "--output-transform",
        job.folder / "transform.h5",
        "--device",
        "cpu",
        "--threads",
        str(job.threads),
    ]
    subprocess.run(command, check=True)


def _method(name: str, how: str, only: str = "", **options: Any) -> Method:
    return Method(
        f"morphseek-{name}",
        how,
        _version,
        partial(_register, options),
        _field,
        ours=True,
        only=only,
    )


METHODS = [
    _method(
        "affine",
        "the initial transform alone: what the other stages add is the difference",
        model="none",
        search=False,
        refine=0,
    ),
    _method("refine", "affine, then the refinement on the pair", model="none", search=False),
    _method("search", "affine, then the discrete search", model="none", search=True, refine=0),
    _method("fast", "--preset fast", preset="fast"),
    _method(
        "default",
        "no option at all: affine, then the search where the images match badly, then the"
        " refinement",
    ),
    Method(
        "morphseek-program",
        f"no option at all, by the compiled program {_PROGRAM} (where it is on PATH): what a start"
        " without Python's libraries saves",
        _program_version,
        _run_program,
        _field,
        ours=True,
    ),
    _method("best", "--preset best", preset="best"),
    _method(
        "hippocampus",
        "--model hippocampus, trained on other people of the same source",
        only="hippocampus",
        model="hippocampus",
    ),
]
