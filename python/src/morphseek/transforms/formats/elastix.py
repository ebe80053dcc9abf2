"""elastix: TransformParameters.txt, and those that it begins with."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from numpy.typing import ArrayLike

from ... import errors
from ..._files import write_text
from ..._grid import Grid
from ..linear import FLAT
from ..parts import composed
from .job import Content, Export, TransformFile

ENDINGS = (".txt", ".toml")
_DEPTH = 20  # files that begin with one another: as many, or a ring


def read(source: TransformFile) -> Content:
    files = [*_files(source)]
    grids = (grid for _, fields in files if (grid := _grid(fields)) is not None)
    parts = [_transform(here, fields) for here, fields in files]
    return Content(composed(parts), next(grids, None), source.moving_grid)


def chain(path: Path) -> list[Path]:
    """Return the files that a transform is of: itself, and those that it begins with."""
    paths = []
    with contextlib.suppress(errors.MorphSeekError):  # no file of elastix, or reading will refuse
        for file, _ in _files(TransformFile(path, None, None)):
            paths.append(file.path)
    return paths or [path]


def _files(source: TransformFile) -> Iterator[tuple[TransformFile, dict[str, list[str]]]]:
    """Give a file and those that it begins with, with their fields."""
    for _ in range(_DEPTH):
        fields = _parse(source)
        yield source, fields
        first = _first(fields)
        if not first:
            return
        if _word(fields, "HowToCombineTransforms") not in ("", "Compose"):
            raise source.unreadable("adds transforms up; only composed ones can be read")
        there = _place(first, source.path)
        if there is None:
            last = re.split(r"[\\/]", first)[-1]
            raise source.unreadable(
                f"begins with another file, and {first} does not exist; put {last} beside it"
            )
        source = source._replace(path=there)
    raise source.unreadable(f"begins with more than {_DEPTH} files, or with itself")


def _first(fields: dict[str, list[str]]) -> str:
    """Return the name of the file that a transform begins with; empty where there is none."""
    keys = "InitialTransformParameterFileName", "InitialTransformParametersFileName"
    name = next(filter(None, (_word(fields, key) for key in keys)), "")
    return "" if name == "NoInitialTransform" else name


def _place(first: str, path: Path) -> Path | None:
    """Return where a file lies that another begins with: as it says, or beside that one."""
    *_, last = steps = re.split(r"[\\/]", first)
    places = (Path(first), path.parent.joinpath(*steps), path.parent / last)
    return next((place for place in places if place.is_file()), None)


def _parse(source: TransformFile) -> dict[str, list[str]]:
    text = source.text()
    pairs = re.findall(r"^\s*\((\w+)\s+(.*?)\)\s*(?://.*)?$", text, re.M)
    pairs += re.findall(r"^(\w+)\s*=\s*\[?(.*?)\]?\s*$", text, re.M)  # TOML, since elastix 5.2
    fields = {key: re.findall(r""""[^"]*"|'[^']*'|[^\s,]+""", rest) for key, rest in pairs}
    if "Transform" not in fields:
        raise source.unreadable("is no TransformParameters.txt of elastix")
    return fields


def _word(fields: dict[str, list[str]], key: str) -> str:
    return fields.get(key, [""])[0].strip("\"'")


def _numbers(source: TransformFile, fields: dict[str, list[str]], key: str) -> list[float]:
    try:
        return [float(v) for v in fields[key]]
    except KeyError:
        raise source.unreadable(f"has no {key}; is it whole?") from None
    except ValueError:
        raise source.unreadable(f"has a {key} that is no number") from None


def _transform(source: TransformFile, fields: dict[str, list[str]]) -> sitk.Transform:
    if (dimension := _word(fields, "FixedImageDimension")) not in ("", "3"):
        raise source.unreadable(f"is a {dimension}-D transform; {FLAT}")
    grid = _grid(fields)
    is_turned = grid is not None and not np.allclose(grid.axes, np.eye(3))
    if is_turned and _word(fields, "UseDirectionCosines") == "false":
        raise source.unreadable(
            "was made without the images' directions, which are no identity; register anew with"
            ' (UseDirectionCosines "true")'
        )
    kind, parameters = _word(fields, "Transform"), _numbers(source, fields, "TransformParameters")
    if not all(map(math.isfinite, parameters)):
        raise source.unreadable("has parameters that are no numbers (NaN or Inf); make it anew")
    transform = _new(source, fields, kind)
    needed = transform.GetNumberOfParameters()
    if needed != len(parameters):
        raise source.unreadable(
            f"has {len(parameters)} parameters, a {kind} {needed}; it is cut short"
        )
    transform.SetParameters(parameters)
    return transform


