"""Transforms and vector images that other libraries hold: SimpleITK, itk and nibabel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import SimpleITK as sitk

from ... import errors, images
from ..._grid import Grid
from ...images.convert import by_itk, loaded
from ...images.nifti import notes_of
from .. import files, h5
from ..linear import FLAT, linear, matrix_of_map
from . import vectors
from .job import Content


def read(source: Any, name: str) -> Content:
    """Return the transform that an object is, or that a vector image holds."""
    if hasattr(source, "GetTransformTypeAsString"):
        try:
            return Content(files.transform_of(_parts(source, name), name))
        except RuntimeError as error:
            raise errors.InvalidArgumentError(f"{name} cannot be used: {error}") from None
    blank = vectors.Vectors(name, lambda why: errors.InvalidArgumentError(f"{name} {why}"))
    if isinstance(source, sitk.Image):
        return vectors.read(vectors.of_image(source, blank))
    if hasattr(source, "dataobj") and hasattr(source, "affine"):
        return vectors.read(_of_nibabel(source, blank))
    if hasattr(source, "GetLargestPossibleRegion"):
        return vectors.read(vectors.of_image(by_itk(source), blank))
    if isinstance(source, sitk.Transform):
        if source.GetDimension() != 3:
            raise errors.InvalidArgumentError(f"{name} is {source.GetDimension()}-D; {FLAT}")
        return Content(source)
    return Content(linear(source))


def _of_nibabel(image: Any, blank: vectors.Vectors) -> vectors.Vectors:
    shape = tuple(image.shape)
    if shape[3:] != (1, 3):
        raise blank.refused(
            f"is a nibabel image of shape {shape}; a displacement field has (x, y, z, 1, 3)"
        )
    with loaded(image, blank.name):
        values = np.asanyarray(image.dataobj)[:, :, :, 0].transpose(2, 1, 0, 3)
        first = image.slicer[..., 0, 0]
    place = images.read(first, blank.name)
    content = blank._replace(values=values, grid=place.grid, header=notes_of(image.header))
    vectors.check_intent(content)
    return content


def _parts(transform: Any, name: str) -> Sequence[h5.Part]:
    """Return the parts of a transform of the package itk, the last of which acts first."""
    kind, _, dimensions = str(transform.GetTransformTypeAsString()).partition("_")
    if dimensions.split("_")[1:3] != ["3", "3"]:
        raise errors.InvalidArgumentError(f"{name} is a {kind} of dimensions {dimensions}; {FLAT}")
    if kind == "CompositeTransform":
        count = int(transform.GetNumberOfTransforms())
        whole = [transform.GetNthTransform(i) for i in range(count)]
        return [part for one in whole for part in _parts(_cast(one), name)]
    if hasattr(transform, "GetDisplacementField"):  # also one that leads to it, as velocities do
        field = _cast(transform).GetDisplacementField()
        if field is None:
            raise errors.InvalidArgumentError(f"{name} is a {kind} without a displacement field")
        image = by_itk(field)
        return [files.vectors_part(sitk.GetArrayFromImage(image), Grid.of(image))]
    if transform.IsLinear() and not files.is_known(kind):
        return [files.matrix_part(matrix_of_map(transform))]
    order = dimensions.split("_")[3:]
    fixed, numbers = (
        np.array(list(values), dtype=np.float64)
        for values in (transform.GetFixedParameters(), transform.GetParameters())
    )
    return [h5.Part(kind + "".join(order), fixed, numbers)]


def _cast(transform: Any) -> Any:
    """Return a transform as its own class: of a composite one they come as the base class."""
    return sys.modules["itk"].down_cast(transform)
