"""Backbones and similarities of other packages."""

import importlib

import pytest
import torch

from helpers import refused
from morphseek.training import losses
from morphseek.training.backbones import BACKBONES, build, build_backbone
from morphseek.training.config import Model
from morphseek.training.export import StepGraph
from morphseek.training.run import load_backbone

TOY = '''
from torch import nn
from morphseek.training.backbones import PolicyBackbone


class Toy(PolicyBackbone):
    """The least there can be: one convolution down, one up."""

    latent_channels, latent_stride, size_multiple, field_stride = 4, 2, 2, 2

    def __init__(self, width: int = 4, **policy):
        super().__init__(**policy)
        self.latent_channels = width
        self.down = nn.Conv3d(2, width, 3, stride=2, padding=1)
        self.add_flow(width, std=1e-3)
        self.add_heads()

    def encode(self, fixed, moving):
        import torch
        return self.down(torch.cat((fixed, moving), dim=1)), ()

    def decode(self, z, skips):
        return self.flow(z)
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Another package with a backbone: one file and one entry point."""
    (tmp_path / "toy_backbone.py").write_text(TOY)
    metadata = tmp_path / "toy_backbone-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-backbone\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[morphseek.backbones]\ntoy = toy_backbone:Toy\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield "toy"
    BACKBONES.pop("toy", None)


def test_a_backbone_from_outside(start, toy, tiny, tmp_path):
    config = tiny(
        "best",
        model__backbone=toy,
        model__options={"width": 6},
        loss__segmentation=0.0,
        loss__phases=[],
        run__iterations=2,
    )
    trainer = start(config, "run")
    trainer.run()
    backbone, _, _ = load_backbone(tmp_path / "run" / "last.pt")
    assert backbone.name == "toy" and backbone.latent_channels == 6
    images = torch.rand(1, 1, 16, 16, 16)
    u, *_ = StepGraph(backbone)(
        images, images, torch.zeros(1, 3, 16, 16, 16), torch.zeros(1, 6, 8, 8, 8), torch.zeros(1)
    )
    assert u.shape == (1, 3, 16, 16, 16)


def test_what_a_backbone_from_outside_cannot_do_is_said(start, toy):
    with pytest.raises(ValueError, match="loss.segmentation needs .* not toy"):
        start("best", model__backbone=toy, model__options={}, loss__segmentation=0.1)


def test_an_unknown_backbone_names_those_of_other_packages(toy):
    refused(ValueError, "unknown backbone 'tay'; known: compact, .*toy", build, "tay")


def test_a_similarity_is_one_function(start, tiny, phantoms):
    @losses.similarity("none of ours")
    def product(fixed, warped, mask, window):
        return -(fixed * warped).mean()

    try:
        config = tiny("warmup", run__iterations=1, loss__similarity="none of ours")
        trainer = start(config)
        assert trainer.run_iteration()["similarity"] < 0
    finally:
        del losses.SIMILARITIES["none of ours"]


def test_every_backbone_says_what_it_can():
    for backbone in BACKBONES.values():
        assert backbone.can_segment or not backbone.can_pretrain
    assert {n for n, b in BACKBONES.items() if b.can_segment} == {"compact", "siamese"}
    assert build_backbone(Model()).name == "compact"
