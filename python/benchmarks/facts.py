"""Writes what the engine's choices follow from, pair by pair, and how large the error is by other
choices: python facts.py --out ../../engine/internal/plan/testdata/facts.json [--data DIR].

Every pair of zoo.py's kinds that has points is registered by the defaults, whose report has the
facts, the kind of pair that they were taken for (the regime) and the share of the search; then by
each of SMOOTHNESS. The test beside the table of regimes replays the choices on the facts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import SimpleITK as sitk
import truth
import zoo

import morphseek

SMOOTHNESS = ("low", "high", 1.5, 4.0, 9.0)
"""The option smoothness; numbers are voxels of the fixed image."""


def row_of(kind: str, pair: truth.Pair) -> dict[str, Any]:
    """Register a pair in every way; return its facts and errors, mm, by smoothness."""
    voxel = truth.voxel_of(pair.fixed)
    result = morphseek.register(pair.fixed, pair.moving)
    plan = result.metrics["plan"]
    errors = {"auto": pair.error(result)}
    for word in SMOOTHNESS:
        asked = word if isinstance(word, str) else float(np.clip(word * voxel, 0.1, 100))
        other = morphseek.register(pair.fixed, pair.moving, smoothness=asked)
        errors[word if isinstance(word, str) else f"{word:g} voxels"] = pair.error(other)
    return {
        "kind": kind,
        "pair": pair.name,
        "regime": plan["regime"],
        "search": plan["facts"].get("searched", 0.0),
        "facts": {name: float(f"{x:.9g}") for name, x in sorted(plan["facts"].items())},
        "errors": {name: round(x, 3) for name, x in errors.items()},
    }


@click.command(context_settings={"show_default": True})
@click.option("--out", type=Path, required=True, help="JSON file to write")
@click.option("--data", type=Path, help="folder of real images, for more kinds")
@click.option("--n", default=1, help="pairs of a kind")
def main(out: Path, data: Path | None, n: int) -> None:
    """Write facts and errors of every kind's pairs."""
    settings = zoo.Settings(n=n, data=data)
    rows: list[dict[str, Any]] = []
    for kind in zoo.kinds(settings).values():
        if kind.lacking:
            print(f"{kind.name}: skipped, lacks {kind.lacking}", flush=True)
            continue
        for pair in kind.make(1):
            if pair.fixed_points is None:
                continue
            rows.append(row_of(kind.name, pair))
            print(json.dumps(rows[-1]), flush=True)
            out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(2)
    main()
