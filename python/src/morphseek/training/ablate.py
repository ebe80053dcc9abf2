"""Ablations: what each part of the method is worth, by runs that one command makes and one command tabulates.

Every arm starts from one shared warm-up checkpoint, trains with its own switches, and is scored on the test pairs; what it
did is left in ``OUT/GROUP/ARM/seedN/result.json``. Arms that have their result are skipped, so a killed command is
continued by repeating it; a result of another scale or length is an error. :func:`tables` reads those files and nothing else.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .config import Config, load
from .data import read_pairs
from .evaluate import evaluate_pairs
from .trainer import Trainer, load_backbone

__all__ = ["GROUPS", "Arm", "Scale", "run", "tables"]


@dataclass
class Arm:
    """One configuration of an ablation.

    Attributes
    ----------
    label : str
        Row of the table.
    preset : str
    changes : dict
        Dotted configuration keys that differ from the preset.
    start : str
        Checkpoint: ``warmup`` (shared), ``headless`` (shared, without heads), or empty (from scratch).
    train : bool
        False scores the start checkpoint itself.
    time_of : str
        Train as many visits as fit the CPU time that this other arm of the group took per seed.
    """

    label: str
    preset: str = "paper"
    changes: dict[str, Any] = field(default_factory=dict)
    start: str = "warmup"
    train: bool = True
    time_of: str = ""


@dataclass
class Scale:
    """Size of the experiments.

    ``small`` fits a CPU core: a network of half a million parameters on a 1.5 mm grid of 32x40x32 voxels. ``full`` is the
    compact backbone on the 1 mm grid of the shipped bundle. Scores are on the 1 mm volumes in both.
    """

    name: str
    changes: dict[str, Any]


SCALES = {
    "small": Scale(
        "small",
        {
            "data.spacing": [1.5, 1.5, 1.5],
            "data.min_size": [32, 40, 32],
            "model.options": {"widths": [8, 16, 32], "latent_channels": 64, "decoder": [32, 16]},
        },
    ),
    "full": Scale("full", {"model.options": {}}),
}

#: The same optimiser for every row, its schedule complete in every run: a half-finished decay alone moves NJD.
COMMON = {
    "data.pairs": "grpo",
    "model.backbone": "compact",
    "optim.lr": 5e-4,
    "optim.schedule": "cosine",
    "optim.final": 0.05,
    "optim.warmup": 10,
    "optim.weight_decay": 0.0,
    "optim.clip": 1.0,
    "optim.ema": 0.0,
    "loss.segmentation": 0.0,
    "run.pretrain": 0,
    "run.steps_schedule": [],
    "run.steps": 3,
    "run.val_every": 10**9,
    "run.checkpoint_minutes": 3.0,
    "run.picture_every": 0,
    "run.threads": 1,
    "data.val": "",
}

_NO_AUGMENTATION = {
    f"augment.{k}": 0.0
    for k in ("mirror", "rotation_deg", "scale", "translation_mm", "shear", "gamma", "noise", "contrast")
}
_NO_POLICY = {"policy.kind": "none"}
#: `best` and `policy` without the augmentation, the heavy Dice weight and the volume term of the shipped run, so that rows differ in the method.
_OURS = {"loss.dice": 0.6, "loss.kl": 1e-4, "loss.window": 9, "loss.volume": 0.0, **_NO_AUGMENTATION}

GROUPS: dict[str, dict[str, Arm]] = {
    "ladder": {
        "headless": Arm("warm-up, no heads", start="headless", train=False),
        "warmup": Arm("warm-up, + Gaussian heads", train=False),
        "dice": Arm("+ Dice loss, T = 1", changes={**_NO_POLICY, "run.steps": 1}),
        "multistep": Arm("+ multi-step, T = 3", changes=_NO_POLICY),
        "paper": Arm("+ GRPO as printed (`paper`)"),
        "policy": Arm("`policy`", preset="policy", changes=_OURS),
        "best": Arm("`best`", preset="best", changes=_OURS),
        "paper0": Arm("`paper`, policy weight 0", changes={"policy.weight": 0.0}),
        "best_time": Arm("`best`, CPU time of `policy`", preset="best", changes=_OURS, time_of="policy"),
    },
    "ldvn": {
        k: Arm(f"s = {text}", changes={"policy.ldvn": k}) for k, text in (("one", "1"), ("sqrt", "sqrt N"), ("n", "N"))
    },
    "trajectories": {
        f"{kind}_j{j}": Arm(
            f"`{kind}`, J = {j}", preset=kind, changes={"policy.trajectories": j} | (_OURS if kind == "policy" else {})
        )
        for kind in ("paper", "policy")
        for j in (2, 4, 6, 8)
    },
    "steps": {f"t{t}": Arm(f"`best`, T = {t}", preset="best", changes={**_OURS, "run.steps": t}) for t in (1, 2, 3, 4)},
    "labels": {
        f"n{n}": Arm(f"`best`, {n} labelled pairs", preset="best", changes={**_OURS, "data.limit": n})
        for n in (16, 40, 60, 100)
    },
    "hd95": {
        "control": Arm("L_warm only", preset="best", changes={**_OURS, "loss.dice": 0.0}),
        "policy": Arm(
            "policy on HD95, no Dice loss",
            preset="policy",
            changes={**_OURS, "loss.dice": 0.0, "policy.reward": "hd95", "policy.gradient_ratio": 1.0},
        ),
        "surrogate": Arm("soft Dice as surrogate, no policy", preset="best", changes=_OURS),
        "both": Arm("surrogate + policy on HD95", preset="policy", changes={**_OURS, "policy.reward": "hd95"}),
    },
}


def _config(arm: Arm, scale: Scale, data: Path, visits: int, seed: int) -> Config:
    values = COMMON | {"data.path": str(data), "run.visits": visits, "run.seed": seed} | scale.changes | arm.changes
    if arm.preset == "paper":
        # The whole temperature schedule, 10 -> 2, within the run.
        values.setdefault("policy.tau_every", max(visits // 9, 1))
    return load(arm.preset).replace(**values)


def _warmup(name: str, scale: Scale, data: Path, out: Path, visits: int) -> Path:
    """The shared checkpoint, trained without labels if it is not there yet."""
    folder = out / "warmup" / name
    values = COMMON | {
        "data.path": str(data),
        "data.pairs": "warmup",
        "run.stage": "warmup",
        "run.steps": 1,
        "run.visits": visits,
        "model.heads": name != "headless",
        **_NO_POLICY,
        **scale.changes,
    }
    config = load("paper").replace(**values)
    if (folder / "done").exists():
        then = load_backbone(folder / "last.pt")[1]
        if (then.run.visits, then.model) != (visits, config.model):
            raise ValueError(f"{folder} has a warm-up of another scale or number of visits; choose another --out")
    else:
        start = time.process_time()
        trainer = Trainer(config, folder, progress=False)
        trainer.run()
        if trainer.visit < visits:
            raise KeyboardInterrupt(f"stopped at visit {trainer.visit} of {visits} in {folder}")
        (folder / "done").write_text(f"{time.process_time() - start:.1f} CPU s\n")
    return folder / "last.pt"


def run(
    group: str,
    data: str | Path,
    out: str | Path,
    visits: int = 200,
    seeds: tuple[int, ...] = (0,),
    arms: tuple[str, ...] = (),
    scale: str = "small",
    warmup_visits: int = 400,
    eval_steps: int = 3,
) -> None:
    """Train and score the arms of a group.

    Parameters
    ----------
    group : str
        Key of :data:`GROUPS`.
    data, out : path
    visits : int
        Of each arm.
    seeds : tuple of int
    arms : tuple of str
        Only these; empty means all.
    scale : {"small", "full"}
    warmup_visits : int
        Of the shared warm-up checkpoint.
    eval_steps : int
        Largest T at which the test pairs are scored.
    """
    data, out = Path(data), Path(out)
    size = SCALES[scale]
    for seed in seeds:
        for key, arm in GROUPS[group].items():
            if arms and key not in arms:
                continue
            if not arm.train and seed != seeds[0]:
                continue
            folder = out / group / key / f"seed{seed}"
            result = folder / "result.json"
            if result.exists():
                then = json.loads(result.read_text())
                # The visits of the others follow from times that were measured, or are none.
                given = arm.train and not arm.time_of
                if then["scale"] != scale or (given and then["visits"] != visits):
                    raise ValueError(
                        f"{result} is of scale {then['scale']!r} with {then['visits']} visits, not of {scale!r} with {visits}; "
                        "choose another --out"
                    )
                continue
            start = _warmup(arm.start, size, data, out, warmup_visits) if arm.start else None
            count = visits
            if arm.time_of:
                other = json.loads((out / group / arm.time_of / f"seed{seed}" / "result.json").read_text())
                own = json.loads((out / group / "best" / f"seed{seed}" / "result.json").read_text())
                count = round(visits * other["cpu_seconds"] / own["cpu_seconds"])
            config = _config(arm, size, data, count, seed)
            cpu = wall = 0.0
            updates = 0
            if arm.train:
                trainer = Trainer(config, folder, init=start, progress=False)
                trainer.run()
                # Kept in the checkpoint: an arm that was interrupted counts all its sessions.
                cpu, wall = trainer.cpu_seconds, trainer.seconds
                updates = trainer.updates
                if trainer.visit < count:
                    # Stopped by a signal: the checkpoint continues when the command is repeated.
                    raise KeyboardInterrupt(f"stopped at visit {trainer.visit} of {count} in {folder}")
                backbone, source = trainer.backbone, trainer.source
            else:
                backbone, config, _ = load_backbone(start)
                from .data import PairSource

                source = PairSource.configured(config.data, data)
            steps = max(eval_steps, config.run.steps)
            rows = evaluate_pairs(
                backbone,
                source,
                read_pairs(data, config.data.test),
                config.data.spacing,
                config.data.min_size,
                steps,
                surface=group == "hd95",
            )
            folder.mkdir(parents=True, exist_ok=True)
            temporary = result.with_suffix(".tmp")
            temporary.write_text(
                json.dumps(
                    {
                        "group": group,
                        "arm": key,
                        "label": arm.label,
                        "seed": seed,
                        "scale": scale,
                        "visits": count if arm.train else 0,
                        "updates": updates,
                        "cpu_seconds": round(cpu, 1),
                        "wall_seconds": round(wall, 1),
                        "config": config.to_dict() | {"data": config.to_dict()["data"] | {"path": ""}},
                        "pairs": rows,
                    }
                )
            )
            os.replace(temporary, result)


def _collect(out: Path, group: str) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for key in GROUPS[group]:
        results = [json.loads(p.read_text()) for p in sorted((out / group / key).glob("seed*/result.json"))]
        if results:
            found[key] = results
    return found


def _per_pair(results: list[dict], step: int, what: str) -> np.ndarray:
    """Mean over seeds, one value a pair."""
    return np.mean([[p["steps"][step][what] for p in r["pairs"]] for r in results], axis=0)


def wilcoxon(a: np.ndarray, b: np.ndarray) -> float:
    """Two-sided p-value of the paired Wilcoxon signed-rank test; 1 where nothing differs."""
    from scipy import stats

    if np.allclose(a, b):
        return 1.0
    return float(stats.wilcoxon(a, b).pvalue)


#: Comparisons whose p-values stand under the table: (arm, against).
COMPARISONS = {
    "ladder": [
        ("warmup", "headless"),
        ("dice", "warmup"),
        ("multistep", "dice"),
        ("paper", "multistep"),
        ("paper", "paper0"),
        ("policy", "multistep"),
        ("policy", "best"),
        ("best", "multistep"),
        ("best", "paper"),
        ("best_time", "policy"),
    ],
    "ldvn": [("one", "sqrt"), ("n", "sqrt")],
    "trajectories": [("paper_j8", "paper_j2"), ("policy_j8", "policy_j2")],
    "steps": [("t2", "t1"), ("t3", "t2"), ("t4", "t3")],
    "labels": [("n40", "n16"), ("n60", "n40"), ("n100", "n60")],
    "hd95": [("policy", "control"), ("surrogate", "policy"), ("both", "surrogate")],
}


def tables(out: str | Path) -> str:
    """Markdown tables of every group that has results, with paired Wilcoxon p-values over the test pairs."""
    out = Path(out)
    text = []
    for group in GROUPS:
        found = _collect(out, group)
        if not found:
            continue
        surface = group == "hd95"
        steps = (1, 2, 3)
        head = ["run", "visits", "updates", "CPU s", "seeds", *(f"Dice % / NJD % at T = {t}" for t in steps), "Dice % by seed (T = 3)"]
        if surface:
            head.append("HD95 mm (T = 3)")
        first = next(iter(found.values()))
        scale = first[0]["scale"]
        count = len(first[0]["pairs"])
        text.append(f"### {group} ({scale} scale, {count} test pairs)\n")
        text.append("| " + " | ".join(head) + " |")
        text.append("|" + "---|" * len(head))
        start = 100 * _per_pair(first, 0, "dice").mean()
        blank = " | ".join([""] * (len(head) - 6))
        text.append(f"| centres aligned, not registered | | | | | {start:.2f} | {blank} |")
        for results in found.values():
            cells = []
            for t in steps:
                dice = [100 * np.mean([p["steps"][t]["dice"] for p in r["pairs"]]) for r in results]
                njd = [np.mean([p["steps"][t]["njd"] for p in r["pairs"]]) for r in results]
                cells.append(f"{np.mean(dice):.2f} / {np.mean(njd):.3f}")
            r = results[0]
            row = [r["label"], r["visits"], r["updates"], f"{np.mean([x['cpu_seconds'] for x in results]):.0f}", len(results)]
            row += [*cells, " / ".join(f"{d:.2f}" for d in dice)]
            if surface:
                row.append(f"{_per_pair(results, 3, 'hd95').mean():.3f}")
            text.append("| " + " | ".join(map(str, row)) + " |")
        lines = []
        for a, b in COMPARISONS[group]:
            if a in found and b in found:
                # Where seeds differ in number, compare the seeds that both have.
                both = {r["seed"] for r in found[a]} & {r["seed"] for r in found[b]}
                pick = {k: [r for r in found[k] if r["seed"] in both] or found[k] for k in (a, b)}
                parts = []
                for what, unit, factor in (("dice", "Dice", 100), ("njd", "NJD", 1), *((("hd95", "HD95", 1),) if surface else ())):
                    x, y = (_per_pair(pick[k], 3, what) for k in (a, b))
                    parts.append(f"{unit} {factor * (x - y).mean():+.3f} (p = {wilcoxon(x, y):.2g})")
                seeds = len(both) or 1
                lines.append(f"- {found[a][0]['label']} against {found[b][0]['label']}, {seeds} seed(s): {', '.join(parts)}")
        if lines:
            text.append("\nAt T = 3, paired Wilcoxon over the test pairs, each pair's mean over seeds:\n")
            text += lines
        text.append("")
    return "\n".join(text)
