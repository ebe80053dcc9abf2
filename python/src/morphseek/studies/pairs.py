"""Register many pairs, each into a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from .. import _files, _manifest, errors, images
from .._engine import core
from .._engine.generated import Options, Unpack
from .._engine.options import all_options, checked_options
from .._json import without_nan
from .._typed import COMMAND
from ..channels import Channel
from ..images.sidecars import check_apart, parts
from ..progress import Progress
from ..result import OUTPUTS
from ..transforms import formats
from ..verdict import Verdict, grade_of
from .label_table import read_labels_csv
from .pair import PairInputs, Report, check_inputs, write_pair
from .runner import PATIENCE, PROCESSES, THREADS, Job, Meter, Result
from .study import SEAL, TABLES, PairRow, Study
from .table import Pair, read_pairs

Keep = Literal["all", "report"]
"""The files of a pair that are written: all, or report.json and the page alone."""


class Running(Options, total=False):
    """Name the parameters of :func:`register_pairs`, with its options."""

    workers: int | None
    scheduler: str | None
    report: Report
    progress: Callable[[Progress], Any] | bool | None


def register_pairs(
    pairs: str | os.PathLike[str] | Sequence[Any],
    out: str | os.PathLike[str] | None = None,
    *,
    data: str | os.PathLike[str] | None = None,
    subset: str | None = None,
    score: bool = False,
    labels_csv: str | os.PathLike[str] | None = None,
    labels_back: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    report: Report = "small",
    keep: Keep = "all",
    resume: bool = True,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Study:
    """Register a list of pairs; each gets a folder of its own.

    Parameters
    ----------
    pairs : path or sequence
        A table (CSV, TSV, JSON, data frame) with the columns fixed and moving and, optionally,
        those of :data:`IMAGES` and id, the name of the pair's folder: paths are relative to the
        file. Or a list of (fixed, moving) or of dicts with those names. A cell that is empty, NaN
        or None gives nothing.
    out : path, optional
        Folder; pair ID writes to ``out/ID`` what ``morphseek register`` does, and pair.json.
        summary.csv, summary.json, labels.csv (where there are label maps) and index.html have all
        pairs, and those of earlier calls that lie there finished. Several calls may share a folder.
        Without it nothing is kept but the rows.
    data : path, optional
        Folder with ``images`` and ``labels``, as Learn2Reg has them: fixed and moving are names of
        files there, suffix optional, or paths below it, whose label map has "labels" for "images".
    subset : str, optional
        Which list of a JSON file.
    score : bool
        Every pair must have both label maps. Dice is also measured in the moving image's space by
        the inverse transform (dice_inverse), and by SimpleITK alone, from the transform as a file
        holds it (dice_check). Where dice_inverse is much lower than Dice on the fixed grid, which
        is blind to what the transform jumps over, the transform carries labels and little else.
    labels_csv : path, optional
        Table with the columns id, name and, to merge labels, structure. Labels that it does not
        list are left out.
    labels_back : bool
        Also carry each pair's fixed labels to its moving image, by the inverse transform, as
        fixed_labels_on_moving.nii.gz.
    workers : int, optional
        Pairs at a time; each gets its share of the cores unless `threads` is given. By default as
        many as there are cores for, and memory for images such as the one with the largest file;
        one with a network.
    scheduler : str, optional
        threads, the default; processes; or the address of a Dask scheduler, whose workers see the
        same files and give each pair one thread unless `threads` is given.
    report : {"full", "small", "none"}
        What report.html is for each pair: interactive, up to 6 MB; one picture and the numbers,
        below 200 kB; or not written.
    keep : {"all", "report"}
        What each pair leaves: all, or report.json and the page alone.
    resume : bool
        Leave pairs that are finished as they are; False does them again.
    progress : callable or bool, optional
        Called with a :class:`morphseek.Progress` over the whole list, whose message says what
        became of a pair that ended; returning False stops the study. True shows a bar.
    **options
        Of :func:`morphseek.register`.

    Returns
    -------
    Study
        A pair that fails is in it with its error; the others go on.

    Raises
    ------
    InputUnreadableError
        The list cannot be read, lacks a column or has an id twice.
    CancelledError, KeyboardInterrupt
        The study was stopped. Finished pairs are kept; the same call goes on from there.

    Examples
    --------
    >>> study = morphseek.register_pairs(
    ...     [("fixed.nii.gz", "moving.nii.gz")], "study", refine=0, search=False
    ... )
    >>> study.rows[0].status
    'done'
    """
    for name, value, known in (("report", report, Report), ("keep", keep, Keep)):
        errors._check_choice(name, value, get_args(known))
    if workers is not None:
        errors._check_number("workers", workers, 1, whole=True)
    listed = read_pairs(pairs, data=data, subset=subset)
    if labels_csv is not None:
        read_labels_csv(labels_csv)  # a table that is none fails before the work
    chosen, bundle = checked_options(options)
    for name, given, roles in (
        ("labels_back", labels_back, ["fixed_labels"]),
        ("labels_csv", labels_csv, ["fixed_labels", "moving_labels"]),
        ("landmark_error", chosen.get("landmark_error"), ["fixed_landmarks"]),
    ):
        if given and not any(role in pair.files for pair in listed for role in roles):
            raise errors.InvalidArgumentError(
                f"{name} is given, and no pair has {' or '.join(roles)}; give"
                f" {'landmarks' if name == 'landmark_error' else 'label maps'}, or leave it out"
            )
    shown, made_of = dict(chosen), [core.version(), deciding(chosen, bundle)]
    if bundle and bundle["path"]:  # a worker elsewhere is in another folder
        chosen["model"] = str(Path(bundle["path"]).absolute())
    if bundle and workers is None:  # nobody knows the memory of a network, or of its one GPU
        workers = 1
    workers, chosen["threads"] = _shares(workers, chosen.get("threads", 0), scheduler, listed)
    how = {
        "options": chosen, "made_of": made_of, "report": report, "command": COMMAND.get(),
        "keep": keep, "score": score, "labels_back": labels_back,
        "labels_csv": labels_csv and str(Path(labels_csv).absolute()),
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        if out is None:
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix="morphseek-"))
            how |= {"keep": "report", "report": "none"}
        folder = Path(out).absolute()
        check_apart(out, TABLES, {"pairs": pairs, "labels_csv": labels_csv})
        with _files.output_folder(out, patience=PATIENCE):
            _files.check_places(folder, TABLES)  # what cannot be written fails before the work
        study = Study([PairRow(p.id, p.files["fixed"], p.files["moving"]) for p in listed], shown)
        jobs = (PairJob(pair.id, str(folder / pair.id), pair, how) for pair in listed)
        meter = Meter(len(listed), progress)
        study._do(jobs, folder, meter, workers=workers, scheduler=scheduler, resume=resume)
    return study


def deciding(chosen: Mapping[str, Any], bundle: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options that decide a result; of a model that is a file, its checksum."""
    options = {k: v for k, v in all_options(chosen).items() if k not in ("threads", "cache")}
    return options | ({"model": bundle["manifest"]["sha256"]} if bundle else {})


