"""Measures every figure that README and the pages quote, in one run of one version:

    python everything.py --data DIR --out FOLDER --all --jobs 2
    python everything.py --write

A part writes FOLDER/PART.json after each registration. A run that was interrupted goes on where it
stopped; results of another build of the engine are measured again, those of peers stay. At the end
of a run, results.json beside this script has the figures. --write fills the pages from it.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import channels
import click
import command
import figures
import gallery
import growth
import landmarks
import measure
import numpy as np
import pairs as data_sets
import peers as peer_runs
import points
import SimpleITK as sitk
import slices
import steady
import verdicts
import zoo
from methods import METHODS
from scipy.stats import spearmanr

import morphseek
from morphseek._streams import open_streams

Row = dict[str, Any]

SEED = 1
OURS = figures.OURS
SHORT = {"ants": "ants-syn"}
"""Short names that --peers accepts beside those of methods/."""
TIMEOUT = 1800.0  # s
FLAT = ("sections",)
"""Parts of the names of kinds that are slices: peers get none of them."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A piece of work that runs once: its key within the part, whose result it is (a method), and
    a function that returns its rows.
    """

    key: str
    method: str
    run: Callable[[], list[Row]]


@dataclasses.dataclass
class Context:
    """The surroundings of all parts: the data, peers with their versions, a scratch folder, and
    whether the run is a tiny one, that proves the script.
    """

    data: Path
    out: Path
    peers: dict[str, str]
    tiny: bool
    done: Callable[[str], bool] = lambda key: False
    lengths: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Part:
    """A table's measurements. `minutes` is an estimate for two jobs; an `alone` part takes CPU
    times in this process or compares them, so that nothing runs beside it. `most` limits the pairs
    of a kind that a slow peer gets.
    """

    name: str
    minutes: int
    units: Callable[[Part, Context], Iterator[Unit]]
    summary: Callable[[list[Row]], list[Row]]
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    most: dict[str, int] = dataclasses.field(default_factory=dict)
    tiny: tuple[str, ...] = ()
    alone: bool = False


# ----------------------------------------------------------------------------- Pairs of the zoo


def zoo_units(part: Part, context: Context) -> Iterator[Unit]:
    """Yield our registrations (affine, final) and the peers' of each pair of the part's kinds."""
    size = 48 if context.tiny else 96
    wanted = dict.fromkeys(part.tiny, 1) if context.tiny else part.kinds
    for name, count in wanted.items():
        settings = zoo.Settings(size, count, context.data, context.out / "pairs")
        kind = zoo.kinds(settings).get(name)
        if kind is None or kind.lacking:
            click.echo(f"left out: {name}: needs {kind.lacking if kind else 'its data'}")
            continue
        peers = [] if any(word in name for word in FLAT) else list(context.peers)

        def keys(k: int, name: str = name, peers: list[str] = peers) -> list[tuple[str, str]]:
            limited = [p for p in peers if k < part.most.get(p, k + 1)]
            return [(f"{name}/{k}/{method}", method) for method in (OURS, *limited)]

        known = context.lengths.get(name)
        if known is not None and all(context.done(key) for k in range(known) for key, _ in keys(k)):
            continue
        k = -1
        for k, pair in enumerate(kind.make(SEED)):
            for key, method in keys(k):
                ours = method == OURS
                run = zoo.Run(
                    zoo.PROGRAM,
                    ["affine", "final"] if ours else [],
                    [],
                    [] if ours else [method],
                    TIMEOUT,
                )

                def rows(
                    run: zoo.Run = run, name: str = name, pair: Any = pair, ours: bool = ours
                ) -> list[Row]:
                    return run.rows(name, pair)[0 if ours else 1 :]  # once without registration

                yield Unit(key, method, rows)
        context.lengths[name] = k + 1


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def zoo_summary(rows: list[Row]) -> list[Row]:
    """Return one entry for each kind and method: means over its pairs, medians of CPU seconds, the
    greatest memory; and of a peer what we have on the same pairs.
    """
    entries = []
    for kind in dict.fromkeys(r["kind"] for r in rows):
        of = [r for r in rows if r["kind"] == kind]
        states = {
            state: [r for r in of if r["method"] == OURS and r["state"] == state]
            for state in ("before", "affine", "final")
        }
        if not states["final"]:
            continue
        for method in dict.fromkeys(r["method"] for r in of):
            final = [r for r in of if r["method"] == method and r["state"] == "final"]
            if not final:
                continue
            before = {r["pair"]: r["error"] for r in states["before"] if r.get("error")}
            entry = {"kind": kind, "method": method, **_entry(final, before)}
            pairs = {r["pair"] for r in final}
            ours = [r for r in states["final"] if r["pair"] in pairs] or states["final"]
            same = _entry(ours, before)
            entry |= {f"ours_{what}": same.get(what) for what in ("error", "dice", "cpu")}
            if method == OURS:
                entry |= {
                    "before": _mean(zoo.value(r, "error.mean") for r in states["before"]),
                    "affine": _mean(zoo.value(r, "error.mean") for r in states["affine"]),
                    "dice_affine": _mean(r.get("dice") for r in states["affine"]),
                }
            entries.append(entry)
    return entries


def _entry(final: list[Row], before: dict[str, Row]) -> Row:
    # what is lost counts with the error by the headers, as a failure does: its own, of up to
    # metres, would drown the others of its kind
    lost = [
        bool(r.get("error")) and r["error"]["mean"] > before[r["pair"]]["mean"] + figures.FAR
        for r in final
    ]
    entry: Row = {
        "pairs": len(final),
        "failed": sum(r["status"] != "ok" for r in final),
        "lost": sum(lost),
        "cpu": float(np.median([r["cpu_seconds"] for r in final])),
        "mib": max(r["peak_bytes"] for r in final) / 2**20,
    }
    errors = [
        before[r["pair"]] if is_lost else r["error"]
        for r, is_lost in zip(final, lost, strict=True)
        if r.get("error")
    ]
    if errors:
        entry |= {
            "error": _mean(e["mean"] for e in errors),
            "p95": _mean(e["p95"] for e in errors),
            "most": max(e["worst"] for e in errors),
            # TG-132 of the AAPM: within a voxel or 2 mm in the mean, 5 mm at most
            "tg132": sum(e["mean"] <= 2 and e["worst"] <= 5 for e in errors),
            "nearer": _mean(e["nearer"] for e in errors),
        }
    dice = [r["dice"] for r in final if r.get("dice") is not None]
    if dice:
        entry |= {
            "dice": _mean(dice),
            "worst_dice": min(dice),
            "hd95": _mean(r.get("hd95") for r in final),
        }
    entry |= {
        "folds": _mean(r.get("njd_percent") for r in final),
        "sdlogj": _mean(r.get("sdlogj") for r in final),
    }
    return entry


# ------------------------------------------------------------------------------- The other parts


def steady_units(part: Part, context: Context) -> Iterator[Unit]:
    names = list(steady.PERTURBATIONS)[:2] if context.tiny else list(steady.PERTURBATIONS)
    wanted = dict.fromkeys(part.tiny, 1) if context.tiny else part.kinds
    methods = [OURS, *(p for p in context.peers if p == "greedy")]
    for name, count in wanted.items():
        kind = zoo.kinds(zoo.Settings(48, count, context.data, context.out / "pairs"))[name]
        keys = [(f"{name}/{k}/{m}", k, m) for k in range(count) for m in methods]
        if kind.lacking or all(context.done(key) for key, _, _ in keys):
            continue
        made = list(kind.make(SEED))
        for key, k, method in keys:
            if k >= len(made):
                continue

            def run(name: str = name, method: str = method, pair: Any = made[k]) -> list[Row]:
                register = steady.ours if method == OURS else steady.by_peer(METHODS[method])
                rows = steady.measure(pair, names, register)
                return [{"kind": name, "method": method, **row} for row in rows]

            yield Unit(key, method, run)


def steady_summary(rows: list[Row]) -> list[Row]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for r in rows:
        groups.setdefault((r["kind"], r["perturbation"], r["method"]), []).append(r)
    return [
        {
            "kind": kind, "perturbation": name, "method": method, "pairs": len(of),
            "mean": float(np.mean([r["mean"] for r in of])),
            "changed": sum(r["changed"] for r in of),
        }
        for (kind, name, method), of in groups.items()
    ]  # fmt: skip


SETS = {
    "hippocampus": "hippocampus:test",
    "brain": "brain:test",
    "ct": "abdomen:pairs_ct",
    "mrct": "abdomen:pairs_mr_from_ct",
}
"""The data sets of two people: folder and list of pairs."""


def sets_of(context: Context, names: Iterable[str], count: int) -> list[data_sets.DataSet]:
    return [
        data_sets.read(f"{name}={context.data}/{SETS[name]}", count, name == "mrct")
        for name in names
    ]


def stranger_units(part: Part, context: Context) -> Iterator[Unit]:
    """Yield pairs that do not belong together, of each data set."""
    names = ["hippocampus"] if context.tiny else list(SETS)
    for kind, of, name, make in verdicts.jobs(sets_of(context, names, 1)):

        def run(kind: str = kind, of: str = of, name: str = name, make: Any = make) -> list[Row]:
            return [{"kind": kind, "set": of, "pair": name, **verdicts.register(*make())}]

        yield Unit(f"{kind}/{of}/{name}", OURS, run)


def stranger_summary(rows: list[Row]) -> list[Row]:
    return [
        {
            "kind": kind,
            "pairs": sum(r["kind"] == kind for r in rows),
            **{
                g: sum(r["kind"] == kind and r["grade"] == g for r in rows) for g in verdicts.GRADES
            },
        }
        for kind in dict.fromkeys(r["kind"] for r in rows)
    ]


def command_units(part: Part, context: Context) -> Iterator[Unit]:
    repeats = {"hippocampus": 5, "brain": 1, "ct": 1}
    for data in sets_of(context, list(repeats)[: 1 if context.tiny else None], 1):
        fixed, moving = data.pairs[0]

        def run(data: data_sets.DataSet = data, sides: Any = (fixed, moving)) -> list[Row]:
            images = tuple(data.image(side) for side in sides)
            greedy = sys.executable if "greedy" in context.peers else ""
            with tempfile.TemporaryDirectory() as name:
                labels = tuple(Path(name) / f"{k}.nii.gz" for k in range(2))
                for side, path in zip(sides, labels, strict=True):
                    sitk.WriteImage(data.labels(side), str(path))
                least = command.measure(
                    images, labels, 1 if context.tiny else repeats[data.name], greedy
                )
            size = "x".join(map(str, peer_runs.size_of(images[0])))
            return [{"pair": f"{data.name}, {size}", **least}]

        yield Unit(data.name, OURS, run)


def growth_units(part: Part, context: Context) -> Iterator[Unit]:
    sides = {OURS: (64, 96, 128, 192, 256), "greedy": (64, 128, 256)}
    if context.tiny:
        sides = {OURS: (32, 48), "greedy": (32, 48)}
    for method, of in sides.items():
        if method not in (OURS, *context.peers):
            continue
        for side in of:

            def run(method: str = method, side: int = side) -> list[Row]:
                name = "morphseek-default" if method == OURS else method
                return [{"method": method, **growth.by_volume(side, name)}]

            yield Unit(f"{method}/{side}", method, run)


def slice_units(part: Part, context: Context) -> Iterator[Unit]:
    pairs = 1 if context.tiny else 6
    if "greedy" in context.peers:
        yield Unit("all", OURS, lambda: slices.measure(context.data / "brain", pairs))


def channel_units(part: Part, context: Context) -> Iterator[Unit]:
    for contrasts in (("CT", "CT"), ("MR", "CT")):
        for seed in (1,) if context.tiny else (1, 2):

            def run(contrasts: tuple[str, str] = contrasts, seed: int = seed) -> list[Row]:
                return [channels.measure(contrasts, seed, 48 if context.tiny else 96)]

            yield Unit(f"{contrasts[0]}/{seed}", OURS, run)


def landmark_units(part: Part, context: Context) -> Iterator[Unit]:
    size = 48 if context.tiny else 96
    every = zoo.kinds(zoo.Settings(size, 1, context.data))
    for name in part.tiny if context.tiny else part.kinds:
        if every[name].lacking:
            continue

        def run(name: str = name) -> list[Row]:
            pair = next(every[name].make(13))
            return [landmarks.measure(figures.NAMED.get(name, name), pair, 2)]

        yield Unit(name, OURS, run)


NETWORKS: dict[str, dict[str, Any]] = {
    "none": {"model": "none"},
    "hippocampus": {"model": "hippocampus"},
    "hippocampus --steps 1": {"model": "hippocampus", "steps": 1},
    "hippocampus --refine 60": {"model": "hippocampus", "refine": 60},
    "hippocampus-morphometry": {"model": "hippocampus-morphometry"},
}


def network_units(part: Part, context: Context) -> Iterator[Unit]:
    pairs, people = (1, 1) if context.tiny else (40, 15)
    for name, options in NETWORKS.items():

        def run(name: str = name, options: dict[str, Any] = options) -> list[Row]:
            folder = context.data / "hippocampus"
            return [{"model": name, **points.measure(folder, options, pairs, people)}]

        yield Unit(name, OURS, run)


def gallery_units(part: Part, context: Context) -> Iterator[Unit]:
    for name in part.tiny if context.tiny else gallery.SHOWN:

        def run(name: str = name) -> list[Row]:
            return [gallery.draw(name, context.out / "gallery")]

        yield Unit(name, OURS, run)


def unchanged(rows: list[Row]) -> list[Row]:
    return rows


# ------------------------------------------------------------------ The verdict against the truth

GROUPS = {
    "synthetic bodies": ("torso", "made-up", "thorax", "sections"),
    "heads, known motion": ("head template", "brain"),
    "abdomens, known motion": ("abdomen",),
    "hippocampi, known motion": ("hippocampus",),
    "real pairs with landmarks": ("other", "points"),
}
"""Groups of kinds of the same bodies: how the kinds' names begin."""
BY_LABELS = "real pairs, by labels"


