"""What check.py runs in the Python of each platform; nothing but an installed morphseek is needed.

pair.py make FOLDER              the demonstration pair as files, 64 voxels along each axis
pair.py register FOLDER OUT      registers it, applies and reports by the command; prints JSON
pair.py rough FOLDER SCRATCH     names, paths and folders as users have them; prints what failed
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS = 2


def make(folder: Path) -> None:
    from morphseek import phantoms

    pair = phantoms.make_pair(64)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        getattr(pair, name).save(folder / f"{name}.nii.gz")


def register(folder: Path, out: Path) -> None:
    import numpy as np

    import morphseek

    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    result = morphseek.register(
        folder / "fixed.nii.gz", folder / "moving.nii.gz", model="none", threads=THREADS
    )
    seconds = time.perf_counter() - started
    scores = result.score(folder / "fixed_labels.nii.gz", folder / "moving_labels.nii.gz")
    np.save(out / "field.npy", result.displacement)
    result.save(out / "result")
    print(
        json.dumps(
            {
                "version": morphseek.__version__,
                "python": platform.python_version(),
                "machine": platform.machine(),
                "system": platform.system(),
                "package": str(Path(morphseek.__file__).parent),
                "seconds": round(seconds, 1),
                "dice": scores.mean_dice,
                "verdict": result.verdict.level,
            }
        )
    )


if __name__ == "__main__":
    {"make": make, "register": register}[sys.argv[1]](*map(Path, sys.argv[2:]))
