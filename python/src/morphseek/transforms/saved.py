"""Transforms as things: of files, of other programs and of results."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine.bindings import Floats, shape_of
from .._grid import Grid
from ..images.dicom_series import frame_of
from ..images.image import tell
from . import formats
from .labels import checked_dtype
from .parts import composed, field_on, grid_of_field, inverted, is_field, parts_of
from .points import checked_points
from .resample import jacobian_on, resample
from .summary import problems, summary

if TYPE_CHECKING:
    from .dense import DenseTransform
else:  # typing.get_type_hints asks for the name; its module imports this one
    DenseTransform = Any


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the transform whose field the engine refuses: one along a line, or at a point."""
    try:
        yield
    except errors.ThinVolumeError as error:
        raise errors.ThinVolumeError(f"{name}: its {error}") from None


class Transform:
    """A map of points from fixed to moving space: of a file, of a registration, or any rigid,
    affine or deformable transform of SimpleITK's.

    Points go from the fixed to the moving space, images the other way: ``warped = moving o Phi``.

    Parameters
    ----------
    transform : transform, vector image, array_like, path or result
        3-D, of SimpleITK or itk; a vector image of these or nibabel; a 4x4 LPS matrix in mm; or a
        file (:meth:`load` has more to say about it).
    grid, moving_grid : Grid, optional
        Where images of the two spaces lie.

    Examples
    --------
    >>> import numpy as np
    >>> shift = np.eye(4); shift[:3, 3] = 1, 2, 3
    >>> Transform(shift).transform_points([[0.0, 0.0, 0.0]])
    array([[1., 2., 3.]])
    >>> twice = Transform(np.diag([2.0, 2, 2, 1]))
    >>> (twice @ Transform(shift)).transform_points([[0.0, 0.0, 0.0]])  # the shift acts first
    array([[2., 4., 6.]])
    >>> Transform(shift).inverse().transform_points([[1.0, 2.0, 3.0]])
    array([[0., 0., 0.]])
    """

    def __init__(self, transform: Any, grid: Grid | None = None, moving_grid: Grid | None = None):
        self._name = "the transform"
        if isinstance(transform, (str, os.PathLike)):
            loaded = formats.load(transform)
            self._name = f"transform: {transform}"
        elif hasattr(transform, "behind_initial"):  # a dense one
            loaded = formats.Loaded(transform.to_sitk(), transform.grid, transform.moving_grid)
        elif isinstance(transform, Transform):
            loaded = formats.Loaded(
                transform._transform, transform.grid, transform.moving_grid, transform._frames
            )
        else:
            loaded = formats.read_object(transform, self._name)
        self._take(loaded, grid, moving_grid)

    def _take(self, loaded: formats.Loaded, grid: Grid | None, moving_grid: Grid | None) -> None:
        self._transform, self._frames = loaded.transform, loaded.frames
        if wrong := problems(self._transform):
            raise errors.InputUnreadableError(f"{self._name} {wrong[0]}")
        found = loaded.grid if grid is None else grid
        self._grid = _field_grid(self._transform) if found is None else found
        self._moving_grid = loaded.moving_grid if moving_grid is None else moving_grid
        for each in (self._grid, self._moving_grid):
            if each is not None:
                shape_of(each)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        format: str | None = None,
        reference: images.ImageLike | None = None,
        moving: images.ImageLike | None = None,
    ) -> Transform:
        """Read a file of any format in the table of ``docs/transforms.md``.

        Parameters
        ----------
        path
            The file; with ``@inverse`` behind it, its inverse.
        format : str, optional
            One of ``morphseek.transforms.formats.NAMES``, where ending and content do not say.
        reference, moving : ImageLike, optional
            The fixed and the moving image, without which FSL's files say nothing.

        Raises
        ------
        InputUnreadableError
            The file is missing, cut short, of another format, 2-D, singular, or holds NaN.

        Examples
        --------
        >>> import morphseek
        >>> t = morphseek.Transform.load("out/transform.h5")  # doctest: +SKIP
        """
        path, inverse, format = formats.split(path, format)
        made = cls.__new__(cls)
        made._name = f"transform: {path}"
        made._take(formats.load(path, format, reference, moving), None, None)
        return made.inverse() if inverse else made

    def __repr__(self) -> str:
        on = "" if self._grid is None else f" on {' x '.join(map(str, self._grid.size))}"
        return f"Transform({self._transform.GetName()}{on})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the kind, the parts and the grids."""
        from ..report.cards import transform

        grids = (("fixed image", self._grid), ("moving image", self._moving_grid))
        return transform(summary(self._transform, None), grids)

    @property
    def name(self) -> str:
        """What messages call it: its file."""
        return self._name

    @property
    def grid(self) -> Grid | None:
        """Where the fixed image lies; None where the transform does not hold it, as a matrix does
        not.
        """
        return self._grid

    @property
    def moving_grid(self) -> Grid | None:
        """Where the moving image lies, if that is known."""
        return self._moving_grid

    @property
    def is_linear(self) -> bool:
        """Whether it is a matrix and a shift: rigid, affine, or several of them."""
        return all(part.IsLinear() for part in parts_of(self._transform))

    def to_sitk(self) -> sitk.Transform:
        """Return SimpleITK's transform.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").to_sitk().GetDimension()
        3
        """
        return self._transform

    @property
    def stages(self) -> dict[str, Transform]:
        """What can be told apart, as :attr:`RegistrationResult.stages`: ``initial``, the linear
        part that acts after what bends, where there is one, and ``final``, the whole.
        """
        linear = []
        for part in parts_of(self._transform):
            if not part.IsLinear():
                break
            linear.append(part)
        if not linear:
            return {"final": self}
        initial = Transform(composed(linear), self._grid, self._moving_grid)
        initial._name = f"the initial part of {self._name}"
        initial._frames = self._frames
        return {"initial": initial, "final": self}

    def stage(self, name: str) -> Transform:
        """Return one of :attr:`stages`.

        Raises
        ------
        InvalidArgumentError
            The transform does not hold it apart.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").stage("initial").is_linear
        True
        """
        if name not in ("initial", "final"):
            raise errors.InvalidArgumentError(
                f"there is no stage {name!r} of a transform; choose initial or final"
            )
        found = self.stages.get(name)
        if found is None:
            raise errors.InvalidArgumentError(
                f"{self._name}: no linear part stands apart in it, as in a field; give the"
                " transform.h5 of the registration, or the file of --keep-stages"
            )
        return found

    def __matmul__(self, other: Transform | DenseTransform) -> Transform:
        """Compose: ``(a @ b)`` maps x to a(b(x)), so the last one acts first on points, as in
        ``SimpleITK.CompositeTransform([a, b])``.

        To bring an image C to A over B, with ``ab`` from A to B and ``bc`` from B to C:
        ``bc @ ab``.
        """
        if not isinstance(other, Transform):
            other = Transform(other)
        both = composed([*parts_of(self._transform), *parts_of(other._transform)])
        made = Transform(both, other._grid, self._moving_grid)
        made._name = f"{self._name} with {other._name}"
        made._frames = (other._frames[0], self._frames[1])
        return made

    def inverse(self) -> Transform:
        """Return the inverse map, from moving to fixed space: of each part its own, a field's on a
        grid over what it reaches. Where a field folds, the nearest preimage found stands.

        Raises
        ------
        SingularTransformError
            A matrix cannot be inverted.

        Examples
        --------
        >>> transform = morphseek.Transform.load("result/transform.h5")
        >>> points = np.array([[1.0, 2.0, 3.0]])
        >>> back = transform.inverse().transform_points(transform.transform_points(points))
        >>> np.allclose(back, points, atol=0.1)
        True
        """
        turned = []
        for part in reversed(parts_of(self._transform)):
            turned += inverted(part, self._name)
        made = Transform(composed(turned), self._moving_grid, self._grid)
        made._name = f"the inverse of {self._name}"
        made._frames = self._frames[::-1]
        return made

    def save(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        reference: images.ImageLike | None = None,
        moving: images.ImageLike | None = None,
    ) -> list[Path]:
        """Write a file: ``.h5``, ``.tfm``, ``.nii.gz`` and ``.nrrd`` (a displacement field),
        ``.lta``, ``.x5``; other formats by their name.

        Parameters
        ----------
        path
            File to write; for "ants" and "greedy" without an ending: what the names of the files,
            a matrix and a field, begin with.
        format : str, optional
            One of ``morphseek.transforms.formats.NAMES``; by default the ending says it.
        reference, moving : ImageLike, optional
            The fixed image, whose grid a field gets, and the moving one, where the format asks.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        InvalidArgumentError
            The format cannot hold the transform, or asks for an image.

        Examples
        --------
        >>> transform = morphseek.Transform.load("result/transform.h5")
        >>> [path.name for path in transform.save("field.nii.gz")]
        ['field.nii.gz']
        """
        return formats.save(self, path, format, reference, moving)

    def transform_points(self, points: Any) -> np.ndarray:
        """Map points, (n, 3) in LPS mm, from the fixed to the moving space; float64.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").transform_points([[0, 0, 0]]).shape
        (1, 3)
        """
        mapped = checked_points(points)
        for point in mapped:
            point[:] = self._transform.TransformPoint(point.tolist())
        return mapped

    def displacement_mm(self, reference: images.ImageLike | None = None) -> Floats:
        """Return the displacements on the fixed image's grid, or that of `reference`: float32,
        shape (z, y, x, 3), LPS mm.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").displacement_mm().shape
        (48, 48, 48, 3)
        """
        return field_on(self._transform, self.on(reference))

    def jacobian(self, reference: images.ImageLike | None = None) -> Floats:
        """Return the determinant of the derivative on the fixed image's grid, or that of
        `reference`: float32 of shape (z, y, x), below 0 where the map folds.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").jacobian("fixed.nii.gz").shape
        (48, 48, 48)
        """
        with _naming(self._name):
            return jacobian_on(self._transform, self.on(reference))

    def summary(self, reference: images.ImageLike | None = None) -> dict[str, Any]:
        """Return what the transform is: its kind, parts, matrix, grid, largest displacement and
        folds, the latter on the fixed image's grid or that of `reference`.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").summary()["njd_percent"]
        0
        """
        grid = None
        if self._grid is not None or reference is not None:
            grid = self.on(reference)
        with _naming(self._name):
            return summary(self._transform, grid)

    def on(self, reference: images.ImageLike | None) -> Grid:
        """Return the grid of `reference`, by default the fixed image's.

        Raises
        ------
        InvalidArgumentError
            There is none, or it lies elsewhere than the transform's field.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").on(None).size
        (48, 48, 48)
        """
        if reference is None:
            if self._grid is None:
                raise errors.InvalidArgumentError(
                    f"{self._name}: a {self._transform.GetName()} holds no grid for the result;"
                    " give the fixed image as reference"
                )
            return self._grid
        self.check_frame(reference, 0)
        image = images.read(reference, "reference")
        tell(image.doubts)
        self.check_place(image.grid, f"the reference {_said(reference)}")
        return image.grid

    def check_frame(self, image: images.ImageLike, side: int) -> None:
        """Refuse a DICOM image, of the fixed (0) or the moving space (1), whose frame of reference
        is not the one that a DICOM registration names. Other images do not say theirs.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").check_frame("fixed.nii.gz", 0)
        """
        if self._frames[side] and isinstance(image, (str, os.PathLike)):
            self.check_frame_uid(frame_of(image), side, str(image))

    def check_frame_uid(self, found: str, side: int, what: str) -> None:
        """Do the same for a FrameOfReferenceUID; an empty one says nothing.

        Examples
        --------
        >>> morphseek.Transform.load("result/transform.h5").check_frame_uid("", 0, "the image")
        """
        if not found or self._frames[side] in ("", found):
            return
        where = ("fixed image", "moving image")[side]
        turned = found == self._frames[1 - side]
        advice = "give its inverse" if turned else "give what belongs to the registered images"
        raise errors.InvalidArgumentError(
            f"{self._name} names another frame of reference for its {where} than {what} has: they"
            f" belong to different examinations, or to different patients; {advice}"
        )

    def check_place(self, grid: Grid, what: str) -> None:
        """Refuse a grid that a field which acts first does not reach.

        Examples
        --------
        >>> transform = morphseek.Transform.load("result/transform.h5")
        >>> transform.check_place(pair.fixed.grid, "the image")
        """
        field = _field_grid(self._transform)
        if field is None:
            return
        index = field.to_index(grid.corners())
        if (index.max(axis=0) < 0).any() or (index.min(axis=0) > np.array(field.size) - 1).any():
            raise errors.InvalidArgumentError(
                f"{self._name}: its field lies around {_center(field)} mm (LPS) and does not reach"
                f" {what} around {_center(grid)} mm; they belong to different spaces, or the"
                " transform is to be inverted"
            )

    @overload
    def apply(
        self,
        image: str | os.PathLike[str],
        reference: images.ImageLike | None = ...,
        interpolation: str = ...,
        background: float | None = ...,
        *,
        dtype: Any = ...,
        modulate: bool = ...,
    ) -> sitk.Image: ...

    @overload
    def apply(
        self,
        image: images.Volume,
        reference: images.ImageLike | None = ...,
        interpolation: str = ...,
        background: float | None = ...,
        *,
        dtype: Any = ...,
        modulate: bool = ...,
    ) -> images.Volume: ...

    def apply(
        self,
        image: images.ImageLike,
        reference: images.ImageLike | None = None,
        interpolation: str = "linear",
        background: float | None = None,
        *,
        dtype: Any = None,
        modulate: bool = False,
    ) -> Any:
        """Resample an image or label map of the moving space onto the fixed image's grid.

        Parameters
        ----------
        image : ImageLike
            With its geometry, which a numpy array does not have. One with a fourth axis is done
            frame by frame.
        reference : ImageLike, optional
            Image whose grid the result gets: by default the fixed one's, where the transform holds
            it.
        interpolation : {"linear", "cubic", "sinc", "nearest", "label"}
            "cubic" is a B-spline of third order, "sinc" windowed (Lanczos); "nearest" and "label"
            are for label maps: the latter, the label that weighs most, makes no staircase.
        background : float, optional
            Value outside the image: by default its minimum; 0 for labels and with `modulate`.
        dtype : numpy dtype, optional
            Of the result: by default the image's. Integers are rounded and clamped.
        modulate : bool
            Multiply by the Jacobian determinant: sums over a region, as of tissue per voxel, stay.
            Integers become float32.

        Returns
        -------
        same kind as `image`
            A path gives a SimpleITK image.

        Raises
        ------
        InvalidArgumentError
            There is no grid for the result, the image has no geometry or holds vectors or tensors,
            the interpolation has another name, or transform and grid lie apart.

        Examples
        --------
        >>> transform = morphseek.Transform.load("result/transform.h5")
        >>> warped = transform.apply("moving.nii.gz", "fixed.nii.gz")
        >>> warped.GetSize()
        (48, 48, 48)
        """
        if images.arrays.is_array(image):
            raise errors.InvalidArgumentError(
                "an array does not say where it lies; give morphseek.Image(array, spacing,"
                " origin, direction)"
            )
        self.check_frame(image, 1)
        grid = self.on(reference)
        kind = checked_dtype(dtype)
        with _naming(self._name):
            return images.Frames(image, "moving").map(
                lambda frame: resample(
                    frame, grid, self._transform, interpolation, background, kind, modulate
                )
            )


def read_transform(path: str | os.PathLike[str]) -> Transform:
    """Read a saved transform: ``transform.h5`` of a registration, or a file of another program;
    the same as :meth:`Transform.load`.

    Parameters
    ----------
    path : path
        The file. Its format is known by its name and content.

    Examples
    --------
    >>> import morphseek
    >>> transform = morphseek.read_transform("out/transform.h5")  # doctest: +SKIP
    >>> warped = transform.apply("moving.nii.gz")  # doctest: +SKIP
    """
    return Transform.load(path)


def _said(image: images.ImageLike) -> str:
    return str(image) if isinstance(image, (str, os.PathLike)) else "image"


def _center(grid: Grid) -> str:
    middle = grid.center
    return "(" + ", ".join(f"{v:.0f}" for v in middle) + ")"


def _field_grid(transform: sitk.Transform) -> Grid | None:
    """Return the grid of the displacement field that acts first, if that is what does."""
    parts = parts_of(transform)
    return grid_of_field(parts[-1]) if parts and is_field(parts[-1]) else None
