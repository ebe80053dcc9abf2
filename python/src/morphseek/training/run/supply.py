"""The pairs of a run, iteration by iteration: of a data folder, or made up."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..config.schema import Config
from ..pairs.errors import DataError
from ..pairs.known_motion import known_pair
from ..pairs.lists import read_pairs, read_subjects
from ..pairs.network_grid import make_grid
from ..pairs.sample import Sample
from ..pairs.source import PairSource
from ..synthetic.source import SyntheticSource


def random_source(config: Config, rank: int, iteration: int) -> np.random.Generator:
    """Return the source of all randomness of an iteration in a process."""
    return np.random.default_rng([config.run.seed, rank, iteration])


class FolderSupply:
    """Pairs of a data folder: those of a list, or any two subjects of a split.

    Attributes
    ----------
    source : PairSource
    people : list of str
    pairs, val_pairs : list of (fixed, moving)
    """

    def __init__(self, config: Config, multiple: int, rank: int, world: int):
        self.config, self.multiple, self.rank, self.world = config, multiple, rank, world
        d = config.data
        self.subjects: list[str] = []
        self.pairs: list[tuple[str, str]] = []
        self.source = PairSource.configured(d)
        self.source.labels_needed = config.run.stage == "finetune"
        if d.pairs.startswith("subjects:"):
            self.subjects = read_subjects(d.path, d.pairs.split(":", 1)[1])
        else:
            self.pairs = read_pairs(d.path, d.pairs)
            if d.limit:
                order = np.random.default_rng([d.limit_seed, 1]).permutation(len(self.pairs))
                self.pairs = [self.pairs[i] for i in sorted(order[: d.limit])]
        self.val_pairs = read_pairs(d.path, d.val) if d.val else []
        if config.run.val_pairs:
            self.val_pairs = self.val_pairs[: config.run.val_pairs]
        if len(self.subjects) < 2 and not self.pairs:
            raise DataError(f"{d.path}: data.pairs = {d.pairs!r} names no pair to train on")
        self._check_people()

    def _check_people(self) -> None:
        """Refuse volumes that are missing or, for fine-tuning, have no labels: they would be
        trained on the images alone. Refuse people in two lists; each is known by the image's file.
        """
        d = self.config.data

        def people(*lists: Iterable[str]) -> dict[Path, str]:
            return {self.source.files(n)[0].resolve(): n for names in lists for n in names}

        trained = people(self.subjects, *self.pairs)
        apart = {d.val: people(*self.val_pairs)}
        with contextlib.suppress(DataError, FileNotFoundError):  # the test may come later
            apart[d.test] = people(*read_pairs(d.path, d.test))
        for name, held_out in apart.items():
            if both := sorted(held_out[file] for file in held_out.keys() & trained.keys()):
                raise DataError(
                    f"{d.path}: {', '.join(both[:5])} stand in data.pairs = {d.pairs!r} and in the"
                    f" list {name!r}; validation and test are of people that the training does not"
                    " see"
                )
        twice = [pair[0] for pair in self.pairs if len(people(pair)) < 2]
        if twice or len(people(self.subjects)) < len(self.subjects):
            raise DataError(
                f"{d.path}: data.pairs = {d.pairs!r} names {', '.join(twice[:5]) or 'a volume'}"
                " twice: a pair is of two volumes"
            )
        names = sorted({*trained.values(), *apart[d.val].values()})
        bare = [name for name in names if self.source.files(name)[1] is None]
        if bare and self.config.run.stage == "finetune":
            few = ", ".join(bare[:5]) + (", ..." if len(bare) > 5 else "")
            raise DataError(
                f"{d.path}: {len(bare)} of {len(names)} volumes have no label file"
                f" ({few}); fine-tuning needs one for each: add them, or leave these volumes out of"
                " data.pairs and data.val"
            )

    def draw(self, iteration: int, rng: np.random.Generator) -> tuple[str, str]:
        """Return the pair (fixed, moving) of an iteration."""
        if self.subjects:
            i, j = rng.choice(len(self.subjects), 2, replace=False)
            return self.subjects[i], self.subjects[j]
        # Every epoch takes each pair once, in a new order; processes take turns.
        index = iteration * self.world + self.rank
        epoch, place = divmod(index, len(self.pairs))
        order = np.random.default_rng([self.config.run.seed, 2, epoch]).permutation(len(self.pairs))
        return self.pairs[order[place]]

    def pair(self, iteration: int, rng: np.random.Generator) -> Sample:
        """Return the augmented pair of an iteration on its network grid: of two volumes, or a known
        motion of one.
        """
        c, d = self.config, self.config.data
        fixed, moving = self.draw(iteration, rng)
        if c.known.share and rng.random() < c.known.share:
            case = self.source.case(fixed)
            grid = make_grid(case, d.spacing, d.min_size, self.multiple)
            return known_pair(case, grid, d.labels, c.known, c.augment, rng)
        return self.source.pair(fixed, moving, d, self.multiple, d.labels, c.augment, rng)

    def validation_sample(self, number: int) -> Sample:
        """Return a validation pair on its network grid."""
        return self.source.pair(*self.val_pairs[number], self.config.data, self.multiple, 0)


class SyntheticSupply:
    """Made-up pairs. Every process has its own stream of pairs; that of the validation does not
    depend on the seed.

    Attributes
    ----------
    val_pairs : list of Sample
    """

    def __init__(self, config: Config, multiple: int, rank: int):
        if config.run.pretrain:
            raise ValueError(
                "run.pretrain needs labels that mean the same in every pair; labels of synthetic"
                " pairs do not"
            )
        self.config = config
        size = [multiple * math.ceil(n / multiple) for n in config.data.min_size]
        self.source = SyntheticSource(
            config.synthetic, size, config.data.labels, config.run.seed, 1 + rank
        )
        held_out = SyntheticSource(config.synthetic, size, config.data.labels)
        self.val_pairs: list[Sample] = []
        for i in range(config.synthetic.val_pairs):
            pair = held_out.sample(i)
            # Scores need only the label maps; the one-hot channels take most of a pair's memory.
            none = pair.fixed_labels[:, :0]
            self.val_pairs.append(dataclasses.replace(pair, fixed_labels=none, moving_labels=none))
        self._ahead: Iterator[Sample] | None = None
        self._due = 0

    def pair(self, number: int, rng: np.random.Generator) -> Sample:
        """Return a pair; in order, the pairs come from processes that make them in advance."""
        n = self.config.optim.accumulate
        last = self.config.run.iterations * n
        ahead = self.config.synthetic.workers and number < last
        if ahead and self._ahead is None:
            self._due = number
            self._ahead = self.source.stream_samples(
                [(i, i // n) for i in range(number, last)], self.config.synthetic.workers
            )
        if not ahead or number != self._due or self._ahead is None:
            return self.source.sample(number, number // n)
        self._due += 1
        return next(self._ahead)

    def validation_sample(self, number: int) -> Sample:
        """Return a validation pair."""
        return self.val_pairs[number]


def supply(config: Config, multiple: int, rank: int, world: int) -> FolderSupply | SyntheticSupply:
    """Return the supply that a configuration names; sizes of grids are multiples of `multiple`."""
    if config.data.pairs == "synthetic":
        return SyntheticSupply(config, multiple, rank)
    return FolderSupply(config, multiple, rank, world)
