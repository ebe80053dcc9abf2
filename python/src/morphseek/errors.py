"""What can go wrong, one class a cause.

The classes are written from the engine's own table of failures, so Python, C and the command line
agree: every class has a ``code`` (C's ``ms_status``), a ``name`` and an ``exit_code`` (the command
line's). All of them derive from :class:`MorphSeekError`; each is also the built-in exception that a
caller who does not know MorphSeek would catch: a ``ValueError`` for a bad volume or option, an
``OSError`` for a file, a ``MemoryError`` or a ``RuntimeError``.

>>> from morphseek import errors
>>> issubclass(errors.NoOverlapError, errors.MorphSeekError)
True
>>> issubclass(errors.NoOverlapError, ValueError)
True
>>> errors.NoOverlapError.name, errors.NoOverlapError.exit_code
('no_overlap', 3)
"""

from __future__ import annotations

import numbers
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any


class MorphSeekError(Exception):
    """Base of all of this package's exceptions.

    Attributes
    ----------
    code : int
        The failure's number, ``ms_status`` in C.
    name : str
        Its name in snake_case.
    exit_code : int
        The command line's exit status for this class of failure.
    help : str
        What happened, in a few words.
    """

    code: int = 1
    name: str = "internal"
    exit_code: int = 1
    help: str = ""

    def __init_subclass__(cls, *, code: int = 0, exit_code: int = 1) -> None:
        if not code:  # a narrower case of another class
            return
        words = re.findall("[A-Z][a-z]+", cls.__name__.removesuffix("Error"))
        cls.code, cls.name, cls.exit_code = code, "_".join(words).lower(), exit_code
        text = " ".join((cls.__doc__ or "").split()).rstrip(".")
        cls.help = text if text[1:2].isupper() else text[:1].lower() + text[1:]  # ONNX Runtime


class InputWarning(UserWarning):
    """An input says several things, or not all: the warning says what was taken."""


class GeometryWarning(InputWarning):
    """A file contradicts itself about where its voxels lie."""


# errors: written by go generate from engine/fault/fault.go; do not edit
class InternalError(RuntimeError, MorphSeekError, code=1, exit_code=1):
    """A defect of this library."""


class InvalidArgumentError(ValueError, MorphSeekError, code=2, exit_code=2):
    """An option or argument outside its range."""


class InvalidHandleError(RuntimeError, MorphSeekError, code=3, exit_code=1):
    """A closed or foreign handle."""


class CancelledError(RuntimeError, MorphSeekError, code=4, exit_code=130):
    """The caller asked to stop."""


class OutOfMemoryError(MemoryError, MorphSeekError, code=5, exit_code=5):
    """Too little memory for these images."""


class EmptyVolumeError(ValueError, MorphSeekError, code=10, exit_code=3):
    """No voxels."""


class NonFiniteVolumeError(ValueError, MorphSeekError, code=11, exit_code=3):
    """Nothing but NaN or Inf."""


class ConstantVolumeError(ValueError, MorphSeekError, code=12, exit_code=3):
    """Every voxel has the same value."""


class ThinVolumeError(ValueError, MorphSeekError, code=13, exit_code=3):
    """Too few voxels along an axis, or a slice and a volume."""


class InvalidSpacingError(ValueError, MorphSeekError, code=14, exit_code=3):
    """Zero, negative or non-finite spacing, or a non-finite origin."""


class InvalidDirectionError(ValueError, MorphSeekError, code=15, exit_code=3):
    """A singular direction matrix."""


class EmptyMaskError(ValueError, MorphSeekError, code=16, exit_code=3):
    """A mask that selects nothing."""


class GridMismatchError(ValueError, MorphSeekError, code=17, exit_code=3):
    """A mask, label map or field on another grid than its image."""


class NoOverlapError(ValueError, MorphSeekError, code=18, exit_code=3):
    """The volumes do not overlap after the initial transform."""


