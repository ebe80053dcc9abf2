"""Measures what the best of J latent trajectories could gain. For each pair it runs J trajectories
of a network, the first of which is the network's mean. Of the first 1, 2, 4, ... trajectories it
takes the best by the truth (the oracle), by the label-free reward and by the referee, and the mean
of their fields.

python best.py --data DIR/hippocampus --out FOLDER appends one JSON line per pair to
FOLDER/rows.jsonl, prints the tables and draws FOLDER/best.png. Pairs in the file are not run again,
so a run that was killed, or ended by --minutes, can be continued; --minutes 0 runs nothing.

The engine keeps the best trajectory of every step. Here each trajectory runs through all steps by
itself, so that one set of candidates serves every way to choose. PyTorch runs the weights of the
shipped bundle. The engine gives the affine alignment and, for comparison, its own field of the
mean.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import choices
import click
import numpy as np
import points
import SimpleITK as sitk
import truth
from intervals import interval
from numpy.typing import NDArray
from scipy import ndimage

import morphseek
from morphseek._streams import open_streams
from morphseek.scoring.statistics import signed_rank_p

Row = dict[str, Any]
Floats = NDArray[np.float64]

BUNDLES = Path(__file__).parents[2] / "engine" / "internal" / "network" / "bundles"
SETS = ("overlap", "points")
WAYS = ("oracle", "reward", "referee", "average")
DRAWS = 5000
"""Number of bootstrap samples over pairs for the 95 % interval."""


# -------------------------------------------------------------------------------------- The network


def canonical(image: sitk.Image) -> sitk.Image:
    """Return the image with its axes along LPS, as the engine orders them."""
    return sitk.DICOMOrient(image, "LPS")


def index_of(image: sitk.Image, mm: Floats) -> Floats:
    """Return the continuous indices (n, 3), z first, of points (n, 3) LPS mm."""
    return truth.indices(image, mm)[:, ::-1]


class Network:
    """A shipped network: the weights of its bundle, in PyTorch, one thread.

    Parameters
    ----------
    name : str
        Name of a bundle below :data:`BUNDLES` that has a preset of the same name.
    """

    def __init__(self, name: str):
        import torch

        from morphseek.training import config, export
        from morphseek.training.backbones import build_backbone

        path = BUNDLES / f"{name}.onnx"
        if not path.is_file() or name not in config.presets():
            known = sorted(p.stem for p in BUNDLES.glob("*.onnx"))
            raise click.BadParameter(
                f"there is no network {name!r}; there are {', '.join(known)}", param_hint="--models"
            )
        torch.set_num_threads(1)
        backbone = build_backbone(config.load(name).model)
        backbone.load_state_dict(export.bundle_weights(path, backbone), strict=False)
        self.backbone = backbone.eval()
        self.manifest: dict[str, Any] = export.read_manifest(path)

    def grid(self, fixed: sitk.Image) -> sitk.Image:
        """Return an empty image on the network's grid for a fixed image: the same centre, along
        LPS.
        """
        n, m = canonical(fixed), self.manifest
        spacing = np.array([s or n.GetSpacing()[2 - a] for a, s in enumerate(m["spacing_mm"])])
        spacing = spacing[::-1]
        extent = np.array(n.GetSize()) * n.GetSpacing()
        size = np.maximum(np.ceil(extent / spacing - 1e-6).astype(int), m["min_size"][::-1])
        size = -(-size // m["size_multiple"]) * m["size_multiple"]
        grid = sitk.Image(size.tolist(), sitk.sitkFloat32)
        grid.SetSpacing(spacing.tolist())
        grid.SetDirection(n.GetDirection())
        grid.SetOrigin((np.array(truth.middle(n)) - truth.middle(grid)).tolist())
        return grid

    def input(
        self, image: sitk.Image, grid: sitk.Image, at: Callable[[Floats], Floats]
    ) -> NDArray[np.float32]:
        """Return an image on the network's grid, read through a map and normalised."""
        rule = self.manifest["intensity"]
        low, high = np.percentile(truth.array_of(image), [rule["low"], rule["high"]])
        (o0, o1), background = rule["out"], rule["background"]
        outside = low + (background - o0) / (o1 - o0) * (high - low)
        index = index_of(image, at(truth.centres(grid).reshape(-1, 3)))
        array = truth.array_of(image).astype(np.float64)
        # both faces of the image belong to it, since the networks' grids may touch them
        within = ((index > -0.5001) & (index < np.array(array.shape) - 0.4999)).all(1)
        on = ndimage.map_coordinates(array, index.T, order=1, mode="nearest")
        on = np.where(within, on, outside).reshape(grid.GetSize()[::-1])
        scaled = o0 + (on - low) * (o1 - o0) / (high - low)
        return np.clip(scaled, o0, o1).astype(np.float32)[None, None]

    def trajectories(
        self, fixed: NDArray[np.float32], moving: NDArray[np.float32], tau: float, j: int, key: Any
    ) -> Iterator[tuple[NDArray[np.float32], float]]:
        """Yield the fields of `j` trajectories through all steps, (3, z, y, x) voxels, and their
        label-free rewards. The first is the mean; the noise of another is seeded by its number.
        """
        import torch

        from morphseek.training.export import label_free_reward
        from morphseek.training.spatial import compose, njd_fraction, warp

        net = self.backbone
        f, m = torch.from_numpy(fixed), torch.from_numpy(moving)
        with torch.inference_mode():
            begun = net.state(f, m, net.view(0))
            for k in range(j):
                rng = np.random.default_rng([*key, k])
                u = torch.zeros(1, 3, *f.shape[2:])
                for step in range(self.manifest["steps"]):
                    e = begun if step == 0 else net.state(f, warp(m, u), net.view(step))
                    z = e.mu
                    if k:
                        noise = rng.standard_normal(tuple(e.mu.shape)).astype(np.float32)
                        z = z + tau * torch.exp(e.log_sigma) * torch.from_numpy(noise)
                    u = compose(net.step_field(z, e), u)
                reward = label_free_reward(f, warp(m, u), 100.0 * njd_fraction(u))
                yield u[0].numpy(), float(reward[0])


