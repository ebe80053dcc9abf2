"""The pairs of a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..._shared import SEARCHED, find_labels
from ..config.augmentation import Augmentation
from ..config.schema import Data
from .case import Case, read_case
from .errors import DataError
from .network_grid import make_grid
from .sample import Sample, make_sample

#: A volume that fills less of its network grid than this is seen in a few voxels: say so.
LEAST_FILLED = 0.05


def _times(lengths: np.ndarray) -> str:
    return " x ".join(f"{length:.3g}" for length in lengths)


def _few(labels: set[int]) -> str:
    return ", ".join(map(str, sorted(labels)[:5])) + (", ..." if len(labels) > 5 else "")


class PairSource:
    """The pairs of a run. Every volume is read once and kept in memory.

    Parameters
    ----------
    data : path
        Folder with ``images/`` and ``labels/`` (same names), or the root of the relative paths in
        the pair list.
    labels : int
        Number of labels without the background; 0 for unlabelled data.
    percentiles
        See :func:`read_case`.
    initial : str
        Initial alignment of pairs: ``"centres"`` aligns the volumes' centres; other values are
        those of ``initial`` in :func:`morphseek.register`.

    Attributes
    ----------
    labels_needed : bool
        Refuse a volume whose labels are all above ``labels``; otherwise only warn.
    """

    def __init__(
        self,
        data: str | Path,
        labels: int,
        percentiles: tuple[float, float] = (0.5, 99.5),
        initial: str = "centres",
    ):
        self.data = Path(data)
        self.labels = labels
        self.percentiles = percentiles
        self.initial = initial
        self.labels_needed = False
        self._warned: set[str] = set()
        self._cases: dict[str, Case] = {}
        self._starts: dict[tuple[str, str], np.ndarray] = {}
        if not self.data.is_dir():
            raise FileNotFoundError(
                f"data folder {self.data} does not exist; check --data or data.path"
            )

    @classmethod
    def configured(cls, data: Data, path: str | Path | None = None) -> PairSource:
        """Make the source of a run's ``[data]`` section; ``path`` overrides its folder."""
        low, high = data.percentiles
        return cls(data.path if path is None else path, data.labels, (low, high), data.initial)

    def case(self, name: str) -> Case:
        """Return the volume called ``name``."""
        if name not in self._cases:
            image, labels = self.files(name)
            case = read_case(image, labels, self.percentiles)
            if case.labels is not None and labels is not None:
                self._look_for_others(case.labels, labels)
            self._cases[name] = case
        return self._cases[name]

    def _look_for_others(self, labels: Tensor, path: Path) -> None:
        """Warn of labels above ``data.labels``, which become background, and of empty maps."""
        values = set(torch.unique(labels).tolist()) - {0}
        if self.labels_needed and not values:
            logging.getLogger(__name__).warning(
                "%s: no voxel has a label; the pairs of this volume teach nothing of overlap", path
            )
        if not values or max(values) <= self.labels:
            return
        if min(values) > self.labels and self.labels_needed:
            raise DataError(
                f"{path}: its labels are {_few(values)}, none of them from 1 to {self.labels}"
                f" (data.labels = {self.labels}); renumber them from 1, or set data.labels to"
                " the greatest"
            )
        self._warn_once(
            "labels",
            f"{path}: label {max(values)} is above data.labels = {self.labels} and counts as"
            " background; set data.labels to the greatest label if it should count",
        )

    def _warn_once(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logging.getLogger(__name__).warning(text)

    def pair(
        self,
        fixed: str,
        moving: str,
        data: Data,
        multiple: int,
        labels: int,
        augmentation: Augmentation | None = None,
        rng: np.random.Generator | None = None,
    ) -> Sample:
        """Return the pair of these names on its network grid, with ``data``'s spacing and minimum
        size: :func:`make_grid`, :func:`make_sample`.
        """
        f, m = self.case(fixed), self.case(moving)
        grid = make_grid(f, data.spacing, data.min_size, multiple)
        volume, room = np.array(f.size) * f.spacing, np.array(grid.size) * grid.spacing
        if np.prod(volume / room) < LEAST_FILLED:
            self._warn_once(
                "grid",
                f"{fixed}: the volume of {_times(volume)} mm is lost in the network grid of"
                f" {_times(room)} mm; set data.spacing and data.min_size to your images",
            )
        return make_sample(f, m, grid, labels, augmentation, rng, self.start(fixed, moving))

    def start(self, fixed: str, moving: str) -> np.ndarray | None:
        """Return the initial transform of a pair, 4x4, LPS, from the fixed to the moving space;
        None aligns the centres. The engine computes it once.
        """
        if self.initial == "centres":
            return None
        if (fixed, moving) not in self._starts:
            from ... import register

            self._starts[fixed, moving] = register(
                self.files(fixed)[0],
                self.files(moving)[0],
                initial=cast(Any, self.initial),
                model="none",
                search=False,
                refine=0,
                threads=1,
            ).transform.initial
        return self._starts[fixed, moving]

    def files(self, name: str) -> tuple[Path, Path | None]:
        """Return the image's and the labels' file of the volume called ``name``; read neither."""
        path = self.data / name
        if path.is_file():
            return path, self._labels_of(path)
        for ending in ("", *SEARCHED):
            path = self.data / "images" / (name + ending)
            if path.exists():
                return path, self._labels_of(path)
        raise FileNotFoundError(
            f"no image {name!r} in {self.data} (tried images/{name}{', '.join(SEARCHED)})"
        )

    def _labels_of(self, image: Path) -> Path | None:
        """Find the labels: those of imagesTr/x.nii.gz are labelsTr/x with any known ending."""
        # Only the part below the data folder is changed: folders above may contain the word.
        inside = image.relative_to(self.data) if image.is_relative_to(self.data) else image
        return find_labels(self.data, inside.as_posix()) if self.labels else None
