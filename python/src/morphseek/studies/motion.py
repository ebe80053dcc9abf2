"""Correct the motion of a time series: its frames registered onto one of them, or their mean."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import SimpleITK as sitk

from .. import _files, errors, images
from .._engine import core
from .._engine.bindings import Doubles
from .._engine.generated import Options, Unpack
from .._engine.options import BENDING, STILL
from .._grid import Grid
from .._json import Plain
from .._tables import bids_text
from .._typed import COMMAND
from ..images.dicom_headers import is_dicom
from ..images.files import read_times
from ..images.frames import Frames
from ..images.sidecars import check_apart
from ..progress import Progress
from ..registration import register
from ..result import Registration
from ..transforms import INTERPOLATIONS, Affine, Field, Transform
from ..transforms.resample import resample
from ..verdict import GRADES, counts, grade_of, rank, tally
from ._result import Readable, Tabled, folder_for
from .means import Mean
from .runner import Meter

SEAL = "series.json"
FILES = ("corrected.nii.gz", "corrected.seq.nrrd", "reference.nii.gz", "motion.tsv", "series.html")
#: What a series may leave in a folder, as patterns; the last one lists the others.
OUTPUTS = (*FILES, "transform_*.h5", SEAL)
#: fMRIPrep's names: mm along x, y, z, and radians about them.
PARAMETERS = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
_OF_CHAINS = ("disagreement_mean", "disagreement_max")
_BESIDE = ("frame", "name", "error_mm", "reasons")  # columns that motion.tsv does not have
_MOTIONS = ("rigid", "affine", "deformable")
_FEWEST = 2
_HEAD_MM = 50.0  # the radius of Power et al. 2012, at which a turn counts as a shift
_RAS = np.diag([-1.0, -1.0, 1.0])
#: Regimes (``plan.regime``) that suit frames of one body. The others follow detail as between two
#: people, or compare two contrasts, where noise and nulled tissue look like motion.
_ONE_BODY = (
    "", "asked", "frames of one scan", "noise", "one body, tissue new or gone",
    "one body nearly everywhere", "one body",
)  # fmt: skip
#: How the frames of other regimes are registered, where the caller did not choose.
_CAUTIOUS = {"similarity": "mind", "smoothness": "high", "search": False}
CHANGED = (
    "The contrast, or noise, differs too much from the reference's to follow detail: tissue was"
    " held together. Look where it moved by itself, and compare with a rigid motion."
)


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
    """Shift of the body since the reference, mm, to the right; y: to the front, z: up."""
    trans_y: float
    trans_z: float
    rot_x: float
    """Turn of the body about these axes, radians. Of a deformable motion the rigid part."""
    rot_y: float
    rot_z: float
    framewise_displacement: float | None
    """Since the frame before, mm (Power et al. 2012); None for the first."""
    displacement_mean: float
    """Shift of the tissue since the reference, mm: mean, 95th percentile and greatest."""
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


def correct_motion(
    frames: images.ImageLike | Iterable[images.ImageLike],
    out: str | os.PathLike[str] | None = None,
    *,
    reference: str | int = "mean",
    motion: str = "rigid",
    consistent: bool = False,
    interpolation: str = "linear",
    mask: images.ImageLike | None = None,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Series:
    """Register the frames of a time series onto one of them, or onto their mean.

    Parameters
    ----------
    frames : ImageLike or sequence of ImageLike
        An image with a time axis (a file, SimpleITK's, nibabel's, an array (time, z, y, x)), a
        sequence of 3D Slicer (.seq.nrrd), a folder with a DICOM series of several frames, or a list
        of volumes, in the order of time. All have one grid.
    out : path, optional
        Folder for the files of :class:`Series`, which no other call writes to meanwhile.
    reference : {"mean", "first"} or int
        What they are registered onto: the number of a frame, from 0; "first" is 0. "mean" takes two
        rounds: onto the middle frame, then onto the mean of what that gave.
    motion : {"rigid", "affine", "deformable"}
        rigid, for a head; deformable, for a heart or a chest: on a rigid start, the whole
        registration. A frame of another contrast than the reference's is then registered with
        similarity mind, smoothness high and no search, unless the options say otherwise, and its
        verdict is check at best.
    consistent : bool
        Also register each frame onto the one before, concatenate these transforms, and measure how
        far the direct ones lie from them. A frame whose verdict is not good is registered again
        from the concatenated transform, and the better of the two is kept.
    interpolation : {"linear", "cubic", "sinc", "nearest", "label"}
        Of the corrected frames.
    mask : ImageLike, optional
        On the frames' grid: where not zero, the image counts that is registered onto.
    progress : callable or bool, optional
        As of :func:`morphseek.register`.
    **options
        Of :func:`morphseek.register`; those of the deformation for a deformable motion alone.

    Raises
    ------
    MorphSeekError
        Frames that cannot be read, lie on several grids or are empty: the message has the name.

    Examples
    --------
    >>> import morphseek
    >>> import numpy as np
    >>> body = morphseek.phantom.make_pair(size=40).fixed
    >>> moved = body.like(np.roll(body.array, 1, axis=2))  # one voxel of 9.6 mm to the left
    >>> series = morphseek.correct_motion([body, moved], reference="first", threads=1)
    >>> round(series.rows[1].framewise_displacement)
    10
    """
    errors._check_choice("motion", motion, _MOTIONS)
    errors._check_choice("interpolation", interpolation, INTERPOLATIONS)
    chosen = _options(motion, dict(options))
    with folder_for(out, OUTPUTS) as folder:
        is_one = images.convert.is_image(frames) or not isinstance(frames, Iterable)
        sources: list[Any] = [frames] if is_one else [*frames]  # type: ignore[misc]
        scan = read_scan(sources)
        if out is not None:
            names = [*FILES, SEAL, *(transform_name(k) for k in range(len(scan.volumes)))]
            inputs = {f"frame {k}": source for k, source in enumerate(sources)}
            check_apart(out, names, {**inputs, "mask": mask})
        at = _number(reference, len(scan.volumes))
        where = None if mask is None else images.read_on(mask, scan.volumes[0].grid, "mask")
        count, anchor = len(scan.volumes), len(scan.volumes) // 2 if at is None else at
        total = count - 1 + count * (at is None) + (count - 1) * consistent
        with Meter(total, progress, "frames") as meter:
            work = _Work(scan.volumes, chosen, where, anchor, meter)
            rows, corrected, target = work.run(at is None, consistent, interpolation)
        series = Series(rows, corrected, target, str(reference), motion, scan.start, scan.step)
        if folder is not None:
            series._write(folder)
    return series


def _options(motion: str, options: dict[str, Any]) -> dict[str, Any]:
    if motion == "deformable":
        return {"initial": "rigid", **options}
    for name in BENDING:
        if name in options:
            raise errors.InvalidArgumentError(
                f"{name} says how to deform, and the motion is {motion}; leave it out, or ask for a"
                " deformable motion"
            )
    return {**options, **STILL, "initial": motion}


def _number(reference: str | int, count: int) -> int | None:
    """Return the number of the reference's frame; None for the mean."""
    if reference == "mean":
        return None
    try:
        at = 0 if reference == "first" else int(reference)
    except (TypeError, ValueError):
        at = -1
    if not 0 <= at < count or isinstance(reference, (bool, float)):
        raise errors.InvalidArgumentError(
            f"reference is {reference!r}; it must be mean, first, or the number of a frame from 0"
            f" to {count - 1}"
        )
    return at


