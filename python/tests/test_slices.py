"""Slices: images with two axes, or with three of which one has one voxel."""

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from scipy.ndimage import binary_erosion, distance_transform_edt, gaussian_filter, map_coordinates

import morphseek
from helpers import invalid, refused, resampled, run
from morphseek import errors, images
from morphseek.images.frames import Frames

SPACING = (0.8, 1.2)  # x, y


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a slice, the same after a known motion, and that motion in voxels (2, y, x)."""
    body = morphseek.phantom.make_pair(size=96).fixed.array[48].astype(np.float32)
    rng = np.random.default_rng(3)
    u = np.stack([gaussian_filter(rng.normal(size=body.shape), 14) for _ in range(2)])
    u *= 3 / np.abs(u).max()
    at = np.mgrid[: body.shape[0], : body.shape[1]] + u
    return map_coordinates(body, at, order=3, mode="nearest"), body, u


def _placed(array: np.ndarray) -> sitk.Image:
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(SPACING)
    image.SetOrigin((-30.0, 12.0))
    return image


def test_arrays_of_two_axes(pair):
    fixed, moving, truth = pair
    result = morphseek.register(fixed, moving, threads=1)
    assert result.displacement().shape == (3, 1, *fixed.shape)
    assert not result.displacement()[0].any()
    inside = fixed > 0.1 * fixed.max()
    error = np.linalg.norm(result.displacement()[1:, 0] - truth, axis=0)[inside].mean()
    assert error < 0.4 * np.linalg.norm(truth, axis=0)[inside].mean()
    warped = result.apply(moving)
    assert warped.shape == fixed.shape
    np.testing.assert_allclose(warped, result.warped[0], atol=1e-3 * moving.max())


def test_transform_of_two_dimensions_is_simpleitks(pair):
    fixed, moving = _placed(pair[0]), _placed(pair[1])
    result = morphseek.register(fixed, moving, threads=1)
    want = resampled(moving, fixed, result.transform.to_sitk(2))
    ours = result.apply(moving, background=0.0)
    assert ours.GetDimension() == 2
    assert ours.GetSpacing() == pytest.approx(SPACING)
    inner = (slice(8, -8), slice(8, -8))
    got = sitk.GetArrayFromImage(ours)
    np.testing.assert_allclose(got[inner], want[inner], atol=2e-3 * pair[1].max())
    point = result.transform_points([[5.0, 40.0, 0.0]])[0]
    flat = result.transform.to_sitk(2).TransformPoint((5.0, 40.0))
    assert point == pytest.approx((*flat, 0.0), abs=1e-3)


def test_transform_of_a_volume_has_three_dimensions():
    body = morphseek.phantom.make_pair(size=24)
    result = morphseek.register(body.fixed, body.moving, initial="com", search=False, refine=0)
    invalid("three dimensions", result.transform.to_sitk, 2)


def test_files(pair, tmp_path: Path):
    """The command takes a PNG in colour, of which the brightness counts, and a coronal slice in a
    NIfTI.
    """
    fixed, moving, _ = pair
    grey = np.clip(255 * fixed / fixed.max(), 0, 255).astype(np.uint8)
    colour = sitk.GetImageFromArray(np.stack([grey] * 3, axis=-1), isVector=True)
    sitk.WriteImage(colour, str(tmp_path / "f.png"))
    read = images.read(tmp_path / "f.png", "fixed")
    assert read.array.shape == (1, *grey.shape)
    np.testing.assert_allclose(read.array[0], grey, atol=1e-3)

    for name, array in (("f", fixed), ("m", moving)):
        image = sitk.GetImageFromArray(array[None])
        image.SetDirection((1, 0, 0, 0, 0, 1, 0, 1, 0))
        image.SetOrigin((4.0, -17.0, 30.0))
        sitk.WriteImage(image, str(tmp_path / f"{name}.nii.gz"))
    out = tmp_path / "out"
    run("register", tmp_path / "f.nii.gz", tmp_path / "m.nii.gz", "--out", out)
    warped, given = (sitk.ReadImage(str(p)) for p in (out / "warped.nii.gz", tmp_path / "f.nii.gz"))
    assert warped.GetSize() == given.GetSize()
    assert warped.GetDirection() == pytest.approx(given.GetDirection())
    transform = sitk.ReadTransform(str(out / "transform.h5"))
    want = resampled(sitk.ReadImage(str(tmp_path / "m.nii.gz")), given, transform)
    inner = (0, slice(8, -8), slice(8, -8))
    got = sitk.GetArrayFromImage(warped)
    np.testing.assert_allclose(got[inner], want[inner], atol=2e-3 * moving.max())
    assert morphseek.Registration.read(out).displacement().shape == (3, 1, *fixed.shape)


def test_a_picture_in_colour_is_resampled_by_its_colours(tmp_path: Path):
    colours = np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)
    picture = sitk.GetImageFromArray(colours, isVector=True)
    sitk.WriteImage(picture, str(tmp_path / "a.png"))
    shift = np.eye(4)
    shift[:2, 3] = 1.5, -2
    want = sitk.Resample(
        picture, picture, sitk.TranslationTransform(2, (1.5, -2.0)), sitk.sitkLinear
    )
    inner = (slice(3, None), slice(None, -3))  # beside the picture ITK has 0
    for source in (picture, tmp_path / "a.png"):
        assert [frame.array.shape for frame in Frames(source, "moving")] == [(1, 20, 30)]
        found = morphseek.Affine(shift).apply(source, source)
        assert found.GetPixelIDTypeAsString() == picture.GetPixelIDTypeAsString()
        assert found.GetSpacing()[:2] == picture.GetSpacing()
        voxels = sitk.GetArrayFromImage(found).reshape(colours.shape)
        np.testing.assert_allclose(voxels[inner], sitk.GetArrayFromImage(want)[inner], atol=1)
        images.write(tmp_path / "b.nrrd", found)
        assert np.array_equal(
            images.read_vectors(tmp_path / "b.nrrd").reshape(voxels.shape), voxels
        )
        for ending in ("nii.gz", "img"):
            says = f"b.{ending}: colours are written to .nrrd"
            refused(
                errors.OutputUnwritableError, says, images.write, tmp_path / f"b.{ending}", found
            )


@pytest.mark.parametrize("count", [3, 4])
def test_an_array_that_may_be_a_picture_in_colour_is_refused(count: int):
    array = np.random.default_rng(0).random((20, 30, count))
    invalid("fixed is an array of shape .*a picture in colour or a", images.read, array, "fixed")
    volume = images.Image(array)
    assert images.read(volume).grid.size == (count, 30, 20)
    assert images.read_on(array > 0.5, volume.grid, "mask").grid == volume.grid


def test_pictures_are_read_every_time(tmp_path: Path):
    """Pictures are read in a child process with memory limits, which must leave room for the
    engine's runtime.
    """
    sitk.WriteImage(sitk.Image(64, 48, sitk.sitkUInt8), str(tmp_path / "a.png"))
    for _ in range(6):
        assert images.read(tmp_path / "a.png", "fixed").array.shape == (1, 48, 64)


@pytest.mark.parametrize(
    ("fixed", "moving", "says"),
    [
        (np.zeros((8, 9)), None, "constant"),
        (None, np.random.default_rng(0).normal(size=(12, 12, 12)), "cut the one that shows"),
        (np.ones((1, 9)), None, "one axis alone"),
    ],
)
def test_refused(pair, fixed, moving, says):
    with pytest.raises(errors.MorphSeekError, match=says):
        morphseek.register(
            pair[0] if fixed is None else fixed, pair[1] if moving is None else moving
        )


def test_scores_are_those_of_the_plane():
    """Areas and outlines count, whatever the thickness; scipy measures the outlines."""

    def disc(count: int, mm: float, middle: float) -> images.Image:
        y, x = (np.mgrid[:count, :count] + 0.5) * mm
        array = ((x - middle) ** 2 + (y - 50) ** 2 < 400).astype(np.uint8)
        return images.Image(array, (mm, mm), (mm / 2, mm / 2))

    still = morphseek.Affine(np.eye(4))
    fixed, moved, fine = disc(100, 1.0, 50), disc(100, 1.0, 56), disc(200, 0.5, 50)
    (score,) = morphseek.scoring.score_labels(still, fixed, moved)
    outlines = [image.array[0] & ~binary_erosion(image.array[0]) == 1 for image in (fixed, moved)]
    directed = [
        np.percentile(distance_transform_edt(~other)[one], 95)
        for one, other in (outlines, outlines[::-1])
    ]
    assert score.hd95_before == pytest.approx(max(directed))
    (score,) = morphseek.scoring.score_labels(still, fixed, fine)
    assert abs(score.volume_error_percent) < 1 and score.dice_after > 0.98
