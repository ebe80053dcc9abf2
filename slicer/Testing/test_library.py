"""MorphSeekLib on the real Slicer core, through the real worker, against SimpleITK."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest
import SimpleITK as sitk
import slicer
import vtk
from MorphSeekLib import (
    batch,
    compare,
    geometry,
    install,
    outputs,
    process,
    registration,
    sample,
    transfer,
)
from MorphSeekLib.options import OUTPUTS, PRESETS
from MorphSeekLib.registration import Registration, RegistrationError, register
from MorphSeekLib.request import STAGES, RegistrationRequest
from packaging.requirements import Requirement
from phantoms import points_of, write_pair

import morphseek
from morphseek.report import worst_places

QUICK = {"search": "off", "refine": 4, "model": "none"}
PYTHON = {**QUICK, "search": False}  # the same in morphseek.register
LONG = {"search": "off", "refine": 1000, "model": "none", "initial": "com"}
FLIP = np.array([-1.0, -1.0, 1.0])


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def images(paths: dict[str, Path]) -> dict[str, sitk.Image]:
    return {name: sitk.ReadImage(str(path)) for name, path in paths.items()}


class Study:
    """A scene with the pair in it, loaded as the application loads files."""

    def __init__(self, paths: dict[str, Path]):
        self.scene = slicer.vtkMRMLScene()
        logic = slicer.vtkSlicerVolumesLogic()
        logic.SetMRMLScene(self.scene)
        for name, path in paths.items():
            setattr(
                self, name, logic.AddArchetypeVolume(str(path), name, 1 if "labels" in name else 0)
            )

    def request(self, **fields: Any) -> RegistrationRequest:
        own = {"fixed": self.fixed, "moving": self.moving, **QUICK}
        return RegistrationRequest(**{**own, **fields})

    def new(self, kind: str) -> Any:
        return self.scene.AddNewNodeByClass(kind, "mine")

    def segmentation(self, labels: Any) -> Any:
        node = self.scene.AddNewNodeByClass("vtkMRMLSegmentationNode", "organs")
        slicer.vtkSlicerSegmentationsModuleLogic.ImportLabelmapToSegmentationNode(labels, node)
        for i, name in enumerate(("liver", "kidney", "spleen")):
            node.GetSegmentation().GetNthSegment(i).SetName(name)
        return node

    def points(self, positions: np.ndarray) -> Any:
        node = self.scene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "landmarks")
        for p in positions:
            node.AddControlPoint(*p)
        return node

    def linear(self, matrix: np.ndarray, name: str = "linear") -> Any:
        node = self.scene.AddNewNodeByClass("vtkMRMLLinearTransformNode", name)
        node.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
        return node

    def nodes(self) -> list[tuple[str, str]]:
        """List every node, to check that nothing was added or changed."""
        return [(node.GetID(), node.GetName()) for node in outputs.nodes_of(self.scene)]


@pytest.fixture
def study(paths: dict[str, Path]) -> Study:
    return Study(paths)


# RAS
LANDMARKS = (
    np.array(
        [
            (12.0, -7.0, 30.0),
            (4.0, -2.0, 36.0),
            (22.0, -12.0, 20.0),
            (15.0, 1.0, 41.0),
            (1.0, -15.0, 17.0),
        ]
    )
    * FLIP
)


@pytest.fixture(scope="module")
def finished(paths: dict[str, Path]) -> tuple[Study, Registration]:
    """One registration with every output and every transfer."""
    study = Study(paths)
    everything = [
        study.moving_labels,
        study.segmentation(study.moving_labels),
        study.points(LANDMARKS),
    ]
    labels = {"fixed_labels": study.fixed_labels, "moving_labels": study.moving_labels}
    return study, register(
        study.request(**dict.fromkeys(OUTPUTS, True), search="on", transfer=everything, **labels)
    )


@pytest.fixture(scope="module")
def expected(images: dict[str, sitk.Image]) -> morphseek.Registration:
    """The same registration without Slicer."""
    return morphseek.register(
        images["fixed"], images["moving"], **{**PYTHON, "search": True}, uncertainty=True
    )


def to_itk(node: Any) -> sitk.Image:
    """Return a volume node as SimpleITK's image, without its parent transform."""
    image = sitk.GetImageFromArray(np.array(slicer.util.arrayFromVolume(node)))
    matrix = vtk.vtkMatrix4x4()
    node.GetIJKToRASDirectionMatrix(matrix)
    direction = slicer.util.arrayFromVTKMatrix(matrix)[:3, :3]
    image.SetDirection((FLIP[:, None] * direction).ravel().tolist())
    image.SetSpacing(node.GetSpacing())
    image.SetOrigin((FLIP * node.GetOrigin()).tolist())
    return image


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the mean absolute difference as a fraction of the range."""
    return float(np.abs(a.astype(float) - b).mean() / np.ptp(b))


def apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return how far points lie from others, mm."""
    return np.linalg.norm(one - other, axis=1)


def from_world(node: Any, ras: np.ndarray) -> np.ndarray:
    """Return where a transform node's inverse takes points of the world."""
    transform = vtk.vtkGeneralTransform()
    node.GetTransformFromWorld(transform)
    return np.array([transform.TransformPoint(p) for p in ras])


def itk_points(transform: sitk.Transform, ras: np.ndarray) -> np.ndarray:
    return np.array([transform.TransformPoint((p * FLIP).tolist()) for p in ras]) * FLIP


def resampled(node: Any, transform: Any, reference: Any) -> Any:
    node.SetAndObserveTransformNodeID(transform.GetID())
    try:
        return slicer.vtkSlicerVolumesLogic.ResampleVolumeToReferenceVolume(node, reference)
    finally:
        node.SetAndObserveTransformNodeID(None)


def segment_array(node: Any, index: int, reference: Any) -> np.ndarray:
    """Return where a segment is on a volume's grid, by Slicer's own export."""
    labels = node.GetScene().AddNewNodeByClass("vtkMRMLLabelMapVolumeNode")
    name = node.GetSegmentation().GetNthSegmentID(index)
    assert slicer.vtkSlicerSegmentationsModuleLogic.ExportSegmentsToLabelmapNode(
        node, [name], labels, reference
    )
    return slicer.util.arrayFromVolume(labels) != 0


def inside(image: sitk.Image, margin: int = 3) -> np.ndarray:
    """Return some voxel centres away from the border, RAS."""
    return (
        points_of(image)[margin:-margin:4, margin:-margin:5, margin:-margin:5].reshape(-1, 3)
    ) * FLIP


# ------------------------------------------------------------------------------ volumes and results


@pytest.mark.parametrize("name", ["fixed", "moving", "fixed_labels", "moving_labels"])
def test_loaded_volumes_are_itks(name: str, study: Study, images: dict[str, sitk.Image]):
    node, image = getattr(study, name), images[name]
    np.testing.assert_array_equal(geometry.array_of(node), sitk.GetArrayFromImage(image))
    matrix = geometry.matrix_of(node)
    for index in ((0, 0, 0), (7, 3, 11), (20, 19, 2)):
        np.testing.assert_allclose(
            (matrix @ (*index, 1))[:3], image.TransformIndexToPhysicalPoint(index), atol=1e-4
        )


def test_transformed_volume(
    finished: tuple[Study, Registration],
    expected: morphseek.Registration,
    images: dict[str, sitk.Image],
):
    node = finished[1].nodes["transformed_volume"]
    assert difference(geometry.array_of(node), expected.warped) < 1e-4
    np.testing.assert_allclose(
        geometry.matrix_of(node), geometry.matrix_of(finished[0].fixed), atol=1e-4
    )
    before = sitk.GetArrayFromImage(sitk.Resample(images["moving"], images["fixed"]))
    fixed = sitk.GetArrayFromImage(images["fixed"])
    assert difference(geometry.array_of(node), fixed) < 0.4 * difference(before, fixed)


def test_label_maps_are_volumes_too(study: Study):
    """Label maps that are registered themselves give a volume, which has a window of its own."""
    request = study.request(fixed=study.fixed_labels, moving=study.moving_labels)
    node = register(request).nodes["transformed_volume"]
    assert geometry.array_of(node).dtype == np.float32 and node.GetDisplayNode().GetWindow() > 0
    board = geometry.array_of(compare.checkerboard(study.fixed_labels, node))
    assert board.shape == geometry.array_of(study.fixed_labels).shape


def test_grid_transform_resamples_as_itk(
    finished: tuple[Study, Registration],
    expected: morphseek.Registration,
    images: dict[str, sitk.Image],
):
    study, done = finished
    slicers = geometry.array_of(resampled(study.moving, done.nodes["transform"], study.fixed))
    itks = sitk.GetArrayFromImage(
        sitk.Resample(
            images["moving"], images["fixed"], expected.transform.to_sitk(), sitk.sitkLinear, 0.0
        )
    )
    assert difference(slicers, geometry.array_of(done.nodes["transformed_volume"])) <= 0.001
    assert difference(slicers, itks) <= 0.001


def test_moving_side_is_what_moves(
    finished: tuple[Study, Registration], images: dict[str, sitk.Image]
):
    """Under the node, a landmark of the moving image lies at the point that ITK's transform maps to
    the landmark.
    """
    _, done = finished
    moved = slicer.util.arrayFromMarkupsControlPoints(done.nodes["transferred"][2])
    back = itk_points(as_itk_reads(done.nodes["transform"]), moved)
    assert apart(back, LANDMARKS).max() < 0.01
    assert apart(moved, LANDMARKS).min() > 1  # the landmarks do move


def as_itk_reads(node: Any) -> sitk.Transform:
    """Return a transform node as SimpleITK's, by way of its file."""
    with tempfile.TemporaryDirectory() as folder:
        batch.save(node, Path(folder, "t.h5"))
        return sitk.ReadTransform(str(Path(folder, "t.h5")))


def test_one_answer_outside_the_grids(
    finished: tuple[Study, Registration],
    expected: morphseek.Registration,
    images: dict[str, sitk.Image],
    study: Study,
    tmp_path: Path,
):
    """Slicer's nodes, made here or read from the package's file, and SimpleITK map a point alike,
    wherever it lies.
    """
    rng = np.random.default_rng(4)
    for name, transform, on in (
        ("transform", expected.transform, images["fixed"]),
        ("inverse_transform", expected.inverse(), images["moving"]),
    ):
        transform.save(tmp_path / f"{name}.h5")
        read = batch.load(study.scene, tmp_path / f"{name}.h5", "vtkMRMLTransformNode")
        extent = np.array(on.GetSize()) - 1.0
        for distance in (0.0, 1.0, 3.0, 10.0, 50.0, 200.0):
            index = rng.uniform(0, extent, (50, 3))
            axis = rng.integers(0, 3, 50)
            voxels = distance / np.array(on.GetSpacing())
            at = index[np.arange(50), axis]
            index[np.arange(50), axis] = np.where(
                at < extent[axis] / 2, -voxels[axis], extent[axis] + voxels[axis]
            )
            points = np.array([on.TransformContinuousIndexToPhysicalPoint(i) for i in index]) * FLIP
            itk = itk_points(transform.to_sitk(), points)
            ours = transform.transform_points(points * FLIP) * FLIP
            # Slicer interpolates a file's field cubically: between its vectors it differs.
            for reader, other, most in (
                ("node", from_world(finished[1].nodes[name], points), 0.01),
                ("file", from_world(read, points), 0.3),
                ("package", ours, 0.01),
            ):
                off = apart(other, itk).max()
                print(f"{name} {distance:g} mm outside, {reader}: {off:.4f} mm")
                assert off < most, (name, distance, reader)


