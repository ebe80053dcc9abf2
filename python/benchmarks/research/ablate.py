"""Ablations: measures what each part of the method contributes. One command makes the runs, another
one tabulates them.

    python python/benchmarks/research/ablate.py run ladder --data DIR --out runs/small
    python python/benchmarks/research/ablate.py tables runs/small

Every arm starts from one shared warm-up checkpoint, trains with its own settings, and is scored on
the test pairs; its result is ``OUT/GROUP/ARM/seedN/result.json``. Arms with a result are skipped,
so a killed command is continued by repeating it. A result of another scale or length, or with other
keys changed, is an error. :func:`tables` reads only these files.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from morphseek import _files
from morphseek._json import without_nan
from morphseek.scoring.statistics import signed_rank_p
from morphseek.training.cli import Stages, changes_of
from morphseek.training.config import Config, KnownMotion, load
from morphseek.training.evaluate import evaluate_pairs, evaluate_points, first
from morphseek.training.pairs import PairSource, read_pairs
from morphseek.training.run import Trainer, load_backbone


@dataclass
class Arm:
    """One configuration of an ablation: the row's label, the preset, and dotted keys that differ.

    `start` is a checkpoint: ``warmup`` (shared), ``headless`` (shared, without heads), or empty
    (from scratch); without `train` it is scored itself. With `time_of` the arm trains as many
    iterations as fit the CPU time that that arm took per seed, at the speed of the arm `like`.
    """

    label: str
    preset: str = "paper"
    changes: dict[str, Any] = field(default_factory=dict)
    start: str = "warmup"
    train: bool = True
    time_of: str = ""
    like: str = "best"


#: ``small`` fits a CPU core: a network of half a million parameters on a 1.5 mm grid of 32x40x32
#: voxels. ``full`` is the compact backbone on the 1 mm grid of the shipped bundle. Scores are on
#: the 1 mm volumes in both.
SCALES: dict[str, dict[str, Any]] = {
    "small": {
        "data.spacing": [1.5, 1.5, 1.5],
        "data.min_size": [32, 40, 32],
        "model.options": {"widths": [8, 16, 32], "latent_channels": 64, "decoder": [32, 16]},
    },
    "full": {"model.options": {}},
}

#: The same optimiser for every row, with a complete schedule in every run: an incomplete decay
#: alone changes NJD.
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

_AUGMENTATION = "mirror rotation_deg scale translation_mm shear gamma noise contrast".split()
_NO_AUGMENTATION = {f"augment.{k}": 0.0 for k in _AUGMENTATION}
_NO_POLICY = {"policy.kind": "none"}
#: `best` and `policy` without the augmentation, the heavy Dice weight and the volume term of the
#: shipped run, so that rows differ only in the method.
_OURS = {
    "loss.dice": 0.6,
    "loss.kl": 1e-4,
    "loss.window": 9,
    "loss.volume": 0.0,
    **_NO_AUGMENTATION,
}


def _without(preset: str, label: str, **changes: Any) -> Arm:
    """Return a recipe without one element; in names of keys, two underscores stand for a dot."""
    return Arm(
        f"`{preset}`, {label}",
        preset=preset,
        changes=_OURS | {k.replace("__", "."): v for k, v in changes.items()},
    )


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
        "best_time": Arm(
            "`best`, CPU time of `policy`", preset="best", changes=_OURS, time_of="policy"
        ),
    },
    "ldvn": {
        k: Arm(f"s = {text}", changes={"policy.ldvn": k})
        for k, text in (("one", "1"), ("sqrt", "sqrt N"), ("n", "N"))
    },
    "trajectories": {
        f"{kind}_j{j}": Arm(
            f"`{kind}`, J = {j}",
            preset=kind,
            changes={"policy.trajectories": j} | (_OURS if kind == "policy" else {}),
        )
        for kind in ("paper", "policy")
        for j in (2, 4, 6, 8)
    },
    "steps": {
        f"t{t}": Arm(f"`best`, T = {t}", preset="best", changes={**_OURS, "run.steps": t})
        for t in (1, 2, 3, 4)
    },
    "labels": {
        f"n{n}": Arm(
            f"`best`, {n} labelled pairs", preset="best", changes={**_OURS, "data.limit": n}
        )
        for n in (16, 40, 60, 100)
    },
    "hd95": {
        "control": Arm("L_warm only", preset="best", changes={**_OURS, "loss.dice": 0.0}),
        "policy": Arm(
            "policy on HD95, no Dice loss",
            preset="policy",
            changes={
                **_OURS,
                "loss.dice": 0.0,
                "policy.reward": "hd95",
                "policy.gradient_ratio": 1.0,
            },
        ),
        "surrogate": Arm("soft Dice as surrogate, no policy", preset="best", changes=_OURS),
        "both": Arm(
            "surrogate + policy on HD95",
            preset="policy",
            changes={**_OURS, "policy.reward": "hd95"},
        ),
    },
    "recipe": {
        "policy": _without("policy", "whole"),
        "no_mean": _without("policy", "mu no candidate", policy__mean_candidate=False),
        "scalar": _without("policy", "scalar advantage", policy__advantage="scalar"),
        "independent": _without("policy", "samples not antithetic", policy__antithetic=False),
        "rough": _without("policy", "white noise in 4 channels", policy__smooth_sd=0.0),
        # All latent channels of the small scale; a larger rank would be the same.
        "all_channels": _without("policy", "smooth noise in all 64 channels", policy__rank=64),
        "white": _without(
            "policy", "white noise in all 64 channels", policy__smooth_sd=0.0, policy__rank=64
        ),
        "learned": _without("policy", "directions by Oja's rule", policy__head="learned"),
        "fixed": _without("policy", "fixed weight 1", policy__balance="fixed", policy__weight=1.0),
        # Between the weights that the norms give at the start and at the end of the run.
        "fixed_low": _without(
            "policy", "fixed weight 0.001", policy__balance="fixed", policy__weight=0.001
        ),
        "no_gradient": _without("policy", "policy gradient off", policy__gradient_ratio=0.0),
        "best": _without("best", "whole"),
        "no_fold": _without("best", "no fold hinge", loss__fold=0.0),
        "displacement": _without(
            "best", "displacement field", model__parametrisation="displacement"
        ),
        "neither": _without(
            "best",
            "displacement field, no fold hinge",
            model__parametrisation="displacement",
            loss__fold=0.0,
        ),
        "dice02": _without("best", "Dice weight 0.2", loss__dice=0.2),
    },
}


#: Half of the training pairs are known motions. If the truth has weight only in the reward, it has
#: no exact gradient.
_PAPER_KNOWN = {"known.share": 0.5, "loss.truth": 0.2}
_KNOWN = _OURS | _PAPER_KNOWN
_REWARD = {"policy.w_truth": -3.0}
GROUPS["points"] = {
    "best": Arm("`best`", preset="best", changes=_OURS),
    **{
        f"best_{weight:g}": Arm(
            f"`best`, known motions, truth {weight:g}",
            preset="best",
            changes={**_KNOWN, "loss.truth": weight},
        )
        for weight in (0.05, 0.2, 0.8)
    },
    "paper": Arm("`paper`"),
    "paper_known": Arm("`paper`, known motions, truth 0.2", changes=_PAPER_KNOWN),
    "paper_reward": Arm(
        "`paper`, known motions, truth 0.2 and in the reward", changes=_PAPER_KNOWN | _REWARD
    ),
    "policy": Arm("`policy`", preset="policy", changes=_OURS),
    "policy_known": Arm("`policy`, known motions, truth 0.2", preset="policy", changes=_KNOWN),
    "policy_reward": Arm(
        "`policy`, known motions, truth 0.2 and in the reward",
        preset="policy",
        changes=_KNOWN | _REWARD,
    ),
    "policy_only": Arm(
        "`policy`, known motions, truth in the reward alone",
        preset="policy",
        changes=_KNOWN | _REWARD | {"loss.truth": 0.0},
    ),
    "best_time": Arm(
        "`best`, known motions, truth 0.2, CPU time of the policy's",
        preset="best",
        changes=_KNOWN,
        time_of="policy_reward",
        like="best_0.2",
    ),
}


KNOWN_VOLUMES = 15
"""Test volumes whose known motions the group ``points`` is scored on."""

#: Keys that the ablation sets itself, or that have options of their own.
_FIXED = ("data.path", "run.iterations", "run.seed", "run.stage", "model.heads")


def _config(
    arm: Arm,
    scale: dict[str, Any],
    data: Path,
    iterations: int,
    seed: int,
    changes: dict[str, Any] | None = None,
) -> Config:
    values = (
        COMMON
        | {"data.path": str(data), "run.iterations": iterations, "run.seed": seed}
        | scale
        | (changes or {})
        | arm.changes
    )
    if arm.preset == "paper":
        # The whole temperature schedule, 10 -> 2, fits into the run.
        values.setdefault("policy.tau_every", max(iterations // 9, 1))
    return load(arm.preset).replace(**values)


def _check_changes(group: str, changes: dict[str, Any]) -> None:
    """Refuse changes of keys that a group's arms set: the arms would contradict their labels."""
    for key in changes:
        if key in _FIXED:
            raise ValueError(f"{key!r} is the ablation's own to set")
        # model.options.widths changes a part of what model.options sets.
        owner = next(
            (
                k
                for k, arm in GROUPS[group].items()
                if any(key == x or key.startswith(f"{x}.") for x in arm.changes)
            ),
            None,
        )
        if owner:
            raise ValueError(f"{key!r} is what the arm {owner!r} of {group!r} sets itself")