def group_of(kind: str, truth: bool) -> str:
    if not truth:
        return BY_LABELS
    return next(name for name, starts in GROUPS.items() if kind.startswith(starts))


def graded(rows: list[Row]) -> tuple[list[Row], Row | None]:
    """Return the grades by group of kinds, "all" at the end, and how far the estimate of the error
    is right; None without a pair that has both.

    A result is wrong if its true mean error is more than twice the estimate, and harmed if it is
    farther off than its affine by 5 %, or overlaps less by .01.
    """
    ours = [r for r in rows if r["method"] == OURS]
    affine = {(r["kind"], r["pair"]): r for r in ours if r["state"] == "affine"}
    found: dict[str, list[Row]] = {}
    ratios: list[tuple[float, float]] = []
    for row in ours:
        if row["state"] != "final" or not row.get("verdict"):
            continue
        true, estimate = zoo.value(row, "error.mean"), row["verdict"]["error_mm"]
        start = affine.get((row["kind"], row["pair"]), {})
        entry: Row = {"grade": row["verdict"]["grade"], "wrong": None, "ratio": None}
        if true is not None:
            before = zoo.value(start, "error.mean")
            entry["wrong"] = true > 2 * estimate
            entry["harmed"] = before is not None and true > max(1.05 * before, before + 0.02)
            if true > 1e-6:
                entry["ratio"] = true / estimate
                ratios.append((true, estimate))
        elif row.get("dice") is not None:
            entry["harmed"] = row["dice"] < (start.get("dice") or 0) - 0.01
        found.setdefault(group_of(row["kind"], true is not None), []).append(entry)
    if len(found) > 1:
        found["all"] = [entry for group in found.values() for entry in group]
    counted = []
    for name in (*GROUPS, BY_LABELS, "all"):
        if of := found.get(name):
            good = [e for e in of if e["grade"] == "good"]
            known = [e["ratio"] for e in of if e["ratio"] is not None]
            counted.append(
                {
                    "body": name,
                    "pairs": len(of),
                    **{g: sum(e["grade"] == g for e in of) for g in verdicts.GRADES},
                    "wrong": None if name == BY_LABELS else sum(bool(e["wrong"]) for e in good),
                    "harmed": sum(e["harmed"] for e in good),
                    "ratio": float(np.median(known)) if known else None,
                }
            )
    if not ratios:
        return counted, None
    true, estimated = np.array(ratios).T
    log = np.abs(np.log(true / estimated))
    rank = float(spearmanr(true, estimated).statistic) if len(true) > 2 else 1.0
    return counted, {
        "pairs": len(true),
        "ratio": float(np.median(true / estimated)),
        "within_two": 100 * float(np.mean(log < np.log(2))),
        "rank": rank,
    }


