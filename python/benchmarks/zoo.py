"""Registers every kind of pair and writes one table, by the error at points with known places and
by the overlap of labels: python zoo.py --help.

A kind is one sort of pair: a body, its contrasts, a disturbance (truth.py). Made-up torsos need no
data, other made-up bodies PyTorch, a head template the nilearn package (pip install --no-deps
nilearn), and real images --data. Kinds that lack their data are named and skipped. Each
registration is a process of its own, `morphseek register`, once for each state: after the rigid
alignment, the affine one, the search, and at the end. Scores come from the written transform, only
by SimpleITK, numpy and scipy. A seed gives the same pairs everywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import measure
import numpy as np
import pairs as data_sets
import peers as peer_runs
import scoring
import SimpleITK as sitk
import truth
from methods import METHODS, Job
from methods.shared import as_field

from morphseek.report import IndexRow, write_index as write_cohort
from morphseek.scoring.statistics import signed_rank_p

Row = dict[str, Any]

PROGRAM = str(Path(sys.executable).parent / "morphseek")
OURS = "morphseek"
BEFORE = "before"
STATES = {
    "rigid": ["--initial", "rigid", "--search", "off", "--refine", "0"],
    "affine": ["--initial", "affine", "--search", "off", "--refine", "0"],
    "search": ["--refine", "0"],
    "final": [],
}
"""For each state the arguments with which `morphseek register` stops there. The state before, as
given by the headers, needs no run.
"""

SHORT = {"greedy": "greedy", "ants": "ants-syncc", "elastix": "elastix"}
"""Short names that --peers accepts beside those of methods/."""

# the deformable stages did harm if the error exceeds the affine's by this factor and by these mm
WORSE, NEGLIGIBLE = 1.05, 0.02


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the pairs are made: voxels along a torso's axes, pairs per kind and seed, the folder of
    real images, and a folder that keeps the pairs made from them, because a brain takes half a
    minute; None makes them again each time.
    """

    size: int = 96
    n: int = 2
    data: Path | None = None
    store: Path | None = None


@dataclasses.dataclass(frozen=True)
class Kind:
    """One sort of pair. `make` yields the pairs of a seed; `lacking` names what is missing to make
    them.
    """

    name: str
    make: Callable[[int], Iterator[truth.Pair]]
    lacking: str = ""


# ---------------------------------------------------------------------------------------- The kinds

_CT, _MR, _BOTH = ("CT", "CT"), ("MR", "MR"), ("MR", "CT")
_TORSOS = [  # name, contrasts, disturbance
    ("torso MR <- CT", _BOTH, ""),
    ("torso CT", _CT, ""),
    ("torso MR", _MR, ""),
    ("torso CT", _CT, "two contrasts"),
    ("torso CT", _CT, "noise"),
    ("torso MR <- CT", _BOTH, "noise"),
    ("torso MR", _MR, "bias"),
    ("torso MR", _MR, "speckle"),
    ("torso MR", _MR, "worse scan"),
    ("torso MR", _MR, "sector"),
    ("torso CT", _CT, "slices of 12 mm"),
    ("torso MR <- CT", _BOTH, "slices of 12 mm"),
    ("torso CT", _CT, "cropped"),
    ("torso MR <- CT", _BOTH, "cropped"),
    ("torso CT", _CT, "partial view"),
    ("torso MR <- CT", _BOTH, "partial view"),
    ("torso CT", _CT, "resection"),
    ("torso MR <- CT", _BOTH, "resection"),
    ("torso CT", _CT, "cut out"),
    ("torso MR <- CT", _BOTH, "cut out"),
    ("torso CT", _CT, "sliding"),
    ("torso MR <- CT", _BOTH, "sliding"),
    ("torso CT", _CT, "any pose"),
    ("torso MR <- CT", _BOTH, "any pose"),
    ("torso CT", _CT, "aligned"),
    ("torso MR <- CT", _BOTH, "aligned"),
]

# The torso's old name, up to 0.17.0: the seeds of its pairs depend on it, and old files have it.
_EARLIER = "trunk"

_SYNTHETIC = ("head", "limb", "medley")

_HEAD = truth.Motion((3.0, 18), (0.8, 7), 0.10, 8, 0.02)
_ABDOMEN_CT = truth.Motion((6.0, 35), (1.5, 14), 0.08, 15, 0.02)
_ABDOMEN_MR = truth.Motion((6.0, 35), (1.5, 14), 0.06, 12, 0.02)
HIPPOCAMPUS = truth.Motion((1.5, 8), (0.5, 4), 0.10, 2, 0.03)

