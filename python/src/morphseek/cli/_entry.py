"""The command as a process, which ends at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import TextIO

from .._streams import open_streams
from ..errors import OutputUnwritableError
from ._command import app


def main() -> None:
    """Run the command and end the process with its exit code."""
    open_streams()
    # NumPy's library waits for work by spinning, and gets none here (engine/RATIONALE.md)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = 1  # of a defect, whose traceback Python prints
    is_reported = False  # that standard output cannot be written

    def end() -> None:
        # taking Python and the libraries apart is a tenth of a small pair's cost
        nonlocal code
        try:
            if sys.stdout and not is_reported:
                sys.stdout.flush()
        except BrokenPipeError:
            return  # Python says so in its own way
        except OSError as error:
            code = _cannot_print(error)
        with contextlib.suppress(OSError, AttributeError):  # a closed one is None
            sys.stderr.flush()
        os._exit(code)

    atexit.register(end)  # the first one in is the last one out
    try:
        app(prog_name="morphseek")
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            atexit.unregister(end)
            raise
        code = ended.code or 0
        raise
    except KeyboardInterrupt:
        atexit.unregister(end)  # Python ends by the signal
        raise
    except OSError as error:
        if error.filename is not None or not _refuses_lines(sys.stdout):
            raise
        is_reported = True
        code = _cannot_print(error)


def _refuses_lines(stream: TextIO) -> bool:
    """Whether not even an empty line can be printed, as on a full disk."""
    try:
        print(file=stream, flush=True)
    except OSError:
        return True
    return False


def _cannot_print(error: OSError) -> int:
    """Say that standard output cannot be written; return the exit code."""
    with contextlib.suppress(OSError):
        reason = error.strerror or error
        print(f"morphseek: standard output cannot be written: {reason}", file=sys.stderr)
    return OutputUnwritableError.exit_code
