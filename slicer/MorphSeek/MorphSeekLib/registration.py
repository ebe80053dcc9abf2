"""Runs a request: writes the inputs, starts the worker, reports its progress and makes the nodes. A
Qt timer or a loop calls poll(); only start() and wait() block.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable

import numpy as np

from . import geometry, outputs, transfer
from .process import Worker
from .request import OUTPUTS, Event, RegistrationRequest

_SILENCE = 60.0  # seconds; while it registers, the worker writes a line each second
_SHARE = (0.03, 0.95)  # fractions of the whole progress where the worker's part begins and ends


class RegistrationError(RuntimeError):
    """A registration that failed. str() is for the user; `name` and `code` are those of
    :mod:`morphseek.errors`.
    """

    def __init__(self, message: str, name: str = "internal", code: int = 1):
        super().__init__(message)
        self.name, self.code = name, code


class Registration:
    """One run of a request.

    Parameters
    ----------
    request : RegistrationRequest
    scene : vtkMRMLScene, optional
        The scene of new nodes: by default that of the fixed volume.

    Attributes
    ----------
    state : {"ready", "running", "finished", "failed", "cancelled"}
    result : dict or None
        When finished: the engine's metrics (similarity_before, similarity_after, njd_percent,
        seconds, warnings, verdict, ...) and, where labels were given, ``dice`` (label to [before,
        after]), ``dice_before`` and ``dice_after`` (means).
    places : list of dict
        When finished: morphseek.report.worst_places, the worst first, with ``kind``, ``text``,
        ``tip`` and ``lps`` (mm). Empty with an older package.
    nodes : dict
        When finished: the node of each output (names as in ``request.OUTPUTS``), and under
        "transferred" the list of nodes that ``request.transfer`` led to.
    error : RegistrationError or None
        When failed.
    """

    def __init__(self, request: RegistrationRequest, scene: Any = None):
        self.request = request
        self.scene = scene
        self.state = "ready"
        self.result: dict[str, Any] | None = None
        self.nodes: dict[str, Any] = {}
        self.places: list[dict[str, Any]] = []
        self.error: RegistrationError | None = None
        self._worker: Worker | None = None
        self._scratch: Any = None
        self._began = self._fraction = self._heard = 0.0
        self._silence = _SILENCE
        self._layers: dict[Any, list[transfer.Layer]] = {}
        # the nodes of _layers under a transform that is not linear, each with a copy of that
        # transform as it was at the start
        self._bent: dict[Any, Any] = {}
        self._reference: Any = None  # the fixed volume's grid in the world
        self._markups: list[Any] = []  # those in request.transfer, as they were at the start
        self._fixed_labels: dict[str, tuple[np.ndarray, int]] = {}
        self._dice_before: dict[str, float] = {}

    @property
    def running(self) -> bool:
        """Whether the registration still runs, so that poll() must be called."""
        return self.state == "running"

    @property
    def pid(self) -> int:
        """The id of the worker process, while it runs."""
        return self._worker.pid

    def start(self) -> None:
        """Write the inputs and start the worker.

        Raises
        ------
        ValueError
            The request cannot run; the text is validate()'s.
        RegistrationError
            The worker could not be started, or the temporary folder could not be written.
        """
        if self.state != "ready":
            raise RuntimeError("a Registration runs once; make a new one")
        if reason := self.request.validate():
            raise ValueError(reason)
        import slicer

        self.scene = self.scene or self.request.fixed.GetScene()
        self._scratch, self._began = slicer.vtkMRMLScene(), time.monotonic()
        self._heard = self._began
        try:
            self._worker = Worker()
            self._worker.start(self._prepare())
        except OSError as error:
            self._end("failed")
            self.error = RegistrationError(
                f"The registration could not be started: {error}. Is the disk full, or the Python"
                " package damaged?"
            )
            raise self.error from None
        except BaseException:
            self._end("failed")
            raise
        self.state = "running"

    def _prepare(self) -> dict[str, Any]:
        """Write the arrays as all nodes are now; return the worker's request."""
        r, put = self.request, self._worker.put
        job: dict[str, Any] = {"options": r.options(), "field_spacing": r.field_spacing}
        for side in ("fixed", "moving"):
            volume = geometry.in_world(self._scratch, getattr(r, side))
            grid = geometry.to_geometry(geometry.matrix_of(volume))
            job[side] = put(side, geometry.array_of(volume), grid)
            if (mask := getattr(r, f"{side}_mask")) is not None:
                reference = transfer.on_scratch(self._scratch, volume)
                job[f"{side}_mask"] = put(
                    f"{side}_mask", transfer.mask_on(self._scratch, mask, reference), grid
                )
            if side == "fixed" and r.rigid_regions is not None:
                reference = transfer.on_scratch(self._scratch, volume)
                regions = transfer.numbered_on(self._scratch, r.rigid_regions, reference)
                job["rigid_regions"] = put("rigid-regions", regions, grid)
            if (points := getattr(r, f"{side}_landmarks")) is not None:
                job[f"{side}_landmarks"] = transfer.points_of(points)
        if r.initial_transform is not None:
            if r.initial_transform.IsTransformToWorldLinear():
                job["initial_transform"] = geometry.initial_matrix(r.initial_transform).tolist()
            else:
                fixed = geometry.in_world(self._scratch, r.fixed)
                grid = geometry.to_geometry(geometry.matrix_of(fixed))
                job["initial_field"] = put(
                    "initial_field", geometry.field_on(r.initial_transform, fixed), grid
                )
        wanted = [name for name in OUTPUTS if getattr(r, name)]
        self._markups = [
            transfer.copy_markups(self._scratch, node)
            for node in r.transfer
            if node.IsA("vtkMRMLMarkupsNode")
        ]
        job["labels"] = self._prepare_labels()
        job["channels"] = self._prepare_channels()
        if (self._markups or self._bent) and "transform" not in wanted:
            wanted.append("transform")
        job["outputs"] = [outputs.WORKER[name] for name in wanted]
        return job

    def _prepare_channels(self) -> list[dict[str, Any]]:
        """Write the second volumes and labels that drive the registration; _prepare_labels comes
        first.
        """
        r, scratch, entries = self.request, self._scratch, []

        def put(side: str, array: np.ndarray, volume: Any) -> dict[str, Any]:
            grid = geometry.to_geometry(geometry.matrix_of(volume))
            return self._worker.put(f"channel-{len(entries)}-{side}", array, grid)

        for pair in r.channels:
            volumes = [geometry.in_world(scratch, node) for node in pair]
            both = {
                side: put(side, geometry.array_of(volume), volume)
                for side, volume in zip(("fixed", "moving"), volumes)
            }
            entries.append({"name": pair[0].GetName(), "labels": False, **both})
        if r.labels_drive:
            grids = [self._reference, transfer.on_scratch(scratch, r.moving)]
            moving = transfer.labels_on(scratch, r.moving_labels, grids[1])
            arrays = transfer.numbered_alike(self._fixed_labels, moving)
            both = {
                side: put(side, array, grid)
                for side, array, grid in zip(("fixed", "moving"), arrays, grids)
            }
            entries.append({"name": "the labels", "labels": True, **both})
        return entries

    def _prepare_labels(self) -> list[dict[str, Any]]:
        """Write the label arrays that the worker brings onto the fixed grid, and keep those that
        this process resamples. Measure Dice before the registration.
        """
        r, entries, kept = self.request, [], {}
        nodes = [
            node
            for node in (*r.transfer, r.moving_labels)
            if node is not None and not node.IsA("vtkMRMLMarkupsNode")
        ]
        if r.fixed_labels is not None or any(_is_bent(node) for node in nodes):
            self._reference = transfer.on_scratch(self._scratch, r.fixed)
        if r.fixed_labels is not None:
            self._fixed_labels = transfer.labels_on(self._scratch, r.fixed_labels, self._reference)
            self._dice_before = transfer.dice(
                self._fixed_labels,
                transfer.labels_on(self._scratch, r.moving_labels, self._reference),
            )
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
                entries.append(
                    self._worker.put(
                        f"labels-in-{len(entries)}", array, geometry.to_geometry(matrix)
                    )
                )
        return entries

    def poll(self) -> list[Event]:
        """Return what happened since the last call. The call that finds the worker done also makes
        the nodes, or sets `error`.
        """
        events = []
        if not self.running:
            return events
        if not self._fraction:
            self._fraction = _SHARE[0]
            events.append(
                Event("prepare", self._fraction, None, "the worker has the volumes and starts")
            )
        lines = self._worker.lines()
        for line in lines:
            try:
                events += self._taken(line)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self._fail(
                    "The answer of the registration process cannot be read"
                    f" ({type(error).__name__}: {error}). The Python package may not match the"
                    " extension's version. Install it again; then click Register again"
                )
            if not self.running:
                return events
        now = time.monotonic()
        if lines:
            self._heard, self._silence = now, _SILENCE
        elif now - self._heard > self._silence:
            self._silence += 10.0
            said = (
                f"the registration process has not reported for {now - self._heard:.0f} s; it may"
                " hang. Cancel ends it"
            )
            events.append(Event("prepare", self._fraction, None, said))
        return events

    def _taken(self, line: dict[str, Any] | None) -> list[Event]:
        """Handle one line of the worker's output; None: it has ended."""
        if line is None:
            self._fail(
                f"The registration process ended unexpectedly ({self._worker.why()}). If memory"
                " ran out, close other programs, choose the preset Fast or crop the volumes;"
                " then click Register again"
            )
        elif "progress" in line:
            return [self._event(**line["progress"])]
        elif "error" in line:
            self._fail(line["error"]["message"], line["error"]["name"], line["error"]["code"])
        elif "result" in line:
            events = [Event("outputs", self._fraction, None, "making the nodes")]
            self._finish(line["result"])
            if self.state == "failed":
                return [*events, Event("outputs", self._fraction, 0.0, "")]
            return [*events, Event("outputs", 1.0, 0.0, "done")]
        return []

    def _event(self, stage: str, fraction: float, message: str) -> Event:
        begin, end = _SHARE
        self._fraction = max(self._fraction, begin + min(float(fraction), 1.0) * (end - begin))
        elapsed = time.monotonic() - self._began
        known = elapsed > 2 and self._fraction > begin + 0.05
        return Event(
            stage,
            self._fraction,
            elapsed * (1 - self._fraction) / self._fraction if known else None,
            message,
        )

    def _fail(self, message: str, name: str = "internal", code: int = 1) -> None:
        self.error = RegistrationError(message, name, code)
        self._end("failed")

    def _finish(self, result: dict[str, Any]) -> None:
        known = {node.GetID() for node in outputs.nodes_of(self.scene)}
        try:
            built, metrics = self._build(result)
            metrics["seconds"]["with_transfers"] = 0.0
            self.scene.SaveStateForUndo()
            for output, nodes in built.items():
                published = [outputs.publish(self.scene, node, target) for node, target in nodes]
                self.nodes[output] = published if output == "transferred" else published[0]
            self._dress()
        except Exception as error:
            for node in outputs.nodes_of(self.scene):
                if node.GetID() not in known:
                    self.scene.RemoveNode(node)
            self.nodes = {}
            self._fail(
                "The registration is done, but its results could not be brought into the scene:"
                f" {type(error).__name__}: {error}"
            )
            return
        metrics["seconds"]["with_transfers"] = time.monotonic() - self._began
        self.result, self.places = metrics, result.get("places") or []
        self._end("finished")

    def _build(
        self, result: dict[str, Any]
    ) -> tuple[dict[str, list[tuple[Any, Any]]], dict[str, Any]]:
        """Build every output in the scratch scene; return them with their targets, and the
        metrics.
        """
        r, scratch, metrics, get = self.request, self._scratch, result["metrics"], self._worker.get
        nodes = {}
        for output in OUTPUTS:
            if entry := result["files"].get(outputs.WORKER[output]):
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
        for node in r.transfer:
            if node.IsA("vtkMRMLMarkupsNode"):
                made = transfer.moved_markups(next(markups), nodes["transform"])
            else:
                made = transfer.assemble(scratch, node, self._layers[node], *moved[node])
            built["transferred"].append((made, True))
        if r.fixed_labels is not None:
            after = transfer.dice(
                self._fixed_labels,
                transfer.by_name(self._layers[r.moving_labels], moved[r.moving_labels][0]),
            )
            metrics["dice"] = {
                name: [self._dice_before.get(name, 0.0), score] for name, score in after.items()
            }
            if after:
                metrics["dice_before"], metrics["dice_after"] = (
                    float(np.mean(column)) for column in zip(*metrics["dice"].values())
                )
            else:
                metrics["warnings"].append(
                    "Dice was not measured: the two sides have no label in common on the fixed"
                    " volume"
                )
        return built, metrics

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
                moved[node] = [self._worker.get(entry) for entry in own], geometry.to_matrix(own[0])
        return moved

    def _dress(self) -> None:
        r = self.request
        if node := self.nodes.get("transform"):
            outputs.refer(node, r.fixed, r.moving)
        if node := self.nodes.get("inverse_transform"):
            outputs.refer(node, r.moving, r.fixed)
        if node := self.nodes.get("transformed_volume"):
            outputs.show_like(node, r.moving)
        for node, source in zip(self.nodes.get("transferred", ()), r.transfer):
            if node.IsA("vtkMRMLVolumeNode"):
                outputs.show_like(node, source)

    def cancel(self) -> None:
        """End the worker at once. No node is made."""
        if self.running:
            self._end("cancelled")

    def wait(
        self, show: Callable[[Event], Any] | None = None, interval: float = 0.05
    ) -> dict[str, Any]:
        """Poll until the registration ends, for scripts; return the result. An exception, also by
        Ctrl-C, cancels it.

        Raises
        ------
        RegistrationError
            It failed.
        """
        try:
            while self.running:
                for event in self.poll():
                    if show is not None:
                        show(event)
                time.sleep(interval if self.running else 0)
        finally:
            self.cancel()
        if self.error is not None:
            raise self.error
        return self.result

    def _end(self, state: str) -> None:
        self.state = state
        worker, self._worker, self._scratch = self._worker, None, None
        if worker is not None:
            worker.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._end(self.state)


def _is_bent(node: Any) -> bool:
    """Whether a node is under a transform that is not linear."""
    parent = node.GetParentTransformNode()
    return parent is not None and not parent.IsTransformToWorldLinear()


def register(
    request: RegistrationRequest, show: Callable[[Event], Any] | None = None, scene: Any = None
) -> Registration:
    """Run a request and wait for it, for scripts; return the finished Registration.

    >>> request = RegistrationRequest(fixed=fixedNode, moving=movingNode, transfer=[labelsNode])
    >>> done = register(request)
    >>> done.nodes["transform"], done.result["njd_percent"]
    """
    registration = Registration(request, scene)
    registration.start()
    registration.wait(show)
    return registration
