"""Tests the panel's wiring: MorphSeek.py on the real Slicer core, with real Qt widgets and a
scripted registration instead of the worker.
"""

from __future__ import annotations

import json
import re
import sys
import time
import types
from pathlib import Path
from typing import Any, Iterator

import MorphSeekLib.batch
import MorphSeekLib.process
import MorphSeekLib.registration
import numpy as np
import pytest
import slicer
import stand_ins
from MorphSeekLib import outputs
from MorphSeekLib.request import Event, RegistrationRequest
from PySide6 import QtWidgets


def request_of(parameters: Any) -> RegistrationRequest:
    from MorphSeekLib import parameters as module  # needs the stand-ins

    return module.request_of(parameters)


def checkerboard(*volumes: Any, **how: Any) -> Any:
    from MorphSeekLib import compare

    return compare.checkerboard(*volumes, **how)


METRICS = {
    "similarity": "normalized mutual information",
    "similarity_before": 1.0861,
    "similarity_after": 1.2748,
    "njd_percent": 0.0123,
    "seconds": {"total": 24.66},
    "model": "none",
    "device": "cpu",
    "dice": {"liver": [0.5, 0.9]},
    "dice_before": 0.5,
    "dice_after": 0.9,
}
VERDICT = {
    "grade": "check",
    "sign": "!",
    "meaning": "look at the result before you use it",
    "error": "3.1 mm",
    "reasons": ["The fields overlap by 12 %.", "A <b>"],
    "notes": ["the masks were ignored"],
}
PLACES = [
    {"kind": "shrunk", "text": "most shrunk \u00d70.10", "tip": "", "lps": [4.0, 5.0, 2.0]},
    {"kind": "bend", "text": "largest bend 7.0 mm", "tip": "", "lps": [1.0, 2.0, 3.0]},
]
DESCRIPTION = {
    "version": "0.1.0",
    "options": [],
    "models": [],
    "devices": {"cpu": "8 cores", "cuda": "NVIDIA H100"},
}
describe = MorphSeekLib.process.describe  # kept, because the tests replace it


class ScriptedRegistration:
    """Returns the test's `script`, one list of events for each poll; then its state is `end`."""

    script: list[Any] = []
    end = "finished"
    made: list[ScriptedRegistration] = []

    def __init__(self, request: RegistrationRequest, scene: Any = None):
        self.request, self.state, self.error, self.result, self.nodes = (
            request,
            "ready",
            None,
            None,
            {},
        )
        self.places: list[dict[str, Any]] = []
        self.polls = list(self.script)
        self.made.append(self)

    @property
    def running(self) -> bool:
        return self.state == "running"

    def start(self) -> None:
        if reason := self.request.validate():
            raise ValueError(reason)
        if self.end == "unstartable":
            raise MorphSeekLib.registration.RegistrationError("the disk is full")
        self.state = "running"

    def poll(self) -> list[Event]:
        if self.polls:
            events = self.polls.pop(0)
            if isinstance(events, Exception):
                raise events
            return events
        self.state = self.end
        if self.end == "failed":
            self.error = MorphSeekLib.registration.RegistrationError(
                "the volumes do not overlap", "no_overlap", 7
            )
        else:
            self.result, self.places, self.verdict = METRICS, PLACES, VERDICT
            self.explanation = [["Start", "a rigid & good alignment"]]
            for name, kind in (
                ("transformed_volume", "vtkMRMLScalarVolumeNode"),
                ("transform", "vtkMRMLGridTransformNode"),
            ):
                if wanted := getattr(self.request, name):
                    self.nodes[name] = (
                        slicer.mrmlScene.AddNewNodeByClass(kind, name) if wanted is True else wanted
                    )
            if node := self.nodes.get("transformed_volume"):
                slicer.util.updateVolumeFromArray(
                    node, slicer.util.arrayFromVolume(self.request.fixed) + 1
                )
                node.CopyOrientation(self.request.fixed)
        return []

    def cancel(self) -> None:
        if self.running:
            self.state = "cancelled"


