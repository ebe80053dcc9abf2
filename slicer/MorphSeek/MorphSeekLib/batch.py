"""Registers a list of pairs of files, one after the other, each with its own result.

>>> from MorphSeekLib.batch import run
>>> rows = run("study.csv", "results", preset="MR with CT", show=print)
"""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path
from typing import Any, Callable

from . import process
from .registration import RegistrationError, register
from .request import RegistrationRequest

KINDS = {
    **dict.fromkeys(("fixed", "moving"), "vtkMRMLScalarVolumeNode"),
    **dict.fromkeys(
        ("fixed_mask", "moving_mask", "rigid_regions", "fixed_labels", "moving_labels"),
        "vtkMRMLLabelMapVolumeNode",
    ),
    "moving_landmarks": "vtkMRMLMarkupsFiducialNode",
}
"""The columns of a list, beside id, and the class of each."""
TRANSFERRED = {"moving_labels": "labels.nii.gz", "moving_landmarks": "landmarks.mrk.json"}
TRANSFORMS = ("transform", "inverse_transform")
RESULTS = (
    "id",
    "error",
    "verdict",
    "error_mm",
    "reasons",
    "similarity_before",
    "similarity_after",
    "dice_before",
    "dice_after",
    "njd_percent",
    "seconds",
)


def run(
    study: str | Path,
    out: str | Path,
    show: Callable[[str], Any] = lambda line: None,
    **fields: Any,
) -> list[dict[str, Any]]:
    """Register every row of a list.

    Parameters
    ----------
    study : path
        A table that ``morphseek pairs`` reads, too, with the columns fixed and moving and,
        optionally, id and the others of KINDS. Paths are relative to the file; masks, labels and
        rigid regions are label maps, landmarks a .mrk.json file.
    out : path
        Folder. Each row writes its outputs into a folder of its id: transformed_volume.nii.gz and
        transform.h5 unless `fields` says otherwise, and what moves along as TRANSFERRED says.
        results.csv has a line for every row.
    show : callable
        Called with one line of text for each row.
    fields
        Fields of RegistrationRequest, for every row: preset="Abdomen CT", refine=20, ...

    Returns
    -------
    list of dict
        The columns RESULTS for every row. A row that fails has an error and no files; the others go
        on.

    Raises
    ------
    RuntimeError, ValueError
        The list cannot be read, or has a column that this function does not know.
    """
    pairs, out = process.ask("--pairs", str(study))["pairs"], Path(out)
    if strange := set().union(*pairs) - {"id", *KINDS}:
        raise ValueError(f"{study}: in Slicer a list cannot have {', '.join(sorted(strange))}")
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for pair in pairs:
        name = pair.pop("id")
        rows.append({"id": name, **_row(pair, out / name, fields)})
        finished = (
            "{verdict}, similarity {similarity_before:.3f} -> {similarity_after:.3f},"
            " {seconds:.1f} s"
        )
        show(f"{name}: {rows[-1]['error'] or finished.format(**rows[-1])}")
        with open(out / "results.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, RESULTS, restval="")
            table.writeheader()
            table.writerows({name: _harmless(cell) for name, cell in row.items()} for row in rows)
    return rows


def _harmless(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula; numbers are unchanged."""
    formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@"))
    return f"'{cell}" if formula else cell


def _row(paths: dict[str, str], target: Path, fields: dict[str, Any]) -> dict[str, Any]:
    import slicer

    scene = slicer.vtkMRMLScene()  # a separate one, so that the pairs do not fill the user's scene
    try:
        nodes = {key: load(scene, path, KINDS[key]) for key, path in paths.items()}
        carried = {file: nodes[key] for key, file in TRANSFERRED.items() if key in nodes}
        nodes.pop("moving_landmarks", None)
        if "fixed_labels" not in nodes:
            nodes.pop("moving_labels", None)  # only carried over: Dice needs the fixed labels
        request = RegistrationRequest(**nodes, transfer=list(carried.values()), **fields)
        done = register(request, scene=scene)
        transferred = zip(carried, done.nodes.pop("transferred", ()))
        files = [
            (f"{name}{'.h5' if name in TRANSFORMS else '.nii.gz'}", node)
            for name, node in done.nodes.items()
        ]
        with tempfile.TemporaryDirectory(prefix=".morphseek-", dir=target.parent) as folder:
            for file, node in (*files, *transferred):
                save(node, Path(folder, file))
            target.mkdir(exist_ok=True)
            for path in Path(folder).iterdir():
                path.replace(target / path.name)
    except (RegistrationError, ValueError, OSError) as error:
        return {"error": str(error)}
    return {
        "error": "",
        **{key: done.result[key] for key in RESULTS if key in done.result},
        "verdict": done.verdict["grade"],
        "error_mm": done.result["verdict"]["error_mm"],
        "reasons": " | ".join(done.verdict["reasons"]),
        "seconds": done.result["seconds"]["total"],
    }


def load(scene: Any, path: str | Path, kind: str) -> Any:
    """Read a file into a new node of that class, by the class's own storage node. Raises
    OSError.
    """
    import slicer

    if kind.startswith("vtkMRMLMarkups") and (count := _lists(path)) > 1:
        raise OSError(f"{path} holds {count} lists of points; save one alone")
    node = scene.AddNode(getattr(slicer, kind)())
    node.SetName(Path(path).name.split(".")[0])
    storage = scene.AddNode(_storage(node))
    storage.SetFileName(str(path))
    if not Path(path).is_file() or not storage.ReadData(node):
        points = "a .mrk.json file with a list of points"
        raise OSError(
            f"{path} cannot be read: give {points if _is_markups(node) else 'a file of one volume'}"
        )
    return node


def _lists(path: str | Path) -> int:
    """Return how many lists of points a .mrk.json has; 0 for what is none."""
    try:
        return len(json.loads(Path(path).read_text(encoding="utf-8"))["markups"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def save(node: Any, path: str | Path) -> None:
    """Write a node to a file by its class's own storage node. Raises OSError."""
    storage = _storage(node)
    storage.SetFileName(str(path))
    if not storage.WriteData(node):
        raise OSError(f"{path} cannot be written")


def _is_markups(node: Any) -> bool:
    return bool(node.IsA("vtkMRMLMarkupsNode"))


def _storage(node: Any) -> Any:
    import slicer

    # A new scene lacks the node classes that modules registered with the application's scene.
    return (
        slicer.vtkMRMLMarkupsJsonStorageNode()
        if _is_markups(node)
        else node.CreateDefaultStorageNode()
    )
