"""Constraints on a deformation: axes, rigid regions, symmetry."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
from scipy import ndimage

import morphseek
from helpers import Command, blob, by_itk
from morphseek import errors, images
from morphseek._engine.table import for_engine

QUICK = {"model": "none", "initial": "none", "search": False, "refine": 20, "similarity": "ncc"}


def textured(shape: tuple[int, int, int], seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    image = sum(ndimage.gaussian_filter(noise, s) * s**1.5 for s in (1.5, 3, 6))
    return (100 * (image - image.min())).astype(np.float32)


def moved(image: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the image whose voxel x has the value of the other at x + u(x)."""
    at = np.indices(image.shape) + u
    return ndimage.map_coordinates(image, at, order=3, mode="nearest").astype(np.float32)


def bump(shape: tuple[int, int, int]) -> np.ndarray:
    at = [np.sin(np.pi * np.arange(n) / (n - 1)) for n in shape]
    return np.einsum("i,j,k->ijk", *at)


def test_axes_are_those_of_the_file(tmp_path: Path):
    # i is the first axis of nibabel's array and the last one of numpy's, whatever its direction.
    image = textured((36, 40, 32))
    u = np.zeros((3, *image.shape))
    u[1] = 3 * bump(image.shape)  # along nibabel's second axis: j
    affine = np.array([[0, 0, 2.0, 5], [-2, 0, 0, 7], [0, 2, 0, -9], [0, 0, 0, 1]])
    fixed, moving = nib.Nifti1Image(moved(image, u), affine), nib.Nifti1Image(image, affine)
    result = morphseek.register(fixed, moving, along="j", **QUICK)
    z, y, x = (np.abs(plane).max() for plane in result.displacement())
    assert z == 0 and x == 0 and y > 2
    found = result.displacement()[1].T[6:-6, 6:-6, 6:-6]
    assert np.abs(found - u[1][6:-6, 6:-6, 6:-6]).mean() < 0.25
    # The file is read by another reader, and gives the same.
    for name, one in (("f.nii.gz", fixed), ("m.nii.gz", moving)):
        nib.save(one, tmp_path / name)
    again = morphseek.register(tmp_path / "f.nii.gz", tmp_path / "m.nii.gz", along="j", **QUICK)
    np.testing.assert_array_equal(again.displacement(), result.displacement())
    assert any("axes: j" in reason for reason in result.metrics["plan"]["reasons"])


def body_pair() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a pair in which a block moved and the rest bends, the block's label and the truth."""
    image = textured((40, 44, 42))
    labels = np.zeros(image.shape, np.int16)
    labels[14:24, 16:28, 15:26] = 5
    w = np.clip(1 - ndimage.distance_transform_edt(labels == 0) / 9, 0, 1)
    w = w * w * (3 - 2 * w)
    shift = np.array([1.5, -1.0, 2.0])
    rest = 1.5 * bump(image.shape)
    u = np.stack([w * s + (1 - w) * rest * d for s, d in zip(shift, (1, 0.5, -0.7))])
    return moved(image, u), image, labels, u


def strain(u: np.ndarray, inside: np.ndarray) -> float:
    """Return the largest entry of the Green strain at the inner voxels of a region."""
    f = np.stack([np.stack(np.gradient(c), 0) for c in u.astype(np.float64)], 0)
    f = np.moveaxis(f, (0, 1), (-2, -1)) + np.eye(3)
    e = 0.5 * (np.swapaxes(f, -1, -2) @ f - np.eye(3))
    return float(np.abs(e[ndimage.binary_erosion(inside)]).max())


def test_a_rigid_region_keeps_its_shape(tmp_path: Path, command: Command):
    fixed, moving, labels, u = body_pair()
    for name, array in (("f", fixed), ("m", moving), ("l", labels)):
        sitk.WriteImage(sitk.GetImageFromArray(array), tmp_path / f"{name}.nii.gz")
    options = [f"--{k}={for_engine(v)}" for k, v in QUICK.items()]
    paths = [str(tmp_path / f"{name}.nii.gz") for name in "fml"]
    for out, more in (("free", []), ("rigid", ["--rigid-regions", paths[2]])):
        command("register", *paths[:2], "--out", tmp_path / out, *options, *more)
    free, held = (morphseek.Registration.read(tmp_path / name) for name in ("free", "rigid"))
    inside = labels == 5
    assert strain(free.displacement(), inside) > 0.01
    assert strain(held.displacement(), inside) < 5e-6
    off = held.displacement()[:, inside].mean(1) - u[:, inside].mean(1)
    assert np.abs(off).max() < 0.15
    rest = np.zeros(inside.shape, bool)
    rest[6:-6, 6:-6, 6:-6] = True
    rest &= ~inside

    def miss(r: morphseek.Registration) -> float:
        return float(np.linalg.norm((r.displacement() - u)[:, rest], axis=0).mean())

    assert miss(held) < miss(free) + 0.05
    assert held.metrics["njd_percent"] == 0
    assert "a region moves as one body" in held.metrics["plan"]["reasons"]
    again = morphseek.register(fixed, moving, rigid_regions=labels, **QUICK)
    np.testing.assert_allclose(again.displacement(), held.displacement(), atol=1e-5)


