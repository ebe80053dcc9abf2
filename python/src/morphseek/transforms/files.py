"""Transforms in ITK's files."""

from __future__ import annotations

import codecs
import contextlib
import mmap
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from SimpleITK import _SimpleITK  # type: ignore[attr-defined]

from .. import _apart, _manifest, errors
from .._files import readable, reserve, settle, write_with
from .._grid import Grid
from .._itk import HDF5, NO_TRANSFORM, hdf5_lock, itk_io, itk_reason
from .._regular import head
from ..images.headers import limit
from . import h5
from .linear import FLAT, linear_part
from .parts import (
    field_part,
    from_itk_order,
    inverted,
    itk_order,
    joined,
    own_class,
    parts_of,
    vectors_of,
)
from .summary import fault

#: Endings of the transform files that ITK knows.
_TRANSFORMS = (*HDF5, ".tfm", ".txt", ".mat")


def read(path: Path) -> sitk.Transform:
    """Return the transform of a file that ITK reads, such as ``.tfm`` or ``.h5``."""
    name = f"transform: {path}"
    settle(path.parent)
    try:
        with readable(path, "transform"):
            if path.is_dir():
                raise errors.InputUnreadableError(
                    f"{name} is a folder; of a registration's folder give transform.h5"
                )
            listed = _manifest.of(path.parent / _manifest.REPORT)
            _manifest.check(path.parent, listed, [path.name], "transform")
            return _read_file(path, name)
    except errors.MorphSeekError:
        raise
    except (RuntimeError, UnicodeDecodeError) as error:
        why = f"cannot be read: {itk_reason(error)}"
        if path.suffix.lower() not in _TRANSFORMS:
            why = "is no transform; give an .h5 or .tfm file"
        raise errors.InputUnreadableError(f"{name} {why}") from None


def _read_file(path: Path, name: str) -> sitk.Transform:
    if _is_hdf5(path):
        parts = h5.read(path)
    elif path.suffix.lower() in HDF5:
        raise RuntimeError(NO_TRANSFORM)
    else:
        parts = _read_text(path)
    if parts is None and _apart.is_possible():
        try:
            with _apart.plain("transform", path, "transform", limit()) as copy:
                parts = h5.read(copy)
        except errors.InputUnreadableError:
            if path.suffix.lower() in _TRANSFORMS:
                raise
            raise RuntimeError(NO_TRANSFORM) from None
    return transform_of(_read_by_itk(path) if parts is None else parts, name)


_LINE = re.compile(r"(Transform|Parameters|FixedParameters):\s*(.*?)\s*")
_KIND = re.compile(r"([A-Za-z]\w*)_(?:double|float)_3_3(?:_([0-9]))?", re.ASCII)
_INVERSE = "Inverse"  # begins Slicer's names of transforms that it inverts before it applies them


def text_of(path: Path, most: int = -1) -> str:
    """Return a file's text, UTF-8, UTF-16 or older; ValueError where it is none."""
    with open(path, "rb") as file:
        data = file.read(most)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            if b"\0" in data:
                raise
            text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_text(path: Path) -> list[h5.Part] | None:
    """Return the transforms of ITK's text format; None of what is not plainly that."""
    try:
        lines = text_of(path).split("\n")
        if not lines[0].startswith(_INSIGHT):
            if path.suffix.lower() in (".tfm", ".txt"):
                raise RuntimeError(NO_TRANSFORM)
            return None
        kinds = [line for line in lines if line.startswith("Transform:")]
        if len(kinds) > 1 and "CompositeTransform_" not in kinds[0]:  # ITK would take the first
            raise RuntimeError(
                f"it holds {len(kinds)} transforms side by side; write them as one composite"
                " transform"
            )
        blocks: list[dict[str, str]] = []
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line)
            if match is None:
                return None
            if match[1] == "Transform":
                blocks.append({})
            if match[1] in blocks[-1]:
                return None
            blocks[-1][match[1]] = match[2]
        parts: list[h5.Part] = []
        for one in blocks:
            kind = _KIND.fullmatch(one["Transform"])
            if kind is None:
                return None
            if kind[1] == "CompositeTransform" and one is blocks[0] and blocks[1:]:
                continue
            numbers = [np.array(one[key].split(), dtype=np.float64) for key in _NUMBERS]
            parts.append(h5.Part(kind[1] + (kind[2] or ""), *numbers))
        if not all(is_known(part.name.removeprefix(_INVERSE)) for part in parts):
            return None
    except (ValueError, KeyError, IndexError):
        return None
    return parts or None


_INSIGHT = "#Insight Transform File V1"
_NUMBERS = ("FixedParameters", "Parameters")


