"""Made-up pairs: the truth holds in both directions, contrasts are independent, and everything
depends only on the seed.
"""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from morphseek.training.backbones import build_backbone
from morphseek.training.backbones.siamese import local_correlation
from morphseek.training.config import ConfigError, Synthetic, load
from morphseek.training.export import StepGraph, export_bundle
from morphseek.training.losses import endpoint_error
from morphseek.training.run import Trainer
from morphseek.training.spatial import identity_grid, jacobian_determinant, warp
from morphseek.training.synthetic import BODIES, LEAST_LABELS, SyntheticSource, gaussian_process
from training_helpers import as_trained, feed_of

SIZE = (40, 32, 48)
LABELS = 6


def source(body="head", size=SIZE, labels=LABELS, seed=0, stream=0, **settings):
    return SyntheticSource(Synthetic(bodies=[body], **settings), size, labels, seed, stream)


@pytest.fixture(scope="module", params=sorted(BODIES))
def pairs(request):
    """Return two pairs of every kind of body."""
    return [source(request.param).pair(i) for i in (0, 1)]


def tensors(sample):
    return dataclasses.asdict(sample)


def test_the_number_says_it_all():
    a, b = (tensors(source(crop=1.0).sample(3)) for _ in range(2))
    assert all(torch.equal(a[k], b[k]) for k in a)
    for number, other in ((4, {}), (3, {"seed": 1}), (3, {"stream": 1})):
        other = source(crop=1.0, **other).sample(number)
        assert not torch.equal(other.fixed, a["fixed"])
        assert not torch.equal(other.moving, a["moving"])


def test_pairs_made_ahead_are_the_same_pairs():
    s = source("limb", (24, 24, 24))
    items = [(5, 0), (6, 9), (2, 9)]
    for (index, iteration), ahead in zip(items, s.stream_samples(items, 2), strict=True):
        here = tensors(s.sample(index, iteration))
        assert all(torch.equal(here[k], v) for k, v in tensors(ahead).items())


def test_a_sample_is_what_the_trainer_takes(pairs):
    for pair in pairs:
        s = pair.sample
        for image, fov in ((s.fixed, s.fixed_fov), (s.moving, s.moving_fov)):
            assert image.shape == fov.shape == (1, 1, *SIZE)
            assert image.min() >= 0 and image.max() <= 1 and image.std() > 0.02
            assert set(fov.unique().tolist()) <= {0.0, 1.0} and not image[fov == 0].any()
        for hot, named, fov in (
            (s.fixed_labels, s.fixed_map, s.fixed_fov),
            (s.moving_labels, s.moving_map, s.moving_fov),
        ):
            assert hot.shape == (1, LABELS, *SIZE)
            assert torch.equal(
                torch.stack([(named[:, 0] == k).float() for k in range(1, LABELS + 1)], dim=1), hot
            )
            assert not named[fov == 0].any()
            # Every label in use is visible in both images.
            assert LEAST_LABELS <= len(pair.labels) <= LABELS
            assert (hot.sum((0, 2, 3, 4))[: len(pair.labels)] > 20).all()
            assert not hot[:, len(pair.labels) :].any()
        assert s.truth.shape == (1, 3, *SIZE) and s.truth_mask.mean() > 0.03


def test_the_truth_takes_one_subject_to_the_other(pairs):
    grid = identity_grid(SIZE, torch.device("cpu"))
    for pair in pairs:
        # The maps alone: corresponding points lead to the same point of the anatomy, and the
        # inverse leads back.
        there = pair.to_moving(grid)
        inside = ((there > 0) & (there < torch.tensor(SIZE).view(1, 3, 1, 1, 1) - 1)).all(1)
        off = (pair.moving.to_anatomy(there) - pair.fixed.to_anatomy(grid)).norm(dim=1)[inside]
        assert off.mean() < 0.05 and off.max() < 0.5
        back = (pair.to_fixed(there) - grid).norm(dim=1)[inside]
        assert back.mean() < 0.1 and back.max() < 1.0
        assert torch.equal(pair.sample.truth, there - grid)
        assert (jacobian_determinant(pair.sample.truth) > 0).all()
        # The truth does move points.
        assert pair.sample.truth.norm(dim=1)[pair.sample.truth_mask[:, 0] > 0].mean() > 1.0


