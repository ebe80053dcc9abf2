"""Registrations onto a template as a BIDS derivative dataset: the names that fMRIPrep gives."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .. import _files, _json, _manifest, errors
from .._engine import core
from .._engine.generated import Options, Unpack
from .._engine.options import checked_options
from .._tables import bids_text
from ..images.named import is_name
from ..result import LABELS_BACK, Registration
from ..verdict import rank
from .bids import BidsName
from .pairs import Running, deciding, files_of, register_pairs
from .plan import pairs_to
from .runner import FINISHED, PATIENCE, content_of, digest
from .study import SEAL, PairRow, Study, row_of
from .table import Item

_BIDS = "1.10.0"
_COLUMNS = (
    "participant_id", "session_id", "image", "verdict", "error_mm", "reasons", "njd_percent",
    "dice_before", "dice_after",
)  # fmt: skip
_TRANSFORM = "_mode-image_xfm"
_SIDES = {"fixed": "template", "moving": "image"}
_ERROR = "error"  # in the table, instead of a verdict
#: Columns of a row, and what a description calls them.
_FIGURES = {
    "verdict": "Verdict",
    "reasons": "Reasons",
    "error_mm": "EstimatedError",
    "njd_percent": "FoldedVoxelsPercent",
    "dice_before": "DiceBefore",
    "dice_after": "DiceAfter",
}
_README = (
    "Images registered onto a template by MorphSeek (morphseek bids). The transforms' JSON files"
    " hold the verdicts; group_xfm.tsv has a row for each.\n"
)
#: Transforms are no part of BIDS yet (BEP014); the pages and the registrations never will be.
_IGNORED = "*_xfm.*\n*.html\nwork\nwork/**\n"
_KINDS = ("anat", "dwi", "fmap", "func", "perf", "pet")


def space_of(template: str | os.PathLike[str]) -> str:
    """Return the name of a template's space in BIDS: letters and digits of its name.

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
    match = re.match(r"[0-9A-Za-z+]+(?=_|$)", name)  # before the entities
    return match[0] if match else re.sub(r"[^0-9A-Za-z]", "", name.partition(".")[0]) or "template"


def register_bids(
    items: Iterable[Item],
    template: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    space: str = "",
    labels: str | os.PathLike[str] | None = None,
    mask: str | os.PathLike[str] | None = None,
    work: str | os.PathLike[str] | None = None,
    resume: bool = True,
    **how: Unpack[Running],
) -> tuple[Study, list[Path]]:
    """Register images of a BIDS dataset onto a template, and write a BIDS derivative dataset.

    Parameters
    ----------
    items : iterable of Item
        As :func:`find_bids` returns them.
    template, labels, mask
        Of :func:`pairs_to`. With labels, they are carried back to each image, too.
    out : path
        The dataset: ``sub-01/anat/sub-01_from-T1w_to-SPACE_mode-image_xfm.h5``, which brings the
        image onto the template; the one from SPACE to T1w, which goes back; the image and its
        labels in ``space-SPACE``; the template's labels on the image as
        ``space-T1w_desc-SPACE_dseg``; the pair's page as ``sub-01_from-T1w_to-SPACE.html``. Files
        of an earlier run that are still right are kept.
    space : str
        What names call the template: letters and digits. By default read off its file's name.
    work : path, optional
        Folder of the registrations, by default ``out/work``: those onto a space are in its folder
        ``from-T1w_to-SPACE``, of :func:`register_pairs`.
    resume : bool
        False does finished registrations again, and replaces results of other inputs, options or
        another version, which are refused else.
    **how
        workers, scheduler, report, progress and options, of :func:`register_pairs`.

    Returns
    -------
    Study, list of Path
        The registrations, and the transforms onto the template.

    Raises
    ------
    InvalidArgumentError
        Before the work: the space makes no names of files; or an image's result lies there that is
        of other inputs, options or another version.
    OutputUnwritableError
        A file cannot be written.

    Examples
    --------
    >>> os.makedirs("study/sub-01/anat")
    >>> _ = Path("moving.nii.gz").rename("study/sub-01/anat/sub-01_T1w.nii.gz")
    >>> study, paths = studies.register_bids(
    ...     studies.find_bids("study"), "fixed.nii.gz", "out", space="Mine", refine=0, search=False
    ... )
    >>> [path.name for path in paths]
    ['sub-01_from-T1w_to-Mine_mode-image_xfm.h5']
    """
    pairs = pairs_to(items, template, labels=labels, mask=mask)
    options = {name: value for name, value in how.items() if name in Options.__annotations__}
    dataset = Dataset(Path(out), space or space_of(template), options, not resume, pairs)
    dataset.check()
    suffixes = {name.suffix for pair in pairs if (name := BidsName.of(pair["moving"]))}
    folder = Path(out) / "work" if work is None else Path(work)
    folder /= f"from-{'+'.join(sorted(suffixes))}_to-{dataset.space}"
    study = register_pairs(pairs, folder, resume=resume, labels_back=labels is not None, **how)
    return study, dataset.write(study, folder)


