"""Run one pair of a list, and skip it if an identical result exists.

A pair is finished when its folder has ``pair.json``, which comes with its results. It holds a
fingerprint of the files' content, the options, the model and the library's version, and the
checksums of the results: where all that is unchanged, the pair is not done again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _manifest, errors, images
from .._engine import core
from .._engine.options import all_options
from .._json import read as read_json, without_nan
from .._log import log
from ..channels import Channel
from ..images.sidecars import parts
from ..progress import Progress
from ..verdict import Verdict, grade_of
from .into import Report, register_into
from .listing import FINISHED
from .lists import Pair
from .results import Outcome

DEFECT = "error.log"  # the traceback of an unexpected failure of a pair


@dataclasses.dataclass(frozen=True)
class Job:
    """A pair as it travels to a worker."""

    pair: Pair
    folder: str
    options: dict[str, Any]
    model: str  # "none", "default", or the bundle's sha256
    report: Report
    command: str
    resume: bool
    batch: str  # which call of register_pairs() it belongs to
    labels_back: bool = False

    def _inputs(self) -> list[tuple[str, list[Path]]]:
        """Return what the inputs are called, and the files that each is in."""
        return [
            (image.replace("_", " "), files_of(self.pair.path(image), image.replace("_", " ")))
            for image in self.pair.files
        ]

    def stamps(self) -> list[tuple[str, list[tuple[str, int, int, int]]]]:
        """Return what tells whether the inputs were changed."""
        return [(name, _files.stamp(files)) for name, files in self._inputs()]

    def fingerprint(self) -> str:
        """Return a hash of all that the result depends on. Threads may change its last bit, no
        more.
        """
        options = {
            name: value
            for name, value in all_options(self.options).items()
            if name not in ("threads", "cache", "model")
        }
        content: dict[str, Any] = {name: content_of(files, name) for name, files in self._inputs()}
        # of one file there are several: the halves of a brain
        by_name = {
            image: file
            for image, file in self.pair.files.items()
            if images.named.is_name(self.pair.path(image))
        }
        if by_name:
            content["by_name"] = by_name
        if self.labels_back:  # which older results lack
            content["labels_back"] = True
        return hashlib.sha256(
            json.dumps([core.version(), options, self.model, content]).encode()
        ).hexdigest()


def files_of(path: Path, name: str) -> list[Path]:
    """Return an image's files: one, a DICOM folder's, or a header and its data."""
    if atlas := images.named.files_of(path, name):
        return atlas
    _files.check_regular(path, name)
    try:
        return sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else parts(path)
    except OSError as error:
        raise _unreadable(error, name) from None


def content_of(files: list[Path], name: str) -> list[str]:
    """Return the hashes of an image's files."""
    hashes = []
    try:
        for file in files:
            content = hashlib.sha256()
            with open(file, "rb") as stream:
                while chunk := stream.read(1 << 20):
                    content.update(chunk)
            hashes.append(content.hexdigest())
    except OSError as error:
        raise _unreadable(error, name) from None
    return hashes


def _unreadable(error: OSError, name: str) -> errors.InputUnreadableError:
    return errors.InputUnreadableError(
        f"{name}: {error.filename} cannot be read: {error.strerror}; check the list"
    )


