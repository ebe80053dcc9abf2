"""Compares volumes in the slice views: a layout of the fixed volume beside the moving one before
and after, three planes each, linked; a checkerboard of two; all views moved to a place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import geometry, transfer

LAYOUT = 7351  # the layout's number in the scene; Slicer's own are below 1,000
VIEW_GROUP = 51  # links the views with each other, not with Slicer's red, green and yellow
COLUMNS = {"Fixed": "#6e9bd1", "Before": "#8c8c8c", "After": "#e0a458"}
PLANES = ("Axial", "Coronal", "Sagittal")
BOARD = "MorphSeek checkerboard"


def description() -> str:
    """Return the layout's XML: one row for each plane, one column for each volume."""
    rows = "".join(
        '<item><layout type="horizontal">'
        + "".join(_view(column, plane, color) for column, color in COLUMNS.items())
        + "</layout></item>"
        for plane in PLANES
    )
    return f'<layout type="vertical" split="true">{rows}</layout>'


def _view(column: str, plane: str, color: str) -> str:
    properties = {
        "orientation": plane,
        "viewlabel": f"{column} {plane[0]}",
        "viewcolor": color,
        "viewgroup": VIEW_GROUP,
    }
    return (
        f'<item><view class="vtkMRMLSliceNode" singletontag="MorphSeek{column}{plane}">'
        + "".join(
            f'<property name="{name}" action="default">{value}</property>'
            for name, value in properties.items()
        )
        + "</view></item>"
    )


def open_layout(scene: Any) -> int:
    """Show the comparison layout; return the number of the layout that was shown."""
    node = _layout(scene)
    before = node.GetViewArrangement()
    if not node.IsLayoutDescription(LAYOUT):
        node.AddLayoutDescription(LAYOUT, description())
    node.SetViewArrangement(LAYOUT)
    return before


def close_layout(scene: Any, before: int) -> None:
    """Return to the layout `before`, unless the user has chosen one meanwhile."""
    node = _layout(scene)
    if node.GetViewArrangement() == LAYOUT:
        node.SetViewArrangement(before)


def is_open(scene: Any) -> bool:
    """Whether the comparison layout is what Slicer shows."""
    return _layout(scene).GetViewArrangement() == LAYOUT


def _layout(scene: Any) -> Any:
    node = scene.GetFirstNodeByClass("vtkMRMLLayoutNode")
    return node or scene.AddNewNodeByClass("vtkMRMLLayoutNode")


def show(scene: Any, fixed: Any, before: Any, after: Any, fade: float) -> None:
    """Fill the columns: the fixed volume alone, and under the volume before and after, which cover
    it by `fade` (0 to 1).
    """
    over = {"Fixed": None, "Before": before, "After": after}
    for column, composite in _composites(scene):
        volume = over[column]
        composite.SetLinkedControl(True)
        composite.SetHotLinkedControl(True)
        composite.SetBackgroundVolumeID(fixed.GetID())
        composite.SetForegroundVolumeID(volume.GetID() if volume is not None else None)
        composite.SetForegroundOpacity(fade if volume is not None else 0.0)


def _composites(scene: Any) -> list[tuple[str, Any]]:
    """Return (column, composite node) for those of the layout's slice views that exist."""
    composites = []
    for i in range(scene.GetNumberOfNodesByClass("vtkMRMLSliceCompositeNode")):
        node = scene.GetNthNodeByClass(i, "vtkMRMLSliceCompositeNode")
        name = node.GetLayoutName() or ""
        composites += [(c, node) for c in COLUMNS if name.startswith(f"MorphSeek{c}")]
    return composites


def go_to(scene: Any, lps: list[float]) -> None:
    """Center every slice view on a place and move the crosshair there."""
    import slicer

    r, a, s = -lps[0], -lps[1], lps[2]
    slicer.vtkMRMLSliceNode.JumpAllSlices(
        scene, r, a, s, slicer.vtkMRMLSliceNode.CenteredJumpSlice, -1, None
    )
    crosshair = scene.GetFirstNodeByClass("vtkMRMLCrosshairNode")
    if crosshair is None:
        crosshair = scene.AddNewNodeByClass("vtkMRMLCrosshairNode")
    if crosshair.GetCrosshairMode() == crosshair.NoCrosshair:
        crosshair.SetCrosshairMode(crosshair.ShowSmallBasic)
    crosshair.SetCrosshairRAS(r, a, s)


def checkerboard(fixed: Any, other: Any, squares: int = 8) -> Any:
    """Return a hidden volume, on the fixed grid, of cubes taken in turn from the fixed volume and
    from another.

    The other volume's window is mapped onto the fixed volume's. The longest side has `squares`
    cubes. The node is made once and reused, and it is not saved with the scene.
    """
    import slicer

    scratch, scene = slicer.vtkMRMLScene(), fixed.GetScene()
    reference = transfer.on_scratch(scratch, fixed)
    resampled = transfer.resampled(geometry.copy_volume(scratch, other), reference)
    a, b = (array.astype(np.float32) for array in (geometry.array_of(reference), resampled))
    (window, level), (other_window, other_level) = _window(fixed, a), _window(other, b)
    b = (b - other_level) * (window / other_window) + level
    spacing = np.array(reference.GetSpacing()[::-1])
    side = (np.array(a.shape) * spacing).max() / squares
    cube = np.maximum(np.round(side / spacing), 1).astype(int)
    z, y, x = (index // n for index, n in zip(np.indices(a.shape, sparse=True), cube))
    odd = (z + y + x) % 2 == 1
    node = scene.GetFirstNodeByName(BOARD)
    if node is None:
        node = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", BOARD)
        node.SetHideFromEditors(True)
        node.SetSaveWithScene(False)
        node.CreateDefaultDisplayNodes()
    slicer.util.updateVolumeFromArray(node, np.where(odd, b, a))
    node.CopyOrientation(reference)
    node.GetDisplayNode().AutoWindowLevelOff()
    node.GetDisplayNode().SetWindowLevel(window, level)
    return node


def _window(volume: Any, array: np.ndarray) -> tuple[float, float]:
    """Return window and level of a volume's display; without a display, of its range of values."""
    display = volume.GetDisplayNode()
    if hasattr(display, "GetWindow") and display.GetWindow() > 0:  # a label map's has none
        return display.GetWindow(), display.GetLevel()
    low, high = float(array.min()), float(array.max())
    return max(high - low, 1e-6), (high + low) / 2
