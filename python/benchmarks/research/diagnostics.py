"""Diagnostics of a trained policy: whether it still explores, whether its likelihood is valid, and
whether its gradient has a signal.

    python python/benchmarks/research/diagnostics.py diagnose RUN/best.pt --data DIR
"""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from morphseek import _files
from morphseek._json import without_nan
from morphseek.training.cli import Stages, check_folder, counts
from morphseek.training.config import Config
from morphseek.training.losses import hard_dice
from morphseek.training.pairs import DataError, PairSource, Sample, read_pairs
from morphseek.training.policy import (
    PolicyMemory,
    channel_basis,
    gaussian_noise,
    group_advantage,
    local_advantage,
    local_dice_reward,
    policy_step,
    smoothed,
)
from morphseek.training.run import load_backbone
from morphseek.training.run.log import histories
from morphseek.training.spatial import compose, to_view, warp
from morphseek.training.step import StepObjective


def load_pairs(
    config: Config, data: str | Path, multiple: int, count: int, split: str = ""
) -> list[Sample]:
    """Return the first pairs of a list (by default the validation list) on their network grids,
    not augmented.
    """
    source = PairSource.configured(config.data, data)
    names = read_pairs(data, split or config.data.val or "val")[:count]
    if not names:
        raise DataError(f"{data}: the list {split or config.data.val or 'val'!r} has no pairs")
    return [
        source.pair(fixed, moving, config.data, multiple, config.data.labels)
        for fixed, moving in names
    ]


@torch.no_grad()
def collapse_probe(
    model, pair: Sample, samples: int = 10, tau: float = 1.0, seed: int = 0
) -> dict[str, float]:
    """Probe for posterior collapse by the Dice of samples of one state.

    A standard deviation near 0 means that the decoder ignores the noise, so nothing is explored.

    Returns
    -------
    dict
        ``dice_mean``, ``dice_sd``, ``dice_mu`` (of z = mu), all in percent.
    """
    labels = pair.fixed_labels.shape[1]
    e = model.state(pair.fixed, pair.moving, model.view(0))
    rng = np.random.default_rng(seed)

    def dice(z: Tensor) -> float:
        u = model.step_field(z, e)
        return 100.0 * float(
            hard_dice(warp(pair.moving_map, u, mode="nearest"), pair.fixed_map, labels)
        )

    noise = gaussian_noise((samples, *e.mu.shape[1:]), rng)
    values = [dice(e.mu + tau * torch.exp(e.log_sigma) * noise[j : j + 1]) for j in range(samples)]
    return {
        "dice_mean": float(np.mean(values)),
        "dice_sd": float(np.std(values)),
        "dice_mu": dice(e.mu),
    }


@torch.no_grad()
def variance_ratio(
    model, pair: Sample, samples: int = 1000, tau: float = 1.0, seed: int = 0
) -> dict[str, float]:
    """Check LDVN's assumption by Monte Carlo: Var(sum X_i) / (0.5 N), where X_i is the i-th
    dimension's part of log pi.

    Independent dimensions give 1. X_i = -0.5 ((z_i - mu_i) / (tau sigma_i))^2 + constant has
    variance 1/2.

    Returns
    -------
    dict
        ``ratio``, ``standard_error`` (of a variance from this many samples) and ``n``.
    """
    e = model.state(pair.fixed, pair.moving, model.view(0))
    n = e.mu.numel()
    rng = np.random.default_rng(seed)
    sigma = tau * torch.exp(e.log_sigma)
    sums = []
    for _ in range(samples):
        z = e.mu + sigma * gaussian_noise(tuple(e.mu.shape), rng)
        x = -0.5 * (
            ((z - e.mu) / sigma).double().square()
            + torch.log(2 * torch.pi * sigma.double().square())
        )
        sums.append(float(x.sum()))
    ratio = float(np.var(sums, ddof=1)) / (0.5 * n)
    return {"ratio": ratio, "standard_error": ratio * (2.0 / (samples - 1)) ** 0.5, "n": n}


