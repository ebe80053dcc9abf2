"""A template, and its files."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _manifest, errors, images
from .._engine import core
from .._json import read as read_json, without_nan
from ..transforms import Transform
from ..verdict import GRADES, counts

SEAL = "template.json"
_OWN = ("template.nii.gz", "labels.nii.gz", "template.html")
#: What a template may leave in a folder, as patterns; the last one lists the others.
OUTPUTS = (*_OWN, "transform_*.h5", "warped_*.nii.gz", SEAL)


def outputs(ids: Sequence[str]) -> list[str]:
    """Return the names of the files of a template of images with these ids."""
    own = [f(id) for id in ids for f in (transform_name, warped_name)]
    return [*_OWN, *own, SEAL]


def transform_name(id: str) -> str:
    return f"transform_{id}.h5"


def warped_name(id: str) -> str:
    return f"warped_{id}.nii.gz"


@dataclasses.dataclass(frozen=True)
class Iteration:
    """One template on the way.

    Attributes
    ----------
    number : int
        From 0, what it all started from.
    kind : str
        mean or image for the start; rigid, affine or deformable: how images were registered to the
        template before.
    gradient : float
        Mean norm of the gradient, a mm, of intensities from 0 to 1.
    entropy : float
        Of the intensities, bits, in 256 bins.
    shape_mm : float or None
        Mean length of the mean displacement of the registrations, mm: by how much the template's
        shape changed.
    change_percent : float or None
        Root mean square of the intensities' change since the template before, % of their range.
    mean_voxels, mean_voxels_max : float or None
        Length, voxels, of what the mean of the transforms is away from the identity: mean and most.
    left_out : list of str
        Ids of the images that did not count, for their registration failed.
    seconds : float
        Processor time of this process.
    picture : bytes
        The template in three planes, PNG.
    """

    number: int
    kind: str
    gradient: float
    entropy: float
    shape_mm: float | None = None
    change_percent: float | None = None
    mean_voxels: float | None = None
    mean_voxels_max: float | None = None
    left_out: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    picture: bytes = b""

    def to_dict(self, pictures: bool = False) -> dict[str, Any]:
        """Return the numbers and, if asked for, the picture, as plain data."""
        said: dict[str, Any] = without_nan(
            {k: v for k, v in dataclasses.asdict(self).items() if k != "picture"}
        )
        return {**said, "picture": base64.b64encode(self.picture).decode()} if pictures else said

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Iteration:
        """Return what :meth:`to_dict` was of."""
        own: dict[str, Any] = {f.name: said.get(f.name) for f in dataclasses.fields(cls)}
        own["picture"] = base64.b64decode(own["picture"] or "")
        for name in ("gradient", "entropy"):
            own[name] = float("nan") if own[name] is None else own[name]
        return cls(**own)


@dataclasses.dataclass(frozen=True)
class Subject:
    """One image of the population.

    Attributes
    ----------
    id : str
        What its files are called.
    name : str
        The image's file.
    grade : str
        Of the verdict of its last registration; failed where there was none.
    reasons : list of str
        Of the verdict, or why it could not be registered.
    moved_mm : float
        Mean length of the displacement without its linear part, mm.
    dice, dice_without_own : dict or None
        Label to overlap of its labels, in the template's space, with the voted ones: and with those
        that the other images voted for.
    picture : bytes
        The image in the template's space, PNG.
    """

    id: str
    name: str
    grade: str
    reasons: list[str]
    moved_mm: float
    dice: dict[int, float] | None = None
    dice_without_own: dict[int, float] | None = None
    picture: bytes = b""

    @property
    def is_used(self) -> bool:
        """Whether it counts in the template."""
        return self.grade != GRADES[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return all but the picture as plain data."""
        said = {k: v for k, v in dataclasses.asdict(self).items() if k != "picture"}
        clean: dict[str, Any] = without_nan({**said, "used": self.is_used})
        return clean


