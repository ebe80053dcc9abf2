"""The panel's section Options: the network's file, preset files, and a widget for each of the
engine's options without one in the .ui file.
"""

from __future__ import annotations

import json
from typing import Any, Callable

import qt
import slicer

from . import presets
from .options import further
from .package_section import PackageSection
from .parameters import AS_PRESET, load_preset, request_of

MOST = 2**31 - 1  # the largest value of a spin box


class OptionsSection:
    """Reads and writes the parameter node, `parameters`, which the panel sets."""

    def __init__(self, ui: Any, package: PackageSection, log: Callable[[str], Any]):
        self.ui, self._package, self._log = ui, package, log
        self.parameters: Any = None
        self.widgets: dict[str, tuple[Any, dict[str, Any]]] = {}  # by option name, with its table
        self._shown: dict[str, Any] = {}  # by option name, the values that these widgets show
        ui.modelButton.clicked.connect(self._on_choose_model)
        ui.savePresetButton.clicked.connect(self._on_save_preset)
        ui.loadPresetButton.clicked.connect(self._on_load_preset)

    def update(self) -> None:
        """Make the widgets as soon as the package has told its options; show their values."""
        known = self._package.description
        if known is not None and not self.widgets:
            for option in further(known["options"]):
                self._add(option)
            self.ui.furtherOptionsGroupBox.setVisible(bool(self.widgets))
        for button in (self.ui.savePresetButton, self.ui.loadPresetButton):
            button.setEnabled(known is not None)
        chosen = json.loads(self.parameters.further_options)
        known = {name: chosen[name] for name in self.widgets if self._takes(name, chosen.get(name))}
        if self.widgets and known != chosen:  # from a scene that another version has saved
            left = ", ".join(name for name in chosen if name not in known)
            self._log(f"left out, as the installed package does not take it: {left}")
            self.parameters.further_options = json.dumps(known)
        for name, (widget, option) in self.widgets.items():
            value = known.get(name)
            if value == self._shown.get(name):
                continue
            self._shown[name] = value
            widget.blockSignals(True)
            if _is_menu(option):
                widget.setCurrentIndex(0 if value is None else option["choices"].index(value) + 1)
            elif option["type"] == "int":
                widget.setValue(option["default"] if value is None else value)
            else:
                widget.setText("" if value is None else str(value))
            widget.blockSignals(False)

    def _takes(self, name: str, value: Any) -> bool:
        """Whether the widget of an option can show a value that was chosen."""
        option = self.widgets[name][1]
        if value is None or _is_menu(option):
            return value in option.get("choices", ())
        return option["type"] != "int" or type(value) is int

    def choose(self, name: str, value: Any) -> None:
        """Store the value of an option without a parameter of its own; None: as the preset says."""
        self._shown[name] = value
        if self.parameters is not None:
            chosen = json.loads(self.parameters.further_options)
            chosen.pop(name, None)
            self.parameters.further_options = json.dumps(
                chosen if value is None else {**chosen, name: value}
            )

    def _add(self, option: dict[str, Any]) -> None:
        name, default = option["name"], option["default"]
        if _is_menu(option):
            widget = qt.QComboBox()
            widget.addItems([AS_PRESET, *option["choices"]])
            widget.currentTextChanged.connect(
                lambda text: self.choose(name, None if text == AS_PRESET else text)
            )
        elif option["type"] == "int":
            widget = qt.QSpinBox()
            widget.setRange(option["min"], option.get("max", MOST))
            widget.setValue(default)
            # Qt overloads this signal: one sends the number, the other its text.
            widget.valueChanged.connect(
                lambda value: self.choose(name, None if int(value) == default else int(value))
            )
        else:
            widget = qt.QLineEdit()
            widget.setPlaceholderText(str(default) or "none")
            read = _number if option["type"] == "float" else str
            widget.textChanged.connect(
                lambda text: self.choose(name, read(text.strip()) if text.strip() else None)
            )
        widget.setObjectName(f"{name}Option")
        widget.setToolTip(option["help"])
        self.ui.furtherOptionsGroupBox.layout().addRow(f"{option.get('label', name)}:", widget)
        self.widgets[name] = widget, option

    def _on_choose_model(self) -> None:
        path = qt.QFileDialog.getOpenFileName(None, "Network", "", "Networks (*.onnx)")
        if path:
            self.parameters.model = path

    def _on_save_preset(self) -> None:
        path = qt.QFileDialog.getSaveFileName(None, "Preset", "preset.json", "Presets (*.json)")
        if path:
            path = path if path.lower().endswith(".json") else f"{path}.json"
            with slicer.util.tryWithErrorDisplay("The preset could not be saved."):
                presets.save(path, request_of(self.parameters))
                self._log(f"saved the preset {path}")

    def _on_load_preset(self) -> None:
        path = qt.QFileDialog.getOpenFileName(None, "Preset", "", "Presets (*.json)")
        if path:
            with slicer.util.tryWithErrorDisplay("The preset could not be loaded."):
                load_preset(path, self.parameters)
                self._log(f"loaded the preset {path}")


def _is_menu(option: dict[str, Any]) -> bool:
    """Whether an option of the engine's table takes only its listed choices."""
    return bool(option.get("choices")) and not option.get("prefix") and not option.get("number")


def _number(text: str) -> float | str:
    """Return a text as number, or unchanged: then the engine's message says what it expects."""
    try:
        return float(text)
    except ValueError:
        return text