def test_a_linear_result_is_a_linear_transform(study: Study, images: dict[str, sitk.Image]):
    """It is a matrix, which Slicer can edit, and it holds far outside the volume, too."""
    done = register(study.request(refine=0, initial="affine", inverse_transform=True))
    expected = morphseek.register(
        images["fixed"], images["moving"], **{**PYTHON, "refine": 0, "initial": "affine"}
    )
    assert expected.transform.is_linear and not np.allclose(
        expected.transform.initial, np.eye(4), atol=0.01
    )
    points = np.array([(0.0, 0, 0), (40, -70, 90), (-400, 300, 200)])
    for name, transform in (
        ("transform", expected.transform),
        ("inverse_transform", expected.inverse()),
    ):
        node = done.nodes[name]
        assert node.IsLinear()
        np.testing.assert_allclose(
            from_world(node, points), itk_points(transform.to_sitk(), points), atol=1e-6
        )


def test_landmarks_of_morphseek(
    finished: tuple[Study, Registration], expected: morphseek.Registration
):
    moved = slicer.util.arrayFromMarkupsControlPoints(finished[1].nodes["transferred"][2])
    assert apart(itk_points(expected.transform.to_sitk(), moved), LANDMARKS).max() < 0.01


def test_label_map_is_nearest(
    finished: tuple[Study, Registration],
    expected: morphseek.Registration,
    images: dict[str, sitk.Image],
):
    node = finished[1].nodes["transferred"][0]
    itks = sitk.GetArrayFromImage(
        sitk.Resample(
            images["moving_labels"],
            images["fixed"],
            expected.transform.to_sitk(),
            sitk.sitkNearestNeighbor,
        )
    )
    ours = geometry.array_of(node)
    assert node.IsA("vtkMRMLLabelMapVolumeNode") and ours.dtype == itks.dtype
    assert np.count_nonzero(ours != itks) <= 1e-4 * itks.size
    assert set(np.unique(ours)) == {0, 1, 2, 3}


def test_segmentation_is_the_label_map(finished: tuple[Study, Registration]):
    study, done = finished
    labels, segmentation, _ = done.nodes["transferred"]
    for i, name in enumerate(("liver", "kidney", "spleen"), 1):
        segment = segmentation.GetSegmentation().GetNthSegment(i - 1)
        assert segment.GetName() == name
        assert (
            segment.GetColor()
            == study.scene.GetFirstNodeByName("organs")
            .GetSegmentation()
            .GetNthSegment(i - 1)
            .GetColor()
        )
        np.testing.assert_array_equal(
            segment_array(segmentation, i - 1, study.fixed), geometry.array_of(labels) == i
        )


def test_dice(finished: tuple[Study, Registration], images: dict[str, sitk.Image]):
    _, done = finished
    fixed = images["fixed_labels"]
    identity = sitk.Resample(
        images["moving_labels"], fixed, sitk.Transform(), sitk.sitkNearestNeighbor
    )
    after = sitk.GetImageFromArray(geometry.array_of(done.nodes["transferred"][0]))
    after.CopyInformation(fixed)
    for column, moving in enumerate((identity, after)):
        measure = sitk.LabelOverlapMeasuresImageFilter()
        measure.Execute(fixed, moving)
        for label in (1, 2, 3):
            assert done.result["dice"][f"label {label}"][column] == pytest.approx(
                measure.GetDiceCoefficient(label), abs=2e-3
            )
    assert done.result["dice_after"] > done.result["dice_before"] + 0.1


def test_a_label_that_is_gone_counts_as_missed(study: Study):
    """Labels of both label maps are scored, even if warping or the fixed grid leaves no voxel of
    one. Labels of one map alone are not scored.
    """
    fixed, moving = geometry.array_of(study.fixed_labels), geometry.array_of(study.moving_labels)
    fixed[:], moving[:] = 0, 1
    fixed[5:15, 5:15, 5:15], fixed[:3, :3, :3], fixed[-3:, -3:, -3:] = 1, 2, 3
    moving[0, 0, 0], moving[0, 0, 1] = 2, 4
    study.moving_labels.SetOrigin(1000, 0, 0)
    scratch = slicer.vtkMRMLScene()
    reference = transfer.on_scratch(scratch, study.fixed)
    first, before = (
        transfer.labels_on(scratch, node, reference)
        for node in (study.fixed_labels, study.moving_labels)
    )
    assert transfer.dice(first, before) == {"1": 0.0, "2": 0.0}
    layers = transfer.layers(scratch, study.moving_labels)
    layers[0].in_world()
    assert transfer.dice(first, transfer.by_name(layers, [np.where(fixed == 1, 1, 0)])) == {
        "1": 1.0,
        "2": 0.0,
    }


@pytest.mark.parametrize(
    "kinds", [("uint8", "float32"), ("float64", "int16"), ("float32", "float32")]
)
def test_dice_of_label_maps_of_different_types(
    kinds: tuple[str, str], finished: tuple[Study, Registration], study: Study
):
    for node, kind in zip((study.fixed_labels, study.moving_labels), kinds):
        slicer.util.updateVolumeFromArray(node, geometry.array_of(node).astype(kind))
    done = register(
        study.request(
            search="on", fixed_labels=study.fixed_labels, moving_labels=study.moving_labels
        )
    )
    assert done.result["dice"] == finished[1].result["dice"]
    assert [*done.result["dice"]] == ["label 1", "label 2", "label 3"]
    assert done.verdict["notes"] == finished[1].verdict["notes"]


def test_labels_are_whole_numbers(study: Study):
    slicer.util.updateVolumeFromArray(
        study.moving_labels, np.array([[[0, 0.5, 1, -2], [7.25, 300, np.nan, np.inf]]], np.float32)
    )
    (layer,) = transfer.layers(slicer.vtkMRMLScene(), study.moving_labels)
    assert layer.names() == {"-2": -2, "1": 1, "300": 300}


@pytest.mark.parametrize("kind", ["label map", "segmentation"])
def test_labels_that_lie_elsewhere_are_told(kind: str, study: Study):
    """What is carried over is empty."""
    matrix = vtk.vtkMatrix4x4()
    study.moving_labels.GetIJKToRASMatrix(matrix)
    matrix.SetElement(0, 3, matrix.GetElement(0, 3) + 500)
    study.moving_labels.SetIJKToRASMatrix(matrix)
    labels = study.moving_labels
    node = study.segmentation(labels) if kind == "segmentation" else labels
    reason = f"{node.GetName()}: none of its labels lies in the fixed volume"
    done = register(study.request(transform=True, transfer=[node]))
    assert any(reason in note for note in done.verdict["notes"]), done.verdict
    with pytest.raises(ValueError, match=reason):
        transfer.transfer(node, done.nodes["transform"], study.fixed)


def test_labels_are_called_by_their_names(study: Study):
    """As the fixed side's colours call them, else the moving side's; no two the same."""
    ours, theirs = study.fixed_labels, study.moving_labels
    for node, names in ((ours, {1: "liver", 3: "kidney"}), (theirs, {2: "spleen", 4: "kidney"})):
        sample.name_labels([node], [names.get(number, "") for number in range(1, 5)])
    assert transfer.titles(["1", "2", "3", "4", "9", "-1"], ours, theirs) == {
        "1": "liver", "2": "spleen", "3": "kidney (3)", "4": "kidney (4)",
        "9": "label 9", "-1": "label -1",
    }  # fmt: skip
    done = register(study.request(fixed_labels=ours, moving_labels=theirs))
    assert [*done.result["dice"]] == ["liver", "spleen", "kidney"]
    segments = [study.segmentation(node) for node in (ours, theirs)]
    assert transfer.titles(["liver"], *segments) == {"liver": "liver"}


def test_the_worker_says_the_verdict_and_how_the_result_was_made(
    finished: tuple[Study, Registration], expected: morphseek.Registration
):
    done, verdict = finished[1], expected.verdict
    assert (done.verdict["grade"], done.verdict["meaning"]) == (verdict.grade, verdict.meaning)
    assert done.verdict["sign"] and done.verdict["error"].endswith(" mm")
    assert done.verdict["reasons"] == list(verdict.reasons)
    assert {"Start", "Similarity", "Search"} <= {what for what, _ in done.explanation}


def test_labels_without_a_common_number_are_told(study: Study):
    geometry.array_of(study.moving_labels)[geometry.array_of(study.moving_labels) > 0] += 10
    done = register(
        study.request(fixed_labels=study.fixed_labels, moving_labels=study.moving_labels)
    )
    assert done.result["dice"] == {} and "dice_after" not in done.result
    assert any("Dice was not measured" in note for note in done.verdict["notes"])


def test_inverse(
    finished: tuple[Study, Registration],
    expected: morphseek.Registration,
    images: dict[str, sitk.Image],
):
    study, done = finished
    inverse = done.nodes["inverse_transform"]
    itk = expected.inverse().to_sitk()
    points = inside(images["moving"])
    assert apart(from_world(inverse, points), itk_points(itk, points)).max() < 0.01
    there_and_back = from_world(done.nodes["transform"], from_world(inverse, LANDMARKS))
    assert apart(there_and_back, LANDMARKS).max() < 0.1
    slicers = geometry.array_of(resampled(study.fixed, inverse, study.moving))
    assert (
        difference(
            slicers,
            sitk.GetArrayFromImage(
                sitk.Resample(images["fixed"], images["moving"], itk, sitk.sitkLinear, 0.0)
            ),
        )
        <= 0.001
    )


def test_magnitude_and_jacobian(
    finished: tuple[Study, Registration],
    expected: morphseek.Registration,
    images: dict[str, sitk.Image],
):
    nodes = finished[1].nodes
    length = sitk.GetArrayFromImage(sitk.VectorMagnitude(expected.transform.displacement_image()))
    np.testing.assert_allclose(
        geometry.array_of(nodes["displacement_magnitude"]), length, atol=0.01
    )
    where = points_of(images["fixed"])
    # d phi / d index
    columns = [
        np.stack(np.gradient(phi, axis=(2, 1, 0)), axis=-1)
        for phi in (where + expected.displacement_mm(), where)
    ]
    jacobian = np.linalg.det(columns[0]) / np.linalg.det(columns[1])
    inner = (slice(2, -2),) * 3
    assert np.abs(geometry.array_of(nodes["jacobian"]) - jacobian)[inner].mean() < 0.01
    assert np.ptp(jacobian[inner]) > 0.1