class Scan(NamedTuple):
    """Volumes on one grid, in the order of time; each one's name is what messages call it."""

    volumes: list[images.Image]
    start: float = 0.0
    """When the first one was taken, s."""
    step: float | None = None
    """Between two, s; None where nothing says."""


def read_scan(sources: Sequence[Any]) -> Scan:
    """Return the frames of a source with a fourth axis, or of several volumes, on one grid."""
    scan = _of_one(sources[0]) if len(sources) == 1 else Scan(_volumes(sources))
    if len(scan.volumes) < _FEWEST:
        name = scan.volumes[0].name if scan.volumes else "the list"
        raise errors.InvalidArgumentError(
            f"series: {name} holds {len(scan.volumes)} frame(s), and motion needs {_FEWEST} or"
            " more; give an image with a time axis, a DICOM folder with several frames, or a file"
            " for each frame"
        )
    first = scan.volumes[0]
    for other in scan.volumes[1:]:
        if not first.same_grid(other):
            raise errors.GridMismatchError(
                f"series: {other.name} lies in another space than {first.name}:"
                f" {_place(other)}, not {_place(first)}; the frames of a series have one grid:"
                " leave it out, resample it onto the first one's, or register it as a pair"
            )
    return scan


def _of_one(source: Any) -> Scan:
    if images.arrays.is_array(source):
        source = images.arrays.as_array(source, "series")
        if source.ndim != 4:
            raise errors.InvalidArgumentError(
                f"series: the array has shape {source.shape}; a series has (time, z, y, x)"
            )
        return Scan(_volumes(source))
    is_path = isinstance(source, (str, os.PathLike))
    name = str(source) if is_path else "the series"
    if is_path and (Path(source).is_dir() or is_dicom(Path(source))):
        readings, step = read_times(Path(source), "series")
        volumes = _volumes([reading.image for reading in readings], f" of {source}")
        doubtful = [dataclasses.replace(v, doubts=r.doubts) for v, r in zip(volumes, readings)]
        return Scan(doubtful, 0.0, step)
    frames = Frames(source, "series")
    start, step = frames.time
    return Scan(_volumes(frames, f" of {name}"), start, step if step > 0 else None)


