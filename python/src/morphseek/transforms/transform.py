"""Transforms: one type for those of files, of other programs and of registrations."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import SimpleITK as sitk

from .. import errors, images
from .._engine.bindings import Doubles, Floats, from_mm, shape_of
from .._engine.generated import Unpack
from .._grid import Grid
from .._points import checked_points
from ..images.convert import as_kind_of
from ..images.dicom_series import frame_of
from ..images.frames import Frames
from ..images.image import tell
from . import formats
from .labels import INTERPOLATIONS, checked_dtype, warn_of_labels
from .linear import linear, linear_part
from .parts import (
    composed,
    field_on,
    grid_of_field,
    inverted,
    is_field,
    named,
    own_class,
    parts_of,
    planar,
    split_linear,
    vector_image,
)
from .resample import Resampling, jacobian_on, resample
from .summary import fault, summary


class Applicable(ABC):
    """What brings images of the moving space onto the fixed image's grid: a transform, or a
    registration by the one that it has.
    """

    @property
    @abstractmethod
    def _transform(self) -> Transform: ...

    @overload
    def apply(
        self,
        image: str | os.PathLike[str],
        reference: images.ImageLike | None = ...,
        **how: Unpack[Resampling],
    ) -> sitk.Image: ...

    @overload
    def apply(
        self,
        image: np.ndarray | images.arrays.Tensor,
        reference: images.ImageLike | None = ...,
        **how: Unpack[Resampling],
    ) -> np.ndarray: ...

    @overload
    def apply(
        self,
        image: images.Volume,
        reference: images.ImageLike | None = ...,
        **how: Unpack[Resampling],
    ) -> images.Volume: ...

    def apply(
        self,
        image: images.ImageLike,
        reference: images.ImageLike | None = None,
        *,
        interpolation: str = "linear",
        background: float | None = None,
        dtype: Any = None,
        modulate: bool = False,
    ) -> Any:
        """Resample an image or label map of the moving space onto the fixed image's grid, once.

        Parameters
        ----------
        image : ImageLike
            On any grid of the moving space. A numpy array or a tensor lies on the moving image's
            own grid, which a registration's transform knows. An image with a fourth axis is done
            frame by frame.
        reference : ImageLike, optional
            Image whose grid, or whose frames' grid, the result gets: by default the fixed one's,
            where the transform holds it. An array lies on the latter.
        interpolation : {"linear", "cubic", "sinc", "nearest", "label"}
            "cubic" is a B-spline of third order, "sinc" windowed (Lanczos); "nearest" and "label"
            are for label maps: the latter, the label that weighs most, makes no staircase.
        background : float, optional
            Value outside the image: by default its minimum; 0 for labels and with `modulate`.
        dtype : numpy dtype, optional
            Of the result: by default the image's. Integers are rounded and clamped; labels must
            fit.
        modulate : bool
            Multiply by the Jacobian determinant: the sum over a region, times the volume of a
            voxel, stays, as of tissue. Integers become float32.

        Returns
        -------
        same kind as `image`
            A path gives a SimpleITK image, a tensor a numpy array.

        Raises
        ------
        InvalidArgumentError
            There is no grid for the result, an array has no geometry, the image holds vectors or
            tensors, the interpolation has another name, or transform and grid lie apart.

        Examples
        --------
        >>> labels = result.transform.apply("moving_labels.nii.gz", interpolation="label")
        >>> labels.GetSize()
        (48, 48, 48)
        """
        transform = self._transform
        if isinstance(reference, str) and reference in INTERPOLATIONS:
            if not os.path.exists(reference):
                raise errors.InvalidArgumentError(
                    f"reference: there is no file {reference}; interpolation is a keyword:"
                    f' interpolation="{reference}"'
                )
        array = images.arrays.is_array(image)
        if array and transform.moving_grid is None:
            raise _lies_nowhere("an array", transform)
        check_frame(transform, image, 1)
        grid = target_grid(transform, reference)
        how = Resampling(
            interpolation=interpolation, background=background, dtype=checked_dtype(dtype),
            modulate=modulate,
        )  # fmt: skip

        def move(frame: images.Image) -> images.Image:
            warn_of_labels(frame.array, frame.name, interpolation)
            with named(transform.name):
                return transform._moved(frame, grid, how)

        if array:
            voxels = images.read_on(image, transform.moving_grid, "moving")  # type: ignore[arg-type]
            return as_kind_of(image, move(voxels))
        return Frames(image, "moving").map(move)

    def transform_points(self, points: Any) -> Doubles:
        """Map points, shape (n, 3), LPS mm, or a data frame with the columns x, y and z, from the
        fixed to the moving space: float64, shape (n, 3), where the moving image shows what the
        fixed image shows at `points`. They may lie outside the fixed image.

        Examples
        --------
        >>> result.transform_points([[0, 0, 0]]).shape
        (1, 3)
        """
        return self._transform.transform_points(points)

    def displacement(self, reference: images.ImageLike | None = None) -> Floats:
        """Return the displacements in voxels of the fixed image's grid, or that of `reference`,
        which is needed where :attr:`grid` is None: float32, shape (3, z, y, x), component i along
        array axis i. Read-only where they are a field's own.

        Examples
        --------
        >>> result.displacement().shape
        (3, 48, 48, 48)
        """
        return self._transform.displacement(reference)

    def displacement_mm(self, reference: images.ImageLike | None = None) -> Floats:
        """Return the displacements in LPS mm on the fixed image's grid, or that of `reference`:
        float32, shape (z, y, x, 3), components x, y, z, the buffer of an ITK vector image.

        Examples
        --------
        >>> result.displacement_mm().shape
        (48, 48, 48, 3)
        """
        return self._transform.displacement_mm(reference)

    def jacobian(self, reference: images.ImageLike | None = None) -> Floats:
        """Return the determinant of the derivative on the fixed image's grid, or that of
        `reference`: float32, shape (z, y, x). It is below 0 where the map folds, and 1 where it
        keeps volumes.

        Examples
        --------
        >>> result.jacobian("fixed.nii.gz").shape
        (48, 48, 48)
        """
        return self._transform.jacobian(reference)


class Transform(Applicable):
    """A map of points from the fixed to the moving space: an :class:`Affine`, a :class:`Field` or
    a :class:`Chain` of several.

    Points go from the fixed to the moving space, images the other way: ``warped = moving o Phi``.
    :meth:`read` reads one from a file, :meth:`of` takes what other libraries hold, and a
    registration has one (:attr:`morphseek.Registration.transform`).

    Examples
    --------
    >>> shift = morphseek.Affine([[1, 0, 0, 1], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])
    >>> shift.transform_points([[0.0, 0.0, 0.0]])
    array([[1., 2., 3.]])
    >>> twice = morphseek.Affine(np.diag([2.0, 2, 2, 1]))
    >>> (twice @ shift).transform_points([[0.0, 0.0, 0.0]])  # the shift acts first
    array([[2., 4., 6.]])
    >>> shift.inverse().transform_points([[1.0, 2.0, 3.0]])
    array([[0., 0., 0.]])
    """

    _name = "the transform"
    _frames = ("", "")
    """The FrameOfReferenceUID of the fixed and of the moving space, of a DICOM object."""
    _itk: sitk.Transform

    def __init__(self, grid: Grid | None, moving_grid: Grid | None):
        for each in (grid, moving_grid):
            if each is not None:
                shape_of(each)
        self._grid, self._moving_grid = grid, moving_grid

    @staticmethod
    def read(
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
            A name of that table, where ending and content do not say it.
        reference, moving : ImageLike, optional
            The fixed and the moving image, without which FSL's files say nothing.

        Raises
        ------
        InputUnreadableError
            The file is missing, cut short, of another format, 2-D, singular, or holds NaN.

        Examples
        --------
        >>> morphseek.Transform.read("result/transform.h5")
        Chain(CompositeTransform on 48 x 48 x 48)
        """
        path, inverse, format = formats.split(path, format)
        whole = _of_loaded(f"transform: {path}", *formats.load(path, format, reference, moving))
        return whole.inverse() if inverse else whole

    @staticmethod
    def of(
        source: Any,
        grid: Grid | None = None,
        moving_grid: Grid | None = None,
        name: str = "the transform",
    ) -> Transform:
        """Return the transform that an object is or has.

        Parameters
        ----------
        source : transform, vector image, array_like, path or registration
            3-D, of SimpleITK or itk; a vector image of these or nibabel, LPS mm; a 4x4 LPS matrix
            in mm; a file; a :class:`morphseek.Registration`; a transform of ours stays as it is.
        grid, moving_grid : Grid, optional
            Where images of the two spaces lie, where `source` does not say it.
        name : str
            What messages call it.

        Raises
        ------
        InvalidArgumentError
            It is none of these, or 2-D.

        Examples
        --------
        >>> import SimpleITK
        >>> morphseek.Transform.of(SimpleITK.TranslationTransform(3, (1.0, 2.0, 3.0))).matrix[0, 3]
        np.float64(1.0)
        """
        for own in (source, getattr(source, "transform", None)):  # a registration's
            if isinstance(own, Transform):
                return own
        if isinstance(source, (str, os.PathLike)):
            return Transform.read(source)
        transform, own, theirs, frames = formats.read_object(source, name)
        here = own if grid is None else grid
        there = theirs if moving_grid is None else moving_grid
        return _of_loaded(name, transform, here, there, frames)

    @property
    def _transform(self) -> Transform:
        return self

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the kind, the parts and the grids."""
        from ..report.cards import transform

        grids = (("fixed image", self._grid), ("moving image", self._moving_grid))
        return transform(summary(self._sitk(), None), grids)

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
        """Where the moving image lies; None where that is not known."""
        return self._moving_grid

    @property
    def is_linear(self) -> bool:
        """Whether it is a matrix and a shift: rigid, affine, or several of them."""
        return bool(self._sitk().IsLinear())

    def _sitk(self) -> sitk.Transform:
        """Return SimpleITK's transform of three dimensions; not to be changed."""
        return self._itk

    def to_sitk(self, dimension: int = 3) -> sitk.Transform:
        """Return SimpleITK's transform: of several parts a composite one, the last of which acts
        first.

        Parameters
        ----------
        dimension : {3, 2}
            2, for slices that lie in the plane z = 0, as images of two axes do, gives a transform
            of two dimensions.

        Raises
        ------
        InvalidArgumentError
            `dimension` is 2, and the images are volumes, or slices that lie elsewhere.

        Examples
        --------
        >>> point = (1.0, 2.0, 3.0)
        >>> mapped = result.transform.to_sitk().TransformPoint(point)
        >>> np.allclose(mapped, result.transform_points([point])[0], atol=1e-3)
        True
        """
        if dimension == 2:
            return planar(self._sitk(), self._grid)
        return own_class(sitk.Transform(self._sitk()))  # which a caller may change

    @property
    def stages(self) -> dict[str, Transform]:
        """What can be told apart: ``initial``, the linear part that acts after what bends, where
        there is one, and ``final``, the whole.
        """
        last, _ = split_linear(self._sitk())
        if not last:
            return {"final": self}
        grids, name = (self._grid, self._moving_grid), f"the initial part of {self._name}"
        return {"initial": _of_loaded(name, composed(last), *grids, self._frames), "final": self}

    def stage(self, name: str) -> Transform:
        """Return one of :attr:`stages`.

        Raises
        ------
        InvalidArgumentError
            The transform does not hold it apart.

        Examples
        --------
        >>> result.transform.stage("initial").is_linear
        True
        """
        errors._check_choice("stage", name, ("initial", "final"))
        stage = self.stages.get(name)
        if stage is None:
            raise errors.InvalidArgumentError(
                f"{self._name}: no linear part stands apart in it, as in a field; give the"
                " transform.h5 of the registration, or the file of --keep-stages"
            )
        return stage

    def __matmul__(self, other: Any) -> Transform:
        """Compose: ``(a @ b)`` maps x to a(b(x)), so the last one acts first on points, as in
        ``SimpleITK.CompositeTransform([a, b])``.

        To bring an image C to A over B, with ``ab`` from A to B and ``bc`` from B to C:
        ``bc @ ab``. The other one may be anything that :meth:`of` takes.
        """
        first = Transform.of(other)
        whole = composed([*parts_of(self._sitk()), *parts_of(first._sitk())])
        frames, name = (first._frames[0], self._frames[1]), f"{self._name} with {first._name}"
        return _of_loaded(name, whole, first._grid, self._moving_grid, frames)

    __array_ufunc__ = None  # numpy leaves ``matrix @ transform`` to what follows

    def __rmatmul__(self, other: Any) -> Transform:
        return Transform.of(other) @ self

    def inverse(self) -> Transform:
        """Return the inverse map, from moving to fixed space: of each part its own, a field's on a
        grid over what it reaches. Where a field folds, the nearest preimage stands.

        Raises
        ------
        SingularTransformError
            A matrix cannot be inverted.

        Examples
        --------
        >>> transform = morphseek.Transform.read("result/transform.h5")
        >>> points = np.array([[1.0, 2.0, 3.0]])
        >>> back = transform.inverse().transform_points(transform.transform_points(points))
        >>> np.allclose(back, points, atol=0.1)
        True
        """
        parts = reversed(parts_of(self._sitk()))
        whole = composed([one for part in parts for one in inverted(part, self._name)])
        grids, name = (self._moving_grid, self._grid), f"the inverse of {self._name}"
        return _of_loaded(name, whole, *grids, self._frames[::-1])

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
            A name of the table in ``docs/transforms.md``; by default the ending says it.
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
        >>> [path.name for path in result.transform.save("field.nii.gz")]
        ['field.nii.gz']
        """
        grid = None if reference is None else target_grid(self, reference)
        content = formats.Content(self._sitk(), self._grid, self._moving_grid, self._frames)
        return formats.save(content, self._name, path, format, grid, reference, moving)

    def transform_points(self, points: Any) -> Doubles:
        mapped = checked_points(points)
        transform = self._sitk()
        for point in mapped:
            point[:] = transform.TransformPoint(point.tolist())
        return mapped

    def _reach(self) -> Grid | None:
        """Return the grid of the displacement field that acts first, if that is what does."""
        return _field_grid(self._sitk())

    def displacement(self, reference: images.ImageLike | None = None) -> Floats:
        grid = target_grid(self, reference)
        return from_mm(field_on(self._sitk(), grid), grid)

    def displacement_mm(self, reference: images.ImageLike | None = None) -> Floats:
        return field_on(self._sitk(), target_grid(self, reference))

    def displacement_image(self, reference: images.ImageLike | None = None) -> sitk.Image:
        """Return :meth:`displacement_mm` as a SimpleITK vector image.

        Examples
        --------
        >>> result.transform.displacement_image().GetNumberOfComponentsPerPixel()
        3
        """
        grid = target_grid(self, reference)
        vectors = field_on(self._sitk(), grid) if reference is not None else self.displacement_mm()
        return vector_image(vectors, grid, np.float32)

    def jacobian(self, reference: images.ImageLike | None = None) -> Floats:
        with named(self._name):
            return jacobian_on(self._sitk(), target_grid(self, reference))

    def summary(self, reference: images.ImageLike | None = None) -> dict[str, Any]:
        """Return what the transform is: its kind, parts, matrix, grid, largest displacement and
        folds, the latter on the fixed image's grid or that of `reference`.

        Examples
        --------
        >>> result.transform.summary()["njd_percent"]
        0
        """
        grid = None
        if self._grid is not None or reference is not None:
            grid = target_grid(self, reference)
        with named(self._name):
            return summary(self._sitk(), grid)

    def _moved(self, frame: images.Image, grid: Grid, how: Resampling) -> images.Image:
        return resample(frame, grid, self._sitk(), **how)


class Affine(Transform):
    """A rigid or affine map.

    Parameters
    ----------
    matrix : array_like
        4x4, LPS mm, from the fixed to the moving space.
    grid, moving_grid : Grid, optional
        Where images of the two spaces lie.

    Raises
    ------
    InvalidArgumentError, SingularTransformError
        It is no such matrix, or cannot be inverted.

    Examples
    --------
    >>> morphseek.Affine(np.diag([2.0, 2, 2, 1])).inverse().matrix[0, 0]
    np.float64(0.5)
    """

    def __init__(self, matrix: Any, grid: Grid | None = None, moving_grid: Grid | None = None):
        super().__init__(grid, moving_grid)
        self._itk = linear(matrix)

    def __repr__(self) -> str:
        return f"Affine({np.array2string(self.matrix, precision=4, separator=', ')})"

    @property
    def matrix(self) -> Doubles:
        """The map as 4x4 LPS matrix, mm; a copy."""
        return linear_part(self._itk)


class Chain(Transform):
    """Maps one after another, of which the last one acts first; also a single one of SimpleITK's
    that bends, such as a B-spline or the field of a file.

    Parameters
    ----------
    parts : sequence of transforms
        Whatever :meth:`Transform.of` takes.
    grid, moving_grid : Grid, optional
        Where images of the two spaces lie: by default what the first and the last part say.

    Examples
    --------
    >>> shift = morphseek.Affine([[1, 0, 0, 5], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    >>> chain = morphseek.transforms.Chain([shift, result])  # the registration acts first
    >>> moved = chain.transform_points([[0, 0, 0]]) - result.transform_points([[0, 0, 0]])
    >>> np.allclose(moved, [5, 0, 0], atol=1e-4)
    True
    """

    def __init__(
        self, parts: Sequence[Any], grid: Grid | None = None, moving_grid: Grid | None = None
    ):
        each = [Transform.of(part) for part in parts]
        if not each:
            raise errors.InvalidArgumentError("a chain of transforms needs one at least")
        super().__init__(
            each[-1]._grid if grid is None else grid,
            each[0]._moving_grid if moving_grid is None else moving_grid,
        )
        self._itk = composed([leaf for one in each for leaf in parts_of(one._sitk())])

    def __repr__(self) -> str:
        on = "" if self._grid is None else f" on {' x '.join(map(str, self._grid.size))}"
        return f"Chain({self._itk.GetName()}{on})"


def _of_loaded(
    name: str,
    transform: sitk.Transform,
    grid: Grid | None,
    moving_grid: Grid | None,
    frames: tuple[str, str],
) -> Transform:
    """Return SimpleITK's transform as one of ours, if it is sound."""
    if wrong := fault(transform):
        raise errors.InputUnreadableError(f"{name} {wrong}")
    kind: type[Affine] | type[Chain] = Affine if transform.IsLinear() else Chain
    whole = kind.__new__(kind)
    Transform.__init__(whole, _field_grid(transform) if grid is None else grid, moving_grid)
    whole._itk, whole._frames, whole._name = transform, frames, name
    return whole


def target_grid(transform: Transform, reference: images.ImageLike | None) -> Grid:
    """Return the grid of `reference`, or of its frames, by default the fixed image's; refuse one
    elsewhere.
    """
    if reference is None:
        if transform.grid is None:
            raise errors.InvalidArgumentError(
                f"{transform.name}: a {transform._sitk().GetName()} holds no grid for the result;"
                " give the fixed image as reference"
            )
        return transform.grid
    check_frame(transform, reference, 0)
    if images.arrays.is_array(reference):
        if transform.grid is None:
            raise _lies_nowhere("reference: an array", transform)
        return images.read_on(reference, transform.grid, "reference").grid
    image = next(iter(Frames(reference, "reference")))
    tell(image.doubts)
    name = str(reference) if isinstance(reference, (str, os.PathLike)) else "image"
    check_place(transform, image.grid, f"the reference {name}")
    return image.grid


def _lies_nowhere(what: str, transform: Transform) -> errors.MorphSeekError:
    return errors.InvalidArgumentError(
        f"{what} does not say where it lies, nor does {transform.name}; give"
        " morphseek.Image(array, spacing, origin, direction)"
    )


def check_frame(transform: Transform, image: images.ImageLike, side: int) -> None:
    """Refuse a DICOM image, fixed (0) or moving (1), of another frame of reference."""
    if transform._frames[side] and isinstance(image, (str, os.PathLike)):
        check_frame_uid(transform, frame_of(image), side, str(image))


def check_frame_uid(transform: Transform, uid: str, side: int, what: str) -> None:
    """Do the same for a FrameOfReferenceUID; an empty one says nothing."""
    frames = transform._frames
    if not uid or frames[side] in ("", uid):
        return
    where = ("fixed image", "moving image")[side]
    is_inverse = uid == frames[1 - side]
    advice = "give its inverse" if is_inverse else "give what belongs to the registered images"
    raise errors.InvalidArgumentError(
        f"{transform.name} names another frame of reference for its {where} than {what} has: they"
        f" belong to different examinations, or to different patients; {advice}"
    )


def check_place(transform: Transform, grid: Grid, what: str) -> None:
    """Refuse a grid that a field which acts first does not reach."""
    field = transform._reach()
    if field is None:
        return
    index = field.to_index(grid.corners())
    if (index.max(axis=0) < 0).any() or (index.min(axis=0) > np.array(field.size) - 1).any():
        raise errors.InvalidArgumentError(
            f"{transform.name}: its field lies around {_center(field)} mm (LPS) and does not reach"
            f" {what} around {_center(grid)} mm; they belong to different spaces, or the"
            " transform is to be inverted"
        )


def _center(grid: Grid) -> str:
    return "(" + ", ".join(f"{v:.0f}" for v in grid.center) + ")"


def _field_grid(transform: sitk.Transform) -> Grid | None:
    """Return the grid of the displacement field that acts first, if that is what does."""
    parts = parts_of(transform)
    return grid_of_field(parts[-1]) if parts and is_field(parts[-1]) else None
