"""Registers a pair through the module's library and draws it before and after, with the Slicer core
and without a window.

    python slicer/Testing/pictures.py --phantom --out slicer/Screenshots/registration.png
    python slicer/Testing/pictures.py fixed.nii.gz moving.nii.gz --labels fl.nii.gz ml.nii.gz
    --preset "Brain MR" --out brain.png

Slices are cut as in Slicer's slice views: vtkImageReslice cuts the moving volume itself, under the
transform node. Needs the packages in Testing/requirements.txt, the morphseek wheel and matplotlib.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import slicer
import vtk
from matplotlib.figure import Figure
from MorphSeekLib import geometry
from MorphSeekLib.options import PRESETS
from MorphSeekLib.registration import register
from MorphSeekLib.request import RegistrationRequest

import conftest  # noqa: F401, sets the core up

BACKGROUND, TEXT, FIXED, MOVING = "#14181b", "#c9d1d6", "#4fb3d9", "#f0a94a"
# For each plane, the RAS axes of the picture's right and down, in radiological convention.
PLANES = {
    "axial": ((-1, 0, 0), (0, -1, 0)),
    "coronal": ((-1, 0, 0), (0, 0, -1)),
    "sagittal": ((0, -1, 0), (0, 0, -1)),
}


def load(scene: Any, path: Path, labels: bool) -> Any:
    logic = slicer.vtkSlicerVolumesLogic()
    logic.SetMRMLScene(scene)
    return logic.AddArchetypeVolume(str(path), path.name.split(".")[0], 1 if labels else 0)


def phantom(folder: Path) -> list[Path]:
    """Write the pair of `morphseek demo`: fixed, moving and their labels."""
    import morphseek

    pair = morphseek.phantom.make_pair()
    paths = []
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        paths.append(folder / f"{name}.nrrd")
        morphseek.images.write(paths[-1], getattr(pair, name))
    return paths


def center_and_size(volume: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a volume's centre and its extent along R, A, S, in mm."""
    bounds = np.zeros(6)
    volume.GetRASBounds(bounds)
    return bounds.reshape(3, 2).mean(axis=1), np.diff(bounds.reshape(3, 2), axis=1)[:, 0]


def cut(volume: Any, plane: str, center: np.ndarray, size: np.ndarray, step: float) -> np.ndarray:
    """Return a slice of a volume through `center`, with its parent transform applied."""
    right, down = (np.array(axis, dtype=float) for axis in PLANES[plane])
    columns, rows = (int(abs(size @ axis) / step) for axis in (right, down))
    xy_to_ras = np.eye(4)
    xy_to_ras[:3, 0], xy_to_ras[:3, 1], xy_to_ras[:3, 2] = (
        right * step,
        down * step,
        np.cross(right, down) * step,
    )
    xy_to_ras[:3, 3] = (
        center - xy_to_ras[:3, 0] * (columns - 1) / 2 - xy_to_ras[:3, 1] * (rows - 1) / 2
    )
    to_index = vtk.vtkGeneralTransform()
    to_index.PostMultiply()
    to_index.Concatenate(slicer.util.vtkMatrixFromArray(xy_to_ras))
    if volume.GetParentTransformNode() is not None:
        from_world = vtk.vtkGeneralTransform()
        volume.GetParentTransformNode().GetTransformFromWorld(from_world)
        to_index.Concatenate(from_world)
    ras_to_ijk = vtk.vtkMatrix4x4()
    volume.GetRASToIJKMatrix(ras_to_ijk)
    to_index.Concatenate(ras_to_ijk)
    reslice = vtk.vtkImageReslice()
    reslice.SetInputData(volume.GetImageData())
    reslice.SetResliceTransform(to_index)
    reslice.SetBackgroundLevel(volume.GetImageData().GetScalarRange()[0])
    reslice.SetOutputOrigin(0, 0, 0)
    reslice.SetOutputSpacing(1, 1, 1)
    reslice.SetOutputExtent(0, columns - 1, 0, rows - 1, 0, 0)
    reslice.SetInterpolationMode(
        vtk.VTK_NEAREST_INTERPOLATION
        if volume.IsA("vtkMRMLLabelMapVolumeNode")
        else vtk.VTK_LINEAR_INTERPOLATION
    )
    reslice.Update()
    return vtk.util.numpy_support.vtk_to_numpy(
        reslice.GetOutput().GetPointData().GetScalars()
    ).reshape(rows, columns)


