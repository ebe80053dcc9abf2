"""The panel's controls to look at a result: fade, compare, worst places, side by side."""

from __future__ import annotations

import json
from typing import Any

import slicer

from . import compare
from .package_section import timer

FLICKER_MS = 600


class ReviewSection:
    """Shows the last result of the parameter node, `parameters`, which the panel sets."""

    def __init__(self, ui: Any):
        self.ui = ui
        self.parameters: Any = None
        self.active = False
        self._flickered = False
        self._layout_before: int | None = None  # what to return to after the comparison
        self._places: str | None = None  # the places that placeComboBox lists
        self.timer = timer(FLICKER_MS, self._on_flicker)
        ui.reviewButton.clicked.connect(self.start)
        ui.fadeSlider.valueChanged.connect(self._on_changed)
        ui.beforeCheckBox.toggled.connect(self._on_changed)
        ui.compareCheckBox.toggled.connect(self._on_compare)
        ui.placeComboBox.activated.connect(self._on_place)
        ui.placeButton.clicked.connect(self._on_worst_place)
        for button in (ui.fadeRadioButton, ui.checkerboardRadioButton, ui.flickerRadioButton):
            button.toggled.connect(self._on_mode)

    def start(self) -> None:
        """Lay the result over the fixed volume, in all slice views."""
        self.active = True
        self._show(fit=True)

    def end(self) -> None:
        """Leave the slice views alone."""
        self.active = False
        self.timer.stop()

    def close(self) -> None:
        """Return to the layout from before: there is nothing left to compare."""
        self.end()
        self.ui.compareCheckBox.setChecked(False)

    def update(self) -> None:
        """Show what can be reviewed, and list the worst places if they have changed."""
        p, ui = self.parameters, self.ui
        ready = p.last_fixed is not None and p.last_transformed_volume is not None
        ui.reviewButton.setEnabled(ready)
        ui.reviewButton.setToolTip(
            "Lay the result over the fixed volume in all slice views."
            if ready
            else "Register first, with the transformed volume as an output."
        )
        ui.compareCheckBox.setEnabled(ready and p.last_moving is not None)
        if p.last_places != self._places:
            self._places = p.last_places
            ui.placeComboBox.clear()
            ui.placeComboBox.addItems([place["text"] for place in json.loads(self._places)])
        ui.placeWidget.setVisible(ui.placeComboBox.count > 0)

    def _on_mode(self, chosen: bool) -> None:
        if chosen:  # the radio button that was left sends the signal, too
            self._on_changed()

    def _on_changed(self, value: Any = None) -> None:
        if self.active:
            self._show()

    def _show(self, fit: bool = False) -> None:
        p, ui = self.parameters, self.ui
        other = p.last_moving if ui.beforeCheckBox.checked else p.last_transformed_volume
        if p.last_fixed is None or other is None:
            self.end()
            return
        self.timer.stop()
        if ui.compareCheckBox.checked and p.last_moving is not None:
            self._show_comparison(fit)
            return
        self._show_modes(True)
        ui.fadeWidget.setVisible(ui.fadeRadioButton.checked)
        if ui.checkerboardRadioButton.checked:
            board = compare.checkerboard(p.last_fixed, other)
            slicer.util.setSliceViewerLayers(background=board, foreground=None, fit=fit)
            return
        self._flickered = ui.flickerRadioButton.checked
        opacity = 1.0 if self._flickered else ui.fadeSlider.value / 100
        slicer.util.setSliceViewerLayers(
            background=p.last_fixed, foreground=other, foregroundOpacity=opacity, fit=fit
        )
        if self._flickered:
            self.timer.start()

    def _show_modes(self, shown: bool) -> None:
        """Show or hide the controls that only the view of both volumes in one needs."""
        self.ui.reviewModes.setVisible(shown)
        self.ui.beforeCheckBox.setVisible(shown)

    def _show_comparison(self, fit: bool) -> None:
        """Show fixed, before and after side by side; the slider fades in the fixed volume."""
        p, ui, scene = self.parameters, self.ui, slicer.mrmlScene
        self._show_modes(False)
        ui.fadeWidget.setVisible(True)
        if not compare.is_open(scene):
            self._layout_before = compare.open_layout(scene)
            fit = True
        volumes = (p.last_fixed, p.last_moving, p.last_transformed_volume)
        compare.show(scene, *volumes, ui.fadeSlider.value / 100)
        if fit:
            slicer.util.setSliceViewerLayers(fit=True)

    def _on_compare(self, chosen: bool) -> None:
        """Compare side by side, or return to the layout from before."""
        if chosen:
            self.ui.fadeSlider.setValue(100)  # 100: the volumes themselves; 0: the fixed one
            self.start()
            return
        if self._layout_before is not None:
            compare.close_layout(slicer.mrmlScene, self._layout_before)
            self._layout_before = None
        self.ui.fadeSlider.setValue(50)
        self._show_modes(True)
        self._on_changed()

    def _on_worst_place(self) -> None:
        """Go to the place that speaks most against the result."""
        self.ui.placeComboBox.setCurrentIndex(0)
        self._on_place(0)

    def _on_place(self, index: int) -> None:
        compare.go_to(slicer.mrmlScene, json.loads(self._places)[index]["lps"])

    def _on_flicker(self) -> None:
        self._flickered = not self._flickered
        slicer.util.setSliceViewerLayers(foregroundOpacity=1.0 if self._flickered else 0.0)