class SingularTransformError(ValueError, MorphSeekError, code=19, exit_code=3):
    """An initial transform that cannot be inverted."""


class ModelNotFoundError(LookupError, MorphSeekError, code=30, exit_code=4):
    """No model of that name or path."""


class ModelCorruptError(RuntimeError, MorphSeekError, code=31, exit_code=4):
    """A truncated model, or no MorphSeek model at all."""


class ModelTamperedError(RuntimeError, MorphSeekError, code=32, exit_code=4):
    """Weights whose sha256 differs from the manifest's."""


class ModelVersionError(RuntimeError, MorphSeekError, code=33, exit_code=4):
    """A model format that this library does not know."""


class ModelExternalError(RuntimeError, MorphSeekError, code=34, exit_code=4):
    """A model that points at files outside itself."""


class RuntimeMissingError(RuntimeError, MorphSeekError, code=35, exit_code=5):
    """ONNX Runtime was not found or does not load."""


class RuntimeFailedError(RuntimeError, MorphSeekError, code=36, exit_code=5):
    """ONNX Runtime reported an error."""


class DeviceUnavailableError(RuntimeError, MorphSeekError, code=37, exit_code=5):
    """The device asked for is not there."""


class InputUnreadableError(OSError, MorphSeekError, code=50, exit_code=3):
    """An input file that is missing or cannot be read."""


class OutputUnwritableError(OSError, MorphSeekError, code=51, exit_code=6):
    """A file or folder that cannot be written."""


class DiskFullError(OSError, MorphSeekError, code=52, exit_code=6):
    """No space left where a file is written."""


class SnapshotCorruptError(ValueError, MorphSeekError, code=53, exit_code=6):
    """A truncated, tampered or foreign result file."""


# end of errors
_CLASSES: list[type[MorphSeekError]] = [
    value
    for value in list(globals().values())
    if isinstance(value, type) and issubclass(value, MorphSeekError) and value is not MorphSeekError
]
_BY_CODE = {value.code: value for value in _CLASSES}

TABLE: list[dict[str, Any]] = [
    {
        "code": value.code,
        "name": value.name,
        "python": value.__name__,
        "exit": value.exit_code,
        "help": value.help,
    }
    for value in _CLASSES
]
"""The failures: dicts with ``code``, ``name``, ``python`` (the class), ``exit`` and ``help``."""

__all__ = [
    "GeometryWarning",
    "InputWarning",
    "MorphSeekError",
    "TABLE",
    *(value.__name__ for value in _CLASSES),
]


def __dir__() -> list[str]:
    return __all__.copy()


def _from_engine(error: Exception) -> MorphSeekError:
    """Return the exception for an error that came out of the engine as ``code|message``."""
    code, _, message = str(error).partition("|")
    if not code.isdigit():
        return _BY_CODE[1](str(error))
    return _BY_CODE.get(int(code), MorphSeekError)(message)


def _from_exception(error: BaseException) -> MorphSeekError:
    """Return any exception as one of these: itself, or a defect if nothing better is known."""
    if isinstance(error, MorphSeekError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return CancelledError("cancelled")
    if isinstance(error, MemoryError):
        return OutOfMemoryError(
            "the registration needs more memory than there is; close other programs or use smaller"
            " volumes"
        )
    return InternalError(f"{type(error).__name__}: {error}")


def _warn(text: str, kind: type[InputWarning] = InputWarning) -> None:
    """Warn of an input; the warning names the line that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "morphseek":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        *others, last = choices
        raise InvalidArgumentError(f"{name} is {value!r}; it must be {', '.join(others)} or {last}")


def _check_number(
    name: str, value: Any, least: float, most: float = sys.float_info.max, whole: bool = False
) -> None:
    """Refuse what is no number of a range."""
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= float(value) <= most:
        words = f"a {'whole ' if whole else ''}number from {least}"
        to = "" if most == sys.float_info.max else f" to {most}"
        raise InvalidArgumentError(f"{name} is {value!r}; it must be {words}{to}")
