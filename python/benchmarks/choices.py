"""Measures whether another choice than the plan's would have been better: runs every candidate of
CANDIDATES on pairs with known truth, and compares learned choices with the best of them.

python choices.py --out FOLDER --data DIR appends a line per pair and candidate to FOLDER/rows.jsonl
and prints the tables. Rows in the file are not run again, so a run that was killed, or ended by
--minutes, can be continued; --minutes 0 runs nothing. Choosers that learn (choosers.py) need
scikit-learn and PyTorch; without them their rows are left out.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import choosers
import click
import numpy as np
import SimpleITK as sitk
import truth
import zoo
from intervals import interval
from numpy.typing import NDArray
from rows import Row, Task, collect, read
from scipy import ndimage

import morphseek
from morphseek._streams import open_streams
from morphseek.errors import MorphSeekError
from morphseek.scoring.statistics import signed_rank_p


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A choice of options that a user could have made instead of the defaults. `width` is the
    distance over which tissue moves together, in voxels; None leaves it to the plan. Without
    `deforms` it stops after the initial alignment.
    """

    initial: str = "affine"
    similarity: str = "auto"
    search: str | bool = "auto"
    width: float | None = None
    deforms: bool = True

    def options(self, voxel_mm: float) -> Row:
        """Return the keywords of :func:`morphseek.register`."""
        asked: Row = {"initial": self.initial, "similarity": self.similarity}
        if not self.deforms:
            return asked | {"search": False, "refine": 0}
        width = "auto" if self.width is None else float(np.clip(self.width * voxel_mm, 0.1, 100))
        return asked | {"search": self.search, "smoothness": width}


PLAN, HEADER = "plan", "header"

CANDIDATES = {
    PLAN: Candidate(),
    HEADER: Candidate("none", deforms=False),
    "affine alone": Candidate(deforms=False),
    "rigid alone": Candidate("rigid", deforms=False),
    "rigid": Candidate("rigid"),
    "from the header": Candidate("none"),
    "mse": Candidate(similarity="mse"),
    **{f"{width:g} voxels": Candidate(width=width) for width in (1.5, 4, 9)},
    **{f"rigid, {s}": Candidate("rigid", s) for s in ("ncc", "mind")},
    **{
        f"{s}, search {search}" + ("" if width is None else f", {width:g} voxels"): Candidate(
            similarity=s, search=search == "on", width=width
        )
        for s in ("ncc", "mind")
        for search in ("off", "on")
        for width in (None, 2.5, 6)
    },
}
"""The candidates by name: single changes of the plan, and all combinations of similarity, search
and width.
"""

KINDS = (
    "hippocampus",
    "torso MR <- CT",
    "made-up head",
    "torso CT, cropped",
    "hippocampus, two contrasts",
    "made-up limb, two contrasts",
    "head template, two contrasts",
    "torso CT, resection",
    "torso MR, speckle",
    "made-up medley",
    "hippocampus, noise",
    "torso MR <- CT, cropped",
    "torso CT, noise",
    "made-up head, two contrasts",
    "torso CT, sliding",
    "head template, resection",
    "torso CT, two contrasts",
    "made-up medley, two contrasts",
    "torso MR, bias",
    "made-up limb",
    "torso CT, slices of 12 mm",
    "head template, noise",
    "torso MR <- CT, sliding",
    "torso CT, partial view",
    "torso MR <- CT, noise",
    "torso CT",
    "head template",
    "torso MR <- CT, partial view",
    "head template, slices of 5 mm",
    "torso MR",
)
"""The kinds that run unless --kinds is given. Bodies alternate, so that a run that ends early has
some of each.
"""


# -------------------------------------------------------------------------------------- Collecting


def noise_of(image: sitk.Image) -> float:
    """Return the noise of an image as a share of its range: from the median absolute difference
    between a voxel and the mean of its two neighbours along an axis, where there is tissue.
    """
    array = truth.array_of(truth.scaled(image))
    steps = np.stack([array - (np.roll(array, 1, k) + np.roll(array, -1, k)) / 2 for k in range(3)])
    tissue = (array > truth.FOREGROUND) & (array < 1)
    if not tissue.any():
        return 0.0
    return float(1.4826 * np.median(np.abs(steps[:, tissue])) / np.sqrt(1.5))


