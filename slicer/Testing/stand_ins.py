"""Stand-ins, on PySide6, for the parts of the Slicer application that the module uses and the core
lacks: for tests, never shipped.

`install` adds `qt`, `slicer.ScriptedLoadableModule`, `slicer.parameterNodeWrapper` and the
application's parts of `slicer` to the real core (slicer-core on PyPI), and removes them again. They
behave as PythonQt does: a Qt property is an attribute (so `label.text()` fails here as in Slicer),
a misspelt one is an error, and a parameter connects only to the widget classes that Slicer's own
connectors take.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
import typing
import unittest
from pathlib import Path
from typing import Any, Iterator

import pytest
import slicer
import slicer.util
import vtk
from PySide6 import QtCore, QtGui, QtWidgets
from PySide6.QtUiTools import QUiLoader

MODULE = Path(__file__).resolve().parents[1] / "MorphSeek"


def application() -> QtWidgets.QApplication:
    """Return the one Qt application, without a display and styled as on a plain desktop."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QtWidgets.QApplication.instance()
    if app is None:
        app = QtWidgets.QApplication([])
        app.setStyle("Fusion")
        app.setFont(QtGui.QFont("DejaVu Sans", 9))
    return app


# ------------------------------------------------------------------------------- PythonQt's dialect