def test_uncertainty(finished: tuple[Study, Registration], expected: morphseek.Registration):
    study, done = finished
    node = done.nodes["uncertainty"]
    # mm; MRML rounds the geometry
    np.testing.assert_allclose(geometry.array_of(node), expected.uncertainty, atol=0.02)
    np.testing.assert_allclose(geometry.matrix_of(node), geometry.matrix_of(study.fixed), atol=1e-6)
    assert done.result["uncertainty"]["source"] == "search" and node.GetName().endswith(
        "uncertainty (mm)"
    )


def test_worst_places(
    finished: tuple[Study, Registration],
    expected: morphseek.Registration,
    images: dict[str, sitk.Image],
):
    done = finished[1]
    wanted = worst_places(expected, images["fixed"])
    assert [place["kind"] for place in done.places] == [place["kind"] for place in wanted]
    assert {"uncertainty", "bend", "shrunk"} <= {place["kind"] for place in done.places}
    size = images["fixed"].GetSize()
    for place, other in zip(done.places, wanted):
        assert place["text"] == other["text"]
        # MRML rounds the geometry
        np.testing.assert_allclose(place["lps"], other["lps"], atol=1e-3)
        index = images["fixed"].TransformPhysicalPointToIndex(place["lps"])
        assert all(0 <= i < n for i, n in zip(index, size))


def test_h5_from_slicer_to_itk(
    finished: tuple[Study, Registration], images: dict[str, sitk.Image], tmp_path: Path
):
    node = finished[1].nodes["transform"]
    batch.save(node, tmp_path / "transform.h5")
    points = inside(images["fixed"])
    itk = itk_points(sitk.ReadTransform(str(tmp_path / "transform.h5")), points)
    assert apart(from_world(node, points), itk).max() < 1e-3


def test_h5_from_morphseek_to_slicer(
    expected: morphseek.Registration, images: dict[str, sitk.Image], study: Study, tmp_path: Path
):
    expected.transform.save(tmp_path / "transform.h5")
    node = batch.load(study.scene, tmp_path / "transform.h5", "vtkMRMLTransformNode")
    points = inside(images["fixed"])
    itk = itk_points(expected.transform.to_sitk(), points)
    assert apart(from_world(node, points), itk).max() < 0.01


def test_references(finished: tuple[Study, Registration]):
    study, done = finished
    node, inverse = done.nodes["transform"], done.nodes["inverse_transform"]
    fixed, moving = node.GetFixedNodeReferenceRole(), node.GetMovingNodeReferenceRole()
    assert (node.GetNodeReference(fixed), node.GetNodeReference(moving)) == (
        study.fixed,
        study.moving,
    )
    assert (inverse.GetNodeReference(fixed), inverse.GetNodeReference(moving)) == (
        study.moving,
        study.fixed,
    )


def test_scene_saved_and_loaded(
    finished: tuple[Study, Registration], images: dict[str, sitk.Image], tmp_path: Path
):
    study, done = finished
    for name in ("transform", "transformed_volume"):
        node = done.nodes[name]
        node.AddDefaultStorageNode()
        node.GetStorageNode().SetFileName(
            str(tmp_path / f"{name}{'.h5' if name == 'transform' else '.nrrd'}")
        )
        assert node.GetStorageNode().WriteData(node)
    study.scene.SetRootDirectory(str(tmp_path))
    study.scene.SetURL(str(tmp_path / "scene.mrml"))
    study.scene.Commit()

    again = slicer.vtkMRMLScene()
    again.SetURL(str(tmp_path / "scene.mrml"))
    again.Connect()
    node = again.GetFirstNodeByName("moving to fixed")
    assert node.GetNodeReference(node.GetFixedNodeReferenceRole()).GetName() == "fixed"
    assert node.GetNodeReference(node.GetMovingNodeReferenceRole()).GetName() == "moving"
    points = inside(images["fixed"])
    before = from_world(done.nodes["transform"], points)
    assert apart(from_world(node, points), before).max() < 0.01
    volume = again.GetFirstNodeByName("moving on fixed")
    np.testing.assert_array_equal(
        geometry.array_of(volume), geometry.array_of(done.nodes["transformed_volume"])
    )


# ------------------------------------------------------------- what happens to the user's own nodes


def test_inputs_stay_as_they_are(
    finished: tuple[Study, Registration], paths: dict[str, Path], images: dict[str, sitk.Image]
):
    study, _ = finished
    for name, path in paths.items():
        node = getattr(study, name)
        assert node.GetName() == name and node.GetStorageNode().GetFileName() == str(path)
        assert node.GetParentTransformNode() is None and not node.GetModifiedSinceRead()
        np.testing.assert_array_equal(geometry.array_of(node), sitk.GetArrayFromImage(images[name]))
    np.testing.assert_array_equal(
        slicer.util.arrayFromMarkupsControlPoints(study.scene.GetFirstNodeByName("landmarks")),
        LANDMARKS,
    )


def turned(angle: float = 0.2, shift: tuple[float, ...] = (5.0, -3.0, 2.0)) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    matrix[:3, 3] = shift
    return matrix


def itk_turned(image: sitk.Image, ras: np.ndarray) -> sitk.Image:
    """Return an image moved by a rigid RAS matrix."""
    lps = geometry.RAS_LPS @ ras @ geometry.RAS_LPS
    image = sitk.Image(image)
    image.SetOrigin((lps @ (*image.GetOrigin(), 1))[:3].tolist())
    image.SetDirection((lps[:3, :3] @ np.reshape(image.GetDirection(), (3, 3))).ravel().tolist())
    return image


def test_volumes_under_transforms(study: Study, images: dict[str, sitk.Image]):
    """Under linear parents, one of them under another, volumes count as if they had been scanned
    there. The user's nodes keep their parents.
    """
    first, second, other = (
        turned(0.2),
        turned(-0.1, (0.0, 8.0, 1.0)),
        turned(-0.15, (-4.0, 2.0, 6.0)),
    )
    outer, inner, own = study.linear(second), study.linear(first), study.linear(other)
    inner.SetAndObserveTransformNodeID(outer.GetID())
    study.fixed.SetAndObserveTransformNodeID(inner.GetID())
    study.moving.SetAndObserveTransformNodeID(own.GetID())
    landmarks, labels = study.points(LANDMARKS), study.moving_labels
    for node in (landmarks, labels):
        node.SetAndObserveTransformNodeID(own.GetID())
    matrix = geometry.matrix_of(study.fixed)
    done = register(study.request(transfer=[landmarks, labels], displacement_magnitude=True))
    assert (
        study.fixed.GetParentTransformNode() is inner
        and study.moving.GetParentTransformNode() is own
    )
    np.testing.assert_array_equal(geometry.matrix_of(study.fixed), matrix)

    fixed, moving = itk_turned(images["fixed"], second @ first), itk_turned(images["moving"], other)
    result = morphseek.register(fixed, moving, **PYTHON)
    assert difference(geometry.array_of(done.nodes["transformed_volume"]), result.warped) < 1e-3
    np.testing.assert_allclose(
        to_itk(done.nodes["transformed_volume"]).GetOrigin(), fixed.GetOrigin(), atol=1e-3
    )
    moved_points, moved_labels = done.nodes["transferred"]
    in_world = LANDMARKS @ other[:3, :3].T + other[:3, 3]
    back = from_world(
        done.nodes["transform"], slicer.util.arrayFromMarkupsControlPoints(moved_points)
    )
    assert apart(back, in_world).max() < 0.01
    nearest = sitk.GetArrayFromImage(
        sitk.Resample(
            itk_turned(images["moving_labels"], other),
            fixed,
            result.transform.to_sitk(),
            sitk.sitkNearestNeighbor,
        )
    )
    assert np.count_nonzero(geometry.array_of(moved_labels) != nearest) <= 1e-3 * nearest.size


def test_volume_under_a_grid_transform(
    finished: tuple[Study, Registration], study: Study, images: dict[str, sitk.Image]
):
    """A grid transform resamples a copy of the volume, as ITK does; the node is unchanged."""
    scratch = slicer.vtkMRMLScene()
    parent = study.scene.AddNewNodeByClass("vtkMRMLGridTransformNode")
    parent.CopyContent(finished[1].nodes["transform"])
    study.moving.SetAndObserveTransformNodeID(parent.GetID())
    before = study.nodes()
    copied = geometry.in_world(scratch, study.moving)
    assert study.nodes() == before and copied.GetScene() is scratch
    np.testing.assert_array_equal(
        geometry.array_of(study.moving), sitk.GetArrayFromImage(images["moving"])
    )
    vectors = as_itk_reads(parent)
    grid = to_itk(copied)
    itks = sitk.GetArrayFromImage(
        sitk.Resample(images["moving"], grid, vectors, sitk.sitkLinear, 0.0)
    )
    known = within(grid, images["fixed"])
    assert known.mean() > 0.2
    assert np.abs(geometry.array_of(copied) - itks)[known].mean() <= 0.001 * np.ptp(itks)


def curved(study: Study, image: sitk.Image) -> Any:
    """Make a grid transform node that bends an image's space by up to 4 mm, under a linear one."""
    where = points_of(image)[::4, ::4, ::4]
    matrix = np.eye(4)
    matrix[:3, :3] = np.reshape(image.GetDirection(), (3, 3)) * 4 * np.array(image.GetSpacing())
    matrix[:3, 3] = image.GetOrigin()
    node = study.scene.AddNewNodeByClass("vtkMRMLGridTransformNode", "curved")
    node.SetAndObserveTransformFromParent(
        geometry.grid_transform((4 * np.sin(where[..., ::-1] / 9)).astype(np.float32), matrix)
    )
    node.SetAndObserveTransformNodeID(study.linear(turned(0.05, (2.0, 1.0, 0.0))).GetID())
    return node