def _warmup(
    arm: Arm,
    scale: dict[str, Any],
    data: Path,
    out: Path,
    iterations: int,
    changes: dict[str, Any] | None = None,
) -> Path:
    """Return the checkpoint that arms with the same parametrisation share; train it without labels
    if it is missing.
    """
    own = load(arm.preset).replace(**arm.changes).model.parametrisation
    folder = out / "warmup" / (f"{arm.start}-velocity" if own == "velocity" else arm.start)
    values = COMMON | {"data.pairs": "subjects:train"} | scale | (changes or {})
    values |= {
        "data.path": str(data),
        "run.stage": "warmup",
        "run.steps": 1,
        "run.steps_schedule": [],
        "run.iterations": iterations,
        "model.heads": arm.start != "headless",
        "model.parametrisation": own,
        **_NO_POLICY,
    }
    config = load("paper").replace(**values)
    if (folder / "done").exists():
        then = load_backbone(folder / "last.pt")[1]
        then.data.path = config.data.path
        if (then.run.iterations, then.model, then.data, then.loss) != (
            iterations,
            config.model,
            config.data,
            config.loss,
        ):
            raise ValueError(
                f"{folder} has a warm-up of another scale or number of iterations, or with other"
                " keys changed; choose another --out"
            )
    else:
        start = time.process_time()
        trainer = Trainer(config, folder, progress=False)
        trainer.run()
        if trainer.iteration < iterations:
            raise KeyboardInterrupt(
                f"stopped at iteration {trainer.iteration} of {iterations} in {folder}"
            )
        (folder / "done").write_text(f"{time.process_time() - start:.1f} CPU s\n")
    return folder / "last.pt"


