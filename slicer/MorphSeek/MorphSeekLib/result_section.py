"""The panel's sections Result and Details: the verdict, the figures, how the result was made, and
the log.
"""

from __future__ import annotations

import html
import time
from typing import Any

import qt

from .registration import Registration

# a verdict's colours (background, text), as report.html has them
COLORS = {
    "good": ("#d9f0d3", "#1b5e20"),
    "check": ("#fff3c4", "#6b4e00"),
    "failed": ("#fbd5d1", "#8a1c12"),
}


class ResultSection:
    """Shows a finished registration, in the words of the worker."""

    def __init__(self, ui: Any):
        self.ui = ui
        ui.resultTable.horizontalHeader().setSectionResizeMode(0, qt.QHeaderView.Stretch)
        self.clear()

    def clear(self) -> None:
        ui = self.ui
        ui.logTextEdit.clear()
        ui.resultCollapsibleButton.setCollapsed(True)
        for widget in (ui.verdictLabel, ui.warningsLabel, ui.resultTable, ui.explanationLabel):
            widget.setVisible(False)

    def log(self, text: str) -> None:
        self.ui.logTextEdit.appendPlainText(f"{time.strftime('%H:%M:%S')}  {text}")

    def show(self, registration: Registration) -> None:
        ui, verdict, metrics = self.ui, registration.verdict, registration.result
        background, color = COLORS[verdict["grade"]]
        head = f"{verdict['sign']} {verdict['grade'].capitalize()}: {verdict['meaning']}"
        reasons = [f"- {reason}" for reason in verdict["reasons"]]
        ui.verdictLabel.setText("\n".join([head, f"Estimated error: {verdict['error']}", *reasons]))
        ui.verdictLabel.setStyleSheet(f"background: {background}; color: {color}; padding: 6px;")
        ui.warningsLabel.setText("\n".join(f"Note: {note}" for note in verdict["notes"]))
        self._fill(metrics)
        lines = [*registration.explanation, ("Network", metrics["model"])]
        ui.explanationLabel.setText(
            "<br>".join(
                f"<b>{html.escape(what)}:</b> {html.escape(words)}"
                for what, words in (*lines, ("Computed on", metrics["device"]))
            )
        )
        for widget in (ui.verdictLabel, ui.resultTable, ui.explanationLabel):
            widget.setVisible(True)
        ui.warningsLabel.setVisible(bool(verdict["notes"]))
        ui.resultCollapsibleButton.setCollapsed(False)

    def _fill(self, metrics: dict[str, Any]) -> None:
        rows = [("Similarity", metrics["similarity_before"], metrics["similarity_after"])]
        if "dice_after" in metrics:
            rows.append(("Dice, mean of the labels", metrics["dice_before"], metrics["dice_after"]))
        rows += [(f"Dice of {name}", *both) for name, both in metrics.get("dice", {}).items()]
        cells = [(name, f"{before:.3f}", f"{after:.3f}") for name, before, after in rows]
        cells.insert(1, ("Folding", "", f"{metrics['njd_percent']:.3f} %"))
        table = self.ui.resultTable
        table.setRowCount(len(cells))
        for i, row in enumerate(cells):
            for j, text in enumerate(row):
                table.setItem(i, j, qt.QTableWidgetItem(text))
        table.item(0, 0).setToolTip(f"{metrics['similarity']}; higher is better")
