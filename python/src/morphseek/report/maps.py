"""The field of a result and maps of it, on grids as coarse as a page needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._percentiles import percentiles
from .views import Scene, Volume

_LEAST_VOLUME = 1e-2  # what the map of volumes tells apart
_LEAST_LENGTH = 1e-3  # what the maps of lengths tell apart, voxels


class Maps:
    """The field and the maps of it on coarser grids, and where they are largest."""

    def __init__(self, scene: Scene, error: np.ndarray | None):
        self.scene = scene
        self.volumes: dict[str, Volume] = {}
        self.scales: dict[str, Any] = {}
        self.jacobian = scene.result.transform.jacobian()
        self.least = _LEAST_LENGTH * min(scene.spacing)
        self._field()
        self.steps = [2 if scene.large and n >= 32 else 1 for n in scene.shape]
        self.nodes = scene.nodes(self.steps)
        self._log_jacobian()
        for name, volume in (("uncertainty", scene.result.uncertainty), ("error", error)):
            if volume is not None:
                self._heat(name, volume)

    def _field(self) -> None:
        """The displacement behind the initial transform, about 50 nodes along the longest side."""
        scene = self.scene
        longest = max(n * s for n, s in zip(scene.shape[::-1], scene.spacing))
        steps = [
            max(1, min(round(longest / 50 / s), n))
            for n, s in zip(scene.shape[::-1], scene.spacing)
        ][::-1]
        self.field_nodes = scene.nodes(steps)
        self.bend = scene.bend(self.field_nodes)
        most = max(float(np.abs(self.bend).max()), 1e-3 * self.least)
        coded = np.rint(self.bend * (127 / most)).astype(np.int8).view(np.uint8)
        shape = coded.shape[1:]
        self.volumes["field"] = Volume(coded.reshape(-1, *shape[1:]), [1, 1, 1], False)
        starts = [s // 2 if n > s // 2 else n - 1 for n, s in zip(scene.shape, steps)]
        self.field = {
            "size": list(shape[::-1]),
            "step": steps[::-1],
            "start": starts[::-1],
            "mm": most / 127,
        }

    def _log_jacobian(self) -> None:
        sampled = self.scene.sampled(self.jacobian, self.nodes)
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithm = np.log(np.maximum(sampled, _LEAST_VOLUME))
        most = max(0.1, float(np.abs(logarithm).max()))
        coded = np.rint(128 + logarithm * (127 / most)).astype(np.uint8)
        coded[sampled <= 0] = 0  # nothing else is: the map folds
        shown = percentiles(np.abs(logarithm[::2, ::2, ::2]), [99])[0]
        shown = min(max(shown, 0.3), 1.4)  # from a quarter of the volume to four times it
        self.volumes["jacobian"] = Volume(coded, self.steps, False)
        self.scales["jacobian"] = {"most": most, "shown": min(most, shown)}

    def _heat(self, name: str, volume: np.ndarray) -> None:
        sampled = np.nan_to_num(self.scene.sampled(volume, self.nodes))
        most = max(self.least, float(sampled.max()))
        shown = max(self.least, 1.2 * percentiles(sampled[::2, ::2, ::2], [95])[0])
        coded = np.rint(sampled * (255 / most)).astype(np.uint8)
        self.volumes[name] = Volume(coded, self.steps, False)
        self.scales[name] = {"most": most, "shown": min(most, shown)}

    def place(self, index: int, nodes: list[np.ndarray], shape: Sequence[int]) -> list[int]:
        """Return the page's voxel x, y, z of a place among nodes."""
        at = np.unravel_index(index, shape)
        places = [
            (int(nodes[a][at[a]]) - self.scene.start[a]) // self.scene.step[a] for a in range(3)
        ]
        return [min(p, n - 1) for p, n in zip(places, self.scene.shape)][::-1]