def test_labels_under_a_grid_transform(study: Study, images: dict[str, sitk.Image]):
    """Labels are resampled once, as by Carry over now, through the parent as it was at the start.
    Dice is that of the transferred labels.
    """
    labels, parent = study.moving_labels, curved(study, images["moving"])
    segmentation = study.segmentation(labels)
    for node in (study.moving, labels, segmentation):
        node.SetAndObserveTransformNodeID(parent.GetID())
    straight = slicer.vtkSlicerVolumesLogic.CloneVolume(
        study.scene, study.moving_labels, "straight"
    )
    straight.SetAndObserveTransformNodeID(None)
    registration = Registration(
        study.request(
            transform=None,
            transfer=[labels, straight, segmentation],
            fixed_labels=study.fixed_labels,
            moving_labels=labels,
        )
    )
    registration.start()
    vectors = slicer.util.arrayFromGridTransform(parent)
    vectors += 20
    slicer.util.arrayFromGridTransformModified(parent)
    registration.wait()
    vectors -= 20
    slicer.util.arrayFromGridTransformModified(parent)
    transform = register(study.request()).nodes["transform"]
    made, straight_made, organs = registration.nodes["transferred"]
    array = geometry.array_of(made)
    assert "transform" not in registration.nodes
    np.testing.assert_array_equal(
        array, geometry.array_of(transfer.transfer(labels, transform, study.fixed))
    )
    np.testing.assert_allclose(geometry.matrix_of(made), geometry.matrix_of(study.fixed), atol=1e-6)
    for i in range(3):
        np.testing.assert_array_equal(segment_array(organs, i, study.fixed), array == i + 1)
    late = geometry.array_of(transfer.transfer(straight, transform, study.fixed))
    assert np.count_nonzero(geometry.array_of(straight_made) != late) <= 1e-3 * late.size

    points = (
        from_world(parent, from_world(transform, points_of(images["fixed"]).reshape(-1, 3) * FLIP))
        * FLIP
    )
    to_world = geometry.matrix_of(labels)[:3]
    index = np.rint((points - to_world[:, 3]) @ np.linalg.inv(to_world[:, :3]).T).astype(int)
    known = ((index >= 0) & (index < images["moving"].GetSize())).all(axis=1)
    truth = np.zeros(array.size, np.uint8)
    truth[known] = sitk.GetArrayFromImage(images["moving_labels"])[tuple(index[known].T[::-1])]
    assert np.count_nonzero(array.ravel() != truth) <= 1e-4 * truth.size
    fixed = geometry.array_of(study.fixed_labels)
    for label in (1, 2, 3):
        overlap = (
            2
            * np.count_nonzero((fixed == label) & (array == label))
            / (np.count_nonzero(fixed == label) + np.count_nonzero(array == label))
        )
        assert registration.result["dice"][f"label {label}"][1] == overlap


def within(grid: sitk.Image, other: sitk.Image) -> np.ndarray:
    """Return which voxels of one grid lie well inside another, where both ITK and Slicer know the
    displacement.
    """
    index = np.linalg.inv(np.reshape(other.GetDirection(), (3, 3)) * other.GetSpacing())
    position = (points_of(grid) - other.GetOrigin()) @ index.T
    return ((position > 0.5) & (position < np.array(other.GetSize()) - 1.5)).all(axis=-1)


def wide(paths: dict[str, Path], folder: Path, kind: int) -> dict[str, Path]:
    """Write label maps with an integer type of 64 bits, numpy's default, which Slicer keeps when it
    loads them.
    """
    made = dict(paths)
    for name in ("fixed_labels", "moving_labels"):
        made[name] = folder / f"{name}.nii.gz"
        sitk.WriteImage(sitk.Cast(sitk.ReadImage(str(paths[name])), kind), str(made[name]))
    return made


@pytest.mark.parametrize("kind", [sitk.sitkInt64, sitk.sitkUInt64])
def test_labels_of_64_bits(
    kind: int, finished: tuple[Study, Registration], paths: dict[str, Path], tmp_path: Path
):
    """They work as those of 8 bits everywhere, although Slicer's resampling crashes on them."""
    study = Study(wide(paths, tmp_path, kind))
    fixed, moving = study.fixed_labels, study.moving_labels
    assert moving.GetImageData().GetScalarTypeAsString().endswith("long")
    scratch, narrow = slicer.vtkMRMLScene(), finished[0].moving_labels
    masks = [
        transfer.mask_on(scratch, node, transfer.on_scratch(scratch, study.fixed))
        for node in (moving, narrow)
    ]
    np.testing.assert_array_equal(*masks)
    done = register(
        study.request(search="on", transfer=[moving], fixed_labels=fixed, moving_labels=moving)
    )
    assert done.result["dice"] == finished[1].result["dice"]
    for made in (
        done.nodes["transferred"][0],
        transfer.transfer(moving, done.nodes["transform"], study.fixed),
    ):
        assert geometry.array_of(made).dtype == np.int32
        np.testing.assert_array_equal(
            geometry.array_of(made), geometry.array_of(finished[1].nodes["transferred"][0])
        )
    assert moving.GetImageData().GetScalarTypeAsString().endswith("long")


def test_segments_of_64_bits(study: Study, finished: tuple[Study, Registration]):
    """Slicer's own import makes no such segments, but a script can."""
    image = slicer.vtkSlicerSegmentationsModuleLogic.CreateOrientedImageDataFromVolumeNode(
        study.moving_labels
    )
    cast = vtk.vtkImageCast()
    cast.SetInputData(image)
    cast.SetOutputScalarTypeToLong()
    cast.Update()
    image.GetPointData().SetScalars(cast.GetOutput().GetPointData().GetScalars())
    node = study.scene.AddNewNodeByClass("vtkMRMLSegmentationNode", "organs")
    node.GetSegmentation().SetSourceRepresentationName(transfer.BINARY)
    segment = slicer.vtkSegment()
    segment.SetName("kidney")
    segment.SetLabelValue(2)
    segment.AddRepresentation(transfer.BINARY, image)
    assert node.GetSegmentation().AddSegment(segment, "kidney")
    made = transfer.transfer(node, finished[1].nodes["transform"], study.fixed)
    np.testing.assert_array_equal(
        segment_array(made, 0, study.fixed),
        geometry.array_of(finished[1].nodes["transferred"][0]) == 2,
    )


@pytest.mark.parametrize(
    "kind",
    [
        vtk.VTK_LONG,
        vtk.VTK_UNSIGNED_LONG,
        vtk.VTK_LONG_LONG,
        vtk.VTK_UNSIGNED_LONG_LONG,
        vtk.VTK_ID_TYPE,
    ],
)
def test_voxels_of_64_bits(kind: int, study: Study):
    """Neither a copy, which lies where the volume does, nor a filled volume has 64 bits."""
    values = geometry.array_of(study.moving_labels).copy()
    for node, narrow in ((study.moving, np.float64), (study.moving_labels, np.int32)):
        node.GetImageData().AllocateScalars(kind, 1)
        geometry.array_of(node)[:] = values
        copied = geometry.copy_volume(slicer.vtkMRMLScene(), node)
        assert (
            geometry.array_of(copied).dtype == narrow
            and node.GetImageData().GetScalarType() == kind
        )
        np.testing.assert_array_equal(geometry.array_of(copied), values)
        np.testing.assert_array_equal(geometry.matrix_of(copied), geometry.matrix_of(node))
        geometry.fill_volume(copied, geometry.array_of(node), np.eye(4))
        assert geometry.array_of(copied).dtype == narrow
        np.testing.assert_array_equal(geometry.array_of(copied), values)


def test_numbers_of_more_than_32_bits_are_refused(
    finished: tuple[Study, Registration], study: Study
):
    labels = study.moving_labels
    labels.GetImageData().AllocateScalars(vtk.VTK_LONG, 1)
    array = geometry.array_of(labels)
    array[:] = 0
    array[0, 0] = 2**31 - 1, *[-(2**31)] * (array.shape[2] - 1)
    slicer.util.arrayFromVolumeModified(labels)
    assert study.request(transfer=[labels]).validate() == ""
    array[0, 0, 0] += 1
    slicer.util.arrayFromVolumeModified(labels)
    reason = (
        "moving_labels has label numbers of more than 32 bits .*: give its labels smaller numbers"
    )
    for fields in (
        {"transfer": [labels]},
        {"moving_mask": labels},
        {"fixed_labels": study.fixed_labels, "moving_labels": labels},
    ):
        with pytest.raises(ValueError, match=reason):
            Registration(study.request(**fields)).start()
    with pytest.raises(ValueError, match=reason):
        transfer.transfer(labels, finished[1].nodes["transform"], study.fixed)


@pytest.mark.parametrize("kind", ["segmentation", "label map"])
def test_mask(kind: str, study: Study, images: dict[str, sitk.Image]):
    """A mask on the labels' grid, under its own transform, is resampled by nearest neighbours onto
    the fixed volume.
    """
    matrix = turned(0.05, (2.0, 1.0, 0.0))
    labels = itk_turned(images["moving_labels"], matrix)
    mask = sitk.Resample(labels, images["fixed"], sitk.Transform(), sitk.sitkNearestNeighbor) > 0
    node = (
        study.segmentation(study.moving_labels) if kind == "segmentation" else study.moving_labels
    )
    node.SetAndObserveTransformNodeID(study.linear(matrix).GetID())
    done = register(study.request(fixed_mask=node))
    scratch = slicer.vtkMRMLScene()
    ours = transfer.mask_on(scratch, node, transfer.on_scratch(scratch, study.fixed))
    assert np.count_nonzero(ours != sitk.GetArrayFromImage(mask)) <= 1e-3 * ours.size
    masked = morphseek.register(images["fixed"], images["moving"], fixed_mask=ours, **PYTHON)
    unmasked = morphseek.register(images["fixed"], images["moving"], **PYTHON)
    array = geometry.array_of(done.nodes["transformed_volume"])
    assert difference(array, masked.warped) < 1e-4 < 10 * difference(array, unmasked.warped)


@pytest.mark.parametrize("kind", ["segmentation", "label map"])
def test_rigid_regions(kind: str, study: Study, images: dict[str, sitk.Image]):
    """Each segment or label moves as one body, as in Python."""
    node = study.segmentation(study.fixed_labels) if kind == "segmentation" else study.fixed_labels
    options = {**PYTHON, "initial": "none"}
    done = register(study.request(rigid_regions=node, **options))
    ours = morphseek.register(
        images["fixed"], images["moving"], rigid_regions=images["fixed_labels"], **options
    )
    free = morphseek.register(images["fixed"], images["moving"], **options)
    array = geometry.array_of(done.nodes["transformed_volume"])
    assert difference(array, ours.warped) < 1e-4 < difference(array, free.warped)


def test_landmarks_steer(study: Study, images: dict[str, sitk.Image]):
    """Points with the same label belong together and unplaced points do not count, as in Python."""
    here = study.points(LANDMARKS)
    there = study.points((LANDMARKS + np.array([3.0, 0.0, 0.0]) * FLIP)[::-1])
    for i in range(5):
        here.SetNthControlPointLabel(i, f"p{i}")
        there.SetNthControlPointLabel(i, f"p{4 - i}")
    here.SetNthControlPointPosition(here.AddControlPoint(0, 0, 0), 0, 0, 0, here.PositionUndefined)
    options = {**PYTHON, "initial": "none", "refine": 0}
    request = study.request(
        fixed_landmarks=here, moving_landmarks=there, further_options={"landmark_error": 0.5},
        **options,
    )  # fmt: skip
    done = register(request)
    ours = morphseek.register(
        images["fixed"], images["moving"], fixed_landmarks=LANDMARKS * FLIP,
        moving_landmarks=LANDMARKS * FLIP + [3, 0, 0], landmark_error=0.5, **options,
    )  # fmt: skip
    fit = done.result["landmark_fit"]
    assert fit["count"] == 5 and fit["reach_mm"] > 0 and fit["after_mm"] < 0.5
    assert any("without a place were left out" in said for said in done.result["warnings"])
    array = geometry.array_of(done.nodes["transformed_volume"])
    assert difference(array, ours.warped) < 1e-4


