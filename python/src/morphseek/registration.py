"""Registering one pair, and the result."""

from __future__ import annotations

import inspect
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _bindings, _core, errors, io
from ._bindings import Floats
from .transform import DenseTransform, read_only
from .verdict import Verdict, explain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Unpack

    from ._options import Options
    from .report.notebook import View

#: What a registration may leave in a folder, one run's files replacing another's.
OUTPUTS = (
    "warped.nii.gz",
    "transform.h5",
    "displacement.nrrd",
    "uncertainty.nrrd",
    "warped_labels.nii.gz",
    "report.json",
    "report.html",
)


class Progress(NamedTuple):
    """One report of a running registration.

    >>> print(Progress("align", 0.25, "affine, 4 mm"))
    align      25 %  affine, 4 mm
    """

    stage: str
    """align, search, network, refine, uncertainty or finish."""
    fraction: float
    """Of the whole registration, 0 to 1, never decreasing."""
    message: str
    """For a log; may be empty."""

    def __str__(self) -> str:
        return f"{self.stage:<8} {100 * self.fraction:4.0f} %  {self.message}".rstrip()


class RegistrationResult(DenseTransform):
    """A finished registration: a :class:`~morphseek.transform.DenseTransform` with its image and
    its measurements.

    Attributes
    ----------
    warped : numpy.ndarray
        The moving image resampled once onto the fixed grid: float32, shape (z, y, x).
    metrics : dict
        ``similarity_before``, ``similarity_after``, ``njd_percent``, ``seconds`` (total and by
        stage), ``model``, ``device``, ``warnings``, ``verdict`` and more: what ``report.json``
        holds beside the options, the grids and the initial transform. ``morphseek._metrics`` has
        the types of all members, ``docs/metrics.md`` their meaning.
    options : dict
        The options that were given.
    uncertainty : numpy.ndarray or None
        Standard deviation of the displacement, mm: float32, shape (z, y, x). None unless registered
        with ``uncertainty="on"``.
    """

    _sources: tuple[io.Image | None, io.Image | None] = (None, None)
    """What was registered, for the page; neither saved nor pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_sources"}

    def __init__(
        self,
        displacement: np.ndarray,
        grid: np.ndarray,
        moving_grid: np.ndarray,
        initial: np.ndarray,
        warped: np.ndarray,
        metrics: dict[str, Any],
        options: dict[str, Any],
        uncertainty: np.ndarray | None = None,
    ):
        super().__init__(displacement, grid, moving_grid, initial)
        self._warped = warped
        self._uncertainty = uncertainty
        self.metrics = metrics
        self.options = options

    @property
    def warped(self) -> Floats:
        """The moving image resampled once onto the fixed grid; read-only."""
        return read_only(self._warped)

    @property
    def uncertainty(self) -> Floats | None:
        """Standard deviation of the displacement, mm; read-only."""
        return None if self._uncertainty is None else read_only(self._uncertainty)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the result can be trusted, as far as the images tell: a
        :class:`morphseek.Verdict`. None for a result that an older library saved.
        """
        return Verdict.of(self.metrics)

    def explain(self) -> str:
        """Return in plain words how the engine came to the result: the verdict and its reasons,
        which start it kept, what it compared, how much of the search it took, how smooth the field
        is, and what its referee said.
        """
        return explain(self.metrics)

    def _replace(self, displacement: np.ndarray) -> None:
        raise AttributeError(
            "the displacement of a finished registration cannot be set, for its image and its"
            " metrics would not follow; make a DenseTransform"
        )

    def __repr__(self) -> str:
        m = self.metrics
        spread = (
            f", uncertainty {m['uncertainty']['mean_mm']:.1f} mm" if m.get("uncertainty") else ""
        )
        name, opening, grids = super().__repr__()[:-1].partition("(")
        verdict = f"verdict {self.verdict.headline}; " if self.verdict else ""
        return (
            f"{name}{opening}{verdict}{grids}, model {m['model']} on {m['device']},"
            f" {m['similarity']} {m['similarity_before']:.3f} -> {m['similarity_after']:.3f}, NJD"
            f" {m['njd_percent']:.3f} %{spread}, {m['seconds']['total']:.1f} s)"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the numbers that matter and a picture."""
        from .report.notebook import summary

        return summary(self, *self._sources)

    def view(
        self,
        fixed: io.ImageLike | None = None,
        moving: io.ImageLike | None = None,
        *,
        fixed_labels: io.ImageLike | None = None,
        moving_labels: io.ImageLike | None = None,
        height: int = 900,
        **more: Any,
    ) -> View:
        """Return the interactive page for a notebook.

        Parameters
        ----------
        fixed, moving : ImageLike, optional
            What was registered; to be given for a result that was loaded.
        fixed_labels, moving_labels : ImageLike, optional
            Their outlines are drawn and their overlap measured.
        height : int
            Of the frame, pixels.
        **more
            Of :func:`morphseek.report.write_report`: landmarks, label_names and so on.
        """
        from .report.notebook import view

        images = self._given(fixed, moving)
        return view(self, images, (fixed_labels, moving_labels), height, more)

    def plot(self, fixed: io.ImageLike | None = None, moving: io.ImageLike | None = None) -> Figure:
        """Return a Matplotlib figure for a paper: fixed, before, after and the volume change, in
        three planes (extra: ``pip install morphseek[plot]``).

        Parameters
        ----------
        fixed, moving : ImageLike, optional
            What was registered; to be given for a result that was loaded.
        """
        from .report.plot import figure

        return figure(self, *self._given(fixed, moving))

    def _given(
        self, fixed: io.ImageLike | None, moving: io.ImageLike | None
    ) -> tuple[io.ImageLike, io.ImageLike]:
        """Return the images given, or those that were registered."""
        images = (
            self._sources[0] if fixed is None else fixed,
            self._sources[1] if moving is None else moving,
        )
        for name, image in zip(("fixed", "moving"), images):
            if image is None:
                raise errors.InvalidArgumentError(
                    f"{name}: a loaded result does not hold the image; give it"
                )
        return images

    def report(self) -> dict[str, Any]:
        """Return what ``report.json`` holds: the metrics, the options, the two grids and the
        initial transform.
        """
        return {
            **self.metrics,
            "options": self.options,
            "fixed_grid": self.grid.tolist(),
            "moving_grid": self.moving_grid.tolist(),
            "initial_transform": self.initial.tolist(),
        }

    def write(
        self, folder: str | os.PathLike[str], report: dict[str, Any], *others: Callable[[], Any]
    ) -> None:
        """Write the files of :meth:`save` into an existing folder, with ``report`` as report.json;
        ``others`` write more at the same time.
        """
        folder = Path(folder)

        def fields() -> None:
            # A field's last bits are noise: of 160x192x224 vectors compression takes 2 s and saves
            # a tenth.
            io.write_image(folder / "displacement.nrrd", self.to_sitk_image(), compress=False)
            if self.uncertainty is not None:
                io.write_image(
                    folder / "uncertainty.nrrd", io.Image.on_grid(self.uncertainty, self.grid)
                )

        io.at_once(
            lambda: self.write_transform(folder / "transform.h5"),
            fields,
            lambda: io.write_image(
                folder / "warped.nii.gz", io.Image.on_grid(self.warped, self.grid)
            ),
            lambda: io.write_text(folder / "report.json", json.dumps(report, indent=2) + "\n"),
            *others,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write warped.nii.gz, transform.h5, displacement.nrrd, report.json and, if there is one,
        uncertainty.nrrd to a folder: all of them or, on an error, none.

        Files of another registration there are replaced or removed. :func:`load` reads the folder
        back.
        """
        with io.output_folder(folder, OUTPUTS) as temporary:
            self.write(temporary, self.report())


def load(folder: str | os.PathLike[str]) -> RegistrationResult:
    """Read back what :meth:`RegistrationResult.save` or ``morphseek register`` wrote."""
    folder = Path(folder)
    path = folder / "report.json"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        grid, moving_grid = (
            np.array(report.pop(key), dtype=np.float64) for key in ("fixed_grid", "moving_grid")
        )
        initial, options = (
            np.array(report.pop("initial_transform"), dtype=np.float64),
            report.pop("options"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.InputUnreadableError(
            f"{path} is not a registration's report: {error!r}"
        ) from None
    mm = np.ascontiguousarray(io.read_vectors(folder / "displacement.nrrd"), dtype=np.float32)
    if (
        grid.shape != (18,)
        or moving_grid.shape != (18,)
        or initial.shape != (4, 4)
        or not all(np.isfinite(x).all() for x in (grid, moving_grid, initial))
    ):
        raise errors.InputUnreadableError(
            f"{path} is not a registration's report: its grids or its initial transform are none"
        )
    if mm.shape != (*(int(n) for n in grid[2::-1]), 3):
        raise errors.GridMismatchError(
            f"{folder / 'displacement.nrrd'} has shape {mm.shape}, another grid than {path} says"
        )
    if not np.isfinite(mm).all():
        raise errors.InputUnreadableError(
            f"{folder / 'displacement.nrrd'} has displacements that are no numbers"
        )
    if abs(np.linalg.det(initial[:3, :3])) < 1e-12:
        raise errors.InputUnreadableError(
            f"{path} is not a registration's report: its initial transform cannot be inverted"
        )
    displacement = _bindings.from_mm(mm, grid)
    warped = io.read(folder / "warped.nii.gz", "warped").float32()
    uncertainty = (
        io.read(folder / "uncertainty.nrrd", "uncertainty").float32()
        if report.get("uncertainty")
        else None
    )
    for name, image in (("warped.nii.gz", warped), ("uncertainty.nrrd", uncertainty)):
        if image is not None and image.shape != mm.shape[:3]:
            raise errors.GridMismatchError(
                f"{folder / name} has shape {image.shape}, another grid than {path} says"
            )
    return RegistrationResult(
        displacement, grid, moving_grid, initial, warped, report, options, uncertainty
    )


def register(
    fixed: io.ImageLike,
    moving: io.ImageLike,
    *,
    fixed_mask: io.ImageLike | None = None,
    moving_mask: io.ImageLike | None = None,
    initial_transform: Any = None,
    progress: Callable[[Progress], Any] | bool | None = None,
    **options: Unpack[Options],
) -> RegistrationResult:
    """Register `moving` onto `fixed`.

    Parameters
    ----------
    fixed, moving : ImageLike
        numpy array (z, y, x), SimpleITK, itk or nibabel image, a file, or a folder with one DICOM
        series (:func:`morphseek.io.read`). Spacings, orientations and fields of view may differ.
    fixed_mask, moving_mask : ImageLike, optional
        Where not zero, voxels count for the initial alignment and the similarity. A numpy array
        lies on its image's grid.
    initial_transform : optional
        Rigid or affine SimpleITK transform, 4x4 LPS matrix in mm, or path of a .tfm or .h5 file,
        from fixed to moving space: where the initial alignment starts, or stays with
        ``initial="none"`` or ``"com"``.
    progress : callable or bool, optional
        Called with a :class:`Progress` at every change and at least once a second; returning False
        cancels. True shows a bar.
    {options}

    Returns
    -------
    RegistrationResult

    Raises
    ------
    morphseek.errors.MorphSeekError
        One class for every cause: see :mod:`morphseek.errors`.
    KeyboardInterrupt
        Ctrl-C, within a fraction of a second.

    Examples
    --------
    >>> import morphseek
    >>> pair = morphseek.phantom.make_pair(size=48)
    >>> r = morphseek.register(pair.fixed, pair.moving, model="none", refine=0, search="off")
    >>> r.displacement.shape, r.warped.shape
    ((3, 48, 48, 48), (48, 48, 48))
    >>> labels = r.apply(pair.moving_labels, interpolation="nearest")
    """
    for name in ("fixed_labels", "moving_labels"):
        if name in options:
            raise errors.InvalidArgumentError(
                f"{name}: registering needs no labels; afterwards result.apply(moving_labels,"
                " interpolation='nearest') brings them along, and"
                " morphseek.evaluation.score_labels(result, fixed_labels, moving_labels) measures"
                " Dice"
            )
    target, source = io.read(fixed, "fixed"), io.read(moving, "moving")
    masks = [_mask(fixed_mask, target, "fixed mask"), _mask(moving_mask, source, "moving mask")]
    initial = None
    if isinstance(initial_transform, DenseTransform):
        raise errors.InvalidArgumentError(
            f"initial_transform is a {type(initial_transform).__name__}, which bends; a"
            " registration starts from its linear part, .initial, or from the moving image"
            " resampled by it"
        )
    if initial_transform is not None:
        matrix = io.linear_part(io.read_transform(initial_transform))
        initial = np.concatenate([matrix[:3, :3].ravel(), matrix[:3, 3]])
    chosen = plain_options(options)

    with _Reporter(progress) as reporter:
        _core.open_engine()
        try:
            found = _bindings.register(
                (target.float32(), target.grid),
                (source.float32(), source.grid),
                None if masks[0] is None else (masks[0].float32(), masks[0].grid),
                None if masks[1] is None else (masks[1].float32(), masks[1].grid),
                initial,
                chosen,
                reporter,
            )
        except errors.CancelledError:
            if reporter.interruption is not None:
                raise reporter.interruption from None
            raise
    result = RegistrationResult(
        found.displacement,
        target.grid,
        source.grid,
        found.initial,
        found.warped,
        found.metrics,
        chosen,
        found.uncertainty,
    )
    result._sources = target, source
    return result


def _mask(mask: io.ImageLike | None, image: io.Image, name: str) -> io.Image | None:
    return None if mask is None else io.read_on(mask, image.grid, name)


def all_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option as the engine takes it: those given, and the others at their defaults.

    Raises
    ------
    InvalidArgumentError
        The engine does not know the name, or not the value.
    """
    # the names, before values that may be images
    _bindings.check_options(dict.fromkeys(options))
    given = {name: _plain(name, value) for name, value in options.items() if value is not None}
    return _bindings.check_options(given)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, as the engine takes them ("off" for False):
    :func:`all_options` without the others.
    """
    read = all_options(options)
    return {name: read[name] for name, value in options.items() if value is not None}


def checked_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return :func:`plain_options` and what is known of the model that they name, before a list of
    pairs is begun.

    Raises
    ------
    morphseek.errors.MorphSeekError
        The engine does not take them, or the model cannot be used.
    """
    chosen = plain_options(options)
    model = chosen.get("model", "default")
    return chosen, {} if model in ("none", "default") else _core.verify_model(model)


def says_no(answer: Any) -> bool:
    """Return whether a progress callback's answer cancels: False, numpy's too, but neither None nor
    0.
    """
    return isinstance(answer, (bool, np.bool_)) and not answer


def callback_of(progress: Callable[[Any], Any] | bool | None) -> Callable[[Any], Any] | None:
    """Return what is to be called on progress: a new :class:`Bar` for True, None for none.

    Raises
    ------
    InvalidArgumentError
        It cannot be called.
    """
    if progress is None or isinstance(progress, (bool, np.bool_)):
        return Bar() if progress else None
    if not callable(progress):
        raise errors.InvalidArgumentError(
            f"progress is given as {type(progress).__name__}; give a function, True for a bar, or"
            " nothing"
        )
    return progress


def _plain(name: str, value: Any) -> Any:
    """Return an option's value as JSON knows it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float)):
        raise errors.InvalidArgumentError(
            f"{name} is given as {type(value).__name__}; options are text and numbers"
        )
    if isinstance(value, str):
        _core.check_text(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.InvalidArgumentError(f"{name} is {value}; it must be a finite number")
    return value


class _Reporter:
    """The progress callback. Exceptions do not cross the engine: one raised by the user's callback
    or by Ctrl-C cancels and is kept.
    """

    def __init__(self, progress: Callable[[Progress], Any] | bool | None):
        self._callback = callback_of(progress)
        self._last: tuple[Any, float] = (None, 0.0)
        self.interruption: BaseException | None = None

    def __enter__(self) -> _Reporter:
        # A signal handler runs between any two instructions, so an exception of its own could leave
        # __call__ and be lost.
        self._handler = (
            signal.getsignal(signal.SIGINT)
            if threading.current_thread() is threading.main_thread()
            else None
        )
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: Any) -> None:
        try:
            if callable(self._handler):
                self._handler(number, frame)
        except BaseException as error:
            self.interruption = error
        outer = getattr(self._handler, "__self__", None)
        # a registration inside the callback of another, which only took note
        if isinstance(outer, _Reporter):
            self.interruption = outer.interruption

    def __exit__(self, *exc: Any) -> None:
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
        if isinstance(self._callback, Bar):
            self._callback.close()

    def __call__(self, stage: str, fraction: float, message: str) -> bool:
        try:
            if self.interruption is not None:
                return False
            if self._callback is None:
                return True
            now = time.monotonic()
            if (stage, fraction) == self._last[0] and not message and now - self._last[1] < 1:
                return True  # a heartbeat, which was for Ctrl-C
            self._last = (stage, fraction), now
            return not says_no(self._callback(Progress(stage, fraction, message)))
        except BaseException as error:
            self.interruption = error
            return False


class Bar:
    """A progress bar on standard error, with the stage and the time left; silent where that is no
    terminal, and where ``CI`` is set.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress as RichProgress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        # it has names and paths of the user's
        message = TextColumn("{task.description}", markup=False)
        columns = (
            TextColumn("{task.fields[stage]:<11}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]:<11}"),
            message,
        )
        silent = not console.is_terminal or bool(os.environ.get("CI"))
        self._bar = RichProgress(*columns, console=console, transient=True, disable=silent)
        self._task = self._bar.add_task("", total=1.0, stage="", left="")
        self._left = TimeLeft()
        self._bar.start()

    def __call__(self, report: Progress) -> None:
        if report.message:
            new = "" if report.message == report.stage else report.message
            self._bar.update(self._task, description=new)
        left = self._left(report.fraction, time.monotonic())
        self._bar.update(self._task, completed=report.fraction, stage=report.stage, left=left)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, soft_wrap=True)

    def close(self) -> None:
        self._bar.stop()


class TimeLeft:
    """How long something will take, from how fast it went so far: the last third of the time
    counts half, for stages differ.

    >>> left = TimeLeft()
    >>> [left(fraction, now) for fraction, now in ((0.0, 0.0), (0.01, 0.5), (0.25, 10.0))]
    ['', '', '30 s left']
    """

    def __init__(self) -> None:
        self._steps: list[tuple[float, float]] = []

    def __call__(self, fraction: float, now: float) -> str:
        """Return the time left as text: empty until it can be told."""
        if not self._steps or fraction > self._steps[-1][0]:
            self._steps.append((fraction, now))
        first, began = self._steps[0]
        passed, done = now - began, fraction - first
        if passed < 2 or done < 0.02:
            return ""
        late = next((s for s in self._steps if s[1] >= began + passed * 2 / 3), self._steps[-1])
        lately = (fraction - late[0]) / (now - late[1]) if now > late[1] else 0.0
        speed = 0.5 * (done / passed + lately) if lately else done / passed
        return f"{duration((1 - fraction) / speed)} left"


def duration(seconds: float) -> str:
    """Return a time as one reads it.

    >>> duration(42.4), duration(90), duration(4000)
    ('42 s', '1:30 min', '1:07 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def _document_options() -> None:
    """Write the engine's options into the signature and the docstring of :func:`register`."""
    table = _core.option_table()
    lines = []
    for option in table:
        kind = (
            "{" + ", ".join(f'"{c}"' for c in option["choices"]) + "}"
            if "choices" in option
            else {"string": "str"}.get(option["type"], option["type"])
        )
        kind += f' or "{option["prefix"]}..."' if "prefix" in option else ""
        kind += f" or number of {option['number']}" if "number" in option else ""
        if "min" in option:
            kind += f" from {option['min']:g}" + (
                f" to {option['max']:g}" if "max" in option else ""
            )
        lines.append(
            f"{option['name']} : {kind}, default {option['default']!r}\n        {option['help']}"
        )
    if register.__doc__:  # absent under python -OO
        register.__doc__ = register.__doc__.replace("{options}", "\n    ".join(lines))
    signature = inspect.signature(register)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    types = {"string": str, "int": int, "float": float}
    for option in table:
        annotation = str | float if "number" in option else types[option["type"]]
        parameters.append(
            inspect.Parameter(
                option["name"],
                inspect.Parameter.KEYWORD_ONLY,
                default=option["default"],
                annotation=annotation,
            )
        )
    register.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]


_document_options()