def test_a_symmetric_registration_and_the_space_half_way(tmp_path: Path, command: Command):
    image = textured((36, 40, 32))
    u = np.stack([d * bump(image.shape) for d in (3.0, -2.0, 2.0)])
    fixed, moving = images.Image(moved(image, u)), images.Image(image, origin=(40, 0, -8))
    to = np.eye(4)
    to[:3, 3] = 40, 0, -8
    options = {**QUICK, "symmetric": True}
    forth = morphseek.register(fixed, moving, initial_transform=to, **options)
    back = morphseek.register(moving, fixed, initial_transform=np.linalg.inv(to), **options)
    points = np.random.default_rng(2).uniform(6, 26, (500, 3))
    apart = np.linalg.norm(back.transform_points(forth.transform_points(points)) - points, axis=1)
    assert apart.mean() < 0.02 and np.percentile(apart, 95) < 0.05
    assert forth.metrics["symmetric"]["mean_mm"] > 10 * apart.mean()
    one, other = forth.halfway(), back.halfway()
    assert one.image.array.shape == fixed.array.shape
    np.testing.assert_allclose(one.image.origin, (20, 0, -4), atol=1e-6)
    np.testing.assert_allclose(
        one.to_fixed.transform_points(points + [20, 0, -4]),
        other.to_moving.transform_points(points + [20, 0, -4]),
        atol=0.05,
    )
    inner = np.s_[6:-6, 6:-6, 6:-6]
    for a, b, least in ((one.image, other.image, 0.999), (one.fixed, one.moving, 0.98)):
        assert np.corrcoef(a.array[inner].ravel(), b.array[inner].ravel())[0, 1] > least
    # The command writes it, and it is ITK's.
    for name, array in (("f", fixed), ("m", moving)):
        images.write(tmp_path / f"{name}.nii.gz", array)
    arguments = [str(tmp_path / "f.nii.gz"), str(tmp_path / "m.nii.gz"), "--initial=com"]
    arguments += ["--model=none", "--search=off", "--refine=5", "--symmetric", "--halfway"]
    out = tmp_path / "out"
    command("register", *arguments, "--out", out)
    listed = json.loads((out / "report.json").read_text())["files"]
    whole = morphseek.Registration.read(out)
    expected = whole.halfway(tmp_path / "f.nii.gz", tmp_path / "m.nii.gz")
    np.testing.assert_allclose(
        images.read(out / "halfway.nii.gz").array, expected.image.array, rtol=1e-3, atol=0.5
    )
    for name in ("halfway_to_fixed", "halfway_to_moving"):
        assert f"{name}.h5" in listed
        transform = sitk.ReadTransform(str(out / f"{name}.h5"))
        at = (points + expected.image.origin)[:20]
        want = getattr(expected, name[8:]).transform_points(at)
        np.testing.assert_allclose(by_itk(transform, at), want, atol=1e-3)


def beyond(transform: morphseek.Field, middle: images.Image, image: images.Image):
    """Return which voxels of a grid a transform takes out of an image, by more than a voxel."""
    places = transform.transform_points(middle.grid.points().reshape(-1, 3))
    at = image.grid.to_index(places)
    out = (at < -1) | (at > np.array(image.array.shape[::-1]))
    return out.any(axis=1).reshape(middle.array.shape)


def test_half_way_each_image_has_its_own_outside():
    """Air of a CT is no voxel of an MR; where neither image reaches, the mean of both stands."""
    body = blob((14, 15, 16), noise=0)
    ct = images.Image(1500 * body - 1000)
    mr = images.Image(5 + body, origin=(8.0, 0.0, 0.0))
    smaller = np.diag([0.4, 0.4, 0.4, 1])  # so the space half-way reaches beyond the fixed image
    smaller[:3, 3] = 7.0, 4.2, 3.9
    result = morphseek.register(ct, mr, initial_transform=smaller, **{**QUICK, "refine": 0})
    middle = result.halfway()
    no_ct, no_mr = (
        beyond(transform, middle.image, image)
        for transform, image in ((middle.to_fixed, ct), (middle.to_moving, mr))
    )
    low, lower = float(ct.array.min()), float(mr.array.min())
    for found, where, value in (
        (middle.fixed, no_ct, low),
        (middle.moving, no_mr, lower),
        (middle.image, no_ct & no_mr, (low + lower) / 2),
    ):
        assert where.sum() > 100
        np.testing.assert_allclose(found.array[where], value, rtol=1e-6)
    assert middle.moving.array.min() >= lower and middle.moving.array.max() <= mr.array.max()
    # arrays lie where the images do
    again = result.halfway(ct.array, mr.array)
    np.testing.assert_array_equal(again.moving.array, middle.moving.array)


@pytest.mark.parametrize(
    "more", [{"along": "j"}, {"rigid_regions": np.ones((20, 20, 20), np.uint8)}]
)
def test_what_holds_one_way_alone_is_not_symmetric(more: dict):
    image = textured((20, 20, 20))
    with pytest.raises(errors.InvalidArgumentError, match="leave symmetric off"):
        morphseek.register(image, image + 1, symmetric=True, **more, **QUICK)
