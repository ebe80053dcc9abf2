"""A file to read, the transform in it, and a transform to write."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk

from ... import errors, images
from ..._grid import Grid
from ...images.frames import Frames
from ..files import text_of
from ..linear import linear
from ..parts import field_on, is_field, matrix_of, parts_of, vectors_of

#: Where a deformation can go.
FIELDS = (".h5", ".nii.gz", ".nrrd")


class Content(NamedTuple):
    """A transform, fixed to moving, and where the images lie, if the file says so."""

    transform: sitk.Transform
    grid: Grid | None = None
    moving_grid: Grid | None = None
    frames: tuple[str, str] = ("", "")
    """The FrameOfReferenceUID of the fixed and of the moving space, of a DICOM object."""


class TransformFile(NamedTuple):
    """A file to read, and the images' grids where they were given."""

    path: Path
    grid: Grid | None
    moving_grid: Grid | None
    format: str = ""
    """The format's name, where it was given."""

    def unreadable(self, why: str) -> errors.InputUnreadableError:
        return errors.InputUnreadableError(f"transform: {self.path} {why}")

    def text(self) -> str:
        try:
            return text_of(self.path)
        except (OSError, ValueError) as error:
            raise self.unreadable(
                f"cannot be read as text: {getattr(error, 'strerror', None) or 'it is binary'}"
            ) from None

    def matrix(self, matrix: np.ndarray) -> sitk.AffineTransform:
        """Return a 4x4 LPS matrix of the file as a transform."""
        try:
            return linear(matrix)
        except errors.SingularTransformError:
            raise errors.SingularTransformError(
                f"transform: {self.path} has a matrix that cannot be inverted; correct it"
            ) from None
        except errors.InvalidArgumentError:
            raise self.unreadable(
                "has a matrix that is none; give 4 x 4 finite numbers, the last row 0 0 0 1"
            ) from None


class Export:
    """A transform to write, in the forms that formats ask for."""

    def __init__(
        self,
        content: Content,
        name: str,
        path: Path,
        ending: str,
        grid: Grid | None,
        reference: Any = None,
        moving: Any = None,
    ):
        self.transform, self.name = content.transform, name
        self.path, self.ending = path, ending
        self.own_grid = content.grid if grid is None else grid
        self.moving_grid = content.moving_grid if moving is None else grid_of(moving, "moving")
        self.named = tuple(
            Path(each).name if isinstance(each, (str, Path)) else "" for each in (reference, moving)
        )
        self.images = reference, moving
        self.content = content
        self._asked = reference is not None

    @property
    def is_linear(self) -> bool:
        """Whether it is a matrix and a shift."""
        return bool(self.transform.IsLinear())

    @functools.cached_property
    def parts(self) -> list[sitk.Transform]:
        return parts_of(self.transform)

    @property
    def grid(self) -> Grid:
        """The fixed image's grid."""
        if self.own_grid is None:
            raise errors.InvalidArgumentError(
                f"{self.path}: a field needs a grid, which {self.name} does not hold; give the"
                " fixed image as reference"
            )
        return self.own_grid

    def matrix(self) -> np.ndarray:
        """Return the transform as 4x4 LPS matrix, or say that it is none."""
        if not self.is_linear:
            raise errors.InvalidArgumentError(
                f"{self.path}: {self.name} bends, and {self.ending} holds a matrix alone; write it"
                f" to one of {', '.join(FIELDS)}"
            )
        return matrix_of(self.parts)

    def field(self) -> tuple[np.ndarray, Grid]:
        """Return the whole displacement, LPS mm of shape (z, y, x, 3), and its grid."""
        if not self._asked and len(self.parts) == 1 and is_field(self.parts[0]):
            return vectors_of(self.parts[0])  # as it is, with its margin
        return field_on(self.transform, self.grid), self.grid

    def split(self) -> list[Content]:
        """Return the linear part that acts last, and what bends before it, if anything does."""
        if self.is_linear:
            return [self.content]
        *others, first = self.parts
        if not self._asked and is_field(first) and all(part.IsLinear() for part in others):
            return [Content(linear(matrix_of(others))), Content(first)]
        return [Content(linear(np.eye(4))), self.content._replace(grid=self.grid)]


def grid_of(image: images.ImageLike | None, name: str) -> Grid | None:
    """Return where an image lies, if there is one."""
    return None if image is None else next(iter(Frames(image, name))).grid
