"""Known motions of one volume: the truth compared with SimpleITK, their share, and their use in a
run.
"""

import dataclasses
import json

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from helpers import refused
from morphseek.training.backbones import build_backbone
from morphseek.training.config import ConfigError, KnownMotion, load
from morphseek.training.evaluate import evaluate_points, first
from morphseek.training.pairs import PairSource, make_grid
from morphseek.training.pairs.known_motion import draw_map, known_pair, other_contrast
from morphseek.training.run.supply import FolderSupply, random_source
from morphseek.training.step import StepObjective
from training_helpers import Shift

PLAIN = KnownMotion(share=1.0, noise=0.0, bias=0.0, other_contrast=0.0, regrid=0.0, foreground=0.0)


def anisotropic(tmp_path):
    """A volume with two labels and voxels that are longer along z, so smooth that linear
    interpolation is nearly exact.
    """
    from scipy.ndimage import gaussian_filter

    array = gaussian_filter(np.random.default_rng(3).standard_normal((20, 44, 40)), (2, 4, 4))
    labels = (array > 0.01).astype(np.uint8) + (array > 0.02)
    for folder, values in (("images", array.astype(np.float32)), ("labels", labels)):
        image = sitk.GetImageFromArray(values)
        image.SetSpacing((1.0, 1.0, 2.0))
        (tmp_path / folder).mkdir(parents=True)
        sitk.WriteImage(image, str(tmp_path / folder / "v.nii.gz"))
    case = PairSource(tmp_path, 2).case("v")
    return case, make_grid(case, (2.0, 1.0, 1.0), (16, 16, 16), 8)


def seen_by_simpleitk(pair, image, interpolator):
    """Return the moving side, warped by the truth onto the fixed grid."""
    u = np.moveaxis(pair.truth[0].numpy()[::-1], 0, -1).astype(np.float64)  # x first, as ITK has it
    field = sitk.DisplacementFieldTransform(sitk.GetImageFromArray(u, isVector=True))
    moving = sitk.GetImageFromArray(image.numpy())
    return sitk.GetArrayFromImage(sitk.Resample(moving, moving, field, interpolator, 0.0))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_truth_takes_moving_onto_fixed(tmp_path, seed):
    case, grid = anisotropic(tmp_path)
    augmentation = dataclasses.replace(
        load("best").augment, gamma=0.0, noise=0.0, contrast=0.0, mirror=1.0
    )
    pair = known_pair(case, grid, 2, PLAIN, augmentation, np.random.default_rng(seed))
    inside = pair.truth_mask[0, 0].numpy() > 0
    assert inside.mean() > 0.3
    warped = seen_by_simpleitk(pair, pair.moving[0, 0], sitk.sitkLinear)
    fixed, moving = pair.fixed[0, 0].numpy(), pair.moving[0, 0].numpy()
    apart = np.abs(moving - fixed)[inside].mean()
    assert np.abs(warped - fixed)[inside].mean() < 0.15 * apart and apart > 0.02
    # The inverted truth is no better than none.
    back = dataclasses.replace(pair, truth=-pair.truth)
    wrong = seen_by_simpleitk(back, pair.moving[0, 0], sitk.sitkLinear)
    assert np.abs(wrong - fixed)[inside].mean() > 0.8 * apart
    labels = seen_by_simpleitk(pair, pair.moving_map[0, 0], sitk.sitkNearestNeighbor)
    there = pair.fixed_map[0, 0].numpy()
    before = pair.moving_map[0, 0].numpy()
    assert (labels == there)[inside].mean() > 0.88 > (before == there)[inside].mean()


@pytest.mark.parametrize("coarse, fine", [((2.0, 8.0), (0.7, 4.0)), ((6.0, 5.0), (2.0, 2.0))])
def test_maps_do_not_fold_and_are_of_the_stated_size(tmp_path, coarse, fine):
    _, grid = anisotropic(tmp_path)
    motion = dataclasses.replace(
        PLAIN, coarse=list(coarse), fine=list(fine), least=1.0, rotation_deg=0.0, shift_mm=0.0
    )
    lengths = []
    for seed in range(8):
        u = draw_map(grid, motion, np.random.default_rng(seed))[0].numpy()
        phi = u + np.indices(u.shape[1:])
        jacobian = np.stack([np.stack(np.gradient(phi[c]), -1) for c in range(3)], -2)
        assert np.linalg.det(jacobian).min() > 0.15
        mm = u * grid.spacing[:, None, None, None]
        lengths.append(np.sqrt((mm**2).sum(0).mean()))
    if coarse[0] < 3:  # larger maps are scaled down
        assert np.mean(lengths) == pytest.approx(np.hypot(coarse[0], fine[0]), rel=0.2)


def test_contrasts_keep_zero_and_half_of_them_rise():
    values = torch.linspace(0, 1, 101)
    drawn = [other_contrast(values, np.random.default_rng(seed)) for seed in range(60)]
    assert all(float(v[0]) == 0 and 0 <= float(v.min()) <= float(v.max()) <= 1 for v in drawn)
    rising = [bool((v.diff() >= 0).all()) for v in drawn]
    assert 18 <= sum(rising) <= 42


