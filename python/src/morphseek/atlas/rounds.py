"""Rounds on disk: a template, where each image starts from, and the pairs that are done.

Round N's folder has the template that the images are registered to in that round. When all are, the
next round's folder takes its place, all of its files together. So whatever ends the process, the
same call goes on with the pair that it was at.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _manifest, errors, images
from .._json import read as read_json
from ..studies.pairs import files_of
from ..studies.runner import content_of
from .result import SEAL, Iteration
from .sources import Source

FOLDER = "rounds"
_PLAN = "plan.json"
_ROUND = "round.json"
TEMPLATE = "template.nrrd"  # which keeps a grid to the last digit


def fingerprint(*parts: Any) -> str:
    """Return a hash of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def content(source: Any, name: str) -> Any:
    """Return what tells whether an image changed: the hashes of its files, or of its voxels."""
    if source is None or isinstance(source, (str, Path)):
        return None if source is None else content_of(files_of(Path(source), name), name)
    image = images.read(source, name)
    voxels = hashlib.sha256(np.ascontiguousarray(image.array).tobytes()).hexdigest()
    return [voxels, str(image.array.dtype), image.grid.numbers.tolist()]


def start_name(id: str) -> str:
    return f"start_{id}.h5"


def linear_name(id: str) -> str:
    """Return the file of the linear part of a start, from which a registration begins."""
    return f"linear_{id}.tfm"


class Rounds:
    """The folder of rounds in an output folder that the caller holds."""

    def __init__(self, out: Path, sources: Sequence[Source], plan: str, resume: bool):
        self.folder = out / FOLDER
        self._sources = sources
        if self.folder.exists():
            found = _parsed(self.folder / _PLAN)
            if not found:
                raise errors.OutputUnwritableError(
                    f"{self.folder} is there and is not of a template that was begun; move it away"
                    " or choose another folder"
                )
            if resume and found.get("fingerprint") != plan:
                raise errors.OutputUnwritableError(
                    f"{self.folder / _PLAN} is of a template that was begun with other images or"
                    " options; choose another folder, or begin anew with --no-resume"
                    " (resume=False)"
                )
            if not resume:
                shutil.rmtree(self.folder)
        if not self.folder.exists():
            with _files.output_folder(self.folder, seal=_PLAN) as temporary:
                text = json.dumps({"fingerprint": plan}) + "\n"
                _files.write_text(temporary / _PLAN, text)

    def round(self, number: int) -> Path:
        """Return the folder of a round."""
        return self.folder / f"{number:02}"

    def start(self, number: int, id: str) -> Path:
        """Return where a round's transform of an image is; it need not be there in the first."""
        return self.round(number) / start_name(id)

    def linear(self, number: int, id: str) -> Path:
        """Return where the linear part of that is."""
        return self.round(number) / linear_name(id)

    def template(self, number: int) -> Path:
        return self.round(number) / TEMPLATE

    def pairs(self, number: int) -> Path:
        """Return the folder of a round's registrations."""
        return self.round(number) / "pairs"

    def image(self, source: Source) -> Path:
        """Return an image's file; of one in memory, one that is written here."""
        if isinstance(source.image, (str, Path)):
            return images.named.absolute(source.image)
        path = self.folder / f"image_{source.id}.nrrd"
        if not path.exists():
            images.write(path, images.read(source.image, source.name))
        return path

    def finished(self) -> list[Iteration]:
        """Return the rounds that are there, from the first to the last whole one."""
        found: list[Iteration] = []
        while said := _parsed(self.round(len(found)) / _ROUND):
            found.append(Iteration.of(said["iteration"]))
        while found and not self._is_whole(len(found) - 1):
            found.pop()
        return found

    def _is_whole(self, number: int) -> bool:
        folder = self.round(number)
        listed = _parsed(folder / _ROUND).get(_manifest.KEY, {})
        return all(_manifest.is_same(folder / name, entry) for name, entry in listed.items())

    def keep(self, iteration: Iteration, folder: Path, more: Mapping[str, Any]) -> None:
        """Seal the files in a round's temporary folder by its facts."""
        listed = {path.name: _manifest.entry(path) for path in sorted(folder.iterdir())}
        said = {"iteration": iteration.to_dict(pictures=True), **more, _manifest.KEY: listed}
        _files.write_text(folder / _ROUND, json.dumps(said) + "\n")

    def facts(self, number: int) -> dict[str, Any]:
        """Return what :meth:`keep` got of a round."""
        return _parsed(self.round(number) / _ROUND)

    def writing(self, number: int) -> Any:
        """Give a folder whose files become a round's."""
        return _files.output_folder(self.round(number), ("*",), _ROUND)

    def forget(self, number: int) -> None:
        """Remove what a finished round needs no longer: its registrations and their starts."""
        shutil.rmtree(self.pairs(number), ignore_errors=True)
        for source in self._sources:
            self.start(number, source.id).unlink(missing_ok=True)
            self.linear(number, source.id).unlink(missing_ok=True)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def check_place(out: Path, plan: str, resume: bool) -> bool:
    """Return whether a folder has the template already.

    Raises
    ------
    OutputUnwritableError
        It has another template, or files of the same names that are of something else.
    """
    found = _parsed(out / SEAL)
    if found.get("fingerprint") == plan and resume:
        listed = found.get(_manifest.KEY, {})
        return all(_manifest.is_same(out / name, entry) for name, entry in listed.items())
    if (out / SEAL).exists():
        if resume:
            raise errors.OutputUnwritableError(
                f"{out / SEAL} is of a template of other images or options; choose another folder,"
                " or replace it with --no-resume (resume=False)"
            )
        return False
    for name in ("template.nii.gz", "labels.nii.gz", "template.html"):
        if (out / name).exists():
            raise errors.OutputUnwritableError(
                f"{out / name} is there and no {SEAL} tells what of; move it away or choose another"
                " folder"
            )
    return False


def _parsed(path: Path) -> dict[str, Any]:
    """Return what a JSON file holds; nothing where it is missing or unsound."""
    try:
        found = read_json(path, path.name)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