def _shares(
    workers: int | None, threads: int, scheduler: str | None, pairs: Sequence[Pair]
) -> tuple[int, int]:
    """Return how many pairs are registered here at a time, and the threads of each."""
    if scheduler not in (None, THREADS, PROCESSES):
        return 1, threads or 1
    many = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if many else os.cpu_count() or 1
    given, workers = workers, workers or max(1, min(cores // (threads or 1), len(pairs)))
    if min(workers, len(pairs)) > 1:
        each = _memory(pairs)
        fit = max(1, int(core.available_memory() // each))
        if given is None:
            workers = min(workers, fit)
        elif min(given, len(pairs)) > fit:
            errors._warn(
                f"{given} workers may need more memory than is free: a pair takes about"
                f" {each / 1e9:.1f} GB, so {fit} would fit"
            )
    return workers, threads or max(1, cores // workers)


def _memory(pairs: Sequence[Pair]) -> int:
    """Return about how many bytes a registration of the largest image takes, and its files."""
    sizes: dict[tuple[Path, str], int] = {}
    for pair, role in itertools.product(pairs, ("fixed", "moving")):
        with contextlib.suppress(errors.MorphSeekError):  # its own job tells what is wrong
            if (file := (pair.path(role), role)) not in sizes:
                sizes[file] = sum(stamp[2] for stamp in _files.stamp(files_of(*file)))
    voxels = 0
    for file in sorted(sizes, key=sizes.__getitem__, reverse=True):
        with contextlib.suppress(Exception):  # so does that
            voxels = images.read(*file).array.size
            break
    return 500_000_000 + 50 * voxels


@dataclasses.dataclass(frozen=True)
class PairJob(Job):
    """The registration of one pair of a list."""

    pair: Pair
    how: Mapping[str, Any]

    seal: ClassVar[str] = SEAL
    listing: ClassVar[str] = _manifest.REPORT
    outputs = OUTPUTS

    def inputs(self) -> dict[str, list[Path]]:
        files = {}
        for role in self.pair.files:
            name = role.replace("_", " ")
            files[name] = files_of(self.pair.path(role), name)
        if self.how["labels_csv"]:
            files["labels_csv"] = [Path(self.how["labels_csv"])]
        return files

    def settings(self) -> Any:
        # of one file there are several atlases: the halves of a brain
        by_name = {
            role: file
            for role, file in self.pair.files.items()
            if not self.pair.is_named and images.named.is_name(self.pair.path(role))
        }
        if "initial_transform" in self.pair.files:  # what stands behind its name: @inverse
            transform = str(self.pair.path("initial_transform"))
            head = str(formats.split(transform)[0])
            by_name["initial_transform"] = transform[len(head) :]
        roles = sorted(self.pair.files)
        scores = [self.how["score"], self.how["labels_back"]]
        return [self.how["made_of"], roles, by_name, scores]

    def covers(self, facts: Mapping[str, Any]) -> bool:
        """Whether the pair has the page and the files that are asked for; more do, too."""
        if self.how["keep"] == "all" != facts["keep"]:
            return False
        wanted = self.how["report"]
        return wanted == "none" or facts["report"] in ("full", wanted)

    def run(self, folder: Path, progress: Callable[[Progress], Any] | None) -> Result:
        files = {role: self.pair.path(role) for role in self.pair.files}
        inputs: dict[str, Any] = {k: v for k, v in files.items() if not k.endswith("channel")}
        inputs["channels"] = _channels(files)
        check_inputs(self.folder, **inputs)
        if self.how["labels_csv"]:
            inputs["merge"], inputs["label_names"] = read_labels_csv(self.how["labels_csv"])
        for side in ("fixed", "moving") if self.how["score"] else ():
            if f"{side}_labels" not in files:
                raise errors.InputUnreadableError(
                    f"score: there is no label map of the {side} image {self.pair.files[side]};"
                    " give every pair both, or leave score out"
                )
        pair = PairInputs(**inputs, options=dict(self.how["options"]), progress=progress)
        summary, listed = write_pair(
            folder, pair, title=self.pair.id, command=self.how["command"],
            report=self.how["report"], labels_back=self.how["labels_back"],
            volumes=self.how["keep"] == "all", cross_check=self.how["score"],
        )  # fmt: skip
        row = {
            **self._row(summary),
            "cpu_seconds": pair.cpu_seconds,
            "fixed": self.pair.files["fixed"],
            "moving": self.pair.files["moving"],
        }
        return Result(row, listed, {"report": self.how["report"], "keep": self.how["keep"]})

    def _row(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of the study's table from a pair's report."""
        names = summary.get("label_names", {})
        labels = [
            {**score, "name": names.get(str(score["label"]), "")}
            for score in summary.get("labels", ())
        ]
        row = {name: summary[name] for name in _AS_IN_REPORT if name in summary}
        linear = np.array(summary["initial_transform"])[:3, :3]
        row |= {
            "seconds": summary["seconds"]["total"],
            "verdict": grade_of(summary),
            "measure": summary["similarity"],
            "similarity": summary["similarity_after"],
            "scale": float(abs(np.linalg.det(linear)) ** (1 / 3)),
            "displacement_mm": summary["displacement_mean_mm"],
            "labels": labels,
        }
        if labels:
            distances = [s["hd95_after"] for s in labels if s["hd95_after"] is not None]
            volumes = np.array([s["volume_error_percent"] for s in labels])
            row |= {
                "hd95_after": float(np.mean(distances)) if distances else math.nan,
                "volume_error_percent": float(np.abs(volumes).mean()),
                "volume_bias_percent": float(volumes.mean()),
            }
        if verdict := Verdict.of(dict(summary)):
            row |= {"error_mm": verdict.error_mm, "reasons": list(verdict.reasons)}
        return without_nan(row)


_AS_IN_REPORT = (
    "dice_before", "dice_after", "dice_inverse", "dice_check", "tre_before_mm", "tre_after_mm",
    "njd_percent", "sdlogj", "cached", "model", "device", "warnings",
)  # fmt: skip


def files_of(path: Path, name: str) -> list[Path]:
    """Return all files of an image, or of a transform: a DICOM folder's, a header and its data."""
    if atlas := images.named.files_of(path, name):
        return atlas
    path = Path(formats.split(path)[0])
    with _files.readable(path, name):
        if path.is_dir():
            return sorted(p for p in path.iterdir() if p.is_file())
        return [*parts(path), *formats.files_of(path)[1:]]


def _channels(files: Mapping[str, Path]) -> list[Channel]:
    """Return the channels of a row of the list: images, then labels."""
    channels = []
    for kind in ("channel", "label_channel"):
        names = [f"{side}_{kind}" for side in ("fixed", "moving") if f"{side}_{kind}" in files]
        if len(names) == 1:
            raise errors.InputUnreadableError(
                f"the list gives {names[0]} alone; a channel needs fixed_{kind} and moving_{kind}"
            )
        if names:
            fixed, moving = (files[name] for name in names)
            channels.append(Channel(fixed, moving, labels=kind == "label_channel"))
    return channels