def _volumes(sources: Iterable[Any], where: str = "") -> list[images.Image]:
    volumes = []
    for k, source in enumerate(sources):
        name = f"frame {k}{where}"
        volume = images.read(source, name)
        if isinstance(source, (str, os.PathLike)):
            name = f"{name}: {source}"
        volumes.append(dataclasses.replace(volume, name=name))
    return volumes


def _place(image: images.Image) -> str:
    center = ", ".join(f"{v:.1f}" for v in image.grid.center)
    return f"{repr(image)[6:-1].rpartition(',')[0]} around ({center})"


class _Work:
    """The frames, and one registration after another with a common progress."""

    def __init__(
        self, volumes: list[images.Image], options: dict[str, Any], mask: images.Image | None,
        anchor: int, meter: Meter,
    ):  # fmt: skip
        self._volumes, self._grid = volumes, volumes[0].grid
        self._options, self._mask, self._anchor, self._meter = options, mask, anchor, meter

    def run(
        self, onto_mean: bool, consistent: bool, interpolation: str
    ) -> tuple[list[FrameMotion], list[images.Image], images.Image]:
        """Return the motion of each frame, the frames on the reference, and the reference."""
        target, numbers = self._volumes[self._anchor], range(len(self._volumes))
        results = [None if k == self._anchor else self._register(target, k) for k in numbers]
        if onto_mean:
            target = self._mean(results)
            results = [
                self._register(target, k, None if result is None else self._transform(result))
                for k, result in enumerate(results)
            ]
        starts = ["reference" if result is None else "direct" for result in results]
        tissue = tissue_of(target, self._mask)
        transforms = [self._transform(result) for result in results]
        chain = self._chain(transforms[self._anchor]) if consistent else []
        for k, (start, result) in enumerate(zip(chain, results)):
            if result is not None and grade_of(result.metrics) != GRADES[0]:
                again = self._register(target, k, start, again=True)
                if _is_better(again, result):
                    results[k], starts[k] = again, "concatenated"
                    transforms[k] = self._transform(again)
        rows: list[FrameMotion] = []
        corrected = [*self._volumes]
        for k, (volume, result, transform) in enumerate(zip(self._volumes, results, transforms)):
            matrix, facts = np.eye(4), dict[str, Any](verdict=GRADES[0])  # of the reference itself
            if result is not None:
                matrix = result.transform.initial
                told = result.metrics["verdict"]
                facts = {"verdict": told["grade"], "error_mm": told["error_mm"]}
                facts["reasons"] = list(told["reasons"] or ())
                corrected[k] = resample(volume, self._grid, transform.to_sitk(), interpolation)
            motion = parameters(matrix, self._grid.center)
            away = distances(transform, None, self._grid, tissue)
            since = framewise_displacement(rows[-1].parameters, motion) if rows else None
            facts |= {
                **dict(zip(PARAMETERS, map(float, motion))),
                "framewise_displacement": since,
                "displacement_mean": float(away.mean()),
                "displacement_p95": float(np.percentile(away, 95)),
                "displacement_max": float(away.max()),
            }
            if chain and result is not None:
                apart = distances(transform, chain[k], self._grid, tissue)
                facts["disagreement_mean"] = float(apart.mean())
                facts["disagreement_max"] = float(apart.max())
            rows.append(FrameMotion(k, volume.name, start=starts[k], transform=transform, **facts))
        return rows, corrected, target

    def _register(
        self, fixed: images.Image, frame: int, start: Transform | None = None, again: bool = False
    ) -> Registration:
        """Register one frame; its name is in what goes wrong."""
        moving = self._volumes[frame]
        name, jobs = os.path.basename(moving.name), 0 if again else 1
        inputs: dict[str, Any] = {"fixed_mask": self._mask, "initial_transform": start}
        try:
            tell = self._meter.job(name, name, jobs)
            result = register(fixed, moving, **inputs, progress=tell, **self._options)
            self._meter.ended(name, jobs=jobs)
            if result.metrics["plan"]["regime"] in _ONE_BODY:
                return result
            cautious, tell = {**_CAUTIOUS, **self._options}, self._meter.job(name, name, 0)
            result = register(fixed, moving, **inputs, progress=tell, **cautious)
        except errors.CancelledError:
            raise
        except errors.MorphSeekError as error:
            name = fixed.name if "fixed volume" in str(error) else moving.name
            raise type(error)(
                f"series: {name}: {error}; leave the frame out if it shows nothing"
            ) from None
        verdict = result.metrics["verdict"]
        verdict["reasons"] = [*(verdict["reasons"] or ()), CHANGED]
        if verdict["grade"] == GRADES[0]:
            verdict["grade"] = GRADES[1]
        return result

    def _transform(self, result: Registration | None) -> Transform:
        if result is None:
            return Affine(np.eye(4), self._grid, self._grid)
        return Transform.of(result.transform.to_sitk(), self._grid, self._grid)

    def _mean(self, results: Sequence[Registration | None]) -> images.Image:
        """Return the mean of the frames on one of them, without what failed or is not shown."""
        mean = Mean(self._volumes[0].array.shape)
        for volume, result in zip(self._volumes, results):
            if result is not None and grade_of(result.metrics) == GRADES[-1]:
                continue
            values = volume.float32()
            if result is not None:
                transform = result.transform.to_sitk()
                values = resample(
                    volume.like(values), self._grid, transform, background=np.nan
                ).array
            mean.add(values)
        array = mean.result(self._volumes[self._anchor].float32()).astype(np.float32)
        return images.Image.on_grid(array, self._grid, "the mean of the frames")

    def _chain(self, first: Transform) -> list[Transform]:
        """Return the transforms from the reference to each frame by way of all from the anchor."""
        transforms, count = [first] * len(self._volumes), len(self._volumes)
        outwards = [(k, k - 1) for k in range(self._anchor + 1, count)]
        outwards += [(k, k + 1) for k in range(self._anchor - 1, -1, -1)]
        for k, before in outwards:
            step = self._transform(self._register(self._volumes[before], k))
            whole = step @ transforms[before]
            if not whole.is_linear:  # one field, however long the chain is
                vectors = whole.displacement_mm(self._volumes[0])
                whole = Field.from_mm(vectors, self._grid, self._grid)
            transforms[k] = whole
        return transforms


