"""Measures how slow this machine is now, to scale the tests' time limits.

``python pace.py SECONDS`` prints a limit for CMake, for tests that start later.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time

REFERENCE_S = 0.25
"""Seconds that `_work` takes on an idle machine of the kind that the limits are written for."""
MOST = 20.0
"""The largest factor, so that a hang still ends."""


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
    """Return how many times slower this machine is, at least 1: by the time of a fixed piece of
    work or by the load per processor, whichever is larger.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0
    return min(max(1.0, _measured(), waiting), MOST)


def limit(seconds: float) -> float:
    """Return the time limit here of what must take at most this long on an idle machine."""
    return seconds * pace()


if __name__ == "__main__":
    print(math.ceil(float(sys.argv[1]) * max(4.0, pace())))