class Dialect:
    """A PySide6 object as PythonQt shows it: its properties are attributes."""

    def __init__(self, wrapped: QtCore.QObject):
        object.__setattr__(self, "wrapped", wrapped)

    def __getattr__(self, name: str) -> Any:
        wrapped = object.__getattribute__(self, "wrapped")
        name = "objectName" if name == "name" else name
        if wrapped.metaObject().indexOfProperty(name) >= 0:
            return wrapped.property(name)
        return getattr(wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.wrapped.metaObject().indexOfProperty(name) < 0:
            raise AttributeError(f"{type(self.wrapped).__name__} has no property {name}")
        self.wrapped.setProperty(name, value)


class QFileDialog:
    """The file dialog: returns the test's `answer`. PythonQt returns only the path."""

    answer = ""

    @classmethod
    def getOpenFileName(cls, parent: Any, title: str, folder: str = "", filter: str = "") -> str:
        return cls.answer

    getSaveFileName = getOpenFileName


# ------------------------------------------------------ CTK's and MRML's widgets that the panel has


class ctkCollapsibleButton(QtWidgets.QWidget):
    """A header with an arrow, above its contents."""

    HEADER = 24

    def __init__(self, parent: QtWidgets.QWidget | None = None):
        super().__init__(parent)
        self._text, self._collapsed = "", False
        self.setContentsMargins(0, self.HEADER, 0, 0)

    def _set_text(self, text: str) -> None:
        self._text = text
        self.update()

    def _set_collapsed(self, collapsed: bool) -> None:
        self._collapsed = collapsed
        self.setMaximumHeight(
            self.HEADER if collapsed else 16777215
        )  # the header's height hides the contents
        self.updateGeometry()

    text = QtCore.Property(str, lambda self: self._text, _set_text)
    collapsed = QtCore.Property(bool, lambda self: self._collapsed, _set_collapsed)

    def setCollapsed(self, collapsed: bool) -> None:
        self._set_collapsed(collapsed)

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        painter, option = QtGui.QPainter(self), QtWidgets.QStyleOptionButton()
        option.rect = QtCore.QRect(0, 0, self.width(), self.HEADER - 2)
        option.state = QtWidgets.QStyle.State_Enabled
        option.palette = self.palette()
        self.style().drawControl(QtWidgets.QStyle.CE_PushButtonBevel, option, painter, self)
        arrow = QtWidgets.QStyleOption()
        arrow.palette, arrow.state = self.palette(), QtWidgets.QStyle.State_Enabled
        arrow.rect = QtCore.QRect(6, 6, 10, 10)
        shape = (
            QtWidgets.QStyle.PE_IndicatorArrowRight
            if self._collapsed
            else QtWidgets.QStyle.PE_IndicatorArrowDown
        )
        self.style().drawPrimitive(shape, arrow, painter, self)
        painter.drawText(
            QtCore.QRect(22, 0, self.width() - 22, self.HEADER - 2),
            QtCore.Qt.AlignVCenter,
            self._text,
        )


def _kept(kind: Any, name: str) -> QtCore.Property:
    return QtCore.Property(
        kind, lambda self: self._values[name], lambda self, value: self._set(name, value)
    )


class qMRMLNodeComboBox(QtWidgets.QWidget):
    """A combo box of the scene's nodes of some classes, with "none" first if that is allowed."""

    currentNodeChanged = QtCore.Signal(object)

    nodeTypes = _kept("QStringList", "nodeTypes")
    noneDisplay = _kept(str, "noneDisplay")
    showChildNodeTypes, noneEnabled = _kept(bool, "showChildNodeTypes"), _kept(bool, "noneEnabled")
    addEnabled, removeEnabled, renameEnabled = (
        _kept(bool, name) for name in ("addEnabled", "removeEnabled", "renameEnabled")
    )

    def __init__(self, parent: QtWidgets.QWidget | None = None):
        super().__init__(parent)
        self._values = {
            "nodeTypes": [],
            "showChildNodeTypes": True,
            "noneEnabled": False,
            "noneDisplay": "None",
        }
        self._values |= {"addEnabled": True, "removeEnabled": True, "renameEnabled": False}
        self._box = QtWidgets.QComboBox()
        self._box.setSizePolicy(QtWidgets.QSizePolicy.Ignored, QtWidgets.QSizePolicy.Fixed)
        layout = QtWidgets.QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._box)
        self._scene, self._nodes, self._current = None, [], None
        self._box.currentIndexChanged.connect(self._on_index)

    def _on_index(self, index: int) -> None:
        node = self._nodes[index] if 0 <= index < len(self._nodes) else None
        if node is not self._current:
            self._current = node
            self.currentNodeChanged.emit(node)

    def _fill(self, caller: Any = None, event: Any = None) -> None:
        accepted = (
            [node for node in slicer.util.getNodesByClass("vtkMRMLNode") if self._accepts(node)]
            if self._scene
            else []
        )
        self._nodes = ([None] if self._values["noneEnabled"] else []) + accepted
        self._box.blockSignals(True)
        self._box.clear()
        self._box.addItems(
            [
                self._values["noneDisplay"] if node is None else node.GetName()
                for node in self._nodes
            ]
        )
        self._box.blockSignals(False)
        self.setCurrentNode(self._current)  # sends the signal if the node is gone

    def _accepts(self, node: Any) -> bool:
        if node.GetHideFromEditors():
            return False
        if self._values["showChildNodeTypes"]:
            return any(node.IsA(name) for name in self._values["nodeTypes"])
        return node.GetClassName() in self._values["nodeTypes"]

    def setMRMLScene(self, scene: Any) -> None:
        self._scene = scene
        for event in (scene.NodeAddedEvent, scene.NodeRemovedEvent):
            scene.AddObserver(event, self._fill)
        self._fill()

    def currentNode(self) -> Any:
        return self._current

    def setCurrentNode(self, node: Any) -> None:
        index = next((i for i, other in enumerate(self._nodes) if other is node), 0)
        self._box.blockSignals(True)
        self._box.setCurrentIndex(index)
        self._box.blockSignals(False)
        self._on_index(index)

    def setNodeTypes(self, names: list[str]) -> None:
        self._set("nodeTypes", list(names))

    def _set(self, name: str, value: Any) -> None:
        self._values[name] = value
        if self._scene is not None or name == "noneDisplay":
            self._fill()


class qMRMLWidget(QtWidgets.QWidget):
    """The panel's root widget, which passes the scene on."""

    def setMRMLScene(self, scene: Any) -> None:
        for box in self.findChildren(qMRMLNodeComboBox):
            box.setMRMLScene(scene)


