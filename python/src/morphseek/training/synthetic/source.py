"""The supply of made-up pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..config.errors import ConfigError
from ..config.schema import Synthetic
from ..pairs.sample import Sample
from ..spatial import column, identity_grid, sample
from .anatomy import Anatomy
from .bodies import BODIES
from .noise import gaussian_process, total
from .scanner import Contrast, field_of_view, scan
from .shapes import euler_rotation
from .subject import NOISE_STRIDE, STRIDE, Lattice, Subject

#: A structure can be a label if it fills this share of the grid's voxels in both subjects. It must
#: not be too thin: read at the nearest voxels under the true map, this share of the smaller of the
#: two must agree.
LEAST_SHARE, LEAST_AGREEMENT = 4e-4, 0.75
#: A pair with fewer such structures is drawn again.
LEAST_LABELS = 4


@dataclasses.dataclass
class SyntheticPair:
    """A pair and everything that is known about it.

    Attributes
    ----------
    sample : Sample
        What the network sees, and the truth as a displacement.
    anatomy : Anatomy
    fixed_structures, moving_structures : (D, H, W), uint8
        Every structure, also outside the field of view.
    labels : list of str
        The structure of each label channel in use.
    fixed, moving : Subject
    """

    sample: Sample
    anatomy: Anatomy
    fixed_structures: Tensor
    moving_structures: Tensor
    labels: list[str]
    fixed: Subject
    moving: Subject

    def to_moving(self, points: Tensor) -> Tensor:
        """Map voxels (1, 3, D, H, W) of the fixed grid to those of the moving one."""
        return self.moving.from_anatomy(self.fixed.to_anatomy(points))

    def to_fixed(self, points: Tensor) -> Tensor:
        """Map voxels of the moving grid to those of the fixed one."""
        return self.fixed.from_anatomy(self.moving.to_anatomy(points))


class SyntheticSource:
    """An endless, numbered supply of pairs.

    Parameters
    ----------
    settings : Synthetic
        Section ``[synthetic]`` of the configuration.
    size : (D, H, W)
        Size of the grid, voxels.
    labels : int
        K, the number of label channels. Channels without a structure stay empty.
    seed : int
    stream : int
        Streams of one seed are different sets of pairs: each process and the validation have their
        own.
    """

    def __init__(
        self, settings: Synthetic, size: Sequence[int], labels: int, seed: int = 0, stream: int = 0
    ):
        unknown = [b for b in settings.bodies if b not in BODIES]
        if unknown or not settings.bodies:
            raise ConfigError(
                f"'synthetic.bodies': {unknown[0] if unknown else 'nothing'!r}; there are"
                f" {', '.join(BODIES)}"
            )
        if labels < 1:
            raise ConfigError("'data.labels' must be at least 1: synthetic pairs have labels")
        if min(size) < 16:
            raise ConfigError(
                f"'data.min_size' is {list(size)}: synthetic pairs need 16 voxels along each axis"
                " at least"
            )
        settings.at(1 << 62)  # finds a mistake in a phase now, not at its iteration
        self.settings = settings
        self.size = tuple(size)
        self.labels = labels
        self.seed = seed
        self.stream = stream

    def pair(self, index: int, iteration: int | None = None) -> SyntheticPair:
        """Make pair number ``index`` with the settings of iteration ``iteration``; by default with
        those at the end of the run.
        """
        s = self.settings.at(1 << 62 if iteration is None else iteration)
        for attempt in range(20):
            pair = self._draw(np.random.default_rng([self.seed, self.stream, index, attempt]), s)
            if len(pair.labels) >= min(LEAST_LABELS, self.labels):
                return pair
        raise RuntimeError(
            f"synthetic pair {index}: in 20 draws fewer than {LEAST_LABELS} structures were seen in"
            " both images"
        )

    def sample(self, index: int, iteration: int | None = None) -> Sample:
        """Return the sample of :meth:`pair`."""
        return self.pair(index, iteration).sample

    def stream_samples(self, items: Iterable[tuple[int, int]], workers: int) -> Iterator[Sample]:
        """Yield the samples of (index, iteration) in order, made in advance by ``workers``
        processes; with 0, by this one.
        """
        from torch.utils.data import DataLoader

        yield from DataLoader(
            _Numbered(self),
            batch_size=None,
            sampler=items,
            num_workers=workers,
            prefetch_factor=4 if workers else None,
        )

    def _draw(self, rng: np.random.Generator, s: Synthetic) -> SyntheticPair:
        size = self.size
        anatomy = BODIES[s.bodies[int(rng.integers(len(s.bodies)))]](rng)
        # The field of view is a random multiple of the body's width; this sets the voxel size.
        width = max(size)
        voxel = anatomy.extent * rng.uniform(s.coverage[0], s.coverage[1]) / width
        body = anatomy.extent / voxel  # voxels
        coarse, fine = Lattice(size, STRIDE), Lattice(size, NOISE_STRIDE)
        # Both subjects share the anatomy's own irregularity and the noise of its folds and
        # textures.
        bend = total(
            gaussian_process(rng, 3, fine.size, f * body / NOISE_STRIDE) * (0.05 * f * body)
            for f in (0.3, 0.12)
        )
        grain = torch.cat(
            [
                gaussian_process(rng, 1, fine.size, max(f * body, 3.0) / NOISE_STRIDE)
                for f in (0.25, 0.09, 0.04)
            ],
            dim=1,
        )
        character = torch.cat((bend, grain), dim=1)
        pose = euler_rotation(rng.uniform(-0.25, 0.25, 3)) @ np.diag(
            np.where(rng.random(3) < (0.0, 0.0, 0.5), -1.0, 1.0)
        )
        offset = rng.uniform(-0.08, 0.08, 3) * body * voxel

        def look(subject: Subject) -> tuple[Tensor, Tensor]:
            points = subject.to_anatomy(identity_grid(size, torch.device("cpu")))
            read = fine.read(character, points)
            middle = column([(n - 1) / 2 for n in size])
            mm = (points + read[:, :3] - middle) * voxel
            mm = torch.einsum("ij,bjdhw->bidhw", torch.as_tensor(pose, dtype=torch.float32), mm)
            mm = mm[0] + torch.as_tensor(offset, dtype=torch.float32).view(3, 1, 1, 1)
            return anatomy.render(mm, read[0, 3:]), read[0, 3:]

        sd = 0.01 * s.deformation * body * rng.uniform(0.3, 1.0)
        fixed = Subject(size, self._velocity(rng, coarse, body, sd), np.eye(3, 4))
        residual = s.residual * rng.uniform(-1, 1, (4, 3))
        linear = euler_rotation(np.deg2rad(5.0) * residual[0]) @ (
            np.diag(np.exp(0.06 * residual[1])) + 0.03 * (np.ones((3, 3)) - np.eye(3)) * residual[2]
        )
        shift = 0.03 * body * residual[3]
        moving = Subject(
            size,
            self._velocity(rng, coarse, body, sd),
            np.concatenate((linear, shift[:, None]), axis=1),
        )
        f_structures, f_grain = look(fixed)
        m_structures, m_grain = look(moving)

        contrasts = [Contrast.draw(rng, anatomy, s.texture) for _ in range(2)]
        if rng.random() < s.same_contrast:
            contrasts[1] = contrasts[0].jitter(rng)
        grid = identity_grid(size, torch.device("cpu"))
        f_fov, m_fov = (field_of_view(rng, s.crop, size, grid) for _ in range(2))
        images = [
            scan(rng, s, anatomy, c, structures, grain) * fov
            for c, structures, grain, fov in zip(
                contrasts, (f_structures, m_structures), (f_grain, m_grain), (f_fov, m_fov)
            )
        ]
        f_visible, m_visible = (
            (v * fov[0, 0]).to(torch.uint8)
            for v, fov in ((f_structures, f_fov), (m_structures, m_fov))
        )
        target = moving.from_anatomy(fixed.to_anatomy(grid))
        chosen = self._choose(rng, f_visible, m_visible, target, len(anatomy.structures))
        maps, hot = [], []
        for visible in (f_visible, m_visible):
            lookup = torch.zeros(len(anatomy.structures))
            for k, structure in enumerate(chosen, 1):
                lookup[structure] = k
            labels = lookup[visible.long()][None, None]
            maps.append(labels)
            hot.append(torch.cat([(labels == k).float() for k in range(1, self.labels + 1)], dim=1))
        # Air does not show where it moves, and what either scan leaves out cannot be matched.
        known = f_fov * (f_structures > 0) * sample(m_fov, target)
        result = Sample(
            images[0],
            images[1],
            f_fov,
            m_fov,
            hot[0],
            hot[1],
            maps[0],
            maps[1],
            truth=target - grid,
            truth_mask=(known > 0.99).float(),
        )
        return SyntheticPair(
            result,
            anatomy,
            f_structures,
            m_structures,
            [anatomy.structures[i] for i in chosen],
            fixed,
            moving,
        )

    @staticmethod
    def _velocity(rng: np.random.Generator, lattice: Lattice, body: float, sd: float) -> Tensor:
        """Smooth noise of several scales; the displacement's standard deviation is about ``sd``
        voxels per component.
        """
        scales = np.array([0.5, 0.25, 0.12])
        # The amplitude falls with the scale, so that all scales have a similar gradient and change
        # of volume.
        share = scales * rng.uniform(0.2, 1.0, 3)
        share = share / np.linalg.norm(share) * sd / STRIDE
        return total(
            gaussian_process(rng, 3, lattice.size, f * body / STRIDE) * float(a)
            for f, a in zip(scales, share)
        )

    def _choose(
        self, rng: np.random.Generator, fixed: Tensor, moving: Tensor, target: Tensor, count: int
    ) -> list[int]:
        """Choose the structures of the labels from the maps (D, H, W) of visible structures and the
        true points (1, 3, D, H, W).
        """
        read = sample(moving[None, None].float(), target, mode="nearest")[0, 0].to(torch.uint8)

        def sizes(values: Tensor) -> Tensor:
            return torch.bincount(values.flatten().long(), minlength=count)

        n_fixed, n_moving, n_read, cross = (
            sizes(v) for v in (fixed, moving, read, fixed * (fixed == read))
        )
        # Relative to the smaller: parts outside the other field of view do not count.
        agreement = cross / torch.minimum(n_fixed, n_read).clamp_min(1)
        good = (torch.minimum(n_fixed, n_moving) >= LEAST_SHARE * fixed.numel()) & (
            agreement >= LEAST_AGREEMENT
        )
        good[0] = False
        return sorted(rng.permutation(good.nonzero()[:, 0].numpy())[: self.labels].tolist())


class _Numbered(torch.utils.data.Dataset[Sample]):
    def __init__(self, source: SyntheticSource):
        self.source = source

    def __getitem__(self, item: tuple[int, int]) -> Sample:
        return self.source.sample(*item)