def run(
    group: str,
    data: str | Path,
    out: str | Path,
    iterations: int = 200,
    seeds: tuple[int, ...] = (0,),
    arms: tuple[str, ...] = (),
    scale: str = "small",
    warmup_iterations: int = 400,
    eval_steps: int = 3,
    changes: dict[str, Any] | None = None,
) -> None:
    """Train and score the arms of a group, a key of :data:`GROUPS`; `arms` are only these, empty
    means all. `warmup_iterations` are those of the shared checkpoint. Test pairs are scored up to
    T = `eval_steps`, or an arm's own T if that is larger. `changes` are dotted keys that differ in
    every arm and in the warm-up, such as ``data.labels``; none that an arm of the group sets.
    """
    data, out = Path(data), Path(out)
    changes = changes or {}
    _check_changes(group, changes)
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
                # The iterations of other arms follow from measured times, or they do not train.
                given = arm.train and not arm.time_of
                if then["scale"] != scale or (given and then["iterations"] != iterations):
                    raise ValueError(
                        f"{result} is of scale {then['scale']!r} with {then['iterations']}"
                        f" iterations, not of {scale!r} with {iterations}; choose another --out"
                    )
                if then.get("set", {}) != changes:
                    raise ValueError(
                        f"{result} has {_changed(then)} changed, not {_changed({'set': changes})};"
                        " choose another --out"
                    )
                continue
            start = _warmup(arm, size, data, out, warmup_iterations, changes) if arm.start else None
            count = iterations
            if arm.time_of:
                other, own = (
                    json.loads((out / group / of / folder.name / result.name).read_text())
                    for of in (arm.time_of, arm.like)
                )
                count = round(iterations * other["cpu_seconds"] / own["cpu_seconds"])
            config = _config(arm, size, data, count, seed, changes)
            cpu = wall = 0.0
            updates = 0
            if arm.train:
                trainer = Trainer(config, folder, init=start, progress=False)
                trainer.run()
                # From the checkpoint, so that an interrupted arm counts all its sessions.
                cpu, wall = trainer.cpu_seconds, trainer.seconds
                updates = trainer.updates
                if trainer.iteration < count:
                    # Stopped by a signal: repeating the command continues from the checkpoint.
                    raise KeyboardInterrupt(
                        f"stopped at iteration {trainer.iteration} of {count} in {folder}"
                    )
                backbone, source = trainer.backbone, trainer.supply.source
            else:
                backbone, config, _ = load_backbone(start)
                source = PairSource.configured(config.data, data)
            steps = max(eval_steps, config.run.steps)
            listed = read_pairs(data, config.data.test)
            grid = config.data.spacing, config.data.min_size, steps
            rows = evaluate_pairs(backbone, source, listed, *grid, surface=group == "hd95")
            points = []
            if group == "points":  # the same motions for every arm
                names = first(listed, KNOWN_VOLUMES)
                points = evaluate_points(backbone, source, names, *grid, KnownMotion())
            folder.mkdir(parents=True, exist_ok=True)
            _files.write_text(
                result,
                json.dumps(
                    {
                        "group": group,
                        "arm": key,
                        "label": arm.label,
                        "seed": seed,
                        "scale": scale,
                        "set": changes,
                        "iterations": count if arm.train else 0,
                        "updates": updates,
                        "cpu_seconds": round(cpu, 1),
                        "wall_seconds": round(wall, 1),
                        "config": (
                            config.to_dict() | {"data": config.to_dict()["data"] | {"path": ""}}
                        ),
                        "pairs": without_nan(rows),
                        "points": points,
                    },
                    allow_nan=False,
                ),
            )