# Their order is part of a pair's seed. Body: folder, prefix of the images, motion, disturbances.
_BODIES = {
    "brain": (
        "brain",
        "",
        _HEAD,
        ("", "two contrasts", "slices of 5 mm", "resection", "aligned", "any pose", "worse scan"),
    ),
    "abdomen CT": (
        "abdomen",
        "ct",
        _ABDOMEN_CT,
        ("", "two contrasts", "cropped", "partial view", "aligned"),
    ),
    "abdomen MR": ("abdomen", "mr", _ABDOMEN_MR, ("", "two contrasts", "bias")),
    "hippocampus": (
        "hippocampus",
        "",
        HIPPOCAMPUS,
        ("", "two contrasts", "noise", "aligned", "any pose"),
    ),
}
_TEMPLATE = ("", "two contrasts", "noise", "slices of 5 mm", "resection", "aligned")

_PEOPLE = [  # name, folder, list of pairs in its split.json, two modalities
    ("hippocampus, two people", "hippocampus", "test", False),
    ("brain, two people", "brain", "test", False),
    ("abdomen CT, two people", "abdomen", "pairs_ct", False),
    ("abdomen MR <- CT, two people", "abdomen", "pairs_mr_from_ct", True),
]


def kinds(settings: Settings) -> dict[str, Kind]:
    """Return every kind by its name, also those that lack their data."""
    made = [_torso_kind(settings, *row) for row in _TORSOS]
    made += [_synthetic_kind(settings, body, two) for body in _SYNTHETIC for two in (False, True)]
    made += [_recovery_kind(settings), _sections_kind(settings)]
    made += [_template_kind(settings, disturbance) for disturbance in _TEMPLATE]
    for number, (body, (folder, prefix, motion, disturbances)) in enumerate(_BODIES.items()):
        made += [
            _real_kind(settings, body, number, folder, prefix, motion, disturbance)
            for disturbance in disturbances
        ]
    made += [_people_kind(settings, *row) for row in _PEOPLE]
    made += _other_kinds(settings)
    return {kind.name: kind for kind in made}


def _named(body: str, disturbance: str) -> str:
    return f"{body}, {disturbance}" if disturbance else body


def _disturbed(kind: str, seed: int, k: int, pair: truth.Pair, disturbance: str) -> truth.Pair:
    """Disturb a pair with a separate generator, so that the pair is the undisturbed kind's."""
    return truth.DISTURBANCES[disturbance](
        pair, np.random.default_rng([seed, k, zlib.crc32(kind.encode())])
    )


def _torso_kind(
    settings: Settings, body: str, contrasts: tuple[str, str], disturbance: str
) -> Kind:
    name = _named(body, disturbance)

    def make(seed: int) -> Iterator[truth.Pair]:
        for k in range(settings.n):
            if disturbance == "aligned":
                yield truth.aligned_torso(settings.size, 1000 * seed + k, contrasts)
            else:
                yield _disturbed(
                    name.replace("torso", _EARLIER),
                    seed,
                    k,
                    truth.torso(settings.size, 1000 * seed + k, contrasts),
                    disturbance,
                )

    return Kind(name, make)


def _synthetic_kind(settings: Settings, body: str, two: bool) -> Kind:
    def make(seed: int) -> Iterator[truth.Pair]:
        for k in range(settings.n):
            yield truth.synthetic(body, settings.size, 1000 * seed + k, two, k % 2 == 1)

    return Kind(
        _named(f"made-up {body}", "two contrasts" if two else ""),
        make,
        "" if importlib.util.find_spec("torch") else "PyTorch (pip install 'morphseek[training]')",
    )


def _recovery_kind(settings: Settings) -> Kind:
    """Make a kind of frames of one scan whose contrast changes: each onto the first."""

    def make(seed: int) -> Iterator[truth.Pair]:
        for k in range(settings.n):
            first, *others = truth.inversion_recovery(2 * settings.size, 1000 * seed + k)
            frame = others[k % len(others)]
            yield truth.Pair(
                f"seed {1000 * seed + k}", first.image, frame.image, False, frame.first, frame.here
            )

    return Kind("thorax, inversion recovery", make)


def _sections_kind(settings: Settings) -> Kind:
    """Make a kind of neighbouring sections of tissue in two stains."""

    def make(seed: int) -> Iterator[truth.Pair]:
        for k in range(settings.n):
            yield truth.sections(8 * settings.size, 1000 * seed + k)

    return Kind("sections, two stains", make)


_Images = Callable[[np.random.Generator], Iterator[tuple[str, sitk.Image, sitk.Image | None]]]
"""Yields name, image and labels, chosen by the generator."""


