"""Measures one GRPO step in this process; diagnostics.step_cost runs it in a child process.

    python python/benchmarks/research/step_cost.py J SEQUENTIAL D H W BACKBONE DEVICE

SEQUENTIAL is 1 for one trajectory after the other, 0 for all at once. Prints as JSON ``mib``, the
growth of the peak memory, and ``seconds``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch

from morphseek.training.backbones import build_backbone
from morphseek.training.config import load
from morphseek.training.pairs import Sample
from morphseek.training.step import StepObjective


def peak(cuda: bool) -> float:
    """Return the peak memory so far, KiB."""
    if cuda:
        return torch.cuda.max_memory_allocated() / 1024
    # On Linux children inherit a parent's ru_maxrss; VmHWM counts only this address space.
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 if sys.platform == "darwin" else 1)


def main(arguments: list[str]) -> None:
    trajectories, sequential = int(arguments[0]), arguments[1] == "1"
    size, (backbone, device) = [int(v) for v in arguments[2:5]], arguments[5:]
    cuda = device != "cpu"
    torch.set_num_threads(1)
    config = load("paper").replace(
        **{
            "policy.trajectories": trajectories,
            "policy.sequential": sequential,
            "policy.tau_init": 1.0,
            "model.backbone": backbone,
        }
    )
    torch.manual_seed(0)
    network = build_backbone(config.model).to(device)
    objective = StepObjective(network, config.loss, config.policy, "finetune", cuda)
    images, ones = [torch.rand(1, 1, *size) for _ in range(2)], torch.ones(1, 1, *size)
    labels = [(torch.rand(1, 2, *size) > 0.5).float() for _ in range(2)]
    pair = Sample(*images, ones, ones, *labels, ones, ones).to(device)

    def step() -> float:
        began = time.perf_counter()
        start = torch.zeros(1, 3, *size, device=device)
        objective(pair, start, tau=1.0, rng=np.random.default_rng(0)).loss.backward()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    before = peak(cuda)
    seconds = step()
    mib = (peak(cuda) - before) / 1024
    if cuda:
        seconds = step()  # the first step searched for algorithms
    print(json.dumps({"mib": mib, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1:])