def run_job(job: Job, progress: Callable[[Progress], Any] | None = None) -> Outcome:
    """Do a job, unless it is done. Errors come back in the outcome: another pair's worker has no
    use for them.
    """
    pair = job.pair
    outcome = Outcome(pair.id, pair.files["fixed"], pair.files["moving"])
    try:
        folder, stamps = Path(job.folder), job.stamps()
        fingerprint = job.fingerprint()
        _files.settle(folder)  # left by a process that was killed while it wrote its last files
        before = _finished(folder)
        if (
            before.get("fingerprint") == fingerprint
            and _has_page(before, job.report)
            and (job.resume or before["batch"] == job.batch)
            and _is_whole(folder, before["files"])
        ):
            # Of this very batch: a worker of the cluster was lost between its last file and its
            # answer.
            with contextlib.suppress(TypeError):  # fields of another version do not fit
                return dataclasses.replace(
                    outcome,
                    status="done" if before["batch"] == job.batch else "skipped",
                    **before["result"],
                )
        images = {image: pair.path(image) for image in pair.files}

        def finish(folder: Path, summary: dict[str, Any], files: dict[str, Any]) -> None:
            for name, stamp in stamps:  # or the inputs changed since
                _files.check_unchanged(stamp, name)
            finished = {
                "fingerprint": fingerprint,
                "batch": job.batch,
                "report": job.report,
                _manifest.KEY: files,
                "result": _result(summary),
            }
            _files.write_text(folder / FINISHED, json.dumps(finished, indent=1) + "\n")

        summary = register_into(
            folder,
            (images["fixed"], images["moving"]),
            (images.get("fixed_labels"), images.get("moving_labels")),
            landmarks=(images.get("fixed_landmarks"), images.get("moving_landmarks")),
            options=job.options,
            title=pair.id,
            command=job.command,
            report=job.report,
            ours=(FINISHED, DEFECT),
            also=finish,
            progress=progress,
            fixed_mask=images.get("fixed_mask"),
            moving_mask=images.get("moving_mask"),
            rigid_regions=images.get("rigid_regions"),
            initial_transform=images.get("initial_transform"),
            channels=_channels(images),
            labels_back=job.labels_back,
        )
        return dataclasses.replace(outcome, status="done", **_result(summary))
    except errors.CancelledError:
        return outcome
    except Exception as error:
        code = (
            error.exit_code
            if isinstance(error, errors.MorphSeekError)
            else errors.InternalError.exit_code
        )
        if code == errors.InternalError.exit_code:
            log.exception("pair %s failed", pair.id)
            _keep_traceback(Path(job.folder))
        return dataclasses.replace(
            outcome, status="failed", error=type(error).__name__, message=str(error), exit_code=code
        )


def _result(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what the table of the batch has of a pair's report."""
    result = without_nan(
        {
            name: summary.get(name)
            for name in (
                "dice_before",
                "dice_after",
                "tre_before_mm",
                "tre_after_mm",
                "njd_percent",
                "model",
                "device",
                "warnings",
            )
        }
    )
    result |= {
        "seconds": summary["seconds"]["total"],
        "verdict": grade_of(summary),
        "measure": summary["similarity"],
        "similarity": summary["similarity_after"],
        "scale": _scale(summary["initial_transform"]),
        "sdlogj": summary["sdlogj"],
        "displacement_mm": summary["displacement_mean_mm"],
    }
    if verdict := Verdict.of(summary):
        result |= {"error_mm": verdict.error_mm, "reasons": list(verdict.reasons)}
    return result


def _scale(matrix: Any) -> float:
    """Return by which factor a linear map changes lengths."""
    return float(abs(np.linalg.det(np.array(matrix)[:3, :3])) ** (1 / 3))


def _is_whole(folder: Path, files: Mapping[str, Any]) -> bool:
    """Whether a finished pair's files are those that were written: first by their sizes, which cost
    nothing, then by their content.
    """
    if any(not isinstance(known, dict) for known in files.values()):  # by an older library
        return False
    return all(_size(folder / name) == known.get("bytes") for name, known in files.items()) and all(
        _manifest.is_same(folder / name, known) for name, known in files.items()
    )


def _channels(images: Mapping[str, Path]) -> list[Channel]:
    """Return the channels of a row of the list: images, then labels."""
    found = []
    for kind in ("channel", "label_channel"):
        names = [f"{side}_{kind}" for side in ("fixed", "moving") if f"{side}_{kind}" in images]
        if len(names) == 1:
            raise errors.InputUnreadableError(
                f"the list gives {names[0]} alone; a channel needs fixed_{kind} and moving_{kind}"
            )
        if names:
            fixed, moving = (images[name] for name in names)
            found.append(Channel(fixed, moving, labels=kind == "label_channel"))
    return found


def _keep_traceback(folder: Path) -> None:
    """Write the exception being handled into a pair's folder, where one can be made."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DEFECT).write_text(traceback.format_exc(), encoding="utf-8")


def _finished(folder: Path) -> dict[str, Any]:
    """Return what pair.json holds; nothing where it is missing or unsound."""
    try:
        found = read_json(folder / FINISHED, "pair")
        whole = {"fingerprint", "batch", "files", "result"} <= found.keys() and isinstance(
            found["files"], dict
        )
        return found if whole else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _has_page(finished: Mapping[str, Any], report: Report) -> bool:
    """Whether a finished pair has the page that is asked for; a larger one does too."""
    if report == "none":
        return True
    # older libraries wrote the full one alone
    return "report.html" in finished["files"] and report in (
        "small",
        finished.get("report", "full"),
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