def _moved_kind(
    settings: Settings,
    body: str,
    number: int,
    motion: truth.Motion,
    images: _Images,
    disturbance: str,
    lacking: str,
) -> Kind:
    """Make a kind of images that are each moved twice, with one contrast and with two. One
    generator always draws both, whichever of them the kind takes.
    """
    name, aligned, two = (
        _named(body, disturbance),
        disturbance == "aligned",
        disturbance == "two contrasts",
    )

    def moved(seed: int) -> Iterator[tuple[bool, truth.Pair]]:
        rng = np.random.default_rng([seed, number])
        how = dataclasses.replace(motion, coarse=(0.0, 1.0)) if aligned else motion
        for k, (of, image, labels) in enumerate(images(rng)):
            for other in (False, True):
                yield (
                    other,
                    truth.moved(image, how, other, k % 2 == 1, rng, f"seed {seed} {of}", labels),
                )

    def make(seed: int) -> Iterator[truth.Pair]:
        found = moved(seed)
        if settings.store is not None:
            found = _stored(
                settings.store / f"{body}{' aligned' * aligned} seed {seed} n {settings.n}", found
            )
        for k, pair in enumerate(pair for other, pair in found if other == two):
            yield pair if aligned or two else _disturbed(name, seed, k, pair, disturbance)

    return Kind(name, make, lacking)


def _stored(
    folder: Path, pairs: Iterator[tuple[bool, truth.Pair]]
) -> Iterator[tuple[bool, truth.Pair]]:
    """Yield pairs from the folder, with one contrast and with two by turns; make them first if the
    folder is incomplete.
    """
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            for k, (_, pair) in enumerate(pairs):
                pair.save(Path(name) / "pairs" / f"{k:03}")
            with contextlib.suppress(OSError):  # another run has already written the same
                (Path(name) / "pairs").rename(folder)
    for k, path in enumerate(sorted(folder.iterdir())):
        yield k % 2 == 1, truth.Pair.load(path)


def _template_kind(settings: Settings, disturbance: str) -> Kind:
    """Make a kind of the ICBM 152 head in the nilearn package, which is not imported; at 2 mm, so
    that pairs are made in seconds.
    """
    found = importlib.util.find_spec("nilearn")
    folder = Path(found.origin).parent / "datasets" / "data" if found and found.origin else Path()
    t1, grey, white = (
        folder / f"mni_icbm152_{what}_tal_nlin_sym_09a_converted.nii.gz"
        for what in ("t1", "gm", "wm")
    )
    lacking = (
        ""
        if found and t1.exists()
        else "the nilearn package with its ICBM 152 template (pip install --no-deps nilearn)"
    )

    def images(rng: np.random.Generator) -> Iterator[tuple[str, sitk.Image, sitk.Image | None]]:
        image, *tissues = (
            sitk.BinShrink(sitk.ReadImage(str(path), sitk.sitkFloat32), [2, 2, 2])
            for path in (t1, grey, white)
        )
        labels = sum(
            (
                i * sitk.Cast(tissue > 0.5 * truth.array_of(tissue).max(), sitk.sitkUInt8)
                for i, tissue in enumerate(tissues, 1)
            ),
            sitk.Cast(image * 0, sitk.sitkUInt8),
        )
        labels.CopyInformation(image)
        for k in range(settings.n):
            yield f"template {k}", image, labels

    return _moved_kind(settings, "head template", len(_BODIES), _HEAD, images, disturbance, lacking)


def _real_kind(
    settings: Settings,
    body: str,
    number: int,
    folder: str,
    prefix: str,
    motion: truth.Motion,
    disturbance: str,
) -> Kind:
    lacking = _lacking(settings, f"{folder}/images")

    def images(rng: np.random.Generator) -> Iterator[tuple[str, sitk.Image, sitk.Image | None]]:
        root = settings.data / folder
        names = sorted(
            path.name for path in (root / "images").iterdir() if path.name.startswith(prefix)
        )
        for name in rng.permutation(names)[: settings.n].tolist():
            yield (
                name.partition(".")[0],
                sitk.ReadImage(str(root / "images" / name), sitk.sitkFloat32),
                None,
            )

    return _moved_kind(settings, body, number, motion, images, disturbance, lacking)


def _people_kind(settings: Settings, name: str, folder: str, subset: str, two: bool) -> Kind:
    def make(seed: int) -> Iterator[truth.Pair]:
        found = data_sets.read(f"{name}={settings.data / folder}:{subset}", None, two)
        for fixed, moving in _share(found.pairs, seed, settings.n):
            images = [
                sitk.ReadImage(str(found.image(side)), sitk.sitkFloat32) for side in (fixed, moving)
            ]
            yield truth.Pair(
                f"{fixed} <- {moving}",
                *images,
                two,
                fixed_labels=found.labels(fixed),
                moving_labels=found.labels(moving),
            )

    return Kind(name, make, _lacking(settings, f"{folder}/split.json"))


