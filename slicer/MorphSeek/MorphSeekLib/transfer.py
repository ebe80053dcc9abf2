"""Segmentations, label maps and landmarks through a transform, from the moving to the fixed side.

Label maps are resampled by nearest neighbours, once, from their own grid. Segmentations are never hardened (on oblique grids that
loses their shape): each of their layers is moved as a label map, so that overlapping segments survive.

>>> new = transfer(segmentationNode, transformNode, reference=fixedVolumeNode)      # in Slicer's Python console
"""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from . import geometry, outputs

BINARY = "Binary labelmap"


def transfer(node: Any, transform: Any, reference: Any, scene: Any = None) -> Any:
    """Make a new node that is a segmentation, label map or markups of the moving side brought onto the fixed side.

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
    """
    import slicer

    scratch = slicer.vtkMRMLScene()
    made = moved(scratch, node, geometry.copy_transform(scratch, transform), on_scratch(scratch, reference))
    return outputs.publish(scene or reference.GetScene(), made, True)


def moved(scratch: Any, node: Any, above: Any, reference: Any) -> Any:
    """Return, in the scratch scene, a node as it lies under the transform `above` of that scene; labels on the reference's grid."""
    if node.IsA("vtkMRMLMarkupsNode"):
        made = _moved_markups(scratch, node, above)
    elif node.IsA("vtkMRMLSegmentationNode"):
        made = _moved_segmentation(scratch, node, above, reference)
    else:
        made = _resampled(geometry.copy_volume(scratch, node, above), reference)
    made.SetName(f"{node.GetName()} (registered)")
    return made


def on_scratch(scratch: Any, reference: Any) -> Any:
    """Return the volume whose grid is meant by `reference`, in the scratch scene and in the world."""
    copy = geometry.copy_volume(scratch, reference)
    copy.HardenTransform()
    return copy


def labels_on(scratch: Any, node: Any, reference: Any, above: Any = None) -> dict[str, tuple[np.ndarray, int]]:
    """Return each label of a label map or segmentation, on the grid of a scratch volume, as (array, value): it is where they are equal.

    Keys are the segments' names, or the label map's numbers.
    """
    found = {}
    for array, names in _arrays_on(scratch, node, reference, above):
        found |= {name: (array, value) for value, name in names.items()}
    return found


def mask_on(scratch: Any, node: Any, reference: Any) -> np.ndarray:
    """Return where a label map or segmentation is not zero, on the grid of a scratch volume: uint8, (z, y, x)."""
    mask = np.zeros(reference.GetImageData().GetDimensions()[::-1], np.uint8)
    for array, _ in _arrays_on(scratch, node, reference):
        mask |= array != 0
    return mask


def _arrays_on(scratch: Any, node: Any, reference: Any, above: Any = None) -> Iterator[tuple[np.ndarray, dict[int, str]]]:
    """Yield the label arrays on the reference's grid, one a layer, with the names of their values."""
    if node.IsA("vtkMRMLSegmentationNode"):
        for image, segments in _layers(scratch, node):
            array = geometry.array_of(_resampled(_layer_volume(scratch, image, node, above), reference))
            yield array, {segment.GetLabelValue(): segment.GetName() for segment in segments.values()}
        return
    array = geometry.array_of(_resampled(geometry.copy_volume(scratch, node, above), reference))
    yield array, {int(value): str(value) for value in np.unique(array) if value != 0}


def dice(a: dict[str, tuple[np.ndarray, int]], b: dict[str, tuple[np.ndarray, int]]) -> dict[str, float]:
    """Return the Dice overlap of every label that both have; of two empty ones, none."""
    scores = {}
    for name in a:
        if name not in b:
            continue
        first, second = (array == value for array, value in (a[name], b[name]))
        if size := int(np.count_nonzero(first) + np.count_nonzero(second)):
            scores[name] = 2 * int(np.count_nonzero(first & second)) / size
    return scores


def _resampled(volume: Any, reference: Any) -> Any:
    import slicer

    made = slicer.vtkSlicerVolumesLogic.ResampleVolumeToReferenceVolume(volume, reference)
    made.SetAndObserveTransformNodeID(None)  # the voxels are where they belong, but the node still has the volume's parent
    return made


def _layers(scratch: Any, node: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield a segmentation's layers: the oriented image and, by identifier, the segments that it holds."""
    copy = geometry.add(scratch, "vtkMRMLSegmentationNode")
    copy.CopyContent(node, True)  # making the representation must not change the user's node
    segmentation = copy.GetSegmentation()
    if not segmentation.CreateRepresentation(BINARY):
        raise ValueError(f"{node.GetName()} cannot be converted to a binary label map")
    for layer in range(segmentation.GetNumberOfLayers(BINARY)):
        names = segmentation.GetSegmentIDsForLayer(layer, BINARY)
        yield segmentation.GetLayerDataObject(layer, BINARY), {name: segmentation.GetSegment(name) for name in names}


def _layer_volume(scratch: Any, image: Any, node: Any, above: Any) -> Any:
    import slicer

    volume = geometry.add(scratch, "vtkMRMLLabelMapVolumeNode")
    slicer.vtkSlicerSegmentationsModuleLogic.CreateLabelmapVolumeFromOrientedImageData(image, volume)
    geometry.put_under(scratch, volume, node.GetParentTransformNode(), above)
    return volume


def _moved_segmentation(scratch: Any, node: Any, above: Any, reference: Any) -> Any:
    import slicer

    made = geometry.add(scratch, "vtkMRMLSegmentationNode")
    made.SetReferenceImageGeometryParameterFromVolumeNode(reference)
    segments = {}
    for image, held in _layers(scratch, node):
        volume = _resampled(_layer_volume(scratch, image, node, above), reference)
        layer = slicer.vtkSlicerSegmentationsModuleLogic.CreateOrientedImageDataFromVolumeNode(volume)
        layer.UnRegister(None)  # C++ made it for its caller to keep; Python holds its own reference
        for name, segment in held.items():
            segments[name] = copy = slicer.vtkSegment()
            copy.DeepCopyMetadata(segment)
            copy.SetLabelValue(segment.GetLabelValue())
            copy.AddRepresentation(BINARY, layer)
    for i in range(node.GetSegmentation().GetNumberOfSegments()):
        name = node.GetSegmentation().GetNthSegmentID(i)
        made.GetSegmentation().AddSegment(segments[name], name)
    return made


def _moved_markups(scratch: Any, node: Any, above: Any) -> Any:
    made = geometry.add(scratch, node.GetClassName())
    made.CopyContent(node, True)
    geometry.put_under(scratch, made, node.GetParentTransformNode(), above)
    world = [made.GetNthControlPointPositionWorld(i) for i in range(made.GetNumberOfControlPoints())]
    made.SetAndObserveTransformNodeID(None)
    for i, position in enumerate(world):
        made.SetNthControlPointPosition(i, position)
    return made
