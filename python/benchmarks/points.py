"""Compares what networks gain in overlap with what they lose elsewhere: Dice of two people's
hippocampi, volumes, and the error of points on known motions: everything.py --part networks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
import truth
import zoo

import morphseek


def people_of(data: Path, subset: str) -> list[str]:
    """Return the people of a list of pairs, by name."""
    pairs = json.loads((data / "split.json").read_text())["pairs"][subset]
    return sorted({name for pair in pairs for name in pair})


def known_pairs(data: Path, names: list[str], seed: int, n: int, two: bool) -> list[truth.Pair]:
    """Return known motions of `n` of the people, as of zoo.py's hippocampi; every second moving
    image has a grid of its own.
    """
    chosen = np.random.default_rng([seed, 3]).permutation(names)[:n].tolist()
    pairs = []
    for k, name in enumerate(chosen):
        image = sitk.ReadImage(str(data / "images" / f"{name}.nii.gz"), sitk.sitkFloat32)
        rng = np.random.default_rng([seed, 3, k])  # one motion for both contrasts
        pairs.append(truth.moved(image, zoo.HIPPOCAMPUS, two, k % 2 == 1, rng, name))
    return pairs


def overlap(data: Path, fixed: str, moving: str, options: dict[str, Any]) -> dict[str, float]:
    """Return for two people's pair Dice, Dice by the inverse, sdlogj, and over the labels the mean
    size and mean of the error of volume, %: the sum of the Jacobian over the fixed label against
    the moving label's volume.
    """
    images, labels = (
        [sitk.ReadImage(str(data / kind / f"{name}.nii.gz")) for name in (fixed, moving)]
        for kind in ("images", "labels")
    )
    result = morphseek.register(*images, threads=1, device="cpu", **options)
    jacobian, (at, there) = result.jacobian(), map(sitk.GetArrayViewFromImage, labels)
    voxel = [float(np.prod(image.GetSpacing())) for image in labels]
    changes = []
    for label in np.intersect1d(at[at > 0], there[there > 0]):
        estimate = voxel[0] * float(jacobian[at == label].sum())
        changes.append(100 * (estimate / (voxel[1] * np.count_nonzero(there == label)) - 1))
    return {
        "dice": float(np.mean([score.dice_after for score in result.score(*labels)])),
        "inverse": morphseek.scoring.inverse_dice(result.transform, *labels),
        "volume": float(np.mean(np.abs(changes))),
        "bias": float(np.mean(changes)),
        "sdlogj": result.metrics["sdlogj"],
    }


def measure(data: Path, options: dict[str, Any], pairs: int, people: int) -> dict[str, float]:
    """Return means: of :func:`overlap` over the first test pairs, and the errors of points, "one"
    and "two" contrasts, over known motions of `people` of the test people.
    """
    listed = json.loads((data / "split.json").read_text())["pairs"]["test"][:pairs]
    rows = [overlap(data, fixed, moving, options) for fixed, moving in listed]
    row = {name: float(np.mean([each[name] for each in rows])) for name in rows[0]}
    for key, two in (("one", False), ("two", True)):
        known = known_pairs(data, people_of(data, "test"), 2, people, two)
        how = {"threads": 1, "device": "cpu", **options}
        found = [(pair, morphseek.register(pair.fixed, pair.moving, **how)) for pair in known]
        row[key] = float(np.mean([pair.error(result) for pair, result in found]))
    return {"pairs": len(listed), "people": people, **row}
