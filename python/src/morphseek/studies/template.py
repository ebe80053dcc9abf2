"""Make a template: rounds of registrations to the mean, and of the mean's shape and image.

The folder ``rounds`` has the template that the images are registered to, and where each image
starts from. When all are registered, the next round's files take their place, all of them together.
So whatever ends the process, the same call goes on with the pair that it was at.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import _files, _manifest, errors, images as volumes
from .._engine import bindings, core
from .._engine.bindings import Doubles
from .._engine.generated import Options, Unpack
from .._engine.options import BENDING, STILL, checked_options
from .._grid import Grid
from .._json import Plain, object_in
from .._percentiles import distinct
from .._typed import COMMAND
from ..images.sidecars import check_apart
from ..progress import Progress
from ..report.picture import three_planes
from ..result import Registration
from ..scoring.labels import check_labels, dice_by_label, on_fixed_grid
from ..transforms import Affine, Field, Transform
from ..transforms.labels import carry_labels
from ..transforms.linear import linear_part
from ..transforms.parts import field_on
from ..verdict import GRADES, counts
from ._result import Readable, Tabled, mean, mean_dice
from .fusion import Votes, smallest
from .means import Average, MeanTransform, before_linear, common_grid, moved_grid, sharpness
from .pairs import deciding, files_of, register_pairs
from .runner import Meter, content_of, digest
from .table import Item, read_items

SEAL = "template.json"
FILES = ("template.nii.gz", "labels.nii.gz", "template.html")
#: What a template may leave in a folder, as patterns; the last one lists the others.
OUTPUTS = (*FILES, "transform_*.h5", "warped_*.nii.gz", SEAL)
_DICE = ("dice", "dice_without_own")
ROUNDS = "rounds"
_ROUND, _PAIRS = "round.json", "pairs"
_TEMPLATE = "template.nrrd"  # which keeps a grid to the last digit
_AVERAGES = ("mean", "median")
_LINEAR: dict[str, tuple[str, ...]] = {"rigid": ("rigid",), "affine": ("rigid", "affine")}
_FEWEST = 2
_FINEST_MM = 1e-3
_MOST_PICTURES = 200  # of images on the page


@dataclasses.dataclass
class Iteration(Plain):
    """One template on the way to the last.

    Examples
    --------
    >>> template.iterations[0].number, template.iterations[0].kind
    (0, 'mean')
    """

    number: int
    """From 0, what it all started from."""
    kind: str
    """mean or image for the start; rigid, affine or deformable: how images were registered to the
    template before.
    """
    gradient: float
    """Mean norm of the gradient, a mm, of intensities from 0 to 1."""
    entropy: float
    """Of the intensities, bits, in 256 bins."""
    shape_mm: float | None = None
    """Mean length of the mean displacement of the registrations, mm: by how much the template's
    shape changed.
    """
    change_percent: float | None = None
    """Root mean square of the intensities' change since the template before, % of their range."""
    mean_voxels: float | None = None
    """Length, voxels, of what the mean of the transforms is away from the identity: mean and most.
    """
    mean_voxels_max: float | None = None
    left_out: list[str] = dataclasses.field(default_factory=list)
    """Ids of the images that did not count, for their registration failed."""
    seconds: float = 0.0
    """Processor time of this process."""
    picture: bytes = dataclasses.field(default=b"", repr=False)
    """The template in three planes, PNG."""


@dataclasses.dataclass(frozen=True)
class TemplateRow(Plain):
    """One image of a population.

    Examples
    --------
    >>> template.rows[0].id, template.rows[0].is_used
    ('image-0000', True)
    """

    id: str
    """The name of its files."""
    image: str
    """The image's file."""
    verdict: str
    """Of its last registration; failed where there was none."""
    reasons: list[str]
    """Of the verdict, or why it could not be registered."""
    moved_mm: float
    """Mean length of the displacement without its linear part, mm."""
    dice: dict[int, float] | None = None
    """Label to overlap of its labels, in the template's space, with the voted ones: and with those
    that the other images voted for.
    """
    dice_without_own: dict[int, float] | None = None
    picture: bytes = dataclasses.field(default=b"", repr=False)
    """The image in the template's space, PNG."""

    @property
    def is_used(self) -> bool:
        """Whether it counts in the template."""
        return self.verdict != GRADES[-1]


