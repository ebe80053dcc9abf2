"""The panel's sections Result and Details: the verdict, the figures, how the result was made, and
the log.
"""

from __future__ import annotations

import html
import json
import time
from typing import Any

import qt

from .registration import Registration

# a verdict's colours, as report.html has them; every colour-blind reader can tell them apart
COLORS = {"good": "#0b6e8a", "check": "#a35200", "failed": "#a1125e"}
_FIGURES = (
    "similarity", "similarity_before", "similarity_after", "njd_percent", "dice", "dice_before",
    "dice_after", "model", "device",
)  # fmt: skip


def summary_of(registration: Registration) -> str:
    """Return what the section shows of a finished registration, as JSON for the saved scene."""
    metrics = {name: registration.result[name] for name in _FIGURES if name in registration.result}
    made = {"verdict": registration.verdict, "explanation": registration.explanation}
    return json.dumps({**made, "metrics": metrics})


class ResultSection:
    """Shows a result, in the words of the worker."""

    def __init__(self, ui: Any):
        self.ui = ui
        ui.resultTable.horizontalHeader().setSectionResizeMode(0, qt.QHeaderView.Stretch)
        self._shown: str | None = None
        self.update("")

    def clear(self) -> None:
        """Empty the log."""
        self.ui.logTextEdit.clear()

    def log(self, text: str) -> None:
        self.ui.logTextEdit.appendPlainText(f"{time.strftime('%H:%M:%S')}  {text}")

    def update(self, summary: str) -> None:
        """Show a result as :func:`summary_of` has it; close the section where there is none."""
        if summary == self._shown:
            return
        self._shown, ui = summary, self.ui
        ui.resultCollapsibleButton.setCollapsed(not summary)
        for widget in (ui.verdictLabel, ui.warningsLabel, ui.resultTable, ui.explanationLabel):
            widget.setVisible(bool(summary))
        if summary:
            self._show(**json.loads(summary))

    def _show(
        self, verdict: dict[str, Any], explanation: list[list[str]], metrics: dict[str, Any]
    ) -> None:
        ui = self.ui
        head = f"{verdict['sign']} {verdict['grade'].capitalize()}: {verdict['meaning']}"
        reasons = [f"- {reason}" for reason in verdict["reasons"]]
        ui.verdictLabel.setText("\n".join([head, f"Estimated error: {verdict['error']}", *reasons]))
        color = COLORS[verdict["grade"]]
        ui.verdictLabel.setStyleSheet(f"background: {color}; color: #ffffff; padding: 6px;")
        ui.warningsLabel.setText("\n".join(f"Note: {note}" for note in verdict["notes"]))
        ui.warningsLabel.setVisible(bool(verdict["notes"]))
        self._fill(metrics)
        lines = [*explanation, ("Network", metrics["model"]), ("Computed on", metrics["device"])]
        ui.explanationLabel.setText(
            "<br>".join(
                f"<b>{html.escape(what)}:</b> {html.escape(words)}" for what, words in lines
            )
        )

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