class _Image:
    """An image of a dataset, with the names of its files there."""

    def __init__(self, out: Path, space: str, pair: Mapping[str, Any], name: BidsName):
        self.pair, self.name = pair, name
        kind = name.path.parent.name
        self.folder = out / name.subject / name.session / (kind if kind in _KINDS else "anat")
        kept = [f"{k}-{v}" for k, v in name.entities.items() if k not in ("space", "desc")]
        stem = "_".join(kept)
        there = f"{stem}_from-{name.suffix}_to-{space}"
        self.page = out / f"{there}.html"
        self.transform = f"{there}{_TRANSFORM}.h5"
        self.inverse = f"{stem}_from-{space}_to-{name.suffix}{_TRANSFORM}.h5"
        self.sidecar = f"{there}{_TRANSFORM}.json"  # which lists the other files
        self.stripped = f"{stem}_space-{space}_{name.suffix}.json"
        # those that its registration has, and what they are called there
        self.files = {
            self.transform: "transform.h5",
            f"{stem}_space-{space}_{name.suffix}.nii.gz": "warped.nii.gz",
            f"{stem}_space-{space}_desc-{name.suffix}_dseg.nii.gz": "warped_labels.nii.gz",
            f"{stem}_space-{name.suffix}_desc-{space}_dseg.nii.gz": LABELS_BACK,
        }


