"""Transforms in ITK's files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from .. import errors
from .._files import check_path, check_regular, reserve, write_with
from .._itk import HDF5, hdf5_lock, itk_reason
from . import h5
from .linear import linear

#: Endings of the transform files that ITK knows.
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
            with hdf5_lock:
                source = sitk.ReadTransform(str(path))
                # of a file that was cut short it cannot
                source.TransformPoint((0.0,) * source.GetDimension())
            _check_alone(source, path)
        except errors.MorphSeekError:
            raise
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
            if "Could not create Transform IO" in reason or "failed to read file" in reason:
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
        raise errors.InputUnreadableError(
            f"transform: {path} holds {count} transforms side by side; write them as one composite"
            " transform"
        )


def write(path: str | os.PathLike[str], transform: sitk.Transform) -> None:
    """Write a transform as ``.h5`` or ``.tfm``."""
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
