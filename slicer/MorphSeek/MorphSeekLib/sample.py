"""Loads the package's made-up pair as nodes: a fixed MR-like and a moving CT-like torso that differ
in pose, size, grid and shape, with ten organs each.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable

from .process import HIDDEN, python

VOLUMES = {"fixed": "Torso MR", "moving": "Torso CT"}
LABELS = {"fixed_labels": "Torso MR organs", "moving_labels": "Torso CT organs"}

# Runs in a process of its own, as every registration does.
_MAKE = """
import sys
from pathlib import Path
from morphseek import images, phantoms
pair = phantoms.make_pair()
for name in sys.argv[2:]:
    images.write(Path(sys.argv[1], name + ".nrrd"), getattr(pair, name))
"""


def load(volume: Callable[..., Any], labels: Callable[..., Any]) -> list[Any]:
    """Compute the pair and load it by Slicer's functions `volume` and `labels`; return the nodes.

    Raises
    ------
    RuntimeError
        The Python package is not installed or does not run.
    """
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder:
        done = subprocess.run(
            [python(), "-c", _MAKE, folder, *VOLUMES, *LABELS],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            **HIDDEN,
        )
        if done.returncode:
            said = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
            raise RuntimeError(f"{said}. Open the module MorphSeek: its first lines say what to do")
        return [
            read(str(Path(folder, f"{name}.nrrd")), {"name": title})
            for read, names in ((volume, VOLUMES), (labels, LABELS))
            for name, title in names.items()
        ]