def _other_kinds(settings: Settings) -> list[Kind]:
    """Return the sets of other/pairs.json and points/pairs.json: fixed, moving, and either labels
    or points; only bit 0 of labels counts if labels_are_bits is set.
    """
    made = []
    for folder in ("other", "points"):
        lacking = _lacking(settings, f"{folder}/pairs.json")
        if lacking:
            made.append(Kind(folder, lambda seed: iter(()), lacking))
            continue
        root = settings.data / folder
        entries = json.loads((root / "pairs.json").read_text())
        made += [
            _listed_kind(settings, f"{folder}: {of}", root, [e for e in entries if e["set"] == of])
            for of in dict.fromkeys(e["set"] for e in entries)
        ]
    return [*made, _stains_kind(settings)]


def _listed_kind(settings: Settings, name: str, root: Path, entries: list[Row]) -> Kind:
    def labels(entry: Row, side: str) -> sitk.Image | None:
        if f"{side}_labels" not in entry:
            return None
        read = sitk.ReadImage(str(root / entry[f"{side}_labels"]), sitk.sitkUInt8)
        return sitk.And(read, 1) if entry.get("labels_are_bits") else read

    def make(seed: int) -> Iterator[truth.Pair]:
        for entry in _share(entries, seed, settings.n):
            images = [
                sitk.ReadImage(str(root / entry[side]), sitk.sitkFloat32)
                for side in ("fixed", "moving")
            ]
            points = [
                np.array(entry[f"{side}_points_lps"]) if f"{side}_points_lps" in entry else None
                for side in ("fixed", "moving")
            ]
            yield truth.Pair(
                str(entry["id"]),
                *images,
                bool(entry.get("two_modalities")),
                *points,
                labels(entry, "fixed"),
                labels(entry, "moving"),
            )

    return Kind(name, make)


def _stains_kind(settings: Settings) -> Kind:
    """Make a kind of sections of one lung in several stains: NAME.jpg, and its landmarks as pixels
    in NAME.csv, columns number, X, Y.
    """
    folder = settings.data / "points/cima" if settings.data is not None else Path()

    def side(path: Path) -> tuple[sitk.Image, np.ndarray]:
        red, green, blue = np.moveaxis(
            sitk.GetArrayFromImage(sitk.ReadImage(str(path), sitk.sitkVectorFloat32)), -1, 0
        )
        image = sitk.GetImageFromArray((0.299 * red + 0.587 * green + 0.114 * blue)[None])
        across = sitk.ReadImage(str(path)).GetSpacing()
        image.SetSpacing((*across, 1.0))
        pixels = np.loadtxt(path.with_suffix(".csv"), delimiter=",", skiprows=1)[:, 1:3]
        return image, np.c_[pixels * across, np.zeros(len(pixels))]

    def make(seed: int) -> Iterator[truth.Pair]:
        paths = sorted(folder.glob("*.jpg"))
        ordered = [
            (paths[k], paths[(k + step) % len(paths)])
            for step in range(1, len(paths))
            for k in range(len(paths))
        ]
        for fixed, moving in _share(ordered, seed, settings.n):
            (image, points), (other, there) = side(fixed), side(moving)
            n = min(len(points), len(there))
            yield truth.Pair(
                f"{fixed.stem} <- {moving.stem}", image, other, True, points[:n], there[:n]
            )

    name = "points: sections of a lung, five stains"
    return Kind(name, make, _lacking(settings, "points/cima"))


def _lacking(settings: Settings, path: str) -> str:
    if settings.data is None:
        return "real images: --data DIR"
    return "" if (settings.data / path).exists() else f"{settings.data / path}"


def _share(entries: list[Any], seed: int, n: int) -> list[Any]:
    """Return a seed's n entries of a list: seed 1 has the first n, seed 2 the next, cyclically."""
    return [entries[((seed - 1) * n + k) % len(entries)] for k in range(min(n, len(entries)))]


# --------------------------------------------------------------------------------- Running, scoring


def score(pair: truth.Pair, transform: sitk.Transform | None, regular: bool = False) -> Row:
    """Score a transform from fixed to moving space; None is the pair as its headers have it.

    Returns
    -------
    dict
        ``error`` (mean, median, p95, worst, mm) if the pair has points; ``dice`` and ``hd95`` (mm),
        means over the labels, if it has labels; with `regular` the values of
        :func:`scoring.regularity` on the fixed image's grid.
    """
    found: Row = {}
    if pair.fixed_points is not None:
        found["error"] = scoring.point_errors(
            transform or sitk.Transform(), pair.fixed_points, pair.moving_points
        )
    grid = pair.fixed if regular else pair.fixed_labels
    field = None if transform is None or grid is None else as_field(transform, grid)
    if pair.fixed_labels is not None:
        scores = scoring.score(pair.fixed_labels, pair.moving_labels, field)
        found |= {"dice": scores["mean_dice"], "hd95": scores["mean_hd95"]}
    if regular and field is not None:
        found |= scoring.regularity(field)
    return found