CUSTOM = {cls.__name__: cls for cls in (ctkCollapsibleButton, qMRMLNodeComboBox, qMRMLWidget)}


class Loader(QUiLoader):
    """Qt's loader, with the stand-ins for CTK's and MRML's classes."""

    def createWidget(
        self, name: str, parent: QtWidgets.QWidget | None = None, object_name: str = ""
    ) -> QtWidgets.QWidget:
        if name not in CUSTOM:
            return super().createWidget(name, parent, object_name)
        widget = CUSTOM[name](parent)
        widget.setObjectName(object_name)
        return widget

    def load(self, file: Any) -> Dialect:
        with _quiet():
            return Dialect(super().load(str(file.fileName())))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the loader's warning that it cannot connect the scene's signal: here
    qMRMLWidget.setMRMLScene does that.
    """
    previous = QtCore.qInstallMessageHandler(
        lambda kind, context, text: (
            None if text.startswith("QObject::connect") else sys.stderr.write(text + "\n")
        )
    )
    try:
        yield
    finally:
        QtCore.qInstallMessageHandler(previous)


def child_widgets(panel: Dialect) -> types.SimpleNamespace:
    """Return the panel's named widgets as attributes, as slicer.util.childWidgetVariables does."""
    children = [
        child for child in panel.wrapped.findChildren(QtWidgets.QWidget) if child.objectName()
    ]
    return types.SimpleNamespace(
        **{
            child.objectName(): Dialect(child)
            for child in children
            if not child.objectName().startswith("qt_")
        }
    )


# --------------------------------------------------------------------------- parameter node wrapper


class WithinRange(typing.NamedTuple):
    minimum: float
    maximum: float

    def accepts(self, value: Any) -> bool:
        return self.minimum <= value <= self.maximum


class Choice(typing.NamedTuple):
    choices: list

    def accepts(self, value: Any) -> bool:
        return value in self.choices


class Parameter:
    """One annotated field of a parameter node class."""

    def __init__(self, name: str, annotation: Any, default: Any):
        self.name, self.default = name, default
        self.kind, *self.notes = (
            typing.get_args(annotation)
            if typing.get_origin(annotation) is typing.Annotated
            else (annotation,)
        )
        args = (
            typing.get_args(self.kind)
            if typing.get_origin(self.kind) is typing.Union
            else (self.kind,)
        )
        self.node_classes = tuple(kind for kind in args if issubclass(kind, slicer.vtkMRMLNode))
        if typing.get_origin(self.kind) is typing.Union and type(None) not in args:
            raise TypeError(f"{name}: a union of node classes must contain None")

    def check(self, value: Any) -> None:
        if self.node_classes:
            if value is not None and not isinstance(value, self.node_classes):
                raise TypeError(f"{self.name} cannot be a {type(value).__name__}")
        elif not isinstance(value, (int, float) if self.kind is float else self.kind):
            raise TypeError(f"{self.name} cannot be {value!r}")
        if not all(note.accepts(value) for note in self.notes):
            raise ValueError(f"{self.name} cannot be {value!r}: {self.notes}")

    def read(self, node: Any) -> Any:
        if self.node_classes:
            return node.GetNodeReference(self.name)
        text = node.GetParameter(self.name)
        return text == "True" if self.kind is bool else self.kind(text)

    def write(self, node: Any, value: Any) -> None:
        self.check(value)
        if self.node_classes:
            node.SetParameter(self.name, "")
            node.SetNodeReferenceID(self.name, value.GetID() if value is not None else None)
        else:
            node.SetParameter(self.name, str(value))

    def connector(self, widget: Dialect) -> tuple:
        """Return (read, write, changed signal) for a widget that Slicer can connect to this type,
        as Slicer sets it up.
        """
        classes = {
            bool: "QCheckBox",
            int: "QSpinBox",
            float: "QDoubleSpinBox",
            str: "QComboBox" if self.notes else "QLineEdit",
        }
        found = type(widget.wrapped).__name__
        expected = "qMRMLNodeComboBox" if self.node_classes else classes[self.kind]
        if found != expected:
            raise RuntimeError(f"{self.name}: no connector from {found} to {self.kind}")
        if self.node_classes:
            widget.setNodeTypes([kind().GetClassName() for kind in self.node_classes])
            return widget.currentNode, widget.setCurrentNode, widget.currentNodeChanged
        if self.kind is bool:
            return lambda: widget.checked, widget.setChecked, widget.toggled
        if self.kind in (int, float):
            widget.setRange(*self.notes[0])
            return lambda: widget.value, widget.setValue, widget.valueChanged
        if not self.notes:
            return lambda: widget.text, widget.setText, widget.textChanged
        choices = self.notes[0].choices
        widget.clear()
        widget.addItems([str(choice) for choice in choices])
        return (
            lambda: choices[widget.currentIndex],
            lambda value: widget.setCurrentIndex(choices.index(value)),
            widget.currentIndexChanged,
        )