def _is_better(one: Registration, other: Registration) -> bool:
    """Whether a registration of two images has the better verdict or, else, similarity."""
    a, b = one.metrics, other.metrics
    grades = [result["verdict"]["grade"] for result in (a, b)]
    if grades[0] != grades[1]:
        return grades[0] in GRADES and GRADES.index(grades[0]) < GRADES.index(grades[1])
    return bool(
        a["similarity"] == b["similarity"] and a["similarity_after"] > b["similarity_after"]
    )


def parameters(matrix: Doubles, center: Doubles) -> Doubles:
    """Return the motion of a body from the reference to a frame, of a 4x4 LPS matrix: its shift at
    ``center``, mm, and its turn about the axes x, y and z, one after the other, radians; axes to
    the right, to the front and up (RAS). Of an affine matrix the nearest turn counts.
    """
    u, _, v = np.linalg.svd(matrix[:3, :3])
    turn = sitk.Euler3DTransform()
    turn.SetComputeZYX(True)
    turn.SetMatrix((_RAS @ (u @ v) @ _RAS).ravel().tolist(), 1e-6)
    shift = _RAS @ (matrix[:3, :3] @ center + matrix[:3, 3] - center)
    return np.array([*shift, turn.GetAngleX(), turn.GetAngleY(), turn.GetAngleZ()])


def framewise_displacement(before: Sequence[float] | Doubles, now: Doubles) -> float:
    """Return the sum of what the parameters changed, mm, turns at 50 mm (Power et al. 2012)."""
    scale = np.array([1, 1, 1, _HEAD_MM, _HEAD_MM, _HEAD_MM])
    return float(np.abs(now * scale - np.asarray(before) * scale).sum())


def tissue_of(image: images.Image, mask: images.Image | None) -> np.ndarray:
    """Return where the mask is not zero or, without one, what Otsu's threshold tells from air."""
    if mask is not None:
        inside = np.asarray(mask.array != 0)
        return inside if inside.any() else np.ones_like(inside)
    values = np.nan_to_num(image.float32(), nan=float(np.nanmin(image.array)))
    bright: np.ndarray = sitk.GetArrayFromImage(
        sitk.OtsuThreshold(sitk.GetImageFromArray(values), 0, 1)
    )
    return bright > 0


def distances(one: Transform, other: Transform | None, grid: Grid, tissue: np.ndarray) -> Doubles:
    """Return how far two transforms, or one and none, take voxels of the tissue apart, mm."""
    reference = images.Image.on_grid(np.zeros(tissue.shape, np.uint8), grid)
    vectors = one.displacement_mm(reference)
    if other is not None:
        vectors = vectors - other.displacement_mm(reference)
    return np.linalg.norm(vectors[tissue], axis=-1)
