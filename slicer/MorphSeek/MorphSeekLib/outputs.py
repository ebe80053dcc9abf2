"""Puts results into the user's scene. All nodes are first built in the scratch scene; then all are
published, or none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import geometry

_NAMES = {
    "transformed_volume": "{moving} on {fixed}",
    "transform": "{moving} to {fixed}",
    "inverse_transform": "{fixed} to {moving}",
    "displacement_magnitude": "{moving} to {fixed} displacement (mm)",
    "jacobian": "{moving} to {fixed} Jacobian",
    "uncertainty": "{moving} to {fixed} uncertainty (mm)",
}


def build(
    scratch: Any, output: str, array: np.ndarray, entry: dict[str, Any], fixed: Any, moving: Any
) -> Any:
    """Return an output, with the worker's entry for it, as a node of the scratch scene."""
    matrix = np.array(entry["matrix"])
    if output in ("transform", "inverse_transform"):
        initial = np.array(entry["initial"])
        node = geometry.add(scratch, "vtkMRMLGridTransformNode")
        if entry["linear"]:  # a matrix, which Slicer's Transforms edits
            transform = geometry.linear_transform(initial)
        elif np.array_equal(initial, np.eye(4)):  # a grid, which Slicer's tools for grids take
            transform = geometry.grid_transform(array, matrix)
        else:
            transform = geometry.before_linear(geometry.grid_transform(array, matrix), initial)
        node.SetAndObserveTransformFromParent(transform)
    else:
        node = geometry.add(scratch, "vtkMRMLScalarVolumeNode")
        geometry.fill_volume(node, array, matrix)
    node.SetName(_NAMES[output].format(moving=moving.GetName(), fixed=fixed.GetName()))
    return node


def publish(scene: Any, draft: Any, target: Any) -> Any:
    """Bring a node of the scratch scene into the user's: into a new node, or into `target` where
    that is a node still there.

    Voxels and vectors are handed over, not copied, since the scratch scene is deleted afterwards.
    """
    new = target is True or target.GetScene() is None
    node = (
        scene.AddNewNodeByClass(draft.GetClassName(), scene.GetUniqueNameByString(draft.GetName()))
        if new
        else target
    )
    node.CopyContent(draft, False)
    node.SetAndObserveTransformNodeID(None)  # results are in world coordinates
    node.CreateDefaultDisplayNodes()
    return node


def content_of(node: Any) -> tuple[Any, Any]:
    """Return what :func:`restore` brings back: a node's content, and the transform it is under."""
    copy = node.CreateNodeInstance()
    copy.CopyContent(node, False)  # the voxels are the node's own, which nobody changes in place
    return copy, node.GetTransformNodeID()


def restore(node: Any, content: tuple[Any, Any]) -> None:
    """Give a node back the content that it had."""
    node.CopyContent(content[0], False)
    node.SetAndObserveTransformNodeID(content[1])


def nodes_of(scene: Any) -> list[Any]:
    """Return every node of a scene."""
    return [scene.GetNthNode(i) for i in range(scene.GetNumberOfNodes())]


def refer(node: Any, fixed: Any, moving: Any) -> None:
    """Note on a transform node which volumes it maps from and to."""
    node.SetNodeReferenceID(node.GetFixedNodeReferenceRole(), fixed.GetID())
    node.SetNodeReferenceID(node.GetMovingNodeReferenceRole(), moving.GetID())


def volumes_of(node: Any) -> list[Any]:
    """Return the fixed and the moving volume of a transform node; None where it does not say."""
    roles = node.GetFixedNodeReferenceRole(), node.GetMovingNodeReferenceRole()
    return [node.GetNodeReference(role) for role in roles]


def show_like(node: Any, draft: Any) -> None:
    """Give a volume the window, level and colours of another."""
    display, like = node.GetDisplayNode(), draft.GetDisplayNode()
    if display is None or like is None or display.GetClassName() != like.GetClassName():
        return  # of a label map that was registered, say, whose result is no label map
    if not node.IsA("vtkMRMLLabelMapVolumeNode"):
        display.SetAutoWindowLevel(False)
        display.SetWindowLevel(like.GetWindow(), like.GetLevel())
    if like.GetColorNodeID():
        display.SetAndObserveColorNodeID(like.GetColorNodeID())
