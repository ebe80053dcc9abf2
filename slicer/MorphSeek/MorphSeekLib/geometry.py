"""Converts MRML volumes to arrays and matrices to LPS, and back, in world coordinates.

Slicer uses RAS, MorphSeek LPS: x and y change sign. The user's nodes are only read. Functions that
must change a node work on a copy in a scene of their own (`scratch`), under a copy of the node's
transform to the world.
"""

from __future__ import annotations

from typing import Any

import numpy as np

RAS_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""RAS to LPS, and back: it is its own inverse."""


def add(scratch: Any, kind: str) -> Any:
    """Add a node of a class to the scratch scene, which, unlike the application's, may not have
    that class registered.
    """
    import slicer

    return scratch.AddNode(getattr(slicer, kind)())


def in_world(scratch: Any, node: Any) -> Any:
    """Return a volume in world coordinates: itself or, if it is under a transform, a hardened copy
    in the scratch scene.
    """
    if node.GetParentTransformNode() is None:
        return node
    copy = copy_volume(scratch, node)
    copy.HardenTransform()
    return copy


def copy_volume(scratch: Any, node: Any, above: Any = None) -> Any:
    """Return a copy of a volume in the scratch scene, under a copy of its transform to the world,
    which in turn is under `above`.

    The copy is narrowed. Raises ValueError if a label map's numbers do not fit.
    """
    import slicer

    if reason := labels_problem(node):
        raise ValueError(reason)
    copy = slicer.vtkSlicerVolumesLogic.CloneVolumeGeneric(
        scratch, node, node.GetName() or "volume", True
    )
    narrow(copy)
    put_under(scratch, copy, node.GetParentTransformNode(), above)
    return copy


def labels_problem(node: Any) -> str:
    """Return why a label map cannot be copied, in words for the user; an empty string if it can, or
    if the node is none.
    """
    if not (node.IsA("vtkMRMLLabelMapVolumeNode") and _is_wide(node)):
        return ""
    low, high = node.GetImageData().GetScalarRange()
    if -(2**31) <= low and high < 2**31:
        return ""
    return (
        f"{node.GetName()} has label numbers of more than 32 bits ({low:.0f} to {high:.0f}): give"
        " its labels smaller numbers"
    )


def narrow(volume: Any) -> None:
    """Convert 64-bit integers to int32 in a label map, to double in an image; leave other types."""
    import slicer

    if _is_wide(volume):
        slicer.util.updateVolumeFromArray(volume, _narrowed(volume, array_of(volume)))


def _is_wide(volume: Any) -> bool:
    """Whether ResampleVolumeToReferenceVolume crashes on a volume's integer type: VTK's long and
    longer ones.
    """
    import vtk

    image = volume.GetImageData()
    wide = (
        vtk.VTK_LONG,
        vtk.VTK_UNSIGNED_LONG,
        vtk.VTK_LONG_LONG,
        vtk.VTK_UNSIGNED_LONG_LONG,
        vtk.VTK_ID_TYPE,
    )
    return image is not None and image.GetScalarType() in wide


def _narrowed(volume: Any, array: np.ndarray) -> np.ndarray:
    """Return an array without 64-bit integers, as Slicer can resample it."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return array
    return array.astype(np.int32 if volume.IsA("vtkMRMLLabelMapVolumeNode") else np.float64)


def put_under(scratch: Any, copy: Any, parent: Any, above: Any = None) -> None:
    """Put a node of the scratch scene under a copy of the transform to the world of `parent`, a
    node of another scene, and that under `above`.
    """
    copy.SetAndObserveTransformNodeID(above.GetID() if above else None)
    if parent is None:
        return
    own = copy_transform(scratch, parent)
    own.SetAndObserveTransformNodeID(above.GetID() if above else None)
    copy.SetAndObserveTransformNodeID(own.GetID())


def copy_transform(scratch: Any, node: Any) -> Any:
    """Return the transform to the world of another scene's transform node as one node of the
    scratch scene.
    """
    import vtk

    # a linear node: inside a general transform, hardening would not see that it is linear
    if node.IsTransformToWorldLinear():
        copy = add(scratch, "vtkMRMLLinearTransformNode")
        matrix = vtk.vtkMatrix4x4()
        node.GetMatrixTransformToWorld(matrix)
        copy.SetMatrixTransformToParent(matrix)
        return copy
    copy = add(scratch, "vtkMRMLTransformNode")
    to_world = vtk.vtkGeneralTransform()
    node.GetTransformToWorld(to_world)
    copy.SetAndObserveTransformToParent(to_world)
    return copy


def keep_transform(scratch: Any, node: Any) -> Any:
    """Return copy_transform's result as it is now: it does not follow later changes of the node or
    of the transforms above it.
    """
    kept, copy = add(scratch, "vtkMRMLTransformNode"), copy_transform(scratch, node)
    kept.CopyContent(copy, True)
    scratch.RemoveNode(copy)
    return kept


def origin_of(node: Any) -> dict[str, Any]:
    """Return for the worker the file that a volume was read from, whose header may contradict
    itself, and the 4x4 index to LPS matrix without transforms; nothing without a file.
    """
    storage = node.GetStorageNode()
    path = storage.GetFileName() if storage is not None else None
    return {"read_from": path, "placed": matrix_of(node).tolist()} if path else {}