@dataclasses.dataclass(frozen=True)
class Run:
    """What runs on every pair: states of one program with the same further options, and peers."""

    program: str
    states: list[str]
    options: list[str]
    peers: list[str]
    timeout: float
    keep: Path | None = None

    def rows(self, kind: str, pair: truth.Pair) -> list[Row]:
        """Register a pair with all states and peers, and return one row for each. A failure is a
        row with the scores from before.
        """
        with self._folder(kind, pair) as folder:
            files = [folder / f"{side}.nii.gz" for side in ("fixed", "moving")]
            for image, path in zip((pair.fixed, pair.moving), files, strict=True):
                sitk.WriteImage(image, str(path))
            voxel = truth.voxel_of(pair.fixed)
            head = {"kind": kind, "pair": pair.name, "voxel_mm": voxel}
            before = {**head, "method": OURS, "state": BEFORE, "status": "ok", **score(pair, None)}
            rows = [before]
            for state in self.states:
                row, transform = self._register(state, files, folder / state)
                scores = score(pair, transform, state == "final")
                rows.append({**head, "method": OURS, "state": state, **row, **scores})
            for peer in self.peers:
                (folder / peer).mkdir()
                row, field = peer_runs.carry_out(
                    METHODS[peer], Job(*files, folder / peer, 1, pair.two_modalities), self.timeout
                )
                carried = None if field is None else scoring.carrier(field)
                row |= score(pair, carried, True)
                rows.append({**head, "method": peer, "state": "final", **row})
            return rows

    @contextlib.contextmanager
    def _folder(self, kind: str, pair: truth.Pair) -> Iterator[Path]:
        if self.keep is None:
            with tempfile.TemporaryDirectory() as name:
                yield Path(name)
            return
        folder = self.keep / folder_name(kind, pair.name)
        folder.mkdir(parents=True)
        yield folder
        if pair.fixed_points is not None:
            np.savez(folder / "points.npz", fixed=pair.fixed_points, moving=pair.moving_points)

    def _register(
        self, state: str, files: list[Path], out: Path
    ) -> tuple[Row, sitk.Transform | None]:
        log = files[0].parent / f"{state}.log"
        command = [self.program, "register", *files, "--out", out, "--quiet", "--threads", "1"]
        command += [*self.options, *STATES[state]]
        cost = measure.run(command, threads=1, timeout=self.timeout, log=log)
        row: Row = {"status": "ok", "reason": "", **dataclasses.asdict(cost)}
        if cost.timed_out:
            return {**row, "status": "timeout", "reason": f"killed after {self.timeout:g} s"}, None
        if cost.exit_status:
            return {**row, "status": "failed", "reason": peer_runs.last_line(log)}, None
        report = json.loads((out / "report.json").read_text())
        row |= {key: report.get(key) for key in ("plan", "warnings", "align", "referee", "verdict")}
        row |= {
            "similarity": report["refine"]["similarity"],
            "engine_seconds": report["seconds"]["total"],
        }
        return row, sitk.ReadTransform(str(out / "transform.h5"))


def folder_name(kind: str, pair: str) -> str:
    """Return the name of a kept pair's folder."""
    return "".join(c if c.isalnum() else "-" for c in f"{kind} {pair}")


def write_index(folder: Path, rows: list[Row], command: str, version: str) -> None:
    """Write index.html into the folder of kept pairs: ours, worst first, with each pair's page."""
    before = {(r["kind"], r["pair"]): r for r in rows if r.get("state") == BEFORE}
    listed = []
    for row in rows:
        if row["method"] != OURS or row["state"] == BEFORE:
            continue
        verdict = row.get("verdict") or {}
        page = f"{folder_name(row['kind'], row['pair'])}/{row['state']}/report.html"
        listed.append(
            IndexRow(
                f"{row['kind']}, {row['pair']}, {row['state']}",
                verdict=verdict.get("grade", ""),
                error_mm=verdict.get("error_mm"),
                dice_before=before.get((row["kind"], row["pair"]), {}).get("dice"),
                dice_after=row.get("dice"),
                tre_mm=value(row, "error.mean"),
                njd_percent=row.get("njd_percent"),
                seconds=row.get("engine_seconds"),
                remark=row["reason"] or " ".join(verdict.get("reasons") or ()),
                page=page if (folder / page).is_file() else "",
                failed=row["status"] != "ok",
            )
        )
    write_cohort(folder / "index.html", listed, title="The zoo", command=command, version=version)