def gradient_norms(
    objective: StepObjective, pair: Sample, tau: float = 1.0, seed: int = 0
) -> dict[str, float]:
    """Return the gradient norm of each weighted term of the loss, over all parameters, in a step
    from the identity.

    Terms are computed at z = mu, ``policy`` from one group of trajectories; the paper's policy
    at temperature ``tau`` and with its LDVN scale. A pair without labels has neither Dice nor
    policy.
    """
    w = objective.weights
    tuning = objective.stage == "finetune"
    sampled = tuning and objective.policy.kind != "none"
    labelled = tuning and min(pair.fixed_labels.shape[1], pair.moving_labels.shape[1]) > 0
    segment = labelled and not sampled and w.segmentation > 0
    u_prev = torch.zeros((1, 3, *pair.fixed.shape[2:]))
    encoded = objective.backbone.state(pair.fixed, pair.moving, objective.backbone.view(0))
    if segment:
        phi, logits = objective.backbone.step_field_and_segmentation(encoded.mu, encoded)
    else:
        phi = objective.backbone.step_field(encoded.mu, encoded)
    terms = objective.field_losses(pair, compose(phi, u_prev), with_dice=labelled)
    share = w.warm if tuning else 1.0
    warm = share * objective.warm_loss(terms, encoded)
    parts = {
        "similarity": share * terms["similarity"],
        "regularity": share * w.regularity * terms["regularity"],
        "kl": share * objective.kl_weight * terms["kl"],
        "warm": warm,
    }
    if "fold" in terms:
        parts["fold"] = share * w.fold * terms["fold"]
    if "volume" in terms:
        parts["volume"] = share * w.volume * terms["volume"]
    if "soft_dice" in terms:
        parts["dice"] = w.dice * (1.0 - terms["soft_dice"])
    if tuning and "truth" in terms:
        parts["truth"] = w.truth * terms["truth"]
    if segment:
        parts["segmentation"] = w.segmentation * objective.segmentation_loss(
            logits, pair, u_prev, encoded.view
        )
    parameters = list(objective.backbone.parameters())

    def gradient(value: Tensor) -> list[Tensor]:
        if not value.requires_grad:  # as with similarity "none"
            return [torch.zeros(())]
        found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        return [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)
        ]

    def norm(gradients: list[Tensor]) -> float:
        return float(torch.sqrt(sum(g.square().sum() for g in gradients)))

    out = {name: norm(gradient(value)) for name, value in parts.items()}
    if sampled and labelled:
        # The difference between a step and the same step without the policy's term.
        policy, memory = objective.policy, objective.memory
        steps = []
        for p in (policy, dataclasses.replace(policy, weight=0.0, gradient_ratio=0.0)):
            objective.policy, objective.memory = p, copy.deepcopy(memory)
            steps.append(
                gradient(
                    policy_step(objective, pair, u_prev, tau, np.random.default_rng(seed)).loss
                )
            )
        objective.policy, objective.memory = policy, memory
        out["policy"] = norm([a - b for a, b in zip(*steps, strict=True)])
    return out


