"""Registers a study list: many pairs of files, one after the other, each with its own result.

>>> from MorphSeekLib.batch import run
>>> rows = run("study.csv", "results", preset="MR <- CT", show=print)
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any, Callable

from .registration import RegistrationError, register
from .request import RegistrationRequest

IMAGES = (
    "fixed", "moving", "fixed_mask", "moving_mask", "rigid_regions", "fixed_labels",
    "moving_labels",
)  # fmt: skip
ENDINGS = {
    "transformed_volume": ".nii.gz",
    "transform": ".h5",
    "inverse_transform": "-inverse.h5",
    "displacement_magnitude": "-magnitude.nii.gz",
    "jacobian": "-jacobian.nii.gz",
    "uncertainty": "-uncertainty.nii.gz",
}
"""The ending of each output's file name."""
LABELS, LANDMARKS = "-labels.nii.gz", "-landmarks.mrk.json"
"""The endings of the file names of transferred nodes."""
RESULTS = (
    "name",
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
    """Register every row of a study list.

    Parameters
    ----------
    study : path
        CSV with the columns fixed and moving and, optionally, name, fixed_mask, moving_mask,
        rigid_regions, fixed_labels, moving_labels (label maps) and landmarks (.mrk.json, of the
        moving side). Paths are relative to the file.
    out : path
        Folder. Each row writes its outputs as NAME with ENDINGS: NAME.nii.gz (transformed volume)
        and NAME.h5 (transform) unless `fields` says otherwise. Labels and landmarks, if given,
        become NAME-labels.nii.gz and NAME-landmarks.mrk.json. results.csv has a line for every row.
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
    ValueError
        The list lacks a column, a name occurs twice or cannot be a file name, or two rows would
        write one file.
    """
    study, out = Path(study), Path(out)
    with open(study, newline="", encoding="utf-8-sig") as file:
        pairs = list(csv.DictReader(file))
    if not pairs or not {"fixed", "moving"} <= pairs[0].keys():
        raise ValueError(
            f"{study} needs a header with the columns fixed and moving, and at least one row"
        )
    names = [
        pair.get("name") or f"{i:03d}-{_stem(pair['moving'] or '')}-to-{_stem(pair['fixed'] or '')}"
        for i, pair in enumerate(pairs, 1)
    ]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{study} has the name {', '.join(sorted(twice))} more than once")
    if odd := next(
        (
            name
            for name in names
            # one of a formula would be another in results.csv
            if name.startswith((".", "=", "+", "-", "@"))
            or any(c in '/\\:*?"<>|' or ord(c) < 32 for c in name)
        ),
        None,
    ):
        raise ValueError(f"{study} has the name {odd!r}, which is no name for files")
    owners: dict[str, str] = {}
    for name in names:
        for ending in (*ENDINGS.values(), LABELS, LANDMARKS):
            if owners.setdefault(name + ending, name) != name:
                raise ValueError(
                    f"{study}: {owners[name + ending]} and {name} would both write {name}{ending};"
                    " give one another name"
                )
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, pair in zip(names, pairs):
        paths = {
            key: study.parent / value
            for key, value in pair.items()
            if key in (*IMAGES, "landmarks") and value
        }
        rows.append({"name": name, **_row(paths, out / name, fields)})
        row = rows[-1]
        finished = (
            "{verdict}, similarity {similarity_before:.3f} -> {similarity_after:.3f},"
            " {seconds:.1f} s"
        )
        show(f"{name}: {row['error'] or finished.format(**row)}")
        with open(out / "results.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, RESULTS, restval="")
            table.writeheader()
            table.writerows({name: _harmless(cell) for name, cell in row.items()} for row in rows)
    return rows


def _harmless(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula; numbers are unchanged."""
    formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@"))
    return f"'{cell}" if formula else cell


def _row(paths: dict[str, Path], target: Path, fields: dict[str, Any]) -> dict[str, Any]:
    import slicer

    scene = slicer.vtkMRMLScene()  # a separate one, so that the pairs do not fill the user's scene
    try:
        nodes = {
            key: load(
                scene,
                path,
                (
                    "vtkMRMLScalarVolumeNode"
                    if key in ("fixed", "moving")
                    else "vtkMRMLLabelMapVolumeNode"
                ),
            )
            for key, path in paths.items()
            if key in IMAGES
        }
        landmarks = (
            [load(scene, paths["landmarks"], "vtkMRMLMarkupsFiducialNode")]
            if "landmarks" in paths
            else []
        )
        labels = [nodes["moving_labels"]] if "moving_labels" in nodes else []
        if "fixed_labels" not in nodes:
            nodes.pop("moving_labels", None)  # only carried over: Dice needs the fixed labels
        done = register(
            RegistrationRequest(**nodes, transfer=[*labels, *landmarks], **fields), scene=scene
        )
        files = {ENDINGS[output]: done.nodes[output] for output in ENDINGS if output in done.nodes}
        endings = [LABELS] * len(labels) + [LANDMARKS] * len(landmarks)
        files |= zip(endings, done.nodes.get("transferred", ()))
        with tempfile.TemporaryDirectory(prefix=".morphseek-", dir=target.parent) as folder:
            for ending, node in files.items():
                save(node, Path(folder, f"{target.name}{ending}"))
            for path in Path(folder).iterdir():
                path.replace(target.parent / path.name)
    except (RegistrationError, ValueError, OSError) as error:
        return {"error": str(error)}
    found = {key: done.result[key] for key in RESULTS if key in done.result}
    return {
        "error": "",
        **found,
        **_verdict(done.result),
        "seconds": done.result["seconds"]["total"],
    }


def _verdict(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict's three columns."""
    verdict = metrics.get("verdict") or {}
    if not verdict.get("grade"):  # from an older package
        return {"verdict": "unknown", "error_mm": "", "reasons": ""}
    return {
        "verdict": verdict["grade"],
        "error_mm": verdict["error_mm"],
        "reasons": " | ".join(verdict["reasons"]),
    }


def load(scene: Any, path: str | Path, kind: str) -> Any:
    """Read a file into a new node of that class, by the class's own storage node. Raises
    OSError.
    """
    import slicer

    node = scene.AddNode(getattr(slicer, kind)())
    node.SetName(_stem(path))
    storage = scene.AddNode(_storage(node))
    storage.SetFileName(str(path))
    if not Path(path).is_file() or not storage.ReadData(node):
        raise OSError(f"{path} cannot be read")
    return node


def save(node: Any, path: str | Path) -> None:
    """Write a node to a file by its class's own storage node. Raises OSError."""
    storage = _storage(node)
    storage.SetFileName(str(path))
    if not storage.WriteData(node):
        raise OSError(f"{path} cannot be written")


def _storage(node: Any) -> Any:
    import slicer

    # A new scene lacks the node classes that modules registered with the application's scene.
    return (
        slicer.vtkMRMLMarkupsJsonStorageNode()
        if node.IsA("vtkMRMLMarkupsNode")
        else node.CreateDefaultStorageNode()
    )


def _stem(path: str | Path) -> str:
    return Path(path).name.split(".")[0]
