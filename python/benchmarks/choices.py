"""Measures whether another choice than the plan's would have been better: runs every candidate of
CANDIDATES on pairs with known truth, and compares learned choices with the best of them.

python choices.py --out FOLDER --data DIR appends one JSON line per pair and candidate to
FOLDER/rows.jsonl, prints the tables and draws FOLDER/choices.png. Rows in the file are not run
again, so a run that was killed, or ended by --minutes, can be continued; --minutes 0 runs nothing.
A candidate is a set of options; the referee judges its result as any other. The choosers that learn
(choosers.py) need scikit-learn and PyTorch; without them their rows are left out.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import choosers
import click
import numpy as np
import scoring
import SimpleITK as sitk
import truth
import zoo
from intervals import interval
from numpy.typing import NDArray
from scipy import ndimage

import morphseek
from morphseek._streams import open_streams
from morphseek.errors import MorphSeekError
from morphseek.scoring.statistics import signed_rank_p

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A choice of options that a user could have made instead of the defaults.

    Attributes
    ----------
    initial, similarity, search : str or bool
        As the options of these names.
    width : float, optional
        The distance over which tissue moves together, in voxels; None leaves it to the plan.
    deforms : bool
        False stops after the initial alignment.
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


def voxel_of(image: sitk.Image) -> float:
    """Return the edge of a cube with a voxel's volume, mm."""
    return float(np.prod(image.GetSpacing()) ** (1 / 3))


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
    before = scoring.spread(np.linalg.norm(pair.fixed_points - pair.moving_points, axis=1))
    if candidate == CANDIDATES[HEADER]:
        return {"error": before["mean"], "cpu_seconds": 0.0, "status": "ok"}
    try:
        result = morphseek.register(
            pair.fixed, pair.moving, threads=1, **candidate.options(voxel_of(pair.fixed))
        )
    except MorphSeekError as error:
        return {
            "error": before["mean"],
            "cpu_seconds": time.process_time() - started,
            "status": f"failed: {error}",
        }
    seconds = time.process_time() - started
    found = result.transform_points(pair.fixed_points)
    m = result.metrics
    squared, negative = local_correlation(truth.array_of(pair.fixed), np.asarray(result.warped))
    return {
        "error": scoring.spread(np.linalg.norm(found - pair.moving_points, axis=1))["mean"],
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


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file, none if it is missing; a last line that was cut off by a kill is
    left out.
    """
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            rows.append(json.loads(line))
    return rows


def resume(path: Path) -> list[Row]:
    """Return the rows of a file, and remove a last line that was cut off by a kill, so that rows
    can be appended.
    """
    kept = read_rows(path)
    if path.exists():
        path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    return kept


def collect(
    path: Path, chosen: list[zoo.Kind], seeds: list[int], names: list[str], size: int, until: float
) -> Iterator[Row]:
    """Run the registrations that the file lacks, append their rows, and yield each; stop at `until`
    (:func:`time.monotonic`).
    """
    kept = resume(path)
    done = {(row["kind"], row["seed"], row["pair"], row["candidate"]) for row in kept}
    with path.open("a", encoding="utf-8") as file:
        for kind in chosen:
            for seed in seeds:
                for pair in kind.make(seed):
                    if pair.fixed_points is None:
                        continue
                    head = {"kind": kind.name, "seed": seed, "pair": pair.name}
                    image: Row | None = None
                    for name in names:
                        if (kind.name, seed, pair.name, name) in done:
                            continue
                        if time.monotonic() > until:
                            return
                        image = image or {
                            "voxel_mm": voxel_of(pair.fixed),
                            "voxels": int(np.prod(pair.fixed.GetSize())),
                            "anisotropy": [
                                max(i.GetSpacing()) / min(i.GetSpacing())
                                for i in (pair.fixed, pair.moving)
                            ],
                            "noise": [noise_of(i) for i in (pair.fixed, pair.moving)],
                        }
                        row = {
                            **head,
                            "candidate": name,
                            **image,
                            **run_one(pair, CANDIDATES[name]),
                            "size": size,
                            "version": morphseek.__version__,
                        }
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                        yield row


# --------------------------------------------------------------------------------------- Comparing

FACTS = (
    *(f"align {k}" for k in ALIGN),
    "plan agreement",
    "plan search",
    *(f"referee {k}" for k in REFEREE),
    *MEASURED,
    "error_mm",
)
RESULTS = ("referee gain", "referee correlation", "local correlation", "negative", *MEASURED)

HARM = -1.0
"""The least gain that choosers see: a harm beyond a factor e counts as a factor e."""

CEILING = 5.0
"""By how many percent the oracle must lower the plan's error for a kind to be worth learning."""


@dataclasses.dataclass(frozen=True)
class Table:
    """The pairs for which every candidate was run.

    Attributes
    ----------
    kinds, seeds : list
        Kind and seed of each pair.
    names : list of str
        The candidates, the plan first.
    errors : numpy.ndarray
        (pairs, candidates), mm.
    seen : choosers.Seen
    """

    kinds: list[str]
    seeds: list[int]
    names: list[str]
    errors: NDArray[np.float64]
    seen: choosers.Seen

    @property
    def bodies(self) -> list[str]:
        """The body of each pair; kinds of one body differ only by disturbance or contrast."""
        return [kind.partition(",")[0].partition(" ")[0] for kind in self.kinds]

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

    def results(found: dict[str, Row]) -> list[list[float]]:
        nothing = dict.fromkeys(RESULTS, -1.0)
        return [[found[n].get("facts", nothing)[name] for name in RESULTS] for n in names]

    return Table(
        [kind for kind, _, _ in whole],
        [seed for _, seed, _ in whole],
        names,
        np.array([[found[n]["error"] for n in names] for found in whole.values()]).reshape(
            -1, len(names)
        ),
        choosers.Seen(
            np.array([facts(found) for found in whole.values()]),
            np.array([results(found) for found in whole.values()]),
        ),
    )


def reachable(t: Table) -> NDArray[np.intp]:
    """Return for each pair the candidate that is best on the other pairs of its kind, or the plan
    if there are none.
    """
    chosen = np.zeros(len(t.kinds), np.intp)
    for k, kind in enumerate(t.kinds):
        others = [j for j, other in enumerate(t.kinds) if other == kind and j != k]
        if others:
            chosen[k] = int(t.gains[others].mean(0).argmax())
    return chosen


def best_by_referee(t: Table) -> NDArray[np.intp]:
    """Return for each pair the candidate whose own result the referee finds to match best."""
    return t.seen.results[:, :, RESULTS.index("referee correlation")].argmax(1)


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


def worthwhile(t: Table) -> NDArray[np.bool_]:
    """Return which pairs belong to a kind where the oracle gains at least :data:`CEILING`."""
    most = dict(zip(dict.fromkeys(t.kinds), by_kind(t, t.gains.max(1)), strict=True))
    return np.array([percent(most[kind]) >= CEILING for kind in t.kinds])


def learned(t: Table, groups: list[str], seeds: list[int]) -> dict[str, NDArray[np.float64]]:
    """Return the gains (pairs,) of every chooser that can run here. For each group it learns from
    the other groups; gains are means over the seeds.
    """
    if len(set(groups)) < 2:
        return {}
    lacking = {
        name: package
        for package, names in (
            ("sklearn", ("boosted trees", "boosted trees that see every result")),
            ("torch", ("GRPO", "GRPO, advantages undivided")),
        )
        for name in names
        if not importlib.util.find_spec(package)
    }
    held = np.maximum(t.gains, HARM)
    found = {}
    for name, chooser in choosers.CHOOSERS.items():
        if name in lacking:
            click.echo(f"left out: {name}: needs {lacking[name]}", err=True)
            continue
        found[name] = np.mean(
            [gain_of(t, choosers.left_out(chooser, t.seen, held, groups, s)) for s in seeds], axis=0
        )
    return found


def ceilings(t: Table, others: dict[str, NDArray[np.float64]]) -> str:
    """Return one row per kind: the errors of the plan and the oracle, and in percent of the plan's
    error the gains of the oracle, of the best on the kind's other pair, and of the others.
    """
    lines = [
        f"| kind (pairs) | plan, mm | oracle, mm | oracle, % | other pair's best, %"
        f"{''.join(f' | {name}, %' for name in others)} | oracle's choices |",
        "|---|" + "---:|" * (4 + len(others)) + "---|",
    ]
    best, near = t.gains.argmax(1), gain_of(t, reachable(t))
    columns = [t.gains.max(1), near, *others.values()]
    for kind in dict.fromkeys(t.kinds):
        of = np.array([k == kind for k in t.kinds])
        cells = [
            f"{kind} ({of.sum()})",
            *(f"{e[of].mean():.2f}" for e in (t.errors[:, 0], t.errors.min(1))),
            *(f"{percent(gains[of].mean()):.0f}" for gains in columns),
            "; ".join(t.names[j] for j in best[of]),
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


def draw(t: Table, ways: dict[str, NDArray[np.float64]], path: Path) -> None:
    """Draw one row per kind, sorted by the oracle's gain: every way's error over the plan's."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(t.kinds))
    order = np.argsort(by_kind(t, t.gains.max(1)))
    figure = Figure(figsize=(7, 1.2 + 0.2 * len(kinds)), layout="constrained")
    axes = figure.subplots()
    for (name, gains), mark in zip(ways.items(), "|osDx^v", strict=False):
        axes.plot(
            np.exp(-by_kind(t, gains)[order]), range(len(kinds)), mark, markersize=5, label=name
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.axvline(1 - CEILING / 100, color="grey", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(kinds)), [kinds[i] for i in order], fontsize=8)
    axes.set(xlabel="error / the plan's (dotted: 5 % less)", xscale="log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="both", labelsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)


@click.command(context_settings={"show_default": True})
@click.option(
    "--out",
    type=Path,
    required=True,
    help="Folder of rows.jsonl and of the figure; created if missing.",
)
@click.option("--data", type=Path, help="Folder of real images, as for zoo.py.")
@click.option(
    "--kinds",
    multiple=True,
    help="As for zoo.py; without it, kinds of every body that take seconds.",
)
@click.option(
    "--candidates", default="", help="Candidates to compare, separated by semicolons; default: all."
)
@click.option("--seeds", default="1,2", help="As for zoo.py.")
@click.option("--n", default=1, type=click.IntRange(1), help="Pairs of each kind and seed.")
@click.option(
    "--size", default=48, type=click.IntRange(16), help="Voxels along each axis of a made-up body."
)
@click.option(
    "--minutes",
    default=600,
    type=click.FloatRange(0),
    help="Start no registration after so many minutes.",
)
def main(
    out: Path,
    data: Path | None,
    kinds: tuple[str, ...],
    candidates: str,
    seeds: str,
    n: int,
    size: int,
    minutes: float,
) -> None:
    """Run the registrations that the folder lacks, and compare the plan with other choices."""
    out.mkdir(parents=True, exist_ok=True)
    names = [PLAN, *(name for name in candidates.split(";") if name and name != PLAN)]
    names = list(CANDIDATES) if not candidates else names
    if unknown := [name for name in names if name not in CANDIDATES]:
        raise click.BadParameter(
            f"there is no candidate {unknown[0]!r}; there are {'; '.join(CANDIDATES)}",
            param_hint="--candidates",
        )
    every = zoo.kinds(zoo.Settings(size, n, data, out / "pairs"))
    chosen = zoo.choose(
        every,
        kinds or [f"={kind}" for kind in KINDS if kind in every],
        lambda text: click.echo(text, err=True),
    )
    if not kinds:
        chosen.sort(key=lambda kind: KINDS.index(kind.name))
    path = out / "rows.jsonl"
    for row in read_rows(path) if minutes else []:
        if (row["size"], row["version"]) != (size, morphseek.__version__):
            raise click.BadParameter(
                f"{path} is of size {row['size']} and version {row['version']}; name another"
                " folder",
                param_hint="--out",
            )
    runs = [int(seed) for seed in seeds.split(",")]
    until = time.monotonic() + 60 * minutes
    for row in collect(path, chosen, runs, names, size, until):
        click.echo(
            f"{row['kind']} | {row['pair']} | {row['candidate']} | {row['error']:.2f} mm |"
            f" {row['cpu_seconds']:.1f} CPU s | {row['status']}"
        )
    rows = read_rows(path)
    t = table_of(rows, names)
    if not t.kinds:
        raise click.BadParameter(
            f"{path} has no pair that every candidate was run on; give it more --minutes",
            param_hint="--out",
        )
    click.echo(f"\n{sum(row['cpu_seconds'] for row in rows) / 3600:.2f} CPU hours\n")
    ways = {
        "the oracle": t.gains.max(1),
        "the best on the kind's other pair": gain_of(t, reachable(t)),
        "the best by the referee": gain_of(t, best_by_referee(t)),
    }
    kind_out = learned(t, t.kinds, TRAINED)
    body_out = learned(t, t.bodies, TRAINED)
    shown = {name: kind_out[name] for name in ("boosted trees", "GRPO") if name in kind_out}
    click.echo(ceilings(t, shown))
    click.echo("Each kind by what was learned from the others:\n\n" + summary(t, ways | kind_out))
    wide = worthwhile(t)
    if wide.any():
        few = dataclasses.replace(t, kinds=[k for k, w in zip(t.kinds, wide, strict=True) if w])
        click.echo(
            f"Of them the {len(set(few.kinds))} kinds where the oracle gains {CEILING:g} %:\n\n"
            + summary(few, {name: gains[wide] for name, gains in (ways | kind_out).items()})
        )
    if body_out:
        click.echo("Each body by what was learned from the others:\n\n" + summary(t, body_out))
    drawn = dict(list(ways.items())[:2]) | shown
    draw(t, drawn, out / "choices.png")
    click.echo(str(out / "choices.png"))


TRAINED = [1, 2, 3]
"""Seeds of what learns."""


if __name__ == "__main__":
    open_streams()
    main()
