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


class GeometryWarning(UserWarning):
    """A file contradicts itself about where its voxels lie."""


# errors: written by go generate from engine/fault/fault.go; do not edit
class InternalError(RuntimeError, MorphSeekError):
    """Internal (code 1, exit code 1): a defect of this library."""

    code = 1
    name = "internal"
    exit_code = 1
    help = "a defect of this library"


class InvalidArgumentError(ValueError, MorphSeekError):
    """Invalid argument (code 2, exit code 2): an option or argument outside its range."""

    code = 2
    name = "invalid_argument"
    exit_code = 2
    help = "an option or argument outside its range"


class InvalidHandleError(RuntimeError, MorphSeekError):
    """Invalid handle (code 3, exit code 1): a closed or foreign handle."""

    code = 3
    name = "invalid_handle"
    exit_code = 1
    help = "a closed or foreign handle"


class CancelledError(RuntimeError, MorphSeekError):
    """Cancelled (code 4, exit code 130): the caller asked to stop."""

    code = 4
    name = "cancelled"
    exit_code = 130
    help = "the caller asked to stop"


class OutOfMemoryError(MemoryError, MorphSeekError):
    """Out of memory (code 5, exit code 5): too little memory for these images."""

    code = 5
    name = "out_of_memory"
    exit_code = 5
    help = "too little memory for these images"


class EmptyVolumeError(ValueError, MorphSeekError):
    """Empty volume (code 10, exit code 3): no voxels."""

    code = 10
    name = "empty_volume"
    exit_code = 3
    help = "no voxels"


class NonFiniteVolumeError(ValueError, MorphSeekError):
    """Non finite volume (code 11, exit code 3): nothing but NaN or Inf."""

    code = 11
    name = "non_finite_volume"
    exit_code = 3
    help = "nothing but NaN or Inf"


class ConstantVolumeError(ValueError, MorphSeekError):
    """Constant volume (code 12, exit code 3): every voxel has the same value."""

    code = 12
    name = "constant_volume"
    exit_code = 3
    help = "every voxel has the same value"


class ThinVolumeError(ValueError, MorphSeekError):
    """Thin volume (code 13, exit code 3): too few voxels along an axis, or a slice and a volume."""

    code = 13
    name = "thin_volume"
    exit_code = 3
    help = "too few voxels along an axis, or a slice and a volume"


class InvalidSpacingError(ValueError, MorphSeekError):
    """Invalid spacing (code 14, exit code 3): zero, negative or non-finite spacing, or a non-finite
    origin.
    """

    code = 14
    name = "invalid_spacing"
    exit_code = 3
    help = "zero, negative or non-finite spacing, or a non-finite origin"


class InvalidDirectionError(ValueError, MorphSeekError):
    """Invalid direction (code 15, exit code 3): a singular direction matrix."""

    code = 15
    name = "invalid_direction"
    exit_code = 3
    help = "a singular direction matrix"


class EmptyMaskError(ValueError, MorphSeekError):
    """Empty mask (code 16, exit code 3): a mask that selects nothing."""

    code = 16
    name = "empty_mask"
    exit_code = 3
    help = "a mask that selects nothing"


class GridMismatchError(ValueError, MorphSeekError):
    """Grid mismatch (code 17, exit code 3): a mask, label map or field on another grid than its
    image.
    """

    code = 17
    name = "grid_mismatch"
    exit_code = 3
    help = "a mask, label map or field on another grid than its image"


class NoOverlapError(ValueError, MorphSeekError):
    """No overlap (code 18, exit code 3): the volumes do not overlap after the initial transform."""

    code = 18
    name = "no_overlap"
    exit_code = 3
    help = "the volumes do not overlap after the initial transform"


class SingularTransformError(ValueError, MorphSeekError):
    """Singular transform (code 19, exit code 3): an initial transform that cannot be inverted."""

    code = 19
    name = "singular_transform"
    exit_code = 3
    help = "an initial transform that cannot be inverted"


class ModelNotFoundError(LookupError, MorphSeekError):
    """Model not found (code 30, exit code 4): no model of that name or path."""

    code = 30
    name = "model_not_found"
    exit_code = 4
    help = "no model of that name or path"


class ModelCorruptError(RuntimeError, MorphSeekError):
    """Model corrupt (code 31, exit code 4): a truncated model, or no MorphSeek model at all."""

    code = 31
    name = "model_corrupt"
    exit_code = 4
    help = "a truncated model, or no MorphSeek model at all"


class ModelTamperedError(RuntimeError, MorphSeekError):
    """Model tampered (code 32, exit code 4): weights whose sha256 differs from the manifest's."""

    code = 32
    name = "model_tampered"
    exit_code = 4
    help = "weights whose sha256 differs from the manifest's"


class ModelVersionError(RuntimeError, MorphSeekError):
    """Model version (code 33, exit code 4): a model format that this library does not know."""

    code = 33
    name = "model_version"
    exit_code = 4
    help = "a model format that this library does not know"


class ModelExternalError(RuntimeError, MorphSeekError):
    """Model external (code 34, exit code 4): a model that points at files outside itself."""

    code = 34
    name = "model_external"
    exit_code = 4
    help = "a model that points at files outside itself"


class RuntimeMissingError(RuntimeError, MorphSeekError):
    """Runtime missing (code 35, exit code 5): ONNX Runtime was not found or does not load."""

    code = 35
    name = "runtime_missing"
    exit_code = 5
    help = "ONNX Runtime was not found or does not load"


class RuntimeFailedError(RuntimeError, MorphSeekError):
    """Runtime failed (code 36, exit code 5): ONNX Runtime reported an error."""

    code = 36
    name = "runtime_failed"
    exit_code = 5
    help = "ONNX Runtime reported an error"


class DeviceUnavailableError(RuntimeError, MorphSeekError):
    """Device unavailable (code 37, exit code 5): the device asked for is not there."""

    code = 37
    name = "device_unavailable"
    exit_code = 5
    help = "the device asked for is not there"


class InputUnreadableError(OSError, MorphSeekError):
    """Input unreadable (code 50, exit code 3): an input file that is missing or cannot be read."""

    code = 50
    name = "input_unreadable"
    exit_code = 3
    help = "an input file that is missing or cannot be read"


class OutputUnwritableError(OSError, MorphSeekError):
    """Output unwritable (code 51, exit code 6): a file or folder that cannot be written."""

    code = 51
    name = "output_unwritable"
    exit_code = 6
    help = "a file or folder that cannot be written"


class DiskFullError(OSError, MorphSeekError):
    """Disk full (code 52, exit code 6): no space left where a file is written."""

    code = 52
    name = "disk_full"
    exit_code = 6
    help = "no space left where a file is written"


class SnapshotCorruptError(ValueError, MorphSeekError):
    """Snapshot corrupt (code 53, exit code 6): a truncated, tampered or foreign result file."""

    code = 53
    name = "snapshot_corrupt"
    exit_code = 6
    help = "a truncated, tampered or foreign result file"


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
    "MorphSeekError",
    "TABLE",
    "from_engine",
    "from_exception",
    *(value.__name__ for value in _CLASSES),
]


def from_engine(error: Exception) -> MorphSeekError:
    """Return the exception for an error that came out of the engine as ``code|message``."""
    code, _, message = str(error).partition("|")
    if not code.isdigit():
        return _BY_CODE[1](str(error))
    return _BY_CODE.get(int(code), MorphSeekError)(message)


def from_exception(error: BaseException) -> MorphSeekError:
    """Return any exception as one of these: itself, if it is one, a defect, if nothing better is
    known.
    """
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