def _changed(result: dict) -> str:
    """Return the keys that ``--set`` changed, as text."""
    return (
        ", ".join(f"{k} = {json.dumps(v)}" for k, v in sorted(result.get("set", {}).items()))
        or "no key"
    )


def _collect(out: Path, group: str) -> dict[tuple[str, str], dict[str, list[dict]]]:
    """Return the results grouped by scale and changed keys, which comparisons need in common, then
    by arm.
    """
    found: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for key in GROUPS[group]:
        for path in sorted((out / group / key).glob("seed*/result.json")):
            result = json.loads(path.read_text())
            found.setdefault((result["scale"], _changed(result)), {}).setdefault(key, []).append(
                result
            )
    return found


def _own_steps(result: dict) -> int:
    """Return the T that an arm was trained with."""
    return result["config"]["run"]["steps"]


def _per_pair(results: list[dict], step: int, what: str) -> np.ndarray:
    """Return means over seeds, one value per pair; NaN if a pair has none."""
    return np.mean(
        np.array([[p["steps"][step].get(what) for p in r["pairs"]] for r in results], dtype=float),
        axis=0,
    )


def _per_volume(results: list[dict], what: str) -> np.ndarray:
    """Return point errors on known motions at T = 3: means over seeds, one value per volume."""
    return np.mean([[p["steps"][3][what] for p in r["points"]] for r in results], axis=0)


