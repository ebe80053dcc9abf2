"""Measures the cost of the bindings, Python -> Go -> Python: the time of morphseek.register that is
not the engine's, as a share of the engine's.

Run by hand: python tests/bench_bindings.py [nz ny nx]
"""

from __future__ import annotations

import sys
import time

import numpy as np

import morphseek

shape = tuple(int(n) for n in sys.argv[1:4]) or (160, 192, 224)
z, y, x = np.ogrid[tuple(slice(-1, 1, n * 1j) for n in shape)]
fixed, moving = (
    np.exp(-4 * ((x - s) ** 2 + 2 * y**2 + z**2)).astype(np.float32) for s in (0.0, 0.05)
)
for _ in range(3):
    start = time.perf_counter()
    result = morphseek.register(fixed, moving)
    wall = time.perf_counter() - start
    engine = result.metrics["seconds"]["total"]
    print(
        f"{shape}: {wall:.2f} s, of which the engine {engine:.2f} s; the way there and back"
        f" {100 * (wall - engine) / wall:.2f} %"
    )