def test_labels_agree_under_the_truth():
    # Boundary voxels fall to either side by chance: hence a fine grid and, for Dice, only
    # structures that are not all boundary.
    solid, before = {}, []
    for body in sorted(BODIES):
        pair = source(body, (72, 72, 72), labels=40, crop=0.3).pair(1)
        s = pair.sample
        inside = s.fixed_fov * (warp(s.moving_fov, s.truth) > 0.999)
        read = (warp(s.moving_labels, s.truth) > 0.5).float() * inside
        seen = s.fixed_labels * inside
        core = 1 - F.max_pool3d(1 - seen, 3, stride=1, padding=1)
        for k, name in enumerate(pair.labels):
            a, b, inner = (v[:, k : k + 1] for v in (read, seen, core))
            if inner.sum() > 0.5 * b.sum():
                c = s.moving_labels[:, k : k + 1]
                dice = [float(2 * (x * b).sum() / (x.sum() + b.sum())) for x in (a, c)]
                solid[body, name] = dice[0]
                before.append(dice[1])
            # Also of thin structures hardly anything lies more than a voxel from the other.
            for x, y in ((a, b), (b, a)):
                near = F.max_pool3d(y, 3, stride=1, padding=1)
                assert (x * near).sum() >= 0.97 * x.sum(), (body, name)
    assert len(solid) >= 4
    assert np.mean(list(solid.values())) > 0.97 and min(solid.values()) > 0.95, solid
    assert np.mean(before) < 0.8


def contrast_correlation(same):
    """Return the correlation over tissues of the mean intensities in two images, for some pairs."""
    plain, rows = dict(crop=0, bias=0, noise=0, texture=0, slices=1, same_contrast=same), []
    for i in range(8):
        s = source("medley", (32, 32, 32), **plain).pair(i)
        sides = (s.sample.fixed, s.fixed_structures), (s.sample.moving, s.moving_structures)
        seen = [
            [image[0, 0][where == k] for image, where in sides]
            for k in range(len(s.anatomy.structures))
        ]
        means = [[float(v.mean()) for v in both] for both in seen if min(map(len, both)) > 60]
        rows.append(np.corrcoef(np.transpose(means))[0, 1])
    return np.array(rows)


def test_contrasts_are_independent_unless_the_same():
    assert contrast_correlation(1.0).mean() > 0.9
    independent = contrast_correlation(0.0)
    assert abs(independent.mean()) < 0.4 and (independent < 0).any()


def test_smooth_noise_is_standard_and_smooth():
    rngs = map(np.random.default_rng, range(12))
    noise = torch.cat([gaussian_process(rng, 2, (40, 36, 44), 6.0) for rng in rngs])
    assert abs(float(noise.mean())) < 0.1 and abs(float(noise.std()) - 1) < 0.1
    # Similar at the next node and unrelated two scales away, at the border as in the middle.
    assert float((noise[..., 1:] * noise[..., :-1]).mean()) > 0.95
    assert abs(float((noise[..., 12:] * noise[..., :-12]).mean())) < 0.3
    assert abs(float(noise[..., 0].square().mean()) - 1) < 0.25


