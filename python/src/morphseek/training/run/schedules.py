"""What changes over a run: the learning rate, the number of steps."""

from __future__ import annotations

import math

from ..config.schema import Config


def learning_rate(config: Config, visit: int) -> float:
    """Rate during iteration number ``visit`` (from 0)."""
    o = config.optim
    if visit < o.warmup:
        return o.lr * (visit + 1) / o.warmup
    if o.schedule == "constant":
        return o.lr
    share = (visit - o.warmup) / max(config.run.iterations - o.warmup, 1)
    return o.lr * (o.final + (1.0 - o.final) * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0))))


def steps(config: Config, visit: int) -> int:
    """T during iteration number ``visit``."""
    t = config.run.steps
    for start, value in sorted(config.run.steps_schedule, key=lambda entry: entry[0]):
        if visit >= start:
            t = value
    return t