@dataclasses.dataclass(repr=False)
class Template(Readable, Tabled):
    """The mean of a population, in the middle of its shapes, from
    :func:`morphseek.build_template`: a table with a row an image.

    Its folder has template.nii.gz, labels.nii.gz where there are labels, transform_ID.h5 of each
    image, template.html and template.json.

    Examples
    --------
    >>> template
    Template(2 images, 2 used; 2 iterations, gradient 0.007, entropy ...)
    """

    _outputs: ClassVar = OUTPUTS
    _card: ClassVar = "template"
    image: volumes.Image
    """The template, in the images' own intensities: between the means of their percentiles."""
    labels: volumes.Image | None
    """The label that most images give each voxel."""
    rows: list[TemplateRow]
    """The images, in their order."""
    iterations: list[Iteration]
    """The templates on the way; the last one is this."""
    settings: dict[str, Any]
    """Of the call."""
    stored: list[Transform | Path]
    """The transforms, or their files."""

    @classmethod
    def _read(cls, folder: Path, content: Mapping[str, Any]) -> Template:
        rows = [_row_of(row) for row in content["rows"]]
        has_labels = FILES[1] in content[_manifest.KEY]
        return cls(
            volumes.read(folder / FILES[0], "template"),
            volumes.read(folder / FILES[1], "labels") if has_labels else None,
            rows,
            [_iteration_of(row) for row in content["iterations"]],
            content["settings"],
            [folder / transform_name(row.id) for row in rows],
        )

    def __repr__(self) -> str:
        last = self.iterations[-1]
        return (
            f"Template({len(self.rows)} images, {sum(row.is_used for row in self.rows)} used;"
            f" {last.number} iterations, gradient {last.gradient:.3f}, entropy {last.entropy:.2f})"
        )

    def _planes(self) -> tuple[np.ndarray, Grid]:
        return self.image.array, self.image.grid

    @functools.cached_property
    def transforms(self) -> list[Transform]:
        """The transform of each image, from the template's space to the image's:
        ``transforms[0].apply(image)`` brings it into the template's.

        Examples
        --------
        >>> template.transforms[0].apply(pair.fixed).array.shape
        (48, 48, 49)
        """
        return [Transform.read(t) if isinstance(t, Path) else t for t in self.stored]

    def mean_dice(self, without_own: bool = False) -> float | None:
        """Return the mean, over the images that count and their labels, of the overlap with the
        voted labels; with those of the others where ``without_own``.

        Examples
        --------
        >>> template.mean_dice() is None  # there are no labels
        True
        """
        name = _DICE[without_own]
        return mean(mean_dice(getattr(row, name)) for row in self.rows if row.is_used)

    def _facts(self) -> dict[str, Any]:
        return {
            "version": core.version(),
            "settings": self.settings,
            "grid": self.image.grid.numbers.tolist(),
            "verdicts": counts(row.verdict for row in self.rows),
            "dice": self.mean_dice(),
            "dice_without_own": self.mean_dice(without_own=True),
            "iterations": [iteration.to_dict() for iteration in self.iterations],
            "rows": [{**row.to_dict(), "used": row.is_used} for row in self.rows],
        }

    def _table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the rows with the mean over the labels."""
        rows = []
        for row in self.rows:
            means = {name: mean_dice(getattr(row, name)) for name in _DICE}
            rows.append({**row.to_dict(), **means, "used": row.is_used})
        return [*rows[0]], rows

    def _write(self, folder: Path, fingerprint: str = "") -> None:
        from ..report.pages import template

        volumes.write(folder / FILES[0], self.image)
        if self.labels is not None:
            volumes.write(folder / FILES[1], self.labels)
        for row, stored in zip(self.rows, self.stored):
            path = folder / transform_name(row.id)
            if isinstance(stored, Path):
                _files.write_with(functools.partial(shutil.copyfile, stored), path)
            else:
                stored.save(path)
        facts = self.to_dict()
        iterations, rows = ([each.picture for each in of] for of in (self.iterations, self.rows))
        _files.write_text(folder / FILES[2], template(facts, iterations, rows, COMMAND.get()))
        _files.write_seal(folder / SEAL, {**facts, "fingerprint": fingerprint})


def build_template(
    images: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    start: Any = "mean",
    iterations: int = 4,
    average: str = "mean",
    sharpen: float = 0.0,
    spacing: float | None = None,
    warped: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = True,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> Template:
    """Make the template of a population: its mean image, in the middle of its shapes.

    First come a rigid and an affine round, then deformable ones. Each registers all images to the
    template, takes the mean out of the transforms, and averages the images in that space.

    Parameters
    ----------
    images : path or sequence
        Two or more, as :func:`morphseek.studies.read_items` takes them. All have a label map, on
        their grid, or none. Where a mask is 0, its image does not count for a registration.
    out : path, optional
        Folder for the files of :class:`Template`. The same call goes on there after an
        interruption; of a template that is finished it reads the result.
    start : "mean", int or ImageLike
        What comes first: the mean of the images, their centres of mass on one another; an image, by
        its number from 0; or any other image. The latter two give the template their grid.
    iterations : int
        Deformable rounds; 0 gives the affine mean.
    average : {"mean", "median"}
        Of the intensities. The median holds all images in memory.
    sharpen : float
        Share, 0 to 1, of a Laplacian sharpening that is added to each template.
    spacing : float, optional
        Of the template's voxels, mm: by default the median of the images'. For the start "mean".
    warped : bool
        Also write each image in the template's space.
    workers, scheduler, progress
        Of :func:`morphseek.register_pairs`.
    resume : bool
        False begins anew, and replaces a template of other images in the folder.
    **options
        Of :func:`morphseek.register`. ``smoothness`` is low unless given. ``initial`` says which
        linear rounds there are: affine, rigid alone, or none (com, none).

    Raises
    ------
    MorphSeekError
        An image or a label map that cannot be used, with its name; or a folder with other work.
    CancelledError, KeyboardInterrupt
        What is finished is kept in ``out``.

    Examples
    --------
    >>> import morphseek
    >>> import numpy as np
    >>> body = morphseek.phantom.make_pair(size=32).fixed
    >>> moved = [body.like(np.roll(body.array, n, axis=2)) for n in (-1, 0, 1)]
    >>> template = morphseek.build_template(moved, iterations=0, threads=1)
    >>> [round(float(t.transform_points([[0, 0, 0]])[0, 0] / body.spacing[0])) for t in
    ...  template.transforms]
    [-1, 0, 1]
    """
    errors._check_choice("average", average, _AVERAGES)
    errors._check_number("iterations", iterations, 0, whole=True)
    if workers is not None:
        errors._check_number("workers", workers, 1, whole=True)
    errors._check_number("sharpen", sharpen, 0, 1)
    if spacing is not None:
        errors._check_number("spacing", spacing, _FINEST_MM)
    chosen, model = checked_options({"smoothness": "low", **options})
    sources = _sources(images)
    first = None
    if isinstance(start, (int, np.integer)):
        errors._check_number("start", start, 0, len(sources) - 1, whole=True)
        first = sources[int(start)]
    elif not (isinstance(start, str) and start == "mean"):
        first = _Member(Item("start", start))
    if first is not None and spacing is not None:
        raise errors.InvalidArgumentError(
            f"spacing is {spacing}, and {first.name} gives the template its grid; leave it out, or"
            " start from the mean"
        )
    settings = {
        "iterations": iterations, "average": average, "sharpen": sharpen, "spacing": spacing,
        "images": len(sources), "start": "mean" if first is None else first.name, "options": chosen,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        folder = out or stack.enter_context(tempfile.TemporaryDirectory(prefix="morphseek-"))
        rounds = _Rounds(sources, first, settings, model, warped, Path(folder))
        template = rounds.run(resume, progress, workers=workers, scheduler=scheduler)
        if out is None:
            template.stored = [*template.transforms]  # before their files go
    return template


class _Member:
    """An image, and what is known of its voxels."""

    def __init__(self, item: Item):
        self.item, self.name = item, item.name
        image = volumes.read(item.image, self.name)
        if 1 in image.array.shape:
            raise errors.ThinVolumeError(
                f"template: {self.name} is a slice; a template is made of volumes: leave it out"
            )
        values, (low, high) = image.intensities()
        if not high > low:
            low, high = float(values.min()), float(values.max())
        if not high > low:
            raise errors.ConstantVolumeError(
                f"template: {self.name} shows nothing: every voxel has the same value; leave it out"
            )
        self.grid, self.window = image.grid, (low, high)  # which become 0 and 1
        weights = np.clip(values, low, high) - low
        total = float(weights.sum(dtype=np.float64))
        index = [
            float(weights.sum(axis=others, dtype=np.float64) @ np.arange(n)) / total
            for others, n in zip(((0, 1), (0, 2), (1, 2)), values.shape[::-1])
        ]
        self.center: Doubles = image.grid.to_physical(index)  # of its mass, LPS mm
        if item.labels is not None:
            is_path = isinstance(item.labels, (str, os.PathLike))
            of = f"labels {item.labels if is_path else 'of ' + self.name}"
            check_labels(on_fixed_grid(item.labels, image.grid, of))

    def read(self) -> volumes.Image:
        """Return the image with intensities from 0 to 1 between its percentiles, and beyond."""
        image = volumes.read(self.item.image, self.name)
        low, high = self.window
        return image.like((image.intensities()[0] - low) / np.float32(high - low))

    def content(self, role: str) -> Any:
        """Return the hashes of a role's files, or that of the voxels of an image in memory."""
        source, name = getattr(self.item, role), f"{role} of {self.name}"
        if source is None:
            return None
        if isinstance(source, (str, os.PathLike)):
            return content_of(files_of(Path(source), name), name)
        image = volumes.read(source, name)
        voxels = hashlib.sha256(np.ascontiguousarray(image.array).tobytes()).hexdigest()
        return [voxels, str(image.array.dtype), image.grid.numbers.tolist()]

    def labels(self) -> volumes.Image:
        return volumes.read_on(self.item.labels, self.grid, f"labels of {self.name}")


