"""Losses compared with MONAI, torch.distributions and direct formulas in NumPy."""

import itertools

import numpy as np
import pytest
import torch
from monai.losses import DiceLoss
from monai.metrics import DiceMetric, HausdorffDistanceMetric

from morphseek.training import losses
from morphseek.training.policy import hd95
from morphseek.training.spatial import jacobian_determinant
from training_helpers import random_field

SIZE = (12, 13, 11)


def images(seed=0):
    rng = np.random.default_rng(seed)
    return (torch.from_numpy(rng.random((1, 1, *SIZE)).astype(np.float32)) for _ in range(2))


def near(found, truth, rel=1e-5):
    assert float(found) == pytest.approx(float(truth), rel=rel)


def windows(array, radius):
    """Return the cubic window around each voxel, clipped at the border: one array per voxel."""
    for p in np.ndindex(array.shape):
        yield p, array[tuple(slice(max(i - radius, 0), i + radius + 1) for i in p)]


def test_local_mse_is_the_mean_of_window_means():
    f, w = images()
    squared = ((f - w) ** 2)[0, 0].double().numpy()
    truth = np.mean([v.mean() for _, v in windows(squared, 4)])
    near(losses.local_mse(f, w, window=9), truth)
    near(losses.local_mse(f, w, window=1), squared.mean())


def test_local_mse_ignores_what_is_masked():
    f, w = images()
    mask = torch.zeros(1, 1, *SIZE)
    mask[..., :6] = 1
    changed = w.clone()
    changed[..., 6:] += 100
    for window in (1, 9):
        near(losses.local_mse(f, changed, mask, window), losses.local_mse(f, w, mask, window))
    near(losses.local_mse(f, w, mask, 1), ((f - w) ** 2)[..., :6].mean())


def test_local_ncc_is_pearson_in_each_window():
    f, w = images(1)
    a, b = f[0, 0].double().numpy(), w[0, 0].double().numpy()
    values = [
        np.corrcoef(x.ravel(), y.ravel())[0, 1]
        for (_, x), (_, y) in zip(windows(a, 2), windows(b, 2), strict=True)
    ]
    assert float(losses.local_ncc(f, w, window=5)) == pytest.approx(-np.mean(values), abs=1e-5)


def test_local_ncc_is_blind_to_contrast_and_finite_on_constants():
    f, _ = images(2)
    assert float(losses.local_ncc(f, 3 * f + 1)) == pytest.approx(-1, abs=2e-3)
    flat = torch.ones_like(f, requires_grad=True)
    loss = losses.local_ncc(f, flat)
    loss.backward()
    assert abs(float(loss.detach())) < 0.05 and torch.isfinite(flat.grad).all()


def half_seen(image):
    """Return a mask of a part of the grid, and the image with 0 outside it."""
    mask = torch.zeros(1, 1, *SIZE)
    mask[..., 1:, :7] = 1
    return mask, image * mask


def test_masked_ncc_is_pearson_of_what_each_window_sees():
    f, w = images(1)
    mask, w = half_seen(w)
    a, b, seen = (x[0, 0].double().numpy() for x in (f, w, mask))
    both = zip(windows(a, 2), windows(b, 2), windows(seen, 2), strict=True)
    values = [np.corrcoef(x[s > 0], y[s > 0])[0, 1] for (p, x), (_, y), (_, s) in both if seen[p]]
    assert float(losses.local_ncc(f, w, mask, 5)) == pytest.approx(-np.mean(values), abs=1e-5)
    # The edge of the field of view disturbs no window.
    assert float(losses.local_ncc(f, f * mask, mask)) == pytest.approx(-1, abs=1e-4)
    everywhere = torch.ones_like(mask)
    assert losses.local_ncc(f, w, everywhere) == losses.local_ncc(f, w)


