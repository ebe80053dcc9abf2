"""The worker process: `python -m morphseek.worker` in a temporary folder. A thread reads its
output.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

_LONGEST = 1 << 24  # characters of a line, so that one without an end does not fill the memory
HIDDEN = (
    {"creationflags": subprocess.CREATE_NO_WINDOW}
    if os.name == "nt"
    else {"start_new_session": True}
)


def python() -> str:
    """Return the Python to run: inside Slicer PythonSlicer, whatever sys.executable is."""
    return shutil.which("PythonSlicer") or sys.executable


def run(*arguments: str) -> str:
    """Return what Python prints, in a process of its own: about a second, the first time more.

    Raises RuntimeError with the reason if it fails.
    """
    done = subprocess.run(
        [python(), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        **HIDDEN,
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        with contextlib.suppress(ValueError, KeyError):  # the worker's own words, where it has some
            last = json.loads(done.stdout)["error"]["message"]
        raise RuntimeError(last or f"exit code {done.returncode}")
    return done.stdout


def ask(*question: str) -> dict[str, Any]:
    """Return the worker's answer to one of its questions.

    Raises RuntimeError with the reason if there is none, or the package does not run.
    """
    return json.loads(run("-m", "morphseek.worker", *question))


@functools.cache
def describe() -> dict[str, Any]:
    """Return what the installed package offers: version, options (the engine's table), models and
    devices.
    """
    return ask("--describe")


class Worker:
    """One worker and its folder: put() arrays, start(), then read lines(). close() always ends the
    process and removes the folder.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="morphseek-"))
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._process: subprocess.Popen | None = None

    def put(self, name: str, array: np.ndarray, matrix: np.ndarray) -> dict[str, Any]:
        """Write an input array, whose index a 4x4 matrix takes to LPS mm; return its entry for the
        request.
        """
        np.save(self.folder / f"{name}.npy", np.ascontiguousarray(array))
        return {"file": f"{name}.npy", "matrix": matrix.tolist()}

    def get(self, entry: dict[str, Any]) -> np.ndarray:
        """Return an output array, mapped into memory; it is invalid once the worker is closed."""
        return np.load(self.folder / entry["file"], mmap_mode="r", allow_pickle=False)

    def start(self, request: dict[str, Any]) -> None:
        """Write the request and start the process. The worker ends when its standard input closes,
        so it ends with this process, too.
        """
        (self.folder / "request.json").write_text(
            json.dumps({**request, "temporary": True}), encoding="utf-8"
        )
        with open(self.folder / "stderr.txt", "wb") as errors:
            self._process = subprocess.Popen(
                [python(), "-m", "morphseek.worker", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                errors="replace",
                **HIDDEN,
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen) -> None:
        try:
            with process.stdout:
                while line := process.stdout.readline(_LONGEST):
                    # a line that was cut off as the worker ended, or one of another program
                    with contextlib.suppress(ValueError):
                        if isinstance(said := json.loads(line), dict):
                            self._lines.put(said)
            process.wait()
        finally:
            self._lines.put(None)

    def lines(self) -> list[dict[str, Any] | None]:
        """Return the lines since the last call; None, the last one, once the process is gone."""
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._lines.get_nowait())
        return taken

    def why(self) -> str:
        """Return how a process ended that reported nothing, and its last line on standard error."""
        code = self._process.returncode
        name = f"signal {-code}" if code < 0 else f"exit code {code}"
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name if code < 0 else name
        said = (self.folder / "stderr.txt").read_text(encoding="utf-8", errors="replace")
        last = said.strip().rpartition("\n")[2]
        return f"{name}: {last}" if last else name

    def close(self) -> None:
        """End the process, whatever it is doing, and remove the folder."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # ends the worker even if a launcher started it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()
        elif process is not None:
            process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)