def test_a_curriculum_makes_pairs_harder():
    phases = [{"iteration": 10, "deformation": 2.5, "residual": 1.0}]
    s = source("torso", (32, 32, 32), deformation=0.5, residual=0.2, phases=phases)
    early, late = (
        np.mean([float(s.sample(i, iteration).truth.norm(dim=1).mean()) for i in range(4)])
        for iteration in (9, 10)
    )
    assert late > 2 * early
    # Without an iteration the settings at the end of the run hold.
    assert torch.equal(s.sample(2).truth, s.sample(2, 10).truth)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[synthetic]\ndeformations = 3\n", "did you mean 'deformation'"),
        ("[synthetic]\nworkers = 1.5\n", "'synthetic.workers' must be int"),
        ("[[synthetic.phases]]\niteration = 5\ncropp = 1\n", "synthetic.phases.cropp"),
        ("[[synthetic.phases]]\ncrop = 0.1\n", "needs 'iteration'"),
        ("[synthetic]\nbodies = ['tail']\n", "'tail'; there are head, torso, limb, medley"),
        ("[synthetic]\nbodies = []\n", "synthetic.bodies"),
        ("[data]\nlabels = 0\n", "'data.labels'|labels"),
        ("[data]\nmin_size = [8, 8, 8]\n", "min_size"),
        ("[run]\npretrain = 3\n", "run.pretrain"),
        ("[optim]\naccumulate = 0\n", "optim.accumulate"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    path = tmp_path / "run.toml"
    path.write_text("base = 'synthetic'\n" + text)
    with pytest.raises((ConfigError, ValueError), match=message):
        Trainer(load(path), tmp_path / "out", progress=False)


def tiny(**changes):
    options = dict(widths=[4, 4, 8], reader=[8, 4], latent_channels=8, decoder=[8, 8], mind=True)
    values = dict(model__options=options | {"correlation": [1, 1, 1]}, data__labels=4)
    values |= dict(data__min_size=[20, 24, 24], synthetic__workers=0, synthetic__val_pairs=2)
    values |= dict(run__device="cpu", run__amp="none", run__threads=1, run__iterations=2)
    values |= dict(run__val_every=1, run__picture_every=1, run__steps_schedule=[[1, 2]])
    values |= dict(optim__accumulate=2) | changes
    return load("synthetic").replace(**{k.replace("__", "."): v for k, v in values.items()})


def test_training_needs_no_data(tmp_path):
    last = Trainer(tiny(), tmp_path / "a", progress=False).run()
    assert {"val_dice", "val_dice_t0", "val_epe", "val_njd_percent"} <= last.keys()
    rows = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    # Two iterations of two pairs, the first with one step, the second with two.
    assert [r["updates"] for r in rows] == [1, 3] and all(r["truth"] > 0 for r in rows)
    # Weights are the same with pairs made in advance, and after a stop and a resume.
    part = Trainer(tiny(synthetic__workers=1), tmp_path / "b", progress=False)
    part.run_iteration()
    part._save()
    Trainer(tiny(synthetic__workers=1), tmp_path / "b", progress=False).run()
    a, b = (torch.load(tmp_path / name / "last.pt", weights_only=True)["model"] for name in "ab")
    assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.thorough
def test_the_network_exports(tmp_path):
    import onnxruntime

    config = tiny()
    config.model.options["correlation"] = [0, 1, 0]  # keeps the graph small
    torch.manual_seed(0)
    backbone = build_backbone(config.model).eval()
    with torch.no_grad():
        backbone.flow.weight.normal_(std=0.1)
    as_trained(backbone)
    manifest = export_bundle(backbone, config, tmp_path / "tiny.onnx")
    assert manifest["credit"] == "trained on synthetic volumes only"
    assert manifest["modality"] == "any"
    cpu = ["CPUExecutionProvider"]
    run = onnxruntime.InferenceSession(str(tmp_path / "tiny.onnx"), providers=cpu)
    for size in ((24, 24, 24), (16, 32, 40)):
        s = source("medley", size).sample(0)
        still, zero = torch.zeros(1, 3, *size), torch.zeros(1, *backbone.latent_shape(size))
        with torch.no_grad():
            graph = StepGraph(backbone)
            expected = graph(s.fixed, s.moving, still, zero, torch.zeros(1))[0].numpy()
        found = run.run(["u"], feed_of(s.fixed, s.moving, still, zero))[0]
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_local_correlation_points_at_the_shift():
    f = torch.randn(1, 16, 8, 8, 8, generator=torch.Generator().manual_seed(0))
    moved = torch.roll(f, (1, -2, 0), dims=(2, 3, 4))
    found = local_correlation(f, moved, 2)
    assert found.shape == (1, 125, 8, 8, 8)
    # Channel (z, y, x) = (1 + 2, -2 + 2, 0 + 2) of five by five by five; the rolled border aside.
    assert (found.argmax(1)[0, 2:-2, 2:-2, 2:-2] == 3 * 25 + 0 * 5 + 2).all()
    # What all displacements have in common is subtracted.
    assert float(found.mean(1).abs().max()) < 1e-5


def test_validation_is_the_same_for_every_seed(tmp_path):
    a, b = (Trainer(tiny(run__seed=seed), tmp_path / str(seed), progress=False) for seed in (0, 1))
    pairs = zip(a.supply.val_pairs, b.supply.val_pairs)
    assert all(torch.equal(x.fixed, y.fixed) for x, y in pairs)
    assert not torch.equal(a.pair(0, None).fixed, b.pair(0, None).fixed)


def test_endpoint_error():
    truth = torch.zeros(1, 3, 2, 2, 2)
    u = truth.clone()
    u[:, 0], u[:, 1] = 3.0, 4.0
    mask = torch.zeros(1, 1, 2, 2, 2)
    mask[..., 0] = 1
    u[..., 1] = 100.0
    assert float(endpoint_error(u, truth, mask)) == pytest.approx(5.0, abs=2e-3)
