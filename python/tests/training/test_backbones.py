"""Backbones: the paper's sizes, latent dimensions and head costs, and every backbone's duties."""

import math

import pytest
import torch

from helpers import refused
from morphseek.training.backbones import BACKBONES, SplitConv, build
from morphseek.training.spatial import translate

SMALL = {
    "compact": {"widths": (4, 4, 8), "latent_channels": 8, "decoder": (8, 8)},
    "siamese": {"widths": (4, 4, 8), "reader": (4, 4), "latent_channels": 8, "decoder": (8, 8)},
    "voxelmorph-l": {"widths": (4, 4, 8, 8, 8)},
    "transmorph": dict(
        embed=12, depths=(1, 2, 1, 1), attention_heads=(2, 2, 2, 2), window=(2, 2, 2)
    ),
    "nice-trans": {"widths": (4, 4, 8, 8, 8), "window": (2, 2, 2)},
}


@pytest.fixture(scope="module")
def full():
    # On the meta device parameters have shapes and no memory.
    with torch.device("meta"):
        return {name: build(name) for name in BACKBONES}


@pytest.mark.parametrize(
    "name, n_224, n_192, heads, total",
    [
        ("voxelmorph-l", 53_760, 46_080, 0.13e6, 20.7e6),
        ("transmorph", 161_280, 138_240, 1.18e6, 47.95e6),
        ("nice-trans", 53_760, 46_080, 0.13e6, 5.84e6),
    ],
)
def test_sizes_of_the_paper(full, name, n_224, n_192, heads, total):
    m = full[name]
    assert math.prod(m.latent_shape((160, 192, 224))) == n_224
    assert math.prod(m.latent_shape((160, 192, 192))) == n_192
    assert m.latent_stride == 32
    assert m.head_parameter_count() == pytest.approx(heads, rel=0.02)
    # TransMorph and NICE-Trans are within 1 % of the paper's 46.77 + 1.18 M and 5.71 + 0.13 M;
    # VoxelMorph-L's docstring says why it is smaller than 27.05 M.
    assert m.parameter_count() == pytest.approx(total, rel=0.01)


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_heads_cost_less_than_three_percent(full, name):
    m = full[name]
    body = m.parameter_count() - m.head_parameter_count()
    assert 0 < m.head_parameter_count() < 0.03 * body
    assert m.head_parameter_count() == 2 * (m.latent_channels**2 + m.latent_channels)


def test_small_networks_are_small(full):
    assert full["compact"].parameter_count() <= 2_000_000
    # Each parameter takes two bytes in a bundle of at most 4 MB.
    assert full["siamese"].parameter_count() <= 2_000_000


@pytest.mark.parametrize("name", ["compact", "siamese"])
def test_a_view_moves_and_mirrors_the_images_and_brings_the_field_back(name):
    torch.manual_seed(0)
    views = dict(offsets=[[1, 0, 2], [0, 0, 0]], mirrored=[False, False, True])
    m = build(name, **SMALL[name], segmentation_classes=2, **views).eval()
    for t in range(7):
        assert m.view(t) == (*((1, 0, 2), (0, 0, 0))[t % 2], t in (2, 5)), t
    assert build(name, **SMALL[name]).view(1) is None
    assert build(name, **SMALL[name], offsets=[[1, 0, 2]]).view(1) == (1, 0, 2, 0)
    assert build(name, **SMALL[name], mirrored=[False, True]).view(1) == (0, 0, 0, 1)
    refused(ValueError, "three numbers", build, name, **SMALL[name], offsets=[[1, 2]])
    with torch.no_grad():
        m.flow.weight.normal_(std=0.3)
        f, g = torch.rand(2, 1, 1, 16, 24, 16)
        e = m.state(f, g, m.view(0))
        moved = m.state(translate(f, (1, 0, 2)), translate(g, (1, 0, 2)))
        assert torch.equal(e.mu, moved.mu) and not torch.equal(e.mu, m.state(f, g).mu)
        field, logits = m.step_field_and_segmentation(e.mu, e)
        there, logits_there = m.step_field_and_segmentation(moved.mu, moved)
        torch.testing.assert_close(field[..., :-1, :, :-2], there[..., 1:, :, 2:])
        torch.testing.assert_close(logits, logits_there)
        torch.testing.assert_close(m.step_field(e.mu, e), field)

        e = m.state(f, g, m.view(5))
        mirrored = m.state(f.flip(-1), g.flip(-1))
        assert torch.equal(e.mu, mirrored.mu)
        there = m.step_field(mirrored.mu, mirrored)
        torch.testing.assert_close(
            m.step_field(e.mu, e), torch.stack((there[:, 0], there[:, 1], -there[:, 2]), 1).flip(-1)
        )


