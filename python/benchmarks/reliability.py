"""Compares the estimated error with the true one, from a file of `zoo.py --json`, and again with
each body left out of the fit by turns.

python reliability.py zoo.json --out FOLDER writes FOLDER/reliability.svg and .png, and prints the
table. The body is the part of a kind's name before the first comma: kinds of one body differ only
by their disturbance, so they are left out together.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import zoo
from numpy.typing import NDArray
from scipy import stats

BINS = 6
"""Number of points of the curve: groups of equally many pairs, sorted by their estimate."""

Columns = dict[str, NDArray[np.float64]]


def columns(rows: list[zoo.Row]) -> tuple[list[str], Columns]:
    """Return the body of every pair that moved, and as columns the true mean error, the estimate,
    the voxel size (all mm) and the correlation from which the estimate is computed. Pairs without
    an error are left out, because the scale is logarithmic.
    """
    bodies, found = [], []
    for row in rows:
        true, verdict = zoo.value(row, "error.mean"), row.get("verdict") or {}
        if row["method"] != zoo.OURS or row["state"] != "final" or not true or not verdict:
            continue
        bodies.append(row["kind"].partition(",")[0])
        found.append((true, verdict["error_mm"], row["voxel_mm"], row["referee"]["correlation"]))
    table = np.array(found, float).reshape(-1, 4)
    names = ("true", "estimated", "voxel", "correlation")
    return bodies, dict(zip(names, table.T, strict=True))


def fitted(c: Columns, to: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a v^b (1.02 - C)^c, the engine's formula, to some of the pairs. Return log a, b and c,
    and the estimates of all pairs by it.
    """
    terms = np.stack(
        [np.ones_like(c["true"]), np.log(c["voxel"]), np.log(1.02 - c["correlation"].clip(0, 1))], 1
    )
    by = np.linalg.lstsq(terms[to], np.log(c["true"][to]), rcond=None)[0]
    return by, np.exp(terms @ by)


def left_out(bodies: list[str], c: Columns) -> NDArray[np.float64]:
    """Return every pair's estimate by a fit to the pairs of the other bodies."""
    estimates = np.empty_like(c["true"])
    for body in set(bodies):
        of = np.array([b == body for b in bodies])
        estimates[of] = fitted(c, ~of)[1][of]
    return estimates


def described(true: NDArray[np.float64], estimated: NDArray[np.float64]) -> str:
    """Return how estimates follow the truth, in words."""
    log = np.log(true / estimated)
    inside = np.mean(np.abs(log) < np.log(2))
    return (
        f"{len(true)} pairs, rank correlation {stats.spearmanr(true, estimated).statistic:.2f},"
        f" scatter a factor of {np.exp(np.std(log)):.2f}, median truth / estimate"
        f" {np.exp(np.median(log)):.2f}, within a factor of two {100 * inside:.0f} %"
    )


@click.command(context_settings={"show_default": True})
@click.argument("results", type=Path)
@click.option("--out", default=Path(), type=Path, help="Folder for the figure.")
def main(results: Path, out: Path) -> None:
    """Draw the estimated error against the true one, and print how well they agree. RESULTS is what
    zoo.py --json wrote.
    """
    bodies, c = columns(json.loads(results.read_text())["rows"])
    by, _ = fitted(c, np.ones(len(bodies), bool))
    others = left_out(bodies, c)
    print(f"the engine's: {described(c['true'], c['estimated'])}")
    print(f"fitted anew:  {np.exp(by[0]):.2f} v^{by[1]:.2f} (1.02 - C)^{by[2]:.2f}")
    print(f"each body by a fit to the others: {described(c['true'], others)}")
    for body in sorted(set(bodies)):
        of = np.array([b == body for b in bodies])
        print(f"  {body}: {described(c['true'][of], others[of])}" if of.sum() > 2 else f"  {body}")

    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    for body in sorted(set(bodies)):
        of = np.array([b == body for b in bodies])
        axes.loglog(c["estimated"][of], c["true"][of], ".", alpha=0.7, label=body)
    groups = [g for g in np.array_split(np.argsort(c["estimated"]), BINS) if len(g)]
    middle = [np.median(c["estimated"][g]) for g in groups]
    spread = np.array([np.percentile(c["true"][g], (10, 50, 90)) for g in groups])
    axes.errorbar(
        middle,
        spread[:, 1],
        [spread[:, 1] - spread[:, 0], spread[:, 2] - spread[:, 1]],
        fmt="ko-",
        capsize=3,
        label="median, 10 % to 90 %",
    )
    ends = [c["estimated"].min(), c["estimated"].max()]
    axes.loglog(ends, ends, "k--", linewidth=0.8, label="as estimated")
    axes.set(xlabel="estimated error, mm", ylabel="true mean error, mm")
    axes.legend(fontsize=7)
    for suffix in ("svg", "png"):
        figure.savefig(out / f"reliability.{suffix}", dpi=110)


if __name__ == "__main__":
    main()
