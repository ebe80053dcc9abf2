"""Loads the package's made-up pair as nodes: a fixed MR-like and a moving CT-like torso that differ
in pose, size, grid and shape, with ten organs each.
"""

from __future__ import annotations

import colorsys
import json
import tempfile
from pathlib import Path
from typing import Any, Callable

from . import process

VOLUMES = {"fixed": "Torso MR", "moving": "Torso CT"}
LABELS = {"fixed_labels": "Torso MR organs", "moving_labels": "Torso CT organs"}

# Runs in a process of its own, as every registration does.
_MAKE = """
import json, sys
from pathlib import Path
from morphseek import images, phantom
pair = phantom.make_pair()
for name in sys.argv[2:]:
    images.write(Path(sys.argv[1], name + ".nrrd"), getattr(pair, name))
print(json.dumps(list(phantom.LABELS.values())))
"""


def load(volume: Callable[..., Any], labels: Callable[..., Any]) -> list[Any]:
    """Compute the pair and load it by Slicer's functions `volume` and `labels`; return the nodes.
    Raises RuntimeError if the Python package is not installed or does not run.
    """
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder:
        try:
            organs = json.loads(process.run("-c", _MAKE, folder, *VOLUMES, *LABELS))
        except RuntimeError as error:
            raise RuntimeError(
                f"{error}. Open the module MorphSeek: its first lines say what to do"
            ) from None
        nodes = [
            read(str(Path(folder, f"{name}.nrrd")), {"name": title})
            for read, names in ((volume, VOLUMES), (labels, LABELS))
            for name, title in names.items()
        ]
    name_labels(nodes[2:], organs)
    return nodes


def name_labels(nodes: list[Any], names: list[str]) -> None:
    """Give label maps one table of colours, which names their labels, from 1 on."""
    colors = nodes[0].GetScene().AddNewNodeByClass("vtkMRMLColorTableNode", "Torso organs")
    colors.SetTypeToUser()
    colors.SetNumberOfColors(len(names) + 1)
    colors.SetColor(0, "background", 0.0, 0.0, 0.0, 0.0)
    for number, name in enumerate(names, 1):
        colors.SetColor(number, name, *colorsys.hsv_to_rgb(number / len(names), 0.6, 0.9), 1.0)
    for node in nodes:
        node.CreateDefaultDisplayNodes()
        node.GetDisplayNode().SetAndObserveColorNodeID(colors.GetID())
