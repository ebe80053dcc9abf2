"""Transforms in ITK's files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import _apart, _manifest, errors
from .._files import check_path, check_regular, reserve, settle, write_with
from .._itk import HDF5, hdf5_lock, itk_reason
from . import h5
from .linear import linear

#: Endings of the transform files that ITK knows.
_NO_REASON = "failed to read file"  # ITK's only message for many failures
_TRANSFORMS = (*HDF5, ".tfm", ".txt", ".xfm", ".mat")

_NOTE, _MOVING_NOTE = "morphseek fixed grid: ", "morphseek moving grid: "


def read(source: Any) -> sitk.Transform:
    """Return a SimpleITK transform from itself, a 4x4 LPS matrix (fixed -> moving, mm) or the path
    of a ``.tfm``/``.h5`` file.

    Examples
    --------
    >>> import numpy as np
    >>> shift = np.eye(4); shift[:3, 3] = 1, 2, 3
    >>> read(shift).TransformPoint((0.0, 0.0, 0.0))
    (1.0, 2.0, 3.0)
    """
    name = "the transform"
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        name = f"transform: {path}"
        check_path(path, "transform", errors.InputUnreadableError)
        settle(path.parent)
        try:
            if path.is_dir():
                raise errors.InputUnreadableError(
                    f"transform: {path} is a folder; of a registration's folder give transform.h5"
                )
            check_regular(path, "transform")
            if not path.is_file():
                raise errors.InputUnreadableError(
                    f"transform: {path} does not exist; check the path"
                )
            _manifest.check_beside(path, "transform")
            source = _read_file(path)
        except errors.MorphSeekError:
            raise
        except UnicodeDecodeError:  # SimpleITK's message quotes the file
            raise errors.InputUnreadableError(
                f"transform: {path} cannot be read: it is damaged, or no transform"
            ) from None
        except OSError as error:
            raise errors.InputUnreadableError(
                f"transform: {path} cannot be read: {error.strerror}"
            ) from None
        except RuntimeError as error:
            if path.suffix.lower() not in _TRANSFORMS:
                raise errors.InputUnreadableError(
                    f"transform: {path} is no transform; give an .h5 or .tfm file"
                ) from None
            reason = itk_reason(error)
            # ITK blames the suffix, or tells addresses
            if "Could not create Transform IO" in reason or _NO_REASON in reason:
                reason = "it is cut short, damaged, or no transform"
            raise errors.InputUnreadableError(
                f"transform: {path} cannot be read: {reason}"
            ) from None
    if isinstance(source, sitk.Transform):
        if source.GetDimension() != 3:
            raise errors.InvalidArgumentError(
                f"{name} is {source.GetDimension()}-D; images here are 3-D"
            )
        return source
    return linear(source)


def _read_file(path: Path) -> sitk.Transform:
    if _is_hdf5(path):
        try:
            parts = h5.read(path)
        except h5.DamagedError as error:
            raise errors.InputUnreadableError(
                f"transform: {path} cannot be read: {error}"
            ) from None
    elif path.suffix.lower() in HDF5:
        raise errors.InputUnreadableError(
            f"transform: {path} cannot be read: it is cut short, damaged, or no transform"
        )
    else:
        parts = _read_text(path)
    if parts is None and _apart.is_possible():
        try:
            with _apart.plain("transform", path, "transform") as copy:
                parts = h5.read(copy)
        except errors.InputUnreadableError as error:
            if path.suffix.lower() in _TRANSFORMS and _NO_REASON not in str(error):
                raise
            raise RuntimeError(_NO_REASON) from None
    if parts is not None:
        return transform_of(parts)
    found = _read_by_itk(path)
    _check_alone(found, path)
    return found


_LINE = re.compile(r"(Transform|Parameters|FixedParameters):\s*(.*?)\s*")
_KIND = re.compile(r"(\w+)_(?:double|float)_3_3")


def _read_text(path: Path) -> list[h5.Part] | None:
    """Return the transforms of ITK's text format; None of what is not plainly that."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        if not lines or not lines[0].startswith("#Insight Transform File V1"):
            return None
        found: list[dict[str, str]] = []
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line)
            if match is None:
                return None
            if match[1] == "Transform":
                found.append({})
            if match[1] in found[-1]:
                return None
            found[-1][match[1]] = match[2]
        parts: list[h5.Part] = []
        for one in found:
            kind = _KIND.fullmatch(one["Transform"])
            if kind is None:
                return None
            if kind[1] == "CompositeTransform" and not parts and one is found[0] and found[1:]:
                continue
            numbers = [np.array(one[key].split(), dtype=np.float64) for key in _NUMBERS]
            parts.append(h5.Part(kind[1], *numbers))
        if any(part.name not in (*_CLASSES, _FIELD) for part in parts):
            return None
    except (ValueError, KeyError, IndexError):
        return None
    if len(parts) > 1 and not found[0]["Transform"].startswith("CompositeTransform"):
        raise RuntimeError(_SIDE_BY_SIDE.format(len(parts)))
    return parts or None