@pytest.mark.parametrize("kind", ["segmentation", "label map"])
def test_labels_drive(kind: str, study: Study, images: dict[str, sitk.Image]):
    """Structures of the same name or number are brought onto each other, as in Python."""
    nodes = [study.fixed_labels, study.moving_labels]
    if kind == "segmentation":
        nodes = [study.segmentation(node) for node in nodes]
        for i, name in enumerate(("spleen", "kidney", "liver")):  # matched by name, not by order
            nodes[1].GetSegmentation().GetNthSegment(2 - i).SetName(name)
    labels = dict(zip(("fixed_labels", "moving_labels"), nodes))
    done = register(study.request(labels_drive=True, **labels))
    channel = morphseek.Channel(images["fixed_labels"], images["moving_labels"], labels=True)
    ours = morphseek.register(images["fixed"], images["moving"], channels=[channel], **PYTHON)
    free = register(study.request(**labels))
    array = geometry.array_of(done.nodes["transformed_volume"])
    other = geometry.array_of(free.nodes["transformed_volume"])
    assert difference(array, ours.warped) < 1e-4 < difference(other, ours.warped)
    assert [c["name"] for c in done.result["channels"]] == ["the labels"]


def test_second_volumes_drive(study: Study, images: dict[str, sitk.Image]):
    """A second pair of volumes drives the registration; one of them is under a transform."""
    volumes = [slicer.vtkSlicerVolumesLogic.CloneVolume(study.scene, node, f"{node.GetName()} 2")
               for node in (study.fixed, study.moving)]  # fmt: skip
    for node in volumes:
        geometry.array_of(node)[:] = np.sqrt(np.abs(geometry.array_of(node)))
    move = np.eye(4)
    move[:3, 3] = [4.0, -3.0, 2.0]
    origin = np.array(volumes[1].GetOrigin()) - move[:3, 3]
    volumes[1].SetOrigin(origin)
    volumes[1].SetAndObserveTransformNodeID(study.linear(move).GetID())
    request = study.request(channels=[tuple(volumes)])
    done = register(request)
    roots = [sitk.Sqrt(sitk.Abs(images[side])) for side in ("fixed", "moving")]
    ours = morphseek.register(images["fixed"], images["moving"], channels=[roots], **PYTHON)
    free = morphseek.register(images["fixed"], images["moving"], **PYTHON)
    array = geometry.array_of(done.nodes["transformed_volume"])
    assert difference(array, ours.warped) < 1e-4 < difference(array, free.warped)


def test_empty_mask_is_refused(study: Study):
    geometry.array_of(study.fixed_labels)[:] = 0
    with pytest.raises(RegistrationError, match="mask") as caught:
        register(study.request(fixed_mask=study.fixed_labels))
    assert caught.value.name == "empty_mask"


def test_a_doubt_about_a_file_is_told(
    paths: dict[str, Path], images: dict[str, sitk.Image], tmp_path: Path
):
    """Of a volume as its NIfTI was loaded; of one that was laid elsewhere since, none."""
    path = tmp_path / "moving.nii"
    sitk.WriteImage(images["moving"], str(path))
    data = bytearray(path.read_bytes())
    data[268:272] = np.float32(500).tobytes()  # qoffset_x
    path.write_bytes(data)
    study = Study({**paths, "moving": path})
    study.moving.SetAndObserveTransformNodeID(study.linear(turned()).GetID())
    for shift, doubted in ((0.0, True), (9.0, False)):
        matrix = vtk.vtkMatrix4x4()
        study.moving.GetIJKToRASMatrix(matrix)
        matrix.SetElement(0, 3, matrix.GetElement(0, 3) + shift)
        study.moving.SetIJKToRASMatrix(matrix)
        verdict = register(study.request(transform=True)).verdict
        told = [text for text in verdict["reasons"] if f"moving: {path}: its sform and" in text]
        assert bool(told) == doubted, verdict


def test_initial_transform_is_honoured(study: Study, images: dict[str, sitk.Image]):
    """Without any stage it is the result: the same as the moving volume under that transform."""
    node = study.linear(turned(0.1, (-6.0, 4.0, 4.0)))
    done = register(study.request(initial_transform=node, initial="none", refine=0))
    points = inside(images["fixed"])
    there = from_world(done.nodes["transform"], points)
    assert apart(there, from_world(node, points)).max() < 1e-3
    under = geometry.array_of(resampled(study.moving, node, study.fixed))
    assert difference(geometry.array_of(done.nodes["transformed_volume"]), under) <= 0.001


def test_a_mended_result_goes_on(study: Study, images: dict[str, sitk.Image]):
    """The refinement starts from a grid transform under a linear one: a corrected result."""
    lifted = study.linear(turned(0.05, (-6.0, 4.0, 4.0)))
    node = study.scene.AddNode(bent(images["fixed"]))
    node.SetAndObserveTransformNodeID(lifted.GetID())
    done = register(study.request(initial_transform=node, refine=0))
    assert done.explanation[0][1].startswith("the deformation that was given")
    points = inside(images["fixed"])
    there, asked = from_world(done.nodes["transform"], points), from_world(node, points)
    # between voxels the sampled field is interpolated linearly
    assert apart(there, asked).max() < 0.05
    assert apart(asked, from_world(lifted, points)).max() > 1
    again = register(study.request(initial_transform=done.nodes["transform"], refine=0))
    assert apart(from_world(again.nodes["transform"], points), there).max() < 0.01


def test_coarser_field(
    study: Study, finished: tuple[Study, Registration], images: dict[str, sitk.Image]
):
    done = register(study.request(field_spacing=5.0, transformed_volume=None, search="on"))
    assert "transformed_volume" not in done.nodes  # a transform as the only output is enough
    coarse, full = (
        node.GetTransformFromParent().GetConcatenatedTransform(0).GetDisplacementGrid()
        for node in (done.nodes["transform"], finished[1].nodes["transform"])
    )
    assert coarse.GetNumberOfPoints() < full.GetNumberOfPoints() / 6
    points = inside(images["fixed"])
    one, other = (from_world(d.nodes["transform"], points) for d in (done, finished[1]))
    assert apart(one, other).mean() < 0.75


def test_outputs_into_nodes_of_the_user(study: Study, expected: morphseek.Registration):
    volume, transform = (
        study.new("vtkMRMLScalarVolumeNode"),
        study.scene.AddNewNodeByClass("vtkMRMLTransformNode", "my transform"),
    )
    volume.SetAndObserveTransformNodeID(study.linear(turned()).GetID())
    kinds = [node.GetClassName() for node in outputs.nodes_of(study.scene)]
    done = register(study.request(search="on", transformed_volume=volume, transform=transform))
    assert done.nodes == {"transformed_volume": volume, "transform": transform}
    assert volume.GetName() == "mine" and volume.GetParentTransformNode() is None
    assert difference(geometry.array_of(volume), expected.warped) < 1e-4
    made = [node.GetClassName() for node in outputs.nodes_of(study.scene)][len(kinds) :]
    assert all("Display" in kind for kind in made)


def test_nodes_deleted_while_it_runs(study: Study):
    """The user removes inputs and a node for an output. The results still come, in new nodes."""
    mine = study.new("vtkMRMLScalarVolumeNode")
    registration = Registration(
        study.request(transformed_volume=mine, transfer=[study.moving_labels])
    )
    registration.start()
    for node in (mine, study.moving, study.moving_labels):
        study.scene.RemoveNode(node)
    registration.wait()
    made = [
        registration.nodes["transformed_volume"],
        registration.nodes["transform"],
        *registration.nodes["transferred"],
    ]
    assert mine not in made and all(node.GetScene() is study.scene for node in made)


def test_markups_changed_while_it_runs(study: Study):
    """Points are transferred as they were at the start, through their parent as it was: a grid
    transform, which could have changed, too.
    """
    landmarks, parent = study.points(LANDMARKS), study.scene.AddNode(bent())
    landmarks.SetAndObserveTransformNodeID(parent.GetID())
    at_start = np.array(
        [landmarks.GetNthControlPointPositionWorld(i) for i in range(len(LANDMARKS))]
    )
    registration = Registration(study.request(transfer=[landmarks, landmarks]))
    registration.start()
    slicer.util.arrayFromGridTransform(parent)[:] += 20
    slicer.util.arrayFromGridTransformModified(parent)
    landmarks.SetNthControlPointPosition(0, 0, 0, 0)
    parent.SetAndObserveTransformNodeID(study.linear(turned()).GetID())
    landmarks.AddControlPoint(1, 2, 3)
    registration.wait()
    for made in registration.nodes["transferred"]:
        back = from_world(
            registration.nodes["transform"], slicer.util.arrayFromMarkupsControlPoints(made)
        )
        np.testing.assert_allclose(back, at_start, atol=0.01)


def test_segmentation_changed_while_it_runs(study: Study):
    """Segments are transferred as at the start, in their order, which is not that of the layers."""
    node = study.segmentation(study.moving_labels)
    body = slicer.vtkSlicerVolumesLogic.CloneVolume(study.scene, study.moving_labels, "body")
    geometry.array_of(body)[:] = geometry.array_of(body) > 0
    slicer.vtkSlicerSegmentationsModuleLogic.ImportLabelmapToSegmentationNode(body, node)
    segmentation = node.GetSegmentation()
    segmentation.GetNthSegment(3).SetName("body")
    segmentation.SetSegmentIndex(segmentation.GetNthSegmentID(3), 1)
    registration = Registration(study.request(transfer=[node]))
    registration.start()
    segmentation.AddEmptySegment("new", "new")
    segmentation.RemoveSegment(segmentation.GetNthSegmentID(2))
    segmentation.SetSegmentIndex(segmentation.GetNthSegmentID(0), 2)
    registration.wait()
    (made,) = registration.nodes["transferred"]
    assert [made.GetSegmentation().GetNthSegment(i).GetName() for i in range(4)] == [
        "liver",
        "body",
        "kidney",
        "spleen",
    ]
    liver, whole, kidney, spleen = (segment_array(made, i, study.fixed) for i in range(4))
    np.testing.assert_array_equal(whole, liver | kidney | spleen)
    assert kidney.any()


def test_points_without_a_position_get_none(study: Study, finished: tuple[Study, Registration]):
    node = study.points(LANDMARKS)
    node.UnsetNthControlPointPosition(1)
    node.SetNthControlPointPositionMissing(2)
    status = [node.GetNthControlPointPositionStatus(i) for i in range(len(LANDMARKS))]
    made = transfer.transfer(node, finished[1].nodes["transform"], study.fixed)
    assert [made.GetNthControlPointPositionStatus(i) for i in range(len(LANDMARKS))] == status
    assert made.GetNumberOfDefinedControlPoints() == len(LANDMARKS) - 2


def test_overlapping_segments_survive(study: Study, finished: tuple[Study, Registration]):
    node = study.segmentation(study.moving_labels)
    body = slicer.vtkSlicerVolumesLogic.CloneVolume(study.scene, study.moving_labels, "body")
    geometry.array_of(body)[:] = geometry.array_of(body) > 0
    slicer.vtkSlicerSegmentationsModuleLogic.ImportLabelmapToSegmentationNode(body, node)
    assert node.GetSegmentation().GetNumberOfLayers() == 2
    made = transfer.transfer(node, finished[1].nodes["transform"], study.fixed)
    assert made.GetScene() is study.scene
    arrays = [segment_array(made, i, study.fixed) for i in range(4)]
    np.testing.assert_array_equal(arrays[3], arrays[0] | arrays[1] | arrays[2])
    assert arrays[0].any() and arrays[1].any() and arrays[2].any()