def test_masked_mind_reads_nothing_outside():
    f, w = images(1)
    mask, cut = half_seen(f)
    assert float(losses.mind_loss(f, cut, mask)) < 1e-9
    # Voxels at least 3 from the mask's edge in every direction; the grid's border does not count.
    inner = mask[0, 0].numpy().copy()
    inner[:, :4], inner[..., 4:] = 0, 0
    difference = (losses.mind_descriptor(f) - losses.mind_descriptor(w)).square().mean(1)[0].numpy()
    near(losses.mind_loss(f, w * mask, mask), difference[inner > 0].mean(), 1e-4)
    near(losses.mind_loss(f, w, torch.ones_like(mask)), losses.mind_loss(f, w), 1e-6)


def test_mind_sees_structure_not_contrast():
    f, _ = images(3)
    f = torch.nn.functional.avg_pool3d(f, 3, 1, 1)
    same = float(losses.mind_loss(f, 1 - f))
    moved = float(losses.mind_loss(f, torch.roll(f, 2, 3)))
    assert losses.mind_descriptor(f).shape == (1, 12, *SIZE)
    assert same < 1e-9 < moved and moved > 0.01


def test_mind_distances_by_hand():
    # At a voxel far from the border, the descriptor before normalisation is the patch distance of
    # two neighbours.
    f, _ = images(4)
    a = f[0, 0].double().numpy()
    p = np.array([6, 6, 5])
    offsets = np.array([[-1, 0, 0], [0, 0, -1], [0, -1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]) * 2
    patches = [a[tuple(slice(c - 1, c + 2) for c in p + o)] for o in offsets]
    distances = [
        np.mean((patches[i] - patches[j]) ** 2)
        for i, j in itertools.combinations(range(6), 2)
        if np.sum((offsets[i] - offsets[j]) ** 2) == 8
    ]
    d = np.array(distances) - min(distances)
    truth = np.exp(-d / d.mean())
    ours = losses.mind_descriptor(f)[0, :, 6, 6, 5].numpy()
    np.testing.assert_allclose(np.sort(ours), np.sort(truth), rtol=1e-3, atol=1e-6)


def test_diffusion_against_numpy():
    u = random_field(SIZE, 2.0)
    a = u[0].double().numpy()[:, :, :, :]
    base = a[:, :-1, :-1, :-1]
    steps = (a[:, 1:, :-1, :-1], a[:, :-1, 1:, :-1], a[:, :-1, :-1, 1:])
    near(losses.diffusion(u), sum(np.sum((d - base) ** 2, axis=0).mean() for d in steps))


def test_fold_hinge_pushes_only_where_it_folds():
    calm = random_field(SIZE, 0.2)
    assert float(losses.fold_hinge(calm, 0.1)) == 0.0
    wild = random_field(SIZE, 6.0, smooth=2).requires_grad_()
    losses.fold_hinge(wild, 0.1).backward()
    better = (wild - 20.0 * wild.grad).detach()
    assert 0 < float(losses.fold_hinge(better, 0.1)) < float(losses.fold_hinge(wild.detach(), 0.1))


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.0, 2.0])
def test_squared_log_jacobian_of_a_scaling(factor):
    z, y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in SIZE), indexing="ij")
    u = (factor - 1.0) * torch.stack((z, y, x))[None]
    truth = (3.0 * np.log(factor)) ** 2
    # 0.5 cubed is above the floor of 0.05.
    assert float(losses.squared_log_jacobian(u)) == pytest.approx(truth, abs=1e-4)


def test_kl_is_torch_distributions():
    g = torch.Generator().manual_seed(0)
    mu, log_sigma = torch.randn(1, 4, 3, 3, 3, generator=g), torch.randn(1, 4, 3, 3, 3, generator=g)
    normals = (torch.distributions.Normal(*of) for of in ((mu, log_sigma.exp()), (0.0, 1.0)))
    truth = torch.distributions.kl_divergence(*normals).mean()
    near(losses.kl_to_standard_normal(mu, log_sigma), truth)