@dataclasses.dataclass
class Template:
    """The mean of a population, in the middle of its shapes, from
    :func:`morphseek.build_template`.

    Attributes
    ----------
    image : morphseek.images.Image
        The template, in the images' own intensities: between the means of their percentiles.
    labels : morphseek.images.Image or None
        The label that most images give each voxel.
    subjects : list of Subject
        The images, in their order.
    iterations : list of Iteration
        The templates on the way; the last one is this.
    settings : dict
        What was asked for.
    ways, sources : list
        The transforms, or their files, and the images, where they are known.

    Examples
    --------
    >>> template.image.array.shape, len(template.transforms)
    ((48, 48, 49), 2)
    """

    image: images.Image
    labels: images.Image | None
    subjects: list[Subject]
    iterations: list[Iteration]
    settings: dict[str, Any]
    ways: list[Transform | Path] = dataclasses.field(default_factory=list, repr=False)
    sources: list[Any] = dataclasses.field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        last = self.iterations[-1]
        return (
            f"Template({len(self.subjects)} images, {len(self.used)} used;"
            f" {last.number} iterations, gradient {last.gradient:.3f}, entropy {last.entropy:.2f};"
            f" {repr(self.image)[6:-1].rpartition(',')[0]})"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how the template came about, and its middle planes."""
        from ..report.cards import template

        return template(self.to_dict(), self.image.array, self.image.grid)

    @property
    def used(self) -> list[Subject]:
        """The images that count."""
        return [subject for subject in self.subjects if subject.is_used]

    @functools.cached_property
    def transforms(self) -> list[Transform]:
        """The transform of each image, from the template's space to the image's:
        ``transforms[0].apply(image)`` brings it into the template's.

        Examples
        --------
        >>> template.transforms[0].apply(pair.fixed).array.shape
        (48, 48, 49)
        """
        return [Transform.read(t) if isinstance(t, Path) else t for t in self.ways]

    def hold(self) -> None:
        """Read the transforms, whose files will go.

        Examples
        --------
        >>> template.hold()
        """
        self.ways = list(self.transforms)

    def move(self, folder: Path) -> None:
        """Take the transforms' files from a folder of results.

        Examples
        --------
        >>> from copy import copy
        >>> moved = copy(template)
        >>> moved.move(Path("template").absolute())
        >>> len(moved.ways)
        2
        """
        self.ways = [folder / transform_name(subject.id) for subject in self.subjects]

    def warped(self, number: int) -> images.Image:
        """Return an image, by its number from 0, in the template's space.

        Raises
        ------
        InvalidArgumentError
            The template was loaded, and does not hold the images.

        Examples
        --------
        >>> template.warped(1).array.shape
        (48, 48, 49)
        """
        if not self.sources:
            raise errors.InvalidArgumentError(
                "a loaded template does not hold the images; transforms[number].apply(image) warps"
                " one"
            )
        image = images.read(self.sources[number], f"image {number}")
        found: images.Image = self.transforms[number].apply(image)
        return found

    def mean_dice(self, without_own: bool = False) -> float | None:
        """Return the mean, over the images that count and their labels, of the overlap with the
        voted labels; with those of the others where ``without_own``.

        Examples
        --------
        >>> template.mean_dice() is None  # there are no labels
        True
        """
        name = "dice_without_own" if without_own else "dice"
        each = [list(found.values()) for s in self.used if (found := getattr(s, name))]
        return float(np.mean([np.mean(values) for values in each])) if each else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the images as plain data.

        Examples
        --------
        >>> len(template.to_dict()["images"])
        2
        """
        return {
            "version": core.version(),
            "settings": self.settings,
            "grid": self.image.grid.numbers.tolist(),
            "verdicts": counts(subject.grade for subject in self.subjects),
            "dice": self.mean_dice(),
            "dice_without_own": self.mean_dice(without_own=True),
            "iterations": [iteration.to_dict() for iteration in self.iterations],
            "images": [subject.to_dict() for subject in self.subjects],
        }

    def save(self, folder: str | os.PathLike[str], command: str = "", warped: bool = False) -> None:
        """Write template.nii.gz, labels.nii.gz where there are labels, transform_ID.h5 and, if
        asked for, warped_ID.nii.gz of each image, template.html and template.json to a folder: all
        of them or, on an error, none.

        Examples
        --------
        >>> template.save("out")
        >>> os.path.exists("out/template.nii.gz")
        True
        """
        with _files.output_folder(folder, OUTPUTS, SEAL) as temporary:
            write(self, temporary, command, warped)


def write(
    template: Template,
    folder: Path,
    command: str = "",
    warped: bool = False,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the files of :meth:`Template.save` into an existing folder; template.json also holds
    ``more``.
    """
    from ..report.template import page

    images.write(folder / "template.nii.gz", template.image)
    if template.labels is not None:
        images.write(folder / "labels.nii.gz", template.labels)
    for number, subject in enumerate(template.subjects):
        path, given = folder / transform_name(subject.id), template.ways[number]
        if isinstance(given, Path):
            _files.write_with(functools.partial(shutil.copyfile, given), path)
        else:
            given.save(path)
        if warped:
            images.write(folder / warped_name(subject.id), template.warped(number))
    shown = page(
        template.to_dict(),
        [iteration.picture for iteration in template.iterations],
        [subject.picture for subject in template.subjects],
        command,
    )
    _files.write_text(folder / "template.html", shown)
    listed = {path.name: _manifest.entry(path) for path in sorted(folder.iterdir())}
    content = {**template.to_dict(), **(more or {}), _manifest.KEY: listed}
    _files.write_text(folder / SEAL, json.dumps(content, indent=1) + "\n")


def load(folder: str | os.PathLike[str]) -> Template:
    """Read back what :meth:`Template.save` or ``morphseek build-template`` wrote, but the pictures.

    Raises
    ------
    InputUnreadableError
        There is no template, or one of its files is not the one that template.json tells of.
    """
    folder = Path(folder)
    path = folder / SEAL
    _files.settle(folder)
    try:
        said = read_json(path, "template")
        subjects = [_subject(row) for row in said["images"]]
        iterations = [Iteration.of(row) for row in said["iterations"]]
        listed, settings = said[_manifest.KEY], said["settings"]
    except errors.MorphSeekError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.InputUnreadableError(f"{path} is not a template's: {error!r}") from None
    _manifest.check(folder, listed, list(listed), "template")
    labels = folder / "labels.nii.gz"
    return Template(
        images.read(folder / "template.nii.gz", "template"),
        images.read(labels, "labels") if labels.name in listed else None,
        subjects,
        iterations,
        settings,
        [folder / transform_name(subject.id) for subject in subjects],
    )


def _subject(row: Mapping[str, Any]) -> Subject:
    own: dict[str, Any] = {f.name: row.get(f.name) for f in dataclasses.fields(Subject)}
    for name in ("dice", "dice_without_own"):
        if own[name] is not None:
            own[name] = {int(label): value for label, value in own[name].items()}
    own["picture"] = b""
    own["moved_mm"] = float("nan" if row["moved_mm"] is None else row["moved_mm"])
    return Subject(**own)