def test_empty_segments(study: Study, finished: tuple[Study, Registration]):
    node = study.segmentation(study.moving_labels)
    node.GetSegmentation().AddEmptySegment("nothing", "nothing")
    only = study.scene.AddNewNodeByClass("vtkMRMLSegmentationNode", "only")
    only.GetSegmentation().AddEmptySegment("nothing", "nothing")
    during = register(study.request(transfer=[node, only])).nodes["transferred"]
    afterwards = [
        transfer.transfer(n, finished[1].nodes["transform"], study.fixed) for n in (node, only)
    ]
    for made, count in zip((*during, *afterwards), (4, 1, 4, 1)):
        assert made.GetSegmentation().GetNumberOfSegments() == count
        assert not segment_array(made, count - 1, study.fixed).any()
    assert (
        segment_array(during[0], 0, study.fixed).any()
        and segment_array(afterwards[0], 0, study.fixed).any()
    )


def test_segmentation_made_of_surfaces(study: Study, finished: tuple[Study, Registration]):
    """Such as from a DICOM structure set: it moves as label maps, but the user's node gets none."""
    node = study.segmentation(study.moving_labels)
    segmentation = node.GetSegmentation()
    assert segmentation.CreateRepresentation("Closed surface")
    segmentation.SetSourceRepresentationName("Closed surface")
    segmentation.RemoveRepresentation(transfer.BINARY)
    made = transfer.transfer(node, finished[1].nodes["transform"], study.fixed)
    assert not segmentation.ContainsRepresentation(transfer.BINARY)
    labels = geometry.array_of(finished[1].nodes["transferred"][0])
    for i in (0, 1):
        array = segment_array(made, i, study.fixed)
        assert (
            2
            * np.count_nonzero(array & (labels == i + 1))
            / (array.sum() + np.count_nonzero(labels == i + 1))
            > 0.7
        )


def test_undo(study: Study):
    study.scene.SetUndoOn()
    for kind in (slicer.vtkMRMLScalarVolumeNode, slicer.vtkMRMLGridTransformNode):
        default = kind()
        default.SetUndoEnabled(True)
        study.scene.AddDefaultNode(default)
    before = {node.GetName() for node in outputs.nodes_of(study.scene)}
    done = register(study.request())
    made = {node.GetName() for node in done.nodes.values()}
    assert made <= {node.GetName() for node in outputs.nodes_of(study.scene)}
    study.scene.Undo()
    names = {node.GetName() for node in outputs.nodes_of(study.scene)}
    assert not made & names and before <= names


# ---------------------------------------------------------------------------- cancel, crash, errors


def leftovers() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("morphseek-*")}


def until(registration: Registration, stop: Callable[[Any], bool]) -> list[Any]:
    events, deadline = [], time.monotonic() + 120
    while registration.running and time.monotonic() < deadline:
        events += registration.poll()
        if events and stop(events[-1]):
            break
        time.sleep(0.02)
    return events


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def clean(study: Study) -> Iterator[None]:
    """Check that nothing is left: no node, no temporary folder."""
    nodes, folders = study.nodes(), leftovers()
    yield
    assert study.nodes() == nodes and leftovers() <= folders


def test_cancel_in_the_middle(study: Study, clean: None):
    registration = Registration(study.request(**LONG))
    registration.start()
    events = until(registration, lambda event: event.stage == "refine" and event.fraction > 0.1)
    pid = registration._worker._process.pid
    assert alive(pid) and [*dict.fromkeys(event.stage for event in events)] == [
        "prepare",
        "align",
        "refine",
    ]
    assert STAGES.keys() >= {"prepare", "align", "refine"}
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions) and fractions[-1] < 1
    began = time.monotonic()
    registration.cancel()
    assert not alive(pid) and time.monotonic() - began < 10  # on a busy machine
    assert (
        registration.state == "cancelled" and registration.poll() == [] and registration.nodes == {}
    )


def test_killed_from_outside_then_again(study: Study, paths: dict[str, Path]):
    nodes, folders = study.nodes(), leftovers()
    registration = Registration(study.request(**LONG))
    registration.start()
    until(registration, lambda event: event.stage == "refine")
    os.kill(registration._worker._process.pid, signal.SIGKILL)
    until(registration, lambda event: False)
    assert registration.state == "failed" and study.nodes() == nodes and leftovers() <= folders
    assert "ended unexpectedly (SIGKILL" in str(registration.error) and registration.poll() == []
    assert register(study.request()).state == "finished"


def test_error_of_the_engine(study: Study, clean: None):
    geometry.array_of(study.moving)[:] = 7
    with pytest.raises(RegistrationError, match="moving") as caught:
        register(study.request())
    assert (
        caught.value.name == "constant_volume"
        and caught.value.code == morphseek.errors.ConstantVolumeError.code
    )