class Panel:
    """The module's widget as a user operates it, and the messages that it showed."""

    def __init__(self, said: Any):
        import MorphSeek

        self.said = said
        self.widget = MorphSeek.MorphSeekWidget()
        self.widget.setup()
        self.widget.enter()
        self.ui = self.widget.ui
        self.wait(lambda: self.widget.panel.package.asking is None)

    @property
    def parameters(self) -> Any:
        return self.widget._parameters

    @property
    def layers(self) -> tuple[Any, ...]:
        """Return background, foreground and opacity of the slice views."""
        view = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLSliceCompositeNode")
        names = [
            slicer.mrmlScene.GetNodeByID(i).GetName() if i else None
            for i in (view.GetBackgroundVolumeID(), view.GetForegroundVolumeID())
        ]
        return (*names, round(view.GetForegroundOpacity(), 2))

    def wait(self, ready: Any, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, "the panel does not reach that state"
            stand_ins.application().processEvents()
            time.sleep(0.005)

    def select_volumes(self) -> None:
        self.ui.fixedSelector.setCurrentNode(volume("fixed"))
        self.ui.movingSelector.setCurrentNode(volume("moving"))

    def register(self) -> ScriptedRegistration:
        self.ui.registerButton.click()
        self.wait(lambda: self.widget.panel.registration is None)
        return ScriptedRegistration.made[-1]


def volume(
    name: str, kind: str = "vtkMRMLScalarVolumeNode", shape: tuple[int, ...] = (8, 10, 12)
) -> Any:
    node = slicer.mrmlScene.AddNewNodeByClass(kind, name)
    values = np.arange(np.prod(shape), dtype=np.float32 if "Scalar" in kind else np.int16).reshape(
        shape
    )
    slicer.util.updateVolumeFromArray(node, values)
    node.CreateDefaultDisplayNodes()
    return node


def segmentation(name: str) -> Any:
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", name)
    node.GetSegmentation().AddEmptySegment("liver", "liver")
    return node


@pytest.fixture()
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with stand_ins.install() as said:
        slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSliceCompositeNode")
        monkeypatch.setattr(MorphSeekLib.registration, "Registration", ScriptedRegistration)
        monkeypatch.setattr(MorphSeekLib.process, "describe", lambda: DESCRIPTION)
        monkeypatch.setattr(ScriptedRegistration, "script", [])
        monkeypatch.setattr(ScriptedRegistration, "end", "finished")
        yield said


@pytest.fixture()
def panel(said: Any) -> Iterator[Panel]:
    panel = Panel(said)
    yield panel
    panel.widget.cleanup()


# ------------------------------------------------------------------------------ the Register button


def test_says_what_is_missing_until_it_can_register(panel: Panel) -> None:
    def state() -> tuple[bool, str, str]:
        return (
            panel.ui.registerButton.enabled,
            panel.ui.registerButton.toolTip,
            panel.ui.statusLabel.text,
        )

    assert state() == (
        False,
        "Select the fixed and the moving volume",
        "Select the fixed and the moving volume",
    )
    panel.ui.fixedSelector.setCurrentNode(volume("fixed"))
    assert state() == (False, "Select the moving volume", "Select the moving volume")
    panel.ui.movingSelector.setCurrentNode(volume("moving"))
    assert state() == (True, "Bring the moving volume onto the fixed one.", "Ready")
    panel.ui.transformedVolumeCheckBox.setChecked(False)
    panel.ui.transformCheckBox.setChecked(False)
    assert state() == (False, "Select at least one output", "Select at least one output")


def test_a_removed_volume_disables_it(panel: Panel) -> None:
    panel.select_volumes()
    slicer.mrmlScene.RemoveNode(panel.parameters.moving)
    assert (
        not panel.ui.registerButton.enabled
        and panel.ui.statusLabel.text == "Select the moving volume"
    )


# ---------------------------------------------------- panel <-> parameter node -> request, each way


def operate(panel: Panel) -> dict[str, Any]:
    """Set every widget away from its default; return what the request must be."""
    ui = panel.ui
    panel.select_volumes()
    nodes = {
        name: volume(name, "vtkMRMLLabelMapVolumeNode")
        for name in ("fixed_mask", "moving_mask", "rigid_regions", "fixed_labels", "moving_labels")
    }
    points = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "points")
    marks = [
        slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", name)
        for name in ("fixed_landmarks", "moving_landmarks")
    ]
    nodes |= {node.GetName(): node for node in marks}
    second = [volume(name) for name in ("second fixed", "second moving")]
    linear = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode", "near")
    grid = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLGridTransformNode", "grid")
    jacobian, uncertainty = volume("jacobian"), volume("uncertainty")
    for selector, node in (
        (ui.fixedMaskSelector, nodes["fixed_mask"]),
        (ui.movingMaskSelector, nodes["moving_mask"]),
        (ui.rigidRegionsSelector, nodes["rigid_regions"]),
        (ui.fixedLabelsSelector, nodes["fixed_labels"]),
        (ui.movingLabelsSelector, nodes["moving_labels"]),
        (ui.landmarksSelector, points),
        (ui.fixedLandmarksSelector, marks[0]),
        (ui.movingLandmarksSelector, marks[1]),
        (ui.secondFixedSelector, second[0]),
        (ui.secondMovingSelector, second[1]),
        (ui.initialTransformSelector, linear),
        (ui.inverseTransformSelector, grid),
        (ui.jacobianSelector, jacobian),
        (ui.uncertaintySelector, uncertainty),
    ):
        selector.setCurrentNode(node)
    ui.presetComboBox.setCurrentText("Best")
    ui.transformCheckBox.setChecked(False)
    for box in (
        ui.inverseTransformCheckBox,
        ui.displacementMagnitudeCheckBox,
        ui.jacobianCheckBox,
        ui.uncertaintyCheckBox,
        ui.labelsDriveCheckBox,
    ):
        box.setChecked(True)
    ui.initialComboBox.setCurrentText("centres of mass")
    ui.searchComboBox.setCurrentText("do not search")
    ui.deviceComboBox.setCurrentText("CPU")
    ui.smoothnessLineEdit.setText(" 2.5 ")
    ui.modelLineEdit.setText(" hippocampus ")
    for box, value in (
        (ui.stepsSpinBox, 5),
        (ui.trajectoriesSpinBox, 6),
        (ui.refineSpinBox, 0),
        (ui.threadsSpinBox, 3),
        (ui.fieldSpacingSpinBox, 2.5),
    ):
        box.setValue(value)
    panel.widget.panel.options.choose("similarity", "mind")
    return {
        **nodes,
        "fixed": panel.parameters.fixed,
        "moving": panel.parameters.moving,
        "preset": "Best",
        "channels": [tuple(second)],
        "labels_drive": True,
        "initial_transform": linear,
        "initial": "com",
        "search": "off",
        "smoothness": "2.5",
        "device": "cpu",
        "model": "hippocampus",
        "steps": 5,
        "trajectories": 6,
        "refine": 0,
        "threads": 3,
        "further_options": {"similarity": "mind"},
        "field_spacing": 2.5,
        "transformed_volume": True,
        "transform": None,
        "inverse_transform": grid,
        "displacement_magnitude": True,
        "jacobian": jacobian,
        "uncertainty": uncertainty,
        "transfer": [nodes["moving_labels"], points],
    }


def test_every_widget_reaches_the_request(panel: Panel) -> None:
    expected = operate(panel)
    request = request_of(panel.parameters)
    assert vars(request) == expected
    assert expected.keys() == vars(RegistrationRequest()).keys()
    defaults = {"transformed_volume"}  # not changed by operate()
    assert {
        name for name, value in vars(RegistrationRequest()).items() if expected[name] == value
    } == defaults


def test_defaults_leave_everything_to_the_preset(panel: Panel) -> None:
    panel.select_volumes()
    request = request_of(panel.parameters)
    expected = RegistrationRequest(fixed=panel.parameters.fixed, moving=panel.parameters.moving)
    options = {**request.options()}
    assert (
        {options.pop(name) for name in ("steps", "threads")} == {0}
        and options.pop("trajectories") == 1
        and options.pop("device") == "auto"
    )
    assert options == expected.options() == {}


def test_moving_labels_alone_are_transferred_but_not_scored(panel: Panel) -> None:
    panel.select_volumes()
    panel.ui.movingLabelsSelector.setCurrentNode(segmentation("organs"))
    request = request_of(panel.parameters)
    assert (
        [node.GetName() for node in request.transfer] == ["organs"]
        and request.moving_labels is None
        and request.validate() == ""
    )


def test_the_parameter_node_reaches_the_panel(panel: Panel) -> None:
    p, ui = panel.parameters, panel.ui
    p.preset, p.refine, p.model, p.field_spacing, p.make_jacobian = "Fast", 7, "none", 4.0, True
    assert (
        ui.presetComboBox.currentText,
        ui.refineSpinBox.value,
        ui.modelLineEdit.text,
        ui.fieldSpacingSpinBox.value,
    ) == ("Fast", 7, "none", 4.0)
    assert (
        ui.jacobianCheckBox.checked
        and ui.jacobianSelector.enabled
        and not ui.inverseTransformSelector.enabled
    )