def _sources(images: Any) -> list[_Member]:
    items = read_items(images)
    if len(items) < _FEWEST:
        raise errors.InvalidArgumentError(
            f"template: {len(items)} image: {items[0].name}; a mean needs two or more"
        )
    lacking = next((item.name for item in items if item.labels is None), None)
    if lacking and any(item.labels is not None for item in items):
        raise errors.InvalidArgumentError(
            f"template: {lacking} has no label map; give every image one, or none"
        )
    return [_Member(item) for item in items]


class _Rounds:
    """The images, and one round after another in the folder of a template."""

    def __init__(
        self, sources: list[_Member], first: _Member | None, settings: dict[str, Any],
        model: Mapping[str, Any], warped: bool, out: Path,
    ):  # fmt: skip
        self._out, self._folder = out, out / ROUNDS
        self._sources, self._first, self._settings = sources, first, settings
        self._options: dict[str, Any] = settings["options"]
        self._how = settings["average"], settings["sharpen"]
        linear = _LINEAR.get(self._options.get("initial", "affine"), ())
        self._kinds = [*linear, *["deformable"] * settings["iterations"]]
        if not self._kinds:
            raise errors.InvalidArgumentError(
                f"iterations is 0 and initial is {self._options['initial']}: nothing is left to do;"
                " ask for a rigid or affine start, or for iterations"
            )
        self._fingerprint = self._digest(model, warped)
        self._warped = warped
        self._iterations: list[Iteration] = []
        self._check_apart()

    def run(self, resume: bool, progress: Any, **how: Any) -> Template:
        """Do the rounds that are left in the folder, and return its template."""
        out, sources = self._out, self._sources
        self._check(out / SEAL, [out / name for name in FILES], resume)
        if resume and (out / SEAL).exists():
            with contextlib.suppress(errors.InputUnreadableError):  # it is damaged: made again
                return Template.read(out)
        meter = Meter(len(self._kinds) * len(sources), progress, "template")
        with _files.output_folder(out, OUTPUTS, SEAL) as temporary, meter:
            self._begin(resume)
            for kind in self._kinds[: len(self._iterations) - 1]:
                meter.ended(kind, jobs=len(sources))
            while len(self._iterations) <= len(self._kinds):
                self._go_on(meter, **how)
            template = self._template()
            for source, transform in zip(sources, template.transforms if self._warped else ()):
                image = transform.apply(volumes.read(source.item.image, source.name))
                volumes.write(temporary / warped_name(source.item.id), image)
            template._write(temporary, self._fingerprint)
        template.stored = [out / transform_name(row.id) for row in template.rows]
        shutil.rmtree(self._folder, ignore_errors=True)
        return template

    def _check(self, seal: Path, files: Iterable[Path], resume: bool) -> None:
        """Refuse what is of another template, and files that no template's seal tells of."""
        if not seal.exists():
            for file in (file for file in files if file.exists()):
                raise errors.OutputUnwritableError(
                    f"{file} is there and no {seal.name} tells what of; move it away or choose"
                    " another folder"
                )
        elif resume and object_in(seal).get("fingerprint") != self._fingerprint:
            raise errors.OutputUnwritableError(
                f"{seal} is of a template of other images or options; choose another folder, or"
                " begin anew with --no-resume (resume=False)"
            )

    def _check_apart(self) -> None:
        """See that no input lies where an output goes."""
        names, inputs = [*FILES, SEAL], {"start": self._first and self._first.item.image}
        for k, item in enumerate(source.item for source in self._sources):
            names += [transform_name(item.id), warped_name(item.id)]
            inputs |= {f"image {k}": item.image, f"labels {k}": item.labels}
        check_apart(self._out, names, inputs)

    def _digest(self, model: Mapping[str, Any], warped: bool) -> str:
        """Return a hash of all that the template depends on."""
        how = ("iterations", "average", "sharpen", "spacing")
        settings = [warped, *(self._settings[name] for name in how)]
        roles = ("image", "labels", "mask")
        first = self._first and self._first.content("image")
        sources = [[s.item.id, *map(s.content, roles)] for s in self._sources]
        return digest(core.version(), deciding(self._options, model), settings, first, sources)

    def _begin(self, resume: bool) -> None:
        """Go on with the rounds in the folder, or write the first template."""
        seal = self._folder / _ROUND
        _files.settle(self._folder)
        self._check(seal, self._folder.glob("*"), resume)
        with contextlib.suppress(errors.InputUnreadableError):  # missing, or a file is damaged
            known = _files.read_seal(seal, "round")["iterations"] if resume else ()
            self._iterations = [_iteration_of(row) for row in known]
        if self._iterations:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        began = time.process_time()
        transforms: list[Field] = []
        if self._first is not None:
            image = self._first.read()
            reach = np.ones(image.array.shape, bool)
        else:
            centers = [source.center for source in self._sources]
            grids = [source.grid for source in self._sources]
            grid = common_grid(grids, centers, self._settings["spacing"])
            average = Average(grid, *self._how)
            for source in self._sources:
                shift = np.eye(4)
                shift[:3, 3] = source.center - np.mean(centers, axis=0)
                transforms.append(_linear_field(shift, grid, source))
                warped = transforms[-1].apply(source.read(), background=np.nan)
                average.add(warped.array)
            image, reach = average.image(), average.reach
        kind = "mean" if self._first is None else "image"
        seconds = time.process_time() - began
        with _files.output_folder(self._folder, ("*",), _ROUND) as folder:
            for source, transform in zip(self._sources, transforms):
                self._write(folder, source, transform)
            iteration = Iteration(0, kind, *sharpness(image, reach), seconds=seconds)
            self._seal(folder, iteration, image)

    def _seal(
        self, folder: Path, iteration: Iteration, image: volumes.Image,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        """Write a round's template, and what tells of all until then and says that it is whole."""
        iteration.picture = three_planes(image.array, image.grid)
        self._iterations.append(iteration)
        volumes.write(folder / _TEMPLATE, image)
        iterations = [
            {**each.to_dict(), "picture": base64.b64encode(each.picture).decode()}
            for each in self._iterations
        ]
        state = {"fingerprint": self._fingerprint, "iterations": iterations, "rows": rows}
        _files.write_seal(folder / _ROUND, state)

    def _stored(self, source: _Member) -> Path:
        """Return the file of an image's transform; there may be none in the first round."""
        return self._folder / transform_name(source.item.id)

    def _linear(self, source: _Member) -> Path:
        """Return the file of its linear part, from which a registration begins."""
        return self._folder / f"linear_{source.item.id}.tfm"

    def _write(self, folder: Path, source: _Member, transform: Field) -> None:
        """Write an image's transform into the folder of a round."""
        transform.save(folder / self._stored(source).name)
        Affine(transform.initial).save(folder / self._linear(source).name)

    def _go_on(self, meter: Meter, **how: Any) -> None:
        """Register all images, take the mean out of the transforms, and write the next round."""
        began = time.process_time()
        number = len(self._iterations)
        rows = self._register(number, meter, **how)
        before = volumes.read(self._folder / _TEMPLATE, "template")
        mean = MeanTransform(before.grid)
        for source, row in zip(self._sources, rows):
            if row.is_used:
                mean.add(self._registered(source))
        back, grid = mean.inverse(), moved_grid(before.grid, mean.matrix)
        last, rest = np.linalg.inv(mean.matrix), MeanTransform(grid)
        average = Average(grid, *self._how)
        facts = []
        with _files.output_folder(self._folder, ("*",), _ROUND) as folder:
            for source, row in zip(self._sources, rows):
                used = row.is_used
                old = self._registered(source) if used else self._started(source, before.grid)
                vectors = field_on((old @ back).to_sitk(), grid)
                new = Field.from_mm(vectors, grid, source.grid, old.initial @ last)
                self._write(folder, source, new)
                bend = before_linear(new)
                moved = 0.0 if bend is None else float(np.linalg.norm(bend, axis=-1).mean())
                facts.append(dataclasses.replace(row, moved_mm=moved).to_dict())
                if used:
                    rest.add(new)
                    average.add(new.apply(source.read(), background=np.nan).array)
            image = average.image()
            left = _lengths(rest.displacement()[average.reach]) / min(grid.spacing)
            iteration = Iteration(
                number, self._kinds[number - 1], *sharpness(image, average.reach),
                shape_mm=float(_lengths(mean.displacement()).mean()),
                change_percent=_change(before, image, average.reach),
                mean_voxels=float(left.mean()), mean_voxels_max=float(left.max()),
                left_out=[row.id for row in rows if not row.is_used],
                seconds=time.process_time() - began,
            )  # fmt: skip
            self._seal(folder, iteration, image, facts)
        shutil.rmtree(self._folder / _PAIRS, ignore_errors=True)

    def _register(self, number: int, meter: Meter, **how: Any) -> list[TemplateRow]:
        """Register all images to the template of the round before; how far they move is not in the
        rows.
        """
        options, kind, count = dict(self._options), self._kinds[number - 1], len(self._sources)
        if kind != "deformable":
            options = {k: v for k, v in options.items() if k not in BENDING or k == "device"}
            options |= {**STILL, "initial": kind}
        message = f"round {number} of {len(self._kinds)}, {kind}"
        done = register_pairs(
            [self._pair(source) for source in self._sources], self._folder / _PAIRS, report="none",
            progress=meter.job(kind, message, count), **how, **options,
        ).rows  # fmt: skip
        meter.ended(kind, jobs=count)
        for row in (row for row in done if row.error):
            failure = getattr(errors, row.error, errors.RuntimeFailedError)
            if failure.exit_code != errors.InputUnreadableError.exit_code:
                # not of this image: a full disk, too little memory, a network that does not run
                raise failure(f"template, round {number}: {row.message}")
        rows = []
        for source, row in zip(self._sources, done):
            grade = row.verdict if row.status != "failed" else GRADES[-1]
            reasons = [row.message] if row.message else row.reasons
            rows.append(TemplateRow(source.item.id, source.name, grade, reasons, 0.0))
        used = sum(row.is_used for row in rows)
        if used < _FEWEST:
            worst = next(row for row in rows if not row.is_used)
            raise errors.RuntimeFailedError(
                f"template: of {count} images {used} could be registered to the template of round"
                f" {number - 1}; {worst.image}: {worst.reasons}"
            )
        return rows

    def _pair(self, source: _Member) -> dict[str, Any]:
        item = source.item
        moving = item.image
        if not isinstance(moving, (str, os.PathLike)):
            moving = self._folder / f"image_{item.id}.nrrd"
            if not moving.exists():
                volumes.write(moving, volumes.read(item.image, source.name))
        pair = {
            "id": f"_{item.id}", "fixed": self._folder / _TEMPLATE, "moving": moving,
            "moving_mask": item.mask,
        }  # fmt: skip
        # From its deformation too, a registration would hardly move: the rounds stood still
        if (start := self._linear(source)).exists():
            pair["initial_transform"] = start
        return pair

    def _registered(self, source: _Member) -> Field:
        return Registration.read(self._folder / _PAIRS / f"_{source.item.id}").transform

    def _started(self, source: _Member, grid: Grid) -> Field:
        """Return the transform from which an image's registration started."""
        path = self._linear(source)
        matrix = linear_part(Transform.read(path).to_sitk()) if path.exists() else np.eye(4)
        return _linear_field(matrix, grid, source)

    def _template(self) -> Template:
        """Return the template of the last round."""
        average = volumes.read(self._folder / _TEMPLATE, "template")
        rows = [TemplateRow(**row) for row in object_in(self._folder / _ROUND)["rows"]]
        stored = [self._stored(source) for source in self._sources]
        if len(rows) <= _MOST_PICTURES:
            for k, (source, path) in enumerate(zip(self._sources, stored)):
                warped = Transform.read(path).apply(source.read(), average)
                shown = three_planes(warped.array, average.grid, 200)
                rows[k] = dataclasses.replace(rows[k], picture=shown)
        labels = self._vote(average, stored, rows) if self._sources[0].item.labels else None
        low, high = (float(np.mean([s.window[end] for s in self._sources])) for end in (0, 1))
        image = average.like((low + average.array * (high - low)).astype(np.float32))
        return Template(image, labels, rows, self._iterations, self._settings, [*stored])

    def _vote(
        self, average: volumes.Image, stored: Sequence[Path], rows: list[TemplateRow]
    ) -> volumes.Image:
        """Return the voted labels, and put each image's overlap with them into its row."""
        known = {int(v) for s in self._sources for v in distinct(s.labels().array)}
        values = np.array(sorted({0, *known}))
        votes = Votes(len(values), average.array.size, np.int16)

        def own(k: int) -> tuple[np.ndarray, np.ndarray]:
            """Return the numbers of an image's labels among all, and the weights of its votes."""
            apply = functools.partial(Transform.read(stored[k]).apply, reference=average)
            numbers, reach = carry_labels(self._sources[k].labels(), apply)
            return np.searchsorted(values, numbers.ravel()), reach.ravel() * int(rows[k].is_used)

        def result() -> np.ndarray:
            chosen, share = votes.result()
            return np.where(share > 0, values[chosen], 0)

        for k in range(len(rows)):
            votes.add(*own(k))
        voted = result()
        for k, row in enumerate(rows):
            numbers, weights = own(k)
            votes.add(numbers, -weights)
            maps = voted, result()
            votes.add(numbers, weights)
            dice, of_others = (dice_by_label(values[numbers], of, "one") for of in maps)
            rows[k] = dataclasses.replace(row, dice=dice, dice_without_own=of_others)
        return average.like(smallest(voted.reshape(average.array.shape)))


def _linear_field(matrix: Doubles, grid: Grid, source: _Member) -> Field:
    """Return a linear transform to an image as a field on a grid."""
    vectors = field_on(Affine(matrix).to_sitk(), grid)
    return Field.from_mm(vectors, grid, source.grid, matrix)


def _lengths(vectors: Doubles) -> Doubles:
    lengths: Doubles = np.linalg.norm(vectors, axis=-1)
    return lengths if lengths.size else np.zeros(1)


def _change(before: volumes.Image, now: volumes.Image, reach: np.ndarray) -> float:
    """Return the root mean square of how two templates differ, % of the range of intensities."""
    old = before.array
    if not now.same_grid(before):
        old = bindings.resample(before.float32(), before.grid, now.grid, "linear", 0.0)
    return float(100 * np.sqrt(np.mean(np.square((now.array - old)[reach], dtype=np.float64))))


def transform_name(id: str) -> str:
    return f"transform_{id}.h5"


def warped_name(id: str) -> str:
    return f"warped_{id}.nii.gz"


def _iteration_of(row: Mapping[str, Any]) -> Iteration:
    """Return the iteration that :meth:`to_dict` gave, with its picture in base 64 or without."""
    nan = {name: math.nan for name in ("gradient", "entropy") if row[name] is None}
    return Iteration(**{**row, **nan, "picture": base64.b64decode(row.get("picture", ""))})


def _row_of(row: Mapping[str, Any]) -> TemplateRow:
    """Return the row that :meth:`to_dict` gave."""
    cells = {name: value for name, value in row.items() if name != "used"}
    for name in _DICE:
        if cells[name] is not None:
            cells[name] = {int(label): value for label, value in cells[name].items()}
    return TemplateRow(**cells)
