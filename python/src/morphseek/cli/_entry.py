"""The command as a process, which ends at once."""

from __future__ import annotations

import atexit
import os
import sys

from ._app import app


def main() -> None:
    """Run the command and end the process with its exit code."""
    # NumPy's library waits for work by spinning, and gets none here (engine/RATIONALE.md)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = 1  # of a defect, whose traceback Python prints

    def end() -> None:
        # taking Python and the libraries apart is a tenth of a small pair's cost
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            return  # Python says so in its own way
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
