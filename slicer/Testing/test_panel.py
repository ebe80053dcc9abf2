"""Checks the panel's .ui file against Qt, the scripts and the engine's table of options."""

from __future__ import annotations

import ast
import dataclasses
import typing
import xml.etree.ElementTree as ElementTree

import pytest
import slicer
import stand_ins
from MorphSeekLib.options import OUTPUTS, OVERRIDES, PRESETS, SMOOTHNESS
from MorphSeekLib.request import RegistrationRequest
from PySide6 import QtWidgets

MODULE = stand_ins.MODULE
UI = MODULE / "Resources" / "UI" / "MorphSeek.ui"
LIBRARY = MODULE / "MorphSeekLib"
SCRIPTS = [*LIBRARY.glob("*.py"), MODULE / "MorphSeek.py"]
XML = {widget.get("name"): widget for widget in ElementTree.parse(UI).iter("widget")}
# parameters that no widget shows
KEPT = {
    "last_fixed", "last_moving", "last_transformed_volume", "last_transform", "last_result",
    "last_places",
}  # fmt: skip
# the one parameter whose widgets are made while the panel runs
MADE = {"further_options"}
INPUTS = (
    "QPushButton",
    "QToolButton",
    "QComboBox",
    "QCheckBox",
    "QRadioButton",
    "QSpinBox",
    "QDoubleSpinBox",
    "QSlider",
    "QLineEdit",
    "qMRMLNodeComboBox",
)


def property_of(widget: ElementTree.Element, name: str) -> str | None:
    found = widget.find(f"property[@name='{name}']")
    return None if found is None else "".join(found.itertext()).strip()


BOUND = {
    property_of(widget, "SlicerParameterName"): widget
    for widget in XML.values()
    if property_of(widget, "SlicerParameterName")
}


@pytest.fixture(scope="module")
def module() -> typing.Iterator[typing.Any]:
    with stand_ins.install():
        from MorphSeekLib import parameters

        yield parameters


@pytest.fixture(scope="module")
def panel(module: typing.Any) -> stand_ins.Dialect:
    return slicer.util.loadUI(str(UI))


def parameters() -> dict[str, ast.expr]:
    """Return the annotated fields of MorphSeekParameterNode, from the source."""
    tree = ast.parse((LIBRARY / "parameters.py").read_text(encoding="utf-8"))
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {node.target.id: node.annotation for node in cls.body if isinstance(node, ast.AnnAssign)}


def used_widgets() -> set[str]:
    """Return the names X of `self.ui.X` and `ui.X` in the scripts."""
    found = set()
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in SCRIPTS)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute):
            owner = node.value
            if (
                isinstance(owner, ast.Name)
                and owner.id == "ui"
                or isinstance(owner, ast.Attribute)
                and owner.attr == "ui"
            ):
                found.add(node.attr)
    return found


def engine_options() -> dict[str, dict[str, typing.Any]]:
    """Return the engine's options, from its own table."""
    from MorphSeekLib import process

    return {option["name"]: option for option in process.describe()["options"]}


def test_qt_loads_the_file_and_knows_every_widget_and_property(panel: stand_ins.Dialect) -> None:
    loaded = {
        child.objectName(): child
        for child in [panel.wrapped, *panel.wrapped.findChildren(QtWidgets.QWidget)]
    }
    for name, element in XML.items():
        assert type(loaded[name]).__name__ == element.get("class")
        unknown = {bytes(p).decode() for p in loaded[name].dynamicPropertyNames()} - {
            "SlicerParameterName"
        }
        assert not {p for p in unknown if not p.startswith("_")}, f"{name} has no such property"


def test_names_are_unique() -> None:
    names = [widget.get("name") for widget in ElementTree.parse(UI).iter("widget")]
    bound = [
        property_of(widget, "SlicerParameterName")
        for widget in ElementTree.parse(UI).iter("widget")
    ]
    bound = [name for name in bound if name]
    assert len(set(names)) == len(names) and len(set(bound)) == len(bound)


def test_every_widget_that_the_module_uses_is_in_the_file() -> None:
    assert used_widgets() <= XML.keys()
    assert len(used_widgets()) > 20  # the search does find widgets


def test_every_widget_that_a_user_can_operate_is_bound_or_used() -> None:
    idle = {
        name
        for name, w in XML.items()
        if w.get("class") in INPUTS
        and name not in used_widgets()
        and property_of(w, "SlicerParameterName") is None
    }
    assert not idle


def test_parameters_and_bindings_are_the_same() -> None:
    assert BOUND.keys() == parameters().keys() - KEPT - MADE
    assert KEPT | MADE <= parameters().keys()


def test_every_field_of_a_request_is_a_parameter() -> None:
    fields = {field.name for field in dataclasses.fields(RegistrationRequest)}
    # transfer: moving_labels and landmarks; channels: the second volumes
    assert fields - {"transfer", "channels"} <= parameters().keys()
    extra = parameters().keys() - fields - KEPT
    second = {"second_fixed", "second_moving"}
    assert extra == {"landmarks", *second, *(f"make_{name}" for name in OUTPUTS)}


