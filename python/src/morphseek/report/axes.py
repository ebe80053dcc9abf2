"""Turn volumes to the patient: planes as a radiologist sees them, and their letters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from .._grid import Grid

PLANES = ("axial", "coronal", "sagittal")
# Which of x, y, z run across a plane and down it; downwards z is turned, for the head is up.
ACROSS_DOWN = ((0, 1), (0, 2), (1, 2))
_SIDES = (("R", "L"), ("A", "P"), ("I", "S"))
_OBLIQUE = math.sin(math.radians(15))


class Axes:
    """The index axes of a grid in the patient, and views along the nearest anatomical ones."""

    def __init__(self, grid: Grid):
        self.matrix = grid.index_to_physical
        direction = self.matrix[:3, :3] / np.linalg.norm(self.matrix[:3, :3], axis=0)
        columns = max(  # the index axis that runs along x, y, z
            itertools.permutations(range(3)),
            key=lambda order: sum(abs(direction[r, c]) for r, c in enumerate(order)),
        )
        self.signs = [1.0 if direction[r, c] >= 0 else -1.0 for r, c in enumerate(columns)]
        self.columns = columns
        self._order = [2 - columns[r] for r in (2, 1, 0)]  # the array axes that run along z, y, x
        self._directions = direction[:, columns] * self.signs
        turned = np.zeros((4, 4))  # from the turned index x, y, z to the grid's own
        turned[3, 3] = 1
        for r, c in enumerate(columns):
            turned[c, r] = self.signs[r]
            turned[c, 3] = 0 if self.signs[r] > 0 else grid.size[c] - 1
        self.to_index = turned

    def turn(self, volume: np.ndarray) -> np.ndarray:
        """Return a view of the volume with axes z, y, x running to the head, back and left."""
        flips = (slice(None, None, -1 if self.signs[r] < 0 else 1) for r in (2, 1, 0))
        return volume.transpose(self._order)[tuple(flips)]

    def letters(self) -> list[tuple[str, str]]:
        """Return what lies at the low and the high end of x, y and z: one letter, or the two or
        three that an oblique axis runs between, the nearest first.
        """
        letters = []
        for direction in self._directions.T:
            order = np.argsort(-abs(direction), kind="stable")
            near = [r for r in order if abs(direction[r]) > _OBLIQUE]
            ends = [_SIDES[r] if direction[r] > 0 else _SIDES[r][::-1] for r in near]
            letters.append(("".join(low for low, _ in ends), "".join(high for _, high in ends)))
        return letters

    def tilt(self) -> float:
        """Return by how many degrees an axis is off its anatomical one, at most."""
        worst = min(abs(self._directions[a, a]) for a in range(3))
        return math.degrees(math.acos(min(1.0, float(worst))))


def planes(volume: np.ndarray, at: Sequence[int]) -> list[np.ndarray]:
    """Return the axial, coronal and sagittal slice of a turned volume through x, y, z."""
    x, y, z = at
    return [volume[z], volume[::-1, y], volume[::-1, :, x]]


def plane_sizes(size: Sequence[float]) -> list[tuple[float, float]]:
    """Return height and width of the three planes of a volume that is so long along x, y, z."""
    return [(size[down], size[across]) for across, down in ACROSS_DOWN]


def plane_letters(letters: Sequence[tuple[str, str]]) -> list[tuple[str, str, str, str]]:
    """Return the letters at the left, right, top and bottom of the three planes."""
    rows = []
    for across, down in ACROSS_DOWN:
        top, bottom = letters[down] if down == 1 else letters[down][::-1]
        rows.append((*letters[across], top, bottom))
    return rows