def test_publication_is_all_or_nothing(study: Study, monkeypatch: pytest.MonkeyPatch, clean: None):
    def fail(*args: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(outputs, "refer", fail)
    with pytest.raises(RegistrationError, match="no room"):
        register(study.request(jacobian=True))


def test_a_failed_publication_leaves_the_user_s_node(study: Study, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs, "show_like", lambda *nodes: 1 / 0)
    mine = study.new("vtkMRMLScalarVolumeNode")
    geometry.fill_volume(mine, np.arange(24.0).reshape(2, 3, 4), np.diag([1.0, 2.0, 3.0, 1.0]))
    parent = study.linear(turned())
    mine.SetAndObserveTransformNodeID(parent.GetID())
    with pytest.raises(RegistrationError, match="zero"):
        register(study.request(transformed_volume=mine))
    assert geometry.array_of(mine).ravel().tolist() == [*range(24)]
    assert mine.GetSpacing() == (1, 2, 3) and mine.GetParentTransformNode() is parent


def test_package_that_does_not_run(study: Study, monkeypatch: pytest.MonkeyPatch, clean: None):
    monkeypatch.setattr(process, "python", lambda: "/usr/bin/env")  # runs, but is no Python
    with pytest.raises(RegistrationError, match="ended unexpectedly"):
        register(study.request())
    monkeypatch.setattr(process, "python", lambda: "/nowhere/python")
    with pytest.raises(RegistrationError, match="could not be started"):
        Registration(study.request()).start()


@pytest.mark.parametrize(
    "said, reason",
    [
        (b"\xff\xfe garbage\n", "ended unexpectedly"),
        (b'\xff\n{"error": {"name": "x", "code": 1, "message": "mine"}}\n', "mine"),
        (b"5\nnull\n[1]\n", "ended unexpectedly"),
        (b'{"progress": 5}\n', "cannot be read"),
        (b'{"progress": {"stage": "a", "fraction": "b", "message": "c"}}\n', "cannot be read"),
        (b'{"error": {}}\n', "cannot be read"),
        (b'{"error": "no"}\n', "cannot be read"),
        (b'{"result": {}}\n', "could not be brought into the scene"),
        (b'{"result": {"metrics": {}, "files": {}, "labels": []}}\n', "could not be brought"),
        (b'{"result": null}\n', "could not be brought"),
        (b"{" * (1 << 25), "ended unexpectedly"),
    ],
)
def test_what_others_print_does_no_harm(
    said: bytes,
    reason: str,
    study: Study,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clean: None,
):
    """A launcher or the system may print to the worker's standard output, in any encoding."""
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.buffer.write({said!r})\n")
    fake.chmod(0o755)
    monkeypatch.setattr(process, "python", lambda: str(fake))
    with pytest.raises(RegistrationError, match=reason):
        register(study.request(initial="none"))


def test_a_worker_that_hangs(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: None
):
    """The panel reports a worker that writes nothing, reads nothing and fills its error file."""
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(100)\n")
    fake.chmod(0o755)
    monkeypatch.setattr(process, "python", lambda: str(fake))
    monkeypatch.setattr(registration, "_SILENCE", 0.2)
    hanging = Registration(study.request(initial="none"))
    hanging.start()
    deadline, said = time.monotonic() + 10, []
    while not any("not reported for" in text for text in said) and time.monotonic() < deadline:
        said += [event.message for event in hanging.poll()]
        time.sleep(0.05)
    assert sum("not reported for" in text for text in said) == 1 and hanging.running
    pid = hanging._worker._process.pid
    hanging.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_is_moved_already_is_not_moved_again(finished: tuple[Study, Registration]):
    study, done = finished
    node, transform = study.points(LANDMARKS), done.nodes["transform"]
    node.SetAndObserveTransformNodeID(transform.GetID())
    with pytest.raises(ValueError, match="already under moving to fixed, which moves it"):
        transfer.transfer(node, transform, study.fixed)
    study.scene.RemoveNode(node)


@pytest.mark.parametrize("kind", ["ScalarVolume", "MarkupsROI", "MarkupsPlane", "Model"])
def test_what_cannot_be_carried_is_refused(kind: str, finished: tuple[Study, Registration]):
    """A ROI and a plane have a size beside their points, which would stay as it was."""
    study, done = finished
    node = study.new(f"vtkMRML{kind}Node")
    with pytest.raises(ValueError, match="mine cannot be carried over: it is no segmentation"):
        transfer.transfer(node, done.nodes["transform"], study.fixed)
    study.scene.RemoveNode(node)


def test_interrupted_wait_cancels(study: Study, clean: None):
    registration = Registration(study.request(**LONG))
    registration.start()

    def interrupt(event: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registration.wait(interrupt)
    assert registration.state == "cancelled"


# ----------------------------------------------------------------------------------------- requests


def test_a_sound_request(study: Study):
    for preset in PRESETS:
        request = study.request(preset=preset)
        assert request.validate() == "" and PRESETS[preset].description.endswith(".")
    table = {option["name"]: option for option in process.describe()["options"]}
    for preset in PRESETS.values():
        for name, value in preset.options.items():
            assert value in table[name]["choices"]
    for smoothness in ("low", "2.5"):
        request = study.request(smoothness=smoothness)
        assert request.validate() == "" and request.options()["smoothness"] == smoothness
    assert study.request(preset="MR with CT", threads=2).options() == {
        **QUICK,
        "similarity": "mind",
        "threads": 2,
    }


def landmarks(study: Study, moving: Any) -> dict[str, Any]:
    return {"fixed_landmarks": study.points(LANDMARKS), "moving_landmarks": moving}


def without_a_place(study: Study, name: str) -> dict[str, Any]:
    """Take the place from one of the moving landmarks, whose labels begin with their node's name:
    the others are paired by these, or, under another name, would be paired in their order.
    """
    moving = study.points(LANDMARKS)
    for i in range(len(LANDMARKS)):
        moving.SetNthControlPointLabel(i, f"{name}-{i + 1}")
    moving.UnsetNthControlPointPosition(1)
    return landmarks(study, moving)


MILLIMETRES = "smoothness must be auto, low, high or a number of mm"


@pytest.mark.parametrize(
    "fields, reason",
    [
        (lambda s: {"fixed": None}, "Select the fixed volume"),
        (lambda s: {"moving": None}, "Select the moving volume"),
        (lambda s: {"moving": s.fixed}, "the same"),
        (lambda s: {"moving": s.new("vtkMRMLScalarVolumeNode")}, "moving volume holds no image"),
        (lambda s: {"fixed": s.points(LANDMARKS)}, "fixed volume is no scalar volume"),
        (lambda s: {"fixed_mask": s.fixed}, "fixed mask is neither"),
        (lambda s: {"moving_mask": s.new("vtkMRMLSegmentationNode")}, "mask has no segments"),
        (lambda s: {"rigid_regions": s.fixed}, "map of rigid regions is neither"),
        (lambda s: {"fixed_landmarks": s.points(LANDMARKS)}, "moving landmarks, too"),
        (lambda s: landmarks(s, s.points(LANDMARKS[:0])), "have no point: mark some"),
        (lambda s: landmarks(s, s.fixed), "are no markups of points"),
        (lambda s: without_a_place(s, "other"), "points without a position, and no label"),
        (lambda s: without_a_place(s, "landmarks"), "Set the landmark error"),
        (lambda s: landmarks(s, s.points(LANDMARKS)), "Set the landmark error"),
        (lambda s: {"channels": [(s.moving, None)]}, "second moving volume, too"),
        (lambda s: {"channels": [(s.fixed, s.moving)]}, "same as the first ones"),
        (
            lambda s: {"channels": [(s.points(LANDMARKS), s.moving)]},
            "second fixed volume (landmarks) is no scalar volume",
        ),
        (lambda s: {"labels_drive": True}, "select the labels of both sides"),
        (lambda s: {"initial_transform": s.fixed}, "transform is no transform"),
        (lambda s: already_there(s), "on the moving volume already"),
        (
            lambda s: {"initial_transform": s.linear(np.diag([1.0, 0, 1, 1]), "flat")},
            "The initial transform (flat) is singular",
        ),
        (lambda s: {"fixed_labels": s.fixed_labels}, "labels of both sides"),
        (lambda s: named(s, ["other 0", "other 1", "other 2"], "liver"), "none in common"),
        (lambda s: named(s, ["one", "one", "spleen"], "one"), "one occurs twice"),
        (lambda s: {"transfer": [s.fixed]}, "cannot be carried over"),
        (lambda s: {"transfer": [s.new("vtkMRMLSegmentationNode")]}, "mine has no segments"),
        (lambda s: {"field_spacing": -1.0}, "spacing of the transform"),
        (lambda s: {"field_spacing": float("nan")}, "spacing of the transform"),
        (lambda s: {"smoothness": "stiff"}, MILLIMETRES),
        (lambda s: {"smoothness": "nan"}, MILLIMETRES),
        (lambda s: {"model": "/nowhere/net.onnx"}, "no network file"),
        (lambda s: {"transform": None, "transformed_volume": None}, "at least one output"),
        (lambda s: {"transformed_volume": s.moving}, "is an input"),
        (
            lambda s: dict.fromkeys(
                ("transformed_volume", "jacobian"), s.new("vtkMRMLScalarVolumeNode")
            ),
            "two outputs",
        ),
        (lambda s: {"transform": s.linear(np.eye(4))}, "cannot be the transform"),
        (
            lambda s: under_its_own_output(s),
            "moving lies under earlier, which would be overwritten",
        ),
        (lambda s: {"preset": "Knee"}, "no preset"),
    ],
)
def test_reasons(fields: Callable[[Study], dict[str, Any]], reason: str, study: Study):
    request = study.request(**fields(study))
    assert reason in request.validate()
    nodes = study.nodes()
    with pytest.raises(ValueError, match=re.escape(reason)):
        Registration(request).start()
    assert study.nodes() == nodes


def bent(over: sitk.Image | None = None) -> Any:
    """Make a grid transform; over an image, one with waves of 2 mm."""
    node = slicer.vtkMRMLGridTransformNode()
    shape, spacing, origin = (3, 3, 3), 5.0, [0.0, 0.0, 0.0]
    vectors = np.ones((*shape, 3), np.float32)
    if over is not None:
        ends = np.array(over.GetSize()) - 1
        corners = np.array(
            [
                over.TransformContinuousIndexToPhysicalPoint((at * ends).tolist())
                for at in np.ndindex(2, 2, 2)
            ]
        )
        origin = corners.min(axis=0).tolist()
        shape = tuple(int(n) for n in (np.ptp(corners, axis=0) // spacing + 2)[::-1])
        place = np.moveaxis(np.indices(shape), 0, -1) * spacing
        vectors = 2 * np.sin(place / 25 + [0, 1, 2]).astype(np.float32)
    matrix = np.diag([spacing, spacing, spacing, 1.0])
    matrix[:3, 3] = origin
    node.SetAndObserveTransformFromParent(geometry.grid_transform(vectors, matrix))
    return node


def already_there(study: Study) -> dict[str, Any]:
    transform = study.linear(turned())
    study.moving.SetAndObserveTransformNodeID(transform.GetID())
    return {"initial_transform": transform}


def under_its_own_output(study: Study) -> dict[str, Any]:
    """Put the result of a first registration on the moving volume."""
    transform = study.scene.AddNode(bent())
    transform.SetName("earlier")
    study.moving.SetAndObserveTransformNodeID(transform.GetID())
    return {"transform": transform}


def named(study: Study, names: list[str], fixed: str) -> dict[str, Any]:
    """Return segmentations of both sides: the moving one with these names, the fixed one with its
    first segment called so.
    """
    made = {
        key: study.segmentation(getattr(study, key)) for key in ("fixed_labels", "moving_labels")
    }
    for i, name in enumerate(names):
        made["moving_labels"].GetSegmentation().GetNthSegment(i).SetName(name)
    made["fixed_labels"].GetSegmentation().GetNthSegment(0).SetName(fixed)
    return made


# --------------------------------------------------------------------------- batch and installation


def test_batch(
    paths: dict[str, Path],
    images: dict[str, sitk.Image],
    expected: morphseek.Registration,
    study: Study,
    tmp_path: Path,
):
    batch.save(study.points(LANDMARKS), tmp_path / "points.mrk.json")
    keys = ("fixed", "moving", "fixed_labels", "moving_labels")
    heading, first = ";".join(keys), ";".join(str(paths[key]) for key in keys)
    (tmp_path / "study.csv").write_text(  # as a spreadsheet writes it where commas are decimal
        f"id;{heading};moving_landmarks\none;{first};points.mrk.json\n"
        f"two;absent.nrrd;{paths['moving']};;;\n"
        f"three;{paths['fixed'].parent};{paths['moving']};;;\n"
        f"four;{paths['fixed']};{paths['moving']};;;study.csv\n"
        f"five;{paths['fixed']};{paths['moving']};;;two.mrk.json\n"
    )
    lists = json.loads((tmp_path / "points.mrk.json").read_text())
    (tmp_path / "two.mrk.json").write_text(json.dumps({**lists, "markups": 2 * lists["markups"]}))
    shown: list[str] = []
    rows = batch.run(
        tmp_path / "study.csv", tmp_path / "out", show=shown.append, **{**QUICK, "search": "on"}
    )
    assert len(shown) == 5 and rows[0]["error"] == ""
    assert "absent.nrrd cannot be read" in rows[1]["error"]
    assert rows[2]["error"].endswith("cannot be read: give a file of one volume")
    assert "study.csv cannot be read: give a .mrk.json file" in rows[3]["error"]
    assert rows[4]["error"].endswith("two.mrk.json holds 2 lists of points; save one alone")
    assert rows[0]["dice_after"] > rows[0]["dice_before"]
    assert rows[0]["verdict"] in ("good", "check", "failed") and "verdict" not in rows[1]
    assert rows[0]["error_mm"] > 0 and (rows[0]["verdict"] == "good") == (rows[0]["reasons"] == "")
    assert f"one: {rows[0]['verdict']}, similarity" in shown[0]
    out = tmp_path / "out"
    assert {p.name for p in out.iterdir()} == {"results.csv", "one"}
    assert {p.name for p in (out / "one").iterdir()} == {
        "transformed_volume.nii.gz",
        "transform.h5",
        "labels.nii.gz",
        "landmarks.mrk.json",
    }
    warped = sitk.ReadImage(str(out / "one" / "transformed_volume.nii.gz"))
    assert difference(sitk.GetArrayFromImage(warped), expected.warped) < 1e-4
    points = inside(images["fixed"])
    itk = itk_points(sitk.ReadTransform(str(out / "one" / "transform.h5")), points)
    assert apart(itk, itk_points(expected.transform.to_sitk(), points)).max() < 1e-3


@pytest.mark.parametrize(
    "text, reason",
    [
        ("a,b\n1,2\n", "columns fixed and moving"),
        ("id,fixed,moving\na,1,2\na,3,4\n", "is there twice"),
        ("id,fixed,moving\n../a,1,2\n", "no name for a folder"),
        ("fixed,moving,name\n1,2,a\n", "name"),
        ("fixed,moving,fixed_channel\n1,2,3\n", "cannot have fixed_channel"),
    ],
)
def test_batch_list_that_is_wrong(text: str, reason: str, tmp_path: Path):
    (tmp_path / "study.csv").write_text(text)
    with pytest.raises((RuntimeError, ValueError), match=reason):
        batch.run(tmp_path / "study.csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_batch_carries_labels_that_nothing_is_compared_with(paths: dict[str, Path], tmp_path: Path):
    listed = "\t".join(str(paths[key]) for key in ("fixed", "moving", "moving_labels"))
    (tmp_path / "study.tsv").write_text(f"fixed\tmoving\tmoving_labels\n{listed}\n")
    (row,) = batch.run(tmp_path / "study.tsv", tmp_path / "out", **QUICK)
    assert row["error"] == "" and "dice_after" not in row and row["id"] == "001-moving-to-fixed"
    moved = sitk.ReadImage(str(tmp_path / "out" / row["id"] / "labels.nii.gz"))
    assert set(np.unique(sitk.GetArrayFromImage(moved))) == {0, 1, 2, 3}


class Environment:
    """Stands in for Slicer's Python: the installed packages with their versions, and pip."""

    REQUIRES = {
        "morphseek": [
            "numpy>=99",
            "SimpleITK>=99",
            "onnxruntime>=1.26; extra == 'network'",
            "rich>=13",
            "torch>=2; extra == 'training'",
        ],
        "onnxruntime": ["numpy>=1.21.6", "SciPy", "flatbuffers", "oldpack; python_version < '3'"],
        "rich": ["pygments>=2.13"],
    }

    def __init__(self, **installed: str):
        self.installed, self.calls = installed, []

    def requires(self, name: str) -> list[str]:
        self.version(name)
        return self.REQUIRES.get(name, [])

    def version(self, name: str) -> str:
        if name not in self.installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return self.installed[name]

    def pip(self, arguments: list[str]) -> None:
        self.calls.append(arguments)
        assert arguments[0] == "--no-deps"
        folder = arguments[arguments.index("--find-links") + 1] if "--no-index" in arguments else ""
        self.installed |= {
            Path(argument).stem.split(">")[0].partition("-")[0]: "99.0"
            for argument in arguments[1:]
            if not argument.startswith("--") and argument != folder
        }


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    made = Environment(numpy="1.0", simpleitk="1.0", rich="13.7", pygments="2.18")
    monkeypatch.setattr(importlib.metadata, "requires", made.requires)
    monkeypatch.setattr(importlib.metadata, "version", made.version)
    monkeypatch.setitem(sys.modules, "slicer.packaging", None)  # as in Slicer 5.10
    return made


@pytest.fixture
def newer(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Slicer from 5.11 on, with slicer.packaging.pip_ensure; returns the list of its calls."""
    calls: list[dict[str, Any]] = []

    def pip_ensure(requirements: list[str], **how: Any) -> None:
        how["constraints"] = Path(how["constraints"]).read_text(encoding="utf-8").split()
        calls.append({"requirements": requirements, **how})
        environment.installed |= {"morphseek": "1.0", "onnxruntime": "1.30", "flatbuffers": "9"}

    module = types.ModuleType("slicer.packaging")
    module.pip_ensure = pip_ensure
    monkeypatch.setitem(sys.modules, "slicer.packaging", module)
    return calls


def test_installation_by_slicers_own_way(environment: Environment, newer: list) -> None:
    environment.installed["scipy"] = "1.13.1"
    assert install.ensure(lambda question: True, environment.pip)
    (call,) = newer
    assert call["requirements"] == ["morphseek[network]"] and environment.calls == []
    assert call["constraints"] == ["numpy==1.0", "scipy==1.13.1", "simpleitk==1.0"]
    assert {"numpy", "scipy", "simpleitk"} <= set(call["skip_packages"])
    assert call["requester"] == "MorphSeek" and call["prompt_install"] is False
    assert install.ensure(lambda question: pytest.fail("asked again"), environment.pip)


def test_a_file_goes_the_same_way_in_every_slicer(environment: Environment, newer: list) -> None:
    assert install.ensure(lambda question: True, environment.pip, "/usb/morphseek.whl")
    assert newer == [] and environment.calls[0] == ["--no-deps", "/usb/morphseek.whl"]


def test_without_a_network_all_comes_from_the_folder(
    environment: Environment, tmp_path: Path
) -> None:
    for name in ("morphseek-1.0", "onnxruntime-1.30-cp312", "flatbuffers-25.1-py2"):
        (tmp_path / f"{name}.whl").write_text("")
    wheel = str(tmp_path / "morphseek-1.0.whl")
    assert install.ensure(lambda question: True, environment.pip, wheel)
    local = ["--no-deps", "--no-index", "--find-links", str(tmp_path)]
    assert environment.calls == [
        ["--no-deps", wheel],
        [*local, "onnxruntime>=1.26"],
        [*local, "flatbuffers"],
    ]
    # requirements without a wheel in the folder come from the index
    assert install.beside(wheel, ["onnxruntime>=1.26", "rich>=13"]) == local[2:]
    assert install.beside(wheel, ["rich>=13"]) == []


def test_progress_is_told(environment: Environment) -> None:
    told: list[tuple] = []
    assert install.ensure(
        lambda question: True, environment.pip, progress=lambda *step: told.append(step)
    )
    assert told == [(0, 1, "morphseek"), (1, 2, "onnxruntime>=1.26"), (2, 3, "flatbuffers")]


def test_an_old_slicer_is_told_before_anything_is_asked(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "PYTHON", (99, 0))
    with pytest.raises(RuntimeError, match="MorphSeek needs 99.0: take Slicer 5.10 or later"):
        install.ensure(lambda question: pytest.fail("asked"), environment.pip)


@pytest.mark.parametrize("new", [False, True])
def test_a_failure_is_explained(
    environment: Environment, new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **how: Any) -> None:
        raise RuntimeError("exit status 1")

    if new:
        module = types.ModuleType("slicer.packaging")
        module.pip_ensure = fails
        monkeypatch.setitem(sys.modules, "slicer.packaging", module)
    with pytest.raises(RuntimeError, match="^set the proxy$"):
        install.ensure(lambda q: True, fails, explain=lambda arguments: "set the proxy")
    with pytest.raises(RuntimeError, match="^exit status 1$"):
        install.ensure(lambda q: True, fails, explain=lambda arguments: "")


@pytest.mark.parametrize(
    "variables, arguments, sentence",
    [
        ({}, ["--no-index", "no-such-package"], "there is no no-such-package for this system"),
        (
            {"PIP_INDEX_URL": "http://127.0.0.1:9/"},
            ["no-such-package"],
            "cannot be reached. Behind a",
        ),
        (
            {"PIP_INDEX_URL": "https://example.org/", "HTTPS_PROXY": "http://127.0.0.1:9"},
            ["no-such-package"],
            "the proxy refused the connection",
        ),
    ],
)
def test_pip_is_asked_why(
    variables: dict[str, str], arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert sentence in install.why(arguments)


@pytest.mark.parametrize(
    "said, sentence",
    [
        ("SSLError(SSLCertVerificationError(1, 'certificate verify failed'", "PIP_CERT"),
        (
            "Cannot connect to proxy.', OSError('Tunnel connection failed: 407 Proxy A",
            "HTTPS_PROXY",
        ),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("Errno 13] Permission denied: 'C:\\Program Files", "cannot be written"),
        ("something else", ""),
    ],
)
def test_what_pip_says_has_a_meaning(said: str, sentence: str) -> None:
    found = install.reason(said)
    assert sentence in found and bool(found) == bool(sentence)


# Packages that Slicer brings and that we require, too, from Slicer's repository.
BROUGHT = {"5.10": {"numpy": "2.0.2"}, "preview of 2026, pull request 9161": {"SimpleITK": "2.5.5"}}


@pytest.mark.parametrize("release", BROUGHT)
def test_what_slicer_brings_can_stay(release: str, tmp_path: Path) -> None:
    """pip finds versions of all our requirements that fit Slicer's Python and its packages."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("".join(f"{n}=={v}\n" for n, v in BROUGHT[release].items()))
    wanted = []
    for text in importlib.metadata.requires("morphseek") or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": install.EXTRA}):
            wanted.append(f"{requirement.name}{requirement.specifier}")
    assert {name.split(">")[0] for name in wanted} >= {"numpy", "SimpleITK", "onnxruntime"}
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-"]
    command += ["--only-binary", ":all:", "--python-version", "3.12", "--no-cache-dir"]
    command += ["--retries", "1", "--target", str(tmp_path / "target"), "-c", str(constraints)]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True)
    if done.returncode and install.reason(done.stderr).startswith(("the Python", "the proxy")):
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = {i["metadata"]["name"].lower(): i["metadata"]["version"] for i in report["install"]}
    for name, version in BROUGHT[release].items():
        assert found.get(name.lower(), version) == version


def test_installation_asks_first(environment: Environment):
    questions: list[str] = []
    assert not install.ensure(lambda question: questions.append(question), environment.pip)
    assert environment.calls == [] and "stay as they are" in questions[0]
    assert install.ensure(lambda question: True, environment.pip)
    assert environment.calls == [
        ["--no-deps", "morphseek"],
        ["--no-deps", "onnxruntime>=1.26"],
        ["--no-deps", "flatbuffers"],
    ]
    assert install.ensure(lambda question: pytest.fail("nothing is missing"), environment.pip)


def test_installation_that_does_nothing_ends(environment: Environment):
    environment.installed["morphseek"] = "1.0"
    assert not install.ensure(
        lambda question: True, lambda arguments: environment.calls.append(arguments)
    )
    assert len(environment.calls) == 1


COMPLETE = {"morphseek": "1.0", "onnxruntime": "1.26", "flatbuffers": "1.0"}


@pytest.mark.parametrize("version, wanted", [("12.9", ["rich>=13"]), ("14.0rc1", [])])
def test_requirements_have_versions(version: str, wanted: list[str], environment: Environment):
    environment.installed |= {**COMPLETE, "rich": version}
    assert install.missing() == wanted


def test_every_demand_on_a_package_counts(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(Environment.REQUIRES, "flatbuffers", ["pygments<2.19,>=2.15"])
    environment.installed |= {**COMPLETE, "pygments": "2.14"}
    assert install.missing() == ["pygments<2.19,>=2.15"]
    environment.installed["pygments"] = "2.12"
    assert install.missing() == ["pygments<2.19,>=2.13,>=2.15"]


def test_a_package_that_does_not_run_is_installed_anew(environment: Environment):
    environment.installed |= {"morphseek": "1.0", "onnxruntime": "1.26"}
    # it may lack a dependency, such as flatbuffers
    assert install.ensure(lambda question: True, environment.pip, runs=False)
    assert install.ensure(lambda question: True, environment.pip, runs=False)
    assert not install.ensure(lambda question: False, environment.pip, runs=False)
    assert environment.calls == [
        ["--no-deps", "flatbuffers"],
        ["--no-deps", "--force-reinstall", "morphseek"],
    ]


def test_a_file_replaces_what_is_installed(environment: Environment):
    environment.installed |= {"morphseek": "1.0", "onnxruntime": "1.26"}
    assert install.ensure(lambda question: True, environment.pip, "/usb/morphseek.whl")
    assert environment.calls == [
        ["--no-deps", "--force-reinstall", "/usb/morphseek.whl"],
        ["--no-deps", "flatbuffers"],
    ]


def test_the_package_here_is_complete():
    assert install.installed() == morphseek.__version__ and install.missing() == []


def test_sample_data_is_computed(paths: dict[str, Path]) -> None:
    scene = slicer.vtkMRMLScene()
    logic = slicer.vtkSlicerVolumesLogic()
    logic.SetMRMLScene(scene)

    def loader(labels: int) -> Callable[..., Any]:
        return lambda path, how: logic.AddArchetypeVolume(path, how["name"], labels)

    nodes = sample.load(loader(0), loader(1))
    assert [node.GetName() for node in nodes] == [*sample.VOLUMES.values(), *sample.LABELS.values()]
    fixed, moving, fixed_labels, moving_labels = nodes
    assert fixed.GetImageData().GetDimensions() == fixed_labels.GetImageData().GetDimensions()
    assert (
        moving_labels.IsA("vtkMRMLLabelMapVolumeNode") and moving.GetImageData().GetNumberOfPoints()
    )
    assert moving_labels.GetDisplayNode().GetColorNode().GetColorName(1) == "liver"


def test_sample_data_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_MAKE", "raise ModuleNotFoundError('No module named morphseek')")
    with pytest.raises(RuntimeError, match="No module named morphseek. Open the module MorphSeek"):
        sample.load(pytest.fail, pytest.fail)
