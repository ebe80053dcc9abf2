"""The latent policy: likelihood, advantages, structured noise, and the gradients of both
recipes.
"""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from morphseek.training import policy as p
from morphseek.training.backbones import build_backbone
from morphseek.training.losses import endpoint_error, hard_dice, soft_dice
from morphseek.training.pairs import Sample
from morphseek.training.policy import structured as structured_module
from morphseek.training.spatial import compose, njd_fraction, warp
from morphseek.training.step import StepObjective
from training_helpers import random_field


def latents(j=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    mu, log_sigma = torch.randn(2, 1, 4, 3, 2, 3, generator=g)
    log_sigma = 0.3 * log_sigma
    return torch.randn(j, 4, 3, 2, 3, generator=g), mu, log_sigma


def test_log_likelihood_is_torch_distributions():
    z, mu, log_sigma = latents()
    truth = torch.distributions.Normal(mu, 2.5 * log_sigma.exp()).log_prob(z).flatten(1).sum(1)
    torch.testing.assert_close(p.log_likelihood(z, mu, log_sigma, 2.5, 1.0), truth)
    s = p.ldvn_scale(mu.numel(), "sqrt")
    assert s == math.sqrt(72) and p.ldvn_scale(72, "one") == 1 and p.ldvn_scale(72, "n") == 72
    torch.testing.assert_close(p.log_likelihood(z, mu, log_sigma, 2.5, s), truth / math.sqrt(72))


def test_the_action_is_detached():
    # With z = mu + tau sigma eps left attached, d log pi / d mu is exactly zero and the policy
    # learns nothing.
    _, mu, log_sigma = latents()
    mu.requires_grad_()
    eps = torch.randn(3, *mu.shape[1:], generator=torch.Generator().manual_seed(1))
    z = mu + 2.0 * log_sigma.exp() * eps
    (gradient,) = torch.autograd.grad(p.log_likelihood(z, mu, log_sigma, 2.0, 1.0).sum(), mu)
    torch.testing.assert_close(gradient, (eps / (2.0 * log_sigma.exp())).sum(0, keepdim=True))


def test_subtracting_the_group_mean_of_log_pi_leaves_the_gradient():
    z, mu, log_sigma = latents(6)
    mu.requires_grad_()
    advantage = p.group_advantage(torch.randn(6, generator=torch.Generator().manual_seed(2)))
    log_pi = p.log_likelihood(z, mu, log_sigma, 1.0, 1.0)
    (a,) = torch.autograd.grad((advantage * log_pi).mean(), mu, retain_graph=True)
    (b,) = torch.autograd.grad((advantage * (log_pi - log_pi.mean())).mean(), mu)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "kind, spread",
    [("sqrt", math.sqrt(0.5)), ("one", math.sqrt(0.5 * 20000)), ("n", math.sqrt(0.5 / 20000))],
)
def test_ldvn_fixes_the_spread_of_log_pi(kind, spread):
    mu, log_sigma = torch.zeros(1, 20, 10, 10, 10), torch.full((1, 20, 10, 10, 10), -0.7)
    rng = np.random.default_rng(0)
    values = []
    for _ in range(300):
        z = mu + 3.0 * log_sigma.exp() * p.gaussian_noise((1, 20, 10, 10, 10), rng)
        scale = p.ldvn_scale(mu.numel(), kind)
        values.append(float(p.log_likelihood(z, mu, log_sigma, 3.0, scale)))
    assert np.std(values) == pytest.approx(spread, rel=0.15)


def test_group_advantage_is_standardised_and_survives_equal_rewards():
    r = torch.tensor([1.0, 2.0, 4.0, -3.0])
    truth = (r.numpy() - r.numpy().mean()) / r.numpy().std()
    np.testing.assert_allclose(p.group_advantage(r).numpy(), truth, rtol=1e-5)
    assert torch.equal(p.group_advantage(torch.full((4,), 0.25)), torch.zeros(4))


def maps(seed):
    coarse = np.random.default_rng(seed).integers(0, 3, (1, 1, 3, 3, 3))
    return torch.from_numpy(np.kron(coarse, np.ones((1, 1, 4, 4, 4)))).float()