def label_maps(seed=0):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 4, (2, 1, 3, 3, 3))
    maps = np.kron(coarse, np.ones((1, 1, 4, 4, 4)))
    return torch.from_numpy(maps).float()


def hot(*maps):
    return [torch.nn.functional.one_hot(m.long(), 4).permute(0, 4, 1, 2, 3) for m in maps]


def test_soft_dice_is_monai():
    rng = np.random.default_rng(1)
    p = torch.from_numpy(rng.random((1, 3, *SIZE)).astype(np.float32))
    y = torch.from_numpy((rng.random((1, 3, *SIZE)) > 0.6).astype(np.float32))
    truth = 1 - DiceLoss(squared_pred=True, smooth_nr=1e-5, smooth_dr=1e-5)(p, y)
    near(losses.soft_dice(p, y), truth)


def test_soft_dice_leaves_out_absent_labels():
    p = torch.zeros(1, 2, *SIZE)
    y = torch.zeros(1, 2, *SIZE)
    p[:, 0, :5], y[:, 0, :10] = 1, 1
    assert float(losses.soft_dice(p, y)) == pytest.approx(2 * 5 / (5 + 10), rel=1e-4)


def test_hard_dice_is_monai():
    w, f = label_maps(2)
    metric = DiceMetric(include_background=False, num_classes=4)
    near(losses.hard_dice(w[None], f[None], 3), metric(*hot(w, f)).mean())


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (2.0, 1.0, 0.5)])
def test_hd95_is_monai(spacing):
    w, f = label_maps(3)
    metric = HausdorffDistanceMetric(include_background=False, percentile=95)
    truth = float(metric(*hot(w, f), spacing=spacing).mean())
    assert truth > 0.5
    assert hd95(w[None], f[None], 3, spacing) == pytest.approx(truth, rel=1e-5)


def test_sharpening_keeps_its_fixed_points_and_the_loss_sees_the_boundary():
    p = torch.linspace(0, 1, 11)
    assert torch.equal(losses.sharpen(p, 0.0), p)
    q = losses.sharpen(p, 8.0)
    torch.testing.assert_close(q[[0, 5, 10]], p[[0, 5, 10]])
    # A rescaled logistic, computed from its definition.
    logistic = 1 / (1 + np.exp(-8.0 * (p.double().numpy() - 0.5)))
    truth = (logistic - logistic[0]) / (logistic[-1] - logistic[0])
    np.testing.assert_allclose(q.numpy(), truth, atol=1e-6)


def test_dice_in_the_moving_space_is_that_of_the_intervals_there():
    n = 256
    x = np.arange(n)
    # the map stretches at both ends and squeezes in the middle
    leads_to = x + 20 * np.sin(2 * np.pi * x / n)
    u = torch.zeros(1, 3, 3, 3, n)
    u[0, 2] = torch.from_numpy(leads_to - x).float()
    fixed, moving = (60, 140), (75, 120)  # an interval in each image
    mapped = np.interp(fixed, x, leads_to)
    overlap = min(mapped[1], moving[1]) - max(mapped[0], moving[0])
    truth = 2 * overlap / (mapped[1] - mapped[0] + moving[1] - moving[0])
    f = torch.from_numpy((x >= fixed[0]) & (x < fixed[1])).float().expand(1, 1, 3, 3, n)
    w = (
        torch.from_numpy((leads_to >= moving[0]) & (leads_to < moving[1]))
        .float()
        .expand(1, 1, 3, 3, n)
    )
    covered = jacobian_determinant(u).unsqueeze(1)
    assert float(losses.hard_dice(w, f, 1, covered)) == pytest.approx(truth, abs=0.01)
    assert float(losses.soft_dice(w, f, weight=covered)) == pytest.approx(truth, abs=0.01)
    assert abs(float(losses.hard_dice(w, f, 1)) - truth) > 0.03  # on the fixed grid it is another
