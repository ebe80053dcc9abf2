"""Validation with the averaged weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backbones import PolicyBackbone
from ..config.schema import Config
from ..evaluate import evaluate_pairs, evaluate_points, first, register_sample, score_sample, scores
from ..losses.overlap import hard_dice
from ..pairs.network_grid import make_grid
from ..pairs.sample import make_sample
from ..spatial import warp
from .supply import FolderSupply, SyntheticSupply


@contextlib.contextmanager
def swapped(backbone: PolicyBackbone, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Give the network other weights inside the block and restore its own; None changes nothing."""
    if weights is None:
        yield
        return
    own = {k: v.detach().clone() for k, v in backbone.state_dict().items()}
    backbone.load_state_dict(weights)
    try:
        yield
    finally:
        backbone.load_state_dict(own)


def registration_scores(
    backbone: PolicyBackbone,
    supply: FolderSupply | SyntheticSupply,
    config: Config,
    device: torch.device,
) -> dict[str, float]:
    """Return the Dice and NJD on the validation pairs; no Dice if no pair has labels."""
    d, r, known = config.data, config.run, config.known
    if isinstance(supply, SyntheticSupply):
        rows = _score_synthetic(backbone, supply, config, device)
    else:
        rows = evaluate_pairs(
            backbone, supply.source, supply.val_pairs, d.spacing, d.min_size, r.val_steps, device
        )
    out = {}
    if scores(rows, 0, "dice"):
        for t in range(r.val_steps + 1):
            out[f"val_dice_t{t}"] = float(np.mean(scores(rows, t, "dice")))
        out["val_dice"] = out[f"val_dice_t{r.val_steps}"]
    for key, name in (("njd", "val_njd_percent"), ("sdlogj", "val_sdlogj"), ("epe", "val_epe")):
        if values := scores(rows, -1, key):
            out[name] = float(np.mean(values))
    if known.share and isinstance(supply, FolderSupply):
        rows = evaluate_points(
            backbone,
            supply.source,
            first(supply.val_pairs, known.val_pairs),
            d.spacing,
            d.min_size,
            r.val_steps,
            known,
            device,
        )
        for key in ("points_mm", "points_two_mm"):
            if values := scores(rows, -1, key):
                out[f"val_{key}"] = float(np.mean(values))
    return out


def _score_synthetic(
    backbone: PolicyBackbone, supply: SyntheticSupply, config: Config, device: torch.device
) -> list[dict[str, Any]]:
    """Score the synthetic validation pairs on the network grid; rows as from
    :func:`..evaluate.evaluate_pairs`.
    """
    backbone.eval()
    rows = []
    for pair in (p.to(device) for p in supply.val_pairs):
        fields = register_sample(backbone, pair, config.run.val_steps)
        states = (torch.zeros_like(fields[0]), *fields)
        rows.append({"steps": [score_sample(u, pair, config.data.labels) for u in states]})
    backbone.train()
    return rows


@torch.no_grad()
def recognition_scores(
    backbone: PolicyBackbone, supply: FolderSupply, config: Config, device: torch.device
) -> dict[str, float]:
    """Return the Dice of the auxiliary segmentation on the subjects of the validation pairs."""
    d = config.data
    dice = []
    backbone.eval()
    for name in sorted({name for pair in supply.val_pairs for name in pair}):
        case = supply.source.case(name)
        grid = make_grid(case, d.spacing, d.min_size, backbone.size_multiple)
        pair = make_sample(case, case, grid, d.labels).to(device)
        labels = backbone.segment(pair.fixed).argmax(1, keepdim=True)
        dice.append(float(hard_dice(labels, pair.fixed_map, d.labels)))
    backbone.train()
    return {"val_segmentation_dice": float(np.mean(dice))}


def picture(
    backbone: PolicyBackbone,
    supply: FolderSupply | SyntheticSupply,
    steps: int,
    device: torch.device,
) -> Tensor:
    """Return the middle slices of the first validation pair, side by side: fixed, moving, warped,
    difference before and after; (1, H, W).
    """
    pair = supply.validation_sample(0).to(device)
    backbone.eval()
    u = register_sample(backbone, pair, steps)[-1]
    backbone.train()
    warped = warp(pair.moving, u)
    views = (
        pair.fixed,
        pair.moving,
        warped,
        (pair.fixed - pair.moving).abs(),
        (pair.fixed - warped).abs(),
    )
    rows = []
    for axis in (2, 3, 4):
        cuts = [v.select(axis, v.shape[axis] // 2)[0, 0] for v in views]
        rows.append(torch.cat(cuts, dim=1))
    width = max(r.shape[1] for r in rows)
    rows = [torch.nn.functional.pad(r, (0, width - r.shape[1])) for r in rows]
    return torch.cat(rows, dim=0)[None].cpu()