def policy_signal(
    objective: StepObjective,
    pairs: list[Sample],
    trajectories: tuple[int, ...] = (4, 16, 64),
    target_sd: float = 0.75,
    rank: int = 4,
    smooth_sd: float = 0.8,
    seed: int = 0,
) -> list[dict]:
    """Measure how well policy gradients agree with the exact one: the cosine to the gradient of
    -soft Dice at mu.

    There are six estimators: white noise, smooth noise, and smooth noise in ``rank`` channel
    directions, each with one scalar advantage per trajectory and with local ones. The noise is
    scaled to ``target_sd`` points of Dice. Samples are antithetic pairs for smooth noise and
    independent for white noise.

    Returns
    -------
    list of dict
        ``noise``, ``advantage``, ``J``, ``cosine`` (mean over pairs), ``pairs``.
    """
    rng = np.random.default_rng(seed)
    stride = objective.backbone.latent_stride
    exact = [objective.dice_gradient(p, torch.zeros((1, 3, *p.fixed.shape[2:]))) for p in pairs]
    rows: dict[tuple[str, str, int], list[float]] = {}
    most = max(trajectories)
    for index, (pair, gradient) in enumerate(zip(pairs, exact, strict=True)):
        labels = pair.fixed_labels.shape[1]
        zero = torch.zeros((1, 3, *pair.fixed.shape[2:]))
        # Leave the pair out of its own basis: in training the basis comes from other pairs, too.
        others = [g for i, g in enumerate(exact) if i != index] or exact
        basis = channel_basis(others, rank)
        with torch.no_grad():
            e = objective.backbone.state(
                pair.fixed, warp(pair.moving, zero), objective.backbone.view(0)
            )
            reference = warp(
                pair.moving_map, objective.backbone.step_field(e.mu, e), mode="nearest"
            )

            def score(direction: Tensor, scale: float) -> tuple[float, Tensor]:
                u = objective.backbone.step_field(e.mu + scale * direction, e)
                seen = warp(pair.moving_map, u, mode="nearest")
                voxel = local_dice_reward(seen, pair.fixed_map, reference, labels)
                if e.view is not None:
                    voxel = to_view(voxel, e.view)
                return 100.0 * float(hard_dice(seen, pair.fixed_map, labels)), F.avg_pool3d(
                    voxel, stride
                )

            for kind in ("white", "smooth", f"smooth, {rank} channels"):
                channels = rank if "channels" in kind else e.mu.shape[1]
                half = gaussian_noise(((most + 1) // 2, channels, *e.mu.shape[2:]), rng)
                noise = torch.cat((half, -half), dim=1).reshape(-1, channels, *e.mu.shape[2:])[
                    :most
                ]
                if kind == "white":
                    noise = gaussian_noise(tuple(noise.shape), rng)
                else:
                    noise = smoothed(noise, smooth_sd)
                if "channels" in kind:
                    noise = torch.einsum("ck,jkdhw->jcdhw", basis, noise)
                scale = 0.3
                for _ in range(6):
                    sd = float(
                        np.std([score(noise[j : j + 1], scale)[0] for j in range(min(4, most))])
                    )
                    scale *= float(np.clip(target_sd / max(sd, 1e-3), 0.33, 3.0))
                scored = [score(noise[j : j + 1], scale) for j in range(most)]
                for j_count in trajectories:
                    dice = torch.tensor([s[0] for s in scored[:j_count]])
                    scalar = group_advantage(dice).view(-1, 1, 1, 1, 1)
                    local = local_advantage(torch.cat([s[1] for s in scored[:j_count]]), 1)
                    for name, advantage in (("scalar", scalar), ("local", local)):
                        estimate = -(advantage * noise[:j_count]).mean(0, keepdim=True)
                        cosine = F.cosine_similarity(estimate.flatten(), gradient.flatten(), dim=0)
                        rows.setdefault((kind, name, j_count), []).append(float(cosine))
    return [
        {"noise": k[0], "advantage": k[1], "J": k[2], "cosine": float(np.mean(v)), "pairs": len(v)}
        for k, v in rows.items()
    ]


@click.group(cls=Stages, no_args_is_help=True, context_settings={"show_default": True})
def app() -> None:
    """Look inside a trained policy."""


@app.command()
@click.argument("checkpoint", type=Path)
@click.option(
    "--data",
    type=Path,
    required=True,
    envvar="MORPHSEEK_DATA_SET",
    metavar="DIR",
    help="Data folder.",
)
@click.option("--pairs", default=4, type=click.IntRange(1), help="Validation pairs to use.")
@click.option("--tau", default=1.0, help="Temperature of the samples.")
@click.option("--signal/--no-signal", help="Also measure the policy-gradient signal (slow).")
@click.option("--trajectories", default="4,16,64", help="J of the signal table.")
@click.option("--to", type=Path, help="Write the results here as JSON.")
def diagnose(
    checkpoint: Path,
    data: Path,
    pairs: int,
    tau: float,
    signal: bool,
    trajectories: str,
    to: Path | None,
) -> None:
    """Print posterior collapse, variance of log pi, gradient norms by term, sigma and |mu|, and the
    policy's signal. CHECKPOINT is RUN/best.pt or last.pt.
    """
    check_folder(to)
    sizes = counts("--trajectories", trajectories, least=2)
    backbone, config, state = load_backbone(checkpoint)
    samples = load_pairs(config, data, backbone.size_multiple, pairs)
    labelled = [s for s in samples if s.fixed_labels.shape[1] and s.moving_labels.shape[1]]
    if signal and not labelled:
        raise ValueError(
            "--signal needs labels: the validation pairs have none for data.labels ="
            f" {config.data.labels}"
        )
    # The weights and the policy of the run's next iteration.
    objective = StepObjective(
        backbone,
        config.loss.at(state["iteration"]),
        config.policy,
        config.run.stage,
        False,
        config.data.spacing,
    )
    objective.kl_weight = state.get("kl_weight", objective.kl_weight)
    if state.get("policy"):
        objective.memory = PolicyMemory(**state["policy"])
    report: dict = {"collapse": [collapse_probe(backbone, s, tau=tau) for s in labelled]}
    if not labelled:
        click.echo("no labels: no Dice of samples")
    for row in report["collapse"]:
        click.echo(
            f"samples at tau = {tau}: Dice {row['dice_mean']:.2f} +- {row['dice_sd']:.2f} % (mu:"
            f" {row['dice_mu']:.2f})"
        )
    report["variance"] = variance_ratio(backbone, samples[0], tau=tau)
    v = report["variance"]
    click.echo(
        f"Var(sum X_i) / (0.5 N) = {v['ratio']:.3f} +- {v['standard_error']:.3f}, N = {v['n']}"
    )
    report["gradient_norms"] = gradient_norms(
        objective,
        samples[0],
        config.policy.temperature(min(state["iteration"], config.run.iterations - 1)),
    )
    click.echo(
        "gradient norms: " + ", ".join(f"{k} {x:.3g}" for k, x in report["gradient_norms"].items())
    )
    run = checkpoint.parent
    if (run / "log.jsonl").exists():
        h = report["histories"] = histories(run, ("sigma", "mu_abs", "kl"))
        for key in ("sigma", "mu_abs", "kl"):
            parts = np.array_split(np.array(h[key]), min(8, max(len(h[key]), 1)))
            click.echo(
                f"{key} over the run: " + " ".join(f"{p.mean():.3g}" for p in parts if len(p))
            )
    if signal:
        report["signal"] = policy_signal(objective, labelled, sizes)
        click.echo("| noise | advantage | J | cosine |\n|---|---|---|---|")
        for r in report["signal"]:
            click.echo(f"| {r['noise']} | {r['advantage']} | {r['J']} | {r['cosine']:.3f} |")
    if to:
        _files.write_text(to, json.dumps(without_nan(report), indent=1, allow_nan=False))


if __name__ == "__main__":
    app()
