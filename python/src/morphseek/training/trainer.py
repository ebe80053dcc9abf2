"""The training loop: visits of pairs, validation, checkpoints that survive a kill.

A *visit* is one pair (or ``optim.accumulate`` of them) taken through T steps, with an optimiser
step after each. Everything random about visit ``n`` of process ``r`` comes from a generator seeded
with (seed, r, n), so a resumed run repeats the lost visits exactly and ends with the same weights
as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import pickle
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .backbones import BACKBONES
from .config import Config, ConfigError, without_nan
from .data import DataError, PairSource, Sample, make_grid, make_sample, read_pairs, read_people
from .evaluate import evaluate_pairs, register_sample, score_sample, scores
from .export import bundle_weights, read_manifest
from .losses import hard_dice
from .objective import StepObjective, build_backbone
from .policy import channel_basis
from .spatial import njd_fraction, warp
from .synthetic import SyntheticSource

__all__ = ["Trainer", "average", "load_backbone", "save_atomic"]

FORMAT = 1


def save_atomic(value: dict, path: Path) -> None:
    """``torch.save`` to a temporary name, then rename: a kill leaves the old file or the new one,
    never half a file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as f:
            torch.save(value, f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_backbone(path: str | Path, weights: str = "auto"):
    """Rebuild a network from a checkpoint.

    Parameters
    ----------
    path
        ``last.pt`` or ``best.pt`` of a run.
    weights : {"auto", "model", "ema"}
        ``auto``: the moving average where the run kept one.

    Returns
    -------
    backbone : PolicyBackbone
        In evaluation mode.
    config : Config
    checkpoint : dict
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        kind = checkpoint.get("format")
    except (pickle.UnpicklingError, EOFError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"{path} is no checkpoint; give the best.pt or last.pt of a run"
        ) from error
    if kind != FORMAT:
        raise ValueError(f"{path}: checkpoint format {kind!r}, this version reads {FORMAT}")
    config = Config.from_dict(checkpoint["config"])
    backbone = build_backbone(config.model)
    key = "ema" if weights == "ema" or (weights == "auto" and checkpoint.get("ema")) else "model"
    backbone.load_state_dict(checkpoint[key])
    return backbone.eval(), config, checkpoint


def average(paths: Sequence[str | Path], shares: Sequence[float] | None = None) -> dict:
    """Average the weights of runs that went on from the same ones (Wortsman et al., Model soups,
    ICML 2022).

    Such runs end in one basin of the loss, and the middle of it carries over to new people better
    than its rim. Networks that were trained apart have nothing in common to average.

    Parameters
    ----------
    paths
        ``last.pt`` or ``best.pt`` of each run, of one and the same network; the moving average
        where the run kept one.
    shares
        Of each; all alike by default.

    Returns
    -------
    dict
        A checkpoint to evaluate, to export or to start a run from, with the first run's
        configuration and the visits of the longest: those of one run are counted once, and its
        phases hold.

    Raises
    ------
    ValueError
        Fewer than two checkpoints, shares that do not fit them, or different networks.
    """
    if len(paths) < 2:
        raise ValueError("an average takes at least two checkpoints")
    shares = [1.0] * len(paths) if shares is None else list(shares)
    if len(shares) != len(paths) or not all(0 < share < math.inf for share in shares):
        raise ValueError(f"{len(paths)} checkpoints need as many shares, all above 0")
    loaded = [load_backbone(path) for path in paths]
    weights = [backbone.state_dict() for backbone, _, _ in loaded]
    shapes = [{key: value.shape for key, value in w.items()} for w in weights]
    # Offsets and mirrors say how the weights are used, not what they are.
    models = [dataclasses.replace(config.model, offsets=[], mirrored=[]) for _, config, _ in loaded]
    for path, shape, model in zip(paths, shapes, models, strict=True):
        if shape != shapes[0] or model != models[0]:
            raise ValueError(f"{path} and {paths[0]} hold different networks")
    mean = {}
    for key, first in weights[0].items():
        if not first.is_floating_point():
            mean[key] = first  # indices: rounding an average down would make others of them
            continue
        total = sum(
            share * w[key].double() for share, w in zip(shares, weights, strict=True)
        ) / sum(shares)
        mean[key] = total.to(first.dtype)
    return {
        "format": FORMAT,
        "config": loaded[0][1].to_dict(),
        "model": mean,
        "ema": None,
        "visit": max(checkpoint["visit"] for _, _, checkpoint in loaded),
        "best": -math.inf,
    }


class Trainer:
    """A run in a folder.

    Parameters
    ----------
    config : Config
    out : path
        Run folder: ``last.pt`` (resume), ``best.pt`` (best validation Dice; without labels there is
        none), ``log.jsonl``, ``config.json``, ``tensorboard/``.
    init : path, optional
        Checkpoint or bundle (``.onnx``) whose weights start the run. Ignored when ``out`` can be
        resumed.
    progress : bool
        Show a progress bar.
    """

    def __init__(
        self, config: Config, out: str | Path, init: str | Path | None = None, progress: bool = True
    ):
        self.config = config
        self.out = Path(out).absolute()  # a library may change the folder while TensorBoard writes
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        self.progress = progress and self.rank == 0
        config.check()
        run = config.run
        if run.threads:
            torch.set_num_threads(run.threads)
        name = run.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cuda" and self.world > 1:
            name = f"cuda:{int(os.environ.get('LOCAL_RANK', 0))}"
            torch.cuda.set_device(name)
        try:
            self.device = torch.device(name)
        except RuntimeError:
            raise ValueError(f"run.device: {name!r} is no device; give auto, cpu or cuda") from None
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError("run.device: PyTorch has no CUDA device here; give cpu or auto")
        if self.world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        if run.stage == "finetune" and not config.data.labels:
            raise ValueError("fine-tuning needs labels: data.labels is 0")

        # Here and not in Config.check: checkpoints that had these without effect stay readable.
        if config.data.limit and (
            config.data.pairs == "synthetic" or config.data.pairs.startswith("people:")
        ):
            raise ConfigError(
                f"'data.limit' is of a list of pairs, and 'data.pairs' = {config.data.pairs!r} has"
                " none: set it to 0, or name a list"
            )
        if run.stage == "finetune" and config.policy.kind != "none":
            if config.policy.trajectories < 2:
                raise ConfigError(
                    f"'policy.trajectories' must be 2 or more, not {config.policy.trajectories}:"
                    " samples are judged against each other"
                )
            if _weighs_segmentation(config):
                raise ConfigError(
                    "'loss.segmentation' has no place beside a policy ('policy.kind' ="
                    f" {config.policy.kind!r}); set it to 0, in loss.phases, too"
                )

        if run.pretrain and (run.stage != "finetune" or config.model.backbone != "siamese"):
            raise ValueError("run.pretrain needs labels and the backbone 'siamese'")
        if run.pretrain and run.pretrain >= run.visits:
            raise ValueError(
                f"run.pretrain = {run.pretrain} leaves none of run.visits = {run.visits} for the"
                " registration: set run.visits above it, or a smaller run.pretrain (0 for none)"
            )
        backbone = BACKBONES.get(config.model.backbone)
        if backbone and _segments(config) and not hasattr(backbone, "step_field_and_segmentation"):
            raise ConfigError(
                "loss.segmentation needs the backbone compact or siamese with"
                f" segmentation_classes, not {config.model.backbone}; set it to 0, in"
                " loss.phases, too"
            )
        config = self.config = _with_segmentation(config)
        self.people: list[str] = []
        self.pairs: list[tuple[str, str]] = []
        self.val_pairs: list = []
        self.synthetic = None

        torch.manual_seed(run.seed)
        self.backbone = build_backbone(config.model).to(self.device)
        if (
            run.stage == "finetune"
            and config.policy.kind == "structured"
            and config.policy.rank > self.backbone.latent_channels
        ):
            raise ConfigError(
                f"'policy.rank' must be at most the network's {self.backbone.latent_channels}"
                f" latent channels, not {config.policy.rank}"
            )
        if config.data.pairs == "synthetic":
            self._make_pairs()
        else:
            self._find_pairs()
        if self.device.type == "cpu":
            self.backbone = self.backbone.to(memory_format=torch.channels_last_3d)
        self.objective = StepObjective(
            self.backbone,
            config.loss,
            config.policy,
            run.stage,
            run.amp == "bf16",
            config.data.spacing,
        )
        self.optimizer = torch.optim.AdamW(
            self.backbone.parameters(),
            lr=config.optim.lr,
            weight_decay=config.optim.weight_decay,
            fused=True,
        )
        self.visit = 0
        self.updates = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.best = -math.inf
        self.ema = None
        self._stop = False
        self._bf16: dict[tuple[int, ...], bool] = {}
        if (self.out / "last.pt").exists():
            self._resume()
        elif init is not None:
            if Path(init).suffix == ".onnx":
                weights, network, learnt = (
                    bundle_weights(init, self.backbone),
                    "another",
                    read_manifest(init),
                )
            else:
                other, its, _ = load_backbone(init)
                weights, network, learnt = other.state_dict(), its.model.backbone, vars(its.model)
            # A head for another number of labels has nothing to give.
            own = self.backbone.state_dict()
            weights = {
                k: v
                for k, v in weights.items()
                if not (k.startswith("segmentation_head") and k in own and v.shape != own[k].shape)
            }
            misfits = [
                k for k in own.keys() ^ weights.keys() if not k.startswith("segmentation_head")
            ]
            misfits += [k for k in own.keys() & weights.keys() if own[k].shape != weights[k].shape]
            if misfits:
                raise ValueError(
                    f"{init} does not fit the configured backbone: its network is {network}, the"
                    f" configured one {config.model.backbone}, or their sizes differ"
                    f" ({', '.join(sorted(misfits)[:3])}); give both runs the same model.backbone"
                    " and model.options"
                )
            self.backbone.load_state_dict(weights, strict=False)
            self._compare(init, learnt)
        if config.optim.ema and self.ema is None:
            self.ema = {k: v.detach().clone() for k, v in self.backbone.state_dict().items()}
        self.step_module = self.objective
        if self.world > 1:
            self.step_module = DistributedDataParallel(self.objective, find_unused_parameters=True)
        self.out.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            (self.out / "config.json").write_text(json.dumps(config.to_dict(), indent=1))

    def _compare(self, init: str | Path, learnt: Mapping) -> None:
        """Say it where the weights fit but will mean something else here. No error: going on from
        another kind of field is slow, not wrong.
        """
        for key in ("parametrisation", "scale"):
            now = getattr(self.config.model, key)
            if self.rank == 0 and learnt.get(key, now) != now:
                logging.getLogger(__name__).warning(
                    "%s was trained with model.%s = %r, this run has %r: its weights make other"
                    " fields here, which may fold at first; set model.%s=%s here, or train the"
                    " start as this run",
                    init,
                    key,
                    learnt[key],
                    now,
                    key,
                    learnt[key],
                )

    def _find_pairs(self) -> None:
        """The pairs of a data folder."""
        config, d = self.config, self.config.data
        self.source = PairSource.configured(d)
        self.source.labels_needed = config.run.stage == "finetune"
        if d.pairs.startswith("people:"):
            self.people = read_people(d.path, d.pairs.split(":", 1)[1])
        else:
            self.pairs = read_pairs(d.path, d.pairs)
            if d.limit:
                order = np.random.default_rng([d.limit_seed, 1]).permutation(len(self.pairs))
                self.pairs = [self.pairs[i] for i in sorted(order[: d.limit])]
        self.val_pairs = read_pairs(d.path, d.val) if d.val else []
        if config.run.val_pairs:
            self.val_pairs = self.val_pairs[: config.run.val_pairs]
        if len(self.people) < 2 and not self.pairs:
            raise DataError(f"{d.path}: data.pairs = {d.pairs!r} names no pair to train on")
        if config.run.stage == "finetune":
            self._require_labels()

    def _require_labels(self) -> None:
        """Without its labels a pair would be trained on the images alone, or against labels that
        are not there.
        """
        names = sorted(
            {*self.people, *(name for pair in (*self.pairs, *self.val_pairs) for name in pair)}
        )
        bare = [name for name in names if not self.source.has_labels(name)]
        if bare:
            few = ", ".join(bare[:5]) + (", ..." if len(bare) > 5 else "")
            raise DataError(
                f"{self.config.data.path}: {len(bare)} of {len(names)} volumes have no label file"
                f" ({few}); fine-tuning needs one for each: add them, or leave these volumes out of"
                " data.pairs and data.val"
            )

    def _make_pairs(self) -> None:
        """Synthetic pairs: every process has a stream of its own, and validation one that does not
        depend on the seed.
        """
        config, m = self.config, self.backbone.size_multiple
        if config.run.pretrain:
            raise ValueError(
                "run.pretrain needs labels that mean the same in every pair; those of synthetic"
                " pairs do not"
            )
        size = [m * math.ceil(n / m) for n in config.data.min_size]
        self.synthetic = SyntheticSource(
            config.synthetic, size, config.data.labels, config.run.seed, 1 + self.rank
        )
        held_out = SyntheticSource(config.synthetic, size, config.data.labels)
        for i in range(config.synthetic.val_pairs):
            pair = held_out.sample(i)
            # Scores need the maps only; the one-hot channels are most of a pair's memory.
            none = pair.fixed_labels[:, :0]
            self.val_pairs.append(dataclasses.replace(pair, fixed_labels=none, moving_labels=none))
        self._ahead = None

    # -- state -------------------------------------------------------------------------------------

    def checkpoint(self) -> dict:
        """Everything that the rest of the run depends on."""
        return {
            "format": FORMAT,
            "config": self.config.to_dict(),
            "model": self.backbone.state_dict(),
            "ema": self.ema,
            "optimizer": self.optimizer.state_dict(),
            "visit": self.visit,
            "updates": self.updates,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "best": self.best,
            "kl_weight": self.objective.kl_weight,
            "policy": self.objective.policy_state(),
            "world": self.world,
        }

    def _resume(self) -> None:
        state = torch.load(self.out / "last.pt", map_location=self.device, weights_only=True)
        # Through Config: a key that is younger than the checkpoint has its default there.
        then = Config.from_dict(state["config"]).to_dict()
        now = self.config.to_dict()
        # The length, the places and the pace may change between sessions; what shapes the weights
        # may not.
        free = {
            "run": (
                "visits",
                "device",
                "threads",
                "checkpoint_minutes",
                "keep_every",
                "picture_every",
            ),
            "data": ("path", "test"),
            "synthetic": ("workers",),
        }
        differs = [
            f"{section}.{key}"
            for section in (
                "data",
                "model",
                "loss",
                "policy",
                "optim",
                "augment",
                "synthetic",
                "run",
            )
            for key in now[section]
            if then[section][key] != now[section][key] and key not in free.get(section, ())
        ]
        if differs:
            raise ValueError(
                f"{self.out}/last.pt was made with another configuration ({', '.join(differs)});"
                " set it as it was, or choose another --out"
            )
        # Processes share the pairs out among them: others would repeat some and leave some out.
        # Older checkpoints do not say.
        if (world := state.get("world", self.world)) != self.world:
            raise ValueError(
                f"{self.out}/last.pt was made by {world} process(es), not {self.world}; go on with"
                f" as many, or start another --out with --init {self.out}/last.pt"
            )
        self.backbone.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.visit, self.updates = state["visit"], state["updates"]
        self.seconds, self.cpu_seconds, self.best = (
            state["seconds"],
            state.get("cpu_seconds", 0.0),
            state["best"],
        )
        self.objective.kl_weight = state["kl_weight"]
        self.ema = state["ema"]
        if state.get("policy"):
            self.objective.load_policy_state(state["policy"])
        if self.rank == 0 and (self.out / "log.jsonl").exists():
            # Drop the lines of visits that will be repeated.
            lines = (self.out / "log.jsonl").read_text().splitlines()
            kept = [
                line
                for line in lines
                if line.endswith("}") and json.loads(line)["visit"] <= self.visit
            ]
            (self.out / "log.jsonl").write_text("".join(line + "\n" for line in kept))

    def _save(self, name: str = "last.pt") -> None:
        if self.rank == 0:
            save_atomic(self.checkpoint(), self.out / name)

    # -- schedules ---------------------------------------------------------------------------------

    def learning_rate(self, visit: int) -> float:
        """Rate during visit number ``visit`` (from 0)."""
        o = self.config.optim
        if visit < o.warmup:
            return o.lr * (visit + 1) / o.warmup
        if o.schedule == "constant":
            return o.lr
        share = (visit - o.warmup) / max(self.config.run.visits - o.warmup, 1)
        return o.lr * (
            o.final + (1.0 - o.final) * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))
        )

    def steps(self, visit: int) -> int:
        """T during visit number ``visit``."""
        t = self.config.run.steps
        for start, value in sorted(self.config.run.steps_schedule, key=lambda entry: entry[0]):
            if visit >= start:
                t = value
        return t

    def temperature(self, visit: int) -> float:
        """tau during visit number ``visit``."""
        return self.config.policy.temperature(visit)

    # -- pairs -------------------------------------------------------------------------------------

    def rng(self, visit: int) -> np.random.Generator:
        """Source of all randomness of a visit in this process."""
        return np.random.default_rng([self.config.run.seed, self.rank, visit])

    def draw(self, visit: int, rng: np.random.Generator) -> tuple[str, str]:
        """The pair (fixed, moving) of a visit."""
        if self.people:
            i, j = rng.choice(len(self.people), 2, replace=False)
            return self.people[i], self.people[j]
        # Every epoch visits each pair once, in an order of its own; processes take turns.
        index = visit * self.world + self.rank
        epoch, place = divmod(index, len(self.pairs))
        order = np.random.default_rng([self.config.run.seed, 2, epoch]).permutation(len(self.pairs))
        return self.pairs[order[place]]

    def pair(self, visit: int, rng: np.random.Generator) -> Sample:
        """The augmented pair of a visit on its network grid (with ``optim.accumulate`` n, visit v
        has n v to n v + n - 1).
        """
        if self.synthetic is not None:
            return self._synthetic_pair(visit).to(self.device)
        d, multiple = self.config.data, self.backbone.size_multiple
        return self.source.pair(
            *self.draw(visit, rng), d, multiple, d.labels, self.config.augment, rng
        ).to(self.device)

    def _synthetic_pair(self, number: int) -> Sample:
        """Pairs that are asked for in their order come from the processes that make them ahead."""
        n = self.config.optim.accumulate
        last = self.config.run.visits * n
        ahead = self.config.synthetic.workers and number < last
        if ahead and self._ahead is None:
            self._due = number
            self._ahead = self.synthetic.stream_samples(
                [(i, i // n) for i in range(number, last)], self.config.synthetic.workers
            )
        if not ahead or number != self._due:
            return self.synthetic.sample(number, number // n)
        self._due += 1
        return next(self._ahead)

    def precision(self, size: tuple[int, ...]) -> bool:
        """Whether the network works in bf16 on a grid of this size (D, H, W).

        On CPUs with bf16 instructions oneDNN gets the weight gradient of some convolutions wrong,
        infinite or just another: those of stride 1 whose kernel is longer than the first axis.
        Grids on which the network has one are computed in float32.
        """
        if self.config.run.amp != "bf16" or self.device.type != "cpu":
            return self.config.run.amp == "bf16"
        if size not in self._bf16:
            self._bf16[size] = not _short_convolutions(self.backbone, size)
            if not self._bf16[size] and sum(not good for good in self._bf16.values()) == 1:
                logging.getLogger(__name__).warning(
                    "grid %s: computed in float32, since the gradients of run.amp = 'bf16' are not"
                    " to be trusted on a CPU where a level of the network is two voxels deep;"
                    " another size along z avoids that",
                    "x".join(map(str, size)),
                )
        return self._bf16[size]

    # -- the loop ----------------------------------------------------------------------------------

    def run_visit(self) -> dict[str, float]:
        """Take the next pair through T steps; returns the logged scalars of the last step."""
        rng = self.rng(self.visit)
        n = self.config.optim.accumulate
        pairs = [self.pair(n * self.visit + i, rng) for i in range(n)]
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.visit)
        if self.config.loss.phases:
            self.objective.weights = self.config.loss.at(self.visit)
        states = [torch.zeros((1, 3, *pair.fixed.shape[2:]), device=self.device) for pair in pairs]
        run = self.config.run
        joint = run.pretrain_joint_every and self.visit % run.pretrain_joint_every == 0
        if self.visit < run.pretrain and not joint:
            logs = self._step(pairs, states, {"pretrain": True})
            self.visit += 1
            return {k: float(v) for k, v in logs.items()}
        sampling = {}
        if run.stage == "finetune" and self.config.policy.kind != "none":
            sampling = {"tau": self.temperature(self.visit), "rng": rng}
            self._refresh_basis()
        logs: dict = {}
        for t in range(self.steps(self.visit)):
            logs = self._step(pairs, states, {"step": t} | sampling)
        logs = {k: float(v) for k, v in logs.items()}
        logs["njd_percent"] = 100.0 * float(np.mean([float(njd_fraction(u)) for u in states]))
        self._adapt_kl(logs)
        self._share_policy()
        self.visit += 1
        return logs

    def _step(self, pairs: list[Sample], states: list[torch.Tensor], sampling: dict) -> dict:
        """One step of every pair and one of the optimiser; ``states`` are replaced, and the mean
        logs returned.
        """
        rows = []
        for i, pair in enumerate(pairs):
            self.objective.amp = self.precision(tuple(pair.fixed.shape[2:]))
            result = self.step_module(pair, states[i], **sampling)
            (result.loss / len(pairs)).backward()
            states[i] = result.u
            rows.append(result.logs)
        logs = (
            rows[0]
            if len(rows) == 1
            else {k: sum(float(row[k]) for row in rows) / len(rows) for k in rows[0]}
        )
        self._update(logs)
        return logs

    def _refresh_basis(self) -> None:
        """Renew the channel directions of the structured policy from soft-Dice gradients of a few
        pairs.
        """
        p = self.config.policy
        if p.kind != "structured" or p.head != "probe" or self.visit % p.refresh:
            return
        gradients = []
        for i in range(p.refresh_pairs):
            # Seeds of their own, far from those of the visits.
            rng = np.random.default_rng([self.config.run.seed, 3, self.visit, i])
            pair = self.pair(int(rng.integers(1 << 30)), rng)
            u = torch.zeros((1, 3, *pair.fixed.shape[2:]), device=self.device)
            self.objective.amp = self.precision(tuple(pair.fixed.shape[2:]))
            gradients.append(self.objective.dice_gradient(pair, u))
        # Processes saw different pairs; the noise must live in one subspace.
        self.objective.memory.basis = self._of_first_process(channel_basis(gradients, p.rank))

    def _update(self, logs: dict) -> None:
        o = self.config.optim
        parameters = [p for p in self.backbone.parameters() if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(parameters, o.clip or math.inf)
        if o.clip:
            logs["grad_norm"] = norm
        # One such step would be in the weights, the moments and the average for good.
        if not (math.isfinite(norm) and math.isfinite(logs["loss"])):
            last = self.out / "last.pt"
            raise FloatingPointError(
                f"visit {self.visit}: the loss is {float(logs['loss']):g} and the norm of its"
                f" gradient {float(norm):g}; the run stops before they reach the weights. Try"
                " run.amp=none, a lower optim.lr or a small optim.clip, with another --out"
                + (f" and --init {last}" if last.exists() else "")
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        if self.ema is not None:
            decay = min(o.ema, (1.0 + self.updates) / (10.0 + self.updates))
            # Tables of indices have nothing to average.
            state = {k: v for k, v in self.backbone.state_dict().items() if v.is_floating_point()}
            torch._foreach_lerp_([self.ema[k] for k in state], list(state.values()), 1.0 - decay)

    def _adapt_kl(self, logs: dict[str, float]) -> None:
        target = self.config.loss.kl_target
        if target > 0 and "kl" in logs:
            if logs["kl"] > 1.5 * target:
                self.objective.kl_weight *= 1.5
            elif logs["kl"] < target / 1.5:
                self.objective.kl_weight /= 1.5
            self.objective.kl_weight = float(np.clip(self.objective.kl_weight, 1e-8, 1e2))

    def _share_policy(self) -> None:
        """Let all processes go on from one state of the policy and of the KL weight: the checkpoint
        has one.
        """
        if self.world == 1:
            return
        memory = self.objective.memory
        numbers = torch.tensor(
            [memory.scale, memory.other_norm, memory.policy_norm, self.objective.kl_weight],
            dtype=torch.float64,
            device=self.device,
        )
        dist.all_reduce(numbers)
        memory.scale, memory.other_norm, memory.policy_norm, self.objective.kl_weight = (
            numbers / self.world
        ).tolist()
        if memory.basis is not None:
            memory.basis = self._of_first_process(memory.basis)

    def _of_first_process(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that the first process has, on the CPU."""
        tensor = tensor.to(self.device)
        if self.world > 1:
            dist.broadcast(tensor, 0)
        return tensor.cpu()

    def averaged(self):
        """Context: the backbone holds the moving average inside, its own weights again after."""
        return _Swapped(self.backbone, self.ema)

    def validate(self) -> dict[str, float]:
        """Dice and NJD on the validation pairs, with the averaged weights; no Dice where no pair
        has labels.
        """
        d, r = self.config.data, self.config.run
        if self.visit <= r.pretrain:
            return self.validate_recognition()
        with self.averaged():
            if self.synthetic is not None:
                rows = self._score_synthetic()
            else:
                rows = evaluate_pairs(
                    self.backbone,
                    self.source,
                    self.val_pairs,
                    d.spacing,
                    d.min_size,
                    r.val_steps,
                    self.device,
                )
        out = {}
        if scores(rows, 0, "dice"):
            for t in range(r.val_steps + 1):
                out[f"val_dice_t{t}"] = float(np.mean(scores(rows, t, "dice")))
            out["val_dice"] = out[f"val_dice_t{r.val_steps}"]
        for key, name in (("njd", "val_njd_percent"), ("sdlogj", "val_sdlogj"), ("epe", "val_epe")):
            if found := scores(rows, -1, key):
                out[name] = float(np.mean(found))
        return out

    def _score_synthetic(self) -> list[dict]:
        """The synthetic validation pairs, scored on the network grid; rows as
        :func:`.evaluate.evaluate_pairs`.
        """
        self.backbone.eval()
        rows = []
        for pair in (p.to(self.device) for p in self.val_pairs):
            fields = register_sample(self.backbone, pair, self.config.run.val_steps)
            states = (torch.zeros_like(fields[0]), *fields)
            rows.append({"steps": [score_sample(u, pair, self.config.data.labels) for u in states]})
        self.backbone.train()
        return rows

    @torch.no_grad()
    def validate_recognition(self) -> dict[str, float]:
        """Dice of the auxiliary segmentation on the people of the validation pairs, with the
        averaged weights.
        """
        d = self.config.data
        dice = []
        with self.averaged():
            self.backbone.eval()
            for name in sorted({name for pair in self.val_pairs for name in pair}):
                case = self.source.case(name)
                pair = make_sample(
                    case,
                    case,
                    make_grid(case, d.spacing, d.min_size, self.backbone.size_multiple),
                    d.labels,
                )
                pair = pair.to(self.device)
                found = self.backbone.segment(pair.fixed).argmax(1, keepdim=True)
                dice.append(float(hard_dice(found, pair.fixed_map, d.labels)))
            self.backbone.train()
        return {"val_segmentation_dice": float(np.mean(dice))}

    def run(self) -> dict[str, float]:
        """Train to the configured number of visits, or until SIGTERM/SIGINT; returns the last
        validation.
        """
        run = self.config.run
        writer = None
        if self.rank == 0:
            if self.visit == 0:
                # Of a run that was killed before its first checkpoint, and is now repeated.
                for name in ("log.jsonl", "best.pt"):
                    (self.out / name).unlink(missing_ok=True)
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(self.out / "tensorboard"), purge_step=self.visit + 1)
        log = open(self.out / "log.jsonl", "a") if self.rank == 0 else None
        previous = {}
        try:
            for s in (signal.SIGTERM, signal.SIGINT):
                previous[s] = signal.signal(s, self._on_signal)
        except ValueError:
            pass  # not in the main thread: the caller handles signals
        bar = _Bar(run.visits, self.visit, self.progress)
        last_save = time.monotonic()
        last_val: dict[str, float] = {}
        validations = 0
        self.backbone.train()
        try:
            with bar:
                while self.visit < run.visits and not self._stop:
                    start, cpu = time.perf_counter(), time.process_time()
                    logs = self.run_visit()
                    self.seconds += time.perf_counter() - start
                    self.cpu_seconds += time.process_time() - cpu
                    done = self.visit >= run.visits
                    if self.val_pairs and (self.visit % run.val_every == 0 or done):
                        if self.rank == 0:
                            last_val = self.validate()
                            validations += 1
                            logs |= last_val
                            if last_val.get("val_dice", -math.inf) > self.best:
                                self.best = last_val["val_dice"]
                                self._save("best.pt")
                            if (
                                run.picture_every
                                and validations % run.picture_every == 1 % run.picture_every
                            ):
                                self._picture(writer)
                        if self.world > 1:
                            dist.barrier()
                    if log is not None:
                        row = {
                            "visit": self.visit,
                            "updates": self.updates,
                            "seconds": round(self.seconds, 3),
                        }
                        row |= without_nan({k: round(v, 6) for k, v in logs.items()})
                        log.write(json.dumps(row, allow_nan=False) + "\n")
                        log.flush()
                        if self.visit % 10 == 0 or "val_njd_percent" in logs:
                            for k, v in logs.items():
                                writer.add_scalar(k, v, self.visit)
                            writer.add_scalar(
                                "learning_rate", self.learning_rate(self.visit - 1), self.visit
                            )
                    bar.update(self.visit, logs, last_val)
                    if run.keep_every and self.visit % run.keep_every == 0:
                        self._save(f"visit-{self.visit}.pt")
                    if done or time.monotonic() - last_save > 60 * run.checkpoint_minutes:
                        self._save()
                        last_save = time.monotonic()
                self._save()
        finally:
            for s, handler in previous.items():
                signal.signal(s, handler)
            if writer is not None:
                writer.close()
            if log is not None:
                log.close()
        return last_val

    def _on_signal(self, number, frame) -> None:
        self._stop = True

    def _picture(self, writer) -> None:
        """Middle slices of the first validation pair: fixed, moving, warped, difference before and
        after.
        """
        if self.synthetic is not None:
            pair = self.val_pairs[0].to(self.device)
        else:
            pair = self.source.pair(
                *self.val_pairs[0], self.config.data, self.backbone.size_multiple, 0
            ).to(self.device)
        with self.averaged():
            self.backbone.eval()
            u = register_sample(self.backbone, pair, self.config.run.val_steps)[-1]
            self.backbone.train()
        warped = warp(pair.moving, u)
        views = (
            pair.fixed,
            pair.moving,
            warped,
            (pair.fixed - pair.moving).abs(),
            (pair.fixed - warped).abs(),
        )
        rows = []
        for axis in (2, 3, 4):
            cuts = [v.select(axis, v.shape[axis] // 2)[0, 0] for v in views]
            rows.append(torch.cat(cuts, dim=1))
        width = max(r.shape[1] for r in rows)
        rows = [torch.nn.functional.pad(r, (0, width - r.shape[1])) for r in rows]
        writer.add_image(
            "fixed moving warped |f-m| |f-w|", torch.cat(rows, dim=0)[None].cpu(), self.visit
        )


def _weighs_segmentation(config: Config) -> bool:
    visits = (0, *(phase["visit"] for phase in config.loss.phases))
    return any(config.loss.at(visit).segmentation > 0 for visit in visits)


def _segments(config: Config) -> bool:
    """Whether a registration visit has the loss of the auxiliary segmentation, in any phase of the
    run.
    """
    return (
        config.run.stage == "finetune"
        and config.policy.kind == "none"
        and _weighs_segmentation(config)
    )


def _with_segmentation(config: Config) -> Config:
    """The configuration with a class of the auxiliary segmentation for every label, where its loss
    will be computed.
    """
    used = config.run.pretrain or _segments(config)
    known = config.model.backbone in ("compact", "siamese")
    if (
        not used
        or not known
        or config.model.options.get("segmentation_classes") == config.data.labels
    ):
        return config
    return config.replace(**{"model.options.segmentation_classes": config.data.labels})


@torch.no_grad()
def _short_convolutions(backbone: nn.Module, size: tuple[int, ...]) -> bool:
    """Whether the network, on a grid of this size (D, H, W), has convolutions of stride 1 whose
    kernel is longer than their first axis.
    """
    found = []

    def look(layer: nn.Conv3d, given: tuple[torch.Tensor]) -> None:
        found.append(layer.stride[0] == 1 and 1 < given[0].shape[2] < layer.kernel_size[0])

    hooks = [
        layer.register_forward_pre_hook(look)
        for layer in backbone.modules()
        if isinstance(layer, nn.Conv3d)
    ]
    was_training = backbone.training
    # Dropout would draw random numbers, and so change the run.
    backbone.eval()
    try:
        zeros = torch.zeros((1, 1, *size))
        encoded = backbone.state(zeros, zeros)
        backbone.step_field(encoded.mu, encoded)
    finally:
        backbone.train(was_training)
        for hook in hooks:
            hook.remove()
    return any(found)


class _Swapped:
    def __init__(self, backbone, ema):
        self.backbone, self.ema = backbone, ema

    def __enter__(self):
        if self.ema is not None:
            self.own = {k: v.detach().clone() for k, v in self.backbone.state_dict().items()}
            self.backbone.load_state_dict(self.ema)

    def __exit__(self, *error):
        if self.ema is not None:
            self.backbone.load_state_dict(self.own)


class _Bar:
    """Progress with time left, by rich; silent where it is not wanted."""

    def __init__(self, total: int, done: int, shown: bool):
        self.shown = shown
        if shown:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                refresh_per_second=2,
            )
            self.task = self.bar.add_task("training", total=total, completed=done)

    def __enter__(self):
        if self.shown:
            self.bar.start()

    def __exit__(self, *error):
        if self.shown:
            self.bar.stop()

    def update(self, visit: int, logs: dict[str, float], val: dict[str, float]) -> None:
        if self.shown:
            text = f"loss {logs['loss']:.4f}"
            if "val_segmentation_dice" in val:
                text += f"  val segmentation Dice {100 * val['val_segmentation_dice']:.2f}"
            elif val:
                dice = f"  val Dice {100 * val['val_dice']:.2f}" if "val_dice" in val else "  val"
                text += f"{dice}  NJD {val['val_njd_percent']:.3f} %"
            self.bar.update(self.task, completed=visit, description=text)
