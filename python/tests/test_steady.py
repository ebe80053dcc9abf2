"""How far results move when nothing changed that matters (benchmarks/steady.py): bounds by kind."""

import sys
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import steady
import truth
import zoo

# mm: the mean change of the points, with a third more than was measured (0.32.0 or later)
BOUNDS = {
    "torso CT": {
        "noise 1e-6": 0.003, "noise 1e-3": 0.16,  # .0001, .12
        "one voxel": 0.05,  # .032
        "intensities + range": 0.001, "lengths / 1024": 0.001,
        "another origin": 0.001, "axes in another order": 0.001, "a voxel of border": 0.001,
    },
    "torso MR, sector": {
        "noise 1e-6": 0.11, "noise 1e-3": 0.21, "one voxel": 0.12,  # .077, .15, .090
        "intensities x 4": 0.001, "whole numbers": 0.1,  # 0, .070
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["torso CT", pytest.param("torso MR, sector", marks=pytest.mark.thorough)]
)
def test_bounds(kind: str):
    (pair,) = zoo.kinds(zoo.Settings(48, 1))[kind].make(1)
    rows = {row["perturbation"]: row for row in steady.measure(pair, list(BOUNDS[kind]))}
    assert {name: row for name, row in rows.items() if row["mean"] > BOUNDS[kind][name]} == {}
    assert not [name for name, row in rows.items() if row["changed"]]


def test_a_perturbation_moves_what_it_says():
    """A method that is right about a shift is right about it in every perturbed pair."""
    rng = np.random.default_rng(0)
    fixed = truth.image_of(rng.random((7, 8, 9), np.float32), sitk.Image(9, 8, 7, sitk.sitkFloat32))
    fixed.SetSpacing((1, 2, 3))
    pair = truth.Pair("shift", fixed, fixed, False)
    sizes = []

    def shift(pair: truth.Pair) -> steady.Registration:
        sizes.append(pair.fixed.GetSpacing()[0])
        return steady.Registration(lambda points: points + 0.5 * sizes[-1], [sizes[-1] > 0])

    rows = list(steady.measure(pair, ["noise 1e-3", "lengths / 1024", "another origin"], shift))
    assert [round(row["max"], 6) for row in rows] == [0, 0, 0]
    assert not any(row["changed"] for row in rows)
