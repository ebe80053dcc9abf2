"""How slow this machine is now, to scale limits by.

``python pace.py SECONDS`` prints a limit for what begins later, for CMake.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time

REFERENCE_S = 0.25
"""What `_work` takes on the idle machine that the limits are written for (an EPYC of 2024)."""
MOST = 20.0
"""Beyond it a hang could not be told from work."""


def _work() -> int:
    total = 0
    for i in range(4_000_000):
        total += i & 7
    return total


@functools.cache
def _measured() -> float:
    began = time.perf_counter()
    _work()
    return (time.perf_counter() - began) / REFERENCE_S


def pace() -> float:
    """Return how many times longer things take than on that machine, at least 1: what a fixed piece
    of work took, or how many others want each processor, whichever is more.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0
    return min(max(1.0, _measured(), waiting), MOST)


def limit(seconds: float) -> float:
    """Return a limit for something that must not take longer than this on an idle machine."""
    return seconds * pace()


if __name__ == "__main__":
    print(math.ceil(float(sys.argv[1]) * max(4.0, pace())))
