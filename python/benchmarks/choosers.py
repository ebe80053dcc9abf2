"""Ways to choose a candidate of choices.py from the facts of a pair, learned from other pairs: by
gradient-boosted trees (scikit-learn), and by a softmax policy trained by GRPO (PyTorch).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Chosen = NDArray[np.intp]
Chooser = Callable[[Floats, Floats, Floats, int], Chosen]
"""From the facts (pairs, facts) of the pairs to learn from, their gains (pairs, candidates),
log(the plan's error / the candidate's), the facts of the pairs to choose for, and a seed."""


def scaled_like(facts: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Scale both to mean 0 and standard deviation 1 of the first, clipped to four deviations."""
    mean, sd = facts.mean(0), facts.std(0)
    sd = np.where(sd > 1e-9, sd, 1.0)
    return tuple(((x - mean) / sd).clip(-4, 4) for x in (facts, others))


def tree(facts: Floats, gains: Floats, others: Floats, seed: int) -> Chosen:
    """Predict every candidate's gain from the facts by gradient-boosted trees; take the largest."""
    from sklearn.ensemble import GradientBoostingRegressor

    k = gains.shape[1]

    def rows(facts: Floats) -> Floats:  # one per pair and candidate, with a 1 at the candidate
        return np.hstack([np.repeat(facts, k, axis=0), np.tile(np.eye(k), (len(facts), 1))])

    model = GradientBoostingRegressor(
        n_estimators=200, max_depth=4, learning_rate=0.05, subsample=0.5, random_state=seed
    ).fit(rows(facts), gains.ravel())
    return model.predict(rows(others)).reshape(-1, k).argmax(1)


def grpo(facts: Floats, gains: Floats, others: Floats, seed: int) -> Chosen:
    """Train a softmax policy, linear in the facts, by group relative policy optimisation; choose
    its likeliest candidate.

    A pair's group is drawn from the policy; its advantages are the gains less the group's mean,
    divided by their standard deviation. The ratio to the policy that drew the group is clipped, and
    the divergence from a reference that takes the plan half of the time is penalised.
    """
    import torch
    from torch.nn import functional as F

    from morphseek.training.policy.advantage import group_advantage

    torch.set_num_threads(1)
    draws, group, clip, kl, rate = 150, 16, 0.2, 0.02, 0.02
    rng = torch.Generator().manual_seed(seed)
    here, there = (
        torch.tensor(np.hstack([x, np.ones((len(x), 1))]), dtype=torch.float64)
        for x in scaled_like(facts, others)
    )
    k = gains.shape[1]
    # candidate 0 is the plan
    start = torch.zeros(k, dtype=torch.float64)
    start[0] = np.log(max(k - 1, 1))
    reference = F.log_softmax(start, 0)
    weights = torch.zeros(here.shape[1], k, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=rate)
    gain = torch.tensor(gains)

    def policy(x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(start + x @ weights, 1)

    for _ in range(draws):
        with torch.no_grad():
            old = policy(here)
            drawn = torch.multinomial(old.exp(), group, replacement=True, generator=rng)
            advantage = torch.stack([group_advantage(r) for r in gain.gather(1, drawn)])
        for _ in range(4):
            new = policy(here)
            ratio = (new.gather(1, drawn) - old.gather(1, drawn)).exp()
            kept = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            divergence = (new.exp() * (new - reference)).sum(1)
            loss = kl * divergence.mean() - kept.mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
    with torch.no_grad():
        return policy(there).argmax(1).numpy()


CHOOSERS: dict[str, tuple[str, Chooser]] = {
    "boosted trees": ("sklearn", tree),
    "GRPO": ("torch", grpo),
}
"""The choosers by name, and the module that each needs."""


def left_out(
    chooser: Chooser, facts: Floats, gains: Floats, groups: list[str], seed: int
) -> Chosen:
    """Return the choice for each pair after learning from the pairs of the other groups."""
    chosen = np.zeros(len(gains), np.intp)
    for group in dict.fromkeys(groups):
        out = np.array([g == group for g in groups])
        chosen[out] = chooser(facts[~out], gains[~out], facts[out], seed)
    return chosen