def _new(source: TransformFile, fields: dict[str, list[str]], kind: str) -> sitk.Transform:
    if kind == "TranslationTransform":
        return sitk.TranslationTransform(3)
    if kind in ("BSplineTransform", "RecursiveBSplineTransform"):
        return _spline(source, fields)
    transform: Any
    if kind == "EulerTransform":
        transform = sitk.Euler3DTransform()
        transform.SetComputeZYX(_word(fields, "ComputeZYX") == "true")
    elif kind == "SimilarityTransform":
        transform = sitk.Similarity3DTransform()
    elif kind == "AffineTransform":
        transform = sitk.AffineTransform(3)
    else:
        raise source.unreadable(
            f"is a {kind}, which is not read; make a field of it: transformix -def all"
        )
    transform.SetCenter(_numbers(source, fields, "CenterOfRotationPoint"))
    return transform


def _spline(source: TransformFile, fields: dict[str, list[str]]) -> sitk.BSplineTransform:
    if _word(fields, "UseCyclicTransform") == "true":
        raise source.unreadable("is a cyclic B-spline; make a field of it: transformix -def all")
    order = int((_numbers(source, fields, "BSplineTransformSplineOrder") or [3])[0])
    grid = _grid(fields, "Grid")
    if grid is None or min(grid.size + grid.spacing) <= 0:
        raise source.unreadable("has no sound grid of its B-spline; is it whole?")
    blank = grid.place(sitk.Image(grid.size, sitk.sitkFloat64))
    return sitk.BSplineTransform([blank] * 3, order)


def _grid(fields: dict[str, list[str]], of: str = "") -> Grid | None:
    """Return the fixed image's grid, or a B-spline's; elastix writes the direction by columns."""
    try:
        size, spacing, origin, direction, first = (
            np.array(fields.get(of + key, ["0"] * 3 if key == "Index" else []), dtype=np.float64)
            for key in ("Size", "Spacing", "Origin", "Direction", "Index")
        )
        columns = direction.reshape(3, 3)
        whole = Grid(tuple(size), tuple(spacing), tuple(origin), tuple(columns.T.ravel()))
        return whole.part(first, size)
    except ValueError:
        return None


def write(job: Export) -> None:
    matrix, grid = job.matrix(), job.grid
    center = grid.center
    shift = matrix[:3, :3] @ center + matrix[:3, 3] - center

    def text(values: ArrayLike) -> str:
        return " ".join(f"{v:.15g}" for v in np.ravel(values))

    lines = [
        '(Transform "AffineTransform")',
        "(NumberOfParameters 12)",
        f"(TransformParameters {text(np.concatenate([matrix[:3, :3].ravel(), shift]))})",
        '(InitialTransformParameterFileName "NoInitialTransform")',
        '(HowToCombineTransforms "Compose")',
        "(FixedImageDimension 3)",
        "(MovingImageDimension 3)",
        '(FixedInternalImagePixelType "float")',
        '(MovingInternalImagePixelType "float")',
        "(Size " + " ".join(map(str, grid.size)) + ")",
        "(Index 0 0 0)",
        f"(Spacing {text(grid.spacing)})",
        f"(Origin {text(grid.origin)})",
        f"(Direction {text(grid.axes.T)})",
        '(UseDirectionCosines "true")',
        f"(CenterOfRotationPoint {text(center)})",
        '(ResampleInterpolator "FinalBSplineInterpolator")',
        "(FinalBSplineInterpolationOrder 3)",
        '(Resampler "DefaultResampler")',
        "(DefaultPixelValue 0)",
        '(ResultImageFormat "nii.gz")',
        '(ResultImagePixelType "float")',
        '(CompressResultImage "true")',
    ]
    write_text(job.path, "\n".join(lines) + "\n")
