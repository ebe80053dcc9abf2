"""Ways to choose a candidate of choices.py from the measurements in a pair: a fixed choice, a
gradient-boosted tree, a softmax policy trained by GRPO. Each learns from some pairs and chooses for
others.

A chooser is a function of the pairs to learn from, their gains, the other pairs and a seed. It
returns the chosen candidate of each other pair. The tree needs scikit-learn, the policy PyTorch
(morphseek[training]).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Chosen = NDArray[np.intp]


@dataclasses.dataclass(frozen=True)
class Seen:
    """The data that a chooser may use.

    Attributes
    ----------
    facts : numpy.ndarray
        (pairs, facts): what the plan measured in each pair.
    results : numpy.ndarray
        (pairs, candidates, values): the metrics of each candidate's own result.
    """

    facts: Floats
    results: Floats


Chooser = Callable[[Seen, Floats, Seen, int], Chosen]
"""From the pairs to learn from, their gains (pairs, candidates), log(the plan's error / the
candidate's), the pairs to choose for, and a seed."""


def scaled_like(facts: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Scale both to mean 0 and standard deviation 1 of the first, clipped to four deviations."""
    mean, sd = facts.mean(0), facts.std(0)
    sd = np.where(sd > 1e-9, sd, 1.0)
    return tuple(((x - mean) / sd).clip(-4, 4) for x in (facts, others))


def fixed(learn: Seen, gains: Floats, others: Seen, seed: int) -> Chosen:
    """Choose the candidate that is best on average, for all pairs."""
    return np.full(len(others.facts), int(gains.mean(0).argmax()))


def _tree(x: Floats, y: Floats, seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        n_estimators=200, max_depth=4, learning_rate=0.05, subsample=0.5, random_state=seed
    ).fit(x, y)


def _rows(facts: Floats, candidates: int) -> Floats:
    """Return one row per pair and candidate: the pair's facts, and a 1 at the candidate."""
    pairs = len(facts)
    return np.hstack(
        [np.repeat(facts, candidates, axis=0), np.tile(np.eye(candidates), (pairs, 1))]
    )


def tree(learn: Seen, gains: Floats, others: Seen, seed: int) -> Chosen:
    """Predict every candidate's gain from the facts by gradient-boosted trees; take the largest."""
    k = gains.shape[1]
    model = _tree(_rows(learn.facts, k), gains.ravel(), seed)
    return model.predict(_rows(others.facts, k)).reshape(-1, k).argmax(1)


def tree_of_results(learn: Seen, gains: Floats, others: Seen, seed: int) -> Chosen:
    """The same from the facts and the results: every candidate has to be run first."""
    k = gains.shape[1]

    def rows(seen: Seen) -> Floats:
        own = seen.results.reshape(len(seen.facts) * k, -1)
        return np.hstack([_rows(seen.facts, k), own])

    return _tree(rows(learn), gains.ravel(), seed).predict(rows(others)).reshape(-1, k).argmax(1)


def grpo(
    learn: Seen,
    gains: Floats,
    others: Seen,
    seed: int,
    *,
    divided: bool = True,
    steps: int = 150,
    group: int = 16,
    clip: float = 0.2,
    kl: float = 0.02,
    rate: float = 0.02,
) -> Chosen:
    """Train a softmax policy, linear in the facts, by group relative policy optimisation; choose
    its likeliest candidate.

    A pair's group is drawn from the policy; its advantages are the gains less the group's mean,
    divided by their standard deviation. The ratio to the policy that drew the group is clipped, and
    the divergence from a reference that takes the plan half of the time is penalised.

    Parameters
    ----------
    divided : bool
        False leaves the division out, so that pairs with similar gains count little.
    steps, group : int
        Number of draws, each with four gradient steps; candidates drawn per pair.
    clip, kl, rate : float
        Clipping of the ratio, weight of the divergence, Adam's learning rate.
    """
    import torch
    from torch.nn import functional as F

    from morphseek.training.policy.advantage import group_advantage

    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(seed)
    here, there = (
        torch.tensor(np.hstack([x, np.ones((len(x), 1))]), dtype=torch.float64)
        for x in scaled_like(learn.facts, others.facts)
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

    for _ in range(steps):
        with torch.no_grad():
            old = policy(here)
            drawn = torch.multinomial(old.exp(), group, replacement=True, generator=rng)
            rewards = gain.gather(1, drawn)
            advantage = (
                torch.stack([group_advantage(r) for r in rewards])
                if divided
                else rewards - rewards.mean(1, keepdim=True)
            )
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


def grpo_undivided(learn: Seen, gains: Floats, others: Seen, seed: int) -> Chosen:
    """GRPO without the division by the group's standard deviation."""
    return grpo(learn, gains, others, seed, divided=False)


CHOOSERS: dict[str, Chooser] = {
    "the best fixed choice": fixed,
    "boosted trees": tree,
    "GRPO": grpo,
    "GRPO, advantages undivided": grpo_undivided,
    "boosted trees that see every result": tree_of_results,
}


def left_out(chooser: Chooser, seen: Seen, gains: Floats, groups: list[str], seed: int) -> Chosen:
    """Return the choice for each pair after learning from the pairs of the other groups."""
    chosen = np.zeros(len(gains), np.intp)
    for group in dict.fromkeys(groups):
        out = np.array([g == group for g in groups])
        chosen[out] = chooser(
            Seen(seen.facts[~out], seen.results[~out]),
            gains[~out],
            Seen(seen.facts[out], seen.results[out]),
            seed,
        )
    return chosen