class Dataset:
    """A derivative dataset of one template: a space."""

    def __init__(
        self, out: Path, space: str, options: Mapping[str, Any], replace: bool,
        pairs: Iterable[Mapping[str, Any]],
    ):  # fmt: skip
        if not re.fullmatch(r"[0-9A-Za-z+]{1,99}", space):
            raise errors.InvalidArgumentError(
                f"space {space!r}: names in BIDS have letters and digits alone, 99 at most; give"
                " such as MNI152"
            )
        self._out, self.space, self._replaces = out, space, replace
        self._options = deciding(*checked_options(options))
        named = ((pair, BidsName.of(pair["moving"])) for pair in pairs)
        self._images = [_Image(out, space, pair, name) for pair, name in named if name]

    def check(self) -> None:
        """Refuse, before the work, what :meth:`write` would refuse after it."""
        for image in self._images:
            if (image.folder / image.sidecar).exists():
                with contextlib.suppress(OSError, errors.InputUnreadableError):  # its pair's
                    self._known(image, self._origin(image, _hashes(image)))

    def write(self, study: Study, work: str | os.PathLike[str]) -> list[Path]:
        """Write a study's finished registrations; return the transforms onto the template."""
        done = {row.id for row in study.rows if row.status in FINISHED}
        self._describe()
        images = [image for image in self._images if image.pair["id"] in done]
        return [self._write(image, Path(work) / image.pair["id"]) for image in images]

    def _origin(self, image: _Image, hashes: Mapping[str, list[str]]) -> dict[str, Any]:
        """Return what a result is of, by what messages call it: version, options and inputs."""
        origin = {"version": core.version()}
        origin |= {f"option {name}": value for name, value in self._options.items()}
        for role, hashed in hashes.items():
            side, _, what = role.partition(" ")
            name = Path(image.pair[role.replace(" ", "_")]).name
            origin[f"{_SIDES[side]} {what}".strip()] = f"{name} ({digest(hashed)[:16]})"
        return origin

    def _known(self, image: _Image, origin: Mapping[str, Any]) -> dict[str, Any]:
        """Return the list of a result's files, empty where it is damaged; refuse another origin."""
        path = image.folder / image.sidecar
        _files.settle(image.folder)
        known = _json.object_in(path)
        was, files = known.get("Origin"), known.get("Files")
        if not isinstance(was, dict) or not isinstance(files, dict):
            return {}
        other = sorted(key for key in {*was, *origin} if was.get(key) != origin.get(key))
        if other and not self._replaces:
            key = other[0]
            raise errors.InvalidArgumentError(
                f"{path}: a result of this image is there, and its {key} was {was.get(key)!r}, and"
                f" is {origin.get(key)!r}; give another OUTPUT_DIR or another --space, or"
                " --no-resume to replace it"
            )
        return {} if other else files

    def _describe(self) -> None:
        """Write the files of the dataset as a whole, where there are none."""
        self._out.mkdir(parents=True, exist_ok=True)
        facts = {
            "Name": "MorphSeek: registrations onto a template",
            "BIDSVersion": _BIDS,
            "DatasetType": "derivative",
            "GeneratedBy": [{"Name": "MorphSeek", "Version": core.version()}],
        }
        files: dict[str, Any] = {
            "dataset_description.json": facts, "README": _README, ".bidsignore": _IGNORED,
        }  # fmt: skip
        for image in self._images:
            # of all files with such names: BIDS' inheritance
            template, space = Path(image.pair["fixed"]).name, self.space
            grid = {"SpatialReference": template, "Description": f"On the grid of {template}."}
            back = {"SpatialReference": "orig", "Description": f"The labels of {template}."}
            files[f"space-{space}_{image.name.suffix}.json"] = {**grid, "SkullStripped": False}
            files |= {f"space-{space}_dseg.json": grid, f"desc-{space}_dseg.json": back}
        for name, content in files.items():
            if not (self._out / name).exists():
                text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
                _files.write_text(self._out / name, text)

    def _write(self, image: _Image, pair: Path) -> Path:
        """Write one image's files, all or none: a verdict stands beside its own transform."""
        hashes = _hashes(image)
        origin = self._origin(image, hashes)
        with _files.locked(pair, PATIENCE):  # the registration and what describes it are one run's
            report = _json.read_object(pair / _manifest.REPORT, "result")
            seal = _json.read_object(pair / SEAL, "seal")
            known = deciding(report.get("options", {}), {})
            if (
                known | {"model": ""} != self._options | {"model": ""}
                or seal.get("inputs") != hashes
            ):
                raise errors.OutputUnwritableError(
                    f"{pair} was replaced by a registration of other images or options meanwhile;"
                    " give each call a folder of its own by --work"
                )
            listed = report.get(_manifest.KEY, {})
            sources = {name: listed[file] for name, file in image.files.items() if file in listed}
            ours = [*image.files, image.inverse, image.sidecar, image.stripped]
            with _files.output_folder(
                image.folder, seal=image.sidecar, ours=ours, patience=PATIENCE
            ) as temporary:
                written = self._known(image, origin)
                is_whole = written == {**sources, image.inverse: written.get(image.inverse)}
                if not (is_whole and _manifest.changed(image.folder, written) is None):
                    self._fill(temporary, image, origin, sources, seal["row"], pair)
                    image.page.unlink(missing_ok=True)  # no old one stands beside a new verdict
            if (pair / "report.html").exists():
                _put(pair / "report.html", image.page)
        return image.folder / image.transform

    def _fill(
        self, folder: Path, image: _Image, origin: Mapping[str, Any], sources: Mapping[str, Any],
        row: Mapping[str, Any], pair: Path,
    ) -> None:  # fmt: skip
        """Write an image's files and their description into an empty folder."""
        for target in sources:
            _put(pair / image.files[target], folder / target)
        Registration.read(pair).inverse().save(folder / image.inverse)
        parts = image.name.path.parts
        first = parts.index(image.name.subject) if image.name.subject in parts else len(parts) - 1
        facts = {
            **{name: row.get(column) for column, name in _FIGURES.items()}, "Units": "mm",
            "Space": self.space, "Sources": ["/".join(parts[first:])], "Origin": origin,
            "Files": {**sources, image.inverse: _manifest.entry(folder / image.inverse)},
        }  # fmt: skip
        _files.write_text(folder / image.sidecar, json.dumps(facts, indent=2) + "\n")
        own = image.name.path.with_name(image.name.path.name.partition(".nii")[0] + ".json")
        if _json.object_in(own, _json.MOST_BYTES).get("SkullStripped") is True:
            _files.write_text(folder / image.stripped, json.dumps({"SkullStripped": True}) + "\n")


