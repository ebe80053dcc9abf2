"""Segmentations, label maps and landmarks, from the moving to the fixed side.

Label maps are resampled by nearest neighbours, once, from their own grid. Segmentations are never
hardened (on oblique grids that loses their shape): each of their layers is moved as a label map, so
that overlapping segments survive. During a registration the worker resamples them, except under a
transform that is not linear; afterwards `transfer` does, through a transform node:

>>> new = transfer(segmentationNode, transformNode, reference=fixedVolumeNode)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from . import geometry, outputs
from .request import is_under

BINARY = "Binary labelmap"
_NAME = "{} (registered)"


def transfer(node: Any, transform: Any, reference: Any, scene: Any = None) -> Any:
    """Make a new node that is a segmentation, label map or markups of the moving side brought onto
    the fixed side.

    Parameters
    ----------
    node : vtkMRMLSegmentationNode, vtkMRMLLabelMapVolumeNode or vtkMRMLMarkupsNode
        Not changed; its parent transform counts.
    transform : vtkMRMLTransformNode
        From a registration.
    reference : vtkMRMLScalarVolumeNode
        The fixed volume: label maps and segmentations get its grid.
    scene : vtkMRMLScene, optional
        Where the new node goes; the reference's by default.

    Returns
    -------
    vtkMRMLNode

    Raises
    ------
    ValueError
        The node is under that transform: it is on the fixed side already. Or its label numbers need
        more than 32 bits.
    """
    import slicer

    if is_under(node, transform):
        raise ValueError(
            f"{node.GetName()} is under {transform.GetName()} already, which moves it: take it off"
            " that transform, or leave it as it is"
        )
    scratch = slicer.vtkMRMLScene()
    above = geometry.copy_transform(scratch, transform)
    if node.IsA("vtkMRMLMarkupsNode"):
        made = moved_markups(copy_markups(scratch, node), above)
    else:
        found, grid = layers(scratch, node, above), on_scratch(scratch, reference)
        made = assemble(
            scratch,
            node,
            found,
            [resampled(layer.volume, grid) for layer in found],
            geometry.matrix_of(grid),
        )
    return outputs.publish(scene or reference.GetScene(), made, True)


def on_scratch(scratch: Any, reference: Any) -> Any:
    """Return the volume whose grid is meant by `reference`, in the scratch scene and in the
    world.
    """
    copy = geometry.copy_volume(scratch, reference)
    copy.HardenTransform()
    return copy


class Layer(NamedTuple):
    """One label array of a node: a label map has one, a segmentation one for every level of
    overlap.
    """

    volume: Any
    """Label map volume in the scratch scene, under the node's transform to the world."""
    segments: dict[int, tuple[str, Any]]
    """Place in the segmentation, over all its layers, to identifier and vtkSegment; empty for a
    label map.
    """

    def names(self) -> dict[str, int]:
        """Return the segments' names, or the label map's numbers, with their values."""
        if self.segments:
            return {
                segment.GetName(): segment.GetLabelValue() for _, segment in self.segments.values()
            }
        values = np.unique(geometry.array_of(self.volume))
        # of a label map of floats, too
        whole = values[np.isfinite(values) & (values == np.rint(values)) & (values != 0)]
        return {str(int(value)): int(value) for value in whole}

    def in_world(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the array, a border of zeros around it, and its 4x4 index to LPS matrix; segments
        are cropped, to nothing even.

        For a linear transform to the world, which leaves the voxels as they are; another would
        resample them.
        """
        self.volume.HardenTransform()
        matrix = geometry.matrix_of(self.volume)
        matrix[:3, 3] -= matrix[:3, :3].sum(axis=1)
        return np.pad(geometry.array_of(self.volume), 1), matrix


def layers(scratch: Any, node: Any, above: Any = None) -> list[Layer]:
    """Return the layers of a label map or segmentation, `above` over the node's own transform."""
    import slicer

    if not node.IsA("vtkMRMLSegmentationNode"):
        return [Layer(geometry.copy_volume(scratch, node, above), {})]
    copy = geometry.add(scratch, "vtkMRMLSegmentationNode")
    copy.CopyContent(node, True)  # making the representation must not change the user's node
    segmentation = copy.GetSegmentation()
    if not segmentation.CreateRepresentation(BINARY):
        raise ValueError(f"{node.GetName()} cannot be converted to a binary label map")
    places = {segmentation.GetNthSegmentID(i): i for i in range(segmentation.GetNumberOfSegments())}
    found = []
    for i in range(segmentation.GetNumberOfLayers(BINARY)):
        image = segmentation.GetLayerDataObject(i, BINARY)
        volume = geometry.add(scratch, "vtkMRMLLabelMapVolumeNode")
        if image.GetNumberOfPoints():
            slicer.vtkSlicerSegmentationsModuleLogic.CreateLabelmapVolumeFromOrientedImageData(
                image, volume
            )
            geometry.narrow(volume)
        else:  # nothing but empty segments
            geometry.fill_volume(volume, np.zeros((1, 1, 1), np.uint8), np.eye(4))
        geometry.put_under(scratch, volume, node.GetParentTransformNode(), above)
        names = segmentation.GetSegmentIDsForLayer(i, BINARY)
        found.append(
            Layer(volume, {places[name]: (name, segmentation.GetSegment(name)) for name in names})
        )
    return found


def assemble(
    scratch: Any, node: Any, found: list[Layer], arrays: list[np.ndarray], matrix: np.ndarray
) -> Any:
    """Return, in the scratch scene, what a label map or segmentation becomes when its layers are
    these arrays on that grid.

    The segments are those of `found`, whatever became of the node's since: it gives no more than
    its class and its name.
    """
    import slicer

    volumes = []
    for array in arrays:
        volumes.append(geometry.add(scratch, "vtkMRMLLabelMapVolumeNode"))
        geometry.fill_volume(volumes[-1], array, matrix)
    if not node.IsA("vtkMRMLSegmentationNode"):
        volumes[0].SetName(_NAME.format(node.GetName()))
        return volumes[0]
    made = geometry.add(scratch, "vtkMRMLSegmentationNode")
    segments = {}
    for layer, volume in zip(found, volumes):
        made.SetReferenceImageGeometryParameterFromVolumeNode(volume)
        image = slicer.vtkSlicerSegmentationsModuleLogic.CreateOrientedImageDataFromVolumeNode(
            volume
        )
        image.UnRegister(None)  # C++ made it for its caller to keep; Python holds its own reference
        for place, (name, segment) in layer.segments.items():
            copy = slicer.vtkSegment()
            copy.DeepCopyMetadata(segment)
            copy.SetLabelValue(segment.GetLabelValue())
            copy.AddRepresentation(BINARY, image)
            segments[place] = name, copy
    for _, (name, segment) in sorted(segments.items()):
        made.GetSegmentation().AddSegment(segment, name)
    made.SetName(_NAME.format(node.GetName()))
    return made


def labels_on(scratch: Any, node: Any, reference: Any) -> dict[str, tuple[np.ndarray, int]]:
    """Return each label of a label map or segmentation, on the grid of a volume, as (array, value):
    it is where they are equal.

    Keys are the segments' names, or the label map's numbers, those outside the grid included.
    """
    found = layers(scratch, node)
    return by_name(found, [resampled(layer.volume, reference) for layer in found])


def by_name(found: list[Layer], arrays: list[np.ndarray]) -> dict[str, tuple[np.ndarray, int]]:
    """Return what labels_on does, for layers that are arrays already."""
    return {
        name: (array, value)
        for layer, array in zip(found, arrays)
        for name, value in layer.names().items()
    }


def mask_on(scratch: Any, node: Any, reference: Any) -> np.ndarray:
    """Return where a label map or segmentation is not zero, on the grid of a volume: uint8, (z, y,
    x).
    """
    mask = np.zeros(reference.GetImageData().GetDimensions()[::-1], np.uint8)
    for layer in layers(scratch, node):
        mask |= resampled(layer.volume, reference) != 0
    return mask


def numbered_on(scratch: Any, node: Any, reference: Any) -> np.ndarray:
    """Return a label map or segmentation as one array of numbers from 1 on, a label each, on the
    grid of a volume: int16, (z, y, x). Of segments that overlap the last one is seen.
    """
    labels = labels_on(scratch, node, reference)
    numbered = np.zeros(reference.GetImageData().GetDimensions()[::-1], np.int16)
    return _numbered(numbered, labels, labels)


def numbered_alike(
    fixed: dict[str, tuple[np.ndarray, int]], moving: dict[str, tuple[np.ndarray, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of both sides, as labels_on has them, as an array each: what both have gets
    the same number, from 1 on; int16, (z, y, x). Of segments that overlap the last one is seen.

    Raises
    ------
    ValueError
        They have no label in common.
    """
    names = [name for name in fixed if name in moving]
    if not names:
        raise ValueError(
            "To let labels drive, give them the same names or numbers on both sides: they have none"
            " in common"
        )
    both = [
        _numbered(np.zeros(next(iter(side.values()))[0].shape, np.int16), side, names)
        for side in (fixed, moving)
    ]
    return both[0], both[1]


def _numbered(
    numbered: np.ndarray, labels: dict[str, tuple[np.ndarray, int]], names: Iterable[str]
) -> np.ndarray:
    for number, name in enumerate(names, 1):
        array, value = labels[name]
        numbered[array == value] = number
    return numbered


def dice(
    a: dict[str, tuple[np.ndarray, int]], b: dict[str, tuple[np.ndarray, int]]
) -> dict[str, float]:
    """Return the Dice overlap of every label that both have; of two empty ones, none."""
    scores = {}
    for name in a:
        if name not in b:
            continue
        first, second = (array == value for array, value in (a[name], b[name]))
        if size := int(np.count_nonzero(first) + np.count_nonzero(second)):
            scores[name] = 2 * int(np.count_nonzero(first & second)) / size
    return scores


def resampled(volume: Any, reference: Any) -> np.ndarray:
    """Return a label map volume on the grid of another volume, by nearest neighbours."""
    import slicer

    return geometry.array_of(
        slicer.vtkSlicerVolumesLogic.ResampleVolumeToReferenceVolume(volume, reference)
    )


def copy_markups(scratch: Any, node: Any) -> Any:
    """Return a copy of markups in the scratch scene, under no transform, whose points lie where the
    node's lie in the world now.
    """
    copy = geometry.add(scratch, node.GetClassName())
    copy.CopyContent(node, True)
    copy.SetName(_NAME.format(node.GetName()))
    geometry.put_under(scratch, copy, node.GetParentTransformNode())
    return _points_in_world(copy)


def points_of(node: Any) -> dict[str, Any]:
    """Return the points of markups that are defined, LPS mm in the world, with their labels."""
    defined = [
        i
        for i in range(node.GetNumberOfControlPoints())
        if node.GetNthControlPointPositionStatus(i) == node.PositionDefined
    ]
    places = [node.GetNthControlPointPositionWorld(i) for i in defined]
    return {
        "points": [[-p[0], -p[1], p[2]] for p in places],
        "names": [node.GetNthControlPointLabel(i) for i in defined],
        "source": node.GetName(),
    }


def moved_markups(copy: Any, above: Any) -> Any:
    """Return what copy_markups made, its points where the transform `above` of that scene brings
    them.
    """
    copy.SetAndObserveTransformNodeID(above.GetID())
    return _points_in_world(copy)


def _points_in_world(markups: Any) -> Any:
    """Take markups off their transform and leave every point where it is, defined or not."""
    points = [
        (markups.GetNthControlPointPositionWorld(i), markups.GetNthControlPointPositionStatus(i))
        for i in range(markups.GetNumberOfControlPoints())
    ]
    markups.SetAndObserveTransformNodeID(None)
    for i, (position, status) in enumerate(points):
        markups.SetNthControlPointPosition(i, position, status)
    return markups
