"""What can go wrong, one class a cause.

The classes are made from the engine's own table of failures, so Python, C and the command line
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

from typing import TYPE_CHECKING

from ._engine.faults import TABLE as TABLE


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
    """

    code: int = 1
    name: str = "internal"
    exit_code: int = 1


# The built-in that each class also is: by the class of error (its exit code), but for those that
# Python has a word for.
_BY_EXIT = {
    1: RuntimeError,
    2: ValueError,
    3: ValueError,
    4: RuntimeError,
    5: RuntimeError,
    6: OSError,
    130: RuntimeError,
}
_BY_NAME = {
    "out_of_memory": MemoryError,
    "input_unreadable": OSError,
    "model_not_found": LookupError,
    "snapshot_corrupt": ValueError,
}

_BY_CODE: dict[int, type[MorphSeekError]] = {}
for _info in TABLE:
    _builtin = _BY_NAME.get(_info["name"], _BY_EXIT[_info["exit"]])
    _class = type(
        _info["python"],
        # this way round whatever unpickles by __new__ alone, as Dask does, finds the right one
        (_builtin, MorphSeekError),
        {
            "__module__": __name__,
            "__doc__": (
                f"{_info['name'].replace('_', ' ').capitalize()} (code {_info['code']}, exit code"
                f" {_info['exit']})."
            ),
            "code": _info["code"],
            "name": _info["name"],
            "exit_code": _info["exit"],
        },
    )
    globals()[_info["python"]] = _BY_CODE[_info["code"]] = _class

__all__ = [
    "MorphSeekError",
    "TABLE",
    "from_engine",
    "from_exception",
    *(info["python"] for info in TABLE),
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
        return globals()["CancelledError"]("cancelled")
    if isinstance(error, MemoryError):
        return globals()["OutOfMemoryError"](
            "the registration needs more memory than there is; close other programs or use smaller"
            " volumes"
        )
    return globals()["InternalError"](f"{type(error).__name__}: {error}")


if TYPE_CHECKING:

    def __getattr__(name: str) -> type[MorphSeekError]: ...