class Map:
    """The map of points by a field and then an affine, as in the engine: p -> affine(p + u(p)).

    Parameters
    ----------
    affine : numpy.ndarray
        4x4, LPS mm.
    grid : SimpleITK.Image
        The field's grid.
    u : numpy.ndarray, optional
        (3, z, y, x), voxels of the grid, component i along array axis i.
    """

    def __init__(
        self, affine: Floats, grid: sitk.Image, u: NDArray[np.float32] | None = None
    ) -> None:
        self.affine, self.grid, self.u = affine, grid, u

    def __call__(self, mm: Floats) -> Floats:
        if self.u is not None:
            index = index_of(self.grid, mm).T
            voxels = np.stack(
                [ndimage.map_coordinates(c, index, order=1, mode="nearest") for c in self.u], 1
            )
            matrix = np.array(self.grid.GetDirection()).reshape(3, 3) * self.grid.GetSpacing()
            mm = mm + voxels[:, ::-1] @ matrix.T
        return mm @ self.affine[:3, :3].T + self.affine[:3, 3]


def nearest(array: NDArray[Any], index: Floats) -> NDArray[Any]:
    """Return the voxels (z, y, x) nearest to continuous indices (n, 3), 0 outside."""
    at = np.floor(index + 0.5).astype(int)
    inside = ((at >= 0) & (at < array.shape)).all(1)
    out = np.zeros(len(at), array.dtype)
    out[inside] = array[tuple(at[inside].T)]
    return out


