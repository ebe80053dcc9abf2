"""Registers pairs with a model in PyTorch and scores the results.

Dice is measured on the fixed image's own grid: the moving labels are read once from the original
volume, by nearest neighbours through the total transform.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .backbones import PolicyBackbone
from .config.known import KnownMotion
from .losses import hard_dice, masked_mean
from .pairs import (
    Case,
    DataError,
    Grid,
    PairSource,
    Sample,
    make_grid,
    make_sample,
    start_transform,
)
from .pairs.known_motion import known_pair
from .pairs.sample import apply_affine, centred_points, index_of
from .policy import hd95
from .spatial import column, compose, jacobian_determinant, njd_fraction, sample, warp

__all__ = [
    "evaluate_pairs",
    "evaluate_points",
    "first",
    "field_on_fixed_grid",
    "register_sample",
    "score_pair",
    "score_sample",
    "scores",
]


@torch.no_grad()
def register_sample(
    model: PolicyBackbone, pair: Sample, steps: int, amp: bool = False
) -> list[Tensor]:
    """Take T deterministic steps (z = mu).

    Returns
    -------
    list of Tensors of shape (1, 3, D, H, W)
        The cumulative displacement after each step, voxels of the network grid.
    """
    u = torch.zeros((1, 3, *pair.fixed.shape[2:]), device=pair.fixed.device)
    fields = []
    for t in range(steps):
        with torch.autocast(pair.fixed.device.type, torch.bfloat16, enabled=amp):
            e = model.state(pair.fixed, warp(pair.moving, u), model.view(t))
            phi = model.step_field(e.mu, e)
        u = compose(phi, u)
        fields.append(u)
    return fields


def field_on_fixed_grid(u: Tensor, grid: Grid, fixed: Case) -> Tensor:
    """Return the displacement on the fixed volume's own grid, in its voxels: (1, 3, D, H, W)."""
    points = index_of(centred_points(fixed, u.device), grid)
    return sample(u, points, padding="border") * column(grid.spacing / fixed.spacing, u.device)


def score_pair(
    u: Tensor,
    grid: Grid,
    fixed: Case,
    moving: Case,
    labels: int,
    surface: bool = False,
    initial: np.ndarray | None = None,
) -> dict[str, float]:
    """Score a network-grid displacement.

    Parameters
    ----------
    u : (1, 3, D, H, W)
        Voxels of ``grid``.
    surface : bool
        Also measure the 95 % Hausdorff distance.
    initial : ndarray of shape (4, 4), optional
        The initial transform, as in :func:`.pairs.make_sample`.

    Returns
    -------
    dict
        ``njd`` in percent and ``sdlogj`` (standard deviation of the logarithm of the Jacobian
        determinant where that is positive). If both volumes have any of the labels, also ``dice``
        (mean over labels), ``dice_1``, ``dice_2``, ..., ``dice_moving`` and ``hd95`` in mm.
        ``dice_moving`` weights each voxel by the volume that it covers in the moving image; it is
        the Dice of the inverse transform but for the latter's sampling. All are NaN if the
        displacement is not finite.
    """
    u = field_on_fixed_grid(u, grid, fixed)
    determinant = jacobian_determinant(u)
    out = {
        "njd": 100.0 * float(njd_fraction(u)),
        "sdlogj": float(determinant[determinant > 0].log().std()),
    }
    target, marks = (_labels_in(case, labels, u.device) for case in (fixed, moving))
    if target is None or marks is None:
        return _of(u, out)
    points = centred_points(fixed, u.device) + u * column(fixed.spacing, u.device)
    points = apply_affine(start_transform(fixed, moving, initial), points)
    warped = sample(marks, index_of(points, moving), mode="nearest")
    out["dice"] = float(hard_dice(warped, target, labels))
    for k in range(1, labels + 1):
        size = (warped == k).sum() + (target == k).sum()
        cross = ((warped == k) & (target == k)).sum()
        out[f"dice_{k}"] = float(2 * cross / size) if size > 0 else float("nan")
    out["dice_moving"] = float(
        hard_dice(warped, target, labels, determinant.clamp_min(0).unsqueeze(1))
    )
    if surface:
        out["hd95"] = hd95(warped, target, labels, tuple(fixed.spacing))
    return _of(u, out)


def _labels_in(case: Case, labels: int, device: torch.device) -> Tensor | None:
    """Return the label map of a volume as float; None if it has none of the labels."""
    if case.labels is None or not bool(((case.labels > 0) & (case.labels <= labels)).any()):
        return None
    return case.labels.to(device).float()


def _of(u: Tensor, figures: dict[str, float]) -> dict[str, float]:
    """Return a displacement's scores, or NaN if the displacement has NaN: otherwise it would count
    as free of folds, because no comparison with NaN holds.
    """
    return figures if bool(u.isfinite().all()) else dict.fromkeys(figures, math.nan)