def test_local_rewards_add_up_to_the_change_of_dice():
    fixed, reference = maps(0), maps(1)
    changed = reference.clone()
    changed[0, 0, 5, 5, 5] = (changed[0, 0, 5, 5, 5] + 1) % 3
    voxel = p.local_dice_reward(torch.cat((reference, changed)), fixed, reference, 2).double()
    predicted = float((voxel[1] - voxel[0]).sum())
    actual = float(hard_dice(changed, fixed, 2) - hard_dice(reference, fixed, 2))
    assert actual != 0 and predicted == pytest.approx(actual, rel=0.05)
    elsewhere = (voxel[1] - voxel[0])[0].abs() > 0
    assert elsewhere.sum() == 1 and elsewhere[5, 5, 5]


@pytest.mark.parametrize("masked", [False, True])
def test_local_truths_add_up_to_the_mean_distance(masked):
    rng = np.random.default_rng(5)
    u, truth = rng.normal(0, 3, (2, 1, 3, 6, 5, 4)).astype(np.float32)
    mask = (rng.random((1, 1, 6, 5, 4)) > 0.4).astype(np.float32)
    given = torch.from_numpy(mask) if masked else None
    found = p.local_truth_reward(torch.from_numpy(u), torch.from_numpy(truth), given)
    distance = np.sqrt(((u[0] - truth[0]) ** 2).sum(0) + 0.01)
    weights = mask[0, 0] if masked else np.ones_like(distance)
    assert found.shape == (1, 1, 6, 5, 4)
    assert float(found.sum()) == pytest.approx(np.average(distance, weights=weights), rel=1e-5)


def test_the_reward_counts_points_only_where_the_truth_is_known(tiny):
    config = tiny("policy", policy__w_truth=-3.0)
    rng = np.random.default_rng(6)
    images = [torch.from_numpy(rng.random((1, 1, 8, 8, 8), dtype=np.float32)) for _ in range(2)]
    soft, hard = torch.ones(1, 1, 8, 8, 8), torch.ones(1, 1, 8, 8, 8)
    plain = Sample(*images, soft, soft, soft, soft, hard, hard)
    truth = torch.zeros(1, 3, 8, 8, 8)
    truth[:, 2] = 2.0
    told = dataclasses.replace(plain, truth=truth, truth_mask=soft)
    objective = SimpleNamespace(policy=config.policy, spacing=(1.0, 1.0, 1.0))
    u = torch.zeros(1, 3, 8, 8, 8)
    reward, dice, njd = p.reward_of(objective, plain, u, 0.25)
    assert (reward, dice, njd) == (pytest.approx(7.5), 1.0, 0.0)
    there, _, _ = p.reward_of(objective, told, u, 0.25)
    assert there == pytest.approx(7.5 - 3.0 * math.sqrt(4.01))


def test_local_advantage_sums_windows_and_centres_each_cell():
    rng = np.random.default_rng(3)
    voxel = rng.random((3, 1, 12, 8, 8)).astype(np.float32)
    cells = voxel.reshape(3, 3, 4, 2, 4, 2, 4).sum((2, 4, 6))
    padded = np.pad(cells, ((0, 0), (1, 1), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3), axis=(1, 2, 3))
    pooled = windows.sum((-3, -2, -1))
    found = p.local_advantage(torch.from_numpy(voxel), 4)[:, 0].numpy()
    np.testing.assert_allclose(found, pooled - pooled.mean(0), atol=2e-3)


def test_smooth_noise_has_unit_variance_everywhere_and_neighbours_agree():
    noise = p.smoothed(p.gaussian_noise((4000, 1, 5, 4, 5), np.random.default_rng(0)), 0.8)[:, 0]
    sd = noise.std(0)
    assert float(sd.min()) > 0.93 and float(sd.max()) < 1.07
    correlation = float((noise[:, 2, 2, 2] * noise[:, 3, 2, 2]).mean())
    # Two Gaussians of sd 0.8, one cell apart, overlap by exp(-1 / (4 * 0.8^2)) = 0.68; sampling at
    # cells changes this little.
    assert correlation == pytest.approx(0.68, abs=0.08)


