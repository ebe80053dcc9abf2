"""The training loop: iterations, validation, checkpoints that survive a kill.

An iteration is one pair, or ``optim.accumulate`` of them, taken
through T steps, with an optimiser step after each. Everything random about iteration ``n`` of
process ``r`` comes from a generator seeded with (seed, r, n), so a resumed run repeats the lost
iterations exactly and ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..._shared import write_text
from ..backbones import build_backbone
from ..config.schema import Config
from ..pairs.sample import Sample
from ..policy import PolicyMemory
from ..policy.sampling import channel_basis
from ..spatial import njd_fraction
from ..step import StepObjective
from .bar import Bar
from .checkpoint import FORMAT, check_unused, read_last, save_atomic, sha256
from .log import RunLog
from .precision import Precision
from .schedules import learning_rate, steps
from .setup import check_rank, check_run, find_device, rank_and_world, start_from, with_segmentation
from .supply import FolderSupply, SyntheticSupply, random_source, supply
from .validate import picture, recognition_scores, registration_scores, swapped


class Trainer:
    """A run in a folder.

    Parameters
    ----------
    config : Config
    out : path
        Run folder with ``last.pt`` (to resume), ``best.pt`` (best validation Dice; only with
        labels), ``log.jsonl``, ``config.json`` and ``tensorboard/``.
    init : path, optional
        Checkpoint or bundle (``.onnx``) whose weights start the run; of one that is resumed, those
        that it started from.
    progress : bool
        Show a progress bar.
    source : FolderSupply or SyntheticSupply, optional
        Source of the pairs; by default the one that the configuration names.
    """

    def __init__(
        self,
        config: Config,
        out: str | Path,
        init: str | Path | None = None,
        progress: bool = True,
        source: FolderSupply | SyntheticSupply | None = None,
    ):
        self.out = Path(out).absolute()  # a library may change the folder while TensorBoard writes
        self.rank, self.world = rank_and_world()
        self.progress = progress and self.rank == 0
        config.check()
        if config.run.threads:
            torch.set_num_threads(config.run.threads)
        self.device = find_device(config.run.device, self.world)
        check_run(config)
        config = self.config = with_segmentation(config)
        torch.manual_seed(config.run.seed)
        self.backbone = build_backbone(config.model).to(self.device)
        check_rank(config, self.backbone)
        multiple = self.backbone.size_multiple
        self.supply = source or supply(config, multiple, self.rank, self.world)
        if self.device.type == "cpu":
            self.backbone = self.backbone.to(memory_format=torch.channels_last_3d)
        self.precision = Precision(self.backbone, config.run.amp, self.device)
        self.objective = StepObjective(
            self.backbone,
            config.loss,
            config.policy,
            config.run.stage,
            config.run.amp == "bf16",
            config.data.spacing,
        )
        self.optimizer = torch.optim.AdamW(
            self.backbone.parameters(),
            lr=config.optim.lr,
            weight_decay=config.optim.weight_decay,
            fused=True,
        )
        self.iteration = 0
        self.updates = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.best = -math.inf
        self.ema: dict[str, torch.Tensor] | None = None
        self.val_dice: float | None = None  # of the weights as they are
        self._stop = False
        self.start = None if init is None else sha256(init)
        if (self.out / "last.pt").exists():
            self._resume()
        elif init is not None:
            start_from(init, self.backbone, config, tell=self.rank == 0)
        if config.optim.ema and self.ema is None:
            self.ema = {k: v.detach().clone() for k, v in self.backbone.state_dict().items()}
        self.step_module: nn.Module = self.objective
        if self.world > 1:
            self.step_module = DistributedDataParallel(self.objective, find_unused_parameters=True)
        self.out.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            check_unused(self.out)

    # -- state -------------------------------------------------------------------------------------

    def checkpoint(self) -> dict[str, Any]:
        """Return everything that the rest of the run depends on."""
        return {
            "format": FORMAT,
            "config": self.config.to_dict(),
            "model": self.backbone.state_dict(),
            "ema": self.ema,
            "optimizer": self.optimizer.state_dict(),
            "iteration": self.iteration,
            "updates": self.updates,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "best": self.best,
            "val_dice": self.val_dice,
            "start": self.start,
            "kl_weight": self.objective.kl_weight,
            "policy": dict(vars(self.objective.memory)),
            "world": self.world,
        }

    def _resume(self) -> None:
        state = read_last(self.out, self.config, self.world, self.device, self.start)
        self.start = state.get("start")
        self.backbone.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.iteration, self.updates = state["iteration"], state["updates"]
        self.best, self.val_dice = state["best"], state.get("val_dice")
        self.seconds, self.cpu_seconds = state["seconds"], state.get("cpu_seconds", 0.0)
        self.objective.kl_weight = state["kl_weight"]
        self.ema = state["ema"]
        if state.get("policy"):
            self.objective.memory = PolicyMemory(**state["policy"])

    def _save(self, name: str = "last.pt") -> None:
        if self.rank == 0:
            save_atomic(self.checkpoint(), self.out / name)

    # -- the settings of an iteration --------------------------------------------------------------

    def learning_rate(self, iteration: int) -> float:
        """Rate during iteration number ``iteration`` (from 0)."""
        return learning_rate(self.config, iteration)

    def steps(self, iteration: int) -> int:
        """Return T during iteration number ``iteration``."""
        return steps(self.config, iteration)

    def temperature(self, iteration: int) -> float:
        """Return tau during iteration number ``iteration``."""
        return self.config.policy.temperature(iteration)

    def rng(self, iteration: int) -> np.random.Generator:
        """Return the source of all randomness of an iteration in this process."""
        return random_source(self.config, self.rank, iteration)

    def pair(self, iteration: int, rng: np.random.Generator) -> Sample:
        """Return the augmented pair of an iteration on its network grid. With ``optim.accumulate``
        = n, iteration i has the pairs n i to n i + n - 1.
        """
        return self.supply.pair(iteration, rng).to(self.device)

    @property
    def is_done(self) -> bool:
        """Whether the run has all its iterations; a stopped one has not."""
        return self.iteration >= self.config.run.iterations

    # -- the iteration -----------------------------------------------------------------------------

    def run_iteration(self) -> dict[str, float]:
        """Take the next pair through T steps; returns the logged scalars of the last step."""
        rng = self.rng(self.iteration)
        n = self.config.optim.accumulate
        pairs = [self.pair(n * self.iteration + i, rng) for i in range(n)]
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.iteration)
        if self.config.loss.phases:
            self.objective.weights = self.config.loss.at(self.iteration)
        states = [torch.zeros((1, 3, *pair.fixed.shape[2:]), device=self.device) for pair in pairs]
        run = self.config.run
        joint = run.pretrain_joint_every and self.iteration % run.pretrain_joint_every == 0
        if self.iteration < run.pretrain and not joint:
            mean = self._step(pairs, states, {"pretrain": True})
            self.iteration += 1
            return {k: float(v) for k, v in mean.items()}
        sampling: dict[str, Any] = {}
        if run.stage == "finetune" and self.config.policy.kind != "none":
            sampling = {"tau": self.temperature(self.iteration), "rng": rng}
            self._refresh_basis()
        logs: dict[str, Any] = {}
        for t in range(self.steps(self.iteration)):
            logs = self._step(pairs, states, {"step": t} | sampling)
        logs = {k: float(v) for k, v in logs.items()}
        logs["njd_percent"] = 100.0 * float(np.mean([float(njd_fraction(u)) for u in states]))
        self._adapt_kl(logs)
        self._share_policy()
        self.iteration += 1
        return logs

    def _step(
        self, pairs: list[Sample], states: list[torch.Tensor], sampling: dict[str, Any]
    ) -> dict[str, Any]:
        """Take one step for every pair and one optimiser step; replace ``states`` and return the
        mean logs.
        """
        if self.config.optim.together and len(pairs) > 1:
            batch, u = [Sample.batch(pairs)], [torch.cat(states)]
            logs = self._step(batch, u, sampling)
            states[:] = torch.tensor_split(u[0], len(pairs))
            return logs
        rows = []
        for i, pair in enumerate(pairs):
            self.objective.amp = self.precision(tuple(pair.fixed.shape[2:]))
            result = self.step_module(pair, states[i], **sampling)
            (result.loss / len(pairs)).backward()
            states[i] = result.u
            rows.append(result.logs)
        logs = rows[0]
        if len(rows) > 1:  # a known motion has a column more
            keys = dict.fromkeys(key for row in rows for key in row)
            logs = {k: float(np.mean([float(row[k]) for row in rows if k in row])) for k in keys}
        self._update(logs)
        return logs

    def _refresh_basis(self) -> None:
        """Renew the channel directions of the structured policy from soft-Dice gradients of a few
        pairs.
        """
        p = self.config.policy
        if p.kind != "structured" or p.head != "probe" or self.iteration % p.refresh:
            return
        gradients = []
        for i in range(p.refresh_pairs):
            # Other seeds than those of the iterations.
            rng = np.random.default_rng([self.config.run.seed, 3, self.iteration, i])
            pair = self.pair(int(rng.integers(1 << 30)), rng)
            u = torch.zeros((1, 3, *pair.fixed.shape[2:]), device=self.device)
            self.objective.amp = self.precision(tuple(pair.fixed.shape[2:]))
            gradients.append(self.objective.dice_gradient(pair, u))
        # Processes saw different pairs, but all must use the same noise directions.
        self.objective.memory.basis = self._of_first_process(channel_basis(gradients, p.rank))

    def _update(self, logs: dict[str, Any]) -> None:
        o = self.config.optim
        parameters = [p for p in self.backbone.parameters() if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(parameters, o.clip or math.inf)
        if o.clip:
            logs["grad_norm"] = norm
        # A step that is not finite would spoil the weights, the moments and the average.
        if not (math.isfinite(norm) and math.isfinite(logs["loss"])):
            last = self.out / "last.pt"
            raise FloatingPointError(
                f"iteration {self.iteration}: the loss is {float(logs['loss']):g} and the norm of"
                f" its gradient {float(norm):g}; the run stops before they reach the weights. Try"
                " run.amp=none, a lower optim.lr or a small optim.clip, with another --out"
                + (f" and --init {last}" if last.exists() else "")
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        if self.ema is not None:
            decay = min(o.ema, (1.0 + self.updates) / (10.0 + self.updates))
            # Tables of indices are not averaged.
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
        """Give all processes the same state of the policy and the same KL weight, because the
        checkpoint has only one.
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
        """Return the first process's tensor, on the CPU."""
        tensor = tensor.to(self.device)
        if self.world > 1:
            dist.broadcast(tensor, 0)
        return tensor.cpu()

    # -- the run -----------------------------------------------------------------------------------

    def validate(self) -> dict[str, float]:
        """Return the scores on the validation pairs, with the averaged weights."""
        with swapped(self.backbone, self.ema):
            if self.iteration <= self.config.run.pretrain:
                assert isinstance(self.supply, FolderSupply)  # pretraining needs one
                return recognition_scores(self.backbone, self.supply, self.config, self.device)
            return registration_scores(self.backbone, self.supply, self.config, self.device)

    def run(self) -> dict[str, float]:
        """Train to the configured number of iterations, or until SIGTERM/SIGINT; returns the last
        validation.
        """
        run = self.config.run
        log = None
        if self.rank == 0:
            log = RunLog(self.out, self.iteration)  # the folder is this run's from here on
            write_text(self.out / "config.json", json.dumps(self.config.to_dict(), indent=1))
        previous = {}
        try:
            for s in (signal.SIGTERM, signal.SIGINT):
                previous[s] = signal.signal(s, self._on_signal)
        except ValueError:
            pass  # not in the main thread: the caller handles signals
        bar = Bar(run.iterations, self.iteration, self.progress)
        last_save = time.monotonic()
        last_val: dict[str, float] = {}
        validations = 0
        self.backbone.train()
        try:
            with bar:
                while not self.is_done and not self._stopped():
                    start, cpu = time.perf_counter(), time.process_time()
                    logs, before = self.run_iteration(), self.best
                    self.val_dice = None
                    self.seconds += time.perf_counter() - start
                    self.cpu_seconds += time.process_time() - cpu
                    due = self.iteration % run.val_every == 0 or self.is_done
                    if self.supply.val_pairs and due:
                        if log is not None:
                            last_val = self._validate_and_keep(log, validations)
                            validations += 1
                            logs |= last_val
                        if self.world > 1:
                            dist.barrier()
                    if log is not None:
                        rate = self.learning_rate(self.iteration - 1)
                        log.write(self.iteration, self.updates, self.seconds, logs, rate)
                    bar.show(self.iteration, logs, last_val)
                    kept = bool(run.keep_every) and self.iteration % run.keep_every == 0
                    if kept:
                        self._save(f"iteration-{self.iteration}.pt")
                    late = time.monotonic() - last_save > 60 * run.checkpoint_minutes
                    # beside a checkpoint that is kept lies one to go on from
                    if self.is_done or late or kept or self.best > before:
                        self._save()
                        last_save = time.monotonic()
                self._save()
        finally:
            for s, handler in previous.items():
                signal.signal(s, handler)
            if log is not None:
                log.close()
        return last_val

    def _validate_and_keep(self, log: RunLog, before: int) -> dict[str, float]:
        """Validate; keep the best checkpoint, and a picture now and then."""
        last = self.validate()
        self.val_dice = last.get("val_dice")
        if last.get("val_dice", -math.inf) > self.best:
            self.best = last["val_dice"]
            self._save("best.pt")
        every = self.config.run.picture_every
        if every and (before + 1) % every == 1 % every:
            with swapped(self.backbone, self.ema):
                slices = picture(self.backbone, self.supply, self.config.run.val_steps, self.device)
            log.picture(slices, self.iteration)
        return last

    def _on_signal(self, number: int, frame: object) -> None:
        self._stop = True
        signal.signal(number, signal.SIG_DFL)  # a second one ends a long validation, too

    def _stopped(self) -> bool:
        """Whether any process was told to stop: the others would wait for it."""
        if self.world == 1:
            return self._stop
        told = torch.tensor(float(self._stop), device=self.device)
        dist.all_reduce(told)
        return bool(told > 0)