def _is_hdf5(path: Path) -> bool:
    return head(path, 8) == b"\x89HDF\r\n\x1a\n"


def read_transform_file(path: Path) -> sitk.Transform:
    """Return what ITK reads from a file."""
    with hdf5_lock, itk_io():
        return own_class(_SimpleITK.ReadTransform(str(path)))


def _read_by_itk(path: Path) -> list[h5.Part]:
    """Return the transforms of a file that ITK reads, the last of which acts first."""
    with _readable(path) as (copy, inverse):
        try:
            transform = read_transform_file(copy)
            # a truncated one fails here
            transform.TransformPoint((0.0,) * transform.GetDimension())
        except RuntimeError as error:
            unknown = re.search(
                r'create an instance of "(\w+?)(?:_double_|_float_|\W|$)', str(error)
            )
            reason = itk_reason(error).replace(str(copy), path.name)
            raise RuntimeError(_unread(unknown[1]) if unknown else reason) from None
    if transform.GetDimension() != 3:
        raise RuntimeError(f"it is {transform.GetDimension()}-D; {FLAT}")
    parts = [_part(part) for part in parts_of(transform)]
    return [
        part._replace(name=_INVERSE + part.name) if part.name.rstrip("0123") in inverse else part
        for part in parts
    ]


_NAME = re.compile(rb"(Inverse)?([A-Z]\w{0,50}?Transform)_(?:double|float)_3_3")


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[tuple[Path, set[str]]]:
    """Give a file that ITK reads, and the classes in it that are to be inverted: ITK knows none of
    Slicer's names for these, no ending in capitals, no mark of UTF-8, no last line without an end.
    """
    packed, ending = _is_hdf5(path), path.suffix.lower()
    text = "" if packed or ending == ".mat" else text_of(path)
    data = _inverse_names(path) if packed else text.encode()
    names = {(bool(name[1]), name[2].decode()) for name in _NAME.finditer(data)}
    inverse = {name for inverted, name in names if inverted}
    if both := inverse & {name for inverted, name in names if not inverted}:
        raise RuntimeError(
            f"it holds a {min(both)} and the inverse of another one; in Slicer convert them to one"
            " grid transform, and save that as .nrrd"
        )
    if not text and not inverse and path.suffix == ending:
        yield path, inverse
        return
    with tempfile.TemporaryDirectory(prefix="morphseek-") as folder:
        copy = Path(folder, "transform" + (".tfm" if text.startswith(_INSIGHT) else ending))
        if inverse:  # HDF5 keeps its places
            data = _NAME.sub(
                lambda name: name[0].removeprefix(b"Inverse").ljust(len(name[0]) * packed, b"\0"),
                data,
            )
        copy.write_bytes(data.rstrip(b"\n") + b"\n" if text else data or path.read_bytes())
        yield copy, inverse


def _inverse_names(path: Path) -> bytes:
    """Return a file's content where it has one of Slicer's names, else nothing."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data[:] if data.find(b"Inverse") >= 0 else b""


def _unread(kind: str) -> str:
    what = "a transform"
    if "Kernel" in kind:
        what = "a thin-plate spline of landmarks"
    elif "Velocity" in kind or "Diffeomorphic" in kind:
        what = "a velocity field"
    return (
        f"it holds {what} ({kind[:60]}), which is not read here; make a displacement field of it"
        " (in Slicer: Transforms, Convert), and save that as .nrrd"
    )


_CLASSES: dict[str, Callable[[], Any]] = {
    "AffineTransform": lambda: sitk.AffineTransform(3),
    "BSplineTransform": lambda: sitk.BSplineTransform(3),
    "BSplineTransform1": lambda: sitk.BSplineTransform(3, 1),  # of that order
    "BSplineTransform2": lambda: sitk.BSplineTransform(3, 2),
    "Euler3DTransform": sitk.Euler3DTransform,
    "MatrixOffsetTransformBase": lambda: sitk.AffineTransform(3),  # of ANTs
    "IdentityTransform": lambda: sitk.Transform(3, sitk.sitkIdentity),
    "ScaleSkewVersor3DTransform": sitk.ScaleSkewVersor3DTransform,
    "ScaleTransform": lambda: sitk.ScaleTransform(3),
    "ScaleVersor3DTransform": sitk.ScaleVersor3DTransform,
    "Similarity3DTransform": sitk.Similarity3DTransform,
    "TranslationTransform": lambda: sitk.TranslationTransform(3),
    "VersorRigid3DTransform": sitk.VersorRigid3DTransform,
    "VersorTransform": sitk.VersorTransform,
}
_FIELD = "DisplacementFieldTransform"
_SPLINE = "BSplineTransform"


def transform_of(parts: Sequence[h5.Part], name: str = "the transform") -> sitk.Transform:
    """Make SimpleITK's transform of parts, the last of which acts first."""
    transforms: list[sitk.Transform] = []
    for part in parts:
        own = part._replace(name=part.name.removeprefix(_INVERSE))
        one = _field(own) if own.name == _FIELD else _parametric(own)
        if own.name == part.name:
            transforms.append(one)
            continue
        if wrong := fault(one):
            raise errors.InputUnreadableError(f"{name} {wrong}")
        transforms += inverted(one, name)
    return joined(transforms)


