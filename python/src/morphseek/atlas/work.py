"""Making a template: rounds of registrations to the mean, and of the mean's shape and image."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, errors, images as volumes
from .._engine import bindings, core
from .._engine.bindings import Doubles
from .._engine.options import BENDING, STILL
from .._grid import Grid
from ..progress import Bar, Progress, callback_of
from ..report.picture import three_planes
from ..result import Registration
from ..studies import PairRow, register_pairs
from ..transforms import Field, Transform
from ..transforms.parts import field_on
from ..verdict import GRADES
from .maps import carried, dense, keep, shift
from .means import Average, Averaging, MeanMap, bent, common_grid, moved_grid, sharpness
from .result import OUTPUTS, SEAL, Iteration, Subject, Template, load, write
from .rounds import TEMPLATE, Rounds, check_place, content, fingerprint
from .sources import FEWEST, Source
from .votes import Votes, dice

AVERAGES = ("mean", "median")
_LINEAR: dict[str, tuple[str, ...]] = {"rigid": ("rigid",), "affine": ("rigid", "affine")}
_MOST_PICTURES = 200  # of images on the page


@dataclasses.dataclass(frozen=True)
class Settings:
    iterations: int
    average: str
    sharpen: float
    spacing: float | None
    workers: int
    scheduler: str | None

    def check(self) -> None:
        if self.average not in AVERAGES:
            raise errors.InvalidArgumentError(
                f"average is {self.average!r}; it must be {' or '.join(AVERAGES)}"
            )
        for name, least in (("iterations", 0), ("workers", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise errors.InvalidArgumentError(
                    f"{name} is {value!r}; it must be a whole number from {least}"
                )
        if not 0 <= self.sharpen <= 1:
            raise errors.InvalidArgumentError(f"sharpen is {self.sharpen}; it must be from 0 to 1")
        if self.spacing is not None and not (math.isfinite(self.spacing) and self.spacing > 0):
            raise errors.InvalidArgumentError(
                f"spacing is {self.spacing}; it must be a number of mm above 0"
            )


class Work:
    """The images, and one round after another with a common progress."""

    def __init__(
        self,
        settings: Settings,
        sources: list[Source],
        first: Source | None,
        options: dict[str, Any],
        model: Mapping[str, Any],
        progress: Callable[[Progress], Any] | bool | None,
    ):
        self.settings, self.sources, self.first, self.options = settings, sources, first, options
        self._model = model
        linear = _LINEAR.get(options.get("initial", "affine"), ())
        self.kinds = [*linear, *["deformable"] * settings.iterations]
        if not self.kinds:
            raise errors.InvalidArgumentError(
                f"iterations is 0 and initial is {options['initial']}: nothing is left to do; ask"
                " for a rigid or affine start, or for iterations"
            )
        self._callback = callback_of(progress)

    def close(self) -> None:
        if isinstance(self._callback, Bar):
            self._callback.close()

    def run(self, out: Path, warped: bool, resume: bool, command: str) -> Template:
        plan = self._plan()
        whole = fingerprint(
            plan,
            self.settings.iterations,
            [content(s.labels, f"labels of {s.name}") for s in self.sources],
            warped,
        )
        if check_place(out, whole, resume):
            done = load(out)
            done.sources = [source.image for source in self.sources]
            return done
        with _files.output_folder(out):
            pass  # an unwritable folder, or one where another call is, fails before the work
        with _files.locked(out):
            rounds = Rounds(out, self.sources, plan, resume)
            made = self._rounds(rounds)
            found = self._result(rounds, made)
            with _files.together(out, OUTPUTS, SEAL) as temporary:
                write(found, temporary, command, warped, {"fingerprint": whole})
            found.move(out)
            rounds.clear()
        return found

    def _plan(self) -> str:
        """Return a hash of all that a round depends on."""
        own = {k: v for k, v in self.options.items() if k not in ("threads", "cache", "model")}
        model = self._model["manifest"]["sha256"] if self._model else self.options.get("model", "")
        return fingerprint(
            core.version(),
            own,
            model,
            self.settings.average,
            self.settings.sharpen,
            self.settings.spacing,
            None if self.first is None else content(self.first.image, self.first.name),
            [[s.id, content(s.image, s.name)] for s in self.sources],
        )

    def _rounds(self, rounds: Rounds) -> list[Iteration]:
        """Return the iterations, of which those that are there already are not done again."""
        made = rounds.finished()[: len(self.kinds) + 1]
        if not made:
            made = [self._begin(rounds)]
        while len(made) <= len(self.kinds):
            number = len(made) - 1
            began = time.process_time()
            outcomes = self._register(rounds, number, self.kinds[number])
            made.append(self._update(rounds, number, outcomes, began))
            rounds.forget(number)
        return made

    def _begin(self, rounds: Rounds) -> Iteration:
        """Write the first template."""
        began = time.process_time()
        if self.first is not None:
            image = self.first.read()
            average = Average(image, np.ones(image.array.shape, bool))
            starts: list[Field] = []
        else:
            centers = [source.center for source in self.sources]
            grids = [source.grid for source in self.sources]
            grid = common_grid(grids, centers, self.settings.spacing)
            starts = [
                shift(grid, source.grid, source.center - np.mean(centers, axis=0))
                for source in self.sources
            ]
            average = self._averaged(grid, starts)
        gradient, entropy = sharpness(average)
        kind = "mean" if self.first is None else "image"
        iteration = Iteration(
            0, kind, gradient, entropy, seconds=time.process_time() - began,
            picture=three_planes(average.image.array, average.image.grid),
        )  # fmt: skip
        with rounds.writing(0) as folder:
            for source, start in zip(self.sources, starts):
                keep(start, folder, source)
            volumes.write(folder / TEMPLATE, average.image)
            rounds.keep(iteration, folder, {})
        return iteration

    def _averaged(
        self, grid: Grid, ways: Sequence[Field], used: Sequence[bool] | None = None
    ) -> Average:
        averaging = Averaging(grid, self.settings.average, self.settings.sharpen)
        for k, (source, way) in enumerate(zip(self.sources, ways)):
            if used is None or used[k]:
                averaging.add(carried(source.read(), way))
        return averaging.result()

    def _register(self, rounds: Rounds, number: int, kind: str) -> list[PairRow]:
        """Register all images to a round's template."""
        options = dict(self.options)
        if kind != "deformable":
            options = {k: v for k, v in options.items() if k not in BENDING or k == "device"}
            options |= {**STILL, "initial": kind}
        pairs = []
        for source in self.sources:
            pair: dict[str, Any] = {
                "id": f"_{source.id}",
                "fixed": rounds.template(number),
                "moving": rounds.image(source),
            }
            # From its deformation too, a registration would hardly move: the rounds stood still
            if (start := rounds.linear(number, source.id)).exists():
                pair["initial_transform"] = start
            pairs.append(pair)
        done = register_pairs(
            pairs,
            rounds.pairs(number),
            workers=self.settings.workers,
            scheduler=self.settings.scheduler,
            report="none",
            progress=self._told(number),
            **options,
        ).rows
        used = [outcome for outcome in done if _is_used(outcome)]
        if len(used) < FEWEST:
            worst = next(k for k, outcome in enumerate(done) if not _is_used(outcome))
            raise errors.RuntimeFailedError(
                f"template: of {len(done)} images {len(used)} could be registered to the template"
                f" of round {number}; {self.sources[worst].name}: {_said(done[worst])}"
            )
        return done

    def _told(self, number: int) -> Callable[[Progress], Any]:
        count, rounds = len(self.sources), len(self.kinds)

        def told(report: Progress) -> Any:
            if self._callback is None:
                return None
            fraction = (number + report.fraction) / (rounds + 0.2)
            done = number * count + report.done
            message = f"round {number + 1} of {rounds}, {self.kinds[number]}"
            return self._callback(Progress("template", fraction, message, done, rounds * count))

        return told

    def _update(
        self, rounds: Rounds, number: int, outcomes: Sequence[PairRow], began: float
    ) -> Iteration:
        """Take the mean out of the transforms, average the images, and write the next round."""
        before = volumes.read(rounds.template(number), "template")
        used = [_is_used(outcome) for outcome in outcomes]
        mean = MeanMap(before.grid)
        for source, counts in zip(self.sources, used):
            if counts:
                mean.add(self._registered(rounds, number, source))
        back, grid = mean.inverse(), moved_grid(before.grid, mean.matrix)
        last, rest = np.linalg.inv(mean.matrix), MeanMap(grid)
        averaging = Averaging(grid, self.settings.average, self.settings.sharpen)
        moved: dict[str, float] = {}
        with rounds.writing(number + 1) as folder:
            for source, counts in zip(self.sources, used):
                way = (
                    self._registered(rounds, number, source)
                    if counts
                    else self._started(rounds, number, source, before.grid)
                )
                whole = way @ back
                vectors = field_on(whole.to_sitk(), grid)
                new = Field.from_mm(vectors, grid, source.grid, way.initial @ last)
                keep(new, folder, source)
                found = bent(new)
                moved[source.id] = (
                    0.0 if found is None else float(np.linalg.norm(found, axis=-1).mean())
                )
                if counts:
                    rest.add(new)
                    averaging.add(carried(source.read(), new))
            average = averaging.result()
            gradient, entropy = sharpness(average)
            left = _lengths(rest.displacement(), average.shown) / min(grid.spacing)
            shape = _lengths(mean.displacement(), np.ones(before.array.shape, bool))
            iteration = Iteration(
                number + 1,
                self.kinds[number],
                gradient,
                entropy,
                float(shape.mean()),
                _change(before, average),
                float(left.mean()),
                float(left.max()),
                [s.id for s, counts in zip(self.sources, used) if not counts],
                time.process_time() - began,
                three_planes(average.image.array, average.image.grid),
            )
            volumes.write(folder / TEMPLATE, average.image)
            said = [
                {"grade": o.verdict if o.status != "failed" else GRADES[-1], "said": _said(o)}
                for o in outcomes
            ]
            rounds.keep(iteration, folder, {"outcomes": said, "moved_mm": moved})
        return iteration

    def _registered(self, rounds: Rounds, number: int, source: Source) -> Field:
        return Registration.read(rounds.pairs(number) / f"_{source.id}").transform

    def _started(self, rounds: Rounds, number: int, source: Source, grid: Grid) -> Field:
        """Return what an image's registration started from."""
        path = rounds.start(number, source.id)
        if not path.exists():
            return shift(grid, source.grid, np.zeros(3))
        return dense(Transform.read(path), grid, source.grid)

    def _result(self, rounds: Rounds, made: list[Iteration]) -> Template:
        """Return the template of the last round."""
        number = len(made) - 1
        facts = rounds.facts(number)
        average = volumes.read(rounds.template(number), "template")
        ways = [rounds.start(number, source.id) for source in self.sources]
        labels, overlaps = self._voted(average, ways, facts["outcomes"])
        subjects = [
            Subject(
                source.id,
                source.name,
                outcome["grade"],
                list(outcome["said"]),
                facts["moved_mm"][source.id],
                overlaps[k][0] if overlaps else None,
                overlaps[k][1] if overlaps else None,
                picture=self._thumbnail(source, way, average),
            )
            for k, (source, way, outcome) in enumerate(zip(self.sources, ways, facts["outcomes"]))
        ]
        low, high = (float(np.mean([s.window[end] for s in self.sources])) for end in (0, 1))
        settings = {
            "images": len(self.sources),
            "start": "mean" if self.first is None else self.first.name.removeprefix("start: "),
            "iterations": self.settings.iterations,
            "average": self.settings.average,
            "sharpen": self.settings.sharpen,
            "spacing": self.settings.spacing,
            "options": self.options,
        }
        image = average.like((low + average.array * (high - low)).astype(np.float32))
        return Template(
            image, labels, subjects, made, settings, list(ways),
            [source.image for source in self.sources],
        )  # fmt: skip

    def _thumbnail(self, source: Source, way: Path, average: volumes.Image) -> bytes:
        """Return an image in the template's space as a small picture."""
        if len(self.sources) > _MOST_PICTURES:
            return b""
        found = dense(Transform.read(way), average.grid, source.grid)
        return three_planes(np.nan_to_num(carried(source.read(), found)), average.grid, 200)

    def _voted(
        self, average: volumes.Image, ways: Sequence[Path], outcomes: Sequence[Mapping[str, Any]]
    ) -> tuple[volumes.Image | None, list[tuple[Any, Any]]]:
        """Return the voted labels and, for each image, how its own overlap with them."""
        if self.sources[0].labels is None:
            return None, []
        votes = Votes(average.array.shape)
        used = [outcome["grade"] != GRADES[-1] for outcome in outcomes]
        kind = np.result_type(*(source.read_labels().array for source in self.sources))
        kind = kind if kind.kind in "iu" else np.dtype(np.int64 if kind.kind == "f" else np.uint8)

        def own(k: int) -> tuple[np.ndarray, np.ndarray]:
            source, way = self.sources[k], Transform.read(ways[k])
            found = way.apply(source.read_labels(), average, interpolation="nearest").array.astype(
                kind
            )
            whole = source.read_labels().like(np.ones(source.read_labels().array.shape, np.uint8))
            return found, way.apply(whole, average, interpolation="nearest").array > 0

        for k, counts in enumerate(used):
            if counts:
                votes.add(*own(k))
        voted = votes.result()
        overlaps = []
        for k, counts in enumerate(used):
            found = own(k)
            others = votes.result(found) if counts else voted
            overlaps.append((dice(found[0], voted), dice(found[0], others)))
        return average.like(voted.astype(kind)), overlaps


def _is_used(outcome: PairRow) -> bool:
    return outcome.status != "failed" and outcome.verdict != GRADES[-1]


def _said(outcome: PairRow) -> list[str]:
    return [outcome.message] if outcome.message else list(outcome.reasons)


def _lengths(vectors: Doubles, where: np.ndarray) -> Doubles:
    found: Doubles = np.linalg.norm(vectors[where], axis=-1)
    return found if found.size else np.zeros(1)


def _change(before: volumes.Image, now: Average) -> float:
    """Return the root mean square of how two templates differ, % of the range of intensities."""
    old = before.array
    if not now.image.same_grid(before):
        old = bindings.resample(before.float32(), before.grid, now.image.grid, "linear", 0.0)
    apart = (now.image.array - old)[now.shown]
    return float(100 * np.sqrt(np.mean(np.square(apart, dtype=np.float64))))