def parameterNodeWrapper(cls: type) -> type:
    """Give a class of annotated fields the properties that read and write a
    vtkMRMLScriptedModuleNode.
    """
    parameters = {}
    for name, annotation in typing.get_type_hints(cls, include_extras=True).items():
        parameters[name] = parameter = Parameter(name, annotation, getattr(cls, name, None))
        setattr(
            cls,
            name,
            property(
                lambda self, p=parameter: p.read(self.parameterNode),
                lambda self, value, p=parameter: p.write(self.parameterNode, value),
            ),
        )

    def __init__(self: Any, node: Any) -> None:
        self.parameterNode, self._connected = node, {}
        for parameter in parameters.values():
            if not node.HasParameter(parameter.name):
                parameter.write(node, parameter.default)

    def connect(self: Any, gui: Any) -> int:
        widgets = {
            w.wrapped.property("SlicerParameterName"): w
            for w in vars(gui).values()
            if w.wrapped.property("SlicerParameterName")
        }
        links = {name: parameters[name].connector(widget) for name, widget in widgets.items()}
        state = {"updating": False}

        def show(caller: Any = None, event: Any = None) -> None:
            if not state["updating"]:
                state["updating"] = True
                for name, (_, write, _) in links.items():
                    write(getattr(self, name))
                state["updating"] = False

        def keeper(name: str, read: Any) -> Any:
            return lambda *ignored: None if state["updating"] else setattr(self, name, read())

        show()
        slots = [
            (changed, changed.connect(keeper(name, read)))
            for name, (read, _, changed) in links.items()
        ]
        tag = self.parameterNode.AddObserver(vtk.vtkCommand.ModifiedEvent, show)
        self._connected[tag] = slots
        return tag

    def disconnect(self: Any, tag: int) -> None:
        for changed, connection in self._connected.pop(tag, ()):
            changed.disconnect(connection)
        self.parameterNode.RemoveObserver(tag)

    cls.__init__, cls.connectGui, cls.disconnectGui, cls.allParameters = (
        __init__,
        connect,
        disconnect,
        parameters,
    )
    cls.AddObserver = lambda self, event, callback, priority=0.0: self.parameterNode.AddObserver(
        event, callback, priority
    )
    cls.RemoveObserver = lambda self, tag: self.parameterNode.RemoveObserver(tag)
    return cls


# ------------------------------------------------------------------------ ScriptedLoadableModule.py


RELOADED: list[str] = []
"""The modules that were reloaded."""


class Layout(QtWidgets.QVBoxLayout):
    def addWidget(self, widget: Any) -> None:
        super().addWidget(getattr(widget, "wrapped", widget))


class ScriptedLoadableModule:
    def __init__(self, parent: Any):
        self.parent = parent


