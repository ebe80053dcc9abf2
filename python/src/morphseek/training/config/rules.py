"""What the types of a configuration do not say, and how values are filled in."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from typing import Any, Literal

from .errors import ConfigError

#: Least and greatest value, of every number of a list too.
RANGES: dict[str, tuple[float, float]] = {
    # Beyond half a window, a window of no width; beyond the whole size, none left.
    "augment.contrast": (0, 0.49),
    "augment.elastic_mm": (0, math.inf),
    "augment.fixed_share": (0, 1),
    "augment.gamma": (0, math.inf),
    "augment.mirror": (0, 1),
    "augment.noise": (0, math.inf),
    "augment.rotation_deg": (0, math.inf),
    "augment.scale": (0, 0.99),
    "augment.shear": (0, math.inf),
    "augment.translation_mm": (0, math.inf),
    "data.labels": (0, 255),
    "data.limit": (0, math.inf),
    "data.limit_seed": (0, math.inf),
    "data.min_size": (1, math.inf),
    "data.percentiles": (0, 100),
    "data.spacing": (1e-3, 1e3),
    "loss.dice": (0, math.inf),
    "loss.fold": (0, math.inf),
    "loss.fold_margin": (0, math.inf),
    "loss.kl": (0, math.inf),
    "loss.kl_target": (0, math.inf),
    "loss.moving_share": (0, 1),
    "loss.regularity": (0, math.inf),
    "loss.segmentation": (0, math.inf),
    "loss.sharpness": (0, math.inf),
    "loss.truth": (0, math.inf),
    "loss.volume": (0, math.inf),
    "loss.warm": (0, math.inf),
    "loss.window": (1, 99),
    "model.scale": (1e-3, math.inf),
    "model.squarings": (0, 20),
    "optim.accumulate": (1, math.inf),
    "optim.clip": (0, math.inf),
    "optim.ema": (0, 1),
    "optim.final": (0, 1),
    "optim.lr": (0, math.inf),
    "optim.warmup": (0, math.inf),
    "optim.weight_decay": (0, math.inf),
    "policy.gradient_ratio": (0, math.inf),
    "policy.rank": (1, math.inf),
    "policy.refresh": (1, math.inf),
    "policy.refresh_pairs": (1, math.inf),
    "policy.smooth_sd": (0, math.inf),
    "policy.target_sd": (0, math.inf),
    "policy.tau_drop": (0, math.inf),
    "policy.tau_every": (1, math.inf),
    "policy.tau_init": (0, math.inf),
    "policy.tau_min": (0, math.inf),
    "policy.trajectories": (1, math.inf),
    "policy.w_dice": (0, math.inf),
    "policy.w_njd": (-math.inf, 0),
    "policy.weight": (0, math.inf),
    "run.checkpoint_minutes": (0, math.inf),
    "run.keep_every": (0, math.inf),
    "run.picture_every": (0, math.inf),
    "run.pretrain": (0, math.inf),
    "run.pretrain_joint_every": (0, math.inf),
    "run.seed": (0, 2**63 - 1),
    "run.steps": (1, 99),
    "run.threads": (0, 4096),
    "run.val_every": (1, math.inf),
    "run.val_pairs": (0, math.inf),
    "run.val_steps": (1, 99),
    "run.visits": (0, math.inf),
}


def between(least: float, most: float) -> str:
    if least == -math.inf:
        return f"{most:g} or less"
    return f"{least:g} or more" if most == math.inf else f"between {least:g} and {most:g}"


def at_visit(section: Any, visit: int, name: str) -> Any:
    """A section with the changes of its ``phases`` up to ``visit``."""
    values = {k: v for k, v in dataclasses.asdict(section).items() if k != "phases"}
    for phase in sorted(section.phases, key=lambda p: p.get("visit", 0)):
        if "visit" not in phase:
            raise ConfigError(f"every table of '{name}.phases' needs 'visit'")
        if phase["visit"] <= visit:
            values |= {k: v for k, v in phase.items() if k != "visit"}
    return fill(type(section), values, f"{name}.phases.")


def fill(cls: Any, values: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = (
                f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
            )
            raise ConfigError(f"unknown key {where + key!r}{hint}")
    out = {}
    for key, value in values.items():
        out[key] = _check(hints[key], value, where + key)
    return cls(**out)


def _check(kind: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"{where!r} must be a section ([{where}])")
        return fill(kind, value, f"{where}.")
    if origin is Literal:
        if value not in args:
            raise ConfigError(
                f"{where!r} must be one of {', '.join(map(repr, args))}, not {value!r}"
            )
        return value
    if origin is list:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where!r} must be a list, not {value!r}")
        return [_check(args[0], v, where) for v in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where!r} must be a table, not {value!r}")
        return dict(value)
    if origin is types.UnionType:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where!r} must be {kind.__name__}, not {value!r}")
    return value
