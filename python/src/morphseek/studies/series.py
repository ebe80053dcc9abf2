"""The result of a motion correction: the motion of each frame, the images, and their files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import SimpleITK as sitk

from .. import _files, images
from .._engine import core
from .._json import Plain
from .._tables import bids_text
from .._typed import COMMAND
from ..images.frames import Frames
from ..transforms import Transform
from ..verdict import counts, rank, tally
from ._result import Readable, Tabled

SEAL = "series.json"
FILES = ("corrected.nii.gz", "corrected.seq.nrrd", "reference.nii.gz", "motion.tsv", "series.html")
#: What a series may leave in a folder, as patterns; the last one lists the others.
OUTPUTS = (*FILES, "transform_*.h5", SEAL)
#: fMRIPrep's names: mm along x, y, z, and radians about them.
PARAMETERS = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
_OF_CHAINS = ("disagreement_mean", "disagreement_max")
_BESIDE = ("frame", "name", "error_mm", "reasons")  # columns that motion.tsv does not have


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class FrameMotion(Plain):
    """The motion of one frame against the reference: a row of motion.tsv.

    Examples
    --------
    >>> series = morphseek.correct_motion(np.stack([pair.fixed.array] * 2), reference=0)
    >>> series.rows[0]
    FrameMotion(frame 0: good)
    """

    frame: int
    """From 0."""
    name: str
    """The file, or the number in it."""
    trans_x: float
    """How far the body went since the reference, mm, to the right; y: to the front, z: up."""
    trans_y: float
    trans_z: float
    rot_x: float
    """How far it turned about these axes, radians. Of a deformable motion the rigid part."""
    rot_y: float
    rot_z: float
    framewise_displacement: float | None
    """Since the frame before, mm (Power et al. 2012); None for the first."""
    displacement_mean: float
    """How far the tissue moved since the reference, mm."""
    displacement_p95: float
    displacement_max: float
    start: str
    """reference, direct or concatenated: what the registration began from."""
    verdict: str
    """Good for the reference itself, which does not move."""
    transform: Transform
    """From the reference to the frame."""
    disagreement_mean: float | None = None
    """Mean distance, mm, between a point under the transform and under the one concatenated from
    frame to frame.
    """
    disagreement_max: float | None = None
    error_mm: float | None = None
    """The verdict's estimate."""
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Of the verdict."""

    @property
    def parameters(self) -> tuple[float, ...]:
        """The six parameters, from trans_x to rot_z."""
        return tuple(getattr(self, name) for name in PARAMETERS)

    def __str__(self) -> str:
        return f"{self.name}: {': '.join([self.verdict, *self.reasons][:2])}"


@dataclasses.dataclass(frozen=True, repr=False)
class Series(Readable, Tabled):
    """The result of :func:`morphseek.correct_motion`: a table with a row a frame.

    Its folder has corrected.nii.gz (4-D), corrected.seq.nrrd (for 3D Slicer), reference.nii.gz, a
    transform for each frame (transform_0000.h5, ...), motion.tsv, series.html and series.json.

    Examples
    --------
    >>> frames = np.stack([pair.fixed.array] * 2)
    >>> morphseek.correct_motion(frames, "motion", reference=0)
    Series(2 frames: 2 good, 0 check, 0 failed)
    >>> studies.Series.read("motion").rows[1].framewise_displacement < 0.1
    True
    """

    _outputs: ClassVar = OUTPUTS
    _card: ClassVar = "series"
    rows: list[FrameMotion]
    """The frames, in the order of time."""
    corrected: list[images.Image]
    """The frames on the reference's grid, each resampled once."""
    reference: images.Image
    reference_frame: str
    """mean, first, or the number of a frame."""
    motion: str
    """rigid, affine or deformable."""
    start: float = 0.0
    """When the first frame was taken and the time between two, s; None where nothing says."""
    step: float | None = None

    @classmethod
    def _read(cls, folder: Path, content: Mapping[str, Any]) -> Series:
        rows = [
            FrameMotion(**row, transform=Transform.read(folder / transform_name(k)))
            for k, row in enumerate(content["rows"])
        ]
        corrected = [*Frames(folder / FILES[0], "corrected")]
        reference = images.read(folder / FILES[2], "reference")
        said = ("reference", "motion", "seconds_at_first_frame", "seconds_between_frames")
        return cls(rows, corrected, reference, *(content[name] for name in said))

    def __repr__(self) -> str:
        return f"Series({len(self.rows)} frames: {tally(counts(r.verdict for r in self.rows))})"

    @property
    def times(self) -> list[float]:
        """When each frame was taken, s; their numbers where nothing says."""
        step = 1.0 if self.step is None else self.step
        return [self.start + step * k for k in range(len(self.rows))]

    @property
    def worst(self) -> list[FrameMotion]:
        """The frames, those to be looked at first: failed, then to be checked, then the ones whose
        two transforms disagree most, then those that moved most.
        """

        def key(row: FrameMotion) -> tuple[int, float, float]:
            return rank(row.verdict), -(row.disagreement_mean or 0.0), -row.displacement_mean

        return sorted(self.rows, key=key)

    def _alike(self) -> list[images.Image]:
        """Return the corrected frames in one type of voxels."""
        common = np.result_type(*(frame.array for frame in self.corrected))
        return [frame.like(frame.array.astype(common)) for frame in self.corrected]

    def image(self) -> sitk.Image:
        """Return the corrected frames as one 4-D image of SimpleITK's.

        Examples
        --------
        >>> series.image().GetSize()
        (48, 48, 48, 2)
        """
        volumes = [frame.to_sitk() for frame in self._alike()]
        return sitk.JoinSeries(volumes, self.start, 1.0 if self.step is None else self.step)

    def _facts(self) -> dict[str, Any]:
        steps = [v for row in self.rows if (v := row.framewise_displacement) is not None]
        return {
            "version": core.version(),
            "reference": self.reference_frame,
            "motion": self.motion,
            "seconds_at_first_frame": self.start,
            "seconds_between_frames": self.step,
            "verdicts": counts(row.verdict for row in self.rows),
            "framewise_displacement_mean": float(np.mean(steps)),
            "framewise_displacement_max": max(steps),
            "displacement_max": max(row.displacement_max for row in self.rows),
            "worst": [row.frame for row in self.worst],
            "rows": [row.to_dict() for row in self.rows],
        }

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        rows = [row.to_dict() for row in self.rows]
        return [*rows[0]], rows

    def _write(self, folder: Path) -> None:
        from ..report.pages import series

        corrected, sequence, reference, table, shown = (folder / name for name in FILES)
        images.write(corrected, self.image())
        timed = self.step is not None
        images.write_sequence(
            sequence, self._alike(), self.times if timed else None, "time" if timed else "frame",
            "s" if timed else "",
        )  # fmt: skip
        images.write(reference, self.reference)
        for row in self.rows:
            row.transform.save(folder / transform_name(row.frame))
        facts = self.to_dict()
        empty = [name for name in _OF_CHAINS if all(row[name] is None for row in facts["rows"])]
        columns = [name for name in facts["rows"][0] if name not in (*_BESIDE, *empty)]
        _files.write_text(table, bids_text(columns, facts["rows"]))
        _files.write_text(shown, series(facts, self.times, COMMAND.get()))
        _files.write_seal(folder / SEAL, facts)


def transform_name(frame: int) -> str:
    return f"transform_{frame:04}.h5"
