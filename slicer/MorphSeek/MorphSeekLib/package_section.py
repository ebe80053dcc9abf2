"""The box at the top of the panel: whether the Python package runs, and its installation."""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any, Callable

import qt
import slicer

from . import install, process

POLL_MS = 100
# Slicer's event loop holds Python's global lock. Each poll sleeps so long, so that other threads
# (the worker's reader) can run.
YIELD_S = 0.005


def timer(interval_ms: int, slot: Callable[[], Any]) -> Any:
    """Return a stopped timer that calls `slot`."""
    qt_timer = qt.QTimer()
    qt_timer.setInterval(interval_ms)
    qt_timer.timeout.connect(slot)
    return qt_timer


class PackageSection:
    """Asks the installed package what it offers, in a thread: its first start takes seconds.

    `changed` is called with each answer. `description` is the last one, `error` why there is none.
    """

    def __init__(self, ui: Any, changed: Callable[[], Any]):
        self.ui, self._changed = ui, changed
        self.description: dict[str, Any] | None = None
        self.error = ""
        self.asking: concurrent.futures.Future | None = None
        self._timer = timer(POLL_MS, self._on_asked)
        ui.installButton.clicked.connect(self._on_install)
        ui.installFileButton.clicked.connect(self._on_install_file)
        ui.installFrame.setVisible(False)

    def ask(self) -> None:
        if self.description is None and self.asking is None:
            self.asking = concurrent.futures.ThreadPoolExecutor(1).submit(process.describe)
            self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    def problem(self) -> str:
        """Return why nothing can be registered yet, in words for the user."""
        if not self.error:
            return ""
        return "Install the MorphSeek package first: see the top of this panel"

    def _on_asked(self) -> None:
        time.sleep(YIELD_S)
        if not self.asking.done():
            return
        self._timer.stop()
        asked, self.asking = self.asking, None
        try:
            self.description, self.error = asked.result(), ""
            devices = self.description["devices"]
            card = devices.get("cuda")
            card = f"graphics card ({card})" if card else "no CUDA graphics card"
            self.ui.deviceLabel.setText(f"Found: processor ({devices['cpu']}), {card}")
        except Exception as error:
            self.error = str(error)
        self.ui.installLabel.setText(
            "MorphSeek needs its Python package, which does not run in this Slicer yet:"
            f" {install.unsuitable() or self.error}."
        )
        self.ui.installFrame.setVisible(bool(self.error))
        self._changed()

    def _on_install(self) -> None:
        self._install()

    def _on_install_file(self) -> None:
        path = qt.QFileDialog.getOpenFileName(
            None, "MorphSeek package", "", "Python wheels (*.whl)"
        )
        if path:
            self._install(path)

    def _install(self, *source: str) -> None:
        """Ask, then install the package from the package index or from a wheel; then ask it what it
        offers.
        """

        def pip(arguments: list[str]) -> None:
            with slicer.util.WaitCursor():
                slicer.util.pip_install(arguments)

        def confirm(question: str) -> bool:
            return slicer.util.confirmOkCancelDisplay(question, windowTitle="MorphSeek")

        dialogs: list[Any] = []

        def progress(done: int, total: int, what: str) -> None:
            if not dialogs:
                dialogs.append(slicer.util.createProgressDialog(windowTitle="MorphSeek"))
            dialogs[0].setMaximum(total)
            dialogs[0].setValue(done)
            dialogs[0].setLabelText(f"Installing {what} ...")
            slicer.app.processEvents()

        try:
            with slicer.util.tryWithErrorDisplay("The package could not be installed."):
                if install.ensure(confirm, pip, *source, runs=not self.error, progress=progress):
                    self.ask()
        finally:
            for dialog in dialogs:
                dialog.close()