def test_channel_basis_is_the_top_of_the_svd():
    g = torch.randn(1, 6, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    g[:, 0] *= 5
    g[:, 3] *= 3
    u, _, _ = np.linalg.svd(g[0].reshape(6, -1).double().numpy())
    ours = p.channel_basis([g], 2).double().numpy()
    np.testing.assert_allclose(np.abs(u[:, :2].T @ ours), np.eye(2), atol=1e-5)


def test_oja_turns_to_the_dominant_channels():
    g = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(8, 2, generator=g))
    for _ in range(200):
        gradient = 0.05 * torch.randn(1, 8, 3, 3, 3, generator=g)
        gradient[:, 5] += torch.randn(3, 3, 3, generator=g)
        basis = p.oja_update(basis, gradient, 0.3)
    torch.testing.assert_close(basis.T @ basis, torch.eye(2), atol=1e-5, rtol=0)
    assert float(basis[5].norm()) > 0.98


SIZE = (16, 16, 24)
STILL = torch.zeros(1, 3, *SIZE)


def pair(seed=0):
    rng = np.random.default_rng(seed)
    from scipy.ndimage import gaussian_filter

    field = gaussian_filter(rng.standard_normal(SIZE), 3)
    fixed_map = torch.from_numpy(np.digitize(field, [0.03, 0.08]).astype(np.float32))[None, None]
    moving_map = warp(fixed_map, random_field(SIZE, 2.0, seed), mode="nearest")
    hot = [torch.cat([(m == k).float() for k in (1, 2)], 1) for m in (fixed_map, moving_map)]
    ones = torch.ones(1, 1, *SIZE)
    return Sample(fixed_map / 2, moving_map / 2, ones, ones, *hot, fixed_map, moving_map)


def reward(s, fields):
    """Return the paper's reward of fields: Dice and folds."""
    maps = s.moving_map.expand(len(fields), -1, -1, -1, -1)
    seen = warp(maps, fields, mode="nearest")
    return 10.0 * hard_dice(seen, s.fixed_map, 2) - 100.0 * njd_fraction(fields)


def objective(tiny, preset, **changes):
    config = tiny(preset, **changes)
    torch.manual_seed(0)
    backbone = build_backbone(config.model)
    with torch.no_grad():
        backbone.flow.weight.mul_(300)  # a fresh network moves nothing: this makes samples differ
    return StepObjective(backbone, config.loss, config.policy, "finetune", False)


def gradients(o, loss):
    o.zero_grad(set_to_none=True)
    loss.backward()
    return {k: v.grad.clone() for k, v in o.backbone.named_parameters() if v.grad is not None}


def assert_near(ours, truth, share):
    """Check gradients by name, each to a share of its largest number."""
    for k, v in truth.items():
        most = share * float(v.abs().max()) + 1e-7
        torch.testing.assert_close(ours[k], v, rtol=2e-3, atol=most)


@pytest.mark.parametrize("offsets, mirrored", [([], []), ([[0, 0, 0], [2, 1, 0]], [False, True])])
def test_paper_gradient_is_that_of_the_printed_loss(tiny, offsets, mirrored):
    """Compares accumulation by trajectory with one plain graph of the paper's formulas."""
    views = dict(model__offsets=offsets, model__mirrored=mirrored)
    o = objective(tiny, "paper", policy__trajectories=4, loss__window=3, **views)
    s, tau = pair(), 1.5
    u_prev = random_field(SIZE, 1.0, seed=9)
    result = p.policy_step(o, s, u_prev, tau, np.random.default_rng(5), step=1)
    ours = gradients(o, result.loss)

    e = o.backbone.state(s.fixed, warp(s.moving, u_prev), (2, 1, 0, 1) if offsets else None)
    eps = p.gaussian_noise((4, *e.mu.shape[1:]), np.random.default_rng(5))
    z = e.mu + tau * e.log_sigma.exp() * eps
    u = compose(o.backbone.step_field(z, e), u_prev)
    base = hard_dice(warp(s.moving_map, u_prev, mode="nearest"), s.fixed_map, 2)
    rewards = reward(s, u) - 10.0 * base
    assert rewards.std() > 0
    advantage = (rewards - rewards.mean()) / (rewards.std(unbiased=False) + 1e-8)
    normal = torch.distributions.Normal(e.mu, tau * e.log_sigma.exp())
    density = normal.log_prob(z.detach()).flatten(1).sum(1)
    policy_loss = -(advantage.detach() * density / math.sqrt(e.mu.numel())).mean()
    dice_loss = (1 - soft_dice(warp(s.moving_labels, u), s.fixed_labels)).mean()
    mean = compose(o.backbone.step_field(e.mu, e), u_prev)
    warm = o.warm_loss(o.field_losses(s, mean, with_dice=False), e)
    truth = gradients(o, policy_loss + 0.8 * warm + 0.2 * dice_loss)

    assert ours.keys() == truth.keys() and len(ours) > 20
    assert_near(ours, truth, 2e-3)
    best = int(rewards.argmax())
    torch.testing.assert_close(result.u, u[best : best + 1].detach(), atol=1e-4, rtol=0)
    assert not result.u.requires_grad