def run_all(
    chosen: list[Kind],
    seeds: list[int],
    run: Run,
    jobs: int,
    say: Callable[[str], None],
    save: Callable[[list[Row]], None],
) -> list[Row]:
    """Run every pair of every kind, `jobs` at a time, and return the rows in the kinds' order;
    `save` gets them after each pair.
    """
    rows: dict[tuple[int, int], list[Row]] = {}
    seen: set[tuple[str, str]] = set()

    def tasks() -> Iterator[tuple[tuple[int, int], Callable[[], list[Row]]]]:
        for number, kind in enumerate(chosen):
            pairs = (pair for seed in seeds for pair in kind.make(seed))
            for k, pair in enumerate(pairs):
                # a list of pairs may be shorter than the seeds require
                if (kind.name, pair.name) not in seen:
                    seen.add((kind.name, pair.name))
                    yield (number, k), functools.partial(run.rows, kind.name, pair)

    for place, rows[place] in peer_runs.finished(tasks(), jobs):
        for row in rows[place]:
            say(line_of(row))
        save([row for place in sorted(rows) for row in rows[place]])
    return [row for place in sorted(rows) for row in rows[place]]


# ------------------------------------------------------------------------------ Tables, comparisons


def line_of(row: Row) -> str:
    parts = [row["kind"], row["pair"], row["state"] if row["method"] == OURS else row["method"]]
    if error := row.get("error"):
        parts.append(
            f"{error['mean']:.2f} mm (median {error['median']:.2f}, 95th percentile"
            f" {error['p95']:.2f})"
        )
    if row.get("dice") is not None:
        parts.append(f"Dice {row['dice']:.3f}")
    if "cpu_seconds" in row:
        parts.append(f"{row['cpu_seconds']:.1f} CPU s")
    if row["status"] != "ok":
        parts.append(f"{row['status']}: {row['reason']}")
    return " | ".join(parts)


def value(row: Row, what: str) -> float | None:
    """Return a value of a row, such as "error.mean"; None if it has none."""
    outer, _, inner = what.partition(".")
    found = row.get(outer)
    return found.get(inner) if inner and found is not None else found


def _mean(rows: list[Row], what: str) -> float | None:
    values = [v for row in rows if (v := value(row, what)) is not None]
    return float(np.mean(values)) if values else None


def _shown(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)


_REGULARITY = (
    ("bending", ".2g"),
    ("sdlogj", ".3f"),
    ("logj_min", ".1f"),
    ("logj_max", ".1f"),
    ("njd_percent", ".3f"),
)


def table(rows: list[Row], states: list[str]) -> str:
    """Return one table: a line per kind, and below it one per peer. Values are means over the
    pairs; extremes of log J are the worst.
    """
    columns = ["kind (pairs)", BEFORE, *states, "Dice", "HD95 mm", "bending /mm2", "SD log J"]
    columns += ["least", "most", "folds %", "CPU s"]
    lines = [_line(columns), "|---|" + "---:|" * (len(columns) - 1)]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        of_kind = [row for row in rows if row["kind"] == kind]
        for method in dict.fromkeys(row["method"] for row in of_kind):
            by_state = {
                state: [r for r in of_kind if r["method"] == method and r["state"] == state]
                for state in (BEFORE, *states, "final")
            }
            last = by_state[
                next(
                    (
                        s
                        for s in reversed(["final", *states] if method != OURS else states)
                        if by_state[s]
                    ),
                    BEFORE,
                )
            ]
            name = (
                f"{kind} ({len({r['pair'] for r in of_kind})})"
                if method == OURS
                else f"&nbsp; {method}"
            )
            dice = " -> ".join(
                _shown(_mean(by_state[s], "dice"), ".3f")
                for s in (BEFORE, *states)
                if _mean(by_state[s], "dice") is not None
            )
            figures = [_shown(_mean(last, what), form) for what, form in _REGULARITY]
            for place, worst, what in ((2, min, "logj_min"), (3, max, "logj_max")):
                values = [row[what] for row in last if what in row]
                figures[place] = f"{worst(values):.1f}" if values else ""
            cells = [
                name,
                *(_errors(by_state[s]) for s in (BEFORE, *states)),
                dice,
                _shown(_mean(last, "hd95"), ".1f"),
                *figures,
                _shown(_mean(last, "cpu_seconds"), ".1f"),
            ]
            lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def _errors(rows: list[Row]) -> str:
    mean, median, p95 = (_mean(rows, f"error.{what}") for what in ("mean", "median", "p95"))
    failed = sum(row["status"] != "ok" for row in rows)
    return ("" if mean is None else f"{mean:.2f} / {median:.2f} / {p95:.2f}") + (
        f" ({failed} failed)" if failed else ""
    )


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def harmed(rows: list[Row]) -> list[tuple[str, str, float, float]]:
    """Return kind, pair, the affine's mean error and the final one of pairs that ended more than
    5 % above their affine, the worst first.
    """
    errors = {
        (r["kind"], r["pair"], r["state"]): e
        for r in rows
        if r["method"] == OURS and (e := value(r, "error.mean")) is not None
    }
    found = [
        (kind, pair, errors[kind, pair, "affine"], final)
        for (kind, pair, state), final in errors.items()
        if state == "final" and (kind, pair, "affine") in errors
    ]
    return sorted(
        (row for row in found if row[3] > max(WORSE * row[2], row[2] + NEGLIGIBLE)),
        key=lambda row: row[2] / row[3],
    )