def wilcoxon(a: np.ndarray, b: np.ndarray) -> float:
    """Return the two-sided p-value of the paired Wilcoxon signed-rank test over the pairs of both;
    1 if nothing differs.
    """
    difference = (a - b)[np.isfinite(a - b)]
    return 1.0 if np.allclose(difference, 0) else signed_rank_p(difference)


#: Comparisons whose p-values are given below the table: (arm, against).
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
    "recipe": [
        *((k, arm.preset) for k, arm in GROUPS["recipe"].items() if k != arm.preset),
        ("policy", "best"),
    ],
    "points": [
        ("best_0.05", "best"),
        ("best_0.2", "best"),
        ("best_0.8", "best"),
        ("best_0.2", "best_0.05"),
        ("best_0.8", "best_0.2"),
        ("paper_known", "paper"),
        ("paper_reward", "paper_known"),
        ("policy_known", "policy"),
        ("policy_reward", "policy_known"),
        ("policy_only", "policy"),
        ("policy_reward", "best_0.2"),
        ("best_time", "policy_reward"),
    ],
}

#: Groups whose arms differ in T: each is compared at its own.
_AT_OWN_T = ("steps",)


def tables(out: str | Path) -> str:
    """Return Markdown tables of every group with results, with paired Wilcoxon p-values over the
    test pairs.

    Results of another scale or with other keys changed get a table of their own.
    """
    out = Path(out)
    return "\n".join(
        _table(group, *setting, found)
        for group in GROUPS
        for setting, found in _collect(out, group).items()
    )


def _table(group: str, scale: str, changed: str, found: dict[str, list[dict]]) -> str:
    surface = group == "hd95"
    points = group == "points"
    own = group in _AT_OWN_T
    steps = (1, 2, 3)
    head = [
        "run",
        "iterations",
        "updates",
        "CPU s",
        "seeds",
        *(f"Dice % / NJD % at T = {t}" for t in steps),
    ]
    if own:
        head.append("Dice % / NJD % at its own T")
    head.append(f"Dice % by seed ({'own T' if own else 'T = 3'})")
    if surface:
        head.append("HD95 mm (T = 3)")
    if points:
        head += ["points, mm (by seed)", "two contrasts, mm"]
    first = next(iter(found.values()))
    count = len(first[0]["pairs"])
    text = [
        f"### {group} ({scale} scale, {count} test"
        f" pairs{'' if changed == 'no key' else f', {changed}'})\n"
    ]
    text.append("| " + " | ".join(head) + " |")
    text.append("|" + "---|" * len(head))
    start = 100 * np.nanmean(_per_pair(first, 0, "dice"))
    blank = " | ".join([""] * (len(head) - 6))
    text.append(f"| centres aligned, not registered | | | | | {start:.2f} | {blank} |")
    for results in found.values():
        last = _own_steps(results[0]) if own else 3

        def dice_of(t: int, results: list[dict] = results) -> list[float]:
            return [100 * np.nanmean(_per_pair([r], t, "dice")) for r in results]

        r = results[0]
        row = [
            r["label"],
            r["iterations"],
            r["updates"],
            f"{np.mean([x['cpu_seconds'] for x in results]):.0f}",
            len(results),
        ]
        for t in (*steps, last) if own else steps:
            njd = [np.nanmean(_per_pair([r], t, "njd")) for r in results]
            row.append(f"{np.mean(dice_of(t)):.2f} / {np.mean(njd):.3f}")
        row.append(" / ".join(f"{d:.2f}" for d in dice_of(last)))
        if surface:
            row.append(f"{np.nanmean(_per_pair(results, 3, 'hd95')):.3f}")
        if points:
            by_seed = [np.mean(_per_volume([x], "points_mm")) for x in results]
            row.append(
                f"{np.mean(by_seed):.2f} ({' / '.join(f'{value:.2f}' for value in by_seed)})"
            )
            row.append(f"{np.mean(_per_volume(results, 'points_two_mm')):.2f}")
        text.append("| " + " | ".join(map(str, row)) + " |")
    lines = []
    for a, b in COMPARISONS[group]:
        if a not in found or b not in found:
            continue
        names = f"{found[a][0]['label']} against {found[b][0]['label']}"
        # If the arms have different seeds, compare those that both have.
        both = {r["seed"] for r in found[a]} & {r["seed"] for r in found[b]}
        if not both:
            lines.append(f"- {names}: no seed in common")
            continue
        pick = {k: [r for r in found[k] if r["seed"] in both] for k in (a, b)}
        at = {k: _own_steps(pick[k][0]) if own else 3 for k in (a, b)}
        parts = []
        for what, unit, factor in (
            ("dice", "Dice", 100),
            ("njd", "NJD", 1),
            *((("hd95", "HD95", 1),) if surface else ()),
        ):
            x, y = (_per_pair(pick[k], at[k], what) for k in (a, b))
            parts.append(f"{unit} {factor * np.nanmean(x - y):+.3f} (p = {wilcoxon(x, y):.2g})")
            if missing := int(np.isnan(x - y).sum()):
                parts[-1] += f" without {missing} pair(s) that lack it"
        for what, name in (("points_mm", "points"), ("points_two_mm", "two contrasts")):
            if points:
                x, y = (_per_volume(pick[k], what) for k in (a, b))
                parts.append(f"{name} {np.mean(x - y):+.3f} mm (p = {wilcoxon(x, y):.2g})")
        lines.append(f"- {names}, {len(both)} seed(s): {', '.join(parts)}")
    if lines:
        text.append(
            f"\nAt {'its own T each' if own else 'T = 3'}, paired Wilcoxon over the test pairs,"
            " each pair's mean over seeds:\n"
        )
        text += lines
    text.append("")
    return "\n".join(text)


