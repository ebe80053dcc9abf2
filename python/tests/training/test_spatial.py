"""Fields compared with SciPy, NumPy and closed forms."""

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from scipy.ndimage import map_coordinates, shift

from morphseek.training import spatial
from training_helpers import random_field

SIZE = (14, 17, 12)


def grid():
    return np.stack(np.meshgrid(*(np.arange(n, dtype=np.float64) for n in SIZE), indexing="ij"))


@pytest.mark.parametrize("mode, order", [("bilinear", 1), ("nearest", 0)])
@pytest.mark.parametrize("padding, scipy_mode", [("border", "nearest"), ("zeros", "grid-constant")])
def test_warp_is_map_coordinates_in_array_axis_order(mode, order, padding, scipy_mode):
    image = np.random.default_rng(0).random(SIZE).astype(np.float32)
    u = random_field(SIZE, 3.0, seed=1)
    ours = spatial.warp(torch.from_numpy(image)[None, None], u, mode, padding)[0, 0].numpy()
    truth = map_coordinates(image, grid() + u[0].double().numpy(), order=order, mode=scipy_mode)
    # For nearest, ties and float32 coordinates may round differently at isolated voxels.
    wrong = np.abs(ours - truth) > 1e-4
    assert wrong.mean() <= (0.002 if order == 0 else 0.0)


@pytest.mark.parametrize("offset", [(0, 0, 0), (1, -2, 3), torch.tensor([-1, 0, 2])])
def test_translate_moves_by_whole_voxels(offset):
    x = torch.rand(2, 3, *SIZE, generator=torch.Generator().manual_seed(1))
    truth = shift(x.numpy(), (0, 0, *(int(n) for n in offset)), order=0, mode="nearest")
    assert np.array_equal(spatial.translate(x, offset).numpy(), truth)


@pytest.mark.parametrize(
    "view", [(0, 0, 0, 1), (1, -2, 3, 1), torch.tensor([1, 2, -1, 1]), (2, 1, -1, 0)]
)
def test_a_field_in_a_view_warps_as_it_does_outside(view):
    """A field is found in the view and brought back. Away from the border, warping in the view
    equals the view of the image warped outside.
    """
    size = (20, 22, 24)
    image, field = (
        torch.rand(1, 1, *size, generator=torch.Generator().manual_seed(4)),
        random_field(size, 2.0, seed=5),
    )
    inside = spatial.warp(spatial.to_view(image, view), field)
    outside = spatial.to_view(spatial.warp(image, spatial.from_view(field, view)), view)
    torch.testing.assert_close(
        inside[..., 6:-6, 6:-6, 6:-6], outside[..., 6:-6, 6:-6, 6:-6], atol=1e-5, rtol=1e-5
    )
    assert (inside - spatial.warp(image, field)).abs().max() > 0.1


def test_compose_first_phi_then_u():
    phi, u = random_field(SIZE, 2.0, seed=2), random_field(SIZE, 2.5, seed=3)
    at = grid() + phi[0].double().numpy()
    truth = phi[0].numpy() + np.stack(
        [map_coordinates(c, at, order=1, mode="nearest") for c in u[0].numpy()]
    )
    np.testing.assert_allclose(spatial.compose(phi, u)[0].numpy(), truth, atol=2e-5)
    # The other order differs by far more than the tolerance.
    assert np.abs(spatial.compose(u, phi)[0].numpy() - truth).max() > 0.1


def test_warping_twice_is_warping_by_the_composition():
    # On a linear image interpolation is exact, so only the order of composition can make a
    # difference.
    z, y, x = grid()
    image = torch.from_numpy(z + 2 * y + 3 * x).float()[None, None]
    u, phi = random_field(SIZE, 1.5, seed=4), random_field(SIZE, 1.5, seed=5)
    inner = (..., *[slice(4, -4)] * 3)
    twice = spatial.warp(spatial.warp(image, u, padding="border"), phi, padding="border")
    once = spatial.warp(image, spatial.compose(phi, u), padding="border")
    assert (twice - once)[inner].abs().max() < 1e-3
    other = spatial.warp(image, spatial.compose(u, phi), padding="border")
    assert (twice - other)[inner].abs().max() > 0.05


def test_integration_of_a_linear_velocity_is_the_matrix_exponential():
    # v(x) = A (x - c): the flow is expm(A), exact for linear interpolation away from the border.
    a = np.array([[0.0, -0.15, 0.05], [0.15, 0.02, 0.0], [-0.05, 0.0, -0.1]])
    centre = (np.array(SIZE) - 1) / 2
    rel = grid() - centre[:, None, None, None]
    v = np.einsum("ij,jdhw->idhw", a, rel)
    u = spatial.integrate_velocity(torch.from_numpy(v).float()[None], 7)[0].numpy()
    truth = np.einsum("ij,jdhw->idhw", expm(a) - np.eye(3), rel)
    inner = (slice(None), *[slice(3, -3)] * 3)
    np.testing.assert_allclose(u[inner], truth[inner], atol=0.01)


def test_velocity_and_its_negative_are_inverse():
    v = random_field((20, 20, 20), 3.0, seed=6)
    forth, back = spatial.integrate_velocity(v), spatial.integrate_velocity(-v)
    residual = spatial.compose(forth, back)[(..., *[slice(4, -4)] * 3)]
    assert residual.abs().max() < 0.08 < 0.5 < forth.abs().max()


def test_upsampled_field_is_in_fine_voxels_at_half_pixel_centres():
    coarse = np.stack(
        np.meshgrid(*(np.arange(n, dtype=np.float32) for n in (6, 7, 5)), indexing="ij")
    )
    fine = spatial.upsample_field(torch.from_numpy(coarse)[None])[0].numpy()
    # Fine voxel j lies at coarse coordinate (j - 0.5) / 2, clamped at the border; its value is in
    # fine voxels.
    want = 2 * np.clip((np.arange(12) - 0.5) / 2, 0, 5)
    np.testing.assert_allclose(fine[0, :, 3, 3], want, atol=1e-5)


def test_jacobian_against_numpy_gradient():
    u = random_field(SIZE, 4.0, seed=7, smooth=2)
    jac = np.stack([np.stack(np.gradient(c.astype(np.float64))) for c in u[0].numpy()])
    truth = np.linalg.det(np.moveaxis(jac, (0, 1), (-2, -1)) + np.eye(3))
    np.testing.assert_allclose(spatial.jacobian_determinant(u)[0].numpy(), truth, atol=1e-4)
    folded = float((truth < 0).mean())
    assert folded > 0.001, "the test field must fold"
    assert float(spatial.njd_fraction(u)) == pytest.approx(folded, abs=1e-3)


def test_njd_counts_a_known_fold():
    u = torch.zeros(1, 3, 8, 8, 8)
    # plane 4 jumps behind plane 2: the central differences at planes 3 and 5 are -1.5 and +1.5
    u[:, 0, 4] = -3.0
    assert float(spatial.njd_fraction(u)) == pytest.approx(1 / 8)
    mask = torch.zeros(1, 1, 8, 8, 8)
    mask[:, :, 3] = 1
    assert float(spatial.njd_fraction(u, mask)) == 1.0