# ------------------------------------------------------------------------------------- The parts

TRUTH = [
    f"{body}{contrasts}"
    for body in ("brain", "hippocampus", "abdomen CT", "abdomen MR")
    for contrasts in ("", ", two contrasts")
]


def all_kinds() -> dict[str, int]:
    """Return the kinds with a known truth that the part "truth" lacks."""
    every = zoo.kinds(zoo.Settings(data=None))
    left = ("two people", "aligned", "any pose")
    return {
        name: 2
        for name in every
        if name not in TRUTH
        and not any(word in name for word in left)
        and not name.startswith(("other", "points"))
    }


OTHERS = {
    "points: heads, 32 anatomical fiducials": 6,
    "points: mouse heads, micro-CT": 8,
    "points: sections of a lung, five stains": 10,
    "other: brain tumour pre<-post": 1,
    "other: brain tumour pre<-post, two contrasts": 1,
    "other: iguana CT (synthetic)": 2,
    "other: prostate ADC/b1400 (synthetic)": 2,
    "other: acdc ED<-ES": 6,
    "other: acdc inter-patient": 3,
    "other: prostate TRUS<-MR": 5,
    "other: spinal cord": 3,
    "other: 3-D echo": 3,
}
PEOPLE = {
    "brain, two people": 6,
    "hippocampus, two people": 20,
    "abdomen CT, two people": 6,
    "abdomen MR <- CT, two people": 6,
}
STEADY = dict.fromkeys(
    ("torso CT", "torso MR", "torso MR <- CT", "hippocampus", "hippocampus, two people"), 2
)
LED = dict.fromkeys(
    (
        "other: brain tumour pre<-post",
        "other: brain tumour pre<-post, two contrasts",
        "made-up head, two contrasts",
        "made-up limb, two contrasts",
    ),
    1,
)