COMPARED = {
    "error.mean": ("mean error", -1),
    "error.p95": ("95th percentile", -1),
    "dice": ("Dice", 1),
    "hd95": ("HD95", -1),
    "cpu_seconds": ("CPU s", -1),
}
"""The values that --compare compares, their names, and which direction is better."""


def compare(old: list[Row], new: list[Row]) -> list[Row]:
    """Compare our final states on the pairs of both runs, kind by kind and, as "all", over all
    kinds by the logarithm of their ratio.

    Returns
    -------
    list of dict
        ``kind``, ``what`` (a key of :data:`COMPARED`), ``pairs``, means ``old`` and ``new``,
        numbers ``better`` and ``worse``, and ``p`` of the two-sided Wilcoxon signed-rank test on
        the paired differences.
    """

    def final(rows: list[Row]) -> dict[tuple[str, str], Row]:
        return {
            (row["kind"].replace(_EARLIER, "torso"), row["pair"]): row
            for row in rows
            if row["method"] == OURS and row["state"] == "final"
        }

    before, after = final(old), final(new)
    common = [key for key in after if key in before]
    found = []
    for kind in [*dict.fromkeys(kind for kind, _ in common), "all"]:
        keys = [key for key in common if kind in (key[0], "all")]
        for what, (_, sign) in COMPARED.items():
            both = [
                (a, b)
                for key in keys
                if (a := value(before[key], what)) is not None
                and (b := value(after[key], what)) is not None
            ]
            if not both:
                continue
            a, b = np.array(both).T
            difference = (
                b - a
                if kind != "all" or what == "dice"
                else np.log(np.maximum(b, 1e-3) / np.maximum(a, 1e-3))
            )
            gain = sign * difference
            found.append(
                {
                    "kind": kind,
                    "what": what,
                    "pairs": len(both),
                    "old": float(a.mean()),
                    "new": float(b.mean()),
                    "better": int((gain > 0).sum()),
                    "worse": int((gain < 0).sum()),
                    "p": signed_rank_p(difference),
                }
            )
    return found


def comparison(found: list[Row]) -> str:
    """Return the table of :func:`compare`'s results."""
    lines = [
        _line(["kind", "what", "pairs", "old", "new", "change", "better", "worse", "p"]),
        "|---|---|" + "---:|" * 7,
    ]
    for row in found:
        change = (
            f"{row['new'] - row['old']:+.3f}"
            if row["what"] == "dice"
            else f"{100 * (row['new'] / max(row['old'], 1e-9) - 1):+.0f} %"
        )
        cells = [row["kind"], COMPARED[row["what"]][0], str(row["pairs"])]
        cells += [f"{row['old']:.3f}", f"{row['new']:.3f}", change]
        lines.append(_line([*cells, str(row["better"]), str(row["worse"]), f"{row['p']:.2g}"]))
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------- Command line


def version_of(program: str) -> str:
    """Return the version of a `morphseek` command; fails with a message if it does not run."""
    try:
        return subprocess.run(
            [program, "--version"], check=True, capture_output=True, text=True
        ).stdout.split()[-1]
    except (OSError, subprocess.CalledProcessError) as error:
        raise click.BadParameter(
            f"{program} does not run: {error}; give the path of a morphseek command",
            param_hint="--program",
        ) from None


def named(text: str, known: list[str], what: str) -> list[str]:
    """Return the words of a comma-separated list, all in `known`, in the order of `known`."""
    words = [word for word in text.split(",") if word]
    if unknown := [word for word in words if word not in known]:
        raise click.BadParameter(f"there is no {what} {unknown[0]!r}; there are {', '.join(known)}")
    return [word for word in known if word in words]


