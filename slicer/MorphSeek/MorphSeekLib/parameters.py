"""The panel's choices, saved with the scene, and the request that they stand for."""

import json
from typing import Annotated, Any, Optional, Union

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

from . import presets
from .options import OUTPUTS, PRESETS
from .request import RegistrationRequest
from .result_section import COLORS

# What the menus show, and the engine's values. None: as the preset says.
AS_PRESET = "as the preset"
INITIAL = {
    AS_PRESET: None,
    "none": "none",
    "centres of mass": "com",
    "rigid": "rigid",
    "affine": "affine",
}
SEARCH = {AS_PRESET: None, "automatic": "auto", "search": "on", "do not search": "off"}
DEVICE = {"automatic": "auto", "CPU": "cpu", "GPU (CUDA)": "cuda", "GPU (TensorRT)": "tensorrt"}

# Written with Optional and Union: the parameter node knows no `A | B`.
Labels = Optional[Union[vtkMRMLSegmentationNode, vtkMRMLLabelMapVolumeNode]]
Markups = Optional[
    Union[vtkMRMLMarkupsFiducialNode, vtkMRMLMarkupsLineNode, vtkMRMLMarkupsCurveNode]
]


@parameterNodeWrapper
class MorphSeekParameterNode:
    """The names are those of RegistrationRequest; comments tell what differs."""

    fixed: vtkMRMLScalarVolumeNode
    moving: vtkMRMLScalarVolumeNode
    preset: Annotated[str, Choice(list(PRESETS))] = "Automatic"

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

    # The last result, for Result, Review and Transfer: no widget shows these.
    last_fixed: vtkMRMLScalarVolumeNode
    last_moving: vtkMRMLScalarVolumeNode
    last_transformed_volume: vtkMRMLScalarVolumeNode
    last_transform: vtkMRMLGridTransformNode
    last_result: str = ""  # of MorphSeekLib.result_section.summary_of
    last_places: str = "[]"  # JSON of MorphSeekLib.registration.Registration.places


_MENUS = {"preset": PRESETS, "initial": INITIAL, "search": SEARCH, "device": DEVICE}


def forget_unknown(node: Any) -> None:
    """Take from a scene's parameter node the words that this version does not know, and a result
    that it cannot show: another version of the extension may have saved the scene.
    """
    for name, words in _MENUS.items():
        if node.GetParameter(name) not in words:
            node.UnsetParameter(name)
    read = {
        "further_options": dict,
        "last_result": lambda result: COLORS[result["verdict"]["grade"]],
        "last_places": lambda places: [(place["text"], place["lps"]) for place in places],
    }
    for name, look in read.items():
        try:
            look(json.loads(node.GetParameter(name)))
        except (ValueError, KeyError, TypeError):
            node.UnsetParameter(name)


_SAME = (
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
    "steps",
)


def request_of(parameters: MorphSeekParameterNode) -> RegistrationRequest:
    """Return the request that the parameter node stands for."""
    p = parameters
    second = (p.second_fixed, p.second_moving)
    return RegistrationRequest(
        **{name: getattr(p, name) for name in _SAME},
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
        refine=None if p.refine < 0 else p.refine,
        channels=[] if second == (None, None) else [second],
        transfer=[node for node in (p.moving_labels, p.landmarks) if node is not None],
        moving_labels=p.moving_labels if p.fixed_labels is not None else None,
    )


def load_preset(path: str, parameters: MorphSeekParameterNode) -> None:
    """Take the options of a preset's file; options that it does not name get their default.

    Raises RuntimeError or ValueError if it is no preset of these options: nothing was changed.
    """
    fields: dict[str, Any] = {
        "initial": None, "search": None, "device": "auto", "smoothness": "", "model": "",
        "steps": 0, "trajectories": 1, "refine": -1, "threads": 0, "uncertainty": False,
        **presets.load(path),
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
