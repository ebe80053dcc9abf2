"""A release keeps results: points of fixed pairs go where the release before took them, to a bound
by kind. A version that moves them farther writes the file anew, and the changelog says so:
python tests/test_release.py > tests/release.json
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import steady
import truth
import zoo

import morphseek

DATA = Path(os.environ.get("MORPHSEEK_DATA", Path(__file__).parents[3] / "shared" / "data"))
STORED = Path(__file__).with_name("release.json")
COUNT = 40  # points of a pair
# mm: how far a release may move the points of a kind, in the mean
BOUNDS = {"torso CT": 0.3, "torso MR": 0.3, "torso MR <- CT": 1.0, "hippocampus, two people": 0.2}


def pair_of(kind: str) -> truth.Pair:
    """Return the first pair of a kind, of 48 voxels where it is made up."""
    source = zoo.kinds(zoo.Settings(48, 1, DATA))[kind]
    if source.lacking:
        pytest.skip(f"NOT COMPARED WITH THE LAST RELEASE: {source.lacking}")
    return next(source.make(1))


def mapped(pair: truth.Pair, points: np.ndarray) -> np.ndarray:
    result = morphseek.register(pair.fixed, pair.moving, threads=1)
    return result.transform_points(points)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.thorough] if "<-" in k else []) for k in BOUNDS]
)
def test_points_stay(kind: str):
    row = json.loads(STORED.read_text(encoding="utf-8"))["kinds"][kind]
    points, before = np.array(row["fixed"]), np.array(row["moving"])
    change = np.linalg.norm(mapped(pair_of(kind), points) - before, axis=1)
    assert change.mean() <= BOUNDS[kind], f"{kind}: moved by {change.mean():.3f} mm"


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in BOUNDS:
        pair = pair_of(kind)
        every = steady.points_of(pair.fixed)
        points = every[:: max(1, len(every) // COUNT)][:COUNT].round(3)
        yield kind, {"fixed": points.tolist(), "moving": mapped(pair, points).round(3).tolist()}


if __name__ == "__main__":
    print(json.dumps({"version": morphseek.__version__, "kinds": dict(rows())}, indent=None))
