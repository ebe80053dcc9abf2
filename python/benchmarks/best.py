"""Measures what the best of J latent trajectories could gain: for each pair, J trajectories of a
shipped network through all its steps, the first of which is the network's mean. The best is chosen
by the truth, by the label-free reward and by the referee.

python best.py --data DIR/hippocampus --out FOLDER appends a line per pair to FOLDER/rows.jsonl and
prints the table. Pairs in the file are not run again; --minutes 0 runs nothing.

The engine keeps the best trajectory of every step. Here each runs through all steps by itself, so
that one set of candidates serves every way to choose. PyTorch runs the weights of the bundle; the
engine gives the affine alignment and its referee's view of each field.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import points
import SimpleITK as sitk
import truth
from intervals import interval
from numpy.typing import NDArray
from rows import Row, Task, collect, read

import morphseek
from morphseek._streams import open_streams
from morphseek.scoring.statistics import signed_rank_p

BUNDLES = Path(__file__).parents[2] / "engine" / "internal" / "network" / "bundles"
SETS = {"overlap": 1, "points": -1}
"""The measures, and the sign of what is better: Dice of labels, and the error of points, mm."""
WAYS = ("truth", "reward", "referee")


class Network:
    """A shipped network, by the name of its bundle: the bundle's weights in PyTorch, one thread."""

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
        self.name, self.config = name, config.load(name)
        backbone = build_backbone(self.config.model)
        backbone.load_state_dict(export.bundle_weights(path, backbone), strict=False)
        self.backbone = backbone.eval()
        self.steps: int = export.read_manifest(path)["steps"]

    def trajectories(
        self, pair: truth.Pair, affine: NDArray[np.float64], tau: float, j: int, key: list[int]
    ) -> Iterator[tuple[NDArray[np.float32], float]]:
        """Yield `j` displacements (3, z, y, x), voxels of the fixed image, and their label-free
        rewards. The first is of the mean; the noise of another is seeded by `key` and its number.
        """
        import torch

        from morphseek.training.evaluate import field_on_fixed_grid
        from morphseek.training.export import label_free_reward
        from morphseek.training.pairs import make_grid, make_sample, read_case
        from morphseek.training.spatial import compose, njd_fraction, warp

        net, data = self.backbone, self.config.data
        cases = []
        with tempfile.TemporaryDirectory() as place:
            for image in (pair.fixed, pair.moving):
                sitk.WriteImage(image, file := f"{place}/image.nrrd")
                cases.append(read_case(file, None, tuple(data.percentiles)))
        fixed, moving = cases
        grid = make_grid(fixed, data.spacing, data.min_size, net.size_multiple)
        seen = make_sample(fixed, moving, grid, 0, initial=affine)
        f, m = seen.fixed, seen.moving
        with torch.inference_mode():
            begun = net.state(f, m, net.view(0))
            for k in range(j):
                rng = np.random.default_rng([*key, k])
                u = torch.zeros(1, 3, *f.shape[2:])
                for step in range(self.steps):
                    e = begun if step == 0 else net.state(f, warp(m, u), net.view(step))
                    z = e.mu
                    if k:
                        noise = rng.standard_normal(tuple(e.mu.shape)).astype(np.float32)
                        z = z + tau * torch.exp(e.log_sigma) * torch.from_numpy(noise)
                    u = compose(net.step_field(z, e), u)
                reward = label_free_reward(f, warp(m, u), 100.0 * njd_fraction(u))
                yield field_on_fixed_grid(u, grid, fixed)[0].numpy(), float(reward[0])


def tested(data: Path, n: int, seed: int) -> dict[str, list[Callable[[], truth.Pair]]]:
    """Return functions that make the first `n` test pairs, which have labels, and known motions of
    one contrast as in points.py, which have points. Axes lie along LPS, as the networks' do.
    """

    def oriented(pair: truth.Pair) -> truth.Pair:
        images = {
            k: sitk.DICOMOrient(v, "LPS")
            for k, v in vars(pair).items()
            if isinstance(v, sitk.Image)
        }
        return dataclasses.replace(pair, **images)

    def of_labels(fixed: str, moving: str) -> truth.Pair:
        images, labels = (
            [sitk.ReadImage(str(data / kind / f"{x}.nii.gz"), pixel) for x in (fixed, moving)]
            for kind, pixel in (("images", sitk.sitkFloat32), ("labels", sitk.sitkUInt8))
        )
        return truth.Pair(f"{fixed}--{moving}", *images, False, None, None, *labels)

    listed = json.loads((data / "split.json").read_text())["pairs"]["test"][:n]
    motions = points.known_pairs(data, points.people_of(data, "test"), seed, min(n, 15), False)
    return {
        "overlap": [lambda p=p: oriented(of_labels(*p)) for p in listed],
        "points": [lambda p=p: oriented(p) for p in motions],
    }


def measured(pair: truth.Pair, found: Any) -> float:
    """Score a transform by the mean Dice of the pair's labels or the mean error of its points."""
    if pair.fixed_points is None:
        labels = pair.fixed_labels, pair.moving_labels
        return morphseek.scoring.mean_dice(morphseek.scoring.score_labels(found, *labels))
    return pair.error(found)