def test_a_preset_says_for_whom_it_is(panel: Panel) -> None:
    panel.ui.presetComboBox.setCurrentText("Brain MR")
    assert "of one person or two" in panel.ui.presetDescriptionLabel.text


def test_a_model_file_is_chosen_from_disk(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins.QFileDialog, "answer", "/models/knee.onnx")
    panel.select_volumes()
    panel.ui.modelButton.click()
    assert panel.parameters.model == panel.ui.modelLineEdit.text == "/models/knee.onnx"
    assert panel.ui.statusLabel.text == "There is no network file /models/knee.onnx"
    monkeypatch.setattr(stand_ins.QFileDialog, "answer", "")  # the user closes the dialog
    panel.ui.modelButton.click()
    assert panel.parameters.model == "/models/knee.onnx"


def test_a_preset_is_saved_and_loaded(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MorphSeekLib.process, "describe", describe)
    panel.select_volumes()
    expected = operate(panel)
    monkeypatch.setattr(stand_ins.QFileDialog, "answer", str(tmp_path / "ours"))
    panel.ui.savePresetButton.click()
    saved = json.loads((tmp_path / "ours.json").read_text())
    assert saved == {
        "preset": "best", "initial": "com", "search": "off", "smoothness": "2.5",
        "device": "cpu", "model": "hippocampus", "steps": 5, "trajectories": 6, "refine": 0,
        "threads": 3, "similarity": "mind", "uncertainty": "on",
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["ours.json"]

    monkeypatch.setattr(stand_ins.QFileDialog, "answer", str(tmp_path / "bare.json"))
    (tmp_path / "bare.json").write_text("{}")
    panel.ui.loadPresetButton.click()
    assert request_of(panel.parameters).options() == {
        "steps": 0, "trajectories": 1, "device": "auto", "threads": 0
    }  # fmt: skip
    monkeypatch.setattr(stand_ins.QFileDialog, "answer", str(tmp_path / "ours.json"))
    panel.ui.loadPresetButton.click()
    assert vars(request_of(panel.parameters)) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "is no JSON"),
        ("[1]", "is no JSON object"),
        ('{"similarty": "ncc"}', 'unknown option "similarty"'),
        ('{"similarity": "mi"}', 'similarity is "mi"; it must be one of'),
        ('{"steps": 17}', "steps is 17; it must lie in [0, 16]"),
        ('{"steps": true}', "steps is given as bool"),
        ('{"smoothness": "stiff"}', 'smoothness is "stiff"'),
        ('{"device": "plugin:/a.so"}', "device is 'plugin:/a.so'; a preset loads no library"),
        ('{"model": "/tmp/a.onnx"}', "a preset names no file, but one of hippocampus"),
        ('{"model": "nearby"}', "a preset names no file"),
        ('{"cache": "/tmp"}', "a preset does not decide that images are kept"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_bad_preset_changes_nothing(
    text: str, message: str, panel: Panel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MorphSeekLib.process, "describe", describe)
    expected = operate(panel)
    (tmp_path / "bad.json").write_text(text)
    monkeypatch.setattr(stand_ins.QFileDialog, "answer", str(tmp_path / "bad.json"))
    panel.ui.loadPresetButton.click()
    assert message in panel.said.errors[-1]
    assert vars(request_of(panel.parameters)) == expected


def test_a_preset_that_would_be_refused_is_not_saved(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MorphSeekLib.process, "describe", describe)
    panel.parameters.model = "/models/knee.onnx"
    monkeypatch.setattr(stand_ins.QFileDialog, "answer", str(tmp_path / "ours.json"))
    panel.ui.savePresetButton.click()
    assert "a preset names no file" in panel.said.errors[-1]
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------ while it runs


def test_progress_is_shown(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        [Event("align", 0.2, None, "affine, 4 mm")],
        [Event("refine", 0.514, 41.0, "")],
        [Event("finish", 0.9, 130.0, "")],
    ]
    monkeypatch.setattr(ScriptedRegistration, "script", events)
    panel.select_volumes()
    ui = panel.ui
    ui.registerButton.click()
    panel.widget.panel.timer.stop()  # the test polls
    assert (
        ui.registerButton.text,
        ui.registerButton.enabled,
        ui.progressBar.wrapped.isHidden(),
    ) == ("Cancel", True, False)
    assert not ui.inputsCollapsibleButton.enabled and not ui.advancedCollapsibleButton.enabled
    seen = []
    for _ in range(3):
        panel.widget.panel.poll()
        seen.append((ui.statusLabel.text, ui.progressBar.value))
    assert seen == [
        ("Aligning", 20),
        ("Refining, about 40 s left", 51),
        ("Measuring, about 2 min left", 90),
    ]
    assert "align: affine, 4 mm" in ui.logTextEdit.plainText
    panel.widget.panel.poll()
    assert (
        ui.registerButton.text,
        ui.registerButton.enabled,
        ui.progressBar.wrapped.isHidden(),
    ) == ("Register", True, True)
    assert ui.inputsCollapsibleButton.enabled


def test_the_timer_drives_it_to_the_end(panel: Panel) -> None:
    panel.select_volumes()
    assert panel.register().state == "finished"
    assert (
        panel.ui.statusLabel.text == "Done in 25 s. Verdict: check."
        and not panel.widget.panel.timer.isActive()
    )


def test_cancel(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedRegistration, "script", [[]] * 1000)
    panel.select_volumes()
    before = slicer.mrmlScene.GetNumberOfNodes()
    panel.ui.registerButton.click()
    panel.ui.registerButton.click()
    assert (
        ScriptedRegistration.made[-1].state == "cancelled"
        and not panel.widget.panel.timer.isActive()
    )
    assert panel.ui.statusLabel.text == "Cancelled. Nothing was added to the scene."
    assert panel.ui.registerButton.text == "Register" and panel.ui.registerButton.enabled
    assert slicer.mrmlScene.GetNumberOfNodes() == before and not panel.said.errors
    monkeypatch.setattr(ScriptedRegistration, "script", [])
    assert panel.register().state == "finished"


@pytest.mark.parametrize(
    "end, script, message",
    [
        ("failed", [], "the volumes do not overlap"),
        ("unstartable", [], "the disk is full"),
        ("finished", [ValueError("broken")], "broken"),
    ],
)
def test_a_failure_is_one_message_and_the_next_run_works(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, end: str, script: list, message: str
) -> None:
    monkeypatch.setattr(ScriptedRegistration, "end", end)
    monkeypatch.setattr(ScriptedRegistration, "script", script)
    panel.select_volumes()
    registration = panel.register()
    assert panel.said.errors == [message]
    assert (
        panel.ui.statusLabel.text == f"Not registered. {message}"
        and message in panel.ui.logTextEdit.plainText
    )
    assert not registration.running and not panel.widget.panel.timer.isActive()
    assert (
        panel.ui.registerButton.text == "Register"
        and panel.ui.registerButton.enabled
        and panel.parameters.last_transform is None
    )
    monkeypatch.setattr(ScriptedRegistration, "end", "finished")
    monkeypatch.setattr(ScriptedRegistration, "script", [])
    assert panel.register().state == "finished" and panel.said.errors == [message]


# ------------------------------------------------------------------------ the result and its review


def test_result_table(panel: Panel) -> None:
    panel.select_volumes()
    panel.register()
    table = panel.ui.resultTable
    rows = [[table.item(i, j).text() for j in range(3)] for i in range(table.rowCount)]
    assert rows == [
        ["Similarity", "1.086", "1.275"],
        ["Folding", "", "0.012 %"],
        ["Dice, mean of the labels", "0.500", "0.900"],
        ["Dice of liver", "0.500", "0.900"],
    ]
    assert table.item(0, 0).toolTip() == "normalized mutual information; higher is better"
    assert (
        panel.ui.warningsLabel.text == "Note: the masks were ignored"
        and not panel.ui.warningsLabel.wrapped.isHidden()
    )
    assert (
        panel.ui.explanationLabel.text == "<b>Start:</b> a rigid &amp; good alignment"
        "<br><b>Network:</b> none<br><b>Computed on:</b> cpu"
    )
    sections = {name for name in vars(panel.ui) if name.endswith("CollapsibleButton")}
    assert {name for name in sections if not getattr(panel.ui, name).collapsed} == {
        "inputsCollapsibleButton", "resultCollapsibleButton"
    }  # fmt: skip


@pytest.mark.parametrize("grade, color", [("good", "#0b6e8a"), ("check", "#a35200")])
def test_verdict(panel: Panel, monkeypatch: pytest.MonkeyPatch, grade: str, color: str) -> None:
    monkeypatch.setitem(VERDICT, "grade", grade)
    panel.select_volumes()
    assert panel.ui.verdictLabel.wrapped.isHidden()
    panel.register()
    label = panel.ui.verdictLabel
    assert label.text == (
        f"! {grade.capitalize()}: look at the result before you use it\nEstimated error: 3.1 mm"
        "\n- The fields overlap by 12 %.\n- A <b>"
    )
    assert color in label.wrapped.styleSheet() and not label.wrapped.isHidden()
    assert panel.ui.statusLabel.text == f"Done in 25 s. Verdict: {grade}."
    panel.parameters.fixed = None
    panel.select_volumes()
    monkeypatch.setattr(ScriptedRegistration, "end", "failed")
    panel.register()  # nothing of the earlier result stays
    assert label.wrapped.isHidden() and panel.ui.resultCollapsibleButton.collapsed


def test_every_verdict_of_the_worker_has_its_colours(panel: Panel) -> None:
    from MorphSeekLib.result_section import COLORS

    import morphseek.verdict

    assert tuple(COLORS) == morphseek.verdict.GRADES


def test_a_verdict_stands_beside_its_own_volumes_alone(panel: Panel, tmp_path: Path) -> None:
    def shown() -> tuple[bool, str]:
        return not panel.ui.verdictLabel.wrapped.isHidden(), panel.ui.statusLabel.text

    panel.select_volumes()
    panel.register()
    assert shown() == (True, "Done in 25 s. Verdict: check.")
    first = panel.parameters.moving
    panel.ui.movingSelector.setCurrentNode(volume("another patient"))
    assert shown() == (False, "Ready") and panel.ui.resultCollapsibleButton.collapsed
    panel.ui.movingSelector.setCurrentNode(first)
    assert shown() == (True, "Done in 25 s. Verdict: check.")
    slicer.mrmlScene.Commit(str(tmp_path / "scene.mrml"))
    slicer.mrmlScene.Clear()
    panel.select_volumes()
    assert shown() == (False, "Ready")
    slicer.mrmlScene.Clear()
    slicer.mrmlScene.SetURL(str(tmp_path / "scene.mrml"))
    slicer.mrmlScene.Import()  # a saved result opens with its verdict
    assert shown()[0] and "Check: look" in panel.ui.verdictLabel.text


def test_review(panel: Panel) -> None:
    panel.select_volumes()
    ui = panel.ui
    assert not ui.reviewButton.enabled
    panel.register()
    assert panel.layers == ("fixed", "transformed_volume", 0.5)
    ui.fadeSlider.setValue(80)
    assert panel.layers == ("fixed", "transformed_volume", 0.8)
    ui.beforeCheckBox.setChecked(True)
    assert panel.layers == ("fixed", "moving", 0.8)
    ui.checkerboardRadioButton.setChecked(True)
    assert panel.layers[:2] == ("MorphSeek checkerboard", None)
    assert ui.fadeWidget.wrapped.isHidden()
    ui.flickerRadioButton.setChecked(True)
    assert panel.layers == ("fixed", "moving", 1.0) and panel.widget.panel.review.timer.isActive()
    panel.widget.panel.review._on_flicker()
    assert panel.layers[2] == 0.0
    panel.widget.panel.review._on_flicker()
    assert panel.layers[2] == 1.0
    panel.widget.exit()
    assert not panel.widget.panel.review.timer.isActive()
    ui.fadeRadioButton.setChecked(True)
    assert panel.layers[2] == 1.0  # while the user is in another module the views stay
    ui.reviewButton.click()
    assert panel.layers == ("fixed", "moving", 0.8)


def slice_views() -> dict[str, tuple[Any, Any]]:
    """Make the slice views of the comparison layout and two of Slicer's own, as the application
    does; return slice and composite node by name.
    """
    from MorphSeekLib import compare

    found = {}
    for name, group in (("Red", 0), *((f"MorphSeek{c}Axial", 51) for c in compare.COLUMNS)):
        slices = slicer.vtkMRMLSliceNode()
        slices.SetLayoutName(name)
        slices.SetViewGroup(group)
        composite = slicer.vtkMRMLSliceCompositeNode()
        composite.SetLayoutName(name)
        found[name] = slicer.mrmlScene.AddNode(slices), slicer.mrmlScene.AddNode(composite)
    return found


def test_comparison_layout(panel: Panel) -> None:
    panel.select_volumes()
    ui = panel.ui
    assert not ui.compareCheckBox.enabled
    panel.register()
    views = slice_views()
    layout = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLayoutNode")
    layout.SetViewArrangement(layout.SlicerLayoutFourUpView)

    def columns() -> list[tuple[Any, ...]]:
        found = []
        for name, (_, view) in views.items():
            ids = view.GetBackgroundVolumeID(), view.GetForegroundVolumeID()
            names = (slicer.mrmlScene.GetNodeByID(i).GetName() if i else None for i in ids)
            if name.startswith("MorphSeek"):
                assert view.GetLinkedControl()
                found.append((*names, round(view.GetForegroundOpacity(), 2)))
        return found

    ui.compareCheckBox.setChecked(True)
    assert layout.GetCurrentLayoutDescription().count("vtkMRMLSliceNode") == 9
    assert columns() == [
        ("fixed", None, 0.0),
        ("fixed", "moving", 1.0),
        ("fixed", "transformed_volume", 1.0),
    ]
    assert ui.reviewModes.wrapped.isHidden() and ui.beforeCheckBox.wrapped.isHidden()
    ui.fadeSlider.setValue(30)
    assert [row[2] for row in columns()] == [0.0, 0.3, 0.3]
    ui.compareCheckBox.setChecked(False)
    assert layout.GetViewArrangement() == layout.SlicerLayoutFourUpView
    assert panel.layers == ("fixed", "transformed_volume", 0.5)
    assert not ui.reviewModes.wrapped.isHidden()


def test_a_layout_that_the_user_chose_stays(panel: Panel) -> None:
    panel.select_volumes()
    panel.register()
    panel.ui.compareCheckBox.setChecked(True)
    layout = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLLayoutNode")
    layout.SetViewArrangement(layout.SlicerLayoutOneUpRedSliceView)
    panel.ui.compareCheckBox.setChecked(False)
    assert layout.GetViewArrangement() == layout.SlicerLayoutOneUpRedSliceView


def test_the_layout_s_views_are_slicer_s(panel: Panel) -> None:
    from MorphSeekLib import compare

    scene = slicer.mrmlScene
    slicer.vtkMRMLSliceNode.AddDefaultSliceOrientationPresets(scene)  # as the application does
    logic = slicer.vtkMRMLLayoutLogic()
    logic.SetMRMLScene(scene)
    assert compare.open_layout(scene) != compare.LAYOUT and compare.is_open(scene)
    slices = scene.GetNodesByClass("vtkMRMLSliceNode")
    made = [slices.GetItemAsObject(i) for i in range(slices.GetNumberOfItems())]
    made = [node for node in made if node.GetViewGroup() == compare.VIEW_GROUP]
    assert sorted((n.GetLayoutName(), n.GetOrientation()) for n in made) == sorted(
        (f"MorphSeek{c}{p}", p) for c in compare.COLUMNS for p in compare.PLANES
    )


def test_worst_places(panel: Panel) -> None:
    panel.select_volumes()
    ui = panel.ui
    assert ui.placeWidget.wrapped.isHidden()
    panel.register()
    views = slice_views()
    assert not ui.placeWidget.wrapped.isHidden() and ui.placeComboBox.count == len(PLACES)

    def place() -> list[tuple[float, ...]]:
        crosshair = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLCrosshairNode")
        found = [crosshair.GetCrosshairRAS()]
        for slices, _ in views.values():
            found.append(tuple(slices.GetSliceToRAS().GetElement(i, 3) for i in range(3)))
        return [tuple(round(v, 3) for v in point) for point in found]

    ui.placeButton.click()
    assert set(place()) == {(-4.0, -5.0, 2.0)}
    ui.placeComboBox.setCurrentIndex(1)
    ui.placeComboBox.activated.emit(1)
    assert set(place()) == {(-1.0, -2.0, 3.0)}
    ui.placeButton.click()
    assert set(place()) == {(-4.0, -5.0, 2.0)} and ui.placeComboBox.currentIndex == 0


def test_a_result_may_have_no_places(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PLACES", [])
    panel.select_volumes()
    panel.register()
    assert panel.ui.placeWidget.wrapped.isHidden()


def test_a_result_that_comes_in_another_module_is_shown_on_return(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedRegistration, "script", [[]])
    panel.select_volumes()
    panel.ui.flickerRadioButton.setChecked(True)
    panel.ui.registerButton.click()
    panel.widget.exit()
    panel.wait(lambda: panel.widget.panel.registration is None)
    assert panel.layers == (None, None, 0.0) and not panel.widget.panel.review.timer.isActive()
    panel.widget.enter()
    assert (
        panel.layers == ("fixed", "transformed_volume", 1.0)
        and panel.widget.panel.review.timer.isActive()
    )
    panel.widget.exit()
    panel.widget.enter()
    # only once: a result that the user has seen is shown by the Review button
    assert not panel.widget.panel.review.timer.isActive()


def test_a_new_result_is_shown_itself(panel: Panel) -> None:
    panel.select_volumes()
    panel.register()
    panel.ui.beforeCheckBox.setChecked(True)
    panel.register()
    assert (
        panel.layers[:2] == ("fixed", "transformed_volume") and not panel.ui.beforeCheckBox.checked
    )


def test_review_needs_a_transformed_volume(panel: Panel) -> None:
    panel.select_volumes()
    panel.ui.transformedVolumeCheckBox.setChecked(False)
    panel.register()
    assert (
        not panel.ui.reviewButton.enabled and "transformed volume" in panel.ui.reviewButton.toolTip
    )
    assert panel.layers == (None, None, 0.0)
    assert panel.parameters.last_transform.GetName() == "transform"


def test_checkerboard_is_made_of_both_volumes(panel: Panel) -> None:
    shape = (16, 16, 32)
    fixed, other = volume("fixed", shape=shape), volume("other", shape=shape)
    for node, (window, level) in ((fixed, (200.0, 100.0)), (other, (50.0, 10.0))):
        node.SetSpacing(2.0, 2.0, 1.0)
        node.GetDisplayNode().AutoWindowLevelOff()
        node.GetDisplayNode().SetWindowLevel(window, level)
    slicer.util.updateVolumeFromArray(fixed, np.full(shape, 60.0, np.float32))
    slicer.util.updateVolumeFromArray(other, np.full(shape, 20.0, np.float32))
    board = checkerboard(fixed, other, squares=4)
    # 64 mm along x: cubes of 16 mm, that is 8 voxels of 2 mm along x and y and 16 of 1 mm along z.
    # (20 - 10) / 50 of a window of 200 at 100: 140.
    expected = np.indices(shape)
    odd = (expected[0] // 16 + expected[1] // 8 + expected[2] // 8) % 2
    assert np.array_equal(slicer.util.arrayFromVolume(board), np.where(odd, 140.0, 60.0))
    assert board.GetSpacing() == fixed.GetSpacing() and not board.GetSaveWithScene()
    assert checkerboard(fixed, other) is board


def test_checkerboard_of_another_grid_under_a_transform(panel: Panel) -> None:
    fixed, other = volume("fixed", shape=(8, 8, 8)), volume("other", shape=(4, 4, 4))
    slicer.util.updateVolumeFromArray(fixed, np.zeros((8, 8, 8), np.float32))
    slicer.util.updateVolumeFromArray(other, np.ones((4, 4, 4), np.float32))
    other.SetSpacing(2, 2, 2)
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    matrix = slicer.util.vtkMatrixFromArray(
        np.array([[1.0, 0, 0, 30], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    )
    transform.SetMatrixTransformToParent(matrix)
    for node in (fixed, other):
        node.GetDisplayNode().AutoWindowLevelOff()
        node.GetDisplayNode().SetWindowLevel(1.0, 0.5)
        node.SetAndObserveTransformNodeID(transform.GetID())
    board = checkerboard(fixed, other, squares=2)
    assert board.GetOrigin() == (30.0, 0.0, 0.0) and board.GetTransformNodeID() is None
    array = slicer.util.arrayFromVolume(board)
    assert array[1, 1, 1] == 0 and array[1, 1, 5] == 1
    # the user's nodes are unchanged
    assert fixed.GetTransformNodeID() == other.GetTransformNodeID() == transform.GetID()


def test_checkerboard_of_integers_of_64_bits(panel: Panel) -> None:
    import vtk

    fixed, other = volume("fixed", shape=(8, 8, 8)), volume("other", shape=(8, 8, 8))
    for value, node in enumerate((fixed, other)):
        node.GetImageData().AllocateScalars(vtk.VTK_LONG, 1)
        slicer.util.arrayFromVolume(node)[:] = value
        node.GetDisplayNode().AutoWindowLevelOff()
        node.GetDisplayNode().SetWindowLevel(1.0, 0.5)
    board = slicer.util.arrayFromVolume(checkerboard(fixed, other, squares=2))
    assert board[0, 0, 0] == 0 and board[0, 0, 4] == 1


# ----------------------------------------------------------------------------------------- transfer


def test_transfer_afterwards(panel: Panel) -> None:
    import vtk

    ui = panel.ui
    panel.select_volumes()
    points = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "points")
    points.AddControlPoint(1.0, 2.0, 3.0)
    assert (ui.transferButton.enabled, ui.transferButton.toolTip) == (
        False,
        "Select moving labels or points",
    )
    ui.landmarksSelector.setCurrentNode(points)
    assert (ui.transferButton.enabled, ui.transferButton.toolTip) == (
        False,
        "Register first, or select a transform under Outputs",
    )
    grid = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLGridTransformNode", "shift")
    shift = vtk.vtkTransform()
    shift.Translate(-10, 0, 0)  # from the parent: fixed -> moving
    grid.SetAndObserveTransformFromParent(shift)
    ui.transformSelector.setCurrentNode(grid)
    assert ui.transferButton.enabled
    ui.transferButton.click()
    (made,) = [
        node
        for node in slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
        if node is not points
    ]
    assert (
        made.GetNthControlPointPosition(0) == pytest.approx((11.0, 2.0, 3.0))
        and not panel.said.errors
    )
    assert "carried over: points (registered)" in ui.logTextEdit.plainText
    outputs.refer(grid, panel.parameters.fixed, panel.parameters.moving)
    panel.widget.panel.update()
    assert ui.transferButton.enabled
    ui.movingSelector.setCurrentNode(volume("another patient"))
    assert not ui.transferButton.enabled and ui.transferButton.toolTip == (
        "shift is a transform of moving: select that volume, or another transform under Outputs"
    )


# ---------------------------------------------------------------------------- the life of the scene


def test_leaving_the_module_keeps_it_running_and_closing_the_scene_ends_it(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedRegistration, "script", [[]] * 1000)
    panel.select_volumes()
    panel.ui.registerButton.click()
    panel.widget.exit()
    panel.widget.enter()
    registration = ScriptedRegistration.made[-1]
    assert registration.running and panel.ui.registerButton.text == "Cancel"
    slicer.mrmlScene.Clear()
    assert registration.state == "cancelled" and not panel.widget.panel.timer.isActive()
    assert (
        panel.ui.registerButton.text == "Register"
        and panel.ui.statusLabel.text == "Select the fixed and the moving volume"
    )
    panel.select_volumes()  # the panel works on the new scene
    assert panel.ui.registerButton.enabled


def test_a_scene_closed_while_the_package_is_asked_does_not_stop_the_question(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MorphSeekLib.process, "describe", lambda: time.sleep(0.3) or DESCRIPTION)
    import MorphSeek

    widget = MorphSeek.MorphSeekWidget()
    widget.setup()
    widget.enter()
    slicer.mrmlScene.Clear()
    end = time.monotonic() + 10
    while widget.panel.package.asking is not None and time.monotonic() < end:
        stand_ins.application().processEvents()
    assert "NVIDIA H100" in widget.ui.deviceLabel.text
    widget.cleanup()


TABLE = [
    {
        "name": "search",
        "label": "Search",
        "type": "string",
        "default": "auto",
        "choices": ["auto", "on", "off"],
        "help": "On the panel already.",
    },
    {
        "name": "similarity",
        "label": "Similarity",
        "type": "string",
        "default": "auto",
        "choices": ["auto", "ncc", "mind"],
        "help": "A menu.",
    },
    {
        "name": "foo",
        "label": "Half foo",
        "type": "int",
        "default": 7,
        "min": 3,
        "max": 9,
        "help": "Of a newer engine.",
    },
    {
        "name": "tau",
        "type": "float",
        "default": 1,
        "min": 0,
        "max": 100,
        "help": "A number, of an engine without labels.",
    },
    {"name": "cache", "label": "Cache", "type": "string", "default": "", "help": "A text."},
]


def test_every_option_of_the_engine_is_on_the_panel(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MorphSeekLib.process, "describe", lambda: {**DESCRIPTION, "options": TABLE})
    panel = Panel(said)
    made = {name: widget for name, (widget, _) in panel.widget.panel.options.widgets.items()}
    assert [*made] == ["similarity", "foo", "tau", "cache"]
    form = panel.ui.furtherOptionsGroupBox.layout()
    assert [form.labelForField(widget).text() for widget in made.values()] == [
        "Similarity:",
        "Half foo:",
        "tau:",
        "Cache:",
    ]
    assert made["foo"].toolTip() == "Of a newer engine." and (
        made["foo"].minimum(),
        made["foo"].maximum(),
    ) == (3, 9)

    def asked() -> dict[str, Any]:
        return request_of(panel.parameters).options()

    before = asked()
    made["similarity"].setCurrentText("mind")
    made["foo"].setValue(8)
    made["tau"].setText(" 0.5 ")
    made["cache"].setText("/somewhere")
    assert asked() == {**before, "similarity": "mind", "foo": 8, "tau": 0.5, "cache": "/somewhere"}
    made["tau"].setText("much")  # the engine's message says what it expects
    assert asked()["tau"] == "much"
    made["similarity"].setCurrentIndex(0)
    made["foo"].setValue(7)
    made["tau"].setText("")
    made["cache"].setText(" ")
    assert asked() == before

    # A scene that is loaded sets the parameter in this way.
    values = '{"similarity": "ncc", "foo": 3, "tau": 2.0, "cache": "here"}'
    panel.parameters.further_options = values
    assert (
        made["similarity"].currentText(),
        made["foo"].value(),
        made["tau"].text(),
        made["cache"].text(),
    ) == ("ncc", 3, "2.0", "here")
    panel.widget.cleanup()


def test_volumes_that_go_while_it_runs(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedRegistration, "script", [[]])
    panel.select_volumes()
    panel.ui.registerButton.click()
    slicer.mrmlScene.RemoveNode(panel.parameters.fixed)
    panel.wait(lambda: panel.widget.panel.registration is None)
    assert (
        panel.parameters.last_fixed is None
        and not panel.ui.reviewButton.enabled
        and not panel.widget.panel.review.active
    )


def test_cleanup_ends_everything(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedRegistration, "script", [[]] * 1000)
    panel = Panel(said)
    panel.select_volumes()
    panel.ui.registerButton.click()
    node = panel.parameters.parameterNode
    panel.widget.cleanup()
    assert ScriptedRegistration.made[-1].state == "cancelled" and not panel.widget.Observations
    node.SetParameter("preset", "Fast")
    assert panel.ui.presetComboBox.currentText == "Automatic"  # no longer connected


def test_scene_save_and_reload_keeps_the_parameters(panel: Panel, tmp_path: Path) -> None:
    expected = operate(panel)
    names = {
        name: value.GetName() if isinstance(value, slicer.vtkMRMLNode) else value
        for name, value in expected.items()
        if name not in ("transfer", "channels")
    }
    slicer.mrmlScene.Commit(str(tmp_path / "scene.mrml"))
    slicer.mrmlScene.Clear()
    assert panel.parameters.preset == "Automatic" and panel.parameters.fixed is None
    slicer.mrmlScene.SetURL(str(tmp_path / "scene.mrml"))
    slicer.mrmlScene.Import()
    request = request_of(panel.parameters)
    assert {
        n: v.GetName() if isinstance(v, slicer.vtkMRMLNode) else v
        for n, v in vars(request).items()
        if n not in ("transfer", "channels")
    } == names
    assert [node.GetName() for node in request.transfer] == ["moving_labels", "points"]
    assert [n.GetName() for n in request.channels[0]] == ["second fixed", "second moving"]
    assert (
        panel.ui.presetComboBox.currentText == "Best"
        and panel.ui.landmarksSelector.currentNode().GetName() == "points"
    )


def test_a_scene_of_another_version_opens(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters of a scene that this version does not know get their defaults; others stay."""
    monkeypatch.setattr(MorphSeekLib.process, "describe", lambda: {**DESCRIPTION, "options": TABLE})
    panel = Panel(said)
    node, before = panel.parameters.parameterNode, request_of(panel.parameters)
    slicer.mrmlScene.InvokeEvent(slicer.mrmlScene.StartImportEvent)
    for name, text in {
        "preset": "Knee",
        "initial": "quick",
        "device": "CPU",
        "further_options": '{"similarity": "newest", "foo": "many", "gone": 3, "tau": 0.5}',
        "last_result": '{"verdict": {"grade": "splendid"}}',
        "last_places": '[{"place": 1}]',
    }.items():
        node.SetParameter(name, text)
    slicer.mrmlScene.InvokeEvent(slicer.mrmlScene.EndImportEvent)
    p = panel.parameters
    assert (p.preset, p.initial, p.last_result, p.last_places) == (
        "Automatic", "as the preset", "", "[]"
    )  # fmt: skip
    assert request_of(p).options() == {**before.options(), "device": "cpu", "tau": 0.5}
    assert "does not take it: similarity, foo, gone" in panel.ui.logTextEdit.plainText
    assert panel.ui.statusLabel.text == "Select the fixed and the moving volume"
    panel.widget.cleanup()


# ---------------------------------------------------------------------- the package and the imports


def test_devices_found(panel: Panel) -> None:
    assert panel.ui.deviceLabel.text == "Found: processor (8 cores), graphics card (NVIDIA H100)"
    assert panel.ui.installFrame.wrapped.isHidden()


def test_a_missing_package_is_said_and_installed_after_asking(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from MorphSeekLib import install

    state = {"installed": False}
    pip: list[list[str]] = []

    def describe() -> dict[str, Any]:
        if not state["installed"]:
            raise RuntimeError("No module named morphseek")
        return DESCRIPTION

    def pip_install(arguments: list[str]) -> None:
        pip.append(arguments)
        state["installed"] = True

    monkeypatch.setattr(MorphSeekLib.process, "describe", describe)
    monkeypatch.setattr(install, "installed", lambda: "0.1.0" if state["installed"] else "")
    monkeypatch.setattr(install, "missing", lambda *package: [])
    monkeypatch.setattr(slicer.util, "pip_install", pip_install)
    panel = Panel(said)
    panel.select_volumes()
    ui = panel.ui
    assert (
        not ui.installFrame.wrapped.isHidden()
        and "No module named morphseek" in ui.installLabel.text
    )
    assert not ui.registerButton.enabled and ui.statusLabel.text.startswith(
        "Install the MorphSeek package first"
    )
    said.confirm = False
    ui.installButton.click()
    assert len(said.questions) == 1 and not pip
    said.confirm = True
    monkeypatch.setattr(stand_ins.QFileDialog, "answer", "/usb/morphseek-0.1.0.whl")
    ui.installFileButton.click()
    assert (
        pip == [["--no-deps", "/usb/morphseek-0.1.0.whl"]]
        and "/usb/morphseek-0.1.0.whl" in said.questions[-1]
    )
    assert said.steps == [0, "Installing /usb/morphseek-0.1.0.whl ...", "closed"]
    panel.wait(lambda: panel.widget.panel.package.asking is None)
    assert ui.installFrame.wrapped.isHidden() and ui.registerButton.enabled and not said.errors
    panel.widget.cleanup()


def test_a_package_that_is_there_and_does_not_run_is_installed_anew(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from MorphSeekLib import install

    pip: list[list[str]] = []

    def describe() -> dict[str, Any]:
        if not pip:
            raise RuntimeError("wrong ELF class")
        return DESCRIPTION

    monkeypatch.setattr(MorphSeekLib.process, "describe", describe)
    monkeypatch.setattr(install, "installed", lambda: "0.1.0")
    monkeypatch.setattr(install, "missing", lambda *package: [])
    monkeypatch.setattr(slicer.util, "pip_install", pip.append)
    panel = Panel(said)
    assert "wrong ELF class" in panel.ui.installLabel.text
    panel.ui.installButton.click()
    assert len(said.questions) == 1 and pip == [["--no-deps", "--force-reinstall", "morphseek"]]
    panel.wait(lambda: panel.widget.panel.package.asking is None)
    assert panel.ui.installFrame.wrapped.isHidden() and not said.errors
    panel.widget.cleanup()


def test_an_installation_that_fails_is_a_message(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from MorphSeekLib import install

    def pip_install(arguments: list[str]) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(install, "installed", lambda: "")
    monkeypatch.setattr(install, "why", lambda arguments: "")
    monkeypatch.setattr(slicer.util, "pip_install", pip_install)
    panel.ui.installButton.click()
    assert len(panel.said.errors) == 1 and "no network" in panel.said.errors[0]
    assert panel.said.steps[-1] == "closed"


def test_sample_data_is_offered(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module Sample Data finds the pair and opens no address for it."""
    offered: list[dict[str, Any]] = []

    class SampleDataLogic:
        @staticmethod
        def registerCustomSampleDataSource(**source: Any) -> None:
            offered.append(source)

    module = types.ModuleType("SampleData")
    module.SampleDataLogic = SampleDataLogic
    monkeypatch.setitem(sys.modules, "SampleData", module)
    import MorphSeek

    MorphSeek.MorphSeek(types.SimpleNamespace())
    ((signal, register),) = said.connected
    assert signal == "startupCompleted()" and offered == []
    register()
    (source,) = offered
    assert source["category"] == "MorphSeek" and Path(source["thumbnailFileName"]).is_file()
    # the module Sample Data refuses lists here
    assert all(isinstance(source[name], str) for name in ("uris", "fileNames", "nodeNames"))
    assert source["customDownloader"] is MorphSeek.makeSampleData


def test_a_library_that_cannot_be_imported_leaves_a_panel_that_says_so(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "MorphSeekLib.panel", None)
    import MorphSeek

    widget = MorphSeek.MorphSeekWidget()
    widget.setup()
    (label,) = widget.parent.findChildren(QtWidgets.QLabel)
    assert label.text().startswith("The module could not be loaded: ModuleNotFoundError")
    widget.enter()
    widget.exit()
    widget.cleanup()


def test_reloading_the_module_reloads_its_library(panel: Panel) -> None:
    known = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "MorphSeekLib"}
    assert "MorphSeekLib.panel" in known
    try:
        panel.widget.onReload()
        assert "MorphSeek" in stand_ins.RELOADED and not known.keys() & sys.modules.keys()
    finally:
        sys.modules.update(known)


# ----------------------------------------------------------------------------------------- for real


def test_the_module_s_own_self_test_with_the_real_worker() -> None:
    with stand_ins.install():
        import MorphSeek

        test = MorphSeek.MorphSeekTest()
        test.runTest()


def test_the_examples_of_the_user_s_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    page = (stand_ins.MODULE.parent / "README.md").read_text(encoding="utf-8")
    script, study = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with stand_ins.install():
        for name, shift in (("MR", 0), ("CT", 2)):
            z, y, x = np.indices((24, 24, 24)) - 12
            node = volume(name, shape=(24, 24, 24))
            body = 100.0 * (((x - shift) / 9) ** 2 + (y / 7) ** 2 + (z / 10) ** 2 < 1) + 50.0 * (
                (x - shift - 3) ** 2 + y**2 + z**2 < 9
            )
            slicer.util.updateVolumeFromArray(node, body.astype(np.float32))
            node.SetSpacing(4, 4, 4)
            MorphSeekLib.batch.save(node, tmp_path / f"{name}.nrrd")
        slicer.util.updateVolumeFromArray(
            volume("CT organs", "vtkMRMLLabelMapVolumeNode"), (body > 120).astype(np.int16)
        )
        slicer.util.getNode("CT organs").SetSpacing(4, 4, 4)
        variables = {"slicer": slicer}
        exec(script, variables)
        assert variables["moved_organs"].GetName() == "CT organs (registered)" and variables[
            "transformed"
        ].GetImageData().GetDimensions() == (24, 24, 24)
        before, after, folding, grade, *places = capsys.readouterr().out.split()
        assert float(after) > float(before) and float(folding) == 0
        assert grade in ("good", "check", "failed") and places
        monkeypatch.chdir(tmp_path)
        Path("study.csv").write_text("id,fixed,moving\nanna,MR.nrrd,CT.nrrd\n")
        exec(study, variables)
        assert (
            Path("results/anna/transformed_volume.nii.gz").is_file()
            and Path("results/anna/transform.h5").is_file()
            and variables["rows"][0]["error"] == ""
        )


def test_through_the_buttons_with_the_real_worker() -> None:
    with stand_ins.install() as said:
        panel = Panel(said)
        assert "cpu" in panel.widget.panel.package.description["devices"]
        panel.select_volumes()
        panel.ui.searchComboBox.setCurrentText("do not search")
        panel.ui.modelLineEdit.setText("none")
        panel.ui.refineSpinBox.setValue(2)
        panel.ui.registerButton.click()
        panel.wait(lambda: panel.widget.panel.registration is None, 60)
        assert panel.ui.statusLabel.text.startswith("Done in") and not said.errors
        assert panel.parameters.last_transform.IsA("vtkMRMLGridTransformNode")
        assert slicer.util.arrayFromVolume(panel.parameters.last_transformed_volume).shape == (
            8,
            10,
            12,
        )
        panel.widget.cleanup()


def test_the_worker_is_heard_although_slicer_s_event_loop_keeps_python_s_lock() -> None:
    interval = sys.getswitchinterval()
    with stand_ins.install():
        panel = Panel(None)
        panel.select_volumes()
        panel.parameters.model, panel.parameters.search, panel.parameters.refine = (
            "none",
            "do not search",
            0,
        )
        sys.setswitchinterval(1000)  # other threads get the lock only if this one releases it
        try:
            panel.ui.registerButton.click()
            end = time.monotonic() + 60
            while panel.widget.panel.registration is not None and time.monotonic() < end:
                panel.widget.panel.poll()
                until = time.monotonic() + 0.05
                while time.monotonic() < until:
                    pass
        finally:
            sys.setswitchinterval(interval)
        assert panel.ui.statusLabel.text.startswith("Done in")
        panel.widget.cleanup()