PARTS = {
    part.name: part
    for part in (
        Part("truth", 18, zoo_units, zoo_summary, dict.fromkeys(TRUTH, 3),
             {"ants-syn": 1, "convexadam": 1}, ("hippocampus", "abdomen MR, two contrasts")),
        Part("overlap", 22, zoo_units, zoo_summary, PEOPLE,
             {"ants-syn": 3, "convexadam": 3}, ("hippocampus, two people",)),
        Part("points", 18, zoo_units, zoo_summary, OTHERS,
             {"greedy": 4, "ants-syn": 1, "convexadam": 0},
             ("points: sections of a lung, five stains", "other: acdc ED<-ES",
              "other: iguana CT (synthetic)")),
        Part("steady", 5, steady_units, steady_summary, STEADY, tiny=("hippocampus",)),
        Part("strangers", 5, stranger_units, stranger_summary),
        Part("command", 5, command_units, unchanged, alone=True),
        Part("growth", 6, growth_units, unchanged, alone=True),
        Part("kinds", 16, zoo_units, zoo_summary, all_kinds(),
             {"greedy": 1, "ants-syn": 0, "convexadam": 0}, ("torso CT",)),
        Part("networks", 5, network_units, unchanged),
        Part("gallery", 4, gallery_units, unchanged, tiny=("ct",), alone=True),
        Part("slices", 4, slice_units, unchanged, alone=True),
        Part("channels", 2, channel_units, unchanged),
        Part("landmarks", 3, landmark_units, unchanged, LED, tiny=("made-up head, two contrasts",)),
    )
}  # fmt: skip
"""The parts in their order: what matters most comes first. `minutes` are for two idle cores."""


