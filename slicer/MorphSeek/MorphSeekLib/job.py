"""A registration's inputs for the worker, and what its answer becomes, in a scratch scene."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import geometry, outputs, transfer
from .options import OUTPUTS
from .process import Worker
from .request import RegistrationRequest

_SIDES = ("fixed", "moving")


class Job:
    """The inputs of one request as the nodes were when it was made: `request`, for the worker.

    build() makes nodes of the worker's result, dress() what the user sees of them.
    """

    def __init__(self, request: RegistrationRequest, worker: Worker):
        import slicer

        self._r, self._worker, self._scratch = request, worker, slicer.vtkMRMLScene()
        self._layers: dict[Any, list[transfer.Layer]] = {}
        # the nodes of _layers under a transform that is not linear, each with a copy of that
        # transform as it was at the start
        self._bent: dict[Any, Any] = {}
        self._reference: Any = None  # the fixed volume's grid in the world
        self._markups = [
            transfer.copy_markups(self._scratch, node)
            for node in request.transfer
            if node.IsA("vtkMRMLMarkupsNode")
        ]
        self._fixed_labels: dict[str, tuple[np.ndarray, int]] = {}
        self._titles: dict[str, str] = {}  # what these labels are called
        self._dice_before: dict[str, float] = {}
        self.request = self._prepare()

    def _put(self, name: str, volume: Any, array: np.ndarray | None = None) -> dict[str, Any]:
        """Write a volume, or an array on its grid, for the worker; return its entry."""
        array = geometry.array_of(volume) if array is None else array
        return self._worker.put(name, array, geometry.matrix_of(volume))

    def _prepare(self) -> dict[str, Any]:
        r, scratch = self._r, self._scratch
        job: dict[str, Any] = {"options": r.options(), "field_spacing": r.field_spacing}
        for side in _SIDES:
            volume = geometry.in_world(scratch, getattr(r, side))
            job[side] = self._put(side, volume) | geometry.origin_of(getattr(r, side))
            if (mask := getattr(r, f"{side}_mask")) is not None:
                reference = transfer.on_scratch(scratch, volume)
                inside = transfer.mask_on(scratch, mask, reference)
                job[f"{side}_mask"] = self._put(f"{side}_mask", volume, inside)
            if (points := getattr(r, f"{side}_landmarks")) is not None:
                job[f"{side}_landmarks"] = geometry.points_of(points)
        fixed = geometry.in_world(scratch, r.fixed)
        if r.rigid_regions is not None:
            reference = transfer.on_scratch(scratch, fixed)
            regions = transfer.numbered_on(scratch, r.rigid_regions, reference)
            job["rigid_regions"] = self._put("rigid_regions", fixed, regions)
        if r.initial_transform is not None:
            if r.initial_transform.IsTransformToWorldLinear():
                job["initial_transform"] = geometry.initial_matrix(r.initial_transform).tolist()
            else:
                field = geometry.field_on(r.initial_transform, fixed)
                job["initial_field"] = self._put("initial_field", fixed, field)
        job["labels"] = self._prepare_labels()
        job["channels"] = self._prepare_channels()
        wanted = [name for name in OUTPUTS if getattr(r, name)]
        if (self._markups or self._bent) and "transform" not in wanted:
            wanted.append("transform")
        job["outputs"] = wanted
        return job

    def _prepare_channels(self) -> list[dict[str, Any]]:
        """Write the second volumes and labels that drive the registration; _prepare_labels comes
        first.
        """
        r, scratch, entries = self._r, self._scratch, []
        for pair in r.channels:
            volumes = [geometry.in_world(scratch, node) for node in pair]
            origins = [geometry.origin_of(node) for node in pair]
            entries.append((pair[0].GetName(), False, volumes, [None, None], origins))
        if r.labels_drive:
            grids = [self._reference, transfer.on_scratch(scratch, r.moving)]
            moving = transfer.labels_on(scratch, r.moving_labels, grids[1])
            arrays = transfer.numbered_alike(self._fixed_labels, moving)
            entries.append(("the labels", True, grids, arrays, [{}, {}]))
        return [
            {
                "name": name,
                "labels": labels,
                **{
                    side: self._put(f"channel-{i}-{side}", volume, array) | origin
                    for side, volume, array, origin in zip(_SIDES, volumes, arrays, origins)
                },
            }
            for i, (name, labels, volumes, arrays, origins) in enumerate(entries)
        ]

    def _prepare_labels(self) -> list[dict[str, Any]]:
        """Write the label arrays that the worker brings onto the fixed grid, and keep those that
        this process resamples. Measure Dice before the registration.
        """
        r, entries, kept = self._r, [], {}
        nodes = [
            node
            for node in (*r.transfer, r.moving_labels)
            if node is not None and not node.IsA("vtkMRMLMarkupsNode")
        ]
        if r.fixed_labels is not None or any(_is_bent(node) for node in nodes):
            self._reference = transfer.on_scratch(self._scratch, r.fixed)
        if r.fixed_labels is not None:
            self._fixed_labels = transfer.labels_on(self._scratch, r.fixed_labels, self._reference)
            self._titles = transfer.titles(self._fixed_labels, r.fixed_labels, r.moving_labels)
            moving = transfer.labels_on(self._scratch, r.moving_labels, self._reference)
            self._dice_before = transfer.dice(self._fixed_labels, moving)
        for node in nodes:
            if node in self._layers:
                continue
            self._layers[node] = layers = transfer.layers(self._scratch, node)
            if _is_bent(node):  # resampled here: for the worker they would be resampled twice
                parent = node.GetParentTransformNode()
                if parent not in kept:
                    kept[parent] = geometry.keep_transform(self._scratch, parent)
                self._bent[node] = kept[parent]
                for layer in layers:
                    layer.volume.SetAndObserveTransformNodeID(kept[parent].GetID())
                continue
            for layer in layers:
                array, matrix = layer.in_world()
                entries.append(self._worker.put(f"labels-in-{len(entries)}", array, matrix))
        return entries

    def build(self, result: dict[str, Any]) -> dict[str, list[tuple[Any, Any]]]:
        """Return every output as a node of the scratch scene with its target; add Dice to the
        result's metrics.
        """
        r, scratch, get = self._r, self._scratch, self._worker.get
        nodes = {}
        for output in OUTPUTS:
            if entry := result["files"].get(output):
                nodes[output] = outputs.build(scratch, output, get(entry), entry, r.fixed, r.moving)
        built = {
            output: [(node, getattr(r, output))]
            for output, node in nodes.items()
            if getattr(r, output)
        }
        moved = self._moved_labels(result["labels"], nodes.get("transform"))
        markups = iter(self._markups)
        if r.transfer:
            built["transferred"] = []
        notes = result["verdict"]["notes"]
        for node, (arrays, _) in moved.items():
            notes += filter(None, [transfer.nothing_carried(node, self._layers[node], arrays)])
        for node in r.transfer:
            if node.IsA("vtkMRMLMarkupsNode"):
                copy = transfer.moved_markups(next(markups), nodes["transform"])
            else:
                copy = transfer.assemble(scratch, node, self._layers[node], *moved[node])
            built["transferred"].append((copy, True))
        if r.fixed_labels is not None:
            layers, (arrays, _) = self._layers[r.moving_labels], moved[r.moving_labels]
            self._add_dice(result, transfer.by_name(layers, arrays))
        return built

    def _add_dice(self, result: dict[str, Any], moved: dict[str, tuple[np.ndarray, int]]) -> None:
        metrics, after = result["metrics"], transfer.dice(self._fixed_labels, moved)
        metrics["dice"] = {
            self._titles[label]: [self._dice_before.get(label, 0.0), score]
            for label, score in after.items()
        }
        if after:
            metrics["dice_before"], metrics["dice_after"] = (
                float(np.mean(column)) for column in zip(*metrics["dice"].values())
            )
        else:
            result["verdict"]["notes"].append(
                "Dice was not measured: the two sides have no label in common on the fixed volume"
            )

    def _moved_labels(
        self, entries: list[dict[str, Any]], transform: Any
    ) -> dict[Any, tuple[list[np.ndarray], np.ndarray]]:
        """Return for every node with labels the arrays of its layers on the fixed grid, and that
        grid's 4x4 index to LPS matrix.
        """
        moved, rest = {}, iter(entries)
        for node, layers in self._layers.items():
            if node in self._bent:
                self._bent[node].SetAndObserveTransformNodeID(transform.GetID())
                moved[node] = (
                    [transfer.resampled(layer.volume, self._reference) for layer in layers],
                    geometry.matrix_of(self._reference),
                )
            else:
                own = [next(rest) for _ in layers]
                moved[node] = [self._worker.get(entry) for entry in own], np.array(own[0]["matrix"])
        return moved

    def dress(self, nodes: dict[str, Any]) -> None:
        """Refer the published nodes to their volumes, and show them like these."""
        r = self._r
        if node := nodes.get("transform"):
            outputs.refer(node, r.fixed, r.moving)
        if node := nodes.get("inverse_transform"):
            outputs.refer(node, r.moving, r.fixed)
        if node := nodes.get("transformed_volume"):
            outputs.show_like(node, r.moving)
        for node, source in zip(nodes.get("transferred", ()), r.transfer):
            if node.IsA("vtkMRMLVolumeNode"):
                outputs.show_like(node, source)


def _is_bent(node: Any) -> bool:
    """Whether a node is under a transform that is not linear."""
    parent = node.GetParentTransformNode()
    return parent is not None and not parent.IsTransformToWorldLinear()
