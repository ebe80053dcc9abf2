"""The learning rate and the number of steps over a run."""

from __future__ import annotations

import math

from ..config.schema import Config


def learning_rate(config: Config, iteration: int) -> float:
    """Rate during iteration number ``iteration`` (from 0)."""
    o = config.optim
    if iteration < o.warmup:
        return o.lr * (iteration + 1) / o.warmup
    if o.schedule == "constant":
        return o.lr
    share = (iteration - o.warmup) / max(config.run.iterations - o.warmup, 1)
    return o.lr * (o.final + (1.0 - o.final) * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0))))


def steps(config: Config, iteration: int) -> int:
    """Return T during iteration number ``iteration``."""
    t = config.run.steps
    for start, value in sorted(config.run.steps_schedule, key=lambda entry: entry[0]):
        if iteration >= start:
            t = value
    return t