# ------------------------------------------------------------------------------------ Running


def commit() -> str:
    """Return the commit of this repository, with "+" where files differ from it."""

    def git(*words: str) -> str:
        root = ["git", "-C", str(figures.REPOSITORY)]
        return subprocess.run([*root, *words], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "engine", "python/src")
    return (git("rev-parse", "--short=8", "HEAD") or "unknown") + ("+" if changed else "")


def cpu_now() -> float:
    """Return the CPU seconds of this process and its finished children."""
    return sum(os.times()[:4])


def run_part(part: Part, context: Context, ours: str, jobs: int) -> list[str]:
    """Run what FOLDER/PART.json lacks; return the keys of the units that raised an exception."""
    path = context.out / f"{part.name}.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    by = {OURS: ours, **context.peers}
    # results of another build are measured again, failures of this script tried again
    units: dict[str, Row] = {
        key: unit
        for key, unit in old.get("units", {}).items()
        if unit["by"] == by.get(unit["method"], unit["by"]) and "exception" not in unit
    }
    content = {
        "part": part.name,
        "commit": commit(),
        "version": morphseek.__version__,
        "engine": ours,
        "machine": measure.machine(),
        "tiny": context.tiny,
        "seconds": old.get("seconds", 0.0),
        "cpu_seconds": old.get("cpu_seconds", 0.0),
        "units": units,
    }
    if old and old["tiny"] != context.tiny:
        raise click.BadParameter("the folder is of a run with another --tiny", param_hint="--out")
    began, cpu, seconds_before, cpu_before = (
        time.monotonic(), cpu_now(), content["seconds"], content["cpu_seconds"],
    )  # fmt: skip
    context.lengths = {**old.get("lengths", {})}
    context.done = lambda key: key in units

    def save() -> None:
        content["date"] = datetime.date.today().isoformat()
        content["seconds"] = seconds_before + time.monotonic() - began
        content["cpu_seconds"] = cpu_before + cpu_now() - cpu
        peer_runs.write(path, {**content, "lengths": context.lengths})

    def work(unit: Unit) -> Row:
        entry: Row = {"method": unit.method, "by": by[unit.method]}
        try:
            return entry | {"rows": unit.run()}
        except Exception as error:  # the other hours of the run must not be lost
            return entry | {"rows": [], "exception": f"{type(error).__name__}: {error}"}

    left = (unit for unit in part.units(part, context) if unit.key not in units)
    tasks = ((unit.key, functools.partial(work, unit)) for unit in left)
    for key, entry in peer_runs.finished(tasks, 1 if part.alone else jobs):
        units[key] = entry
        click.echo(f"{part.name}: {key} {entry.get('exception', '')}".rstrip())
        save()
    save()
    return [key for key, unit in units.items() if "exception" in unit]


