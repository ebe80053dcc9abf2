"""The result of a registration: its transform, image and measurements, saved and read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _files, _manifest, errors, images
from ._engine.bindings import Floats
from ._engine.metrics import Metrics
from ._grid import Grid, check_numbers
from ._json import read as read_json, understood
from .halfway import HALFWAY, Halfway, halfway
from .images import Image, ImageLike
from .transforms.field import Field, read_only
from .transforms.linear import checked_matrix
from .transforms.transform import Applicable
from .verdict import Verdict, explain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report.page import View
    from .scoring import LabelScore
else:  # typing.get_type_hints asks for the names; the modules import this one, or may be missing
    Figure = LabelScore = View = Any

_VECTORS = "displacement.nrrd"

#: The fixed labels on the moving image, where they were asked for.
LABELS_BACK = "fixed_labels_on_moving.nii.gz"

#: What a registration may leave in a folder, one run's files replacing another's; the last one
#: lists the others.
OUTPUTS = (
    "warped.nii.gz",
    "transform.h5",
    "transform_initial.h5",
    _VECTORS,
    "uncertainty.nrrd",
    "warped_labels.nii.gz",
    LABELS_BACK,
    *HALFWAY,
    "report.html",
    "report.json",
)


class Registration(Applicable):
    """A finished registration: its transform, the warped image and its measurements.

    Attributes
    ----------
    transform : Field
        From the fixed to the moving space, on the fixed image's grid.
    warped : numpy.ndarray
        The moving image resampled once onto the fixed grid: float32, shape (z, y, x).
    metrics : Metrics
        ``similarity_before``, ``similarity_after``, ``njd_percent``, ``seconds`` (total and by
        stage), ``model``, ``device``, ``warnings``, ``verdict`` and more: what ``report.json``
        holds beside the options, the grids and the initial transform. ``docs/metrics.md`` lists
        all members.
    options : dict
        The options that were given.
    uncertainty : numpy.ndarray or None
        Standard deviation of the displacement, mm: float32, shape (z, y, x). None unless registered
        with ``uncertainty=True``.

    Examples
    --------
    >>> result.displacement().shape, result.warped.shape
    ((3, 48, 48, 48), (48, 48, 48))
    >>> result.verdict.grade
    'good'
    """

    _sources: tuple[Image | None, Image | None] = (None, None)
    """The two images, for the page; neither saved nor pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_sources"}

    def __init__(
        self,
        transform: Field,
        warped: np.ndarray,
        metrics: Metrics,
        options: dict[str, Any],
        uncertainty: np.ndarray | None = None,
    ):
        self.transform = transform
        self._warped = warped
        self._uncertainty = uncertainty
        self.metrics = metrics
        self.options = options

    @property
    def grid(self) -> Grid:
        """Where the fixed image lies."""
        return self.transform.grid

    @property
    def moving_grid(self) -> Grid:
        """Where the moving image lies."""
        return self.transform.moving_grid

    @property
    def _transform(self) -> Field:
        return self.transform

    def inverse(self) -> Field:
        """Return the transform from the moving to the fixed space: :meth:`Field.inverse`.

        Examples
        --------
        >>> result.inverse().grid == result.moving_grid
        True
        """
        return self.transform.inverse()

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
        return Verdict.of(self.to_dict())

    def explain(self) -> str:
        """Return in plain words how the engine came to the result: the verdict and its reasons,
        which start it kept, what it compared, how much of the search it took, how smooth the field
        is, and what its referee said.

        Examples
        --------
        >>> len(result.explain()) > 0
        True
        """
        return explain(self.to_dict())

    def __repr__(self) -> str:
        m, grids = self.metrics, (self.grid, self.moving_grid)
        fixed, moving = (" x ".join(map(str, grid.size)) for grid in grids)
        grade = f"{self.verdict.headline}; " if self.verdict else ""
        spread = m.get("uncertainty")
        unsure = f", uncertainty {spread['mean_mm']:.1f} mm" if spread else ""
        return (
            f"Registration({grade}fixed {fixed}, moving {moving}, displacement up to"
            f" {m['displacement_max_mm']:.2f} mm{unsure},"
            f" {m['seconds']['total']:.1f} s)"
        )

    def score(self, fixed_labels: ImageLike, moving_labels: ImageLike) -> list[LabelScore]:
        """Measure by label maps of the two images what :func:`morphseek.scoring.score_labels`
        does: overlap, surface distance and volume of every label that both have.

        Examples
        --------
        >>> scores = result.score("fixed_labels.nii.gz", "moving_labels.nii.gz")
        >>> scores[0].label, scores[0].dice_after > scores[0].dice_before
        (1, True)
        """
        from .scoring import score_labels

        return score_labels(self.transform, fixed_labels, moving_labels)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the numbers that matter and a picture."""
        from .report.page import summary

        return summary(self, *self._sources)

    def view(
        self,
        fixed: ImageLike | None = None,
        moving: ImageLike | None = None,
        *,
        fixed_labels: ImageLike | None = None,
        moving_labels: ImageLike | None = None,
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

        Examples
        --------
        >>> result.view("fixed.nii.gz", "moving.nii.gz")
        View(... MB, shown by a notebook)
        """
        from .report.page import View, compose

        more |= {"fixed_labels": fixed_labels, "moving_labels": moving_labels}
        if fixed_labels is not None and moving_labels is not None and "scores" not in more:
            more["scores"] = self.score(fixed_labels, moving_labels)
        return View(compose(self, *self._both_images(fixed, moving), **more), height)

    def plot(self, fixed: ImageLike | None = None, moving: ImageLike | None = None) -> Figure:
        """Return a Matplotlib figure for a paper: fixed, before, after and the volume change, in
        three planes (extra: ``pip install morphseek[plot]``). A result that was loaded needs the
        two images.

        Examples
        --------
        >>> figure = result.plot("fixed.nii.gz", "moving.nii.gz")
        >>> figure.savefig("result.png")
        >>> len(figure.axes)  # three planes of four, and a bar
        13
        """
        from .report.plot import figure

        return figure(self, *self._both_images(fixed, moving))

    def halfway(self, fixed: ImageLike | None = None, moving: ImageLike | None = None) -> Halfway:
        """Return the space half-way between the images, with both of them in it: a
        :class:`morphseek.halfway.Halfway`. It does not depend on which image is called fixed where
        the registration does not: ``symmetric=True``. A result that was loaded needs the images.

        Examples
        --------
        >>> result.halfway(pair.fixed, pair.moving)
        Halfway(Image(48 x 48 x 48 voxels of ... mm, float32))
        """
        here, there = self._both_images(fixed, moving)
        one = images.read_on(here, self.grid, "fixed")
        return halfway(self.transform, one, images.read_on(there, self.moving_grid, "moving"))

    def _both_images(
        self, fixed: ImageLike | None, moving: ImageLike | None
    ) -> tuple[ImageLike, ImageLike]:
        """Return the two images: the arguments, or those that were registered."""
        both = []
        for name, image, own in zip(("fixed", "moving"), (fixed, moving), self._sources):
            source = own if image is None else image
            if source is None:
                raise errors.InvalidArgumentError(
                    f"{name}: a loaded result does not hold the image; give it"
                )
            both.append(source)
        return both[0], both[1]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``report.json`` holds: the metrics, the options, the two grids and the
        initial transform.

        Examples
        --------
        >>> result.to_dict()["verdict"]["grade"]
        'good'
        """
        return {
            **self.metrics,
            "options": self.options,
            "fixed_grid": self.grid.numbers.tolist(),
            "moving_grid": self.moving_grid.numbers.tolist(),
            "initial_transform": self.transform.initial.tolist(),
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write warped.nii.gz, transform.h5, displacement.nrrd, report.json and, if there is one,
        uncertainty.nrrd to a folder: all of them or, on an error, none.

        Files of another registration there are replaced or removed. :meth:`read` reads the folder
        back, and compares the files with their checksums in report.json.

        Raises
        ------
        OutputUnwritableError, DiskFullError

        Examples
        --------
        >>> result.save("out")
        >>> sorted(os.listdir("out"))
        ['displacement.nrrd', 'report.json', 'transform.h5', 'warped.nii.gz']
        """
        with _files.output_folder(folder, OUTPUTS, _manifest.REPORT) as temporary:
            write_result(self, temporary, self.to_dict(), {})

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> Registration:
        """Read back what :meth:`save` or ``morphseek register`` wrote to a folder: report.json,
        displacement.nrrd and warped.nii.gz.

        Raises
        ------
        InputUnreadableError
            A file is missing, damaged, or not what the report says of it.

        Examples
        --------
        >>> morphseek.Registration.read("result").warped.shape
        (48, 48, 48)
        """
        folder = Path(folder)
        path = folder / _manifest.REPORT
        _files.settle(folder)
        report = read_json(path, "result")
        with understood(f"{path} is not a registration's report"):
            entries = dict(report.pop(_manifest.KEY))
            grids = [Grid.from_numbers(report.pop(f"{side}_grid")) for side in ("fixed", "moving")]
            for each in grids:
                check_numbers(each.spacing, each.origin, each.direction, "a grid")
            initial, options = report.pop("initial_transform"), report.pop("options")
            initial = checked_matrix(initial, "its initial transform", "run the registration again")
        names = ["warped.nii.gz"] + ["uncertainty.nrrd"] * bool(report.get("uncertainty"))
        _manifest.check(folder, entries, [_VECTORS, *names], "result")
        mm = images.read_vectors(folder / _VECTORS)
        arrays = [images.read(folder / n, n.partition(".")[0]).float32() for n in names]
        for name, array in zip((_VECTORS, *names), (mm, *arrays)):
            if array.shape[:3] != grids[0].shape:
                raise errors.GridMismatchError(
                    f"{folder / name} has shape {array.shape}, another grid than {path} says"
                )
        if not np.isfinite(mm).all():
            raise errors.InputUnreadableError(
                f"{folder / _VECTORS} has displacements that are no numbers"
            )
        transform = Field.from_mm(mm, grids[0], grids[1], initial)
        return Registration(transform, arrays[0], report, options, *arrays[1:])


