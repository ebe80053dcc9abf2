"""Registrations onto a template as a BIDS derivative dataset: the names that fMRIPrep gives."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import _files, _json, _manifest, errors
from .._engine import core
from .._plain import why_no_name
from .._tables import csv_text
from ..images.named import is_name
from ..result import LABELS_BACK, Registration
from ..verdict import GRADES
from .bids import BidsName
from .study import Study
from .table import Item

_BIDS = "1.10.0"
_COLUMNS = (
    "participant_id", "session_id", "image", "verdict", "error_mm", "reasons", "njd_percent",
    "dice_before", "dice_after",
)  # fmt: skip
_LABELS = {"warped_labels.nii.gz": "space-{space}_dseg", LABELS_BACK: "desc-{space}_dseg"}
_TRANSFORM = "_mode-image_xfm"
_PATIENCE = 600.0  # seconds, with calls that write other images of a session
_KINDS = ("anat", "dwi", "fmap", "func", "perf", "pet")


def space_of(template: str | os.PathLike[str]) -> str:
    """Return what BIDS names call a template's space: letters and digits of its name.

    >>> space_of("tpl-MNI152NLin2009cAsym_res-01_T1w.nii.gz")
    'MNI152NLin2009cAsym'
    >>> space_of("our template.nii.gz")
    'ourtemplate'
    >>> space_of("templateflow:MNI152NLin2009cAsym:res-2")
    'MNI152NLin2009cAsym'
    """
    if is_name(template):
        return re.sub(r"[^0-9A-Za-z]", "", os.fspath(template).split(":")[1])
    name = Path(template).name.removeprefix("tpl-")
    found = re.match(r"[0-9A-Za-z+]+(?=_|$)", name)  # before the entities
    return found[0] if found else re.sub(r"[^0-9A-Za-z]", "", name.partition(".")[0]) or "template"


def check_space(space: str, items: Iterable[Item]) -> None:
    """Refuse the name of a space that makes no names of files.

    Raises
    ------
    InvalidArgumentError
    """
    if not re.fullmatch(r"[0-9A-Za-z+]+", space):
        raise errors.InvalidArgumentError(
            f"space {space!r}: names in BIDS have letters and digits alone; give such as MNI152"
        )
    for name in filter(None, (BidsName.of(item.image) for item in items)):
        if reason := why_no_name(f"{_stem(name)}_from-{space}_to-{name.suffix}{_TRANSFORM}.json"):
            raise errors.InvalidArgumentError(
                f"space {space!r}: of {name.path.name} it makes no name of a file: {reason}; give"
                " such as MNI152"
            )


def write_derivatives(
    items: Iterable[Item],
    study: Study,
    work: str | os.PathLike[str],
    out: str | os.PathLike[str],
    space: str,
    template: str,
) -> list[Path]:
    """Write the registrations onto one template as a BIDS derivative dataset.

    Parameters
    ----------
    items : iterable of Item
        As :func:`find_bids` returns them; each is a pair of `study`.
    study : Study
        Of :func:`register_pairs` with the folder `work`.
    out : path
        The dataset: ``sub-01/anat/sub-01_from-T1w_to-SPACE_mode-image_xfm.h5``, which brings the
        image onto the template; the one from SPACE to T1w, which goes back; the image and its
        labels in ``space-SPACE``; the template's labels on the image as ``desc-SPACE_dseg``; the
        pair's page as ``sub-01.html``. Files of an earlier run that are still right are kept.
    space : str
        What names call the template.
    template : str
        For the descriptions.

    Returns
    -------
    list of Path
        The transforms onto the template.

    Raises
    ------
    InvalidArgumentError
        The space makes no names of files.
    OutputUnwritableError
        A file cannot be written.

    Examples
    --------
    >>> os.makedirs("study/sub-01/anat")
    >>> _ = Path("moving.nii.gz").rename("study/sub-01/anat/sub-01_T1w.nii.gz")
    >>> items = studies.find_bids("study")
    >>> pairs = studies.pairs_to(items, "fixed.nii.gz")
    >>> study = morphseek.register_pairs(pairs, "work", refine=0, search=False)
    >>> paths = studies.write_derivatives(items, study, "work", "out", "Mine", "fixed.nii.gz")
    >>> [path.name for path in paths]
    ['sub-01_from-T1w_to-Mine_mode-image_xfm.h5']
    """
    work, out, listed = Path(work), Path(out), list(items)
    check_space(space, listed)
    _describe(out)
    rows = {row.id: row for row in study.rows}
    return [
        _write_one(name, work / item.id, out, space, template)
        for item in listed
        if (row := rows.get(item.id)) is not None and not row.error
        and (name := BidsName.of(item.image)) is not None
    ]  # fmt: skip


def _stem(name: BidsName) -> str:
    """Return what an image's outputs are called by."""
    kept = {k: v for k, v in name.entities.items() if k not in ("space", "desc")}
    return "_".join(f"{key}-{value}" for key, value in kept.items())


