"""The MorphSeek module of 3D Slicer: its panel, and the logic that the panel and scripts call.

MorphSeekLib does the work. It is imported only where it is used: if the import fails, the panel
still opens and says why.
"""

import os
import sys

import qt
import slicer
import vtk
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleLogic,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)
from slicer.util import VTKObservationMixin

HOMEPAGE = "https://github.com/morphseek/morphseek"


def registerSampleData():
    """Offer the made-up pair in the module Sample Data. It is computed, not downloaded, and leaves
    nothing behind but its nodes.
    """
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
            "Aligns a moving volume with a fixed one, by an affine alignment and a smooth"
            " deformation, and carries its segmentations and points along. For research use; not a"
            " medical device. "
            f'<a href="{HOMEPAGE}/tree/main/slicer">Documentation</a>'
        )
        self.parent.acknowledgementText = (
            "To cite: MorphSeek: Fine-grained Latent Representation-Level Policy Optimization for"
            " Deformable Image Registration. Apache License 2.0."
        )
        slicer.app.connect("startupCompleted()", registerSampleData)


class MorphSeekLogic(ScriptedLoadableModuleLogic):
    """The module's functions, without its panel.

    >>> from MorphSeek import MorphSeekLogic
    >>> logic = MorphSeekLogic()
    >>> registration = logic.register(getNode("ct1"), getNode("ct2"), preset="Abdomen CT")
    >>> registration.nodes["transformed_volume"], registration.result["njd_percent"]
    """

    def getParameterNode(self):
        from MorphSeekLib.parameters import MorphSeekParameterNode, forget_unknown

        node = super().getParameterNode()
        forget_unknown(node)
        return MorphSeekParameterNode(node)

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


class MorphSeekWidget(ScriptedLoadableModuleWidget, VTKObservationMixin):
    """The life of the panel and of the scene that it shows; MorphSeekLib.panel is the panel."""

    def __init__(self, parent=None):
        ScriptedLoadableModuleWidget.__init__(self, parent)
        VTKObservationMixin.__init__(self)  # the base class does not call it
        self.logic = None
        self.panel = None  # as long as MorphSeekLib cannot be imported
        self._parameters = None
        self._guiTag = None

    def setup(self):
        ScriptedLoadableModuleWidget.setup(self)
        try:
            from MorphSeekLib.panel import Panel
        except Exception as error:
            label = qt.QLabel(f"The module could not be loaded: {type(error).__name__}: {error}")
            label.setWordWrap(True)
            self.layout.addWidget(label)
            return
        widget = slicer.util.loadUI(self.resourcePath("UI/MorphSeek.ui"))
        self.layout.addWidget(widget)
        self.ui = slicer.util.childWidgetVariables(widget)
        widget.setMRMLScene(slicer.mrmlScene)
        self.logic = MorphSeekLogic()
        self.panel = Panel(self.ui, self.logic)
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.StartCloseEvent, self.onSceneStartClose)
        self.addObserver(scene, scene.EndCloseEvent, self.onSceneEndClose)
        self.addObserver(scene, scene.StartImportEvent, self.onSceneStartImport)
        self.addObserver(scene, scene.EndImportEvent, self.onSceneEndClose)
        self.initializeParameterNode()

    def cleanup(self):
        """Clean up when the application closes or the module is reloaded."""
        if self.panel is not None:
            self.panel.package.stop()
            self.panel.stop()
        self.setParameterNode(None)
        self.removeObservers()

    def onReload(self):
        """Reload MorphSeekLib, too."""
        for name in [name for name in sys.modules if name.partition(".")[0] == "MorphSeekLib"]:
            del sys.modules[name]
        ScriptedLoadableModuleWidget.onReload(self)

    def enter(self):
        if self.panel is not None:
            self.initializeParameterNode()
            self.panel.enter()

    def exit(self):
        if self.panel is not None:
            self.panel.exit()

    def onSceneStartClose(self, caller=None, event=None):
        self.panel.stop()
        self.setParameterNode(None)

    def onSceneEndClose(self, caller=None, event=None):
        self.initializeParameterNode()

    def onSceneStartImport(self, caller=None, event=None):
        """Read the parameters of a scene that is loaded over this one when all are there."""
        self.setParameterNode(None)

    def initializeParameterNode(self):
        if self._parameters is None:
            self.setParameterNode(self.logic.getParameterNode())

    def setParameterNode(self, parameters):
        if self._parameters is not None:
            self._parameters.disconnectGui(self._guiTag)
            self.removeObserver(self._parameters, vtk.vtkCommand.ModifiedEvent, self.panel.update)
        self._parameters = parameters
        if parameters is not None:
            self._guiTag = parameters.connectGui(self.ui)
            self.addObserver(parameters, vtk.vtkCommand.ModifiedEvent, self.panel.update)
        if self.panel is not None:
            self.panel.set_parameters(parameters)


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
