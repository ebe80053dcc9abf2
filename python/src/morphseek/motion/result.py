"""The result of a motion correction: the motion of each frame, the images, and their files."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import _files, _manifest, images
from .._json import without_nan
from .._tables import data_frame
from ..transforms import Transform
from ..verdict import GRADES, UNKNOWN, Verdict, counts, tally
from .measures import PARAMETERS, Distance, framewise_displacement

_SEAL = "series.json"
_OWN = ("corrected.nii.gz", "corrected.seq.nrrd", "reference.nii.gz", "motion.tsv", "series.html")
#: What a series may leave in a folder, as patterns; the last one lists the others.
OUTPUTS = (*_OWN, "transform_*.h5", _SEAL)


def outputs(frames: int) -> list[str]:
    """Return the names of the files of a series of so many frames."""
    return [*_OWN, *(transform_name(k) for k in range(frames)), _SEAL]


def transform_name(frame: int) -> str:
    return f"transform_{frame:04}.h5"


@dataclasses.dataclass(frozen=True)
class FrameMotion:
    """The motion of one frame against the reference.

    Attributes
    ----------
    index : int
        From 0.
    name : str
        The file, or the number in it.
    transform : morphseek.Transform
        From the reference to the frame.
    motion : tuple of float
        trans_x, trans_y, trans_z (mm), rot_x, rot_y, rot_z (radians), to the right, to the front
        and up: where the body went since the reference. Of a deformable one the rigid part.
    displacement : Distance
        How far the tissue moved, mm: mean, p95, largest.
    verdict : morphseek.Verdict or None
        None for the reference itself.
    start : str
        reference, direct or concatenated: what the registration began from.
    disagreement : Distance or None
        How far the transform and the one concatenated from frame to frame take the tissue apart.
    """

    index: int
    name: str
    transform: Transform
    motion: tuple[float, ...]
    displacement: Distance
    verdict: Verdict | None
    start: str = "direct"
    disagreement: Distance | None = None

    @property
    def grade(self) -> str:
        """The verdict's grade; good for the reference, which does not move."""
        if self.start == "reference":
            return GRADES[0]
        return self.verdict.grade if self.verdict else UNKNOWN