def test_siamese_reads_each_image_by_itself():
    torch.manual_seed(0)
    m = build("siamese", **SMALL["siamese"], segmentation_classes=2).eval()
    f, g, h = torch.rand(3, 1, 1, 24, 16, 32)
    with torch.no_grad():
        alone = m.segment(f)
        assert alone.shape == (1, 3, 24, 16, 32)
        for other in (g, h):
            e = m.state(f, other)
            field, logits = m.step_field_and_segmentation(e.mu, e)
            torch.testing.assert_close(logits[0, :1], alone)
            torch.testing.assert_close(logits[0, 1:], m.segment(other))
            torch.testing.assert_close(field, m.step_field(e.mu, e))


def test_latent_shape_refuses_other_sizes(full):
    refused(ValueError, "multiple of 32", full["transmorph"].latent_shape, (160, 192, 200))


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_every_backbone_steps_from_its_latent(name):
    torch.manual_seed(0)
    m = build(name, **SMALL[name]).eval()
    with torch.no_grad():
        m.flow.weight.normal_(std=0.1)
        size = (64, 64, 32) if m.size_multiple == 32 else (24, 16, 32)
        f, g = torch.rand(2, 1, 1, *size)
        e = m.state(f, g)
        assert e.mu.shape == e.log_sigma.shape == (1, *m.latent_shape(size))
        assert e.mu.abs().max() <= m.scale
        noise = torch.randn(2, *e.mu.shape[1:])
        many = m.step_field(e.mu + 0.5 * noise, e)
        assert many.shape == (2, 3, *size) and many.dtype == torch.float32
        for j in range(2):
            one = m.step_field(e.mu + 0.5 * noise[j : j + 1], e)
            torch.testing.assert_close(many[j : j + 1], one, atol=1e-4, rtol=1e-3)
        # The decoder depends on z, and the encoder distinguishes the images.
        assert (many[0] - many[1]).abs().max() > 1e-4
        assert (m.state(g, f).mu - e.mu).abs().max() > 1e-5


def test_split_conv_is_the_convolution_of_the_concatenation():
    torch.manual_seed(0)
    split = SplitConv(3, 5, 4)
    whole = torch.nn.Conv3d(8, 4, 3, padding=1)
    with torch.no_grad():
        whole.weight.copy_(torch.cat((split.up.weight, split.skip.weight), dim=1))
        whole.bias.copy_(split.up.bias)
        up, skip = torch.rand(2, 3, 6, 5, 4), torch.rand(1, 5, 6, 5, 4)
        truth = whole(torch.cat((up, skip.expand(2, -1, -1, -1, -1)), dim=1))
        torch.testing.assert_close(split(up, split.prepare(skip)), truth, atol=1e-5, rtol=1e-4)


def test_log_sigma_is_clipped_and_its_start_can_be_set():
    m = build("compact", **SMALL["compact"], log_sigma_init=-1.5)
    e = m.state(torch.rand(1, 1, 16, 16, 16), torch.rand(1, 1, 16, 16, 16))
    assert e.log_sigma.mean().item() == pytest.approx(-1.5, abs=0.05)
    torch.nn.init.constant_(m.log_sigma_head.bias, 50.0)
    e = m.state(torch.rand(1, 1, 16, 16, 16), torch.rand(1, 1, 16, 16, 16))
    assert torch.equal(e.log_sigma, torch.full_like(e.log_sigma, 3.0))
    (gradient,) = torch.autograd.grad(e.log_sigma.sum(), m.log_sigma_head.bias)
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_velocity_folds_less_than_displacement():
    from morphseek.training.spatial import njd_fraction

    found = {}
    for kind in ("velocity", "displacement"):
        torch.manual_seed(1)
        m = build("compact", **SMALL["compact"], parametrisation=kind)
        raw = torch.nn.functional.interpolate(
            4 * torch.randn(1, 3, 6, 6, 6), scale_factor=2, mode="trilinear"
        )
        found[kind] = float(njd_fraction(m.finish_field(raw)))
    assert found["displacement"] > 0.02 and found["velocity"] < 0.1 * found["displacement"]


def test_unknown_names_are_refused():
    refused(ValueError, "known: compact", build, "unet")
    refused(ValueError, "parametrisation", build, "compact", parametrisation="spline")
