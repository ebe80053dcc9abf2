"""A template, and its files."""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import _files, _manifest, images
from .._engine import core
from .._grid import Grid
from .._json import Plain
from .._typed import COMMAND
from ..transforms import Transform
from ..verdict import GRADES, counts
from ._result import Readable, Tabled, mean, mean_dice

SEAL = "template.json"
FILES = ("template.nii.gz", "labels.nii.gz", "template.html")
#: What a template may leave in a folder, as patterns; the last one lists the others.
OUTPUTS = (*FILES, "transform_*.h5", "warped_*.nii.gz", SEAL)
_DICE = ("dice", "dice_without_own")


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
    image: images.Image
    """The template, in the images' own intensities: between the means of their percentiles."""
    labels: images.Image | None
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
            images.read(folder / FILES[0], "template"),
            images.read(folder / FILES[1], "labels") if has_labels else None,
            rows,
            [iteration_of(row) for row in content["iterations"]],
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

        images.write(folder / FILES[0], self.image)
        if self.labels is not None:
            images.write(folder / FILES[1], self.labels)
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


def transform_name(id: str) -> str:
    return f"transform_{id}.h5"


def warped_name(id: str) -> str:
    return f"warped_{id}.nii.gz"


def iteration_of(row: Mapping[str, Any]) -> Iteration:
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