def test_sequential_and_batched_trajectories_agree(tiny):
    found = []
    for sequential in (True, False):
        o = objective(tiny, "paper", policy__trajectories=3, policy__sequential=sequential)
        r = p.policy_step(o, pair(1), STILL, 1.0, np.random.default_rng(2))
        found.append((gradients(o, r.loss), r.u))
    assert_near(found[1][0], found[0][0], 1e-3)
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-4, rtol=0)


def test_encoder_runs_once_for_all_trajectories(tiny):
    o = objective(tiny, "paper", policy__trajectories=5)
    calls = {"encoder": 0, "skip": 0, "decoder": 0}
    for module, key in (
        (o.backbone.enc2, "encoder"),
        (o.backbone.dec2.skip, "skip"),
        (o.backbone.dec2.up, "decoder"),
    ):
        module.register_forward_hook(lambda *a, key=key: calls.__setitem__(key, calls[key] + 1))
    p.policy_step(o, pair(), STILL, 1.0, np.random.default_rng(0))
    assert calls == {"encoder": 1, "skip": 1, "decoder": 6}  # five samples and the mean


def test_policy_weight_zero_removes_the_policy_term_only(tiny):
    a = objective(tiny, "paper", policy__trajectories=4)
    b = objective(tiny, "paper", policy__trajectories=4, policy__weight=0.0)
    ga, gb = (
        gradients(o, p.policy_step(o, pair(), STILL, 2.0, np.random.default_rng(1)).loss)
        for o in (a, b)
    )
    difference = {k: float((ga[k] - gb[k]).norm()) for k in ga}
    assert difference["mu_head.weight"] > 1e-3
    # The policy term reaches the encoder and the heads, never the decoder.
    assert all(
        v < 1e-6 for k, v in difference.items() if k.startswith(("dec", "block", "flow", "norm"))
    )


@pytest.mark.parametrize("head", ["probe", "learned"])
def test_structured_step_adds_half_the_norm_of_the_other_terms(tiny, head):
    o = objective(tiny, "policy", policy__head=head, policy__target_sd=2.0, loss__segmentation=0.0)
    o.memory.scale = 2.0
    s, u_prev = pair(2), STILL
    captured = []
    original = o.backbone.state

    def state(*a):
        e = original(*a)
        e.mu.retain_grad()
        captured.append(e.mu)
        return e

    o.backbone.state = state
    result = p.policy_step(o, s, u_prev, 0.0, np.random.default_rng(3))
    result.loss.backward()
    total = captured[0].grad
    assert o.memory.policy_norm > 0, "samples must differ in reward"
    # gradient_ratio = 0.5: in the first iteration the averages are the values themselves.
    exact = o.memory.other_norm
    assert 0.49 * exact < float(total.norm()) < 1.51 * exact
    assert result.logs["sample_dice_sd"] > 0
    assert -1 <= result.logs["policy_cosine"] <= 1