@click.group(cls=Stages, no_args_is_help=True, context_settings={"show_default": True})
def app() -> None:
    """Run ablations of the training."""


@app.command("run")
@click.argument("group")
@click.option(
    "--data",
    type=Path,
    required=True,
    envvar="MORPHSEEK_DATA_SET",
    metavar="DIR",
    help="Data folder.",
)
@click.option(
    "--out",
    type=Path,
    required=True,
    help="Folder of the results; finished arms in it are not repeated.",
)
@click.option("--iterations", default=200, help="Training iterations of an arm.")
@click.option("--seeds", default=1, help="Seeds 0 to this minus 1.")
@click.option("--scale", default="small", help="small (one CPU core) or full.")
@click.option("--arms", default="", help="Only these arms, comma-separated.")
@click.option(
    "--set",
    "set_",
    multiple=True,
    metavar="KEY=VALUE",
    help=("Change one key in every arm and in the warm-up, e.g. --set data.labels=4 (repeatable)."),
)
def run_command(
    group: str,
    data: Path,
    out: Path,
    iterations: int,
    seeds: int,
    scale: str,
    arms: str,
    set_: tuple[str, ...],
) -> None:
    """Run a group of ablations; `tables` then prints it. GROUP is ladder, ldvn, trajectories,
    steps, labels, hd95, recipe, points or all.
    """
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}; there are {', '.join(SCALES)}")
    if group != "all" and group not in GROUPS:
        raise ValueError(f"unknown group {group!r}; there are {', '.join(GROUPS)} and all")
    only = tuple(a for a in arms.split(",") if a)
    groups = tuple(GROUPS) if group == "all" else (group,)
    known = [arm for name in groups for arm in GROUPS[name]]
    if odd := [arm for arm in only if arm not in known]:
        raise ValueError(f"unknown arm {odd[0]!r}; there are {', '.join(dict.fromkeys(known))}")
    for name in groups:
        run(
            name,
            data,
            out,
            iterations=iterations,
            seeds=tuple(range(seeds)),
            scale=scale,
            arms=only,
            changes=changes_of(set_),
        )


@app.command("tables")
@click.argument("out", type=Path)
def tables_command(out: Path) -> None:
    """Print Markdown tables and p-values of the ablations in OUT, the folder of `run`."""
    text = tables(out)
    if not text:
        raise ValueError(f"{out} has no results of `run`")
    click.echo(text)


if __name__ == "__main__":
    app()