@pytest.mark.parametrize("change", ["noise", "bias", "other_contrast", "regrid"])
def test_what_differs_between_the_images_is_not_the_truth(phantoms, change):
    case = PairSource(phantoms, 2).case("p0")
    grid = make_grid(case, (1, 1, 1), (24, 24, 24), 8)
    plain = known_pair(case, grid, 2, PLAIN, None, np.random.default_rng(5))
    other = dataclasses.replace(PLAIN, **{change: 0.5 if change in ("noise", "bias") else 1.0})
    changed = known_pair(case, grid, 2, other, None, np.random.default_rng(5))
    assert torch.equal(plain.truth, changed.truth)
    assert torch.equal(plain.fixed_map, changed.fixed_map)
    assert not (
        torch.equal(plain.fixed, changed.fixed) and torch.equal(plain.moving, changed.moving)
    )


def test_the_share_of_iterations_and_the_seed(tiny):
    changes = {"known__share": 0.3, "loss__truth": 0.3, "run__seed": 4}

    def iterations(**more):
        config = tiny("best", **(changes | more))
        supply = FolderSupply(config, 8, 0, 1)
        return [supply.pair(v, random_source(config, 0, v)) for v in range(60)]

    some = iterations()
    assert 9 <= sum(pair.truth is not None for pair in some) <= 28
    for one, again in zip(some, iterations(), strict=True):
        assert torch.equal(one.fixed, again.fixed) and torch.equal(one.moving, again.moving)
        assert (one.truth is None) == (again.truth is None)
        assert one.truth is None or torch.equal(one.truth, again.truth)
    assert not all(
        torch.equal(a.fixed, b.fixed) for a, b in zip(some, iterations(run__seed=5), strict=True)
    )
    assert all(pair.truth is None for pair in iterations(known__share=0.0))
    assert all(pair.truth is not None for pair in iterations(known__share=1.0))


@pytest.mark.parametrize(
    "preset, changes, message",
    [
        ("best", {}, "'known.share' = 0.5 has no effect without a weight 'loss.truth'"),
        ("warmup", {"loss__truth": 0.3}, "'known.share' = 0.5 has no effect"),
        ("synthetic", {"loss__truth": 0.3}, "'known.share' needs the volumes of a data folder"),
    ],
)
def test_a_share_without_effect_is_refused(start, tmp_path, preset, changes, message):
    refused(ConfigError, message, start, preset, "run", known__share=0.5, **changes)
    assert not (tmp_path / "run").exists()


def test_scales_are_two_numbers():
    with pytest.raises(ConfigError, match="'known.fine' must be two numbers, mm"):
        load("best").replace(**{"known.fine": [1.0]})


def test_a_run_learns_from_the_truth(start, tmp_path, monkeypatch):
    """A known motion that is the same at every iteration is learnt, and validation measures its
    points.
    """
    changes = dict(known__share=1.0, known__val_pairs=1, loss__truth=1.0, loss__segmentation=0.0)
    changes |= dict(run__iterations=60, run__steps=1, run__val_steps=1, run__val_every=60)
    trainer = start("best", "run", **changes, optim__lr=2e-3, optim__ema=0.0)
    monkeypatch.setattr(trainer, "rng", lambda iteration: np.random.default_rng(0))
    last = trainer.run()
    assert {"val_points_mm", "val_points_two_mm", "val_dice"} <= last.keys()
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["truth"] < 0.7 * rows[0]["truth"]


def test_likeness_does_not_count_where_the_truth_is_told(tiny, phantoms):
    """Between two contrasts similarity would mislead."""
    case = PairSource(phantoms, 2).case("p0")
    grid = make_grid(case, (1, 1, 1), (24, 24, 24), 8)
    pair = known_pair(case, grid, 2, PLAIN, None, np.random.default_rng(5))
    u = torch.zeros(1, 3, 24, 24, 24)

    def loss(pair, **changes):
        config = tiny("best", loss__truth=0.5, loss__segmentation=0.0, **changes)
        torch.manual_seed(0)
        backbone = build_backbone(config.model)
        objective = StepObjective(backbone, config.loss, config.policy, "finetune", False)
        return float(objective(pair, u).loss)

    assert loss(pair) == loss(pair, loss__similarity="none")
    untold = dataclasses.replace(pair, truth=None, truth_mask=None)
    assert loss(untold) > loss(untold, loss__similarity="none") + 1e-4


def test_point_errors_are_of_the_truth(phantoms):
    """With a stand-in network that never moves anything, points stay where they start. Each volume
    is scored once.
    """
    source = PairSource(phantoms, 2)
    names = first([("p0", "p1"), ("p0", "p2"), ("p3", "p1")], 5)
    assert names == ["p0", "p3"]
    rows = evaluate_points(Shift(), source, names, (2.0, 1.0, 1.0), (16, 24, 24), 1, PLAIN)
    for number, row in enumerate(rows):
        case = source.case(row["fixed"])
        grid = make_grid(case, (2.0, 1.0, 1.0), (16, 24, 24), 8)
        pair = known_pair(case, grid, 0, PLAIN, None, np.random.default_rng([4, number]))
        mm = pair.truth[0].numpy() * np.array([2.0, 1.0, 1.0])[:, None, None, None]
        wanted = np.linalg.norm(mm, axis=0)[pair.truth_mask[0, 0].numpy() > 0].mean()
        for step in row["steps"]:
            assert step["points_mm"] == pytest.approx(wanted, rel=1e-4)
            assert step["points_two_mm"] == pytest.approx(wanted, rel=1e-4)