def run_one(pair: truth.Pair, network: Network, j: int, tau: float, key: list[int]) -> Row:
    """Return the measures of `j` trajectories, the first of which is the mean."""
    began = time.process_time()
    how: Row = {"refine": 0, "search": False, "threads": 1, "device": "cpu"}
    engine = morphseek.register(pair.fixed, pair.moving, model=network.name, **how)
    affine, centres = np.array(engine.transform.initial), truth.centres(pair.fixed)
    row: Row = {"measured": [], "reward": [], "referee": [], "engine": measured(pair, engine)}
    for u, reward in network.trajectories(pair, affine, tau, j, key):
        grids = engine.grid, engine.moving_grid
        there = centres + morphseek.Field(u, *grids).displacement_mm()
        there = there @ affine[:3, :3].T + affine[:3, 3]
        at = morphseek.Field.from_mm(there - centres, *grids, initial=affine)
        looked = morphseek.register(
            pair.fixed, pair.moving, model="none", initial="none", initial_transform=at, **how
        )
        row["measured"].append(measured(pair, at))
        row["reward"].append(reward)
        row["referee"].append(looked.metrics["referee"]["correlation"])
        away = np.linalg.norm(at.displacement_mm() - engine.displacement_mm(), axis=-1)
        row.setdefault("engine_mm", float(away.mean()))  # of the mean, the first
    return row | {"cpu_seconds": time.process_time() - began}


def gains(rows: list[Row], way: str) -> NDArray[np.float64]:
    """Return for each row by how much a way to choose improves on the mean: in Dice, or in mm. Of
    equal candidates the first wins: a tie goes to the mean, as in the engine.
    """
    found = []
    for row in rows:
        scores = SETS[row["set"]] * np.array(row["measured"])
        chosen = int(np.argmax(scores if way == "truth" else row[way]))
        found.append(scores[chosen] - scores[0])
    return np.array(found)


def table(rows: list[Row]) -> str:
    """Return the gains over the mean, a line per network and way to choose."""
    lines = [
        "| network, tau, J | choice | Dice, 1/1000 (95 %) | p | points, mm (95 %) | p |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for of in dict.fromkeys((row["model"], row["tau"], row["j"]) for row in rows):
        for way in WAYS:
            cells = [f"`{of[0]}`, {of[1]:g}, {of[2]}", way]
            for which, scale, digits in (("overlap", 1000, 2), ("points", 1, 4)):
                here = [r for r in rows if (r["model"], r["tau"], r["j"], r["set"]) == (*of, which)]
                g = scale * gains(here, way)
                low, high = interval(g) if here else (0.0, 0.0)
                shown = f"{{:+.{digits}f}} ({{:+.{digits}f}} to {{:+.{digits}f}})"
                cells += (
                    [shown.format(g.mean(), low, high), f"{signed_rank_p(g):.2g}"]
                    if here
                    else ["", ""]
                )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@click.command(context_settings={"show_default": True})
@click.option(
    "--data", type=Path, required=True, help="The hippocampi: images, labels, split.json."
)
@click.option("--out", type=Path, required=True, help="Folder of rows.jsonl.")
@click.option("--models", default="hippocampus", help="Shipped networks, commas between.")
@click.option("--j", default=64, type=click.IntRange(1), help="Trajectories, the mean among them.")
@click.option("--tau", default=1.0, type=click.FloatRange(0), help="Temperature of the samples.")
@click.option("--n", default=6, type=click.IntRange(1), help="Pairs of each set.")
@click.option("--seed", default=2, help="Seed of the known motions and the samples.")
@click.option("--minutes", default=600.0, help="Start no pair after so many; 0 runs nothing.")
def main(
    data: Path, out: Path, models: str, j: int, tau: float, n: int, seed: int, minutes: float
) -> None:
    """Run the pairs that the folder lacks, and print the gain of the best of J over their mean."""
    if not (data / "split.json").is_file():
        raise click.BadParameter(
            f"{data} has no split.json; name the folder that has images, labels and it",
            param_hint="--data",
        )

    def tasks() -> Iterator[Task]:
        networks = [Network(name) for name in models.split(",")]
        for number, (which, pairs) in enumerate(tested(data, n, seed).items()):
            for k, make in enumerate(pairs):
                pair = make()
                for net in networks:
                    head = {"model": net.name, "tau": tau, "j": j, "set": which, "pair": pair.name}
                    yield (
                        head,
                        lambda p=pair, of=net, key=[seed, k, number]: run_one(p, of, j, tau, key),
                    )

    path = out / "rows.jsonl"
    for row in collect(path, tasks(), minutes) if minutes else ():
        click.echo(
            f"{row['model']} | {row['set']} | {row['pair']} | the mean {row['measured'][0]:.4f}"
            f" | {row['cpu_seconds']:.1f} CPU s"
        )
    rows = read(path)
    if not rows:
        raise click.BadParameter(f"{path} has no pair; give it more --minutes", param_hint="--out")
    click.echo(f"\n{sum(row['cpu_seconds'] for row in rows) / 3600:.2f} CPU hours\n")
    click.echo(table(rows))


if __name__ == "__main__":
    open_streams()
    main()
