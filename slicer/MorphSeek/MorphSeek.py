"""The MorphSeek module of 3D Slicer: its panel, and the logic that the panel and scripts call.

The widget moves values between the panel (Resources/UI/MorphSeek.ui) and the parameter node. The
logic turns the parameter node into a MorphSeekLib.request.RegistrationRequest, whose fields have
the same names. MorphSeekLib does the work. It is imported only where it is used: if the import
fails, the panel still opens and says why.
"""

import concurrent.futures
import html
import json
import time
from typing import Annotated, Any, Optional, Union

import qt
import slicer
import vtk
from slicer import (
    vtkMRMLGridTransformNode,
    vtkMRMLLabelMapVolumeNode,
    vtkMRMLMarkupsCurveNode,
    vtkMRMLMarkupsFiducialNode,
    vtkMRMLMarkupsLineNode,
    vtkMRMLScalarVolumeNode,
    vtkMRMLSegmentationNode,
    vtkMRMLTransformNode,
)
from slicer.parameterNodeWrapper import Choice, WithinRange, parameterNodeWrapper
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleLogic,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)
from slicer.util import VTKObservationMixin

HOMEPAGE = "https://github.com/morphseek/morphseek"
POLL_MS = 100
# Slicer's event loop holds Python's global lock. Each poll sleeps so long, so that other threads
# (the worker's reader) can run.
YIELD_S = 0.005
FLICKER_MS = 600
MOST = 2**31 - 1  # the largest value of a spin box

# What the menus show. PRESETS repeats the keys of MorphSeekLib.request.PRESETS, so that the menu is
# there even if that import fails. The others map to the engine's values; None: as the preset says.
PRESETS = ["Automatic", "Brain MR", "Abdomen CT", "MR <- CT", "Fast", "Best"]
AS_PRESET = "as the preset"
INITIAL = {
    AS_PRESET: None,
    "none": "none",
    "centres of mass": "com",
    "rigid": "rigid",
    "affine": "affine",
}
SEARCH = {AS_PRESET: None, "automatic": "auto", "search": "on", "do not search": "off"}
# A verdict's sign, what it asks of the reader, and its colours (background, text), as report.html
# has them; an older package gives no verdict.
VERDICTS = {
    "good": ("\u2713", "nothing that was measured speaks against the result", "#d9f0d3", "#1b5e20"),
    "check": ("!", "look at the result before you use it", "#fff3c4", "#6b4e00"),
    "failed": ("\u2715", "do not use the result", "#fbd5d1", "#8a1c12"),
}
DEVICE = {"automatic": "auto", "CPU": "cpu", "GPU (CUDA)": "cuda", "GPU (TensorRT)": "tensorrt"}

# Written with Optional and Union: the parameter node knows no `A | B`.
Labels = Optional[Union[vtkMRMLSegmentationNode, vtkMRMLLabelMapVolumeNode]]
Markups = Optional[
    Union[vtkMRMLMarkupsFiducialNode, vtkMRMLMarkupsLineNode, vtkMRMLMarkupsCurveNode]
]


def registerSampleData():
    """Offer the made-up pair in the module Sample Data. It is computed, not downloaded, and leaves
    nothing behind but its nodes.
    """
    import os

    import SampleData

    icons = os.path.join(os.path.dirname(__file__), "Resources", "Icons")
    SampleData.SampleDataLogic.registerCustomSampleDataSource(
        category="MorphSeek",
        sampleName="MorphSeekTorso",
        uris=HOMEPAGE,  # for the list: no address is opened
        fileNames="MorphSeekTorso.nrrd",
        nodeNames="MorphSeekTorso",
        thumbnailFileName=os.path.join(icons, "MorphSeekTorso.png"),
        customDownloader=makeSampleData,
    )


def makeSampleData(source=None):
    """Load the made-up pair: an MR-like and a CT-like torso, and their organs as label maps."""
    from MorphSeekLib.sample import load

    with slicer.util.tryWithErrorDisplay("The made-up pair could not be computed."):
        with slicer.util.WaitCursor():
            return load(slicer.util.loadVolume, slicer.util.loadLabelVolume)


class MorphSeek(ScriptedLoadableModule):
    """What the module list shows."""

    def __init__(self, parent):
        ScriptedLoadableModule.__init__(self, parent)
        self.parent.title = "MorphSeek"
        self.parent.categories = ["Registration"]
        self.parent.dependencies = []
        self.parent.contributors = ["The MorphSeek authors"]
        self.parent.helpText = (
            "Deformable registration: brings a moving volume onto a fixed one, with its"
            " segmentations and landmarks. "
            "For research use; not a medical device. "
            f'<a href="{HOMEPAGE}/tree/main/slicer">Documentation</a>'
        )
        self.parent.acknowledgementText = (
            "An implementation of multi-step latent policy search for registration. Apache License"
            " 2.0."
        )
        slicer.app.connect("startupCompleted()", registerSampleData)