def score_sample(u: Tensor, pair: Sample, labels: int) -> dict[str, float]:
    """Score a displacement (1, 3, D, H, W), voxels, on the network grid of a pair.

    Returns
    -------
    dict
        ``dice``, ``njd`` and ``sdlogj`` as in :func:`score_pair`; ``epe``, the mean distance to the
        true displacement in voxels, if that is known.
    """
    inside = pair.fixed_fov * (warp(pair.moving_fov, u, mode="nearest") > 0)
    warped = warp(pair.moving_map, u, mode="nearest")
    determinant = jacobian_determinant(u)
    out = {
        "dice": float(hard_dice(warped * inside, pair.fixed_map * inside, labels)),
        "njd": 100.0 * float(njd_fraction(u)),
        "sdlogj": float(determinant[determinant > 0].log().std()),
    }
    if pair.truth is not None:
        out["epe"] = float(masked_mean((u - pair.truth).norm(dim=1, keepdim=True), pair.truth_mask))
    return _of(u, out)


def evaluate_pairs(
    model: PolicyBackbone,
    source: PairSource,
    pairs: list[tuple[str, str]],
    spacing: Sequence[float],
    min_size: Sequence[int],
    steps: int,
    device: torch.device | str = "cpu",
    amp: bool = False,
    surface: bool = False,
) -> list[dict[str, Any]]:
    """Register pairs from the initial transforms of ``source`` and score the state after each step.

    Returns
    -------
    list of dict
        One for each pair: ``fixed``, ``moving``, ``seconds``, and ``steps``, a list of
        :func:`score_pair` after step 0 (the start) to step ``steps``.
    """
    if not pairs:
        raise DataError(f"{source.data}: the list of pairs to score is empty")
    was_training = model.training
    model.eval()
    rows = []
    for fixed_name, moving_name in pairs:
        fixed, moving = source.case(fixed_name), source.case(moving_name)
        grid = make_grid(fixed, spacing, min_size, model.size_multiple)
        initial = source.start(fixed_name, moving_name)
        pair = make_sample(fixed, moving, grid, 0, initial=initial).to(device)
        start = time.perf_counter()
        fields = register_sample(model, pair, steps, amp)
        seconds = time.perf_counter() - start
        zero = torch.zeros_like(fields[0])
        scores = [
            score_pair(u, grid, fixed, moving, source.labels, surface, initial)
            for u in (zero, *fields)
        ]
        rows.append(
            {"fixed": fixed_name, "moving": moving_name, "seconds": seconds, "steps": scores}
        )
    model.train(was_training)
    return rows


def first(pairs: list[tuple[str, str]], count: int) -> list[str]:
    """Return the first ``count`` different fixed volumes of a pair list."""
    return list(dict.fromkeys(fixed for fixed, _ in pairs))[:count]


def evaluate_points(
    model: PolicyBackbone,
    source: PairSource,
    names: Sequence[str],
    spacing: Sequence[float],
    min_size: Sequence[int],
    steps: int,
    known: KnownMotion,
    device: torch.device | str = "cpu",
) -> list[dict[str, Any]]:
    """Register known motions of volumes, the same ones at every call, and measure how far points
    end from the truth. Overlap of labels does not show that.

    Returns
    -------
    list of dict
        One for each volume: ``fixed`` and ``steps``, a list from step 0 (nothing moved) to step
        ``steps`` of ``points_mm``, the mean distance to the truth in the foreground in mm, and
        ``points_two_mm``, the same with images of two contrasts.
    """
    was_training = model.training
    model.eval()
    rows = []
    for number, name in enumerate(names):
        case = source.case(name)
        grid = make_grid(case, spacing, min_size, model.size_multiple)
        mm = column(grid.spacing, device)
        step_scores: list[dict[str, float]] = [{} for _ in range(steps + 1)]
        for key, other in (("points_mm", 0.0), ("points_two_mm", 1.0)):
            motion = dataclasses.replace(known, other_contrast=other)
            pair = known_pair(case, grid, 0, motion, None, np.random.default_rng([4, number]))
            pair = pair.to(device)
            fields = register_sample(model, pair, steps)
            for score, u in zip(step_scores, (torch.zeros_like(fields[0]), *fields), strict=True):
                assert pair.truth is not None
                distance = ((u - pair.truth) * mm).norm(dim=1, keepdim=True)
                score[key] = float(masked_mean(distance, pair.truth_mask))
        rows.append({"fixed": name, "steps": step_scores})
    model.train(was_training)
    return rows


def scores(rows: list[dict[str, Any]], step: int, key: str) -> list[float]:
    """Return one score after ``step`` for all pairs in ``rows`` that have it: pairs without labels
    have no Dice.
    """
    return [row["steps"][step][key] for row in rows if key in row["steps"][step]]