def collected(out: Path, jobs: int) -> figures.Results:
    """Return the figures of all parts that are in the folder."""
    contents = {
        name: json.loads((out / f"{name}.json").read_text())
        for name in PARTS
        if (out / f"{name}.json").exists()
    }
    versions = {c["engine"] for c in contents.values()}
    if len(versions) != 1:
        raise click.ClickException(
            f"the parts are of {len(versions)} builds ({', '.join(sorted(versions))}): run those"
            " again that are older, with --part or --all"
        )
    last = max(contents.values(), key=lambda c: c["date"])
    by_part: dict[str, Any] = {}
    graded_rows: list[Row] = []
    for name, content in contents.items():
        rows = [row for unit in content["units"].values() for row in unit["rows"]]
        by_part[name] = PARTS[name].summary(rows)
        if PARTS[name].summary is zoo_summary:
            graded_rows += rows
    grades, estimate = graded(graded_rows)
    by_part |= {"grades": grades, "estimate": estimate}
    used = {u["method"]: u["by"] for c in contents.values() for u in c["units"].values()}
    return {
        "run": {
            "version": last["version"],
            "commit": last["commit"],
            "engine": last["engine"],
            "date": last["date"],
            "machine": last["machine"]["cpu"],
            "jobs": jobs,
            "tiny": last["tiny"],
            "peers": {name: used[name] for name in figures.PEERS if name in used},
            "cpu_hours": sum(c["cpu_seconds"] for c in contents.values()) / 3600,
            "seconds": {name: round(c["seconds"]) for name, c in contents.items()},
            "pairs_of_peers": {name: PARTS[name].most for name in contents if PARTS[name].most},
        },
        "parts": by_part,
    }