@parameterNodeWrapper
class MorphSeekParameterNode:
    """The panel's choices, saved with the scene. The names are those of RegistrationRequest;
    comments tell what differs.
    """

    fixed: vtkMRMLScalarVolumeNode
    moving: vtkMRMLScalarVolumeNode
    preset: Annotated[str, Choice(PRESETS)] = PRESETS[0]

    # make_X says whether output X is wanted; X is the node to fill, None for a new one.
    make_transformed_volume: bool = True
    transformed_volume: vtkMRMLScalarVolumeNode
    make_transform: bool = True
    transform: vtkMRMLGridTransformNode
    make_inverse_transform: bool = False
    inverse_transform: vtkMRMLGridTransformNode
    make_displacement_magnitude: bool = False
    displacement_magnitude: vtkMRMLScalarVolumeNode
    make_jacobian: bool = False
    jacobian: vtkMRMLScalarVolumeNode
    make_uncertainty: bool = False
    uncertainty: vtkMRMLScalarVolumeNode

    # Labels and landmarks of the moving side are transferred; with fixed_labels, Dice is measured
    # as well.
    moving_labels: Labels
    fixed_labels: Labels
    labels_drive: bool = False
    landmarks: Markups

    fixed_mask: Labels
    moving_mask: Labels
    rigid_regions: Labels
    fixed_landmarks: vtkMRMLMarkupsFiducialNode
    moving_landmarks: vtkMRMLMarkupsFiducialNode
    # a second pair of volumes that drives the registration: RegistrationRequest.channels
    second_fixed: vtkMRMLScalarVolumeNode
    second_moving: vtkMRMLScalarVolumeNode
    initial_transform: vtkMRMLTransformNode
    initial: Annotated[str, Choice(list(INITIAL))] = AS_PRESET
    search: Annotated[str, Choice(list(SEARCH))] = AS_PRESET
    smoothness: str = ""  # auto, low, high or a number of mm; empty: as the preset
    model: str = ""  # empty: as the preset
    steps: Annotated[int, WithinRange(0, 16)] = 0
    trajectories: Annotated[int, WithinRange(1, 64)] = 1
    refine: Annotated[int, WithinRange(-1, 1000)] = -1  # -1: as the preset
    device: Annotated[str, Choice(list(DEVICE))] = "automatic"
    threads: Annotated[int, WithinRange(0, 1024)] = 0
    field_spacing: Annotated[float, WithinRange(0.0, 20.0)] = 0.0
    further_options: str = "{}"  # JSON; its widgets are made from the engine's own table

    # The last result, for Review and Transfer: no widget shows these.
    last_fixed: vtkMRMLScalarVolumeNode
    last_moving: vtkMRMLScalarVolumeNode
    last_transformed_volume: vtkMRMLScalarVolumeNode
    last_transform: vtkMRMLGridTransformNode
    last_places: str = "[]"  # JSON of MorphSeekLib.registration.Registration.places