def _describe(out: Path) -> None:
    """Write dataset_description.json of a derivative dataset, where there is none."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "dataset_description.json"
    if not path.exists():
        told = {
            "Name": "MorphSeek: registrations onto a template",
            "BIDSVersion": _BIDS,
            "DatasetType": "derivative",
            "GeneratedBy": [{"Name": "MorphSeek", "Version": core.version()}],
        }
        _files.write_text(path, json.dumps(told, indent=2) + "\n")
    if not (out / ".bidsignore").exists():
        _files.write_text(out / ".bidsignore", "*.html\nwork/\ngroup_xfm.tsv\n")


def _write_one(name: BidsName, pair: Path, out: Path, space: str, template: str) -> Path:
    """Write one image's files: all of them or none, so that a verdict always stands beside the
    transform that it is of.
    """
    kind = name.path.parent.name
    kind = kind if kind in _KINDS else "anat"
    folder = out / name.subject / name.session / kind
    stem = _stem(name)
    there = f"{stem}_from-{name.suffix}_to-{space}{_TRANSFORM}"
    back = f"{stem}_from-{space}_to-{name.suffix}{_TRANSFORM}"
    files = {f"{there}.h5": "transform.h5",
             f"{stem}_space-{space}_{name.suffix}.nii.gz": "warped.nii.gz"}  # fmt: skip
    for file, ending in _LABELS.items():
        files[f"{stem}_{ending.format(space=space)}.nii.gz"] = file
    own = [*files, f"{back}.h5", f"{there}.json"]
    listed = _json.read_object(pair / _manifest.REPORT, "result").get(_manifest.KEY, {})
    sources = {target: listed[source] for target, source in files.items() if source in listed}
    if not _is_written(folder, f"{there}.json", f"{back}.h5", sources):
        result = Registration.read(pair)
        with _files.output_folder(folder, ours=own, patience=_PATIENCE) as temporary:
            for target in sources:
                _put(pair / files[target], temporary / target)
            result.inverse().save(temporary / f"{back}.h5")
            facts = {**_facts(result), "Template": template, "Space": space, "Files": sources}
            _files.write_text(temporary / f"{there}.json", json.dumps(facts, indent=2) + "\n")
    if (pair / "report.html").exists():
        _put(pair / "report.html", out / f"{stem}.html")
    return folder / f"{there}.h5"


def _is_written(folder: Path, sidecar: str, back: str, sources: dict[str, Any]) -> bool:
    """Whether a folder has an image's files, as the description beside them says."""
    _files.settle(folder)
    try:
        known = _json.read_object(folder / sidecar, "sidecar").get("Files")
    except errors.InputUnreadableError:
        return False
    return (
        known == sources and (folder / back).is_file()
        and all(_manifest.is_same(folder / name, entry) for name, entry in sources.items())
    )  # fmt: skip


def _facts(result: Registration) -> dict[str, Any]:
    metrics, verdict = result.metrics, result.verdict
    return {
        "Verdict": verdict.grade if verdict else "unknown",
        "Reasons": list(verdict.reasons) if verdict else [],
        "EstimatedError": verdict.error_mm if verdict else None,
        "FoldedVoxelsPercent": metrics["njd_percent"],
        "DiceBefore": metrics.get("dice_before"),
        "DiceAfter": metrics.get("dice_after"),
        "Units": "mm",
        "Options": result.options,
    }


def _put(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the disk cannot."""
    if target.exists() and os.path.samefile(source, target):
        return

    def link(temporary: Path) -> None:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)

    _files.write_with(link, target)


def write_group(out: str | os.PathLike[str]) -> Path:
    """Write ``group_xfm.tsv``: a row for every transform onto a template in a derivative dataset,
    worst verdict first. Return its path.

    Raises
    ------
    InputUnreadableError
        There is no transform, or a description beside one is damaged.

    Examples
    --------
    >>> told = {"Verdict": "good", "EstimatedError": 0.4, "Reasons": [], "FoldedVoxelsPercent": 0.0,
    ...         "DiceBefore": None, "DiceAfter": None}
    >>> os.makedirs("derivatives/sub-01/anat")
    >>> name = "derivatives/sub-01/anat/sub-01_from-T1w_to-Mine_mode-image_xfm.json"
    >>> _ = Path(name).write_text(json.dumps(told))
    >>> studies.write_group("derivatives").name
    'group_xfm.tsv'
    """
    out = Path(out)
    rows = [_row(path) for path in sorted(out.glob(f"sub-*/**/*{_TRANSFORM}.json"))]
    if not rows:
        raise errors.InputUnreadableError(
            f"{out} has no transform onto a template; run the level participant first"
        )
    cells = (
        {k: "n/a" if v in (None, "") else v for k, v in row.items()}
        for row in sorted(rows, key=_worst_first)
    )
    path = out / "group_xfm.tsv"
    _files.write_text(path, csv_text(_COLUMNS, cells, "\t"))
    return path


def _row(path: Path) -> dict[str, Any]:
    """Return what the description of a transform says, checked."""
    told = _json.read_object(path, "description")
    entities = dict(part.partition("-")[::2] for part in path.stem.split("_")[:-1])
    figures = {
        "error_mm": "EstimatedError",
        "njd_percent": "FoldedVoxelsPercent",
        "dice_before": "DiceBefore",
        "dice_after": "DiceAfter",
    }
    try:
        row = {
            "participant_id": f"sub-{entities['sub']}",
            "session_id": f"ses-{entities['ses']}" if "ses" in entities else "n/a",
            "image": path.stem,
            "verdict": told["Verdict"],
            "reasons": " ".join(told["Reasons"]),
            **{column: told[name] for column, name in figures.items()},
        }
        if not isinstance(row["verdict"], str):
            raise TypeError("Verdict")
        for column, name in figures.items():
            if isinstance(row[column], bool) or not isinstance(
                row[column], (int, float, type(None))
            ):
                raise TypeError(name)
    except (KeyError, TypeError) as error:
        raise errors.InputUnreadableError(
            f"{path} is no description of a transform ({error!r}); remove it, and run the"
            " participant level again"
        ) from None
    return row


def _worst_first(row: dict[str, Any]) -> tuple[int, float]:
    grades = [*reversed(GRADES)]
    grade = row["verdict"]
    return grades.index(grade) if grade in grades else len(grades), -(row["error_mm"] or 0.0)