def is_known(kind: str) -> bool:
    """Whether parts of a class of ITK's are made with their own parameters."""
    return kind in (*_CLASSES, _FIELD)


def _parametric(part: h5.Part) -> sitk.Transform:
    if part.name not in _CLASSES:
        raise RuntimeError(_unread(part.name))
    transform = _CLASSES[part.name]()
    if part.name.startswith("Euler3D") and part.fixed.size == 3:
        part = part._replace(fixed=np.append(part.fixed, 0.0))  # ITK < 4.11 wrote no order of turns
    elif part.name.startswith("Translation"):
        part = part._replace(fixed=part.fixed[:0])  # the same wrote a center
    # ITK writes beyond its memory where there are more or fewer
    if part.name.startswith(_SPLINE):
        grid = part.fixed[:3]
        order = transform.GetOrder()
        sound = part.fixed.size == 18 and (grid > order).all() and (grid == grid.round()).all()
        count = float(np.prod(grid)) * 3
    else:
        sound = part.fixed.size == len(transform.GetFixedParameters())
        count = len(transform.GetParameters())
    if not sound or part.parameters.size != count:
        raise RuntimeError(f"its {part.name} has other numbers than it needs; it is damaged")
    transform.SetFixedParameters(part.fixed.tolist())
    transform.SetParameters(part.parameters.tolist())
    return transform


def _field(part: h5.Part) -> sitk.Transform:
    size = part.fixed[:3]
    counted = part.fixed.shape == (18,) and (size >= 1).all() and (size == size.round()).all()
    if not counted or float(np.prod(size)) * 3 != part.parameters.size:
        raise RuntimeError("its grid and its displacements do not belong together; it is damaged")
    grid = from_itk_order(part.fixed)
    return field_part(part.parameters.reshape(*grid.shape, 3), grid)


def rewrite(path: Path, plain: Path) -> None:
    """Write a transform anew as :func:`h5.write` does; :mod:`_apart` calls it."""
    h5.write(plain, _read_by_itk(path))


def _part(transform: sitk.Transform) -> h5.Part:
    """Return a transform that is no composite as :func:`transform_of` takes it."""
    name, kind = transform.GetName(), transform.GetTransformEnum()
    fixed = np.array(transform.GetFixedParameters(), dtype=np.float64)
    if kind == sitk.sitkDisplacementField:
        return vectors_part(*vectors_of(transform))
    if kind == sitk.sitkBSplineTransform:
        order = sitk.BSplineTransform(transform).GetOrder()
        name += "" if order == 3 else str(order)
    elif name not in _CLASSES and transform.IsLinear():
        return matrix_part(linear_part(transform))
    return h5.Part(name, fixed, np.array(transform.GetParameters(), dtype=np.float64))


def vectors_part(vectors: np.ndarray, grid: Grid) -> h5.Part:
    """Return displacements, LPS mm of shape (z, y, x, 3), as a part."""
    return h5.Part(_FIELD, itk_order(grid), vectors)


def matrix_part(matrix: np.ndarray) -> h5.Part:
    """Return a 4x4 LPS matrix as a part."""
    return h5.Part(
        "AffineTransform", np.zeros(3), np.concatenate([matrix[:3, :3].ravel(), matrix[:3, 3]])
    )


def write(path: str | os.PathLike[str], transform: sitk.Transform) -> None:
    """Write a transform as ``.h5`` or ``.tfm``."""
    size = (1 << 16) + transform.GetNumberOfParameters() * (8 if Path(path).suffix == ".h5" else 26)

    def put(temporary: Path) -> None:
        reserve(temporary, size)
        with hdf5_lock, itk_io():
            sitk.WriteTransform(transform, str(temporary))

    write_with(put, path)


def write_parts(
    path: str | os.PathLike[str],
    parts: Sequence[h5.Part],
    grid: Grid | None = None,
    moving_grid: Grid | None = None,
) -> None:
    """Write parts, the last of which acts first, as ``.h5`` with the two images' grids."""
    write_with(lambda temporary: h5.write(temporary, parts, (grid, moving_grid)), path)
