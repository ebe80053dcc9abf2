"""Says why a request cannot run, in words for the user."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import geometry
from .options import OUTPUTS, PRESETS, SMOOTHNESS

if TYPE_CHECKING:
    from .request import RegistrationRequest

_LABELS = {
    "fixed_mask": "fixed mask",
    "moving_mask": "moving mask",
    "rigid_regions": "map of rigid regions",
    "fixed_labels": "fixed labels",
    "moving_labels": "moving labels",
}


def problem(request: RegistrationRequest) -> str:
    """Return the first reason why a request cannot run; an empty string when it can."""
    checks = (_volumes, _preset, _labels, _landmarks, _channels, _dice, _initial, _transferred)
    return next(filter(None, (check(request) for check in (*checks, _options, _outputs))), "")


def _volumes(r: RegistrationRequest) -> str:
    if r.fixed is None and r.moving is None:
        return "Select the fixed and the moving volume"
    for name, node in (("fixed", r.fixed), ("moving", r.moving)):
        if node is None:
            return f"Select the {name} volume"
        if reason := _volume_problem(node):
            return f"The {name} volume {reason}"
    if r.fixed is r.moving:
        return "The fixed and the moving volume are the same: select two"
    return ""


def _preset(r: RegistrationRequest) -> str:
    if r.preset in PRESETS:
        return ""
    return f"There is no preset {r.preset!r}; choose one of {', '.join(PRESETS)}"


def _labels(r: RegistrationRequest) -> str:
    nodes = {field: getattr(r, field) for field in _LABELS}
    for field, node in nodes.items():
        if node is not None and (reason := _labels_problem(node)):
            return f"The {_LABELS[field]} {reason}"
    given = (node for node in (*nodes.values(), *r.transfer) if node is not None)
    return next(filter(None, map(geometry.labels_problem, given)), "")


def _landmarks(r: RegistrationRequest) -> str:
    nodes = {"fixed": r.fixed_landmarks, "moving": r.moving_landmarks}
    if all(node is None for node in nodes.values()):
        return ""
    for name, node in nodes.items():
        if node is None:
            return f"Select the {name} landmarks, too: both volumes need theirs"
        if not _is_points(node):
            return f"The {name} landmarks ({node.GetName()}) are no markups of points"
        if not node.GetNumberOfDefinedControlPoints():
            return f"The {name} landmarks ({node.GetName()}) have no point: mark some"
    labels = {name: geometry.points_of(node)["names"] for name, node in nodes.items()}
    for name, node in nodes.items() if not set.intersection(*map(set, labels.values())) else ():
        if len(labels[name]) < node.GetNumberOfControlPoints():
            return (
                f"The {name} landmarks ({node.GetName()}) have points without a position, and no"
                " label in common with the others by which to pair them: place or delete these"
            )
    if not r.options().get("landmark_error"):
        return "Set the landmark error: how exactly the landmarks were marked, in mm (1 to 2)"
    return ""


def _channels(r: RegistrationRequest) -> str:
    for pair in r.channels:
        for name, node in zip(("fixed", "moving"), pair):
            if node is None:
                return f"Select the second {name} volume, too: both sides need theirs"
            if reason := _volume_problem(node):
                return f"The second {name} volume ({node.GetName()}) {reason}"
        if pair[0] is r.fixed and pair[1] is r.moving:
            return "The second volumes are the same as the first ones: select others"
    if r.labels_drive and (r.fixed_labels is None or r.moving_labels is None):
        return "To let labels drive the registration, select the labels of both sides"
    return ""


def _dice(r: RegistrationRequest) -> str:
    fixed, moving = r.fixed_labels, r.moving_labels
    if (fixed is None) != (moving is None):
        return "To measure Dice, select the labels of both sides; else select none"
    if fixed is None:
        return ""
    if fixed.GetClassName() != moving.GetClassName():
        return "To measure Dice, select two segmentations or two label maps"
    if fixed.IsA("vtkMRMLSegmentationNode"):
        ours, theirs = _segment_names(fixed), _segment_names(moving)
        if not {*ours} & {*theirs}:
            return (
                "To measure Dice, give the segments of both sides the same names: now they have"
                " none in common"
            )
        if twice := next((n for names in (ours, theirs) for n in names if names.count(n) > 1), ""):
            return f"To measure Dice, give each segment a name of its own: {twice} occurs twice"
    return ""


def _initial(r: RegistrationRequest) -> str:
    node = r.initial_transform
    if node is None:
        return ""
    if not node.IsA("vtkMRMLTransformNode"):
        return "The initial transform is no transform: select a transform node"
    if is_under(r.moving, node):
        return (
            "The initial transform is on the moving volume already: remove it from the volume, or"
            " leave the initial transform empty"
        )
    if node.IsTransformToWorldLinear() and np.linalg.matrix_rank(geometry.to_world(node)) < 4:
        return (
            f"The initial transform ({node.GetName()}) is singular: it flattens space; correct its"
            " matrix, or select another"
        )
    return ""


def _transferred(r: RegistrationRequest) -> str:
    return next(filter(None, map(carried_problem, r.transfer)), "")


def carried_problem(node: Any) -> str:
    """Return why a node cannot be carried over; an empty string when it can."""
    if _is_labels(node):
        reason = _labels_problem(node)
        return reason and f"{node.GetName()} {reason}"
    if _is_points(node):
        return ""
    return (
        f"{node.GetName()} cannot be carried over: it is no segmentation, label map, or markups of"
        " points"
    )


def _options(r: RegistrationRequest) -> str:
    if r.smoothness is not None and r.smoothness not in SMOOTHNESS and not _is_number(r.smoothness):
        return f"The smoothness must be {', '.join(SMOOTHNESS)} or a number of mm"
    if not r.field_spacing >= 0:
        return "The spacing of the transform must be 0 (the fixed volume's grid) or more"
    if r.model and r.model.endswith(".onnx") and not Path(r.model).is_file():
        return f"There is no network file {r.model}"
    return ""


def _outputs(r: RegistrationRequest) -> str:
    chosen = [getattr(r, name) for name in OUTPUTS]
    if not any(chosen) and not r.transfer and r.fixed_labels is None:
        return "Select at least one output"
    for name, node in zip(OUTPUTS, chosen):
        if node and node is not True and not _can_be(node, name):
            return f"{node.GetName()} cannot be the {name.replace('_', ' ')}: select another node"
    nodes = [node for node in chosen if node and node is not True]
    fields = ("fixed", "moving", *_LABELS, "fixed_landmarks", "moving_landmarks")
    inputs = [
        *(getattr(r, field) for field in (*fields, "initial_transform")),
        *(node for pair in r.channels for node in pair),
        *r.transfer,
    ]
    for i, node in enumerate(nodes):
        if any(node is other for other in inputs):
            return f"{node.GetName()} is an input: select another node for the output"
        if any(node is other for other in nodes[:i]):
            return f"{node.GetName()} is selected for two outputs"
        for other in inputs:
            if other is not None and is_under(other, node):
                return (
                    f"{other.GetName()} lies under {node.GetName()}, which would be overwritten:"
                    " remove it from that transform, or select another output"
                )
    return ""


def is_under(node: Any, transform: Any) -> bool:
    """Whether a transform is one of the transforms above a node."""
    parent = node.GetParentTransformNode() if node.IsA("vtkMRMLTransformableNode") else None
    return parent is not None and (parent is transform or parent.IsTransformNodeMyParent(transform))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_labels(node: Any) -> bool:
    return node.IsA("vtkMRMLSegmentationNode") or node.IsA("vtkMRMLLabelMapVolumeNode")


def _is_points(node: Any) -> bool:
    return (
        node.IsA("vtkMRMLMarkupsNode")
        and not node.IsA("vtkMRMLMarkupsROINode")
        and not node.IsA("vtkMRMLMarkupsPlaneNode")
    )


def _segment_names(node: Any) -> list[str]:
    segmentation = node.GetSegmentation()
    return [
        segmentation.GetNthSegment(i).GetName() for i in range(segmentation.GetNumberOfSegments())
    ]


def _can_be(node: Any, output: str) -> bool:
    if output in ("transform", "inverse_transform"):
        return node.GetClassName() in ("vtkMRMLTransformNode", "vtkMRMLGridTransformNode")
    return node.GetClassName() == "vtkMRMLScalarVolumeNode"


def _volume_problem(node: Any) -> str:
    if not node.IsA("vtkMRMLScalarVolumeNode"):
        return "is no scalar volume"
    image = node.GetImageData()
    if image is None or not image.GetPointData().GetScalars():
        return "holds no image"
    if image.GetNumberOfScalarComponents() != 1:
        return (
            f"has {image.GetNumberOfScalarComponents()} components a voxel; select a scalar volume"
        )
    if min(image.GetDimensions()) < 2:
        return "is a single slice; registration needs a 3-D volume"
    return ""


def _labels_problem(node: Any) -> str:
    if not _is_labels(node):
        return "is neither a segmentation nor a label map"
    if node.IsA("vtkMRMLSegmentationNode"):
        return "" if node.GetSegmentation().GetNumberOfSegments() else "has no segments"
    return "" if node.GetImageData() is not None else "holds no image"