class MorphSeekLogic(ScriptedLoadableModuleLogic):
    """The module's functions, without its panel.

    >>> from MorphSeek import MorphSeekLogic
    >>> logic = MorphSeekLogic()
    >>> registration = logic.register(getNode("ct1"), getNode("ct2"), preset="Abdomen CT")
    >>> registration.nodes["transformed_volume"], registration.result["njd_percent"]
    """

    def getParameterNode(self) -> MorphSeekParameterNode:
        return MorphSeekParameterNode(super().getParameterNode())

    def package(self) -> dict[str, Any]:
        """Return what the installed Python package offers: version, options, models, devices.
        Raises if it does not run.
        """
        from MorphSeekLib.process import describe

        return describe()

    def request(self, parameters: MorphSeekParameterNode):
        """Return the RegistrationRequest that the parameter node stands for."""
        from MorphSeekLib.request import OUTPUTS, RegistrationRequest

        p = parameters
        same = (
            "fixed",
            "moving",
            "preset",
            "fixed_mask",
            "moving_mask",
            "rigid_regions",
            "fixed_landmarks",
            "moving_landmarks",
            "initial_transform",
            "trajectories",
            "threads",
            "field_spacing",
            "fixed_labels",
            "labels_drive",
        )
        second = (p.second_fixed, p.second_moving)
        return RegistrationRequest(
            **{name: getattr(p, name) for name in same},
            **{
                name: (getattr(p, name) or True) if getattr(p, f"make_{name}") else None
                for name in OUTPUTS
            },
            initial=INITIAL[p.initial],
            search=SEARCH[p.search],
            device=DEVICE[p.device],
            smoothness=p.smoothness.strip() or None,
            model=p.model.strip() or None,
            further_options=json.loads(p.further_options),
            steps=p.steps,
            refine=None if p.refine < 0 else p.refine,
            channels=[] if second == (None, None) else [second],
            transfer=[node for node in (p.moving_labels, p.landmarks) if node is not None],
            moving_labels=p.moving_labels if p.fixed_labels is not None else None,
        )

    def loadPreset(self, path, parameters: MorphSeekParameterNode, package: dict[str, Any]):
        """Take the options of a preset's file; options that it does not name get their default.
        `package` is what :meth:`package` returns.

        Raises
        ------
        OSError, ValueError
            The file cannot be read, or is no preset of these options: nothing was changed.
        """
        from MorphSeekLib import presets

        fields = {
            "initial": None, "search": None, "device": "auto", "smoothness": "", "model": "",
            "steps": 0, "trajectories": 1, "refine": -1, "threads": 0, "uncertainty": False,
            **presets.load(path, package),
        }  # fmt: skip
        for name, words in (("initial", INITIAL), ("search", SEARCH), ("device", DEVICE)):
            shown = {value: word for word, value in words.items()}
            if fields[name] not in shown:
                raise ValueError(f"{path}: this panel cannot show {name} {fields[name]!r}")
            fields[name] = shown[fields[name]]
        fields["make_uncertainty"] = fields.pop("uncertainty")
        fields["further_options"] = json.dumps(fields["further_options"])
        for name, value in fields.items():
            setattr(parameters, name, value)

    def start(self, request):
        """Start a RegistrationRequest; return its running Registration, to be polled."""
        from MorphSeekLib.registration import Registration

        registration = Registration(request, slicer.mrmlScene)
        registration.start()
        return registration

    def register(self, fixed, moving, **fields):
        """Register and wait for the result. For many pairs see MorphSeekLib.batch.

        Parameters
        ----------
        fixed, moving : vtkMRMLScalarVolumeNode
        **fields
            Fields of RegistrationRequest: preset, transfer, inverse_transform=True and so on.

        Returns
        -------
        Registration
            The finished registration, with its ``nodes`` and its ``result``.

        Raises
        ------
        ValueError
            The request cannot run; the message says why.
        MorphSeekLib.registration.RegistrationError
            The registration failed.
        """
        from MorphSeekLib.registration import register
        from MorphSeekLib.request import RegistrationRequest

        return register(
            RegistrationRequest(fixed=fixed, moving=moving, **fields), scene=slicer.mrmlScene
        )

    def transfer(self, nodes, transform, fixed) -> list:
        """Bring segmentations, label maps and markups of the moving side onto the fixed side;
        return the new nodes.
        """
        from MorphSeekLib.transfer import transfer

        slicer.mrmlScene.SaveStateForUndo()
        return [transfer(node, transform, fixed) for node in nodes]

    def checkerboard(self, fixed, other, squares: int = 8):
        """Return a hidden volume, on the fixed grid, of cubes taken in turn from the fixed volume
        and from another.

        The other volume's window is mapped onto the fixed volume's. The longest side has `squares`
        cubes. The node is made once and reused, and it is not saved with the scene.
        """
        import numpy as np
        from MorphSeekLib import geometry, transfer

        scratch = slicer.vtkMRMLScene()
        reference = transfer.on_scratch(scratch, fixed)
        resampled = slicer.vtkSlicerVolumesLogic.ResampleVolumeToReferenceVolume(
            geometry.copy_volume(scratch, other), reference
        )
        a, b = (geometry.array_of(volume).astype(np.float32) for volume in (reference, resampled))
        (window, level), (other_window, other_level) = (
            _window(node, array) for node, array in ((fixed, a), (other, b))
        )
        b = (b - other_level) * (window / other_window) + level
        spacing = np.array(reference.GetSpacing()[::-1])
        cube = np.maximum(
            np.round((np.array(a.shape) * spacing).max() / squares / spacing), 1
        ).astype(int)
        z, y, x = np.ogrid[tuple(slice(n) for n in a.shape)]
        odd = (z // cube[0] + y // cube[1] + x // cube[2]) % 2 == 1
        node = slicer.mrmlScene.GetFirstNodeByName("MorphSeek checkerboard")
        if node is None:
            node = slicer.mrmlScene.AddNewNodeByClass(
                "vtkMRMLScalarVolumeNode", "MorphSeek checkerboard"
            )
            node.SetHideFromEditors(True)
            node.SetSaveWithScene(False)
            node.CreateDefaultDisplayNodes()
        slicer.util.updateVolumeFromArray(node, np.where(odd, b, a))
        node.CopyOrientation(reference)
        node.GetDisplayNode().AutoWindowLevelOff()
        node.GetDisplayNode().SetWindowLevel(window, level)
        return node


def _window(volume, array) -> tuple[float, float]:
    """Return window and level of a volume's display; without a display, of its range of values."""
    display = volume.GetDisplayNode()
    if display is not None and display.GetWindow() > 0:
        return display.GetWindow(), display.GetLevel()
    low, high = float(array.min()), float(array.max())
    return max(high - low, 1e-6), (high + low) / 2


class MorphSeekWidget(ScriptedLoadableModuleWidget, VTKObservationMixin):
    """The panel: shows the parameter node, the state of the one running registration, and the last
    result.
    """

    def __init__(self, parent=None):
        ScriptedLoadableModuleWidget.__init__(self, parent)
        VTKObservationMixin.__init__(self)  # the base class does not call it
        self.logic = None
        self._parameters = None
        self._guiTag = None
        self._registration = None
        self._outcome = ""  # how the last registration ended, as text
        # what the installed package offers, and the thread that asks for it
        self._package = self._asking = None
        self._packageError = ""
        self._optionWidgets = {}  # by option name; for options without a widget in the .ui file
        self._shownOptions = {}  # by option name, the values that these widgets show
        self._entered = self._reviewing = self._flickered = False
        self._unseen = False  # whether a result came while the user was in another module
        self._layoutBefore = None  # the layout to return to after the comparison
        self._places = None  # the places that placeComboBox lists

    # -------------------------------------------------------------- life of the panel and the scene

    def setup(self):
        ScriptedLoadableModuleWidget.setup(self)
        panel = slicer.util.loadUI(self.resourcePath("UI/MorphSeek.ui"))
        self.layout.addWidget(panel)
        self.ui = slicer.util.childWidgetVariables(panel)
        panel.setMRMLScene(slicer.mrmlScene)
        self.logic = MorphSeekLogic()

        self._pollTimer = qt.QTimer()
        self._pollTimer.setInterval(POLL_MS)
        self._pollTimer.timeout.connect(self.onPoll)
        self._flickerTimer = qt.QTimer()
        self._flickerTimer.setInterval(FLICKER_MS)
        self._flickerTimer.timeout.connect(self.onFlicker)
        self._askTimer = qt.QTimer()
        self._askTimer.setInterval(POLL_MS)
        self._askTimer.timeout.connect(self.onAsked)

        self.addObserver(slicer.mrmlScene, slicer.mrmlScene.StartCloseEvent, self.onSceneStartClose)
        self.addObserver(slicer.mrmlScene, slicer.mrmlScene.EndCloseEvent, self.onSceneEndClose)
        self.addObserver(slicer.mrmlScene, slicer.mrmlScene.EndImportEvent, self.onSceneEndImport)

        ui = self.ui
        ui.installButton.clicked.connect(self.onInstall)
        ui.installFileButton.clicked.connect(self.onInstallFile)
        ui.modelButton.clicked.connect(self.onChooseModel)
        ui.savePresetButton.clicked.connect(self.onSavePreset)
        ui.loadPresetButton.clicked.connect(self.onLoadPreset)
        ui.registerButton.clicked.connect(self.onRegister)
        ui.transferButton.clicked.connect(self.onTransfer)
        ui.reviewButton.clicked.connect(self.onReview)
        ui.fadeSlider.valueChanged.connect(self.onReviewChanged)
        ui.beforeCheckBox.toggled.connect(self.onReviewChanged)
        ui.compareCheckBox.toggled.connect(self.onCompare)
        ui.placeComboBox.activated.connect(self.onGoToPlace)
        ui.placeButton.clicked.connect(self.onGoToWorst)
        for button in (ui.fadeRadioButton, ui.checkerboardRadioButton, ui.flickerRadioButton):
            button.toggled.connect(self.onReviewMode)
        ui.resultTable.horizontalHeader().setSectionResizeMode(0, qt.QHeaderView.Stretch)
        ui.installFrame.setVisible(False)
        ui.progressBar.setVisible(False)
        self._hideWords()
        self.initializeParameterNode()

    def cleanup(self):
        """Clean up when the application closes or the module is reloaded."""
        self._askTimer.stop()
        self._stop()
        self.setParameterNode(None)
        self.removeObservers()

    def enter(self):
        """Update the panel when the user enters this module. A running registration goes on while
        they are in another.
        """
        self._entered = True
        self.initializeParameterNode()
        self._askPackage()
        self.updatePanel()
        if self._unseen:
            self.onReview()

    def exit(self):
        """Leave the slice views alone when the user goes to another module."""
        self._entered = False
        self._endReview()

    def onSceneStartClose(self, caller=None, event=None):
        self._stop()
        self.ui.compareCheckBox.setChecked(False)  # there is nothing left to compare
        self.setParameterNode(None)

    def onSceneEndClose(self, caller=None, event=None):
        self.initializeParameterNode()

    def onSceneEndImport(self, caller=None, event=None):
        """Show the parameters of a scene that was loaded over this one."""
        self.setParameterNode(None)
        self.initializeParameterNode()

    def initializeParameterNode(self):
        if self._parameters is None:
            self.setParameterNode(self.logic.getParameterNode())

    def setParameterNode(self, parameters):
        if self._parameters is not None:
            self._parameters.disconnectGui(self._guiTag)
            self.removeObserver(self._parameters, vtk.vtkCommand.ModifiedEvent, self.updatePanel)
        self._parameters = parameters
        if parameters is not None:
            self._guiTag = parameters.connectGui(self.ui)
            self.addObserver(parameters, vtk.vtkCommand.ModifiedEvent, self.updatePanel)
            self.updatePanel()

    def _stop(self):
        """Stop the worker and the timers."""
        self._pollTimer.stop()
        self._endReview()
        if self._registration is not None:
            self._registration.cancel()
            self._registration = None

    # ------------------------------------------------------------------------- what the panel shows

    def updatePanel(self, caller=None, event=None):
        """Show what can be done now, and why something cannot."""
        p, ui = self._parameters, self.ui
        if p is None:
            return
        self._showFurtherOptions()
        reason, broken, description, stages = "", "", "", []
        try:
            from MorphSeekLib.request import OUTPUTS, PRESETS as presets

            request = self.logic.request(p)
            reason, description, stages = (
                request.validate(),
                presets[p.preset].description,
                request.stages(),
            )
            for name in OUTPUTS:
                self._outputSelector(name).setEnabled(getattr(p, f"make_{name}"))
        except Exception as error:
            broken = f"The module could not be loaded: {type(error).__name__}: {error}"
        ui.presetDescriptionLabel.setText(description)
        ui.stagesLabel.setText(_stages_html(stages))
        self._updateRegisterButton(broken or self._packageProblem() or reason)
        problem = self._transferProblem()
        ui.transferButton.setEnabled(not problem)
        ui.transferButton.setToolTip(
            problem
            or "Carry the labels and landmarks selected above over with the output transform."
        )
        reviewable = p.last_fixed is not None and p.last_transformed_volume is not None
        ui.reviewButton.setEnabled(reviewable)
        ui.reviewButton.setToolTip(
            "Lay the result over the fixed volume."
            if reviewable
            else "Register with a transformed volume as output first."
        )
        ui.compareCheckBox.setEnabled(reviewable and p.last_moving is not None)
        for button in (ui.savePresetButton, ui.loadPresetButton):
            button.setEnabled(self._package is not None)
        self._showPlaces(p.last_places)

    def _showPlaces(self, text: str):
        """List the worst places of the last result, if they have changed."""
        ui = self.ui
        if text != self._places:
            self._places = text
            ui.placeComboBox.clear()
            ui.placeComboBox.addItems([place["text"] for place in json.loads(text)])
        ui.placeWidget.setVisible(ui.placeComboBox.count > 0)

    def _outputSelector(self, name: str):
        first, *rest = name.split("_")
        return getattr(self.ui, first + "".join(word.capitalize() for word in rest) + "Selector")

    def _updateRegisterButton(self, reason: str):
        """Update the button Register, or Cancel while it runs, and the reason if it is disabled."""
        ui, running = self.ui, self._registration is not None
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
            ui.statusLabel.setText(reason or self._outcome or "Ready")

    def _transferProblem(self) -> str:
        p = self._parameters
        if p.moving_labels is None and p.landmarks is None:
            return "Select moving labels or landmarks"
        if self._transferTransform() is None:
            return "Register first, or select a transform under Outputs"
        if p.fixed is None:
            return "Select the fixed volume"
        return ""

    def _transferTransform(self):
        return self._parameters.transform or self._parameters.last_transform

    # --------------------------------------------------------------------------------- registration

    def onRegister(self):
        """Register; or, while that runs, Cancel."""
        if self._registration is not None:
            self._registration.cancel()
            self._end()
            return
        self.ui.logTextEdit.clear()
        self.ui.resultTable.setRowCount(0)
        self._hideWords()
        self._outcome = ""
        self._endReview()
        try:
            self._registration = self.logic.start(self.logic.request(self._parameters))
        except Exception as error:
            self._fail(error)
            return
        self._log("started")
        self._showProgress("Preparing", 0.0, None)
        self._pollTimer.start()
        self.updatePanel()

    def onPoll(self):
        registration = self._registration
        time.sleep(YIELD_S)
        try:
            for event in registration.poll():
                self._showEvent(event)
        except Exception as error:
            registration.cancel()
            self._registration = None
            self._pollTimer.stop()
            self._fail(error)
            return
        if not registration.running:
            self._end()

    def _end(self):
        """Show how the registration ended."""
        registration, self._registration = self._registration, None
        self._pollTimer.stop()
        if registration.state == "failed":
            self._fail(registration.error)
        elif registration.state == "cancelled":
            self._outcome = "Cancelled. Nothing was added to the scene."
            self._log("cancelled")
            self.updatePanel()
        else:
            self._finish(registration)

    def _fail(self, error: Exception):
        self._outcome = f"Not registered. {error}"
        self._log(str(error))
        self.ui.resultCollapsibleButton.setCollapsed(False)
        self.updatePanel()
        slicer.util.errorDisplay(str(error), windowTitle="MorphSeek")

    def _finish(self, registration):
        p, request, metrics = self._parameters, registration.request, registration.result
        self._outcome = f"Done in {metrics['seconds']['total']:.0f} s."
        if grade := (metrics.get("verdict") or {}).get("grade"):
            self._outcome += f" Verdict: {grade}."
        self._log("done")
        self._showResult(metrics)
        p.last_fixed, p.last_moving = request.fixed, request.moving
        p.last_transformed_volume = registration.nodes.get("transformed_volume")
        p.last_transform = registration.nodes.get("transform")
        p.last_places = json.dumps(registration.places)
        self.ui.beforeCheckBox.setChecked(False)
        self.ui.resultCollapsibleButton.setCollapsed(False)
        self.updatePanel()
        if p.last_transformed_volume is not None:
            self.ui.reviewCollapsibleButton.setCollapsed(False)
            if self._entered:
                self.onReview()
            else:
                self._unseen = True

    def _showEvent(self, event):
        from MorphSeekLib.request import STAGES

        self._showProgress(STAGES.get(event.stage, event.stage), event.fraction, event.eta)
        if event.message:
            self._log(f"{event.stage}: {event.message}")

    def _showProgress(self, stage: str, fraction: float, eta: Optional[float]):
        self.ui.progressBar.setValue(round(100 * fraction))
        self.ui.statusLabel.setText(stage if eta is None else f"{stage}, {_duration(eta)} left")

    def _showResult(self, metrics: dict[str, Any]):
        rows = [
            (
                "Similarity",
                f"{metrics['similarity_before']:.3f}",
                f"{metrics['similarity_after']:.3f}",
            )
        ]
        if "dice_after" in metrics:
            rows.append(
                (
                    "Dice (overlap of the labels)",
                    f"{metrics['dice_before']:.3f}",
                    f"{metrics['dice_after']:.3f}",
                )
            )
        rows += [
            ("Folding", "", f"{metrics['njd_percent']:.3f} %"),
            ("Time", "", f"{metrics['seconds']['total']:.1f} s"),
        ]
        rows += [("Network", "", metrics["model"]), ("Device", "", metrics["device"])]
        rows += [
            (f"Dice of {name}", f"{before:.3f}", f"{after:.3f}")
            for name, (before, after) in metrics.get("dice", {}).items()
        ]
        table = self.ui.resultTable
        table.setRowCount(len(rows))
        for i, row in enumerate(rows):
            for j, text in enumerate(row):
                table.setItem(i, j, qt.QTableWidgetItem(text))
        table.item(0, 0).setToolTip(f"{metrics['similarity']}; higher is better")
        verdict = metrics.get("verdict") or {}
        self._showVerdict(verdict)
        notes = [w for w in metrics["warnings"] if w not in (verdict.get("reasons") or ())]
        self.ui.warningsLabel.setText("\n".join(f"Note: {warning}" for warning in notes))
        self.ui.warningsLabel.setVisible(bool(notes))

    def _showVerdict(self, verdict: dict[str, Any]):
        """Show the grade, the estimated error and the reasons, in words and in colour."""
        label = self.ui.verdictLabel
        if verdict.get("grade") not in VERDICTS:
            label.setText("Verdict: unknown (the installed package gives none)")
            label.setStyleSheet("")
        else:
            sign, meaning, background, color = VERDICTS[verdict["grade"]]
            head = f"{sign} Verdict: {verdict['grade']} ({meaning})"
            length = verdict["error_mm"]
            error = "Estimated error: " + (f"{length:.1f} mm" if length >= 0.05 else "below 0.1 mm")
            label.setText("\n".join([head, error, *(f"- {r}" for r in verdict["reasons"])]))
            label.setStyleSheet(f"background: {background}; color: {color}; padding: 6px;")
        label.setVisible(True)

    def _hideWords(self):
        self.ui.verdictLabel.setVisible(False)
        self.ui.warningsLabel.setVisible(False)

    def _log(self, text: str):
        self.ui.logTextEdit.appendPlainText(f"{time.strftime('%H:%M:%S')}  {text}")

    def onTransfer(self):
        p = self._parameters
        nodes = [node for node in (p.moving_labels, p.landmarks) if node is not None]
        with slicer.util.tryWithErrorDisplay("The transfer failed.", waitCursor=True):
            made = self.logic.transfer(nodes, self._transferTransform(), p.fixed)
            self._log("transferred: " + ", ".join(node.GetName() for node in made))

    # --------------------------------------------------------------------------------------- review

    def onReview(self):
        """Lay the result over the fixed volume, in all slice views."""
        self._reviewing = True
        self._showReview(fit=True)

    def onReviewMode(self, chosen: bool):
        if chosen:  # the radio button that was left sends the signal, too
            self.onReviewChanged()

    def onReviewChanged(self, value=None):
        if self._reviewing:
            self._showReview()

    def _showReview(self, fit: bool = False):
        p, ui = self._parameters, self.ui
        other = p.last_moving if ui.beforeCheckBox.checked else p.last_transformed_volume
        if p.last_fixed is None or other is None:
            self._endReview()
            return
        self._flickerTimer.stop()
        if ui.compareCheckBox.checked and p.last_moving is not None:
            self._showComparison(fit)
            return
        self._showModes(True)
        ui.fadeWidget.setVisible(ui.fadeRadioButton.checked)
        if ui.checkerboardRadioButton.checked:
            board = self.logic.checkerboard(p.last_fixed, other)
            slicer.util.setSliceViewerLayers(background=board, foreground=None, fit=fit)
            return
        opacity = 1.0 if ui.flickerRadioButton.checked else ui.fadeSlider.value / 100
        slicer.util.setSliceViewerLayers(
            background=p.last_fixed, foreground=other, foregroundOpacity=opacity, fit=fit
        )
        if ui.flickerRadioButton.checked:
            self._flickered = True
            self._flickerTimer.start()

    def _showModes(self, shown: bool):
        """Show or hide the controls that only the view of both volumes in one needs."""
        self.ui.reviewModes.setVisible(shown)
        self.ui.beforeCheckBox.setVisible(shown)

    def _showComparison(self, fit: bool):
        """Show fixed, before and after side by side; the slider fades in the fixed volume."""
        from MorphSeekLib import compare

        p, ui = self._parameters, self.ui
        self._showModes(False)
        ui.fadeWidget.setVisible(True)
        if not compare.is_open(slicer.mrmlScene):
            self._layoutBefore = compare.open_layout(slicer.mrmlScene)
            fit = True
        compare.show(
            slicer.mrmlScene,
            p.last_fixed,
            p.last_moving,
            p.last_transformed_volume,
            ui.fadeSlider.value / 100,
        )
        if fit:
            slicer.util.setSliceViewerLayers(fit=True)

    def onCompare(self, chosen: bool):
        """Compare side by side, or return to the layout from before."""
        if chosen:
            self.ui.fadeSlider.setValue(100)  # 100: the volumes themselves; 0: the fixed one
            self.onReview()
            return
        if self._layoutBefore is not None:
            from MorphSeekLib import compare

            compare.close_layout(slicer.mrmlScene, self._layoutBefore)
            self._layoutBefore = None
        self.ui.fadeSlider.setValue(50)
        self._showModes(True)
        self.onReviewChanged()

    def onGoToWorst(self):
        """Go to the place that speaks most against the result."""
        self.ui.placeComboBox.setCurrentIndex(0)
        self.onGoToPlace(0)

    def onGoToPlace(self, index: int):
        from MorphSeekLib import compare

        compare.go_to(slicer.mrmlScene, json.loads(self._places)[index]["lps"])

    def onFlicker(self):
        self._flickered = not self._flickered
        slicer.util.setSliceViewerLayers(foregroundOpacity=1.0 if self._flickered else 0.0)

    def _endReview(self):
        self._reviewing = self._unseen = False
        self._flickerTimer.stop()

    # ----------------------------------------------------------------------- package and model file

    def _askPackage(self):
        """Ask the installed package what it offers, in a thread: its first start takes seconds."""
        if self._package is None and self._asking is None:
            self._asking = concurrent.futures.ThreadPoolExecutor(1).submit(self.logic.package)
            self._askTimer.start()

    def onAsked(self):
        time.sleep(YIELD_S)
        if not self._asking.done():
            return
        self._askTimer.stop()
        asked, self._asking = self._asking, None
        try:
            self._package, self._packageError = asked.result(), ""
            devices = self._package["devices"]
            card = (
                f"graphics card ({devices['cuda']})"
                if "cuda" in devices
                else "no CUDA graphics card"
            )
            self.ui.deviceLabel.setText(f"Found: processor ({devices['cpu']}), {card}")
            self._makeFurtherOptions(self._package["options"])
        except Exception as error:
            self._packageError = str(error)
        self.ui.installLabel.setText(
            f"The MorphSeek package does not run in this Slicer yet: {self._unsuitable()}."
        )
        self.ui.installFrame.setVisible(bool(self._packageError))
        self.updatePanel()

    def _makeFurtherOptions(self, table: list[dict[str, Any]]):
        """Make a widget, once, for each of the engine's options without one in the .ui file."""
        from MorphSeekLib.request import further

        for option in [] if self._optionWidgets else further(table):
            name, default = option["name"], option["default"]
            if _is_menu(option):
                widget = qt.QComboBox()
                widget.addItems([AS_PRESET, *option["choices"]])
                widget.currentTextChanged.connect(
                    lambda text, name=name: self.onFurtherOption(
                        name, None if text == AS_PRESET else text
                    )
                )
            elif option["type"] == "int":
                widget = qt.QSpinBox()
                widget.setRange(option["min"], option.get("max", MOST))
                widget.setValue(default)
                # Qt overloads this signal: one sends the number, the other its text.
                widget.valueChanged.connect(
                    lambda value, name=name, default=default: self.onFurtherOption(
                        name, None if int(value) == default else int(value)
                    )
                )
            else:
                widget = qt.QLineEdit()
                widget.setPlaceholderText(str(default) or "none")
                read = _number if option["type"] == "float" else str
                widget.textChanged.connect(
                    lambda text, name=name, read=read: self.onFurtherOption(
                        name, read(text.strip()) if text.strip() else None
                    )
                )
            widget.setObjectName(f"{name}Option")
            widget.setToolTip(option["help"])
            self.ui.furtherOptionsGroupBox.layout().addRow(f"{option.get('label', name)}:", widget)
            self._optionWidgets[name] = widget, option
        self.ui.furtherOptionsGroupBox.setVisible(bool(self._optionWidgets))

    def onFurtherOption(self, name: str, value: Any):
        """Store the chosen value of an option; None: as the preset says."""
        self._shownOptions[name] = value
        if self._parameters is not None:
            chosen = json.loads(self._parameters.further_options)
            chosen.pop(name, None)
            self._parameters.further_options = json.dumps(
                chosen if value is None else {**chosen, name: value}
            )

    def _showFurtherOptions(self):
        """Update the widgets whose values differ from the parameter node's further options."""
        chosen = json.loads(self._parameters.further_options)
        for name, (widget, option) in self._optionWidgets.items():
            value = chosen.get(name)
            if value == self._shownOptions.get(name):
                continue
            self._shownOptions[name] = value
            widget.blockSignals(True)
            if _is_menu(option):
                widget.setCurrentIndex(0 if value is None else option["choices"].index(value) + 1)
            elif option["type"] == "int":
                widget.setValue(option["default"] if value is None else value)
            else:
                widget.setText("" if value is None else str(value))
            widget.blockSignals(False)

    def _unsuitable(self) -> str:
        """Return why this Slicer cannot have the package, or why the installed one does not run."""
        from MorphSeekLib.install import unsuitable

        return unsuitable() or self._packageError

    def _packageProblem(self) -> str:
        return (
            "Install the MorphSeek package first: see the top of this panel"
            if self._packageError
            else ""
        )

    def onInstall(self):
        self._install()

    def onInstallFile(self):
        path = qt.QFileDialog.getOpenFileName(
            None, "MorphSeek package", "", "Python wheels (*.whl)"
        )
        if path:
            self._install(path)

    def _install(self, *source: str):
        """Ask, then install the package from the package index or from a wheel; then ask it what it
        offers.
        """
        from MorphSeekLib import install

        def pip(arguments: list[str]):
            with slicer.util.WaitCursor():
                slicer.util.pip_install(arguments)

        def confirm(question: str) -> bool:
            return slicer.util.confirmOkCancelDisplay(question, windowTitle="MorphSeek")

        dialogs = []

        def progress(done: int, total: int, what: str):
            if not dialogs:
                dialogs.append(slicer.util.createProgressDialog(windowTitle="MorphSeek"))
            dialogs[0].setMaximum(total)
            dialogs[0].setValue(done)
            dialogs[0].setLabelText(f"Installing {what} ...")
            slicer.app.processEvents()

        try:
            with slicer.util.tryWithErrorDisplay("The package could not be installed."):
                if install.ensure(
                    confirm, pip, *source, runs=not self._packageError, progress=progress
                ):
                    self._askPackage()
        finally:
            for dialog in dialogs:
                dialog.close()

    def onChooseModel(self):
        path = qt.QFileDialog.getOpenFileName(None, "Network", "", "Networks (*.onnx)")
        if path:
            self._parameters.model = path

    def onSavePreset(self):
        path = qt.QFileDialog.getSaveFileName(None, "Preset", "preset.json", "Presets (*.json)")
        if path:
            from MorphSeekLib import presets

            path = path if path.lower().endswith(".json") else f"{path}.json"
            with slicer.util.tryWithErrorDisplay("The preset could not be saved."):
                request = self.logic.request(self._parameters)
                presets.save(path, request, self._package)
                self._log(f"saved the preset {path}")

    def onLoadPreset(self):
        path = qt.QFileDialog.getOpenFileName(None, "Preset", "", "Presets (*.json)")
        if path:
            with slicer.util.tryWithErrorDisplay("The preset could not be loaded."):
                self.logic.loadPreset(path, self._parameters, self._package)
                self._log(f"loaded the preset {path}")


def _is_menu(option: dict[str, Any]) -> bool:
    """Whether an option of the engine's table takes only its listed choices."""
    return bool(option.get("choices")) and not option.get("prefix") and not option.get("number")


def _number(text: str) -> Union[float, str]:
    """Return a text as number, or unchanged: then the engine's message says what it expects."""
    try:
        return float(text)
    except ValueError:
        return text


def _stages_html(stages: list[str]) -> str:
    return (
        "<b>What will run</b><ol>"
        + "".join(f"<li>{html.escape(stage)}</li>" for stage in stages)
        + "</ol>"
        if stages
        else ""
    )


def _duration(seconds: float) -> str:
    """Return a time left as text, rounded because it is an estimate."""
    if seconds < 60:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    return f"about {round(seconds / 60)} min"


class MorphSeekTest(ScriptedLoadableModuleTest):
    """The self-test inside Slicer (Reload and Test); the other tests are in Testing/ and need no
    Slicer application.
    """

    def setUp(self):
        slicer.mrmlScene.Clear()

    def runTest(self):
        self.setUp()
        self.test_a_moved_body_is_brought_back()

    def test_a_moved_body_is_brought_back(self):
        import numpy as np

        def body(name: str, shift_mm: float):
            """An ellipsoid with a hollow, `shift_mm` along R, on a grid of 2.5 mm."""
            z, y, x = np.indices((40, 40, 40)) * 2.5 - 50
            x = x - shift_mm
            image = 100.0 * ((x / 32) ** 2 + (y / 24) ** 2 + (z / 38) ** 2 < 1) - 60.0 * (
                (x - 9) ** 2 + (y + 5) ** 2 + z**2 < 100
            )
            matrix = np.diag([2.5, 2.5, 2.5, 1.0])
            matrix[:3, 3] = -50
            return slicer.util.addVolumeFromArray(
                image.astype(np.float32), ijkToRAS=matrix, name=name
            )

        fixed, moving = body("fixed", 0.0), body("moving", 7.5)
        registration = MorphSeekLogic().register(
            fixed, moving, initial="rigid", search="off", refine=0, model="none"
        )
        arrays = [
            slicer.util.arrayFromVolume(node)
            for node in (fixed, moving, registration.nodes["transformed_volume"])
        ]
        before, after = (np.abs(array - arrays[0]).mean() for array in arrays[1:])
        self.assertLess(after, before / 5)
        to_fixed = vtk.vtkGeneralTransform()
        registration.nodes["transform"].GetTransformToWorld(to_fixed)
        self.assertLess(
            np.linalg.norm(np.subtract(to_fixed.TransformPoint(16.5, -5.0, 0.0), (9.0, -5.0, 0.0))),
            1.0,
        )
        self.delayDisplay("Test passed")
