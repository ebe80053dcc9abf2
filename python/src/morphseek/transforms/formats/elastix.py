"""elastix: TransformParameters.txt, and those that it begins with."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from numpy.typing import ArrayLike

from ... import errors
from ..._files import write_text
from ..._grid import Grid
from ..parts import composed
from .job import Content, Job, Source

_DEPTH = 20  # files that begin with one another: as many, or a ring


def read(source: Source) -> Content:
    parts, path, grid = [], source.path, None
    for _ in range(_DEPTH):
        here = source._replace(path=path)
        said = _parse(here)
        parts.append(_transform(here, said))
        if grid is None:
            grid = _grid(said)
        first = _word(said, "InitialTransformParameterFileName") or _word(
            said, "InitialTransformParametersFileName"
        )
        if first in ("", "NoInitialTransform"):
            return Content(composed(parts), grid, source.moving_grid)
        if _word(said, "HowToCombineTransforms") not in ("", "Compose"):
            raise here.unreadable("adds transforms up; only composed ones can be read")
        # elastix looks in the working folder; results are moved together with what they name
        *_, last = steps = re.split(r"[\\/]", first)
        places = (Path(first), path.parent.joinpath(*steps), path.parent / last)
        there = next((place for place in places if place.is_file()), None)
        if there is None:
            raise here.unreadable(
                f"begins with another file, and {first} does not exist; put {last} beside it"
            )
        path = there
    raise source.unreadable(f"begins with more than {_DEPTH} files, or with itself")


def _parse(source: Source) -> dict[str, list[str]]:
    text = source.text()
    found = re.findall(r"^\s*\((\w+)\s+(.*?)\)\s*(?://.*)?$", text, re.M)
    found += re.findall(r"^(\w+)\s*=\s*\[?(.*?)\]?\s*$", text, re.M)  # TOML, since elastix 5.2
    said = {key: re.findall(r""""[^"]*"|'[^']*'|[^\s,]+""", rest) for key, rest in found}
    if "Transform" not in said:
        raise source.unreadable("is no TransformParameters.txt of elastix")
    return said


def _word(said: dict[str, list[str]], key: str) -> str:
    return said.get(key, [""])[0].strip("\"'")


def _numbers(source: Source, said: dict[str, list[str]], key: str) -> list[float]:
    try:
        return [float(v) for v in said[key]]
    except KeyError:
        raise source.unreadable(f"has no {key}; is it whole?") from None
    except ValueError:
        raise source.unreadable(f"has a {key} that is no number") from None


def _transform(source: Source, said: dict[str, list[str]]) -> sitk.Transform:
    if (dimension := _word(said, "FixedImageDimension")) not in ("", "3"):
        raise source.unreadable(f"is a {dimension}-D transform; images here are 3-D")
    kind, parameters = _word(said, "Transform"), _numbers(source, said, "TransformParameters")
    if not all(map(math.isfinite, parameters)):
        raise source.unreadable("has parameters that are no numbers (NaN or Inf); make it anew")
    made = _made(source, said, kind)
    if made.GetNumberOfParameters() != len(parameters):
        raise source.unreadable(
            f"has {len(parameters)} parameters, a {kind} {made.GetNumberOfParameters()}; it is cut"
            " short"
        )
    made.SetParameters(parameters)
    return made


def _made(source: Source, said: dict[str, list[str]], kind: str) -> sitk.Transform:
    if kind == "TranslationTransform":
        return sitk.TranslationTransform(3)
    if kind in ("BSplineTransform", "RecursiveBSplineTransform"):
        return _spline(source, said)
    made: Any
    if kind == "EulerTransform":
        made = sitk.Euler3DTransform()
        made.SetComputeZYX(_word(said, "ComputeZYX") == "true")
    elif kind == "SimilarityTransform":
        made = sitk.Similarity3DTransform()
    elif kind == "AffineTransform":
        made = sitk.AffineTransform(3)
    else:
        raise source.unreadable(
            f"is a {kind}, which is not read; make a field of it: transformix -def all"
        )
    made.SetCenter(_numbers(source, said, "CenterOfRotationPoint"))
    turning: sitk.Transform = made
    return turning


def _spline(source: Source, said: dict[str, list[str]]) -> sitk.BSplineTransform:
    if _word(said, "UseCyclicTransform") == "true":
        raise source.unreadable("is a cyclic B-spline; make a field of it: transformix -def all")
    order = int((_numbers(source, said, "BSplineTransformSplineOrder") or [3])[0])
    size = [int(n) for n in _numbers(source, said, "GridSize")]
    blank = sitk.Image(size, sitk.sitkFloat64)
    blank.SetSpacing(_numbers(source, said, "GridSpacing"))
    blank.SetOrigin(_numbers(source, said, "GridOrigin"))
    columns = np.array(_numbers(source, said, "GridDirection")).reshape(3, 3)
    blank.SetDirection(columns.T.ravel().tolist())
    return sitk.BSplineTransform([blank] * 3, order)


def _grid(said: dict[str, list[str]]) -> Grid | None:
    """Return the fixed image's grid; elastix writes the direction by columns."""
    try:
        size, spacing, origin, direction = (
            np.array(said[key], dtype=np.float64)
            for key in ("Size", "Spacing", "Origin", "Direction")
        )
        columns = direction.reshape(3, 3)
        return Grid(tuple(size), tuple(spacing), tuple(origin), tuple(columns.T.ravel()))
    except (KeyError, ValueError, errors.InvalidArgumentError):
        return None


def write(job: Job) -> list[Path]:
    matrix, grid = job.matrix(), job.grid
    center = grid.center
    shift = matrix[:3, :3] @ center + matrix[:3, 3] - center

    def said(values: ArrayLike) -> str:
        return " ".join(f"{v:.15g}" for v in np.ravel(values))

    lines = [
        '(Transform "AffineTransform")',
        "(NumberOfParameters 12)",
        f"(TransformParameters {said(np.concatenate([matrix[:3, :3].ravel(), shift]))})",
        '(InitialTransformParameterFileName "NoInitialTransform")',
        '(HowToCombineTransforms "Compose")',
        "(FixedImageDimension 3)",
        "(MovingImageDimension 3)",
        '(FixedInternalImagePixelType "float")',
        '(MovingInternalImagePixelType "float")',
        "(Size " + " ".join(map(str, grid.size)) + ")",
        "(Index 0 0 0)",
        f"(Spacing {said(grid.spacing)})",
        f"(Origin {said(grid.origin)})",
        f"(Direction {said(grid.axes.T)})",
        '(UseDirectionCosines "true")',
        f"(CenterOfRotationPoint {said(center)})",
        '(ResampleInterpolator "FinalBSplineInterpolator")',
        "(FinalBSplineInterpolationOrder 3)",
        '(Resampler "DefaultResampler")',
        "(DefaultPixelValue 0)",
        '(ResultImageFormat "nii.gz")',
        '(ResultImagePixelType "float")',
        '(CompressResultImage "true")',
    ]
    write_text(job.path, "\n".join(lines) + "\n")
    return [job.path]