def points_of(node: Any) -> dict[str, Any]:
    """Return the defined points of markups, in LPS mm of the world, with the labels of all."""
    numbers = range(node.GetNumberOfControlPoints())
    is_defined = [node.GetNthControlPointPositionStatus(i) == node.PositionDefined for i in numbers]
    defined = [i for i in numbers if is_defined[i]]
    places = [node.GetNthControlPointPositionWorld(i) for i in defined]
    return {
        "points": [[-p[0], -p[1], p[2]] for p in places],
        "names": [node.GetNthControlPointLabel(i) for i in defined],
        "unplaced": [node.GetNthControlPointLabel(i) for i in numbers if not is_defined[i]],
        "source": node.GetName(),
    }


def array_of(volume: Any) -> np.ndarray:
    """Return a view of a volume's voxels, shape (z, y, x)."""
    from vtk.util.numpy_support import vtk_to_numpy

    image = volume.GetImageData()
    return vtk_to_numpy(image.GetPointData().GetScalars()).reshape(image.GetDimensions()[::-1])


def matrix_of(volume: Any) -> np.ndarray:
    """Return the 4x4 matrix from a volume's index (x, y, z) to LPS mm, without its parent
    transform.
    """
    import slicer
    import vtk

    matrix = vtk.vtkMatrix4x4()
    volume.GetIJKToRASMatrix(matrix)
    return RAS_LPS @ slicer.util.arrayFromVTKMatrix(matrix)


def fill_volume(volume: Any, array: np.ndarray, matrix: np.ndarray) -> None:
    """Set the voxels (z, y, x) of a volume node and its grid, a 4x4 index to LPS matrix."""
    import slicer

    slicer.util.updateVolumeFromArray(volume, _narrowed(volume, array))
    volume.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(RAS_LPS @ matrix))


def to_world(node: Any) -> np.ndarray:
    """Return the 4x4 RAS matrix of a linear transform node to the world."""
    import slicer
    import vtk

    matrix = vtk.vtkMatrix4x4()
    node.GetMatrixTransformToWorld(matrix)
    return slicer.util.arrayFromVTKMatrix(matrix)


def initial_matrix(node: Any) -> np.ndarray:
    """Return a linear transform node as 4x4 LPS matrix from fixed to moving space. The node brings
    moving nodes near the fixed ones.
    """
    return RAS_LPS @ np.linalg.inv(to_world(node)) @ RAS_LPS


def field_on(node: Any, volume: Any) -> np.ndarray:
    """Return the displacements of a transform node from fixed to moving space at a volume's voxels:
    float32 (z, y, x, 3), LPS mm, components x, y, z. The node brings moving nodes near the fixed
    ones.
    """
    import vtk
    from vtk.util.numpy_support import numpy_to_vtk, vtk_to_numpy

    from_world = vtk.vtkGeneralTransform()
    node.GetTransformFromWorld(from_world)
    shape, matrix = array_of(volume).shape, RAS_LPS @ matrix_of(volume)
    out = np.empty((*shape, 3), np.float32)
    index = np.indices(shape[1:]).reshape(2, -1)[::-1].T
    for z in range(shape[0]):  # one slice at a time, to save memory
        places = np.c_[index, np.full(len(index), z)] @ matrix[:3, :3].T + matrix[:3, 3]
        points, moved = vtk.vtkPoints(), vtk.vtkPoints()
        for each in (points, moved):
            each.SetDataTypeToDouble()
        points.SetData(numpy_to_vtk(places, deep=True))
        from_world.TransformPoints(points, moved)
        shift = (vtk_to_numpy(moved.GetData()) - places) @ RAS_LPS[:3, :3]
        out[z] = shift.reshape(*shape[1:], 3)
    return out


def grid_transform(vectors: np.ndarray, matrix: np.ndarray) -> Any:
    """Return displacements, float32 (z, y, x, 3), LPS mm, components x, y, z, as a
    vtkOrientedGridTransform, for MRML's transform from parent. The 4x4 `matrix` takes their index
    (x, y, z) to LPS mm.
    """
    import slicer
    import vtk
    from vtk.util.numpy_support import vtk_to_numpy

    matrix, direction = RAS_LPS @ matrix, np.eye(4)
    spacing = np.linalg.norm(matrix[:3, :3], axis=0)
    direction[:3, :3] = matrix[:3, :3] / spacing
    image = vtk.vtkImageData()
    image.SetDimensions(vectors.shape[2::-1])
    image.SetSpacing(spacing.tolist())
    image.SetOrigin(matrix[:3, 3].tolist())
    image.AllocateScalars(vtk.VTK_FLOAT, 3)
    ras = vtk_to_numpy(image.GetPointData().GetScalars()).reshape(vectors.shape)
    np.multiply(vectors, np.float32([-1, -1, 1]), out=ras)
    transform = slicer.vtkOrientedGridTransform()
    transform.SetDisplacementGridData(image)
    transform.SetGridDirectionMatrix(slicer.util.vtkMatrixFromArray(direction))
    # mm; landmarks are moved by the inverse, which VTK's default of 1e-3 makes too coarse
    transform.SetInverseTolerance(1e-4)
    return transform


def linear_transform(matrix: np.ndarray) -> Any:
    """Return a 4x4 LPS matrix as VTK's transform."""
    import slicer
    import vtk

    linear = vtk.vtkTransform()
    linear.SetMatrix(slicer.util.vtkMatrixFromArray(RAS_LPS @ matrix @ RAS_LPS))
    return linear


def before_linear(first: Any, matrix: np.ndarray) -> Any:
    """Return `first` followed by a linear transform, a 4x4 LPS matrix, as one transform, for MRML's
    transform from parent.
    """
    import vtk

    whole = vtk.vtkGeneralTransform()
    whole.PostMultiply()
    whole.Concatenate(first)
    whole.Concatenate(linear_transform(matrix))
    return whole