class ScriptedLoadableModuleWidget:
    def __init__(self, parent: Any = None):
        self.parent = QtWidgets.QWidget()
        self.layout = Layout(self.parent)

    def resourcePath(self, name: str) -> str:
        return str(MODULE / "Resources" / name)

    def setup(self) -> None:
        pass

    def onReload(self) -> None:
        RELOADED.append(type(self).__name__.removesuffix("Widget"))


class ScriptedLoadableModuleLogic:
    """Keeps one parameter node for each scene, with the module's name as its singleton tag."""

    def getParameterNode(self) -> Any:
        name = type(self).__name__.removesuffix("Logic")
        node = slicer.mrmlScene.GetSingletonNode(name, "vtkMRMLScriptedModuleNode")
        if node is None:
            node = slicer.vtkMRMLScriptedModuleNode()
            node.SetSingletonTag(name)
            node.SetModuleName(name)
            node.SetName(name)
            node = slicer.mrmlScene.AddNode(node)
        return node


class ScriptedLoadableModuleTest(unittest.TestCase):
    def delayDisplay(self, text: str) -> None:
        pass


# ------------------------------------------------------------------------------------- installation


@contextlib.contextmanager
def install() -> Iterator[types.SimpleNamespace]:
    """Make `import MorphSeek` work; yield (errors, confirm): the messages shown, and the user's
    answers to questions.
    """
    application()
    said = types.SimpleNamespace(errors=[], questions=[], confirm=True, connected=[], steps=[])
    qt = types.ModuleType("qt")
    for module in (QtWidgets, QtGui, QtCore):
        vars(qt).update(
            {name: getattr(module, name) for name in dir(module) if name.startswith("Q")}
        )
    qt.QUiLoader, qt.QFileDialog = Loader, QFileDialog
    scripted = types.ModuleType("slicer.ScriptedLoadableModule")
    for cls in (
        ScriptedLoadableModule,
        ScriptedLoadableModuleWidget,
        ScriptedLoadableModuleLogic,
        ScriptedLoadableModuleTest,
    ):
        setattr(scripted, cls.__name__, cls)
    wrapper = types.ModuleType("slicer.parameterNodeWrapper")
    wrapper.parameterNodeWrapper, wrapper.WithinRange, wrapper.Choice = (
        parameterNodeWrapper,
        WithinRange,
        Choice,
    )

    def confirm(text: str, **ignored: Any) -> bool:
        said.questions.append(text)
        return said.confirm

    patch = pytest.MonkeyPatch()
    for name, module in (
        ("qt", qt),
        ("slicer.ScriptedLoadableModule", scripted),
        ("slicer.parameterNodeWrapper", wrapper),
    ):
        patch.setitem(sys.modules, name, module)
    patch.delitem(sys.modules, "MorphSeek", raising=False)
    patch.syspath_prepend(str(MODULE))
    patch.setattr(slicer, "mrmlScene", slicer.vtkMRMLScene(), raising=False)
    app = types.SimpleNamespace(
        layoutManager=lambda: None,
        testingEnabled=lambda: False,
        processEvents=lambda: application().processEvents(),
    )
    app.connect = lambda signal, function: said.connected.append((signal, function))
    app.setOverrideCursor, app.restoreOverrideCursor = lambda cursor: None, lambda: None
    patch.setattr(slicer, "app", app, raising=False)
    patch.setattr(slicer.util, "childWidgetVariables", child_widgets)
    patch.setattr(slicer.util, "errorDisplay", lambda text, **ignored: said.errors.append(text))
    patch.setattr(slicer.util, "confirmOkCancelDisplay", confirm)

    def dialog(**ignored: Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            setMaximum=lambda value: None,
            setValue=said.steps.append,
            setLabelText=said.steps.append,
            close=lambda: said.steps.append("closed"),
        )

    patch.setattr(slicer.util, "createProgressDialog", dialog, raising=False)
    try:
        yield said
    finally:
        slicer.mrmlScene.RemoveAllObservers()  # those of panels that no longer exist
        sys.modules.pop("MorphSeek", None)
        patch.undo()
