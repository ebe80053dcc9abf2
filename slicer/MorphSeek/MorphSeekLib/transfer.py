"""Carries segmentations, label maps and landmarks from the moving to the fixed side.

Label maps are resampled once, by nearest neighbours, from their own grid. Segmentations are never
hardened, because on oblique grids that loses their shape. Each of their layers is moved as a label
map, so that overlapping segments survive. During a registration the worker resamples them, except
under a transform that is not linear. Afterwards `transfer` does it through a transform node:

>>> new = transfer(segmentationNode, transformNode, reference=fixedVolumeNode)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from . import geometry, outputs
from .validation import carried_problem, is_under

BINARY = "Binary labelmap"
_NAME = "{} (registered)"


def transfer(node: Any, transform: Any, reference: Any, scene: Any = None) -> Any:
    """Bring a segmentation, label map or markups of the moving side onto the fixed side, as a new
    node.

    Parameters
    ----------
    node : vtkMRMLSegmentationNode, vtkMRMLLabelMapVolumeNode or vtkMRMLMarkupsNode
        Not changed; its parent transform counts.
    transform : vtkMRMLTransformNode
        From a registration.
    reference : vtkMRMLScalarVolumeNode
        The fixed volume: label maps and segmentations get its grid.
    scene : vtkMRMLScene, optional
        The scene of the new node; the reference's by default.

    Returns
    -------
    vtkMRMLNode

    Raises
    ------
    ValueError
        The node is of another class, empty, or under that transform and so on the fixed side
        already; none of its labels lies in the reference; or its label numbers need more than 32
        bits.
    """
    import slicer

    if reason := carried_problem(node):
        raise ValueError(reason)
    if is_under(node, transform):
        raise ValueError(
            f"{node.GetName()} is already under {transform.GetName()}, which moves it: remove it"
            " from that transform, or leave it as it is"
        )
    scratch = slicer.vtkMRMLScene()
    above = geometry.copy_transform(scratch, transform)
    if node.IsA("vtkMRMLMarkupsNode"):
        result = moved_markups(copy_markups(scratch, node), above)
    else:
        parts, grid = layers(scratch, node, above), on_scratch(scratch, reference)
        arrays = [resampled(layer.volume, grid) for layer in parts]
        if reason := nothing_carried(node, parts, arrays):
            raise ValueError(reason)
        result = assemble(scratch, node, parts, arrays, geometry.matrix_of(grid))
    return outputs.publish(scene or reference.GetScene(), result, True)


def on_scratch(scratch: Any, reference: Any) -> Any:
    """Return a copy of `reference` in the scratch scene and in world coordinates; only its grid
    counts.
    """
    copy = geometry.copy_volume(scratch, reference)
    copy.HardenTransform()
    return copy


class Layer(NamedTuple):
    """One label array of a node: a label map has one, a segmentation one or, with overlapping
    segments, several.
    """

    volume: Any
    """Label map volume in the scratch scene, under the node's transform to the world."""
    segments: dict[int, tuple[str, Any]]
    """Identifier and vtkSegment of each segment, by its place in the whole segmentation; empty for
    a label map.
    """

    def names(self) -> dict[str, int]:
        """Return the label value of each segment's name or, in a label map, of each number."""
        if self.segments:
            return {
                segment.GetName(): segment.GetLabelValue() for _, segment in self.segments.values()
            }
        values = np.unique(geometry.array_of(self.volume))
        # a label map of floats may have other values
        whole = values[np.isfinite(values) & (values == np.rint(values)) & (values != 0)]
        return {str(int(value)): int(value) for value in whole}

    def in_world(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the array with a border of zeros, and its 4x4 index to LPS matrix. Segments are
        cropped, if need be to nothing.

        The transform to the world must be linear; any other would resample the voxels.
        """
        self.volume.HardenTransform()
        matrix = geometry.matrix_of(self.volume)
        matrix[:3, 3] -= matrix[:3, :3].sum(axis=1)
        return np.pad(geometry.array_of(self.volume), 1), matrix


def layers(scratch: Any, node: Any, above: Any = None) -> list[Layer]:
    """Return the layers of a label map or segmentation, the node's own transform under `above`."""
    import slicer

    if not node.IsA("vtkMRMLSegmentationNode"):
        return [Layer(geometry.copy_volume(scratch, node, above), {})]
    copy = geometry.add(scratch, "vtkMRMLSegmentationNode")
    copy.CopyContent(node, True)  # so that making the representation leaves the user's node alone
    segmentation = copy.GetSegmentation()
    if not segmentation.CreateRepresentation(BINARY):
        raise ValueError(f"{node.GetName()} cannot be converted to a binary label map")
    places = {segmentation.GetNthSegmentID(i): i for i in range(segmentation.GetNumberOfSegments())}
    parts = []
    for i in range(segmentation.GetNumberOfLayers(BINARY)):
        image = segmentation.GetLayerDataObject(i, BINARY)
        volume = geometry.add(scratch, "vtkMRMLLabelMapVolumeNode")
        if image.GetNumberOfPoints():
            slicer.vtkSlicerSegmentationsModuleLogic.CreateLabelmapVolumeFromOrientedImageData(
                image, volume
            )
            geometry.narrow(volume)
        else:  # all segments are empty
            geometry.fill_volume(volume, np.zeros((1, 1, 1), np.uint8), np.eye(4))
        geometry.put_under(scratch, volume, node.GetParentTransformNode(), above)
        names = segmentation.GetSegmentIDsForLayer(i, BINARY)
        parts.append(
            Layer(volume, {places[name]: (name, segmentation.GetSegment(name)) for name in names})
        )
    return parts


def nothing_carried(node: Any, parts: list[Layer], arrays: list[np.ndarray]) -> str:
    """Return a sentence where a node has labels and none of them is left in these arrays; or ""."""
    if any(map(np.any, arrays)) or not any(geometry.array_of(p.volume).any() for p in parts):
        return ""
    return (
        f"{node.GetName()}: none of its labels lies in the fixed volume, so what was carried over"
        " is empty; check that it belongs to the moving volume"
    )


def assemble(
    scratch: Any, node: Any, parts: list[Layer], arrays: list[np.ndarray], matrix: np.ndarray
) -> Any:
    """Return a new label map or segmentation in the scratch scene whose layers are these arrays on
    that grid.

    Its segments are those of `parts`, even if the node has changed since: `node` gives only its
    class and its name.
    """
    import slicer

    volumes = []
    for array in arrays:
        volumes.append(geometry.add(scratch, "vtkMRMLLabelMapVolumeNode"))
        geometry.fill_volume(volumes[-1], array, matrix)
    if not node.IsA("vtkMRMLSegmentationNode"):
        volumes[0].SetName(_NAME.format(node.GetName()))
        return volumes[0]
    result = geometry.add(scratch, "vtkMRMLSegmentationNode")
    segments = {}
    for layer, volume in zip(parts, volumes):
        result.SetReferenceImageGeometryParameterFromVolumeNode(volume)
        image = slicer.vtkSlicerSegmentationsModuleLogic.CreateOrientedImageDataFromVolumeNode(
            volume
        )
        image.UnRegister(None)  # drops C++'s reference; Python holds its own
        for place, (name, segment) in layer.segments.items():
            copy = slicer.vtkSegment()
            copy.DeepCopyMetadata(segment)
            copy.SetLabelValue(segment.GetLabelValue())
            copy.AddRepresentation(BINARY, image)
            segments[place] = name, copy
    for _, (name, segment) in sorted(segments.items()):
        result.GetSegmentation().AddSegment(segment, name)
    result.SetName(_NAME.format(node.GetName()))
    return result


def labels_on(scratch: Any, node: Any, reference: Any) -> dict[str, tuple[np.ndarray, int]]:
    """Return each label of a label map or segmentation, on the grid of a volume, as (array, value):
    the label is where the array equals the value.

    Keys are the segments' names, or the label map's numbers, also of labels outside the grid.
    """
    parts = layers(scratch, node)
    return by_name(parts, [resampled(layer.volume, reference) for layer in parts])


def by_name(parts: list[Layer], arrays: list[np.ndarray]) -> dict[str, tuple[np.ndarray, int]]:
    """Return what labels_on returns, for layers that are resampled already."""
    return {
        name: (array, value)
        for layer, array in zip(parts, arrays)
        for name, value in layer.names().items()
    }


def mask_on(scratch: Any, node: Any, reference: Any) -> np.ndarray:
    """Return 1 where a label map or segmentation is not zero, on the grid of a volume: uint8,
    (z, y, x).
    """
    mask = np.zeros(reference.GetImageData().GetDimensions()[::-1], np.uint8)
    for layer in layers(scratch, node):
        mask |= resampled(layer.volume, reference) != 0
    return mask


def numbered_on(scratch: Any, node: Any, reference: Any) -> np.ndarray:
    """Return a label map or segmentation as one array on the grid of a volume: int16, (z, y, x).
    Labels are numbered from 1 on; where segments overlap, the last one counts.
    """
    labels = labels_on(scratch, node, reference)
    return _numbered(reference.GetImageData().GetDimensions()[::-1], labels, labels)


def numbered_alike(
    fixed: dict[str, tuple[np.ndarray, int]], moving: dict[str, tuple[np.ndarray, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of each side, which labels_on returned, as one array: int16, (z, y, x).
    Labels that both sides have get the same number, from 1 on. Where segments overlap, the last one
    counts. Raises ValueError if the sides have no label in common.
    """
    names = [name for name in fixed if name in moving]
    if not names:
        raise ValueError(
            "To let labels drive the registration, give them the same names or numbers on both"
            " sides: now they have none in common"
        )
    ours, theirs = (side[names[0]][0].shape for side in (fixed, moving))
    return _numbered(ours, fixed, names), _numbered(theirs, moving, names)


def _numbered(
    shape: tuple[int, ...], labels: dict[str, tuple[np.ndarray, int]], names: Iterable[str]
) -> np.ndarray:
    numbered = np.zeros(shape, np.int16)
    for number, name in enumerate(names, 1):
        array, value = labels[name]
        numbered[array == value] = number
    return numbered


def dice(
    a: dict[str, tuple[np.ndarray, int]], b: dict[str, tuple[np.ndarray, int]]
) -> dict[str, float]:
    """Return the Dice overlap of every label that both sides have; two empty ones are left out."""
    scores = {}
    for name in a:
        if name not in b:
            continue
        first, second = (array == value for array, value in (a[name], b[name]))
        if size := int(np.count_nonzero(first) + np.count_nonzero(second)):
            scores[name] = 2 * int(np.count_nonzero(first & second)) / size
    return scores


def titles(labels: Iterable[str], *nodes: Any) -> dict[str, str]:
    """Return what labels are called: a segment by its name, a number of label maps by its name in
    the first one's colours that have one. No two are called the same.
    """
    names = {label: label for label in labels}
    for label in names if nodes[0].IsA("vtkMRMLLabelMapVolumeNode") else ():
        color_names = (_color_name(node.GetDisplayNode(), int(label)) for node in nodes)
        names[label] = next(filter(None, color_names), f"label {label}")
    all_names = list(names.values())
    return {
        label: f"{name} ({label})" if all_names.count(name) > 1 else name
        for label, name in names.items()
    }


def _color_name(display: Any, number: int) -> str:
    colors = display.GetColorNode() if display is not None else None
    if colors is None or not 0 <= number < colors.GetNumberOfColors():
        return ""
    name = colors.GetColorName(number)
    return "" if name == "(none)" else name  # of a colour without a name, in older Slicers


def resampled(volume: Any, reference: Any) -> np.ndarray:
    """Return a label map volume on the grid of another volume, by nearest neighbours."""
    import slicer

    return geometry.array_of(
        slicer.vtkSlicerVolumesLogic.ResampleVolumeToReferenceVolume(volume, reference)
    )


def copy_markups(scratch: Any, node: Any) -> Any:
    """Return a copy of markups in the scratch scene, under no transform, with the points in world
    coordinates as they are now.
    """
    copy = geometry.add(scratch, node.GetClassName())
    copy.CopyContent(node, True)
    copy.SetName(_NAME.format(node.GetName()))
    geometry.put_under(scratch, copy, node.GetParentTransformNode())
    return _points_in_world(copy)


def moved_markups(copy: Any, above: Any) -> Any:
    """Return a copy that copy_markups made, its points moved by the transform `above` of the same
    scene.
    """
    copy.SetAndObserveTransformNodeID(above.GetID())
    return _points_in_world(copy)


def _points_in_world(markups: Any) -> Any:
    """Remove the transform of markups and leave every point where it is, defined or not."""
    points = [
        (markups.GetNthControlPointPositionWorld(i), markups.GetNthControlPointPositionStatus(i))
        for i in range(markups.GetNumberOfControlPoints())
    ]
    markups.SetAndObserveTransformNodeID(None)
    for i, (position, status) in enumerate(points):
        markups.SetNthControlPointPosition(i, position, status)
    return markups