@pytest.mark.parametrize("preset", ["paper", "policy"])
def test_the_truth_is_learnt_beside_a_policy(tiny, preset):
    """The truth's part of the weights' gradient is that of the endpoint error at z = mu."""
    s, zero = pair(2), STILL
    s.truth, s.truth_mask = random_field(SIZE, 2.0, 5), torch.ones(1, 1, *SIZE)
    found = []
    # Both weights are above 0, because with a truth the similarity no longer counts.
    for weight in (0.3, 1.0):
        # gradient_ratio follows the norm of the other terms, truth among them.
        o = objective(
            tiny, preset, policy__trajectories=2, policy__gradient_ratio=0.0, loss__truth=weight
        )
        result = p.policy_step(o, s, zero, 1.0, np.random.default_rng(0))
        found.append((gradients(o, result.loss), result.logs))
    e = o.backbone.state(s.fixed, s.moving)
    error = 0.7 * endpoint_error(o.backbone.step_field(e.mu, e), s.truth, s.truth_mask)
    truth = gradients(o, error)
    for k in ("flow.weight", "mu_head.weight"):
        difference, most = found[1][0][k] - found[0][0][k], 2e-3 * float(truth[k].abs().max())
        torch.testing.assert_close(difference, truth[k], rtol=1e-2, atol=most)
    losses = [float(logs["loss"]) for _, logs in found]
    assert losses[1] - losses[0] == pytest.approx(float(error), rel=1e-3)


def test_the_noise_is_bounded(tiny):
    o, zero = objective(tiny, "policy", policy__target_sd=100.0), STILL
    for scale, after in ((5.0, 5.5), (99.0, 100.0), (4000.0, 100.0)):
        o.memory.scale = scale
        p.policy_step(o, pair(2), zero, 0.0, np.random.default_rng(3))
        assert o.memory.scale == pytest.approx(after)
    with torch.no_grad():
        o.backbone.flow.weight.zero_()  # makes all samples equal
    o.memory.scale = 0.3
    p.policy_step(o, pair(2), zero, 0.0, np.random.default_rng(3))
    assert o.memory.scale == 0.3


def test_mean_candidate_never_makes_the_state_worse(tiny):
    o = objective(tiny, "policy", loss__segmentation=0.0)
    o.memory.scale = 30.0  # with such noise mu must win
    s, u_prev = pair(3), STILL
    result = p.policy_step(o, s, u_prev, 0.0, np.random.default_rng(4))
    with torch.no_grad():
        e = o.backbone.state(s.fixed, s.moving)
        mean = o.backbone.step_field(e.mu, e)

    better, given = (reward(s, u) for u in (result.u, mean))
    assert better >= given - 1e-6


def test_the_hd95_reward_is_in_mm(start):
    trainer = start("policy", policy__reward="hd95", data__spacing=[5.0, 1.0, 1.0])
    fixed = torch.zeros(1, 1, 10, 10, 10)
    fixed[..., 3:7, 3:7, 3:7] = 1
    pair = SimpleNamespace(fixed_map=fixed, moving_map=torch.roll(fixed, 2, 2), fixed_labels=fixed)
    reward, _, _ = p.reward_of(trainer.objective, pair, torch.zeros(1, 3, 10, 10, 10), 0.0)
    assert reward == pytest.approx(-10.0)  # two voxels of 5 mm


def test_credit_is_pooled_where_the_network_saw_the_images(tiny, monkeypatch):
    """A step that sees a pair mirrored credits cells like a step on the mirrored pair."""
    s = pair(2)
    mirrored = Sample(**{k: v if v is None else v.flip(-1) for k, v in vars(s).items()})
    found, original = [], p.local_advantage
    monkeypatch.setattr(
        structured_module, "local_advantage", lambda *a: found.append(original(*a)) or found[-1]
    )
    for sample, views in ((s, {"model__mirrored": [True]}), (mirrored, {})):
        o = objective(tiny, "policy", loss__segmentation=0.0, **views)
        o.memory.scale = 2.0
        p.policy_step(o, sample, STILL, 0.0, np.random.default_rng(3))
    seen, truth = found
    torch.testing.assert_close(seen, truth)
    assert (truth - truth.flip(-1)).abs().max() > 0.1 * truth.abs().max() > 0


