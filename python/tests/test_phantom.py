"""The made-up pair's truth maps anatomy to the same anatomy and never folds."""

import pickle

import numpy as np
import pytest
import SimpleITK as sitk

import morphseek
from helpers import affine_of, by_itk, invalid
from morphseek import phantom
from morphseek.phantom import PhantomPair


def test_truth_maps_labels_to_labels(pair: PhantomPair):
    points = pair.target_points(1)
    here = np.rint(pair.fixed.grid.to_index(points)).astype(int)
    there = np.rint(pair.moving.grid.to_index(pair.truth(points))).astype(int)
    inside = ((there >= 0) & (there < pair.moving.grid.size)).all(axis=1)
    assert inside.mean() > 0.85
    a = pair.fixed_labels.array[tuple(here[inside, ::-1].T)]
    b = pair.moving_labels.array[tuple(there[inside, ::-1].T)]
    assert (a == b).mean() > 0.9  # the rest lie within a voxel of a border
    for labels in (pair.fixed_labels, pair.moving_labels):
        assert set(np.unique(labels.array)) == {0, *phantom.LABELS}


def test_truth_is_a_diffeomorphism(pair: PhantomPair):
    points = pair.target_points(3)
    h = 1e-3
    steps = [pair.truth(points + h * e) - pair.truth(points - h * e) for e in np.eye(3)]
    slopes = np.array(steps) / (2 * h)
    determinant = np.linalg.det(np.stack(slopes, axis=-1))
    assert determinant.min() > 0.3 and determinant.max() < 3 and determinant.std() > 0.05


def test_a_pair_travels_to_processes(pair: PhantomPair):
    copy = pickle.loads(pickle.dumps(pair))
    points = np.array([[10.0, -20, 5]])
    np.testing.assert_array_equal(copy.truth(points), pair.truth(points))


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
        least = image.array.min()
        assert (least < -900, least >= 0) == (contrast == "CT", contrast == "MR")


@pytest.mark.parametrize("contrasts", [("PET", "CT"), ("mr", "CT"), ("CT",)])
def test_unknown_contrasts_are_named(contrasts: tuple[str, ...]):
    invalid("give two, each of MR, CT", phantom.make_pair, 16, 0, contrasts)


def test_errors_are_distances_to_the_truth(pair: PhantomPair, result: morphseek.Registration):
    """Compared with SimpleITK's transforms, organ by organ, inside the moving image."""
    errors = pair.errors(result)
    points = pair.target_points()
    true = pair.truth(points)
    moving, labels = pair.moving.to_sitk(), pair.fixed_labels.to_sitk()
    index = np.array([moving.TransformPhysicalPointToContinuousIndex(p) for p in true.tolist()])
    seen = ((index >= 0) & (index <= np.array(moving.GetSize()) - 1)).all(axis=1)
    organ = np.array([labels[labels.TransformPhysicalPointToIndex(p)] for p in points.tolist()])
    for when, transform in (
        ("before", sitk.Transform()),
        ("initial", affine_of(result.transform.initial)),
        ("after", result.transform.to_sitk()),
    ):
        distance = np.linalg.norm(by_itk(transform, points) - true, axis=1)
        for found, which in (
            (errors, seen),
            *((o, seen & (organ == o["label"])) for o in errors["organs"]),
        ):
            mm = distance[which]
            want = dict(mean_mm=mm.mean(), median_mm=np.median(mm), p95_mm=np.percentile(mm, 95))
            assert found[when] == pytest.approx(want, abs=1e-3)
            assert found["points"] == np.count_nonzero(which)
    assert errors["points"] == sum(o["points"] for o in errors["organs"]) < len(points)
    assert [o["name"] for o in errors["organs"]] == list(phantom.LABELS.values())