def peers_of(text: str, short: dict[str, str] = SHORT) -> list[str]:
    """Return the methods of a comma-separated list of names or short names."""
    return named(",".join(short.get(name, name) for name in text.split(",")), list(METHODS), "peer")


def choose(every: dict[str, Kind], wanted: Sequence[str], say: Callable[[str], None]) -> list[Kind]:
    """Return the kinds whose name contains one of the parts ("=NAME" is only that kind; without
    parts: all), and report those that lack their data.
    """
    matching = {
        part: [name for name in every if (part[1:] == name if part[:1] == "=" else part in name)]
        for part in wanted or [""]
    }
    if unknown := [part for part, names in matching.items() if not names]:
        raise click.BadParameter(
            f"no kind has {unknown[0]!r} in its name; --list shows them", param_hint="--kinds"
        )
    found = [
        kind for name, kind in every.items() if any(name in names for names in matching.values())
    ]
    for kind in found:
        if kind.lacking:
            say(f"left out: {kind.name}: needs {kind.lacking}")
    return [kind for kind in found if not kind.lacking]


@click.command(context_settings={"show_default": True})
@click.option("--seeds", default="1", help="Commas between; each gives --n pairs of every kind.")
@click.option("--n", default=2, type=click.IntRange(1), help="Pairs of each kind and seed.")
@click.option(
    "--kinds", "kinds_", multiple=True, help="Part of the kinds' names; =NAME is only that kind."
)
@click.option("--states", default=",".join(STATES), help="States to run.")
@click.option("--peers", default="", help=f"Of {', '.join(SHORT)}, or names of methods/.")
@click.option("--data", type=Path, help="Folder of real images: benchmarks/README.md.")
@click.option(
    "--size", default=96, type=click.IntRange(16), help="Voxels along each axis of a made-up torso."
)
@click.option("--jobs", default=1, type=click.IntRange(1), help="Pairs at a time, one thread each.")
@click.option("--program", default=PROGRAM, help="The morphseek command to measure.")
@click.option("--options", default="", help='Of every registration: "--smoothness 2.5".')
@click.option("--json", "json_out", type=Path, help="Write every registration's figures.")
@click.option(
    "--compare", "compare_with", type=Path, help="A file of --json: print what changed since."
)
@click.option("--pairs", "store", type=Path, help="Folder that keeps the pairs made from images.")
@click.option("--keep", type=Path, help="New folder for every pair, with an index.html.")
@click.option("--timeout", default=900.0, help="Seconds until a registration counts as failed.")
@click.option("--list", "list_", is_flag=True, help="List the kinds and what they need, no more.")
def main(
    seeds: str, n: int, kinds_: tuple[str, ...], states: str, peers: str, data: Path | None,
    size: int, jobs: int, program: str, options: str, json_out: Path | None,
    compare_with: Path | None, store: Path | None, keep: Path | None, timeout: float, list_: bool,
) -> None:  # fmt: skip
    """Register pairs of every kind and write one table: errors at points, overlap, regularity, CPU
    time.
    """
    scratch = None if store is not None else tempfile.TemporaryDirectory()
    every = kinds(Settings(size, n, data, store or Path(scratch.name)))
    if list_:
        for kind in every.values():
            click.echo(kind.name + (f"  (needs {kind.lacking})" if kind.lacking else ""))
        return
    if keep is not None and keep.exists():
        raise click.BadParameter(f"{keep} is there already; name a new folder", param_hint="--keep")
    chosen = choose(every, kinds_, lambda text: click.echo(text, err=True))
    which = named(states, list(STATES), "state"), shlex.split(options), peers_of(peers)
    run = Run(program, *which, timeout, keep)
    head = {"machine": measure.machine(), "program": program, "version": version_of(program)}
    head |= {"options": options, "seeds": seeds, "n": n, "size": size}

    def save(rows: list[Row]) -> None:
        if json_out is not None:
            peer_runs.write(json_out, {**head, "rows": rows})
        if keep is not None:
            write_index(keep, rows, shlex.join(sys.argv), head["version"])

    # read before the work, so that a bad file fails at once
    old = None if compare_with is None else json.loads(compare_with.read_text())["rows"]
    rows = run_all(chosen, [int(seed) for seed in seeds.split(",")], run, jobs, click.echo, save)
    click.echo("\nMean / median / 95th percentile of the error, mm.\n\n" + table(rows, run.states))
    for kind, pair, affine, final in harmed(rows):
        click.echo(f"worse than its affine: {kind}, {pair}: {affine:.2f} -> {final:.2f} mm")
    if old is not None:
        click.echo("\n" + comparison(compare(old, rows)))


if __name__ == "__main__":
    main()
