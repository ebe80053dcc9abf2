"""The panel: its sections, and the one running registration."""

from __future__ import annotations

import json
import time
from typing import Any

import slicer

from . import outputs
from .options import OUTPUTS, PRESETS
from .options_section import OptionsSection
from .package_section import POLL_MS, YIELD_S, PackageSection, timer
from .parameters import request_of
from .registration import Registration
from .request import STAGES, Event
from .result_section import ResultSection, summary_of
from .review_section import ReviewSection


class Panel:
    """Moves values between the widgets `ui` and the parameter node.

    `logic` starts registrations and carries nodes over.
    """

    def __init__(self, ui: Any, logic: Any):
        self.ui, self.logic = ui, logic
        self.parameters: Any = None
        self.registration: Registration | None = None
        self._volumes: Any = None  # fixed and moving of the last registration in this session
        self._outcome = ""  # how it ended, as text
        self._entered = False
        self._unseen = False  # whether a result came while the user was in another module
        self.timer = timer(POLL_MS, self.poll)
        self.package = PackageSection(ui, self.update)
        self.result = ResultSection(ui)
        self.options = OptionsSection(ui, self.package, self.result.log)
        self.review = ReviewSection(ui)
        ui.registerButton.clicked.connect(self._on_register)
        ui.transferButton.clicked.connect(self._on_transfer)
        ui.progressBar.setVisible(False)

    # -------------------------------------------------------------- life of the panel and the scene

    def enter(self) -> None:
        """Update when the user enters this module. A running registration goes on while they are in
        another.
        """
        self._entered = True
        self.package.ask()
        self.update()
        if self._unseen:
            self._unseen = False
            self.review.start()

    def exit(self) -> None:
        """Leave the slice views alone when the user goes to another module."""
        self._entered = self._unseen = False
        self.review.end()

    def stop(self) -> None:
        """End the worker and the timers."""
        self.timer.stop()
        self._unseen = False
        self.review.close()
        if self.registration is not None:
            self.registration.cancel()
            self.registration = None

    def set_parameters(self, parameters: Any) -> None:
        self.parameters = self.options.parameters = self.review.parameters = parameters
        self.update()

    # ------------------------------------------------------------------------- what the panel shows

    def update(self, caller: Any = None, event: Any = None) -> None:
        """Show what can be done now, and why something cannot."""
        p, ui = self.parameters, self.ui
        if p is None:
            return
        self.options.update()
        self.review.update()
        ui.presetDescriptionLabel.setText(PRESETS[p.preset].description)
        for name in OUTPUTS:
            output_selector(ui, name).setEnabled(getattr(p, f"make_{name}"))
        is_last = (p.fixed, p.moving) == (p.last_fixed, p.last_moving)
        self.result.update(p.last_result if is_last else "")
        self._update_register_button(self.package.problem() or request_of(p).validate())
        problem = self._transfer_problem()
        ui.transferButton.setEnabled(not problem)
        ui.transferButton.setToolTip(
            problem or "Carry the labels and points selected above over, without registering again."
        )

    def _update_register_button(self, reason: str) -> None:
        """Update the button Register, or Cancel while it runs, and the reason if it is disabled."""
        ui, running = self.ui, self.registration is not None
        ui.registerButton.setText("Cancel" if running else "Register")
        ui.registerButton.setEnabled(running or not reason)
        ui.registerButton.setToolTip(
            "Stop at once; nothing is added to the scene."
            if running
            else reason or "Bring the moving volume onto the fixed one."
        )
        ui.progressBar.setVisible(running)
        for section in (
            ui.inputsCollapsibleButton,
            ui.outputsCollapsibleButton,
            ui.transferCollapsibleButton,
            ui.advancedCollapsibleButton,
        ):
            section.setEnabled(not running)
        if not running:
            is_last = self._volumes == (self.parameters.fixed, self.parameters.moving)
            ui.statusLabel.setText(reason or (is_last and self._outcome) or "Ready")

    # --------------------------------------------------------------------------------- registration

    def _on_register(self) -> None:
        """Register; or, while that runs, cancel."""
        if self.registration is not None:
            self.registration.cancel()
            self._end()
            return
        p = self.parameters
        self._volumes, self._outcome, p.last_result = (p.fixed, p.moving), "", ""
        self.result.clear()
        self.review.end()
        try:
            self.registration = self.logic.start(request_of(p))
        except Exception as error:
            self._fail(error)
            return
        self.result.log("started")
        self._show(Event("prepare", 0.0, None, ""))
        self.timer.start()
        self.update()

    def poll(self) -> None:
        registration = self.registration
        time.sleep(YIELD_S)
        try:
            for event in registration.poll():
                self._show(event)
        except Exception as error:
            registration.cancel()
            self.registration = None
            self.timer.stop()
            self._fail(error)
            return
        if not registration.running:
            self._end()

    def _show(self, event: Event) -> None:
        stage = STAGES.get(event.stage, event.stage)
        self.ui.progressBar.setValue(round(100 * event.fraction))
        left = "" if event.eta is None else f", {_duration(event.eta)} left"
        self.ui.statusLabel.setText(stage + left)
        if event.message:
            self.result.log(f"{event.stage}: {event.message}")

    def _end(self) -> None:
        """Show how the registration ended."""
        registration, self.registration = self.registration, None
        self.timer.stop()
        if registration.state == "failed":
            self._fail(registration.error)
        elif registration.state == "cancelled":
            self._outcome = "Cancelled. Nothing was added to the scene."
            self.result.log("cancelled")
            self.update()
        else:
            self._finish(registration)

    def _fail(self, error: Exception) -> None:
        self._outcome = f"Not registered. {error}"
        self.result.log(str(error))
        self.update()
        slicer.util.errorDisplay(str(error), windowTitle="MorphSeek")

    def _finish(self, registration: Registration) -> None:
        p, request, nodes = self.parameters, registration.request, registration.nodes
        seconds = registration.result["seconds"]["total"]
        self._outcome = f"Done in {seconds:.0f} s. Verdict: {registration.verdict['grade']}."
        self.result.log("done")
        p.last_result = summary_of(registration)
        p.last_fixed, p.last_moving = request.fixed, request.moving
        p.last_transformed_volume = nodes.get("transformed_volume")
        p.last_transform = nodes.get("transform")
        p.last_places = json.dumps(registration.places)
        self.ui.beforeCheckBox.setChecked(False)
        self.update()
        if p.last_transformed_volume is not None:
            self._unseen = not self._entered
            if self._entered:
                self.review.start()

    # ------------------------------------------------------------------------------------- transfer

    def _transfer_problem(self) -> str:
        p = self.parameters
        if p.moving_labels is None and p.landmarks is None:
            return "Select moving labels or points"
        transform = self._transform()
        if transform is None:
            return "Register first, or select a transform under Outputs"
        if p.fixed is None:
            return "Select the fixed volume"
        for volume, selected in zip(outputs.volumes_of(transform), (p.fixed, p.moving)):
            if volume is not None and selected is not None and volume != selected:
                return (
                    f"{transform.GetName()} is a transform of {volume.GetName()}: select that"
                    " volume, or another transform under Outputs"
                )
        return ""

    def _transform(self) -> Any:
        return self.parameters.transform or self.parameters.last_transform

    def _on_transfer(self) -> None:
        p = self.parameters
        nodes = [node for node in (p.moving_labels, p.landmarks) if node is not None]
        with slicer.util.tryWithErrorDisplay("Carrying over failed.", waitCursor=True):
            copies = self.logic.transfer(nodes, self._transform(), p.fixed)
            self.result.log("carried over: " + ", ".join(node.GetName() for node in copies))


def output_selector(ui: Any, name: str) -> Any:
    """Return the selector of an output's node."""
    first, *rest = name.split("_")
    return getattr(ui, first + "".join(word.capitalize() for word in rest) + "Selector")


def _duration(seconds: float) -> str:
    """Return a time left as text, rounded because it is an estimate."""
    if seconds < 60:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    return f"about {round(seconds / 60)} min"
