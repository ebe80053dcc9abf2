"""Runs a request: writes the inputs, starts the worker, reports its progress and makes the nodes. A
Qt timer or a loop calls poll(); only start() and wait() block.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable

from . import outputs
from .job import Job
from .process import Worker
from .request import Event, RegistrationRequest

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
        seconds, ...) and, where labels were given, ``dice`` (a label's name to [before, after]),
        ``dice_before`` and ``dice_after`` (means).
    verdict : dict or None
        When finished: ``grade``, ``sign``, ``meaning``, ``error`` (with its unit), ``reasons`` and
        ``notes``, texts to be shown.
    explanation : list of (str, str)
        When finished: how the result was made, as (what, in words).
    places : list of dict
        When finished: morphseek.report.worst_places, the worst first, with ``kind``, ``text``,
        ``tip`` and ``lps`` (mm).
    nodes : dict
        When finished: the node of each output (names as in ``options.OUTPUTS``), and under
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
        self.verdict: dict[str, Any] | None = None
        self.explanation: list[tuple[str, str]] = []
        self.places: list[dict[str, Any]] = []
        self.error: RegistrationError | None = None
        self._worker: Worker | None = None
        self._job: Job | None = None
        self._began = self._fraction = self._heard = 0.0
        self._silence = _SILENCE

    @property
    def running(self) -> bool:
        """Whether the registration still runs, so that poll() must be called."""
        return self.state == "running"

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
        self.scene = self.scene or self.request.fixed.GetScene()
        self._began = self._heard = time.monotonic()
        try:
            self._worker = Worker()
            self._job = Job(self.request, self._worker)
            self._worker.start(self._job.request)
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
        before = []
        try:
            built, metrics = self._job.build(result), result["metrics"]
            words = result["verdict"], result["explanation"], result["places"]
            metrics["seconds"]["with_transfers"] = 0.0
            self.scene.SaveStateForUndo()
            for output, nodes in built.items():
                targets = [target for _, target in nodes if target is not True]
                before += [(target, outputs.content_of(target)) for target in targets]
                published = [outputs.publish(self.scene, node, target) for node, target in nodes]
                self.nodes[output] = published if output == "transferred" else published[0]
            self._job.dress(self.nodes)
        except Exception as error:
            for node in outputs.nodes_of(self.scene):
                if node.GetID() not in known:
                    self.scene.RemoveNode(node)
            for target, content in before:
                outputs.restore(target, content)
            self.nodes = {}
            self._fail(
                "The registration is done, but its results could not be brought into the scene:"
                f" {type(error).__name__}: {error}"
            )
            return
        metrics["seconds"]["with_transfers"] = time.monotonic() - self._began
        self.result = metrics
        self.verdict, self.explanation, self.places = words
        self._end("finished")

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
        worker, self._worker, self._job = self._worker, None, None
        if worker is not None:
            worker.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._end(self.state)


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