def _hashes(image: _Image) -> dict[str, list[str]]:
    """Return the hashes of a pair's inputs, by role, as its seal has them."""
    names = {role.replace("_", " "): path for role, path in image.pair.items() if role != "id"}
    return {name: content_of(files_of(Path(path), name), name) for name, path in names.items()}


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


def write_group(out: str | os.PathLike[str]) -> tuple[Path, list[str]]:
    """Write ``group_xfm.tsv``: a row for every transform onto a template in a derivative dataset,
    what cannot be believed first, then the worst verdict.

    Returns
    -------
    tuple
        The table's path; and of each transform whose description is damaged, or whose files are not
        as it says, a message. Such a row has the verdict "error".

    Raises
    ------
    InputUnreadableError
        There is no transform.

    Examples
    --------
    >>> facts = {"Verdict": "good", "EstimatedError": 0.4, "Reasons": [], "DiceBefore": None,
    ...          "FoldedVoxelsPercent": 0.0, "DiceAfter": None, "Files": {}}
    >>> os.makedirs("derivatives/sub-01/anat")
    >>> name = "derivatives/sub-01/anat/sub-01_from-T1w_to-Mine_mode-image_xfm.json"
    >>> _ = Path(name).write_text(json.dumps(facts))
    >>> table, problems = studies.write_group("derivatives")
    >>> table.name, problems
    ('group_xfm.tsv', [])
    """
    out = Path(out)
    for folder in {path.parent for path in out.glob(f"sub-*/**/*{_TRANSFORM}.*")}:
        _files.settle(folder)
    sidecars = sorted(out.glob(f"sub-*/**/*{_TRANSFORM}.json"))
    if not sidecars:
        raise errors.InputUnreadableError(
            f"{out} has no transform onto a template; run the level participant first"
        )
    with ThreadPoolExecutor() as pool:  # checksums are made outside Python's lock
        rows = [*pool.map(_row, sidecars)]
    rows.sort(key=lambda row: (rank(row["verdict"]), -(row["error_mm"] or 0.0)))
    rows.sort(key=lambda row: row["verdict"] != _ERROR)
    path = out / "group_xfm.tsv"
    _files.write_text(path, bids_text(_COLUMNS, rows))
    return path, [row["reasons"] for row in rows if row["verdict"] == _ERROR]


def _row(path: Path) -> dict[str, Any]:
    """Return the row of a transform by its description, if that and the files can be believed."""
    entities = dict(part.partition("-")[::2] for part in path.stem.split("_")[:-1])
    row: dict[str, Any] = {
        "participant_id": f"sub-{entities.get('sub', '')}",
        "session_id": f"ses-{entities['ses']}" if "ses" in entities else "n/a",
        "image": path.stem,
    }
    try:
        facts = _json.read_object(path, "description")
        with _json.understood(f"{path} is no description of a transform"):
            cells = {column: facts[name] for column, name in _FIGURES.items()}
            if row_of(PairRow("", "", ""), cells) is None:
                raise TypeError("a figure")
            damaged = _manifest.changed(path.parent, dict(facts["Files"]))
        if damaged is not None:
            raise errors.InputUnreadableError(
                f"{path.parent / damaged} is not the file that {path.name} tells of"
            )
    except errors.InputUnreadableError as error:
        why = f"{error}; run the participant level again"
        return {**row, **dict.fromkeys(_FIGURES), "verdict": _ERROR, "reasons": why}
    return {**row, **cells, "reasons": " ".join(cells["reasons"])}