_LARGE = 1 << 25  # bytes of a field whose files are written one after another


def write_result(
    result: Registration,
    folder: str | os.PathLike[str],
    report: dict[str, Any],
    others: Mapping[str, Callable[[Path], Any]],
    volumes: bool = True,
) -> dict[str, _manifest.Entry]:
    """Write the files of :meth:`Registration.save` into an existing folder, with ``report``
    and the list of all files as report.json; ``others`` write more, name to function, at the same
    time. Without ``volumes``, neither the transform nor an image is written. Return the list.
    """
    from concurrent.futures import ThreadPoolExecutor

    folder = Path(folder)
    writers: dict[str, Callable[[Path], Any]] = {
        "transform.h5": result.transform.save,
        # A field's last bits are noise: compressing 160x192x224 vectors takes 2 s, saves a tenth.
        _VECTORS: lambda path: images.write_vectors(path, result.displacement_mm(), result.grid),
        "warped.nii.gz": lambda path: images.write(
            path, images.Image.on_grid(result.warped, result.grid)
        ),
        **others,
    }
    if (spread := result.uncertainty) is not None:
        writers["uncertainty.nrrd"] = lambda path: images.write(
            path, images.Image.on_grid(spread, result.grid)
        )
    if not volumes:
        writers = dict(others)
    entries: dict[str, _manifest.Entry] = {}

    def put(name: str) -> None:
        writers[name](folder / name)
        entries[name] = _manifest.entry(folder / name)

    # each holds the field once more
    threads = 1 if 12 * result.warped.size > _LARGE or not writers else len(writers)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, writers))  # which raises the first error
    content = {**report, _manifest.KEY: dict(sorted(entries.items()))}
    report_path = folder / _manifest.REPORT
    _files.write_text(report_path, json.dumps(content, indent=2) + "\n")
    return {**entries, _manifest.REPORT: _manifest.entry(report_path)}
