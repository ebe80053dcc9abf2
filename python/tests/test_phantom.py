"""The made-up pair's truth maps anatomy to the same anatomy and never folds."""

from __future__ import annotations

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from morphseek import errors, phantom
from morphseek.phantom import PhantomPair


def test_truth_maps_labels_to_labels(pair: PhantomPair):
    points = pair.target_points(1)
    to_fixed, to_moving = (np.linalg.inv(i.index_to_physical) for i in (pair.fixed, pair.moving))
    here = np.rint(points @ to_fixed[:3, :3].T + to_fixed[:3, 3]).astype(int)
    there = np.rint(pair.truth(points) @ to_moving[:3, :3].T + to_moving[:3, 3]).astype(int)
    inside = ((there >= 0) & (there < np.array(pair.moving.array.shape[::-1]))).all(axis=1)
    assert inside.mean() > 0.85
    a = pair.fixed_labels.array[tuple(here[inside, ::-1].T)]
    b = pair.moving_labels.array[tuple(there[inside, ::-1].T)]
    assert (a == b).mean() > 0.9  # the rest lie within a voxel of a border
    assert (
        set(np.unique(pair.fixed_labels.array))
        == set(np.unique(pair.moving_labels.array))
        == {0, *phantom.LABELS}
    )


def test_truth_is_a_diffeomorphism(pair: PhantomPair):
    points = pair.target_points(3)
    h = 1e-3
    jacobian = np.stack(
        [(pair.truth(points + h * e) - pair.truth(points - h * e)) / (2 * h) for e in np.eye(3)],
        axis=-1,
    )
    determinant = np.linalg.det(jacobian)
    assert determinant.min() > 0.3 and determinant.max() < 3 and determinant.std() > 0.05


def test_seed(pair: PhantomPair):
    again, other = phantom.make_pair(size=40), phantom.make_pair(size=40, seed=1)
    np.testing.assert_array_equal(again.moving.array, pair.moving.array)
    assert (other.moving_labels.array != pair.moving_labels.array).mean() > 0.02
    np.testing.assert_array_equal(other.fixed_labels.array, pair.fixed_labels.array)


@pytest.mark.parametrize("contrasts", [("CT", "CT"), ("MR", "MR"), ("CT", "MR")])
def test_contrasts(contrasts: tuple[str, str], pair: PhantomPair):
    """Another contrast shows the same anatomy in the same place. CT has air at -1000; MR has no
    negative values.
    """
    other = phantom.make_pair(40, 0, contrasts)
    np.testing.assert_array_equal(other.moving_labels.array, pair.moving_labels.array)
    np.testing.assert_array_equal(other.truth(np.eye(3)), pair.truth(np.eye(3)))
    for image, contrast in ((other.fixed, contrasts[0]), (other.moving, contrasts[1])):
        assert (image.array.min() < -900) == (contrast == "CT") and (image.array.min() >= 0) == (
            contrast == "MR"
        )


@pytest.mark.parametrize("contrasts", [("PET", "CT"), ("mr", "CT"), ("CT",)])
def test_unknown_contrasts_are_named(contrasts: tuple[str, ...]):
    with pytest.raises(errors.InvalidArgumentError, match="give two, each of MR, CT"):
        phantom.make_pair(16, 0, contrasts)


def test_errors_are_distances_to_the_truth(pair: PhantomPair, result: morphseek.Registration):
    """Compared with SimpleITK's transforms, organ by organ, inside the moving image."""
    errors = pair.errors(result)
    points = pair.target_points()
    true = pair.truth(points)
    moving, labels = pair.moving.to_sitk(), pair.fixed_labels.to_sitk()
    seen = np.array(
        [
            all(
                0 <= i <= n - 1
                for i, n in zip(moving.TransformPhysicalPointToContinuousIndex(p), moving.GetSize())
            )
            for p in true.tolist()
        ]
    )
    organ = np.array([labels[labels.TransformPhysicalPointToIndex(p)] for p in points.tolist()])
    affine = sitk.AffineTransform(
        result.transform.initial[:3, :3].ravel().tolist(), result.transform.initial[:3, 3].tolist()
    )
    for when, transform in (
        ("before", sitk.Transform()),
        ("initial", affine),
        ("after", result.transform.to_sitk()),
    ):
        distance = np.linalg.norm(
            [transform.TransformPoint(p) for p in points.tolist()] - true, axis=1
        )
        for found, which in (
            (errors, seen),
            *((o, seen & (organ == o["label"])) for o in errors["organs"]),
        ):
            want = {
                "mean_mm": distance[which].mean(),
                "median_mm": np.median(distance[which]),
                "p95_mm": np.percentile(distance[which], 95),
            }
            assert found[when] == pytest.approx(want, abs=1e-3) and found[
                "points"
            ] == np.count_nonzero(which)
    assert errors["points"] == sum(o["points"] for o in errors["organs"]) < len(points)
    assert [o["name"] for o in errors["organs"]] == list(phantom.LABELS.values())
