"""A registration back end for BrainLesion's preprocessing: ``pip install
morphseek[brainles]``.

:class:`MorphSeekRegistrator` goes where its ``ANTsRegistrator`` and ``GreedyRegistrator`` go.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import Transform, errors, images, register
from .._features import missing

try:
    from brainles_preprocessing.registration.registrator import Registrator
except ModuleNotFoundError as error:
    raise missing("brainles", error) from None

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .. import Options

StrPath = str | os.PathLike[str]
LINEAR = {"initial": "rigid", "search": False, "refine": 0, "model": "none"}
"""What it does unless told otherwise: one person's images, or an atlas, rigidly."""
_INTERPOLATIONS = {
    "default": "linear", "linear": "linear", "nearestneighbor": "nearest", "nn": "nearest",
    "genericlabel": "nearest", "multilabel": "nearest", "label": "nearest", "nearest": "nearest",
}  # fmt: skip


class MorphSeekRegistrator(Registrator):  # type: ignore[misc]
    """MorphSeek as a registrator of BrainLesion's preprocessing.

    Parameters
    ----------
    **options
        Of :func:`morphseek.register`. Without any, the registration is rigid, as that of the other
        registrators is: :data:`LINEAR`. ``initial="affine", refine=None, search="auto"`` deforms.

    Examples
    --------
    >>> registrator = MorphSeekRegistrator(initial="affine")
    >>> registrator.options["initial"], registrator.options["refine"]
    ('affine', 0)
    """

    def __init__(self, **options: Unpack[Options]):
        self.options: dict[str, Any] = {**LINEAR, **options}

    def register(
        self,
        fixed_image_path: StrPath,
        moving_image_path: StrPath,
        transformed_image_path: StrPath,
        matrix_path: StrPath,
        log_file_path: StrPath | None = None,
    ) -> None:
        """Register one file onto another; write the moving image on the fixed one's grid, and the
        transform as ``.h5`` (the ending is added where it lacks). The log gets the verdict and how
        the result came about.

        Raises
        ------
        morphseek.errors.MorphSeekError
            A file or an option cannot be used; the registration fails.
        """
        result = register(fixed_image_path, moving_image_path, **self.options)
        result.transform.save(_with_ending(matrix_path))
        images.write(transformed_image_path, images.Image.on_grid(result.warped, result.grid))
        if log_file_path is not None:
            _log(log_file_path, f"{result!r}\n{result.explain()}\n")

    def transform(
        self,
        fixed_image_path: StrPath,
        moving_image_path: StrPath,
        transformed_image_path: StrPath,
        matrix_path: StrPath | Sequence[StrPath],
        log_file_path: StrPath | None = None,
        interpolator: str = "default",
        **kwargs: Any,
    ) -> None:
        """Resample the moving image onto the fixed one's grid by a transform, or by several: the
        first one acts first on the image.

        Parameters
        ----------
        interpolator : str
            linear (default), or nearestNeighbor, genericLabel, multiLabel, which keep labels.

        Raises
        ------
        morphseek.errors.MorphSeekError
            A file cannot be used, or the interpolator is another.
        """
        paths = fixed_image_path, moving_image_path, transformed_image_path
        _apply(_loaded(matrix_path), *paths, interpolator, log_file_path)

    def inverse_transform(
        self,
        fixed_image_path: StrPath,
        moving_image_path: StrPath,
        transformed_image_path: StrPath,
        matrix_path: StrPath | Sequence[StrPath],
        log_file_path: StrPath | None = None,
        interpolator: str = "default",
    ) -> None:
        """Do what :meth:`transform` does by the inverse: the moving image lies where the transform
        led, as an atlas' mask, and the fixed one where it came from.
        """
        paths = fixed_image_path, moving_image_path, transformed_image_path
        _apply(_loaded(matrix_path).inverse(), *paths, interpolator, log_file_path)


def _apply(
    transform: Transform, fixed: StrPath, moving: StrPath, out: StrPath, interpolator: str,
    log: StrPath | None,
) -> None:  # fmt: skip
    how = _INTERPOLATIONS.get(str(interpolator).lower())
    if how is None:
        raise errors.InvalidArgumentError(
            f"the interpolator is {interpolator!r}; known: {', '.join(_INTERPOLATIONS)}"
        )
    images.write(out, transform.apply(Path(moving), reference=Path(fixed), interpolation=how))
    if log is not None:
        _log(log, f"{transform!r}: {moving} onto the grid of {fixed}, {how}\n")


def _log(path: StrPath, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.OutputUnwritableError(
            f"log: {path} cannot be written: {error.strerror or error}"
        ) from None


def _with_ending(path: StrPath) -> Path:
    path = os.fspath(path)
    return Path(path if path.endswith(".h5") else f"{path}.h5")


def _loaded(paths: StrPath | Sequence[StrPath]) -> Transform:
    """Return one transform of several, the first of which acts first on the image."""
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not listed:
        raise errors.InvalidArgumentError("there is no transform: the list of matrices is empty")
    parts = [Transform.read(_with_ending(path)) for path in listed]
    return functools.reduce(lambda first, then: first @ then, parts)