def dice(a: NDArray[Any], b: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the mean Dice over the labels."""
    return float(
        np.mean(
            [2 * ((a == n) & (b == n)).sum() / ((a == n).sum() + (b == n).sum()) for n in labels]
        )
    )


# -------------------------------------------------------------------------------------- The referee


class Referee:
    """The engine's referee (engine/internal/referee) without masks and channels: squared
    differences of MIND-SSC and local correlation, on the fixed image's own voxels.

    Parameters
    ----------
    fixed, moving : SimpleITK.Image
        The fixed image has at most 250,000 voxels, because the engine subsamples larger ones.
    """

    def __init__(self, fixed: sitk.Image, moving: sitk.Image) -> None:
        fixed, moving = canonical(fixed), canonical(moving)
        if fixed.GetNumberOfPixels() > 250_000:
            raise ValueError("the fixed image has so many voxels that the referee subsamples it")
        turned = np.array(moving.GetDirection()).reshape(3, 3).T @ np.array(
            fixed.GetDirection()
        ).reshape(3, 3)
        across = np.sqrt((turned**2) @ np.square(fixed.GetSpacing()))
        self.grid, self.moving_grid = fixed, moving
        self.fixed = self._smoothed(fixed, np.array(fixed.GetSpacing()))
        self.moving = self._smoothed(moving, across)
        self.known, self.moving_known = self._shown(fixed), self._shown(moving)
        self.centres = truth.centres(fixed).reshape(-1, 3)
        self.descriptors = self._mind(self.fixed, self.known)
        count, mean, square = (self._box(x * self.known) for x in (1, self.fixed, self.fixed**2))
        variance = np.maximum(square / np.maximum(count, 1) - (mean / np.maximum(count, 1)) ** 2, 0)
        level = variance[self.known > 0].mean()
        self.structure = np.minimum(variance / level, 1) * self.known

    @staticmethod
    def _smoothed(image: sitk.Image, spacing: Floats) -> Floats:
        array = truth.array_of(image).astype(np.float64)
        low, high = np.percentile(array, [0.5, 99.5])
        array = np.clip((array - low) / (high - low), 0, 1)
        ratio = np.maximum(spacing / image.GetSpacing(), 1)
        for axis, sigma in enumerate(np.maximum(0.5 * np.sqrt(ratio**2 - 1), 0.8)[::-1]):
            array = ndimage.gaussian_filter1d(
                array, sigma, axis, mode="nearest", radius=int(np.ceil(3 * sigma))
            )
        return array

    @staticmethod
    def _shown(image: sitk.Image) -> Floats:
        """Return 0 in a border of one constant value, if that fills a fiftieth of the image, and
        within two voxels of it; 1 elsewhere.
        """
        array = truth.array_of(image)
        cross = ndimage.generate_binary_structure(2, 1)[None]
        border = ndimage.binary_erosion(array <= array.min(), cross, border_value=1)
        if border.sum() < 0.02 * border.size:
            return np.ones(array.shape)
        line = np.ones((1, 1, 5), bool)
        near = ndimage.binary_dilation(border, line) | ndimage.binary_dilation(
            border, line.transpose(0, 2, 1)
        )
        return 1.0 - near

    @staticmethod
    def _box(array: Any) -> Floats:
        return ndimage.uniform_filter(np.asarray(array, float), 5, mode="constant") * 125.0

    @staticmethod
    def _mind(array: Floats, known: Floats) -> NDArray[np.float32]:
        """MIND-SSC of radius 1 and dilation 1, (12, z, y, x)."""
        padded = np.pad(array, 1, mode="edge")
        z, y, x = array.shape

        def moved(axis: int, way: int) -> Floats:
            at = [1, 1, 1]
            at[axis] += way
            return padded[at[0] : at[0] + z, at[1] : at[1] + y, at[2] : at[2] + x]

        found = [
            ndimage.uniform_filter((moved(a, s) - moved(b, t)) ** 2, 3, mode="nearest")
            for a in range(3)
            for b in range(a)
            for s in (-1, 1)
            for t in (-1, 1)
        ]
        d = np.stack(found)
        d -= d.min(0)
        variance = d.mean(0)
        level = variance[known > 0].mean()
        return np.exp(-d / np.clip(variance, level * 1e-3, level * 1e3)).astype(np.float32)

    def look(self, at: Callable[[Floats], Floats]) -> tuple[Floats, Floats, Floats]:
        """Return the referee's measures of a map at each voxel: whether both images show
        something, the mean squared difference of the descriptors, the squared local correlation.
        """
        index = index_of(self.moving_grid, at(self.centres))
        shape = self.fixed.shape
        known = nearest(self.moving_known, index).reshape(shape) * self.known
        warped = ndimage.map_coordinates(self.moving, index.T, order=1, mode="nearest")
        warped = warped.reshape(shape)
        distance = ((self._mind(warped, known) - self.descriptors) ** 2).mean(0)
        f, m, w = self.fixed * known, warped * known, known
        count, f1, m1, ff, mm, fm = (self._box(x) for x in (w, f, m, f * f, m * m, f * m))
        n = np.maximum(count, 1)
        b, c = (np.maximum(ff / n - (f1 / n) ** 2, 0), np.maximum(mm / n - (m1 / n) ** 2, 0))
        correlation = (fm / n - f1 * m1 / n**2) / np.sqrt((b + 1e-5) * (c + 1e-5))
        return known, distance, correlation**2 * known

    def gain(self, a: tuple[Floats, Floats, Floats], b: tuple[Floats, Floats, Floats]) -> float:
        """Return by how much map `b` brings the images closer than map `a`: the fall of the
        logarithm of the mean difference plus twice the rise of the mean squared correlation.
        """
        w = self.structure * a[0] * b[0]
        if not w.sum():
            return 0.0
        floor = 1e-6 * w.sum()
        fall = np.log(max((w * a[1]).sum(), floor) / max((w * b[1]).sum(), floor))
        return float(fall + 2 * (w * (b[2] - a[2])).sum() / w.sum())


# -------------------------------------------------------------------------------------- Collecting


def sizes(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to `most`, which is the last."""
    return [2**k for k in range(64) if 2**k < most] + [most]


def tested(data: Path, n: int, seed: int) -> dict[str, list[Callable[[], truth.Pair]]]:
    """Return functions that make the first `n` test pairs, which have labels, and known motions of
    one contrast as in points.py, which have points.
    """
    listed = json.loads((data / "split.json").read_text())["pairs"]["test"]

    def of_labels(fixed: str, moving: str) -> truth.Pair:
        images = [
            sitk.ReadImage(str(data / "images" / f"{x}.nii.gz"), sitk.sitkFloat32)
            for x in (fixed, moving)
        ]
        labels = [sitk.ReadImage(str(data / "labels" / f"{x}.nii.gz")) for x in (fixed, moving)]
        return truth.Pair(
            f"{fixed}--{moving}", *images, False, fixed_labels=labels[0], moving_labels=labels[1]
        )

    motions = points.known_pairs(data, points.people_of(data, "test"), seed, min(n, 15), False)
    return {
        "overlap": [lambda p=p: of_labels(*p) for p in listed[:n]],
        "points": [lambda p=p: p for p in motions],
    }


def truly(pair: truth.Pair) -> Callable[[Callable[[Floats], Floats]], float]:
    """Return a function that scores a map of a pair: by the mean Dice of its labels or the mean
    error of its points, mm.
    """
    if pair.fixed_labels is None:
        given, there = pair.fixed_points, pair.moving_points
        return lambda at: float(np.linalg.norm(at(given) - there, axis=1).mean())
    fixed, moving = (truth.array_of(x) for x in (pair.fixed_labels, pair.moving_labels))
    labels = np.intersect1d(fixed, moving)
    labels, grid = labels[labels > 0], pair.moving_labels
    # labels lie near the centre: only voxels near them are mapped, but all count
    centres, here = truth.centres(pair.fixed_labels).reshape(-1, 3), fixed.ravel()
    return lambda at: dice(here, nearest(moving, index_of(grid, at(centres))), labels)


def run_one(pair: truth.Pair, network: Network, name: str, j: int, tau: float, key: Any) -> Row:
    """Run a pair: return the measurements of `j` trajectories, the first of which is the mean, and
    of the averages of the first 1, 2, 4, ... fields.
    """
    began = time.process_time()
    engine = morphseek.register(  # without the look that leaves the network out for one body
        pair.fixed, pair.moving, model=name, refine=0, threads=1, device="cpu"
    )
    affine = np.array(engine.transform.initial)
    grid = network.grid(pair.fixed)
    fixed = network.input(pair.fixed, grid, lambda mm: mm)
    moving = network.input(pair.moving, grid, Map(affine, grid))
    measure, judge = truly(pair), Referee(pair.fixed, pair.moving)
    start = judge.look(Map(affine, grid))
    measured: list[float] = []
    rewards: list[float] = []
    gains: list[float] = []
    averages: list[float] = []
    total: Floats = np.zeros(0)
    mean = start
    row: Row = {"before": measure(lambda mm: mm), "affine": measure(Map(affine, grid))}
    for k, (u, reward) in enumerate(network.trajectories(fixed, moving, tau, j, key)):
        at = Map(affine, grid, u)
        seen = judge.look(at)
        if k == 0:
            mean, total, first = seen, u.astype(float), u
            there = at(judge.centres)
            row |= {
                "engine": measure(lambda mm: engine.transform_points(mm)),
                "engine_mm": float(
                    np.linalg.norm(engine.transform_points(judge.centres) - there, axis=1).mean()
                ),
                "engine_gain": engine.metrics["referee"]["gain"],
                "gain": judge.gain(start, seen),
                "spread_mm": [],
            }
        else:
            total += u
            row["spread_mm"].append(float(np.sqrt(((u - first) ** 2).sum(0).mean())))
        measured.append(measure(at))
        rewards.append(reward)
        gains.append(judge.gain(mean, seen))
        if k + 1 in sizes(j):
            averages.append(measure(Map(affine, grid, (total / (k + 1)).astype(np.float32))))
    row["spread_mm"] = float(np.mean(row["spread_mm"] or [0.0]))
    return row | {
        "measured": measured,
        "reward": rewards,
        "referee": gains,
        "average": averages,
        "cpu_seconds": time.process_time() - began,
    }


def collect(
    path: Path, data: Path, names: list[str], j: int, tau: float, n: int, seed: int, until: float
) -> Iterator[Row]:
    """Run those of the first `n` pairs of each set that the file lacks, append their rows, and
    yield each; stop at `until` (:func:`time.monotonic`).
    """
    kept = choices.resume(path)
    done = {(row["model"], row["tau"], row["j"], row["set"], row["pair"]) for row in kept}
    networks = {name: Network(name) for name in names}
    sets = tested(data, n, seed)
    with path.open("a", encoding="utf-8") as file:
        for k in range(n):
            for name in names:
                for which in SETS:
                    if k >= len(sets[which]):
                        continue
                    pair = sets[which][k]()
                    if (name, tau, j, which, pair.name) in done:
                        continue
                    if time.monotonic() > until:
                        return
                    key = [seed, k, SETS.index(which)]
                    row = {"model": name, "tau": tau, "j": j, "set": which, "pair": pair.name}
                    row |= run_one(pair, networks[name], name, j, tau, key)
                    row["version"] = morphseek.__version__
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    yield row


# --------------------------------------------------------------------------------------- Comparing


def chosen(row: Row, j: int) -> dict[str, float]:
    """Return for each way to choose the true score of its choice among the first `j` candidates of
    a row; ``sample`` is the score of a candidate other than the mean.
    """
    measured, sign = np.array(row["measured"][:j]), 1 if row["set"] == "overlap" else -1
    by = {
        "oracle": sign * measured,
        "reward": np.array(row["reward"][:j]),
        "referee": np.array(row["referee"][:j]),
    }
    # of equal ones the first wins: a tie goes to the mean, as in the engine
    found = {way: float(measured[int(np.argmax(of))]) for way, of in by.items()}
    found["average"] = row["average"][sizes(row["j"]).index(j)]
    found["sample"] = float(measured[1:].mean()) if j > 1 else float(measured[0])
    return found


def gains(rows: list[Row], way: str, j: int) -> Floats:
    """Return for each row by how much a way to choose among the first `j` improves on the mean: in
    Dice, or in mm.
    """
    return np.array(
        [
            (chosen(r, j)[way] - r["measured"][0]) * (1 if r["set"] == "overlap" else -1)
            for r in rows
        ]
    )


def share(rows: list[Row], way: str, j: int) -> float:
    """Return the share of the oracle's gain that a way to choose reaches; NaN without a gain."""
    most = gains(rows, "oracle", j).mean()
    return float(gains(rows, way, j).mean() / most) if most > 0 else float("nan")


def agreement(rows: list[Row], way: str) -> float:
    """Return Spearman's correlation of a judge with the truth among each pair's samples without the
    mean trajectory, averaged over the pairs.
    """
    from scipy.stats import spearmanr

    found = [
        spearmanr(r[way][1:], r["measured"][1:]).statistic * (1 if r["set"] == "overlap" else -1)
        for r in rows
        if len(r["measured"]) > 3
    ]
    return float(np.mean(found)) if found else float("nan")


Groups = dict[tuple[str, float, int], dict[str, list[Row]]]


def grouped(rows: list[Row]) -> Groups:
    """Return the rows by network, temperature and J, and then by set."""
    found: Groups = {}
    for row in rows:
        of = found.setdefault((row["model"], row["tau"], row["j"]), {s: [] for s in SETS})
        of[row["set"]].append(row)
    return found


def table(groups: Groups) -> str:
    """Return the gains over the mean at the greatest J, one row per network and way to choose."""
    lines = [
        "| network, tau, J | choice | Dice, 1/1000 (95 %) | of the ceiling | p"
        " | points, mm (95 %) | of the ceiling | p |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (model, tau, j), sets in groups.items():
        for way in (*WAYS, "sample"):
            cells = [f"`{model}`, {tau:g}, {j}", way]
            for which, scale, digits in (("overlap", 1000, 2), ("points", 1, 4)):
                rows = sets[which]
                if not rows:
                    cells += [""] * 3
                    continue
                g = gains(rows, way, j)
                low, high = interval(g, DRAWS)
                cells += [
                    f"{scale * g.mean():+.{digits}f} ({scale * low:+.{digits}f} to"
                    f" {scale * high:+.{digits}f})",
                    "" if way == "sample" else f"{100 * share(rows, way, j):.0f} %",
                    f"{signed_rank_p(g):.2g}",
                ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def facts(groups: Groups) -> str:
    """Return one line per network and set: the number of pairs, the mean's score, how far samples
    lie from it, how the judges agree with the truth, and the referee compared with the reward.
    """
    lines = []
    for (model, tau, j), sets in groups.items():
        for which, rows in sets.items():
            if not rows:
                continue
            mean = np.mean([r["measured"][0] for r in rows])
            affine, spread = (np.mean([r[k] for r in rows]) for k in ("affine", "spread_mm"))
            off = 1e3 * max(r["engine_mm"] for r in rows)
            apart = gains(rows, "referee", j) - gains(rows, "reward", j)
            low, high = interval(apart, DRAWS)
            lines.append(
                f"{model}, tau {tau:g}, J {j}, {which}: {len(rows)} pairs, the mean {mean:.4f}"
                f" (affine {affine:.4f}; engine {off:.2f} um"
                f" apart at most), samples {spread:.3f} mm from it;"
                f" Spearman reward {agreement(rows, 'reward'):+.2f}, referee"
                f" {agreement(rows, 'referee'):+.2f}; referee less reward {apart.mean():+.5f}"
                f" ({low:+.5f} to {high:+.5f}), p {signed_rank_p(apart):.2g};"
                f" {sum(g > 0 for g in gains(rows, 'reward', j))} better,"
                f" {sum(g < 0 for g in gains(rows, 'reward', j))} worse by the reward"
            )
    return "\n".join(lines) + "\n"


def curve(groups: Groups) -> str:
    """Return the gains of every way by J, Markdown."""
    lines = ["| network, tau | J | " + " | ".join(f"{w}: Dice, 1/1000; mm" for w in WAYS) + " |"]
    lines.append("|---|---:|" + "---:|" * len(WAYS))
    for (model, tau, most), sets in groups.items():
        for j in sizes(most):
            cells = [
                "; ".join(
                    f"{scale * gains(sets[s], way, j).mean():+.{d}f}" if sets[s] else ""
                    for s, scale, d in (("overlap", 1000, 2), ("points", 1, 4))
                )
                for way in WAYS
            ]
            lines.append(f"| `{model}`, {tau:g} | {j} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(groups: Groups, path: Path) -> None:
    """Draw the gains of the group with the greatest J, and most pairs, over J: overlap, points."""
    from matplotlib.figure import Figure

    (model, tau, most), sets = max(
        groups.items(), key=lambda g: (g[0][2], sum(map(len, g[1].values())))
    )
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    for axes, which, scale, unit in zip(
        figure.subplots(1, 2), SETS, (1000, 1000), ("Dice, thousandths", "µm nearer"), strict=True
    ):
        rows, at = sets[which], sizes(most)
        for way, colour in zip(WAYS, ("black", "tab:blue", "tab:orange", "tab:green"), strict=True):
            if not rows:
                continue
            found = [scale * gains(rows, way, j) for j in at]
            ends = np.array([interval(g, DRAWS) for g in found])
            axes.plot(at, [g.mean() for g in found], "o-", markersize=3, color=colour, label=way)
            axes.fill_between(at, ends[:, 0], ends[:, 1], color=colour, alpha=0.12, linewidth=0)
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xticks(at, [str(j) for j in at])
        axes.set(
            xlabel=f"trajectories J ({len(rows)} pairs)",
            ylabel=f"better than the mean: {unit}",
            title="overlap" if which == "overlap" else "points",
        )
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.suptitle(f"{model}, tau {tau:g}", fontsize=9)
    figure.savefig(path, dpi=75)


@click.command(context_settings={"show_default": True})
@click.option(
    "--data", type=Path, required=True, help="The hippocampi: images, labels, split.json."
)
@click.option("--out", type=Path, required=True, help="Folder of rows.jsonl and of the figure.")
@click.option("--models", default="hippocampus", help="Shipped networks, commas between.")
@click.option("--j", default=64, type=click.IntRange(1), help="Trajectories, the mean among them.")
@click.option("--tau", default=1.0, type=click.FloatRange(0), help="Temperature of the samples.")
@click.option("--n", default=6, type=click.IntRange(1), help="Pairs of each set.")
@click.option("--seed", default=2, help="Seed of the known motions and the samples.")
@click.option(
    "--minutes",
    default=600,
    type=click.FloatRange(0),
    help="Start no pair after so many minutes; 0 runs nothing.",
)
def main(
    data: Path, out: Path, models: str, j: int, tau: float, n: int, seed: int, minutes: float
) -> None:
    """Run the pairs that the folder lacks, and print the gain of the best of J over their mean."""
    if not (data / "split.json").is_file():
        raise click.BadParameter(
            f"{data} has no split.json; name the folder that has images, labels and it",
            param_hint="--data",
        )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "rows.jsonl"
    until = time.monotonic() + 60 * minutes
    if minutes:
        for row in collect(path, data, models.split(","), j, tau, n, seed, until):
            click.echo(
                f"{row['model']} | {row['set']} | {row['pair']} | the mean"
                f" {row['measured'][0]:.4f} | {row['cpu_seconds']:.1f} CPU s"
            )
    rows = choices.read_rows(path)
    if not rows:
        raise click.BadParameter(f"{path} has no pair; give it more --minutes", param_hint="--out")
    groups = grouped(rows)
    click.echo(f"\n{sum(row['cpu_seconds'] for row in rows) / 3600:.2f} CPU hours\n")
    click.echo(table(groups))
    click.echo(curve(groups))
    click.echo(facts(groups))
    draw(groups, out / "best.png")
    click.echo(str(out / "best.png"))


if __name__ == "__main__":
    open_streams()
    main()