def rounded(value: Any) -> Any:
    """Return a result with its numbers cut to five digits, so that the file is small."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def text_of(results: figures.Results) -> str:
    """Return the file's text: a line for each entry of a part, for small differences."""
    results = rounded(results)
    lines = [f'{{"run": {json.dumps(results["run"], indent=1)},', '"parts": {']
    parts = []
    for name, entries in results["parts"].items():
        if isinstance(entries, list):
            listed = ",\n".join(json.dumps(entry) for entry in entries)
            parts.append(f'"{name}": [\n{listed}\n]')
        else:
            parts.append(f'"{name}": {json.dumps(entries)}')
    return "\n".join([*lines, ",\n".join(parts), "}}"]) + "\n"


@click.command(context_settings={"show_default": True})
@click.option("--data", type=Path, help="Folder of real images, as zoo.py's.")
@click.option("--out", type=Path, help="Folder of the parts' results; they are kept.")
@click.option("--all", "all_", is_flag=True, help="Run every part.")
@click.option("--part", "parts", multiple=True, help=f"Run one: {', '.join(PARTS)}.")
@click.option("--jobs", default=2, type=click.IntRange(1), help="Registrations at a time.")
@click.option("--peers", default="greedy,ants,convexadam", help="Peers beside; empty: none.")
@click.option("--tiny", is_flag=True, help="One small pair a part, to prove the script.")
@click.option("--results", default=figures.RESULTS, type=Path, help="The file of all figures.")
@click.option("--write", is_flag=True, help="Fill the pages' tables, and the gallery with --out.")
def main(
    data: Path | None, out: Path | None, all_: bool, parts: tuple[str, ...], jobs: int, peers: str,
    tiny: bool, results: Path, write: bool,
) -> None:  # fmt: skip
    """Measure the figures of README and of the pages, and write them."""
    chosen = list(PARTS) if all_ else zoo.named(",".join(parts), list(PARTS), "part")
    if chosen:
        if data is None or out is None:
            raise click.UsageError("a run needs --data and --out")
        run(data.resolve(), out.resolve(), chosen, jobs, peers, tiny)
        results.write_text(text_of(collected(out, jobs)), encoding="utf-8")
        click.echo(f"wrote {results}")
    if write:
        for picture in sorted((out / "gallery").glob("*.jpg")) if out is not None else []:
            shutil.copy(picture, figures.REPOSITORY / "python/docs/img/gallery" / picture.name)
        for page in figures.fill():
            click.echo(f"filled {page}")
    if not chosen and not write:
        raise click.UsageError("nothing to do: give --all, --part or --write")


def run(data: Path, out: Path, chosen: list[str], jobs: int, peers: str, tiny: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    versions = {}
    for name in zoo.peers_of(peers, SHORT):
        probe = peer_runs.probe(METHODS[name], 1)
        click.echo(f"{name}: {probe.version or 'NOT RUN: ' + probe.error}")
        if not probe.error:
            versions[name] = probe.version
    ours = METHODS["morphseek-default"].version()
    broken = []
    for name in chosen:
        began = time.monotonic()
        click.echo(f"{name}: some {PARTS[name].minutes} minutes on two idle cores")
        try:
            if run_part(PARTS[name], Context(data, out, versions, tiny), ours, jobs):
                broken.append(name)
        except Exception as error:  # as data that cannot be read; the other parts go on
            click.echo(f"{name}: {type(error).__name__}: {error}", err=True)
            broken.append(name)
        click.echo(f"{name}: {(time.monotonic() - began) / 60:.1f} minutes")
    if broken:
        raise click.ClickException(f"these parts did not end: {', '.join(broken)}")


if __name__ == "__main__":
    open_streams()
    main()