def local_correlation(a: NDArray[Any], b: NDArray[Any], window: int = 7) -> tuple[float, float]:
    """Return the mean squared correlation of two arrays (z, y, x) within windows of so many
    voxels, weighted by their variance, and the share of it that is negative.
    """
    a, b = (x.astype(np.float64) for x in (a, b))

    def mean(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return ndimage.uniform_filter(x, window, mode="nearest")

    cross = mean(a * b) - mean(a) * mean(b)
    variances = [np.maximum(mean(x * x) - mean(x) ** 2, 0) for x in (a, b)]
    weight = np.sqrt(variances[0] * variances[1])
    seen = weight > 1e-3 * weight.max()
    squared = np.where(seen, cross**2 / np.maximum(weight**2, 1e-12), 0).clip(0, 1)
    total = float((weight * squared).sum())
    share = float((weight * squared)[cross < 0].sum()) / max(total, 1e-12)
    return total / max(float(weight[seen].sum()), 1e-12), share


def run_one(pair: truth.Pair, candidate: Candidate) -> Row:
    """Register a pair by a candidate, one thread, and return its error at the known points (mm)
    with what the registration measured. A failure has the error from before.
    """
    started = time.process_time()
    before = float(np.linalg.norm(pair.fixed_points - pair.moving_points, axis=1).mean())
    if candidate == CANDIDATES[HEADER]:
        return {"error": before, "cpu_seconds": 0.0, "status": "ok"}
    try:
        result = morphseek.register(
            pair.fixed, pair.moving, threads=1, **candidate.options(truth.voxel_of(pair.fixed))
        )
    except MorphSeekError as error:
        return {
            "error": before,
            "cpu_seconds": time.process_time() - started,
            "status": f"failed: {error}",
        }
    seconds = time.process_time() - started
    m = result.metrics
    squared, negative = local_correlation(truth.array_of(pair.fixed), np.asarray(result.warped))
    return {
        "error": pair.error(result),
        "cpu_seconds": seconds,
        "status": "ok",
        "facts": {
            **{f"align {k}": float(m["align"][k]) for k in ALIGN},
            **{f"plan {k}": float(m["plan"][k]) for k in ("agreement", "search", "smoothness_mm")},
            "plan start": m["plan"]["start"],
            "plan similarity": m["plan"]["similarity"],
            **{f"referee {k}": float(m["referee"][k]) for k in REFEREE},
            **{k: float(m[k]) for k in MEASURED},
            "error_mm": float(m["verdict"]["error_mm"] or 0),
            "local correlation": squared,
            "negative": negative,
        },
    }


ALIGN = ("score", "confidence", "overlap", "same_modality", "turn_degrees")
REFEREE = ("gain", "correlation", "start", "end", "reach_mm", "common", "mirrored")
MEASURED = ("similarity_before", "similarity_align", "similarity_after", "sdlogj", "njd_percent")


def tasks(chosen: list[zoo.Kind], seeds: list[int], names: list[str], size: int) -> Iterator[Task]:
    """Yield the candidates of every pair that has points."""
    for kind in chosen:
        for seed in seeds:
            for pair in kind.make(seed):
                if pair.fixed_points is None:
                    continue
                images = pair.fixed, pair.moving
                about: Row = {
                    "voxel_mm": truth.voxel_of(pair.fixed),
                    "voxels": int(np.prod(pair.fixed.GetSize())),
                    "anisotropy": [max(i.GetSpacing()) / min(i.GetSpacing()) for i in images],
                    "noise": [noise_of(i) for i in images],
                    "size": size,
                }
                for name in names:
                    head = {"kind": kind.name, "seed": seed, "pair": pair.name, "candidate": name}
                    yield head, lambda p=pair, a=about, n=name: a | run_one(p, CANDIDATES[n])


# --------------------------------------------------------------------------------------- Comparing

FACTS = (
    *(f"align {k}" for k in ALIGN),
    "plan agreement",
    "plan search",
    *(f"referee {k}" for k in REFEREE),
    *MEASURED,
    "error_mm",
)
HARM = -1.0
"""The least gain that choosers see: a harm beyond a factor e counts as a factor e."""


@dataclasses.dataclass(frozen=True)
class Table:
    """The pairs for which every candidate was run: their kinds, the candidates' names, the plan
    first, the errors (pairs, candidates) in mm, and the facts (pairs, facts) that choosers see.
    """

    kinds: list[str]
    names: list[str]
    errors: NDArray[np.float64]
    facts: NDArray[np.float64]

    @property
    def gains(self) -> NDArray[np.float64]:
        """(pairs, candidates): log(the plan's error / the candidate's)."""
        return np.log(self.errors[:, :1] / self.errors)


def table_of(rows: list[Row], names: list[str]) -> Table:
    """Return the pairs of a run for which all candidates were run."""
    by_pair: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        by_pair.setdefault((row["kind"], row["seed"], row["pair"]), {})[row["candidate"]] = row
    whole = {k: v for k, v in by_pair.items() if all(n in v for n in names) and "facts" in v[PLAN]}

    def facts(found: dict[str, Row]) -> list[float]:
        plan, affine = found[PLAN], found.get("affine alone", {}).get("facts", {})
        own = plan["facts"]
        return [
            *(own[name] for name in FACTS),
            float(own["plan start"] == "header"),
            float(own["plan start"] == "rigid"),
            float(own["plan similarity"] == "mind"),
            np.log(own["plan smoothness_mm"] / plan["voxel_mm"] + 1),
            affine.get("local correlation", 0.0),
            affine.get("negative", 0.0),
            np.log(plan["voxels"]),
            np.log(plan["voxel_mm"]),
            *np.log(plan["anisotropy"]),
            *np.log(np.array(plan["noise"]) + 1e-3),
        ]

    errors = [[found[n]["error"] for n in names] for found in whole.values()]
    return Table(
        [kind for kind, _, _ in whole],
        names,
        np.array(errors).reshape(-1, len(names)),
        np.array([facts(found) for found in whole.values()]),
    )


def gain_of(t: Table, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return each pair's gain by the candidates chosen."""
    return t.gains[np.arange(len(chosen)), chosen]


def percent(gain: float) -> float:
    """Return by how many percent of the plan's error a mean gain lowers it."""
    return 100 * (1 - float(np.exp(-gain)))


def by_kind(t: Table, gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean gain of each kind, in their order."""
    return np.array(
        [np.mean(gains[[k == kind for k in t.kinds]]) for kind in dict.fromkeys(t.kinds)]
    )


def compared(t: Table, gains: NDArray[np.float64]) -> Row:
    """Compare gains with the plan, each kind counting once: the percent gained, its 95 % interval
    by bootstrap over kinds, the number of kinds better and worse, and Wilcoxon's p over kinds.
    """
    means = by_kind(t, gains)
    low, high = interval(means)
    return {
        "gain": percent(means.mean()),
        "low": percent(low),
        "high": percent(high),
        "better": int((means > 1e-9).sum()),
        "worse": int((means < -1e-9).sum()),
        "p": signed_rank_p(np.where(np.abs(means) > 1e-9, means, 0)),
    }


def learned(t: Table, seeds: tuple[int, ...] = (1, 2, 3)) -> dict[str, NDArray[np.float64]]:
    """Return the gains (pairs,) of every chooser that can run here. For each kind it learns from
    the others; gains are means over the seeds.
    """
    found = {}
    for name, (needs, chooser) in choosers.CHOOSERS.items():
        if len(set(t.kinds)) < 2 or not importlib.util.find_spec(needs):
            click.echo(f"left out: {name}: needs {needs} and two kinds", err=True)
            continue
        held = t.facts, np.maximum(t.gains, HARM), t.kinds
        found[name] = np.mean(
            [gain_of(t, choosers.left_out(chooser, *held, seed)) for seed in seeds], axis=0
        )
    return found


def ceilings(t: Table, ways: dict[str, NDArray[np.float64]]) -> str:
    """Return one row per kind: the errors of the plan and the oracle, the gains in percent of the
    plan's error, and the oracle's choices.
    """
    lines = [
        f"| kind (pairs) | plan, mm | oracle, mm{''.join(f' | {name}, %' for name in ways)}"
        " | oracle's choices |",
        "|---|" + "---:|" * (2 + len(ways)) + "---|",
    ]
    for kind in dict.fromkeys(t.kinds):
        of = np.array([k == kind for k in t.kinds])
        cells = [
            f"{kind} ({of.sum()})",
            *(f"{e[of].mean():.2f}" for e in (t.errors[:, 0], t.errors.min(1))),
            *(f"{percent(gains[of].mean()):.0f}" for gains in ways.values()),
            "; ".join(t.names[j] for j in t.gains.argmax(1)[of]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def summary(t: Table, ways: dict[str, NDArray[np.float64]]) -> str:
    """Return one row per way to choose, with the values of :func:`compared`."""
    lines = ["| choice | gain, % (95 %) | kinds better, worse | p |", "|---|---:|---:|---:|"]
    for name, gains in ways.items():
        c = compared(t, gains)
        lines.append(
            f"| {name} | {c['gain']:.1f} ({c['low']:.1f} to {c['high']:.1f}) |"
            f" {c['better']}, {c['worse']} | {c['p']:.2g} |"
        )
    return "\n".join(lines) + "\n"


@click.command(context_settings={"show_default": True})
@click.option("--out", type=Path, required=True, help="Folder of rows.jsonl.")
@click.option("--data", type=Path, help="Folder of real images, as for zoo.py.")
@click.option("--kinds", multiple=True, help="As for zoo.py; else kinds that take seconds.")
@click.option("--candidates", default=";".join(CANDIDATES), help="Which; semicolons between.")
@click.option("--seeds", default="1,2", help="As for zoo.py.")
@click.option("--size", default=48, type=click.IntRange(16), help="As for zoo.py.")
@click.option("--minutes", default=600.0, help="Start no registration after so many.")
def main(
    out: Path, data: Path | None, kinds: tuple[str, ...], candidates: str, seeds: str, size: int,
    minutes: float,
) -> None:  # fmt: skip
    """Run the registrations that the folder lacks, and compare the plan with other choices."""
    names = [PLAN, *(name for name in candidates.split(";") if name and name != PLAN)]
    if unknown := [name for name in names if name not in CANDIDATES]:
        raise click.BadParameter(
            f"there is no candidate {unknown[0]!r}; there are {'; '.join(CANDIDATES)}",
            param_hint="--candidates",
        )
    every = zoo.kinds(zoo.Settings(size, 1, data, out / "pairs"))
    wanted = kinds or [f"={kind}" for kind in KINDS if kind in every]
    chosen = zoo.choose(every, wanted, lambda text: click.echo(text, err=True))
    if not kinds:
        chosen.sort(key=lambda kind: KINDS.index(kind.name))
    path = out / "rows.jsonl"
    for row in read(path) if minutes else []:
        if (row["size"], row["version"]) != (size, morphseek.__version__):
            raise click.BadParameter(
                f"{path} is of size {row['size']} and version {row['version']}; name another"
                " folder",
                param_hint="--out",
            )
    runs = tasks(chosen, [int(seed) for seed in seeds.split(",")], names, size)
    for row in collect(path, runs, minutes) if minutes else []:
        click.echo(
            f"{row['kind']} | {row['pair']} | {row['candidate']} | {row['error']:.2f} mm |"
            f" {row['cpu_seconds']:.1f} CPU s | {row['status']}"
        )
    rows = read(path)
    t = table_of(rows, names)
    if not t.kinds:
        raise click.BadParameter(
            f"{path} has no pair that every candidate was run on; give it more --minutes",
            param_hint="--out",
        )
    click.echo(f"\n{sum(row['cpu_seconds'] for row in rows) / 3600:.2f} CPU hours\n")
    ways = {"the oracle": t.gains.max(1), **learned(t)}
    click.echo(ceilings(t, ways))
    click.echo("Each kind by what was learned from the others:\n\n" + summary(t, ways))


if __name__ == "__main__":
    open_streams()
    main()