def structured(tiny, seed=3, **changes):
    """Run one step of the structured policy: return the objective, the result, mu's gradient, and
    the noise that the samples added to mu.
    """
    o = objective(tiny, "policy", loss__segmentation=0.0, **changes)
    o.memory.scale = 2.0
    mus, seen = [], []
    state, step_field = o.backbone.state, o.backbone.step_field

    def keep(*a):
        e = state(*a)
        e.mu.retain_grad()
        mus.append(e.mu)
        return e

    def watch(z, *a):
        seen.append(z.detach().clone())
        return step_field(z, *a)

    o.backbone.state, o.backbone.step_field = keep, watch
    result = p.policy_step(o, pair(2), STILL, 0.0, np.random.default_rng(seed))
    result.loss.backward()
    # mu itself is decoded first.
    return o, result, mus[0].grad, torch.cat(seen[1:]) - seen[0]


def test_samples_are_antithetic_unless_told_otherwise(tiny):
    both = structured(tiny, policy__trajectories=5)[3]
    torch.testing.assert_close(both[3:], -both[:2], atol=1e-5, rtol=1e-5)
    alone = structured(tiny, policy__trajectories=5, policy__antithetic=False)[3]
    # The same stream of noise, but more of it.
    torch.testing.assert_close(alone[:3], both[:3])
    cosine = torch.nn.functional.cosine_similarity(alone[3:].flatten(1), alone[:2].flatten(1))
    assert (cosine.abs() < 0.7).all()


def test_the_scalar_advantage_is_the_groups(tiny):
    """mu's gradient with the scalar advantage is the one computed by hand from the rewards."""
    changes = {"policy__balance": "fixed", "policy__weight": 3.0, "policy__advantage": "scalar"}
    _, result, gradient, noise = structured(tiny, **changes)
    exact = structured(tiny, **(changes | {"policy__weight": 0.0}))[2]
    o, s = objective(tiny, "policy", loss__segmentation=0.0), pair(2)
    with torch.no_grad():
        e = o.backbone.state(s.fixed, s.moving)
        fields = torch.cat([o.backbone.step_field(e.mu + n[None], e) for n in noise])
    rewards = reward(s, fields)
    assert rewards.std() > 0
    advantage = p.group_advantage(rewards).view(-1, 1, 1, 1, 1)
    truth = -3.0 * (advantage * noise / 2.0).mean(0, keepdim=True)
    torch.testing.assert_close(
        gradient - exact, truth, rtol=1e-3, atol=1e-3 * float(truth.abs().max())
    )
    assert result.logs["reward_sd"] == pytest.approx(float(rewards.std(unbiased=False)), rel=1e-3)
    # Local credit differs between cells and from the scalar one.
    local = structured(tiny, **(changes | {"policy__advantage": "local"}))[2] - exact
    assert torch.nn.functional.cosine_similarity(local.flatten(), truth.flatten(), dim=0) < 0.99


def test_a_gradient_ratio_of_zero_leaves_the_exact_terms(tiny):
    off, none = (
        structured(tiny, policy__gradient_ratio=0.0),
        structured(tiny, policy__balance="fixed", policy__weight=0.0),
    )
    assert torch.equal(off[2], none[2])
    assert float(off[2].norm()) == pytest.approx(off[0].memory.other_norm, rel=1e-4)
    on = structured(tiny)
    assert (on[2] - off[2]).norm() > 0.1 * off[2].norm()
    # The choice of the next state does not depend on the weight.
    assert torch.equal(on[1].u, off[1].u)


def test_the_switches_of_the_repaired_policy_are_on_by_default(tiny):
    a = structured(tiny)
    b = structured(tiny, policy__antithetic=True, policy__advantage="local", policy__balance="norm")
    assert torch.equal(a[2], b[2]) and torch.equal(a[1].u, b[1].u) and torch.equal(a[3], b[3])
    # A percentile has no local decomposition.
    a, b = (
        structured(tiny, policy__reward="hd95", policy__advantage=k) for k in ("local", "scalar")
    )
    assert torch.equal(a[2], b[2])
