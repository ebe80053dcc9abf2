"""The label that most images give a voxel, and how well each agrees with it."""

from __future__ import annotations

import numpy as np

from .._percentiles import distinct


class Votes:
    """Label maps on one grid that vote, voxel by voxel.

    Each voxel gets the label that most maps give it; where several have as many, the smallest one.
    SimpleITK's LabelVoting leaves such voxels undecided, and lets no map abstain where it does not
    reach.
    """

    def __init__(self, shape: tuple[int, ...]):
        self._shape = shape
        self._counts: dict[int, np.ndarray] = {0: np.zeros(shape, np.uint16)}

    def add(self, labels: np.ndarray, reached: np.ndarray) -> None:
        """Take in what one image says, where it reaches."""
        for value in {0, *map(int, distinct(labels))}:
            if value not in self._counts:
                self._counts[value] = np.zeros(self._shape, np.uint16)
            self._counts[value] += (labels == value) & reached

    @property
    def labels(self) -> list[int]:
        """All labels that there are, but 0."""
        return sorted(set(self._counts) - {0})

    def result(self, without: tuple[np.ndarray, np.ndarray] | None = None) -> np.ndarray:
        """Return the labels, or those that the others would give without one's own vote."""
        best = np.zeros(self._shape, np.int64)
        most = np.zeros(self._shape, np.uint16)
        for value in sorted(self._counts, key=lambda v: (v != 0, v)):
            count = self._counts[value]
            if without is not None:
                count = count - ((without[0] == value) & without[1]).astype(np.uint16)
            more = count > most
            best[more], most[more] = value, count[more]
        return best


def dice(own: np.ndarray, voted: np.ndarray) -> dict[int, float]:
    """Return the overlap of two maps for each label but 0 that the first one has.

    >>> dice(np.array([1, 1, 2, 0]), np.array([1, 0, 2, 3]))
    {1: 0.6666666666666666, 2: 1.0}
    """
    found = {}
    for value in (int(v) for v in distinct(own) if v):
        a, b = own == value, voted == value
        found[value] = float(2 * (a & b).sum() / (a.sum() + b.sum()))
    return found