def draw(
    path: Path,
    fixed: Any,
    moving: Any,
    transform: Any,
    labels: tuple[Any, Any] | None,
    title: str,
    planes: tuple[str, ...],
) -> None:
    center, size = center_and_size(fixed)
    if labels is not None:
        where = np.argwhere(geometry.array_of(labels[0]))[:, ::-1].mean(axis=0)
        center = (geometry.RAS_LPS @ geometry.matrix_of(labels[0]) @ (*where, 1))[:3]
    middle, _ = center_and_size(fixed)
    step = size.max() / 260

    def slices(node: Any, under: Any = None) -> list[np.ndarray]:
        node.SetAndObserveTransformNodeID(under.GetID() if under else None)
        cuts = []
        for plane in planes:
            at, normal = middle.copy(), np.abs(np.cross(*PLANES[plane])).astype(bool)
            at[normal] = center[normal]
            cuts.append(cut(node, plane, at, size, step))
        node.SetAndObserveTransformNodeID(None)
        return cuts

    columns = [
        ("fixed", fixed, None, None),
        ("moving, before", moving, None, None),
        ("moving, under the transform", moving, transform, None),
    ]
    if labels is not None:
        columns += [
            ("labels before", fixed, None, (labels[1], None)),
            ("labels after", fixed, None, (labels[1], transform)),
        ]
    heights = [len(s) for s in slices(fixed)]
    width = slices(fixed)[0].shape[1]
    figure = Figure(
        figsize=(2.3 * len(columns), 2.3 * sum(heights) / width + 0.5), dpi=80, facecolor=BACKGROUND
    )
    grid = figure.add_gridspec(
        len(planes),
        len(columns),
        left=0.004,
        right=0.996,
        top=0.9,
        bottom=0.01,
        wspace=0.02,
        hspace=0.02,
        height_ratios=heights,
    )
    figure.suptitle(title, color=TEXT, fontsize=10, y=0.985)
    for column, (name, node, under, outline) in enumerate(columns):
        low, high = np.percentile(geometry.array_of(node), (1, 99.7))
        for row, image in enumerate(slices(node, under)):
            axes = figure.add_subplot(grid[row, column])
            axes.imshow(image, cmap="gray", vmin=low, vmax=high, interpolation="bilinear")
            if outline is not None:
                for drawn, color in (
                    (slices(labels[0])[row], FIXED),
                    (slices(*outline)[row], MOVING),
                ):
                    for value in np.unique(drawn[drawn > 0]):
                        axes.contour(drawn == value, [0.5], colors=color, linewidths=0.8)
            axes.set_axis_off()
            if row == 0:
                axes.set_title(name, color=TEXT, fontsize=9, pad=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor=BACKGROUND, pil_kwargs={"optimize": True})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path, nargs="*", metavar="FIXED MOVING")
    parser.add_argument("--phantom", action="store_true", help="the pair of `morphseek demo`")
    parser.add_argument("--labels", type=Path, nargs=2, metavar=("FIXED", "MOVING"))
    parser.add_argument("--preset", choices=PRESETS, default="Automatic")
    parser.add_argument("--planes", nargs="+", choices=PLANES, default=["axial", "coronal"])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    scene = slicer.vtkMRMLScene()
    with tempfile.TemporaryDirectory() as folder:
        paths = phantom(Path(folder)) if args.phantom else [*args.images, *(args.labels or ())]
        if len(paths) not in (2, 4):
            parser.error("give FIXED and MOVING, or --phantom")
        fixed, moving, *labels = (load(scene, path, i > 1) for i, path in enumerate(paths))
        request = RegistrationRequest(fixed, moving, preset=args.preset)
        if labels:
            request.fixed_labels, request.moving_labels = labels
        done = register(
            request,
            lambda event: (
                event.message
                and print(f"{100 * event.fraction:3.0f} %  {event.stage}  {event.message}")
            ),
        )
        found = done.result
        title = (
            f"{args.preset}: {found['similarity']} {found['similarity_before']:.3f} ->"
            f" {found['similarity_after']:.3f}"
        )
        title += (
            f", mean Dice {found['dice_before']:.2f} -> {found['dice_after']:.2f}" if labels else ""
        )
        title += f", folding {found['njd_percent']:.3f} %"
        print(f"{title}, {found['seconds']['total']:.1f} s")
        draw(
            args.out,
            fixed,
            moving,
            done.nodes["transform"],
            tuple(labels) or None,
            title,
            tuple(args.planes),
        )
    print(args.out, args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
