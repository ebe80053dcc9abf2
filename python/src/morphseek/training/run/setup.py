"""Prepares a run: checks its configuration, finds the device and loads the initial weights."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..backbones import BACKBONES, PolicyBackbone, known
from ..config.errors import ConfigError
from ..config.schema import Config
from ..export.manifest import read_manifest
from ..export.weights import bundle_weights
from .checkpoint import load_backbone


def rank_and_world() -> tuple[int, int]:
    """Return torchrun's rank of this process and the number of processes."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def find_device(name: str, world: int) -> torch.device:
    """Return the device of ``run.device``; in a distributed run, also join the processes."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and world > 1:
        name = f"cuda:{int(os.environ.get('LOCAL_RANK', 0))}"
        torch.cuda.set_device(name)
    try:
        device = torch.zeros(1, device=name).device
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"run.device: PyTorch has no device {name!r} here ({str(error).split('. ')[0]});"
            " give auto, cpu or cuda"
        ) from None
    if world > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def check_run(config: Config) -> None:
    """Refuse configurations that cannot be trained. :meth:`Config.check` does not do it, so that
    checkpoints in which such keys had no effect stay readable.
    """
    run = config.run
    _check_known(config)
    if run.stage == "finetune" and not config.data.labels:
        raise ValueError(
            "fine-tuning needs labels: data.labels is 0; set it to the greatest label of your maps,"
            " or run a warm-up"
        )
    if config.data.limit and (
        config.data.pairs == "synthetic" or config.data.pairs.startswith("subjects:")
    ):
        raise ConfigError(
            f"'data.limit' needs a list of pairs, and 'data.pairs' = {config.data.pairs!r} is"
            " none: set it to 0, or name a list"
        )
    if run.stage == "finetune" and config.policy.kind != "none":
        _check_policy(config)
    if config.optim.together and (
        config.data.pairs != "synthetic"
        or config.policy.kind != "none"
        or weighs_segmentation(config)
    ):
        raise ConfigError(
            "'optim.together' needs 'data.pairs' = 'synthetic', 'policy.kind' = 'none' and no"
            " 'loss.segmentation': set it to false"
        )
    backbone = BACKBONES.get(config.model.backbone)
    if run.pretrain and (run.stage != "finetune" or not (backbone and backbone.can_pretrain)):
        able = " or ".join(repr(name) for name in known("can_pretrain"))
        raise ValueError(
            f"run.pretrain needs fine-tuning with labels and the backbone {able}; set run.pretrain"
            " to 0, or choose that backbone"
        )
    if run.pretrain and run.pretrain >= run.iterations:
        raise ValueError(
            f"run.pretrain = {run.pretrain} leaves none of run.iterations ="
            f" {run.iterations} for registration: increase run.iterations, or reduce"
            " run.pretrain (0 for none)"
        )
    if backbone and segments(config) and not backbone.can_segment:
        raise ConfigError(
            f"loss.segmentation needs the backbone {' or '.join(known('can_segment'))} with"
            f" segmentation_classes, not {config.model.backbone}; set it to 0, in"
            " loss.phases, too"
        )


def _check_known(config: Config) -> None:
    if not config.known.share:
        return
    if config.data.pairs == "synthetic":
        raise ConfigError(
            "'known.share' needs the volumes of a data folder, and 'data.pairs' = 'synthetic' has"
            " none: set it to 0; synthetic pairs have a known truth"
        )
    iterations = (0, *(phase["iteration"] for phase in config.loss.phases))
    rewarded = config.policy.kind != "none" and config.policy.w_truth < 0
    learnt = rewarded or any(config.loss.at(v).truth > 0 for v in iterations)
    if config.run.stage != "finetune" or not learnt:
        raise ConfigError(
            f"'known.share' = {config.known.share:g} has no effect without a weight 'loss.truth'"
            " above 0 in fine-tuning: set loss.truth=0.3, or known.share=0"
        )


def _check_policy(config: Config) -> None:
    if config.policy.trajectories < 2:
        raise ConfigError(
            f"'policy.trajectories' must be 2 or more, not {config.policy.trajectories}:"
            " samples are compared with each other"
        )
    if weighs_segmentation(config):
        raise ConfigError(
            "'loss.segmentation' cannot be combined with a policy ('policy.kind' ="
            f" {config.policy.kind!r}); set it to 0, in loss.phases, too"
        )


def check_rank(config: Config, backbone: PolicyBackbone) -> None:
    """Refuse more noise directions than the latent has channels."""
    if (
        config.run.stage == "finetune"
        and config.policy.kind == "structured"
        and config.policy.rank > backbone.latent_channels
    ):
        raise ConfigError(
            f"'policy.rank' must be at most the network's {backbone.latent_channels}"
            f" latent channels, not {config.policy.rank}"
        )


def weighs_segmentation(config: Config) -> bool:
    iterations = (0, *(phase["iteration"] for phase in config.loss.phases))
    return any(config.loss.at(iteration).segmentation > 0 for iteration in iterations)


def segments(config: Config) -> bool:
    """Whether any phase of the run uses the loss of the auxiliary segmentation in registration
    iterations.
    """
    return (
        config.run.stage == "finetune"
        and config.policy.kind == "none"
        and weighs_segmentation(config)
    )


def with_segmentation(config: Config) -> Config:
    """Return the configuration with a segmentation class for every label, if the run uses the
    auxiliary segmentation.
    """
    used = config.run.pretrain or segments(config)
    backbone = BACKBONES.get(config.model.backbone)
    if (
        not used
        or not (backbone and backbone.can_segment)
        or config.model.options.get("segmentation_classes") == config.data.labels
    ):
        return config
    return config.replace(**{"model.options.segmentation_classes": config.data.labels})


def start_from(init: str | Path, backbone: PolicyBackbone, config: Config, tell: bool) -> None:
    """Give a network the weights of a checkpoint or a bundle."""
    learnt: Mapping[str, Any]
    if Path(init).suffix.lower() == ".onnx":
        learnt = read_manifest(init)
        weights, network = bundle_weights(init, backbone), learnt["backbone"]
    else:
        other, its, _ = load_backbone(init)
        weights, network, learnt = other.state_dict(), its.model.backbone, vars(its.model)
    # A head that serves training only may be missing or have another number of labels.
    own, extra = backbone.state_dict(), backbone.training_only
    weights = {
        k: v
        for k, v in weights.items()
        if not (k.startswith(extra) and k in own and v.shape != own[k].shape)
    }
    misfits = [k for k in own.keys() ^ weights.keys() if not k.startswith(extra)]
    misfits += [k for k in own.keys() & weights.keys() if own[k].shape != weights[k].shape]
    if misfits:
        raise ValueError(
            f"{init} does not fit the configured backbone: its network is {network}, the"
            f" configured one {config.model.backbone}, or their sizes differ"
            f" ({', '.join(sorted(misfits)[:3])}); give both runs the same model.backbone"
            " and model.options"
        )
    backbone.load_state_dict(weights, strict=False)
    if tell and any(k.startswith(extra) and k not in weights for k in own):
        logging.getLogger("morphseek.training").warning(
            "%s has no segmentation head for %s labels: it begins with random weights",
            init,
            config.data.labels,
        )
    if tell:
        _compare(init, config, learnt)


def _compare(init: str | Path, config: Config, learnt: Mapping[str, Any]) -> None:
    """Warn if the weights fit but give other fields in this run. It is no error: training from them
    is slower but possible.
    """
    for key in ("parametrisation", "scale"):
        now = getattr(config.model, key)
        if learnt.get(key, now) != now:
            logging.getLogger("morphseek.training").warning(
                "%s was trained with model.%s = %r, this run has %r: its weights make other"
                " fields here, which may fold at first; set model.%s=%s here, or train the"
                " start as this run",
                init,
                key,
                learnt[key],
                now,
                key,
                learnt[key],
            )