_NUMBERS = ("FixedParameters", "Parameters")
_SIDE_BY_SIDE = "it holds {} transforms side by side; write them as one composite transform"


def _is_hdf5(path: Path) -> bool:
    """Whether HDF5's library would read a file: its mark stands at 0, 512, 1024, ..."""
    place, size = 0, path.stat().st_size
    with open(path, "rb") as file:
        while place < size:
            file.seek(place)
            if file.read(8) == b"\x89HDF\r\n\x1a\n":
                return True
            place = max(512, 2 * place)
    return False


def _read_by_itk(path: Path) -> sitk.Transform:
    with hdf5_lock:
        found = sitk.ReadTransform(str(path))
        found.TransformPoint((0.0,) * found.GetDimension())  # a truncated one fails here
    return found


_CLASSES: dict[str, Callable[[], Any]] = {
    "AffineTransform": lambda: sitk.AffineTransform(3),
    "BSplineTransform": lambda: sitk.BSplineTransform(3),
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


def transform_of(parts: Sequence[h5.Part]) -> sitk.Transform:
    """Make SimpleITK's transform of parts, the last of which acts first."""
    made = [_field(part) if part.name == _FIELD else _parametric(part) for part in parts]
    return made[0] if len(made) == 1 else sitk.CompositeTransform(made)


def _parametric(part: h5.Part) -> sitk.Transform:
    if part.name not in _CLASSES:
        raise RuntimeError(f"it holds a {part.name}, which is not read here; write it as .tfm")
    transform = _CLASSES[part.name]()
    # ITK writes beyond its memory where there are more or fewer
    if part.name == "BSplineTransform":
        grid = part.fixed[:3]
        sound = part.fixed.size == 18 and (grid > 3).all() and (grid == grid.round()).all()
        count = float(np.prod(grid)) * 3
    else:
        sound = part.fixed.size == len(transform.GetFixedParameters())
        count = len(transform.GetParameters())
    if not sound or part.parameters.size != count:
        raise RuntimeError(f"a {part.name} has other numbers than it needs; it is damaged")
    transform.SetFixedParameters(part.fixed.tolist())
    transform.SetParameters(part.parameters.tolist())
    return transform


def _field(part: h5.Part) -> sitk.Transform:
    size = part.fixed[:3]
    counted = part.fixed.shape == (18,) and (size >= 1).all() and (size == size.round()).all()
    if not counted or float(np.prod(size)) * 3 != part.parameters.size:
        raise RuntimeError("its grid and its displacements do not belong together; it is damaged")
    vectors = part.parameters.astype(np.float64).reshape(*size[::-1].astype(int), 3)
    image = sitk.GetImageFromArray(vectors, isVector=True)
    image.SetOrigin(part.fixed[3:6].tolist())
    image.SetSpacing(part.fixed[6:9].tolist())
    image.SetDirection(part.fixed[9:].tolist())
    return sitk.DisplacementFieldTransform(image)


def rewrite(path: Path, plain: Path) -> None:
    """Write a transform anew as :func:`h5.write` does; what :mod:`_apart` does in a process of its
    own.
    """
    found = _read_by_itk(path)
    _check_alone(found, path)
    if found.GetDimension() != 3:
        raise RuntimeError(f"it is {found.GetDimension()}-D; images here are 3-D")
    h5.write(plain, list(_parts(found)))


def _parts(transform: sitk.Transform) -> Iterator[h5.Part]:
    kind = transform.GetTransformEnum()
    if kind == sitk.sitkComposite:
        whole = sitk.CompositeTransform(transform)
        for i in range(whole.GetNumberOfTransforms()):
            yield from _parts(whole.GetNthTransform(i))
        return
    fixed = np.array(transform.GetFixedParameters(), dtype=np.float64)
    if kind == sitk.sitkDisplacementField:
        field = sitk.DisplacementFieldTransform(transform).GetDisplacementField()
        yield h5.Part(_FIELD, fixed, sitk.GetArrayFromImage(field).reshape(-1))
        return
    if kind == sitk.sitkBSplineTransform and sitk.BSplineTransform(transform).GetOrder() != 3:
        raise RuntimeError("it holds a spline that is not cubic; write it as .tfm")
    name = transform.GetName()
    yield h5.Part(name, fixed, np.array(transform.GetParameters(), dtype=np.float64))


def _check_alone(transform: sitk.Transform, path: Path) -> None:
    """See that a text file has no more transforms than ITK took from it: of several that are not in
    a composite one, the first.
    """
    if transform.GetTransformEnum() == sitk.sitkComposite or path.suffix.lower() not in (
        ".tfm",
        ".txt",
    ):
        return
    count = len(re.findall(rb"^Transform:", path.read_bytes(), re.M))
    if count > 1:
        raise RuntimeError(_SIDE_BY_SIDE.format(count))


def write(path: str | os.PathLike[str], transform: sitk.Transform) -> None:
    """Write a transform as ``.h5`` or ``.tfm``.

    Examples
    --------
    >>> transforms.write("transform.h5", result.to_sitk())
    >>> transforms.read("transform.h5").GetDimension()
    3
    """
    size = (1 << 16) + transform.GetNumberOfParameters() * (8 if Path(path).suffix == ".h5" else 26)

    def put(temporary: Path) -> None:
        reserve(temporary, size)
        with hdf5_lock:
            sitk.WriteTransform(transform, str(temporary))

    write_with(put, path)


def write_parts(
    path: str | os.PathLike[str],
    parts: Sequence[h5.Part],
    grid: np.ndarray | None = None,
    moving_grid: np.ndarray | None = None,
) -> None:
    """Write a transform made of parts, the last of which acts first, as ``.h5``; with the fixed and
    the moving image's grid, which :func:`grids` reads.
    """
    note = "; ".join(
        name + " ".join(repr(float(n)) for n in each)
        for name, each in ((_NOTE, grid), (_MOVING_NOTE, moving_grid))
        if each is not None
    )
    write_with(lambda temporary: h5.write(temporary, parts, note), path)


def grids(path: str | os.PathLike[str]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the fixed and the moving image's grid that :func:`write_parts` left in a file; None of
    what it did not.
    """
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    return _grid(head, _NOTE), _grid(head, _MOVING_NOTE)


def _grid(head: bytes, note: str) -> np.ndarray | None:
    found = re.search(note.encode() + rb"([-+.0-9einf ]+)", head)
    if found is None:
        return None
    try:
        grid = np.array(found[1].split(), dtype=np.float64)
    except ValueError:
        return None
    return grid if grid.shape == (18,) and np.isfinite(grid).all() else None
