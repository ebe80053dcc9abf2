"""Writes, reads and averages checkpoints."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..._shared import check_regular, write_with
from ..backbones import PolicyBackbone, build_backbone
from ..config.schema import Config

FORMAT = 1


def save_atomic(value: dict[str, Any], path: Path) -> None:
    """Save by ``torch.save``; if the process is killed, the file is the old or the new one."""

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            torch.save(value, file)
            file.flush()
            os.fsync(file.fileno())

    write_with(write, path)


def load_backbone(
    path: str | Path, weights: str = "auto"
) -> tuple[PolicyBackbone, Config, dict[str, Any]]:
    """Rebuild a network from a checkpoint.

    Parameters
    ----------
    path
        ``last.pt`` or ``best.pt`` of a run.
    weights : {"auto", "model", "ema"}
        ``auto``: the moving average, if the run kept one.

    Returns
    -------
    backbone : PolicyBackbone
        In evaluation mode.
    config : Config
    checkpoint : dict
    """
    checkpoint = _read(path, torch.device("cpu"))
    config = Config.from_dict(checkpoint["config"])
    backbone = build_backbone(config.model)
    key = "ema" if weights == "ema" or (weights == "auto" and checkpoint.get("ema")) else "model"
    backbone.load_state_dict(checkpoint[key])
    return backbone.eval(), config, checkpoint


def _read(path: str | Path, device: torch.device) -> dict[str, Any]:
    check_regular(path, "checkpoint")
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        kind = checkpoint.get("format")
    except (pickle.UnpicklingError, EOFError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"{path} is no checkpoint; give the best.pt or last.pt of a run"
        ) from error
    if kind != FORMAT:
        raise ValueError(f"{path}: checkpoint format {kind!r}, this version reads {FORMAT}")
    return checkpoint


def sha256(path: str | Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def check_unused(out: Path) -> None:
    """Refuse a folder with checkpoints of a run that cannot be continued: a new one would write
    over them.
    """
    others = sorted(path.name for path in (*out.glob("best.pt"), *out.glob("iteration-*.pt")))
    if others and not (out / "last.pt").exists():
        raise ValueError(
            f"{out} holds {others[0]} of another run and no last.pt to go on from; move it away, or"
            " choose another --out"
        )


def average(paths: Sequence[str | Path], shares: Sequence[float] | None = None) -> dict[str, Any]:
    """Average the weights of runs that started from the same ones (Wortsman et al., Model soups,
    ICML 2022).

    Such runs end in one basin of the loss, whose middle generalises better to new subjects than its
    rim. Networks that were trained apart cannot be averaged.

    Parameters
    ----------
    paths
        ``last.pt`` or ``best.pt`` of each run, all of the same network. The moving average is
        used if the run kept one.
    shares
        The weight of each checkpoint; equal by default.

    Returns
    -------
    dict
        A checkpoint to evaluate, to export or to start a run from. It has the first run's
        configuration and the largest number of iterations among the runs.

    Raises
    ------
    ValueError
        Fewer than two checkpoints, shares that do not fit them, or different networks.
    """
    if len(paths) < 2:
        raise ValueError("an average takes at least two checkpoints")
    shares = [1.0] * len(paths) if shares is None else list(shares)
    if len(shares) != len(paths) or not all(0 < share < math.inf for share in shares):
        raise ValueError(f"{len(paths)} checkpoints need as many shares, all above 0")
    loaded = [load_backbone(path) for path in paths]
    weights = [backbone.state_dict() for backbone, _, _ in loaded]
    shapes = [{key: value.shape for key, value in w.items()} for w in weights]
    # Offsets and mirrors change how the weights are used, not the weights.
    models = [dataclasses.replace(config.model, offsets=[], mirrored=[]) for _, config, _ in loaded]
    for path, shape, model in zip(paths, shapes, models, strict=True):
        if shape != shapes[0] or model != models[0]:
            raise ValueError(f"{path} and {paths[0]} hold different networks")
    mean = {}
    for key, first in weights[0].items():
        if not first.is_floating_point():
            mean[key] = first  # indices, which cannot be averaged
            continue
        total = sum(
            share * w[key].double() for share, w in zip(shares, weights, strict=True)
        ) / sum(shares)
        mean[key] = total.to(first.dtype)
    return {
        "format": FORMAT,
        "config": loaded[0][1].to_dict(),
        "model": mean,
        "ema": None,
        "iteration": max(checkpoint["iteration"] for _, _, checkpoint in loaded),
        "best": -math.inf,
    }


#: Keys that may change when a run is continued: its length, paths and logging. Keys that affect the
#: weights may not.
_FREE = {
    "run": ("iterations", "device", "threads", "checkpoint_minutes", "keep_every", "picture_every"),
    "data": ("path", "test"),
    "synthetic": ("workers",),
}
_SECTIONS = ("data", "model", "loss", "policy", "optim", "augment", "known", "synthetic", "run")


def read_last(
    out: Path, config: Config, world: int, device: torch.device, start: str | None = None
) -> dict[str, Any]:
    """Return the checkpoint ``last.pt`` of a run, if this run can continue it. ``start`` is the
    checksum of the weights that it is to have started from.

    Raises
    ------
    ValueError
        It was made with another configuration, from other weights, or by another number of
        processes.
    """
    state = _read(out / "last.pt", device)
    # Through Config, so that keys newer than the checkpoint have their defaults.
    saved = Config.from_dict(state["config"]).to_dict()
    now = config.to_dict()
    differs = [
        f"{section}.{key}"
        for section in _SECTIONS
        for key in now[section]
        if saved[section][key] != now[section][key] and key not in _FREE.get(section, ())
    ]
    if differs:
        raise ValueError(
            f"{out}/last.pt was made with another configuration ({', '.join(differs)});"
            " restore these keys, or choose another --out"
        )
    if start is not None and state.get("start", start) != start:
        raise ValueError(
            f"{out}/last.pt started from other weights than those of --init; choose another --out,"
            " or leave --init out to go on"
        )
    # The processes share the pairs: another number of them would repeat some and skip others. Older
    # checkpoints lack the number.
    if (made_by := state.get("world", world)) != world:
        raise ValueError(
            f"{out}/last.pt was made by {made_by} process(es), not {world}; continue with the same"
            f" number, or start another --out with --init {out}/last.pt"
        )
    return state
