"""Measures what channels gain: the overlap of organs and the error of points of made-up torsos,
with label maps as a channel and without: everything.py --part channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import morphseek
from morphseek import Channel, phantom


def measure(contrasts: tuple[str, str], seed: int, size: int) -> dict[str, Any]:
    """Return a made-up pair's mean Dice and mean error of points in mm, each without and with its
    labels as a channel.
    """
    made = phantom.make_pair(size=size, seed=seed, contrasts=contrasts)
    labels = Channel(made.fixed_labels, made.moving_labels, labels=True)
    dice, points = [], []
    for channels in ([], [labels]):
        result = morphseek.register(made.fixed, made.moving, channels=channels, threads=1)
        scores = result.score(made.fixed_labels, made.moving_labels)
        dice.append(float(np.mean([s.dice_after for s in scores])))
        points.append(float(made.errors(result)["after"]["mean_mm"]))
    name = f"{contrasts[0]} <- {contrasts[1]} of one body, {seed}"
    return {"pair": name, "dice": dice, "points": points}