def test_every_output_has_its_selector(module: typing.Any) -> None:
    from MorphSeekLib.panel import output_selector

    names = type("Names", (), {"__getattr__": lambda self, name: name})()
    assert {output_selector(names, name) for name in OUTPUTS} == {
        BOUND[name].get("name") for name in OUTPUTS
    }


def test_presets_are_the_library_s() -> None:
    assert list(PRESETS) == items("preset")
    assert property_of(XML["presetDescriptionLabel"], "text") == PRESETS["Automatic"].description


def items(parameter: str) -> list[str]:
    return [property_of(item, "text") or "" for item in BOUND[parameter].findall("item")]


@pytest.mark.parametrize(
    "parameter, table", [("initial", "INITIAL"), ("search", "SEARCH"), ("device", "DEVICE")]
)
def test_menus_translate_to_every_choice_of_the_engine(
    module: typing.Any, parameter: str, table: str
) -> None:
    words = getattr(module, table)
    assert items(parameter) == list(words)
    assert [word for word in words.values() if word is not None] and {*words.values()} - {None} == {
        *engine_options()[parameter]["choices"]
    }


@pytest.mark.parametrize("parameter", ["steps", "trajectories", "refine", "threads"])
def test_spin_boxes_have_the_engine_s_range_and_default(module: typing.Any, parameter: str) -> None:
    option, widget = engine_options()[parameter], BOUND[parameter]
    assert [property_of(widget, name) for name in ("minimum", "maximum", "value")] == [
        f"{option[key]:g}" for key in ("min", "max", "default")
    ]
    annotation = typing.get_type_hints(module.MorphSeekParameterNode, include_extras=True)[
        parameter
    ]
    assert tuple(annotation.__metadata__[0]) == (float(option["min"]), float(option["max"]))
    assert module.MorphSeekParameterNode.allParameters[parameter].default == int(option["default"])


def test_smoothness_has_the_engine_s_words() -> None:
    option = engine_options()["smoothness"]
    assert SMOOTHNESS == tuple(option["choices"]) and option["number"] == "mm"
    assert not [
        word
        for word in SMOOTHNESS
        if word not in (property_of(BOUND["smoothness"], "toolTip") or "")
    ]


def test_overrides_are_all_on_the_panel() -> None:
    assert set(OVERRIDES) <= BOUND.keys()


def test_node_boxes_hold_the_parameter_s_classes_and_get_the_scene(module: typing.Any) -> None:
    connected = {
        c.findtext("receiver")
        for c in ElementTree.parse(UI).iter("connection")
        if c.findtext("slot") == "setMRMLScene(vtkMRMLScene*)"
    }
    boxes = {w.get("name"): w for w in XML.values() if w.get("class") == "qMRMLNodeComboBox"}
    assert connected == boxes.keys()
    for name, box in boxes.items():
        classes = module.MorphSeekParameterNode.allParameters[
            property_of(box, "SlicerParameterName")
        ].node_classes
        listed = [string.text for string in box.find("property[@name='nodeTypes']").iter("string")]
        assert listed == [kind.__name__ for kind in classes], name
        assert (
            property_of(box, "noneEnabled") == "true"
            and property_of(box, "addEnabled") == property_of(box, "removeEnabled") == "false"
        ), name


def test_everything_a_user_can_operate_has_a_tool_tip() -> None:
    for name, widget in XML.items():
        if widget.get("class") in INPUTS:
            tip = property_of(widget, "toolTip")
            # the tool tips of these two say what is missing
            assert tip and tip[-1] in ".:" or name in ("registerButton", "reviewButton"), name


def test_the_first_screen_is_inputs_register_and_the_verdict() -> None:
    sections = [w for w in XML.values() if w.get("class") == "ctkCollapsibleButton"]
    assert [property_of(w, "text") for w in sections] == [
        "Inputs", "Result", "Compare", "Labels and points", "Outputs", "Options", "Details"
    ]  # fmt: skip
    folded = [property_of(w, "collapsed") == "true" for w in sections]
    assert folded == [False, *[True] * 6]
    below = [w.get("name") for w in XML["resultCollapsibleButton"].iter("widget")]
    assert below.index("verdictLabel") < below.index("resultTable")
    everything = list(XML)  # Register stands below the inputs, before all that is folded
    assert everything.index("inputsCollapsibleButton") < everything.index("registerButton")
    assert everything.index("registerButton") < everything.index("resultCollapsibleButton")


def test_the_panel_fits_a_narrow_dock(panel: stand_ins.Dialect) -> None:
    stand_ins.application()
    assert panel.wrapped.minimumSizeHint().width() < 430


def test_the_stand_ins_refuse_what_pythonqt_refuses(panel: stand_ins.Dialect) -> None:
    label = stand_ins.child_widgets(panel).statusLabel
    with pytest.raises(TypeError):
        label.text()
    with pytest.raises(AttributeError):
        label.txt = "misspelt"


def test_files_of_the_extension_are_named_in_its_build() -> None:
    text = (MODULE / "CMakeLists.txt").read_text()
    for name in ("MorphSeek.py", "Resources/Icons/MorphSeek.png", "Resources/UI/MorphSeek.ui"):
        assert name in text and (MODULE / name).is_file()