@dataclasses.dataclass(frozen=True, repr=False)
class Series:
    """The result of :func:`morphseek.correct_motion`.

    Attributes
    ----------
    frames : list of FrameMotion
    corrected : list of morphseek.images.Image
        The frames on the reference's grid, each resampled once.
    reference : morphseek.images.Image
    said : str
        What was asked for as reference: mean, or the number of a frame.
    kind : str
        rigid, affine or deformable.
    start, step : float, float or None
        When the first frame was taken and the time between two, s; None where nothing says.
    """

    frames: list[FrameMotion]
    corrected: list[images.Image]
    reference: images.Image
    said: str
    kind: str
    start: float = 0.0
    step: float | None = None

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the motion, and the frames to look at first."""
        from ..report.cards import series

        return series(self.to_dict())

    @property
    def framewise_displacement(self) -> list[float | None]:
        """Of each frame against the one before, mm (Power et al. 2012); None for the first."""
        return framewise_displacement([np.array(frame.motion) for frame in self.frames])

    @property
    def times(self) -> list[float]:
        """When each frame was taken, s; their numbers where nothing says."""
        step = 1.0 if self.step is None else self.step
        return [self.start + step * k for k in range(len(self.frames))]

    @property
    def worst(self) -> list[FrameMotion]:
        """The frames, those to be looked at first: failed, then to be checked, then the ones whose
        two ways disagree most, then those that moved most.
        """
        grades = [*reversed(GRADES)]

        def badness(frame: FrameMotion) -> tuple[int, float, float]:
            apart = frame.disagreement.mean if frame.disagreement else 0.0
            grade = grades.index(frame.grade) if frame.grade in grades else len(grades)
            return grade, -apart, -frame.displacement.mean

        return sorted(self.frames, key=badness)

    def image(self) -> sitk.Image:
        """Return the corrected frames as one 4-D image of SimpleITK's."""
        common = np.result_type(*(frame.array for frame in self.corrected))
        volumes = [f.like(f.array.astype(common)).to_sitk() for f in self.corrected]
        return sitk.JoinSeries(volumes, self.start, 1.0 if self.step is None else self.step)

    def rows(self) -> list[dict[str, Any]]:
        """Return motion.tsv's rows: numbers, and None where there is none."""
        made = []
        for frame, moved in zip(self.frames, self.framewise_displacement):
            row: dict[str, Any] = dict(zip(PARAMETERS, frame.motion))
            row["framewise_displacement"] = moved
            row["displacement_mean"] = frame.displacement.mean
            row["displacement_p95"] = frame.displacement.p95
            row["displacement_max"] = frame.displacement.largest
            if any(f.disagreement for f in self.frames):
                row["disagreement_mean"] = frame.disagreement and frame.disagreement.mean
                row["disagreement_max"] = frame.disagreement and frame.disagreement.largest
            row["start"], row["verdict"] = frame.start, frame.grade
            made.append(row)
        return made

    def to_dataframe(self) -> Any:
        """Return a row a frame as a pandas DataFrame: the columns of motion.tsv."""
        return data_frame(self.rows())

    def __repr__(self) -> str:
        grades = tally(counts(frame.grade for frame in self.frames))
        return f"Series({len(self.frames)} frames: {grades})"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers: what was asked for, verdicts, and a row for each frame."""
        moved = [v for v in self.framewise_displacement if v is not None]
        rows = [
            {
                "frame": frame.index,
                "name": frame.name,
                **row,
                "reasons": list(frame.verdict.reasons) if frame.verdict else [],
            }
            for frame, row in zip(self.frames, self.rows())
        ]
        said: dict[str, Any] = {
            "reference": self.said,
            "motion": self.kind,
            "seconds_at_first_frame": self.start,
            "seconds_between_frames": self.step,
            "verdicts": counts(frame.grade for frame in self.frames),
            "framewise_displacement_mean": float(np.mean(moved)),
            "framewise_displacement_max": max(moved),
            "displacement_max": max(frame.displacement.largest for frame in self.frames),
            "worst": [frame.index for frame in self.worst],
            "frames": rows,
        }
        without: dict[str, Any] = without_nan(said)
        return without

    def save(self, folder: str | os.PathLike[str], command: str = "") -> None:
        """Write corrected.nii.gz (4-D), corrected.seq.nrrd (for 3D Slicer), reference.nii.gz, a
        transform for each frame (transform_0000.h5, ...), motion.tsv, series.html and series.json
        to a folder: all of them or, on an error, none.
        """
        from ..report.series import page

        with _files.output_folder(folder, OUTPUTS, _SEAL) as temporary:
            images.write(temporary / "corrected.nii.gz", self.image())
            common = np.result_type(*(frame.array for frame in self.corrected))
            images.write_sequence(
                temporary / "corrected.seq.nrrd",
                [f.like(f.array.astype(common)) for f in self.corrected],
                None if self.step is None else self.times,
                "frame" if self.step is None else "time",
                "" if self.step is None else "s",
            )
            images.write(temporary / "reference.nii.gz", self.reference)
            for frame in self.frames:
                frame.transform.save(temporary / transform_name(frame.index))
            _files.write_text(temporary / "motion.tsv", _table(self.rows()))
            _files.write_text(temporary / "series.html", page(self.to_dict(), command))
            listed = {p.name: _manifest.entry(p) for p in sorted(temporary.iterdir())}
            content = {**self.to_dict(), _manifest.KEY: listed}
            _files.write_text(temporary / _SEAL, json.dumps(content, indent=1) + "\n")


def _table(rows: list[dict[str, Any]]) -> str:
    """Return rows as BIDS has tables: n/a where there is nothing."""

    def cell(value: Any) -> str:
        if value is None:
            return "n/a"
        return value if isinstance(value, str) else f"{value:.6f}"

    lines = ["\t".join(rows[0]), *("\t".join(map(cell, row.values())) for row in rows)]
    return "\n".join(lines) + "\n"
